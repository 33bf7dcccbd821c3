"""Joins of streams with tables: one look-up of the record's key for all of them.

The key of a joined record is the one it was read with, since a changed key goes through a repartition topic first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamplan.model.operations import Join
from streamplan.model.processor_topology import Processor
from streamplan.model.stages.look_up import LookUpStage
from streamplan.spark.planning.operators import OperatorPlanner
from streamplan.spark.planning.records import RecordFrame
from streamplan.spark.planning.stages.stage_plan import (
    OperatorPlan,
    Recounted,
    Recounting,
    StoredState,
)
from streamplan.spark.planning.stream_table_join import join_streams_with_tables, joined_frames


class LookUpPlan(OperatorPlan[LookUpStage]):
    """Looks up the key of each record in all tables, at the sources."""

    def inputs(self, planner: OperatorPlanner) -> Mapping[str, RecordFrame]:
        """See :meth:`StagePlan.inputs`."""
        return planner.source_frames()

    def operate(self, inputs: Mapping[str, RecordFrame], ticks: Callable[[], DataFrame] | None) -> DataFrame:
        """See :meth:`StagePlan.operate`."""
        return join_streams_with_tables(inputs, self.stage.subtopology.table_stores)

    def bind(self, planner: OperatorPlanner, rows: DataFrame, inputs: Mapping[str, RecordFrame]) -> None:
        """See :meth:`StagePlan.bind`. The sources have the joined records."""
        planner.bind_all(joined_frames(rows, inputs, self.stage.subtopology.table_stores))

    def restore(self, stored: StoredState, planner: OperatorPlanner) -> DataFrame:
        """See :meth:`StagePlan.restore`."""
        return join_streams_with_tables(stored.frames(stored.table_rows()), self.stage.subtopology.table_stores)

    def recount(self, frames: Mapping[str, RecordFrame], planner: OperatorPlanner, recounting: Recounting) -> Recounted:
        """Let the planner go on with the records of each source, with the rows that they meet."""
        stores = self.stage.subtopology.table_stores
        planner.bind_all(joined_frames(join_streams_with_tables(frames, stores), frames, stores))
        return Recounted()

    def apply(self, node: Processor, frames: Sequence[RecordFrame], planner: OperatorPlanner) -> RecordFrame:
        """See :meth:`StagePlan.apply`."""
        if not isinstance(node.operation, Join):
            return super().apply(node, frames, planner)
        frame = frames[0].with_value()
        joined = replace(frame, data=frame.data.withColumn("table", F.col(f"record.`{node.store}`")))
        return (joined if node.operation.left else joined.where("table is not null")).select(node.operation.value)
