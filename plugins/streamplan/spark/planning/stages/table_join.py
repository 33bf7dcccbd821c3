"""Joins of tables by their keys: one state for all of them, at the sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from pyspark.sql import DataFrame

from streamplan.model.operations import TableJoin, TableJoinSide
from streamplan.model.processor_topology import Processor
from streamplan.model.stages.table_join import ResultTableJoinStage, TableJoinStage
from streamplan.spark.planning.operators import OperatorPlanner
from streamplan.spark.planning.output_rows import dead_letter_rows
from streamplan.spark.planning.records import RecordFrame, rejecting_binary_keys
from streamplan.spark.planning.stages.stage_plan import (
    Kind,
    OperatorPlan,
    Recounted,
    Recounting,
    StoredState,
)
from streamplan.spark.planning.stages.stored_tables import require_deterministic, stored_updates, with_values
from streamplan.spark.planning.table_table_join import (
    Joins,
    join_table_updates,
    joined_tables,
    joins_at_sources,
    joins_of_results,
    last_joined_tables,
    records_of_sources,
    restore_table_joins,
    without_updates,
)


class JoinedTablesPlan(OperatorPlan[Kind]):
    """What joins of tables have in common, wherever their tables come from."""

    def apply(self, node: Processor, frames: Sequence[RecordFrame], planner: OperatorPlanner) -> RecordFrame:
        """See :meth:`StagePlan.apply`."""
        match node.operation:
            case TableJoinSide():
                return frames[0]
            case TableJoin(value=value):
                return without_updates(*frames).select(value)
        return super().apply(node, frames, planner)

    def bind_updates(self, planner: OperatorPlanner, updates: Mapping[str, RecordFrame]) -> None:
        """Let a planner go on with the updates of the joins, and write those that have a store.

        Args:
            planner: Of the sub-topology.
            updates: By the name of the join.
        """
        planner.bind_all(updates)
        for node in self.stage.nodes:
            if node.writes_store:
                planner.write_changelog(node, updates[node.name])


class TableJoinPlan(JoinedTablesPlan[TableJoinStage]):
    """Joins the updates of the tables."""

    def inputs(self, planner: OperatorPlanner) -> Mapping[str, RecordFrame]:
        """See :meth:`StagePlan.inputs`."""
        return planner.source_frames()

    def operate(self, inputs: Mapping[str, RecordFrame], ticks: Callable[[], DataFrame] | None) -> DataFrame:
        """See :meth:`StagePlan.operate`."""
        return join_table_updates(joins_at_sources(self.stage.subtopology, inputs), inputs)

    def bind(self, planner: OperatorPlanner, rows: DataFrame, inputs: Mapping[str, RecordFrame]) -> None:
        """See :meth:`StagePlan.bind`. The sources have the records, of which the rejected ones end here."""
        joins = joins_at_sources(self.stage.subtopology, inputs)
        self._bind(planner, records_of_sources(rows, inputs), joined_tables(rows, joins, inputs))

    def restore(self, stored: StoredState, planner: OperatorPlanner) -> DataFrame:
        """See :meth:`StagePlan.restore`."""
        results = {node.name: stored.rows(node) for node in self.stage.nodes if node.writes_store}
        frames = stored.frames(stored.table_rows())
        return restore_table_joins(joins_at_sources(self.stage.subtopology, frames), frames, results)

    def recount(self, frames: Mapping[str, RecordFrame], planner: OperatorPlanner, recounting: Recounting) -> Recounted:
        """Let the planner go on with the records of each source, and with the last update of each key."""
        joins = joins_at_sources(self.stage.subtopology, frames)
        joined = join_table_updates(joins, frames).persist()
        self._bind(planner, records_of_sources(joined, frames), last_joined_tables(joined, joins, frames))
        return Recounted(joined=joined)

    def _bind(
        self, planner: OperatorPlanner, sources: Mapping[str, RecordFrame], updates: Mapping[str, RecordFrame]
    ) -> None:
        """Let a planner go on with the records of the sources, of which the rejected ones end here, and the updates."""
        for name, frame in sources.items():
            planner.write(dead_letter_rows(frame.rejected()))
            planner.bind(name, frame.accepted())
        self.bind_updates(planner, updates)


class ResultTableJoinPlan(JoinedTablesPlan[ResultTableJoinStage]):
    """Joins the updates of tables of which some are results."""

    restores_with_inputs: ClassVar[bool] = True

    def reject_beside(self, planner: OperatorPlanner) -> None:
        """See :meth:`OperatorPlan.reject_beside`."""
        for table in self.stage.tables:
            if planner.known(table.name) is not None:
                self._updates(planner, table)

    def inputs(self, planner: OperatorPlanner) -> Mapping[str, RecordFrame]:
        """See :meth:`OperatorPlan.inputs`. These are the updates of the tables."""
        planner.plan((*self.stage.subtopology.upstream_of(self.stage.tables), *self.stage.tables))
        return {table.name: self._updates(planner, table) for table in self.stage.tables}

    def operate(self, inputs: Mapping[str, RecordFrame], ticks: Callable[[], DataFrame] | None) -> DataFrame:
        """See :meth:`OperatorPlan.operate`."""
        return join_table_updates(self._joins, inputs)

    def bind(self, planner: OperatorPlanner, rows: DataFrame, inputs: Mapping[str, RecordFrame]) -> None:
        """See :meth:`OperatorPlan.bind`."""
        self.bind_updates(planner, joined_tables(rows, self._joins, inputs))

    def restore(self, stored: StoredState, planner: OperatorPlanner) -> DataFrame:
        """See :meth:`OperatorPlan.restore`. The changelogs of the tables have their rows."""
        inputs = self.inputs(planner)
        frames = {table.name: stored_updates(stored, planner, table, inputs[table.name]) for table in self.stage.tables}
        results = {node.name: stored.rows(node) for node in self.stage.nodes if node.writes_store}
        return restore_table_joins(self._joins, frames, results)

    def recount(self, frames: Mapping[str, RecordFrame], planner: OperatorPlanner, recounting: Recounting) -> Recounted:
        """Let the planner go on with the last update of each key."""
        planner.bind_all(frames)
        inputs = self.inputs(planner)
        joins = replace(self._joins, cached=range(len(self.stage.tables)))
        joined = join_table_updates(joins, inputs).persist()
        self.bind_updates(planner, last_joined_tables(joined, joins, inputs))
        return Recounted(joined=joined)

    @property
    def _joins(self) -> Joins:
        return joins_of_results(self.stage.subtopology, self.stage.nodes, self.stage.tables, self.stage.cached)

    def _updates(self, planner: OperatorPlanner, table: Processor) -> RecordFrame:
        """Return the updates of a table. What is rejected of them ends here, once for a planner."""
        frame = planner.consume(table.name)
        assert frame is not None, f"{table.name} is planned on records that Spark refused"
        require_deterministic(self.stage.subtopology, table, frame)
        frame = rejecting_binary_keys(frame)
        once = f"{table.name} is joined"
        if not frame.no_rejects and once not in planner.grouped:
            planner.write(dead_letter_rows(frame.rejected()))
        planner.grouped.add(once)
        return with_values(frame.accepted())
