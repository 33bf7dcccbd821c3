from __future__ import annotations

from dataclasses import replace

import pytest
from streamplan.model.topics import (
    ObservedTopic,
    TopicRole,
    TopicSpec,
    plan_topics,
    resolve_configs,
    resolve_min_insync_replicas,
)
from streamplan.model.windows import STORED_SESSION_BYTES, STORED_WINDOW_BYTES
from streamplan.pipelines.orders import PIPELINE
from streamplan.serdes.windowed import KeyInWindow

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


NOON = 1_767_268_800_000  # 2026-01-01T12:00:00Z
AT_NOON, MINUTE_LATER = NOON.to_bytes(8, "big"), (NOON + 60_000).to_bytes(8, "big")


@pytest.mark.parametrize(
    ("key_type", "window_bytes", "key", "text", "window"),
    [
        ("string", 0, b"ann", "ann", None),
        ("long", 0, (-7).to_bytes(8, "big", signed=True), "-7", None),
        (
            *("string", STORED_WINDOW_BYTES, b"DE" + AT_NOON + bytes(4)),
            *("DE at 2026-01-01T12:00:00Z", KeyInWindow("DE", "2026-01-01T12:00:00Z")),
        ),
        (
            *("int", STORED_WINDOW_BYTES, (7).to_bytes(4, "big") + AT_NOON + bytes(4)),
            *("7 at 2026-01-01T12:00:00Z", KeyInWindow("7", "2026-01-01T12:00:00Z")),
        ),
        (
            *("string", STORED_SESSION_BYTES, b"ann" + MINUTE_LATER + AT_NOON),
            "ann at 2026-01-01T12:00:00Z/2026-01-01T12:01:00Z",
            KeyInWindow("ann", "2026-01-01T12:00:00Z", "2026-01-01T12:01:00Z"),
        ),
        (
            *("TimeWindowed(string)", 0, b"DE" + AT_NOON),
            *("DE at 2026-01-01T12:00:00Z", KeyInWindow("DE", "2026-01-01T12:00:00Z")),
        ),
        (
            *("SessionWindowed(long)", 0, bytes(7) + b"\x07" + MINUTE_LATER + AT_NOON),
            "7 at 2026-01-01T12:00:00Z/2026-01-01T12:01:00Z",
            KeyInWindow("7", "2026-01-01T12:00:00Z", "2026-01-01T12:01:00Z"),
        ),
        ("TimeWindowed(string)", 0, b"DE", "'DE'", None),
        (
            *("string", STORED_WINDOW_BYTES, b"DE" + b"\x7f" + bytes(11)),
            *(f"DE at {0x7F << 56}", KeyInWindow("DE", str(0x7F << 56))),
        ),
    ],
)
def test_a_key_is_shown_with_its_window_or_its_session(
    key_type: str, window_bytes: int, key: bytes, text: str, window: KeyInWindow | None
) -> None:
    spec = TopicSpec("counted-changelog", TopicRole.CHANGELOG, 1, {}, window_bytes, key_type)
    assert spec.key_text(key, quoted=False) == text
    assert spec.key_in_window(key) == window


def test_the_text_of_a_key_has_quotes_within_a_sentence_and_is_printable() -> None:
    spec = TopicSpec("counted-changelog", TopicRole.CHANGELOG, 1, {}, STORED_WINDOW_BYTES)
    assert spec.key_text(b"DE" + AT_NOON + bytes(4)) == "'DE' at 2026-01-01T12:00:00Z"
    key = b"\x1b[0m" + AT_NOON + bytes(4)
    assert spec.key_text(key, quoted=False) == r"\x1b[0m at 2026-01-01T12:00:00Z"


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
