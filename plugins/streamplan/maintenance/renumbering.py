"""Which topic was probably that of a store, or of a repartition, that has another number or another name now."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
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

    Renumbering keeps the order. So where as many are declared as are deployed, of those that are alike, the first is
    the first. Otherwise what has the same name is the same, and any other one may have been any.
    """
    new = sorted(declared, key=lambda each: (each.number, each.name))
    old = sorted(deployed, key=lambda each: (each.number, each.name))
    alike = {each.name: [other.name for other in old if each.is_like(other)] for each in new}
    matches: dict[str, tuple[str, ...]] = {}
    for name, names in alike.items():
        rivals = [other for other, of_other in alike.items() if of_other == names]
        if len(rivals) == len(names):
            matches[name] = (names[rivals.index(name)],)
        elif name in names:
            matches[name] = (name,)
        elif others := [other for other in names if other not in alike]:
            matches[name] = tuple(others)
    return matches
