"""The last cut at which the totals agreed, and what was verified of each key. The next check begins there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from streamplan.kafka_types import OffsetByPartition


@dataclass(frozen=True)
class KeyTotals:
    """What was verified of one key.

    Attributes:
        counted: The number of its records in the source.
        changelog: Its value in each partition of the changelog that has one.
    """

    counted: int = 0
    changelog: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class VerifiedCut:
    """A moment at which everything agreed.

    Attributes:
        topic_ids: The id of each topic by name. A topic that was deleted and created again has another id.
        source: Positions in the source.
        changelog: Ends of the changelog.
        dead_letters: Ends of the dead-letter topic.
        records: The number of records of the source up to there.
        in_flight: The keys of records that were between the two sub-topologies.
        repartition: Positions in the repartition topic: the records below are in the changelog.
        repartition_ends: Ends of the repartition topic: the records below are those of ``source``. None in a cut that
            an earlier version stored.
        not_compared: The number of offsets of the source that were deleted before anything could be compared with them.
            What the changelog had of their records was taken as it was.
        without_key: The number of records of the source that are in no total, because they had nothing to be counted
            under.
    """

    topic_ids: Mapping[str, str]
    source: OffsetByPartition
    changelog: OffsetByPartition
    dead_letters: OffsetByPartition
    records: int
    in_flight: frozenset[bytes]
    repartition: OffsetByPartition = field(default_factory=dict)
    repartition_ends: OffsetByPartition | None = None
    not_compared: int = 0
    without_key: int = 0


@dataclass(frozen=True)
class StateStoreTotals:
    """What a state store held.

    Attributes:
        positions: How far the store had read the repartition topic.
        totals: The total of each key.
    """

    positions: OffsetByPartition
    totals: Mapping[bytes, int]


class VerifiedStore(Protocol):
    """Stores the last verified cut. ``reports.verified_sqlite`` has the implementation with a file."""

    def cut(self) -> VerifiedCut | None:
        """Return the last verified cut, or None."""

    def key_totals(self, keys: Collection[bytes] | None) -> Mapping[bytes, KeyTotals]:
        """Return what was verified of these keys, of all keys for None. Keys without records are absent."""

    def key_count(self) -> int:
        """Return the number of keys."""

    def advance(self, cut: VerifiedCut, changed: Mapping[bytes, KeyTotals], *, previous: VerifiedCut | None) -> None:
        """Replace the last verified cut.

        Args:
            cut: The new cut.
            changed: The keys whose totals are not those of ``previous``.
            previous: The cut with which the check began. Nothing is stored where another check stored a cut meanwhile.
                None replaces whatever is stored, with all keys.
        """


class NoVerifiedStore:
    """Stores nothing: every check counts from the beginning."""

    def cut(self) -> VerifiedCut | None:
        """Return None."""
        return None

    def key_totals(self, keys: Collection[bytes] | None) -> Mapping[bytes, KeyTotals]:
        """Return an empty mapping."""
        return {}

    def key_count(self) -> int:
        """Return 0."""
        return 0

    def advance(self, cut: VerifiedCut, changed: Mapping[bytes, KeyTotals], *, previous: VerifiedCut | None) -> None:
        """Do nothing."""
