"""Values in Protobuf and JSON Schema on the way through a topology: read, carried, stored and written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from streamplan.model.pipeline import Pipeline
from streamplan.model.topology import Topology
from streamplan.serdes.json_schema import JsonSchema
from streamplan.serdes.protobuf import Protobuf
from streamplan.testing import TopologyTestDriver

Drive = Callable[[Pipeline], TopologyTestDriver]

ORDER = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Order {
  message Line { string sku = 1; sint32 number = 2; }
  enum State { NEW = 0; PAID = 1; }
  string id = 1;
  optional string shop = 2;
  uint64 total = 3;
  google.protobuf.Timestamp at = 4;
  State state = 5;
  repeated Line lines = 6;
  map<string, double> rates = 7;
}
message Counted { int64 count = 1; }
"""
PRICED = json.dumps(
    {
        "title": "Priced",
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "price": {"type": "number", "multipleOf": 0.01, "minimum": 0, "maximum": 99999},
            "at": {"type": ["string", "null"], "format": "date-time"},
            "lines": {
                "type": "array",
                "items": {"type": "object", "properties": {"sku": {"type": "string"}, "number": {"type": "integer"}}},
            },
        },
        "required": ["id", "price"],
    }
)
VALUE: dict[str, Any] = {
    "id": "1",
    "shop": "north",
    "total": Decimal(12),
    "at": datetime(2026, 11, 24, 20, 38, 34, 123456, UTC),
    "state": "PAID",
    "lines": [{"sku": "a", "number": -1}, {"sku": "b", "number": 2}],
    "rates": {"EUR": 1.5},
}


@pytest.fixture
def drive(spark: SparkSession) -> Iterator[Drive]:
    """Makes a driver on the Spark of all tests: a process has one."""
    with ExitStack() as drivers:
        yield lambda pipeline: drivers.enter_context(TopologyTestDriver(pipeline, spark=spark))


def test_values_pass_operations_repartition_topics_stores_and_sinks_of_another_format(
    drive: Drive, tmp_path: Path
) -> None:
    (tmp_path / "order.proto").write_text(ORDER)
    order, counted = (Protobuf(str(tmp_path / "order.proto"), message=name) for name in ("Order", "Counted"))
    priced = JsonSchema(PRICED)
    topology = Topology("formats")
    orders = topology.stream("orders", value=order)
    paid = orders.filter("state = 'PAID' and lines[0].number < 0")
    paid.to("copied")
    paid.to("written", value=order)
    lines = "transform(lines, line -> named_struct('sku', line.sku, 'number', cast(line.number as bigint)))"
    fields = {"id": "shop", "price": "cast(total * 0.25 as decimal(7,2))", "at": "at", "lines": lines}
    paid.map_values(fields).to("priced", value=priced)
    by_shop = paid.filter("shop is not null").group_by("shop", name="by-shop")
    by_shop.count(store="counts").to_stream().to("counts", value=counted)
    by_shop.reduce(store="latest")
    topology.stream("prices", value=priced).filter("price > 1").to("expensive")
    driver = drive(Pipeline("formats", topology, "", {"orders": 1, "prices": 1}))
    driver.pipe("orders", VALUE, key="k")
    driver.pipe("orders", {**VALUE, "state": "NEW"}, key="k")
    driver.pipe("orders", {**VALUE, "shop": None}, key="k", headers=[("trace", b"1")])
    driver.pipe("orders", b"\0\0\0\0\1\0\x28\7", key="k")
    driver.pipe("prices", {"id": "1", "price": Decimal("1.50"), "at": VALUE["at"], "lines": None}, key="k")
    driver.pipe("prices", b'\0\0\0\0\2{"id": "1", "price": -1}', key="k")
    assert [each.value for each in driver.output("copied")] == [VALUE, {**VALUE, "shop": None}]
    assert [each.value for each in driver.output("written")] == [VALUE, {**VALUE, "shop": None}]
    (made,) = driver.output("priced")
    assert made.value == {"id": "north", "price": Decimal("3.00"), "at": VALUE["at"], "lines": VALUE["lines"]}
    assert [(each.key, each.value) for each in driver.output("counts")] == [("north", {"count": 1})]
    assert driver.store("latest")["north"] == VALUE
    assert [each.value for each in driver.output("expensive")] == [
        {"id": "1", "price": Decimal("1.50"), "at": VALUE["at"], "lines": None}
    ]
    reasons = {each.reason: each for each in driver.dead_letters}
    assert {*reasons} == {
        "state is 7, which the enum State does not list",
        "the value cannot be written: id is null, and the schema has no null there",
        "price is not valid: -1 is less than the minimum of 0",
    }
    written = reasons["the value cannot be written: id is null, and the schema has no null there"]
    assert written.headers == (("trace", b"1"),)
