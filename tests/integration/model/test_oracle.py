"""Where we claim to agree with Kafka Streams, the real library is asked (kafka-streams on the JVM, through py4j).

A topology is described once, as steps; one interpreter declares it with Streamplan's ``Topology``, another with the
library's ``StreamsBuilder``, and what both print of it is compared character by character.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from streamplan.errors import Refused
from streamplan.local.jars import KAFKA_STREAMS
from streamplan.model.copartitioning import resolve_partition_counts
from streamplan.model.kstream import (
    BranchedKStream,
    CogroupedKStream,
    KGroupedStream,
    KGroupedTable,
    KStream,
    KTable,
    WindowedKStream,
)
from streamplan.model.partitioner import murmur2, partition_for_key
from streamplan.model.pipeline import Pipeline, TestData
from streamplan.model.topics import (
    CHANGELOG_CONFIGS,
    REPARTITION_CONFIGS,
    versioned_changelog_configs,
    windowed_changelog_configs,
)
from streamplan.model.topology import Topology

from tests.support.examples import PIPELINES
from tests.support.kafka_streams import STREAMS, collection, java
from tests.support.soak import seeds
from tests.support.topologies import (
    CASES,
    OF_TABLES,
    WINDOWS,
    WITH_COGROUP,
    WITH_GLOBAL_TABLES,
    WITH_GRACE,
    Steps,
    drawn,
    ours,
    parse,
    refusal,
    theirs,
)


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    with java(KAFKA_STREAMS) as jvm:
        yield jvm


def our_refusal(steps: Steps) -> str:
    """The faults of our topology, or why a pipeline of it is refused; empty where it is taken."""
    topology = ours(steps)
    if topology.faults:
        return "; ".join(map(str, topology.faults))
    counts = dict.fromkeys(topology.source_topics, 2)
    data = TestData(topology.source_topics[:1], lambda n: (topology.source_topics[0], b"", b""), "count")
    try:
        resolve_partition_counts(topology, counts)
        Pipeline("sample", topology, "", counts, data)
    except Refused as refused:
        return str(refused)
    return ""


# -- topologies by hand


DESCRIBED = {**CASES, **OF_TABLES, **WITH_GLOBAL_TABLES, **WITH_GRACE}


@pytest.mark.parametrize("text", DESCRIBED.values(), ids=DESCRIBED)
def test_describe_is_what_the_library_prints(jvm: Any, text: str) -> None:
    topology = ours(parse(text))
    assert topology.faults == ()
    assert topology.describe() == theirs(jvm, parse(text))


def test_a_topology_of_nothing_is_described_as_by_the_library(jvm: Any) -> None:
    assert Topology("app").describe() == theirs(jvm, ())


def test_every_operation_is_compared() -> None:
    steps = {step.word for text in DESCRIBED.values() for step in parse(text)}
    compared = {
        "peek" if word == "peek_with" else word for word in steps - {"the_branch"}
    }  # words of these texts alone
    known = {
        word
        for kind in (
            *(Topology, KStream, BranchedKStream, KGroupedStream, WindowedKStream, CogroupedKStream, KTable),
            KGroupedTable,
        )
        for word, found in vars(kind).items()
        if inspect.isfunction(found) and not word.startswith("_")
    }
    others = {"decorate", "changelog_topic", "describe", "materialize", "with_schemas", "with_sink_topics"}
    others |= {"without_faults"}  # of the validation
    others |= {"through", "no_default_branch"}  # refused; without a node of their own
    assert compared == known - others


def test_the_pipelines_of_the_orders_and_the_users_are_the_library_s_own_examples(jvm: Any) -> None:
    described = {pipeline.name: pipeline.topology.describe() for pipeline in PIPELINES}
    name = "orders-products-quantities"
    assert described["orders"] == theirs(jvm, parse(f"stream orders; group_by name={name}; count store={name}"))
    assert described["users"] == theirs(jvm, parse("stream users; group_by; count"))


# -- topologies that are refused

REFUSED = {
    "two joins of two streams with the same stores": (
        "stream clicks; stream orders; join clicks store=x; orders.join clicks store=x",
        "A different StateStore has already been added with the name x-this-join-store",
        "the store 'x-this-join-store' is declared twice, first at",
    ),
    "a name twice, of a join of two streams and of another operation": (
        "stream clicks; stream orders; filter name=x-merge; join clicks name=x",
        "Processor x-merge is already added",
        "the name 'x-merge' is declared twice, first at",
    ),
    "a grouping without a name, cogrouped with another one": (
        "stream clicks; group_by as=c; stream orders; group_by; cogroup; cogroup c; aggregate store=totals",
        "Processor totals-repartition-filter is already added",
        "the topic 'totals-repartition' is read twice",
    ),
    "a name twice": (
        "stream orders; filter name=x; peek name=x",
        "Processor x is already added",
        "the name 'x' is declared twice, first at",
    ),
    "a name twice, of a source and of a sink": (
        "stream orders name=x; to out name=x",
        "Processor x is already added",
        "the name 'x' is declared twice, first at",
    ),
    "a name twice, of a grouping and its aggregate": (
        "stream orders; group_by name=x; count name=x",
        "Processor x is already added",
        "the name 'x' is declared twice, first at",
    ),
    "a name that is generated later": (
        "stream orders; filter name=KSTREAM-PEEK-0000000002; peek",
        "Processor KSTREAM-PEEK-0000000002 is already added",
        "the name 'KSTREAM-PEEK-0000000002' is declared twice, first at",
    ),
    "two stores of one name": (
        "stream orders; group_by name=grouped as=grouped; count store=x; grouped.reduce store=x",
        "A different StateStore has already been added with the name x",
        "the store 'x' is declared twice, first at",
    ),
    "two stores of one name, one of them a table's": (
        "table users store=x; stream orders; group_by_key; count store=x",
        "A different StateStore has already been added with the name x",
        "the store 'x' is declared twice, first at",
    ),
    "two repartition topics of one name": (
        "stream orders; repartition name=x; repartition name=x",
        "Processor x-repartition-filter is already added",
        "the topic 'x-repartition' is read twice",
    ),
    "two groupings of one name": (
        "stream orders; select_key as=keyed; group_by_key name=x; count; keyed.group_by_key name=x; count",
        "Processor x-repartition-filter is already added",
        "the topic 'x-repartition' is read twice",
    ),
    "two repartition topics of one name like a generated one": (
        "stream orders; repartition name=KSTREAM-A-0000000042; repartition name=KSTREAM-A-0000000042",
        "Topic KSTREAM-A-0000000042-repartition has already been registered by another source",
        "the topic 'KSTREAM-A-0000000042-repartition' is read twice",
    ),
    "a node with the name of a repartition topic's source": (
        "stream orders; filter name=x-repartition-source; repartition name=x",
        "Processor x-repartition-source is already added",
        "the name 'x-repartition-source' is declared twice, first at",
    ),
    "a node with the name of a repartition topic's sink": (
        "stream orders; repartition name=x; filter name=x-repartition-sink",
        "Processor x-repartition-sink is already added",
        "the name 'x-repartition-sink' is declared twice, first at",
    ),
    "a repartition topic read as if from outside": (
        "stream orders; repartition name=x; stream x-repartition",
        "Topic x-repartition has already been registered by another source",
        "the topic 'x-repartition' is read twice",
    ),
    "a topic read as a stream and as a table": (
        "stream orders; table orders",
        "Topic orders has already been registered by another source",
        "the topic 'orders' is read twice",
    ),
    "a topic read as a table and as a stream": (
        "table users; stream users",
        "Topic users has already been registered by another source",
        "the topic 'users' is read twice",
    ),
    "a topic read as two tables": (
        "table users; table users",
        "Topic users has already been registered by another source",
        "the topic 'users' is read twice",
    ),
    "topics of which another stream reads some": (
        "stream eu,us; stream us",
        "Two source nodes are subscribed to overlapping but not equal input topics",
        "two streams read topics that are not the same: 'eu', 'us' at ",
    ),
    "several topics and other ones": (
        "stream eu,us; stream us,asia",
        "Two source nodes are subscribed to overlapping but not equal input topics",
        "and 'asia', 'us' here",
    ),
    "several topics of which one is a table": (
        "stream eu,us; table us",
        "Topic us has already been registered by another source",
        "the topic 'us' is read twice",
    ),
    "a join before another aggregate of its table's grouping": (
        "stream orders; group_by name=grouped as=grouped; count store=x as=counts; stream clicks; join counts; "
        "grouped.reduce",
        "StateStore x is not added yet",
        "the join stands before its table",
    ),
    "a join of repartition topics of unlike numbers of partitions": (
        "stream orders; repartition name=two partitions=2; group_by_key; count as=counts; stream clicks; "
        "repartition name=three partitions=3; join counts",
        "Following topics do not have the same number of partitions: [{three-repartition=3, two-repartition=2}]",
        "Following topics do not have the same number of partitions: [{three-repartition=3, two-repartition=2}]",
    ),
    "a table's name that is too long for its source": (
        f"table users name={'n' * 243}",
        "Name is illegal, it can't be longer than 249 characters",
        "has 250 characters; the limit is 249",
    ),
}

STRICTER = {
    # The library drops the name of the second reading.
    "a name twice, once of a topic that is read again": "stream orders; filter name=x; stream orders name=x",
    # Its records would come back among those of the repartition.
    "a repartition topic written as if from outside": "stream orders; to x-repartition; orders.repartition name=x",
    # Its records would go round for ever.
    "a cycle": "stream orders; to orders",
}

ILLEGAL = {
    "a bad character": ("a b", "it contains a character other than", "the name 'a b' contains ' '"),
    "too long": ("n" * 250, "it can't be longer than 249 characters", "has 250 characters; the limit is 249"),
    "empty": ("", "it can't be empty", "a name cannot be empty"),
    "a dot": (".", 'Name cannot be "." or ".."', "a name cannot be '.'"),
}

NAMED = {
    "Named": "stream orders; filter name=?",
    "Consumed of a stream": "stream orders name=?",
    "Consumed of a table": "table users name=?",
    "Produced": "stream orders; to out name=?",
    "Grouped": "stream orders; group_by name=?; count",
    "Grouped by the key there is": "stream orders; group_by_key name=?; count",
    "Repartitioned": "stream orders; repartition name=?",
    "StreamJoined": "stream clicks; stream orders; join clicks name=?",
    "Stores of a StreamJoined": "stream clicks; stream orders; join clicks store=?",
    "Stores of a StreamJoined, left": "stream clicks; stream orders; left_join clicks store=?",
    "Joined": "table users; stream orders; join users name=?",
    "Joined, repartitioned": "table users; stream orders; select_key; join users name=?",
    "Named of an aggregate of several streams": "stream orders; group_by_key; cogroup; aggregate name=?",
    "Materialized of an aggregate": "stream orders; group_by_key; count store=?",
    "Materialized of a table": "table users store=?",
}


@pytest.mark.parametrize(("text", "theirs_says", "ours_says"), REFUSED.values(), ids=REFUSED.keys())
def test_what_the_library_refuses_is_refused(jvm: Any, text: str, theirs_says: str, ours_says: str) -> None:
    assert theirs_says in refusal(jvm, parse(text))
    assert ours_says in our_refusal(parse(text))


@pytest.mark.parametrize("text", STRICTER.values(), ids=STRICTER.keys())
def test_what_we_alone_refuse(jvm: Any, text: str) -> None:
    assert refusal(jvm, parse(text)) == ""
    assert our_refusal(parse(text))


@pytest.mark.parametrize("text", NAMED.values(), ids=NAMED.keys())
@pytest.mark.parametrize(("name", "theirs_says", "ours_says"), ILLEGAL.values(), ids=ILLEGAL.keys())
def test_an_illegal_name_is_refused_wherever_the_library_refuses_it(
    jvm: Any, text: str, name: str, theirs_says: str, ours_says: str
) -> None:
    steps = tuple(
        replace(step, name=name if step.name == "?" else step.name, store=name if step.store == "?" else step.store)
        for step in parse(text)
    )
    assert theirs_says in refusal(jvm, steps)
    (fault,) = ours(steps).faults
    assert ours_says in str(fault)


# -- topologies at random


@pytest.mark.parametrize("seed", seeds(30, in_soak=1000))
def test_a_topology_at_random_is_described_as_by_the_library(jvm: Any, seed: int) -> None:
    steps = drawn(seed)
    topology = ours(steps)
    if said := refusal(jvm, steps):
        assert "is not added yet" in said  # one in a hundred: a table is joined, and its grouping aggregated again
        assert "the join stands before its table" in str(topology.faults[0])
    else:
        assert topology.faults == ()
        assert topology.describe() == theirs(jvm, steps)


@pytest.mark.parametrize("seed", seeds(30, in_soak=1000))
def test_a_careless_topology_at_random_is_refused_where_the_library_refuses_it(jvm: Any, seed: int) -> None:
    steps = drawn(seed, careless=True)
    topology = ours(steps)
    if refusal(jvm, steps):
        assert topology.faults
    elif topology.faults:  # as in STRICTER; and the library lets the names of the stores of a join be too long
        stricter = ("is declared twice", "-store' has ")
        assert all(any(reason in fault.message for reason in stricter) for fault in topology.faults)
    else:
        assert topology.describe() == theirs(jvm, steps)


@pytest.mark.parametrize("seed", seeds(10, in_soak=1000))
def test_a_topology_with_aggregates_of_several_streams_is_described_as_by_the_library(jvm: Any, seed: int) -> None:
    steps = drawn(seed, words=WITH_COGROUP)
    topology = ours(steps)
    if refusal(jvm, steps):  # most often two groupings of one store have no name
        assert topology.faults
    else:
        assert topology.faults == ()
        assert topology.describe() == theirs(jvm, steps)


# -- configs and partitions


@pytest.mark.parametrize(
    ("config", "ours"),
    [
        ("RepartitionTopicConfig", REPARTITION_CONFIGS),
        ("UnwindowedUnversionedChangelogTopicConfig", CHANGELOG_CONFIGS),
        ("VersionedChangelogTopicConfig", versioned_changelog_configs(WINDOWS.retention_ms)),
        ("WindowedChangelogTopicConfig", windowed_changelog_configs(WINDOWS.changelog_retention_ms)),
    ],
)
def test_internal_topics_have_the_configs_the_library_gives_them(jvm: Any, config: str, ours: dict[str, str]) -> None:
    internals = jvm.java.lang.Class.forName(f"{STREAMS}.processor.internals.{config}")
    none = jvm.java.util.HashMap()
    windowed = config.startswith(("Windowed", "Versioned"))
    arguments = ["topic", none, *([WINDOWS.retention_ms] if windowed else [])]
    for constructor in internals.getDeclaredConstructors():
        if constructor.getParameterCount() == len(arguments):  # name, overrides, retention; the class is not public
            constructor.setAccessible(True)
            made = constructor.newInstance(collection(jvm, arguments).toArray())
            break
    else:
        pytest.fail(f"{config} has no constructor of {len(arguments)} arguments")
    additional = jvm.org.apache.kafka.streams.StreamsConfig.WINDOW_STORE_CHANGE_LOG_ADDITIONAL_RETENTION_MS_CONFIG
    defaults = jvm.org.apache.kafka.streams.StreamsConfig.configDef().defaultValues()
    properties = made.properties(none, defaults[additional] if windowed else 0)
    assert {str(key): str(properties[key]) for key in properties} == ours


def test_partitions_are_those_of_the_default_partitioner(jvm: Any) -> None:
    chosen = random.Random(4)
    keys = [b"", b"0", b"1", *(chosen.randbytes(chosen.randint(1, 40)) for _ in range(300))]
    utils = jvm.org.apache.kafka.common.utils.Utils
    partitioner = jvm.org.apache.kafka.clients.producer.internals.BuiltInPartitioner
    for key in keys:
        assert murmur2(key) == utils.murmur2(key)
        for partitions in (1, 2, 3, 12):
            assert partition_for_key(key, partitions) == partitioner.partitionForKey(key, partitions)
