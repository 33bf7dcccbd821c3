"""Joins of tables by their keys: one state for all of them, at the sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import DataFrame

from streamplan.model.operations import TableJoin, TableJoinSide
from streamplan.model.processor_topology import Processor
from streamplan.model.stages.table_join import TableJoinStage
from streamplan.spark.planning.operators import OperatorPlanner
from streamplan.spark.planning.output_rows import dead_letter_rows
from streamplan.spark.planning.records import RecordFrame
from streamplan.spark.planning.stages.stage_plan import (
    OperatorPlan,
    Recounted,
    Recounting,
    StoredState,
)
from streamplan.spark.planning.table_table_join import (
    join_table_updates,
    joined_tables,
    last_joined_tables,
    records_of_sources,
    restore_table_joins,
    without_updates,
)


class TableJoinPlan(OperatorPlan[TableJoinStage]):
    """Joins the updates of the tables."""

    def inputs(self, planner: OperatorPlanner) -> Mapping[str, RecordFrame]:
        """See :meth:`StagePlan.inputs`."""
        return planner.source_frames()

    def operate(self, inputs: Mapping[str, RecordFrame], ticks: Callable[[], DataFrame] | None) -> DataFrame:
        """See :meth:`StagePlan.operate`."""
        return join_table_updates(self.stage.subtopology, inputs)

    def bind(self, planner: OperatorPlanner, rows: DataFrame, inputs: Mapping[str, RecordFrame]) -> None:
        """See :meth:`StagePlan.bind`. The sources have the records, of which the rejected ones end here."""
        subtopology = self.stage.subtopology
        self._bind(planner, records_of_sources(rows, inputs), joined_tables(rows, subtopology, inputs))

    def restore(self, stored: StoredState, planner: OperatorPlanner) -> DataFrame:
        """See :meth:`StagePlan.restore`."""
        results = {node.name: stored.rows(node) for node in self.stage.nodes if node.writes_store}
        return restore_table_joins(self.stage.subtopology, stored.frames(stored.table_rows()), results)

    def recount(self, frames: Mapping[str, RecordFrame], planner: OperatorPlanner, recounting: Recounting) -> Recounted:
        """Let the planner go on with the records of each source, and with the last update of each key."""
        subtopology = self.stage.subtopology
        joined = join_table_updates(subtopology, frames).persist()
        self._bind(planner, records_of_sources(joined, frames), last_joined_tables(joined, subtopology, frames))
        return Recounted(joined=joined)

    def apply(self, node: Processor, frames: Sequence[RecordFrame], planner: OperatorPlanner) -> RecordFrame:
        """See :meth:`StagePlan.apply`."""
        match node.operation:
            case TableJoinSide():
                return frames[0]
            case TableJoin(value=value):
                return without_updates(*frames).select(value)
        return super().apply(node, frames, planner)

    def _bind(
        self, planner: OperatorPlanner, sources: Mapping[str, RecordFrame], updates: Mapping[str, RecordFrame]
    ) -> None:
        """Let a planner go on with the records of the sources, of which the rejected ones end here, and the updates."""
        for name, frame in sources.items():
            planner.write(dead_letter_rows(frame.rejected()))
            planner.bind(name, frame.accepted())
        planner.bind_all(updates)
        for node in self.stage.nodes:
            if node.writes_store:
                planner.write_changelog(node, updates[node.name])
