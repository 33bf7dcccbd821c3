"""Functions of a stream of a dataclass are given its objects, on Spark."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

from pyspark.sql import SparkSession
from streamplan import F, Json, Pipeline, Topology
from streamplan.testing import TopologyTestDriver

from tests.support.typed_declaration import Line, Order, Product, Score, Spent, add, lines_of, score

LINES = [{"sku": "s", "price": Decimal("1.50")}, {"sku": "t", "price": Decimal("2.25")}]
AT = datetime(2026, 1, 1, tzinfo=UTC)


def with_another_note(order: Order) -> Order:
    return replace(order, note=f"{order.product.name} {order.record.key}")  # type: ignore[attr-defined]


def declared() -> Pipeline:
    topology = Topology("typed-test")
    orders = topology.stream("orders", value=Json(Order))
    orders.map_values(with_another_note).to("copied", value=Json(Order))
    orders.flat_map_values(lines_of).to("lines")
    scores = orders.filter(lambda order: order.total > 1).map_values(score)
    scores.filter(lambda one: isinstance(one, Score)).to("scores")
    scores.group_by(F.id, name="by-id").aggregate(Spent, add, store="spent").to_stream().to("totals")
    counts = {"orders": 1, "copied": 1, "lines": 1, "scores": 1, "totals": 1}
    return Pipeline("typed", topology, "", counts)


def test_functions_are_given_objects_of_the_class_and_return_them(spark: SparkSession) -> None:
    with TopologyTestDriver(declared(), spark=spark) as driver:
        order = {"id": "a", "product": Product.JACKETS.value, "at": AT, "lines": LINES}
        driver.pipe("orders", order, key="k")
        driver.pipe("orders", {**order, "product": 1, "note": "n"}, key="k")
        driver.pipe("orders", {**order, "lines": None}, key="no lines")
        driver.pipe("orders", {**order, "product": 7}, key="no such product")
        copied = [record.value for record in driver.output("copied")]
        assert [(each["product"], each["note"]) for each in copied] == [(0, "JACKETS k"), (1, "SHIRTS k")]
        assert copied[0]["lines"] == LINES
        assert [record.value["sku"] for record in driver.output("lines")] == ["s", "t", "s", "t"]
        assert [record.value for record in driver.output("scores")] == [
            {"id": "a", "risk": 3.75},
            {"id": "a", "risk": 1.0},
        ]
        assert [record.value["total"] for record in driver.output("totals")] == [3.75, 4.75]
        reasons = {record.key: record.reason for record in driver.dead_letters}
        assert "lines is null, and its annotation has no None" in reasons["no lines"]
        assert reasons["no such product"] == "product is not one of 0, 1"
    assert Line("s", Decimal("1.50")) in {*lines_of(Order("a", Product.JACKETS, AT, [Line("s", Decimal("1.50"))]))}
