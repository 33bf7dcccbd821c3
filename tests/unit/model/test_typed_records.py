"""A dataclass is a schema, functions are given its objects, and a type checker sees what streams have."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, IntFlag, StrEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, NamedTuple, TypedDict

import pytest
from streamplan import F, Json, KStream, Topology, arrow_batch
from streamplan.judged import mistakes_of
from streamplan.model.functions import TakesRecords, given_classes
from streamplan.model.operations import MapValuesFunction
from streamplan.model.processor_topology import Processor
from streamplan.serdes.record_classes import RecordClass

from tests.support import typed_declaration
from tests.support.typed_declaration import Line, Order, Product, Score, score

ROOT = Path(__file__).parents[3]


class Country(StrEnum):
    GERMANY = "DE"
    FRANCE = "FR"


class Weight(Enum):
    LIGHT = 0.5


@dataclass
class Everything:
    text: str
    small: Annotated[int, "int"]
    large: int
    ratio: float
    sure: bool
    at: datetime
    day: date
    price: Annotated[Decimal, "decimal(10,2)"]
    product: Product
    country: Country | None
    line: Line
    lines: list[Line]
    counts: dict[str, int]
    perhaps: str | None = None
    chosen: int = 5
    tags: list[str] = field(default_factory=list)


EVERYTHING = (
    "text string, small int, large bigint, ratio double, sure boolean, at timestamp, day date, price decimal(10,2), "
    "product bigint, country string, line struct<sku string, price decimal(10,2)>, "
    "lines array<struct<sku string, price decimal(10,2)>>, counts map<string, bigint>, perhaps string, chosen bigint, "
    "tags array<string>"
)
ALLOWED = {"product": {0: "JACKETS", 1: "SHIRTS"}, "country": {"DE": "GERMANY", "FR": "FRANCE"}}


def test_a_json_of_a_dataclass_is_equal_to_that_of_a_text() -> None:
    by_class, by_text = Json(Everything), Json(EVERYTHING, allowed=ALLOWED)
    assert by_class == by_text
    assert repr(by_class) == repr(by_text), "checkpoints have this text"
    assert by_class.fields == by_text.fields
    assert Json(Everything, allowed={"sure": {True: "yes"}}).allowed == {**ALLOWED, "sure": {True: "yes"}}


@dataclass
class OfBytes:
    photo: bytes


@dataclass
class OfDecimal:
    price: Decimal


@dataclass
class OfList:
    tags: list


@dataclass
class OfWeight:
    weight: Weight


@dataclass
class OfItself:
    parent: OfItself | None


@dataclass
class OfUnion:
    id: int | str


@dataclass
class OfWrongType:
    price: Annotated[Decimal, "decimal(99,2)"]


@dataclass
class OfNumberAsText:
    number: Annotated[int, "string"]


@dataclass
class OfMore:
    id: str
    salt: InitVar[int]


@pytest.mark.parametrize(
    ("cls", "told", "write"),
    [
        (
            OfNumberAsText,
            "OfNumberAsText.number: a value of the type string is given as str, and not as int",
            "Write Annotated[str, 'string']",
        ),
        (
            OfMore,
            "OfMore cannot be made of its fields id: missing a required argument: 'salt'",
            "Give the others a default, or leave them out",
        ),
        (
            dict,
            "dict is not a dataclass with annotated fields",
            "For example @dataclass class Order: id: str; amount: int",
        ),
        (OfBytes, "OfBytes.photo: JSON has no bytes", "Write str, for a text such as Base64"),
        (
            OfDecimal,
            "OfDecimal.price: a Decimal does not tell its digits",
            "Write Annotated[Decimal, 'decimal(10,2)']",
        ),
        (OfList, "OfList.tags: a list does not tell its elements", "Write list[str]"),
        (OfWeight, "OfWeight.weight: Weight is neither an IntEnum nor a StrEnum", "Write class Weight(StrEnum)"),
        (OfItself, "OfItself.parent: OfItself would be a part of itself", "Write the fields of the part you need"),
        (OfUnion, "OfUnion.id: int | str cannot be the type of a field", "Write one type, or one and None: str | None"),
        (
            OfWrongType,
            "OfWrongType.price: write a decimal with its digits, at most 38: decimal(10,2)",
            'For example Json("id string, amount bigint")',
        ),
    ],
)
def test_a_class_that_is_no_schema_is_told_with_what_to_write(cls: type, told: str, write: str) -> None:
    (mistake,) = mistakes_of(Json(cls))
    assert (mistake.message, mistake.hint) == (f"Json: {told}", write)
    assert Path(mistake.location.file).name == "test_typed_records.py"


def value(**changes: Any) -> SimpleNamespace:
    """A value as a function is given it."""
    fields = {
        "text": "a", "small": 1, "large": 2, "ratio": 0.5, "sure": True, "at": datetime(2026, 1, 1, tzinfo=UTC),
        "day": date(2026, 1, 1), "price": Decimal("1.50"), "product": 1, "country": None,
        "line": SimpleNamespace(sku="s", price=Decimal(1)), "lines": [SimpleNamespace(sku="t", price=Decimal(2))],
        "counts": {"x": 1}, "perhaps": None, "chosen": None, "tags": None, "record": SimpleNamespace(key="k"),
    }  # fmt: skip
    return SimpleNamespace(**{**fields, **changes})


def test_a_value_becomes_an_object_of_its_class_with_its_parts() -> None:
    made = RecordClass.of(Everything).read(value(country="FR"))
    assert made == Everything(
        "a", 1, 2, 0.5, True, datetime(2026, 1, 1, tzinfo=UTC), date(2026, 1, 1), Decimal("1.50"), Product.SHIRTS,
        Country.FRANCE, Line("s", Decimal(1)), [Line("t", Decimal(2))], {"x": 1},
    )  # fmt: skip
    assert made.product is Product.SHIRTS
    assert (made.chosen, made.tags) == (5, []), "a field that is null has the default of the class"
    assert made.record.key == "k", "key, timestamp and topic are where they are without a class"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"text": None}, "text is null, and its annotation has no None"),
        ({"line": SimpleNamespace(sku=None, price=Decimal(1))}, "line.sku is null"),
        ({"lines": [SimpleNamespace(sku="t", price=None)]}, r"lines\[0\].price is null"),
        ({"counts": {"x": None}}, r"counts\['x'\] is null"),
        ({"product": 7}, "7 is not a valid Product"),
    ],
)
def test_a_value_that_is_no_object_of_the_class_is_an_error_of_its_record(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        RecordClass.of(Everything).read(value(**changes))


def annotated(order: Order) -> None: ...
def of_another(line: Line) -> None: ...
def of_anything(order: Any) -> None: ...
def without(order) -> None: ...  # type: ignore[no-untyped-def]


@pytest.mark.parametrize(
    ("function", "given"),
    [(annotated, Order), (of_another, Line), (of_anything, None), (without, Order), (lambda order: order, Order)],
)
def test_an_annotation_or_the_stream_says_what_a_function_is_given(function: Callable[..., Any], given: Any) -> None:
    assert given_classes(function, (Order,)) == (given,)


def test_the_class_of_the_values_goes_along_with_the_stream() -> None:
    topology = Topology("app")
    orders = topology.stream("orders", value=Json(Order))
    scores = orders.filter("product = 0").map_values(score)
    of_scores = [
        scores.peek(print), scores.repartition(), scores.select_key("id"), scores.merge(scores.filter("risk > 1")),
        scores.to_table().to_stream(), scores.group_by_key().reduce().to_stream(),
        scores.split(name="s-").default_branch(name="all")["s-all"],
    ]  # fmt: skip
    assert {stream._record_class for stream in of_scores} == {Score}
    customers = topology.table("customers", value=Json("name string"))
    of_columns = arrow_batch(lambda batch: batch)
    of_columns.__annotations__["return"] = Score
    of_none = [
        scores.map_values(of_columns),
        scores.map_values(risk=F.risk),
        scores.join(customers),
        scores.group_by_key().count().to_stream(),
    ]
    assert {stream._record_class for stream in of_none} == {None}
    assert topology.faults == ()


def test_a_function_keeps_its_name_and_is_wrapped_only_where_it_takes_an_object() -> None:
    topology = Topology("app")
    orders = topology.stream(
        "orders",
        value=Json("id string, product int, at timestamp, lines array<struct<sku: string, price: decimal(10,2)>>"),
    )
    orders.map_values(score)
    orders.map_values(lambda order: {"id": order.id}, schema="id string")
    operations = [node.operation for node in topology.processors.nodes if isinstance(node, Processor)]
    assert all(isinstance(operation, MapValuesFunction) for operation in operations)
    of_objects, of_values = (operation.function for operation in operations)  # type: ignore[union-attr]
    assert of_objects.name == "tests.support.typed_declaration.score"
    assert isinstance(of_objects.call, TakesRecords)
    assert of_objects.call.__code__ is score.__code__, "a reason names the line of the function"
    assert not isinstance(of_values.call, TakesRecords)


def faults(declare: Callable[[KStream], Any]) -> list[str]:
    topology = Topology("app")
    declare(topology.stream("orders", value=Json("id string, amount bigint")))
    return [f"{fault.message}. {fault.hint}" for fault in topology.faults]


@pytest.mark.parametrize(
    ("declare", "told"),
    [
        (
            lambda stream: stream.map_values(score),
            "map_values: tests.support.typed_declaration.score takes an object of Order, and the value has no "
            "field product, at, lines. It has: id, amount. Give Order.product a default, or the stream the field",
        ),
    ],
)
def test_a_function_that_cannot_be_given_its_class_is_told(declare: Callable[..., Any], told: str) -> None:
    assert faults(declare) == [told]


def of_itself(one: OfItself) -> bool:
    return one.parent is None


def test_a_class_that_no_object_can_be_made_of_is_no_fault_of_a_function() -> None:
    assert faults(lambda stream: stream.filter(of_itself)) == []


@dataclass
class Loose:
    id: Any
    amount: Decimal
    rest: object = None


def test_a_field_of_any_other_type_is_what_was_read() -> None:
    assert RecordClass.of(Loose).read(SimpleNamespace(id=None, amount=5)) == Loose(None, Decimal(5))


# -- type checkers

WRONG = """
from streamplan import F, Json, KStream, Topology
from tests.support.typed_declaration import Line, Order, Score, score

def of_line(line: Line) -> Score: ...

topology = Topology("wrong")
orders = topology.stream("orders", value=Json(Order))
orders.map_values(of_line)
orders.filter(lambda order: order.nme == "x")
orders.filter(lambda key, order: order.nme == key)
orders.map_values(score, on_error="skip")
orders.map_values(lambda key, order, other: score(order))
orders.map_values(total="price * count")
orders.groupBy("id")
orders.filter(F.amount > 0).graph
scores: KStream[str, Score] = orders
orders.map_values(score).filter(lambda one: one.note)
orders.filter(F.customer.isNotNull())
import streamplan
streamplan.KStreem
import streamplan.testing
streamplan.testing.TopologyDriver
import streamplan.airflow
streamplan.airflow.declare_dag
"""

REVEALED = """
from streamplan import UUID, Avro, Bytes, Double, Integer, Json, JsonSchema, Long, Protobuf, String
from tests.support.typed_declaration import orders

reveal_type(String().decode)
reveal_type(Avro("order.avsc").encode)
reveal_type(Json("id string").decode_column)
reveal_type(Protobuf("order.desc").decode)
reveal_type(JsonSchema("order.json").encode)
orders.filter(lambda order: order.nme == "x")
orders.filter_not(lambda order: order.nme == "x")
orders.split().branch(lambda order: order.nme == "x")
orders.map_values(lambda order: order.nme)
orders.peek(lambda order: print(order.nme))
"""


def judged_by_mypy(*files: str, cache: Path) -> list[str]:
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", "--follow-imports=silent"]
    command += ["--cache-dir", str(cache), "--no-error-summary", "--disable-error-code=empty-body", *files]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600).stdout.splitlines()


@pytest.fixture(scope="module")
def mypy_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mypy")


def test_a_type_checker_sees_what_streams_have_and_what_is_wrong(tmp_path: Path, mypy_cache: Path) -> None:
    assert typed_declaration.topology.faults == ()
    wrong = tmp_path / "wrong.py"
    wrong.write_text(WRONG)
    told = judged_by_mypy(typed_declaration.__file__, str(wrong), cache=mypy_cache)
    errors = [line.removeprefix(f"{wrong}:") for line in told if ": error: " in line]
    assert [*dict.fromkeys(error.partition(":")[0] for error in errors)] == [
        str(number)
        for number, line in enumerate(WRONG.splitlines(), 1)
        if line.startswith(("orders.", "scores:", "streamplan."))
    ], told


def test_editors_know_the_arguments_of_serdes_and_of_lambdas(tmp_path: Path, mypy_cache: Path) -> None:
    asked = tmp_path / "asked.py"
    asked.write_text(REVEALED)
    told = judged_by_mypy(str(asked), cache=mypy_cache)
    revealed = [re.sub(r'^.* is "(.*)"$', r"\1", line) for line in told if "Revealed type is" in line]
    assert [re.findall(r"\w+(?=: )", method) for method in revealed] == [
        ["data"],
        ["value"],
        ["values"],
        ["data"],
        ["value"],
    ]
    wrong = [line for line in told if ": error: " in line]
    assert len(wrong) == 5
    assert all('"Order" has no attribute "nme"' in line for line in wrong)


def test_a_typed_declaration_loads_neither_spark_nor_arrow() -> None:
    code = "import sys, tests.support.typed_declaration; print({'pyspark', 'pyarrow', 'pandas'} & {*sys.modules})"
    path = f"{ROOT / 'plugins'}:{ROOT}"
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, env={"PYTHONPATH": path}, capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout == "set()\n"


class Colour(IntFlag):
    RED = 1
    GREEN = 2


class Place(NamedTuple):
    city: str
    country: Country = Country.GERMANY


class Size(TypedDict):
    width: int
    colours: list[Colour]


@dataclass
class Parcel:
    colour: Colour
    place: Place
    size: Size
    others: list[Place]


def test_flags_have_sums_and_parts_that_are_no_dataclasses_are_what_they_are_declared() -> None:
    serde = Json(Parcel)
    assert serde.allowed == {}
    read = serde.decode(
        b'{"colour": 3, "place": {"city": "Bonn"}, "size": {"width": 1, "colours": [0, 2]},'
        b' "others": [{"city": "Nice", "country": "FR"}]}'
    )
    assert serde.record_class is not None
    assert serde.record_class.read(
        SimpleNamespace(
            **{
                **read,
                "place": SimpleNamespace(city="Bonn", country=None),
                "size": SimpleNamespace(**read["size"]),
                "others": [SimpleNamespace(**each) for each in read["others"]],
            }
        )
    ) == Parcel(
        Colour.RED | Colour.GREEN,
        Place("Bonn", Country.GERMANY),
        {"width": 1, "colours": [Colour(0), Colour.GREEN]},
        [Place("Nice", Country.FRANCE)],
    )


def test_a_value_that_is_none_of_an_enumeration_is_told_with_its_place() -> None:
    @dataclass
    class Route:
        countries: list[Country]

    with pytest.raises(ValueError, match=r"^countries\[1\]: 'IT' is not a valid Country$"):
        RecordClass.of(Route).read(SimpleNamespace(countries=["DE", "IT"]))
