"""Streams of several topics, which one source of the library reads. test_oracle.py compares them with the library."""

from __future__ import annotations

import re
from typing import Any

import pytest
from streamplan.errors import Refused
from streamplan.model.acls import Operation, Role, required_acls
from streamplan.model.column_lineage import Column, column_lineage
from streamplan.model.copartitioning import copartition_groups, resolve_partition_counts
from streamplan.model.pipeline import Pipeline
from streamplan.model.topology import Topology
from streamplan.model.unused import unused
from streamplan.observability.diagram import diagram_of
from streamplan.serdes.json import Json

ORDER = Json("id string, amount bigint")


def orders_of(*topics: str, **options: Any) -> tuple[Topology, Any]:
    topology = Topology("app")
    return topology, topology.stream(topics, value=ORDER, **options)


def counted() -> Pipeline:
    topology, orders = orders_of("eu", "us")
    orders.group_by("id").count(store="counts")
    return Pipeline("counted", topology, "", {"eu": 2, "us": 3})


def faults(topology: Topology) -> str:
    return "; ".join(map(str, topology.faults))


def test_the_stream_tasks_are_as_many_as_the_most_partitions() -> None:
    pipeline = counted()
    reading, counting = pipeline.topology.subtopologies
    assert pipeline.partitions(reading) == 3
    assert pipeline.partition_counts["app-counts-repartition"] == 3
    assert pipeline.source_topics(reading) == ("eu", "us")
    assert pipeline.source_topics(counting) == ("app-counts-repartition",)


def test_topics_that_are_joined_have_equal_counts() -> None:
    topology, orders = orders_of("eu", "us")
    users = topology.table("users", value=Json("name string"))
    orders.join(users, {"id": "id"}).to("named")
    assert copartition_groups(topology) == (frozenset({"eu", "us", "users"}),)
    with pytest.raises(Refused, match=re.escape("Topics not co-partitioned: [{eu=2, us=3, users=2}]")):
        resolve_partition_counts(topology, {"eu": 2, "us": 3, "users": 2})


def test_permissions_lineage_and_the_diagram_have_each_topic() -> None:
    pipeline = counted()
    acls = {acl.name for acl in required_acls(pipeline, Role.AGGREGATOR) if acl.operation is Operation.READ}
    assert {"eu", "us"} <= acls
    columns = column_lineage(pipeline.topology)["app-counts-changelog"]
    assert columns["key"] == {Column("eu", "id"), Column("us", "id")}
    diagram = diagram_of(pipeline)
    edges = {(start, end) for start, end, _ in diagram.edges}
    source = "0 KSTREAM-SOURCE-0000000000"
    assert {("topic eu", source), ("topic us", source), (source, "0 KSTREAM-KEY-SELECT-0000000001")} <= edges
    assert [node.name for node in diagram.nodes if node.kind == "source"].count("KSTREAM-SOURCE-0000000000") == 1
    assert not any(" of " in node.name for node in diagram.nodes)


def test_a_topic_may_be_given_alone_and_topics_as_a_list() -> None:
    topology, _ = orders_of("eu")
    assert "(topics: [eu])" in topology.describe()
    topology = Topology("app")
    topology.stream(["eu", "us"], value=ORDER, name="orders").to("out")
    assert "Source: orders (topics: [" in topology.describe()


def test_what_is_read_twice_is_read_once() -> None:
    topology, orders = orders_of("eu", "us")
    orders.to("out")
    topology.stream(("us", "eu"), value=ORDER).to("other")
    assert topology.faults == ()
    (group,) = topology.subtopologies
    assert group.source_topics == ("eu", "us")


@pytest.mark.parametrize(
    ("topics", "told"),
    [
        (("us",), "two streams read topics that are not the same: 'eu', 'us' at "),
        (("us", "asia"), "and 'asia', 'us' here"),
        (("de", "de"), "stream: topic: a topic is named twice"),
        ((), "Name the topics that it reads: stream(('a', 'b'), value=…)"),
        (("de", "a b"), "the name 'a b' contains ' '"),
        (re.compile("orders-.*"), "stream: topic is a Pattern; it takes a text or a tuple. Name the topics"),
    ],
)
def test_other_topics_are_refused(topics: Any, told: str) -> None:
    topology, _ = orders_of("eu", "us")
    topology.stream(topics, value=ORDER)
    assert told in faults(topology)


def test_a_stream_that_leads_nowhere_is_told_with_its_topics() -> None:
    topology, orders = orders_of("eu", "us")
    orders.to("out")
    topology.stream(("de", "fr"), value=ORDER)
    said = [str(warning) for warning in unused(Pipeline("p", topology, "", dict.fromkeys(topology.source_topics, 1)))]
    assert any("nothing is done with the records of 'de', 'fr'" in text for text in said)
