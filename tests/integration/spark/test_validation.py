"""What Spark says of a declaration: every fault, with the line where it stands, before anything runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from streamplan.errors import Refused
from streamplan.model.pipeline import Pipeline, TestData
from streamplan.model.topology import Topology
from streamplan.model.windows import SessionWindows
from streamplan.serdes.json import Json
from streamplan.serdes.primitive import Bytes
from streamplan.spark.planning.validation import resolve_schemas

from tests.support.examples import PIPELINES
from tests.support.soak import soak

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
        "Did you mean amount?",
        "Syntax error",
        "not a boolean",
        "no_such_function",
        "sum(paid)",
    ]
    for expected, line in zip([*said, "an aggregate of several records"], lines, strict=True):
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


def told_of(spark: SparkSession, topology: Topology) -> list[str]:
    with pytest.raises(Refused) as refusal:
        resolve_schemas(spark, pipeline(topology, "sales"))
    return [line.partition(".py:")[2].partition(": ")[2] for line in str(refusal.value).splitlines()[1:]]


def test_every_wrong_expression_of_an_operation_is_told_with_its_field(spark: SparkSession) -> None:
    topology = Topology("faulty")
    sales = topology.stream("sales", value=SALE)
    sales.map_values({"a": "amuont * 2", "b": "amount", "c": "upper(shp)"}).to("a")
    sales.map("no_key(id)", {"a": "id", "b": "weigth + 1"}, name="mapped").to("b")
    sales.flat_map("split(idd, ' ')", key="element", value={"a": "amuont * 2", "b": "element"}).to("c")
    sales.group_by("shop").aggregate({"n": "count(*)", "x": "sum(paid)", "y": "max(-wieght)"}, store="folded")
    sales.peek({"n": "count(*)", "x": "sum(amuont + 1)", "y": "max(-wieght)"}).to("d")
    begins = [line.split(" ", 3)[:2] for line in told_of(spark, topology)]
    assert begins == [
        ["map_values,", "a:"],
        ["map_values,", "c:"],
        ["map,", "key:"],
        ["map,", "b:"],
        ["flat_map,", "each:"],
        ["flat_map,", "a:"],
        ["aggregate,", "x:"],
        ["aggregate,", "y:"],
        ["peek,", "x:"],
        ["peek,", "y:"],
    ]


def test_behind_a_wrong_expression_the_others_are_judged_and_what_it_made_is_not(spark: SparkSession) -> None:
    topology = Topology("faulty")
    made = topology.stream("sales", value=SALE).filter("amuont > 1").map_values({"x": "nothing + 1", "shop": "shop"})
    made.filter("x.y > 1").filter("shp = 'a'").map_values({"z": "size(x)", "shop": "upper(shop, shop)"}).to("out")
    made.group_by("shop", name="shops").aggregate({"n": "sum(size(x))", "m": "max(upper(shopp))"}, store="folded")
    assert [line.partition(": ")[0] for line in told_of(spark, topology)] == [
        "filter",
        "map_values, x",
        "filter",
        "map_values, shop",
    ]


def test_a_wrong_key_does_not_hide_what_is_wrong_behind_its_topic(spark: SparkSession) -> None:
    topology = Topology("faulty")
    sales = topology.stream("sales", value=SALE)
    sales.group_by("uper(shop)", name="shops").aggregate({"n": "sum(paid)"}, store="folded")
    assert [line.partition(": ")[0] for line in told_of(spark, topology)] == ["the key", "aggregate, n"]


MISTAKEN = """
from streamplan import Json, Pipeline, Topology

topology = Topology("mistaken")
orders = topology.stream("orders", value=Json("id string, amount bigint"))
orders.filter("amuont > 1").to("out")
orders.map_values({"x": "no_function(amount)"}).to("other")
PIPELINE = Pipeline("mistaken", topology, "", {"orders": 1})
"""


@pytest.mark.parametrize("more", [[], *soak([["-v"]])], ids=["quiet", "verbose"])
def test_validate_prints_its_answers_and_no_line_of_spark(tmp_path: Path, more: list[str]) -> None:
    (tmp_path / "mistaken.py").write_text(MISTAKEN)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "STREAMPLAN_PIPELINES": "mistaken"}
    command = [sys.executable, "-m", "streamplan", "validate", "mistaken", *more]
    ended = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1
    assert bool(ended.stderr) == bool(more)
    heading, *lines = ended.stdout.splitlines()
    assert heading == "mistaken: 2 faults"
    assert [line.partition(" the value")[0].partition(" there is")[0].strip() for line in lines] == [
        f"{tmp_path}/mistaken.py:6: filter:",
        f"{tmp_path}/mistaken.py:7: map_values, x:",
    ]


def test_the_values_of_reducers_and_aggregators_are_judged(spark: SparkSession) -> None:
    """A store has no bytes. Behind functions expressions see the fields of the stream, or of the schema."""
    topology = Topology("faulty")
    topology.stream("raw", value=Bytes()).group_by_key().reduce(max).to_stream().to("a")
    sales = topology.stream("sales", value=SALE)
    reduced = sales.group_by("shop", name="b").reduce(lambda old, new: new, store="b").to_stream()
    reduced.filter("amount").to("c")
    totals = sales.group_by("shop", name="d").aggregate(dict, lambda key, value, total: total, schema="total bigint")
    totals.to_stream().filter("total").to("e")
    totals.to_stream().filter("total > 1").to("f")
    with pytest.raises(Refused) as refusal:
        resolve_schemas(spark, pipeline(topology, "raw", "sales"))
    told = str(refusal.value).splitlines()[1:]
    assert "the store of a reducer cannot hold value of type binary" in told[0]
    assert ["not a boolean" in line for line in told[1:]] == [True, True]


BOTH = """
from streamplan import F, Json, Pipeline, Topology

topology = Topology("both")
orders = topology.stream("orders", value=Json("id string, amount bigint"))
orders.filter(5).filter("amuont > 1").to("a")
orders.map_values(["id"]).filter("nothing > 1").to("behind-a-fault")
orders.map_values({"x": "no_function(amount)", "y": "amonut"}).to("b")
orders.merge(orders.map_values(5)).filter("amuont > 2").to("behind-a-merge")
orders.group_by("custmer").aggregate({"n": "sum(paid + 1)"}, store="n").to_stream().to("c")
PIPELINE = Pipeline("both", topology, "", {"orders": 1}, purge="yes")
"""


@pytest.mark.soak
def test_validate_tells_the_mistakes_of_a_declaration_and_those_that_spark_finds(tmp_path: Path) -> None:
    (tmp_path / "both.py").write_text(BOTH)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "STREAMPLAN_PIPELINES": "both"}
    command = [sys.executable, "-m", "streamplan", "validate"]
    ended = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert ended.returncode == 1
    heading, *lines = ended.stderr.splitlines()
    assert heading == "pipeline 'both' has 9 faults:"
    assert [":".join(line.split(":")[1:3]) for line in lines] == [
        "6: filter",
        "6: filter",
        "7: map_values",
        "8: map_values, y",
        "8: map_values, x",
        "9: map_values",
        "10: group_by",
        "10: aggregate, n",
        "11: Pipeline",
    ]
