"""Python functions in operations of tables, and where keys are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from streamplan import Bytes, Json, KStream, KTable, Long, Topology
from streamplan.model.column_lineage import Column, column_lineage
from streamplan.model.linking import links_of


@dataclass
class City:
    name: str
    size: int


def size_of(city: City) -> int:
    return city.size


@pytest.fixture
def topology() -> Topology:
    return Topology("app")


@pytest.fixture
def cities(topology: Topology) -> KTable:
    return topology.table("cities", value=Json(City))


@pytest.fixture
def orders(topology: Topology) -> KStream:
    return topology.stream("orders", value=Json("id string, city string"))


def test_a_function_gives_the_same_names_as_an_expression() -> None:
    described = []
    for condition, key in (("size > 1", "name"), (lambda city: city.size > 1, lambda city: city.name)):
        topology = Topology("app")
        table = topology.table("cities", value=Json(City))
        table.filter(condition).group_by(key, name="by-name").count(store="counts").to_stream().to("counts-out")
        orders = topology.stream("orders", value=Json("id string, city string"))
        orders.select_key(key if callable(key) else "id").group_by_key(name="g").count(store="n")
        described.append(topology.describe())
        assert topology.faults == ()
    assert described[0] == described[1]


def test_the_values_of_a_table_have_the_fields_that_its_function_returns(topology: Topology, cities: KTable) -> None:
    made = cities.map_values(lambda key, city: {"text": key}, schema="text string")
    made.filter("size > 1")
    made.map_values(lambda city: {"x": 1})
    (fault,) = topology.faults
    assert fault.message.startswith("map_values: what ")


def test_a_key_of_a_function_has_any_serde(topology: Topology, orders: KStream, cities: KTable) -> None:
    orders.select_key(lambda order: order.id.encode(), key_serde=Bytes()).to("bytes")
    cities.group_by(size_of, key_serde=Long()).count(store="by-size")
    assert topology.faults == ()


@pytest.mark.parametrize(
    "declare",
    [
        lambda orders, cities: orders.select_key(lambda: "a"),
        lambda orders, cities: orders.group_by(lambda a, b, c: "a"),
        lambda orders, cities: cities.group_by(lambda: "a"),
        lambda orders, cities: cities.filter(lambda: True),
    ],
)
def test_a_function_with_other_arguments_is_refused(
    topology: Topology, orders: KStream, cities: KTable, declare: Callable[[KStream, KTable], object]
) -> None:
    declare(orders, cities)
    assert topology.faults[0].hint == "Write a function that takes the record, or the key and the value"


def test_every_column_may_be_in_a_key_that_a_function_makes(topology: Topology, orders: KStream) -> None:
    orders.select_key(lambda order: order.id).map_values({"key": "record.key"}).to("keys")
    origins = column_lineage(topology)["keys"]["key"]
    assert {Column("orders", "id"), Column("orders", "city")} <= origins


def test_a_sub_topology_whose_key_a_function_makes_is_linked_if_it_returns_the_same_again() -> None:
    for deterministic in (True, False):
        topology = Topology("app")
        orders = topology.stream("orders", value=Json("id string"))
        orders.group_by(lambda order: order.id, deterministic=deterministic, name="g").count(store="n")
        assert bool(links_of(topology)) is deterministic
