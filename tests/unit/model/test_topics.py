from __future__ import annotations

from dataclasses import replace

from streamplan.model.topics import ObservedTopic, TopicRole, plan_topics, resolve_configs, resolve_min_insync_replicas
from streamplan.model.windows import STORED_SESSION_BYTES, STORED_WINDOW_BYTES
from streamplan.pipelines.orders import PIPELINE

SPECS = PIPELINE.topics()
AS_DECLARED = {
    spec.name: ObservedTopic(spec.name, spec.partitions, 2, {**resolve_configs(spec, 2), "segment.ms": "604800000"})
    for spec in SPECS
}
CHANGELOG = "orders-aggregator-orders-products-quantities-changelog"


def test_topics_of_the_reference_example() -> None:
    assert [(spec.name, spec.role, spec.partitions) for spec in SPECS] == [
        ("orders", TopicRole.SOURCE, 2),
        ("orders-aggregator-orders-products-quantities-repartition", TopicRole.REPARTITION, 2),
        (CHANGELOG, TopicRole.CHANGELOG, 2),
        ("orders-aggregator-dead-letter", TopicRole.DEAD_LETTER, 2),
    ]


def test_a_key_is_shown_with_its_window_or_its_session() -> None:
    minute, noon = (60_000).to_bytes(8, "big"), (43_200_000).to_bytes(8, "big")
    spec = replace(PIPELINE.topics()[0], window_bytes=STORED_WINDOW_BYTES)
    assert spec.key_text(b"DE" + noon + bytes(4)) == "'DE' of the window at 43200000"
    assert spec.key_text(b"DE" + noon + bytes(4), quoted=False) == "DE of the window at 43200000"
    assert spec.key_text(b"\x1b[0m" + noon + bytes(4), quoted=False) == r"\x1b[0m of the window at 43200000"
    spec = replace(spec, window_bytes=STORED_SESSION_BYTES)
    assert spec.key_text(b"ann" + noon + minute) == "'ann' of the session from 60000 to 43200000"


def test_what_is_absent_is_created() -> None:
    plan = plan_topics(SPECS, {}, replication_factor=2)
    assert (plan.create, plan.agree, plan.differences) == (SPECS, (), ())


def test_what_agrees_is_left_alone_whatever_its_other_configs() -> None:
    plan = plan_topics(SPECS, AS_DECLARED, replication_factor=2)
    assert (plan.create, plan.agree, plan.differences) == ((), SPECS, ())


def test_every_difference_is_listed() -> None:
    observed = dict(AS_DECLARED)
    observed["orders"] = replace(observed["orders"], partitions=3, replication_factor=1)
    observed[CHANGELOG] = replace(
        observed[CHANGELOG], configs={**observed[CHANGELOG].configs, "cleanup.policy": "compact,delete"}
    )
    plan = plan_topics(SPECS, observed, replication_factor=2)
    assert [str(difference) for difference in plan.differences] == [
        "orders: partitions: expected 2, observed 3",
        "orders: replication: expected 2, observed 1",
        f"{CHANGELOG}: cleanup.policy: expected compact, observed compact,delete",
    ]
    assert len(plan.agree) == 2


def test_the_order_of_policies_is_no_difference() -> None:
    spec = replace(SPECS[2], configs={"cleanup.policy": "compact,delete"})
    topic = ObservedTopic(spec.name, 2, 1, {"cleanup.policy": "delete, compact", "min.insync.replicas": "1"})
    assert not plan_topics([spec], {spec.name: topic}, replication_factor=1).differences


def test_one_replica_may_be_away() -> None:
    assert [resolve_min_insync_replicas(factor) for factor in (1, 2, 3)] == [1, 1, 2]
