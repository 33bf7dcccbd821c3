"""Aggregates of windows by the time of the stream task: of sessions, and of final results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame

from streamplan.model.processor_topology import Processor
from streamplan.model.stages.window import WindowStage
from streamplan.spark.planning.aggregation import store_result, store_rows
from streamplan.spark.planning.operators import OperatorPlanner
from streamplan.spark.planning.output_rows import dead_letter_rows
from streamplan.spark.planning.records import RecordFrame
from streamplan.spark.planning.recounted.final_results import closed_windows, recounted_windows
from streamplan.spark.planning.recounted.sessions import late_keys, record_columns, recounted_sessions
from streamplan.spark.planning.recounted.sliding import recounted_sliding_windows
from streamplan.spark.planning.recounted.ties import with_observed_ties
from streamplan.spark.planning.stages.grouping import aggregation_inputs, cogroup_side, grouped_records
from streamplan.spark.planning.stages.stage_plan import (
    OperatorPlan,
    Recounted,
    Recounting,
    StoredState,
)
from streamplan.spark.planning.task_windows import (
    aggregate_windows,
    final_results,
    rejected_records,
    restore_windows,
    with_fields,
    with_times_of_updates,
)


class WindowPlan(OperatorPlan[WindowStage]):
    """Aggregates the windows of what the operations before have made of the records."""

    @property
    def most_recounted(self) -> int | None:  # type: ignore[override]
        """See :attr:`StagePlan.most_recounted`. A Python worker sorts the records, to call the functions again."""
        return 200_000 if self.stage.has_functions else None

    @property
    def divides(self) -> bool:
        """See :attr:`StagePlan.divides`."""
        return self.stage.is_final or self.stage.has_functions

    def inputs(self, planner: OperatorPlanner) -> RecordFrame:
        """See :meth:`StagePlan.inputs`."""
        (inputs,) = aggregation_inputs(planner, self.stage.nodes, by_task=True).values()
        return inputs

    def operate(self, inputs: RecordFrame, ticks: Callable[[], DataFrame] | None) -> DataFrame:
        """See :meth:`StagePlan.operate`."""
        (node,) = self.stage.nodes
        of_idle_tasks = None
        if self.stage.idle_ms is not None:
            assert ticks is not None, f"sub-topology {self.stage.subtopology.id} needs ticks"
            of_idle_tasks = ticks()
        return aggregate_windows(node, inputs, of_idle_tasks, by_record=self.is_part, passes_each=self.passes_each)

    def bind(self, planner: OperatorPlanner, rows: DataFrame, inputs: RecordFrame) -> None:
        """See :meth:`StagePlan.bind`."""
        (node,) = self.stage.nodes
        planner.bind(node.name, self._stored(planner, node, rows, inputs))

    def restore(self, stored: StoredState, planner: OperatorPlanner) -> DataFrame:
        """See :meth:`StagePlan.restore`."""
        (node,) = self.stage.nodes
        return restore_windows(node, self.inputs(planner), stored.rows(node), stored.times)

    def recount(self, frames: Mapping[str, RecordFrame], planner: OperatorPlanner, recounting: Recounting) -> Recounted:
        """Let the planner go on with the windows of all records, without sessions and sliding windows of late keys."""
        (node,) = self.stage.nodes
        planner.bind_all(frames)
        inputs, late = self.inputs(planner), None
        if self.stage.has_functions:
            if not recounting.processes:
                inputs = replace(inputs, data=inputs.data.where("false"))
            rows = aggregate_windows(node, inputs, times=recounting.times)
            planner.bind(node.name, self._stored(planner, node, rows, inputs))
            # No key is left out. That there are such says that deletions of windows are not recounted.
            return Recounted(
                late=inputs.data.limit(0).select(*record_columns(inputs)).select("partition", "key").persist()
            )
        if self.stage.of_sessions or self.stage.slides:
            late = late_keys(node, inputs).persist()
            recounted = recounted_sessions if self.stage.of_sessions else recounted_sliding_windows
            rows = recounted(node, inputs, late)
        else:
            rows = recounted_windows(node, inputs)
        exact = "double" not in rows.schema.simpleString()
        rows = with_observed_ties(node, inputs, rows, recounting.changelog(node))
        stored = store_rows(0, node, rows, inputs)
        planner.write_changelog(node, stored)
        if self.stage.is_final:
            stored = store_rows(0, node, closed_windows(node, inputs, rows, recounting.times), inputs)
        planner.bind(node.name, store_result(node, with_times_of_updates(stored)))
        return Recounted(late=late, exact=exact)

    def apply(self, node: Processor, frames: Sequence[RecordFrame], planner: OperatorPlanner) -> RecordFrame:
        """See :meth:`StagePlan.apply`."""
        if not self.stage.has(node):
            return cogroup_side(planner, node, frames[0])
        records = grouped_records(planner, node, frames, by_task=True)
        return self._stored(planner, node, aggregate_windows(node, records), records)

    def _stored(self, planner: OperatorPlanner, node: Processor, rows: DataFrame, records: RecordFrame) -> RecordFrame:
        """Write the changes of windows into the changelog; return what is passed of them."""
        node = with_fields(node, records)
        rows, rejected = rejected_records(rows)
        if rejected is not None:
            planner.write(dead_letter_rows(rejected))
        changed, closed = final_results(rows) if self.stage.is_final else (rows, None)
        stored = store_rows(0, node, changed, records)
        planner.write_changelog(node, stored)
        passed = stored if closed is None else store_rows(0, node, closed, records)
        return store_result(node, with_times_of_updates(passed))
