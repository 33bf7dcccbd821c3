"""An aggregate that passes each update, beside other state of its sub-topology.

Spark's ``groupBy().agg()`` must be the only stateful operator of a query. So such an aggregate goes by stream tasks,
with the store, the bytes and the results of the native one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from streamplan.model.operations import Aggregate, Count, Reduce
from streamplan.model.processor_topology import Node, Processor
from streamplan.model.stages.stage import any_of
from streamplan.model.stages.window import WindowStage
from streamplan.model.windows import TimeWindows


@dataclass(frozen=True)
class TaskAggregateStage(WindowStage):
    """An aggregate that passes each update, by stream tasks."""

    @property
    def windows(self) -> TimeWindows | None:
        """The windows of the aggregate; None for one without windows."""
        (node,) = self.nodes
        windows = node.operation.window if isinstance(node.operation, Count | Aggregate) else None
        return windows if isinstance(windows, TimeWindows) else None

    @property
    def reduces(self) -> bool:
        """Whether it keeps the value of one record of each key."""
        return any(isinstance(node.operation, Reduce) for node in self.nodes)

    @property
    def restores_in_workers(self) -> bool:
        """See :attr:`Stage.restores_in_workers`. A reduced value may be of any size."""
        return not self.reduces

    @property
    def judged_by_time(self) -> Mapping[str, str]:
        """See :attr:`Stage.judged_by_time`."""
        return {} if self.windows is None else {self.nodes[0].name: "which windows take further records"}

    def depends_on_arrival(self, nodes: Collection[Node]) -> str:
        """See :meth:`Stage.depends_on_arrival`."""
        if len(self.subtopology.sources) == 1 or not any_of(self.nodes, nodes):
            return ""
        if self.reduces:
            return "the latest of several topics depends on when their records came"
        return "" if self.windows is None else "the windows of several topics depend on when their records came"

    def _operation_of(self, node: Processor) -> str:
        return type(node.operation).__name__.lower()
