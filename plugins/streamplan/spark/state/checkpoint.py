"""The checkpoints of an application, found, read and prepared through Spark.

``checkpoint_name.py`` describes where they lie, ``offset_log.py`` what Spark writes into them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from streamplan.kafka_types import TopicPartition
from streamplan.model.start_point import CheckpointState, OffsetMap
from streamplan.spark.state.checkpoint_name import IDENTITY, CheckpointName, left_over, newest_first
from streamplan.spark.state.hadoop_files import HadoopFiles
from streamplan.spark.state.offset_log import (
    COMMITS,
    OFFSETS,
    CorruptCheckpoint,
    batch_numbers,
    head_of_offsets,
    offset_lines,
    parse_offsets,
    parse_ticks,
)
from streamplan.spark.ticks import TICKS


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one application.

    Attributes:
        spark: The session whose file systems are used.
        location: The application's directory, a path or a URI.
    """

    spark: SparkSession
    location: str

    def find(self, subtopology: int, checkpoint_id: str = "") -> Checkpoint | None:
        """Return the complete checkpoint of a sub-topology that was used last; None where there is none.

        Args:
            subtopology: The id of the sub-topology.
            checkpoint_id: The id of the checkpoint; empty for any.
        """
        for name in newest_first(self._files.names(), subtopology, checkpoint_id):
            if self._files.exists(f"{name}/{IDENTITY}"):
                return Checkpoint(self.spark, self.location, name)
        return None

    def new(self, subtopology: int, generation: int) -> Checkpoint:
        """Return a checkpoint that does not exist yet, with an id of its own.

        Args:
            subtopology: The id of the sub-topology.
            generation: The number of the generation that makes it.
        """
        return Checkpoint(self.spark, self.location, CheckpointName.new(subtopology, generation))

    def take(self, checkpoint: Checkpoint, generation: int) -> Checkpoint:
        """Rename a checkpoint, so that no older aggregator knows where it lies.

        Not every file system renames a directory at once. So it is not complete meanwhile.

        Args:
            checkpoint: A complete checkpoint.
            generation: The number of the generation that uses it from now on.

        Raises:
            StreamplanError: It could not be renamed.
        """
        taken = replace(checkpoint, name=replace(checkpoint.name, generation=generation))
        identity = self._files.read(f"{checkpoint.name}/{IDENTITY}")
        self._files.delete(f"{checkpoint.name}/{IDENTITY}")
        self._files.rename(str(checkpoint.name), str(taken.name))
        taken.correct_paths(str(checkpoint.name))
        taken.complete(json.loads(identity))
        return taken

    def delete_left_over(self, used: Checkpoint) -> None:
        """Delete the checkpoints of older generations beside ``used``."""
        for name in left_over(self._files.names(), used.name):
            self._files.delete(str(name))

    @cached_property
    def _files(self) -> HadoopFiles:
        return HadoopFiles(self.spark, self.location)


_HELD = "held"
"""The file of a checkpoint whose query reads on while records of a partition are held back."""


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint of one query.

    Attributes:
        spark: The session whose file systems are used.
        directory: The directory of all checkpoints of the application, a path or a URI.
        name: Its name in this directory.
    """

    spark: SparkSession
    directory: str
    name: CheckpointName

    @property
    def location(self) -> str:
        """A path or a URI."""
        return f"{self.directory}/{self.name}"

    @property
    def id(self) -> str:
        """The id that Kafka names."""
        return self.name.id

    def state(self, topics: Sequence[str]) -> CheckpointState:
        """Return what the checkpoint says.

        Args:
            topics: The topics that the query reads.
        """
        try:
            identity = json.loads(self._files.read(IDENTITY))
            if _HELD in self._files.names():
                return CheckpointState(corruption=f"it read on while {self._files.read(_HELD)} was held back")
            planned, committed = self.last_planned(), self.last_committed()
            if planned is None:
                return CheckpointState(identity)
            return CheckpointState(
                identity,
                committed=self.end_offsets(committed, topics) if committed is not None else self._initial(topics),
                planned=self.end_offsets(planned, topics),
                batch=planned,
            )
        except (CorruptCheckpoint, ValueError) as error:
            return CheckpointState(corruption=str(error))
        except Py4JJavaError as error:  # a file of the log is missing, or cannot be read
            return CheckpointState(corruption=str(error.java_exception).splitlines()[0])

    def has_read(self, topics: Sequence[str]) -> bool:
        """Return whether a micro-batch of it was begun that reads these topics. If that cannot be told, it was.

        Args:
            topics: The topics that the query reads.
        """
        planned = self.last_planned()
        if planned is None:
            return False
        try:
            return any(topic in topics for topic, _ in parse_offsets(OFFSETS, self._files.read(f"{OFFSETS}/{planned}")))
        except (CorruptCheckpoint, Py4JJavaError):
            return True

    def complete(self, identity: Mapping[str, str]) -> None:
        """Say which query the checkpoint belongs to. It is complete from now on."""
        self._files.write(IDENTITY, json.dumps(dict(identity), indent=1))

    def correct_paths(self, before: str) -> None:
        """Let Spark find the schemas of the state after the checkpoint was renamed.

        For the operator ``transformWithState`` it keeps their paths (Spark's ``OperatorStateMetadataV2``). Where it
        finds no file it would take the state for new, and no longer refuse a state of another schema.

        Args:
            before: The name that the checkpoint had.
        """
        for operator in self._files.names("state"):
            log = f"state/{operator}/_metadata/v2"
            for batch in batch_numbers(self._files.names(log)):
                text = self._files.read(f"{log}/{batch}")
                self._files.delete(f"{log}/.{batch}.crc")
                self._files.write(f"{log}/{batch}", text.replace(f"/{before}/state/", f"/{self.name}/state/"))

    def set_aside(self) -> str:
        """Rename the checkpoint, so that nobody uses it any more. It is kept for whoever wants to look into it.

        The checkpoint of the sub-topology that was set aside before is deleted.

        Returns:
            Where the checkpoint lies now.

        Raises:
            StreamplanError: It could not be renamed.
        """
        directory, aside = HadoopFiles(self.spark, self.directory), f"{self.name.subtopology}.replaced"
        directory.delete(aside)
        directory.rename(str(self.name), aside)
        return f"{self.directory}/{aside}"

    def note_held(self, place: str) -> None:
        """Note that the query reads on while records of a partition are held back.

        Spark's offsets go beyond them then, so that no later start can go on with this checkpoint.

        Args:
            place: The first record that is held back, for people.
        """
        self._files.write(_HELD, place)

    def delete(self, name: str) -> None:
        """Delete a directory in the checkpoint."""
        self._files.delete(name)

    def begin_at(self, positions: OffsetMap, topics: Sequence[str]) -> None:
        """Prepare a checkpoint without state: the next query begins at ``positions``.

        Args:
            positions: The first offset of each topic and partition.
            topics: As for :meth:`continue_at`.
        """
        directories = _source_directories(topics)
        for (topic, directory), line in zip(directories.items(), offset_lines(positions, [*directories]), strict=True):
            if topic != TICKS:
                self._files.write(f"{directory}/0", f"\0v1\n{line}")  # as KafkaSourceInitialOffsetWriter does

    def continue_at(self, positions: OffsetMap, topics: Sequence[str]) -> None:
        """Let the next query continue at ``positions`` with the state that another query has left here.

        The other one has restored the state, or has read topics that the next one does not read.

        Args:
            positions: The next offset of each topic and partition.
            topics: The topics of the next query's sources, in Spark's order: each has a line in a file of offsets.

        Raises:
            CorruptCheckpoint: The other query did not finish.
        """
        last = self.last_committed()
        if last is None or last != self.last_planned():
            raise CorruptCheckpoint(f"{self.location}: the query before did not finish")
        for batch in range(max(0, last - 1), last + 1):  # Spark reads the offsets of the last two micro-batches
            head = head_of_offsets(self._files.read(f"{OFFSETS}/{batch}"), self._files.read(f"{COMMITS}/{batch}"))
            self._files.delete(f"{OFFSETS}/.{batch}.crc")
            self._files.write(f"{OFFSETS}/{batch}", "\n".join([*head, *offset_lines(positions, topics)]))
        self._files.delete("sources")  # of the other query

    def resume_ticks(self, topics: Sequence[str], now_ms: int) -> None:
        """Let the source of ticks go on from where it was, whatever the clock was then.

        Spark counts the seconds since the time in this file (``RateStreamMicroBatchStream``). Where the clock is behind
        the one of before, it would refuse the source. After a pause it would give the ticks of the whole pause.

        Args:
            topics: The topics of the query's sources, in Spark's order.
            now_ms: The time now.
        """
        planned = self.last_planned()
        if TICKS not in topics or planned is None:
            return
        name = _source_directories(topics)[TICKS]
        begun_ms = now_ms - 1000 * self._ticks(planned, topics)
        self._files.delete(f"{name}/.0.crc")
        self._files.write(f"{name}/0", f"v1\n{begun_ms}")

    def has_ticks(self, batch: int, topics: Sequence[str]) -> bool:
        """Return whether a micro-batch has a row of each stream task from the source of ticks.

        Args:
            batch: Number of the micro-batch; Spark has begun it.
            topics: The topics of the query's sources, in Spark's order.

        Raises:
            CorruptCheckpoint: A file of the log cannot be understood.
        """
        if TICKS not in topics:
            return False
        return self._ticks(batch, topics) > (self._ticks(batch - 1, topics) if batch else 0)

    def _ticks(self, batch: int, topics: Sequence[str]) -> int:
        name = f"{OFFSETS}/{batch}"
        return parse_ticks(name, self._files.read(name), topics.index(TICKS))

    def offset_ranges(self, batch: int, topics: Sequence[str]) -> dict[TopicPartition, tuple[int, int]]:
        """Return the offsets ``first <= offset < until`` of a micro-batch.

        Args:
            batch: Number of the micro-batch; Spark has begun it.
            topics: The topics that the query reads.

        Returns:
            ``(first, until)`` of each topic and partition that has new offsets.

        Raises:
            CorruptCheckpoint: A file of the log cannot be understood.
        """
        ends = self.end_offsets(batch, topics)
        starts = self.end_offsets(batch - 1, topics) if batch else {}
        if starts.keys() != ends.keys():
            starts = self._initial(topics) | starts  # a source begins in the micro-batch that reads it first
        return {
            partition: (starts.get(partition, 0), end)
            for partition, end in ends.items()
            if end > starts.get(partition, 0)
        }

    def end_offsets(self, batch: int, topics: Sequence[str]) -> dict[TopicPartition, int]:
        """Return the offset past the last one of a micro-batch, for each topic and partition.

        Raises:
            CorruptCheckpoint: The file of the log cannot be understood.
        """
        return self._offsets(f"{OFFSETS}/{batch}", topics)

    def last_planned(self) -> int | None:
        """Return the number of the newest micro-batch that was begun; None for a new checkpoint."""
        return self._newest(OFFSETS)

    def last_committed(self) -> int | None:
        """Return the number of the newest micro-batch that Spark has finished; None before the first."""
        return self._newest(COMMITS)

    def _initial(self, topics: Sequence[str]) -> dict[TopicPartition, int]:
        offsets: dict[TopicPartition, int] = {}
        for topic, directory in _source_directories(topics).items():
            if topic != TICKS:
                offsets = self._offsets(f"{directory}/0", topics) | offsets
        return offsets

    def _newest(self, log: str) -> int | None:
        return max(batch_numbers(self._files.names(log)), default=None)

    def _offsets(self, name: str, topics: Sequence[str]) -> dict[TopicPartition, int]:
        found = parse_offsets(name, self._files.read(name))
        offsets = {key: offset for key, offset in found.items() if key[0] in topics}
        if not offsets:
            raise CorruptCheckpoint(f"{name} has no offsets of {', '.join(topics)}")
        return offsets

    @cached_property
    def _files(self) -> HadoopFiles:
        return HadoopFiles(self.spark, self.location)


def _source_directories(topics: Sequence[str]) -> dict[str, str]:
    """Return where the log of the first offsets of each source is, by its topic.

    A plan that takes several ways from one source has a line of offsets for each way, and one such log.
    """
    return {topic: f"sources/{number}" for number, topic in enumerate(dict.fromkeys(topics))}
