"""Python classes with state on real brokers and Spark: their results, their changelog, and what is restored of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.model.processor import KeyValueStore, Processor, Record
from streamplan.model.windows import OnWindowClose, SessionWindows, TimeWindows
from streamplan.serdes.primitive import Long
from streamplan.spark.recount.recount import recount
from streamplan.spark.session import generate_code

from tests.support.soak import soak
from tests.support.tried_topology import EPOCH, SALE, Tried, sale


@pytest.fixture
def tried(
    request: pytest.FixtureRequest, bootstrap_servers: str, tmp_path: Path, spark: SparkSession
) -> Iterator[Tried]:
    """``restoring``: before each micro-batch the state is lost, and built from the changelog."""
    made = Tried(bootstrap_servers, tmp_path, spark, restoring=request.param)
    yield made
    made.delete_topics()


class Shops(Processor):
    """Adds the amounts of a shop, and tells of a shop without a sale for a minute. A sale that is not paid deletes."""

    def process(self, record: Record, store: KeyValueStore) -> Iterator[dict[str, Any]]:
        sold = record.value
        seen = store.get()
        total = sold.amount + (0 if seen is None else seen.total)
        store.put({"total": total, "mean": sold.weight / sold.amount, "due": record.timestamp + timedelta(minutes=1)})
        if not sold.paid:
            store.delete()
        yield {"shop": sold.shop, "total": total, "at": record.timestamp, "silent": False}

    def on_timer(self, time: datetime, store: KeyValueStore) -> Iterator[dict[str, Any]]:
        seen = store.get()
        if seen.total == 13:
            raise RuntimeError("unlucky")
        yield {"shop": f"of {store.key}", "total": seen.total, "at": time, "silent": True}


def stored(second: int | None, total: int, mean: float) -> dict[str, Any]:
    due = {} if second is None else {"due": text_of(second)}
    return {"total": total, "mean": mean, **due}


def text_of(second: int) -> str:
    moment = datetime.fromtimestamp(EPOCH // 1000 + second, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def made(shop: str, total: int, second: int, *, silent: bool = False) -> dict[str, Any]:
    return {"shop": shop, "total": total, "at": text_of(second), "silent": silent}


def disagreeing(tried: Tried) -> list[Any]:
    """A recount by compiled code, as outside of tests. It is stricter than interpreted code: it trusts the schema."""
    cluster = KafkaCluster(Brokers(tried.bootstrap_servers))
    generate_code(tried.spark, whether=True)
    try:
        rows = recount(tried.spark, tried.pipeline, cluster, Brokers(tried.bootstrap_servers))
    finally:
        generate_code(tried.spark, whether=False)
    assert all(row.is_judged for row in rows)
    return [row for row in rows if not row.agrees]


@pytest.mark.parametrize("tried", [True, *soak([False])], indirect=True, ids=["restored", "continued"])
def test_records_timers_and_failures_over_several_micro_batches(tried: Tried) -> None:
    """What fails is a dead letter, and leaves nothing in the store. A key deletes itself, and is deleted by no one."""
    shops = tried.topology.stream(tried.named("sales"), value=SALE).process(
        Shops,
        store="totals",
        state="total bigint, mean double, due timestamp",
        schema="shop string, total bigint, at timestamp, silent boolean",
        timer="due",
        ttl="1 day",
    )
    shops.to(tried.named("out"))
    tried.create_topics()
    tried.produce("sales", [("a", sale("x", 1), 0), ("a", sale("x", 4), 1), ("a", sale("x", 0), 2)])
    tried.produce("sales", [("a", b"no JSON", 3), (None, sale("x", 1), 4), ("a", None, 5)])
    if not tried.restoring:
        tried.drain()
        assert tried.store("totals") == {"a": stored(61, 5, 0.375)}
    tried.produce("sales", [("a", sale("x", 2), 6), ("a", sale("x", 6, paid=True), 70)])
    tried.produce("sales", [("a", sale("y", 1, paid=False), 71), ("a", sale("y", 13), 72)])
    tried.drain()
    tried.produce("sales", [("a", sale("z", 0), 150)])
    tried.drain()
    assert tried.store("totals") == {"a": stored(None, 13, 1.5 / 13)}
    name = f"{__name__}.Shops"
    first = Shops.process.__code__.co_firstlineno
    divided = f"{name}.process raised ZeroDivisionError in line {first + 4}: float division by zero"
    no_value = f"{name}.process raised AttributeError in line {first + 3}: 'NoneType' object has no attribute 'amount'"
    unlucky = f"{name}.on_timer raised RuntimeError in line {Shops.on_timer.__code__.co_firstlineno + 3}: unlucky"
    reasons = [divided, divided, no_value, unlucky, "the key is null", "the value is not JSON"]
    assert tried.dead_letters() == sorted(("sales", reason) for reason in reasons)
    expected = [
        ("a", made("x", 1, 0)),
        ("a", made("x", 5, 1)),
        ("a", made("x", 7, 6)),
        ("a", made("x", 13, 70)),
        ("a", made("y", 14, 71)),
        ("a", made("y", 13, 72)),
    ]
    assert tried.records("out") == sorted(expected, key=repr)
    assert disagreeing(tried) == []


class Ones(Processor):
    """Counts records of a key in a store whose values are of a single field."""

    def process(self, record: Record, store: KeyValueStore) -> list[dict[str, Any]]:
        seen = store.get()
        store.put({"count": 1 if seen is None else seen.count + 1})
        return [{"key": record.key, "count": store.get().count, "place": f"{record.partition}@{record.offset}"}]


@pytest.mark.soak
@pytest.mark.parametrize("tried", [False, True], indirect=True, ids=["continued", "restored"])
def test_keys_of_another_serde(tried: Tried) -> None:
    stream = tried.topology.stream(tried.named("sales"), value=SALE, key_serde=Long())
    ones = stream.process(Ones, store="ones", state="count bigint", schema="key bigint, count bigint, place string")
    ones.filter("count > 1").to(tried.named("out"))
    tried.create_topics()
    key = (5).to_bytes(8, "big")
    tried.produce("sales", [(key, sale("x", 1), 0), (key, sale("x", 1), 1)])
    tried.drain()
    tried.produce("sales", [(key, sale("x", 1), 2), (b"5", sale("x", 1), 3)])
    tried.drain()
    changelog = tried.read(tried.topology.changelog_topic("ones"))
    assert [(m.key(), m.value()) for m in changelog] == [(key, b'{"count":2}'), (key, b'{"count":3}')]
    assert [m.timestamp()[1] for m in changelog] == [EPOCH + 1000, EPOCH + 2000]
    assert [m.key() for m in tried.read(tried.named("out"))] == [key, key]
    assert tried.dead_letters() == [("sales", "the key has 1 bytes; Long has 8")]
    assert disagreeing(tried) == []


def nothing() -> dict[str, Any]:
    return {"total": 0, "shops": []}


def sold(key: str, sale: Any, aggregate: Any) -> dict[str, Any] | None:
    """Depends on the order of the records. A sale that is not paid deletes."""
    mean = sale.weight / sale.amount
    shops = [*aggregate.shops, sale.shop]
    return {"total": aggregate.total + sale.amount, "mean": mean, "shops": shops} if sale.paid is not False else None


def longer(old: Any, new: Any) -> Any:
    """The value of the longer shop. Two of one length delete the key."""
    if len(old.shop) == len(new.shop):
        return None
    return {**vars(new), "at": old.at} if len(new.shop) > len(old.shop) else old


@pytest.mark.soak
@pytest.mark.parametrize("tried", [True, *soak([False])], indirect=True, ids=["restored", "continued"])
def test_aggregates_of_functions_over_several_micro_batches(tried: Tried) -> None:
    """What fails is a dead letter, and changes nothing. A null value is dropped. An aggregate takes the latest time."""
    sales = tried.topology.stream(tried.named("sales"), value=SALE)
    totals = sales.group_by_key().aggregate(
        nothing, sold, schema="total bigint, mean double, shops array<string>", store="totals"
    )
    totals.to_stream().to(tried.named("out"))
    of_shops = sales.filter("shop is not null and record.key is not null")
    named = of_shops.map_values({"shop": "shop", "at": "record.timestamp"}).group_by("record.key", name="again")
    named.reduce(longer, store="longest").to_stream().to(tried.named("kept"))
    tried.create_topics()
    tried.produce("sales", [("a", sale("x", 1), 5), ("a", sale("yy", 4), 1), ("a", sale("x", 0), 2)])
    tried.produce("sales", [("a", None, 5), (None, sale("x", 1), 4)])
    tried.drain()
    first = {"total": 1, "mean": 1.5, "shops": ["x"]}
    second = {"total": 5, "mean": 0.375, "shops": ["x", "yy"]}
    assert tried.store("totals") == {"a": second}
    tried.produce("sales", [("a", sale("zzz", 2), 6), ("b", sale("x", 1), 7)])
    tried.drain()
    third = {"total": 7, "mean": 0.75, "shops": ["x", "yy", "zzz"]}
    assert tried.store("totals") == {"a": third, "b": first}
    tried.produce("sales", [("a", sale("zzz", 1, paid=False), 8), ("b", sale("y", 1), 9)])
    tried.drain()
    fourth = {"total": 2, "mean": 1.5, "shops": ["x", "y"]}
    assert tried.store("totals") == {"a": None, "b": fourth}
    assert tried.store("longest") == {"a": None, "b": None}
    kept = [("a", shop, 5) for shop in ("x", "yy", "yy", "zzz")] + [("b", "x", 7)]
    lengths = [(key, {"shop": shop, "at": text_of(second)}) for key, shop, second in kept]
    assert tried.records("kept") == sorted([*lengths, ("a", None), ("b", None)], key=repr)
    expected = [("a", first), ("a", second), ("a", third), ("a", None), ("b", first), ("b", fourth)]
    assert tried.records("out") == sorted(expected, key=repr)
    line = sold.__code__.co_firstlineno + 2
    divided = f"{__name__}.sold raised ZeroDivisionError in line {line}: float division by zero"
    assert tried.dead_letters() == sorted([("sales", divided), ("sales", "the key is null")])
    assert disagreeing(tried) == []


def paid_for(key: str, sale: Any, aggregate: Any) -> dict[str, Any] | None:
    """Depends on the order of the records. A sale that is not paid deletes. One of nothing fails."""
    shops = [*aggregate.shops, sale.shop]
    mean = sale.weight / sale.amount
    return {"total": aggregate.total + sale.amount, "mean": mean, "shops": shops} if sale.paid else None


def in_turn(old: Any, new: Any) -> dict[str, Any]:
    return {**vars(new), "shop": old.shop + new.shop, "amount": old.amount + new.amount}


def latest_paid(old: Any, new: Any) -> Any:
    return new if new.paid else None


def times_of(key: bytes, times: int) -> tuple[str, list[int]]:
    """A key, and the times behind it in seconds after the epoch of the tests."""
    parts = [key[len(key) - 8 * place :][:8] for place in range(times, 0, -1)]
    return key[: -8 * times].decode(), [(int.from_bytes(part, "big") - EPOCH) // 1000 for part in parts]


@pytest.mark.parametrize("tried", [True, *soak([False])], indirect=True, ids=["restored", "continued"])
def test_a_window_and_a_session_of_functions_go_on(tried: Tried) -> None:
    sales = tried.topology.stream(tried.named("sales"), value=SALE).group_by_key()
    minutes = sales.windowed_by(TimeWindows("1 minute", grace="10 minutes"))
    minutes.aggregate(nothing, paid_for, schema="total bigint, mean double, shops array<string>", store="minutes")
    sales.windowed_by(SessionWindows("45 seconds", grace="10 minutes")).reduce(in_turn, store="sessions")
    tried.create_topics()
    for sold in ([("a", sale("x", 1), 0)], [("a", sale("y", 2), 30), ("a", sale("z", 0), 31)]):
        tried.produce("sales", sold)
        tried.drain()
    minute, session = (tried.read(tried.topology.changelog_topic(store)) for store in ("minutes", "sessions"))
    found = {tuple(times_of(m.key()[:-4], 1)[1]): json.loads(m.value()) for m in minute}
    assert found == {(0,): {"total": 3, "mean": 0.75, "shops": ["x", "y"]}}
    assert {tuple(times_of(m.key(), 2)[1]): m.value() and json.loads(m.value()) for m in session} == {
        (0, 0): None,
        (31, 0): sale("xyz", 3),
    }
    ((topic, reason),) = tried.dead_letters()
    assert topic == "sales"
    assert "paid_for raised ZeroDivisionError" in reason
    assert disagreeing(tried) == []


@pytest.mark.soak
@pytest.mark.parametrize("tried", [True, False], indirect=True, ids=["restored", "continued"])
def test_functions_aggregate_windows_and_sessions(tried: Tried) -> None:
    """What fails is a dead letter, and changes no window. A final result is passed once, also after a restore."""
    sales = tried.topology.stream(tried.named("sales"), value=SALE).group_by_key()
    hopping = sales.windowed_by(TimeWindows("2 minutes", grace="10 minutes", advance="1 minute"))
    hops = hopping.aggregate(nothing, paid_for, schema="total bigint, mean double, shops array<string>", store="hops")
    hops.to_stream().to(tried.named("out"))
    sessions = sales.windowed_by(SessionWindows("45 seconds", grace="10 minutes")).reduce(in_turn, store="sessions")
    sessions.to_stream().to(tried.named("visits"))
    windowed = sales.windowed_by(TimeWindows("1 minute", grace="10 seconds")).emit_strategy(OnWindowClose())
    windowed.reduce(latest_paid, store="final").to_stream().to(tried.named("closed"))
    tried.create_topics()

    def written(topic: str, times: int = 1) -> list[tuple[str, list[int], Any]]:
        found = [(times_of(m.key(), times), m.value()) for m in tried.read(topic)]
        return [(*key, value and json.loads(value)) for key, value in found]

    def last(store: str, times: int = 1) -> dict[tuple[int, ...], Any]:
        found = tried.read(tried.topology.changelog_topic(store))
        keys = [m.key() if times == 2 else m.key()[:-4] for m in found]
        return {
            tuple(times_of(key, times)[1]): m.value() and json.loads(m.value())
            for key, m in zip(keys, found, strict=True)
        }

    def total(amount: int, mean: float, *shops: str) -> dict[str, Any]:
        return {"total": amount, "mean": mean, "shops": [*shops]}

    tried.produce("sales", [("a", sale("x", 1), 0), ("a", sale("yy", 4), 61), ("a", sale("z", 0), 62)])
    tried.drain()
    first = [
        ("a", [-60], total(1, 1.5, "x")),
        ("a", [0], total(5, 0.375, "x", "yy")),
        ("a", [60], total(4, 0.375, "yy")),
    ]
    assert sorted(written(tried.named("out")), key=repr) == sorted(first, key=repr)
    assert last("sessions", 2) == {(0, 0): sale("x", 1), (62, 61): sale("yyz", 4)}
    unpaid = [("a", sale("v", 3, paid=False), 130), ("a", sale("u", 1, paid=False), 131)]
    tried.produce("sales", [("a", sale("w", 2), 30), *unpaid])
    tried.drain()
    assert last("hops") == {(-60,): total(3, 0.75, "x", "w"), (0,): total(7, 0.75, "x", "yy", "w"), (60,): None}
    visits = {(0, 0): None, (62, 61): None, (62, 0): sale("xyyzw", 7), (131, 130): sale("vu", 4, paid=False)}
    assert last("sessions", 2) == visits
    closed = [("a", [0], sale("w", 2)), ("a", [60], sale("z", 0))]
    assert written(tried.named("closed")) == closed
    assert last("final") == {(0,): sale("w", 2), (60,): sale("z", 0), (120,): None}
    tried.produce("sales", [("a", sale("q", 5), 400)])
    tried.drain()
    assert written(tried.named("closed")) == closed, "the window that a function has deleted has no result"
    assert last("hops")[360,] == last("hops")[300,] == total(5, 0.3, "q")
    line = paid_for.__code__.co_firstlineno + 3
    divided = f"{__name__}.paid_for raised ZeroDivisionError in line {line}: float division by zero"
    assert tried.dead_letters() == [("sales", divided)]
    assert disagreeing(tried) == []
