"""Linked sub-topologies write what queries apart write, record by record, and both what a plain recount says."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession
from streamplan.kafka.brokers import Brokers
from streamplan.model.linking import links_of
from streamplan.model.partitioner import partition_for_key
from streamplan.model.windows import TimeWindows
from streamplan.serdes.serde import Serde
from streamplan.spark import aggregator, query
from streamplan.spark.deployment import Deployment
from streamplan.spark.linked import link_queries
from streamplan.spark.query import plan_query

from tests.support.checkpoints import checkpoint_of
from tests.support.tried_topology import EPOCH, PARTITIONS, SALE, Tried, sale

Sale = tuple[str | bytes | None, Any, int]
"""Key, value and seconds after the epoch of the tests."""


class BothWays:
    """A topology as two applications: in one the sub-topologies are linked, in the other one they are apart."""

    def __init__(self, tries: Sequence[Tried], monkeypatch: pytest.MonkeyPatch) -> None:
        self.tries = tries
        self.linked = [True, False]
        self._monkeypatch = monkeypatch

    def declare(self, declare: Callable[[Tried], None]) -> None:
        for tried in self.tries:
            declare(tried)
            tried.create_topics()

    def process(self, sales: Sequence[Sale]) -> None:
        """Let both process the sales, and compare all that they have written so far."""
        for tried, linked in zip(self.tries, self.linked, strict=True):
            tried.produce("sales", sales)
            self._monkeypatch.setenv("STREAMPLAN_LINKED", str(linked).lower())
            tried.drain()
            checkpoint = checkpoint_of(tried.checkpoints, tried.name, 1)
            assert ("linked" in json.loads((checkpoint / "streamplan.json").read_text())) == linked
            assert lag(tried) == 0
        linked_ones, others = map(written, self.tries)
        assert linked_ones == others

    def crash(self) -> None:
        """As a kill between the transactions and Spark's own commit: the micro-batch runs again."""
        for tried, linked in zip(self.tries, self.linked, strict=True):
            for subtopology in (1,) if linked else (0, 1):
                tried.run_last_again(subtopology)

    def lose_checkpoints(self) -> None:
        for tried in self.tries:
            shutil.rmtree(tried.checkpoints)

    def change_ways(self) -> None:
        """From now on the others are linked."""
        self.linked.reverse()


@pytest.fixture
def both(
    bootstrap_servers: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Iterator[BothWays]:
    tries = [Tried(bootstrap_servers, tmp_path / name, spark, restoring=False) for name in ("linked", "apart")]
    yield BothWays(tries, monkeypatch)
    for tried in tries:
        tried.delete_topics()


def written(tried: Tried) -> dict[str, Counter[tuple[Any, ...]]]:
    """What each topic has that the application writes, by the name of the topic in the declaration."""
    return {
        spec.name.removeprefix(f"{tried.name}-"): Counter(
            (m.partition(), m.key(), m.value(), m.timestamp()) for m in tried.read(spec.name)
        )
        for spec in tried.pipeline.topics()
        if spec.name not in tried.topology.source_topics
        and spec.name != tried.topology.dead_letter_topic  # their timestamps may be those of writing
    }


def lag(tried: Tried) -> int:
    """Of both sub-topologies."""
    consumer = Consumer({"bootstrap.servers": tried.bootstrap_servers, "group.id": tried.name})
    read = [topic for group in tried.topology.subtopologies for topic in tried.pipeline.source_topics(group)]
    try:
        places = [TopicPartition(topic, partition) for topic in read for partition in range(PARTITIONS)]
        positions = consumer.committed(places, 60)
        return sum(consumer.get_watermark_offsets(at, 60)[1] - at.offset for at in positions)
    finally:
        consumer.close()


FOLDED = {
    "sales": "count(*)",
    "known": "count(amount)",
    "unpaid": "count_if(not paid)",
    "total": "sum(amount * 2)",
    "least": "min(weight)",
    "most": "max(weight)",
    "mean": "avg(amount)",
    "all": "bool_and(paid)",
    "any": "bool_or(paid and record.key = shop)",
    "newest": "max(unix_millis(record.timestamp))",
    "placed": "max(record.partition)",
}

ROUNDS: list[list[Sale]] = [
    [("a", sale("x", 4, 2.5), 1), ("b", sale("y", None, 0.5, False), 2), ("c", sale("x", 9, 1.5), 3), ("d", b"[", 4)],
    [(None, sale("z", 5, 4.0), 0), ("a", sale(None, 1), 7), ("b", sale("x", 3, 9.5, False), 5)],
    [(f"{n}", sale("xyz"[n % 3], n, n / 4, n % 5 > 0), 10 + n) for n in range(60)],
    [("b", sale("y", 1, -1.0), 6), ("c", sale("new", 2, 0.25, False), 90)],
]


def folded(sales: Sequence[Sale]) -> dict[str, dict[str, Any]]:
    """A plain recount."""
    by_shop: dict[str, list[tuple[dict[str, Any], int]]] = {}
    for _, value, second in sales:
        if isinstance(value, dict) and value["shop"] is not None:
            by_shop.setdefault(value["shop"], []).append((value, second))
    found = {}
    for shop, each in by_shop.items():
        amounts = [value["amount"] for value, _ in each if value["amount"] is not None]
        found[shop] = {
            "sales": len(each),
            "known": len(amounts),
            "unpaid": sum(not value["paid"] for value, _ in each),
            "total": sum(amounts) * 2 if amounts else None,
            "least": min(value["weight"] for value, _ in each),
            "most": max(value["weight"] for value, _ in each),
            "mean": sum(amounts) / len(amounts) if amounts else None,
            "all": all(value["paid"] for value, _ in each),
            "any": any(value["paid"] for value, _ in each),
            "newest": max(EPOCH + 1000 * second for _, second in each),
            "placed": partition_for_key(shop.encode(), PARTITIONS),
        }
    return {shop: {name: value for name, value in each.items() if value is not None} for shop, each in found.items()}


def test_aggregates(both: BothWays) -> None:
    """A micro-batch runs again, then each application changes its way, then the state is restored."""

    def declare(tried: Tried) -> None:
        grouped = tried.topology.stream(tried.named("sales"), value=SALE).group_by("shop", name="by-shop")
        grouped.aggregate(FOLDED, store="folded").to_stream().to(tried.named("shown"))

    both.declare(declare)
    for number, sales in enumerate(ROUNDS):
        both.process(sales)
        expected = folded([each for done in ROUNDS[: number + 1] for each in done])
        for tried in both.tries:
            shown = {m.key().decode(): json.loads(m.value()) for m in tried.read(tried.named("shown"))}
            assert {shop: {k: v for k, v in each.items() if v is not None} for shop, each in shown.items()} == expected
        (both.crash, both.change_ways, both.lose_checkpoints, lambda: None)[number]()
    for tried in both.tries:
        reasons = [reason.partition(":")[0] for _, reason in tried.dead_letters()]
        assert reasons == ["shop is missing", "the value is not JSON"]  # each once


@pytest.mark.soak
def test_what_expressions_make_of_records(both: BothWays) -> None:
    """Filters, new values and a key that is computed: a row of each record, also of those that do not pass."""

    def declare(tried: Tried) -> None:
        sales = tried.topology.stream(tried.named("sales"), value=SALE).filter("amount > 1 or amount is null")
        sales = sales.filter_not("weight > 9").map_values({"of": "upper(shop)", "twice": "amount * 2", "paid": "paid"})
        grouped = sales.group_by("concat(of, '-', length(of))", name="by-shop")
        grouped.aggregate({"n": "count(*)", "total": "sum(twice)", "paid": "bool_and(paid)"}, store="folded")

    both.declare(declare)
    passed: dict[str, list[dict[str, Any]]] = {}
    for number, sales in enumerate(ROUNDS):
        both.process(sales)
        for _, value, _ in sales:
            if not isinstance(value, dict) or value["shop"] is None or value["weight"] > 9:
                continue
            if value["amount"] is None or value["amount"] > 1:
                passed.setdefault(f"{value['shop'].upper()}-{len(value['shop'])}", []).append(value)
        expected = {
            key: {
                "n": len(each),
                "total": sum(2 * value["amount"] for value in each if value["amount"] is not None)
                if any(value["amount"] is not None for value in each)
                else None,
                "paid": all(value["paid"] for value in each),
            }
            for key, each in passed.items()
        }
        for tried in both.tries:
            found = tried.store("folded")
            assert {key: {**dict.fromkeys(("n", "total", "paid")), **each} for key, each in found.items()} == expected
        (both.crash, both.change_ways, both.lose_checkpoints, lambda: None)[number]()


LINES: list[list[Sale]] = [
    [("a", sale("to be or not to be", 1), 1), ("b", sale(None, 2), 2), ("c", sale("the", 4), 3), ("d", b"[", 4)],
    [("a", sale(" ".join(f"w{n % 7}-{n % 5}" for n in range(300)), 8), 5), ("b", sale("be", 16), 6)],
    [("b", sale("", 32), 7), ("c", sale("to-be the", 64), 8), ("a", None, 9), ("d", sale("not--yet", 128), 10)],
    [("d", sale("or the-the", 256), 11)],
]


@pytest.mark.soak
def test_words(both: BothWays) -> None:
    """Any number of records of each record, also none."""

    def declare(tried: Tried) -> None:
        lines = tried.topology.stream(tried.named("sales"), value=SALE)
        words = lines.flat_map_values("split(shop, ' ')", {"word": "element", "amount": "amount"})
        parts = words.filter("word != 'the'").flat_map("split(word, '-')", key="'k'", value={"word": "element"})
        parts.filter_not("word = 'the'").group_by("nullif(word, '')", name="by-word").count(store="counted")

    both.declare(declare)
    counted: Counter[bytes] = Counter()
    missing = 0
    for number, sales in enumerate(LINES):
        both.process(sales)
        for _, value, _ in sales:
            line = value["shop"] if isinstance(value, dict) else None
            parts = [part for word in (line or "").split(" ") if word != "the" for part in word.split("-")]
            counted.update(part.encode() for part in parts if part not in ("", "the"))
            missing += parts.count("") if line is not None else 0
        for tried in both.tries:
            changelog = tried.read(tried.topology.changelog_topic("counted"))
            assert {m.key(): int.from_bytes(m.value(), "big") for m in changelog} == counted
        (both.crash, both.change_ways, both.lose_checkpoints, lambda: None)[number]()
    for tried in both.tries:
        reasons = Counter(reason.partition(":")[0] for _, reason in tried.dead_letters())
        assert reasons == {"the key is null": missing, "the value is not JSON": 1}  # each once


@pytest.mark.soak
def test_more_records_of_one_than_a_worker_is_given_at_once(both: BothWays, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are in the order of the words in each partition."""

    def declare(tried: Tried) -> None:
        lines = tried.topology.stream(tried.named("sales"), value=SALE)
        words = lines.flat_map_values("split(shop, ' ')", {"word": "element"})
        words.group_by("word", name="by-word").count(store="counted")

    both.declare(declare)
    tried, _ = both.tries
    words = [f"w{n % 1009}" for n in range(25_000)]
    tried.produce("sales", [("a", sale("x y", 1), 1), ("a", sale(" ".join(words), 2), 2), ("a", sale("y", 3), 3)])
    monkeypatch.setenv("STREAMPLAN_LINKED", "true")
    for _ in range(2):
        tried.drain()
        expected = ["x", "y", *words, "y"]
        changelog = tried.read(tried.topology.changelog_topic("counted"))
        assert {m.key().decode(): int.from_bytes(m.value(), "big") for m in changelog} == Counter(expected)
        repartitioned = tried.read(f"{tried.name}-by-word-repartition")
        for partition in range(PARTITIONS):
            found = [m.key().decode() for m in repartitioned if m.partition() == partition]
            assert found == [word for word in expected if partition_for_key(word.encode(), PARTITIONS) == partition]
        assert lag(tried) == 0
        tried.run_last_again(1)


def splitting(changed: bool) -> Callable[[Any], Iterator[dict[str, str]]]:
    """A function whose code, and not its name, depends on ``changed``."""

    def split(sale: Any) -> Iterator[dict[str, str]]:
        if sale.amount == 16:
            raise ValueError("sixteen")
        yield from ({"word": word.upper() if changed else word} for word in (sale.shop or "").split(" "))

    return split


@pytest.mark.soak
def test_functions_whose_code_changes_between_two_starts(both: BothWays) -> None:
    """A micro-batch that was committed is not made again by the new code: the state is restored."""

    def declare(tried: Tried, *, changed: bool = False) -> None:
        lines = tried.topology.stream(tried.named("sales"), value=SALE).filter(lambda sale: sale.shop != "the")
        words = lines.flat_map_values(splitting(changed), schema="word string").filter_not(lambda each: not each.word)
        words.group_by("word", name="by-word").count(store="counted")

    counted: Counter[bytes] = Counter()
    both.declare(declare)
    for number, sales in enumerate(LINES):
        changed = number > 1
        both.process(sales)
        for _, value, _ in sales:
            if isinstance(value, dict) and value["shop"] not in (None, "the") and value["amount"] != 16:
                words = [word for word in value["shop"].split(" ") if word]
                counted.update((word.upper() if changed else word).encode() for word in words)
        for tried in both.tries:
            changelog = tried.read(tried.topology.changelog_topic("counted"))
            assert {m.key(): int.from_bytes(m.value(), "big") for m in changelog} == counted
        if number == 1:
            both.crash()
            for tried in both.tries:
                tried.declare_anew()
            both.declare(partial(declare, changed=True))
        elif number == 2:
            linked, apart = both.tries
            assert any("may give other results now" in line for line in linked.lines), "\n".join(linked.lines)
            assert not any("begins with" in line for line in apart.lines)
            both.lose_checkpoints()
        for tried in both.tries:
            del tried.lines[:]
    for tried in both.tries:
        no_json, raised = sorted((reason for _, reason in tried.dead_letters()), reverse=True)
        assert no_json.startswith("the value is not JSON")
        assert raised.endswith(": sixteen")


@pytest.mark.soak
def test_fields_of_several_records_of_each(both: BothWays) -> None:
    def declare(tried: Tried) -> None:
        lines = tried.topology.stream(tried.named("sales"), value=SALE)
        words = lines.flat_map("split(shop, ' ')", key="element", value={"n": "amount", "paid": "paid"})
        words.group_by_key(name="by-word").aggregate({"total": "sum(n)", "paid": "bool_and(paid)"}, store="folded")

    both.declare(declare)
    both.process([("a", sale("x y x", 4), 1), ("b", sale("y", 8, paid=False), 2), ("c", sale(None, 16), 3)])
    both.crash()
    both.process([("b", sale("z x", 32), 4)])
    for tried in both.tries:
        folded = {"x": {"total": 40, "paid": True}, "y": {"total": 12, "paid": False}, "z": {"total": 32, "paid": True}}
        assert tried.store("folded") == folded


@pytest.mark.soak
def test_a_null_value_is_written_and_not_counted_and_any_bytes_are_a_key(both: BothWays) -> None:
    def declare(tried: Tried) -> None:
        sales = tried.topology.stream(tried.named("sales"), value=SALE)
        sales.group_by("record.key", name="by-key").count(store="counted")

    both.declare(declare)
    both.process([("a", sale("x", 1), 1), ("a", None, 2), ("b", None, 3), ("c", sale("y", 1), 4), ("a", b"[", 5)])
    both.crash()
    both.process([("b", sale("x", 1), 6), ("c", None, 7), (b"\xff", sale("x", 1), 8), ("a", sale("x", 1), 9)])
    for tried in both.tries:
        changelog = tried.read(tried.topology.changelog_topic("counted"))
        counted = {m.key(): int.from_bytes(m.value(), "big") for m in changelog}
        assert counted == {b"a": 2, b"b": 1, b"c": 1, b"\xff": 1}
        assert [reason.partition(":")[0] for _, reason in tried.dead_letters()] == ["the value is not JSON"]


@pytest.mark.soak
def test_a_null_value_is_counted_in_a_window_as_it_is_in_queries_apart(both: BothWays) -> None:
    def declare(tried: Tried) -> None:
        grouped = tried.topology.stream(tried.named("sales"), value=SALE).group_by("record.key", name="by-key")
        windowed = grouped.windowed_by(TimeWindows("1 minute"))
        windowed.aggregate({"n": "count(*)", "total": "sum(amount)"}, store="folded")

    both.declare(declare)
    both.process([("a", sale("x", 1), 1), ("a", None, 2), ("b", None, 3), ("c", sale("y", 1), 4), ("a", b"[", 5)])
    both.crash()
    both.process([("b", sale("x", 2), 6), ("c", None, 67), ("b", None, 68)])
    for tried in both.tries:
        changelog = tried.read(tried.topology.changelog_topic("folded"))
        folded_of = {(m.key()[:1], m.key()[1:9]): json.loads(m.value()) for m in changelog}
        start, following = ((EPOCH + at).to_bytes(8, "big") for at in (0, 60_000))
        assert folded_of == {
            (b"a", start): {"n": 2, "total": 1},
            (b"b", start): {"n": 2, "total": 2},
            (b"c", start): {"n": 1, "total": 1},
            (b"c", following): {"n": 1},
            (b"b", following): {"n": 1},
        }


def test_what_is_left_in_the_repartition_topic_is_read_first_and_the_state_stays(
    both: BothWays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sub-topology 1 alone reads it. Then the linked ones go on with the state that it has left."""

    def declare(tried: Tried) -> None:
        grouped = tried.topology.stream(tried.named("sales"), value=SALE).group_by("shop", name="by-shop")
        grouped.aggregate({"total": "sum(amount)"}, store="folded")

    both.declare(declare)
    both.change_ways()
    both.process([("a", sale("x", 1), 1), ("b", sale("y", 2), 2)])
    tried, _ = both.tries
    tried.produce("sales", [("c", sale("x", 4), 3), ("d", sale("z", 8), 4)])
    with monkeypatch.context() as patched:
        patched.setattr(aggregator, "in_order_of_runs", lambda topology: topology.subtopologies[:1])
        patched.setenv("STREAMPLAN_LINKED", "false")
        tried.drain()
    assert tried.store("folded") == {"x": {"total": 1}, "y": {"total": 2}}
    del tried.lines[:]
    monkeypatch.setenv("STREAMPLAN_LINKED", "true")
    tried.produce("sales", [("e", sale("y", 16), 5)])
    tried.drain()
    assert [line for line in tried.lines if "first reads 2 records" in line]
    assert not [line for line in tried.lines if "restored" in line]
    tried.run_last_again(1)
    tried.produce("sales", [("e", sale("y", 32), 6)])
    tried.drain()
    assert not [line for line in tried.lines if "restored" in line]
    assert tried.store("folded") == {"x": {"total": 5}, "y": {"total": 50}, "z": {"total": 8}}
    assert lag(tried) == 0


@pytest.mark.soak
@pytest.mark.parametrize("hop", [None, "30 seconds"])
def test_windows(both: BothWays, monkeypatch: pytest.MonkeyPatch, hop: str | None) -> None:
    """A late record changes nothing, and yet the position in the repartition topic moves."""
    monkeypatch.setattr(query.DriverShare, "takes", lambda *arguments: True)

    def declare(tried: Tried) -> None:
        grouped = tried.topology.stream(tried.named("sales"), value=SALE).group_by("shop", name="by-shop")
        grouped.windowed_by(TimeWindows("1 minute", advance=hop, grace="1 minute")).count(store="counted")

    both.declare(declare)
    taken = [("k", sale("x", 1), 0), ("k", sale("x", 2), 59), ("l", sale("y", 4), 60), ("k", sale("x", 5), 3000)]
    late = [("k", sale("x", 8), 30), ("l", sale("y", 8), 31)]
    after = [("k", sale("x", 1), 3001), ("l", sale("y", 1), 3100)]
    both.process(taken)
    both.crash()
    both.process(late)
    both.process(after)
    both.lose_checkpoints()
    both.process([("k", sale("x", 1), 3002)])
    step = 30 if hop else 60
    expected: Counter[bytes] = Counter()
    for _, value, second in [*taken, *after, ("k", sale("x", 1), 3002)]:
        for begin in range(-60, 3200, step):
            if begin <= second < begin + 60:
                expected[value["shop"].encode() + (EPOCH + begin * 1000).to_bytes(8, "big") + bytes(4)] += 1
    for tried in both.tries:
        changelog = tried.read(tried.topology.changelog_topic("counted"))
        assert {m.key(): int.from_bytes(m.value(), "big") for m in changelog} == expected


@pytest.mark.parametrize(
    ("columns", "is_linked"),
    [
        ({"total": "sum(amount)", "heaviest": "max(weight)"}, True),
        ({"total": "sum(weight)"}, False),  # the last digits of a sum depend on its order
        ({"mean": "avg(amount / 2)"}, False),
    ],
)
def test_a_sum_of_doubles_is_not_linked(
    spark: SparkSession, tmp_path: Path, columns: dict[str, str], is_linked: bool
) -> None:
    tried = Tried("nowhere:1", tmp_path, spark, restoring=False)
    topology = tried.topology
    topology.stream(tried.named("sales"), value=SALE).group_by("shop", name="by-shop").aggregate(
        columns, store="folded"
    )
    (link,) = links_of(topology)
    deployment = Deployment(tried.pipeline, Brokers("nowhere:1"), str(tmp_path))
    schemas: dict[str, Serde] = {}
    writer = plan_query(spark, deployment, link.writer, schemas)
    schemas |= writer.schemas
    reader = plan_query(spark, deployment, link.reader, schemas)
    assert (link_queries(writer, reader, link, schemas) is not None) == is_linked
