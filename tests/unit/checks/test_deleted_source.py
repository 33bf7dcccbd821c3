"""A source topic that was deleted is missed, whoever knows of it. Its positions are gone with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from streamplan import Json
from streamplan.checks.discovery.counts import CountOf
from streamplan.checks.discovery.discover import discover
from streamplan.checks.framework.application import Application, application_of
from streamplan.checks.framework.check import Outcome, run_check
from streamplan.checks.topics import TopicsCheck
from streamplan.checks.totals import CHECK as TOTALS
from streamplan.pipelines.orders import PIPELINE
from streamplan.reports.check_context import check_context

from tests.support.fake_cluster import IMPATIENT, FakeApplication, FakeCluster

TOPOLOGY = PIPELINE.topology.describe()
COUNT = CountOf("orders", "ProductType", Json("Id string, ProductType int"), "orders-products-quantities")


def discovered(**options: Any) -> Callable[[FakeCluster], Application]:
    return lambda cluster: discover(cluster, "orders-aggregator", **options)


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    application = FakeApplication(cluster, PIPELINE)
    for n in range(19):
        application.order(n)
    application.drain()
    return cluster


def delete(cluster: FakeCluster, topic: str) -> None:
    """As Kafka does: the positions of every group in it are deleted, too."""
    del cluster.existing[topic]
    cluster.committed = {at: offsets for at, offsets in cluster.committed.items() if at[1] != topic}


def look(application: Application, cluster: FakeCluster, reports: Path) -> Any:
    return run_check(
        application, TopicsCheck(deadline=IMPATIENT).configure(check_context(application, reports)), cluster
    )


@pytest.mark.parametrize(
    "find",
    [
        lambda cluster: application_of(PIPELINE),
        discovered(topology=TOPOLOGY),
        discovered(sources=["orders"]),
        discovered(counts=[COUNT]),
        discovered(topology=TOPOLOGY, counts=[COUNT]),
    ],
    ids=["declared", "--topology", "--source", "--count", "--topology --count"],
)
def test_a_deleted_source_is_missed_by_whoever_was_told_of_it(
    cluster: FakeCluster, tmp_path: Path, find: Callable[[FakeCluster], Application]
) -> None:
    assert "missing" not in look(find(cluster), cluster, tmp_path).reason
    delete(cluster, "orders")
    result = look(find(cluster), cluster, tmp_path)
    assert result.outcome is Outcome.FAILED
    assert "topic orders: expected exists, observed missing" in result.reason


@pytest.mark.parametrize("then", [{}, {"sources": ["orders-aggregator-orders-products-quantities-repartition"]}])
def test_a_deleted_source_is_missed_where_its_totals_were_verified_once(
    cluster: FakeCluster, tmp_path: Path, then: dict[str, Any]
) -> None:
    """The totals were counted by one command. Another one, which counts nothing, is run after the topic was deleted."""
    counted = discover(cluster, "orders-aggregator", counts=[COUNT])
    totals = replace(TOTALS, deadline=IMPATIENT).configure(check_context(counted, tmp_path))
    assert run_check(counted, totals, cluster).outcome is Outcome.PASSED
    assert "missing" not in look(discover(cluster, "orders-aggregator", **then), cluster, tmp_path).reason
    delete(cluster, "orders")
    result = look(discover(cluster, "orders-aggregator", **then), cluster, tmp_path)
    assert result.outcome is Outcome.FAILED
    assert "topic orders: expected exists, observed missing" in result.reason
    assert "totals-" in result.reason
