"""Partition counts and internal topics, compared with what the real Kafka Streams decides and creates."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from streamplan.adapters.embedded.jars import KAFKA_STREAMS
from streamplan.copartitioning import resolve_partition_counts
from streamplan.errors import Refused
from streamplan.windows import TimeWindows

from tests.integration.kafka_streams import (
    STREAMS,
    Twin,
    TwinStream,
    TwinTable,
    call,
    collection,
    java,
    new,
    properties,
)

INTERNALS = f"{STREAMS}.processor.internals"


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    with java(KAFKA_STREAMS) as jvm:
        yield jvm


@pytest.fixture
def twin(jvm: Any) -> Twin:
    return Twin(jvm, "app")


class LibraryRefused(Exception):
    """With the library's words."""


def _cluster(jvm: Any, counts: Mapping[str, int]) -> Any:
    common = jvm.org.apache.kafka.common
    node = jvm.java.lang.Class.forName("org.apache.kafka.common.Node")
    nobody = jvm.java.lang.reflect.Array.newInstance(node, 0)
    partitions = [
        common.PartitionInfo(topic, partition, None, nobody, nobody)
        for topic, count in counts.items()
        for partition in range(count)
    ]
    none = jvm.java.util.HashSet()
    return common.Cluster("cluster", none, collection(jvm, partitions), none, none)


def metadata_of(twin: Twin, built: Any) -> Any:
    """``TopologyMetadata``, from which the assignor works."""
    jvm = twin.jvm
    config = jvm.org.apache.kafka.streams.StreamsConfig(
        properties(jvm, {"application.id": twin.topology.application_id, "bootstrap.servers": "127.0.0.1:1"})
    )
    kind = jvm.java.lang.Class.forName(f"{STREAMS}.Topology")
    builder = kind.getDeclaredField("internalTopologyBuilder")
    builder.setAccessible(True)
    metadata = jvm.org.apache.kafka.streams.processor.internals.TopologyMetadata(builder.get(built), config)
    metadata.buildAndRewriteTopology()
    return metadata


def counts_of_the_library(twin: Twin, external: Mapping[str, int]) -> dict[str, int]:
    """Of the repartition topics, by their name in Kafka; what ``RepartitionTopics.setup`` does but create them."""
    jvm = twin.jvm
    internals = jvm.org.apache.kafka.streams.processor.internals
    cluster = _cluster(jvm, external)
    try:
        metadata = metadata_of(twin, twin.build())
        enforcer = internals.assignment.CopartitionedTopicsEnforcer("")
        topics = internals.RepartitionTopics(metadata, None, enforcer, cluster, "")
        found = call(jvm, topics, "computeRepartitionTopicConfig", cluster)
        if not found.isEmpty():
            call(jvm, topics, "ensureCopartitioning", metadata.copartitionGroups(), found, cluster)
    except Py4JJavaError as error:
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        if cause.getClass().getSimpleName() != "TopologyException":
            raise
        raise LibraryRefused(str(cause.getMessage())) from error
    return {str(name): int(found[name].numberOfPartitions().get()) for name in found}


def ours(twin: Twin, external: Mapping[str, int]) -> dict[str, int]:
    """Of the repartition topics, by their name in Kafka."""
    counts = resolve_partition_counts(twin.topology, external)
    return {twin.topology.decorate(topic): counts[topic] for topic in twin.topology.internal_topics}


def both_refuse(twin: Twin, external: Mapping[str, int]) -> str:
    """The library's words, of which ours are the beginning."""
    with pytest.raises(LibraryRefused) as theirs:
        counts_of_the_library(twin, external)
    with pytest.raises(Refused) as refused:
        resolve_partition_counts(twin.topology, external)
    assert refused.value.subject == str(theirs.value)
    return str(theirs.value)


def test_a_repartition_topic_takes_the_count_of_its_source(twin: Twin) -> None:
    twin.stream("orders").select_key().count("counts")
    assert ours(twin, {"orders": 5}) == counts_of_the_library(twin, {"orders": 5})
    assert list(ours(twin, {"orders": 5}).values()) == [5]


def test_a_repartition_topic_takes_the_greatest_count_of_its_sources(twin: Twin) -> None:
    twin.stream("a").merge(twin.stream("b")).select_key().count("counts")
    assert ours(twin, {"a": 2, "b": 7}) == counts_of_the_library(twin, {"a": 2, "b": 7})
    assert list(ours(twin, {"a": 2, "b": 7}).values()) == [7]


def test_a_repartition_topic_takes_the_count_of_the_table_it_is_joined_with(twin: Twin) -> None:
    twin.stream("orders").select_key().join(twin.table("products")).to("enriched")
    external = {"orders": 6, "products": 3}
    assert ours(twin, external) == counts_of_the_library(twin, external)
    assert list(ours(twin, external).values()) == [3]


def test_repartition_topics_joined_with_each_other_take_the_greatest_count(twin: Twin) -> None:
    counted = twin.stream("a").select_key().count("counts")
    twin.stream("b").select_key().join(counted).to("out")
    external = {"a": 3, "b": 4}
    assert ours(twin, external) == counts_of_the_library(twin, external)
    assert list(ours(twin, external).values()) == [4, 4]


def test_an_explicit_count_wins_over_the_others_of_its_group(twin: Twin) -> None:
    counted = twin.stream("a").repartition("few", 2).count("counts")
    twin.stream("b").select_key().join(counted).to("out")
    external = {"a": 3, "b": 4}
    assert ours(twin, external) == counts_of_the_library(twin, external)
    assert set(ours(twin, external).values()) == {2}


def test_topics_from_outside_that_disagree_are_refused(twin: Twin) -> None:
    twin.stream("a").join(twin.table("b")).select_key().count("counts")
    said = both_refuse(twin, {"a": 2, "b": 3})
    assert said == "Invalid topology: Topics not co-partitioned: [{a=2, b=3}]"


def test_an_explicit_count_that_disagrees_with_the_table_is_refused(twin: Twin) -> None:
    twin.stream("a").repartition("own", 5).join(twin.table("b")).to("out")
    said = both_refuse(twin, {"a": 2, "b": 3})
    assert said == (
        "Invalid topology: Number of partitions [5] of repartition topic [app-own-repartition] "
        "doesn't match number of partitions [3] of the source topic."
    )


def test_two_explicit_counts_that_disagree_are_refused(twin: Twin) -> None:
    counted = twin.stream("a").repartition("first", 2).count("counts")
    twin.stream("b").repartition("second", 3).join(counted).to("out")
    said = both_refuse(twin, {"a": 2, "b": 3})
    assert said == (
        "Invalid topology: Following topics do not have the same number of partitions: "
        "[{first-repartition=2, second-repartition=3}]"
    )


def test_two_explicit_counts_that_disagree_beside_one_that_follows_are_refused(twin: Twin) -> None:
    counted = twin.stream("a").repartition("first", 2).count("counts")
    other = twin.stream("b").repartition("second", 3)
    free = twin.stream("c").repartition("third")
    free.merge(other).join(counted).to("out")
    said = both_refuse(twin, {"a": 2, "b": 3, "c": 4})
    assert said == (
        "Invalid topology: Following topics do not have the same number of partitions: "
        "[{app-first-repartition=2, app-second-repartition=3, app-third-repartition=4}]"
    )


# -- many topologies


def drawn(jvm: Any, chosen: random.Random) -> tuple[Twin, dict[str, int]]:
    """A topology of random operations, and partition counts of the topics that it reads."""
    twin = Twin(jvm, f"app{chosen.randrange(1000)}")
    names = (f"{chosen.choice('abcdefgh')}{number}" for number in range(1000))
    few = chosen.sample([1, 2, 3, 4, 6], chosen.choice([1, 2, 2, 3]))
    external: dict[str, int] = {}

    def topic() -> str:
        name = next(names)
        external[name] = chosen.choice(few)
        return name

    streams: list[TwinStream] = [twin.stream(topic())]
    tables: list[TwinTable] = []
    for _ in range(chosen.randint(3, 10)):
        stream = chosen.choice(streams)
        match chosen.choice(["stream", "table", "rekey", "rekey", "repartition", "join", "join", "count", "merge"]):
            case "stream":
                streams.append(twin.stream(topic()))
            case "table":
                tables.append(twin.table(topic()))
            case "rekey":
                streams.append(stream.select_key())
            case "repartition":
                streams.append(stream.repartition(next(names), chosen.choice([None, None, *few])))
            case "join":
                table = chosen.choice(tables) if tables and chosen.random() < 0.7 else twin.table(topic())
                tables.append(table)
                streams.append(stream.join(table))
            case "count":
                window = TimeWindows("1 minute", "0 seconds") if chosen.random() < 0.3 else None
                table = stream.count(next(names), window)
                if window is None:
                    tables.append(table)
                    streams.append(table.to_stream())
            case "merge":
                other = chosen.choice(streams)
                if other is not stream:
                    streams.append(stream.merge(other))
    return twin, external


@pytest.mark.parametrize("seed", range(4000))
def test_counts_are_those_of_the_library(jvm: Any, seed: int) -> None:
    twin, external = drawn(jvm, random.Random(seed))
    if twin.topology.faults:
        pytest.skip(str(twin.topology.faults[0].what))
    try:
        theirs = counts_of_the_library(twin, external)
    except LibraryRefused:
        with pytest.raises(Refused):
            resolve_partition_counts(twin.topology, external)
        return
    try:
        assert ours(twin, external) == theirs
    except Refused:
        # The one point in which it lets pass what we do not.
        assert not twin.topology.internal_topics
