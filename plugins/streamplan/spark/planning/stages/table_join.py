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
    Cut,
    Recounted,
    Recounting,
    Sources,
    StagePlan,
    StoredState,
    batch_of,
)
from streamplan.spark.planning.table_table_join import (
    join_table_updates,
    joined_tables,
    last_joined_tables,
    records_of_sources,
    restore_table_joins,
    without_updates,
)


class TableJoinPlan(StagePlan[TableJoinStage]):
    """Joins the updates of the tables."""

    def stream(self, sources: Sources, planner: OperatorPlanner, ticks: Callable[[], DataFrame] | None) -> Cut:
        """Let the planner begin with the records of each source, and with the updates of each joined table."""
        subtopology, frames = self.stage.subtopology, sources.frames()
        streaming = join_table_updates(subtopology, frames)
        batch = batch_of(streaming)
        self._bind(planner, records_of_sources(batch, frames), joined_tables(batch, subtopology, frames))
        return Cut(streaming, batch)

    def restore(self, stored: StoredState) -> DataFrame:
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
