"""The plan of a sub-topology: what the streaming query does, and what the writer is given. No brokers are needed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from streamplan.model.pipeline import Pipeline, TestData
from streamplan.model.processor_topology import Source
from streamplan.model.topology import Topology
from streamplan.serdes.json import Json
from streamplan.serdes.serde import Serde
from streamplan.spark.planning.plan import SubtopologyPlan, plan_subtopology
from streamplan.spark.sink.writers import PlannedRows, RekeyedRecords
from streamplan.spark.sources import RAW

SALE = Json("shop string, amount bigint, weight double")


def plans(spark: SparkSession, directory: Path, topology: Topology) -> list[SubtopologyPlan]:
    """The plans of a topology's sub-topologies, in flow order."""
    counts = dict.fromkeys((*topology.source_topics, *topology.sink_topics), 2)
    pipeline = Pipeline("planned", topology, "", counts, TestData((), lambda n: ("", b"", b""), "n"))

    def read(source: Source) -> DataFrame:
        return spark.readStream.schema(RAW).parquet(str(directory))

    schemas: dict[str, Serde] = {}
    planned: list[SubtopologyPlan] = []
    for subtopology in topology.subtopologies:
        planned.append(plan_subtopology(pipeline, subtopology, schemas, read))
        schemas |= planned[-1].schemas
    return planned


def test_the_writer_makes_a_field_the_key_and_the_state_is_in_the_streaming_plan(
    spark: SparkSession, tmp_path: Path
) -> None:
    topology = Topology("planned")
    topology.stream("sales", value=SALE).group_by("shop", name="shops").count(store="shops")
    rekeying, counting = plans(spark, tmp_path, topology)
    assert rekeying.row_format == RekeyedRecords("sales", SALE, "shop")
    assert rekeying.rows is rekeying.batch
    assert (rekeying.stateful, rekeying.cache_batch) == (False, False)
    assert list(rekeying.schemas) == ["shops-repartition"]
    assert counting.row_format == PlannedRows()
    assert (counting.stateful, counting.cache_batch) == (True, False)
    assert [output.topic for output in counting.outputs] == ["planned-shops-changelog"]


@pytest.mark.parametrize("key", ["upper(shop)", "weight"])
def test_a_key_that_needs_an_expression_is_made_in_the_plan(spark: SparkSession, tmp_path: Path, key: str) -> None:
    topology = Topology("planned")
    topology.stream("sales", value=SALE).group_by(key, name="shops").count(store="shops")
    rekeying, _ = plans(spark, tmp_path, topology)
    assert rekeying.row_format == PlannedRows()
    assert rekeying.rows.columns[-1] == "last"


def test_a_micro_batch_is_cached_where_several_outputs_read_it(spark: SparkSession, tmp_path: Path) -> None:
    topology = Topology("planned")
    sales = topology.stream("sales", value=SALE)
    sales.filter("amount > 10").to("large")
    sales.filter("amount < 0").to("returned")
    (plan,) = plans(spark, tmp_path, topology)
    assert plan.cache_batch
    assert not plan.stateful
