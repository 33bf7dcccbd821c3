"""A move to more partitions on real brokers: nothing lost, nothing doubled, totals unchanged, wherever it dies."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message, Producer
from pyspark.sql import SparkSession
from streamplan.checks import check_named
from streamplan.checks.framework.application import application_of
from streamplan.checks.framework.check import Outcome, run_check
from streamplan.errors import Refused
from streamplan.files import ReportPaths
from streamplan.kafka import copying
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.groups import set_positions
from streamplan.kafka.topics import apply_topics, delete_records
from streamplan.maintenance import repartition as moving
from streamplan.maintenance.repartition import Repartitioner
from streamplan.maintenance.reset import Resetter
from streamplan.model.generation import PositionMetadata
from streamplan.model.partitioner import partition_for_key
from streamplan.model.processor_topology import TaskId
from streamplan.model.topics import temporary_topic
from streamplan.model.windows import OnWindowClose, TimeWindows
from streamplan.reports.check_context import check_context
from streamplan.settings import PROJECT, Settings

from tests.support.brokers import NewTopicFactory
from tests.support.draining import drain
from tests.support.records import read_committed
from tests.support.soak import soak
from tests.support.transactional_application import TransactionalApplication
from tests.support.tried_topology import EPOCH, PARTITIONS, SALE, Tried, sale

QUICK = 0.3
BEGAN_MS = int(time.time() * 1000) - 3_600_000
"""Of records: lately, since the brokers look every five minutes for what is older than its topic keeps."""

CHECKED = ("totals", "copartitioning", "repartition", "skew", "topics")
PASSED = dict.fromkeys(CHECKED, "passed")
_numbers = itertools.count()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.from_environment({"STREAMPLAN_HOME": str(tmp_path)})


@pytest.fixture
def before(bootstrap_servers: str, settings: Settings) -> Iterator[TransactionalApplication]:
    """Two partitions: 200 orders counted, one of them without a key, three records dead-lettered, two of them equal."""
    app = TransactionalApplication(bootstrap_servers, name=f"moved-{os.getpid()}-{next(_numbers)}")
    app.create_topics()
    app.order_many(0, 200)
    for key, value in ((b"bad", b"not JSON"), (b"bad", b"not JSON"), (b"worse", b"{")):
        app.produce(app.orders, key, value, timestamp=BEGAN_MS, headers=[("trace", b"7"), ("none", None)])
    app.produce(app.orders, None, b'{"Id": "order_without_key", "ProductType": 0}', partition=1)
    app.drain()
    Path(settings.checkpoints, app.group, "1", "offsets").mkdir(parents=True)
    yield app
    app.close()


@pytest.fixture
def after(before: TransactionalApplication) -> Iterator[TransactionalApplication]:
    """The same application, declared with the new topic."""
    new = f"{before.orders}-v2"
    app = TransactionalApplication(
        before.bootstrap_servers, name=before.group, orders=new, partitions=4, repartition_from={new: before.orders}
    )
    yield app
    app.close()
    leftovers = [temporary_topic(spec).name for spec in app.pipeline.internal_topics()]
    for future in app.admin.delete_topics(leftovers).values():
        future.exception(120)


def move_of(app: TransactionalApplication, settings: Settings) -> Repartitioner:
    return Repartitioner(app.pipeline, Brokers(app.bootstrap_servers), settings, watched_seconds=QUICK)


def moved(app: TransactionalApplication, settings: Settings) -> list[str]:
    said: list[str] = []
    move = replace(move_of(app, settings), report=said.append)
    move.apply(move.observe().written())
    return said


def outcomes(app: TransactionalApplication, settings: Settings, *, full: bool = False) -> dict[str, str]:
    found = {}
    cluster = KafkaCluster(Brokers(app.bootstrap_servers))
    for name in CHECKED:
        subject = application_of(app.pipeline)
        check = check_named(name).configure(check_context(subject, settings.reports, full=full))
        result = run_check(subject, check, cluster)
        found[name] = "passed" if result.outcome is Outcome.PASSED else result.reason
    return found


def whole(message: Message) -> tuple[Any, ...]:
    return message.key(), message.value(), message.timestamp()[1], tuple(message.headers() or ())


def verify(before: TransactionalApplication, after: TransactionalApplication, settings: Settings) -> None:
    """Everything is there once, in its place, and the application goes on."""
    servers = after.bootstrap_servers
    old, new = read_committed(servers, before.orders), read_committed(servers, after.orders)
    assert Counter(map(whole, old)) == Counter(map(whole, new))
    assert all(m.partition() == partition_for_key(m.key(), 4) for m in new if m.key() is not None)
    assert len({m.partition() for m in new}) == 4
    changelog = read_committed(servers, after.changelog)
    assert {m.key(): int.from_bytes(m.value(), "big") for m in changelog} == {b"0": 101, b"1": 100}
    assert all(m.partition() == partition_for_key(m.key(), 4) for m in changelog)
    assert len(read_committed(servers, after.dead_letters)) == 3
    cluster = KafkaCluster(Brokers(servers))
    names = [spec.name for spec in after.pipeline.topics()]
    assert {name: topic.partitions for name, topic in cluster.topics(names).items()} == dict.fromkeys(names, 4)
    for topic in (after.orders, after.repartition):
        ends = {number: found.high_watermark for number, found in cluster.offsets(topic).items()}
        assert cluster.positions(after.group, topic) == ends
    assert cluster.committed_offsets(after.pipeline.repartition_group) == {}
    assert not cluster.topics([temporary_topic(spec).name for spec in after.pipeline.internal_topics()])
    assert not Path(settings.checkpoints, after.group).exists()
    assert not ReportPaths(settings.reports, after.pipeline.name).verified_store.exists()
    assert outcomes(after, settings) == PASSED

    after.resume()
    after.order_many(200, 300)
    after.produce(after.orders, b"bad", b"not JSON either")
    after.drain()
    assert after.totals == {b"0": 151, b"1": 150}
    assert outcomes(after, settings) == PASSED
    assert outcomes(after, settings, full=True) == PASSED
    assert move_of(after, settings).observe().done


def test_the_streaming_aggregator_goes_on_with_the_state_of_the_changelog(
    before: TransactionalApplication, after: TransactionalApplication, settings: Settings, spark: SparkSession
) -> None:
    moved(after, settings)
    after.order_many(200, 300)
    lines: list[str] = []
    drain(spark, after.pipeline, Brokers(after.bootstrap_servers), settings.checkpoints, 1000, report=lines.append)
    changelog = read_committed(after.bootstrap_servers, after.changelog)
    assert {m.key(): int.from_bytes(m.value(), "big") for m in changelog} == {b"0": 151, b"1": 150}
    assert any("restored 2 rows" in line for line in lines)
    assert outcomes(after, settings) == PASSED


@pytest.mark.soak
@pytest.mark.parametrize("when", ["before", "after"])
def test_died_at_every_step_and_run_again(
    before: TransactionalApplication,
    after: TransactionalApplication,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    when: str,
) -> None:
    """The first run dies at its first step, the second at its second, and so on until one comes to its end."""
    steps = allowed = 0

    def dying(function: Any) -> Any:
        def step(*arguments: Any, **more: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps > allowed:
                if when == "after":
                    function(*arguments, **more)
                raise KeyboardInterrupt
            return function(*arguments, **more)

        return step

    for owner, name in (
        *((moving, name) for name in ("fence", "apply_specs", "set_positions", "delete_topics", "delete_group")),
        (copying, "copy_topic"),
        (copying, "write_all"),
        (moving.checkpoints, "delete"),
    ):
        monkeypatch.setattr(owner, name, dying(getattr(owner, name)))
    for attempt in itertools.count():
        steps, allowed = 0, attempt
        try:
            moved(after, settings)
            break
        except KeyboardInterrupt:
            continue
    assert attempt > 5
    monkeypatch.undo()
    verify(before, after, settings)


COPY = """
import sys
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.copying import copy_topic
servers, topic, to, group = sys.argv[1:]
copy_topic(Brokers(servers), topic, to, 5, group=group, transactional_id=group, report=print, transaction_records=200)
"""


@pytest.mark.soak
def test_a_copy_that_is_killed_again_and_again(bootstrap_servers: str, new_topic: NewTopicFactory) -> None:
    topic, to = new_topic("from"), new_topic("to", partitions=5)
    producer = Producer({"bootstrap.servers": bootstrap_servers, "partitioner": "murmur2_random"})
    for n in range(40_000):
        producer.produce(topic, b"%d" % n, b"key_%d" % (n % 997), timestamp=BEGAN_MS + n)
        producer.poll(0)
    assert producer.flush(120) == 0
    arguments = [sys.executable, "-c", COPY, bootstrap_servers, topic, to, f"{to}-copy"]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT / "plugins")}
    cluster = KafkaCluster(Brokers(bootstrap_servers))

    def copied() -> int:
        return sum(found.high_watermark for found in cluster.offsets(to).values())

    for _ in range(3):
        seen = copied()
        process = subprocess.Popen(arguments, env=environment, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 300
        while copied() < seen + 1000 and process.poll() is None:
            assert time.monotonic() < deadline
        assert process.poll() is None, "it ended before it could be killed"
        os.kill(process.pid, signal.SIGKILL)
        process.wait(600)
    done = subprocess.run(arguments, env=environment, stdout=subprocess.DEVNULL, timeout=600, check=False)
    assert done.returncode == 0
    new = read_committed(bootstrap_servers, to)
    assert sorted(int(m.value()) for m in new) == list(range(40_000))
    assert all(m.partition() == partition_for_key(m.key(), 5) for m in new)
    by_partition: dict[int, list[int]] = {}
    for message in new:
        by_partition.setdefault(message.partition(), []).append(message.timestamp()[1])
    assert all(timestamps == sorted(timestamps) for timestamps in by_partition.values())  # none comes late


def test_what_is_not_processed_is_refused(
    before: TransactionalApplication, after: TransactionalApplication, settings: Settings
) -> None:
    before.order_many(200, 210)
    with pytest.raises(Refused, match=rf"10 records of {before.orders} are not.*Nothing was changed"):
        move_of(after, settings).observe()
    for partition in (0, 1):
        before.step(TaskId(0, partition))
    with pytest.raises(Refused, match=rf"10 records of {before.repartition} are not"):
        move_of(after, settings).observe()


def test_a_new_topic_with_records_of_others_is_refused(
    before: TransactionalApplication, after: TransactionalApplication, settings: Settings
) -> None:
    moving.apply_specs(Brokers(after.bootstrap_servers), "x", [after.pipeline.topics()[0]])
    after.order_many(900, 901)
    with pytest.raises(Refused, match=f"{after.orders}: expected missing or empty"):
        move_of(after, settings).observe()


def test_records_that_come_while_it_copies_are_found(
    before: TransactionalApplication,
    after: TransactionalApplication,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copy = copying.copy_topic

    def disturbed(*arguments: Any, **more: Any) -> None:
        after.order_many(900, 901)
        copy(*arguments, **more)

    monkeypatch.setattr(copying, "copy_topic", disturbed)
    with pytest.raises(Refused, match=f"the copy of {before.orders} in {after.orders}.*Someone else"):
        moved(after, settings)
    assert outcomes(before, settings) == PASSED  # nothing of the application was touched


def test_input_that_was_deleted_in_part_is_refused(
    before: TransactionalApplication, after: TransactionalApplication, settings: Settings
) -> None:
    delete_records(Brokers(after.bootstrap_servers), before.orders, {0: 3})
    with pytest.raises(Refused, match=f"{before.orders}-0 begins at offset 3"):
        move_of(after, settings).observe()


@pytest.mark.soak
def test_purged_repartition_records_do_not_hinder(
    before: TransactionalApplication, after: TransactionalApplication, settings: Settings
) -> None:
    positions = before.cluster.positions(before.group, before.repartition)
    delete_records(Brokers(after.bootstrap_servers), before.repartition, {0: positions[0]})
    moved(after, settings)
    assert read_committed(after.bootstrap_servers, after.repartition) == []  # what is left in part must not look whole
    verify(before, after, settings)


def test_nothing_declared_and_nothing_to_move_from(
    before: TransactionalApplication, settings: Settings, bootstrap_servers: str
) -> None:
    with pytest.raises(Refused, match=rf"repartition_from=\{{'{before.orders}-v2': '{before.orders}'\}}"):
        move_of(before, settings).observe()
    new = f"{before.group}-x-orders"
    nowhere = TransactionalApplication(
        bootstrap_servers, name=f"{before.group}-x", partitions=4, repartition_from={new: "no-such"}
    )
    with pytest.raises(Refused, match="topic no-such"):
        move_of(nowhere, settings).observe()


def test_counts_raised_in_place_are_refused_with_the_reason_and_the_safe_way(
    before: TransactionalApplication, settings: Settings
) -> None:
    wider = TransactionalApplication(before.bootstrap_servers, name=before.group, partitions=4)
    with pytest.raises(Refused) as refusal:
        apply_topics(Brokers(before.bootstrap_servers), wider.pipeline)
    told = str(refusal.value)
    for part in (
        f"{before.orders}: partitions: expected 4, observed 2",
        "keys would move",
        "its total would be split",
        f"{wider.pipeline.name}_repartition is the safe way",
    ):
        assert part in told
    assert outcomes(before, settings) == PASSED


def test_totals_are_unchanged_and_between_the_steps_neither_deployment_nor_reset_goes_ahead(
    before: TransactionalApplication,
    after: TransactionalApplication,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def dies(*arguments: object) -> None:
        raise KeyboardInterrupt

    assert outcomes(before, settings) == PASSED
    plan = move_of(after, settings).observe()
    assert [(one.topic, one.to, one.partitions_before, one.partitions) for one in plan.sources] == [
        (before.orders, after.orders, 2, 4)
    ]
    assert {one.topic for one in plan.internal} == {after.repartition, after.changelog, after.dead_letters}
    cluster = KafkaCluster(Brokers(after.bootstrap_servers))
    assert after.orders not in cluster.topics([after.orders])  # a plan changes nothing

    with monkeypatch.context() as patched:
        patched.setattr(moving.checkpoints, "delete", dies)
        with pytest.raises(KeyboardInterrupt):
            moved(after, settings)
    assert after.dead_letters not in cluster.topics([after.dead_letters])  # an aggregator refuses without it
    with pytest.raises(Refused, match=r"are being moved.*Nothing was created"):
        apply_topics(Brokers(after.bootstrap_servers), after.pipeline)
    with pytest.raises(Refused, match="are being moved"):
        Resetter(after.pipeline, Brokers(after.bootstrap_servers), settings).observe()
    assert move_of(after, settings).observe().begun
    said = moved(after, settings)
    assert f"{before.orders} is left in place" in said[-1]
    verify(before, after, settings)


@pytest.mark.parametrize("when", ["after", *soak(["before"])])
def test_what_the_application_did_since_is_not_undone(
    before: TransactionalApplication,
    after: TransactionalApplication,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    when: str,
) -> None:
    """All was in its place, the run died while it tidied up, the application was started: then the move runs again."""
    delete_group = moving.delete_group

    def dies(*arguments: Any) -> None:
        if when == "after":
            delete_group(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(moving, "delete_group", dies)
        with pytest.raises(KeyboardInterrupt):
            moved(after, settings)
    after.resume()
    after.order_many(200, 300)
    after.drain()
    cluster = KafkaCluster(Brokers(after.bootstrap_servers))
    positions = {topic: cluster.positions(after.group, topic) for topic in (after.orders, after.repartition)}
    moved(after, settings)
    assert {topic: cluster.positions(after.group, topic) for topic in positions} == positions
    assert not cluster.topics([temporary_topic(spec).name for spec in after.pipeline.internal_topics()])
    changelog = read_committed(after.bootstrap_servers, after.changelog)
    assert {m.key(): int.from_bytes(m.value(), "big") for m in changelog} == {b"0": 151, b"1": 150}
    assert outcomes(after, settings) == PASSED
    assert move_of(after, settings).observe().done


class Windows:
    """Final results of windows of 2 seconds, grace 1, on the topic ``sales`` or the one that its records move to."""

    def __init__(self, tried: Tried, settings: Settings) -> None:
        self.tried, self.settings = tried, settings
        self.brokers = Brokers(tried.bootstrap_servers)
        self.declare("sales")

    def declare(self, source: str, *, partitions: int = PARTITIONS, moved: bool = False) -> None:
        topology = self.tried.declare_anew()
        windows = topology.stream(self.tried.named(source), value=SALE).group_by_key()
        final = windows.windowed_by(TimeWindows("2 seconds", grace="1 second")).emit_strategy(OnWindowClose())
        final.count(store="counts").to_stream().to(self.tried.named("out"))
        self.tried.partition_counts = {self.tried.named(source): partitions}
        moves = {self.tried.named(source): self.tried.named("sales")} if moved else {}
        self.tried._pipeline = replace(self.tried.pipeline, repartition_from=moves)

    def sell(self, source: str, *sales: tuple[str, int]) -> None:
        self.tried.produce(source, [(key, sale("shop", 1), second) for key, second in sales])

    def drain(self) -> None:
        drain(self.tried.spark, self.tried.pipeline, self.brokers, self.settings.checkpoints, 1000)

    def move(self) -> Repartitioner:
        return Repartitioner(self.tried.pipeline, self.brokers, self.settings, watched_seconds=QUICK)

    def results(self) -> list[tuple[str, int, int]]:
        """Key, second of the window's start, count."""
        found = self.tried.read(self.tried.named("out"))
        return sorted(
            (m.key()[:-8].decode(), (int.from_bytes(m.key()[-8:], "big") - EPOCH) // 1000, m.value()[-1]) for m in found
        )


@pytest.fixture
def windows(bootstrap_servers: str, settings: Settings, spark: SparkSession) -> Iterator[Windows]:
    made = Windows(Tried(bootstrap_servers, Path(settings.checkpoints), spark, restoring=False), settings)
    yield made
    made.tried.delete_topics()


def test_final_results_are_not_moved_to_stream_tasks_with_another_time(windows: Windows) -> None:
    """Two keys, each in a stream task of its own: that of one has come far, that of the other has not."""
    slow, fast = (next(key for key in "abcdef" if partition_for_key(key.encode(), 2) == one) for one in (0, 1))
    windows.tried.create_topics()
    windows.sell("sales", (slow, 0), (slow, 1), (fast, 0), (fast, 30))
    windows.drain()
    assert windows.results() == [(fast, 0, 1)]
    cluster = KafkaCluster(windows.brokers)
    group = windows.tried.topology.application_id
    before = cluster.committed_positions(group)
    for partitions in (1, 3):
        windows.declare("sales-2", partitions=partitions, moved=True)
        with pytest.raises(Refused, match="which final results were passed"):
            windows.move().apply({"sources": [], "internal": []})
    assert cluster.committed_positions(group) == before
    assert not KafkaCluster(windows.brokers).topics([windows.tried.named("sales-2")])
    windows.declare("sales")
    windows.sell("sales", (slow, 1), (slow, 9), (fast, 1), (fast, 31))
    windows.drain()
    assert windows.results() == [(slow, 0, 3), (fast, 0, 1)] if slow < fast else [(fast, 0, 1), (slow, 0, 3)]


def test_with_as_many_partitions_as_before_final_results_and_the_time_of_idle_tasks_move(windows: Windows) -> None:
    windows.tried.create_topics()
    windows.sell("sales", ("a", 0), ("b", 0), ("a", 8), ("b", 8))
    windows.drain()
    first = [("a", 0, 1), ("b", 0, 1)]
    assert windows.results() == first
    cluster, group = KafkaCluster(windows.brokers), windows.tried.topology.application_id
    given = {}  # the wall clock has closed what is open, and has given a time between two windows
    for place, position in cluster.committed_positions(group).items():
        metadata = PositionMetadata.parse(position.metadata)
        assert metadata is not None
        given[place] = replace(metadata, time=EPOCH + 20_000).text
    positions = {place: position.offset for place, position in cluster.committed_positions(group).items()}
    set_positions(windows.brokers, group, positions, metadata=given)

    windows.declare("sales-2", moved=True)
    move = windows.move()
    move.apply(move.observe().written())
    windows.sell("sales-2", ("a", 9), ("b", 0), ("a", 18), ("b", 18), ("a", 30), ("b", 30))
    windows.drain()
    assert windows.results() == sorted([*first, ("a", 18, 1), ("b", 18, 1)])
