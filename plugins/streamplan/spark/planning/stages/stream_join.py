"""A join of two streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame

from streamplan.model.operations import JoinSide, OuterJoinSide, OuterStreamJoin, StoreForJoin, StreamJoin
from streamplan.model.processor_topology import Processor
from streamplan.model.stages.stream_join import StreamJoinStage
from streamplan.spark.planning.operators import OperatorPlanner, storing_faults
from streamplan.spark.planning.output_rows import dead_letter_rows
from streamplan.spark.planning.records import RecordFrame, rejecting_binary_keys
from streamplan.spark.planning.stages.stage_plan import OperatorPlan, StoredState
from streamplan.spark.planning.stream_stream_join import (
    join_streams,
    joined_records,
    restore_join,
    shared_changes,
    stored_records,
    without_records,
)


class StreamJoinPlan(OperatorPlan[StreamJoinStage]):
    """Joins what the operations before have made of the records."""

    def inputs(self, planner: OperatorPlanner) -> list[RecordFrame]:
        """See :meth:`StagePlan.inputs`. These are the records of both sides."""
        planner.plan_before(self.stage.sides)
        return [self._storable(planner, planner.inputs_of(side)[0]) for side in self.stage.sides]

    def operate(self, inputs: list[RecordFrame], ticks: Callable[[], DataFrame] | None) -> DataFrame:
        """See :meth:`StagePlan.operate`."""
        return join_streams(inputs, self.stage.join)

    def bind(self, planner: OperatorPlanner, rows: DataFrame, inputs: list[RecordFrame]) -> None:
        """See :meth:`StagePlan.bind`."""
        stage = self.stage
        for number, side in enumerate(stage.sides):
            stored = stored_records(number, rows, inputs[number])
            planner.write_changelog(side, stored)
            planner.bind(side.name, stored)
        if stage.shared is not None:
            planner.write_changelog(stage.shared, shared_changes(rows))
        planner.bind(stage.nodes[0].name, joined_records(rows, inputs).select(stage.join.value))

    def restore(self, stored: StoredState, planner: OperatorPlanner) -> DataFrame:
        """See :meth:`StagePlan.restore`."""
        stage = self.stage
        waiting = None if stage.shared is None else stored.rows(stage.shared)
        return restore_join(self.inputs(planner), [stored.rows(side) for side in stage.sides], waiting, stage.join)

    def apply(self, node: Processor, frames: Sequence[RecordFrame], planner: OperatorPlanner) -> RecordFrame:
        """See :meth:`StagePlan.apply`."""
        match node.operation:
            case StoreForJoin():
                return self._storable(planner, frames[0])
            case JoinSide() | OuterJoinSide():
                return frames[0]
            case StreamJoin(value=value):
                return without_records(*frames).select(value)
        return super().apply(node, frames, planner)

    def _storable(self, planner: OperatorPlanner, frame: RecordFrame) -> RecordFrame:
        """The records that a side can store.

        One without a key meets no other. An inner join leaves it out. A left or outer join passes it without a match.
        """
        frame = rejecting_binary_keys(frame)
        if not frame.as_in_internal_topic:
            for condition, reason in storing_faults(frame):
                frame = frame.rejecting(condition, reason)
        planner.write(dead_letter_rows(frame.rejected()))
        frame = frame.accepted().with_fields
        if isinstance(self.stage.join, OuterStreamJoin):
            return frame
        return replace(frame, data=frame.data.where("record.key is not null"), key_not_null=True)
