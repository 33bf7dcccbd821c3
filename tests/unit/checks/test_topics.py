from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest
from streamplan.checks import compaction, copartitioning, names, repartition, topics
from streamplan.checks.framework.application import Application, SubtopologyTopics, application_of
from streamplan.checks.framework.check import Observation
from streamplan.checks.framework.consistent_cut import Deadline
from streamplan.errors import CouldNotLook
from streamplan.model.topics import TopicRole, TopicSpec, resolve_configs
from streamplan.pipelines import enriched, pageviews
from streamplan.pipelines.orders import PIPELINE

from tests.support.fake_cluster import IMPATIENT, FakeCluster

ORDERS = application_of(PIPELINE)
SOURCE, REPARTITION, CHANGELOG, DEAD_LETTERS = (
    ORDERS.with_role(role)[0].name
    for role in (TopicRole.SOURCE, TopicRole.REPARTITION, TopicRole.CHANGELOG, TopicRole.DEAD_LETTER)
)
DISCOVERED = replace(
    ORDERS,
    declared=False,
    topics=tuple(replace(spec, configs={}) for spec in ORDERS.topics if spec.role is not TopicRole.DEAD_LETTER),
)


def made(application: Application, brokers: int = 2) -> FakeCluster:
    cluster = FakeCluster()
    cluster.up_broker_ids = tuple(range(1, brokers + 1))
    for spec in application.topics:
        cluster.create(spec.name, spec.partitions, {"retention.bytes": "-1", **resolve_configs(spec, min(brokers, 3))})
        cluster.produce(spec.name, b"key", b"value")
    return cluster


@pytest.fixture
def cluster() -> FakeCluster:
    return made(ORDERS)


def wrong(cluster: FakeCluster, application: Application = ORDERS, deadline: Deadline = IMPATIENT) -> list[Observation]:
    rows = list(topics.TopicsCheck(deadline=deadline).observe(application, cluster))
    assert rows
    return [row for row in rows if not row.agrees]


@pytest.mark.parametrize("pipeline", [PIPELINE, pageviews.PIPELINE, enriched.PIPELINE], ids=lambda one: one.name)
@pytest.mark.parametrize("brokers", [1, 2, 3, 5])
def test_as_created(pipeline, brokers: int) -> None:  # type: ignore[no-untyped-def]
    application = application_of(pipeline)
    cluster = made(application, brokers)
    if brokers > 3:
        cluster.replicas = {(s.name, n): (5, 3, 1) for s in application.topics for n in range(s.partitions)}
    assert not wrong(cluster, application)


def test_a_discovered_application(cluster: FakeCluster) -> None:
    assert not wrong(cluster, DISCOVERED)


@pytest.mark.parametrize("topic", [spec.name for spec in ORDERS.topics])
def test_a_missing_topic_is_red_here_and_nowhere_else(cluster: FakeCluster, topic: str) -> None:
    del cluster.existing[topic]
    (row,) = wrong(cluster)
    assert (row.subject, row.observed) == (f"topic {topic}", "missing")
    for check in (copartitioning, repartition, compaction, names):
        with suppress(CouldNotLook):
            assert all(row.agrees for row in check.CHECK.observe(ORDERS, cluster))


@pytest.mark.parametrize(
    ("topic", "config", "value", "owner"),
    [
        (SOURCE, "cleanup.policy", "compact", topics),
        (SOURCE, "retention.ms", "1000", topics),
        (SOURCE, "min.insync.replicas", "2", topics),
        (DEAD_LETTERS, "cleanup.policy", "compact", topics),
        (DEAD_LETTERS, "max.message.bytes", "1000", topics),
        (REPARTITION, "segment.bytes", "1073741824", topics),
        (REPARTITION, "message.timestamp.type", "LogAppendTime", topics),
        (CHANGELOG, "message.timestamp.type", "LogAppendTime", topics),
        (CHANGELOG, "min.insync.replicas", "2", topics),
        (REPARTITION, "cleanup.policy", "compact", repartition),
        (REPARTITION, "retention.ms", "1000", repartition),
        (REPARTITION, "retention.bytes", "1000", repartition),
        (REPARTITION, "min.insync.replicas", "2", repartition),
        (CHANGELOG, "cleanup.policy", "delete", compaction),
    ],
)
def test_each_config_belongs_to_one_check(cluster: FakeCluster, topic: str, config: str, value: str, owner) -> None:  # type: ignore[no-untyped-def]
    expected = cluster.existing[topic].configs[config]
    cluster.existing[topic].configs[config] = value
    for check in (copartitioning, repartition, compaction, topics, names):
        found = [row for row in check.CHECK.observe(ORDERS, cluster) if not row.agrees]
        rows = [(row.subject, row.expected, row.observed) for row in found]
        assert rows == ([(f"{topic}: {config}", expected, value)] if check is owner else [])


@pytest.mark.parametrize(("topic", "owner"), [("pageviews", topics), ("purchases", copartitioning)])
def test_partition_counts_of_topics_that_are_joined_are_not_judged(topic: str, owner) -> None:  # type: ignore[no-untyped-def]
    pipeline = pageviews.PIPELINE if topic == "pageviews" else enriched.PIPELINE
    application = application_of(pipeline)
    cluster = made(application)
    configs = cluster.existing[topic].configs
    cluster.create(topic, 5, configs)
    assert bool(wrong(cluster, application)) == (owner is topics)
    rows = copartitioning.CHECK.observe(application, cluster)
    assert any(not row.agrees for row in rows) == (owner is copartitioning)


def test_replication_factors(cluster: FakeCluster) -> None:
    cluster.replicas |= {(topic, 0): (1,) for topic in (SOURCE, CHANGELOG, REPARTITION)}
    found = [(row.subject, row.expected, row.observed) for row in wrong(cluster)]
    # That of the repartition topic is another check's.
    assert found == [(f"{SOURCE}: replication factor", 2, 1), (f"{CHANGELOG}: replication factor", 2, 1)]
    assert not wrong(cluster, DISCOVERED)  # it reads what has one replica
    del cluster.replicas[SOURCE, 0]
    assert [row.subject for row in wrong(cluster, DISCOVERED)] == [f"{CHANGELOG}: replication factor: 1"]


def test_of_a_discovered_application_only_what_holds_for_any(cluster: FakeCluster) -> None:
    for topic in (SOURCE, REPARTITION, CHANGELOG):
        cluster.existing[topic].configs |= {"retention.ms": "5", "segment.bytes": "5", "min.insync.replicas": "2"}
    cluster.existing[SOURCE].configs |= {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
    assert not wrong(cluster, DISCOVERED)
    cluster.existing[CHANGELOG].configs["message.timestamp.type"] = "LogAppendTime"
    (row,) = wrong(cluster, DISCOVERED)
    assert (row.subject, row.expected) == (f"{CHANGELOG}: message.timestamp.type", "CreateTime")


def test_a_broker_down(cluster: FakeCluster) -> None:
    """Its replicas are not in sync; the topics are as declared, and no other check turns red."""
    cluster.down = {2}
    found = wrong(cluster)
    assert {row.subject for row in found} == {
        subject
        for spec in ORDERS.topics
        for subject in (
            f"{spec.name}: fully replicated partitions",
            *(f"{spec.name}-{number}: in sync" for number in range(spec.partitions)),
        )
    }
    (row,) = [row for row in found if row.subject == f"{SOURCE}-1: in sync"]
    assert (row.expected, row.observed, row.where) == ("brokers 1, 2", "broker 1", "missing: broker 2")
    for check in (copartitioning, repartition, compaction, names):
        assert all(row.agrees for row in check.CHECK.observe(ORDERS, cluster))


def test_a_partition_without_a_leader(cluster: FakeCluster) -> None:
    cluster.replicas[CHANGELOG, 1] = (2,)
    cluster.down = {2}
    (row,) = [row for row in wrong(cluster) if row.subject == f"{CHANGELOG}-1: leader"]
    assert (row.expected, row.observed) == ("a broker", "none")
    assert "broker 2" in row.where


def test_many_partitions_are_counted() -> None:
    spec = TopicSpec("wide", TopicRole.SOURCE, 1_000, {})
    application = replace(DISCOVERED, topics=(spec,), subtopologies=(SubtopologyTopics("tasks", ("wide",)),))
    cluster = FakeCluster()
    cluster.up_broker_ids = (1, 2)
    cluster.create("wide", 1_000)
    cluster.down = {1}
    rows = wrong(cluster, application)
    assert (rows[0].expected, rows[0].observed) == (1_000, 0)
    assert len(rows) == 1 + topics.NAMED_PARTITIONS


def passing(cluster: FakeCluster, undo: Callable[[], None]) -> Deadline:
    looks = iter(range(100))

    def sleep(seconds: float) -> None:
        if next(looks) == 2:
            undo()

    return Deadline(seconds=5.0, interval=0.5, clock=lambda: 0.0, sleep=sleep)


def test_a_replica_that_fell_behind_for_a_moment(cluster: FakeCluster) -> None:
    cluster.down = {2}
    assert not wrong(cluster, deadline=passing(cluster, cluster.down.clear))


def test_a_topic_that_a_broker_does_not_know_yet(cluster: FakeCluster) -> None:
    topic = cluster.existing.pop(CHANGELOG)
    assert not wrong(cluster, deadline=passing(cluster, lambda: cluster.existing.update({CHANGELOG: topic})))


def test_one_replica_after_another_falls_behind_for_a_moment(cluster: FakeCluster) -> None:
    """As in a rolling restart: no partition was under-replicated at every look, and brokers 1 and 2 take turns."""
    cluster.replicas = {(spec.name, number): (number + 1,) for spec in ORDERS.topics for number in range(2)}
    ticks = iter(range(100))
    cluster.down = {1}

    def sleep(seconds: float) -> None:
        cluster.down = {2} if cluster.down == {1} else {1}

    found = wrong(cluster, deadline=Deadline(5.0, 0.5, clock=lambda: float(next(ticks)), sleep=sleep))
    assert all("replication factor" in row.subject for row in found)


def test_of_two_faults_the_one_that_stays(cluster: FakeCluster) -> None:
    cluster.replicas[SOURCE, 0] = (1, 3)
    cluster.down = {2, 3}
    ticks = iter(range(100))

    def sleep(seconds: float) -> None:
        cluster.down = {3}

    found = wrong(cluster, deadline=Deadline(5.0, 0.5, clock=lambda: float(next(ticks)), sleep=sleep))
    assert [row.subject for row in found] == [f"{SOURCE}: fully replicated partitions", f"{SOURCE}-0: in sync"]
