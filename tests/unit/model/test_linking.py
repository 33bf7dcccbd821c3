"""Which sub-topologies are linked: the second reads what only the first writes, and aggregates it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from streamplan import Json, Long, OnWindowClose, SessionWindows, TimeWindows, Topology
from streamplan.model.linking import links_of, links_of_start, passing
from streamplan.registry import pipeline_named

ORDER = Json("kind string, amount bigint, weight double")


def counted(topology: Topology) -> None:
    topology.stream("orders", value=ORDER).group_by("kind", name="kinds").count(store="counts")


def counted_and_written(topology: Topology) -> None:
    orders = topology.stream("orders", value=ORDER)
    orders.group_by("kind", name="kinds").count(store="counts").to_stream().to("counts")


def filtered_before(topology: Topology) -> None:
    topology.stream("orders", value=ORDER).filter("amount > 1").group_by("kind", name="kinds").count(store="counts")


def aggregated(columns: dict[str, str]) -> Callable[[Topology], None]:
    def declare(topology: Topology) -> None:
        grouped = topology.stream("orders", value=ORDER).group_by("kind", name="kinds")
        grouped.aggregate(columns, store="totals")

    declare.__name__ = next(iter(columns.values()))
    return declare


def windows(topology: Topology) -> None:
    grouped = topology.stream("orders", value=ORDER).group_by("kind", name="kinds")
    grouped.windowed_by(TimeWindows("1 minute", grace="1 day")).count(store="counts")


def windows_that_hop(topology: Topology) -> None:
    grouped = topology.stream("orders", value=ORDER).group_by("kind", name="kinds")
    hopping = TimeWindows("1 minute", advance="10 seconds", grace="1 day")
    grouped.windowed_by(hopping).aggregate({"total": "sum(amount)"}, store="totals")


def mapped_before(topology: Topology) -> None:
    orders = topology.stream("orders", value=ORDER).filter_not("amount = 1").map_values({"double": "amount * 2"})
    orders.map(key="double", value={"n": "double"}).select_key("n % 3").group_by_key().count(store="counts")


def flat_mapped_before(topology: Topology) -> None:
    words = topology.stream("orders", value=ORDER).flat_map_values("split(kind, ' ')", {"word": "element"})
    words.filter("word != ''").group_by("word", name="words").count(store="counts")


def flat_mapped_with_a_key_before(topology: Topology) -> None:
    words = topology.stream("orders", value=ORDER).flat_map("split(kind, ' ')", key="element", value={"n": "amount"})
    words.group_by_key(name="words").aggregate({"total": "sum(n)"}, store="totals")


def functions_before(topology: Topology) -> None:
    orders = topology.stream("orders", value=ORDER).filter(lambda order: order.amount > 1)
    words = orders.flat_map_values(lambda order: [{"word": word} for word in order.kind.split()], schema="word string")
    lengths = words.map_values(lambda word: {"n": len(word.word)}, schema="n int").filter_not(lambda word: word.n == 0)
    lengths.map("n", lambda word: {"n": word.n}, schema="n int").group_by_key(name="lengths").count(store="counts")


def grouped_by_an_expression(topology: Topology) -> None:
    topology.stream("orders", value=ORDER).group_by("upper(kind)", name="kinds").count(store="counts")


LINKED = (
    counted,
    filtered_before,
    mapped_before,
    flat_mapped_before,
    flat_mapped_with_a_key_before,
    functions_before,
    grouped_by_an_expression,
    counted_and_written,
    windows,
    windows_that_hop,
    aggregated({"n": "count(*)", "paid": "count(amount)", "many": "count_if(amount > 3)"}),
    aggregated({"total": "sum(amount * 2)", "mean": "avg(amount)", "least": "min(weight)", "greatest": "max(weight)"}),
    aggregated(
        {"newest": "max(record.timestamp)", "each": "bool_and(record.key = kind)", "any": "bool_or(amount = 1)"}
    ),
)


def grouped_by_its_key(topology: Topology) -> None:
    topology.stream("orders", value=ORDER).group_by_key().count(store="counts")


def mapped_by_a_function_that_need_not_repeat_before(topology: Topology) -> None:
    orders = topology.stream("orders", value=ORDER)
    mapped = orders.map_values(lambda order: {"kind": order.kind}, schema="kind string", deterministic=False)
    mapped.group_by("kind", name="kinds").count(store="counts")


def peeked_before(topology: Topology) -> None:
    orders = topology.stream("orders", value=ORDER).peek(print)
    orders.group_by("kind", name="kinds").count(store="counts")


def merged_before(topology: Topology) -> None:
    orders = topology.stream("orders", value=ORDER).merge(topology.stream("old-orders", value=ORDER))
    orders.group_by("kind", name="kinds").count(store="counts")


def summed_and_counted(topology: Topology) -> None:
    grouped = topology.stream("orders", value=ORDER).group_by("kind", name="kinds")
    grouped.aggregate({"total": "sum(amount)"}, store="totals")
    grouped.count(store="counts")


def sessions(topology: Topology) -> None:
    grouped = topology.stream("orders", value=ORDER).group_by("kind", name="kinds")
    grouped.windowed_by(SessionWindows("1 minute", grace="1 day")).count(store="counts")


def final_results(topology: Topology) -> None:
    grouped = topology.stream("orders", value=ORDER).group_by("kind", name="kinds")
    windowed = grouped.windowed_by(TimeWindows("1 minute", grace="1 day"))
    windowed.emit_strategy(OnWindowClose()).count(store="counts")


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
    mapped_by_a_function_that_need_not_repeat_before,
    peeked_before,
    merged_before,
    grouped_by_its_key,
    summed_and_counted,
    aggregated({"first": "max_by(amount, weight)"}),  # of equal weights the latest
    aggregated({"last": "max(record.offset)"}),
    aggregated({"records": "max(record)"}),
    aggregated({"fields": "max(struct(*))"}),
    sessions,
    final_results,
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


@pytest.mark.parametrize(("name", "store"), [("orders", "orders-products-quantities"), ("words", "words")])
def test_these_pipelines_are_linked(name: str, store: str) -> None:
    (link,) = links_of(pipeline_named(name).topology)
    assert link.aggregate.store == store


def test_the_code_of_a_function_may_change_between_two_starts() -> None:
    for declare, repeats in ((functions_before, False), (flat_mapped_before, True), (counted, True)):
        topology = Topology("shop")
        declare(topology)
        assert [link.repeats for link in links_of(topology)] == [repeats]


def test_a_start_can_leave_them_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = Topology("shop")
    counted(topology)
    assert links_of_start(topology) == links_of(topology) != ()
    monkeypatch.setenv("STREAMPLAN_LINKED", "false")
    assert links_of_start(topology) == ()


def copied(topology: Topology) -> None:
    topology.stream("orders", value=ORDER).to("out")


def re_keyed(topology: Topology) -> None:
    topology.stream("orders", value=ORDER).select_key("kind").to("out")


@pytest.mark.parametrize(("declare", "field"), [(copied, ""), (re_keyed, "kind")])
def test_passed_as_they_are(declare: Callable[[Topology], None], field: str) -> None:
    topology = Topology("shop")
    declare(topology)
    (subtopology,) = topology.subtopologies
    assert passing(subtopology) == (subtopology.sources[0], field)


def re_keyed_by_an_expression(topology: Topology) -> None:
    topology.stream("orders", value=ORDER).select_key("upper(kind)").to("out")


def re_keyed_by_a_number(topology: Topology) -> None:
    topology.stream("orders", value=ORDER).select_key("amount", key_serde=Long()).to("out")


def written_anew(topology: Topology) -> None:
    topology.stream("orders", value=ORDER).to("out", value=Json("kind string, amount bigint, weight double"))


def written_twice(topology: Topology) -> None:
    orders = topology.stream("orders", value=ORDER)
    orders.select_key("kind").to("out")
    orders.to("copy")


def re_keyed_beside(topology: Topology) -> None:
    orders = topology.stream("orders", value=ORDER)
    orders.select_key("kind")
    orders.to("out")


def filtered(topology: Topology) -> None:
    topology.stream("orders", value=ORDER).filter("amount > 1").to("out")


@pytest.mark.parametrize(
    "declare",
    [counted, re_keyed_by_an_expression, re_keyed_by_a_number, written_anew, written_twice, re_keyed_beside, filtered],
)
def test_not_passed_as_they_are(declare: Callable[[Topology], None]) -> None:
    topology = Topology("shop")
    declare(topology)
    assert passing(topology.subtopologies[0]) is None
