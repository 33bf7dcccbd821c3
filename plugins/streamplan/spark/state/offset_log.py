"""The layout of Spark's checkpoints, and the text of the offsets in them.

``checkpoint_name.py`` says where a checkpoint lies. Spark writes ``offsets/<batch>`` before a micro-batch runs, with
the offsets at which it ends (Spark's class ``OffsetSeqLog``), and ``commits/<batch>`` after it. ``sources/<number>/0``
has the offsets at which a source of the query began (Spark's class ``KafkaSourceInitialOffsetWriter``). A file of
offsets has a few lines about other things, and then one line of JSON for each source: ``{topic: {partition: offset}}``.

This module is pure. ``checkpoint.py`` reads such files with Spark, ``checkpoint_files.py`` without it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from streamplan.errors import StreamplanError
from streamplan.kafka_types import TopicPartition
from streamplan.model.start_point import OffsetMap
from streamplan.spark.ticks import TICKS

OFFSETS = "offsets"
COMMITS = "commits"

LINES_BEFORE_SOURCES = 2
"""The version of the log, and a line about the whole micro-batch."""


class CorruptCheckpoint(StreamplanError):
    """A checkpoint is not what Spark wrote."""


def batch_numbers(names: Iterable[str]) -> set[int]:
    """Return the micro-batches that the files of one log belong to; other files are left out."""
    return {int(name) for name in names if name.isdigit()}


def parse_offsets(name: str, text: str) -> dict[TopicPartition, int]:
    """Return the offsets in one file of a log.

    Args:
        name: The file, as errors name it.
        text: Its content.

    Raises:
        CorruptCheckpoint: A line is no JSON.
    """
    offsets: dict[TopicPartition, int] = {}
    for line in text.splitlines():
        if '{"' not in line:
            continue
        try:
            content = json.loads(line[line.index('{"') :])
        except ValueError as error:
            raise CorruptCheckpoint(f"{name} is cut off, or not Spark's") from error
        for topic, partitions in content.items():
            # The line about the whole micro-batch has other values: its watermark, and Spark's settings.
            if isinstance(partitions, dict) and all(partition.isdigit() for partition in partitions):
                offsets |= {(topic, int(partition)): int(offset) for partition, offset in partitions.items()}
    return offsets


def parse_ticks(name: str, text: str, number: int) -> int:
    """Return how far a source of ticks is, whose offset is a number.

    Args:
        name: The file, as errors name it.
        text: Its content.
        number: The number of the source among those of the query.

    Raises:
        CorruptCheckpoint: There is no such line, or it is no number.
    """
    lines = text.splitlines()[LINES_BEFORE_SOURCES:]
    if number >= len(lines) or not lines[number].isdigit():
        raise CorruptCheckpoint(f"{name} has no offset of the source {number}, which gives ticks")
    return int(lines[number])


def offset_lines(offsets: OffsetMap, topics: Sequence[str]) -> list[str]:
    """Return one line for each topic, as Spark writes the offsets of a source. A source of ticks begins at 0."""
    by_topic: dict[str, dict[str, int]] = {topic: {} for topic in topics}
    for (topic, partition), offset in sorted(offsets.items()):
        if topic in by_topic:
            by_topic[topic][str(partition)] = offset
    return ["0" if topic == TICKS else json.dumps({topic: by_topic[topic]}) for topic in topics]


def head_of_offsets(offsets: str, commit: str) -> list[str]:
    """Return the lines before those of the sources, with the watermark that a micro-batch has left.

    Spark drops late records by the watermark that the micro-batch before has begun with
    (``eventTimeWatermarkForLateEvents``), and the query that goes on would not drop any in its first one.

    Args:
        offsets: The offsets of a micro-batch.
        commit: What Spark wrote after it.

    Raises:
        CorruptCheckpoint: One of them is no JSON.
    """
    version, of_batch = offsets.splitlines()[:LINES_BEFORE_SOURCES]
    try:
        settings, left = json.loads(of_batch), json.loads(commit.splitlines()[1])
    except (ValueError, IndexError) as error:
        raise CorruptCheckpoint("a micro-batch of the checkpoint is cut off, or not Spark's") from error
    watermark = max(settings["batchWatermarkMs"], left["nextBatchWatermarkMs"])
    return [version, json.dumps({**settings, "batchWatermarkMs": watermark})]
