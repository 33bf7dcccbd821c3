"""Kafka's own types, as the whole package names them. This module imports the standard library alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

TopicPartition: TypeAlias = tuple[str, int]
"""A topic and the number of one of its partitions (``org.apache.kafka.common.TopicPartition``)."""

PartitionOffset: TypeAlias = tuple[int, int]
"""The number of a partition of a known topic, and the offset of a record in it."""

OffsetByPartition: TypeAlias = Mapping[int, int]
"""An offset for each partition of a known topic."""

OffsetRanges: TypeAlias = Mapping[int, tuple[int, int]]
"""For each of some partitions of a known topic the first offset, and the offset behind the last one."""

Header: TypeAlias = tuple[str, bytes | None]
"""The name of a header, which Kafka calls its key, and its value (``org.apache.kafka.common.header.Header``)."""

Headers: TypeAlias = tuple[Header, ...]
"""The headers of a record in their order. A name may occur more than once."""

UNREADABLE_HEADERS: Headers = (("(headers with a name that is not UTF-8)", None),)
"""What stands for the headers of a record that the client cannot read, because a name among them is not UTF-8.

Kafka takes any bytes for a name. Spark and Kafka Streams read such headers: each byte that is not UTF-8 becomes U+FFFD.
"""


@dataclass(frozen=True)
class Offsets:
    """The borders of one partition.

    Attributes:
        log_start: The first offset that is there.
        last_stable: The end for readers with ``read_committed``.
        high_watermark: The end for all readers.
    """

    log_start: int
    last_stable: int
    high_watermark: int


class Record(NamedTuple):
    """A record as a consumer reads it from a partition of a known topic.

    Attributes:
        partition: Its partition.
        offset: Its offset.
        timestamp: In ms since the epoch.
        key: The key in bytes.
        value: The value in bytes.
        headers: Its headers; :data:`UNREADABLE_HEADERS` where they cannot be read.
    """

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
