"""The order of what one record gives to the two sides of a merge.

The library passes a record to one child of a node after the other, and each time as deep as it goes. What an aggregate
has put into the record cache of its store comes behind that, when the cache is flushed, store by store.

Sources: ``ProcessorContextImpl.forward`` and ``ProcessorStateManager.flushCache``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from streamplan.model.operations import (
    MAKES_SEVERAL,
    Aggregate,
    AggregateFunction,
    Count,
    FinalAggregate,
    FinalCount,
    Merge,
    Process,
    ProcessWithStores,
    Reduce,
    ReduceFunction,
    StreamJoin,
    TableJoin,
)
from streamplan.model.processor_topology import Node, Processor, Source, Subtopology

_ADDS_PLACE = (*MAKES_SEVERAL, Process, ProcessWithStores, StreamJoin, TableJoin)
"""The operations that add a place to ``record.order``: that of a record among those that are made of one."""

_BEGINS_PLACES = (Count, Aggregate, Reduce)
"""The operations whose results have places of their own in ``record.order``."""


@dataclass(frozen=True)
class MergedSide:
    """One side of a merge.

    Attributes:
        node: The name of the node before the merge.
        place: The place of the side among the sides of the merge. The records of a side with a smaller one come first.
        places_behind: How many places the operations between the last node that both sides share and the merge have
            added to ``record.order``; None where final results have begun it anew. Updates always have.
    """

    node: str
    place: int
    places_behind: int | None


def merged_sides(subtopology: Subtopology, merge: Processor) -> tuple[MergedSide, ...]:
    """Return the sides of a merge, where both can have records that were made of one; otherwise nothing.

    Args:
        subtopology: That has the merge.
        merge: The processor.
    """
    names = subtopology.predecessors[merge.name]
    shared = set.intersection(*(set(_up_to(subtopology, name)) for name in names))
    if not shared:
        return ()
    reached = [*_reached_from_sources(subtopology, merge, shared)]
    behind_caches = len(reached)
    places = {name: reached.index(name) if name in reached else behind_caches for name in names}
    return tuple(_Side(subtopology, name, shared).merged(place) for name, place in places.items())


@dataclass(frozen=True)
class _Side:
    """The nodes of a side behind the last ones that both sides share.

    Attributes:
        subtopology: That has the merge.
        name: The node before the merge.
        shared: The nodes that both sides share.
    """

    subtopology: Subtopology
    name: str
    shared: Collection[str]

    def merged(self, place: int) -> MergedSide:
        """Return the side, with the place that it has where no cache holds its records back."""
        nodes = self._nodes
        if self._all_pass(_is_cached):
            place = len(self.subtopology.nodes) + max(
                number for number, node in enumerate(self.subtopology.nodes) if node in nodes and _is_cached(node)
            )
        begins = self._all_pass(lambda node: isinstance(node.operation, _BEGINS_PLACES))
        return MergedSide(self.name, place, None if begins else self._places(self.name))

    @property
    def _nodes(self) -> list[Processor]:
        return [
            node
            for name, node in _up_to(self.subtopology, self.name).items()
            if name not in self.shared and isinstance(node, Processor)
        ]

    def _all_pass(self, test: Callable[[Processor], bool]) -> bool:
        """Whether no record comes from a shared node to the merge without passing a node of some kind."""
        own = {node.name: node for node in self._nodes}
        remaining = [self.name]
        while remaining:
            name = remaining.pop()
            if name in self.shared:
                return False
            if name in own and not test(own[name]):
                remaining += self.subtopology.predecessors[name]
        return True

    def _places(self, name: str) -> int:
        """How many places the longest way from a shared node to a node adds, without those through aggregates."""
        node = next((each for each in self._nodes if each.name == name), None)
        if node is None or isinstance(node.operation, _BEGINS_PLACES):
            return 0
        before = (self._places(each) for each in self.subtopology.predecessors[name])
        return max(before, default=0) + _adds_place(self.subtopology, node)


def comes_first(subtopology: Subtopology, table: Processor, join: Processor) -> bool:
    """Return whether a record reaches the store of a table before it reaches a join that looks up in this store.

    Args:
        subtopology: That has both.
        table: Writes the store.
        join: Looks up.
    """
    to_table, to_join = _up_to(subtopology, table.name), _up_to(subtopology, join.name)
    for source in subtopology.sources:
        if source.name not in to_table or source.name not in to_join:
            continue
        side = _Side(subtopology, table.name, {name for name in to_table if name in to_join and name != table.name})
        before = [node for node in side._nodes if node is not table]
        return not any(map(_is_cached, before)) and _is_reached_first(subtopology, source, table, join)
    return True


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
    nodes = _up_to(subtopology, name).values()
    return any(isinstance(node, Processor) and isinstance(node.operation, _BEGINS_PLACES) for node in nodes)


def _up_to(subtopology: Subtopology, name: str) -> dict[str, Node]:
    """A node and those before it, by their names."""
    node = next(node for node in subtopology.nodes if node.name == name)
    return {each.name: each for each in (node, *subtopology.upstream_of([node]))}


def _reached_from_sources(subtopology: Subtopology, merge: Processor, shared: Collection[str]) -> Iterator[str]:
    """Yield the nodes before a merge, in the order in which a record that goes as deep as it can passes them.

    It goes through no record cache, but for those of the nodes that all sides of the merge share.
    """
    children = _children(subtopology)
    holding_back = {
        node.name
        for node in subtopology.nodes
        if isinstance(node, Processor) and _is_cached(node) and node.name not in shared
    }
    seen: set[str] = set()
    remaining = [("", source.name) for source in reversed(subtopology.sources)]
    while remaining:
        before, name = remaining.pop()
        if name == merge.name:
            yield before
        elif name not in seen and name not in holding_back:
            seen.add(name)
            remaining += [(name, child) for child in reversed(children.get(name, []))]


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


def _adds_place(subtopology: Subtopology, node: Processor) -> bool:
    if isinstance(node.operation, Merge):
        return bool(merged_sides(subtopology, node))
    return isinstance(node.operation, _ADDS_PLACE)
