"""Values in Avro on the way through a topology: how they are read, carried, stored and written, without brokers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession
from streamplan.errors import Refused
from streamplan.model.pipeline import Pipeline
from streamplan.model.topology import Topology
from streamplan.serdes.avro import Avro
from streamplan.testing import TopologyTestDriver

Drive = Callable[[Pipeline], TopologyTestDriver]

CENTS = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
MOMENT = {"type": "long", "logicalType": "timestamp-micros"}
LINE = {
    "type": "record",
    "name": "Line",
    "fields": [{"name": "sku", "type": "string"}, {"name": "price", "type": CENTS}],
}


def record(record_name: str, /, **fields: Any) -> Avro:
    listed = [{"name": field, "type": of_field} for field, of_field in fields.items()]
    return Avro(json.dumps({"type": "record", "name": record_name, "fields": listed}))


ORDER = record(
    "Order",
    id="string",
    shop=["null", "string"],
    total=CENTS,
    at=MOMENT,
    day={"type": "int", "logicalType": "date"},
    state={"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]},
    lines={"type": "array", "items": LINE},
    rates={"type": "map", "values": "double"},
)
VALUE: dict[str, Any] = {
    "id": "1",
    "shop": "north",
    "total": Decimal("13.75"),
    "at": datetime(2026, 11, 24, 20, 38, 34, 123456, UTC),
    "day": date(2026, 11, 24),
    "state": "PAID",
    "lines": [{"sku": "a", "price": Decimal("12.50")}, {"sku": "b", "price": Decimal("1.25")}],
    "rates": {"EUR": 1.5},
}


@pytest.fixture
def drive(spark: SparkSession) -> Iterator[Drive]:
    """Makes a driver on the Spark of all tests: a process has one."""
    with ExitStack() as drivers:
        yield lambda pipeline: drivers.enter_context(TopologyTestDriver(pipeline, spark=spark))


def test_values_of_avro_pass_operations_repartition_topics_stores_and_sinks(drive: Drive) -> None:
    topology = Topology("avro-test")
    orders = topology.stream("orders", value=ORDER)
    paid = orders.filter("state = 'PAID' and lines[0].price > 1")
    paid.to("copied")
    paid.to("written", value=ORDER)
    priced = paid.map_values({"id": "id", "total": "cast(total * 2 as decimal(12,2))", "at": "at", "lines": "lines"})
    priced.to(
        "priced", value=record("Priced", at=MOMENT, id="string", total=CENTS, lines={"type": "array", "items": LINE})
    )
    by_shop = paid.group_by("shop", name="by-shop")
    by_shop.count(store="counts").to_stream().to("counts", value=record("Counted", count="long"))
    by_shop.reduce(store="latest")
    driver = drive(Pipeline("avro", topology, "", {"orders": 2}))
    driver.pipe("orders", VALUE, key="k")
    driver.pipe("orders", {**VALUE, "id": "2", "state": "NEW"}, key="k")
    driver.pipe("orders", None, key="k")
    assert [each.value for each in driver.output("copied")] == [VALUE]
    assert [each.value for each in driver.output("written")] == [VALUE]
    (made,) = driver.output("priced")
    assert made.value == {"id": "1", "total": Decimal("27.50"), "at": VALUE["at"], "lines": VALUE["lines"]}
    assert [(each.key, each.value) for each in driver.output("counts")] == [("north", {"count": 1})]
    assert driver.store("latest")["north"] == VALUE
    assert driver.dead_letters == []


def test_a_value_that_cannot_be_read_or_written_is_a_dead_letter_and_keeps_its_bytes(drive: Drive) -> None:
    topology = Topology("avro-rejects")
    orders = topology.stream("orders", value=ORDER)
    orders.map_values({"id": "shop"}).to("shops", value=record("Shop", id="string"))
    driver = drive(Pipeline("avro-rejects", topology, "", {"orders": 1}))
    driver.pipe("orders", b"no avro", key="k")
    driver.pipe("orders", b"\0\0\0\0\7", key="k")
    driver.pipe("orders", {**VALUE, "shop": None}, key="k", headers=[("trace", b"1")])
    driver.pipe("orders", VALUE, key="k")
    assert [each.value for each in driver.output("shops")] == [{"id": "north"}]
    letters = driver.dead_letters
    assert [each.reason for each in letters] == [
        "the value does not begin with the byte 0 and the id of a schema",
        "the Schema Registry has no schema 7",
        "the value cannot be written: id is null, and the schema has no null there",
    ]
    assert (letters[0].value, letters[2].headers) == (b"no avro", (("trace", b"1"),))
    assert letters[2].value is not None
    assert letters[2].value.startswith(b"\0\0\0\0\1")


def test_a_stream_and_a_table_of_avro_are_joined(drive: Drive) -> None:
    topology = Topology("avro-join")
    shops = topology.table("shops", value=record("Shop", name="string", since=MOMENT))
    joined = topology.stream("orders", value=ORDER).join(
        shops, {"id": "id", "name": "table.name", "since": "table.since"}
    )
    joined.to("joined", value=record("Joined", id="string", name="string", since=MOMENT))
    driver = drive(Pipeline("avro-join", topology, "", {"orders": 1, "shops": 1}))
    driver.pipe("shops", {"name": "North", "since": VALUE["at"]}, key="north")
    driver.pipe("orders", VALUE, key="north")
    assert [each.value for each in driver.output("joined")] == [{"id": "1", "name": "North", "since": VALUE["at"]}]


def test_streams_of_different_schemas_are_merged_into_json(drive: Drive) -> None:
    topology = Topology("avro-merge")
    one = topology.stream("one", value=record("One", id="string", n="long"))
    one.merge(topology.stream("two", value=record("Two", n="long", id="string"))).repartition(name="both").to("merged")
    driver = drive(Pipeline("avro-merge", topology, "", {"one": 1, "two": 1}))
    driver.pipe("one", {"id": "1", "n": 1}, key="k")
    driver.pipe("two", {"id": "2", "n": 2}, key="k")
    assert [each.value for each in driver.output("merged")] == [{"id": "1", "n": 1}, {"id": "2", "n": 2}]
    assert driver.dead_letters == []


def test_what_a_serde_does_not_write_is_told_where_it_is_declared(drive: Drive) -> None:
    topology = Topology("avro-faults")
    orders = topology.stream("orders", value=ORDER)
    orders.map_values({"id": "id", "more": "1"}).to("a", value=record("A", id="string", n="long"))
    orders.to("b", value=Avro("gone.avsc"))
    with pytest.raises(Refused) as refusal:
        Pipeline("avro-faults", topology, "", {"orders": 1})
    for sentence in (
        "to 'a': the serde writes n, and the stream has id, more",
        "to 'a': the serde writes id, n, and not more of the stream",
        "to 'b': the schema ",
    ):
        assert sentence in str(refusal.value)
    typed = Topology("avro-types")
    typed.stream("orders", value=ORDER).map_values({"n": "total"}).to("a", value=record("A", n="long"))
    with pytest.raises(Refused, match=r"n is of type decimal\(12,2\), and the serde writes bigint\. Cast it"):
        drive(Pipeline("avro-types", typed, "", {"orders": 1}))
