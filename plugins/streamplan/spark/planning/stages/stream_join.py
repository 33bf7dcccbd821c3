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
from streamplan.spark.planning.stages.stage_plan import Cut, Sources, StagePlan, StoredState, cut_behind_state
from streamplan.spark.planning.stream_stream_join import (
    join_streams,
    joined_records,
    restore_join,
    shared_changes,
    stored_records,
    without_records,
)


class StreamJoinPlan(StagePlan[StreamJoinStage]):
    """Joins what the operations before have made of the records."""

    def stream(self, sources: Sources, planner: OperatorPlanner, ticks: Callable[[], DataFrame] | None) -> Cut:
        """Let the planner go on with what two streams give, and with the rows that were complete before."""
        stage = self.stage
        planner.bind_all(sources.frames())
        inputs = self._inputs(planner)
        cut, joined = cut_behind_state(join_streams(inputs, stage.join), planner)
        for number, side in enumerate(stage.sides):
            stored = stored_records(number, joined, inputs[number])
            planner.write_changelog(side, stored)
            planner.bind(side.name, stored)
        if stage.shared is not None:
            planner.write_changelog(stage.shared, shared_changes(joined))
        planner.bind(stage.nodes[0].name, joined_records(joined, inputs).select(stage.join.value))
        return replace(cut, divided=True)

    def restore(self, stored: StoredState) -> DataFrame:
        """See :meth:`StagePlan.restore`."""
        stage = self.stage
        inputs = self._inputs(self.planner_of_types(stored))
        waiting = None if stage.shared is None else stored.rows(stage.shared)
        return restore_join(inputs, [stored.rows(side) for side in stage.sides], waiting, stage.join)

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

    def _inputs(self, planner: OperatorPlanner) -> list[RecordFrame]:
        """Plan what comes before the join; return the records of its sides."""
        planner.plan_before(self.stage.sides)
        return [self._storable(planner, planner.inputs_of(side)[0]) for side in self.stage.sides]

    def _storable(self, planner: OperatorPlanner, frame: RecordFrame) -> RecordFrame:
        """The records that a side can store.

        One without a key meets no other. An inner join leaves it out. A left or outer join passes it without a match.
        """
        frame = rejecting_binary_keys(frame)
        if not frame.as_in_internal_topic:
            for condition, reason in storing_faults(frame):
                frame = frame.rejecting(condition, reason)
        planner.write(dead_letter_rows(frame.rejected()))
        frame = frame.accepted()
        if isinstance(self.stage.join, OuterStreamJoin):
            return frame
        return replace(frame, data=frame.data.where("record.key is not null"), key_not_null=True)
