"""A topic as a person examines it, compared with what the test wrote."""

from __future__ import annotations

import pytest
from streamplan.checks.framework.application import application_of
from streamplan.errors import CouldNotLook, Refused
from streamplan.observability import topic_view
from streamplan.observability.topic_view import KeyCount, view_topic
from streamplan.pipelines.orders import PIPELINE

from tests.support.fake_cluster import FakeApplication, FakeCluster

ORDERS = application_of(PIPELINE)


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def application(cluster: FakeCluster) -> FakeApplication:
    """Nineteen orders are counted: ten jackets, nine shirts."""
    application = FakeApplication(cluster, PIPELINE)
    for n in range(19):
        application.order(n)
    application.drain()
    return application


def test_a_changelog_has_a_record_of_each_update_and_a_live_one_of_each_key(
    cluster: FakeCluster, application: FakeApplication
) -> None:
    view = view_topic(ORDERS, cluster, application.changelog)
    assert sum(each.records for each in view.partitions) == 19
    assert sum(each.live or 0 for each in view.partitions) == 2
    busiest = {key.key: key.records for each in view.partitions for key in each.busiest}
    assert busiest == {"0": 10, "1": 9}
    assert {key.key: key.value for each in view.partitions for key in each.greatest} == {"0": 10, "1": 9}
    cluster.produce(application.changelog, b"0", None)  # a tombstone
    view = view_topic(ORDERS, cluster, application.changelog)
    assert sum(each.records for each in view.partitions) == 20
    assert sum(each.live or 0 for each in view.partitions) == 1


def test_a_topic_that_is_not_compacted_has_no_live_records(cluster: FakeCluster, application: FakeApplication) -> None:
    view = view_topic(ORDERS, cluster, "orders")
    assert {each.live for each in view.partitions} == {None}
    assert sum(each.records for each in view.partitions) == 19
    assert [each.busiest for each in view.partitions] == [[], []], "each order has a key of its own"


def test_of_a_large_topic_the_newest_offsets_are_counted(
    cluster: FakeCluster, application: FakeApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_view, "COUNTED_OFFSETS", 8)
    view = view_topic(ORDERS, cluster, "orders")
    assert [each.counted_from for each in view.partitions] == [each.end - 4 for each in view.partitions]
    assert [each.records for each in view.partitions] == [4, 4]


def test_the_partition_of_an_open_transaction_and_of_a_broker_that_is_away(
    cluster: FakeCluster, application: FakeApplication
) -> None:
    cluster.up_broker_ids = (1, 2)
    cluster.down = {1}
    partition = cluster.existing["orders"].partitions[1]
    partition.open_since = partition.end - 1
    first, second = view_topic(ORDERS, cluster, "orders").partitions
    assert (first.leader, list(first.in_sync), list(first.replicas)) == (2, [2], [1, 2])
    assert (first.uncommitted, second.uncommitted) == (0, 1)


def test_configs_beside_the_declared_ones(cluster: FakeCluster, application: FakeApplication) -> None:
    cluster.existing[application.changelog].configs["cleanup.policy"] = "delete"
    view = view_topic(ORDERS, cluster, application.changelog)
    policy = next(each for each in view.configs if each.name == "cleanup.policy")
    assert (policy.declared, policy.observed) == ("compact", "delete")
    retention = next(each for each in view.configs if each.name == "retention.ms")
    assert retention.declared is None


def test_a_topic_that_is_not_there(cluster: FakeCluster, application: FakeApplication) -> None:
    with pytest.raises(Refused, match="a topic of orders"):
        view_topic(ORDERS, cluster, "other")
    del cluster.existing["orders"]
    with pytest.raises(CouldNotLook, match="no such topic"):
        view_topic(ORDERS, cluster, "orders")


def test_the_record_of_a_null_key(cluster: FakeCluster, application: FakeApplication) -> None:
    for _ in range(3):
        cluster.produce("orders", None, b"x", partition=1)
    assert view_topic(ORDERS, cluster, "orders").partitions[1].busiest == [KeyCount("null", 3)]
