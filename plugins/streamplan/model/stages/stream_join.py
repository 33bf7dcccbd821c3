"""A join of two streams."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

from streamplan.model.operations import (
    OuterJoinSide,
    OuterStreamJoin,
    StreamJoin,
)
from streamplan.model.processor_topology import Node, Processor, Subtopology
from streamplan.model.stages.stage import Restore, Stage


@dataclass(frozen=True)
class StreamJoinStage(Stage):
    """A join of two streams. ``nodes`` pass what both sides have found."""

    has_one_node: ClassVar[bool] = True
    sorts_in_python = True
    is_divisible = True

    @classmethod
    def nodes_in(cls, subtopology: Subtopology) -> tuple[Processor, ...]:
        """See :meth:`Stage.nodes_in`."""
        return subtopology.processors_with(StreamJoin)

    @property
    def join(self) -> StreamJoin:
        """The operation."""
        (node,) = self.nodes
        assert isinstance(node.operation, StreamJoin)
        return node.operation

    @property
    def sides(self) -> tuple[Processor, ...]:
        """The processors that store the records of this and of the other stream."""
        return self.subtopology.sides_of(self.nodes[0])

    @property
    def takers(self) -> tuple[Processor, ...]:
        """See :attr:`Stage.takers`."""
        return self.sides

    @property
    def shared(self) -> Processor | None:
        """The processor that writes the store that both sides of a left or outer join share; None for inner ones."""
        (node,) = self.nodes
        of_sides = self.subtopology.predecessors[node.name]
        sides = (side for side in self.subtopology.processors_with(OuterJoinSide) if side.name in of_sides)
        return next((side for side in sides if side.writes_store), None)

    @property
    def stores(self) -> Mapping[str, Restore]:
        """See :attr:`Stage.stores`. What waits for a match is changed as a whole."""
        stores = {str(side.store): Restore.EVERY_RECORD for side in self.sides}
        return stores if self.shared is None else {**stores, str(self.shared.store): Restore.LAST_OF_KEY}

    @property
    def judged_by_time(self) -> Mapping[str, str]:
        """See :attr:`Stage.judged_by_time`."""
        waits = isinstance(self.join, OuterStreamJoin)
        decided = "which records wait for a match" if waits else "which records can still be met"
        return {node.name: decided for node in self.nodes}

    def depends_on_arrival(self, nodes: Collection[Node]) -> str:
        """See :meth:`Stage.depends_on_arrival`."""
        own = {node.name for node in (*self.sides, *self.nodes)}
        if any(node.name in own for node in nodes):
            return "what a join of two streams wrote depends on when its records came"
        return ""

    def _operation_of(self, node: Processor) -> str:
        return "a join of two streams"
