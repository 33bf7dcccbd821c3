"""The operations of the language on real brokers and Spark, against values worked out by hand.

What the declared pipelines use is compared with the JVM library in test_pipelines; this is about the rest.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, time
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import SparkSession
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.model.operations import StreamJoin
from streamplan.model.partitioner import partition_for_key
from streamplan.model.processor import KeyValueStore, Processor, Record
from streamplan.model.windows import (
    CalendarWindows,
    CustomWindows,
    JoinWindows,
    OnWindowClose,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UntilTimeLimit,
    UntilWindowCloses,
    Versioned,
)
from streamplan.serdes.join_buffer import BufferKey
from streamplan.serdes.json import Json
from streamplan.serdes.primitive import Long
from streamplan.serdes.subscriptions import parse_combined_key
from streamplan.serdes.suppress_buffer import BufferedUpdate
from streamplan.spark.recount.recount import recount
from streamplan.spark.state import restore

from tests.support.tried_topology import EPOCH, MINUTE, SALE, Tried, sale


@pytest.fixture(
    params=[pytest.param(False, id="checkpoint", marks=pytest.mark.soak), pytest.param(True, id="restored")]
)
def tried(
    request: pytest.FixtureRequest, bootstrap_servers: str, tmp_path: Path, spark: SparkSession
) -> Iterator[Tried]:
    """Once as it is, and once with all local state deleted before each drain: what comes out is the same."""
    made = Tried(bootstrap_servers, tmp_path, spark, restoring=request.param)
    yield made
    made.delete_topics()


class Seen(Processor):
    """Numbers the records of a key."""

    def process(self, record: Record, store: KeyValueStore) -> list[dict[str, int]]:
        seen = store.get()
        number = 1 if seen is None else seen.n + 1
        store.put({"n": number})
        return [{"n": number}]


def big_endian(count: int) -> bytes:
    return count.to_bytes(8, "big")


restored = pytest.mark.parametrize("tried", [True], indirect=True, ids=["restored"])
"""Only so, where the operations with a state of each kind are tried both ways by another test."""

both_ways = pytest.mark.parametrize("tried", [False, True], indirect=True, ids=["checkpoint", "restored"])
"""Also in a quick run; the other tests leave the checkpoint alone only in ``make soak``."""


@restored
def test_operations_without_state_in_several_branches(tried: Tried) -> None:
    topology, named = tried.topology, tried.named
    sales = topology.stream(named("sales"), value=SALE)
    returns = topology.stream(named("returns"), value=Json("shop string, amount bigint"))
    negative = returns.map_values({"shop": "shop", "amount": "-amount"})
    amounts = sales.map_values({"shop": "shop", "amount": "amount"})
    amounts.merge(negative).peek({"passed": "count(*)", "least": "min(amount)"}).to(named("both"))
    sales.filter("amount >= 10 and paid").select_key("shop").to(named("large"))
    sales.map("concat(record.key, '/', shop)", {"double": "2 * amount"}).to(named("mapped"))
    sales.flat_map("sequence(1, least(amount, 3))", key="shop", value={"step": "element", "of": "amount"}).to(
        named("steps")
    )
    tried.create_topics()
    tried.produce("sales", [("a", sale("x", 2), 1), ("b", sale("y", 10), 2), ("c", sale("y", 11, paid=False), 3)])
    tried.produce("sales", [("d", b"no JSON", 4), ("e", {"shop": 5}, 5), (None, sale("z", 20), 6)])
    tried.produce("returns", [("r", {"shop": "x", "amount": 1}, 7), ("s", None, 8)])
    tried.drain()
    amounts_written = [("a", "x", 2), ("b", "y", 10), ("c", "y", 11), (None, "z", 20), ("r", "x", -1)]
    both: list[Any] = [(key, {"shop": shop, "amount": amount}) for key, shop, amount in amounts_written]
    both.append(("s", None))  # a null value passes
    assert tried.records("both") == sorted(both, key=repr)
    assert tried.records("large") == [("y", sale("y", 10)), ("z", sale("z", 20))]
    mapped = [(None, {"double": 40}), ("a/x", {"double": 4}), ("b/y", {"double": 20}), ("c/y", {"double": 22})]
    assert tried.records("mapped") == sorted(mapped, key=repr)
    sold = [("x", 2), ("y", 10), ("y", 11), ("z", 20)]
    steps = [(shop, {"step": step, "of": of}) for shop, of in sold for step in range(1, min(of, 3) + 1)]
    assert tried.records("steps") == sorted(steps, key=repr)
    # Each once, though four branches read them.
    assert tried.dead_letters() == [
        ("sales", "shop is not of type string"),
        ("sales", "the value is not JSON"),
    ]
    assert any("passed 6, least -1" in line for line in tried.lines), tried.lines


def test_topics_of_one_source_have_the_stream_tasks_of_the_one_with_the_most_partitions(tried: Tried) -> None:
    topology, named = tried.topology, tried.named
    sales = topology.stream((named("eu"), named("us")), value=SALE)
    sales.filter("amount >= 10").to(named("large"))
    sales.process(Seen, store="seen", state="n bigint", schema="n bigint").to(named("numbered"))
    sales.group_by("shop").aggregate({"total": "sum(amount)"}, store="totals")
    tried.partition_counts[named("us")] = 3
    tried.create_topics()
    assert tried.pipeline.partitions(topology.subtopologies[0]) == 3
    tried.produce("eu", [(f"e{n}", sale("x" if n % 2 else "y", n), n) for n in range(20)])
    tried.produce("us", [(f"u{n}", sale("x", n), n) for n in range(20)] + [("u", b"no JSON", 7)])
    tried.drain()
    tried.produce("us", [(f"u{n}", sale("z", 10), 30 + n) for n in range(20)])
    tried.drain()
    large = [key for key, _ in tried.records("large")]
    assert Counter(large) == Counter([f"{of}{n}" for of in "eu" for n in range(10, 20)] + [f"u{n}" for n in range(20)])
    again = [(f"{of}{n}", {"n": 1}) for of in "eu" for n in range(20)] + [(f"u{n}", {"n": 2}) for n in range(20)]
    assert tried.records("numbered") == sorted(again, key=repr)
    assert tried.store("totals") == {"x": {"total": 290}, "y": {"total": 90}, "z": {"total": 200}}
    assert tried.dead_letters() == [("us", "the value is not JSON")]
    if not tried.restoring:
        assert_recounted(tried)


@pytest.mark.soak
@restored
def test_exclusive_branches_values_of_one_record_and_functions_for_what_they_do(tried: Tried, tmp_path: Path) -> None:
    topology, named = tried.topology, tried.named
    told = tmp_path / "told"

    def tell(record: Any) -> None:
        with told.open("a") as lines:
            lines.write(f"{record.record.key}\n")

    def is_large(record: Any) -> bool:
        return bool(record.amount >= 10)

    sales = topology.stream(named("sales"), value=SALE)
    branches = (
        sales.split(name="sales-").branch("not paid", name="open").branch(is_large, name="large").default_branch()
    )
    of_shops = (named("open-y"), named("open-z"))
    branches["sales-open"].to(f"concat('{named('open-')}', shop)", topics=of_shops)
    branches["sales-large"].peek(tell, on_error="stop").to(named("large"))
    steps = branches["sales-0"].flat_map_values("sequence(1, amount)", {"step": "element"})
    steps.filter_not("step = 2").to(named("steps"))
    steps.group_by_key().count(store="steps-per-key")
    sales.foreach(tell, on_error="stop")
    tried.create_topics()
    tried.produce("sales", [("a", sale("x", 3), 1), ("b", sale("y", 10), 2), ("c", sale("y", 11, paid=False), 3)])
    tried.produce("sales", [("d", b"no JSON", 4), ("e", sale("z", None, paid=False), 5), ("f", sale("z", None), 6)])
    tried.produce("sales", [("g", sale("x", 1, paid=False), 7)])
    tried.drain()
    assert tried.records("open-y") == [("c", sale("y", 11, paid=False))]
    assert tried.records("open-z") == [("e", sale("z", None, paid=False))]
    assert tried.records("large") == [("b", sale("y", 10))]
    assert tried.records("steps") == [("a", {"step": 1}), ("a", {"step": 3})]
    counts = tried.read(topology.changelog_topic("steps-per-key"))
    assert {m.key(): m.value() for m in counts} == {b"a": big_endian(3)}
    of_function, of_topic, of_json = (reason for _, reason in tried.dead_letters())
    assert "is_large raised TypeError" in of_function
    assert of_topic == f"the topic {named('open-x')} is none of {', '.join(of_shops)}"
    assert of_json == "the value is not JSON"
    assert Counter(told.read_text().split()) == Counter("abcefg" + "b")
    brokers = Brokers(tried.bootstrap_servers)
    rows = recount(tried.spark, tried.pipeline, KafkaCluster(brokers), brokers)
    assert [row for row in rows if not row.agrees] == []
    assert Counter(told.read_text().split()) == Counter("abcefg" + "b")  # a recount calls no such function


@pytest.mark.soak
@restored
def test_told_timestamps_stay_when_the_state_is_restored(tried: Tried) -> None:
    topology, named = tried.topology, tried.named
    later = "record.timestamp + interval 100 seconds"
    rates = topology.table(named("rates"), value=Json("rate bigint"), store="rates", timestamp=later)
    value = Json("amount bigint, at timestamp")
    sales = topology.stream(named("sales"), value=value, timestamp="at")
    sales.join(rates, {"amount": "amount", "rate": "table.rate"}).to(named("rated"))
    windows = topology.stream(named("views"), value=value, timestamp=lambda view: view.at).group_by_key()
    windows.windowed_by(TimeWindows("1 minute", grace="1 hour")).count(store="views-per-minute")
    tried.create_topics()

    def at(second: int, amount: int) -> dict[str, Any]:
        return {"amount": amount, "at": EPOCH + 1000 * second}

    tried.produce("rates", [("k", {"rate": 7}, 0)])
    tried.produce("views", [("k", at(60, 1), 0), ("k", {"amount": 2}, 0)])
    tried.drain()
    tried.produce("sales", [("k", at(99, 1), 5000), ("k", at(150, 2), 5000)])
    tried.produce("views", [("k", at(119, 1), 5000), ("k", at(120, 1), 5000)])
    tried.drain()
    (rated,) = tried.read(named("rated"))
    assert json.loads(rated.value()) == {"amount": 2, "rate": 7}  # the row is told to be of second 100
    assert rated.timestamp()[1] == EPOCH + 150_000
    (rate,) = tried.read(topology.changelog_topic("rates"))
    assert rate.timestamp()[1] == EPOCH + 100_000
    counts = {m.key(): m.value() for m in tried.read(topology.changelog_topic("views-per-minute"))}
    starts = {(int.from_bytes(key[-12:-4], "big") - EPOCH) // MINUTE: value for key, value in counts.items()}
    assert starts == {1: big_endian(2), 2: big_endian(1)}
    ((source, reason),) = tried.dead_letters()
    assert source == "views"
    assert reason.endswith("told no timestamp")
    brokers = Brokers(tried.bootstrap_servers)
    rows = recount(tried.spark, tried.pipeline, KafkaCluster(brokers), brokers)
    assert [row for row in rows if not row.agrees] == []


@restored
def test_a_branch_that_writes_nothing(tried: Tried) -> None:
    """It is read all the same: what peek reports of it is right. One of these sub-topologies has no output at all."""
    sales = tried.topology.stream(tried.named("sales"), value=SALE)
    sales.filter("amount > 1").peek({"large": "count(*)"})
    sales.filter("paid")
    sales.repartition(name="through").peek({"all": "count(*)"}).filter("paid")
    tried.topology.stream(tried.named("others"), value=SALE).peek({"others": "count(*)"})
    tried.create_topics()
    tried.produce("sales", [("a", sale("x", 1), 1), ("b", sale("y", 2), 2), ("c", b"no JSON", 3)])
    tried.produce("others", [("a", sale("x", 1), 1)])
    tried.drain()
    for told in ("large 1", "all 2", "others 1"):
        assert any(told in line for line in tried.lines), tried.lines
    assert tried.dead_letters() == [("sales", "the value is not JSON")]


def test_a_count_that_is_grouped_anew(tried: Tried) -> None:
    """A topic from outside has the 8 bytes of the library's ``LongSerializer``, and a repartition topic JSON."""
    topology, named = tried.topology, tried.named
    counts = topology.stream(named("sales"), value=SALE).group_by_key().count(store="per-key").to_stream()
    counts.to(named("counts"))
    counts.group_by("count", name="by-count").count(store="how-often")
    counts.repartition(name="again").map_values({"twice": "2 * count"}).to(named("twice"))
    tried.create_topics()
    tried.produce("sales", [("a", sale("x", 1), 1), ("b", sale("y", 2), 2), ("a", sale("y", 2), 3)])
    tried.drain()
    assert {m.key(): m.value() for m in tried.read(named("counts"))} == {b"a": big_endian(2), b"b": big_endian(1)}
    how_often = tried.read(topology.changelog_topic("how-often"))
    assert {m.key(): m.value() for m in how_often} == {b"1": big_endian(1), b"2": big_endian(1)}
    assert tried.records("twice") == [("a", {"twice": 4}), ("b", {"twice": 2})]
    carried = tried.read(topology.decorate("by-count-repartition"))
    assert sorted(json.loads(m.value())["count"] for m in carried) == [1, 2]


@both_ways
def test_aggregates_over_several_micro_batches(tried: Tried) -> None:
    grouped = tried.topology.stream(tried.named("sales"), value=SALE).group_by_key()
    folded = {
        "sales": "count(*)",
        "known": "count(amount)",
        "unpaid": "count_if(not paid)",
        "total": "sum(amount)",
        "least": "min(amount)",
        "most": "max(amount)",
        "mean": "avg(amount)",
        "lightest": "min_by(shop, weight)",
        "heaviest": "max_by(shop, weight)",
        "all": "bool_and(paid)",
        "any": "bool_or(paid)",
    }
    grouped.aggregate(folded, store="folded").to_stream().to(tried.named("shown"))
    grouped.count(store="counted")  # beside it, on the same grouping
    tried.create_topics()
    tried.produce("sales", [("a", sale("x", 4, 2.5), 1), ("a", sale("y", None, 0.5, False), 2), ("b", sale("z", 7), 3)])
    tried.drain()
    tried.produce("sales", [("a", sale("w", 9, 9.5), 4), (None, sale("v", 1), 5)])
    tried.drain()
    shown = {
        "sales": 3, "known": 2, "unpaid": 1, "total": 13, "least": 4, "most": 9, "mean": 6.5,
        "lightest": "y", "heaviest": "w", "all": False, "any": True,
    }  # fmt: skip
    last = {m.key().decode(): json.loads(m.value()) for m in tried.read(tried.named("shown"))}
    assert last["a"] == shown
    kept = {
        "mean": {"sum": 13, "count": 2},
        "lightest": {"value": "y", "by": 0.5},
        "heaviest": {"value": "w", "by": 9.5},
    }
    assert tried.store("folded")["a"] == shown | kept
    counts = tried.read(tried.topology.changelog_topic("counted"))
    assert {m.key(): int.from_bytes(m.value(), "big") for m in counts} == {b"a": 3, b"b": 1}
    assert tried.dead_letters() == [("sales", "the key is null")]  # once for both aggregates


@pytest.mark.soak
@restored
def test_several_streams_are_folded_into_one_store(tried: Tried) -> None:
    """For a stream without a record of the key a count is 0, and everything else is null.

    A field that both streams name is an aggregate of the records of both.
    The store shares Spark's operator with a count of one of the streams. It is restored before each micro-batch.
    """
    topology, named = tried.topology, tried.named
    sales = topology.stream(named("sales"), value=SALE).group_by("shop", name="by-shop")
    returns = topology.stream(named("returns"), value=Json("amount bigint, reason string")).group_by_key()
    of_sales = {
        "sold": "sum(amount)",
        "sales": "count(*)",
        "mean": "avg(weight)",
        "last": "max(record.timestamp)",
        "unpaid": "count_if(not paid)",
    }
    of_returns = {
        "returned": "sum(amount)",
        "returns": "count(amount)",
        "worst": "max_by(reason, amount)",
        "last": "max(record.timestamp)",
    }
    both = sales.cogroup(of_sales).cogroup(returns, of_returns)
    both.aggregate(store="both").to_stream().to(named("out"))
    returns.count(store="counted")
    tried.create_topics()
    tried.produce("sales", [("k", sale("x", 1, 1.5), 1), ("k", sale("y", 2, paid=False), 2), ("k", sale(None, 4), 3)])
    tried.drain()
    first = {"sales": 1, "unpaid": 0, "returns": 0}
    store = tried.store("both")
    x = {"sold": 1, "mean": {"sum": 1.5, "count": 1}, "last": moment(1)}
    assert store["x"] == first | x
    assert store["y"] == {**first, "unpaid": 1, "sold": 2, "mean": {"sum": 1.5, "count": 1}, "last": moment(2)}
    rows = [("x", 8, 9), ("z", None, 5), (None, 1, 6), ("x", 16, 4)]
    tried.produce("returns", [(key, {"amount": n, "reason": f"r{n}"}, at) for key, n, at in rows])
    tried.produce("returns", [("x", None, 7), ("x", {"amount": "1"}, 8)])
    tried.produce("sales", [("k", sale("x", 32, 2.5), 8)])
    tried.drain()
    store = tried.store("both")
    assert store["x"] == {
        "sold": 33, "sales": 2, "mean": {"sum": 4.0, "count": 2}, "last": moment(9), "unpaid": 0,
        "returned": 24, "returns": 2, "worst": {"value": "r16", "by": 16},
    }  # fmt: skip
    assert store["z"] == {"sales": 0, "unpaid": 0, "mean": {"count": 0}, "returns": 0, "last": moment(5)}
    tried.run_last_again(1)
    tried.produce("returns", [("y", {"amount": 64, "reason": "late"}, 0)])
    tried.drain()
    last = {m.key().decode(): (json.loads(m.value()), m.partition()) for m in tried.read(named("out"))}
    assert last["x"] == (
        {
            "sold": 33, "sales": 2, "mean": 2.0, "last": moment(9), "unpaid": 0,
            "returned": 24, "returns": 2, "worst": "r16",
        },
        partition_for_key(b"x", 2),
    )  # fmt: skip
    assert last["y"][0] == {
        "sold": 2, "sales": 1, "mean": 1.5, "last": moment(2), "unpaid": 1,
        "returned": 64, "returns": 1, "worst": "late",
    }  # fmt: skip
    counted = {m.key(): m.value() for m in tried.read(topology.changelog_topic("counted"))}
    assert counted == {b"x": big_endian(2), b"y": big_endian(1), b"z": big_endian(1)}
    assert tried.dead_letters() == [
        ("returns", "amount is not of type bigint"),
        ("returns", "the key is null"),  # once for both aggregates
        ("sales", "shop is missing"),
    ]


def moment(second: int) -> str:
    return datetime.fromtimestamp(EPOCH / 1000 + second, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


@restored
def test_a_store_is_restored_once_from_several_slices_beside_an_empty_store(
    tried: Tried, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A changelog has an older value of a key in one slice and the last one in another."""
    monkeypatch.setattr(restore, "SLICE_OFFSETS", 4)  # of each partition two: a record and the marker behind it
    sales = tried.topology.stream(tried.named("sales"), value=SALE)
    sales.group_by_key().count(store="counted")
    sales.filter("amount < 0").group_by_key().count(store="negative")
    tried.create_topics()
    for second in range(3):
        tried.produce("sales", [("a", sale("x", 1), second)])
        tried.drain()
    counts = tried.read(tried.topology.changelog_topic("counted"))
    assert [int.from_bytes(m.value(), "big") for m in counts] == [1, 2, 3]
    assert tried.read(tried.topology.changelog_topic("negative")) == []


@pytest.mark.soak
def test_reduce_keeps_the_greatest_the_least_and_of_equals_the_later(tried: Tried) -> None:
    grouped = tried.topology.stream(tried.named("sales"), value=SALE).group_by_key()
    grouped.reduce(max_by="amount", store="greatest")
    grouped.reduce(min_by="amount", store="least")
    grouped.reduce(store="latest")
    tried.create_topics()
    for second, (shop, amount) in enumerate([("u", 3), ("v", 9), ("w", 9), ("x", 3), ("y", 5)]):
        tried.produce("sales", [("k", sale(shop, amount), second)])
        if second in (1, 3):
            tried.drain()
    tried.drain()
    kept = {store: tried.store(store)["k"]["shop"] for store in ("greatest", "least", "latest")}
    assert kept == {"greatest": "w", "least": "x", "latest": "y"}


def test_windows(tried: Tried) -> None:
    windowed = (
        tried.topology.stream(tried.named("sales"), value=SALE)
        .group_by("shop", name="by-shop")
        .windowed_by(TimeWindows("1 minute", grace="1 hour"))
    )
    totals = windowed.aggregate({"total": "sum(amount)"}, store="totals").to_stream()
    totals.to(tried.named("windowed"))
    totals.map("concat(record.key, '@', unix_millis(record.window.start))", {"total": "total"}).to(tried.named("plain"))
    tried.create_topics()
    tried.produce("sales", [("k", sale("x", 1), 0), ("k", sale("x", 2), 59), ("k", sale("x", 4), 60)])
    tried.drain()
    tried.produce("sales", [("k", sale("x", 8), 30), ("k", sale("y", 16), 3700)])  # late, but within grace
    tried.drain()
    starts = {start: (EPOCH + start * 1000).to_bytes(8, "big") for start in (0, 60, 3660)}
    expected = {b"x" + starts[0]: 11, b"x" + starts[60]: 4, b"y" + starts[3660]: 16}
    changelog = tried.read(tried.topology.changelog_topic("totals"))
    assert {m.key(): json.loads(m.value())["total"] for m in changelog} == {
        key + bytes(4): total for key, total in expected.items()
    }
    written = tried.read(tried.named("windowed"))
    assert {m.key(): json.loads(m.value())["total"] for m in written} == expected
    for message in (*changelog, *written):  # a window lies where its raw key belongs
        assert message.partition() == partition_for_key(message.key()[:1], 2)
    plain = {m.key(): json.loads(m.value())["total"] for m in tried.read(tried.named("plain"))}
    assert plain == {b"%b@%d" % (key[:1], int.from_bytes(key[1:], "big")): total for key, total in expected.items()}
    tried.produce("sales", [("k", sale("x", 32), 20), ("k", sale("y", 64), 3701)])  # the window of the first is closed
    tried.drain()
    totals_of = {m.key(): json.loads(m.value())["total"] for m in tried.read(tried.named("windowed"))}
    assert totals_of == {**expected, b"y" + starts[3660]: 80}


@pytest.mark.soak
@restored
def test_windows_that_hop(tried: Tried) -> None:
    """A record is in each window that holds its time, also where it comes late. Each result is of one window."""
    windowed = (
        tried.topology.stream(tried.named("sales"), value=SALE)
        .group_by_key()
        .windowed_by(TimeWindows("3 minutes", advance="1 minute", grace="1 hour"))
    )
    results = windowed.aggregate({"total": "sum(amount)", "best": "max_by(shop, amount)"}, store="results")
    results.to_stream().to(tried.named("windowed"))
    tried.create_topics()
    first = [("k", sale("x", 1), 0), ("k", sale("y", 2), 119), ("k", sale("x", 4), 120)]
    late = [("k", sale("z", 8), 30), ("l", sale("y", 16), 600)]
    tried.produce("sales", first)
    tried.drain()
    tried.produce("sales", late)
    tried.drain()
    expected: dict[bytes, tuple[int, str]] = {}
    for begin in range(-180, 660, 60):
        for key in ("k", "l"):
            sold = [value for name, value, at in (*first, *late) if name == key and begin <= at < begin + 180]
            if sold:
                best = max(sold, key=lambda value: value["amount"])
                stored = key.encode() + (EPOCH + begin * 1000).to_bytes(8, "big")
                expected[stored] = sum(value["amount"] for value in sold), best["shop"]
    changelog = {m.key(): json.loads(m.value()) for m in tried.read(tried.topology.changelog_topic("results"))}
    assert {key: (value["total"], value["best"]["value"]) for key, value in changelog.items()} == {
        key + bytes(4): result for key, result in expected.items()
    }
    written = {m.key(): json.loads(m.value()) for m in tried.read(tried.named("windowed"))}
    assert {key: (value["total"], value["best"]) for key, value in written.items()} == expected


@pytest.mark.soak
@restored
def test_days_of_a_time_zone_and_windows_with_an_offset(tried: Tried) -> None:
    zone, sales = ZoneInfo("Asia/Kolkata"), tried.topology.stream(tried.named("sales"), value=SALE).group_by_key()
    days = sales.windowed_by(CalendarWindows("1 day", time_zone="Asia/Kolkata", grace="2 days"))
    days.aggregate({"total": "sum(amount)", "best": "max_by(shop, amount)"}, store="days")
    hours = sales.windowed_by(TimeWindows("1 hour", grace="2 days", offset="15 minutes"))
    hours.count(store="hours")
    tried.create_topics()
    sold = [("k", sale(f"s{n}", n), second) for n, second in enumerate((-86_400, -43_200, 0, -3600, 3600, -50_000))]
    for begin in (0, 4):
        tried.produce("sales", sold[begin : begin + 4])
        tried.drain()
    totals: dict[bytes, tuple[int, str]] = {}
    counts: dict[bytes, int] = {}
    for key, value, second in sold:
        at = EPOCH + 1000 * second
        date = datetime.fromtimestamp(at / 1000, zone).date()
        midnight = round(datetime.combine(date, time(), zone).timestamp()) * 1000
        day = key.encode() + midnight.to_bytes(8, "big") + bytes(4)
        totals[day] = totals.get(day, (0, ""))[0] + value["amount"], value["shop"]  # the amounts grow
        hour = key.encode() + ((at - 900_000) // 3_600_000 * 3_600_000 + 900_000).to_bytes(8, "big") + bytes(4)
        counts[hour] = counts.get(hour, 0) + 1
    changelog = {m.key(): json.loads(m.value()) for m in tried.read(tried.topology.changelog_topic("days"))}
    assert {key: (value["total"], value["best"]["value"]) for key, value in changelog.items()} == totals
    changelog = {m.key(): m.value() for m in tried.read(tried.topology.changelog_topic("hours"))}
    assert changelog == {key: big_endian(count) for key, count in counts.items()}
    assert_recounted(tried)


@pytest.mark.soak
@restored
def test_sliding_windows(tried: Tried) -> None:
    """One ends at each record, and one begins behind each record that another one follows. Both ends belong to it."""
    sales = tried.topology.stream(tried.named("sales"), value=SALE).group_by_key()
    sliding = sales.windowed_by(SlidingWindows("1 minute", grace="1 hour"))
    sliding.aggregate({"total": "sum(amount)", "best": "max_by(shop, amount)"}, store="sliding")
    final = sales.windowed_by(SlidingWindows("1 minute", grace="1 minute")).emit_strategy(OnWindowClose())
    final.count(store="final").to_stream().to(tried.named("out"))
    tried.create_topics()
    sold = [("k", sale(f"s{n}", n), second) for n, second in enumerate((0, 30, 60, 20, 61, 121, 300))]
    for begin, end in ((0, 3), (3, 5), (5, 7)):
        tried.produce("sales", sold[begin:end])
        tried.drain()
    windows = {}
    for at in (1000 * second for *_, second in sold):
        for start in (at - MINUTE, at + 1):
            if within := [value for _, value, second in sold if start <= 1000 * second <= start + MINUTE]:
                windows[start] = within
    keys = {start: b"k" + (EPOCH + start).to_bytes(8, "big") for start in windows}
    changelog = {m.key(): json.loads(m.value()) for m in tried.read(tried.topology.changelog_topic("sliding"))}
    assert {key: (value["total"], value["best"]["value"]) for key, value in changelog.items()} == {
        keys[start] + bytes(4): (sum(value["amount"] for value in within), within[-1]["shop"])  # the amounts grow
        for start, within in windows.items()
    }
    closed = [start for start in sorted(windows) if start + MINUTE < 240_000]
    written = [(m.key(), m.value()) for m in tried.read(tried.named("out"))]
    assert written == [(keys[start], big_endian(len(windows[start]))) for start in closed]
    assert_recounted(tried)


@pytest.mark.soak
@restored
def test_custom_windows_and_suppressed_sessions(tried: Tried) -> None:
    """A record in no window, a late one, and one at which the function fails. A session is passed when it is over."""
    sales = tried.topology.stream(tried.named("sales"), value=SALE).group_by_key()
    halves = sales.windowed_by(CustomWindows(first_half, size="30 seconds", grace="1 minute"))
    halves.count(store="halves").to_stream().to(tried.named("halves-out"))
    sessions = sales.windowed_by(SessionWindows("20 seconds", grace="10 seconds")).count(store="sessions")
    sessions.suppress(UntilWindowCloses()).to_stream().to(tried.named("out"))
    tried.create_topics()
    sold = [("k", sale(f"s{n}", n), second) for n, second in enumerate((0, 10, 40, 25, 70, 61, 200, 20, 230, 666))]
    for begin, end in ((0, 3), (3, 5), (5, 7), (7, 10)):
        tried.produce("sales", sold[begin:end])
        tried.drain()
    counts: dict[bytes, int] = {}
    for second in (0, 10, 25, 70, 61, 200):
        start = EPOCH + second // 60 * MINUTE
        key = b"k" + start.to_bytes(8, "big") + bytes(4)
        counts[key] = counts.get(key, 0) + 1
    changelog = {m.key(): m.value() for m in tried.read(tried.topology.changelog_topic("halves"))}
    assert changelog == {key: big_endian(count) for key, count in counts.items()}
    sessions_over = [(0, 10, 2), (25, 40, 2), (61, 70, 2), (200, 200, 1), (230, 230, 1)]
    passed = [(EPOCH + 1000 * end, EPOCH + 1000 * start, n) for start, end, n in sessions_over]
    written = [(m.key(), m.value()) for m in tried.read(tried.named("out"))]
    assert written == [
        (b"k" + end.to_bytes(8, "big") + start.to_bytes(8, "big"), big_endian(n)) for end, start, n in passed
    ]
    assert_recounted(tried)


def test_updates_of_a_table_are_suppressed_until_a_time_limit(tried: Tried) -> None:
    """What waits is restored from the buffer's changelog, which has the bytes of the library."""
    sales = tried.topology.table(tried.named("sales"), value=SALE)
    sales.suppress(UntilTimeLimit("10 seconds"), name="calm").to_stream().to(tried.named("out"))
    tried.partition_counts[tried.named("sales")] = 1
    tried.create_topics()
    updates = [("a", sale("s0", 0), 0), ("b", sale("s1", 1), 5), ("a", sale("s2", 2), 6), ("c", sale("s3", 3), 10)]
    updates += [("b", None, 12), ("c", sale("s4", 4), 30), ("d", sale("s5", 5), 31)]
    for begin, end in ((0, 3), (3, 4), (4, 7)):
        tried.produce("sales", updates[begin:end])
        tried.drain()
    written = [(m.key(), m.value() and json.loads(m.value()), m.timestamp()[1]) for m in tried.read(tried.named("out"))]
    passed = [(b"a", sale("s2", 2), 6), (b"b", None, 12), (b"c", sale("s4", 4), 30)]
    assert written == [(key, value, EPOCH + 1000 * second) for key, value, second in passed]
    changelog = tried.read(tried.topology.changelog_topic("calm-store"))
    assert {m.key(): m.value() for m in changelog if m.key() != b"d"} == dict.fromkeys((b"a", b"b", b"c"))
    assert {(name, value) for m in changelog for name, value in m.headers() or ()} == {("v", b"\x03")}
    waiting = BufferedUpdate.parse(changelog[-1].value() or b"")
    at = EPOCH + 31_000
    assert waiting == BufferedUpdate(json.dumps(sale("s5", 5)).encode(), at, at, tried.named("sales"), 0, 6, [])
    if not tried.restoring:
        assert_recounted(tried)


@pytest.mark.soak
@restored
def test_updates_of_windows_are_suppressed_until_a_time_limit(tried: Tried) -> None:
    sales = tried.topology.stream(tried.named("sales"), value=SALE).group_by_key()
    minutes = sales.windowed_by(TimeWindows("1 minute")).count(store="minutes")
    minutes.suppress(UntilTimeLimit("10 seconds"), name="calm").to_stream().to(tried.named("out"))
    visits = sales.windowed_by(SessionWindows("5 seconds")).count(store="visits")
    visits.suppress(UntilTimeLimit("10 seconds"), name="calmer").to_stream().to(tried.named("of-visits"))
    tried.partition_counts[tried.named("sales")] = 1
    tried.create_topics()
    for seconds in ((57, 61), (59, 66), (70,), (95,), (130,)):
        tried.produce("sales", [("a", sale("s", 1), second) for second in seconds])
        tried.drain()

    def written(topic: str) -> list[tuple[Any, ...]]:
        found = tried.read(tried.named(topic))
        return [(m.key(), m.value() and int.from_bytes(m.value(), "big"), m.timestamp()[1] - EPOCH) for m in found]

    def key(*seconds: int) -> bytes:
        return b"a" + b"".join((EPOCH + 1000 * second).to_bytes(8, "big") for second in seconds)

    # The first minute waits since 57, and is passed with 70. The second one waits since 61, and is passed with 95.
    assert written("out") == [(key(0), 2, 59_000), (key(60), 4, 95_000)]
    # 66 and 70 make the session of 57 longer. Its key has the end, so that the keys before are deleted.
    sessions = [each for each in written("of-visits") if each[1] is not None]
    assert sessions == [(key(70, 57), 5, 70_000), (key(95, 95), 1, 95_000)]
    changelog = tried.read(tried.topology.changelog_topic("calm-store"))
    waiting = {m.key(): m.value() and BufferedUpdate.parse(m.value()).timestamp - EPOCH for m in changelog}
    assert waiting == {key(0): None, key(60): None, key(120): 130_000}
    brokers = Brokers(tried.bootstrap_servers)
    assert all(row.agrees for row in recount(tried.spark, tried.pipeline, KafkaCluster(brokers), brokers))


def first_half(timestamp: int) -> list[tuple[int, int]]:
    """The first half of each minute."""
    minute = timestamp // MINUTE * MINUTE
    if timestamp - minute == 6000:
        raise ValueError("an unlucky time")
    return [(minute, minute + MINUTE // 2)] if timestamp < minute + MINUTE // 2 else []


def assert_recounted(tried: Tried) -> None:
    brokers = Brokers(tried.bootstrap_servers)
    rows = recount(tried.spark, tried.pipeline, KafkaCluster(brokers), brokers)
    assert rows
    assert [row for row in rows if not row.agrees] == []


@pytest.mark.soak
def test_sessions(tried: Tried) -> None:
    """Records come late: one brings two sessions together, one is within a session, and one is too late."""
    sales = tried.topology.stream(tried.named("sales"), value=SALE).group_by_key()
    values = {
        "total": "sum(amount)",
        "mean": "avg(weight)",
        "first": "min_by(amount, record.timestamp)",
        "paid": "bool_and(paid)",
    }
    sessions = sales.windowed_by(SessionWindows("1 minute", grace="5 minutes")).aggregate(values, store="sessions")
    sessions.to_stream().to(tried.named("out"))
    sessions.to_stream().filter("total is not null").map(
        "concat(record.key, '@', unix_millis(record.window.end) - unix_millis(record.window.start))",
        {"total": "total"},
    ).to(tried.named("plain"))
    tried.create_topics()

    def sell(*sold: tuple[str, int, int]) -> None:
        tried.produce("sales", [(key, sale("shop", amount, weight=amount / 2), at) for key, amount, at in sold])
        tried.drain()

    sell(("x", 1, 0), ("x", 2, 60), ("x", 4, 180))
    sell(("x", 8, 120), ("x", 16, 30))  # between both, and within them
    sell(("x", 32, 539), ("x", 64, 181))  # the newest record, and one that the first session still takes
    sell(("x", 256, 590), ("x", 128, 179))  # one more, and one that is too late
    ms = {at: (EPOCH + 1000 * at).to_bytes(8, "big") for at in (0, 60, 180, 181, 539, 590)}
    expected: dict[bytes, Any] = {
        b"x" + ms[181] + ms[0]: {"total": 95, "mean": 95 / 12, "first": 1, "paid": True},
        b"x" + ms[590] + ms[539]: {"total": 288, "mean": 72.0, "first": 32, "paid": True},
    }
    changelog = tried.read(tried.topology.changelog_topic("sessions"))
    stored = {m.key(): m.value() and json.loads(m.value()) for m in changelog}
    assert {key: value["total"] for key, value in stored.items() if value} == {
        key: value["total"] for key, value in expected.items()
    }
    assert stored[b"x" + ms[181] + ms[0]]["mean"] == {"sum": 47.5, "count": 6}
    deleted = [(0, 60), (180, 180), (0, 180), (539, 539)]
    assert {key for key, value in stored.items() if value is None} == {
        b"x" + ms[end] + ms[start] for start, end in deleted
    }
    written = tried.read(tried.named("out"))
    assert {m.key(): m.value() and json.loads(m.value()) for m in written} == {key: expected.get(key) for key in stored}
    for message in (*changelog, *written):
        assert message.partition() == partition_for_key(b"x", 2)
    assert {m.timestamp()[1] for m in written} == {EPOCH + 1000 * at for at in (60, 180, 181, 539, 590)}
    assert ("x@51000", {"total": 288}) in tried.records("plain")
    before = len(written)
    tried.run_last_again(0)
    sell(("x", 1, 591))
    assert len(tried.read(tried.named("out"))) == before + 2


def big_endian_times(*seconds: int) -> bytes:
    return b"".join((EPOCH + 1000 * second).to_bytes(8, "big") for second in seconds)


@pytest.mark.soak
def test_final_results_are_passed_once(tried: Tried) -> None:
    """A window closes with the micro-batch after its last record, and one that closes is not opened by a late record.

    The micro-batch that closes windows runs again as after a crash, and the state is restored before each one.
    """
    sales = tried.topology.stream(tried.named("sales"), value=SALE).group_by_key()
    windows = sales.windowed_by(TimeWindows("1 minute", grace="10 seconds")).emit_strategy(OnWindowClose())
    means = windows.aggregate({"mean": "avg(amount)", "best": "max_by(weight, amount)"}, store="means")
    means.to_stream().to(tried.named("out"))
    tried.create_topics()

    def sell(*sold: tuple[str, int, int]) -> list[tuple[bytes, Any, int]]:
        tried.produce("sales", [(key, sale("shop", amount, weight=amount / 2), at) for key, amount, at in sold])
        tried.drain()
        written = [m for m in tried.read(tried.named("out")) if m.partition() == partition_for_key(b"x", 2)]
        return [(m.key(), json.loads(m.value()), m.timestamp()[1] - EPOCH) for m in written]

    first = (b"x" + big_endian_times(0), {"mean": 2.0, "best": 1.5}, 59_000)
    second = (b"x" + big_endian_times(60), {"mean": 6.0, "best": 3.5}, 70_000)
    assert sell(("x", 1, 0), ("x", 3, 59)) == []
    assert sell(("x", 5, 69)) == []  # the first window ends at 60 s, and takes records until one is of 70 s
    assert sell(("x", 2, 30), ("x", 7, 70), ("x", 100, 31)) == [first]  # it takes the one before, not the one behind
    tried.run_last_again(0)
    assert sell(("x", 200, 32)) == [first]
    assert sell(("x", 8, 190)) == [first, second]
    assert sell(("x", 300, 33), ("x", 300, 90), ("x", 9, 191)) == [first, second]
    changelog = {m.key(): json.loads(m.value()) for m in tried.read(tried.topology.changelog_topic("means"))}
    assert {key: value["mean"] for key, value in changelog.items()} == {
        b"x" + big_endian_times(0) + bytes(4): {"sum": 6, "count": 3},
        b"x" + big_endian_times(60) + bytes(4): {"sum": 12, "count": 2},
        b"x" + big_endian_times(180) + bytes(4): {"sum": 17, "count": 2},
    }


@pytest.mark.soak
def test_final_sessions_are_passed_once(tried: Tried) -> None:
    sales = tried.topology.stream(tried.named("sales"), value=SALE).group_by_key()
    sessions = sales.windowed_by(SessionWindows("1 minute", grace="10 seconds")).emit_strategy(OnWindowClose())
    sessions.count(store="visits").to_stream().to(tried.named("out"))
    tried.create_topics()

    def sell(*seconds: int) -> list[tuple[bytes, int]]:
        tried.produce("sales", [("x", sale("shop", 1), second) for second in seconds])
        tried.drain()
        return [(m.key(), int.from_bytes(m.value(), "big")) for m in tried.read(tried.named("out"))]

    first = (b"x" + big_endian_times(65, 0), 3)
    assert sell(0, 65) == []
    assert sell(30, 135) == []  # both become one, which closes when a record is later than 65 + 60 + 10 s
    assert sell(136) == [first]
    tried.run_last_again(0)
    assert sell(137, 60) == [first]  # the one at 60 s is too late
    assert sell(300) == [first, (b"x" + big_endian_times(137, 135), 3)]


@restored
def test_no_window_begins_before_the_epoch(tried: Tried) -> None:
    """As ``TimeWindows.windowsFor`` has it: at most those of the first moments are fewer."""
    sales = tried.topology.stream(tried.named("sales"), value=SALE)
    windows = TimeWindows("3 minutes", advance="1 minute", grace="36500 days")
    sales.group_by_key().windowed_by(windows).count(store="counts")
    tried.create_topics()
    tried.produce("sales", [("k", sale("x", 1), 90 - EPOCH // 1000)])
    tried.drain()
    changelog = tried.read(tried.topology.changelog_topic("counts"))
    assert sorted(int.from_bytes(m.key()[1:9], "big") for m in changelog) == [0, 60_000]


@pytest.mark.soak
def test_joins_with_two_tables_at_the_time_of_each_record(tried: Tried) -> None:
    topology, named = tried.topology, tried.named
    shops = topology.table(named("shops"), value=Json("city string"), key="shop")
    owners = topology.table(named("owners"), value=Json("owner string"), key="shop")
    located = (
        topology.stream(named("sales"), value=SALE)
        .select_key("shop")
        .join(shops, {"shop": "shop", "amount": "amount", "city": "table.city"})
    )
    located.left_join(owners).to(named("joined"))
    located.filter("amount > 100").to(named("large"))
    owners.to_stream().to(named("copied"))
    tried.create_topics()
    tried.produce("shops", [("x", {"city": "Lyon"}, 0), ("x", {"city": "Turin"}, 20), ("x", None, 40)])
    tried.produce("owners", [("x", {"owner": "Ann"}, 10), ("x", {"owner": 5}, 12)])
    tried.produce("sales", [("k", sale("x", n), n) for n in (5, 15, 25, 45)] + [("k", sale("unknown", 1), 16)])
    tried.produce("sales", [("k", sale(None, 1), 17)])
    tried.drain()
    tried.produce("shops", [("x", {"city": "Gent"}, 50)])
    tried.drain()  # known before the sale, in a micro-batch of its own
    tried.produce("sales", [("k", sale("x", 500), 55)])
    tried.drain()
    joined = [
        ("x", {"shop": "x", "amount": 15, "city": "Lyon", "owner": "Ann"}),
        ("x", {"shop": "x", "amount": 25, "city": "Turin", "owner": "Ann"}),
        ("x", {"shop": "x", "amount": 5, "city": "Lyon"}),
        ("x", {"shop": "x", "amount": 500, "city": "Gent", "owner": "Ann"}),
    ]
    assert tried.records("joined") == sorted(joined, key=repr)
    assert tried.records("large") == [("x", {"shop": "x", "amount": 500, "city": "Gent"})]
    assert tried.records("copied") == [("x", {"owner": "Ann"})]
    assert tried.dead_letters() == [
        ("owners", "owner is not of type string"),
        ("sales", "shop is missing"),
    ]
    before = len(tried.read(tried.named("joined")))
    tried.run_last_again(max(group.id for group in tried.topology.subtopologies if group.stores))
    tried.produce("sales", [("k", sale("x", 600), 60)])
    tried.drain()
    assert len(tried.read(tried.named("joined"))) == before + 1
    assert tried.records("large")[-1] == ("x", {"shop": "x", "amount": 600, "city": "Gent"})


def test_a_global_table_is_joined_by_any_key_whatever_its_partitions(tried: Tried) -> None:
    """Rows are those when a micro-batch begins: of all partitions, the newest of each key, deleted ones left out."""
    topology, named = tried.topology, tried.named
    products = topology.global_table(named("products"), value=Json("price bigint"), key_serde=Long())
    sales = topology.stream(named("sales"), value=Json("product bigint, amount bigint"))
    value = {"product": "product", "cost": "amount * table.price"}
    priced = sales.join(products, value, key="product")
    priced.to(named("priced"))
    sales.left_join(products, value, key="product").filter("cost is null").to(named("unknown"))
    priced.group_by("product", key_serde=Long()).aggregate({"cost": "sum(cost)"}, store="costs")
    tried.partition_counts[named("products")] = 3
    tried.create_topics()

    def sell(*sold: tuple[str | None, int | None, int]) -> None:
        tried.produce("sales", [(key, {"product": product, "amount": n}, n) for key, product, n in sold])
        tried.drain()

    def row(product: int) -> bytes:
        return product.to_bytes(8, "big")

    tried.produce("products", [(row(n), {"price": 10 * n}, 500) for n in range(1, 8)])
    tried.produce("products", [(row(1), {"price": 11}, 400), (row(2), None, 600), (row(7), b"no JSON", 700)])
    sell(("a", 1, 1), ("a", 2, 2), ("b", 3, 3), (None, 4, 4), ("c", None, 5), ("c", 99, 6), ("d", 7, 7))
    first = [("a", {"product": 1, "cost": 11}), ("b", {"product": 3, "cost": 90}), (None, {"product": 4, "cost": 160})]
    assert tried.records("priced") == sorted(first, key=repr)
    assert Counter(str(value.get("product")) for _, value in tried.records("unknown")) == Counter(["2", "None", "99"])
    assert [topic for topic, _ in tried.dead_letters()] == ["sales"] * 2  # of each join
    assert all(reason.endswith(": the value is not JSON") for _, reason in tried.dead_letters())
    tried.produce("products", [(row(2), {"price": 5}, 1), (row(3), {"price": 1}, 1), (row(7), {"price": 2}, 1)])
    if not tried.restoring:
        tried.drain()
        assert len(tried.records("priced")) == 3  # a row alone gives nothing
    sell(("a", 2, 8), ("b", 3, 9))
    costs = {m.key(): json.loads(m.value()) for m in tried.read(topology.changelog_topic("costs"))}
    assert costs == {row(1): {"cost": 11}, row(2): {"cost": 40}, row(3): {"cost": 99}, row(4): {"cost": 160}}
    brokers = Brokers(tried.bootstrap_servers)
    cluster = KafkaCluster(brokers)
    assert named("products") not in cluster.committed_offsets(topology.application_id)
    rows = recount(tried.spark, tried.pipeline, cluster, brokers)
    assert [row for row in rows if not row.agrees] == []
    assert any(topology.changelog_topic("costs") in row.subject for row in rows)


@pytest.mark.soak
@restored
def test_a_micro_batch_that_meets_other_rows_when_it_runs_again_writes_nothing_twice(tried: Tried) -> None:
    topology, named = tried.topology, tried.named
    products = topology.global_table(named("products"), value=Json("price bigint"))
    topology.stream(named("sales"), value=SALE).join(products, {"price": "table.price"}, key="shop").to(named("priced"))
    tried.create_topics()
    tried.restoring = False
    tried.produce("products", [("x", {"price": 1}, 1)])
    tried.produce("sales", [("a", sale("x", 1), 1), ("b", sale("x", 1), 2), ("c", sale("y", 1), 2)])
    tried.drain()
    tried.run_last_again(1)
    tried.produce("products", [("x", {"price": 2}, 1), ("y", {"price": 3}, 1)])
    tried.produce("sales", [("d", sale("x", 2), 3)])
    tried.drain()
    assert tried.records("priced") == [("a", {"price": 1}), ("b", {"price": 1}), ("d", {"price": 2})]


@restored
def test_a_state_behind_a_global_table_is_that_of_its_changelog_when_a_micro_batch_runs_again(tried: Tried) -> None:
    """The micro-batch is committed, and Spark does not know it. Its state would be made of other rows."""
    topology, named = tried.topology, tried.named
    products = topology.global_table(named("products"), value=Json("price bigint"))
    priced = topology.stream(named("sales"), value=SALE).join(products, {"price": "table.price"}, key="shop")
    priced.group_by_key().aggregate({"spent": "sum(price)"}, store="spent")
    tried.create_topics()
    tried.restoring = False
    tried.produce("products", [("x", {"price": 1}, 1)])
    tried.produce("sales", [("a", sale("x", 1), 1), ("b", sale("x", 1), 2), ("a", sale("x", 1), 3)])
    tried.drain()
    tried.run_last_again(1)
    tried.produce("products", [("x", {"price": 100}, 1)])
    tried.produce("sales", [("a", sale("x", 2), 4)])
    tried.drain()
    assert tried.store("spent") == {"a": {"spent": 102}, "b": {"spent": 1}}
    assert any("may give other results now" in line for line in tried.lines), "\n".join(tried.lines)
    tried.run_last_again(1)
    tried.produce("sales", [("b", sale("x", 2), 5)])
    tried.drain()
    assert tried.store("spent") == {"a": {"spent": 102}, "b": {"spent": 101}}


@pytest.mark.soak
def test_two_streams_meet_within_a_window(tried: Tried) -> None:
    """Each two records of a key that are near in time, once, whichever comes first and in whichever micro-batch."""
    topology, named = tried.topology, tried.named
    within = JoinWindows("1 minute", after="2 minutes", grace="1 hour")
    returns = topology.stream(named("returns"), value=Json("amount bigint, at timestamp"), key="shop")
    (
        topology.stream(named("sales"), value=SALE)
        .filter("amount is not null")
        .select_key("shop")
        .join(returns, {"sold": "amount", "returned": "other.amount", "at": "other.at"}, within=within, store="met")
        .to(named("met"))
    )
    tried.create_topics()
    moment = "2026-01-01T00:00:00.000Z"
    batches = [
        [("sales", [(sale("x", 1), 0), (sale("x", 2), 0), (sale("y", 3), 0)])],
        [("returns", [("x", 1, 60), ("x", 2, 121), ("y", 3, -61), ("y", 4, 120), ("x", 5, 0)])],
        [("sales", [(sale("x", 6), 121), (sale("x", 7), 122), (sale(None, 8), 0), (sale("y", None), 120)])],
        [("returns", [("x", 9, 0), (None, 9, 0), ("y", None, 0)]), ("sales", [(sale("x", 10), 5000)])],
    ]
    sold: list[tuple[str, int, int]] = []
    returned: list[tuple[str, int, int]] = []
    for batch in batches:
        for topic, rows in batch:
            if topic == "sales":
                tried.produce(topic, [("k", value, at) for value, at in rows])
                sold += [(value["shop"], value["amount"], at) for value, at in rows if None not in value.values()]
            else:
                made = [(key, None if n is None else {"amount": n, "at": moment}, at) for key, n, at in rows]
                tried.produce(topic, made)
                returned += [row for row in rows if None not in row]
        tried.drain()
    pairs = [
        (max(at, other_at), shop, {"sold": amount, "returned": other, "at": moment})
        for shop, amount, at in sold
        for other_shop, other, other_at in returned
        if shop == other_shop and at - 60 <= other_at <= at + 120
    ]
    assert len(pairs) > 6
    found = [
        ((m.timestamp()[1] - EPOCH) // 1000, m.key().decode(), json.loads(m.value())) for m in tried.read(named("met"))
    ]
    assert sorted(found, key=repr) == sorted(pairs, key=repr)
    stored = tried.read(topology.changelog_topic("met-this-join-store"))
    numbered = Counter((shop, at) for shop, _, at in sold)
    assert {m.key() for m in stored} == {
        shop.encode() + (EPOCH + 1000 * at).to_bytes(8, "big") + number.to_bytes(4, "big")
        for (shop, at), count in numbered.items()
        for number in range(1, count + 1)
    }
    for message in stored:
        assert message.partition() == partition_for_key(message.key()[:1], 2)
    assert tried.dead_letters() == [("sales", "shop is missing")]
    before = len(found)
    tried.run_last_again(max(group.id for group in topology.subtopologies if group.processors_with(StreamJoin)))
    tried.produce("returns", [("x", {"amount": 11, "at": moment}, 5001)])
    tried.drain()
    assert len(tried.read(named("met"))) == before + 1


@pytest.mark.soak
def test_what_meets_no_record_of_the_other_stream_is_passed_when_its_window_is_over(tried: Tried) -> None:
    """What waits is restored with its value, which an operation has made, and in the order in which it came."""
    topology, named = tried.topology, tried.named
    within = JoinWindows("1 minute", after="2 minutes", grace="1 minute")
    returns = topology.stream(named("returns"), value=Json("amount bigint"))
    (
        topology.stream(named("sales"), value=SALE)
        .map_values({"sold": "amount"})
        .outer_join(returns, {"sold": "sold", "returned": "other.amount"}, within=within, store="met")
        .to(named("met"))
    )
    tried.create_topics()
    tried.produce("sales", [("x", sale("a", 1), 0), ("x", sale("a", 2), 0), ("x", sale("a", 3), 100)])
    tried.drain()
    shared = topology.changelog_topic("met-outer-shared-join-store")
    stored = {m.key(): m.value() for m in tried.read(shared)}
    values = [(length := len(value)).to_bytes(4, "big") + value for value in (b'\1{"sold":1}', b'\1{"sold":2}')]
    assert length == 11
    assert stored[EPOCH.to_bytes(8, "big") + b"\1x"] == b"\1" + (2).to_bytes(4, "big") + b"".join(values)
    tried.produce("returns", [("x", {"amount": 10}, 130), ("x", {"amount": 11}, -130), (None, {"amount": 12}, 130)])
    tried.drain()
    assert {m.key(): m.value() for m in tried.read(shared)}[(EPOCH + 100_000).to_bytes(8, "big") + b"\1x"] is None
    tried.produce("sales", [("x", sale("a", 4), 300)])
    tried.drain()
    found = [
        (m.key(), json.loads(m.value()), (m.timestamp()[1] - EPOCH) // 1000, m.partition())
        for m in tried.read(named("met"))
    ]
    place = partition_for_key(b"x", 2)
    assert [one[:3] for one in found if one[0] is None] == [(None, {"returned": 12}, 130)]
    assert [one for one in found if one[0] is not None] == [
        (b"x", {"sold": 3, "returned": 10}, 130, place),
        (b"x", {"returned": 11}, -130, place),
        (b"x", {"sold": 1}, 0, place),
        (b"x", {"sold": 2}, 0, place),
    ]
    waiting = {m.key() for m in tried.read(shared) if m.key()[8:] == b"\1x"}
    assert {(EPOCH + 1000 * at).to_bytes(8, "big") + b"\1x" for at in (0, 100, 300)} == waiting
    assert tried.dead_letters() == []


@pytest.mark.soak
def test_an_update_of_either_table_gives_a_joined_value(tried: Tried) -> None:
    """Of an outer join with a store, and of a left join of its result with a third table."""
    topology, named = tried.topology, tried.named
    shops = topology.table(named("shops"), value=Json("city string"), store="shops")
    owners = topology.table(named("owners"), value=Json("owner string"), store="owners")
    rents = topology.table(named("rents"), value=Json("rent decimal(10,2)"), store="rents")
    located = shops.outer_join(owners, {"city": "city", "owner": "table.owner"}, store="located")
    located.to_stream().to(named("located"))
    paid = {"of": "concat(coalesce(owner, '?'), ' in ', city)", "rent": "table.rent"}
    located.left_join(rents, paid).to_stream().to(named("paid"))
    tried.create_topics()
    tried.produce("shops", [("x", {"city": "Lyon"}, 1), ("z", {"city": "Gent"}, 3)])
    tried.produce("owners", [("x", {"owner": "Ann"}, 2), ("z", {"owner": 7}, 2), (b"\xff", {"owner": "Eve"}, 2)])
    tried.drain()
    tried.produce("owners", [("x", {"owner": "Bob"}, 0)])  # late, and it counts all the same
    tried.produce("shops", [("y", None, 5)])  # nothing was there
    tried.produce("rents", [("x", {"rent": 7.5}, 9), ("q", {"rent": 1}, 9)])
    tried.drain()
    tried.produce("shops", [("x", None, 4)])
    tried.produce("owners", [("y", {"owner": "Ida"}, 6)])
    tried.drain()
    tried.run_last_again(0)
    tried.produce("owners", [("x", None, 6), ("y", None, 7)])
    tried.produce("rents", [("x", {"rent": 8}, 10)])
    tried.drain()

    def updates(topic: str) -> dict[str, list[tuple[Any, int]]]:
        found: dict[str, list[tuple[Any, int]]] = {}
        for m in tried.read(topic):
            assert m.partition() == partition_for_key(m.key(), 2)
            value = json.loads(m.value()) if m.value() else None
            found.setdefault(m.key().decode(), []).append((value, (m.timestamp()[1] - EPOCH) // 1000))
        return found

    of_located = {
        "x": [
            ({"city": "Lyon"}, 1),
            ({"city": "Lyon", "owner": "Ann"}, 2),
            ({"city": "Lyon", "owner": "Bob"}, 1),
            ({"owner": "Bob"}, 4),
            (None, 6),
        ],
        "y": [({"owner": "Ida"}, 6), (None, 7)],
        "z": [({"city": "Gent"}, 3)],
    }
    assert updates(named("located")) == updates(topology.changelog_topic("located")) == of_located
    assert updates(named("paid")) == {
        "x": [
            ({"of": "? in Lyon"}, 1),
            ({"of": "Ann in Lyon"}, 2),
            ({"of": "Bob in Lyon"}, 1),
            ({"of": "Bob in Lyon", "rent": 7.5}, 9),
            ({"rent": 7.5}, 9),
            (None, 9),
        ],
        "y": [({}, 6), (None, 7)],
        "z": [({"of": "? in Gent"}, 3)],
    }
    assert tried.dead_letters() == [
        ("owners", "owner is not of type string"),
        ("owners", "the key is not UTF-8"),
    ]


def test_a_value_is_joined_by_its_foreign_key_and_kept_up_to_date_from_either_table(tried: Tried) -> None:
    """The tables have unlike partition counts. The last micro-batch of either sub-topology runs again."""
    topology, named = tried.topology, tried.named
    tried.partition_counts = {named("carriers"): 3}
    carriers = topology.table(named("carriers"), value=Json("name string"), store="carriers")
    shipments = topology.table(named("shipments"), value=Json("carrier string, weight int"), store="shipments")
    tracked = {"weight": "weight", "name": "table.name"}
    joined = shipments.join(carriers, tracked, foreign_key="carrier", store="tracked", name="tracking")
    joined.to_stream().to(named("tracked"))
    tried.create_topics()
    tried.produce("shipments", [(f"s{n}", {"carrier": f"c{n % 2}", "weight": n}, n) for n in range(6)])
    tried.produce("shipments", [("none", {"weight": 7}, 7), ("bad", {"weight": "7"}, 7), (b"\xff", {"weight": 8}, 7)])
    tried.produce("carriers", [("c0", {"name": "Ann"}, 10), ("gone", None, 10)])
    tried.drain()
    assert tried.store("tracked") == {f"s{n}": {"weight": n, "name": "Ann"} for n in (0, 2, 4)}
    tried.run_last_again(0)
    tried.run_last_again(1)
    tried.produce("carriers", [("c0", {"name": "Bob"}, 20), ("c1", {"name": "Eve"}, 21), ("c1", None, 40)])
    tried.produce("shipments", [("s0", {"carrier": "c1", "weight": 0}, 30), ("s2", None, 31)])
    tried.produce(
        "shipments", [("none", {"carrier": "c0", "weight": 7}, 41), ("s1", {"carrier": None, "weight": 1}, 42)]
    )
    tried.drain()
    last = {"s0": None, "s2": None, "s3": None, "s5": None, "s4": {"weight": 4, "name": "Bob"}}
    last["none"] = {"weight": 7, "name": "Bob"}
    assert tried.store("tracked") == last
    updates: dict[str, list[tuple[Any, int]]] = {}
    for m in tried.read(named("tracked")):
        assert m.partition() == partition_for_key(m.key(), 2)
        value = json.loads(m.value()) if m.value() else None
        updates.setdefault(m.key().decode(), []).append((value, (m.timestamp()[1] - EPOCH) // 1000))
    assert updates["s4"] == [({"weight": 4, "name": "Ann"}, 10), ({"weight": 4, "name": "Bob"}, 20)]
    assert updates["s3"] == [({"weight": 3, "name": "Eve"}, 21), (None, 40)]
    assert updates["none"] == [({"weight": 7, "name": "Bob"}, 41)]
    stored = {m.key(): m for m in tried.read(topology.changelog_topic("tracking-subscription-store"))}
    there = {parse_combined_key(key): m.partition() for key, m in stored.items() if m.value() is not None}
    referring = {"c0": ("s4", "none"), "c1": ("s0", "s3", "s5")}
    assert there == {
        (carrier.encode(), shipment.encode()): partition_for_key(carrier.encode(), 3)
        for carrier, those in referring.items()
        for shipment in those
    }
    assert tried.dead_letters() == [("shipments", "the key is not UTF-8"), ("shipments", "weight is not of type int")]


@pytest.mark.soak
@restored
def test_a_deletion_in_a_table_is_neither_joined_nor_aggregated(tried: Tried) -> None:
    """``KStreamKTableJoinProcessor.maybeDropRecord`` and ``KStreamAggregate`` pass over a null value."""
    topology, named = tried.topology, tried.named
    shops = topology.table(named("shops"), value=Json("city string"), key="shop")
    owners = topology.table(named("owners"), value=Json("owner string"), key="shop")
    updates = shops.to_stream()
    updates.left_join(owners).to(named("joined"))
    updates.repartition(name="updates").group_by_key().count(store="updates")
    updates.group_by("'all'").count(store="regrouped")
    updates.to(named("copied"))
    tried.create_topics()
    tried.produce("owners", [("x", {"owner": "Ann"}, 0)])
    tried.produce("shops", [("x", {"city": "Lyon"}, 1), ("x", None, 2), ("y", None, 3)])
    tried.drain()
    assert tried.records("joined") == [("x", {"city": "Lyon", "owner": "Ann"})]
    assert tried.records("copied") == [("x", None), ("x", {"city": "Lyon"}), ("y", None)]
    counted = {
        store: {m.key(): int.from_bytes(m.value(), "big") for m in tried.read(topology.changelog_topic(store))}
        for store in ("updates", "regrouped")
    }
    assert counted == {"updates": {b"x": 1}, "regrouped": {b"all": 1}}
    assert tried.dead_letters() == []


@restored
@pytest.mark.soak
def test_many_rows_of_a_key_wait_for_the_stream(tried: Tried) -> None:
    """The table is read long before the two streams, in a micro-batch of its own, and each record meets its row."""
    topology, named = tried.topology, tried.named
    amount = Json("amount bigint")
    shops = topology.table(named("shops"), value=Json("city string"), key="shop")
    both = {"amount": "amount", "city": "table.city"}
    topology.stream(named("sales"), value=amount).join(shops, both).to(named("sold"))
    topology.stream(named("returns"), value=amount).left_join(shops, both).to(named("returned"))
    tried.create_topics()
    tried.produce("shops", [("x", {"city": f"c{n}"}, 10 * n) for n in range(50)])
    tried.drain()
    tried.produce("sales", [("x", {"amount": n}, n) for n in range(500)])
    tried.drain()
    tried.produce("returns", [("x", {"amount": n}, n) for n in range(-5, 500, 5)])
    tried.drain()
    sold = [("x", {"amount": n, "city": f"c{n // 10}"}) for n in range(500)]
    assert tried.records("sold") == sorted(sold, key=repr)
    returned = [("x", {"amount": n} | ({"city": f"c{n // 10}"} if n >= 0 else {})) for n in range(-5, 500, 5)]
    assert tried.records("returned") == sorted(returned, key=repr)


@pytest.mark.soak
@restored
def test_groups_of_a_table_and_filters_of_aggregates_go_on_from_what_there_was(tried: Tried) -> None:
    """Each state that has old values is restored from the store of its table."""
    topology, named = tried.topology, tried.named
    shops = topology.table(named("shops"), value=Json("city string, size bigint"), store="shops")
    grouped = shops.filter("size > 0").map_values({"city": "city", "size": "2 * size"}).group_by("city", name="by-city")
    grouped.count(store="shops-per-city").filter("count > 0").to_stream().to(named("cities"))
    grouped.aggregate(
        lambda: {"total": 0},
        lambda city, shop, total: {"total": total.total + shop.size},
        lambda city, shop, total: {"total": total.total - shop.size},
        schema="total bigint",
        store="sizes",
    )
    sales = topology.stream(named("sales"), value=SALE).group_by_key()
    counts = sales.aggregate({"sold": "sum(amount)", "mean": "avg(amount)"}, store="sold")
    counts.filter("mean > 2").to_stream().to(named("often"))
    counts.map_values({"sold": "sold"}).group_by("sold").count(store="keys-per-sum")
    tried.create_topics()
    tried.produce("shops", [("a", {"city": "Lyon", "size": 1}, 1), ("b", {"city": "Lyon", "size": 2}, 2)])
    tried.produce("shops", [("c", {"city": "Paris", "size": 4}, 3), ("d", {"city": "Nice", "size": 0}, 4)])
    tried.produce("sales", [("x", sale("x", 2), 1), ("y", sale("y", 2), 2), ("z", sale("z", 9), 3)])
    tried.drain()
    tried.produce("shops", [("a", {"city": "Paris", "size": 3}, 5), ("b", None, 6), ("none", None, 7)])
    tried.produce("sales", [("x", sale("x", 4), 4), ("z", sale("z", -8), 5), ("y", sale("y", 0), 6)])
    tried.drain()
    tried.produce("shops", [("a", {"city": "Paris", "size": 5}, 8), ("d", {"city": "Nice", "size": 1}, 9)])
    tried.drain()

    def counted(store: str) -> dict[bytes, int]:
        return {m.key(): int.from_bytes(m.value(), "big") for m in tried.read(topology.changelog_topic(store))}

    assert counted("shops-per-city") == {b"Lyon": 0, b"Paris": 2, b"Nice": 1}
    assert tried.store("sizes") == {"Lyon": {"total": 0}, "Paris": {"total": 18}, "Nice": {"total": 2}}
    cities = {m.key(): m.value() for m in tried.read(named("cities"))}
    assert cities == {b"Lyon": None, b"Paris": big_endian(2), b"Nice": big_endian(1)}
    assert counted("keys-per-sum") == {b"2": 1, b"6": 1, b"9": 0, b"1": 1}
    often = [(key, value and value["mean"]) for key, value in tried.records("often")]
    assert often == [("x", 3.0), ("z", None), ("z", 9.0)]
    assert tried.dead_letters() == []


@pytest.mark.soak
@restored
def test_functions_of_tables_and_of_keys_go_on_from_what_there_was(tried: Tried) -> None:
    """The values before are read from the stores, and the functions are called again. The recount calls them, too."""
    topology, named = tried.topology, tried.named
    shops = topology.table(named("shops"), value=Json("city string, size bigint"), store="shops")
    large = shops.filter(lambda shop: shop.size > 0)
    doubled = large.map_values(
        lambda key, shop: {"city": shop.city, "size": 2 * shop.size}, schema="city string, size bigint"
    )
    doubled.group_by(lambda shop: shop.city, name="by-city").count(store="shops-per-city")
    sales = topology.stream(named("sales"), value=SALE)
    sales.group_by(lambda each: each.shop.upper(), name="by-shop").aggregate({"total": "sum(amount)"}, store="totals")
    sales.select_key(lambda key, each: each.amount, key_serde=Long()).to(named("out"))
    tried.create_topics()
    tried.produce("shops", [("a", {"city": "Lyon", "size": 1}, 1), ("b", {"city": "Lyon", "size": 2}, 2)])
    tried.produce("sales", [("x", sale("x", 2), 1), ("y", sale("y", 2), 2)])
    tried.drain()
    tried.produce("shops", [("a", {"city": "Paris", "size": 3}, 5), ("b", {"city": "Nice"}, 6), ("c", None, 7)])
    tried.produce("sales", [("x", sale("x", 5), 3), ("z", {"amount": 7}, 4)])
    tried.drain()
    counted = {m.key(): m.value() for m in tried.read(topology.changelog_topic("shops-per-city"))}
    assert counted == {b"Lyon": big_endian(1), b"Paris": big_endian(1)}
    assert tried.store("totals") == {"X": {"total": 7}, "Y": {"total": 2}}
    assert sorted(m.key() for m in tried.read(named("out"))) == [big_endian(n) for n in (2, 2, 5, 7)]
    assert len(tried.dead_letters()) == 2  # no size, and no shop
    assert_recounted(tried)


@pytest.mark.soak
def test_a_filter_of_windows_goes_on_from_what_there_was(tried: Tried) -> None:
    """Of time windows and of sessions, restored from their stores, which have no other changelog beside them."""
    topology, named = tried.topology, tried.named
    sales = topology.stream(named("sales"), value=SALE).group_by_key()
    halves = sales.windowed_by(CustomWindows(first_half, size="1 minute", grace="1 hour")).count(store="halves")
    pairs = halves.filter("count = 2 and unix_millis(record.window.end) % 60000 = 30000")
    pairs.to_stream().to(named("pairs"))
    sessions = sales.windowed_by(SessionWindows("20 seconds", grace="1 hour"))
    means = sessions.aggregate({"mean": "avg(amount)"}, store="means").map_values({"double": "2 * mean"})
    means.filter_not("double <= 4").to_stream().to(named("large"))
    tried.create_topics()
    sold = [
        [("k", 4, 0), ("k", 4, 10), ("l", 1, 1), ("m", 9, 100)],
        [("k", 2, 15), ("l", 1, 5), ("m", 9, 101), ("n", 3, 7)],
        [("k", 0, 20), ("k", 0, 29), ("l", 9, 12), ("m", 9, 60), ("m", 0, 80)],
        [("k", 9, 900), ("m", 9, 102)],
    ]
    known: list[tuple[str, int, int]] = []
    expected = {topic: Counter[tuple[bytes, float | None]]() for topic in ("pairs", "large")}
    for records in sold:
        before = {"pairs": halves_of(known), "large": sessions_of(known)}
        known += records
        after = {"pairs": halves_of(known), "large": sessions_of(known)}
        expected["pairs"] += passed(before["pairs"], after["pairs"], lambda count: count == 2)
        expected["large"] += passed(before["large"], after["large"], lambda double: double > 4)
        tried.produce("sales", [(key, sale("x", amount), second) for key, amount, second in records])
        tried.drain()
        if not tried.restoring:
            tried.run_last_again(0)
            tried.drain()
    pairs_written = [(m.key(), m.value() and int.from_bytes(m.value(), "big")) for m in tried.read(named("pairs"))]
    large_written = [(m.key(), m.value() and json.loads(m.value())["double"]) for m in tried.read(named("large"))]
    assert Counter(pairs_written) == expected["pairs"]
    assert Counter(large_written) == expected["large"]
    assert {None, 2} == {value for _, value in expected["pairs"]}
    assert {store for group in topology.subtopologies for store in group.stores} == {"halves", "means"}
    assert tried.dead_letters() == []
    assert_recounted(tried)


@pytest.mark.soak
def test_a_filter_and_groups_of_windows_of_functions_go_on_from_what_there_was(tried: Tried) -> None:
    """Of days, which a function deletes at times."""
    topology, named = tried.topology, tried.named
    sales = topology.stream(named("sales"), value=SALE).group_by_key()
    days = sales.windowed_by(CalendarWindows("1 day", time_zone="Asia/Kolkata", grace="2 days"))
    sums = days.aggregate(
        lambda: {"total": 0},
        lambda key, sold, total: {"total": total.total + sold.amount} if sold.amount < 90 else None,
        schema="total bigint",
        store="sums",
    )
    sums.filter("total > 4").to_stream().to(named("large"))
    sums.group_by("if(total % 2 = 0, 'even', 'odd')", name="by-parity").count(store="days-per-parity")
    tried.create_topics()
    sold = [
        [("k", 4, 0), ("k", 1, -86_400), ("l", 5, 1), ("m", 99, 2)],
        [("k", 2, 10), ("k", 5, -86_399), ("l", 99, 3), ("n", 3, 7)],
        [("k", 1, 11), ("l", 2, 4), ("m", 7, 5), ("k", 99, -86_398), ("k", 1, -86_397)],
        [("l", 4, 6), ("k", 7, -86_396)],
    ]
    totals: dict[bytes, tuple[int, ...]] = {}
    expected = Counter[tuple[bytes, float | None]]()
    zone = ZoneInfo("Asia/Kolkata")
    for records in sold:
        before = dict(totals)
        for key, amount, second in records:
            date = datetime.fromtimestamp(EPOCH / 1000 + second, zone).date()
            midnight = round(datetime.combine(date, time(), zone).timestamp()) * 1000
            day = key.encode() + midnight.to_bytes(8, "big")
            (total,) = totals.pop(day, (0,))
            if amount < 90:
                totals[day] = (total + amount,)
        expected += passed(before, totals, lambda total: total > 4)
        tried.produce("sales", [(key, sale("x", amount), second) for key, amount, second in records])
        tried.drain()
    written = [(m.key(), m.value() and json.loads(m.value())["total"]) for m in tried.read(named("large"))]
    assert Counter(written) == expected
    parities = Counter(b"odd" if total % 2 else b"even" for (total,) in totals.values())
    counted = {m.key(): m.value() for m in tried.read(topology.changelog_topic("days-per-parity"))}
    assert counted == {parity: big_endian(parities[parity]) for parity in (b"odd", b"even")}
    assert tried.dead_letters() == []


def passed(
    before: Mapping[bytes, tuple[float, ...]],
    after: Mapping[bytes, tuple[float, ...]],
    is_kept: Callable[[float], bool],
) -> Counter[tuple[bytes, float | None]]:
    """What a filter passes of the windows that have changed, with the last number of each."""
    found = Counter[tuple[bytes, float | None]]()
    for window in {*before, *after}:
        old, new = before.get(window), after.get(window)
        if new != old and new is not None and is_kept(new[-1]):
            found[window, new[-1]] += 1
        elif new != old and old is not None and is_kept(old[-1]):
            found[window, None] += 1
    return found


def halves_of(sold: list[tuple[str, int, int]]) -> dict[bytes, tuple[int, ...]]:
    """By the key of a window the count of its records."""
    found: dict[bytes, tuple[int, ...]] = {}
    for key, _, second in sold:
        for start, _ in first_half(EPOCH + 1000 * second):
            window = key.encode() + start.to_bytes(8, "big")
            found[window] = (found.get(window, (0,))[0] + 1,)
    return found


def sessions_of(sold: list[tuple[str, int, int]]) -> dict[bytes, tuple[float, ...]]:
    """By the key of a session how many records it has, and twice the mean of their amounts."""
    found = {}
    for key in {name for name, *_ in sold}:
        records = sorted((second, amount) for name, amount, second in sold if name == key)
        ends = [n for n in range(1, len(records)) if records[n][0] > records[n - 1][0] + 20]
        for begin, end in pairwise([0, *ends, len(records)]):
            start, last = (EPOCH + 1000 * records[n][0] for n in (begin, end - 1))
            amounts = [amount for _, amount in records[begin:end]]
            window = key.encode() + last.to_bytes(8, "big") + start.to_bytes(8, "big")
            found[window] = len(amounts), 2 * sum(amounts) / len(amounts)
    return found


@pytest.mark.soak
@restored
def test_the_latest_of_merged_topics_is_told_by_time(tried: Tried) -> None:
    topology, named = tried.topology, tried.named
    one = topology.stream(named("one"), value=SALE)
    grouped = one.merge(topology.stream(named("two"), value=SALE)).group_by_key()
    grouped.reduce(store="latest")
    grouped.reduce(max_by="amount", store="greatest")
    grouped.reduce(min_by="amount", store="least")
    tried.create_topics()
    tried.produce("one", [("k", sale(f"one-{n}", 1), n) for n in range(10)] + [("k", sale("null", None), 11)])
    tried.drain()
    tried.produce("two", [("k", sale("two-0", 1), 12)])  # at a lower offset than the last of the other
    tried.drain()
    kept = {store: tried.store(store)["k"]["shop"] for store in ("latest", "greatest", "least")}
    assert kept == {"latest": "two-0", "greatest": "two-0", "least": "two-0"}


@restored
def test_a_late_record_is_joined_with_the_version_of_its_time(tried: Tried) -> None:
    topology, named = tried.topology, tried.named
    prices = topology.table(named("prices"), value=Json("price bigint"), store=Versioned("prices", "1 minute"))
    sales = topology.stream(named("sales"), value=SALE)
    sales.left_join(prices, {"shop": "shop", "price": "table.price"}).to(named("priced"))
    tried.create_topics()
    tried.produce("prices", [("a", {"price": second}, second) for second in (10, 50, 100)] + [("b", {"price": 1}, 0)])
    tried.produce("sales", [("a", sale("at 30", 1), 30), ("a", sale("at 110", 1), 110), ("b", sale("old", 1), 1)])
    tried.drain()
    tried.produce("prices", [("a", {"price": 70}, 70), ("a", None, 105), ("a", {"price": 39}, 39)])
    tried.produce("sales", [("a", sale(f"late at {second}", 1), second) for second in (104, 80, 60, 45, 20)])
    tried.produce("sales", [("a", sale("at 106", 1), 106), ("b", sale("at 0", 1), 0)])
    tried.drain()
    found = {value["shop"]: value.get("price") for _, value in tried.records("priced")}
    # 20 is before the history of the row of 100, and the row of 39 is later than that of the row of 105.
    late = {"late at 104": 100, "late at 80": 70, "late at 60": 50, "late at 45": 10, "late at 20": None}
    assert found == {"at 30": 10, "at 110": 100, "old": 1, **late, "at 106": None, "at 0": 1}
    changelog = [(m.key(), m.timestamp()[1]) for m in tried.read(topology.changelog_topic("prices"))]
    of_a = [(at - EPOCH) // 1000 for key, at in changelog if key == b"a"]
    assert of_a == [10, 50, 100, 70, 105, 39]


@pytest.mark.soak
@restored
def test_records_wait_for_late_rows_until_the_grace_period_is_over(tried: Tried) -> None:
    """What waits is restored from the buffer's changelog, which has the bytes of the library."""
    topology, named = tried.topology, tried.named
    prices = topology.table(named("prices"), value=Json("price bigint"), store=Versioned("prices", "1 minute"))
    sales = topology.stream(named("sales"), value=SALE)
    joined = sales.left_join(prices, {"shop": "shop", "price": "table.price"}, grace="10 seconds", name="priced")
    joined.to(named("out"))
    tried.partition_counts.update(dict.fromkeys((named("prices"), named("sales")), 1))
    tried.create_topics()
    tried.produce("prices", [("a", {"price": 0}, 0), ("a", {"price": 20}, 20)])
    tried.produce("sales", [("a", sale("at 15", 1), 15), ("b", sale("at 20", 1), 20)])
    tried.drain()
    assert tried.records("out") == []
    tried.produce("prices", [("a", {"price": 14}, 14)])
    tried.produce("sales", [("a", sale("at 25", 1), 25), ("a", sale("late", 1), 14), ("a", sale("also at 15", 1), 15)])
    tried.drain()
    tried.produce("prices", [("a", {"price": 24}, 24), ("b", {"price": 7}, 7)])
    tried.produce("sales", [("c", sale("at 40", 1), 40), ("c", None, 90), ("c", sale("at 41", 1), 41)])
    tried.drain()
    written = [(m.key(), json.loads(m.value() or b""), m.timestamp()[1]) for m in tried.read(named("out"))]
    passed = [("a", "at 15", 14, 15), ("a", "late", 14, 14), ("a", "also at 15", 14, 15), ("b", "at 20", 7, 20)]
    passed += [("a", "at 25", 24, 25)]
    assert written == [
        (key.encode(), {"shop": shop, "price": price}, EPOCH + 1000 * second) for key, shop, price, second in passed
    ]
    waiting: dict[BufferKey, bytes | None] = {}
    for message in tried.read(topology.changelog_topic("priced-Buffer")):
        assert not message.headers()
        waiting[BufferKey.parse(message.key() or b"")] = message.value()
    deletions = [key for key, value in waiting.items() if value is None]
    assert {(key.key, (key.timestamp - EPOCH) // 1000) for key in deletions} == {(b"a", 15), (b"b", 20), (b"a", 25)}
    left = {key: BufferedUpdate.parse(value) for key, value in waiting.items() if value is not None}
    assert {key.timestamp - EPOCH: (update.value, update.offset) for key, update in left.items()} == {
        40_000: (json.dumps(sale("at 40", 1)).encode(), 5),
        41_000: (json.dumps(sale("at 41", 1)).encode(), 7),
    }
    assert_recounted(tried)


@restored
def test_a_key_that_is_not_utf8(tried: Tried) -> None:
    """As bytes it is counted like another; where it must be text it is dead-lettered."""
    topology, named = tried.topology, tried.named
    shops = topology.table(named("shops"), value=Json("city string"), key="shop")
    topology.stream(named("sales"), value=SALE).left_join(shops).to(named("joined"))
    topology.stream(named("others"), value=SALE).group_by_key().count(store="counted")
    topology.stream(named("lists"), value=SALE).flat_map("array(1, 2)", key="shop", value={"n": "element"}).to(
        named("flat")
    )
    tried.create_topics()
    tried.produce("shops", [(b"\xff\xfe", {"city": "Lyon"}, 0)])
    tried.produce("sales", [(b"\xff\xfe", sale("x", 1), 1)])
    tried.produce("others", [(b"\xff\xfe", sale("x", 1), 1)])
    tried.produce("lists", [("k", sale("x", 1), 1), ("k", b"no JSON", 2)])
    tried.drain()
    assert tried.records("joined") == []
    assert {m.key(): m.value() for m in tried.read(topology.changelog_topic("counted"))} == {
        b"\xff\xfe": (1).to_bytes(8, "big")
    }
    assert tried.records("flat") == [("x", {"n": 1}), ("x", {"n": 2})]
    assert tried.dead_letters() == [
        ("lists", "the value is not JSON"),
        ("sales", "the key is not UTF-8"),
        ("shops", "the key is not UTF-8"),
    ]


@pytest.mark.soak
def test_an_aggregated_micro_batch_that_is_run_again_writes_nothing_twice(tried: Tried) -> None:
    tried.topology.stream(tried.named("sales"), value=SALE).group_by_key().aggregate(
        {"total": "sum(amount)"}, store="totals"
    ).to_stream().to(tried.named("totals"))
    tried.create_topics()
    tried.produce("sales", [("a", sale("x", 1), 1), (None, sale("x", 1), 2)])
    tried.drain()
    tried.run_last_again(0)
    tried.produce("sales", [("a", sale("x", 2), 3)])
    tried.drain()
    assert [value["total"] for _, value in tried.records("totals")] == [1, 3]
    assert tried.store("totals") == {"a": {"total": 3}}
    assert len(tried.dead_letters()) == 1


@pytest.mark.soak
def test_a_wide_micro_batch_of_a_join_is_committed_in_parts(tried: Tried) -> None:
    """As one transaction it could take longer than one may last, and would be aborted however often it is tried."""
    topology, named = tried.topology, tried.named
    shops = topology.table(named("shops"), value=Json("city string"), key="shop")
    located = topology.stream(named("sales"), value=SALE).left_join(shops, {"amount": "amount", "city": "table.city"})
    each = {"n": "element", "of": "amount", "city": "city"}
    located.flat_map("sequence(1, 4000)", key="cast(amount as string)", value=each).to(named("flat"))
    tried.create_topics()
    tried.produce("shops", [("x", {"city": "Lyon"}, 0)])
    tried.produce("sales", [("x", sale("x", n), n) for n in range(150)])
    tried.drain()
    written = tried.read(named("flat"))
    numbers = Counter(m.key() for m in written)
    assert numbers == {b"%d" % n: 4000 for n in range(150)}
    assert written[-1].value() == b'{"n":4000,"of":%d,"city":"Lyon"}' % int(written[-1].key())
    offsets = KafkaCluster(Brokers(tried.bootstrap_servers)).offsets(named("flat"))
    transactions = sum(extent.last_stable for extent in offsets.values()) - len(written)  # each leaves a marker
    assert transactions > len(offsets)
