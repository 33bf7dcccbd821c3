"""The headers of a dead-letter record: where its record came from, and why it could not be processed.

The sink appends them to the record's own headers, so of several headers with one name the last is Streamplan's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

REASON = "streamplan.reason"
TASK = "streamplan.task"
"""The stream task that met the record, ``<sub-topology>_<partition>``."""

SOURCE_TOPIC = "streamplan.source.topic"
SOURCE_PARTITION = "streamplan.source.partition"
SOURCE_OFFSET = "streamplan.source.offset"


Headers: TypeAlias = Iterable[tuple[str, bytes | None]]


class Origin(NamedTuple):
    """Where the record lies that could not be processed."""

    topic: str
    partition: int
    offset: int


def origin_headers(origin: Origin) -> dict[str, str]:
    """The headers that name the record."""
    return {
        SOURCE_TOPIC: origin.topic,
        SOURCE_PARTITION: str(origin.partition),
        SOURCE_OFFSET: str(origin.offset),
    }


def parse_origin(headers: Headers) -> Origin | None:
    """The record that a dead-letter record names; None where its headers name none."""
    named = dict(headers)
    topic, partition, offset = (named.get(name) or b"" for name in (SOURCE_TOPIC, SOURCE_PARTITION, SOURCE_OFFSET))
    if not (partition.isdigit() and offset.isdigit()):
        return None
    return Origin(topic.decode("utf-8", "replace"), int(partition), int(offset))


def parse_subtopology(headers: Headers) -> bytes:
    """The number of the sub-topology in the header :data:`TASK`, as it stands there; empty without one."""
    return (dict(headers).get(TASK) or b"").partition(b"_")[0]
