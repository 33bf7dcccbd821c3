"""A value that Spark holds and Python does not rejects its record, and the records beside it are processed."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from streamplan.model.functions import STOP, PythonFunction
from streamplan.model.processor import KeyValueStore, Processor, Record
from streamplan.serdes.arrow import python_values
from streamplan.serdes.json import Json
from streamplan.spark.planning.function_results import Unfit
from streamplan.spark.planning.python_functions import mapped_batches
from streamplan.spark.planning.written_values import HAS_VALUE, written_batches

from tests.support.process_task import Arrived, ProcessTask

MOMENT, DAY = pa.timestamp("us", tz="UTC"), pa.date32()
YEAR_10000_US, YEAR_0_US, YEAR_10000_DAYS = 253_402_300_800_000_000, -62_135_596_800_000_001, 2_932_897
RECORD = pa.struct(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("value", pa.binary()),
        ("reason", pa.string()),
    ]
)


class Case(NamedTuple):
    """A column of three values, the one in the middle of which Python does not hold."""

    of_type: str
    column: pa.Array
    sound: Any


def text_that_is_not_utf_8() -> pa.Array:
    ends = pa.array([0, 1, 2, 3], pa.int32()).buffers()[1]
    return pa.StringArray.from_buffers(3, ends, pa.py_buffer(b"a\xffa"))


def moments(middle: int) -> pa.Array:
    return pa.array([0, middle, 0], pa.int64()).cast(MOMENT)


def pairs(values: pa.Array) -> pa.Array:
    return pa.MapArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), pa.array(["k"] * 3), values)


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CASES = {
    "a moment in the year 10000": Case("timestamp", moments(YEAR_10000_US), EPOCH),
    "a moment in the year 0": Case("timestamp", moments(YEAR_0_US), EPOCH),
    "the last moment of Spark": Case("timestamp", moments((1 << 63) - 1), EPOCH),
    "a day in the year 10000": Case("date", pa.array([0, YEAR_10000_DAYS, 0], pa.int32()).cast(DAY), date(1970, 1, 1)),
    "a text that is not UTF-8": Case("string", text_that_is_not_utf_8(), "a"),
    "in a struct": Case(
        "struct<at: timestamp>", pa.StructArray.from_arrays([moments(YEAR_10000_US)], names=["at"]), {"at": EPOCH}
    ),
    "in a list": Case(
        "array<string>",
        pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), text_that_is_not_utf_8()),
        ["a"],
    ),
    "in a map": Case("map<string, timestamp>", pairs(moments(YEAR_10000_US)), {"k": EPOCH}),
}
cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def batch_of(case: Case) -> pa.RecordBatch:
    records = [
        {"topic": "t", "partition": 0, "offset": offset, "value": b"read", "reason": None} for offset in range(3)
    ]
    return pa.RecordBatch.from_arrays([case.column, pa.array(records, RECORD)], names=["f", "record"])


@cases
def test_rows_are_given_to_python_but_those_that_it_does_not_hold(case: Case) -> None:
    values, reasons = python_values(batch_of(case).select(["f"]))
    assert [values[0], values[2]] == [{"f": case.sound}] * 2
    assert [*reasons] == [1]
    assert reasons[1].startswith("f is no value in Python: ")


@cases
def test_a_function_is_not_called_with_such_a_value_and_its_record_is_rejected(case: Case) -> None:
    calls = []
    function = PythonFunction("look", lambda record: calls.append(record) or {"n": len(calls)})
    (made,) = mapped_batches(function, {"n": "int"})(iter([batch_of(case)]))
    first, reason, last = made["record"].field("reason").to_pylist()
    assert (first, last) == (None, None)
    assert reason.startswith("look cannot be called: f is no value in Python: ")
    assert made["n"].to_pylist() == [1, None, 2]


@cases
def test_a_function_that_is_to_stop_the_application_stops_it(case: Case) -> None:
    function = PythonFunction("look", lambda record: {"n": 1}, STOP)
    with pytest.raises(Unfit, match="cannot be called: f is no value in Python"):
        [*mapped_batches(function, {"n": "int"})(iter([batch_of(case)]))]


@cases
def test_such_a_value_is_not_written_and_its_record_is_rejected(case: Case) -> None:
    serde = Json(f"f {case.of_type}")
    batch = batch_of(case).append_column(HAS_VALUE, pa.array([True] * 3))
    (made,) = written_batches(serde)(iter([batch]))
    first, reason, last = made["record"].field("reason").to_pylist()
    assert (first, last) == (None, None)
    assert reason.startswith("the value cannot be written: f is no value in Python: ")
    data = made["record"].field("value").to_pylist()
    assert [serde.decode(each)["f"] for each in (data[0], data[2])] == [case.sound] * 2
    assert data[1] == b"read"


class Told(Processor):
    """Tells each moment."""

    def process(self, record: Record, store: KeyValueStore) -> Any:
        return [{"text": str(record.value.at.year)}]


@pytest.mark.parametrize("value", [b'{"at":"+10000-01-01T00:00:00.000Z"}', b'{"at":1e1}', b'{"at":"NaN"}', b"[]"])
def test_what_a_class_cannot_be_given_rejects_its_record(value: bytes) -> None:
    """Spark writes a moment beyond the year 9999, and a number that is none, as what is not read again."""
    task = ProcessTask(Told, "n int", "text string", value=Json("at timestamp"))
    sound = b'{"at":"2026-01-01T00:00:00.000Z"}'
    made = task.process(
        [Arrived("k", 1, None, 0, sound), Arrived("k", 2, None, 1, value), Arrived("k", 3, None, 2, sound)]
    )
    assert [each.value is None for each in made] == [False, True, False]
    assert made[1].reason is not None
    assert made[1].reason.startswith("Told.process cannot be called: ")


@pytest.mark.parametrize("of_field", ["int", "bigint", "double", "decimal(10,2)", "string", "timestamp", "date"])
@pytest.mark.parametrize("within", ["{}", "array<{}>", "struct<x: {}>", "map<string, {}>"])
def test_true_is_a_value_of_a_boolean_alone(of_field: str, within: str) -> None:
    """Arrow made 1.0 of it."""
    result = {"{}": True, "array<{}>": [True], "struct<x: {}>": {"x": True}, "map<string, {}>": {"x": True}}[within]
    function = PythonFunction("app.sure", lambda record: {"f": result})
    (made,) = mapped_batches(function, {"f": within.format(of_field)})(
        iter([batch_of(CASES["a moment in the year 0"])])
    )
    reason = made["record"].field("reason")[0].as_py()
    assert "of another type than its schema: True" in reason
