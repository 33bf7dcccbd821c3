"""Descriptions of the real library are imported, and what is written is run: it has to describe itself alike."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from streamplan.errors import Refused
from streamplan.importing.application import ImportedApplication, import_application
from streamplan.local.jars import KAFKA_STREAMS

from tests.support.kafka_streams import STREAMS, collection, java, strings
from tests.support.soak import seeds
from tests.support.topologies import CASES, OF_TABLES, WITH_COGROUP, WITH_GLOBAL_TABLES, drawn, parse, refusal, theirs

MISLEADING = "a grouping with a name like a generated one"

FILLED = (
    (r'Json\("TODO:[^"]*"\)', 'Json("count bigint")'),
    (r'(state|schema)="TODO:[^"]*"', r'\1="count bigint"'),
    (r'\.foreach\("TODO:[^"]*"', ".foreach(len"),
    (
        r'\.flat_map_values\("TODO:[^"]*", \{"TODO": "TODO:[^"]*"\}',
        '.flat_map_values("array(count)", {"count": "element"}',
    ),
    (
        r"\.(process|process_values)\(Processor\b",
        r'.\1(type("Mine", (Processor,), {"__module__": "mine", "process": lambda *given: None})',
    ),
    (r'\.aggregate\(dict, "TODO:[^"]*", "TODO:[^"]*"', ".aggregate(dict, max, max"),
    (r'\.reduce\("TODO:[^"]*", "TODO:[^"]*"', ".reduce(max, max"),
    (r'TimeWindows\("TODO:[^"]*"\)', 'TimeWindows("1 minute")'),
    (r'UntilTimeLimit\("TODO:[^"]*"\)', 'UntilTimeLimit("1 minute")'),
    (r'Versioned\("prices", "TODO:[^"]*"\)', 'Versioned("prices", "1 hour")'),
    (r'grace="TODO:[^"]*"', 'grace="1 minute"'),
    (r'\.aggregate\(\{"TODO": "TODO:[^"]*"\}', '.aggregate({"count": "sum(count)"}'),
    (r'(\.cogroup\((\w+, )?)\{"TODO": "TODO:[^"]*"\}', r'\1{"count": "sum(count)"}'),
    (r'(join\(\w+, )\{"TODO": "TODO:[^"]*"\}', r'\1{"count": "table.count"}'),
    (r'(join\(\w+, \{"count": ")table(\.count"\}, within=JoinWindows\()"TODO:[^"]*"', r'\1other\2"5 minutes"'),
    (r'\.flat_map\("TODO:[^"]*"', '.flat_map("array(count)"'),
    (r'key="TODO:[^"]*"', 'key="element"'),
    (r'value=\{"TODO": "TODO:[^"]*"\}', 'value={"count": "element"}'),
    (r'\{"TODO": "TODO:[^"]*"\}', '{"count": "count"}'),
    (r'"TODO:[^"]*"', '"count"'),
    (r": 0,  # TODO.*", ": 2,"),
    (r'\.to\("count", topics=\("count",\)', '.to("\'a\'", topics=("a", "b")'),
)
"""What a person may write for each TODO."""


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    with java(KAFKA_STREAMS) as jvm:
        yield jvm


def run(text: str) -> str:
    """The description of the topology that a written module declares, with each TODO replaced."""
    for pattern, filled in FILLED:
        text = re.sub(pattern, filled, text)
    assert "TODO:" not in text
    names: dict[str, Any] = {}
    with suppress(Refused):  # of a pipeline that Spark cannot run in this form
        exec(text, names)
    return str(names["topology"].describe())


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in CASES.items() if name != MISLEADING])
def test_what_is_written_is_described_as_the_library_described_it(jvm: Any, text: str) -> None:
    described = theirs(jvm, parse(text))
    imported = import_application("app", described)
    assert run(imported.text) == described
    assert (imported.differences, imported.has_same_nodes) == ([], True)


NOT_TOLD = (
    "a table, operations with names and stores",
    *("a stream as a table, named", "a stream as a table, the store and the processor named"),
    *(name for name, text in OF_TABLES.items() if "to_table name=" in text),
)
"""Operations of tables that a description does not tell: they have names of the application's own."""


@pytest.mark.parametrize("name", [name for name in OF_TABLES if name not in NOT_TOLD])
def test_operations_of_tables_are_described_as_the_library_described_them(jvm: Any, name: str) -> None:
    described = theirs(jvm, parse(OF_TABLES[name]))
    imported = import_application("app", described)
    assert run(imported.text) == described
    assert "The language does not have" not in imported.text


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in WITH_GLOBAL_TABLES.items()])
def test_joins_with_global_tables_are_described_as_the_library_described_them(jvm: Any, text: str) -> None:
    described = theirs(jvm, parse(text))
    assert run(import_application("app", described).text) == described


def test_a_name_like_a_generated_one_misleads_and_that_is_told(jvm: Any) -> None:
    described = theirs(jvm, parse(CASES[MISLEADING]))
    imported = import_application("app", described)
    assert run(imported.text) != described
    assert imported.differences
    assert not imported.is_verified


@pytest.mark.parametrize("seed", [559, *seeds(200, in_soak=1000)])  # 559 merges what looks like a join of two streams
def test_a_topology_at_random_is_imported(jvm: Any, seed: int) -> None:
    steps = drawn(seed)
    if refusal(jvm, steps):
        pytest.skip("the library refuses this topology")
    described = theirs(jvm, steps)
    imported = import_application("app", described)
    assert run(imported.text) == described
    assert (imported.differences, imported.has_same_nodes) == ([], True)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(200))
def test_aggregates_of_several_streams_at_random_are_imported(jvm: Any, seed: int) -> None:
    steps = drawn(seed, words=WITH_COGROUP)
    if refusal(jvm, steps):
        pytest.skip("the library refuses this topology")
    described = theirs(jvm, steps)
    imported = import_application("app", described)
    assert run(imported.text) == described
    assert (imported.differences, imported.has_same_nodes) == ([], True)


# -- operations that the language does not have


def function(interface: str) -> Any:
    return type(interface, (), {"Java": type("Java", (), {"implements": (f"{STREAMS}.{interface}",)})})()


def mapper() -> Any:
    return function("kstream.ValueMapper")


def joiner() -> Any:
    return function("kstream.ValueJoiner")


def predicate() -> Any:
    return function("kstream.Predicate")


def key_mapper() -> Any:
    return function("kstream.KeyValueMapper")


def split(jvm: Any, builder: Any) -> None:
    orders = builder.stream("orders")
    orders.split().branch(predicate()).branch(predicate()).defaultBranch()
    orders.filter(predicate()).groupBy(key_mapper()).count()


def named_split(jvm: Any, builder: Any) -> None:
    kstream = jvm.org.apache.kafka.streams.kstream
    orders = builder.stream("orders")
    branches = orders.split(getattr(kstream.Named, "as")("by-size-"))
    branches = branches.branch(predicate(), getattr(kstream.Branched, "as")("big")).defaultBranch()
    branches.get("by-size-big").selectKey(key_mapper()).groupByKey().count()


def flat_map_values(jvm: Any, builder: Any) -> None:
    builder.stream("lines").flatMapValues(mapper()).groupBy(key_mapper()).count()


def flat_map_values_by_key(jvm: Any, builder: Any) -> None:
    builder.stream("lines").flatMapValues(mapper()).groupByKey().count()


def for_each(jvm: Any, builder: Any) -> None:
    builder.stream("orders").foreach(function("kstream.ForeachAction"))


def printed(jvm: Any, builder: Any) -> None:
    builder.stream("orders").print(jvm.org.apache.kafka.streams.kstream.Printed.toSysOut())


def split_in_turn(jvm: Any, builder: Any) -> None:
    """What a branch goes through is declared before the next branch (``Branched.withConsumer``)."""
    branches = builder.stream("orders").split().branch(predicate())
    streams = branches.noDefaultBranch()
    streams.get("KSTREAM-BRANCH-00000000011").mapValues(mapper()).to("first")
    branches.branch(predicate())
    streams.get("KSTREAM-BRANCH-00000000012").to("second")


def table_mapped(jvm: Any, builder: Any) -> None:
    builder.table("users").mapValues(mapper()).filter(predicate()).toStream().to("copied")


def table_of_stream(jvm: Any, builder: Any) -> None:
    builder.stream("users").toTable().filter(predicate()).toStream().to("copied")


def aggregate_filtered(jvm: Any, builder: Any) -> None:
    builder.stream("orders").groupByKey().count().mapValues(mapper()).filter(predicate()).toStream().to("counts")


def table_mapped_by_name(jvm: Any, builder: Any) -> None:
    named = getattr(jvm.org.apache.kafka.streams.kstream.Named, "as")("mine")
    builder.stream("orders").groupByKey().count().mapValues(mapper(), named).toStream().to("counts")


def table_mapped_by_name_with_a_store(jvm: Any, builder: Any) -> None:
    kstream = jvm.org.apache.kafka.streams.kstream
    named, kept = getattr(kstream.Named, "as")("mine"), getattr(kstream.Materialized, "as")("kept")
    counts = builder.stream("orders").groupByKey().count().mapValues(mapper(), named, kept)
    counts.filter(predicate()).toStream().to("counts")


def without_state(jvm: Any) -> Any:
    return jvm.org.apache.kafka.streams.kstream.internals.KStreamPrint(function("kstream.ForeachAction"))


def processed(jvm: Any, builder: Any) -> None:
    processor = without_state(jvm)
    builder.stream("orders").process(processor, strings(jvm, [])).groupByKey().count().toStream().to("counts")


def processed_by_name(jvm: Any, builder: Any) -> None:
    named = getattr(jvm.org.apache.kafka.streams.kstream.Named, "as")("mine")
    processed = builder.stream("orders").process(without_state(jvm), named, strings(jvm, []))
    processed.groupByKey().count().toStream().to("counts")


def processed_at_the_end(jvm: Any, builder: Any) -> None:
    builder.stream("orders").process(without_state(jvm), strings(jvm, []))


def global_table(jvm: Any, builder: Any) -> None:
    builder.stream("orders").join(builder.globalTable("rates"), key_mapper(), joiner()).to("rated")


def two_global_tables(jvm: Any, builder: Any) -> None:
    rates = builder.globalTable("rates")
    builder.globalTable("products")
    rated = builder.stream("orders").leftJoin(rates, key_mapper(), joiner())
    rated.groupBy(key_mapper()).count().toStream().to("rated")


def stream_to_table(jvm: Any, builder: Any) -> None:
    builder.stream("orders").join(builder.stream("users").toTable(), joiner()).to("joined")


def suppressed(jvm: Any, builder: Any) -> None:
    kstream = jvm.org.apache.kafka.streams.kstream
    windows = kstream.TimeWindows.ofSizeWithNoGrace(jvm.java.time.Duration.ofMinutes(1))
    closed = kstream.Suppressed.untilWindowCloses(kstream.Suppressed.BufferConfig.unbounded())
    builder.stream("orders").groupByKey().windowedBy(windows).count().suppress(closed).toStream().to("counts")


def suppressed_by_name(jvm: Any, builder: Any) -> None:
    kstream = jvm.org.apache.kafka.streams.kstream
    windows = kstream.TimeWindows.ofSizeWithNoGrace(jvm.java.time.Duration.ofMinutes(1))
    closed = kstream.Suppressed.untilWindowCloses(kstream.Suppressed.BufferConfig.unbounded()).withName("closed")
    builder.stream("orders").groupByKey().windowedBy(windows).count().suppress(closed).toStream().to("counts")


def table_grouped(jvm: Any, builder: Any) -> None:
    builder.table("users").groupBy(key_mapper()).count().toStream().to("counts")


def several_topics(jvm: Any, builder: Any) -> None:
    builder.stream(collection(jvm, ["orders-eu", "orders-us"])).filter(predicate()).to("all-orders")


def versioned_table(jvm: Any, builder: Any, joined: Any = None) -> None:
    store = jvm.org.apache.kafka.streams.state.Stores.persistentVersionedKeyValueStore(
        "prices", jvm.java.time.Duration.ofHours(1)
    )
    prices = builder.table("prices", getattr(jvm.org.apache.kafka.streams.kstream.Materialized, "as")(store))
    builder.stream("orders").join(prices, joiner(), *([] if joined is None else [joined])).to("priced")


def graced_join(jvm: Any, builder: Any) -> None:
    joined = jvm.org.apache.kafka.streams.kstream.Joined
    versioned_table(jvm, builder, getattr(joined, "as")("priced").withGracePeriod(jvm.java.time.Duration.ofMinutes(1)))


def pattern(jvm: Any, builder: Any) -> None:
    builder.stream(jvm.java.util.regex.Pattern.compile("orders-.{2}")).to("all-orders")


DECLARED = {
    aggregate_filtered: "KTABLE-FILTER-0000000004: which values it keeps",
    table_grouped: "KTABLE-SELECT-0000000003: the key that it gives",
    split: "KSTREAM-BRANCH-00000000011: which records it takes",
    split_in_turn: "KSTREAM-BRANCH-00000000012: which records it takes",
    named_split: "by-size-: whether it is split(): the application named it",
    flat_map_values: "KSTREAM-FLATMAPVALUES-0000000001: the array of whose elements it makes records",
    flat_map_values_by_key: "KSTREAM-FLATMAPVALUES-0000000001: the array of whose elements it makes records",
    for_each: "KSTREAM-FOREACH-0000000001: the function that it calls",
    printed: "KSTREAM-PRINTER-0000000001: its label, and whether it prints to a file",
    table_mapped: "KTABLE-MAPVALUES-0000000003: the value that it gives",
    table_of_stream: "KTABLE-FILTER-0000000003: which values it keeps",
    global_table: "KSTREAM-LEFTJOIN-0000000004: the key that it looks up in the global table",
    two_global_tables: "KSTREAM-LEFTJOIN-0000000007: which global table it joins",
    suppressed: "KTABLE-SUPPRESS-0000000003: whether it is untilWindowCloses()",
    several_topics: "KSTREAM-SOURCE-0000000000: the fields of orders-us",
    versioned_table: "KSTREAM-JOIN-0000000003: the value that it gives",
    graced_join: "priced: how long it waits for late rows",
    suppressed_by_name: "closed: whether it is untilWindowCloses()",
    table_mapped_by_name: "mine: whether it is map_values() or filter() of the table: the application named it",
    table_mapped_by_name_with_a_store: "mine: whether it is map_values() or filter() of the table",
    processed: "KSTREAM-PROCESSOR-0000000001: what it does with each record",
    processed_at_the_end: "KSTREAM-PROCESSOR-0000000001: what it does with each record",
    processed_by_name: "mine: the key that it gives",
    stream_to_table: "KSTREAM-JOIN-0000000004: the value that it gives",
}
"""The file has the operation. A person writes what it does."""

OTHER = {
    pattern: "KSTREAM-SOURCE-0000000000: the topics that match orders-.{2}",
}
"""The language has no such topology."""


def imported_from(jvm: Any, declare: Callable[[Any, Any], None]) -> tuple[str, ImportedApplication]:
    builder = jvm.org.apache.kafka.streams.StreamsBuilder()
    declare(jvm, builder)
    described = str(builder.build().describe().toString())
    return described, import_application("app", described)


def listed(imported: ImportedApplication) -> list[str]:
    return [f"{missing.node}: {missing.what}" for missing in imported.missing]


@pytest.mark.parametrize(("declare", "told"), DECLARED.items(), ids=lambda part: getattr(part, "__name__", ""))
def test_an_operation_without_state_is_declared_as_the_library_has_it(jvm: Any, declare: Any, told: str) -> None:
    described, imported = imported_from(jvm, declare)
    assert any(line.startswith(told) for line in listed(imported))
    assert not any("The language does not have" in line for line in listed(imported))
    assert run(imported.text) == described
    assert imported.is_verified


@pytest.mark.parametrize(("declare", "told"), OTHER.items(), ids=lambda part: getattr(part, "__name__", ""))
def test_a_topology_that_cannot_be_declared_is_told(jvm: Any, declare: Any, told: str) -> None:
    _, imported = imported_from(jvm, declare)
    assert any(line.startswith(told) for line in listed(imported))
    assert not imported.is_verified
    assert imported.differences or imported.refusal
    with pytest.raises((Refused, ValueError), match="TODO"):
        exec(imported.text, {})
