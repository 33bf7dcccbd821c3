"""Joins of streams with tables: one look-up of the record's key for all of them.

The key of a joined record is the one it was read with, since a changed key goes through a repartition topic first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamplan.errors import Refused
from streamplan.model.operations import Join
from streamplan.model.processor_topology import Processor
from streamplan.model.stages.look_up import LookUpInResultStage, LookUpStage, ResultLookUpStage
from streamplan.spark.planning.operators import OperatorPlanner
from streamplan.spark.planning.output_rows import dead_letter_rows
from streamplan.spark.planning.records import RecordFrame, rejecting_binary_keys
from streamplan.spark.planning.stages.stage_plan import (
    OperatorPlan,
    Recounted,
    Recounting,
    StoredState,
)
from streamplan.spark.planning.stages.stored_tables import (
    nothing_of,
    require_deterministic,
    stored_updates,
    with_values,
)
from streamplan.spark.planning.stream_table_join import (
    join_stream_with_result,
    join_streams_with_tables,
    joined_frames,
)


class LookUpPlan(OperatorPlan[LookUpStage]):
    """Looks up the key of each record in all tables, at the sources."""

    def inputs(self, planner: OperatorPlanner) -> Mapping[str, RecordFrame]:
        """See :meth:`StagePlan.inputs`."""
        return planner.source_frames()

    def operate(self, inputs: Mapping[str, RecordFrame], ticks: Callable[[], DataFrame] | None) -> DataFrame:
        """See :meth:`StagePlan.operate`."""
        return self._joined(inputs)

    def bind(self, planner: OperatorPlanner, rows: DataFrame, inputs: Mapping[str, RecordFrame]) -> None:
        """See :meth:`StagePlan.bind`. The sources have the joined records."""
        planner.bind_all(joined_frames(rows, inputs, self.stage.subtopology.table_stores))

    def restore(self, stored: StoredState, planner: OperatorPlanner) -> DataFrame:
        """See :meth:`StagePlan.restore`."""
        return self._joined(stored.frames(stored.table_rows()))

    def recount(self, frames: Mapping[str, RecordFrame], planner: OperatorPlanner, recounting: Recounting) -> Recounted:
        """Let the planner go on with the records of each source, with the rows that they meet."""
        stores = self.stage.subtopology.table_stores
        planner.bind_all(joined_frames(self._joined(frames), frames, stores))
        return Recounted()

    def apply(self, node: Processor, frames: Sequence[RecordFrame], planner: OperatorPlanner) -> RecordFrame:
        """See :meth:`StagePlan.apply`."""
        if not isinstance(node.operation, Join):
            return super().apply(node, frames, planner)
        return _with_rows(frames[0], node, node.operation)

    def _joined(self, frames: Mapping[str, RecordFrame]) -> DataFrame:
        group = self.stage.subtopology
        return join_streams_with_tables(frames, group.table_stores, group.histories)


class ResultLookUpPlan(OperatorPlan[ResultLookUpStage]):
    """Looks up the key of each record that a join is given, in its table."""

    restores_with_inputs: ClassVar[bool] = True

    def inputs(self, planner: OperatorPlanner) -> Mapping[str, RecordFrame]:
        """See :meth:`StagePlan.inputs`. These are the records of the stream, and those that the table is read from."""
        (node,) = self.stage.nodes
        planner.plan_before([node])
        frame = rejecting_binary_keys(planner.inputs_of(node)[0])
        if not frame.no_rejects:
            planner.write(dead_letter_rows(frame.rejected()))
        return {node.name: frame.accepted(), self.stage.table: planner.read[self.stage.table].accepted()}

    def operate(self, inputs: Mapping[str, RecordFrame], ticks: Callable[[], DataFrame] | None) -> DataFrame:
        """See :meth:`StagePlan.operate`."""
        return self._joined(inputs)

    def bind(self, planner: OperatorPlanner, rows: DataFrame, inputs: Mapping[str, RecordFrame]) -> None:
        """See :meth:`StagePlan.bind`."""
        (node,) = self.stage.nodes
        assert isinstance(node.operation, Join)
        frame = replace(joined_frames(rows, inputs, self._tables)[node.name], no_rejects=True)
        joined = _with_rows(frame, node, node.operation)  # which may be merged with records that have met no row
        planner.bind(node.name, joined.with_record(F.col("record").dropFields(f"`{node.store}`")))

    def restore(self, stored: StoredState, planner: OperatorPlanner) -> DataFrame:
        """See :meth:`StagePlan.restore`."""
        (node,) = self.stage.nodes
        records = self.inputs(planner)[node.name]
        nothing = replace(records, data=records.data.where("record.partition < 0"))
        table = stored.frames(stored.table_rows())[self.stage.table]
        return self._joined({node.name: nothing, self.stage.table: table})

    def recount(self, frames: Mapping[str, RecordFrame], planner: OperatorPlanner, recounting: Recounting) -> Recounted:
        """Let the planner go on with the rows that the records meet."""
        planner.bind_all(frames)
        inputs = self.inputs(planner)
        self.bind(planner, self.operate(inputs, None), inputs)
        return Recounted()

    def apply(self, node: Processor, frames: Sequence[RecordFrame], planner: OperatorPlanner) -> RecordFrame:
        """See :meth:`StagePlan.apply`."""
        if not isinstance(node.operation, Join):
            return super().apply(node, frames, planner)
        table = planner.source_frames()[self.stage.table]
        row = table.data.select(F.struct(*table.fields).alias("row")).schema["row"].dataType
        record = F.col("record").withField(f"`{node.store}`", F.lit(None).cast(row))
        return _with_rows(frames[0].with_record(record), node, node.operation)

    def _joined(self, frames: Mapping[str, RecordFrame]) -> DataFrame:
        return join_streams_with_tables(frames, self._tables, self.stage.subtopology.histories)

    @property
    def _tables(self) -> Mapping[str, str]:
        (node,) = self.stage.nodes
        return {self.stage.table: str(node.store)}


class LookUpInResultPlan(OperatorPlan[LookUpInResultStage]):
    """Looks up the key of each record that a join is given, in a table that is a result."""

    restores_with_inputs: ClassVar[bool] = True

    def reject_beside(self, planner: OperatorPlanner) -> None:
        """See :meth:`OperatorPlan.reject_beside`."""
        (node,) = self.stage.nodes
        (before,) = self.stage.subtopology.predecessors[node.name]
        if planner.known(before) is not None:
            self._stream(planner)

    def inputs(self, planner: OperatorPlanner) -> Mapping[str, RecordFrame]:
        """See :meth:`OperatorPlan.inputs`. These are the records of the stream, and the updates of the table."""
        (node,), (table,) = self.stage.nodes, self.stage.looked_up
        planner.plan_before([node])
        return {node.name: self._stream(planner), table.name: self._updates(planner.of_tables or planner)}

    def operate(self, inputs: Mapping[str, RecordFrame], ticks: Callable[[], DataFrame] | None) -> DataFrame:
        """See :meth:`OperatorPlan.operate`."""
        stream, table = inputs.values()
        return join_stream_with_result(stream, table, self._store, in_order=self.stage.in_order)

    def bind(self, planner: OperatorPlanner, rows: DataFrame, inputs: Mapping[str, RecordFrame]) -> None:
        """See :meth:`OperatorPlan.bind`."""
        (node,), (table,) = self.stage.nodes, self.stage.looked_up
        assert isinstance(node.operation, Join)
        frame = replace(joined_frames(rows, inputs, {table.name: self._store})[node.name], no_rejects=True)
        planner.bind(node.name, _with_rows(frame, node, node.operation))

    def restore(self, stored: StoredState, planner: OperatorPlanner) -> DataFrame:
        """See :meth:`OperatorPlan.restore`. The changelog of the table has its rows."""
        (table,) = self.stage.looked_up
        records, updates = self.inputs(planner).values()
        return join_stream_with_result(
            nothing_of(records),
            stored_updates(stored, planner.of_tables or planner, table, updates),
            self._store,
            in_order=self.stage.in_order,
            restored=True,
        )

    def recount(self, frames: Mapping[str, RecordFrame], planner: OperatorPlanner, recounting: Recounting) -> Recounted:
        """Let the planner go on with rows that the records may meet. What the join writes is not compared.

        The recounted result of a join by a foreign key has no time, since that depends on the order of both tables.
        """
        planner.bind_all(frames)
        (table,) = self.stage.looked_up
        inputs = dict(self.inputs(planner))
        time = F.coalesce("record.timestamp", F.timestamp_millis(F.lit(0)))
        inputs[table.name] = inputs[table.name].with_record(F.col("record").withField("timestamp", time))
        self.bind(planner, self.operate(inputs, None), inputs)
        return Recounted()

    def apply(self, node: Processor, frames: Sequence[RecordFrame], planner: OperatorPlanner) -> RecordFrame:
        """See :meth:`StagePlan.apply`."""
        if not isinstance(node.operation, Join):
            return super().apply(node, frames, planner)
        (table,) = self.stage.looked_up
        updates = planner.known(table.name)
        if updates is None:
            raise Refused(f"the table of {table.name} is not known, because Spark refuses an expression before it")
        row = updates.data.select(F.struct(*updates.fields).alias("row")).schema["row"].dataType
        record = F.col("record").withField(f"`{node.store}`", F.lit(None).cast(row))
        return _with_rows(frames[0].with_record(record), node, node.operation)

    @property
    def _store(self) -> str:
        (node,) = self.stage.nodes
        return str(node.store)

    def _stream(self, planner: OperatorPlanner) -> RecordFrame:
        """Return the records that are joined. The others end here, once for a planner."""
        (node,) = self.stage.nodes
        frame = rejecting_binary_keys(planner.inputs_of(node)[0])
        if not frame.no_rejects and node.name not in planner.grouped:
            planner.write(dead_letter_rows(frame.rejected()))
        planner.grouped.add(node.name)
        met = [f"`{store}`" for store in self.stage.subtopology.table_stores.values()]
        frame = frame.accepted()
        return frame.with_record(F.col("record").dropFields(*met)) if met else frame

    def _updates(self, planner: OperatorPlanner) -> RecordFrame:
        (table,) = self.stage.looked_up
        planner.plan((*self.stage.subtopology.upstream_of([table]), table))
        frame = planner.consume(table.name)
        assert frame is not None, f"{table.name} is planned on records that Spark refused"
        require_deterministic(self.stage.subtopology, table, frame)
        if not frame.no_rejects:
            planner.write(dead_letter_rows(frame.rejected()))
        return with_values(frame.accepted())


def _with_rows(frame: RecordFrame, node: Processor, join: Join) -> RecordFrame:
    """Return what a join makes of records and of the rows that they meet."""
    frame = frame.with_value()
    joined = replace(frame, data=frame.data.withColumn("table", F.col(f"record.`{node.store}`")))
    return (joined if join.left else joined.where("table is not null")).select(join.value)
