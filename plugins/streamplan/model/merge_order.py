"""The order in which what is made of one record reaches the operations where its ways meet.

The library passes a record to one child of a node after the other, and each time as deep as it goes. What an aggregate
has put into the record cache of its store comes behind that, when the cache is flushed, store by store.

Sources: ``ProcessorContextImpl.forward`` and ``ProcessorStateManager.flushCache``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

from streamplan.model.operations import (
    Aggregate,
    AggregateFunction,
    Cogroup,
    Count,
    FinalAggregate,
    FinalCount,
    Join,
    Merge,
    Reduce,
    ReduceFunction,
    StreamJoin,
)
from streamplan.model.processor_topology import Node, Processor, Subtopology

_WAYS_MEET = (Merge, StreamJoin, Cogroup)
"""The operations that records reach by several ways. ``table_table_join`` has the rules of joins of tables."""

_UPDATES = (Count, Aggregate, Reduce)
"""The operations whose results belong to no record that was read."""

Edge: TypeAlias = tuple[str, str]
"""The names of a node and of one behind it."""


@dataclass(frozen=True)
class Ways:
    """The ways of a record of which several lead to one node.

    Attributes:
        places: By edge the place of the node behind it among those to which the node before it passes a record. An edge
            has none if one way alone leads from the node before it to each node where ways meet.
        begun: By the name of a node whose results the record cache of the library holds back, their first place.
            It is behind all ways, in the order of the stores.
    """

    places: Mapping[Edge, int]
    begun: Mapping[str, int]

    def between(self, subtopology: Subtopology, first: str, last: str) -> tuple[int, ...]:
        """Return the places of the way from a node to another one that is behind it.

        Args:
            subtopology: That has the nodes.
            first: The name of the node where the way begins.
            last: The name of the node where it ends.
        """
        if first == last:
            return ()
        before = next(each for each in subtopology.predecessors[last] if first in _up_to(subtopology, each))
        way = self.between(subtopology, first, before)
        return (*way, self.places[before, last]) if (before, last) in self.places else way


def ways_that_meet(subtopology: Subtopology) -> Ways:
    """Return the ways of a record that meet in merges, joins of streams, cogroups, and tables that are looked up in.

    Args:
        subtopology: Of whose operations those count whose sides can have records that were made of one.
    """
    children = _children(subtopology)
    places, on_ways = dict[Edge, int](), set[str]()
    for ends in _ends(subtopology):
        sides = [set(_up_to(subtopology, name)) for end in ends for name in subtopology.predecessors[end]]
        if all(one.isdisjoint(other) for one, other in combinations(sides, 2)):
            continue
        before = set.union(*sides)
        on_ways |= before
        for name in before:
            behind = children.get(name, [])
            leading = [each for each in behind if each in before or each in ends]
            if len(leading) > 1:
                places |= {(name, each): behind.index(each) for each in leading}
    begun = {
        node.name: len(subtopology.nodes) + number
        for number, node in enumerate(subtopology.nodes)
        if node.name in on_ways and isinstance(node, Processor) and _is_cached(node)
    }
    return Ways(places, begun)


def _ends(subtopology: Subtopology) -> Iterator[tuple[str, ...]]:
    """The names of the nodes at which ways meet. A join looks up in what another node has stored."""
    for node in subtopology.processors_with(*_WAYS_MEET):
        yield (node.name,)
    tables = {node.store: node.name for node in subtopology.processors if node.writes_store}
    for node in subtopology.processors_with(Join):
        if node.store in tables:
            yield tables[node.store], node.name


def has_updates(subtopology: Subtopology, name: str) -> bool:
    """Return whether records of a node may be updates of an aggregate, which belong to no record that was read.

    Args:
        subtopology: That has the node.
        name: The name of the node.
    """
    return any(makes_updates(node) for node in _up_to(subtopology, name).values())


def makes_updates(node: Node) -> bool:
    """Return whether a node passes updates of an aggregate, which belong to no record that was read.

    Args:
        node: Any node.
    """
    return isinstance(node, Processor) and isinstance(node.operation, _UPDATES)


def _up_to(subtopology: Subtopology, name: str) -> dict[str, Node]:
    """A node and those before it, by their names."""
    node = next(node for node in subtopology.nodes if node.name == name)
    return {each.name: each for each in (node, *subtopology.upstream_of([node]))}


def _children(subtopology: Subtopology) -> dict[str, list[str]]:
    """By the name of a node the names of those behind it, in the order in which it passes a record to them."""
    children: dict[str, list[str]] = {}
    for node in subtopology.nodes:
        for before in subtopology.predecessors[node.name]:
            children.setdefault(before, []).append(node.name)
    return children


def _is_cached(node: Processor) -> bool:
    """Whether the library's record cache holds back what an aggregate has made."""
    if isinstance(node.operation, FinalCount | FinalAggregate):
        return False
    return isinstance(node.operation, Count | Aggregate | Reduce | ReduceFunction | AggregateFunction)
