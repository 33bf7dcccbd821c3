"""Where we claim to agree with Kafka Streams, the real library is asked (kafka-streams on the JVM, through py4j).

A topology is described once, as steps; one interpreter declares it with Streamplan's ``Topology``, another with the
library's ``StreamsBuilder``, and what both print of it is compared character by character.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from streamplan.errors import Refused
from streamplan.local.jars import KAFKA_STREAMS
from streamplan.model.copartitioning import resolve_partition_counts
from streamplan.model.kstream import KGroupedStream, KStream, KTable, TimeWindowedKStream
from streamplan.model.partitioner import murmur2, partition_for_key
from streamplan.model.pipeline import Pipeline, TestData
from streamplan.model.topics import CHANGELOG_CONFIGS, REPARTITION_CONFIGS, windowed_changelog_configs
from streamplan.model.topology import Topology
from streamplan.model.windows import TimeWindows
from streamplan.pipelines import PIPELINES
from streamplan.serdes.json import Json

from tests.support.kafka_streams import STREAMS, collection, java
from tests.support.soak import seeds

VALUE = Json("count bigint")
"""Of every stream and table here: a field that a count has, too, so that any two of them can be merged."""

WINDOWS = TimeWindows("1 minute", grace="5 seconds")


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    with java(KAFKA_STREAMS) as jvm:
        yield jvm


# -- a topology as data


@dataclass(frozen=True)
class Step:
    """One operation, named as in ``streamplan.model.kstream``.

    ``of``     label of what it is called on; the step before where it is left out
    ``other``  label of the table that it joins, or of the stream that it merges
    ``label``  by which later steps call it
    """

    word: str
    of: str = ""
    other: str = ""
    label: str = ""
    topic: str = ""
    name: str | None = None
    store: str | None = None
    partitions: int | None = None


Steps = tuple[Step, ...]


def parse(text: str) -> Steps:
    """Steps in a line: ``stream orders; select_key as=keyed; count store=counts; keyed.join users name=joiner``.

    A word is called on the step before it, or on the one of a label: ``keyed.join``. What is read has its topic for a
    label unless it says another.
    """
    parsed = []
    for part in text.split(";"):
        call, *words = part.split()
        of, _, word = call.rpartition(".")
        more = dict(pair.split("=") for pair in words if "=" in pair)
        argument = "".join(given for given in words if "=" not in given)
        topic, other = ("", argument) if word in ("join", "left_join", "merge") else (argument, "")
        parsed.append(
            Step(
                word,
                of,
                other,
                label=more.get("as", argument if word in ("stream", "table") else ""),
                topic=topic,
                name=more.get("name"),
                store=more.get("store"),
                partitions=int(more["partitions"]) if "partitions" in more else None,
            )
        )
    return tuple(parsed)


def walk(steps: Steps, apply: Callable[[Step, Any, Any], Any]) -> None:
    """Calls ``apply`` with each step, what it is called on, and its other operand."""
    made: dict[str, Any] = {}
    last = None
    for step in steps:
        last = apply(step, made[step.of] if step.of else last, made.get(step.other))
        if step.label:
            made[step.label] = last


def ours(steps: Steps) -> Topology:
    topology = Topology("app")
    same = {"count": "count"}

    def apply(step: Step, on: Any, other: Any) -> Any:
        name, store = step.name, step.store
        match step.word:
            case "stream":
                return topology.stream(step.topic, value=VALUE, name=name)
            case "table":
                return topology.table(step.topic, value=VALUE, store=store, name=name)
            case "filter":
                return on.filter("count > 0", name=name)
            case "map_values":
                return on.map_values(same, name=name)
            case "select_key":
                return on.select_key("count", name=name)
            case "map":
                return on.map("count", same, name=name)
            case "flat_map":
                return on.flat_map("array(count)", key="element", value={"count": "element"}, name=name)
            case "merge":
                return on.merge(other, name=name)
            case "peek":
                return on.peek({"seen": "count(*)"}, name=name)
            case "repartition":
                return on.repartition(number_of_partitions=step.partitions, name=name)
            case "to":
                return on.to(step.topic, name=name)
            case "group_by":
                return on.group_by("count", name=name)
            case "group_by_key":
                return on.group_by_key(name=name)
            case "windowed_by":
                return on.windowed_by(WINDOWS)
            case "count":
                return on.count(store=store, name=name)
            case "aggregate":
                return on.aggregate({"count": "sum(count)"}, store=store, name=name)
            case "reduce":
                return on.reduce(store=store, name=name)
            case "join":
                return on.join(other, {"count": "table.count"}, name=name)
            case "left_join":
                return on.left_join(other, {"count": "table.count"}, name=name)
            case "to_stream":
                return on.to_stream(name=name)
        raise LookupError(step.word)

    walk(steps, apply)
    return topology


def _function(interface: str) -> Any:
    """A function that the library never calls: a topology is only described here."""
    java = type("Java", (), {"implements": (f"{STREAMS}.kstream.{interface}",)})
    return type(interface, (), {"Java": java})()


def theirs(jvm: Any, steps: Steps) -> str:
    """The library's description; raises Py4JJavaError where it refuses the topology."""
    kstream = jvm.org.apache.kafka.streams.kstream
    builder = jvm.org.apache.kafka.streams.StreamsBuilder()

    def named(kind: str, name: str | None) -> list[Any]:
        """``<kind>.as(name)``, where there is a name."""
        return [] if name is None else [getattr(getattr(kstream, kind), "as")(name)]

    def apply(step: Step, on: Any, other: Any) -> Any:
        plain = named("Named", step.name)
        materialized = named("Materialized", step.store)
        match step.word:
            case "stream":
                return builder.stream(step.topic, *named("Consumed", step.name))
            case "table":
                return builder.table(step.topic, *named("Consumed", step.name), *materialized)
            case "filter":
                return on.filter(_function("Predicate"), *plain)
            case "map_values":
                return on.mapValues(_function("ValueMapper"), *plain)
            case "select_key":
                return on.selectKey(_function("KeyValueMapper"), *plain)
            case "map":
                return on.map(_function("KeyValueMapper"), *plain)
            case "flat_map":
                return on.flatMap(_function("KeyValueMapper"), *plain)
            case "merge":
                return on.merge(other, *plain)
            case "peek":
                return on.peek(_function("ForeachAction"), *plain)
            case "repartition":
                options = named("Repartitioned", step.name)
                if step.partitions is not None:
                    (first,) = options or [kstream.Repartitioned.numberOfPartitions(step.partitions)]
                    options = [first.withNumberOfPartitions(step.partitions)]
                return on.repartition(*options)
            case "to":
                return on.to(step.topic, *named("Produced", step.name))
            case "group_by":
                return on.groupBy(_function("KeyValueMapper"), *named("Grouped", step.name))
            case "group_by_key":
                return on.groupByKey(*named("Grouped", step.name))
            case "windowed_by":
                millis = jvm.java.time.Duration.ofMillis
                size, grace = millis(WINDOWS.size_ms), millis(WINDOWS.grace_ms)
                return on.windowedBy(kstream.TimeWindows.ofSizeAndGrace(size, grace))
            case "count":
                return on.count(*plain, *materialized)
            case "aggregate" | "reduce":
                if plain and not materialized:  # they take a name only together with a store
                    materialized = [getattr(kstream.Materialized, "with")(None, None)]
                if step.word == "reduce":
                    return on.reduce(_function("Reducer"), *plain, *materialized)
                return on.aggregate(_function("Initializer"), _function("Aggregator"), *plain, *materialized)
            case "join":
                return on.join(other, _function("ValueJoiner"), *named("Joined", step.name))
            case "left_join":
                return on.leftJoin(other, _function("ValueJoiner"), *named("Joined", step.name))
            case "to_stream":
                return on.toStream(*plain)
        raise LookupError(step.word)

    walk(steps, apply)
    return str(builder.build().describe().toString())


def refusal(jvm: Any, steps: Steps) -> str:
    """The message of the library's TopologyException; empty where it takes the topology."""
    try:
        theirs(jvm, steps)
    except Py4JJavaError as error:
        exception = error.java_exception
        assert exception.getClass().getSimpleName() == "TopologyException", str(exception)
        return str(exception.getMessage())
    return ""


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

CASES = {
    "a stream that is only read": "stream orders",
    "record by record": "stream orders; filter; map_values; select_key; map; flat_map; peek; to out",
    "record by record, named": "stream orders name=source; filter name=a; map_values name=b; select_key name=c; "
    "map name=d; flat_map name=e; peek name=f; to out name=sink",
    "names of every legal character, as long as can be": f"stream orders name=aZ09._-; filter name={'n' * 249}",
    # aggregates
    "counted by the key there is": "stream orders; group_by_key; count",
    "counted by the key there is, the grouping named": "stream orders; group_by_key name=unused; count",
    "counted by a new key": "stream orders; group_by; count",
    "counted by a new key, the grouping named": "stream orders; group_by name=by-id; count",
    "counted by a new key, the store named": "stream orders; group_by; count store=counts",
    "counted by a new key, the processor named": "stream orders; group_by; count name=counter",
    "counted by a new key, all named": "stream orders; group_by name=by-id; count name=counter store=counts",
    "counted by a new key, grouping and store of one name": "stream orders; group_by name=by-id; count store=by-id",
    "aggregated": "stream orders; group_by; aggregate",
    "aggregated, the store named": "stream orders; group_by; aggregate store=totals",
    "aggregated, the processor named": "stream orders; group_by; aggregate name=folder",
    "aggregated, all named": "stream orders; group_by name=by-id; aggregate name=folder store=totals",
    "reduced": "stream orders; group_by; reduce",
    "reduced, the store named": "stream orders; group_by; reduce store=latest",
    "reduced, the processor named": "stream orders; group_by; reduce name=reducer",
    "reduced, all named": "stream orders; group_by name=by-id; reduce name=reducer store=latest",
    "a re-keyed stream grouped by its key": "stream orders; select_key; filter; group_by_key; count",
    "a re-keyed stream grouped by its key, named": "stream orders; select_key; group_by_key name=mine; count",
    "two aggregates of a grouping": "stream orders; group_by as=grouped; count; grouped.aggregate",
    "two aggregates of a grouping with a name": "stream orders; group_by name=x as=grouped; count; grouped.aggregate",
    "three aggregates of a grouping with a name, and what is behind them": "stream orders; group_by name=x as=grouped; "
    "count; to_stream; to counts; orders.filter; grouped.reduce; to_stream; grouped.aggregate store=totals; to_stream; "
    "to totals",
    "two groupings of a stream": "stream orders; select_key as=keyed; group_by; count; keyed.group_by_key; count",
    "an aggregate's updates aggregated": "stream orders; group_by name=by-id; count; to_stream; group_by; aggregate; "
    "to_stream name=updates; to out",
    # windows
    "windows counted": "stream orders; group_by; windowed_by; count; to_stream",
    "windows counted, the store named": "stream orders; group_by; windowed_by; count store=counts",
    "windows counted, the processor named": "stream orders; group_by; windowed_by; count name=counter",
    "windows counted, all named": "stream orders; group_by name=x; windowed_by; count name=counter store=counts",
    "windows aggregated": "stream orders; group_by_key; windowed_by; aggregate",
    "windows aggregated, the processor named": "stream orders; group_by; windowed_by; aggregate name=folder",
    "windows aggregated, all named": "stream orders; group_by name=x; windowed_by; aggregate name=folder store=totals; "
    "to_stream; filter; to out",
    "with windows and without": "stream orders; group_by as=grouped; windowed_by; count; grouped.count",
    "with windows and without, named": "stream orders; group_by name=x as=grouped; windowed_by; count; grouped.count",
    "windows re-keyed and counted": "stream orders; group_by; windowed_by; count; to_stream; group_by; count",
    # repartition topics
    "repartitioned": "stream orders; repartition; group_by_key; count",
    "repartitioned, named": "stream orders; repartition name=wide; group_by_key; count",
    "repartitioned into three": "stream orders; repartition partitions=3; to out",
    "repartitioned into three, named": "stream orders; repartition name=wide partitions=3; filter",
    "repartitioned twice": "stream orders; repartition; select_key; repartition name=b",
    "a repartition topic that is called one": "stream orders; repartition name=my-repartition; filter",
    "a repartition topic with a name like a generated one": "stream orders; repartition name=KSTREAM-A-0000000042",
    "a grouping with a name like a generated one": "stream orders; group_by name=KSTREAM-A-0000000042 as=grouped; "
    "count; grouped.reduce",
    # tables
    "a table that nothing looks up in": "table users",
    "a table with a store": "table users store=names",
    "a table, named": "table users name=users-table",
    "a table, all named": "table users name=users-table store=names; to_stream",
    "a table's updates": "table users; to_stream; to out",
    "a table's updates counted": "table users; to_stream name=updates; group_by_key; count",
    # joins
    "joined": "table users; stream orders; join users; to out",
    "joined, named": "table users; stream orders; join users name=joiner",
    "joined, matched or not": "stream orders; table users; orders.left_join users",
    "joined, matched or not, named": "stream orders; table users; orders.left_join users name=joiner",
    "joined with a table, all named": "table users name=t store=names; stream orders; join users name=joiner",
    "a re-keyed stream joined": "table users; stream orders; select_key; join users",
    "a re-keyed stream joined, named": "table users; stream orders; select_key; join users name=joiner",
    "a re-keyed and named stream joined": "table users; stream orders; select_key name=keyed; join users",
    "two joins of a re-keyed stream": "table users; table items; stream orders; select_key as=keyed; keyed.join users; "
    "keyed.left_join items",
    "two joins of a re-keyed stream, the first one named": "table users; table items; stream orders; "
    "select_key as=keyed; keyed.join users name=j; keyed.join items",
    "two joins of a re-keyed stream, the second one named": "table users; table items; stream orders; "
    "select_key as=keyed; keyed.join users; keyed.join items name=j",
    "two joins of a re-keyed stream, both named": "table users; table items; stream orders; select_key as=keyed; "
    "keyed.join users name=j1; keyed.join items name=j2",
    "a re-keyed stream joined and counted": "table users; stream orders; select_key as=keyed; join users; "
    "keyed.group_by_key; count",
    "joins in a row": "table users; table items; stream orders; select_key; join users; join items",
    "joined twice with a table": "table users; stream orders; join users; join users",
    "joined with an aggregate": "stream clicks; group_by; count as=counts; stream orders; join counts",
    "joined with an aggregate of its own": "stream orders; group_by_key; count as=counts; orders.join counts",
    "joined with an aggregate of a join": "table users; stream orders; select_key; join users; group_by_key; "
    "count as=counts; stream clicks; left_join counts; to out",
    # graphs
    "branches": "stream orders; filter; to big; orders.filter; to small; orders.filter name=odd; map_values; to odd",
    "many branches of different lengths": "stream orders; select_key as=keyed; "
    + "; ".join("keyed.filter" + "; peek" * further for further in (0, 3, 1, 2, 0, 4, 1, 0, 2, 1)),
    "a diamond": "stream orders; filter as=a; orders.map_values as=b; a.merge b name=both; to out",
    "diamonds in a row": "stream orders; filter as=a; a.merge orders as=b; peek as=c; orders.merge c; merge a; to out; "
    "b.to b",
    "a stream merged with itself": "stream orders; merge orders; group_by_key; count",
    "a re-keyed stream merged": "stream clicks; stream orders; select_key as=keyed; clicks.merge keyed; group_by_key; "
    "count",
    "an aggregate's updates merged with its source": "stream orders; group_by name=x as=grouped; count; to_stream; "
    "merge orders; group_by; reduce; grouped.aggregate",
    "a topic read twice": "stream orders; filter; stream orders; map_values; to out",
    "a topic read twice, named": "stream orders name=first; filter; stream orders name=second; to out",
    "a topic read twice and merged": "stream orders; stream orders as=again; merge orders",
    "a topic read three times, merged with another": "stream clicks; stream orders; peek; stream orders; filter as=b; "
    "stream orders; merge clicks; merge b; to out",
    "sub-topologies side by side": "stream orders; group_by name=x; count; stream clicks; to out; table users; "
    "stream views; group_by; count",
    "sub-topologies brought together by a store": "stream orders; stream clicks; group_by_key; count as=counts; "
    "orders.join counts; to out",
    "it reads the topic that it writes": "stream orders; to out; stream out; to orders",
}


@pytest.mark.parametrize("text", CASES.values(), ids=CASES.keys())
def test_describe_is_what_the_library_prints(jvm: Any, text: str) -> None:
    topology = ours(parse(text))
    assert topology.faults == ()
    assert topology.describe() == theirs(jvm, parse(text))


def test_a_topology_of_nothing_is_described_as_by_the_library(jvm: Any) -> None:
    assert Topology("app").describe() == theirs(jvm, ())


def test_every_operation_is_compared() -> None:
    compared = {step.word for text in CASES.values() for step in parse(text)}
    known = {
        word
        for kind in (Topology, KStream, KGroupedStream, TimeWindowedKStream, KTable)
        for word, found in vars(kind).items()
        if inspect.isfunction(found) and not word.startswith("_")
    }
    assert compared == known - {"decorate", "changelog_topic", "describe", "materialize"}


def test_the_pipelines_of_the_orders_and_the_users_are_the_library_s_own_examples(jvm: Any) -> None:
    described = {pipeline.name: pipeline.topology.describe() for pipeline in PIPELINES}
    name = "orders-products-quantities"
    assert described["orders"] == theirs(jvm, parse(f"stream orders; group_by name={name}; count store={name}"))
    assert described["users"] == theirs(jvm, parse("stream users; group_by; count"))


# -- topologies that are refused

REFUSED = {
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
    "Joined": "table users; stream orders; join users name=?",
    "Joined, repartitioned": "table users; stream orders; select_key; join users name=?",
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


def drawn(seed: int, *, careless: bool = False) -> Steps:
    """A topology at random. Careless ones now and then use a name, a store or a topic twice, or an illegal name."""
    chosen = random.Random(seed)
    steps: list[Step] = []
    kinds: dict[str, list[str]] = {"stream": [], "table": [], "grouped": [], "windows": [], "end": []}
    windowed: set[str] = set()
    unread = [f"table-{number}" for number in range(4)]

    def text(fresh: str, used: Iterable[str | None]) -> str:
        if careless and chosen.random() < 0.1:
            return chosen.choice([name for name in used if name] or ["", ".", "a b", "a" * 242, "a" * 243, "a" * 250])
        return fresh

    def add(kind: str, word: str, of: str = "", *, keyed_anew: bool = False, other: str = "", **more: Any) -> None:
        label, name = f"{word}-{len(steps)}", None
        if chosen.random() < 0.3 and word != "windowed_by":
            name = text(f"n{len(steps)}", [step.name for step in steps])
        steps.append(Step(word, of, other=other, label=label, name=name, **more))
        kinds[kind].append(label)
        if word == "windowed_by" or (of in windowed and not keyed_anew):
            windowed.add(label)

    def pick(kind: str, *, plain: bool = False) -> str | None:
        found = [label for label in kinds[kind] if not (plain and label in windowed)]
        if found and chosen.random() < 0.6:
            found = found[-3:]
        return chosen.choice(found) if found else None

    def store() -> str | None:
        return text(f"store-{len(steps)}", [step.store for step in steps]) if chosen.random() < 0.4 else None

    add("stream", "stream", topic="topic-0")
    for _ in range(chosen.randint(2, 30)):
        word = chosen.choice(_WORDS)
        stream = pick("stream", plain=word in ("repartition", "join", "left_join", "group_by_key"))
        table = pick("table", plain=word in ("join", "left_join"))
        match word:
            case "stream":
                add("stream", word, topic=f"topic-{chosen.randrange(4)}")
            case "table" if unread:
                add("table", word, topic=text(unread.pop(), [step.topic for step in steps]), store=store())
            case "filter" | "map_values" | "peek" if stream:
                add("stream", word, stream)
            case "select_key" | "map" | "flat_map" if stream:
                add("stream", word, stream, keyed_anew=True)
            case "merge" if stream:
                others = [label for label in kinds["stream"] if (label in windowed) == (stream in windowed)]
                add("stream", word, stream, other=chosen.choice(others))
            case "repartition" if stream:
                add("stream", word, stream, partitions=chosen.choice([None, 3]))
            case "to" if stream:
                add("end", word, stream, topic=f"{chosen.choice(['out', 'topic'])}-{chosen.randrange(4)}")
            case "group_by" if stream:
                add("grouped", word, stream, keyed_anew=True)
            case "group_by_key" if stream:
                add("grouped", word, stream)
            case "windowed_by" if grouped := pick("grouped"):
                add("windows", word, grouped)
            case "count" | "aggregate" if grouped := pick(chosen.choice(["grouped", "windows"])):
                add("table", word, grouped, store=store())
            case "reduce" if grouped := pick("grouped"):
                add("table", word, grouped, store=store())
            case "join" | "left_join" if stream and table:
                add("stream", word, stream, other=table)
            case "to_stream" if table:
                add("stream", word, table)
    return tuple(steps)


_WORDS = (
    *("stream", "table", "filter", "map_values", "select_key", "map", "flat_map", "merge", "peek", "repartition", "to"),
    *("group_by", "group_by_key", "windowed_by", "count", "count", "aggregate", "aggregate", "reduce"),
    *("join", "join", "left_join", "to_stream", "to_stream"),
)


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
    elif topology.faults:  # as in STRICTER
        assert all("is declared twice" in fault.message for fault in topology.faults)
    else:
        assert topology.describe() == theirs(jvm, steps)


# -- configs and partitions


@pytest.mark.parametrize(
    ("config", "ours"),
    [
        ("RepartitionTopicConfig", REPARTITION_CONFIGS),
        ("UnwindowedUnversionedChangelogTopicConfig", CHANGELOG_CONFIGS),
        ("WindowedChangelogTopicConfig", windowed_changelog_configs(WINDOWS.changelog_retention_ms)),
    ],
)
def test_internal_topics_have_the_configs_the_library_gives_them(jvm: Any, config: str, ours: dict[str, str]) -> None:
    internals = jvm.java.lang.Class.forName(f"{STREAMS}.processor.internals.{config}")
    none = jvm.java.util.HashMap()
    windowed = config.startswith("Windowed")
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
