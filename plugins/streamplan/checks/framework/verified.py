"""The last cut at which the totals agreed, and what was verified of each key: a look at the news goes out from it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

Positions: TypeAlias = Mapping[int, int]
"""By partition."""


@dataclass(frozen=True)
class KeyTotals:
    """Of one key: how often it was counted in the source, and its value in each partition of the changelog."""

    counted: int = 0
    values: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class VerifiedCut:
    """A moment at which everything agreed.

    ``topics``   the ids of the topics: one that was deleted and made again has another
    ``source``   positions in the source; ``changelog`` and ``letters``: ends of those topics
    ``records``  of the source, up to there; ``waiting``: keys of those that were between the two sub-topologies
    ``repartition``  positions in the repartition topic: what lies below is in the changelog
    """

    topics: Mapping[str, str]
    source: Positions
    changelog: Positions
    letters: Positions
    records: int
    waiting: frozenset[bytes]
    repartition: Positions = field(default_factory=dict)


@dataclass(frozen=True)
class StateStoreTotals:
    """What a state store held once it had read the repartition topic up to ``positions``."""

    positions: Positions
    totals: Mapping[bytes, int]


class VerifiedStore(Protocol):
    """Where the last verified cut is kept. The real one is ``reports.verified_sqlite``."""

    def verified(self) -> VerifiedCut | None: ...

    def held(self, keys: Collection[bytes] | None) -> Mapping[bytes, KeyTotals]:
        """What was verified of these keys, of all for None; those that had no records are absent."""

    def keys(self) -> int:
        """How many there are."""

    def keep(self, verified: VerifiedCut, changed: Mapping[bytes, KeyTotals], *, after: VerifiedCut | None) -> None:
        """Replace the cut ``after``, None for whatever was there before. Does nothing where another came between."""


class NoVerifiedStore:
    """Every look begins at the beginning."""

    def verified(self) -> VerifiedCut | None:
        return None

    def held(self, keys: Collection[bytes] | None) -> Mapping[bytes, KeyTotals]:
        return {}

    def keys(self) -> int:
        return 0

    def keep(self, verified: VerifiedCut, changed: Mapping[bytes, KeyTotals], *, after: VerifiedCut | None) -> None:
        pass
