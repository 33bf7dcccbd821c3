"""Which operations of a sub-topology keep state, and what of them one streaming query can do.

A Spark query in update mode has one stateful operator. Aggregations side by side share one, and so do the look-ups of
joins; state that depends on other state within a sub-topology is beyond it, and is refused.
"""

from __future__ import annotations

from collections.abc import Iterable

from streamplan.model.diagnostics import Diagnostic
from streamplan.model.operations import Aggregate, Count, Join, Reduce, TableSource
from streamplan.model.processor_topology import Processor, Subtopology


def aggregations(subtopology: Subtopology) -> list[Processor]:
    """The processors that aggregate."""
    return [node for node in subtopology.processors if isinstance(node.operation, Count | Aggregate | Reduce)]


def joins(subtopology: Subtopology) -> list[Processor]:
    """The processors that look up in a table."""
    return [node for node in subtopology.processors if isinstance(node.operation, Join)]


def tables(subtopology: Subtopology) -> dict[str, str]:
    """By the name of a source the state store of the table that is read from it; tables without one are left out."""
    return {
        subtopology.predecessors[node.name][0]: node.store
        for node in subtopology.processors
        if isinstance(node.operation, TableSource) and node.store is not None
    }


def behind(subtopology: Subtopology, names: Iterable[str]) -> set[str]:
    """The nodes that records reach after one of ``names``."""
    begun, reached = set(names), set[str]()
    for node in subtopology.nodes:  # in the order in which records pass
        if any(before in begun or before in reached for before in subtopology.predecessors[node.name]):
            reached.add(node.name)
    return reached


def stateful_faults(subtopology: Subtopology) -> Iterable[Diagnostic]:
    """The operations whose state depends on other state of the same sub-topology."""
    held, looked_up = aggregations(subtopology), joins(subtopology)
    names = {node.name for node in held}
    reached = behind(subtopology, names)
    stores = set(tables(subtopology).values())
    for node in (*held, *looked_up):
        if isinstance(node.operation, Join) and node.store not in stores:
            yield Diagnostic(
                node.location,
                "a join with the result of an aggregate",
                "Write the aggregate to a compacted topic with to_stream().to('…') and join Topology.table('…')",
            )
        elif node.name in reached or (looked_up and not isinstance(node.operation, Join)):
            yield Diagnostic(
                node.location,
                f"{type(node.operation).__name__.lower()} shares its sub-topology with another stateful operation, "
                "and a streaming query has one stateful operator",
                "Put repartition() before it: that makes two",
            )
    for any_node in subtopology.nodes:
        sides = {before in reached or before in names for before in subtopology.predecessors[any_node.name]}
        if any_node.name in reached and len(sides) > 1:
            yield Diagnostic(
                any_node.location,
                "merges the result of an aggregate with a stream of the same sub-topology",
                "Put repartition() behind one of them",
            )
