"""Aggregates that pass each update: one ``groupBy`` for all of them. The column ``node`` tells them apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import DataFrame

from streamplan.model.processor_topology import Processor
from streamplan.model.stages.aggregate import AggregateStage
from streamplan.spark.planning.aggregation import aggregate, restore_aggregation, store_result, store_rows
from streamplan.spark.planning.operators import OperatorPlanner
from streamplan.spark.planning.records import RecordFrame
from streamplan.spark.planning.recounted.ties import with_observed_ties
from streamplan.spark.planning.stages.grouping import aggregation_inputs, cogroup_side, grouped_records
from streamplan.spark.planning.stages.stage_plan import (
    OperatorPlan,
    Recounted,
    Recounting,
    StoredState,
)


class AggregatePlan(OperatorPlan[AggregateStage]):
    """Aggregates what the operations before have made of the records."""

    divides = False

    def inputs(self, planner: OperatorPlanner) -> Mapping[str, RecordFrame]:
        """See :meth:`StagePlan.inputs`."""
        return aggregation_inputs(planner, self.stage.nodes)

    def operate(self, inputs: Mapping[str, RecordFrame], ticks: Callable[[], DataFrame] | None) -> DataFrame:
        """See :meth:`StagePlan.operate`."""
        return self._aggregate(self.stage.nodes, inputs)

    def bind(self, planner: OperatorPlanner, rows: DataFrame, inputs: Mapping[str, RecordFrame]) -> None:
        """See :meth:`StagePlan.bind`."""
        for number, node in enumerate(self.stage.nodes):
            planner.bind(node.name, stored_aggregate(planner, number, node, rows, inputs[node.name]))

    def restore(self, stored: StoredState, planner: OperatorPlanner) -> DataFrame:
        """See :meth:`StagePlan.restore`."""
        nodes = self.stage.nodes
        return restore_aggregation(
            nodes,
            self.inputs(planner),
            {node.name: stored.rows(node) for node in nodes},
            merged=len(self.stage.subtopology.sources) > 1,
            ordered=self.stage.passes_updates_in_order,
        )

    def recount(self, frames: Mapping[str, RecordFrame], planner: OperatorPlanner, recounting: Recounting) -> Recounted:
        """Let the planner go on with what the stores hold of all records."""
        planner.bind_all(frames)
        exact = True
        for name, inputs in aggregation_inputs(planner, self.stage.nodes).items():
            node = next(node for node in self.stage.nodes if node.name == name)
            rows = self._aggregate([node], {name: inputs})
            exact = exact and "double" not in rows.schema.simpleString()
            rows = with_observed_ties(node, inputs, rows, recounting.changelog(node))
            planner.bind(name, stored_aggregate(planner, 0, node, rows, inputs))
        return Recounted(exact=exact)

    def apply(self, node: Processor, frames: Sequence[RecordFrame], planner: OperatorPlanner) -> RecordFrame:
        """See :meth:`StagePlan.apply`."""
        if not self.stage.has(node):
            return cogroup_side(planner, node, frames[0])
        records = grouped_records(planner, node, frames, by_task=False)
        return stored_aggregate(planner, 0, node, self._aggregate([node], {node.name: records}), records)

    def _aggregate(self, nodes: Sequence[Processor], inputs: Mapping[str, RecordFrame]) -> DataFrame:
        merged = len(self.stage.subtopology.sources) > 1
        return aggregate(nodes, inputs, merged=merged, ordered=self.stage.passes_updates_in_order)


def stored_aggregate(
    planner: OperatorPlanner, number: int, node: Processor, batch: DataFrame, records: RecordFrame
) -> RecordFrame:
    """Write the rows of a store into its changelog; return what the aggregate passes."""
    stored = store_rows(number, node, batch, records)
    planner.write_changelog(node, stored)
    return store_result(node, stored)
