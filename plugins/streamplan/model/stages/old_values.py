"""What a table had of a key before an update, where an operation needs it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from streamplan.model.diagnostics import Diagnostic
from streamplan.model.operations import (
    Aggregate,
    Count,
    ForeignKeyResult,
    TableFilter,
    TableJoin,
    TableKeySelect,
    TableMapValues,
)
from streamplan.model.processor_topology import Node, Processor, Subtopology
from streamplan.model.stages.stage import Restore, Stage
from streamplan.model.windows import SessionWindows, TimeWindows


@dataclass(frozen=True)
class OldValuesStage(Stage):
    """What an operation has made of the last update of each key of its table (``Change.oldValue``).

    The library finds the old value in the store of the table. Here the operation has a state of its own.
    """

    has_one_node: ClassVar[bool] = True

    needs_every_record = True
    recounts_in_state = True
    needs_superseded = True
    is_divisible = True

    @classmethod
    def nodes_in(cls, subtopology: Subtopology) -> tuple[Processor, ...]:
        """See :meth:`Stage.nodes_in`."""
        return tuple(node for node in subtopology.processors if _compares(subtopology, node))

    @property
    def table(self) -> Processor:
        """The processor that has the store with the values of the table, from which the state is restored."""
        (node,) = self.nodes
        by_name = {each.name: each for each in self.subtopology.processors}
        while not node.writes_store and not isinstance(node.operation, TableJoin | ForeignKeyResult):
            node = by_name[self.subtopology.predecessors[node.name][0]]
        return node

    @property
    def windows(self) -> TimeWindows | SessionWindows | None:
        """The windows of the table; None for a table without windows."""
        operation = self.table.operation
        return operation.window if isinstance(operation, Count | Aggregate) else None

    @property
    def stores(self) -> Mapping[str, Restore]:
        """See :attr:`Stage.stores`."""
        return {str(self.table.store): Restore.LAST_OF_KEY}

    def faults(self, others: Sequence[Stage], reached: Collection[str]) -> Iterable[Diagnostic]:
        """See :meth:`Stage.faults`."""
        (node,) = self.nodes
        if not self.table.writes_store:
            yield Diagnostic(
                node.location,
                f"{self._operation_of(node)}: the values that the result of a join of tables without a state store had "
                "before are not known here. The library leaves out the deletion of a key whose value before was not "
                "kept either",
                "to_stream().filter('…') gives the kept values without deletions. For all deletions, write the table "
                "to a compacted topic with to_stream().to('…') and filter Topology.table('…')",
            )

    def _operation_of(self, node: Processor) -> str:
        return "group_by" if isinstance(node.operation, TableKeySelect) else "filter"


def _compares(subtopology: Subtopology, node: Node) -> bool:
    """Whether a node is given old values, and needs them."""
    if not isinstance(node, Processor):
        return False
    if isinstance(node.operation, TableFilter):
        return node.operation.old_values and not _is_compared_behind(subtopology, node)
    return isinstance(node.operation, TableKeySelect)


def _is_compared_behind(subtopology: Subtopology, node: Processor) -> bool:
    """Whether everything behind a node compares with what the node has passed before.

    A deletion of nothing is then left out there.
    """
    behind = [each for each in subtopology.nodes if node.name in subtopology.predecessors[each.name]]
    return (
        bool(behind)
        and not node.writes_store
        and all(
            _compares(subtopology, each)
            or (
                isinstance(each, Processor)
                and isinstance(each.operation, TableFilter | TableMapValues)
                and _is_compared_behind(subtopology, each)
            )
            for each in behind
        )
    )
