"""The checks of topics against what Kafka makes of topics: the library's own changelogs, and a cleaner at work."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from streamplan.checks import compaction, names, repartition, topics
from streamplan.checks.discovery.discover import discover
from streamplan.checks.framework.application import Application, SubtopologyTopics, application_of
from streamplan.checks.framework.check import Observation
from streamplan.checks.framework.consistent_cut import Deadline
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.model.topics import TopicRole, TopicSpec

from tests.support.brokers import NewTopicFactory
from tests.support.kafka_streams import STREAMS
from tests.support.streams_library import Callback, Library, raw, started
from tests.support.transactional_application import TransactionalApplication
from tests.support.waiting import eventually

SET, DELETE = AlterConfigOpType.SET, AlterConfigOpType.DELETE
ONE_LOOK = Deadline(seconds=0.0)


def alter(bootstrap_servers: str, kind: ResourceType, name: str, **configs: str | None) -> None:
    """Set configs, or with None take them back."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 2})
    entries = [
        ConfigEntry(config.replace("_", "."), value, incremental_operation=DELETE if value is None else SET)
        for config, value in configs.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(120)


# -- changelogs of the library


def every_kind_of_store(library: Library, clicks: str, views: str) -> Any:
    """A topology with each kind of changelog that the library knows, under its own names and under a user's."""
    duration, kstream = library.jvm.java.time.Duration, library.jvm.org.apache.kafka.streams.kstream
    stores, key, value = library.jvm.org.apache.kafka.streams.state.Stores, library.bytes, library.bytes
    consumed = library.option("Consumed", "with", key, value)
    left, right = (library.builder.stream(topic, consumed) for topic in (clicks, views))
    joiner = Callback(f"{STREAMS}.kstream.ValueJoiner", apply=lambda one, other: raw(one))
    windows = kstream.JoinWindows.ofTimeDifferenceAndGrace(duration.ofSeconds(5), duration.ofSeconds(5))
    joined = library.option("StreamJoined", "with", key, value, value)
    left.outerJoin(right, joiner, windows, joined)
    left.leftJoin(right, joiner, windows, joined.withStoreName("named"))
    suppliers = [
        stores.inMemoryWindowStore(name, duration.ofSeconds(15), duration.ofSeconds(10), True)
        for name in ("one-side", "another-side")
    ]
    supplied = library.option("StreamJoined", "with", *suppliers)
    left.join(right, joiner, windows, supplied.withKeySerde(key).withValueSerde(value).withOtherValueSerde(value))
    grouped = left.groupByKey(library.option("Grouped", "with", key, value))
    grouped.count(library.option("Materialized", "as", "counts").withKeySerde(key))
    minutes = kstream.TimeWindows.ofSizeWithNoGrace(duration.ofSeconds(10))
    counted = grouped.windowedBy(minutes).count(library.option("Materialized", "as", "windows").withKeySerde(key))
    counted.suppress(kstream.Suppressed.untilWindowCloses(kstream.Suppressed.BufferConfig.unbounded()))
    gap = kstream.SessionWindows.ofInactivityGapWithNoGrace(duration.ofSeconds(3))
    grouped.windowedBy(gap).count(library.option("Materialized", "as", "sessions").withKeySerde(key))
    versions = stores.persistentVersionedKeyValueStore("versions", duration.ofHours(1))
    left.toTable(library.option("Materialized", "as", versions).withKeySerde(key).withValueSerde(value))
    return library.builder.build()


@pytest.mark.soak
def test_changelogs_of_every_kind_of_store(
    jvm: Any, bootstrap_servers: str, new_topic: NewTopicFactory, tmp_path: Path
) -> None:
    library = Library(jvm, f"stores-{uuid.uuid4().hex[:8]}")
    clicks, views = new_topic("clicks"), new_topic("views")
    built = every_kind_of_store(library, clicks, views)
    cluster = KafkaCluster(Brokers(bootstrap_servers))
    producer = Producer({"bootstrap.servers": bootstrap_servers, "partitioner": "murmur2_random"})
    with started(library, built, bootstrap_servers, tmp_path):
        for n in range(200):
            producer.produce((clicks, views)[n % 2], b"value-%d" % n, b"user-%d" % (n % 9))
            producer.flush(120)
        application = discover(
            cluster, library.application_id, sources=[clicks, views], topology=str(built.describe().toString())
        )
        changelogs = [spec.name for spec in application.with_role(TopicRole.CHANGELOG)]

        def written() -> set[str]:
            return {name for name in changelogs if any(at.high_watermark for at in cluster.offsets(name).values())}

        eventually(lambda: len(written()) >= len(changelogs) - 2, f"records in {changelogs}, {written()}")
        policies = {name: topic.configs["cleanup.policy"] for name, topic in cluster.topics(changelogs).items()}
        of_kind = {
            kind: sorted(name.removeprefix(f"{library.application_id}-") for name in policies if policies[name] == kind)
            for kind in set(policies.values())
        }
        assert of_kind["delete"] == [
            "KSTREAM-OUTEROTHER-0000000005-store-changelog",
            "KSTREAM-OUTERTHIS-0000000004-store-changelog",
            "named-outer-other-join-store-changelog",
            "named-this-join-store-changelog",
        ]
        # Those of a join whose stores were supplied are among them since 4.3; before, they had "delete" as well.
        supplied = ["another-side-changelog", "one-side-changelog"]
        assert of_kind["compact,delete"] == [*supplied, "sessions-changelog", "windows-changelog"]
        assert {"counts-changelog", "versions-changelog"} < {*of_kind["compact"]}
        assert len(of_kind["compact"]) == 5  # and those of suppression and of what waits for a match
        assert red(application, cluster) == []
        for changelog in supplied:
            name = f"{library.application_id}-{changelog}"
            with policy_of(bootstrap_servers, cluster, name, "delete", policies[name]):
                assert red(application, cluster) == []

        for store, policy, expected in (
            ("counts", "delete", "compact"),
            ("counts", "compact,delete", "compact"),
            ("versions", "compact,delete", "compact"),
            ("windows", "delete", "compact,delete"),
            ("sessions", "delete", "compact,delete"),
            ("named-this-join-store", "compact", "delete"),
            ("KSTREAM-OUTERTHIS-0000000004-store", "compact,delete", "delete"),
        ):
            name = f"{library.application_id}-{store}-changelog"
            with policy_of(bootstrap_servers, cluster, name, policy, policies[name]):
                assert [(row.subject, row.expected, row.observed) for row in red(application, cluster)] == [
                    (f"{name}: cleanup.policy", expected, policy)
                ]


@contextmanager
def policy_of(bootstrap_servers: str, cluster: KafkaCluster, topic: str, now: str, then: str) -> Iterator[None]:
    """The cleanup policy of a topic, and what it is again afterwards."""

    def become(policy: str) -> None:
        alter(bootstrap_servers, ResourceType.TOPIC, topic, cleanup_policy=policy)
        eventually(lambda: cluster.topics([topic])[topic].configs["cleanup.policy"] == policy, f"{topic}: {policy}")

    become(now)
    yield
    become(then)


def red(application: Application, cluster: KafkaCluster) -> list[Observation]:
    rows = [
        *compaction.CompactionCheck(deadline=ONE_LOOK).observe(application, cluster),
        *topics.CHECK.observe(application, cluster),
        *names.CHECK.observe(application, cluster),
    ]
    return [row for row in rows if not row.agrees]


# -- a cleaner at work


@pytest.fixture
def eager_cleaner(bootstrap_servers: str) -> Iterator[None]:
    """It looks for work every 100 ms."""
    brokers = [str(broker) for broker in KafkaCluster(Brokers(bootstrap_servers)).broker_ids()]
    for broker in brokers:
        alter(bootstrap_servers, ResourceType.BROKER, broker, log_cleaner_backoff_ms="100")
    yield
    for broker in brokers:
        alter(bootstrap_servers, ResourceType.BROKER, broker, log_cleaner_backoff_ms=None)


@pytest.mark.soak
@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("configs", [{}, {"delete.retention.ms": "0"}, {"min.cleanable.dirty.ratio": "0.8"}])
def test_a_healthy_cleaner_is_not_accused(
    bootstrap_servers: str, new_topic: NewTopicFactory, eager_cleaner: None, configs: dict[str, str], compression: str
) -> None:
    """Transactions of one record and of many, in segments of a second, by the clock of the records."""
    policy = {"cleanup.policy": "compact", "segment.ms": "1000", "max.message.bytes": "20000", **configs}
    topic = new_topic("app-store-changelog", partitions=1, configs=policy)
    cluster = KafkaCluster(Brokers(bootstrap_servers))
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "transactional.id": topic,
            "compression.type": compression,
            "log_level": 2,
        }
    )
    producer.init_transactions(120)
    spec = TopicSpec(topic, TopicRole.CHANGELOG, 1, {"cleanup.policy": "compact"})
    application = Application("app", "app", (spec,), (SubtopologyTopics("tasks", ()),), (), (), declared=True)
    clock, seen = int(time.time() * 1000), list[int]()
    for length in (1, 1, 40, 1, 300, 5):
        for n in range(60):
            producer.begin_transaction()
            for m in range(length):
                producer.produce(topic, bytes(8), b"%d" % ((n + m) % 50), partition=0, timestamp=clock)
            producer.commit_transaction(120)
            clock += 200
        # One look: the cleaner may be at work, and then it is looked again.
        check = compaction.CompactionCheck(deadline=Deadline(seconds=20.0, interval=0.5))
        rows = list(check.observe(application, cluster))
        assert [row for row in rows if not row.agrees] == []
        seen.append(sum(len(batch) for batch in cluster.read(topic, {0: (0, cluster.offsets(topic)[0].last_stable)})))
    if configs.get("min.cleanable.dirty.ratio") is None:
        assert seen[-1] < 60 * 348  # it did clean


# -- configs, replicas and names


@pytest.fixture
def application(bootstrap_servers: str) -> Iterator[TransactionalApplication]:
    application = TransactionalApplication(bootstrap_servers)
    application.create_topics()
    yield application
    application.close()


def test_as_created(application: TransactionalApplication) -> None:
    """Before the first record: none of these checks needs one."""
    subject = application_of(application.pipeline)
    for check in (repartition, topics, names):
        rows = list(check.CHECK.observe(subject, application.cluster))
        assert rows
        assert [row for row in rows if not row.agrees] == []


def test_brokers_are_counted_and_replicas_listed(application: TransactionalApplication) -> None:
    assert sorted(application.cluster.broker_ids()) == [1, 2]
    (found,) = application.cluster.topics([application.orders]).values()
    assert {number: sorted(ids) for number, ids in found.replicas.items()} == {0: [1, 2], 1: [1, 2]}
    assert all(found.leaders[number] in found.in_sync[number] for number in found.replicas)


def test_the_limit_of_the_brokers(application: TransactionalApplication, bootstrap_servers: str) -> None:
    """The group's metadata is a record of ``__consumer_offsets``."""

    def subject() -> str:
        rows = names.CHECK.observe(application_of(application.pipeline), application.cluster)
        return next(row.subject for row in rows if "metadata" in row.subject)

    assert "max.message.bytes=1,048,588" in subject()
    alter(bootstrap_servers, ResourceType.TOPIC, names.GROUPS_TOPIC, max_message_bytes="2000000")
    try:
        eventually(lambda: "max.message.bytes=2,000,000" in subject(), subject())
    finally:
        alter(bootstrap_servers, ResourceType.TOPIC, names.GROUPS_TOPIC, max_message_bytes=None)


def test_a_name_that_is_taken_but_for_a_dot(bootstrap_servers: str, new_topic: NewTopicFactory) -> None:
    taken = new_topic("taken.by-another")
    spec = TopicSpec(taken.replace(".", "_"), TopicRole.SINK, 2, {})
    application = Application("app", "app", (spec,), (SubtopologyTopics("tasks", ()),), (), (), declared=False)
    rows = [row for row in names.CHECK.observe(application, KafkaCluster(Brokers(bootstrap_servers))) if not row.agrees]
    assert [row.observed for row in rows] == [1, taken]
