"""What a declaration has and nobody uses is a warning, and what somebody uses is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from streamplan import (
    JoinWindows,
    Json,
    KStream,
    Pipeline,
    Processor,
    TestData,
    TimeWindows,
    Topology,
    UntilWindowCloses,
)
from streamplan.model.unused import unused

from tests.support.examples import PIPELINES

ORDER = Json("id string, customer string, amount bigint", allowed={"id": {"a": "first"}})
ALL = {"id": "id", "customer": "customer", "amount": "amount"}

Declare = Callable[[KStream, Topology], Any]


class Detector(Processor):
    def process(self, record: Any, store: Any) -> None:
        """Nothing."""


def warnings(declare: Declare, value: Json = ORDER, number: str = "") -> list[str]:
    topology = Topology("app")
    declare(topology.stream("orders", value=value), topology)
    data = TestData(("orders",), lambda n: ("orders", b"", b""), number)
    counts = dict.fromkeys(topology.source_topics, 2)
    return [warning.message for warning in unused(Pipeline("app", topology, "", counts, data))]


def table(topology: Topology, **more: str) -> Any:
    return topology.table("customers", value=Json("name string"), **more)


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda orders, topology: orders.filter("amount > 0"), "the result of filter leads nowhere"),
        (lambda orders, topology: orders.filter(bool), "the result of filter leads nowhere"),
        (lambda orders, topology: orders.map_values({"x": "1"}), "the result of map_values leads nowhere"),
        (lambda orders, topology: orders.select_key("id"), "the result of select_key, or of group_by, leads nowhere"),
        (lambda orders, topology: orders.group_by("id"), "the result of select_key, or of group_by, leads nowhere"),
        (lambda orders, topology: orders.filter_not("amount > 0"), "the result of filter_not leads nowhere"),
        (lambda orders, topology: orders.flat_map_values("array(id)", {"x": "1"}), "the result of flat_map_values"),
        (lambda orders, topology: orders.split(), "the result of split leads nowhere"),
        (lambda orders, topology: orders.split(name="by-").branch("true", name="a"), "the branch 'by-a' leads nowhere"),
        (lambda orders, topology: orders.merge(orders), "the result of merge leads nowhere"),
        (lambda orders, topology: orders.join(table(topology)), "the result of join leads nowhere"),
        (
            lambda orders, topology: orders.join(
                topology.stream("others", value=Json("x string")), within=JoinWindows("1 day")
            ),
            "the result of join leads nowhere",
        ),
        (
            lambda orders, topology: table(topology).join(topology.table("more", value=Json("city string"))),
            "the result of join leads nowhere",
        ),
        (
            lambda orders, topology: orders.group_by_key().count(store="n").to_stream(),
            "the result of to_stream leads nowhere",
        ),
        (lambda orders, topology: table(topology), "no join looks anything up in this table"),
        (
            lambda orders, topology: topology.stream("others", value=Json("x string")),
            "nothing is done with the records of",
        ),
        (lambda orders, topology: orders.group_by_key(), "nothing is done with the records of 'orders'"),
        (
            lambda orders, topology: orders.group_by_key().count(),
            "nobody reads the store 'KSTREAM-AGGREGATE-STATE-STORE-",
        ),
        (
            lambda orders, topology: topology.global_table("products", value=Json("title string")),
            "no join looks anything up in this global table of 'products'",
        ),
        (
            lambda orders, topology: orders.join(
                topology.global_table("products", value=Json("title string")), {"title": "table.title"}, key="id"
            ),
            "the result of join leads nowhere",
        ),
        (lambda orders, topology: table(topology).group_by("name"), "the result of group_by leads nowhere"),
        (
            lambda orders, topology: table(topology).group_by("name").count(),
            "nobody reads the store 'KTABLE-AGGREGATE-STATE-STORE-",
        ),
        (
            lambda orders, topology: orders.group_by_key().cogroup({"n": "count(*)"}).aggregate(),
            "nobody reads the store 'COGROUPKSTREAM-AGGREGATE-STATE-STORE-",
        ),
        (
            lambda orders, topology: (
                orders.group_by_key()
                .windowed_by(TimeWindows("1 minute"))
                .count(store="n")
                .suppress(UntilWindowCloses())
            ),
            "the result of suppress leads nowhere",
        ),
        (
            lambda orders, topology: topology.table("items", value=Json("customer string, n bigint")).join(
                table(topology), {"n": "n", "name": "table.name"}, foreign_key="customer"
            ),
            "the result of join leads nowhere",
        ),
        (
            lambda orders, topology: orders.group_by_key().reduce(),
            "nobody reads the store 'KSTREAM-REDUCE-STATE-STORE-",
        ),
    ],
)
def test_what_leads_nowhere_is_a_warning(declare: Declare, message: str) -> None:
    def and_all(orders: KStream, topology: Topology) -> None:
        declare(orders, topology)
        if message != "nothing is done with the records of 'orders'":
            orders.to("out")

    told = [warning for warning in warnings(and_all) if "uses the field" not in warning]
    assert told[0].startswith(message)


@pytest.mark.parametrize(
    "declare",
    [
        lambda orders, topology: orders.to("out"),
        lambda orders, topology: orders.peek({"orders": "count(amount)", "of": "count(customer)"}),
        lambda orders, topology: orders.peek(print),
        lambda orders, topology: orders.foreach(print),
        lambda orders, topology: orders.print(),
        lambda orders, topology: orders.map_values({"id": "id"}).to("concat(customer, amount)", topics=("a", "b")),
        lambda orders, topology: (
            [
                stream.map_values({"id": "id"}).to(name)
                for name, stream in orders.split()
                .branch("amount > 0")
                .branch("customer = 'x'")
                .no_default_branch()
                .items()
            ]
        ),
        lambda orders, topology: orders.group_by("customer").aggregate({"total": "sum(amount)"}, store="totals"),
        lambda orders, topology: orders.group_by("customer").aggregate({"t": "sum(amount)"}).to_stream().to("out"),
        lambda orders, topology: orders.group_by("customer").reduce(max_by="amount", store="greatest"),
        lambda orders, topology: orders.process(Detector, store="seen", state="n int", schema="n int"),
        lambda orders, topology: orders.join(table(topology)).to("out"),
        lambda orders, topology: orders.merge(orders.filter("amount > 0")).to("out"),
        lambda orders, topology: (
            topology.stream("others", value=Json("customer string"))
            .group_by("customer", name="by")
            .count()
            .to_stream()
            .to("counts"),
            orders.to("out"),
        ),
    ],
)
def test_what_is_used_is_not_warned_about(declare: Declare) -> None:
    assert warnings(declare) == []


@pytest.mark.parametrize(
    ("declare", "fields"),
    [
        (lambda orders, topology: orders.group_by("customer").count(store="n"), "the field amount"),
        (lambda orders, topology: orders.group_by_key().count(store="n"), "the fields customer, amount"),
        (
            lambda orders, topology: orders.map_values({"id": "id", "x": "'amount' = customer"}).to("out"),
            "the field amount",
        ),
        (lambda orders, topology: orders.map_values({"x": "customer"}).to("out"), "the field amount"),
    ],
)
def test_a_field_that_nothing_uses_is_a_warning(declare: Declare, fields: str) -> None:
    assert warnings(declare) == [f"nothing uses {fields} of 'orders'"]


def test_a_field_of_a_global_table_that_nothing_uses_is_a_warning() -> None:
    def priced(orders: KStream, topology: Topology) -> None:
        products = topology.global_table("products", value=Json("title string, price double"))
        orders.join(products, {**ALL, "price": "table.price"}, key="id").to("out")

    assert warnings(priced) == ["nothing uses the field title of 'products'"]


def test_a_field_that_is_judged_or_tells_the_test_data_s_number_is_used() -> None:
    def counted(orders: KStream, topology: Topology) -> None:
        orders.group_by("customer").count(store="n")

    assert warnings(counted, Json("id string, customer string")) == ["nothing uses the field id of 'orders'"]
    assert warnings(counted, Json("id string, customer string"), number="id") == []
    assert warnings(counted, Json("id string, customer string", allowed={"id": {"a": "first"}})) == []


def test_a_value_keeps_its_only_field_where_the_keys_alone_are_counted() -> None:
    assert warnings(lambda orders, topology: orders.group_by_key().count(store="n"), Json("id string")) == []


def test_the_examples_lead_somewhere() -> None:
    told = {pipeline.name: [each.message for each in unused(pipeline)] for pipeline in PIPELINES}
    assert {name: said for name, said in told.items() if said} == {
        # The example of names that the library gives.
        "users": [
            "nobody reads the store 'KSTREAM-AGGREGATE-STATE-STORE-0000000002': it has no name of its own, "
            "and its updates lead nowhere"
        ],
        # Records have more than a pipeline needs.
        "visits": ["nothing uses the field page of 'page-requests'"],
        "profiles": ["nothing uses the field street of 'addresses'"],
        "activity": ["nothing uses the field page of 'page-clicks'"],
    }
