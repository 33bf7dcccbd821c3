"""Every position that a consumer group ever committed, from ``__consumer_offsets``.

Read with ``read_committed``: what an aborted transaction would have committed is left out by the brokers themselves.
The topic is compacted, but never its active segment (100 MB, which no run of the suite fills): the history is whole.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tests.chaos.log import Record

TOPIC = "__consumer_offsets"

TORN = "chaos-torn"
"""Stands in the metadata of positions that the suite itself commits to break the history. They are not the group's."""


_METADATA = re.compile(rb"streamplan-generation .*? \.", re.DOTALL)
"""What an aggregator says with each position: its generation, the checkpoint, the micro-batch."""


class Commit(NamedTuple):
    """The group's position in ``topic``-``partition`` became ``position``; ``at`` is where that stands."""

    topic: str
    partition: int
    position: int
    at: str


def partition_of_group(group: str, partitions: int) -> int:
    """``GroupCoordinatorService.partitionFor``: the absolute value of Java's ``String.hashCode``."""
    hashed = 0
    for character in group:
        hashed = (31 * hashed + ord(character)) & 0xFFFFFFFF
    return abs(hashed - (1 << 32) if hashed >> 31 else hashed) % partitions


def commits(records: Iterable[Record], group: str) -> Iterator[Commit]:
    """The positions of a group, in their order.

    A claim sends the positions again as it finds them, so that nobody else can move them, and then, in the same
    transaction, those that count. What was sent first is in the topic, too. It has the metadata of an earlier commit.
    """
    sent: set[tuple[str, int, int, bytes]] = set()
    for record in records:
        key, value = record.key or b"", record.value
        (version,) = struct.unpack_from(">h", key)
        if version not in (0, 1) or value is None:  # 2 and more: members of groups; no value: the position expired
            continue
        if TORN.encode() in value:
            continue
        # OffsetCommitKey: group, topic, partition. OffsetCommitValue, in every version: the offset comes first.
        found, at = _string(key, 2)
        topic, at = _string(key, at)
        (partition,) = struct.unpack_from(">i", key, at)
        (_, position) = struct.unpack_from(">hq", value)
        metadata = _METADATA.search(value)
        again = (topic, partition, position, metadata[0] if metadata else record.place.encode())
        if found == group and again not in sent:
            sent.add(again)
            yield Commit(topic, partition, position, record.place)


def _string(data: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", data, at)
    return data[at + 2 : at + 2 + length].decode(), at + 2 + length
