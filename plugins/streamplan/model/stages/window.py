"""Aggregates of windows by the time of the stream task."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

from streamplan.model.operations import (
    Aggregate,
    Count,
    FinalAggregate,
    FinalCount,
)
from streamplan.model.processor_topology import Node, Processor, Subtopology
from streamplan.model.stages.aggregate import (
    AggregatingStage,
    goes_by_task,
    has_custom_windows,
    has_functions,
    has_sessions,
    has_sliding_windows,
    passes_final_results,
)
from streamplan.model.stages.stage import any_of


@dataclass(frozen=True)
class WindowStage(AggregatingStage):
    """An aggregate of windows by the time of the stream task.

    It is one of sessions, of sliding windows, of windows that a Python function tells, of final results, or by Python
    functions.
    """

    has_one_node: ClassVar[bool] = True
    sorts_in_python = True

    @classmethod
    def nodes_in(cls, subtopology: Subtopology) -> tuple[Processor, ...]:
        """See :meth:`Stage.nodes_in`."""
        aggregates = subtopology.processors_with(Count, Aggregate)
        return tuple(node for node in aggregates if goes_by_task(node))

    @property
    def is_final(self) -> bool:
        """See :attr:`Stage.is_final`."""
        return all(map(passes_final_results, self.nodes))

    @property
    def of_sessions(self) -> bool:
        """Whether its windows are sessions."""
        return all(map(has_sessions, self.nodes))

    @property
    def has_functions(self) -> bool:
        """Whether Python functions aggregate."""
        return any(map(has_functions, self.nodes))

    @property
    def calls_functions(self) -> bool:
        """Whether Python functions aggregate, or tell the windows."""
        return self.has_functions or any(map(has_custom_windows, self.nodes))

    @property
    def recounts_in_state(self) -> bool:
        """See :attr:`Stage.recounts_in_state`. The functions are called again."""
        return self.calls_functions

    @property
    def has_windows(self) -> bool:
        """Whether it has windows. Functions that aggregate several streams may have none."""
        operations = (node.operation for node in self.nodes)
        return all(isinstance(each, Count | Aggregate) and each.window is not None for each in operations)

    @property
    def restores_deletions(self) -> bool:
        """See :attr:`Stage.restores_deletions`. What a function has deleted has moved the time on."""
        return self.has_functions

    @property
    def slides(self) -> bool:
        """Whether the records decide where its windows begin."""
        return all(map(has_sliding_windows, self.nodes))

    @property
    def restores_in_workers(self) -> bool:
        """See :attr:`Stage.restores_in_workers`. What a function makes may be of any size."""
        return not self.has_functions

    @property
    def identity(self) -> Mapping[str, str]:
        """See :attr:`Stage.identity`."""
        of_final = {"emit strategy": "on window close"} if self.is_final else {}
        return {**of_final, **({} if self.idle_ms is None else {"time of idle tasks": "the wall clock"})}

    @property
    def idle_ms(self) -> int | None:
        """See :attr:`Stage.idle_ms`."""
        operations = (node.operation for node in self.nodes)
        return next((each.idle_ms for each in operations if isinstance(each, FinalCount | FinalAggregate)), None)

    @property
    def judged_by_time(self) -> Mapping[str, str]:
        """See :attr:`Stage.judged_by_time`."""
        if not self.has_windows:
            return {}
        kind = "sessions" if self.of_sessions else "sliding windows" if self.slides else "windows"
        decided = "which final results were passed" if self.is_final else f"which {kind} take further records"
        return {node.name: decided for node in self.nodes}

    def depends_on_arrival(self, nodes: Collection[Node]) -> str:
        """See :meth:`Stage.depends_on_arrival`."""
        if len(self.subtopology.sources) == 1 or not any_of(self.nodes, nodes):
            return ""
        windows = "sessions" if self.of_sessions and not self.is_final else "the windows"
        if not self.has_windows:
            return "what is made of several topics depends on when their records came"
        return f"{windows} of several topics depend on when their records came"

    def _operation_of(self, node: Processor) -> str:
        operation = super()._operation_of(node).removeprefix("final").removesuffix("windows").removesuffix("functions")
        if passes_final_results(node):
            return f"{operation} of final results"
        if not self.has_windows:
            return operation
        kind = "sessions" if has_sessions(node) else "sliding windows" if has_sliding_windows(node) else "windows"
        return f"{operation} of {kind}"
