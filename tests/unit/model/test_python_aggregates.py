"""The declaration of Python functions that aggregate: their names, their faults, and what stands beside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from streamplan.model.column_lineage import Column, column_lineage
from streamplan.model.kstream import KGroupedStream, KStream
from streamplan.model.operations import (
    AggregateFunction,
    AggregateWindowsFunction,
    Process,
    ReduceFunction,
    stored_by,
)
from streamplan.model.pipeline import Pipeline
from streamplan.model.topics import CHANGELOG_CONFIGS, windowed_changelog_configs
from streamplan.model.topology import Topology
from streamplan.model.windows import OnWindowClose, SessionWindows, TimeWindows
from streamplan.serdes.json import Json


@dataclass
class Spent:
    total: float
    orders: int


def nothing() -> Spent:
    return Spent(0.0, 0)


def add(key: str, order: Any, spent: Any) -> Spent:
    return Spent(spent.total + order.amount, spent.orders + 1)


def untold(key: str, order: Any, spent: Any) -> Any: ...


def both(key: str, one: Any, other: Any) -> Spent:
    return Spent(one.total + other.total, one.orders + other.orders)


def latest(old: Any, new: Any) -> Any:
    return new


@pytest.fixture
def topology() -> Topology:
    return Topology("app")


@pytest.fixture
def orders(topology: Topology) -> KStream:
    return topology.stream("orders", value=Json("id string, amount bigint"), key="customer")


@pytest.fixture
def grouped(orders: KStream) -> KGroupedStream:
    return orders.group_by_key()


def test_the_fields_of_an_aggregate_are_those_of_its_schema_or_of_a_type_hint(
    topology: Topology, grouped: KGroupedStream
) -> None:
    assert grouped.aggregate(nothing, add)._fields == ("total", "orders")
    assert grouped.aggregate(nothing, untold)._fields == ("total", "orders"), "the initializer tells them"
    assert grouped.aggregate(dict, add, schema="sum double")._fields == ("sum",)
    assert grouped.reduce(latest)._fields == ("id", "amount"), "those of the stream"
    assert topology.faults == ()


def test_names_and_numbers_are_those_of_the_expressions() -> None:
    described = []
    for by_functions in (True, False):
        topology = Topology("app")
        grouped = topology.stream("orders", value=Json("id string, amount bigint")).group_by("id")
        if by_functions:
            tables = grouped.aggregate(nothing, add), grouped.reduce(latest)
        else:
            tables = grouped.aggregate({"total": "sum(amount)"}), grouped.reduce()
        for table in tables:
            table.to_stream().to("out")
        described.append(topology.describe())
    assert described[0] == described[1]
    assert "KSTREAM-REDUCE-" in described[0]
    assert "KSTREAM-AGGREGATE-" in described[0]


@pytest.mark.parametrize("windows", [TimeWindows("1 minute"), SessionWindows("1 minute")], ids=["windows", "sessions"])
def test_windows_by_functions_have_the_names_of_those_by_expressions(windows: TimeWindows | SessionWindows) -> None:
    described = []
    for by_functions in (True, False):
        topology = Topology("app")
        windowed = topology.stream("orders", value=Json("id string, amount bigint")).group_by("id").windowed_by(windows)
        merger = {"merger": both} if isinstance(windows, SessionWindows) else {}
        table = windowed.aggregate(nothing, add, **merger) if by_functions else windowed.aggregate({"n": "count(*)"})
        table.to_stream().to("out")
        described.append(topology.describe())
    assert described[0] == described[1]


def test_a_checkpoint_of_windows_belongs_to_what_the_store_holds(topology: Topology, grouped: KGroupedStream) -> None:
    """Whether updates or final results are passed makes no difference, as for expressions."""
    windowed = grouped.windowed_by(TimeWindows("1 minute"))
    for final in (False, True):
        emitted = windowed.emit_strategy(OnWindowClose()) if final else windowed
        emitted.aggregate(nothing, add, store=f"spent-{final}").to_stream().to("one")
        emitted.reduce(latest, store=f"last-{final}").to_stream().to("two")
    sessions = grouped.windowed_by(SessionWindows("1 minute"))
    sessions.aggregate(nothing, add, merger=both, store="sessions").to_stream().to("three")
    found = [node.operation for node in topology.subtopologies[0].processors_with(AggregateWindowsFunction)]
    window = "TimeWindows(size='1 minute', grace='1 day')"
    assert sorted(repr(stored_by(operation)) for operation in found) == sorted(
        [
            *(f"AggregateWindowsFunction(store='last-{final}', window={window})" for final in (False, True)),
            *(
                f"AggregateWindowsFunction(store='spent-{final}', state='total double, orders bigint', window={window})"
                for final in (False, True)
            ),
            "AggregateWindowsFunction(store='sessions', state='total double, orders bigint', "
            "window=SessionWindows(inactivity_gap='1 minute', grace='1 day'))",
        ]
    )
    assert [repr(operation) for operation in found] == [repr(stored_by(operation)) for operation in found]


def test_windows_have_a_windowed_changelog_and_columns_from_every_field(
    topology: Topology, grouped: KGroupedStream
) -> None:
    windowed = grouped.windowed_by(TimeWindows("1 minute"))
    windowed.aggregate(nothing, add, store="spent").to_stream().to("out")
    windowed.reduce(latest, store="last").to_stream().to("kept")
    pipeline = Pipeline("app", topology, "", {"orders": 2, "out": 2, "kept": 2})
    changelogs = [spec for spec in pipeline.topics() if spec.name.endswith("-changelog")]
    expected = windowed_changelog_configs(TimeWindows("1 minute").changelog_retention_ms)
    assert [spec.configs for spec in changelogs] == [expected, expected]
    lineage = column_lineage(topology)
    every = frozenset({Column("orders", name) for name in ("key", "id", "amount")})
    assert lineage["app-spent-changelog"]["total"] == lineage["out"]["orders"] == every
    assert lineage["app-last-changelog"]["amount"] == lineage["kept"]["id"] == every


def test_a_checkpoint_belongs_to_what_the_store_holds_and_not_to_the_functions(
    topology: Topology, orders: KStream
) -> None:
    orders.group_by("id", name="a").aggregate(nothing, add, store="spent").to_stream().to("one")
    orders.group_by("id", name="b").reduce(latest, store="last").to_stream().to("two")
    found = [node.operation for each in topology.subtopologies for node in each.processors_with(Process)]
    assert {type(operation) for operation in found} == {AggregateFunction, ReduceFunction}
    assert sorted(map(repr, found)) == [
        "AggregateFunction(store='spent', state='total double, orders bigint')",
        "ReduceFunction(store='last')",
    ]


def test_the_changelog_is_compacted_and_its_columns_come_from_every_field(
    topology: Topology, grouped: KGroupedStream, orders: KStream
) -> None:
    grouped.aggregate(nothing, add, store="spent").to_stream().to("out")
    orders.repartition(name="again").group_by_key().reduce(latest, store="last").to_stream().to("kept")
    pipeline = Pipeline("app", topology, "", {"orders": 2, "out": 2, "kept": 2})
    changelogs = [spec for spec in pipeline.topics() if spec.name.endswith("-changelog")]
    assert {spec.name for spec in changelogs} == {"app-spent-changelog", "app-last-changelog"}
    assert all((spec.configs, spec.partitions) == (CHANGELOG_CONFIGS, 2) for spec in changelogs)
    every = frozenset({Column("orders", name) for name in ("key", "id", "amount")})
    lineage = column_lineage(topology)
    assert lineage["app-spent-changelog"]["total"] == lineage["out"]["orders"] == every
    assert lineage["app-last-changelog"]["amount"] == lineage["kept"]["id"] == every
    assert lineage["kept"]["key"] == frozenset({Column("orders", "key")})


MISTAKES: dict[str, Callable[[KGroupedStream], Any]] = {
    "aggregate: tests.unit.model.test_python_aggregates.nothing is an initializer without an aggregator": (
        lambda grouped: grouped.aggregate(nothing)
    ),
    "aggregate: tests.unit.model.test_python_aggregates.add is given with expressions": (
        lambda grouped: grouped.aggregate({"total": "sum(amount)"}, add)
    ),
    "aggregate: a schema is given with expressions": (
        lambda grouped: grouped.aggregate({"total": "sum(amount)"}, schema="total double")
    ),
    "aggregate: tests.unit.model.test_python_aggregates.add takes (key: 'str', order: 'Any', spent: 'Any'), and is "
    "called with no argument": lambda grouped: grouped.aggregate(add, add),
    "aggregate: tests.unit.model.test_python_aggregates.latest takes (old: 'Any', new: 'Any'), and is called with "
    "the key, the value, the aggregate": lambda grouped: grouped.aggregate(nothing, latest),
    "aggregate: what tests.unit.model.test_python_aggregates.untold returns is not known": (
        lambda grouped: grouped.aggregate(dict, untold)
    ),
    "aggregate: schema: total: type 'number' is not one of string, int, bigint, double, boolean, timestamp, date, "
    "decimal(p,s), struct<…>, array<…>, map<string, …>": (
        lambda grouped: grouped.aggregate(dict, untold, schema="total number")
    ),
    "reduce: tests.unit.model.test_python_aggregates.add takes (key: 'str', order: 'Any', spent: 'Any'), and is "
    "called with the old value, the new value": lambda grouped: grouped.reduce(add),
    "reduce: both a function and max_by are given": lambda grouped: grouped.reduce(latest, max_by="amount"),
    "reduce: both max_by and min_by are given": lambda grouped: grouped.reduce(max_by="amount", min_by="amount"),
    "reduce: on_error='ignore'": lambda grouped: grouped.reduce(latest, on_error="ignore"),  # type: ignore[arg-type]
    "aggregate: sessions without a merger": (
        lambda grouped: grouped.windowed_by(SessionWindows("1 minute")).aggregate(nothing, add)
    ),
    "aggregate: tests.unit.model.test_python_aggregates.both is a merger, and time windows are not merged": (
        lambda grouped: grouped.windowed_by(TimeWindows("1 minute")).aggregate(nothing, add, merger=both)
    ),
    "aggregate: tests.unit.model.test_python_aggregates.both is given with expressions": (
        lambda grouped: grouped.windowed_by(SessionWindows("1 minute")).aggregate({"n": "count(*)"}, merger=both)
    ),
    "aggregate: tests.unit.model.test_python_aggregates.latest takes (old: 'Any', new: 'Any'), and is called with "
    "the key, the aggregate of a session, the aggregate of another one": (
        lambda grouped: grouped.windowed_by(SessionWindows("1 minute")).aggregate(nothing, add, merger=latest)
    ),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_a_mistake_is_told_once_with_its_line(topology: Topology, grouped: KGroupedStream, message: str) -> None:
    MISTAKES[message](grouped)
    assert [fault.message for fault in topology.faults] == [message]
    assert topology.faults[0].location.file.endswith("test_python_aggregates.py")


def test_what_follows_a_mistake_has_no_faults_of_its_own(topology: Topology, grouped: KGroupedStream) -> None:
    grouped.windowed_by(SessionWindows("1 minute")).aggregate(nothing, add).to_stream().filter("anything > 1").to("out")
    assert len(topology.faults) == 1


def test_functions_of_several_streams_have_the_names_of_expressions() -> None:
    described = []
    for by_functions in (True, False):
        topology = Topology("app")
        grouped = topology.stream("orders", value=Json("id string, amount bigint")).group_by_key()
        other = topology.stream("clicks", value=Json("page string")).group_by("page")
        if by_functions:
            table = grouped.cogroup(add).cogroup(other, untold).aggregate(nothing)
            assert table._fields == ("total", "orders")
        else:
            table = grouped.cogroup({"n": "count(*)"}).cogroup(other, {"n": "count(*)"}).aggregate()
        table.to_stream().to("out")
        described.append(topology.describe())
        lineage = column_lineage(topology)
        if by_functions:
            every = {Column("orders", name) for name in ("key", "id", "amount")} | {Column("clicks", "page")}
            assert lineage["out"]["total"] >= every
    assert described[0] == described[1]


COGROUP_MISTAKES: dict[str, Callable[[KGroupedStream, KGroupedStream], Any]] = {
    "cogroup: functions and expressions are given": (
        lambda grouped, other: grouped.cogroup(add).cogroup(other, {"n": "count(*)"}).aggregate(nothing)
    ),
    "aggregate: functions are given, and the streams have expressions": (
        lambda grouped, other: grouped.cogroup({"n": "count(*)"}).aggregate(nothing)
    ),
    "aggregate: tests.unit.model.test_python_aggregates.add is an aggregator without an initializer": (
        lambda grouped, other: grouped.cogroup(add).cogroup(other, add).aggregate()
    ),
    "aggregate: sessions without a merger": (
        lambda grouped, other: grouped.cogroup(add).windowed_by(SessionWindows("1 minute")).aggregate(nothing)
    ),
    "cogroup: tests.unit.model.test_python_aggregates.latest takes (old: 'Any', new: 'Any'), and is called with the "
    "key, the value, the aggregate": lambda grouped, other: grouped.cogroup(latest).aggregate(nothing),
}


@pytest.mark.parametrize("message", COGROUP_MISTAKES)
def test_a_mistake_with_functions_of_several_streams_is_told_once(
    topology: Topology, grouped: KGroupedStream, message: str
) -> None:
    COGROUP_MISTAKES[message](grouped, topology.stream("clicks", value=Json("page string")).group_by_key())
    assert [fault.message for fault in topology.faults] == [message]
