"""Which topic was probably that of a store, or of a repartition, that has another number or another name now."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

_NUMBERED = re.compile(r"(.*-)([0-9]{10})")


@dataclass(frozen=True)
class Likeness:
    """What a store or a repartition topic has in common with that of another version of the declaration.

    Attributes:
        name: The name of the store, or of the repartition topic without application id and suffix.
        partitions: The partitions of its topic.
        cleanup_policy: That of its topic.
        operation: What the store holds, as identities of checkpoints name it; empty where that is not known.
    """

    name: str
    partitions: int
    cleanup_policy: frozenset[str]
    operation: str = ""

    @property
    def number(self) -> int:
        """The number in a generated name; 0 in another name."""
        found = _NUMBERED.fullmatch(self.name)
        return int(found[2]) if found else 0

    def is_like(self, other: Likeness) -> bool:
        """Return whether the two are probably one, before and after a change.

        What two stores hold decides where both are known. Otherwise only generated names of the same kind are alike.
        """
        if (self.partitions, self.cleanup_policy) != (other.partitions, other.cleanup_policy):
            return False
        if self.operation and other.operation:
            return self._meaning == other._meaning
        return self._prefix is not None and self._prefix == other._prefix

    @property
    def _meaning(self) -> str:
        return self.operation.replace(f"store={self.name!r}", "store")

    @property
    def _prefix(self) -> str | None:
        found = _NUMBERED.fullmatch(self.name)
        return found[1] if found else None


def match_names(declared: Iterable[Likeness], deployed: Iterable[Likeness]) -> Mapping[str, tuple[str, ...]]:
    """Return, by the name that is declared, the names of what is deployed and was probably the same.

    Renumbering keeps the order. So where as many have a number as are deployed, of those that are alike, the first is
    the first. Otherwise what has the same name is the same, and what remains may be any of those that remain.
    """
    new = sorted(declared, key=lambda each: (each.number, each.name))
    old = sorted(deployed, key=lambda each: (each.number, each.name))
    alike = {each: tuple(other.name for other in old if each.is_like(other)) for each in new}
    matches: dict[str, tuple[str, ...]] = {}
    for names in dict.fromkeys(alike.values()):
        rivals = [each for each in new if alike[each] == names]
        matches |= _match_group(rivals, names)
    return matches


def _match_group(rivals: Sequence[Likeness], names: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """Match those that are alike with the names that they may have had."""
    numbered = [each.name for each in rivals if each.number]
    if len(numbered) == len(names):
        return {name: (before,) for name, before in zip(numbered, names, strict=True)}
    matches: dict[str, tuple[str, ...]] = {each.name: (each.name,) for each in rivals if each.name in names}
    new = [each.name for each in rivals if each.name not in matches]
    old = tuple(name for name in names if name not in matches)
    if len(new) == len(old):
        return matches | {name: (before,) for name, before in zip(new, old, strict=True)}
    return matches | dict.fromkeys(new if old else (), old)
