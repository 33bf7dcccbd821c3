"""Values with structs, lists and maps go through each kind of state that keeps them."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from streamplan import JoinWindows, Json, KStream, Pipeline, SessionWindows, Topology, Versioned
from streamplan.testing import TopologyTestDriver

VALUE = Json(
    "n bigint, id string, place struct<city string, at timestamp>, "
    "parts array<struct<a bigint, b struct<c string>>>, tags map<string, struct<x bigint>>, notes map<string, string>"
)
NESTED = ("place", "parts", "tags", "notes")
OF_TABLE = {name: f"table.{name}" for name in NESTED}
OF_OTHER = {name: f"other.{name}" for name in NESTED}
WITHIN = JoinWindows("1 minute", grace="1 minute")

GIVEN = {
    "n": 1,
    "id": "k",
    "place": {"city": "Bern", "at": "2026-01-01T00:00:00.000Z"},
    "parts": [{"a": 1, "b": {"c": "y"}}, {"a": 2}],
    "tags": {"k": {"x": 1}, "l": {"x": 2}},
    "notes": {"a b": "c"},
}


def newer(old: object, new: object) -> object:
    return new


def declare(topology: Topology, kind: str) -> KStream:
    first = topology.stream("a", value=VALUE)
    match kind:
        case "join with a table":
            return first.join(topology.table("b", value=VALUE, store="rows"), OF_TABLE)
        case "join with a versioned table":
            table = topology.table("b", value=VALUE, store=Versioned("rows", history="1 hour"))
            return first.join(table, OF_TABLE)
        case "join of streams":
            second = topology.stream("b", value=VALUE)
            return first.join(second, OF_OTHER, within=WITHIN, store="joined")
        case "left join of streams":
            second = topology.stream("b", value=VALUE)
            return first.left_join(second, OF_OTHER, within=WITHIN, store="joined")
        case "join of tables":
            tables = [topology.table(name, value=VALUE, store=name) for name in "cb"]
            return tables[0].join(tables[1], OF_TABLE).to_stream()
        case "join by a foreign key":
            tables = [topology.table(name, value=VALUE, store=name) for name in "cb"]
            return tables[0].join(tables[1], OF_TABLE, foreign_key="id", store="joined").to_stream()
        case "latest of a session":
            windowed = first.group_by_key().windowed_by(SessionWindows("1 minute", grace="1 minute"))
            return windowed.reduce(newer, store="latest").to_stream()
        case _:
            return first.group_by_key().reduce(newer, store="latest").to_stream()


@pytest.mark.parametrize(
    "kind",
    [
        "join with a table",
        "join with a versioned table",
        "join of streams",
        "left join of streams",
        "join of tables",
        "join by a foreign key",
        "latest of a session",
        "latest",
    ],
)
def test_nested_values_stay_as_they_are(spark: SparkSession, kind: str) -> None:
    topology = Topology("nested")
    declare(topology, kind).to("out")
    counts = dict.fromkeys((*topology.source_topics, "out"), 1)
    with TopologyTestDriver(Pipeline("nested", topology, "Nested.", counts), spark=spark) as driver:
        if "b" in counts:
            driver.pipe("b", GIVEN, key="k", at="12:00:00")
        for second in (1, 2):
            driver.pipe("c" if "c" in counts else "a", {**GIVEN, "n": second}, key="k", at=f"12:00:0{second}")
        values = [record.value for record in driver.output("out") if record.value is not None]
        assert driver.dead_letters == []
    assert len(values) == 2
    assert [{name: value[name] for name in NESTED} for value in values] == [{name: GIVEN[name] for name in NESTED}] * 2
