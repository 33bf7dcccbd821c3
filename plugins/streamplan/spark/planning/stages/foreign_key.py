"""One side of a join of tables by a foreign key, at the sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame

from streamplan.model.operations import (
    ForeignKeyResult,
    ForeignTableJoin,
    ResponseJoin,
    SubscriptionJoin,
    SubscriptionReceive,
    SubscriptionSend,
)
from streamplan.model.processor_topology import Processor
from streamplan.model.stages.foreign_key import ForeignKeyStage
from streamplan.spark.planning.foreign_key_join import (
    carrying_source,
    join_by_foreign_key,
    joined_by_foreign_key,
    records_of_table,
    restore_foreign_key_join,
    sent_records,
    stored_subscriptions,
    table_source,
    without_responses,
    without_subscriptions,
)
from streamplan.spark.planning.foreign_key_state import Made
from streamplan.spark.planning.operators import OperatorPlanner
from streamplan.spark.planning.output_rows import dead_letter_rows
from streamplan.spark.planning.records import RecordFrame
from streamplan.spark.planning.recounted.foreign_keys import bind_recounted_side
from streamplan.spark.planning.stages.stage_plan import (
    OperatorPlan,
    Recounted,
    Recounting,
    StoredState,
)


class ForeignKeyPlan(OperatorPlan[ForeignKeyStage]):
    """Gives one side its records, and those of the other side."""

    def inputs(self, planner: OperatorPlanner) -> Mapping[str, RecordFrame]:
        """See :meth:`StagePlan.inputs`."""
        return planner.source_frames()

    def operate(self, inputs: Mapping[str, RecordFrame], ticks: Callable[[], DataFrame] | None) -> DataFrame:
        """See :meth:`StagePlan.operate`."""
        return join_by_foreign_key(self.stage.subtopology, inputs)

    def bind(self, planner: OperatorPlanner, rows: DataFrame, inputs: Mapping[str, RecordFrame]) -> None:
        """See :meth:`StagePlan.bind`. The source of the side's table has its records."""
        subtopology, frames, batch = self.stage.subtopology, inputs, rows
        table = table_source(subtopology)
        records = records_of_table(batch, frames[table.name])
        planner.write(dead_letter_rows(records.rejected()))
        planner.bind(table.name, records.accepted())
        carrying = frames[carrying_source(subtopology).name]
        planner.consume(carrying_source(subtopology).name)  # the state has read its records
        for node in subtopology.processors:
            match node.operation:
                case SubscriptionSend(key_serde=key_serde):
                    known = replace(frames[table.name], key_serde=key_serde)
                    planner.bind(node.name, sent_records(batch, Made.SUBSCRIPTION, known))
                case SubscriptionReceive():
                    stored = sent_records(batch, Made.STORED, carrying)
                    planner.bind(node.name, stored)
                    planner.write_sent(node, stored)
                case SubscriptionJoin(key_serde=key_serde):
                    known = replace(carrying, key_serde=key_serde)
                    planner.bind(node.name, sent_records(batch, Made.RESPONSE, known))
                case ForeignTableJoin(key_serde=key_serde):  # the node before has all responses
                    known = replace(carrying, key_serde=key_serde)
                    planner.bind(node.name, sent_records(batch.where("false"), Made.RESPONSE, known))
                case ResponseJoin():
                    planner.bind(node.name, joined_by_foreign_key(batch, subtopology, frames))

    def restore(self, stored: StoredState, planner: OperatorPlanner) -> DataFrame:
        """See :meth:`StagePlan.restore`."""
        subtopology, raw = self.stage.subtopology, stored.table_rows()
        for node in subtopology.processors_with(SubscriptionReceive):
            raw[carrying_source(subtopology).name] = stored_subscriptions(stored.rows(node))
        results = [node for node in subtopology.processors_with(ForeignKeyResult) if node.writes_store]
        return restore_foreign_key_join(subtopology, stored.frames(raw), stored.rows(results[0]) if results else None)

    def recount(self, frames: Mapping[str, RecordFrame], planner: OperatorPlanner, recounting: Recounting) -> Recounted:
        """Let the planner go on with what the last values of both tables demand."""
        bind_recounted_side(planner, self.stage.subtopology, frames, recounting.other)
        return Recounted()

    def apply(self, node: Processor, frames: Sequence[RecordFrame], planner: OperatorPlanner) -> RecordFrame:
        """See :meth:`StagePlan.apply`."""
        match node.operation:
            case SubscriptionSend() | SubscriptionReceive() | SubscriptionJoin() | ForeignTableJoin():
                return without_subscriptions(frames[0], node.operation)
            case ResponseJoin():
                return without_responses(node, frames[0])
            case ForeignKeyResult(store=store):
                if store is not None:
                    planner.write_changelog(node, frames[0])
                return frames[0]
        return super().apply(node, frames, planner)
