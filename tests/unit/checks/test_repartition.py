from __future__ import annotations

import pytest
from streamplan.checks import repartition
from streamplan.checks.framework.application import Application, SubtopologyTopics, application_of
from streamplan.checks.framework.check import Observation
from streamplan.errors import CouldNotLook
from streamplan.model.topics import TopicRole, TopicSpec, resolve_configs
from streamplan.pipelines.orders import PIPELINE

from tests.support.fake_cluster import FakeApplication, FakeCluster

ORDERS = application_of(PIPELINE)
TOPIC = FakeApplication.repartition

DISCOVERED = Application(
    "app",
    "app",
    (TopicSpec("orders", TopicRole.SOURCE, 2, {}), TopicSpec("app-by-type-repartition", TopicRole.REPARTITION, 2, {})),
    (SubtopologyTopics("tasks", ("orders",)), SubtopologyTopics("tasks", ("app-by-type-repartition",))),
    (),
    (),
    declared=False,
)


@pytest.fixture
def cluster() -> FakeCluster:
    """Two brokers, the topics of the orders application, nothing written: the check needs no record."""
    cluster = FakeCluster()
    cluster.up_broker_ids = (1, 2)
    for spec in ORDERS.topics:
        cluster.create(spec.name, spec.partitions, {"retention.bytes": "-1", **resolve_configs(spec, 2)})
    cluster.create("app-by-type-repartition", 2, cluster.existing[TOPIC].configs)
    return cluster


def wrong(cluster: FakeCluster, application: Application = ORDERS) -> list[Observation]:
    rows = list(repartition.CHECK.observe(application, cluster))
    assert rows
    return [row for row in rows if not row.agrees]


def test_healthy(cluster: FakeCluster) -> None:
    assert not wrong(cluster)
    assert not wrong(cluster, DISCOVERED)


@pytest.mark.parametrize(
    ("config", "value", "expected"),
    [
        ("cleanup.policy", "compact", "delete"),
        ("cleanup.policy", "compact,delete", "delete"),
        ("retention.ms", "604800000", "-1"),
        ("retention.bytes", "1073741824", "-1"),
    ],
)
@pytest.mark.parametrize("application", [ORDERS, DISCOVERED], ids=["declared", "discovered"])
def test_what_could_lose_records(
    cluster: FakeCluster, application: Application, config: str, value: str, expected: str
) -> None:
    topic = application.with_role(TopicRole.REPARTITION)[0].name
    cluster.existing[topic].configs[config] = value
    (row,) = wrong(cluster, application)
    assert (row.subject, row.expected, row.observed) == (f"{topic}: {config}", expected, value)
    assert row.where


def test_too_few_replicas(cluster: FakeCluster) -> None:
    cluster.replicas[TOPIC, 1] = (2,)
    (row,) = wrong(cluster)
    assert (row.subject, row.expected, row.observed) == (f"{TOPIC}: replication factor: 1", "at least 2", "1")


def test_replicas_on_a_broker_that_is_down_count(cluster: FakeCluster) -> None:
    cluster.down = {2}
    assert not wrong(cluster)


def test_more_than_three_brokers(cluster: FakeCluster) -> None:
    cluster.up_broker_ids = (1, 2, 3, 4, 5)
    cluster.replicas = {(TOPIC, number): (1, 2, 3) for number in (0, 1)}
    cluster.existing[TOPIC].configs["min.insync.replicas"] = "2"
    assert not wrong(cluster)


@pytest.mark.parametrize("value", ["2", "not set"])
def test_min_insync_replicas(cluster: FakeCluster, value: str) -> None:
    """With 2 of 2 in sync asked for, a broker that restarts would stop the application."""
    cluster.existing[TOPIC].configs["min.insync.replicas"] = value
    (row,) = wrong(cluster)
    assert (row.subject, row.expected, row.observed) == (f"{TOPIC}: min.insync.replicas", "1", value)


def test_as_many_replicas_as_the_topics_that_a_discovered_application_reads(cluster: FakeCluster) -> None:
    cluster.up_broker_ids = (1, 2, 3)
    repartition_topic = DISCOVERED.topics[1].name
    cluster.replicas = {(topic, n): (1, 2) for topic in ("orders", repartition_topic) for n in (0, 1)}
    assert not wrong(cluster, DISCOVERED)
    cluster.replicas[repartition_topic, 0] = (2,)
    assert [row.subject for row in wrong(cluster, DISCOVERED)] == [f"{repartition_topic}: replication factor: 1"]


def test_configs_of_others_are_not_judged(cluster: FakeCluster) -> None:
    cluster.existing[TOPIC].configs |= {"segment.bytes": "1", "message.timestamp.type": "LogAppendTime"}
    cluster.existing["orders"].configs |= {"cleanup.policy": "compact", "retention.ms": "1"}
    assert not wrong(cluster)


def test_a_missing_topic_could_not_be_looked_at(cluster: FakeCluster) -> None:
    del cluster.existing[TOPIC]
    with pytest.raises(CouldNotLook, match=TOPIC):
        wrong(cluster)


def test_a_missing_source_is_no_matter(cluster: FakeCluster) -> None:
    del cluster.existing["orders"]
    assert not wrong(cluster)
    assert not wrong(cluster, DISCOVERED)
