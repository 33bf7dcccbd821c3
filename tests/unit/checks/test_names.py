from __future__ import annotations

from dataclasses import replace

import pytest
from streamplan.checks import names
from streamplan.checks.framework.application import Application, application_of
from streamplan.checks.framework.check import Observation
from streamplan.model.assignment import group_metadata_size
from streamplan.model.group_member import Member
from streamplan.model.pipeline import Pipeline, TestData
from streamplan.model.topics import TopicRole, TopicSpec
from streamplan.model.topology import Topology
from streamplan.pipelines.orders import ORDER, PIPELINE, order

from tests.support.examples import PIPELINES
from tests.support.fake_cluster import FakeApplication, FakeCluster

ORDERS = application_of(PIPELINE)


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    FakeApplication(cluster, PIPELINE)
    return cluster


def wrong(cluster: FakeCluster, application: Application = ORDERS) -> list[Observation]:
    rows = list(names.CHECK.observe(application, cluster))
    assert rows
    return [row for row in rows if not row.agrees]


def counting(name: str, store: str = "totals", partitions: int = 2) -> Pipeline:
    topology = Topology(name)
    topology.stream("orders", value=ORDER).group_by("ProductType", name="by-type").count(store=store)
    data = TestData(("orders",), lambda n: ("orders", *order(n)), "Id")
    return Pipeline(name.replace(".", "-"), topology, "", {"orders": partitions}, data)


@pytest.mark.parametrize("pipeline", PIPELINES, ids=lambda one: one.name)
def test_healthy(pipeline: Pipeline) -> None:
    assert not wrong(FakeCluster(), application_of(pipeline))


@pytest.mark.parametrize(("length", "red"), [(236, False), (237, True), (249, True)])
@pytest.mark.parametrize("declared", [True, False])
def test_long_names(cluster: FakeCluster, length: int, red: bool, declared: bool) -> None:
    store = "s" * (length - len("app--changelog"))
    application = replace(application_of(counting("app", store)), declared=declared)
    found = wrong(cluster, application)
    topic = f"app-{store}-changelog"
    assert len(topic) == length
    subject = f"{topic}: length of the name: {length} of 249"
    assert [(row.subject, row.expected) for row in found] == ([(subject, "at most 236 of 249")] if red else [])


def test_names_from_outside_may_be_long(cluster: FakeCluster) -> None:
    """Nothing is derived from them."""
    spec = TopicSpec("o" * 249, TopicRole.SOURCE, 2, {})
    assert not wrong(cluster, replace(ORDERS, declared=False, topics=(*ORDERS.topics, spec)))


def test_names_that_collide(cluster: FakeCluster) -> None:
    application = application_of(counting("my.app"))
    cluster.create("my_app-totals-changelog", 2)
    cluster.create("my_app-something-else", 2)
    cluster.create("a.b", 2)
    cluster.create("a_b", 2)  # not ours
    count, row = wrong(cluster, application)
    assert (count.expected, count.observed) == (0, 1)
    assert "my.app-totals-changelog" in row.subject
    assert (row.expected, row.observed) == ("none", "my_app-totals-changelog")


def test_two_names_of_the_application_that_collide(cluster: FakeCluster) -> None:
    specs = tuple(TopicSpec(name, TopicRole.SOURCE, 1, {}) for name in ("a.b", "a_b"))
    application = replace(ORDERS, topics=specs, declared=False)
    assert len(wrong(cluster, application)) == 3


@pytest.mark.parametrize("pipeline", [*PIPELINES, counting("large", partitions=150)], ids=lambda one: one.name)
def test_the_size_is_that_of_the_topology(pipeline: Pipeline) -> None:
    (row,) = [row for row in names.CHECK.observe(application_of(pipeline), FakeCluster()) if "metadata" in row.subject]
    tasks = len(pipeline.tasks())
    size = group_metadata_size(pipeline.topology, pipeline.partition_counts, instances=tasks)
    assert f"with {tasks:,} instances" in row.subject
    assert row.subject.endswith(f": {size:,} bytes")


def test_a_group_near_the_limit_of_its_brokers(cluster: FakeCluster) -> None:
    size = group_metadata_size(PIPELINE.topology, PIPELINE.partition_counts, instances=4)
    cluster.create(names.GROUPS_TOPIC, 8, {"max.message.bytes": str(2 * size)})
    assert not wrong(cluster)
    cluster.existing[names.GROUPS_TOPIC].configs["max.message.bytes"] = str(size + 1)
    (row,) = wrong(cluster)
    assert f"max.message.bytes={size + 1:,}" in row.subject
    assert row.observed == f"{size:,} bytes"
    assert "shorter explicit names" in row.where


def test_a_group_near_the_default_limit(cluster: FakeCluster) -> None:
    partitions = 1
    while (
        group_metadata_size(
            (pipeline := counting("app", partitions=partitions)).topology,
            pipeline.partition_counts,
            instances=2 * partitions,
        )
        < names.MAX_MESSAGE_BYTES * 0.96
    ):
        partitions += 10
    (row,) = wrong(cluster, application_of(pipeline))
    assert row.expected == "at most 996,158 bytes"


def test_the_size_is_a_remark_where_an_aggregator_is_the_member_of_the_group(cluster: FakeCluster) -> None:
    cluster.create(names.GROUPS_TOPIC, 8, {"max.message.bytes": "1000"})
    assert len(wrong(cluster)) == 1
    cluster.group_members[ORDERS.application_id] = (Member("orders-StreamThread-1-consumer", "/10.0.0.1", "id"),)
    assert len(wrong(cluster)) == 1
    cluster.group_members[ORDERS.application_id] = (Member("streamplan:7@host", "/10.0.0.1", "id"),)
    assert not wrong(cluster)
    (remark,) = [row for row in names.CHECK.observe(ORDERS, cluster) if row.is_remark]
    assert "beyond the limit for instances of the JVM library alone" in remark.subject


def test_the_size_of_a_discovered_group_is_not_guessed(cluster: FakeCluster) -> None:
    cluster.create(names.GROUPS_TOPIC, 8, {"max.message.bytes": "1"})
    assert wrong(cluster)
    assert not wrong(cluster, replace(ORDERS, declared=False))
