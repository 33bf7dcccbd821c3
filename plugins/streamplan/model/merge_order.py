"""The order in which what is made of one record reaches the operations where its ways meet.

The library passes a record to one child of a node after the other, and each time as deep as it goes. What an aggregate
has put into the record cache of its store comes behind that, when the cache is flushed, store by store.

Sources: ``ProcessorContextImpl.forward`` and ``ProcessorStateManager.flushCache``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from streamplan.model.operations import (
    Aggregate,
    AggregateFunction,
    Cogroup,
    Count,
    FinalAggregate,
    FinalCount,
    Merge,
    Reduce,
    ReduceFunction,
    StreamJoin,
)
from streamplan.model.processor_topology import Node, Processor, Source, Subtopology

_WAYS_MEET = (Merge, StreamJoin, Cogroup)
"""The operations that records reach by several ways. In joins of tables, and with tables, other rules hold.

``table_table_join`` and :func:`comes_first` have these rules.
"""

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
        begun: By the name of a node whose results begin anew, the places that they begin with. An update that the
            library's record cache holds back is behind all ways, in the order of the stores. Final results have the
            places of the way to their node.
    """

    places: Mapping[Edge, int]
    begun: Mapping[str, tuple[int, ...]]

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
    """Return the ways of a record that meet in merges, joins of streams and cogroups.

    Args:
        subtopology: Of whose operations those count whose sides can have records that were made of one.
    """
    children = _children(subtopology)
    places, on_ways = dict[Edge, int](), set[str]()
    for end in subtopology.processors_with(*_WAYS_MEET):
        sides = [set(_up_to(subtopology, name)) for name in subtopology.predecessors[end.name]]
        if not set.intersection(*sides):
            continue
        before = set.union(*sides)
        on_ways |= before
        for name in before:
            behind = children.get(name, [])
            leading = [each for each in behind if each in before or each == end.name]
            if len(leading) > 1:
                places |= {(name, each): behind.index(each) for each in leading}
    begun = dict[str, tuple[int, ...]]()
    for number, node in enumerate(subtopology.nodes):
        if node.name not in on_ways or not isinstance(node, Processor):
            continue
        if _is_cached(node):
            begun[node.name] = (len(subtopology.nodes) + number,)
        elif isinstance(node.operation, FinalCount | FinalAggregate):
            begun[node.name] = _way(subtopology, node.name, places, begun)
    return Ways(places, begun)


def _way(
    subtopology: Subtopology, name: str, places: Mapping[Edge, int], begun: Mapping[str, tuple[int, ...]]
) -> tuple[int, ...]:
    """Return the places of the way to a node."""
    for before in subtopology.predecessors[name][:1]:
        way = begun[before] if before in begun else _way(subtopology, before, places, begun)
        return (*way, places[before, name]) if (before, name) in places else way
    return ()


def comes_first(subtopology: Subtopology, table: Processor, join: Processor, *, updates: bool = False) -> bool:
    """Return whether a record reaches the store of a table before it reaches a join that looks up in this store.

    What is behind an aggregate comes later than what is not, and what is behind two of them in the order of their
    stores: the record cache of an aggregate passes its updates when it is flushed.

    Args:
        subtopology: That has both.
        table: Writes the store.
        join: Looks up.
        updates: Whether an update of an aggregate is meant, and not a record that no aggregate has held back.
    """
    to_table, to_join = _up_to(subtopology, table.name), _up_to(subtopology, join.name)
    for source in subtopology.sources:
        if source.name not in to_table or source.name not in to_join:
            continue
        table_is_flushed = _last_cached(subtopology, {*to_table} - {*to_join, table.name})
        join_is_flushed = _last_cached(subtopology, {*to_join} - {*to_table}) if updates else -1
        if table_is_flushed == join_is_flushed:
            return _is_reached_first(subtopology, source, table, join)
        return table_is_flushed < join_is_flushed
    return True


def _last_cached(subtopology: Subtopology, names: Collection[str]) -> int:
    """The number of the last of these nodes whose updates the library's record cache holds back; -1 without one."""
    numbers = (
        number
        for number, node in enumerate(subtopology.nodes)
        if node.name in names and isinstance(node, Processor) and _is_cached(node)
    )
    return max(numbers, default=-1)


def _is_reached_first(subtopology: Subtopology, source: Source, one: Processor, other: Processor) -> bool:
    children, seen, remaining = _children(subtopology), set[str](), [source.name]
    while remaining:
        name = remaining.pop()
        if name in (one.name, other.name):
            return name == one.name
        if name not in seen:
            seen.add(name)
            remaining += reversed(children.get(name, []))
    return True


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
