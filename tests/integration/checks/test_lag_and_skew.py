"""Lag, liveness and skew on real brokers: of an application in plain Python, of Kafka Streams, of our aggregator."""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from streamplan.checks import lag, skew
from streamplan.checks.framework.application import Application, application_of
from streamplan.checks.framework.check import Observation, sentence
from streamplan.checks.lag import LAG_DEADLINE
from streamplan.errors import CouldNotLook
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.topics import apply_topics
from streamplan.local.jars import KAFKA_STREAMS
from streamplan.model.partitioner import partition_for_key
from streamplan.model.pipeline import Limits, Pipeline, TestData
from streamplan.model.processor_topology import TaskId
from streamplan.model.status import AggregatorState, AggregatorStatus
from streamplan.model.topology import Topology
from streamplan.pipelines.orders import order
from streamplan.reports.status import read_status
from streamplan.serdes.json import Json

from tests.support.aggregator_process import ORDERS, Aggregator, await_condition
from tests.support.kafka_streams import java, properties, wait_until_running
from tests.support.records import read_committed
from tests.support.soak import soak
from tests.support.transactional_application import TransactionalApplication
from tests.support.waiting import eventually

SHORT = replace(LAG_DEADLINE, seconds=1.0)


@pytest.fixture
def application(bootstrap_servers: str) -> Iterator[TransactionalApplication]:
    """19 orders, all processed; one transaction was aborted on the way."""
    application = TransactionalApplication(bootstrap_servers)
    application.create_topics()
    application.order_many(0, 19)
    application.step(TaskId(0, 1), abort=True)
    application.drain()
    yield application
    application.close()


def lag_of(application: TransactionalApplication, *, patient: bool = False) -> list[Observation]:
    deadline = LAG_DEADLINE if patient else SHORT
    rows = list(lag.LagCheck(deadline=deadline).observe(application_of(application.pipeline), application.cluster))
    assert rows
    return rows


def wrong(rows: list[Observation]) -> list[str]:
    return [sentence(row) for row in rows if not row.agrees]


def transactional(application: TransactionalApplication) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": application.bootstrap_servers,
            "transactional.id": f"other-{uuid.uuid4()}",
            "partitioner": "murmur2_random",
        }
    )
    producer.init_transactions(120)
    return producer


def purge(application: TransactionalApplication, topic: str, until: Mapping[int, int]) -> None:
    at = [TopicPartition(topic, *position) for position in until.items()]
    for future in application.admin.delete_records(at).values():
        future.result(120)


# -- lag


def test_caught_up(application: TransactionalApplication) -> None:
    rows = lag_of(application, patient=True)
    assert not wrong(rows)
    tasks = [
        f"task {task} ({topic}-{number}): no record to process"
        for task, topic, number in (
            ("0_0", application.orders, 0),
            ("0_1", application.orders, 1),
            ("1_0", application.repartition, 0),
            ("1_1", application.repartition, 1),
        )
    ]
    assert [row.subject for row in rows] == [f"group {application.group}: no member, so no instance runs", *tasks]


def test_stalled_tasks_are_named_each(application: TransactionalApplication) -> None:
    expected = {0: 0, 1: 0}
    for n in range(19, 30):
        expected[partition_for_key(order(n)[0], 2)] += 1
    positions = application.cluster.positions(application.group, application.orders)
    application.order_many(19, 30)
    found = wrong(lag_of(application))
    assert len(found) == 2
    for number, row in enumerate(found):
        assert row.startswith(f"task 0_{number} ({application.orders}-{number}): {expected[number]} records to process")
        assert row.endswith(
            f"has not moved within 1 s (since {application.orders}-{number} offset {positions[number]}; "
            f"group {application.group}: no member, so no instance runs)"
        )
    application.step(TaskId(0, 0))
    application.step(TaskId(0, 1))
    assert [row.split(" ")[1] for row in wrong(lag_of(application))] == ["1_0", "1_1"]
    application.drain()
    assert not wrong(lag_of(application, patient=True))


def test_aborted_records_behind_the_position_are_no_lag(application: TransactionalApplication) -> None:
    producer = transactional(application)
    producer.begin_transaction()
    for n in range(50):
        producer.produce(application.orders, b"v", b"k", partition=n % 2)
    producer.flush(120)
    producer.abort_transaction(120)
    positions = application.cluster.positions(application.group, application.orders)
    ends = application.cluster.offsets(application.orders)
    assert all(ends[number].high_watermark >= position + 26 for number, position in positions.items())
    assert not wrong(lag_of(application, patient=True))


def test_missing_positions(application: TransactionalApplication) -> None:
    positions = application.cluster.positions(application.group, application.repartition)
    application.forget_positions()
    group = Consumer({"bootstrap.servers": application.bootstrap_servers, "group.id": application.group})
    group.commit(offsets=[TopicPartition(application.repartition, 1, positions[1])], asynchronous=False)
    group.close()
    found = wrong(lag_of(application))
    assert [row.split(":")[0] for row in found] == [
        f"task 0_0 ({application.orders}-0)",
        f"task 0_1 ({application.orders}-1)",
        f"task 1_0 ({application.repartition}-0)",
    ]
    for row in found:
        assert f"expected a committed position of group {application.group}, observed none within 1 s" in row


def test_a_position_beyond_the_end(application: TransactionalApplication) -> None:
    end = application.cluster.offsets(application.orders)[0].high_watermark
    application.commit(application.orders, 0, end + 7)
    assert wrong(lag_of(application)) == [
        f"task 0_0 ({application.orders}-0): position of group {application.group}: expected at most {end}, the end of"
        f" the partition, observed {end + 7}: was the topic recreated or truncated?"
    ]


def test_records_deleted_before_they_were_processed(application: TransactionalApplication) -> None:
    application.drain()
    purge(application, application.repartition, {0: 5, 1: 5})
    assert not wrong(lag_of(application, patient=True))
    position = application.cluster.positions(application.group, application.orders)[1]
    application.order_many(19, 60)
    application.step(TaskId(0, 0))
    purge(application, application.orders, {1: position + 4})
    found = wrong(lag_of(application))
    assert found[0] == (
        f"task 0_1 ({application.orders}-1): position of group {application.group}: expected at least {position + 4},"
        f" the start of the partition, observed {position}: 4 offsets were deleted before they were processed"
    )


def test_a_transaction_that_hangs_until_it_ends(application: TransactionalApplication) -> None:
    producer = transactional(application)
    since = application.cluster.offsets(application.repartition)[1].high_watermark
    producer.begin_transaction()
    producer.produce(application.repartition, b"v", b"1", partition=1)
    assert producer.flush(120) == 0
    (found,) = wrong(lag_of(application))
    assert found.startswith(f"{application.repartition}-1: transactions: expected each ends within 1 s,")
    assert f"observed one is open since offset {since}" in found
    ended = threading.Timer(2.0, lambda: producer.abort_transaction(120))
    ended.start()
    assert not wrong(lag_of(application, patient=True))
    ended.join()


def test_the_declared_bound_in_seconds(application: TransactionalApplication) -> None:
    application.pipeline = replace(application.pipeline, limits=Limits(lag_seconds=60))
    assert not wrong(lag_of(application))
    old = int((time.time() - 3600) * 1000)
    application.produce(application.orders, *order(20), partition=0, timestamp=old)
    moved = threading.Timer(0.5, lambda: application.step(TaskId(0, 0)))
    moved.start()
    (found,) = wrong(lag_of(application, patient=True))
    moved.join()
    assert f"task 0_0 ({application.orders}-0): age of the oldest record to process: 36" in found
    application.drain()
    assert not wrong(lag_of(application))


def test_no_false_alarm_while_it_runs(application: TransactionalApplication) -> None:
    def act(number: int) -> None:
        first = 1000 + 10 * number
        application.order_many(first, first + 10)
        for task in (TaskId(0, 0), TaskId(0, 1), TaskId(1, 0), TaskId(1, 1)):
            application.step(task)

    with Repeated(act):
        for _ in range(10):
            assert not wrong(lag_of(application, patient=True))


class Repeated:
    """Does something again and again in a thread of its own. An error there fails the test."""

    def __init__(self, act: Callable[[int], None]) -> None:
        self._act = act
        self._stop = threading.Event()
        self._errors: list[Exception] = []
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        number = 0
        try:
            while not self._stop.is_set():
                self._act(number)
                number += 1
                self._stop.wait(0.02)
        except Exception as error:  # noqa: BLE001  # a thread's errors, of whatever kind, would be lost
            self._errors.append(error)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(300)
        assert not self._errors


# -- skew


def skew_of(application: TransactionalApplication) -> list[Observation]:
    return list(skew.CHECK.observe(application_of(application.pipeline), application.cluster))


def order_products(application: TransactionalApplication, numbers: Mapping[int, int]) -> None:
    """So many orders of each product."""
    n = 0
    for product, count in numbers.items():
        for _ in range(count):
            n += 1
            application.plain.produce(
                application.orders, b'{"Id": "order_%d", "ProductType": %d}' % (n, product), b"order_%d" % n
            )
        assert application.plain.flush(120) == 0
    application.drain()


def test_an_even_stream(application: TransactionalApplication) -> None:
    assert not wrong(skew_of(application))
    order_products(application, {0: 1000, 1: 1000})
    rows = skew_of(application)
    assert not wrong(rows)
    assert [row.subject.split(",")[0] for row in rows if row.subject.startswith(application.repartition)] == [
        f"{application.repartition}-{number}: 50% of 2" for number in (0, 1)
    ]


def test_most_on_one_key_until_the_other_catches_up(application: TransactionalApplication) -> None:
    order_products(application, {0: 90, 1: 910})
    totals = application.totals
    (found,) = wrong(skew_of(application))
    share = f"{100 * totals[b'1'] / sum(totals.values()):.1f}%"
    assert found.startswith(f"{application.repartition}-1: {share} of 1,019 records")
    assert f"expected at most 80%, observed {share} of the records (key '1' {share})" in found
    # It stays so when what was consumed is purged, wherever that happens to end.
    position = application.cluster.positions(application.group, application.repartition)
    purge(application, application.repartition, {0: position[0], 1: position[1] - 200})
    (found,) = wrong(skew_of(application))
    assert "by the ends of the partitions" in found
    order_products(application, {0: 1000})
    assert not wrong(skew_of(application))


def test_what_purging_leaves_is_no_skew(application: TransactionalApplication) -> None:
    order_products(application, {0: 1500, 1: 1500})
    position = application.cluster.positions(application.group, application.repartition)
    purge(application, application.repartition, {0: position[0]})
    assert not wrong(skew_of(application))
    purge(application, application.repartition, {1: position[1]})
    assert not wrong(skew_of(application))


def test_nothing_to_look_at(bootstrap_servers: str) -> None:
    application = TransactionalApplication(bootstrap_servers)
    application.create_topics()
    try:
        for check in (lag.CHECK, skew.CHECK):
            with pytest.raises(CouldNotLook, match="at least 1 record"):
                list(check.observe(application_of(application.pipeline), application.cluster))
    finally:
        application.close()


# -- Kafka Streams


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", *soak(["at_least_once"])])
def test_kafka_streams(bootstrap_servers: str, tmp_path: Path, guarantee: str) -> None:
    """With the library's own commit intervals: healthy from its first record on, while its repartition topic is purged,
    and when all is processed; stalled when it is closed.
    """
    name = f"jvm-{guarantee.replace('_', '-')}-{uuid.uuid4().hex[:8]}"
    topology = Topology(name)
    source = topology.stream(f"{name}-orders", value=Json("Id string"))
    source.repartition(name="again").group_by_key().count(store="totals")
    data = TestData((f"{name}-orders",), lambda n: (f"{name}-orders", b"%d" % (n % 40), b'{"Id": "%d"}' % n), "Id")
    pipeline = Pipeline(name, topology, "", {f"{name}-orders": 2}, data)
    apply_topics(Brokers(bootstrap_servers), pipeline)
    # Its members are the library's, and not our aggregator.
    subject = replace(application_of(pipeline), declared=False)
    cluster = KafkaCluster(Brokers(bootstrap_servers))
    producer = Producer({"bootstrap.servers": bootstrap_servers, "partitioner": "murmur2_random"})

    produced = 0

    def produce(number: int) -> None:
        nonlocal produced
        for n in range(100 * number, 100 * number + 100):
            _, key, value = data.record(n)
            producer.produce(f"{name}-orders", value, key)
        assert producer.flush(120) == 0
        produced += 100

    def counted() -> int:
        messages = read_committed(bootstrap_servers, topology.changelog_topic("totals"))
        return sum({message.key(): int.from_bytes(message.value(), "big") for message in messages}.values())

    try:
        with java(KAFKA_STREAMS) as jvm:
            serde = "org.apache.kafka.common.serialization.Serdes$StringSerde"
            config = {
                "application.id": name,
                "bootstrap.servers": bootstrap_servers,
                "state.dir": str(tmp_path),
                "processing.guarantee": guarantee,
                "auto.offset.reset": "earliest",
                "repartition.purge.interval.ms": "1000",
                "default.key.serde": serde,
                "default.value.serde": serde,
            }
            streams = jvm.org.apache.kafka.streams
            builder = streams.StreamsBuilder()
            again = getattr(streams.kstream.Repartitioned, "as")("again")
            store = getattr(streams.kstream.Materialized, "as")("totals")
            builder.stream(f"{name}-orders").repartition(again).groupByKey().count(store)
            kafka_streams = streams.KafkaStreams(builder.build(), properties(jvm, config))
            try:
                kafka_streams.start()
                wait_until_running(kafka_streams)
                with Repeated(produce):
                    _stay_healthy(subject, cluster, f"{name}-again-repartition")
                eventually(lambda: counted() == produced, "all orders are counted", interval=0.5)
                rows = list(lag.CHECK.observe(subject, cluster))
                assert not wrong(rows)
                assert rows[0].subject.startswith(f"group {name}: 1 member, {name}-")
            finally:
                kafka_streams.close(jvm.java.time.Duration.ofSeconds(120))
        produce(10_000)
        found = wrong(list(lag.LagCheck(deadline=SHORT).observe(subject, cluster)))
        assert [row.split(" ")[1] for row in found] == ["0_0", "0_1"]
        assert all("has not moved within 1 s" in row for row in found)
    finally:
        admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        for future in admin.delete_topics([spec.name for spec in pipeline.topics()]).values():
            future.exception(120)


def _stay_healthy(subject: Application, cluster: KafkaCluster, repartition: str) -> None:
    """Until its repartition topic was purged."""
    deadline = time.monotonic() + 600
    looks = 0
    while looks < 2 or not any(found.log_start for found in cluster.offsets(repartition).values()):
        assert time.monotonic() < deadline, "nothing is purged"
        assert not wrong(list(lag.CHECK.observe(subject, cluster)))
        assert not wrong(list(skew.CHECK.observe(subject, cluster)))
        looks += 1


# -- our aggregator


def test_the_aggregator_says_how_it_is(aggregator: Aggregator, bootstrap_servers: str, tmp_path: Path) -> None:
    """It runs, is stopped by a signal, goes on, and ends."""
    file = tmp_path / "reports" / "aggregator.json"
    subject, cluster = application_of(ORDERS), KafkaCluster(Brokers(bootstrap_servers))
    producer = Producer({"bootstrap.servers": bootstrap_servers, "partitioner": "murmur2_random"})
    for n in range(19):
        key, value = order(n)
        producer.produce("orders", value, key)
    assert producer.flush(120) == 0

    def said() -> AggregatorStatus | None:
        return read_status(file)

    def is_in(state: AggregatorState, *, batches: int = 0) -> bool:
        status = said()
        return status is not None and status.state is state and len(status.batches) >= batches

    def look(status: AggregatorStatus | None, *, later: float = 0.0) -> list[str]:
        return wrong(list(lag.LagCheck(status, now=lambda: time.time() + later).observe(subject, cluster)))

    process = aggregator.start("--heartbeat", str(file))
    await_condition("it starts", lambda: is_in(AggregatorState.STARTING), aggregator.log)
    await_condition("it runs", lambda: is_in(AggregatorState.RUNNING), aggregator.log)
    await_condition("both sub-topologies wrote", lambda: is_in(AggregatorState.RUNNING, batches=2), aggregator.log)
    assert not look(said())
    (member,) = cluster.members(subject.application_id) or ()
    assert member.instance is not None
    assert f":{said().pid}:" in member.instance  # type: ignore[union-attr]

    os.killpg(process.pid, signal.SIGSTOP)
    before = said()
    assert before is not None
    time.sleep(6)  # more than a beat: it is quiet, and nothing tells that but time
    assert said() == before
    assert not look(before)  # it may as well have been killed, and be started again in a moment
    (found,) = look(before, later=60)
    assert found.startswith(f"the aggregator, pid {before.pid} on {before.host}, says running: expected a heartbeat")

    os.killpg(process.pid, signal.SIGCONT)
    await_condition("it beats again", lambda: said() != before, aggregator.log)
    assert not look(said())

    os.killpg(process.pid, signal.SIGTERM)
    await_condition("it says stopped", lambda: is_in(AggregatorState.STOPPED), aggregator.log)
    process.wait(600)
    assert is_in(AggregatorState.STOPPED)
    assert not look(said(), later=3600)
