"""The ACLs of each role beside lists that were written by hand.

Whether each entry is needed, and all of them are enough, brokers with an authorizer say: see the integration tests.
"""

from __future__ import annotations

import pytest
from streamplan.model.acls import Role, required_acls
from streamplan.model.pipeline import Pipeline, TestData
from streamplan.model.topology import Topology
from streamplan.pipelines.orders import ORDER, order
from streamplan.registry import pipeline_named

REPARTITION = "orders-aggregator-orders-products-quantities-repartition"
CHANGELOG = "orders-aggregator-orders-products-quantities-changelog"
DEAD_LETTERS = "orders-aggregator-dead-letter"

EXPECTED = {
    Role.AGGREGATOR: {
        ("topic", "orders", "Read"),
        ("topic", REPARTITION, "Write"),
        ("topic", REPARTITION, "Read"),
        ("topic", CHANGELOG, "Write"),
        ("topic", CHANGELOG, "Read"),
        ("topic", DEAD_LETTERS, "Write"),
        ("topic", DEAD_LETTERS, "Read"),
        ("group", "orders-aggregator", "Read"),
        ("transactional-id", "orders-aggregator-*", "Write"),
    },
    Role.PRODUCER: {
        ("topic", "orders", "Read"),
        ("topic", "orders", "Write"),
        ("transactional-id", "orders-aggregator-producer", "Write"),
    },
    Role.CHECKS: {
        *(("topic", topic, "Read") for topic in ("orders", REPARTITION, CHANGELOG, DEAD_LETTERS)),
        *(("topic", topic, "DescribeConfigs") for topic in ("orders", REPARTITION, CHANGELOG, DEAD_LETTERS)),
        ("group", "orders-aggregator", "Describe"),
    },
    Role.DEPLOYER: {
        *(("topic", topic, "Create") for topic in ("orders", REPARTITION, CHANGELOG, DEAD_LETTERS)),
        *(("topic", topic, "DescribeConfigs") for topic in ("orders", REPARTITION, CHANGELOG, DEAD_LETTERS)),
        *(("topic", topic, "Delete") for topic in (REPARTITION, CHANGELOG, DEAD_LETTERS)),
        *(("topic", topic, "Read") for topic in ("orders", REPARTITION)),
        ("group", "orders-aggregator", "Read"),
        ("group", "orders-aggregator", "Delete"),
        ("transactional-id", "orders-aggregator-*", "Write"),
    },
    Role.QUERIES: {("topic", CHANGELOG, "Read")},
}


@pytest.mark.parametrize("role", list(Role))
def test_the_orders_pipeline(role: Role) -> None:
    entries = required_acls(pipeline_named("orders"), role)
    assert len(set(entries)) == len(entries)
    assert {(entry.resource_type, entry.name + "*" * entry.prefixed, entry.operation) for entry in entries} == EXPECTED[
        role
    ]
    assert all(entry.reason for entry in entries)


def test_only_a_declared_move_needs_the_topics_that_records_are_moved_from() -> None:
    topology = Topology("moved")
    topology.stream("orders-v2", value=ORDER).group_by("ProductType", name="quantities").count(store="totals")
    test_data = TestData(("orders-v2",), lambda n: ("orders-v2", *order(n)), "Id")
    moved = Pipeline("moved", topology, "", {"orders-v2": 4}, test_data, repartition_from={"orders-v2": "orders"})
    names = {entry.name for entry in required_acls(moved, Role.DEPLOYER)}
    assert {"orders", "moved-totals-changelog-moving", "moved-repartition"} <= names
    names = {entry.name for entry in required_acls(pipeline_named("orders"), Role.DEPLOYER)}
    assert not any("-moving" in name for name in names)


def test_topics_of_others_are_read_and_never_made_or_written() -> None:
    topology = Topology("guest")
    topology.stream("sales", value=ORDER).group_by("ProductType", name="quantities").count(store="totals")
    guest = Pipeline("guest", topology, "", {})
    of_sales = {
        role: {entry.operation for entry in required_acls(guest, role) if entry.name == "sales"} for role in Role
    }
    assert of_sales == {
        Role.AGGREGATOR: {"Read"},
        Role.PRODUCER: set(),
        Role.CHECKS: {"Read", "DescribeConfigs"},
        Role.DEPLOYER: {"Read", "DescribeConfigs"},
        Role.QUERIES: set(),
    }
    assert required_acls(guest, Role.PRODUCER) == ()


def test_an_upgrade_needs_what_the_old_application_has() -> None:
    topology = Topology("new")
    topology.stream("orders", value=ORDER).to("paid")
    plain = {*required_acls(Pipeline("an-upgrade", topology, "", {"orders": 2}), Role.DEPLOYER)}
    pipeline = Pipeline("an-upgrade", topology, "", {"orders": 2}, upgrade_from="old")
    added = {*required_acls(pipeline, Role.DEPLOYER)} - plain
    assert {(entry.resource_type, entry.name + "*" * entry.prefixed, entry.operation) for entry in added} == {
        *(("topic", "new-staging-paid", operation) for operation in ("Create", "Write", "Delete", "DescribeConfigs")),
        *(("topic", "old-*", operation) for operation in ("Read", "DescribeConfigs")),
        ("group", "old", "Read"),
        ("transactional-id", "old-*", "Write"),
    }


def test_the_checks_read_what_is_of_the_old_application_and_what_was_built() -> None:
    topology = Topology("new")
    topology.stream("orders", value=ORDER).to("paid")
    plain = {*required_acls(Pipeline("an-upgrade", topology, "", {"orders": 2}), Role.CHECKS)}
    pipeline = Pipeline("an-upgrade", topology, "", {"orders": 2}, upgrade_from="old")
    added = {*required_acls(pipeline, Role.CHECKS)} - plain
    assert {(entry.resource_type, entry.name + "*" * entry.prefixed, entry.operation) for entry in added} == {
        *(("topic", topic, "Read") for topic in ("new-staging-paid", "old-*")),
        *(("topic", topic, "DescribeConfigs") for topic in ("new-staging-paid", "old-*")),
        ("group", "old", "Describe"),
    }
