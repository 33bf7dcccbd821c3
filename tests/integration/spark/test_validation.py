"""What Spark says of a declaration: every fault, with the line where it stands, before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from streamplan.errors import Refused
from streamplan.model.pipeline import Pipeline, TestData
from streamplan.model.topology import Topology
from streamplan.model.windows import SessionWindows
from streamplan.serdes.json import Json
from streamplan.spark.planning.validation import resolve_schemas

from tests.support.examples import PIPELINES

SALE = Json("id string, shop string, amount bigint, paid boolean, weight double")


def pipeline(topology: Topology, *topics: str) -> Pipeline:
    return Pipeline("tried", topology, "", dict.fromkeys(topics, 2), TestData((), lambda n: ("", b"", b""), "n"))


def test_every_declared_pipeline_is_fit(spark: SparkSession) -> None:
    for declared in PIPELINES:
        resolve_schemas(spark, declared)


def test_all_faults_at_once_each_with_its_line(spark: SparkSession) -> None:
    topology = Topology("faulty")
    sales = topology.stream("sales", value=SALE)
    sales.filter("amuont > 10").to("a")
    sales.filter("amount +").to("b")
    sales.filter("amount").to("c")
    sales.map_values({"x": "no_such_function(amount)"}).to("d")
    sales.group_by("shop").aggregate({"total": "sum(paid)"})
    sales.filter("sum(amount) > 3").to("e")
    with pytest.raises(Refused) as refusal:
        resolve_schemas(spark, pipeline(topology, "sales"))
    told = str(refusal.value)
    lines = told.splitlines()[1:]
    begun = int(lines[0].split(".py:")[1].split(":")[0])
    assert [int(line.split("test_validation.py:")[1].split(":")[0]) - begun for line in lines] == [0, 1, 2, 3, 4, 5]
    said = [
        "Did you mean one of the following? [`amount`",
        "Syntax error",
        "not a boolean",
        "no_such_function",
        "sum(paid)",
    ]
    for expected, line in zip([*said, "sum(amount)"], lines, strict=True):
        assert expected in line
    assert not Path("spark-warehouse").exists()  # where Spark would look for a function that it does not know


def test_behind_a_fault_nothing_else_is_blamed(spark: SparkSession) -> None:
    topology = Topology("faulty")
    topology.stream("sales", value=SALE).map_values({"x": "nothing"}).group_by("x").aggregate({"y": "max(x)"})
    with pytest.raises(Refused, match="has a fault"):
        resolve_schemas(spark, pipeline(topology, "sales"))


def test_field_names_are_those_of_json_in_capitals_and_small_letters(spark: SparkSession) -> None:
    topology = Topology("faulty")
    topology.stream("sales", value=SALE).filter("AMOUNT > 1").to("a")
    with pytest.raises(Refused, match="AMOUNT"):
        resolve_schemas(spark, pipeline(topology, "sales"))


def test_types_follow_through_repartition_topics(spark: SparkSession) -> None:
    topology = Topology("typed")
    (
        topology.stream("sales", value=SALE)
        .map_values({"shop": "upper(shop)", "double": "2 * amount", "heavy": "weight > 1.5"})
        .group_by("shop", name="shops")
        .aggregate({"total": "sum(double)", "any": "bool_or(heavy)"})
        .to_stream()
        .select_key("any")
        .repartition(name="again")
        .to("out")
    )
    schemas = resolve_schemas(spark, pipeline(topology, "sales"))
    assert {topic: serde.schema for topic, serde in schemas.items()} == {
        "shops-repartition": "shop string, double bigint, heavy boolean",
        "again-repartition": "total bigint, any boolean",
    }


@pytest.mark.parametrize("call", ["max(split(id, 'x'))", "min_by(id, struct(amount, shop))"])
def test_what_sessions_cannot_order_is_refused(spark: SparkSession, call: str) -> None:
    topology = Topology("faulty")
    sessions = topology.stream("sales", value=SALE).group_by_key().windowed_by(SessionWindows("5 minutes"))
    sessions.aggregate({"best": call, "total": "sum(amount)"}, store="sessions")
    with pytest.raises(Refused, match=r"test_validation.py:\d+.*best: (max|min_by) of sessions by values of type"):
        resolve_schemas(spark, pipeline(topology, "sales"))


def test_what_does_not_come_back_from_json_is_refused_before_a_repartition_topic(spark: SparkSession) -> None:
    topology = Topology("typed")
    sales = topology.stream("sales", value=SALE)
    sales.map_values(
        {"parts": "split(id, 'x')", "raw": "array(record.original_key)", "by": "map(amount, id)"}
    ).repartition(name="again").to("out")
    with pytest.raises(
        Refused, match=r"carry that raw is of type array<binary>, by is of type map<bigint,string>.*Cast"
    ):
        resolve_schemas(spark, pipeline(topology, "sales"))
