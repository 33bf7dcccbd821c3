"""What a Python function of Arrow batches gives, against the same function of one record, and against plain Python."""

from __future__ import annotations

import math
import random
import traceback
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from streamplan.errors import Refused
from streamplan.model.functions import STOP, PythonFunction, arrow_batch, function_name, is_of_batches
from streamplan.serdes.arrow import struct_type
from streamplan.serdes.json import Json
from streamplan.spark.planning.arrow_batches import conditions_by, values_by
from streamplan.spark.planning.function_results import Unfit, parts_of
from streamplan.spark.planning.python_functions import mapped_batches

BEGIN = datetime(2026, 1, 1, 12, tzinfo=UTC)
UNIT = struct_type({"unit": "double"})
VALUE = {"id": "string", "amount": "bigint", "weight": "double"}
RECORD = pa.struct(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("key", pa.string()),
        ("reason", pa.string()),
    ]
)


def batch_of(*values: tuple[str | None, int | None, float | None], rejected: frozenset[int] = frozenset()) -> Any:
    """Records, some of which are rejected already."""
    types = [field.type for field in struct_type(VALUE)]
    columns = [pa.array(column, of) for column, of in zip(map(list, zip(*values, strict=True)), types, strict=True)]
    records = [
        {
            "topic": "orders",
            "partition": 0,
            "offset": offset,
            "timestamp": BEGIN + timedelta(seconds=offset),
            "key": f"k{offset}",
            "reason": "no JSON" if offset in rejected else None,
        }
        for offset in range(len(values))
    ]
    return pa.RecordBatch.from_arrays([*columns, pa.array(records, RECORD)], names=[*VALUE, "record"])


def function(call: Any, on_error: str = "reject") -> PythonFunction:
    return PythonFunction(function_name(call), call, on_error, of_batches=is_of_batches(call))


def returning(returned: Any) -> PythonFunction:
    """A function that returns the same for any batch."""

    @arrow_batch
    def given(batch: pa.RecordBatch) -> Any:
        return returned

    return function(given)


def unit_of(order: Any) -> dict[str, Any]:
    return {"unit": order.weight / (1 // order.amount), "seen": f"{order.record.key} {order.id}"}


@arrow_batch
def units_of(orders: pa.RecordBatch) -> dict[str, pa.Array]:
    ones = pc.divide(pa.scalar(1), orders["amount"])  # raises where one is 0
    if pc.any(pc.equal(ones, 0)).as_py():
        raise ZeroDivisionError("float division by zero")
    keys = pc.struct_field(orders["record"], "key")
    if orders["amount"].null_count or orders["weight"].null_count:
        raise TypeError("null")
    unit = pc.divide(orders["weight"], ones.cast(pa.float64()))
    return {"seen": pc.binary_join_element_wise(keys, orders["id"], " "), "unit": unit}


def test_a_batch_gives_what_each_record_gives() -> None:
    """Rejected are the same records: the random ones for which either function raises, and those with NaN."""
    numbers = random.Random(21)
    for size in (1, 2, 17, 300):
        values = [
            (
                f"i{row}",
                numbers.choice([1, 1, 1, 1, 1, 1, 0, 2, None]),
                numbers.choice([1.5, -2.0, 0.0, 5.5, 1.0, math.nan, None] if row % 7 == 0 else [1.5, 2.5]),
            )
            for row in range(size)
        ]
        batch = batch_of(*values, rejected=frozenset(numbers.sample(range(size), size // 3)))
        made = {"unit": "double", "seen": "string"}
        (by_record,), (by_batch,) = (
            [*mapped_batches(function(call), made)(iter([batch]))] for call in (unit_of, units_of)
        )
        assert by_batch.schema == by_record.schema
        for expected, found in zip(by_record.to_pylist(), by_batch.to_pylist(), strict=True):
            expected_reason, found_reason = expected["record"].pop("reason"), found["record"].pop("reason")
            assert found == expected
            assert (found_reason is None) == (expected_reason is None)
            if expected_reason and "raised" not in expected_reason:
                assert found_reason == expected_reason.replace("unit_of", "units_of")


def test_only_the_records_for_which_it_raises_are_rejected_and_the_reason_has_the_line() -> None:
    sizes = []

    @arrow_batch
    def inverse(orders: pa.RecordBatch) -> dict[str, Any]:
        sizes.append(orders.num_rows)
        return {"unit": [1 / amount for amount in orders["amount"].to_pylist()]}

    amounts = [1] * 1000
    amounts[3] = amounts[999] = 0
    values, reasons = values_by(
        function(inverse), batch_of(*(("a", amount, 0.0) for amount in amounts)), struct_type({"unit": "double"})
    )
    line = inverse.__code__.co_firstlineno + 3
    reason = f"{function_name(inverse)} raised ZeroDivisionError in line {line}: division by zero"
    assert reasons.to_pylist() == [reason if amount == 0 else None for amount in amounts]
    units = pc.struct_field(values, "unit").to_pylist()
    assert units == [None if amount == 0 else 1.0 for amount in amounts]
    assert sizes[0] == 1000
    assert len(sizes) < 50  # halves, and not each record


@dataclass
class Scores:
    risk: pa.DoubleArray
    sure: pa.BooleanArray


class Named(NamedTuple):
    risk: Any


RISKS = pa.array([0.5, 1.5])


@pytest.mark.parametrize(
    "returned",
    [
        {"risk": RISKS},
        {"risk": pa.chunked_array([[0.5], [1.5]])},
        {"risk": np.array([0.5, 1.5])},
        {"risk": [0.5, 1.5]},
        {"risk": RISKS.cast(pa.float32()), "sure": pa.nulls(2)},
        Named(RISKS),
        Scores(RISKS, pa.nulls(2, pa.bool_())),
        pa.RecordBatch.from_arrays([RISKS], names=["risk"]),
        pa.table({"risk": RISKS}),
        pa.StructArray.from_arrays([RISKS], names=["risk"]),
        pa.chunked_array([pa.StructArray.from_arrays([RISKS], names=["risk"])]),
    ],
    ids=lambda returned: type(returned).__name__,
)
def test_columns_have_several_forms(returned: Any) -> None:
    batch = batch_of(("a", 1, 1.0), ("b", 2, 2.0))
    values, reasons = values_by(returning(returned), batch, struct_type({"risk": "double", "sure": "boolean"}))
    assert values.to_pylist() == [{"risk": 0.5, "sure": None}, {"risk": 1.5, "sure": None}]
    assert reasons.null_count == 2


ALL = Json(
    "text string, small int, large bigint, number double, price decimal(10,2), at timestamp, day date, sure boolean,"
    " line struct<sku: string, price: decimal(4,1)>, lines array<struct<sku: string, n: double>>,"
    " rates map<string, double>"
)
LATE = datetime(9999, 12, 31, tzinfo=UTC)
FITTING: list[dict[str, Any]] = [
    {
        "text": "ä", "small": -7, "large": 1 << 62, "number": 0.1, "price": Decimal("12345678.90"), "at": BEGIN,
        "day": date(1, 1, 1), "sure": False, "line": {"sku": "a", "price": Decimal("999.9")},
        "lines": [{"sku": None, "n": 1.0}], "rates": {"EUR": 1.5},
    },
    dict.fromkeys(ALL.fields),
    {**dict.fromkeys(ALL.fields), "line": {"sku": None, "price": None}, "lines": [], "rates": {}, "at": LATE},
]  # fmt: skip


def test_values_of_all_types_pass_exactly() -> None:
    value_type = struct_type(ALL.fields)
    array = pa.array(FITTING, value_type)
    batch = batch_of(*[("a", 1, 1.0)] * len(FITTING))
    values, reasons = values_by(returning(array), batch, value_type)
    assert reasons.null_count == len(FITTING)
    assert values.equals(array)
    wide = {
        "text": pa.large_string(), "small": pa.uint8(), "large": pa.int16(), "number": pa.int64(),
        "price": pa.decimal128(20, 4), "at": pa.timestamp("ms", tz="Europe/Berlin"), "day": pa.date64(),
        "lines": pa.large_list(pa.struct([("n", pa.float32())])),
    }  # fmt: skip
    others = [
        {"text": "ä", "small": 255, "large": -1, "number": 1 << 53, "price": Decimal("1.5000"), "at": BEGIN,
         "day": date(2026, 1, 1), "lines": [{"n": 0.5}]},
        {},
    ]  # fmt: skip
    returned = {name: pa.array([other.get(name) for other in others], of) for name, of in wide.items()}
    values, reasons = values_by(returning(returned), batch.slice(0, 2), value_type)
    assert reasons.null_count == 2
    assert values.to_pylist() == pa.array(
        [{**others[0], "lines": [{"sku": None, "n": 0.5}]}, {}], value_type
    ).to_pylist()  # fmt: skip


@pytest.mark.parametrize(
    ("field", "column", "reason"),
    [
        ("number", pa.array([1.0, math.nan]), "nan as number, which is no number"),
        ("number", pa.array([1.0, -math.inf]), "-inf as number, which is no number"),
        ("number", pa.array([1, (1 << 53) + 1]), f"a number of another type than its schema: {(1 << 53) + 1}"),
        ("small", pa.array([1, 1 << 31]), f"a small of another type than its schema: {1 << 31}"),
        ("large", pa.array([1, 1 << 63], pa.uint64()), f"a large of another type than its schema: {1 << 63}"),
        (
            "price",
            pa.array([Decimal("1.500"), Decimal("1.555")]),
            "a price of another type than its schema: Decimal('1.555')",
        ),
        (
            "lines",
            pa.array([[{"n": 1.0}], [{"n": 0.0}, {"n": math.inf}]]),
            "inf as lines[1].n, which is no number",
        ),
    ],
)
def test_a_single_value_that_does_not_fit_rejects_its_record_alone(field: str, column: Any, reason: str) -> None:
    batch = batch_of(("a", 1, 1.0), ("b", 2, 2.0))
    made = returning({field: column})
    values, reasons = values_by(made, batch, struct_type(ALL.fields))
    assert reasons.to_pylist() == [None, f"{made.name} returned {reason}"]
    assert values[0][field].as_py() is not None
    with pytest.raises(Unfit):
        values_by(PythonFunction(made.name, made.call, STOP, of_batches=True), batch, struct_type(ALL.fields))


def test_a_moment_beyond_the_years_rejects_its_record() -> None:
    made = returning({"at": pa.array([0, 1 << 62]).cast(pa.timestamp("us", tz="UTC"))})
    _, reasons = values_by(made, batch_of(("a", 1, 1.0), ("b", 2, 2.0)), struct_type({"at": "timestamp"}))
    first, second = reasons.to_pylist()
    assert first is None
    assert second.startswith(f"{made.name} returned a at that is no value of its type")


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ({"risk": [0.5]}, "expected a column risk with one value for each of 2 records, observed 1 values"),
        ({"risk": ["a", "b"]}, "expected double, observed a column risk of type string"),
        ({"risk": 0.5}, "expected a column risk for each record, observed float"),
        ({"risk": pa.scalar(0.5)}, "expected a column risk for each record, observed DoubleScalar"),
        ({"other": [1, 2]}, "returned the field other, which its schema does not have"),
        (None, "expected columns named risk, at, lines, observed None"),
        (RISKS, "returned DoubleArray, and not a mapping of fields"),
        ({"at": pa.array([BEGIN.replace(tzinfo=None)] * 2)}, "observed a column at of type timestamp[us]"),
        ({"lines": [[{"other": 1}], []]}, "observed a column lines of type list<"),
    ],
    ids=lambda given: str(given)[:30] if isinstance(given, str) else None,
)
def test_what_is_wrong_with_all_values_stops_the_application(returned: Any, message: str) -> None:
    fields = struct_type({"risk": "double", "at": "timestamp", "lines": "array<struct<n: int>>"})
    with pytest.raises(Refused) as refused:
        values_by(returning(returned), batch_of(("a", 1, 1.0), ("b", 2, 2.0)), fields)
    assert message in str(refused.value)
    assert function_name(returning).partition(".returning")[0] in str(refused.value)


def test_a_filter_passes_the_records_with_true() -> None:
    batch = batch_of(("a", 1, 1.0), ("b", 2, 2.0), ("c", None, 0.0), ("d", 4, 0.0), rejected=frozenset({1}))
    passes, reasons = conditions_by(
        function(arrow_batch(lambda orders: pc.greater(orders["amount"], 1))), batch
    )  # the rejected one is not asked for
    assert passes.to_pylist() == [False, None, False, True]
    assert reasons.to_pylist() == [None, "no JSON", None, None]
    for returned, message in (
        ([True], "observed 1 values"),
        ([1, 0, 1], "expected booleans, observed a column of type int64"),
        (True, "expected a column of booleans for each record, observed bool"),
    ):
        with pytest.raises(Refused) as refused:
            conditions_by(returning(returned), batch)
        assert message in str(refused.value)


def test_a_function_is_given_the_columns_of_the_value_and_the_record_and_never_no_record() -> None:
    seen = []

    @arrow_batch
    def look(orders: pa.RecordBatch) -> Any:
        seen.append(orders)
        return {}

    batch = batch_of(("a", 1, 1.0), ("b", 2, 2.0), rejected=frozenset({0}))
    values_by(function(look), batch, struct_type({"risk": "double"}))
    (given,) = seen
    record = {"key": "k1", "timestamp": BEGIN + timedelta(seconds=1), "topic": "orders", "partition": 0, "offset": 1}
    assert given.to_pylist() == [{"id": "b", "amount": 2, "weight": 2.0, "record": record}]
    values_by(function(look), batch.slice(0, 1), struct_type({"risk": "double"}))
    values_by(function(look), batch.slice(0, 0), struct_type({"risk": "double"}))
    assert len(seen) == 1


def test_on_error_stop_raises_what_the_function_raises() -> None:
    batch = batch_of(("a", 0, 1.0), ("b", 2, 2.0))
    with pytest.raises(pa.ArrowInvalid, match="divide by zero"):
        values_by(function(units_of, STOP), batch, struct_type({"unit": "double", "seen": "string"}))


def spoilt_text(error: type[BaseException] = ValueError) -> BaseException:
    """An exception without a text."""

    def told(_: object) -> str:
        raise error("no text")

    return type("Spoilt", (Exception,), {"__str__": told, "__repr__": told})()


EVIL = {
    "surrogate": ValueError("a\ud800"),
    "nul": ValueError("a\0b"),
    "long": ValueError("x" * 1_500_000),
    "compressible": ValueError("x" * 5_000_000),
    "spoilt": spoilt_text(),
    "exits as it is told": spoilt_text(SystemExit),
    "exit": SystemExit(3),
    "panic": type("PanicException", (BaseException,), {})("a panic in Rust"),
    "cause": ValueError("by another"),
}
EVIL["cause"].__cause__ = ValueError("\ud800")


def raises(error: BaseException) -> tuple[PythonFunction, PythonFunction]:
    """A function of a record, and one of a batch. Both raise for the second record of :func:`batch_of`."""

    def of_record(order: Any) -> dict[str, Any]:
        if order.amount == 0:
            raise error
        return {"unit": order.weight}

    @arrow_batch
    def of_batch(orders: pa.RecordBatch) -> dict[str, Any]:
        if 0 in orders["amount"].to_pylist():
            raise error
        return {"unit": orders["weight"]}

    return function(of_record), function(of_batch)


@pytest.mark.parametrize("name", EVIL)
def test_whatever_a_function_raises_is_a_reason_that_can_be_written(name: str) -> None:
    batch = batch_of(("a", 2, 1.0), ("b", 0, 2.0), ("c", 2, 3.0))
    of_record, of_batch = raises(EVIL[name])
    (made,) = mapped_batches(of_record, {"unit": "double"})(iter([batch]))
    reasons = {"record": made["record"].field("reason"), "batch": values_by(of_batch, batch, UNIT).reasons}
    for told in reasons.values():
        assert [reason is None for reason in told.to_pylist()] == [True, False, True]
        assert type(EVIL[name]).__name__ in told[1].as_py()
        assert len(told[1].as_py().encode()) < 5_000
        assert "\0" not in told[1].as_py()


@pytest.mark.parametrize("name", EVIL)
def test_on_error_stop_raises_what_a_worker_can_send_to_the_driver(name: str) -> None:
    """PySpark sends the traceback in UTF-8, and a worker that raises no Exception ends without a word."""
    for call in (each.call for each in raises(EVIL[name])):
        with pytest.raises(Exception) as raised:  # noqa: PT011 - any, but no other BaseException
            [*mapped_batches(function(call, STOP), {"unit": "double"})(iter([batch_of(("b", 0, 2.0))]))]
        told = "".join(traceback.format_exception(raised.value))
        assert len(told.encode()) < 70_000
        assert type(EVIL[name]).__name__ in told


def test_a_person_may_interrupt_a_function() -> None:
    for made in raises(KeyboardInterrupt()):
        with pytest.raises(KeyboardInterrupt):
            [*mapped_batches(made, {"unit": "double"})(iter([batch_of(("b", 0, 2.0))]))]


@pytest.mark.parametrize(
    "returned",
    [{"unit": "\ud800"}, {"unit": "x" * 2_000_000}, {"unit": spoilt_text()}, {"\ud800": 1}, {spoilt_text(): 1}],
)
def test_a_reason_that_quotes_what_was_returned_can_be_written(returned: Any) -> None:
    (made,) = mapped_batches(function(lambda order: returned), {"unit": "double"})(iter([batch_of(("b", 0, 2.0))]))
    (reason,) = made["record"].field("reason").to_pylist()
    assert reason is not None
    assert len(reason.encode()) < 5_000


DECIMALS = [
    *("1e-400000000", "1e400000000", "1e-41", "1e-77", "123456789012345678901234567890", "NaN", "-Infinity", "sNaN"),
    *("0", "-0", "0e-900", "1.50", "1e2", "12345678901234567890.5", "1.123456789012345678", "1.1234567890123456789"),
]


@pytest.mark.parametrize("of_type", ["decimal(10,2)", "decimal(38,18)", "decimal(38,0)"])
@pytest.mark.parametrize("form", [list, tuple, lambda items: np.array(items, object)], ids=["list", "tuple", "numpy"])
def test_a_decimal_that_a_function_returns_is_exact_or_rejects_its_record_alone(of_type: str, form: Any) -> None:
    precision, scale = map(int, of_type[8:-1].split(","))
    for text in DECIMALS:
        number = Decimal(text)
        exact = number.is_finite() and (not number or abs(number.adjusted()) < 100) and Fraction(text) * 10**scale
        fits = exact is not False and Fraction(exact).denominator == 1 and abs(exact) < 10**precision
        orders = batch_of(("a", 1, 1.0), ("b", 2, 1.0))
        made = values_by(returning({"d": form([Decimal(1), number])}), orders, struct_type({"d": of_type}))
        assert made.values[0].as_py() == {"d": 1}
        assert made.reasons.is_valid().to_pylist() == [False, not fits], text
        if fits:
            assert Fraction(made.values[1].as_py()["d"]) == Fraction(text)
        if not fits:
            with pytest.raises(Unfit, match="returned a d of another type than its schema: "):
                parts_of({"d": number}, struct_type({"d": of_type}), "")
        else:
            alone = parts_of({"d": number}, struct_type({"d": of_type}), "")
            assert pa.array([alone], struct_type({"d": of_type})).to_pylist() == made.values.to_pylist()[1:]


def test_a_column_of_decimals_is_not_cast_where_arrow_would_make_other_numbers() -> None:
    number = Decimal("123456789012345678901234567890")
    for column in (pa.array([number, Decimal(7)]), pa.array([[number], [Decimal(7)]])):
        of_type = "array<decimal(38,18)>" if pa.types.is_list(column.type) else "decimal(38,18)"
        orders = batch_of(("a", 1, 1.0), ("b", 2, 1.0))
        made = values_by(returning({"d": column}), orders, struct_type({"d": of_type}))
        assert made.reasons.is_valid().to_pylist() == [True, False]
        assert made.values[1].as_py()["d"] in (Decimal(7), [Decimal(7)])


@pytest.mark.parametrize(
    ("of_type", "result"),
    [
        ("timestamp", datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))),
        ("timestamp", datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-14)))),
        ("map<string, int>", {"\ud800": 1}),
        ("string", "\ud800"),
        ("string", b"\xff"),
    ],
)
def test_what_arrow_could_not_hold_or_give_back_rejects_its_record(of_type: str, result: Any) -> None:
    with pytest.raises(Unfit, match="returned a f of another type than its schema: "):
        parts_of({"f": result}, struct_type({"f": of_type}), "")


@pytest.mark.parametrize(
    ("of_type", "sound", "unfit"),
    [("string", "a", "\ud800"), ("bigint", 1, 1 << 63), ("bigint", 1, 1 << 200), ("array<string>", ["a"], ["\udfff"])],
)
@pytest.mark.parametrize("listed", [list, tuple, lambda items: np.array([*items, None], dtype=object)[:-1]])
def test_one_item_of_a_list_that_arrow_refuses_rejects_its_record_alone(
    of_type: str, sound: Any, unfit: Any, listed: Any
) -> None:
    batch = batch_of(("a", 1, 1.0), ("b", 2, 2.0), ("c", 3, 3.0))
    made = values_by(returning({"f": listed([sound, unfit, sound])}), batch, struct_type({"f": of_type}))
    first, reason, last = made.reasons.to_pylist()
    assert (first, last) == (None, None)
    assert "returned a f" in reason
    assert [value and value["f"] for value in made.values.to_pylist()] == [sound, None, sound]
