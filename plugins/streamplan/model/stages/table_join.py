"""Joins of tables by their keys."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from streamplan.model.diagnostics import Diagnostic
from streamplan.model.operations import (
    TableJoin,
)
from streamplan.model.processor_topology import Node, Processor, Subtopology
from streamplan.model.stages.stage import Restore, Stage

WRITE_TABLE = "Write the aggregate to a compacted topic with to_stream().to('…') and join Topology.table('…')"
"""What to write instead of a join with the result of an aggregate."""


@dataclass(frozen=True)
class TableJoinStage(Stage):
    """Joins of tables by their keys."""

    is_at_sources: ClassVar[bool] = True

    recounts_in_state = True
    recounts_last_updates = True

    @classmethod
    def nodes_in(cls, subtopology: Subtopology) -> tuple[Processor, ...]:
        """See :meth:`Stage.nodes_in`."""
        return subtopology.processors_with(TableJoin)

    @property
    def joined_stores(self) -> set[str]:
        """The stores of the tables that are joined."""
        sides = (side for node in self.nodes for side in self.subtopology.sides_of(node))
        return {store for side in sides for store in side.connected_stores}

    def replaced_updates(self, nodes: Collection[Node]) -> tuple[Processor, ...]:
        """See :meth:`Stage.replaced_updates`. A join whose result another one of them joins is left out."""
        joins = [join for join in self.nodes if join in nodes]
        names = {node.name for join in joins for node in self.subtopology.upstream_of([join])}
        return tuple(join for join in joins if join.name not in names)

    @property
    def stores(self) -> Mapping[str, Restore]:
        """See :attr:`Stage.stores`. The rows of the joined tables are among them."""
        tables = (store for store in self.subtopology.table_stores.values() if store in self.joined_stores)
        return {**dict.fromkeys(tables, Restore.LAST_OF_KEY), **super().stores}

    def faults(self, others: Sequence[Stage], reached: Collection[str]) -> Iterable[Diagnostic]:
        """See :meth:`Stage.faults`."""
        stores = self.subtopology.table_stores.values()
        for node in self.nodes:
            if any(side not in self.nodes and side.store not in stores for side in self.subtopology.sides_of(node)):
                yield Diagnostic(node.location, "a join with the result of an aggregate", WRITE_TABLE)

    def _operation_of(self, node: Processor) -> str:
        return "a join of two tables"
