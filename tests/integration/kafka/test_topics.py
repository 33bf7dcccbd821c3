"""Topics on real brokers: planned, created, looked at again; what disagrees is refused whole."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from streamplan.errors import BrokersUnavailable, Refused
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.topics import apply_topics, format_plan, observe_topics
from streamplan.model.pipeline import Pipeline, TestData
from streamplan.model.topology import Topology
from streamplan.pipelines.orders import ORDER, PIPELINE, order

_numbers = itertools.count()


def orders_into(topic: str) -> TestData:
    return TestData((topic,), lambda n: (topic, *order(n)), "Id")


@pytest.fixture
def admin(brokers: Brokers) -> AdminClient:
    return brokers.admin()


@pytest.fixture
def pipeline(admin: AdminClient) -> Iterator[Pipeline]:
    """The orders pipeline under a name of its own."""
    name = f"topics-{os.getpid()}-{next(_numbers)}"
    topology = Topology(name)
    topology.stream(f"{name}-orders", value=ORDER).group_by("ProductType", name="quantities").count(store="totals")
    made = Pipeline(name, topology, "", {f"{name}-orders": 2}, orders_into(f"{name}-orders"))
    yield made
    for future in admin.delete_topics([spec.name for spec in made.topics()]).values():
        future.exception(120)


def names(pipeline: Pipeline) -> list[str]:
    return [spec.name for spec in pipeline.topics()]


def test_created_as_declared(brokers: Brokers, pipeline: Pipeline) -> None:
    shown: list[str] = []
    plan = apply_topics(brokers, pipeline, report=shown.append)
    assert [spec.name for spec in plan.create] == names(pipeline)
    assert all(f"+ {name} (" in shown[0] for name in names(pipeline))
    observed = observe_topics(brokers, names(pipeline))
    assert {name: topic.partitions for name, topic in observed.items()} == dict.fromkeys(names(pipeline), 2)
    changelog = observed[f"{pipeline.name}-totals-changelog"]
    assert changelog.configs["cleanup.policy"] == "compact"
    assert observed[f"{pipeline.name}-quantities-repartition"].configs["retention.ms"] == "-1"
    assert changelog.replication_factor == 2
    assert changelog.configs["min.insync.replicas"] == "1"


def test_applied_again_nothing_changes(brokers: Brokers, pipeline: Pipeline) -> None:
    apply_topics(brokers, pipeline)
    apply_topics(brokers, pipeline)
    before = observe_topics(brokers, names(pipeline))
    assert len(before) == 4
    plan = apply_topics(brokers, pipeline)
    assert not plan.create
    assert len(plan.agree) == 4
    assert "Nothing to create" in format_plan(plan)
    assert observe_topics(brokers, names(pipeline)) == before


def test_what_is_missing_is_added(brokers: Brokers, pipeline: Pipeline, admin: AdminClient) -> None:
    apply_topics(brokers, pipeline)
    gone = f"{pipeline.name}-dead-letter"
    admin.delete_topics([gone])[gone].result(120)
    plan = apply_topics(brokers, pipeline)
    assert [spec.name for spec in plan.create] in ([gone], [])  # [] when its deletion was not seen by all brokers yet
    assert gone in observe_topics(brokers, [gone])


def test_every_difference_is_refused_and_nothing_is_created(
    brokers: Brokers, pipeline: Pipeline, admin: AdminClient
) -> None:
    repartition, changelog = f"{pipeline.name}-quantities-repartition", f"{pipeline.name}-totals-changelog"
    made = admin.create_topics(
        [
            NewTopic(repartition, 3, 2),
            NewTopic(changelog, 2, 1, config={"cleanup.policy": "delete"}),
        ]
    )
    for future in made.values():
        future.result(120)
    with pytest.raises(Refused) as refusal:
        apply_topics(brokers, pipeline)
    text = str(refusal.value)
    assert f"{repartition}: partitions: expected 2, observed 3" in text
    assert f"{repartition}: retention.ms: expected -1, observed 604800000" in text
    assert f"{changelog}: cleanup.policy: expected compact, observed delete" in text
    assert f"{changelog}: replication: expected 2, observed 1" in text
    assert "Nothing was created" in text
    assert set(observe_topics(brokers, names(pipeline))) == {repartition, changelog}
    assert observe_topics(brokers, [repartition])[repartition].partitions == 3


def test_brokers_that_refuse_one_topic_are_not_given_the_others(brokers: Brokers, admin: AdminClient) -> None:
    name, orders = f"topics-{os.getpid()}-{next(_numbers)}", f"orders.{os.getpid()}"
    topology = Topology(name)
    topology.stream(orders, value=ORDER).group_by("ProductType", name="q").count(store="s")
    pipeline = Pipeline(name, topology, "", {orders: 2}, orders_into(orders))
    collides = orders.replace(".", "_")  # to Kafka's metrics the two names are one
    admin.create_topics([NewTopic(collides, 1)])[collides].result(120)
    try:
        with pytest.raises(Refused, match=rf"(?s){orders}.*Nothing was created"):
            apply_topics(brokers, pipeline)
        assert observe_topics(brokers, names(pipeline)) == {}
    finally:
        admin.delete_topics([collides])[collides].result(120)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.0.0.1:1,localhost:2"])
def test_brokers_away(address: str) -> None:
    with pytest.raises(BrokersUnavailable, match=r"within 0\.5 s.*Connection refused") as error:
        apply_topics(Brokers(address), PIPELINE, deadline_seconds=0.5)
    assert address in str(error.value)
