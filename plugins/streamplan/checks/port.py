"""What the checks need to see of Kafka. The real one is ``adapters.kafka``; unit tests bring their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from streamplan.topics import ObservedTopic


@dataclass(frozen=True)
class Offsets:
    """Of one partition: first offset, last stable offset (``read_committed``), high watermark."""

    start: int
    stable: int
    end: int


@dataclass(frozen=True, slots=True)
class Record:
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Cluster(Protocol):
    """Read-only. Every method has a deadline and raises ``CouldNotLook`` past it."""

    def topics(self, names: Sequence[str]) -> Mapping[str, ObservedTopic]:
        """Those of ``names`` that exist."""

    def offsets(self, topic: str) -> Mapping[int, Offsets]:
        """By partition."""

    def positions(self, group: str, topic: str) -> Mapping[int, int]:
        """Committed, stable positions of a consumer group by partition; partitions without one are absent."""

    def records(self, topic: str, ranges: Mapping[int, tuple[int, int]]) -> Iterator[Sequence[Record]]:
        """Committed records with ``first <= offset < last`` for each partition's ``(first, last)``, in chunks.

        Within a partition records come in the order of their offsets.
        """
