"""Aggregates that pass each update."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from streamplan.model.operations import (
    SETS_KEY,
    Aggregate,
    AggregateWindowsFunction,
    CogroupSide,
    Count,
    FinalAggregate,
    FinalCount,
    Reduce,
)
from streamplan.model.processor_topology import Node, Processor, Subtopology
from streamplan.model.stages.stage import Stage
from streamplan.model.windows import SessionWindows, TimeWindows


@dataclass(frozen=True)
class AggregatingStage(Stage):
    """What aggregates of both kinds have in common."""

    aggregates = True
    needs_every_record = True

    @property
    def passes_updates_in_order(self) -> bool:
        """See :attr:`Stage.passes_updates_in_order`."""
        behind = self.subtopology.downstream_of({node.name for node in self.nodes})
        return any(node.name in behind for node in self.subtopology.processors_with(*SETS_KEY))

    @property
    def overlap(self) -> int:
        """See :attr:`Stage.overlap`."""
        return max((each.overlap for each in map(windows_of, self.nodes) if isinstance(each, TimeWindows)), default=1)

    def replaced_updates(self, nodes: Collection[Node]) -> tuple[Processor, ...]:
        """See :meth:`Stage.replaced_updates`."""
        return tuple(node for node in self.nodes if node in nodes)


@dataclass(frozen=True)
class AggregateStage(AggregatingStage):
    """Aggregates that pass each update, with one ``groupBy`` for all of them."""

    is_native = True

    @classmethod
    def nodes_in(cls, subtopology: Subtopology) -> tuple[Processor, ...]:
        """See :meth:`Stage.nodes_in`."""
        aggregates = subtopology.processors_with(Count, Aggregate, Reduce)
        return tuple(node for node in aggregates if not goes_by_task(node))

    @property
    def has_one_time(self) -> bool:
        """Whether one watermark, which Spark has for the whole query, is right for all windows."""
        before = self.subtopology.predecessors
        return len({(*before[node.name], windows.grace_ms) for node in self.nodes if (windows := windows_of(node))}) < 2

    @property
    def restores_in_workers(self) -> bool:
        """See :attr:`Stage.restores_in_workers`. A reduced value may be of any size."""
        return not any(isinstance(node.operation, Reduce) for node in self.nodes)

    @property
    def identity(self) -> Mapping[str, str]:
        """See :attr:`Stage.identity`. The state has the place of the last record of each update."""
        return {"updates": "in the order of the records"} if self.passes_updates_in_order else {}


def windows_of(node: Processor) -> TimeWindows | SessionWindows | None:
    """Return the windows of an aggregate that expressions compute."""
    return node.operation.window if isinstance(node.operation, Count | Aggregate) else None


def goes_by_task(node: Processor) -> bool:
    """Return whether an aggregate goes by the time of its stream task, whatever else its sub-topology has."""
    goes = (has_sessions, has_sliding_windows, has_custom_windows, passes_final_results, has_functions)
    return any(each(node) for each in goes)


def has_functions(node: Processor) -> bool:
    """Return whether Python functions aggregate windows."""
    return isinstance(node.operation, AggregateWindowsFunction)


def has_sessions(node: Processor) -> bool:
    """Return whether the windows of an aggregate are sessions."""
    return isinstance(windows_of(node), SessionWindows)


def has_sliding_windows(node: Processor) -> bool:
    """Return whether the records decide where the windows of an aggregate begin."""
    windows = node.operation.window if isinstance(node.operation, Count | Aggregate | CogroupSide) else None
    return isinstance(windows, TimeWindows) and windows.slides


def has_custom_windows(node: Processor) -> bool:
    """Return whether a Python function tells the windows of an aggregate."""
    windows = node.operation.window if isinstance(node.operation, Count | Aggregate | CogroupSide) else None
    return isinstance(windows, TimeWindows) and windows.are_of_function


def passes_final_results(node: Processor) -> bool:
    """Return whether an aggregate passes the result of each window once, when the window closes."""
    return isinstance(node.operation, FinalCount | FinalAggregate)


def has_suppressed_results(node: Processor) -> bool:
    """Return whether the final results of an aggregate are those of ``suppress``."""
    return isinstance(node.operation, FinalCount | FinalAggregate) and node.operation.suppressed
