"""No state: every operation is done with each micro-batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamplan.model.stages.stage import StatelessStage
from streamplan.spark.planning.operators import OperatorPlanner, read_source
from streamplan.spark.planning.stages.stage_plan import Cut, Sources, StagePlan, StoredState, batch_of


class StatelessPlan(StagePlan[StatelessStage]):
    """Cuts the plan at the sources."""

    def stream(self, sources: Sources, planner: OperatorPlanner, ticks: Callable[[], DataFrame] | None) -> Cut:
        """Let the planner begin with the records of a micro-batch, by their topics."""
        streaming = reduce(lambda upper, lower: upper.unionByName(lower), sources.raw.values())
        batch = batch_of(streaming)
        several = len(sources.raw) > 1
        for source in self.stage.subtopology.sources:
            records = batch.where(F.col("topic") == sources.topics[source.name]) if several else batch
            planner.bind(source.name, read_source(self.stage.subtopology, source, sources.schemas, records))
        return Cut(streaming, batch, divided=several)

    def restored(self, stored: StoredState) -> DataFrame:
        """Not called: nothing is stored."""
        raise AssertionError(f"sub-topology {self.stage.subtopology.id} has no state")
