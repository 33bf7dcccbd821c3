"""What ``Topology.describe()`` prints, read back: sub-topologies, what they read and write, their stores.

The format is that of ``TopologyDescription`` and its parts in Kafka Streams' ``InternalTopologyBuilder``; it has not
changed since 2.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations

from streamplan.errors import Refused

_SUBTOPOLOGY = re.compile(r"\s*Sub-topology: (\d+)( for global store.*)?")
_NODE = re.compile(r"\s*(Source|Processor|Sink): (.+) \((topics|stores|topic|extractor class): (.*)\)")
_ARROW = re.compile(r"\s*(-->|<--) (.*)")
_HEADING = re.compile(r"\s*Topolog(ies|y: .*):\s*")

_NODES = {"topics": "Source", "stores": "Processor", "topic": "Sink", "extractor class": "Sink"}


@dataclass(frozen=True)
class Source:
    """Reads ``topics``, or those whose names match ``pattern``, a regular expression."""

    name: str
    topics: tuple[str, ...]
    pattern: str | None = None


@dataclass(frozen=True)
class DescribedSubtopology:
    """``predecessors``: of each node, by name. ``stores``: by the name of the processor that uses them."""

    id: int
    sources: tuple[Source, ...]
    sinks: tuple[str, ...]
    stores: Mapping[str, tuple[str, ...]]
    predecessors: Mapping[str, tuple[str, ...]]

    @property
    def store_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(store for stores in self.stores.values() for store in stores))

    @property
    def joined(self) -> tuple[frozenset[str], ...]:
        """Sets of names of sources that are joined: records of one meet, in a store, what came from the other.

        A merge has none, and one processor alone does not join; the library enforces equal partition counts for the
        same sets (``InternalTopologyBuilder.copartitionSources``).
        """
        above = {name: self._sources_above(name) for name in self.stores}
        met = [
            above[one] | above[other]
            for one, other in combinations(self.stores, 2)
            if set(self.stores[one]) & set(self.stores[other]) and above[one] != above[other]
        ]
        groups: list[frozenset[str]] = []
        for group in met:
            touching = [other for other in groups if other & group]
            groups = [other for other in groups if not other & group] + [frozenset().union(group, *touching)]
        return tuple(groups)

    def _sources_above(self, name: str) -> frozenset[str]:
        above, ahead = set[str](), [name]
        while ahead:
            one = ahead.pop()
            if one not in above:
                above.add(one)
                ahead += self.predecessors.get(one, ())
        return frozenset(source.name for source in self.sources if source.name in above)


def read_description(text: str) -> tuple[DescribedSubtopology, ...]:
    """The sub-topologies that make stream tasks; global stores make none. Lines before the description are passed.

    Raises :class:`Refused` with the first line that is none of a description, or when there is no sub-topology.
    """
    begun: list[_Begun] = []
    node = ""
    for number, line in enumerate(text.splitlines(), 1):
        if found := _SUBTOPOLOGY.fullmatch(line):
            begun.append(_Begun(int(found[1]), is_global=found[2] is not None))
        elif begun and (found := _NODE.fullmatch(line)) and _NODES[found[3]] == found[1]:
            node = found[2]
            begun[-1].add(node, found[3], found[4])
        elif begun and node and (found := _ARROW.fullmatch(line)):
            if found[1] == "<--":
                begun[-1].predecessors[node] = _names(found[2])
            else:
                begun[-1].successors[node] = _names(found[2])
        elif begun and line.strip() and not _HEADING.fullmatch(line):
            raise Refused(
                f"line {number} of the topology",
                expected="a line of Topology.describe()",
                observed=repr(line.strip()[:80]),
                remedy="Give what System.out.println(topology.describe()) prints, and nothing behind it.",
            )
    if not begun:
        raise Refused("the topology", expected="the text of Topology.describe()", observed="no 'Sub-topology: 0'")
    return tuple(one.finished() for one in begun if not one.is_global)


class _Begun:
    def __init__(self, number: int, *, is_global: bool) -> None:
        self.number = number
        self.is_global = is_global
        self.sources: list[Source] = []
        self.sinks: list[str] = []
        self.stores: dict[str, tuple[str, ...]] = {}
        self.predecessors: dict[str, tuple[str, ...]] = {}
        self.successors: dict[str, tuple[str, ...]] = {}

    def add(self, name: str, what: str, listed: str) -> None:
        in_brackets = listed.startswith("[") and listed.endswith("]")
        if what == "topics":
            topics, pattern = (_names(listed[1:-1]), None) if in_brackets else ((), listed)
            self.sources.append(Source(name, topics, pattern))
        elif what == "stores":
            self.stores[name] = _names(listed[1:-1])
        elif what == "topic":
            self.sinks.append(listed)

    def finished(self) -> DescribedSubtopology:
        before: dict[str, tuple[str, ...]] = dict(self.predecessors)
        for name, after in self.successors.items():
            for one in after:
                before[one] = tuple(dict.fromkeys((*before.get(one, ()), name)))
        sinks = tuple(dict.fromkeys(self.sinks))
        return DescribedSubtopology(self.number, tuple(self.sources), sinks, self.stores, before)


def _names(listed: str) -> tuple[str, ...]:
    return tuple(name for name in listed.split(", ") if name and name != "none")


def topics_of(source: Source, existing: Iterable[str]) -> tuple[str, ...]:
    """Of a pattern those that exist. Raises :class:`Refused` for one that Python does not understand as Java does."""
    if source.pattern is None:
        return source.topics
    try:
        pattern = re.compile(source.pattern)
    except re.error as error:
        raise Refused(f"the pattern {source.pattern!r} of {source.name}", observed=str(error)) from error
    return tuple(sorted(name for name in existing if pattern.fullmatch(name)))
