"""A Python class, or Python functions that aggregate: what is called with the state of each key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import ClassVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamplan.model.processor_topology import Processor
from streamplan.model.stages.process import ProcessStage
from streamplan.spark.planning.operators import OperatorPlanner
from streamplan.spark.planning.output_rows import dead_letter_rows
from streamplan.spark.planning.process import process_records, processed_records, restore_process, stored_changes
from streamplan.spark.planning.records import RecordFrame, rejecting_binary_keys
from streamplan.spark.planning.stages.stage_plan import (
    OperatorPlan,
    Recounted,
    Recounting,
    StoredState,
)


class ProcessPlan(OperatorPlan[ProcessStage]):
    """Calls the class with what the operations before have made of the records."""

    most_recounted: ClassVar[int | None] = 200_000  # A Python worker sorts them, to process them all at once.

    def inputs(self, planner: OperatorPlanner) -> list[RecordFrame]:
        """See :meth:`StagePlan.inputs`. Beside other state the records that the task reads follow, for their times."""
        (node,) = self.stage.nodes
        planner.plan_before([node])
        read = planner.read.values() if self.stage.needs_times else ()
        return [_processable(planner, planner.inputs_of(node)[0]), *read]

    def operate(self, inputs: list[RecordFrame], ticks: Callable[[], DataFrame] | None) -> DataFrame:
        """See :meth:`StagePlan.operate`."""
        (node,) = self.stage.nodes
        records, *read = inputs
        return process_records(node, records, read)

    def bind(self, planner: OperatorPlanner, rows: DataFrame, inputs: list[RecordFrame]) -> None:
        """See :meth:`StagePlan.bind`."""
        (node,) = self.stage.nodes
        planner.bind(node.name, _with_store(planner, node, rows, inputs[0]))

    def restore(self, stored: StoredState, planner: OperatorPlanner) -> DataFrame:
        """See :meth:`StagePlan.restore`."""
        (node,) = self.stage.nodes
        return restore_process(node, self.inputs(planner)[0], stored.rows(node))

    def recount(self, frames: Mapping[str, RecordFrame], planner: OperatorPlanner, recounting: Recounting) -> Recounted:
        """Let the class process all records once more, where it can."""
        (node,) = self.stage.nodes
        planner.bind_all(frames)
        if self.is_part and not planner.read:
            planner.read = frames
        records, *read = self.inputs(planner)
        if not recounting.processes:
            records, *read = (replace(frame, data=frame.data.where("false")) for frame in (records, *read))
        processed = process_records(node, records, read, sweeps=False)
        planner.bind(node.name, _with_store(planner, node, processed, records))
        if self.stage.ttl_ms is None:
            return Recounted()
        times = [frame.moving_time().data.select(F.unix_millis("record.timestamp").alias("at")) for frame in read]
        times = times or [records.data.select(F.unix_millis("record.timestamp").alias("at"))]
        newest = reduce(DataFrame.unionByName, times).agg(F.max("at")).first()
        return Recounted(newest_ms=newest[0] if newest and newest[0] is not None else 0)

    def apply(self, node: Processor, frames: Sequence[RecordFrame], planner: OperatorPlanner) -> RecordFrame:
        """See :meth:`StagePlan.apply`."""
        if not self.stage.has(node):
            return super().apply(node, frames, planner)
        records = _processable(planner, frames[0])
        return _with_store(planner, node, process_records(node, records), records)


def _processable(planner: OperatorPlanner, frame: RecordFrame) -> RecordFrame:
    """The records that the class can be given. Those without a key only move its time on."""
    frame = rejecting_binary_keys(frame)
    if not frame.no_rejects:
        planner.write(dead_letter_rows(frame.rejected()))
    frame = replace(frame, format=frame.format if frame.value_is_raw else None)  # else it is that of an earlier value
    return frame.accepted().with_fields


def _with_store(planner: OperatorPlanner, node: Processor, processed: DataFrame, records: RecordFrame) -> RecordFrame:
    """Write what the class has changed in its store; return the records that it gives."""
    planner.write_changelog(node, stored_changes(node, processed, records))
    return processed_records(node, processed, records)
