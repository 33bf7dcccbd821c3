"""A Python class with state, or Python functions that aggregate."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

from streamplan.model.operations import (
    BufferRecords,
    Process,
    SuppressUpdates,
)
from streamplan.model.processor_topology import Node, Processor, Subtopology
from streamplan.model.stages.stage import Stage, any_of


@dataclass(frozen=True)
class ProcessStage(Stage):
    """A Python class, or Python functions that aggregate: what is called with the state of each key."""

    has_one_node: ClassVar[bool] = True
    sorts_in_python = True
    recounts_in_state = True

    @classmethod
    def nodes_in(cls, subtopology: Subtopology) -> tuple[Processor, ...]:
        """See :meth:`Stage.nodes_in`."""
        return subtopology.processors_with(Process)

    @property
    def operation(self) -> Process:
        """The operation."""
        (node,) = self.nodes
        assert isinstance(node.operation, Process)
        return node.operation

    @property
    def needs_every_record(self) -> bool:
        """See :attr:`Stage.needs_every_record`. What has waited in the buffer of a join is not recounted."""
        return not isinstance(self.operation, BufferRecords)

    @property
    def ttl_ms(self) -> int | None:
        """See :attr:`Stage.ttl_ms`."""
        return self.operation.ttl_ms

    @property
    def judged_by_time(self) -> Mapping[str, str]:
        """See :attr:`Stage.judged_by_time`."""
        if isinstance(self.operation, SuppressUpdates):
            return {self.nodes[0].name: "which updates were passed"}
        if isinstance(self.operation, BufferRecords):
            return {self.nodes[0].name: "which records wait for rows of the table"}
        if self.operation.timer is not None:
            return {self.nodes[0].name: "which timers have fired"}
        return {self.nodes[0].name: "which values are over"} if self.operation.ttl else {}

    @property
    def needs_times(self) -> bool:
        """Whether the times of records count that do not come to it. A buffer goes by those that come to it."""
        return bool(self.judged_by_time) and not isinstance(self.operation, BufferRecords)

    def _operation_of(self, node: Processor) -> str:
        if isinstance(node.operation, BufferRecords):
            return "join with a grace period"
        return "suppress" if isinstance(node.operation, SuppressUpdates) else super()._operation_of(node)

    def depends_on_arrival(self, nodes: Collection[Node]) -> str:
        """See :meth:`Stage.depends_on_arrival`. After a restore of a buffer other numbers follow."""
        if isinstance(self.operation, BufferRecords) and any_of(self.nodes, nodes):
            return "a join with a grace period counts the records that wait, and a recount would count them otherwise"
        if len(self.subtopology.sources) > 1 and any_of(self.nodes, nodes):
            return "what is processed of several topics depends on when their records came"
        return ""
