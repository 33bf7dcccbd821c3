"""Processors with several stores on real brokers and Spark: results, changelogs, what is restored, the wall clock."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.model.processor import (
    STREAM_TIME,
    WALL_CLOCK_TIME,
    Cancellable,
    KeyValueStore,
    Processor,
    ProcessorContext,
    Record,
    VersionedKeyValueStore,
    WindowStore,
)
from streamplan.serdes.json import Json
from streamplan.serdes.primitive import Long, String
from streamplan.spark.recount.recount import recount

from tests.support.running_tried import kill_when_written, running
from tests.support.soak import soak
from tests.support.tried_topology import EPOCH, SALE, Tried, sale
from tests.support.waiting import eventually


@pytest.fixture
def tried(
    request: pytest.FixtureRequest, bootstrap_servers: str, tmp_path: Path, spark: SparkSession
) -> Iterator[Tried]:
    """``restoring``: before each micro-batch the state is lost, and built from the changelogs."""
    made = Tried(bootstrap_servers, tmp_path, spark, restoring=getattr(request, "param", False))
    yield made
    made.delete_topics()


class Shops(Processor):
    """Totals of shops, whatever the key of a record, and the sales of the last minute. Once a minute it tells all."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.totals, self.recent = context.get_state_store("totals"), context.get_state_store("recent")
        context.schedule("1 minute", STREAM_TIME, self.tell)

    def process(self, record: Record) -> None:
        sold = record.value
        before = self.totals.get(sold.shop)
        total = sold.amount + (0 if before is None else before.total)
        self.totals.put(sold.shop, {"total": total})
        self.recent.put(sold.amount, total, record.timestamp)
        since = record.timestamp - timedelta(minutes=1)
        sales = [n for _, n in self.recent.fetch(sold.amount, since, record.timestamp)]
        self.context.forward({"text": f"{sold.shop} {sales} {10 // sold.amount}"}, key=sold.shop, headers=[("n", b"1")])
        if not sold.paid:
            self.totals.delete(sold.shop)

    def tell(self, now: datetime) -> None:
        text = ", ".join(f"{shop}={value.total}" for shop, value in self.totals.all())
        self.context.forward({"text": text}, key="all")


TOTALS = KeyValueStore(String(), Json("total bigint"))
RECENT = WindowStore(Long(), Long(), retention="10 minutes", size="1 minute")


def long(n: int) -> bytes:
    return n.to_bytes(8, "big")


def window(amount: int, second: int) -> bytes:
    return long(amount) + long(EPOCH + 1000 * second) + bytes(4)


@pytest.mark.parametrize("tried", [True, *soak([False])], indirect=True, ids=["restored", "continued"])
def test_stores_punctuators_and_failures_over_several_micro_batches(tried: Tried) -> None:
    shops = tried.topology.stream(tried.named("sales"), value=SALE).process(
        Shops, stores={"totals": TOTALS, "recent": RECENT}, schema="text string"
    )
    shops.to(tried.named("out"))
    tried.create_topics()
    tried.produce("sales", [("a", sale("y", 1), 0), ("a", sale("x", 4), 1), ("a", sale("x", 0), 2)])
    tried.drain()
    tried.produce("sales", [("a", sale("x", 4), 30), ("a", sale("z", 5, paid=False), 59)])
    tried.drain()
    tried.run_last_again(0)
    tried.produce("sales", [("a", sale("x", 1), 130)])
    tried.drain()
    found = tried.read(tried.named("out"))
    of_key: dict[str, list[Any]] = {}
    for message in found:
        at = (message.timestamp()[1] - EPOCH) // 1000
        of_key.setdefault(message.key().decode(), []).append((json.loads(message.value())["text"], at))
    assert of_key == {
        "x": [("x [4] 2", 1), ("x [4, 8] 2", 30), ("x [9] 10", 130)],
        "y": [("y [1] 10", 0)],
        "z": [("z [5] 2", 59)],
        "all": [("y=1", 0), ("x=9, y=1", 130)],
    }
    assert {tuple(m.headers() or ()) for m in found if m.key() != b"all"} == {(("n", b"1"),)}
    assert tried.store("totals") == {"y": {"total": 1}, "x": {"total": 9}, "z": None}
    windows = {m.key(): m.value() for m in tried.read(tried.topology.changelog_topic("recent"))}
    assert windows == {
        window(1, 0): long(1), window(4, 1): long(4), window(4, 30): long(8), window(5, 59): long(5),
        window(1, 130): long(9),
    }  # fmt: skip
    ((topic, reason),) = tried.dead_letters()
    assert topic == "sales"
    assert "Shops.process raised ZeroDivisionError" in reason
    brokers = Brokers(tried.bootstrap_servers)
    rows = recount(tried.spark, tried.pipeline, KafkaCluster(brokers), brokers)
    assert {row.subject.partition(":")[0] for row in rows} >= {tried.topology.changelog_topic("totals")}
    assert not any(row.is_judged for row in rows)


class Prices(Processor):
    """Keeps every price, tells the one before, and all that it still knows."""

    def init(self, context: ProcessorContext) -> None:
        self.context, self.prices = context, context.get_state_store("prices")

    def process(self, record: Record) -> None:
        sold, at = record.value, record.timestamp
        before = self.prices.get(sold.shop, at)
        if sold.paid:
            self.prices.put(sold.shop, sold.amount, at)
        else:
            self.prices.delete(sold.shop, at)
        known = " ".join(f"{each.value}@{second(each.timestamp)}" for each in self.prices.versions(sold.shop))
        self.context.forward({"text": f"{before and before.value}: {known}"})


@pytest.mark.parametrize("tried", [True, *soak([False])], indirect=True, ids=["restored", "continued"])
def test_a_versioned_store_has_late_values_in_their_places_also_after_a_restore(tried: Tried) -> None:
    stores = {"prices": VersionedKeyValueStore(String(), Long(), history="10 seconds")}
    sales = tried.topology.stream(tried.named("sales"), value=SALE)
    sales.process(Prices, stores=stores, schema="text string").to(tried.named("out"))
    tried.create_topics()
    tried.produce("sales", [("a", sale("x", 1), 0), ("a", sale("x", 4), 8), ("a", sale("x", 2), 4)])
    tried.drain()
    tried.produce("sales", [("a", sale("x", 9, paid=False), 12), ("a", sale("x", 3), 6), ("a", sale("x", 8), 6)])
    tried.drain()
    tried.run_last_again(0)
    tried.produce("sales", [("a", sale("x", 5), 20), ("a", sale("x", 7), 9), ("a", sale("x", 6), 11)])
    tried.drain()
    texts = [json.loads(message.value())["text"] for message in tried.read(tried.named("out"))]
    assert texts == [
        "None: 1@0", "1: 1@0 4@8", "1: 1@0 2@4 4@8",
        "4: 1@0 2@4 4@8", "2: 1@0 2@4 3@6 4@8", "3: 1@0 2@4 8@6 4@8",
        "None: 4@8 5@20", "None: 4@8 5@20", "4: 4@8 6@11 5@20",
    ]  # fmt: skip
    changelog = [
        (message.value() and int.from_bytes(message.value(), "big"), (message.timestamp()[1] - EPOCH) // 1000)
        for message in tried.read(tried.topology.changelog_topic("prices"))
    ]
    assert changelog == [(1, 0), (4, 8), (2, 4), (None, 12), (3, 6), (8, 6), (5, 20), (7, 9), (6, 11)]
    assert tried.dead_letters() == []


class Reads(Processor):
    """Tells what the table and the count have, and how often it was called."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.names, self.counts = context.get_state_store("names"), context.get_state_store("counts")
        self.calls = context.get_state_store("calls")

    def process(self, record: Record) -> None:
        self.calls.put("calls", 1 + (self.calls.get("calls") or 0))
        names = [f"{key}={of.value.shop}@{second(of.timestamp)}" for key, of in self.names.all()]
        counts = [f"{key}={of.value.count}@{second(of.timestamp)}" for key, of in self.counts.all()]
        text = f"{self.calls.get('calls')}: {' '.join(names)}, {' '.join(counts)}"
        self.context.forward({"text": text})


def second(moment: datetime) -> int:
    """Of its minute. A worker has imported this module at another time, and so has another EPOCH."""
    return round(moment.timestamp()) % 60


@pytest.mark.parametrize("tried", [True, *soak([False])], indirect=True, ids=["restored", "continued"])
def test_the_stores_of_a_table_and_of_a_count_are_read(tried: Tried) -> None:
    tried.partition_counts = dict.fromkeys((tried.named("names"), tried.named("sales"), tried.named("out")), 1)
    names = tried.topology.table(tried.named("names"), value=SALE, store="names")
    sales = tried.topology.stream(tried.named("sales"), value=SALE)
    counts = sales.group_by_key().count(store="counts")
    stores = {"names": names, "counts": counts, "calls": KeyValueStore(String(), Long())}
    sales.process(Reads, stores=stores, schema="text string").to(tried.named("out"))
    tried.create_topics()
    tried.produce("names", [("a", sale("x", 1), 0), ("b", sale("y", 1), 1), ("a", sale("z", 1), 2)])
    tried.produce("sales", [("k", sale("-", 1), 3)])
    tried.drain()
    tried.produce("names", [("b", None, 4)])
    tried.produce("sales", [("l", sale("-", 1), 5), ("k", sale("-", 1), 6)])
    tried.drain()
    expected = ["1: a=z@2 b=y@1, k=1@3", "2: a=z@2, k=2@6 l=1@5", "3: a=z@2, k=2@6 l=1@5"]
    if not tried.restoring:
        tried.run_last_again(0)
        tried.produce("sales", [("l", sale("-", 1), 8)])
        tried.drain()
        expected.append("4: a=z@2, k=2@6 l=2@8")
    texts = [json.loads(message.value())["text"] for message in tried.read(tried.named("out"))]
    assert texts == expected
    assert tried.dead_letters() == []


class ReadsGlobal(Processor):
    """Tells what a global table has. It has a store of its own where it is declared with one."""

    def init(self, context: ProcessorContext) -> None:
        self.context, self.prices = context, context.get_state_store("prices")

    def process(self, record: Record) -> None:
        self.tell("")

    def tell(self, calls: str) -> None:
        prices = " ".join(f"{key}={of.value.amount}@{second(of.timestamp)}" for key, of in self.prices.all())
        self.context.forward({"text": f"{calls}{prices}"})


class CountsAndReadsGlobal(ReadsGlobal):
    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.calls = context.get_state_store("calls")

    def process(self, record: Record) -> None:
        self.calls.put("calls", 1 + (self.calls.get("calls") or 0))
        self.tell(f"{self.calls.get('calls')}: ")


@pytest.mark.soak
@pytest.mark.parametrize("tried", [True, False], indirect=True, ids=["restored", "continued"])
def test_a_global_table_is_read_with_and_without_a_store_of_the_class(tried: Tried) -> None:
    topics = ("prices", "sales", "out", "counted")
    tried.partition_counts = {**dict.fromkeys(map(tried.named, topics), 1), tried.named("prices"): 2}
    prices = tried.topology.global_table(tried.named("prices"), value=SALE, store="prices")
    sales = tried.topology.stream(tried.named("sales"), value=SALE)
    sales.process(ReadsGlobal, stores={"prices": prices}, schema="text string").to(tried.named("out"))
    stores = {"prices": prices, "calls": KeyValueStore(String(), Long())}
    sales.process(CountsAndReadsGlobal, stores=stores, schema="text string").to(tried.named("counted"))
    tried.create_topics()
    tried.produce("prices", [("b", sale("x", 1), 0), ("a", sale("y", 2), 1), ("a", sale("z", 3), 2)])
    tried.produce("sales", [("k", sale("-", 1), 3)])
    tried.drain()
    tried.produce("prices", [("b", None, 9), ("c", sale("z", 4), 5)])
    tried.run_last_again(1)  # which meets other rows, and writes nothing twice
    tried.produce("sales", [("k", sale("-", 1), 6)])
    tried.drain()
    texts = [
        [json.loads(message.value())["text"] for message in tried.read(tried.named(topic))]
        for topic in ("out", "counted")
    ]
    assert texts == [["a=3@2 b=1@0", "a=3@2 c=4@5"], ["1: a=3@2 b=1@0", "2: a=3@2 c=4@5"]]
    assert tried.dead_letters() == []
    brokers = Brokers(tried.bootstrap_servers)
    rows = recount(tried.spark, tried.pipeline, KafkaCluster(brokers), brokers)
    assert rows
    assert [row for row in rows if row.is_judged] == []


class ReadsResults(Processor):
    """Tells what the tables have that a reducer, a stream and Python functions have made."""

    def init(self, context: ProcessorContext) -> None:
        self.context, self.tables = context, [context.get_state_store(name) for name in ("last", "latest", "sums")]
        self.calls = context.get_state_store("calls")

    def process(self, record: Record) -> None:
        self.calls.put("calls", 1 + (self.calls.get("calls") or 0))
        found = [" ".join(f"{key}={of.value.amount}" for key, of in table.all()) for table in self.tables]
        self.context.forward({"text": f"{self.calls.get('calls')}: {', '.join(found)}"})


def added(key: str, sold: Any, total: Any) -> dict[str, int]:
    return {"amount": total.amount + sold.amount}


@pytest.mark.soak
@pytest.mark.parametrize("tried", [True, False], indirect=True, ids=["restored", "continued"])
def test_the_stores_of_reduce_of_to_table_and_of_functions_are_read(tried: Tried) -> None:
    tried.partition_counts = dict.fromkeys((tried.named("sales"), tried.named("out")), 1)
    sales = tried.topology.stream(tried.named("sales"), value=SALE)
    stores = {
        "last": sales.group_by_key().reduce(store="last"),
        "latest": sales.to_table(store="latest"),
        "sums": sales.group_by_key().aggregate(lambda: {"amount": 0}, added, schema="amount bigint", store="sums"),
        "calls": KeyValueStore(String(), Long()),
    }
    sales.process(ReadsResults, stores=stores, schema="text string").to(tried.named("out"))
    tried.create_topics()
    tried.produce("sales", [("a", sale("x", 1), 0)])
    tried.drain()
    tried.produce("sales", [("b", sale("x", 5), 1)])
    tried.drain()
    tried.run_last_again(0)
    tried.produce("sales", [("a", sale("x", 3), 2)])
    tried.drain()
    texts = [json.loads(message.value())["text"] for message in tried.read(tried.named("out"))]
    assert texts == ["1: a=1, a=1, a=1", "2: a=1 b=5, a=1 b=5, a=1 b=5", "3: a=3 b=5, a=3 b=5, a=4 b=5"]
    assert tried.dead_letters() == []


class Reminders(Processor):
    """Has a punctuator of init. Records cancel it, and schedule another one."""

    reminder: Cancellable | None = None

    def init(self, context: ProcessorContext) -> None:
        self.context, self.calls = context, context.get_state_store("calls")
        self.regular = context.schedule("1 minute", STREAM_TIME, lambda now: self.count("regular"))

    def process(self, record: Record) -> None:
        self.count(record.value.shop)
        match record.value.shop:
            case "begin":
                self.regular.cancel()
                self.reminder = self.context.schedule("1 minute", STREAM_TIME, self.remind)
            case "end" if self.reminder is not None:
                self.reminder.cancel()

    def remind(self, now: datetime) -> None:
        self.count("remind")

    def count(self, name: str) -> None:
        n = 1 + (self.calls.get(name) or 0)
        self.calls.put(name, n)
        self.context.forward({"n": n}, key=name)


@pytest.mark.soak
@pytest.mark.parametrize("tried", [True, False], indirect=True, ids=["restored", "continued"])
def test_what_is_scheduled_and_cancelled_goes_on_with_the_checkpoint_and_init_schedules_after_a_restore(
    tried: Tried,
) -> None:
    """Each ``drain`` is a start. Before the second one, Kafka has the last micro-batch, and Spark has not."""
    stores = {"calls": KeyValueStore(String(), Long())}
    calls = tried.topology.stream(tried.named("sales"), value=SALE).process(Reminders, stores=stores, schema="n bigint")
    calls.to(tried.named("out"))
    tried.create_topics()
    made = []
    for shop, second in (("begin", 0), ("go on", 70), ("end", 130), ("go on", 200)):
        tried.produce("sales", [("a", sale(shop, 1), second)])
        tried.drain()
        if not tried.restoring:
            tried.run_last_again(0)
    for message in tried.read(tried.named("out")):
        at = (message.timestamp()[1] - EPOCH) // 1000
        made.append((message.key().decode(), json.loads(message.value())["n"], at))
    of_punctuators = [("remind", 1, 0), ("remind", 2, 70)]
    if tried.restoring:
        of_punctuators = [("remind", 1, 0), ("regular", 1, 70), ("regular", 2, 130), ("regular", 3, 200)]
    of_records = [("begin", 1, 0), ("go on", 1, 70), ("end", 1, 130), ("go on", 2, 200)]
    assert sorted(made) == sorted([*of_records, *of_punctuators])
    assert tried.dead_letters() == []


class Clock(Processor):
    """Counts the calls of its punctuator."""

    def init(self, context: ProcessorContext) -> None:
        self.context, self.calls = context, context.get_state_store("calls")
        self.of_init = context.schedule("1 second", WALL_CLOCK_TIME, self.call)

    def process(self, record: Record) -> None: ...

    def call(self, now: datetime) -> None:
        n = 1 + (self.calls.get("calls") or 0)
        self.calls.put("calls", n)
        self.context.forward({"n": n}, key=self.context.task_id)


class LateClock(Clock):
    """Schedules the punctuator when it has a record."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.of_init.cancel()

    def process(self, record: Record) -> None:
        self.context.schedule("1 second", WALL_CLOCK_TIME, self.call)


def calls(tried: Tried) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for message in tried.read(tried.named("out")):
        found.setdefault(message.key().decode(), []).append(json.loads(message.value())["n"])
    return found


@pytest.mark.parametrize(
    ("processor", "restored"),
    [
        pytest.param(Clock, False, id="checkpoint"),
        pytest.param(Clock, True, id="restored", marks=pytest.mark.soak),
        pytest.param(LateClock, False, id="scheduled by a record", marks=pytest.mark.soak),
    ],
)
def test_each_call_by_the_wall_clock_is_exactly_once(
    tried: Tried, monkeypatch: pytest.MonkeyPatch, processor: type[Processor], restored: bool
) -> None:
    """The application dies when what a punctuator has made is committed to Kafka, and not by Spark. Then it goes on."""
    stream = tried.topology.stream(tried.named("sales"), value=SALE)
    stores = {"calls": KeyValueStore(String(), Long())}
    stream.process(processor, stores=stores, schema="n bigint").to(tried.named("out"))
    tried.create_topics()
    tried.produce("sales", [("x", sale("shop", 1), 0)])
    failures: list[Exception] = []
    with monkeypatch.context() as patched:
        kill_when_written(patched, 2)
        with running(tried, failures):
            eventually(lambda: bool(failures), "the kill", 180, evidence=lambda: "\n".join(tried.lines))
    assert "Killed" in str(failures[0])
    if restored:
        shutil.rmtree(tried.checkpoints)
    failures = []
    before = calls(tried)
    with running(tried, failures):
        eventually(
            lambda: bool(failures) or all(len(calls(tried).get(task, [])) > len(of) for task, of in before.items()),
            "a further call of each task",
            180,
        )
    assert failures == []
    assert before
    for of_task in calls(tried).values():
        assert of_task == [*range(1, len(of_task) + 1)]
