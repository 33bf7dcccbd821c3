"""What the checks need to see of Kafka. The real one is ``adapters.kafka``; unit tests bring their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from streamplan.errors import StreamplanError
from streamplan.topics import ObservedTopic


class CouldNotLook(StreamplanError):
    """The question could not be asked: brokers away, a deadline passed, no permission. Neither passed nor failed."""


class RecordsGone(CouldNotLook):
    """Records asked for were deleted meanwhile, by retention or purging. Looking again at what is there may do."""


@dataclass(frozen=True)
class Offsets:
    """Of one partition: first offset, last stable offset (``read_committed``), high watermark."""

    start: int
    stable: int
    end: int


class Record(NamedTuple):
    """A tuple and not a dataclass: millions are made, and this is three times as fast."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Cluster(Protocol):
    """Read-only. Every method has a deadline and raises :class:`CouldNotLook` past it or when a topic is missing."""

    def topics(self, names: Sequence[str]) -> Mapping[str, ObservedTopic]:
        """Those of ``names`` that exist."""

    def offsets(self, topic: str) -> Mapping[int, Offsets]:
        """By partition. ``stable`` is read before ``end``: where they are equal, no transaction is open."""

    def positions(self, group: str, topic: str) -> Mapping[int, int]:
        """Committed, stable positions of a consumer group by partition; partitions without one are absent."""

    def records(self, topic: str, ranges: Mapping[int, tuple[int, int]]) -> Iterator[Sequence[Record]]:
        """Committed records with ``first <= offset < last`` for each partition's ``(first, last)``, in chunks.

        Within a partition records come in the order of their offsets. Raises :class:`RecordsGone`.
        """
