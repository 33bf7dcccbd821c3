"""An aggregate that passes each update, beside other state: by stream tasks, with the results of the native one."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Window
from pyspark.sql import functions as F

from streamplan.model.stages.task_aggregate import TaskAggregateStage
from streamplan.spark.planning.aggregation import aggregate
from streamplan.spark.planning.operators import OperatorPlanner
from streamplan.spark.planning.records import RecordFrame
from streamplan.spark.planning.recounted.final_results import recounted_windows
from streamplan.spark.planning.recounted.ties import with_observed_ties
from streamplan.spark.planning.stages.aggregate import stored_aggregate
from streamplan.spark.planning.stages.stage_plan import Recounted, Recounting
from streamplan.spark.planning.stages.window import WindowPlan
from streamplan.spark.sink.spec import TASK_ORDER


class TaskAggregatePlan(WindowPlan):
    """Aggregates what the operations before have made of the records."""

    stage: TaskAggregateStage

    def recount(self, frames: Mapping[str, RecordFrame], planner: OperatorPlanner, recounting: Recounting) -> Recounted:
        """Let the planner go on with what the store holds of all records."""
        (node,) = self.stage.nodes
        planner.bind_all(frames)
        inputs = self.inputs(planner)
        if self.stage.windows is None:
            frame = _in_order(inputs) if self.stage.reduces else inputs
            rows = aggregate([node], {node.name: frame}, merged=False, ordered=False)
        else:
            rows = recounted_windows(node, inputs)
        exact = "double" not in rows.schema.simpleString()
        rows = with_observed_ties(node, inputs, rows, recounting.changelog(node))
        planner.bind(node.name, stored_aggregate(planner, 0, node, rows, inputs))
        return Recounted(exact=exact)


def _in_order(records: RecordFrame) -> RecordFrame:
    """Number records in the order of their stream task: final results have no offsets."""
    by_task = Window.partitionBy("record.partition").orderBy(*(f"record.{name}" for name in TASK_ORDER))
    return records.with_record(F.col("record").withField("offset", F.row_number().over(by_task).cast("bigint")))
