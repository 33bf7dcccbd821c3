"""What Python functions return: a value passes exactly, or is refused. The partner is plain Python."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any

import pyarrow as pa
from streamplan.model.functions import PythonFunction, arrow_batch
from streamplan.serdes.arrow import struct_type
from streamplan.serdes.field_types import DecimalType, FieldType, Scalar, StructType, parse_type
from streamplan.spark.planning.arrow_batches import values_by
from streamplan.spark.planning.function_results import Unfit, parts_of

from tests.fuzz.bytes_and_values import value_of
from tests.fuzz.judging import same, shown

NAME = "function-results"
TYPES = (
    *("string", "int", "bigint", "double", "boolean", "timestamp", "date", "decimal(10,2)", "decimal(38,18)"),
    *("decimal(38,0)", "decimal(38,38)", "array<decimal(38,18)>", "map<string, decimal(5,1)>"),
    "struct<d: decimal(18,6)>",
)  # fmt: skip
ODD = (
    *(Decimal(text) for text in ("1e-400000000", "1e400000000", "1e-41", "1e-77", "1e38", "NaN", "sNaN", "0e-900")),
    *(Decimal("123456789012345678901234567890"), Decimal("1.5"), Decimal("-0"), 10**40, 2**63, 2**31, True, 7),
    *(float("nan"), float("inf"), -0.0, 1.5, "\ud800", "x", b"\xff", b"x", object(), [], {}, (), None),
    *({"d": Decimal("1e-99")}, -(2**63) - 1, Decimal("-Infinity"), {1: 2}, {"\ud800": 1}),
    *(datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))), datetime(2026, 1, 1), date(2026, 1, 1)),
    [Decimal("1e-77")],
    *(datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-14))), {"a": Decimal("1e400000000")}),
)  # fmt: skip
RECORD = pa.struct([("offset", pa.int64()), ("reason", pa.string())])


def findings(random: Random) -> Iterator[str]:
    """What a function of one record returns, and the same as a column of a function of batches."""
    text = random.choice(TYPES)
    of_field, value_type = parse_type(text), struct_type({"f": text})
    results = [random.choice(ODD) if random.random() < 0.5 else value_of(random, of_field) for _ in range(6)]
    for result in results:
        try:
            parts = parts_of({"f": result}, value_type, "")
        except Unfit:
            continue
        passed = pa.array([parts], value_type).to_pylist(maps_as_pydicts="strict")[0]["f"]
        if not _is_exact(of_field, result, passed):
            yield f"{shown(result)} passes as {shown(passed)} of type {text}"
    if isinstance(of_field, DecimalType):
        numbers = [each for each in results if each is None or isinstance(each, Decimal)]
        yield from _column(text, numbers, value_type)


def _column(text: str, numbers: list[Any], value_type: pa.StructType) -> Iterator[str]:
    @arrow_batch
    def given(batch: pa.RecordBatch) -> Any:
        return {"f": numbers}

    records = pa.array([{"offset": row, "reason": None} for row in range(len(numbers))], RECORD)
    batch = pa.RecordBatch.from_arrays([records], names=["record"])
    made = values_by(PythonFunction("given", given, "reject", of_batches=True), batch, value_type)
    for row, number in enumerate(numbers):
        try:
            expected = parts_of({"f": number}, value_type, "")
        except Unfit:
            expected = None
        if not same(expected, made.values[row].as_py()):
            yield f"{shown(number)} is {shown(expected)} of type {text} alone, and {made.values[row]} in a column"


def _is_exact(of_field: FieldType, result: Any, passed: Any) -> bool:
    match of_field:
        case StructType(fields=fields) if isinstance(result, dict):
            return all(_is_exact(of_part, result.get(name), passed[name]) for name, of_part in fields)
        case DecimalType(scale=scale) if result is not None:
            digits_behind = -passed.as_tuple().exponent
            return bool(digits_behind == scale and Fraction(passed) == Fraction(result))
        case Scalar(name="timestamp") if result is not None:
            return bool(passed == result and passed.astimezone(UTC).year > 0)
        case Scalar(name="string" | "int" | "bigint" | "boolean" | "date"):
            return same(result, passed)
    return bool(passed == result) or passed == [*(result if isinstance(result, tuple) else ())]
