"""One side of a join of tables by a foreign key: at the sources, and behind another side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from pyspark.sql import DataFrame

from streamplan.errors import Refused
from streamplan.model.operations import (
    ForeignKeyResult,
    ForeignTableJoin,
    ResponseJoin,
    SubscriptionJoin,
    SubscriptionReceive,
    SubscriptionSend,
)
from streamplan.model.processor_topology import Processor
from streamplan.model.stages.foreign_key import ForeignKeyStage, ResultForeignKeyStage
from streamplan.spark.planning.foreign_key_join import (
    join_by_foreign_key,
    joined_by_foreign_key,
    judged,
    records_of_table,
    restore_foreign_key_join,
    sent_records,
    stored_subscriptions,
    without_responses,
    without_subscriptions,
)
from streamplan.spark.planning.foreign_key_state import Made
from streamplan.spark.planning.old_values import stored_table
from streamplan.spark.planning.operators import OperatorPlanner
from streamplan.spark.planning.output_rows import dead_letter_rows
from streamplan.spark.planning.records import RecordFrame, rejecting_binary_keys
from streamplan.spark.planning.recounted.foreign_keys import bind_recounted_side
from streamplan.spark.planning.stages.stage_plan import (
    OperatorPlan,
    Recounted,
    Recounting,
    StoredState,
)

_Inputs = tuple[RecordFrame, RecordFrame]
"""The updates of a side's table, and what the other side has written."""


class ForeignKeyPlan(OperatorPlan[ForeignKeyStage]):
    """Gives one side its records, and those of the other side."""

    def judged(self, frames: Mapping[str, RecordFrame]) -> Mapping[str, RecordFrame]:
        """See :meth:`OperatorPlan.judged`."""
        source = self.stage.source
        if source is None:
            return frames
        frame = judged(rejecting_binary_keys(frames[source.name]), self.stage.table, self.stage.subtopology)
        return {**frames, source.name: frame}

    def inputs(self, planner: OperatorPlanner) -> _Inputs:
        """See :meth:`StagePlan.inputs`."""
        frames, source = planner.source_frames(), self.stage.source
        assert source is not None, f"{self.stage.node.name} reads no table from a topic"
        return frames[source.name], frames[self.stage.carrying.name]

    def operate(self, inputs: _Inputs, ticks: Callable[[], DataFrame] | None) -> DataFrame:
        """See :meth:`StagePlan.operate`."""
        return join_by_foreign_key(self.stage, *inputs)

    def bind(self, planner: OperatorPlanner, rows: DataFrame, inputs: _Inputs) -> None:
        """See :meth:`StagePlan.bind`. The source of the side's table has its records."""
        source = self.stage.source
        assert source is not None, f"{self.stage.node.name} reads no table from a topic"
        records = records_of_table(rows, inputs[0])
        planner.write(dead_letter_rows(records.rejected()))
        planner.bind(source.name, records.accepted())
        self._bind_made(planner, rows, *inputs)

    def _bind_made(self, planner: OperatorPlanner, rows: DataFrame, table: RecordFrame, sent: RecordFrame) -> None:
        """Let a planner go on with what the side has made of records."""
        stage = self.stage
        planner.consume(stage.carrying.name)  # the state has read its records
        match stage.node.operation:
            case SubscriptionSend(key_serde=key_serde):
                known = replace(table, key_serde=key_serde)
                planner.bind(stage.node.name, sent_records(rows, Made.SUBSCRIPTION, known))
                join = stage.join
                assert join is not None
                joined = joined_by_foreign_key(rows, stage, table, sent)
                planner.bind(join.name, self._judged(joined))
            case SubscriptionReceive(primary_keys=key_serde):
                stored = sent_records(rows, Made.STORED, sent)
                planner.bind(stage.node.name, stored)
                planner.write_sent(stage.node, stored)
                known = replace(sent, key_serde=key_serde)
                of_subscription, of_change = stage.responders
                planner.bind(of_subscription.name, sent_records(rows, Made.RESPONSE, known))
                # the node before has all responses
                planner.bind(of_change.name, sent_records(rows.where("false"), Made.RESPONSE, known))

    def _judged(self, joined: RecordFrame) -> RecordFrame:
        """Reject the joined values that cannot be joined any further."""
        result = self.stage.result
        return joined if result is None else judged(joined, result, self.stage.subtopology)

    def restore(self, stored: StoredState, planner: OperatorPlanner) -> DataFrame:
        """See :meth:`StagePlan.restore`."""
        source = self.stage.source
        assert source is not None, f"{self.stage.node.name} reads no table from a topic"
        return self._restored(stored, [stored.frames(stored.table_rows())[source.name]])

    def _restored(self, stored: StoredState, tables: Sequence[RecordFrame]) -> DataFrame:
        stage = self.stage
        raw, result = stored.no_records(), stage.result
        if isinstance(stage.node.operation, SubscriptionReceive):
            raw[stage.carrying.name] = stored_subscriptions(stored.rows(stage.node))
        sent = stored.frames(raw)[stage.carrying.name]
        results = stored.rows(result) if result is not None and result.writes_store else None
        return restore_foreign_key_join(stage, tables, sent, results)

    def recount(self, frames: Mapping[str, RecordFrame], planner: OperatorPlanner, recounting: Recounting) -> Recounted:
        """Let the planner go on with what the last values of both tables demand."""
        source = self.stage.source
        assert source is not None, f"{self.stage.node.name} reads no table from a topic"
        planner.bind_all(frames)
        records = judged(rejecting_binary_keys(frames[source.name]), self.stage.table, self.stage.subtopology)
        planner.write(dead_letter_rows(records.rejected()))
        planner.bind(source.name, records.accepted())
        bind_recounted_side(planner, self.stage, records.accepted(), recounting.others)
        return Recounted()

    def apply(self, node: Processor, frames: Sequence[RecordFrame], planner: OperatorPlanner) -> RecordFrame:
        """See :meth:`StagePlan.apply`."""
        match node.operation:
            case SubscriptionSend() | SubscriptionReceive() | SubscriptionJoin() | ForeignTableJoin():
                return without_subscriptions(frames[0], node.operation)
            case ResponseJoin():
                table = planner.known(self.stage.table.name)
                if table is None:
                    raise Refused("the table that is joined by a foreign key is not known", remedy="Correct it first.")
                return without_responses(node, table, frames[0])
            case ForeignKeyResult(store=store):
                if store is not None:
                    planner.write_changelog(node, frames[0].accepted())
                return frames[0]
        return super().apply(node, frames, planner)


class ResultForeignKeyPlan(ForeignKeyPlan):
    """Gives a side the updates that another join has made, or those that another side has passed."""

    stage: ResultForeignKeyStage

    restores_with_inputs: ClassVar[bool] = True

    def inputs(self, planner: OperatorPlanner) -> _Inputs:
        """See :meth:`StagePlan.inputs`."""
        taker = self.stage.takers[-1] if self.stage.responders else self.stage.node
        planner.plan_before([taker])
        frame = planner.inputs_of(taker)[0]
        if not frame.no_rejects:
            planner.write(dead_letter_rows(frame.rejected()))
        return frame.accepted(), planner.read[self.stage.carrying.name]

    def bind(self, planner: OperatorPlanner, rows: DataFrame, inputs: _Inputs) -> None:
        """See :meth:`StagePlan.bind`."""
        self._bind_made(planner, rows, *inputs)

    def restore(self, stored: StoredState, planner: OperatorPlanner) -> DataFrame:
        """See :meth:`StagePlan.restore`. The operators before give it no rows: each is restored for itself."""
        known, _ = self.inputs(planner)
        nothing = replace(known, data=known.data.where("record.partition < 0"))
        return self._restored(stored, [self._stored(stored, known), nothing])

    def _stored(self, stored: StoredState, known: RecordFrame) -> RecordFrame:
        """Return what the store of the table holds."""
        if self.stage.source is not None:
            return stored.frames(stored.table_rows())[self.stage.source.name]
        return stored_table(self.stage.table, stored.rows(self.stage.table), known, known)

    def recount(self, frames: Mapping[str, RecordFrame], planner: OperatorPlanner, recounting: Recounting) -> Recounted:
        """Let the planner go on with what the last values of both tables demand."""
        taker = self.stage.takers[-1] if self.stage.responders else self.stage.node
        planner.plan_before([taker])
        bind_recounted_side(planner, self.stage, planner.inputs_of(taker)[0].accepted(), recounting.others)
        return Recounted()
