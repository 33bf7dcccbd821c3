"""Faults of a declaration: each is told where it stands, what is wrong and what to write instead; all at once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from streamplan.errors import Refused
from streamplan.model.checkpoint_identity import store_content
from streamplan.model.column_lineage import Column, column_lineage
from streamplan.model.diagnostics import Diagnostic
from streamplan.model.kstream import KGroupedStream, KStream, KTable
from streamplan.model.operations import (
    AggregateColumn,
    Cogroup,
    FilterFunction,
    FilterNotFunction,
    FinalAggregateWindowsFunction,
    ForeignKeyResult,
    JoinFunction,
    MapValuesFunction,
    NullKeyFilter,
)
from streamplan.model.pipeline import Pipeline, TestData
from streamplan.model.processor_topology import Processor
from streamplan.model.stages import stages_of
from streamplan.model.topics import CHANGELOG_CONFIGS
from streamplan.model.topology import Topology
from streamplan.model.windows import (
    CustomWindows,
    JoinWindows,
    OnWindowClose,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UntilWindowCloses,
)
from streamplan.observability.diagram import diagram_of
from streamplan.serdes.json import Json
from streamplan.serdes.primitive import Long

ORDER = Json("Id string, UserId string, Amount bigint")
USER = Json("Name string, City string")
ENRICHED = {"Id": "Id", "City": "table.City"}


@pytest.fixture
def topology() -> Topology:
    return Topology("app")


@pytest.fixture
def orders(topology: Topology) -> KStream:
    return topology.stream("orders", value=ORDER)


@pytest.fixture
def users(topology: Topology) -> KTable:
    return topology.table("users", value=USER)


@pytest.fixture
def grouped(orders: KStream) -> KGroupedStream:
    return orders.group_by("UserId")


@pytest.fixture
def windowed(grouped: KGroupedStream) -> KStream:
    """A stream of a windowed key."""
    return grouped.windowed_by(TimeWindows("1 minute")).count().to_stream()


def line() -> int:
    """The line on which this is called."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def only(topology: Topology) -> Diagnostic:
    """The only fault, which stands in this file."""
    (fault,) = topology.faults
    assert Path(fault.location.file) == Path(__file__)
    return fault


def pipeline(topology: Topology) -> Pipeline:
    topics = topology.source_topics if not topology.faults else ()
    test_data = TestData(topics[:1], lambda n: (topics[0], b"", b""), "Id")
    return Pipeline("sample", topology, "", dict.fromkeys(topics, 2), test_data)


# -- how they are told


def test_all_faults_of_a_declaration_are_told_at_once_in_the_order_of_their_lines() -> None:
    topology = Topology("my app")
    first = line() - 1
    orders = topology.stream("orders", value=ORDER)
    grouped = orders.filter("Amont").group_by("User")
    grouped.aggregate({"total": "Amount + 1"})
    with pytest.raises(Refused) as refused:
        pipeline(topology)
    told = str(refused.value).splitlines()
    assert told[0] == "pipeline 'sample' has 4 faults:"
    begins = [
        (first, "application id: the name 'my app' contains ' '"),
        (first + 3, "filter: the value has no field 'Amont'. It has: Id, UserId, Amount"),
        (first + 3, "group_by: the value has no field 'User'. It has: Id, UserId, Amount"),
        (first + 4, "aggregate, total: 'Amount + 1' is not one call of sum, count, "),
    ]
    assert len(told) == 1 + len(begins)
    for said, (at, what) in zip(told[1:], begins, strict=True):
        assert said.startswith(f"  {__file__}:{at}: {what}")


def test_a_fault_stands_on_the_line_of_its_operation_in_a_chain(topology: Topology) -> None:
    start = line()
    (
        topology.stream("orders", value=ORDER)
        .filter("Amount > 1")
        .select_key("Nobody")
        .group_by_key()
        .count(name="a b")
    )  # fmt: skip
    assert [fault.location.line for fault in topology.faults] == [start + 4, start + 6]


def test_a_file_below_plugins_is_named_from_there_on(tmp_path: Path) -> None:
    file = tmp_path / "plugins" / "mine" / "sales.py"
    declared = "topology = Topology('app')\ntopology.stream('orders', value=ORDER).filter('Amont')\n"
    names: dict[str, Any] = {"Topology": Topology, "ORDER": ORDER}
    exec(compile(declared, str(file), "exec"), names)
    assert str(names["topology"].faults[0]).startswith("plugins/mine/sales.py:2: filter: ")


def test_a_fault_of_a_pipeline_stands_on_its_own_line(topology: Topology, orders: KStream) -> None:
    at = line() + 2
    with pytest.raises(Refused) as refused:
        Pipeline("a b", topology, "", {"orders": 2}, TestData(("orders",), lambda n: ("orders", b"", b""), "Id"))
    assert f"{__file__}:{at}: the name 'a b' is not a prefix of a DAG id" in str(refused.value)


def test_a_declaration_without_faults_has_none(topology: Topology, orders: KStream, users: KTable) -> None:
    orders.select_key("UserId").join(users, ENRICHED).to("enriched")
    assert topology.faults == ()
    assert pipeline(topology).topology is topology


def test_nothing_follows_from_a_declaration_with_faults(topology: Topology, orders: KStream) -> None:
    orders.filter("Amount > 1", name="x").filter("Amount < 9", name="x")
    with pytest.raises(Refused, match=r"topology 'app' has a fault:\n.*the name 'x' is declared twice"):
        topology.describe()


# -- words


def test_a_word_that_is_no_operation_is_refused_where_it_stands(orders: KStream) -> None:
    with pytest.raises(AttributeError, match="'KStream' object has no attribute 'groupBy'"):
        orders.groupBy("UserId")  # type: ignore[attr-defined]


# -- fields


@pytest.mark.parametrize(
    ("declare", "what"),
    [
        (lambda stream: stream.filter("Price"), "filter"),
        (lambda stream: stream.map_values({"price": "Price"}), "map_values, price"),
        (lambda stream: stream.select_key("Price"), "select_key"),
        (lambda stream: stream.map("Price", {"Id": "Id"}), "map"),
        (lambda stream: stream.map("Id", {"price": "Price"}), "map, price"),
        (lambda stream: stream.flat_map("Price", key="element", value={"Id": "Id"}), "flat_map"),
        (lambda stream: stream.peek({"last": "Price"}), "peek, last"),
        (lambda stream: stream.group_by("Price"), "group_by"),
        (lambda stream: stream.group_by_key().aggregate({"total": "sum(Price)"}), "aggregate, total"),
        (lambda stream: stream.group_by_key().aggregate({"last": "max_by(Id, Price)"}), "aggregate, last"),
        (lambda stream: stream.group_by_key().reduce(max_by="Price"), "reduce"),
    ],
)
def test_a_field_that_there_is_not_is_a_fault_that_lists_those_there_are(
    topology: Topology, orders: KStream, declare: Callable[[KStream], object], what: str
) -> None:
    declare(orders)
    fault = only(topology)
    assert fault.message == f"{what}: the value has no field 'Price'"
    assert fault.hint == "It has: Id, UserId, Amount"


def test_a_field_is_looked_for_in_the_value_as_the_operations_before_have_made_it(
    topology: Topology, orders: KStream, users: KTable
) -> None:
    mapped = orders.map_values({"price": "Amount"})
    mapped.filter("Amount")
    mapped.group_by("price").count().to_stream().filter("price")
    orders.select_key("UserId").join(users).filter("City").filter("Town")
    assert [(fault.message, fault.hint) for fault in topology.faults] == [
        ("filter: the value has no field 'Amount'", "It has: price"),
        ("filter: the value has no field 'price'", "It has: count. The key price is record.key"),
        ("filter: the value has no field 'Town'", "It has: Id, UserId, Amount, Name, City"),
    ]


@pytest.mark.parametrize("expression", ["true", "FALSE", "null", "record", "Price > 3", "upper(Price)", "'Price'"])
def test_only_a_bare_name_is_looked_for_and_the_rest_is_spark_s_to_judge(
    topology: Topology, orders: KStream, expression: str
) -> None:
    orders.map_values({"made": expression})
    assert topology.faults == ()


def test_of_a_path_the_field_is_looked_for(topology: Topology) -> None:
    orders = topology.stream("nested", value=Json("id string, customer struct<address: struct<city: string>>"))
    orders.filter("customer.address.city").filter("record.key").filter("custmer.address.city")
    assert [(fault.message, fault.hint) for fault in topology.faults] == [
        ("filter: the value has no field 'custmer'", "It has: id, customer. Did you mean customer?"),
    ]


def test_an_expression_that_is_still_to_be_written_is_a_fault(topology: Topology, orders: KStream) -> None:
    orders.filter("TODO: which records pass").map_values({"made": "TODO: the value"})
    assert [(fault.message, fault.hint) for fault in topology.faults] == [
        ("filter: 'TODO: which records pass'", "Write the expression"),
        ("map_values, made: 'TODO: the value'", "Write the expression"),
    ]


def test_a_join_looks_for_the_table_s_fields_in_the_table(topology: Topology, orders: KStream, users: KTable) -> None:
    orders.join(users, {"Id": "Id", "city": "table.Town"})
    assert (only(topology).message, only(topology).hint) == (
        "join, city: the table has no field 'Town'",
        "It has: Name, City",
    )


def test_a_join_of_two_equal_names_wants_a_value(topology: Topology, orders: KStream) -> None:
    orders.left_join(topology.table("others", value=ORDER))
    assert only(topology).message == "left_join: both sides have the fields Amount, Id, UserId"
    assert "value={'name': 'table.name'" in only(topology).hint


@pytest.mark.parametrize("name", ["record", "table", "element", "two words", ""])
def test_a_field_cannot_have_a_name_that_expressions_use_otherwise(
    topology: Topology, orders: KStream, name: str
) -> None:
    orders.map_values({name: "Id"})
    assert only(topology).message == f"map_values: a field cannot be named {name!r}"


def test_a_source_cannot_have_such_a_field_either(topology: Topology) -> None:
    topology.stream("orders", value=Json("record string"))
    assert only(topology).message == "orders: a field cannot be named record, table or element"


def test_a_value_without_a_field_is_a_fault(topology: Topology, orders: KStream) -> None:
    orders.map_values({})
    assert only(topology).message == "map_values: the value has no field"


# -- aggregates


@pytest.mark.parametrize(
    "expression",
    ["Amount", "Amount + 1", "sum(Amount) + 1", "sum(Amount) / count(*)", "median(Amount)", "first(Id)", "sum Amount"],
)
def test_what_is_not_one_call_of_an_aggregate_function_is_a_fault(
    topology: Topology, grouped: KGroupedStream, expression: str
) -> None:
    grouped.aggregate({"made": expression})
    fault = only(topology)
    assert fault.message == (
        f"aggregate, made: {expression!r} is not one call of "
        "sum, count, count_if, min, max, avg, min_by, max_by, bool_and, bool_or"
    )
    assert fault.hint == "Fold with those; compute on with map_values"


@pytest.mark.parametrize("expression", ["sum(Amount)", "count(*)", "SUM( Amount * 2 )", "max_by(Id, Amount)", "avg(1)"])
def test_one_call_of_an_aggregate_function_is_not(topology: Topology, grouped: KGroupedStream, expression: str) -> None:
    grouped.aggregate({"made": expression})
    assert topology.faults == ()


def test_a_reduce_keeps_either_the_greatest_or_the_least(topology: Topology, grouped: KGroupedStream) -> None:
    grouped.reduce(max_by="Amount", min_by="Amount")
    assert (only(topology).message, only(topology).hint) == (
        "reduce: both max_by and min_by are given",
        "Choose one",
    )


# -- windows


FORM = "write a number and a unit, as in '1 minute' or '30 seconds'"


@pytest.mark.parametrize(
    ("text", "write"),
    [
        ("1 minuet", "write '1 minute'"), ("minute", FORM), ("1", FORM), ("-1 minutes", "it cannot be negative"),
        ("1.5 hours", FORM), ("1  minute", "write '1 minute'"), ("PT1M", FORM), ("", FORM), ("5m", "write '5 minutes'"),
        ("30s", "write '30 seconds'"), ("2 hrs", "write '2 hours'"), ("100ms", "write '100 milliseconds'"),
        ("7 Days", "write '7 days'"), ("10 secs", "write '10 seconds'"), ("3 fortnights", FORM),
    ],
)  # fmt: skip
def test_a_duration_that_is_none_is_a_fault(topology: Topology, grouped: KGroupedStream, text: str, write: str) -> None:
    grouped.windowed_by(TimeWindows(text)).count()
    fault = only(topology)
    assert fault.message == f"windowed_by: size: {text!r} is not a duration; {write}"
    assert fault.hint == "For example TimeWindows('1 minute')"


def test_size_and_grace_are_both_judged(topology: Topology, grouped: KGroupedStream) -> None:
    grouped.windowed_by(TimeWindows("a minute", grace="soon"))
    assert [fault.message.partition(" is not")[0] for fault in topology.faults] == [
        "windowed_by: size: 'a minute'",
        "windowed_by: grace: 'soon'",
    ]


def test_windows_of_no_size_are_a_fault_and_no_grace_is_not(topology: Topology, grouped: KGroupedStream) -> None:
    grouped.windowed_by(TimeWindows("1 minute", grace="0 seconds"))
    assert topology.faults == ()
    grouped.windowed_by(TimeWindows("0 minutes"))
    assert only(topology).message == "windowed_by: the size is 0"


@pytest.mark.parametrize("advance", ["1 minute", "5 minutes", "300 seconds"])
def test_windows_may_hop_by_up_to_their_size(topology: Topology, grouped: KGroupedStream, advance: str) -> None:
    grouped.windowed_by(TimeWindows("5 minutes", advance=advance)).count()
    assert topology.faults == ()


@pytest.mark.parametrize("advance", ["0 minutes", "6 minutes"])
def test_windows_do_not_hop_by_nothing_or_by_more_than_their_size(
    topology: Topology, grouped: KGroupedStream, advance: str
) -> None:
    grouped.windowed_by(TimeWindows("5 minutes", advance=advance))
    assert (only(topology).message, only(topology).hint) == (
        f"windowed_by: advance: {advance!r} is not above 0 and at most the size, '5 minutes'",
        "For example TimeWindows('5 minutes', advance='1 minute')",
    )


def test_windows_overlap_up_to_a_bound(topology: Topology, grouped: KGroupedStream) -> None:
    grouped.windowed_by(TimeWindows("20000 seconds", advance="1 second"))
    grouped.windowed_by(TimeWindows("7 days", advance="1 minute"))
    assert topology.faults == ()
    grouped.windowed_by(TimeWindows("7 days", advance="1 second", grace="1 hour"))
    assert (only(topology).message, only(topology).hint) == (
        "windowed_by: advance: a record would be in 604,800 windows; at most 20,000 are possible",
        "Write an advance of 30,240 milliseconds or more",
    )
    assert only(topology).location.file.endswith("test_declaration.py")


def test_windows_that_hop_by_no_duration_are_a_fault(topology: Topology, grouped: KGroupedStream) -> None:
    grouped.windowed_by(TimeWindows("5 minutes", advance="often"))
    assert only(topology).message.startswith("windowed_by: advance: 'often' is not a duration")


def test_the_gap_and_the_grace_of_sessions_are_judged(topology: Topology, grouped: KGroupedStream) -> None:
    grouped.windowed_by(SessionWindows("5 minutes", grace="0 seconds"))
    assert topology.faults == ()
    grouped.windowed_by(SessionWindows("a while", grace="soon"))
    grouped.windowed_by(SessionWindows("0 minutes"))
    assert [fault.message.partition(" is not")[0] for fault in topology.faults] == [
        "windowed_by: inactivity_gap: 'a while'",
        "windowed_by: grace: 'soon'",
        "windowed_by: the inactivity_gap is 0",
    ]
    assert {fault.hint for fault in topology.faults} == {"For example SessionWindows('5 minutes', grace='1 hour')"}


def test_sessions_of_different_gaps_are_not_merged(topology: Topology, orders: KStream) -> None:
    grouped = orders.group_by("UserId")
    windows = (SessionWindows("5 minutes"), SessionWindows("1 hour"))
    one, other = (grouped.windowed_by(each).count().to_stream() for each in windows)
    one.merge(other)
    assert only(topology).message == "merge: one of the streams has a windowed key"


def test_suppress_waits_for_windows_of_one_aggregate(topology: Topology, grouped: KGroupedStream) -> None:
    counts = grouped.windowed_by(TimeWindows("1 minute", grace="5 seconds")).count()
    counts.suppress(UntilWindowCloses()).to_stream().to("final")
    assert topology.faults == ()
    assert [spec for spec in topology.describe().splitlines() if "KTABLE-SUPPRESS" in spec and "stores" in spec]
    counts.to_stream().to("updates")
    assert only(topology).message.startswith("takes the updates of a table that is suppressed at ")


def test_final_results_of_functions_may_be_suppressed(topology: Topology, grouped: KGroupedStream) -> None:
    windowed = grouped.windowed_by(TimeWindows("1 minute", grace="5 seconds"))
    windowed.reduce(lambda old, new: new, store="last").suppress(UntilWindowCloses()).to_stream().to("final")
    (_, subtopology) = topology.subtopologies
    assert [node.store for node in subtopology.processors_with(FinalAggregateWindowsFunction)] == ["last"]


def test_the_buffer_of_suppress_has_no_changelog(topology: Topology, grouped: KGroupedStream) -> None:
    windowed = grouped.windowed_by(TimeWindows("1 minute", grace="5 seconds"))
    windowed.count(store="counts").suppress(UntilWindowCloses(), name="closed").to_stream().to("final")
    (_, subtopology) = topology.subtopologies
    assert subtopology.stores == ("counts",)


@pytest.mark.parametrize("windows", [SessionWindows("5 minutes"), SlidingWindows("5 minutes")])
def test_sessions_and_sliding_windows_may_be_suppressed(
    topology: Topology, grouped: KGroupedStream, windows: TimeWindows | SessionWindows
) -> None:
    grouped.windowed_by(windows).count(store="counts").suppress(UntilWindowCloses()).to_stream().to("final")
    assert topology.faults == ()
    assert topology.subtopologies[1].stores == ("counts",)


def test_a_store_holds_the_same_whether_its_windows_are_suppressed(topology: Topology, grouped: KGroupedStream) -> None:
    windowed = grouped.windowed_by(SessionWindows("5 minutes"))
    windowed.count(store="suppressed").suppress(UntilWindowCloses()).to_stream().to("final")
    windowed.count(store="updates").to_stream().to("updates")
    suppressed, updates = (
        store_content(subtopology, node)
        for subtopology in topology.subtopologies
        for node in subtopology.processors
        if node.writes_store
    )
    assert suppressed.replace("'suppressed'", "'updates'") == updates


def test_custom_windows_have_the_names_the_store_and_the_retention_of_time_windows(
    topology: Topology, grouped: KGroupedStream
) -> None:
    windows = CustomWindows(lambda at: [(at, at + 5)], size="1 hour", grace="5 minutes")
    grouped.windowed_by(windows).count(store="counts").to_stream().to("out")
    assert topology.faults == ()
    (_, subtopology) = topology.subtopologies
    (node,) = (node for node in subtopology.processors if node.writes_store)
    told = "Count(store='counts', window=CustomWindows(size='1 hour', grace='5 minutes'))"
    assert store_content(subtopology, node) == told
    assert windows.retention_ms == 65 * 60_000


def test_a_table_without_windows_cannot_be_suppressed(topology: Topology, grouped: KGroupedStream) -> None:
    grouped.count().suppress(UntilWindowCloses()).to_stream().to("final")
    assert only(topology).message == "suppress: the table has no windows"


def test_another_table_of_windows_than_their_aggregate_cannot_be_suppressed(
    topology: Topology, grouped: KGroupedStream
) -> None:
    counts = grouped.windowed_by(TimeWindows("1 minute")).count()
    counts.filter("count > 1").suppress(UntilWindowCloses()).to_stream().to("final")
    assert only(topology).message == "suppress: of another table than an aggregate of windows of one stream"


def test_a_table_of_final_results_is_not_suppressed_again(topology: Topology, grouped: KGroupedStream) -> None:
    windowed = grouped.windowed_by(TimeWindows("1 minute"))
    windowed.emit_strategy(OnWindowClose()).count().suppress(UntilWindowCloses())
    assert only(topology).hint == "Leave it out"


def test_an_emit_strategy_is_on_window_close(topology: Topology, grouped: KGroupedStream) -> None:
    grouped.windowed_by(TimeWindows("1 minute")).emit_strategy("on_window_close").count()  # type: ignore[arg-type]
    assert only(topology).message == "emit_strategy: 'on_window_close' is no emit strategy"


def test_the_identity_of_tumbling_windows_is_what_it_was_before_windows_could_hop() -> None:
    assert repr(TimeWindows("1 minute")) == "TimeWindows(size='1 minute', grace='1 day')"
    assert repr(TimeWindows("5 minutes", advance="1 minute")) != repr(TimeWindows("5 minutes"))


def test_the_identity_of_a_cogroup_is_what_each_stream_is_folded_into() -> None:
    columns = [(AggregateColumn("n", "count", "*"),), (AggregateColumn("total", "sum", "amount"),)]
    described = (
        "Cogroup(store='s', columns=[[AggregateColumn(name='n', function='count', arguments='*')], "
        "[AggregateColumn(name='total', function='sum', arguments='amount')]], window=None)"
    )
    assert repr(Cogroup.of("s", tuple(columns))) == described


@pytest.mark.parametrize(
    ("cogroup", "told"),
    [
        (lambda grouped, other: grouped.cogroup({"total": "sum(Total)"}), "has no field 'Total'"),
        (lambda grouped, other: grouped.cogroup({}), "the value has no field"),
        (lambda grouped, other: grouped.cogroup({"x": "Amount + 1"}), "'Amount + 1' is not one call of"),
        (lambda grouped, other: grouped.cogroup({"x": "count(*)"}).cogroup(grouped, {"y": "count(*)"}), "twice"),
        (
            lambda grouped, other: grouped.cogroup({"x": "count(*)"}).cogroup(other, {"x": "sum(Amount)"}),
            "x: it is a count() of one stream and a sum() of another",
        ),
        (
            lambda grouped, other: grouped.cogroup({"x": "count(*)"}).cogroup(
                other.windowed_by(TimeWindows("1 minute")), {"y": "count(*)"}
            ),
            "with a WindowedKStream",
        ),
        (
            lambda grouped, other: grouped.cogroup({"x": "count(*)"}).windowed_by(SessionWindows("0 seconds")),
            "the inactivity_gap is 0",
        ),
    ],
)
def test_what_is_wrong_with_a_cogroup_is_told(
    topology: Topology, orders: KStream, cogroup: Callable[[Any, Any], Any], told: str
) -> None:
    cogroup(orders.group_by("UserId", name="one"), orders.group_by("UserId", name="other"))
    assert told in only(topology).message


def test_streams_of_a_cogroup_have_keys_of_one_kind(topology: Topology, orders: KStream) -> None:
    numbered = topology.stream("payments", value=ORDER, key_serde=Long()).group_by_key()
    orders.group_by("UserId").cogroup({"x": "count(*)"}).cogroup(numbered, {"y": "count(*)"})
    assert "keys of unlike serdes: the stream's are String, the other stream's Long" in only(topology).message


def test_a_cogroup_of_a_stream_with_what_other_state_made_stands_in_one_sub_topology(
    topology: Topology, orders: KStream
) -> None:
    counted = orders.group_by("UserId", name="x").count(store="counts").to_stream().group_by_key()
    counted.cogroup({"x": "sum(count)"}).cogroup(orders.group_by("UserId", name="y"), {"y": "count(*)"}).aggregate()
    assert pipeline(topology).topology.faults == ()


def test_the_fields_of_a_cogroup_are_those_of_all_streams(topology: Topology, orders: KStream) -> None:
    grouped = orders.group_by("UserId", name="x").cogroup({"n": "count(*)", "most": "max(Amount)"})
    table = grouped.cogroup(orders.group_by("Id", name="y"), {"least": "min(Amount)", "n": "count(*)"}).aggregate()
    assert table._fields == ("n", "most", "least")
    table.to_stream().to("out")
    origins = column_lineage(topology)["out"]
    assert origins["most"] == origins["least"] == {Column("orders", "Amount")}


def test_windows_are_not_a_text(topology: Topology, grouped: KGroupedStream) -> None:
    grouped.windowed_by("1 minute").count()  # type: ignore[arg-type]
    assert only(topology).message.startswith("windowed_by: '1 minute' is none of TimeWindows, ")
    assert only(topology).hint == "Write TimeWindows('1 minute')"


@pytest.mark.parametrize(
    ("declare", "what"),
    [
        (lambda stream, table: stream.join(table, {"count": "count"}), "join"),
        (lambda stream, table: stream.left_join(table, {"count": "count"}), "left_join"),
        (lambda stream, table: stream.group_by_key(), "group_by_key"),
        (lambda stream, table: stream.repartition(), "repartition"),
    ],
)
def test_a_windowed_stream_wants_a_plain_key_first(
    topology: Topology, windowed: KStream, users: KTable, declare: Callable[[KStream, KTable], object], what: str
) -> None:
    declare(windowed.filter("count > 1").select_key("record.key"), users)
    assert topology.faults == ()
    declare(windowed, users)
    fault = only(topology)
    assert fault.message == f"{what}: the key is windowed"
    assert fault.hint == "Give the records a plain key before: select_key('…')"


def test_a_windowed_table_cannot_be_joined(topology: Topology, orders: KStream, grouped: KGroupedStream) -> None:
    orders.select_key("UserId").join(grouped.windowed_by(TimeWindows("1 minute")).count())
    assert only(topology).message == "join: the keys differ: that of the table is windowed"


def test_a_windowed_stream_cannot_be_merged_with_a_plain_one(
    topology: Topology, grouped: KGroupedStream, windowed: KStream
) -> None:
    windowed.merge(grouped.count().to_stream())
    assert only(topology).message == "merge: one of the streams has a windowed key"


# -- joins and merges


def test_a_join_on_unlike_keys_is_a_fault(topology: Topology) -> None:
    orders = topology.stream("orders", value=ORDER, key="order_id")
    at = line() + 1
    orders.join(topology.table("users", value=USER, key="user_id"))
    fault = only(topology)
    assert fault.location.line == at
    assert fault.message == "join: the keys differ: that of the stream is 'order_id', that of the table 'user_id'"
    assert fault.hint == (
        "Before it, select_key('user_id'); or, when they are the same thing, name them alike: key='…'"
    )


def test_a_key_keeps_its_word_until_another_is_selected(topology: Topology) -> None:
    users = topology.table("users", value=USER, key="UserId")
    orders = topology.stream("orders", value=ORDER, key="Id")
    orders.select_key("UserId").filter("Amount > 1").join(users, ENRICHED, name="a")
    orders.group_by("UserId").count().to_stream().join(users, {"n": "count"}, name="b")
    assert topology.faults == ()
    orders.map_values({"Id": "Id"}).left_join(users, ENRICHED, name="c")
    assert (
        only(topology).message == "left_join: the keys differ: that of the stream is 'Id', that of the table 'UserId'"
    )


def test_a_key_without_a_word_is_not_compared(topology: Topology, orders: KStream) -> None:
    users = topology.table("users", value=USER, key="user_id")
    orders.join(users, ENRICHED)
    orders.select_key("upper(UserId)").join(users, ENRICHED)
    assert topology.faults == ()


def test_a_stream_is_joined_with_a_table_or_a_stream(
    topology: Topology, orders: KStream, grouped: KGroupedStream
) -> None:
    orders.join(grouped)  # type: ignore[arg-type]
    assert (only(topology).message, only(topology).hint) == (
        "join: with a KGroupedStream",
        "Join a stream with a table, Topology.table(), or with a stream",
    )


def test_a_stream_is_merged_with_a_stream_alone(topology: Topology, orders: KStream, users: KTable) -> None:
    orders.merge(users)  # type: ignore[arg-type]
    assert (only(topology).message, only(topology).hint) == (
        "merge: with a KTable",
        "Merge a stream; a table's updates are one: .to_stream()",
    )


def test_merged_streams_have_the_same_fields_in_any_order(topology: Topology, orders: KStream) -> None:
    orders.merge(orders.map_values({"Amount": "Amount", "UserId": "UserId", "Id": "Id"}))
    assert topology.faults == ()
    orders.merge(orders.map_values({"Id": "Id"}))
    assert only(topology).message == "merge: the streams have different fields: Id, UserId, Amount and Id"


def test_streams_and_tables_of_another_topology_are_not_taken(topology: Topology, orders: KStream) -> None:
    other = Topology("other")
    orders.merge(other.stream("more", value=ORDER))
    orders.join(other.table("users", value=USER), ENRICHED)
    assert [fault.message for fault in topology.faults] == [
        "merge: with a KStream of another topology",
        "join: with a KTable of another topology",
    ]


def test_a_join_stands_behind_the_last_aggregate_of_its_table_s_grouping(topology: Topology, orders: KStream) -> None:
    grouped = orders.group_by("UserId", name="by-user")
    counts = grouped.count()
    at = line() + 1
    orders.select_key("UserId").join(counts)
    assert topology.faults == ()
    grouped.reduce()
    fault = only(topology)
    assert fault.location.line == at
    assert fault.message.startswith("the join stands before its table")
    assert fault.hint == "Put the join behind that grouping's last aggregate"


# -- names and topics


def test_two_stores_of_one_name_are_a_fault_that_names_the_first(topology: Topology, orders: KStream) -> None:
    at = line() + 1
    topology.table("users", value=USER, store="x")
    orders.group_by_key().count(store="x")
    fault = only(topology)
    assert fault.location.line == at + 1
    assert fault.message == f"the store 'x' is declared twice, first at {__file__}:{at}"
    assert fault.hint == "Give each store a name of its own: store='…'"


def test_a_name_used_twice_is_a_fault_that_names_the_first(topology: Topology, orders: KStream) -> None:
    at = line() + 1
    orders.filter("Amount > 1", name="x")
    orders.peek({"seen": "count(*)"}, name="x")
    fault = only(topology)
    assert fault.location.line == at + 1
    assert fault.message == f"the name 'x' is declared twice, first at {__file__}:{at}"
    assert fault.hint == "Give each a name of its own: name='…'"


def test_a_repartition_topic_used_twice_is_a_fault_that_names_the_first(topology: Topology, orders: KStream) -> None:
    at = line() + 1
    orders.select_key("UserId").group_by_key(name="x").count()
    orders.repartition(name="x")
    fault = only(topology)
    assert fault.location.line == at + 1
    assert fault.message == (
        f"the topic 'x-repartition' is read twice, as a repartition topic at {__file__}:{at} "
        "and as a repartition topic here"
    )
    assert fault.hint == "Give the repartition topic another name: name='…'"


def test_a_topic_is_read_as_a_table_or_as_streams(topology: Topology) -> None:
    topology.stream("orders", value=ORDER)
    topology.stream("orders", value=ORDER)
    assert topology.faults == ()
    topology.table("orders", value=ORDER)
    assert only(topology).message.startswith("the topic 'orders' is read twice, as a stream at ")
    assert only(topology).hint == "Read it once, as a table; its updates are a stream: .to_stream()"


def test_a_topic_is_read_with_one_value(topology: Topology) -> None:
    topology.stream("orders", value=ORDER)
    topology.stream("orders", value=USER)
    assert only(topology).message == "the topic 'orders' is read with two different values"


def test_all_topics_that_a_record_may_have_are_created_and_may_be_replaced_for_an_upgrade() -> None:
    topology = Topology("app")
    topology.stream("orders", value=Json("shop string")).to("shop", topics=("north", "south"), name="by-shop")
    pipeline = Pipeline("app", topology, "", {"orders": 2, "north": 3})
    assert topology.sink_topics == ("north", "south")
    assert {spec.name: spec.partitions for spec in pipeline.topics()} == {
        "orders": 2,
        "north": 3,
        "south": 2,
        "app-dead-letter": 2,
    }
    assert "    Sink: by-shop (extractor class: shop)\n" in topology.describe()
    assert "south" not in topology.describe()
    replaced = topology.with_sink_topics({"north": "north-staging"})
    assert replaced.sink_topics == ("north-staging", "south")
    chosen = [sink.choice.topic for sink in replaced.subtopologies[0].sinks if sink.choice is not None]
    assert chosen == ["north", "south"]  # by which a record finds its sink


def test_a_topic_is_read_with_one_timestamp(topology: Topology) -> None:
    topology.stream("clicks", value=Json("at timestamp"), timestamp="at")
    topology.stream("clicks", value=Json("at timestamp"))
    assert "the topic 'clicks' is read with two different timestamps" in [fault.message for fault in topology.faults]


@pytest.mark.parametrize("word", ["stream", "table"])
def test_what_tells_the_timestamps_is_a_field_an_expression_or_a_function(topology: Topology, word: str) -> None:
    read = getattr(topology, word)
    read("a", value=Json("at timestamp"), timestamp="at")
    read("b", value=Json("at bigint"), timestamp="at * 1000")
    read("c", value=Json("at bigint"), timestamp=lambda record: record.at)
    assert topology.faults == ()
    read("d", value=Json("at timestamp"), timestamp="when")
    read("e", value=Json("at timestamp"), timestamp=5)
    unknown, no_function = topology.faults
    assert unknown.message == f"{word}, timestamp: the value has no field 'when'"
    assert no_function.message == f"{word}: timestamp is the number 5; it takes a text or a function"


def test_a_repartition_topic_is_not_written_from_outside(topology: Topology, orders: KStream) -> None:
    at = line() + 1
    orders.to("x-repartition")
    orders.repartition(name="x").to("out")
    fault = only(topology)
    assert fault.location.line == at
    assert fault.message == f"to: 'x-repartition' is the repartition topic that is declared at {__file__}:{at + 1}"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "a name cannot be empty"),
        ("..", "a name cannot be '..'"),
        ("a/b c", "the name 'a/b c' contains ' ', '/'; legal are ASCII letters and digits, '.', '_' and '-'"),
        ("ä", "the name 'ä' contains 'ä'; legal are ASCII letters and digits, '.', '_' and '-'"),
        ("line\n", "the name 'line\\n' contains '\\n'; legal are ASCII letters and digits, '.', '_' and '-'"),
        ("n" * 250, f"the name '{'n' * 250}' has 250 characters; the limit is 249"),
    ],
)
def test_a_name_that_kafka_does_not_take_is_a_fault_wherever_it_is_given(name: str, why: str) -> None:
    given: list[Callable[[Topology, KStream, KTable], object]] = [
        lambda topology, orders, users: topology.stream("more", value=ORDER, name=name),
        lambda topology, orders, users: topology.stream(name, value=ORDER),
        lambda topology, orders, users: topology.table("more", value=USER, name=name),
        lambda topology, orders, users: topology.table("more", value=USER, store=name),
        lambda topology, orders, users: orders.filter("Amount > 1", name=name),
        lambda topology, orders, users: orders.to("out", name=name),
        lambda topology, orders, users: orders.to(name),
        lambda topology, orders, users: orders.repartition(name=name),
        lambda topology, orders, users: orders.group_by("UserId", name=name).count(),
        lambda topology, orders, users: orders.group_by_key(name=name).count(),
        lambda topology, orders, users: orders.group_by_key().count(name=name),
        lambda topology, orders, users: orders.group_by_key().count(store=name),
        lambda topology, orders, users: orders.join(users, ENRICHED, name=name),
        lambda topology, orders, users: orders.select_key("UserId").join(users, ENRICHED, name=name),
        lambda topology, orders, users: users.to_stream(name=name),
    ]
    for give in given:
        topology = Topology("app")
        give(topology, topology.stream("orders", value=ORDER), topology.table("users", value=USER))
        assert only(topology).message.endswith(why)
    assert [fault.message for fault in Topology(name).faults] == [f"application id: {why}"]


def test_a_topic_has_at_least_one_partition(topology: Topology, orders: KStream) -> None:
    orders.repartition(number_of_partitions=0)
    assert only(topology).message == "repartition: 0 partitions"


# -- cycles


def test_a_topic_that_is_written_back_into_itself_is_refused(topology: Topology) -> None:
    a = topology.stream("a", value=ORDER)
    at = line() + 1
    a.filter("Amount > 1").to("a")
    assert topology.faults == ()  # a topology may; to run it for ever is the pipeline's fault
    with pytest.raises(Refused) as refused:
        pipeline(topology)
    assert f"{__file__}:{at}: a cycle: what is read from 'a' is written back into it. Write to another topic" in str(
        refused.value
    )


def test_a_cycle_by_way_of_other_topics_is_refused_at_each_of_them(topology: Topology) -> None:
    topology.stream("a", value=ORDER).group_by("UserId", name="x").reduce().to_stream().to("b")
    topology.stream("b", value=ORDER).to("a")
    with pytest.raises(Refused, match="has 2 faults") as refused:
        pipeline(topology)
    for topic in ("a", "b"):
        assert f"a cycle: what is read from '{topic}' is written back into it" in str(refused.value)


def test_a_topic_that_is_only_read_further_on_is_not_a_cycle(topology: Topology) -> None:
    topology.stream("a", value=ORDER).to("b")
    topology.stream("b", value=ORDER).to("c")
    assert pipeline(topology).topology.sink_topics == ("b", "c")


def test_a_table_that_is_joined_before_and_behind_a_repartition_topic_is_refused(topology: Topology) -> None:
    """The library runs both in one sub-topology. A streaming query cannot be planned before itself."""
    orders, users = topology.stream("a", value=ORDER), topology.table("users", value=Json("name string"))
    orders.join(users, {"name": "table.name"}).to("b")
    at = line() + 1
    orders.select_key("UserId").join(users, {"name": "table.name"}).to("c")
    with pytest.raises(Refused) as refused:
        pipeline(topology)
    assert f"{__file__}:{at}: the repartition topic 'KSTREAM-KEY-SELECT-0000000006-repartition' is written and" in str(
        refused.value
    )


def test_a_table_that_is_joined_twice_behind_repartition_topics(topology: Topology) -> None:
    orders, users = topology.stream("a", value=ORDER), topology.table("users", value=Json("name string"))
    orders.repartition().join(users, {"name": "table.name"}).to("b")
    orders.select_key("UserId").join(users, {"name": "table.name"}).to("c")
    assert len(pipeline(topology).topology.subtopologies) == 2


@pytest.mark.parametrize("left", [False, True])
def test_records_without_a_key_pass_a_repartition_topic_only_to_a_left_join(topology: Topology, left: bool) -> None:
    """``NodesWithRelaxedNullKeyJoinDownstream``; an aggregation or an inner join in between drops them."""
    orders, users = topology.stream("a", value=ORDER), topology.table("users", value=Json("name string"))
    rekeyed = orders.select_key("UserId").repartition(name="first").repartition(name="second")
    (rekeyed.left_join if left else rekeyed.join)(users, {"name": "table.name"}).to("b")
    counted = orders.group_by("UserId", name="counted").count().to_stream().repartition(name="counts")
    counted.left_join(users, {"name": "table.name"}).to("c")
    inner = orders.select_key("UserId").repartition(name="inner").join(users, {"name": "table.name"})
    inner.left_join(users, {"name": "table.name"}).to("d")
    filters = {
        node.name: node.operation.relaxed
        for node in topology.processors.nodes
        if isinstance(node, Processor) and isinstance(node.operation, NullKeyFilter)
    }
    assert filters == {
        "first-repartition-filter": left,
        "second-repartition-filter": left,
        "counted-repartition-filter": False,
        "counts-repartition-filter": True,
        "inner-repartition-filter": False,
    }


# -- joins of two streams


@pytest.fixture
def payments(topology: Topology) -> KStream:
    return topology.stream("payments", value=Json("Paid bigint"), key="order")


@pytest.mark.parametrize(
    ("join", "message"),
    [
        (lambda orders, payments: orders.join(payments), "how far apart in time the records may be is not given"),
        (lambda orders, payments: orders.join(payments, within="5 minutes"), "within='5 minutes'"),
        (lambda orders, payments: orders.join(payments, within=JoinWindows("soon")), "'soon' is not a duration"),
        (
            lambda orders, payments: orders.join(payments, within=JoinWindows("1 day", after="-1 day")),
            "within: after: '-1 day' is not a duration",
        ),
        (
            lambda orders, payments: orders.join(payments, {"a": "other.Amount"}, within=JoinWindows("1 day")),
            "the other stream has no field 'Amount'",
        ),
        (
            lambda orders, payments: orders.join(payments, {"a": "Paid"}, within=JoinWindows("1 day")),
            "the value has no field 'Paid'",
        ),
        (lambda orders, payments: orders.join(orders, within=JoinWindows("1 day")), "both sides have the fields"),
        (lambda orders, payments: orders.left_join(payments), "left_join: how far apart in time the records may be"),
        (
            lambda orders, payments: orders.outer_join(payments, within=JoinWindows("1 day", grace="-")),
            "outer_join: within: grace: '-' is not a duration",
        ),
        (
            lambda orders, payments: orders.map_values({"other": "Id"}).join(
                payments, {"Id": "other"}, within=JoinWindows("1 day")
            ),
            "the stream has a field named other",
        ),
    ],
)
def test_a_faulty_join_of_two_streams_is_refused(
    topology: Topology, orders: KStream, payments: KStream, join: Callable[[KStream, KStream], Any], message: str
) -> None:
    join(orders, payments)
    assert message in str(only(topology))


def test_two_streams_with_keys_of_unlike_names_are_refused(topology: Topology, payments: KStream) -> None:
    customers = topology.stream("customers", value=USER, key="customer")
    customers.join(payments, within=JoinWindows("1 day"))
    assert "the keys differ: that of the stream is 'customer', that of the other stream 'order'" in str(only(topology))


def test_a_table_is_joined_without_a_window(topology: Topology, orders: KStream, users: KTable) -> None:
    orders.join(users, ENRICHED, within=JoinWindows("1 day"))
    assert "a table is joined without within and store" in str(only(topology))


@pytest.mark.parametrize("join", ["left_join", "outer_join"])
def test_the_waiting_records_of_a_join_have_a_compacted_changelog(
    topology: Topology, orders: KStream, payments: KStream, join: str
) -> None:
    """Their keys begin with a time and a side, which do not count for the partition."""
    getattr(orders, join)(payments, {"Id": "Id"}, within=JoinWindows("1 day"), store="s")
    shared = {"left_join": "left-shared", "outer_join": "outer-shared"}[join]
    specs = {spec.name: spec for spec in pipeline(topology).topics()}
    spec = specs[topology.changelog_topic(f"s-{shared}-join-store")]
    assert spec.configs == CHANGELOG_CONFIGS
    assert spec.application_key(bytes(8) + b"\1key") == b"key"
    assert spec.key_text((5).to_bytes(8, "big") + b"\0key") == "'key' of the other side at 1970-01-01T00:00:00.005Z"
    others = {name: spec.configs["cleanup.policy"] for name, spec in specs.items() if "-join-store" in name}
    assert sorted(others.values()) == ["compact", "delete", "delete"]


@pytest.mark.parametrize("join", ["join", "left_join", "outer_join"])
def test_records_without_a_key_reach_a_left_or_outer_join_of_streams_through_a_topic(
    topology: Topology, orders: KStream, payments: KStream, join: str
) -> None:
    """``NodesWithRelaxedNullKeyJoinDownstream``: both sides."""
    this, other = orders.repartition(name="this"), payments.repartition(name="other")
    getattr(this, join)(other, {"Id": "Id"}, within=JoinWindows("1 day"), name="met")
    relaxed = {
        node.operation.relaxed
        for node in topology.processors.nodes
        if isinstance(node, Processor) and isinstance(node.operation, NullKeyFilter)
    }
    assert relaxed == {join != "join"}


@pytest.mark.parametrize(
    "beside",
    [
        lambda joined, payments: joined.join(payments, {"Id": "Id"}, within=JoinWindows("1 day")),
        lambda joined, payments: joined.map_values({"Paid": "1"}).merge(payments),
    ],
)
def test_the_result_of_a_join_of_two_streams_meets_a_stream_of_its_sub_topology(
    topology: Topology, orders: KStream, payments: KStream, beside: Callable[[KStream, KStream], Any]
) -> None:
    beside(orders.join(payments, {"Id": "Id"}, within=JoinWindows("1 day")), payments)
    assert len(pipeline(topology).topology.subtopologies) == 1


def test_a_join_of_two_streams_may_stand_before_a_repartition_topic(
    topology: Topology, orders: KStream, payments: KStream
) -> None:
    joined = orders.join(payments, {"Id": "Id"}, within=JoinWindows("1 day"))
    joined.group_by("Id").count()
    joined.repartition().join(payments.repartition(), {"Id": "Id"}, within=JoinWindows("1 day"))
    assert pipeline(topology).topology.faults == ()


def test_the_window_of_a_join_has_two_directions() -> None:
    windows = JoinWindows("5 minutes", grace="1 hour", before="0 seconds")
    assert (windows.before_ms, windows.after_ms, windows.retention_ms) == (0, 300_000, 3_900_000)
    assert JoinWindows("5 minutes").retention_ms == 600_000 + 86_400_000


# -- joins of two tables


@pytest.fixture
def addresses(topology: Topology) -> KTable:
    return topology.table("addresses", value=Json("Street string, Zip bigint"), key="user")


LOCATED = {"Name": "Name", "Street": "table.Street"}


@pytest.mark.parametrize(
    ("join", "message"),
    [
        (lambda users, addresses: users.join(addresses, {"a": "table.Name"}), "the table has no field 'Name'"),
        (lambda users, addresses: users.join(addresses, {"a": "Street"}), "the value has no field 'Street'"),
        (lambda users, addresses: users.join(addresses.to_stream(), LOCATED), "join: with a KStream"),
        (lambda users, addresses: users.left_join(users, LOCATED), "left_join: both tables come from KSTREAM-SOURCE-"),
        (
            lambda users, addresses: users.join(addresses, LOCATED).outer_join(users, {"a": "Name"}),
            "outer_join: both tables come from KSTREAM-SOURCE-",
        ),
        (
            lambda users, addresses: users.join(addresses, {"a": "concat(record.key, record.timestamp)"}),
            "join, a: a join of tables sees record.key, and nothing else of record",
        ),
        (lambda users, addresses: users.join(addresses, {"table": "Name"}), "a field cannot be named 'table'"),
        (
            lambda users, addresses: users.join(addresses, LOCATED, name="n" * 240),
            "has 251 characters",
        ),
    ],
)
def test_a_faulty_join_of_two_tables_is_refused(
    topology: Topology, users: KTable, addresses: KTable, join: Callable[[KTable, KTable], Any], message: str
) -> None:
    join(users, addresses)
    assert message in str(only(topology))


def test_an_expression_of_joined_tables_may_name_record_in_a_text(
    topology: Topology, users: KTable, addresses: KTable
) -> None:
    users.join(addresses, {"a": "concat(record.key, 'record.offset', Name)"})
    assert topology.faults == ()


def test_joined_tables_have_the_fields_of_both_unless_others_are_named(
    topology: Topology, users: KTable, addresses: KTable
) -> None:
    assert users.outer_join(addresses)._fields == ("Name", "City", "Street", "Zip")
    users.join(topology.table("others", value=Json("Name string")))
    assert "both sides have the fields Name" in str(only(topology))


def test_tables_with_unlike_keys_are_refused(topology: Topology, addresses: KTable) -> None:
    topology.table("products", value=USER, key="product").join(addresses, LOCATED)
    topology.table("numbers", value=USER, key_serde=Long()).join(addresses, LOCATED)
    named, typed = map(str, topology.faults)
    assert "the keys differ: that of the table is 'product', that of the other table 'user'" in named
    assert "keys of unlike serdes: the table's are Long, the other table's String" in typed


def test_a_windowed_table_is_not_joined(topology: Topology, grouped: KGroupedStream, addresses: KTable) -> None:
    counts = grouped.windowed_by(TimeWindows("1 minute")).count()
    counts.join(addresses, {"count": "count"})
    addresses.join(counts, {"count": "table.count"})
    own, other = (str(fault) for fault in topology.faults if "windowed" in str(fault))
    assert "join: the key is windowed" in own
    assert "the keys differ: that of the other table is windowed" in other


def test_the_result_of_a_join_of_tables_is_not_looked_up(
    topology: Topology, orders: KStream, users: KTable, addresses: KTable
) -> None:
    orders.join(users.join(addresses, LOCATED), {"Id": "Id", "Street": "table.Street"})
    assert "join: with the result of a join of tables" in str(only(topology))


def test_a_table_is_joined_with_the_result_of_an_aggregate(
    topology: Topology, orders: KStream, users: KTable, addresses: KTable
) -> None:
    counts = orders.group_by_key().count(store="counts")
    users.join(addresses, LOCATED).left_join(counts, {"Name": "Name", "orders": "table.count"}).to_stream().to("out")
    orders.join(users, {"Id": "Id"}).to("named")
    assert [len(group.stores) for group in topology.subtopologies] == [3]


def test_joins_of_tables_share_a_sub_topology(topology: Topology, users: KTable, addresses: KTable) -> None:
    others = topology.table("others", value=Json("Other string"))
    joined = users.join(addresses, LOCATED, store="located")
    joined.outer_join(others, {"Name": "Name", "Other": "table.Other"}).to_stream().to("all")
    users.left_join(others, {"Name": "Name"}).to_stream().repartition().group_by_key().count(store="counts")
    specs = {spec.name: spec for spec in pipeline(topology).topics()}
    assert [len(group.sources) for group in topology.subtopologies] == [3, 1]
    assert specs[topology.changelog_topic("located")].configs == CHANGELOG_CONFIGS
    assert column_lineage(topology)["all"]["Name"] == {Column("users", "Name")}


# -- joins of two tables by a foreign key


def by_city(users: KTable, addresses: KTable, **options: Any) -> KTable:
    return users.join(addresses, LOCATED, foreign_key="City", **options)


@pytest.mark.parametrize(
    ("join", "message"),
    [
        (lambda users, addresses: users.join(addresses, LOCATED, foreign_key="Town"), "the value has no field 'Town'"),
        (
            lambda users, addresses: users.left_join(addresses, LOCATED, foreign_key="concat(City, record.offset)"),
            "left_join: the foreign key sees record.key, and nothing else of record",
        ),
        (
            lambda users, addresses: users.join(addresses, {"a": "record.timestamp"}, foreign_key="City"),
            "join, a: a join of tables sees record.key, and nothing else of record",
        ),
        (lambda users, addresses: by_city(users, users), "join: both tables come from KSTREAM-SOURCE-"),
        (lambda users, addresses: by_city(users, addresses.to_stream()), "join: with a KStream"),
        (lambda users, addresses: by_city(users, addresses, name="n" * 230), "has 266 characters"),
    ],
)
def test_a_faulty_join_by_a_foreign_key_is_refused(
    topology: Topology, users: KTable, addresses: KTable, join: Callable[[KTable, KTable], Any], message: str
) -> None:
    join(users, addresses)
    assert message in str(topology.faults[0])


def test_a_table_that_was_computed_is_not_joined_by_a_foreign_key(
    topology: Topology, users: KTable, addresses: KTable, grouped: KGroupedStream
) -> None:
    users.join(grouped.count(), {"Name": "Name"}, foreign_key="City")
    assert "the other table being the result of an aggregate or of another join" in str(only(topology))


@pytest.mark.parametrize(
    "beside",
    [
        lambda joined, users, others: joined.to_stream().group_by_key().count(),
        lambda joined, users, others: users.to_stream().group_by_key().count(),
        lambda joined, users, others: joined.to_stream().merge(users.to_stream().map_values(OF_USERS)),
        lambda joined, users, others: others.merge(joined.to_stream()),
        lambda joined, users, others: others.merge(users.to_stream().map_values(OF_USERS)),
        lambda joined, users, others: others.join(users, {"Name": "table.Name"}),
        lambda joined, users, others: others.join(joined, {"Name": "table.Name"}),
    ],
)
def test_other_state_and_a_merge_stand_beside_a_join_by_a_foreign_key_and_behind_it(
    topology: Topology, users: KTable, addresses: KTable, beside: Callable[[KTable, KTable, KStream], Any]
) -> None:
    beside(by_city(users, addresses), users, topology.stream("others", value=Json("Name string, Street string")))
    assert len([group for group in pipeline(topology).topology.subtopologies if group.stores]) == 2


OF_USERS = {"Name": "Name", "Street": "City"}


@pytest.mark.parametrize("side", ["the result", "this table"])
def test_a_join_of_two_tables_beside_a_join_by_a_foreign_key_is_refused(
    topology: Topology, users: KTable, addresses: KTable, side: str
) -> None:
    joined = by_city(users, addresses)
    others = topology.table("others", value=Json("Other string"))
    others.join(joined if side == "the result" else users, {"Name": "table.Name"})
    with pytest.raises(Refused, match="a join of two tables shares its sub-topology with a join by a foreign key"):
        pipeline(topology)


@pytest.mark.parametrize(
    "again",
    [
        lambda joined, users, others: joined.join(others, {"Name": "Name"}, foreign_key="Street"),
        lambda joined, users, others: users.join(others, {"Name": "Name"}, foreign_key="Name"),
        lambda joined, users, others: others.left_join(users, {"Other": "Other"}, foreign_key="Other"),
    ],
    ids=["the result", "the same table", "the other side"],
)
def test_a_table_is_joined_by_several_foreign_keys(
    topology: Topology, users: KTable, addresses: KTable, again: Callable[[KTable, KTable, KTable], Any]
) -> None:
    again(by_city(users, addresses), users, topology.table("others", value=Json("Other string")))
    topology.stream("clicks", value=Json("page string")).join(users, {"page": "page"})
    built = pipeline(topology)
    (both,) = (group for group in built.topology.subtopologies if "users" in group.source_topics)
    kinds = ["ForeignKeyStage", "ResultForeignKeyStage", "ResultLookUpStage"]
    assert [type(stage).__name__ for stage in stages_of(both)] == kinds


def test_the_result_of_a_join_by_a_foreign_key_has_a_store_where_it_is_joined_again(
    topology: Topology, users: KTable, addresses: KTable
) -> None:
    joined = by_city(users, addresses)
    joined.join(topology.table("others", value=Json("Other string")), {"Name": "Name"}, foreign_key="Street")
    first, second = (
        node.store
        for node in topology.processors.nodes
        if isinstance(node, Processor) and isinstance(node.operation, ForeignKeyResult)
    )
    assert first is not None
    assert first.startswith("KTABLE-FK-JOIN-OUTPUT-STATE-STORE-")
    assert second is None


def test_a_join_by_a_foreign_key_is_a_circle_of_topics_and_none_of_records(
    topology: Topology, users: KTable, addresses: KTable
) -> None:
    by_city(users, addresses, name="located").to_stream().repartition().group_by_key().count(store="counts")
    counts = {"users": 2, "addresses": 3}
    built = replace(pipeline(topology), topic_partitions=counts)
    partitions = {spec.name: spec.partitions for spec in built.topics()}
    assert partitions[topology.decorate("located-subscription-registration-topic")] == 3
    assert partitions[topology.decorate("located-subscription-response-topic")] == 2


def test_records_that_go_round_through_a_join_by_a_foreign_key_are_refused(
    topology: Topology, users: KTable, addresses: KTable
) -> None:
    by_city(users, addresses).to_stream().to("addresses")
    with pytest.raises(Refused, match="a cycle: what is read from 'addresses' is written back into it"):
        pipeline(topology)


@pytest.mark.parametrize(
    "option",
    [{"upgrade_from": "old"}, {"repartition_from": {"users": "old-users"}}],
    ids=lambda option: next(iter(option)),
)
def test_partitions_and_applications_are_not_changed_under_a_join_by_a_foreign_key(
    topology: Topology, users: KTable, addresses: KTable, option: dict[str, Any]
) -> None:
    by_city(users, addresses)
    built = pipeline(topology)
    with pytest.raises(
        Refused, match=f"{next(iter(option))} cannot be used: the topology joins tables by a foreign key"
    ):
        replace(built, **option)


def test_the_origins_of_a_join_by_a_foreign_key_are_both_tables(
    topology: Topology, users: KTable, addresses: KTable
) -> None:
    by_city(users, addresses, name="located").to_stream().to("all")
    pipeline(topology)
    lineage = column_lineage(topology)
    assert lineage["all"] == {
        "key": {Column("users", "key")},
        "Name": {Column("users", "Name")},
        "Street": {Column("addresses", "Street")},
    }
    subscriptions = lineage[topology.decorate("located-subscription-registration-topic")]
    assert subscriptions == {"key": {Column("users", "City")}, "primary_key": {Column("users", "key")}}


@pytest.mark.parametrize(
    ("idle", "message"),
    [("a while", "emit_strategy: 'a while' is not a duration"), ("0 seconds", "emit_strategy: idle: 0 would close")],
)
def test_idle_is_a_duration(topology: Topology, grouped: KGroupedStream, idle: str, message: str) -> None:
    grouped.windowed_by(TimeWindows("1 minute")).emit_strategy(OnWindowClose(idle=idle)).count()
    assert only(topology).message.startswith(message)


def test_idle_changes_no_name() -> None:
    described = []
    for strategy in (OnWindowClose(), OnWindowClose(idle="1 minute")):
        topology = Topology("app")
        windowed = (
            topology.stream("a", value=Json("UserId string")).group_by("UserId").windowed_by(TimeWindows("1 minute"))
        )
        windowed.emit_strategy(strategy).count().to_stream().to("b")
        described.append((topology.describe(), topology.subtopologies[1].stores))
    assert described[0] == described[1]


def test_a_function_of_two_arguments_is_given_the_key_and_the_value(topology: Topology, orders: KStream) -> None:
    seen: list[Any] = []

    def noted(key: Any, order: Any) -> bool:
        seen.append((key, order))
        return True

    orders.filter(noted).filter_not(lambda key, order, more=1: key).map_values(
        lambda key, order: {"id": key}, schema="id string"
    ).to("out")  # fmt: skip
    assert topology.faults == ()
    operations = [node.operation for node in topology.subtopologies[0].processors]
    of_filter, negated, mapped = operations
    assert isinstance(of_filter, FilterFunction)
    record = SimpleNamespace(Id="1", record=SimpleNamespace(key="k"))
    assert of_filter.function.call(record) is True
    assert seen == [("k", record)]
    assert isinstance(negated, FilterNotFunction)
    assert negated.function.call(record) == "k"
    assert isinstance(mapped, MapValuesFunction)
    assert mapped.function.call(record) == {"id": "k"}
    assert of_filter.function.name.endswith("noted")


@dataclass
class Item:
    id: str


def same(key: str, item: Item) -> bool:
    return isinstance(item, Item) and key == item.id


def test_a_function_of_a_key_and_a_dataclass_is_given_an_object_of_it(topology: Topology) -> None:
    topology.stream("items", value=Json("id string")).filter(same)
    (node,) = topology.subtopologies[0].processors
    assert isinstance(node.operation, FilterFunction)
    assert node.operation.function.call(SimpleNamespace(id="k", record=SimpleNamespace(key="k"))) is True
    wrong = Topology("wrong")
    wrong.stream("others", value=Json("name string")).filter(same)
    assert [fault.message for fault in wrong.faults] == [
        "filter: tests.unit.model.test_declaration.same takes an object of Item, and the value has no field id"
    ]


def test_a_function_makes_the_value_of_a_join_and_the_library_sees_the_join_alone(topology: Topology) -> None:
    orders = topology.stream("orders", value=Json("id string, `odd name` string"), key="customer")
    customers = topology.table("customers", value=Json("city string, order int"), key="customer")
    made = orders.left_join(
        customers,
        lambda key, order, customer: {"id": f"{key} {order.id} {order.record.key}", "city": customer and customer.city},
        schema="id string, city string",
    )
    made.filter("city = 'Lyon'").to("out")
    assert topology.faults == ()
    described = topology.describe()
    assert "joiner" not in described
    assert "--> KSTREAM-FILTER-0000000005\n" in described
    (joiner,) = (node for node in topology.subtopologies[0].processors if isinstance(node.operation, JoinFunction))
    assert isinstance(joiner.operation, JoinFunction)
    of_order, nobody = SimpleNamespace(id="1", odd="x"), SimpleNamespace(city=None, order=None)
    record = SimpleNamespace(this=of_order, other=nobody, record=SimpleNamespace(key="k"))
    assert joiner.operation.function.call(record) == {"id": "k 1 k", "city": None}
    assert topology.subtopologies[0].of_library_before(topology.subtopologies[0].sinks[0])
    drawn = diagram_of(Pipeline("app", topology, "", {"orders": 1, "customers": 1, "out": 1}))
    assert not [node.name for node in drawn.nodes if "joiner" in node.name]
