"""Each kind of state is built beside the application that runs, takes over, and the old one takes over again.

The truth is a plain recount of what was produced: the outputs, of which each result is written once, and the stores.
"""

from __future__ import annotations

import itertools
import json
import os
import struct
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.topics import apply_topics
from streamplan.maintenance.upgrade import Upgrader
from streamplan.model.partitioner import partition_for_key
from streamplan.model.pipeline import Pipeline
from streamplan.model.topology import Topology
from streamplan.model.windows import JoinWindows, OnWindowClose, SessionWindows, TimeWindows
from streamplan.serdes.json import Json
from streamplan.serdes.primitive import STRING, KeySerde
from streamplan.settings import Settings

from tests.support.draining import drain
from tests.support.records import read_committed
from tests.support.upgraded_processor import Counting

pytestmark = pytest.mark.soak

_numbers = itertools.count()

BASE_MS = (int(time.time()) // 60 - 60) * 60_000
PARTITIONS = 2
VALUE = Json("n bigint, kind string")
PAIR = Json("a string, b int")
"""Keys of two fields."""

Named = Callable[[str], str]


@dataclass(frozen=True)
class Produced:
    """A record: its topic, its key in bytes, its number, and its time in ms."""

    topic: str
    key: bytes
    n: int
    at: int

    @property
    def kind(self) -> str:
        return f"kind {self.n % 2}"


def time_of(number: int) -> int:
    """A second between two records, and a pause behind each ten of them."""
    return BASE_MS + 1000 * (number + 12 * (number // 10))


def in_one_topic(number: int) -> tuple[str, str]:
    return "in", f"k{number % 7}"


def in_turn(number: int) -> tuple[str, str]:
    """Each order is paid by the next record but one, but each third one."""
    order = number // 2
    if number % 2 == 0:
        return "in", f"o{order}"
    return "other", f"o{max(0, order - 1)}" if order % 3 else f"nobody's {order}"


def now_and_then(number: int) -> tuple[str, str]:
    return "other" if number % 4 == 0 else "in", f"k{number % 3}"


# -- the declarations


def windows(topology: Topology, named: Named, key: KeySerde) -> None:
    grouped = topology.stream(named("in"), value=VALUE, key_serde=key).group_by_key()
    windowed = grouped.windowed_by(TimeWindows("10 seconds", grace="1 minute"))
    windowed.count(store="held").to_stream().to(named("out"))


def hopping(topology: Topology, named: Named, key: KeySerde) -> None:
    grouped = topology.stream(named("in"), value=VALUE, key_serde=key).group_by("kind", name="by-kind")
    windowed = grouped.windowed_by(TimeWindows("10 seconds", advance="5 seconds", grace="1 minute"))
    windowed.count(store="held").to_stream().to(named("out"))


def sessions(topology: Topology, named: Named, key: KeySerde) -> None:
    grouped = topology.stream(named("in"), value=VALUE, key_serde=key).group_by_key()
    windowed = grouped.windowed_by(SessionWindows("3 seconds", grace="1 minute"))
    windowed.count(store="held").to_stream().to(named("out"))


def sessions_by_kind(topology: Topology, named: Named, key: KeySerde) -> None:
    """The grace is shorter than the time that all records of a turn span."""
    grouped = topology.stream(named("in"), value=VALUE, key_serde=key).group_by("kind", name="by-kind")
    windowed = grouped.windowed_by(SessionWindows("3 seconds", grace="20 seconds"))
    windowed.count(store="held").to_stream().to(named("out"))


def final(topology: Topology, named: Named, key: KeySerde) -> None:
    grouped = topology.stream(named("in"), value=VALUE, key_serde=key).group_by_key()
    windowed = grouped.windowed_by(TimeWindows("10 seconds", grace="5 seconds")).emit_strategy(OnWindowClose())
    windowed.count(store="held").to_stream().to(named("out"))


def stream_join(topology: Topology, named: Named, key: KeySerde, *, left: bool = False) -> None:
    this, other = (topology.stream(named(topic), value=Json("n bigint"), key_serde=key) for topic in ("in", "other"))
    join = this.left_join if left else this.join
    within = JoinWindows("5 seconds", grace="3 seconds")
    join(other, {"n": "n", "m": "other.n"}, within=within, store="met").to(named("out"))


def stream_table(topology: Topology, named: Named, key: KeySerde) -> None:
    table = topology.table(named("other"), value=Json("n bigint"), key_serde=key, store="rows")
    stream = topology.stream(named("in"), value=Json("n bigint"), key_serde=key)
    stream.left_join(table, {"n": "n", "m": "table.n"}).to(named("out"))


def tables(topology: Topology, named: Named, key: KeySerde) -> None:
    this = topology.table(named("in"), value=Json("n bigint"), key_serde=key, store="these")
    other = topology.table(named("other"), value=Json("n bigint"), key_serde=key, store="others")
    this.join(other, {"n": "n", "m": "table.n"}, store="joined").to_stream().to(named("out"))


def process(topology: Topology, named: Named, key: KeySerde) -> None:
    stream = topology.stream(named("in"), value=VALUE, key_serde=key)
    state = "count bigint, due timestamp"
    stream.process(Counting, store="held", state=state, timer="due", ttl="2 minutes").to(named("out"))


def cogroup(topology: Topology, named: Named, key: KeySerde) -> None:
    this, other = (topology.stream(named(topic), value=VALUE, key_serde=key) for topic in ("in", "other"))
    grouped = this.group_by("kind", name="by-kind").cogroup({"c": "count(*)"})
    grouped = grouped.cogroup(other.group_by("kind", name="others-by-kind"), {"s": "sum(n)"})
    grouped.aggregate(store="held").to_stream().to(named("out"))


# -- the truth


def long(number: int) -> bytes:
    return struct.pack(">q", number)


def counted_windows(records: list[Produced], *, size: int, advance: int, by_kind: bool) -> dict[bytes, Any]:
    counts: Counter[tuple[bytes, int]] = Counter()
    for record in records:
        key = record.kind.encode() if by_kind else record.key
        for start in range((record.at - size + advance) // advance * advance, record.at + 1, advance):
            counts[key, start] += 1
    return {key + long(start): count for (key, start), count in counts.items()}


def of_windows(records: list[Produced]) -> dict[bytes, Any]:
    return counted_windows(records, size=10_000, advance=10_000, by_kind=False)


def of_hopping(records: list[Produced]) -> dict[bytes, Any]:
    return counted_windows(records, size=10_000, advance=5_000, by_kind=True)


def of_sessions(records: list[Produced], *, by_kind: bool = False) -> dict[bytes, Any]:
    found: dict[bytes, list[list[int]]] = defaultdict(list)
    for record in records:
        of_key = found[record.kind.encode() if by_kind else record.key]
        if of_key and record.at - of_key[-1][-1] <= 3_000:
            of_key[-1].append(record.at)
        else:
            of_key.append([record.at])
    return {key + long(each[-1]) + long(each[0]): len(each) for key, of_key in found.items() for each in of_key}


def of_final(records: list[Produced]) -> Counter[tuple[bytes, Any]]:
    newest = [0] * PARTITIONS
    for record in records:
        place = partition_for_key(record.key, PARTITIONS)
        newest[place] = max(newest[place], record.at)
    return Counter(
        (key, count)
        for key, count in of_windows(records).items()
        if int.from_bytes(key[-8:], "big") + 15_000 <= newest[partition_for_key(key[:-8], PARTITIONS)]
    )


def of_stream_join(records: list[Produced]) -> Counter[tuple[bytes, Any]]:
    return Counter(
        (this.key, (this.n, other.n))
        for this in records
        for other in records
        if (this.topic, other.topic) == ("in", "other")
        if this.key == other.key and abs(this.at - other.at) <= 5_000
    )


def of_left_join(records: list[Produced]) -> Counter[tuple[bytes, Any]]:
    met = of_stream_join(records)
    alone = {record.n for record in records if record.topic == "in"} - {n for _, (n, _) in met}
    return met + Counter((record.key, (record.n, None)) for record in records if record.n in alone)


def of_stream_table(records: list[Produced]) -> Counter[tuple[bytes, Any]]:
    rows: dict[bytes, int] = {}
    found: Counter[tuple[bytes, Any]] = Counter()
    for record in records:
        if record.topic == "other":
            rows[record.key] = record.n
        else:
            found[record.key, (record.n, rows.get(record.key))] += 1
    return found


def of_tables(records: list[Produced]) -> dict[bytes, Any]:
    last = {(record.topic, record.key): record.n for record in records}
    keys = {record.key for record in records}
    return {key: (last["in", key], last["other", key]) for key in keys if {("in", key), ("other", key)} <= last.keys()}


def of_process(records: list[Produced]) -> Counter[tuple[bytes, Any]]:
    """Each stream task has its own time. A timer fires behind the record that has moved the time on."""
    found: Counter[tuple[bytes, Any]] = Counter()
    for place in range(PARTITIONS):
        counts: dict[bytes, int] = {}
        due: dict[bytes, int] = {}
        timers: list[tuple[int, bytes]] = []
        for record in records:
            if partition_for_key(record.key, PARTITIONS) != place:
                continue
            counts[record.key] = counts.get(record.key, 0) + 1
            due[record.key] = record.at + 5_000
            heappush(timers, (due[record.key], record.key))
            if counts[record.key] % 3 == 0:
                found[record.key, ("third", counts[record.key])] += 1
            while timers and timers[0][0] <= record.at:
                at, key = heappop(timers)
                if due.get(key) == at:
                    del due[key]
                    found[key, ("pause", counts[key])] += 1
                    counts[key] = 0
    return found


def of_cogroup(records: list[Produced]) -> dict[bytes, Any]:
    found: dict[bytes, Any] = {}
    for kind in ("kind 0", "kind 1"):
        counted = sum(record.topic == "in" for record in records if record.kind == kind)
        summed = [record.n for record in records if record.kind == kind and record.topic == "other"]
        found[kind.encode()] = {"c": counted} | ({"s": sum(summed)} if summed else {})
    return found


# -- what was written


def as_number(value: bytes) -> int:
    return int.from_bytes(value, "big")


def as_pair(value: bytes) -> tuple[Any, Any]:
    fields = json.loads(value)
    return fields["n"], fields.get("m")


def as_said(value: bytes) -> tuple[Any, Any]:
    fields = json.loads(value)
    return fields["what"], fields["count"]


@dataclass(frozen=True)
class Case:
    """A kind of state.

    Attributes:
        declare: Declares it.
        record: Topic and key of a record, by its number.
        truth: The last value of each key of the output, or how often each result is in it.
        read: Reads a value of the output.
        key: Makes the key of a record of its text.
        key_serde: Reads it.
        records: So many records are produced between two steps.
        max_offsets: The most records of a micro-batch of the build.
    """

    declare: Callable[[Topology, Named, KeySerde], None]
    record: Callable[[int], tuple[str, str]]
    truth: Callable[[list[Produced]], Mapping[Any, Any]]
    read: Callable[[bytes], Any]
    key: Callable[[str], bytes] = str.encode
    key_serde: KeySerde = STRING
    records: int = 16
    max_offsets: int | None = None

    def of_pairs(self) -> Case:
        """The same with keys of two fields."""
        return replace(self, key=pair, key_serde=PAIR)


def pair(text: str) -> bytes:
    return json.dumps({"a": text, "b": 1}, separators=(",", ":")).encode()


CASES = {
    "windows": Case(windows, in_one_topic, of_windows, as_number),
    "hopping windows behind a repartition topic": Case(hopping, in_one_topic, of_hopping, as_number),
    "sessions": Case(sessions, in_one_topic, of_sessions, as_number),
    "sessions behind a repartition topic": Case(
        sessions_by_kind, in_one_topic, partial(of_sessions, by_kind=True), as_number, records=40, max_offsets=4
    ),
    "final results": Case(final, in_one_topic, of_final, as_number),
    "a join of streams": Case(stream_join, in_turn, of_stream_join, as_pair),
    "a left join of streams": Case(partial(stream_join, left=True), in_turn, of_left_join, as_pair, records=40),
    "a join with a table": Case(stream_table, now_and_then, of_stream_table, as_pair),
    "a join of tables": Case(tables, now_and_then, of_tables, as_pair),
    "a class with a timer": Case(process, in_one_topic, of_process, as_said),
    "cogroup": Case(cogroup, now_and_then, of_cogroup, json.loads),
}
CASES |= {
    f"{name}, keys of two fields": CASES[name].of_pairs()
    for name in ("sessions", "a join of streams", "a left join of streams", "a join of tables")
}


class World:
    """A pipeline of one kind, whose application is upgraded."""

    def __init__(self, bootstrap_servers: str, home: Path, spark: SparkSession, case: Case) -> None:
        self.name = f"operations-{os.getpid()}-{next(_numbers)}"
        self.bootstrap_servers, self.brokers, self.spark = bootstrap_servers, Brokers(bootstrap_servers), spark
        self.settings = Settings.from_environment({"STREAMPLAN_HOME": str(home)})
        self.case = case
        self.produced: list[Produced] = []

    def named(self, topic: str) -> str:
        return f"{self.name}-{topic}"

    def declare(self, version: int, upgrade_from: int | None = None) -> Pipeline:
        topology = Topology(self.named(f"v{version}"))
        self.case.declare(topology, self.named, self.case.key_serde)
        counts = dict.fromkeys((*topology.source_topics, *topology.sink_topics), PARTITIONS)
        before = None if upgrade_from is None else self.named(f"v{upgrade_from}")
        return Pipeline(self.name, topology, "", counts, upgrade_from=before)

    def process(self, pipeline: Pipeline) -> None:
        """Some records come, and are processed a few at a time."""
        producer = Producer({"bootstrap.servers": self.bootstrap_servers, "partitioner": "murmur2_random"})
        for number in range(len(self.produced), len(self.produced) + self.case.records):
            topic, text = self.case.record(number)
            record = Produced(topic, self.case.key(text), number, time_of(number))
            value = json.dumps({"n": number, "kind": record.kind})
            producer.produce(self.named(topic), value, record.key, timestamp=record.at)
            self.produced.append(record)
        assert producer.flush(60) == 0
        drain(self.spark, pipeline, self.brokers, self.settings.checkpoints, 4)

    def upgrader(self, pipeline: Pipeline) -> Upgrader:
        return Upgrader(pipeline, self.brokers, self.settings, quiet_seconds=5.0, max_offsets=self.case.max_offsets)

    def switch(self, pipeline: Pipeline) -> None:
        """All stores are the same, and so they are equal."""
        compared = self.upgrader(pipeline).switch(self.spark)
        assert compared is not None
        for store in compared.stores:
            assert (store.is_same, store.different) == (not store.left_out, 0), compared.text
            assert not store.left_out or not store.has_totals, compared.text

    def last_values(self) -> dict[bytes, Any]:
        messages = read_committed(self.bootstrap_servers, self.named("out"))
        last = {message.key(): message.value() for message in messages}
        return {key: self.case.read(value) for key, value in last.items() if value is not None}

    def results(self) -> Counter[tuple[bytes, Any]]:
        messages = read_committed(self.bootstrap_servers, self.named("out"))
        return Counter((message.key(), self.case.read(message.value())) for message in messages)

    def close(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        topics = [topic for topic in admin.list_topics(timeout=60).topics if topic.startswith(self.name)]
        for future in admin.delete_topics(topics).values():
            future.exception(120)


@pytest.fixture
def world(
    bootstrap_servers: str, tmp_path: Path, spark: SparkSession, request: pytest.FixtureRequest
) -> Iterator[World]:
    made = World(bootstrap_servers, tmp_path, spark, CASES[request.param])
    yield made
    made.close()


@pytest.mark.parametrize("world", list(CASES), indirect=True)
def test_it_takes_over_and_back_again(world: World) -> None:
    old, new, back = world.declare(1), world.declare(2, 1), world.declare(1, 2)
    apply_topics(world.brokers, old)
    world.process(old)
    assert world.upgrader(new).build(world.spark) is not None
    world.process(old)
    world.switch(new)
    world.process(new)
    world.switch(back)
    world.process(back)
    truth = world.case.truth(world.produced)
    if not isinstance(truth, Counter):
        assert world.last_values() == truth
        return
    results = world.results()
    assert not results - truth  # nothing is written twice
    if world.case.truth is of_left_join:  # the last ones may still wait
        newest = max(record.at for record in world.produced)
        waiting = {record.key for record in world.produced if record.at > newest - 30_000}
        truth = Counter({result: count for result, count in truth.items() if result[0] not in waiting})
    assert not truth - results
