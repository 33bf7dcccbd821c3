from __future__ import annotations

import pytest
from streamplan.errors import Refused
from streamplan.model.copartitioning import copartition_groups, resolve_partition_counts
from streamplan.model.topology import Topology
from streamplan.pipelines.orders import PIPELINE
from streamplan.serdes.json import Json

VALUE = Json("Id string, Amount bigint")
JOINED = {"Id": "Id", "Amount": "table.Amount"}


@pytest.fixture
def topology() -> Topology:
    return Topology("app")


@pytest.mark.parametrize("partitions", [1, 2, 7])
def test_a_repartition_topic_takes_the_count_of_its_source(partitions: int) -> None:
    counts = resolve_partition_counts(PIPELINE.topology, {"orders": partitions})
    assert counts == {"orders": partitions, "orders-products-quantities-repartition": partitions}


def test_a_chain_of_repartition_topics_takes_the_count_of_its_source(topology: Topology) -> None:
    topology.stream("a", value=VALUE).repartition(name="first").repartition(name="second").to("out")
    counts = resolve_partition_counts(topology, {"a": 3})
    assert counts == {"a": 3, "first-repartition": 3, "second-repartition": 3, "out": 3}


def test_an_explicit_count_is_passed_on(topology: Topology) -> None:
    first = topology.stream("a", value=VALUE).repartition(name="first", number_of_partitions=5)
    first.repartition(name="second").to("out")
    assert resolve_partition_counts(topology, {"a": 3})["second-repartition"] == 5


def test_a_repartition_topic_takes_the_count_of_the_table_it_is_joined_with(topology: Topology) -> None:
    stream = topology.stream("a", value=VALUE).select_key("Id")
    stream.join(topology.table("b", value=VALUE), JOINED, name="joined").to("out")
    counts = resolve_partition_counts(topology, {"a": 6, "b": 4})
    assert counts == {"a": 6, "b": 4, "joined-repartition": 4, "out": 4}


def test_topics_that_are_only_written_get_as_many_partitions_as_their_writer_has_tasks(topology: Topology) -> None:
    stream = topology.stream("a", value=VALUE).merge(topology.stream("b", value=VALUE))
    stream.to("out")
    assert resolve_partition_counts(topology, {"a": 2, "b": 3})["out"] == 3
    assert resolve_partition_counts(topology, {"a": 2, "b": 3, "out": 8})["out"] == 8


def test_streams_that_are_merged_need_no_equal_counts(topology: Topology) -> None:
    topology.stream("a", value=VALUE).merge(topology.stream("b", value=VALUE)).to("out")
    assert copartition_groups(topology) == ()


def test_a_stream_and_a_table_of_unequal_counts_are_refused_also_without_a_repartition_topic(
    topology: Topology,
) -> None:
    """The library lets this pass and joins what happens to lie in partitions of the same number."""
    topology.stream("a", value=VALUE).join(topology.table("b", value=VALUE), JOINED).to("out")
    assert not topology.repartition_topics
    with pytest.raises(Refused, match=r"Topics not co-partitioned: \[\{a=2, b=3\}\]"):
        resolve_partition_counts(topology, {"a": 2, "b": 3})
    assert resolve_partition_counts(topology, {"a": 3, "b": 3})["out"] == 3


def test_joins_are_seen_where_the_library_loses_sight_of_them(topology: Topology) -> None:
    """A topic that is read twice, and a re-keyed stream that is joined twice."""
    topology.stream("a", value=VALUE).select_key("Id").to("out")
    topology.stream("a", value=VALUE).join(topology.table("b", value=VALUE), JOINED).to("joined")
    assert copartition_groups(topology) == (frozenset({"a", "b"}),)

    twice = Topology("twice")
    rekeyed = twice.stream("a", value=VALUE).select_key("Id")
    for table in ("b", "c"):
        rekeyed.join(twice.table(table, value=VALUE), JOINED).to(f"out-{table}")
    with pytest.raises(Refused, match=r"\[\{b=2, c=3\}\]"):
        resolve_partition_counts(twice, {"a": 4, "b": 2, "c": 3})


def test_groups_that_a_later_join_links_are_one(topology: Topology) -> None:
    a, b = (topology.stream(name, value=VALUE) for name in "ab")
    t, u = (topology.table(name, value=VALUE) for name in "tu")
    a.join(t, JOINED).to("out-at")
    b.join(u, JOINED).to("out-bu")
    assert set(copartition_groups(topology)) == {frozenset("at"), frozenset("bu")}
    linked = Topology("linked")
    a, b = (linked.stream(name, value=VALUE) for name in "ab")
    t, u = (linked.table(name, value=VALUE) for name in "tu")
    a.join(t, JOINED).to("out-at")
    b.join(u, JOINED).to("out-bu")
    a.join(u, JOINED).to("out-au")
    assert copartition_groups(linked) == (frozenset("abtu"),)


def test_every_group_that_disagrees_is_named(topology: Topology) -> None:
    for stream, table in (("a", "b"), ("c", "d")):
        joined = topology.stream(stream, value=VALUE).join(topology.table(table, value=VALUE), JOINED)
        joined.to(f"out-{stream}")
    with pytest.raises(Refused, match=r"\[\{a=2, b=3\}\]; Topics not co-partitioned: \[\{c=4, d=5\}\]"):
        resolve_partition_counts(topology, {"a": 2, "b": 3, "c": 4, "d": 5})


def test_an_explicit_count_that_disagrees_with_the_table_is_refused(topology: Topology) -> None:
    stream = topology.stream("a", value=VALUE).repartition(name="own", number_of_partitions=5)
    stream.join(topology.table("b", value=VALUE), JOINED).to("out")
    with pytest.raises(
        Refused, match=r"Number of partitions \[5\] of repartition topic \[app-own-repartition\] doesn't match number"
    ):
        resolve_partition_counts(topology, {"a": 2, "b": 3})


def test_a_source_of_unknown_count_is_refused() -> None:
    with pytest.raises(Refused, match="source topic orders: expected a number of partitions, observed none"):
        resolve_partition_counts(PIPELINE.topology, {})


def test_a_count_for_a_topic_that_is_not_of_the_topology_is_refused() -> None:
    with pytest.raises(Refused, match="topic_partitions names order: expected source and sink topics: orders"):
        resolve_partition_counts(PIPELINE.topology, {"orders": 2, "order": 2})
    with pytest.raises(Refused, match="The counts of internal topics follow from those"):
        resolve_partition_counts(PIPELINE.topology, {"orders": 2, "orders-products-quantities-repartition": 2})


def test_a_topic_without_partitions_is_refused() -> None:
    with pytest.raises(Refused, match="topic orders: expected at least 1 partition, observed 0"):
        resolve_partition_counts(PIPELINE.topology, {"orders": 0})
