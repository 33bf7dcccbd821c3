"""Partition counts and internal topics, compared with what the real Kafka Streams decides and creates."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, ResourceType
from streamplan.errors import Refused
from streamplan.local.jars import KAFKA_STREAMS
from streamplan.model.copartitioning import copartition_groups, resolve_partition_counts
from streamplan.model.partitioner import partition_for_key
from streamplan.model.pipeline import Pipeline, TestData
from streamplan.model.topics import TopicRole
from streamplan.model.windows import JoinWindows, TimeWindows
from streamplan.serdes.primitive import UUID, Bytes, Double, Integer, KeySerde, Long, String

from tests.support.brokers import NewTopicFactory
from tests.support.kafka_streams import (
    Twin,
    java,
    running,
    wait_until_running,
)
from tests.support.partition_counts import asked, drawn
from tests.support.soak import seeds


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    with java(KAFKA_STREAMS) as jvm:
        yield jvm


@pytest.fixture
def twin(jvm: Any) -> Twin:
    return Twin(jvm, "app")


@pytest.mark.parametrize(
    ("serde", "serializer", "value"),
    [
        (String(), "StringSerializer", "Käse"),
        (Integer(), "IntegerSerializer", -7),
        (Long(), "LongSerializer", 1 << 40),
        (Double(), "DoubleSerializer", -0.1),
        (UUID(), "UUIDSerializer", "0a1b2c3d-0000-4000-8000-00000000ffff"),
        (Bytes(), "ByteArraySerializer", b"\x00\xff"),
    ],
    ids=repr,
)
def test_keys_and_values_have_the_bytes_and_the_partition_of_the_serializers(
    jvm: Any, serde: KeySerde, serializer: str, value: Any
) -> None:
    # Python's numbers become the smallest type that fits.
    kinds = {"LongSerializer": jvm.java.lang.Long.valueOf, "UUIDSerializer": jvm.java.util.UUID.fromString}
    java_value = kinds.get(serializer, lambda same: same)(value)
    serialized = getattr(jvm.org.apache.kafka.common.serialization, serializer)().serialize("topic", java_value)
    assert serde.write_key(value) == bytes(serialized)
    partition = jvm.org.apache.kafka.clients.producer.internals.BuiltInPartitioner.partitionForKey(serialized, 7)
    assert partition_for_key(serde.write_key(value), 7) == partition
    if not isinstance(serde, Bytes):
        assert serde.encode({"value": value}) == bytes(serialized)


def ours(twin: Twin, external: Mapping[str, int]) -> dict[str, int]:
    """Of the repartition topics, by their name in Kafka."""
    counts = resolve_partition_counts(twin.topology, external)
    return {twin.topology.decorate(topic): counts[topic] for topic in twin.topology.internal_topics}


def agreed(twin: Twin, external: Mapping[str, int]) -> list[int]:
    """The counts of the repartition topics, about which both agree."""
    counts, answer = ours(twin, external), asked(twin, external)
    assert (answer.counts, answer.refusal) == (counts, "")
    return sorted(counts.values())


def refused_by_both(twin: Twin, external: Mapping[str, int]) -> str:
    """The words in which both refuse."""
    with pytest.raises(Refused) as refused:
        resolve_partition_counts(twin.topology, external)
    assert refused.value.subject == asked(twin, external).refusal
    return refused.value.subject


def test_a_repartition_topic_takes_the_count_of_its_source(twin: Twin) -> None:
    twin.stream("orders").select_key().count("counts")
    assert agreed(twin, {"orders": 5}) == [5]


def test_a_repartition_topic_takes_the_greatest_count_of_its_sources(twin: Twin) -> None:
    twin.stream("a").merge(twin.stream("b")).select_key().count("counts")
    assert agreed(twin, {"a": 2, "b": 7}) == [7]


def test_a_repartition_topic_takes_the_count_of_the_table_it_is_joined_with(twin: Twin) -> None:
    twin.stream("orders").select_key().join(twin.table("products")).to("enriched")
    assert agreed(twin, {"orders": 6, "products": 3}) == [3]


def test_repartition_topics_joined_with_each_other_take_the_greatest_count(twin: Twin) -> None:
    counted = twin.stream("a").select_key().count("counts")
    twin.stream("b").select_key().join(counted).to("out")
    assert agreed(twin, {"a": 3, "b": 4}) == [4, 4]


def test_an_explicit_count_wins_over_the_others_of_its_group(twin: Twin) -> None:
    counted = twin.stream("a").repartition("few", 2).count("counts")
    twin.stream("b").select_key().join(counted).to("out")
    assert agreed(twin, {"a": 3, "b": 4}) == [2, 2]


def test_topics_from_outside_that_disagree_are_refused(twin: Twin) -> None:
    twin.stream("a").join(twin.table("b")).select_key().count("counts")
    said = refused_by_both(twin, {"a": 2, "b": 3})
    assert said == "Invalid topology: Topics not co-partitioned: [{a=2, b=3}]"


def test_an_explicit_count_that_disagrees_with_the_table_is_refused(twin: Twin) -> None:
    twin.stream("a").repartition("own", 5).join(twin.table("b")).to("out")
    said = refused_by_both(twin, {"a": 2, "b": 3})
    assert said == (
        "Invalid topology: Number of partitions [5] of repartition topic [app-own-repartition] "
        "doesn't match number of partitions [3] of the source topic."
    )


def test_two_explicit_counts_that_disagree_are_refused(twin: Twin) -> None:
    counted = twin.stream("a").repartition("first", 2).count("counts")
    twin.stream("b").repartition("second", 3).join(counted).to("out")
    said = refused_by_both(twin, {"a": 2, "b": 3})
    assert said == (
        "Invalid topology: Following topics do not have the same number of partitions: "
        "[{first-repartition=2, second-repartition=3}]"
    )


def test_two_explicit_counts_that_disagree_beside_one_that_follows_are_refused(twin: Twin) -> None:
    counted = twin.stream("a").repartition("first", 2).count("counts")
    other = twin.stream("b").repartition("second", 3)
    free = twin.stream("c").repartition("third")
    free.merge(other).join(counted).to("out")
    said = refused_by_both(twin, {"a": 2, "b": 3, "c": 4})
    assert said == (
        "Invalid topology: Following topics do not have the same number of partitions: "
        "[{app-first-repartition=2, app-second-repartition=3, app-third-repartition=4}]"
    )


def test_streams_that_are_folded_into_one_store_come_from_topics_of_one_count(twin: Twin) -> None:
    """Also where a repartition topic stands between."""
    orders, clicks = twin.stream("orders"), twin.stream("clicks").select_key()
    clicks.cogroup(orders, "both")
    orders.select_key().cogroup(clicks, "again")
    assert agreed(twin, {"orders": 3, "clicks": 3}) == [3, 3, 3]
    said = refused_by_both(twin, {"orders": 3, "clicks": 2})
    assert said == "Invalid topology: Topics not co-partitioned: [{clicks=2, orders=3}]"


def test_the_library_folds_repartition_topics_of_unlike_counts_into_one_store_and_we_do_not(twin: Twin) -> None:
    """The clicks are merged with a topic of more partitions elsewhere, so that their repartition topic has more."""
    clicks = twin.stream("clicks")
    clicks.merge(twin.stream("views")).to("out")
    clicks.select_key().cogroup(twin.stream("orders").select_key(), "both")
    external = {"clicks": 2, "orders": 2, "views": 4}
    assert asked(twin, external).counts == {"app-both-this-repartition": 4, "app-both-other-repartition": 2}
    assert set(ours(twin, external).values()) == {4}


# -- many topologies


@pytest.mark.parametrize("seed", seeds(30, in_soak=1000))
def test_counts_are_those_of_the_library(jvm: Any, seed: int) -> None:
    twin, external = drawn(jvm, random.Random(seed))
    assert not twin.topology.faults
    answer = asked(twin, external)
    if answer.refusal:
        with pytest.raises(Refused) as said:
            resolve_partition_counts(twin.topology, external)
    groups = {frozenset(map(twin.topology.decorate, group)) for group in copartition_groups(twin.topology)}
    if answer.groups != groups:  # it has lost sight of a join
        assert all(any(theirs <= group for group in groups) for theirs in answer.groups)
    elif answer.refusal:
        assert answer.refusal.removeprefix("Invalid topology: ") in said.value.subject
    elif answer.counts:  # without any it enforces nothing
        assert ours(twin, external) == answer.counts


@pytest.mark.parametrize("seed", seeds(30, in_soak=500))
def test_a_count_that_depends_on_the_order_of_hash_codes_is_that_of_the_library(jvm: Any, seed: int) -> None:
    """Behind the join, a repartition topic takes 6 or 3: as the count of the one before it is known by then, or not."""
    chosen = random.Random(seed)
    stream, table, store = (chosen.randbytes(chosen.randint(1, 9)).hex() for _ in range(3))
    twin = Twin(jvm, f"app-{seed}")
    joined = twin.stream(stream).select_key().join(twin.table(table))
    joined.count(f"{store}-kept", chosen.choice([None, TimeWindows("1 minute", "3 days")]))
    joined.select_key().count(store, chosen.choice([None, TimeWindows("1 hour", "40 days")]))
    counts = agreed(twin, {stream: 6, table: 3})
    assert counts in ([3, 3], [3, 6])


# -- the topics that it creates


def overrides(admin: AdminClient, topic: str) -> dict[str, str]:
    """The configs that were set for this topic when it was created."""
    (asked_for,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    entries = asked_for.result(120).values()
    return {entry.name: entry.value for entry in entries if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value}


def created(jvm: Any, twin: Twin, bootstrap_servers: str, state: Path) -> dict[str, tuple[int, dict[str, str]]]:
    """Partitions and configs of the internal topics that the real application creates; they are deleted again."""
    application_id = twin.topology.application_id
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    names: list[str] = []
    try:
        with running(jvm, twin.build(), bootstrap_servers, application_id, state) as application:
            wait_until_running(application)  # its tasks are assigned: every topic exists
            deadline = time.monotonic() + 300
            while True:  # the brokers hear of them one after the other
                known = admin.list_topics(timeout=60).topics
                found = sorted(name for name in known if name.startswith(f"{application_id}-"))
                if names and found == names:
                    break
                names = found
                assert time.monotonic() < deadline, f"the topics of {application_id} still change after 300 s"
                time.sleep(0.5)
            return {name: (len(known[name].partitions), overrides(admin, name)) for name in names}
    finally:
        for future in (admin.delete_topics(names) if names else {}).values():
            future.result(120)


def declared(twin: Twin, external: Mapping[str, int]) -> dict[str, tuple[int, dict[str, str]]]:
    """Partitions and configs of the internal topics of the same topology's pipeline."""
    first = twin.topology.source_topics[0]
    data = TestData((first,), lambda n: (first, b"", b""), "Id")
    specs = Pipeline("twin", twin.topology, "", external, data).topics()
    return {
        spec.name: (spec.partitions, dict(spec.configs))
        for spec in specs
        if spec.role in (TopicRole.REPARTITION, TopicRole.CHANGELOG)
    }


def test_internal_topics_are_those_that_the_library_creates(
    jvm: Any, bootstrap_servers: str, new_topic: NewTopicFactory, tmp_path: Path
) -> None:
    external = {new_topic(name, partitions=count): count for name, count in _OUTSIDE.items()}
    orders, products, prices, unused, out, views, clicks = external
    twin = Twin(jvm, f"shop-{uuid.uuid4().hex[:8]}")
    twin.table(unused)
    enriched = twin.stream(orders).select_key().join(twin.table(products))
    enriched.to(out)
    totals = enriched.repartition("enriched", 3).count("totals")
    totals.to_stream().repartition("wide", 4).count("minutes", TimeWindows("1 minute", "30 seconds"))
    twin.stream(prices).select_key().count("daily", TimeWindows("1 day"))
    within = JoinWindows("5 minutes", "1 hour", after="10 minutes")
    twin.stream(views).join_stream(twin.stream(clicks), within)

    theirs = created(jvm, twin, bootstrap_servers, tmp_path)
    assert theirs == declared(twin, external)
    prefix = twin.topology.application_id
    assert {name.removeprefix(f"{prefix}-"): partitions for name, (partitions, _) in theirs.items()} == {
        "KSTREAM-KEY-SELECT-0000000004-repartition": 2,
        f"{products}-STATE-STORE-0000000005-changelog": 2,
        "enriched-repartition": 3,
        "totals-changelog": 3,
        "wide-repartition": 4,
        "minutes-changelog": 4,
        "daily-repartition": 1,
        "daily-changelog": 1,
        "KSTREAM-JOINTHIS-0000000033-store-changelog": 2,
        "KSTREAM-JOINOTHER-0000000034-store-changelog": 2,
    }
    assert theirs[f"{prefix}-minutes-changelog"][1]["retention.ms"] == str(60_000 + 30_000 + 86_400_000)


_OUTSIDE = {"orders": 3, "products": 2, "prices": 1, "unused": 5, "out": 2, "views": 2, "clicks": 2}
