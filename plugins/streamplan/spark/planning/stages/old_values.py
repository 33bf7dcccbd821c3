"""What a table had of a key before an update, where an operation needs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import DataFrame

from streamplan.model.operations import TableFilter, TableKeySelect
from streamplan.model.processor_topology import Processor
from streamplan.model.stages.old_values import OldValuesStage
from streamplan.spark.planning.old_values import (
    changes,
    filtered_table,
    grouped_changes,
    restore_old_values,
    selected,
    stored_table,
    without_changes,
)
from streamplan.spark.planning.operators import OperatorPlanner
from streamplan.spark.planning.output_rows import dead_letter_rows
from streamplan.spark.planning.record_parts import filtered
from streamplan.spark.planning.records import RecordFrame
from streamplan.spark.planning.stages.stage_plan import OperatorPlan, Recounted, Recounting, StoredState


class OldValuesPlan(OperatorPlan[OldValuesStage]):
    """Puts what the operation makes of each update beside what it has made of the one before."""

    def inputs(self, planner: OperatorPlanner) -> RecordFrame:
        """See :meth:`StagePlan.inputs`. These are the updates, with what the operation makes of them."""
        (node,) = self.stage.nodes
        planner.plan_before([node])
        return _computed(planner, node, planner.inputs_of(node)[0])

    def operate(self, inputs: RecordFrame, ticks: Callable[[], DataFrame] | None) -> DataFrame:
        """See :meth:`StagePlan.operate`."""
        (node,) = self.stage.nodes
        return changes(node, inputs, self.stage.windows)

    def bind(self, planner: OperatorPlanner, rows: DataFrame, inputs: RecordFrame) -> None:
        """See :meth:`StagePlan.bind`."""
        (node,) = self.stage.nodes
        match node.operation:
            case TableKeySelect() as select:
                planner.bind(node.name, grouped_changes(rows, inputs, select))
            case _:
                planner.bind(node.name, planner.store_updates(node, filtered_table(rows, inputs)))

    def restore(self, stored: StoredState, planner: OperatorPlanner) -> DataFrame:
        """See :meth:`StagePlan.restore`. What is between the table's store and the operation is computed again."""
        (node,), table = self.stage.nodes, self.stage.table
        planner.plan_before([node])
        known = planner.inputs_of(node)[0] if table.name == node.name else planner.frame_of(table.name)
        rows = stored.rows(table)
        written = planner.written.get(self.stage.subtopology.output_numbers[table.name], known)
        frame = stored_table(table, rows, known, written)
        if table.name == node.name:  # what a filter has stored, it has kept
            return restore_old_values(node, frame, self.stage.windows)
        again = self.planner(repeats=True)
        again.bind(table.name, frame)
        behind = self.stage.subtopology.downstream_of([table.name])
        again.plan(each for each in self.stage.subtopology.upstream_of([node]) if each.name in behind)
        return restore_old_values(node, _computed(again, node, again.inputs_of(node)[0]), self.stage.windows)

    def recount(self, frames: Mapping[str, RecordFrame], planner: OperatorPlanner, recounting: Recounting) -> Recounted:
        """Let the planner go on with what all updates give."""
        planner.bind_all(frames)
        inputs = self.inputs(planner)
        self.bind(planner, self.operate(inputs, None), inputs)
        return Recounted()

    def apply(self, node: Processor, frames: Sequence[RecordFrame], planner: OperatorPlanner) -> RecordFrame:
        """See :meth:`StagePlan.apply`."""
        match node.operation:
            case TableKeySelect() as select:
                return without_changes(frames[0], select)
        return super().apply(node, frames, planner)


def _computed(planner: OperatorPlanner, node: Processor, frame: RecordFrame) -> RecordFrame:
    """Return what the operation makes of updates. Those that are rejected end here."""
    if not frame.no_rejects:
        planner.write(dead_letter_rows(frame.rejected()))
    frame = frame.accepted()
    match node.operation:
        case TableFilter() as table_filter:
            kept = filtered(frame, table_filter)
            if not kept.no_rejects:  # the value before stays
                planner.write(dead_letter_rows(kept.rejected()))
            return kept.accepted()
        case TableKeySelect() as select:
            frame = selected(frame, select)
            if not frame.no_rejects:  # a value that is in no group has taken the old one out of its group
                planner.write(dead_letter_rows(frame.rejected()))
    return frame
