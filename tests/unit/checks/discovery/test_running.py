"""Which application the checks of a pipeline look at while an upgrade is under way, on a cluster in memory."""

from __future__ import annotations

import pytest
from streamplan.checks import not_applicable
from streamplan.checks.discovery.running import running_application
from streamplan.checks.framework.application import application_of
from streamplan.errors import BrokersUnavailable, CouldNotLook
from streamplan.model.generation import Generation, PositionMetadata
from streamplan.model.pipeline import Limits, Pipeline
from streamplan.model.topology import Topology
from streamplan.pipelines.orders import ORDER, PIPELINE

from tests.support.fake_cluster import FakeApplication, FakeCluster

OLD, NEW = FakeApplication.group, "orders-aggregator-2"

RUNS, BESIDE = (PositionMetadata(Generation(number, f"{word}a:1:x")).text for number, word in ((1, ""), (2, "beside/")))


def declared(upgrade_from: str | None = OLD) -> Pipeline:
    topology = Topology(NEW)
    topology.stream("orders", value=ORDER).group_by("ProductType", name="by-type").count(store="totals")
    return Pipeline("orders", topology, "", {"orders": 2}, limits=Limits(0.7), upgrade_from=upgrade_from)


@pytest.fixture
def cluster() -> FakeCluster:
    """The old application has counted an order, and runs."""
    made = FakeCluster()
    application = FakeApplication(made, PIPELINE)
    application.order(0)
    application.drain()
    for topic in (application.source, application.repartition):
        made.metadata[OLD, topic] = RUNS
    return made


def stand(cluster: FakeCluster, application: str, metadata: str) -> None:
    cluster.committed.setdefault((application, "orders"), {0: 0, 1: 0})
    cluster.metadata[application, "orders"] = metadata


def test_before_the_switch_it_is_the_old_one(cluster: FakeCluster) -> None:
    cluster.create(f"{NEW}-totals-changelog", 2)  # it is deployed, and has no group yet
    for built in (False, True):
        if built:
            stand(cluster, NEW, BESIDE)
        found = running_application(declared(), cluster)
        assert (found.name, found.application_id, found.runs_until) == ("orders", OLD, NEW)
        assert {FakeApplication.repartition, FakeApplication.changelog} <= {spec.name for spec in found.topics}
        assert not any(spec.name.startswith(NEW) for spec in found.topics)
        assert "has not taken over from orders-aggregator yet" in found.notes[0]
        assert found.limits == Limits(0.7)
        assert not_applicable(found).keys() == {"totals"}


def test_after_the_switch_it_is_the_declared_one(cluster: FakeCluster) -> None:
    stand(cluster, NEW, RUNS)
    stand(cluster, OLD, BESIDE)
    assert running_application(declared(), cluster) == application_of(declared())


def test_one_that_had_taken_over_and_was_reset_since_is_the_declared_one(cluster: FakeCluster) -> None:
    stand(cluster, OLD, BESIDE)
    for topic in (FakeApplication.source, FakeApplication.repartition):
        cluster.metadata[OLD, topic] = BESIDE
    assert running_application(declared(), cluster) == application_of(declared())


def test_without_an_upgrade_nobody_is_asked(cluster: FakeCluster) -> None:
    assert running_application(PIPELINE, cluster) == application_of(PIPELINE)


def test_an_application_that_does_not_exist_is_named(cluster: FakeCluster) -> None:
    with pytest.raises(CouldNotLook, match="Is it orders-aggregator"):
        running_application(declared("orders-agregator"), cluster)


def test_brokers_that_are_away_are_a_finding_of_each_check(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(group: str) -> None:
        raise BrokersUnavailable("brokers", observed="no answer")

    monkeypatch.setattr(cluster, "committed_positions", away)
    assert running_application(declared(), cluster) == application_of(declared())
