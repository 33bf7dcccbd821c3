"""The checks on real brokers: green on what is healthy, red for its own cause and for no other's."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, ResourceType
from streamplan.adapters.kafka.reader import KafkaCluster
from streamplan.checks import CHECKS, compaction
from streamplan.checks.compaction import CLEANER_PATIENCE
from streamplan.checks.observation import CouldNotLook
from streamplan.partitions import partition_for_key
from streamplan.pipelines.orders import PIPELINE
from streamplan.processor_topology import TaskId

from tests.integration.transactional_application import TransactionalApplication

SET, DELETE = AlterConfigOpType.SET, AlterConfigOpType.DELETE


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


def red(application: TransactionalApplication) -> dict[str, list[str]]:
    """The wrong rows of each check that is red, as text."""
    found: dict[str, list[str]] = {}
    for check in CHECKS:
        rows = list(check.observe(application.pipeline, application.cluster))
        wrong = [f"{row.subject}: expected {row.expected}, observed {row.observed}" for row in rows if not row.agrees]
        if wrong or not rows:
            found[check.name] = wrong
    return found


def alter(application: TransactionalApplication, topic: str, **configs: object) -> None:
    entries = [
        ConfigEntry(name.replace("_", "."), str(value), incremental_operation=SET) for name, value in configs.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    application.admin.incremental_alter_configs([resource])[resource].result(10)


def alter_brokers(application: TransactionalApplication, entry: ConfigEntry) -> None:
    for broker in application.admin.list_topics(timeout=10).brokers:
        resource = ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=[entry])
        application.admin.incremental_alter_configs([resource])[resource].result(10)


def eventually(condition: Callable[[], bool], what: str, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.1)


def test_healthy(application: TransactionalApplication) -> None:
    assert application.totals == {b"0": 10, b"1": 9}
    assert red(application) == {}


def test_healthy_oddities(application: TransactionalApplication) -> None:
    """Bad records, a null key, records on their way, consumed records purged."""
    for value in (None, b"", b"not JSON", b"{}", b'{"ProductType": 7}'):
        application.produce(application.orders, b"bad", value)
    application.produce(application.orders, None, b'{"Id": "order_99", "ProductType": 1}')
    application.drain()
    assert application.totals[b"1"] == 10
    application.order_many(19, 30)
    application.step(TaskId(0, 0))
    at = [TopicPartition(application.repartition, number, 5) for number in (0, 1)]
    for future in application.admin.delete_records(at).values():
        future.result(10)
    assert red(application) == {}


def test_tampered_changelog(application: TransactionalApplication) -> None:
    application.produce(application.changelog, b"0", (11).to_bytes(8, "big"), partition=0)
    found = red(application)
    assert list(found) == ["totals"]
    assert "totals[0] Jackets: expected 10, observed 11" in found["totals"]


def test_keys_placed_by_crc32(application: TransactionalApplication, bootstrap_servers: str) -> None:
    """librdkafka's default partitioner. Keys 0 and 1 fall where murmur2 puts them or not: it is asked, not known."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "partitioner": "consistent"})
    placed: dict[bytes, int] = {}
    for n in range(8):
        key = b"key-%d" % n
        producer.produce(
            application.repartition, b"", key, on_delivery=lambda _, m: placed.update({m.key(): m.partition()})
        )
    assert producer.flush(10) == 0
    misplaced = {key for key, partition in placed.items() if partition_for_key(key, 2) != partition}
    assert misplaced
    text = "\n".join(red(application)["copartitioning"])
    assert {key for key in placed if f"key '{key.decode()}'" in text} == misplaced


def test_one_key_misrouted(application: TransactionalApplication) -> None:
    application.produce(application.changelog, b"1", (9).to_bytes(8, "big"), partition=0)
    found = red(application)["copartitioning"]
    assert f"{application.changelog}: key '1': expected partition 1, observed partition 0 (1 records" in found[1]


def test_changelog_with_policy_delete(application: TransactionalApplication) -> None:
    alter(application, application.changelog, cleanup_policy="delete")
    expected = f"{application.changelog}: cleanup.policy: expected compact, observed delete"
    eventually(lambda: red(application) == {"compaction": [expected]}, expected)


def test_lost_record(application: TransactionalApplication) -> None:
    application.produce(application.orders, b"order_20", b'{"Id": "order_20", "ProductType": 0}', partition=0)
    application.skip_one(0)
    found = red(application)
    assert list(found) == ["totals"]
    assert "totals[0] Jackets: expected 11, observed 10" in found["totals"]


@pytest.mark.parametrize("counted", [False, True])
def test_duplicated_repartition_record(application: TransactionalApplication, counted: bool) -> None:
    application.produce(application.repartition, b"1", b'{"Id": "order_1", "ProductType": 1}')
    if counted:
        application.drain()
    found = red(application)
    assert list(found) == ["totals"]
    assert "totals[1] Shirts: expected 9, observed 10" in found["totals"]


def test_partitions_added(application: TransactionalApplication) -> None:
    application.admin.create_partitions([NewPartitions(application.repartition, 3)])[application.repartition].result(10)
    cluster = application.cluster = KafkaCluster(application.bootstrap_servers)
    name = application.repartition
    eventually(lambda: cluster.topics([name])[name].partitions == 3, "three partitions")
    text = "\n".join(red(application)["copartitioning"])
    assert f"{name}: partitions (sub-topology 1): expected 2, observed 3" in text


def test_nothing_to_look_at(bootstrap_servers: str) -> None:
    application = TransactionalApplication(bootstrap_servers)
    application.create_topics()
    try:
        assert sorted(red(application)) == ["compaction", "copartitioning", "totals"]
    finally:
        application.close()


def test_topics_missing(bootstrap_servers: str) -> None:
    application = TransactionalApplication(bootstrap_servers)
    assert sorted(red(application)) == ["compaction", "copartitioning", "totals"]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_brokers_away(check) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(CouldNotLook, match=r"127\.0\.0\.1:1.*Connection refused"):
        list(check.observe(PIPELINE, KafkaCluster("127.0.0.1:1", deadline_seconds=0.5)))


def test_no_false_alarm_while_the_stream_runs(application: TransactionalApplication) -> None:
    """Four tasks commit transaction after transaction, each in a thread of its own, and orders keep coming."""
    stop = threading.Event()
    failed: list[Exception] = []

    def run(act: Callable[[], None]) -> None:
        try:
            while not stop.is_set():
                act()
                stop.wait(0.02)
        except Exception as error:  # noqa: BLE001  # a thread's errors, of whatever kind, would be lost
            failed.append(error)

    numbers = iter(range(100, 1_000_000, 20))

    def orders() -> None:
        first = next(numbers)
        application.order_many(first, first + 20)

    def aggregate() -> None:
        application.step(TaskId(1, 0))
        application.step(TaskId(1, 1))

    acts = [orders, lambda: application.step(TaskId(0, 0)), lambda: application.step(TaskId(0, 1)), aggregate]
    threads = [threading.Thread(target=run, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    try:
        before = sum(application.totals.values())
        for _ in range(10):
            assert red(application) == {}
        assert sum(application.totals.values()) > before
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
    assert not failed


def test_a_stopped_cleaner_is_found_until_it_works_again(application: TransactionalApplication) -> None:
    topic = application.changelog
    # Between two passes the cleaner sleeps: an hour is as good as stopped.
    alter_brokers(application, ConfigEntry("log.cleaner.backoff.ms", "3600000", incremental_operation=SET))
    try:
        alter(application, topic, segment_ms=1000, max_message_bytes=500, compression_type="uncompressed")
        time.sleep(1.0)  # the sleeping cleaner has no sign
        now = int(time.time() * 1000)
        for n in range(200):  # 20 seconds
            application.produce(topic, b"0", n.to_bytes(8, "big"), partition=0, timestamp=now + 100 * n)

        def overdue(seconds: float) -> int:
            patience = replace(CLEANER_PATIENCE, seconds=seconds, interval=0.5)
            rows = list(compaction.observe(application.pipeline, application.cluster, patience=patience))
            return sum(int(row.observed) for row in rows if row.expected == 0)

        assert 100 < overdue(2.0) < 200
    finally:
        alter_brokers(application, ConfigEntry("log.cleaner.backoff.ms", None, incremental_operation=DELETE))
    assert overdue(30.0) == 0
    eventually(lambda: overdue(0.0) == 0, "compaction")
