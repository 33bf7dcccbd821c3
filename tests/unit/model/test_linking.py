"""Which sub-topologies are linked: the second reads what only the first writes, and counts it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from streamplan import Json, TimeWindows, Topology
from streamplan.model.linking import links_of
from streamplan.registry import pipeline_named

ORDER = Json("kind string, amount bigint")


def counted(topology: Topology) -> None:
    topology.stream("orders", value=ORDER).group_by("kind", name="kinds").count(store="counts")


def counted_and_written(topology: Topology) -> None:
    orders = topology.stream("orders", value=ORDER)
    orders.group_by("kind", name="kinds").count(store="counts").to_stream().to("counts")


def filtered_before(topology: Topology) -> None:
    topology.stream("orders", value=ORDER).filter("amount > 1").group_by("kind", name="kinds").count(store="counts")


LINKED = (counted, counted_and_written)


def grouped_by_its_key(topology: Topology) -> None:
    topology.stream("orders", value=ORDER).group_by_key().count(store="counts")


def summed(topology: Topology) -> None:
    grouped = topology.stream("orders", value=ORDER).group_by("kind", name="kinds")
    grouped.aggregate({"total": "sum(amount)"}, store="totals")


def windows(topology: Topology) -> None:
    grouped = topology.stream("orders", value=ORDER).group_by("kind", name="kinds")
    grouped.windowed_by(TimeWindows("1 minute", grace="1 day")).count(store="counts")


def repartitioned_by_the_counts(topology: Topology) -> None:
    """A consumer can see the order of the updates."""
    counts = topology.stream("orders", value=ORDER).group_by("kind", name="kinds").count(store="counts")
    counts.to_stream().select_key("cast(count as string)").to("by-count")


def writes_more(topology: Topology) -> None:
    orders = topology.stream("orders", value=ORDER)
    orders.to("copy")
    orders.group_by("kind", name="kinds").count(store="counts")


def counted_and_passed(topology: Topology) -> None:
    repartitioned = topology.stream("orders", value=ORDER).select_key("kind").repartition(name="kinds")
    repartitioned.group_by_key().count(store="counts")
    repartitioned.to("by-kind")


NOT_LINKED = (
    filtered_before,
    grouped_by_its_key,
    summed,
    windows,
    repartitioned_by_the_counts,
    writes_more,
    counted_and_passed,
)


@pytest.mark.parametrize("declare", LINKED)
def test_linked(declare: Callable[[Topology], None]) -> None:
    topology = Topology("shop")
    declare(topology)
    assert [(link.writer.id, link.reader.id) for link in links_of(topology)] == [(0, 1)]


@pytest.mark.parametrize("declare", NOT_LINKED)
def test_not_linked(declare: Callable[[Topology], None]) -> None:
    topology = Topology("shop")
    declare(topology)
    assert links_of(topology) == ()


def test_the_orders_are_linked() -> None:
    (link,) = links_of(pipeline_named("orders").topology)
    assert [node.store for node in link.counts] == ["orders-products-quantities"]
