"""The plan of two sub-topologies in one query: the second counts what the first has just written.

The first one writes a repartition topic, and the second one reads nothing else. So the writer of the first one also
hands on its records, as counts by key (:mod:`streamplan.spark.sink.handed_on`), and nothing is read back from Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame

from streamplan.model.linking import Link
from streamplan.model.pipeline import Pipeline
from streamplan.serdes.serde import Serde
from streamplan.spark.arrow_function import ArrowFunction
from streamplan.spark.planning.aggregation import fold_counts
from streamplan.spark.planning.compiled_plan import map_in_arrow
from streamplan.spark.planning.plan import SubtopologyPlan, planned_behind
from streamplan.spark.planning.stages import plan_of
from streamplan.spark.planning.stages.aggregate import AggregatePlan
from streamplan.spark.planning.stages.stage_plan import Cut, batch_of, read_sources
from streamplan.spark.sink.handed_on import COUNTS
from streamplan.spark.sink.writers import RekeyedRecords
from streamplan.spark.sources import RAW


@dataclass(frozen=True)
class LinkedPlan:
    """How Spark runs two sub-topologies in one query.

    ``link``    the two sub-topologies
    ``writer``  the plan of the first one; its rows are records of Kafka
    ``reader``  the plan of the second one. Its streaming plan is a stand-in without records, see :meth:`streaming`
    """

    link: Link
    writer: SubtopologyPlan
    reader: SubtopologyPlan

    def streaming(self, write: ArrowFunction) -> DataFrame:
        """Return the streaming plan.

        Args:
            write: Writes the records of the first sub-topology, and gives rows of the columns
                :data:`~streamplan.spark.sink.handed_on.COUNTS`.
        """
        return self._fold(map_in_arrow(self.writer.streaming, write, COUNTS))

    def _fold(self, counts: DataFrame) -> DataFrame:
        (node,) = self.link.counts
        return fold_counts(node, counts)


def plan_linked(
    pipeline: Pipeline, link: Link, writer: SubtopologyPlan, schemas: Mapping[str, Serde]
) -> LinkedPlan | None:
    """Plan two sub-topologies in one query; return None where the first one cannot hand on what it writes.

    Args:
        pipeline: That they belong to.
        link: The two sub-topologies.
        writer: The plan of the first one.
        schemas: The serdes of the repartition topics.
    """
    stage = plan_of(link.reader)
    if not isinstance(writer.row_format, RekeyedRecords) or not isinstance(stage, AggregatePlan):
        return None
    spark = writer.streaming.sparkSession
    (node,), (source,) = link.counts, link.reader.sources
    typed = stage.planner()
    typed.bind_all(read_sources(link.reader, schemas, {source.name: spark.createDataFrame([], RAW)}))
    inputs = stage.inputs(typed)
    stand_in = fold_counts(node, spark.createDataFrame([], COUNTS))
    batch = batch_of(stand_in)
    planner = stage.planner()
    stage.bind(planner, batch, inputs)
    reader = planned_behind(pipeline, link.reader, stage, planner, Cut(stand_in, batch, divided=False))
    return LinkedPlan(link, writer, reader)
