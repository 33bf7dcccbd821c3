"""The topology as it runs: source, processor and sink nodes, sub-topologies, state stores.

``org.apache.kafka.streams.processor.internals.InternalTopologyBuilder`` and ``TopologyDescription``;
tests/integration/model/test_oracle.py compares :meth:`ProcessorTopology.describe` with the real library.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from streamplan.model.diagnostics import SourceLocation
from streamplan.model.java_collections import hash_order, string_hash
from streamplan.model.operations import Aggregate, Count, Join, Operation, Reduce, TableSource
from streamplan.serdes.serde import Serde


@dataclass(frozen=True)
class Source:
    """Reads a topic. ``value`` is the serde of a topic from outside; None for a repartition topic."""

    name: str
    topic: str
    location: SourceLocation
    value: Serde | None = None


@dataclass(frozen=True)
class Processor:
    name: str
    operation: Operation
    location: SourceLocation

    @property
    def store(self) -> str | None:
        """The state store that the processor writes or reads."""
        match self.operation:
            case Count(store=store) | Aggregate(store=store) | Reduce(store=store) | Join(store=store):
                return store
            case TableSource(store=store):
                return store
        return None

    @property
    def writes_store(self) -> bool:
        return self.store is not None and not isinstance(self.operation, Join)


@dataclass(frozen=True)
class Sink:
    """Writes a topic. ``internal`` for a repartition topic."""

    name: str
    topic: str
    location: SourceLocation
    internal: bool = False


Node: TypeAlias = Source | Processor | Sink


@dataclass(frozen=True, order=True)
class TaskId:
    """A stream task ``<sub-topology>_<partition>`` (``org.apache.kafka.streams.processor.TaskId``)."""

    subtopology: int
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology}_{self.partition}"


@dataclass(frozen=True)
class Subtopology:
    """Nodes connected by records or by a store, without a topic in between.

    ``nodes`` stand in the order in which records pass them; ``predecessors`` by the name of a node.
    """

    id: int
    nodes: tuple[Node, ...]
    predecessors: Mapping[str, tuple[str, ...]]

    @property
    def sources(self) -> tuple[Source, ...]:
        return tuple(node for node in self.nodes if isinstance(node, Source))

    @property
    def processors(self) -> tuple[Processor, ...]:
        return tuple(node for node in self.nodes if isinstance(node, Processor))

    @property
    def sinks(self) -> tuple[Sink, ...]:
        return tuple(node for node in self.nodes if isinstance(node, Sink))

    @property
    def source_topics(self) -> tuple[str, ...]:
        return tuple(source.topic for source in self.sources)

    @property
    def sink_topics(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(sink.topic for sink in self.sinks))

    @property
    def stores(self) -> tuple[str, ...]:
        return tuple(node.store for node in self.processors if node.writes_store and node.store is not None)

    @property
    def operations(self) -> tuple[Operation, ...]:
        return tuple(node.operation for node in self.processors)


@dataclass(frozen=True)
class RepartitionTopic:
    """``number_of_partitions`` is None where it follows from other topics."""

    name: str
    number_of_partitions: int | None
    location: SourceLocation


@dataclass(frozen=True)
class ProcessorTopology:
    """``nodes`` in the order in which the library would add them; ``predecessors`` by the name of a node.

    ``copartition_groups``  sets of names of sources that must have equally many partitions
    """

    nodes: tuple[Node, ...]
    predecessors: Mapping[str, tuple[str, ...]]
    repartition_topics: tuple[RepartitionTopic, ...]
    copartition_groups: tuple[frozenset[str], ...]

    @cached_property
    def subtopologies(self) -> tuple[Subtopology, ...]:
        """Numbered in the order of their first nodes (``makeNodeGroups``)."""
        group_of: dict[str, int] = {}
        members: dict[int, set[str]] = {}
        connections = [(name, before) for name, all_before in self.predecessors.items() for before in all_before]
        by_store: dict[str, str] = {}
        for node in self.nodes:
            group_of[node.name] = len(group_of)
            members[group_of[node.name]] = {node.name}
            if isinstance(node, Processor) and node.store is not None:
                connections.append((node.name, by_store.setdefault(node.store, node.name)))
        for one, other in connections:
            kept, gone = sorted((group_of[one], group_of[other]))
            if kept != gone:
                for name in members[gone]:
                    group_of[name] = kept
                members[kept] |= members.pop(gone)
        return tuple(
            Subtopology(
                number,
                tuple(node for node in self.nodes if node.name in members[group]),
                {name: self.predecessors[name] for name in members[group]},
            )
            for number, group in enumerate(sorted(members))
        )

    def describe(self) -> str:
        """What ``Topology.describe().toString()`` prints."""
        lines: list[str] = []
        for subtopology in self.subtopologies:
            lines.append(f"  Sub-topology: {subtopology.id}")
            described = _connect(subtopology)
            for entry in sorted(described.values(), key=lambda entry: entry.rank):
                match entry.node:
                    case Source(name=name, topic=topic):
                        lines += [f"    Source: {name} (topics: [{topic}])", f"      --> {entry.after}"]
                    case Processor(name=name, store=store):
                        lines += [f"    Processor: {name} (stores: [{store or ''}])", f"      --> {entry.after}"]
                        lines += [f"      <-- {entry.before}"]
                    case Sink(name=name, topic=topic):
                        lines += [f"    Sink: {name} (topic: {topic})", f"      <-- {entry.before}"]
            lines.append("")
        return "Topologies:\n " + "".join(f"{line}\n" for line in lines)


class _Described:
    """A node in a description. Its neighbours stand in the order that ``NODE_COMPARATOR`` gave them when they came."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.size = 1
        self.predecessors = _TreeSet()
        self.successors = _TreeSet()

    @property
    def rank(self) -> tuple[int, bytes]:
        """The greater subtree first, then by name (``String.compareTo``)."""
        return -self.size, self.node.name.encode("utf-16-be")

    @property
    def before(self) -> str:
        return ", ".join(entry.node.name for entry in self.predecessors) or "none"

    @property
    def after(self) -> str:
        return ", ".join(entry.node.name for entry in self.successors) or "none"

    def grow(self, delta: int) -> None:
        self.size += delta
        for before in self.predecessors:
            before.grow(delta)


def _connect(subtopology: Subtopology) -> dict[str, _Described]:
    """``describeSubtopology``: connects in the order of a Java ``HashMap``, since sizes change meanwhile."""
    described = {node.name: _Described(node) for node in subtopology.nodes}
    for name in hash_order(described, string_hash):
        entry = described[name]
        for before in (described[name] for name in subtopology.predecessors[name]):
            entry.predecessors.add(before)
            before.successors.add(entry)
            before.grow(entry.size)
    return described


class _TreeSet:
    """``java.util.TreeSet``, to which elements are only added.

    Their ranks change after they have come, so that where the next one goes depends on which of them it is compared
    with: on the shape of the red-black tree.
    """

    def __init__(self) -> None:
        self._root: _Place | None = None

    def __iter__(self) -> Iterator[_Described]:
        return self._from(self._root)

    def _from(self, place: _Place | None) -> Iterator[_Described]:
        if place is not None:
            left, right = place.below
            yield from self._from(left)
            yield place.entry
            yield from self._from(right)

    def add(self, entry: _Described) -> None:
        above, side = None, 0
        place = self._root
        while place is not None:
            above, side = place, int(entry.rank > place.entry.rank)
            place = place.below[side]
        added = _Place(entry, above)
        if above is None:
            self._root = added
        else:
            above.below[side] = added
        self._balance(added)

    def _balance(self, place: _Place) -> None:
        """``TreeMap.fixAfterInsertion``."""
        while (above := place.above) is not None and above.red and (top := above.above) is not None:
            side = top.below.index(above)
            beside = top.below[1 - side]
            if beside is not None and beside.red:
                above.red = beside.red = False
                top.red = True
                place = top
            else:
                if above.below[1 - side] is place:
                    self._rotate(above, side)
                    place, above = above, place
                above.red = False
                top.red = True
                self._rotate(top, 1 - side)
        if self._root is not None:
            self._root.red = False

    def _rotate(self, place: _Place, side: int) -> None:
        """``rotateLeft`` of side 0, ``rotateRight`` of side 1."""
        rising = place.below[1 - side]
        assert rising is not None
        inner = rising.below[side]
        place.below[1 - side] = inner
        if inner is not None:
            inner.above = place
        rising.above = place.above
        if place.above is None:
            self._root = rising
        else:
            place.above.below[place.above.below.index(place)] = rising
        rising.below[side] = place
        place.above = rising


@dataclass(eq=False)
class _Place:
    """A node of the red-black tree. ``below``: the lesser and the greater."""

    entry: _Described
    above: _Place | None
    below: list[_Place | None] = field(default_factory=lambda: [None, None])
    red: bool = True
