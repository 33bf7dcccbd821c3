"""What Python functions tell of records beside their values: a new key, or whether a table keeps a value.

What a function returns is put into ``record`` for the operation that uses it, which goes on as with an expression. A
record for which the function fails is rejected, as in :mod:`streamplan.spark.planning.python_functions`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamplan.model.functions import STOP, PythonFunction
from streamplan.model.operations import TableFilter, TableKeySelect
from streamplan.serdes.arrow import struct_type
from streamplan.serdes.primitive import Bytes, KeySerde
from streamplan.serdes.reason import representation_of
from streamplan.spark.noted_records import noted
from streamplan.spark.planning.compiled_plan import map_in_arrow
from streamplan.spark.planning.field_types import declared_type
from streamplan.spark.planning.function_results import Unfit, fields_of, parts_of
from streamplan.spark.planning.python_functions import call_with_each, same_columns, with_parts
from streamplan.spark.planning.records import RecordFrame

TOLD_PART = "told"
"""The part of ``record`` that has what a function has told."""

TOLD = f"record.{TOLD_PART}"
"""The same as an expression sees it."""

_IS_CALLED = "_is_called"


def with_key_of(
    frame: RecordFrame, function: PythonFunction, serde: KeySerde, *, of_table: bool = False
) -> RecordFrame:
    """Add the key that a function returns of each record as :data:`TOLD`.

    Args:
        frame: The records.
        function: Returns the key. None stands for no key.
        serde: Its type is that of the keys.
        of_table: Whether the records are updates of a table, and the function is not called with a null value.
    """
    key_type = struct_type({TOLD_PART: serde.field_type})

    def judge(result: Any) -> Any:
        told = str(result) if isinstance(result, UUID) else result
        try:
            if isinstance(serde, Bytes) and not isinstance(told, bytes | None):
                raise Unfit("no bytes")
            key = parts_of({TOLD_PART: told}, key_type, "")
            pa.scalar(key, key_type)
        except (Unfit, pa.ArrowException, UnicodeError) as error:
            said = f"returned the key {representation_of(result)}, and {serde.name} writes {serde.field_type}"
            raise Unfit(said) from error
        return key[TOLD_PART]

    return _told_by(frame, function, serde.field_type, judge, of_table=of_table)


def without_told(frame: RecordFrame) -> RecordFrame:
    """Leave out what a function has told."""
    return frame.with_record(F.col("record").dropFields(TOLD_PART))


def filtered(frame: RecordFrame, operation: TableFilter) -> RecordFrame:
    """Return the updates of a table with null in place of the values that a filter does not keep.

    Args:
        frame: The updates.
        operation: Has a condition, or a function.
    """
    condition, negated = operation.condition, operation.negated
    if isinstance(condition, str):
        return frame.deleting(condition, negated=negated)

    def judge(result: Any) -> bool:
        if result is None or isinstance(result, bool):
            return bool(result)
        raise Unfit(f"returned {type(result).__name__}, and not True or False")

    told = _told_by(frame, condition, "boolean", judge, of_table=True)
    return without_told(told.deleting(TOLD, negated=negated))


def table_key(frame: RecordFrame, operation: TableKeySelect) -> tuple[RecordFrame, str]:
    """Return the updates of a table with the expression of their new key, which may be what a function tells.

    Args:
        frame: The updates.
        operation: Has an expression, or a function.
    """
    if isinstance(operation.key, str):
        return frame, operation.key
    return with_key_of(frame, operation.key, operation.key_serde, of_table=True), TOLD


def map_values_by(frame: RecordFrame, function: PythonFunction, fields: Mapping[str, str]) -> RecordFrame:
    """Give each value of a table the one that a function returns. A null value stays null.

    Args:
        frame: The updates of the table.
        function: Returns the value. None deletes the key.
        fields: The fields of the value and their types.
    """
    value_type, names = struct_type(fields), [*fields, "record"]

    def judge(result: Any) -> dict[str, Any] | None:
        value = fields_of(result, fields)
        return None if value is None else parts_of(value, value_type, "")

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in noted(batches):
            results, reasons, rest = _called(function, batch, judge)
            values = _at(results, rest, value_type)
            is_kept = pc.or_(pc.is_valid(values), pc.is_valid(reasons))
            value = pc.if_else(is_kept, pc.struct_field(batch.column("record"), "value"), pa.scalar(None, pa.binary()))
            records = with_parts(batch, {"reason": reasons, "value": value}).column("record")
            yield pa.RecordBatch.from_arrays([*values.flatten(), records], names=names)

    rows = _marked(frame.with_record(frame.with_original_value()), of_table=True)
    columns = [f"`{name}` {field_type}" for name, field_type in fields.items()]
    schema = ", ".join([*columns, f"record {declared_type(rows.schema['record'].dataType)}"])
    made = replace(frame, data=map_in_arrow(rows, run, schema), value_is_raw=False, serde=None, format=None)
    return replace(made, no_rejects=frame.no_rejects and function.on_error == STOP)


def _told_by(
    frame: RecordFrame,
    function: PythonFunction,
    field_type: str,
    judge: Callable[[Any], Any],
    *,
    of_table: bool,
) -> RecordFrame:
    told_type = struct_type({TOLD_PART: field_type}).field(TOLD_PART).type
    frame = frame.with_record(F.col("record").withField(TOLD_PART, F.lit(None).cast(field_type)))

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in noted(batches):
            results, reasons, rest = _called(function, batch, judge)
            told = with_parts(batch, {"reason": reasons, TOLD_PART: _at(results, rest, told_type)})
            yield told.drop_columns([_IS_CALLED])

    data = map_in_arrow(_marked(frame, of_table=of_table), run, same_columns(frame))
    return replace(frame, data=data, no_rejects=frame.no_rejects and function.on_error == STOP)


def _marked(frame: RecordFrame, *, of_table: bool) -> DataFrame:
    """The records with whether the function is called."""
    return frame.data.withColumn(_IS_CALLED, frame.has_value if of_table else F.lit(True))


def _called(
    function: PythonFunction, batch: pa.RecordBatch, judge: Callable[[Any], Any]
) -> tuple[list[Any], pa.Array, pa.Array]:
    """Call a function; return its results, the reasons of all records, and of each record the place of its result."""
    is_called = batch.column(_IS_CALLED)
    given = batch.drop_columns([_IS_CALLED]).filter(is_called)
    results, raised = call_with_each(function, given, judge)
    places = pc.subtract(pc.cumulative_sum(is_called.cast(pa.int64())), 1)
    places = pc.if_else(is_called, places, pa.scalar(None, pa.int64()))
    before = pc.struct_field(batch.column("record"), "reason")
    return results, pc.coalesce(before, _at(raised, places, pa.string())), places


def _at(results: list[Any], places: pa.Array, data_type: pa.DataType) -> pa.Array:
    """The results of records by their places. Some records have none."""
    return pa.array(results, data_type).take(places)
