"""Python classes that have all keys of their stream task in some stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from pyspark.sql import DataFrame

from streamplan.model.operations import TableSource
from streamplan.model.processor_topology import Processor
from streamplan.model.stages.process_stores import ProcessStoresStage
from streamplan.spark.global_tables import ReadTable
from streamplan.spark.planning.operators import OperatorPlanner
from streamplan.spark.planning.output_rows import dead_letter_rows
from streamplan.spark.planning.process_stores import (
    ReadUpdates,
    forwarded_records,
    process_with_stores,
    restore_stores,
    restored_updates,
    stored_changes,
)
from streamplan.spark.planning.records import RecordFrame, rejecting_binary_keys
from streamplan.spark.planning.stages.stage_plan import OperatorPlan, Recounted, Recounting, StoredState


class ProcessStoresPlan(OperatorPlan[ProcessStoresStage]):
    """Calls the classes with what the operations before have made of the records."""

    most_recounted: ClassVar[int | None] = 0  # The classes are not called again.

    def inputs(self, planner: OperatorPlanner) -> _Inputs:
        """See :meth:`StagePlan.inputs`. The records of each processor; what other operations store; and all records.

        All that the task reads are for the stream time, where some of them come to no processor.
        """
        records = self._records(planner)
        for node in self.stage.read_nodes:
            planner.plan([*self.stage.subtopology.upstream_of([node]), node])
        stored = [planner.frame_of(node.name).accepted().with_fields for node in self.stage.read_nodes]
        read = planner.source_frames().values() if self.stage.reads_all_times or self.is_part else ()
        return _Inputs([*records, *stored, *read], planner.read_table)

    def reject(self, planner: OperatorPlanner) -> None:
        """See :meth:`OperatorPlan.reject`."""
        self._records(planner)

    def _records(self, planner: OperatorPlanner) -> list[RecordFrame]:
        """The records of each processor. What is rejected of them is written."""
        planner.plan_before(self.stage.nodes)
        return [_processable(planner, planner.inputs_of(node)[0]) for node in self.stage.nodes]

    def operate(self, inputs: _Inputs, ticks: Callable[[], DataFrame] | None) -> DataFrame:
        """See :meth:`StagePlan.operate`."""
        of_clock = None
        if self.stage.punctuates_ms is not None:
            assert ticks is not None, f"sub-topology {self.stage.subtopology.id} needs ticks"
            of_clock = ticks()
        return self._operated(inputs, of_clock, inputs.read_table)

    def bind(self, planner: OperatorPlanner, rows: DataFrame, inputs: list[RecordFrame]) -> None:
        """See :meth:`StagePlan.bind`."""
        for place, node in enumerate(self.stage.nodes):
            planner.bind(node.name, forwarded_records(node, place, rows))
        for place, node in enumerate(self.stage.store_nodes):
            stored = stored_changes(rows, place, node)
            planner.write_changelog(node, stored)
            planner.bind(node.name, stored)

    def restore(self, stored: StoredState, planner: OperatorPlanner) -> DataFrame:
        """See :meth:`StagePlan.restore`."""
        stores = self.stage.store_nodes
        return restore_stores(
            self.stage.subtopology.id,
            self.stage.nodes,
            stores,
            self.inputs(planner)[: len(self.stage.nodes)],
            [stored.rows(node) for node in stores],
            stored.times,
            self._restored_tables(stored, planner),
        )

    def _restored_tables(self, stored: StoredState, planner: OperatorPlanner) -> list[ReadUpdates]:
        """What the stores of other operations hold. The planner knows the types of their values."""
        of_sources = stored.frames(stored.table_rows())
        tables = []
        for node in self.stage.read_nodes:
            if isinstance(node.operation, TableSource):
                frame = of_sources[self.stage.subtopology.predecessors[node.name][0]].accepted()
            else:
                frame = restored_updates(node, planner.frame_of(node.name).with_fields, stored.rows(node))
            tables.append(ReadUpdates(node, frame))
        return tables

    def recount(self, frames: Mapping[str, RecordFrame], planner: OperatorPlanner, recounting: Recounting) -> Recounted:
        """Let the planner go on without a record: the classes are not called again."""
        planner.bind_all(frames)
        given = self.inputs(planner)[: len(self.stage.nodes) + len(self.stage.read_nodes)]
        nothing = [replace(frame, data=frame.data.where("false")) for frame in given]
        self.bind(planner, self._operated(nothing, None, None), nothing)
        return Recounted()

    def apply(self, node: Processor, frames: Sequence[RecordFrame], planner: OperatorPlanner) -> RecordFrame:
        """See :meth:`StagePlan.apply`."""
        if node in self.stage.store_nodes:
            return frames[0]
        if not self.stage.has(node):
            return super().apply(node, frames, planner)
        inputs = [_processable(planner, frames[0])]
        rows = process_with_stores(self.stage.subtopology.id, [node], self.stage.store_nodes, inputs, [])
        return forwarded_records(node, 0, rows)

    def _operated(
        self, inputs: Sequence[RecordFrame], ticks: DataFrame | None, read_table: ReadTable | None
    ) -> DataFrame:
        nodes = self.stage.nodes
        records, read = inputs[: len(nodes)], inputs[len(nodes) :]
        of_tables = len(self.stage.read_nodes)
        tables = [ReadUpdates(*each) for each in zip(self.stage.read_nodes, read[:of_tables], strict=True)]
        return process_with_stores(
            self.stage.subtopology.id,
            nodes,
            self.stage.store_nodes,
            records,
            read[of_tables:],
            ticks,
            tables,
            {node.name: self.stage.subtopology.children_of(node) for node in nodes},
            read_table,
        )


class _Inputs(list[RecordFrame]):
    """What the state is given: records, and what reads global tables in the workers."""

    def __init__(self, frames: Sequence[RecordFrame], read_table: ReadTable | None) -> None:
        super().__init__(frames)
        self.read_table = read_table


def _processable(planner: OperatorPlanner, frame: RecordFrame) -> RecordFrame:
    """The records that a class can be given."""
    frame = rejecting_binary_keys(frame)
    if not frame.no_rejects:
        planner.write(dead_letter_rows(frame.rejected()))
    return frame.accepted().with_fields
