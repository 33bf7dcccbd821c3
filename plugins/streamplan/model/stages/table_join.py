"""Joins of tables by their keys."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from streamplan.model.diagnostics import Diagnostic
from streamplan.model.operations import (
    ForeignKeyResult,
    TableFilter,
    TableJoin,
    TableMapValues,
    TableSource,
    ToTable,
)
from streamplan.model.processor_topology import Node, Processor, Subtopology
from streamplan.model.stages.foreign_key import ForeignKeyStage
from streamplan.model.stages.stage import Restore, Stage


@dataclass(frozen=True)
class TableJoinStage(Stage):
    """Joins of tables by their keys."""

    is_at_sources: ClassVar[bool] = True

    recounts_in_state = True
    recounts_last_updates = True
    is_divisible = True

    @classmethod
    def nodes_in(cls, subtopology: Subtopology) -> tuple[Processor, ...]:
        """See :meth:`Stage.nodes_in`."""
        return subtopology.processors_with(TableJoin)

    @property
    def has_results(self) -> bool:
        """Whether some of the tables are not read from a topic."""
        sides = (side for node in self.nodes for side in self.subtopology.sides_of(node))
        return any(not isinstance(side.operation, TableSource | TableJoin) for side in sides)

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
        for node in self.nodes if any(isinstance(other, ForeignKeyStage) for other in others) else ():
            yield Diagnostic(
                node.location,
                "a join of two tables shares its sub-topology with a join by a foreign key",
                "Write the table that both join, or the result of one of them, to a compacted topic with "
                "to_stream().to('…'), and join Topology.table('…')",
            )

    def _operation_of(self, node: Processor) -> str:
        return "a join of two tables"


@dataclass(frozen=True)
class ResultTableJoinStage(TableJoinStage):
    """Joins of tables by their keys of which some are results: of an aggregate, of ``to_table``, of a stored operation.

    The tables of joins that join the results of each other are in one state. It is given the updates of the tables, and
    restored from their changelogs.
    """

    is_at_sources: ClassVar[bool] = False
    rejects_beside: ClassVar[bool] = True

    @property
    def tables(self) -> tuple[Processor, ...]:
        """The processors that pass the updates of the tables, without the joins themselves."""
        sides = {side.name for node in self.nodes for side in self.subtopology.sides_of(node) if side not in self.nodes}
        return tuple(node for node in self.subtopology.processors if node.name in sides)

    @property
    def cached(self) -> tuple[Processor, ...]:
        """The tables whose updates the library's record cache holds back: those of aggregates."""
        at_once = TableSource | ToTable | TableFilter | TableMapValues | TableJoin | ForeignKeyResult
        return tuple(node for node in self.tables if not isinstance(node.operation, at_once))

    @property
    def takers(self) -> tuple[Processor, ...]:
        """See :attr:`Stage.takers`."""
        names = {name for node in self.nodes for name in self.subtopology.predecessors[node.name]}
        return tuple(node for node in self.subtopology.processors if node.name in names)

    @property
    def stores(self) -> Mapping[str, Restore]:
        """See :attr:`Stage.stores`."""
        own = (node.store for node in (*self.tables, *self.nodes) if node.writes_store)
        return dict.fromkeys((store for store in own if store is not None), Restore.LAST_OF_KEY)

    @property
    def identity(self) -> Mapping[str, str]:
        """See :attr:`Stage.identity`. The state has the tables by their numbers."""
        return {f"tables of {self.nodes[0].name}": ", ".join(str(node.store) for node in self.tables)}

    def owns(self, node: Processor) -> bool:
        """See :meth:`Stage.owns`."""
        return self.has(node) or any(node.name == own.name for own in self.takers)


def joins_of_tables(stage: TableJoinStage, *, behind_sources: bool) -> Iterable[TableJoinStage]:
    """Divide joins of tables where some of the tables are results: each part has joins of each other's results.

    Args:
        stage: Has all joins of the sub-topology.
        behind_sources: Whether another state at the sources gives the tables.
    """
    if not stage.has_results and not behind_sources:
        yield stage
        return
    part_of: dict[str, list[Processor]] = {}
    for node in stage.nodes:
        joined = [part_of[side.name] for side in stage.subtopology.sides_of(node) if side.name in part_of]
        together = [each for part in {id(part): part for part in joined}.values() for each in part]
        together.append(node)
        part_of |= dict.fromkeys((each.name for each in together), together)
    for part in {id(part): part for part in part_of.values()}.values():
        names = {each.name for each in part}
        yield ResultTableJoinStage(stage.subtopology, tuple(node for node in stage.nodes if node.name in names))
