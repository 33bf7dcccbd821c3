from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, NamedTuple, TypedDict

import pyarrow as pa
import pytest
from streamplan.model.functions import Printer, PythonFunction, arrow_batch, function_name, hinted_schema
from streamplan.model.kstream import KStream
from streamplan.model.operations import FilterFunction, FlatMapFunction, MapFunction, MapValuesFunction
from streamplan.model.processor_topology import Processor
from streamplan.model.topology import Topology
from streamplan.serdes.json import Json
from streamplan.serdes.primitive import Long


@dataclass
class Score:
    id: str
    risk: float | None
    cases: int
    sure: bool


class Named(NamedTuple):
    word: str


class Typed(TypedDict):
    word: str
    length: int | None


@dataclass
class Nested:
    at: datetime
    day: date | None
    score: Score | None
    words: list[Named]
    rates: dict[str, list[float | None]]


@dataclass
class Itself:
    parts: list[Itself]


@dataclass
class Priced:
    price: Decimal


@dataclass
class Columns:
    risk: pa.DoubleArray
    sure: pa.BooleanArray | None
    at: pa.TimestampArray


@dataclass
class NoColumns:
    risk: pa.Array


@arrow_batch
def columns_of(batch: pa.RecordBatch) -> Columns: ...  # type: ignore[empty-body]
@arrow_batch
def no_columns_of(batch: pa.RecordBatch) -> NoColumns: ...  # type: ignore[empty-body]
def nested(record: Any) -> Nested: ...  # type: ignore[empty-body]
def itself(record: Any) -> Itself: ...  # type: ignore[empty-body]
def priced(record: Any) -> Priced: ...  # type: ignore[empty-body]
def dataclass_of(record: Any) -> Score | None: ...
def named_tuple_of(record: Any) -> Named: ...  # type: ignore[empty-body]
def typed_dict_of(record: Any) -> Typed: ...  # type: ignore[empty-body]
def several(record: Any) -> list[Named]: ...  # type: ignore[empty-body]
def one_by_one(record: Any) -> Iterator[Typed]: ...  # type: ignore[empty-body]
def some_dict(record: Any) -> dict[str, Any]: ...  # type: ignore[empty-body]
def a_text(record: Any) -> str: ...  # type: ignore[empty-body]
def of_an_unknown_type(record: Any) -> Unknown: ...  # type: ignore[name-defined]  # noqa: F821
def without_hint(record): ...  # type: ignore[no-untyped-def]


@pytest.mark.parametrize(
    ("function", "each", "schema"),
    [
        (dataclass_of, False, "id string, risk double, cases bigint, sure boolean"),
        (named_tuple_of, False, "word string"),
        (typed_dict_of, False, "word string, length bigint"),
        (several, True, "word string"),
        (one_by_one, True, "word string, length bigint"),
        (
            nested,
            False,
            "at timestamp, day date, score struct<id string, risk double, cases bigint, sure boolean>,"
            " words array<struct<word string>>, rates map<string, array<double>>",
        ),
        (columns_of, False, "risk double, sure boolean, at timestamp"),
        (no_columns_of, False, None),
        (itself, False, None),
        (priced, False, None),
        (several, False, None),
        (some_dict, False, None),
        (a_text, False, None),
        (of_an_unknown_type, False, None),
        (without_hint, False, None),
        (lambda record: None, False, None),
    ],
)
def test_the_type_of_what_is_returned_tells_the_schema(function: Any, each: bool, schema: str | None) -> None:
    assert hinted_schema(function, each=each) == schema
    assert schema is None or Json(schema).fields


@pytest.fixture
def topology() -> Topology:
    return Topology("app")


@pytest.fixture
def orders(topology: Topology) -> KStream:
    return topology.stream("orders", value=Json("id string, amount bigint"))


def is_large(order: Any) -> bool:
    return bool(order.amount > 100)


def test_functions_are_processors_like_expressions(topology: Topology, orders: KStream) -> None:
    scored = orders.filter(is_large).map_values(dataclass_of, on_error="stop", deterministic=False)
    scored.flat_map(several, key="word").group_by_key(name="words").count(store="words")
    scored.map("cases + 1", dataclass_of, key_serde=Long()).to("by-cases")
    assert topology.faults == ()
    operations = [
        node.operation
        for subtopology in topology.subtopologies
        for node in subtopology.nodes
        if isinstance(node, Processor)
    ]
    fields = (("id", "string"), ("risk", "double"), ("cases", "bigint"), ("sure", "boolean"))
    assert operations[:3] == [
        FilterFunction(PythonFunction(function_name(is_large), is_large)),
        MapValuesFunction(PythonFunction(function_name(dataclass_of), dataclass_of, "stop", False), fields),
        FlatMapFunction(PythonFunction(function_name(several), several), (("word", "string"),), "word"),
    ]
    assert (
        MapFunction(PythonFunction(function_name(dataclass_of), dataclass_of), fields, "cases + 1", Long())
        in operations
    )
    described = topology.describe()
    for name in ("KSTREAM-FILTER-0000000001", "KSTREAM-MAPVALUES-0000000002", "KSTREAM-FLATMAP-0000000003"):
        assert name in described


def test_functions_of_arrow_batches_are_processors_like_others(topology: Topology, orders: KStream) -> None:
    orders.filter(columns_of, deterministic=False).map_values(columns_of, on_error="stop").to("risks")
    assert topology.faults == ()
    (subtopology,) = topology.subtopologies
    fields = (("risk", "double"), ("sure", "boolean"), ("at", "timestamp"))
    name = f"{__name__}.columns_of"
    assert subtopology.operations == (
        FilterFunction(PythonFunction(name, columns_of, "reject", False, True)),
        MapValuesFunction(PythonFunction(name, columns_of, "stop", True, True), fields),
    )
    assert "KSTREAM-FILTER-0000000001" in topology.describe()


def test_the_identity_of_a_checkpoint_has_the_name_of_a_function_alone() -> None:
    name = f"{__name__}.is_large"
    assert repr(PythonFunction(function_name(is_large), is_large)) == f"PythonFunction(name='{name}')"
    assert repr(PythonFunction(name, a_text, "stop", False)) == f"PythonFunction(name='{name}')"


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda orders: orders.map_values(some_dict), f"map_values: {function_name(some_dict)} returns dict"),
        (lambda orders: orders.map_values(some_dict, schema="risk"), "map_values: schema: 'risk' is not a field"),
        (
            lambda orders: orders.map_values(some_dict, schema="record int"),
            "map_values: a field cannot be named 'record'",
        ),
        (
            lambda orders: orders.map_values({"a": "id"}, schema="a int"),
            "map_values: a schema is given with expressions",
        ),
        (lambda orders: orders.filter(is_large, on_error="ignore"), "filter: on_error='ignore'"),
        (
            lambda orders: orders.flat_map(columns_of, schema="id string", key="id"),
            f"flat_map: {__name__}.columns_of is a function of an Arrow batch",
        ),
        (lambda orders: orders.flat_map(several, key="letter"), "flat_map: the value has no field 'letter'"),
        (lambda orders: orders.map("amount", dataclass_of), "map: the value has no field 'amount'"),
        (lambda orders: orders.map("id", some_dict), f"map: {function_name(some_dict)} returns dict[str, Any], which"),
        (
            lambda orders: orders.flat_map(some_dict, key="id"),
            f"flat_map: {__name__}.some_dict returns dict[str, Any], which does not tell the fields of a value",
        ),
        (
            lambda orders: orders.flat_map(several, key="word", value={"word": "word"}),
            "flat_map: both a function and value are given",
        ),
        (lambda orders: orders.flat_map("array(id)", key="element"), "flat_map: the value has no field"),
        (lambda orders: orders.foreach("id"), "foreach: action is the text 'id'"),
        (lambda orders: orders.foreach(is_large, on_error="ignore"), "foreach: on_error='ignore'"),
        (lambda orders: orders.peek(columns_of), f"peek: {__name__}.columns_of is a function of an Arrow batch"),
        (lambda orders: orders.peek({"n": "city"}), "peek, n: the value has no field 'city'"),
        (lambda orders: orders.to("city", topics=("a", "b")), "to: the value has no field 'city'"),
        (lambda orders: orders.to("id", topics=()), "to: topics=()"),
        (lambda orders: orders.to("id", topics="ab"), "to: topics is the text 'ab'"),
        (lambda orders: orders.to("id", topics=("a", "a")), "to: topics: a topic is named twice"),
        (lambda orders: orders.to("id", topics=("a", "b c")), "to: the name 'b c' contains ' '"),
        (lambda orders: orders.through("other"), "through: the library has none since 4.0"),
        (lambda orders: orders.filter_not("city"), "filter_not: the value has no field 'city'"),
        (lambda orders: orders.split().branch("city"), "branch: the value has no field 'city'"),
        (lambda orders: orders.split().branch(is_large, on_error="no"), "branch: on_error='no'"),
        (lambda orders: orders.split(name="x-").branch("true", name="a b"), "the name 'x-a b' contains ' '"),
        (
            lambda orders: orders.split(name="x-").branch("true", name="a").branch("true", name="a"),
            "the name 'x-a' is declared twice",
        ),
        (
            lambda orders: orders.split(name="x").branch("true").no_default_branch()["x1"].filter("city"),
            "filter: the value has no field 'city'",
        ),
        (
            lambda orders: orders.flat_map_values(several, {"word": "word"}),
            "flat_map_values: both a function and value are given",
        ),
        (lambda orders: orders.flat_map_values("array(id)"), "flat_map_values: the value has no field"),
        (
            lambda orders: orders.map_values(several, schema="word string").filter("id = ''").select_key("id"),
            "select_key: the value has no field 'id'",
        ),
    ],
)
def test_wrong_declarations_are_faults(topology: Topology, orders: KStream, declare: Any, message: str) -> None:
    declare(orders)
    (fault,) = topology.faults
    assert fault.message.startswith(message)


@pytest.mark.parametrize(
    ("record", "line"),
    [
        (SimpleNamespace(record=SimpleNamespace(key="k"), shop="nörd", amount=None), '[shops]: k, {"shop": "nörd"}'),
        (SimpleNamespace(record=SimpleNamespace(key=None), shop=None), "[shops]: null, null"),
        (
            SimpleNamespace(
                record=SimpleNamespace(key=7), at=datetime(2026, 1, 1, tzinfo=UTC), of=[SimpleNamespace(n=1)]
            ),
            '[shops]: 7, {"at": "2026-01-01 00:00:00+00:00", "of": [{"n": 1}]}',
        ),
    ],
)
def test_a_record_is_printed_as_the_library_prints_it(
    record: Any, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Printer("shops")(record)
    assert capsys.readouterr().out == f"{line}\n"
