"""The plan of a sub-topology: what the streaming query does, and what the writer is given. No brokers are needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from streamplan.model.pipeline import Pipeline, TestData
from streamplan.model.processor_topology import Source
from streamplan.model.topology import Topology
from streamplan.serdes.json import Json
from streamplan.serdes.serde import Serde
from streamplan.spark.planning.plan import SubtopologyPlan, plan_subtopology
from streamplan.spark.sink.writers import PlannedRows, RekeyedRecords, RowsOfRecords
from streamplan.spark.sources import RAW

SALE = Json("shop string, amount bigint, weight double")


def plans(spark: SparkSession, directory: Path, topology: Topology, *, streaming: bool = True) -> list[SubtopologyPlan]:
    """The plans of a topology's sub-topologies, in flow order."""
    counts = dict.fromkeys((*topology.source_topics, *topology.sink_topics), 2)
    pipeline = Pipeline("planned", topology, "", counts, TestData((), lambda n: ("", b"", b""), "n"))

    def read(source: Source) -> DataFrame:
        reader = spark.readStream if streaming else spark.read
        return reader.schema(RAW).parquet(str(directory))

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
    assert counting.row_format == PlannedRows(divisible=False)
    assert (counting.stateful, counting.cache_batch) == (True, False)
    assert [output.topic for output in counting.outputs] == ["planned-shops-changelog"]


@pytest.mark.parametrize("key", ["upper(shop)", "weight"])
def test_a_key_that_needs_an_expression_is_made_in_the_plan(spark: SparkSession, tmp_path: Path, key: str) -> None:
    topology = Topology("planned")
    topology.stream("sales", value=SALE).group_by(key, name="shops").count(store="shops")
    rekeying, _ = plans(spark, tmp_path, topology)
    assert rekeying.row_format == RowsOfRecords("sales")
    assert rekeying.rows is rekeying.batch


def test_a_chain_of_expressions_needs_no_shuffle(spark: SparkSession, tmp_path: Path) -> None:
    """Its plan grows with the number of operations, and not faster."""

    def plan_of(length: int) -> str:
        topology = Topology("planned")
        stream = topology.stream("sales", value=SALE)
        for number in range(length):
            stream = stream.filter(f"amount > {number}").map_values({"shop": "upper(shop)", "amount": "amount + 1"})
        stream = stream.flat_map_values("split(shop, ' ')", {"shop": "element", "amount": "amount"})
        stream.select_key("concat(shop, amount)").to("out")
        (plan,) = plans(spark, tmp_path, topology, streaming=False)
        assert plan.row_format == RowsOfRecords("sales")
        java: Any = plan.streaming._jdf
        return str(java.queryExecution().optimizedPlan().toString())

    short, long = plan_of(3), plan_of(6)
    assert "Exchange" not in long
    assert "Repartition" not in long
    assert len(long) < 3 * len(short)


def test_a_micro_batch_is_cached_where_several_outputs_read_it(spark: SparkSession, tmp_path: Path) -> None:
    topology = Topology("planned")
    sales = topology.stream("sales", value=SALE)
    sales.filter("amount > 10").to("large")
    sales.filter("amount < 0").to("returned")
    (plan,) = plans(spark, tmp_path, topology)
    assert plan.cache_batch
    assert not plan.stateful
