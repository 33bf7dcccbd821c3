"""A real Kafka Streams application that nobody declared: found in Kafka, green while it runs, red for its faults."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)
from streamplan.checks import CHECKS, compaction, lag, not_applicable
from streamplan.checks.discovery.counts import CountOf
from streamplan.checks.discovery.discover import discover
from streamplan.checks.framework.application import Application
from streamplan.checks.framework.check import Check, CheckResult, Outcome, run_check, sentence
from streamplan.checks.framework.consistent_cut import Deadline
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.model.copartitioning import copartition_groups
from streamplan.model.description import parse_description
from streamplan.model.topics import TopicRole
from streamplan.pipelines.orders import order
from streamplan.serdes.json import Json
from streamplan.settings import PROJECT
from streamplan.testing import assert_healthy

from tests.support.brokers import NewTopicFactory
from tests.support.kafka_streams import STREAMS
from tests.support.partition_counts import asked, drawn
from tests.support.soak import seeds, soak
from tests.support.streams_library import Callback, Library, order_key, raw, started
from tests.support.waiting import eventually
from tests.support.wheel import Environment

ORDER = "Id string, ProductType int"
NAMES = [check.name for check in CHECKS]
SHORT = Deadline(seconds=3.0, interval=0.1)
"""What is to be waited for here comes at once or not at all."""


@dataclass
class Running:
    """The orders topology at work. ``description`` is what its ``Topology.describe()`` prints."""

    library: Library
    bootstrap_servers: str
    orders: str
    description: str
    streams: Any = None
    produced: itertools.count[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        self.producer = Producer({"bootstrap.servers": self.bootstrap_servers, "partitioner": "murmur2_random"})

    @property
    def id(self) -> str:
        return self.library.application_id

    @property
    def repartition(self) -> str:
        return f"{self.id}-by-product-repartition"

    @property
    def changelog(self) -> str:
        return f"{self.id}-totals-changelog"

    @property
    def cluster(self) -> KafkaCluster:
        """A new one: partition counts are asked once."""
        return KafkaCluster(Brokers(self.bootstrap_servers))

    def order_many(self, count: int) -> None:
        for n in itertools.islice(self.produced, count):
            key, value = order(n)
            self.producer.produce(self.orders, value, key)
        assert self.producer.flush(120) == 0

    def write(self, topic: str, key: bytes, value: bytes, partition: int) -> None:
        """Something that the application has not written."""
        self.producer.produce(topic, value, key, partition)
        assert self.producer.flush(120) == 0

    def wait_until_at_work(self) -> None:
        """Before its first commits there is nothing to look at."""
        self.order_many(50)
        for topic in (self.orders, self.repartition):
            eventually(lambda: topic in self.cluster.committed_offsets(self.id), f"positions in {topic}")  # noqa: B023

    def wait_until_counted(self) -> None:
        """The changelog holds all orders: the last totals are of all that was produced."""
        wanted = next(self.produced)
        self.produced = itertools.count(wanted)
        cluster = self.cluster

        def counted() -> int:
            last: dict[tuple[int, bytes | None], int] = {}
            ranges = {number: (at.log_start, at.last_stable) for number, at in cluster.offsets(self.changelog).items()}
            for batch in cluster.read(self.changelog, ranges):
                for key, value in zip(batch.keys, batch.values, strict=True):
                    last[batch.partition, key] = int.from_bytes(value or b"", "big")
            return sum(last.values())

        eventually(lambda: counted() == wanted, f"{wanted} orders counted")

    def found(self, **more: Any) -> Application:
        return discover(self.cluster, self.id, counts=[CountOf(self.orders, "ProductType", Json(ORDER))], **more)

    def looks(self, *impatient: Check, **more: Any) -> dict[str, CheckResult]:
        """The result of each check. One that will be red may be given with a short deadline."""
        found, cluster = self.found(**more), self.cluster
        checks = {check.name: check for check in (*CHECKS, *impatient)}
        return {name: run_check(found, check, cluster) for name, check in checks.items()}

    def alter(self, topic: str, config: str, value: str) -> None:
        entry = ConfigEntry(config, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result(120)
        eventually(lambda: self.cluster.topics([topic])[topic].configs[config] == value, f"{topic}: {config}={value}")

    def stop(self) -> None:
        if self.streams is not None:
            assert self.streams.close(self.library.jvm.java.time.Duration.ofSeconds(120)), (
                "it did not close within 120 s"
            )
        self.streams = None


@contextmanager
def flowing(application: Running, count: int = 10, interval: float = 0.05) -> Iterator[None]:
    """Orders come all the time."""
    stop, failed = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            while not stop.wait(interval):
                application.order_many(count)
        except BaseException as error:  # noqa: BLE001  # a thread's errors would be lost
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(300)
    assert not failed


Placing = Callable[[bytes, bytes, int], int]


@pytest.fixture
def start(
    jvm: Any, bootstrap_servers: str, new_topic: NewTopicFactory, tmp_path: Path
) -> Iterator[Callable[..., Running]]:
    """Starts orders applications: the guarantee, who places records in the repartition topic, further configs."""
    opened: list[Any] = []

    def start(guarantee: str, placing: Placing | None = None, **config: str) -> Running:
        library = Library(jvm, f"jvm-{uuid.uuid4().hex[:8]}")
        orders = new_topic("orders")
        stream = library.stream(orders, Id=str, ProductType=int)
        if placing is None:
            grouped = library.grouped(stream, order_key, "by-product")
        else:
            grouped = placed(library, stream, placing)
        grouped.count(library.stored("totals"))
        built = library.builder.build()
        application = Running(library, bootstrap_servers, orders, str(built.describe().toString()))
        more = {"processing_guarantee": guarantee, "repartition_purge_interval_ms": "3600000", **config}
        running = started(library, built, bootstrap_servers, tmp_path / library.application_id, **more)
        application.streams = running.__enter__()
        opened.append(running)
        return application

    yield start
    for running in opened:
        running.__exit__(None, None, None)


def placed(library: Library, stream: Any, placing: Placing) -> Any:
    """Grouped by the product, through a repartition topic with a partitioner of its own."""
    by_product = Callback(f"{STREAMS}.kstream.KeyValueMapper", apply=lambda key, value: order_key(key, raw(value)))
    java = library.jvm.java.util

    def partitions(topic: str, key: Any, value: Any, count: int) -> Any:
        return java.Optional.of(java.Collections.singleton(placing(raw(key) or b"", raw(value) or b"", count)))

    partitioner = Callback(f"{STREAMS}.processor.StreamPartitioner", partitions=partitions)
    repartitioned = library.option("Repartitioned", "with", library.bytes, library.bytes).withName("by-product")
    repartitioned = repartitioned.withStreamPartitioner(partitioner)
    return stream.selectKey(by_product).repartition(repartitioned).groupByKey()


def told(result: CheckResult) -> str:
    return "\n".join([result.reason, *(sentence(row) for row in result.observations if not row.agrees)])


def expect(found: Mapping[str, CheckResult], **outcomes: Outcome) -> None:
    """Those named, and all others passed."""
    wanted = dict.fromkeys(NAMES, Outcome.PASSED) | outcomes
    seen = {name: f"{result.outcome}: {told(result)}" for name, result in found.items()}
    assert {name: result.outcome for name, result in found.items()} == wanted, seen


def command(
    application: Running, *arguments: str, home: Path, python: str = sys.executable
) -> tuple[int, dict[str, Any], str]:
    """``python -m streamplan check``: its status, what it printed, and what it said meanwhile."""
    servers = ["--bootstrap-servers", application.bootstrap_servers]
    done = subprocess.run(
        [
            python,
            "-m",
            "streamplan",
            "check",
            *servers,
            "--application-id",
            application.id,
            "--json",
            *arguments,
        ],
        env={**os.environ, "PYTHONPATH": str(PROJECT / "plugins"), "STREAMPLAN_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", *soak(["at_least_once"])])
def test_green_while_it_runs_and_after_its_repartition_topic_was_purged(
    start: Callable[..., Running], guarantee: str, tmp_path: Path, wheel_environment: Environment
) -> None:
    application = start(guarantee, repartition_purge_interval_ms="3000")
    topology = tmp_path / "topology.txt"
    topology.write_text(application.description)
    count = ["--count", f"{application.orders}:ProductType", "--value", ORDER]
    with flowing(application):
        application.wait_until_at_work()
        for more in ({}, {"topology": application.description}):
            expect(application.looks(**more))
        status, printed, said = command(application, *count, "--topology", str(topology), home=tmp_path)
        assert (status, printed["outcome"]) == (0, "passed"), (printed, said)
        assert [one["check"] for one in printed["checks"]] == NAMES
        eventually(
            lambda: any(at.log_start for at in application.cluster.offsets(application.repartition).values()), "purged"
        )
        expect(application.looks())
    application.wait_until_counted()
    eventually(
        lambda: all(
            at.log_start == at.high_watermark for at in application.cluster.offsets(application.repartition).values()
        ),
        "nothing is left",
    )
    expect(application.looks())
    assert [one.outcome for one in assert_healthy(application.bootstrap_servers, application.id)] == [
        Outcome.PASSED for name in NAMES if name != "totals"
    ]
    application.stop()
    # Who only checks needs neither Spark nor Airflow.
    status, printed, said = command(application, *count, home=tmp_path, python=wheel_environment.python)
    assert (status, printed["left_out"]) == (0, {}), (printed, said)


@pytest.mark.parametrize("protocol", ["classic", "streams"])
def test_what_is_found(start: Callable[..., Running], protocol: str) -> None:
    application = start("at_least_once", group_protocol=protocol)
    application.wait_until_at_work()
    assert application.id in application.cluster.groups()
    for more in ({}, {"topology": application.description}):
        found = application.found(**more)
        assert {spec.name: (spec.role, spec.partitions) for spec in found.topics} == {
            application.orders: (TopicRole.SOURCE, 2),
            application.repartition: (TopicRole.REPARTITION, 2),
            application.changelog: (TopicRole.CHANGELOG, 2),
        }
        assert [tasks.changelogs for tasks in found.subtopologies] == [(), (application.changelog,)]
        assert not found.notes
    members = application.cluster.members(application.id)
    if protocol == "streams":
        assert members is None
        described = "its members cannot be seen, because its protocol is streams"
    else:
        (member,) = members or ()
        described = f"1 member, {member.client_id} on 127.0.0.1"
        assert member.client_id.startswith(application.id)
    result = run_check(application.found(), lag.CHECK, application.cluster)
    assert result.outcome is Outcome.PASSED, told(result)
    assert result.observations[0].subject == f"group {application.id}: {described}"


# -- faults


@pytest.mark.soak
@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_configs_and_counts(start: Callable[..., Running], guarantee: str) -> None:
    """One after the other, in an application that goes on running."""
    application = start(guarantee)
    application.order_many(19)
    application.wait_until_counted()

    application.alter(application.changelog, "cleanup.policy", "delete")
    found = application.looks(compaction.CompactionCheck(deadline=SHORT))
    expect(found, compaction=Outcome.FAILED)
    assert f"{application.changelog}: cleanup.policy: expected compact, observed delete" in told(found["compaction"])
    application.alter(application.changelog, "cleanup.policy", "compact")

    application.alter(application.repartition, "cleanup.policy", "compact")
    found = application.looks()
    expect(found, repartition=Outcome.FAILED)
    assert f"{application.repartition}: cleanup.policy: expected delete, observed compact" in told(found["repartition"])
    application.alter(application.repartition, "cleanup.policy", "delete")

    application.alter(application.repartition, "retention.ms", "3600000")
    found = application.looks()
    expect(found, repartition=Outcome.FAILED)
    assert f"{application.repartition}: retention.ms" in told(found["repartition"])
    application.alter(application.repartition, "retention.ms", "-1")
    expect(application.looks())

    more = NewPartitions(application.changelog, 3)
    application.admin.create_partitions([more])[application.changelog].result(120)
    eventually(lambda: len(application.cluster.offsets(application.changelog)) == 3, "three partitions")
    for more in ({}, {"topology": application.description}):
        found = application.looks(**more)
        assert f"{application.changelog}: partitions" in told(found["copartitioning"])
        assert {name for name in NAMES if found[name].outcome is Outcome.FAILED} == {"copartitioning"}, found


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", *soak(["at_least_once"])])
def test_records_placed_by_crc32(start: Callable[..., Running], guarantee: str) -> None:
    application = start(guarantee, lambda key, value, count: crc32(key) % count)
    application.order_many(19)
    application.wait_until_counted()
    found = application.looks()
    expect(found, copartitioning=Outcome.FAILED)
    said = told(found["copartitioning"])
    for topic in (application.repartition, application.changelog):
        assert f"{topic}: key '0': expected partition 0, observed partition 1 (" in said
    assert "CRC32" in said
    # declared, it is as it should be
    expect(application.looks(partitioners={application.repartition: by_crc32}))


def by_crc32(key: bytes, partitions: int) -> int:
    return crc32(key) % partitions


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", *soak(["at_least_once"])])
def test_one_key_in_two_partitions(start: Callable[..., Running], guarantee: str) -> None:
    application = start(guarantee, lambda key, value, count: crc32(value) % count)
    application.order_many(40)
    application.wait_until_counted()
    found = application.looks()
    expect(found, copartitioning=Outcome.FAILED)
    assert f"{application.changelog}: key '1': expected partition 1, observed partition 0" in told(
        found["copartitioning"]
    )


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", *soak(["at_least_once"])])
def test_wrong_totals_and_a_stopped_application(start: Callable[..., Running], guarantee: str, tmp_path: Path) -> None:
    application = start(guarantee)
    application.order_many(19)
    application.wait_until_counted()
    application.stop()
    expect(application.looks())

    application.write(application.changelog, b"0", (11).to_bytes(8, "big"), 0)
    found = application.looks()
    expect(found, totals=Outcome.FAILED)
    assert "totals[0]: expected 10, observed 11, 1 too many" in told(found["totals"])
    count = ["--count", f"{application.orders}:ProductType", "--value", ORDER, "--only", "totals"]
    status, printed, said = command(application, *count, home=tmp_path)
    assert status == 1, (printed, said)
    with pytest.raises(AssertionError, match=r"totals\[0\]"):
        assert_healthy(
            application.bootstrap_servers,
            application.id,
            checks=["totals", "copartitioning"],
            counts=[CountOf(application.orders, "ProductType", Json(ORDER))],
        )
    application.write(application.changelog, b"0", (10).to_bytes(8, "big"), 0)

    application.order_many(4)
    found = application.looks(lag.LagCheck(deadline=SHORT))
    expect(found, lag=Outcome.FAILED)
    assert application.orders in told(found["lag"])
    assert "has not moved" in told(found["lag"])
    status, printed, said = command(application, "--only", "copartitioning,names", home=tmp_path)
    assert status == 0, (printed, said)


# -- what a topology says


@pytest.mark.parametrize("seed", [448, *seeds(30, in_soak=500)])  # 448 joins a merged stream with itself
def test_joins_of_a_description_are_those_of_the_library(jvm: Any, seed: int) -> None:
    twin, external = drawn(jvm, random.Random(seed))
    answer = asked(twin, external)
    groups = {
        frozenset(
            twin.topology.decorate(topic) for source in one.sources if source.name in group for topic in source.topics
        )
        for one in parse_description(twin.topology.describe())
        for group in one.joined
    }
    ours = {frozenset(map(twin.topology.decorate, group)) for group in copartition_groups(twin.topology)}
    assert groups == {group for group in ours if len(group) > 1}
    # Of some joins the library loses sight.
    assert all(any(theirs <= group for group in groups) for theirs in answer.groups if len(theirs) > 1)


# -- stores of every kind


@pytest.mark.parametrize("store_format", ["DEFAULT", *soak(["HEADERS"])])
def test_stores_of_every_kind(
    jvm: Any, bootstrap_servers: str, new_topic: NewTopicFactory, tmp_path: Path, store_format: str
) -> None:
    """Each keeps its keys in a form of its own, and its changelog has a policy of its own."""
    library = Library(jvm, f"jvm-{uuid.uuid4().hex[:8]}")
    clicks, views = new_topic("clicks", partitions=3), new_topic("views", partitions=3)
    users = new_topic("users", partitions=2, configs={"cleanup.policy": "compact"})
    every_kind(library, clicks, views, users)
    built = library.builder.build()
    description = str(built.describe().toString())
    producer = Producer({"bootstrap.servers": bootstrap_servers, "partitioner": "murmur2_random"})
    begin = int(time.time() * 1000) - 600_000
    for n in range(600):
        user, country = b"user_%d" % (n % 17), b"country_%d" % (n % 5)
        records = [(clicks, user, b"click"), (users, user, country), (users, country, b"name")]
        for topic, key, value in records + [(views, user, b"view")] * (n % 3 > 0):
            producer.produce(topic, value, key, timestamp=begin + 500 * n)
    assert producer.flush(120) == 0
    with started(library, built, bootstrap_servers, tmp_path, dsl_store_format=store_format):

        def empty() -> list[str]:
            cluster = KafkaCluster(Brokers(bootstrap_servers))
            made = [name for name in cluster.names() if name.startswith(f"{library.application_id}-")]
            return [name for name in made if not any(at.high_watermark for at in cluster.offsets(name).values())]

        eventually(
            lambda: (
                {clicks, views, users}
                <= KafkaCluster(Brokers(bootstrap_servers)).committed_offsets(library.application_id).keys()
            ),
            "positions in all sources",
        )
        eventually(lambda: not empty(), "records in every internal topic")
        for topology in (None, description):
            cluster = KafkaCluster(Brokers(bootstrap_servers))
            found = discover(cluster, library.application_id, topology=topology)
            results = [run_check(found, check, cluster) for check in CHECKS if check.name not in not_applicable(found)]
            assert {result.outcome for result in results} == {Outcome.PASSED}, {one.check: told(one) for one in results}
        kinds = {spec.name: spec.window_bytes for spec in found.with_role(TopicRole.CHANGELOG)}
        assert sorted(kinds.values()) == [0, 0, 0, 0, 0, 0, 0, 0, 8, 8, 12, 12, 12, 12, 12, 16]
        assert f"{library.application_id}-waits-Buffer-changelog" in found.partitioners
        assert not found.notes
        assert not found.unjudged


def every_kind(library: Library, clicks: str, views: str, users: str) -> None:
    """Windows, a table of windows, one that waits until they close, sessions, stream joins, versions, a foreign key."""
    java, option = library.jvm.java, library.option
    seconds = java.time.Duration.ofSeconds
    streams = library.jvm.org.apache.kafka.streams
    read = option("Consumed", "with", library.bytes, library.bytes)
    clicked, viewed = library.builder.stream(clicks, read), library.builder.stream(views, read)
    by_user = clicked.groupByKey(option("Grouped", "with", library.bytes, library.bytes))

    windows = streams.kstream.TimeWindows.ofSizeAndGrace(seconds(5), seconds(1))
    counted = by_user.windowedBy(windows).count(library.stored("windows"))
    every = Callback(f"{STREAMS}.kstream.Predicate", test=lambda key, value: True)
    raw_bytes = library.jvm.java.lang.Class.forName("[B")
    windowed = streams.kstream.WindowedSerdes.timeWindowedSerdeFrom(raw_bytes, 5000)
    of_windows = option("Materialized", "as", "of-windows").withKeySerde(windowed)
    counted.filter(every, of_windows.withValueSerde(library.serdes.Long()))
    wait = streams.kstream.Suppressed.untilWindowCloses(streams.kstream.Suppressed.BufferConfig.unbounded())
    counted.suppress(wait.withName("closed")).toStream().foreach(
        Callback(f"{STREAMS}.kstream.ForeachAction", apply=lambda key, value: None)
    )
    sessions = streams.kstream.SessionWindows.ofInactivityGapAndGrace(seconds(2), seconds(1))
    by_user.windowedBy(sessions).count(library.stored("sessions"))

    joiner = Callback(f"{STREAMS}.kstream.ValueJoiner", apply=lambda one, other: raw(one))
    within = streams.kstream.JoinWindows.ofTimeDifferenceAndGrace(seconds(2), seconds(1))
    joined = option("StreamJoined", "with", library.bytes, library.bytes, library.bytes)
    clicked.leftJoin(viewed, joiner, within, joined)
    clicked.leftJoin(viewed, joiner, within, joined.withName("named").withStoreName("named"))

    latest_click = option(
        "Materialized", "as", streams.state.Stores.persistentVersionedKeyValueStore("clicked", seconds(600))
    )
    latest_clicks = clicked.toTable(latest_click.withKeySerde(library.bytes).withValueSerde(library.bytes))
    waiting = option("Joined", "with", library.bytes, library.bytes, library.bytes)
    viewed.join(latest_clicks, joiner, waiting.withName("waits").withGracePeriod(seconds(1)))

    version = streams.state.Stores.persistentVersionedKeyValueStore("versions", seconds(600))
    table = library.builder.table(users, read, option("Materialized", "as", version))
    latest = table.toStream().toTable(kept_as(library, "users"))
    foreign_key = Callback("java.util.function.Function", apply=lambda value: raw(value))
    latest.leftJoin(latest, foreign_key, joiner, kept_as(library, "of-country"))


def kept_as(library: Library, store: str) -> Any:
    return library.option("Materialized", "as", store).withKeySerde(library.bytes).withValueSerde(library.bytes)
