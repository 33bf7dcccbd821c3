"""Python functions on Arrow batches: called with the records of a batch, they give one result for each record.

A result is judged as that of a function of one record: a record for which the function raises, or gives a number that
is none, is rejected with the reason. What is wrong with all results together is a mistake of the function, and stops
the application.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from streamplan.errors import Refused
from streamplan.model.functions import STOP, PythonFunction
from streamplan.serdes.reason import text_of
from streamplan.spark.planning.function_results import (
    NOT_OF_A_FUNCTION,
    Unfit,
    fields_of,
    parts_of,
    reason_of,
    rejected_by,
)

RECORD = ("key", "timestamp", "topic", "partition", "offset", "window")
"""The parts of ``record`` that a function sees. Only after a windowed aggregate there is a window."""

_MOMENT = pa.timestamp("us", tz="UTC")
_FIRST = datetime(1, 1, 1, tzinfo=UTC)
_LAST = datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)


class Results(NamedTuple):
    """What a function has given for some records.

    Attributes:
        values: One for each record; null for a rejected one.
        reasons: A string array: why a record is rejected, and null where it is not.
    """

    values: pa.Array
    reasons: pa.Array


_Judge: TypeAlias = Callable[[Any, int], Results]
"""Reads what a function has returned for so many records."""


def conditions_by(function: PythonFunction, batch: pa.RecordBatch) -> Results:
    """Call a function that says which records pass.

    Args:
        function: Is given the columns of the value, and ``record``. It returns a column of booleans.
        batch: The records, with the struct ``record``.

    Returns:
        Booleans, false also where the function has given null.

    Raises:
        Refused: The function has returned something else, or another number of them.
    """

    def judge(returned: Any, rows: int) -> Results:
        passes = _column(function, returned, rows, "a column of booleans")
        if not _fits(passes.type, pa.bool_()):
            raise _refused(function, f"a column of type {passes.type}", "booleans")
        return Results(passes.cast(pa.bool_()).fill_null(False), pa.nulls(rows, pa.string()))

    return _called_with_accepted(function, batch, judge, pa.bool_())


def values_by(function: PythonFunction, batch: pa.RecordBatch, value_type: pa.StructType) -> Results:
    """Call a function that gives each record a value.

    Args:
        function: Is given the columns of the value, and ``record``. It returns columns by the names of their fields: a
            mapping, a dataclass, a named tuple, a record batch or a struct array.
        batch: The records, with the struct ``record``.
        value_type: The fields of the values and their types.

    Returns:
        Values of this type. A field that the function has not returned is null.

    Raises:
        Refused: The function has returned something else, columns of another length or type, or one that
            ``value_type`` does not have.
    """

    def judge(returned: Any, rows: int) -> Results:
        columns = {
            name: _column_or_items(function, column, rows, name, value_type.field(name).type)
            for name, column in _columns(function, returned, value_type.names).items()
        }
        for name, column in columns.items():
            expected = value_type.field(name).type
            if isinstance(column, pa.Array) and not _fits(column.type, expected):
                raise _refused(function, f"a column {name} of type {column.type}", f"{expected}")
        return _exact(columns, rows, value_type) or _judged_one_by_one(function, columns, rows, value_type)

    return _called_with_accepted(function, batch, judge, value_type)


def _called_with_accepted(
    function: PythonFunction, batch: pa.RecordBatch, judge: _Judge, result_type: pa.DataType
) -> Results:
    """Call a function with the records of a batch that are not rejected yet."""
    position = batch.schema.get_field_index("record")
    records = batch.column(position)
    parts = {name: pc.struct_field(records, name) for name in RECORD if records.type.get_field_index(name) >= 0}
    given = batch.set_column(position, "record", pa.StructArray.from_arrays([*parts.values()], names=[*parts]))
    reasons = pc.struct_field(records, "reason")
    accepted = pc.is_null(reasons)
    all_accepted = reasons.null_count == len(reasons)
    made = [*_called(function, given if all_accepted else given.filter(accepted), judge, result_type)]
    values = pa.concat_arrays([pa.array([], result_type), *(results.values for results in made)])
    new_reasons = pa.concat_arrays([pa.array([], pa.string()), *(results.reasons for results in made)])
    if function.on_error == STOP and new_reasons.null_count < len(new_reasons):
        raise Unfit(new_reasons.drop_null()[0].as_py())
    if all_accepted:
        return Results(values, new_reasons)
    number = pc.subtract(pc.cumulative_sum(accepted.cast(pa.int64())), 1)  # among those that were accepted
    places = pc.if_else(accepted, number, pa.scalar(None, pa.int64()))
    return Results(values.take(places), pc.coalesce(reasons, new_reasons.take(places)))


def _called(
    function: PythonFunction, given: pa.RecordBatch, judge: _Judge, result_type: pa.DataType
) -> Iterator[Results]:
    """Call a function with records, and where it raises with each half of them, down to single records."""
    rows = given.num_rows
    if rows == 0:
        return
    try:
        returned = function.call(given)
    except BaseException as error:  # whatever a function of a declaration raises is the record's reason
        if isinstance(error, NOT_OF_A_FUNCTION):
            raise
        reason = rejected_by(function.name, function.call, error, function.on_error)
        if rows == 1:
            yield Results(pa.nulls(1, result_type), pa.array([reason], pa.string()))
            return
        for half in (given.slice(0, rows // 2), given.slice(rows // 2)):
            yield from _called(function, half, judge, result_type)
        return
    yield judge(returned, rows)


def _columns(function: PythonFunction, returned: Any, names: Sequence[str]) -> Mapping[str, Any]:
    """The columns that a function has returned, by their names."""
    if isinstance(returned, pa.ChunkedArray):
        returned = returned.combine_chunks()
    if isinstance(returned, pa.StructArray):
        returned = dict(zip([field.name for field in returned.type], returned.flatten(), strict=True))
    elif isinstance(returned, pa.RecordBatch | pa.Table):
        returned = dict(zip(returned.schema.names, returned.columns, strict=True))
    try:
        columns = fields_of(returned, names)
    except Unfit as error:
        raise Refused(f"{function.name} {error}", remedy=_REMEDY) from error
    if columns is None:
        raise _refused(function, "None", f"columns named {', '.join(names)}")
    return columns


def _column(function: PythonFunction, returned: Any, rows: int, expected: str) -> pa.Array:
    """A returned column as an Arrow array: one of Arrow, of NumPy, or a list."""
    try:
        column = returned if isinstance(returned, pa.Array | pa.ChunkedArray) else pa.array(returned)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise _refused(function, f"{type(returned).__name__}", f"{expected} for each record") from error
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if len(column) != rows:
        raise _refused(function, f"{len(column)} values", f"{expected} with one value for each of {rows} records")
    return column


def _column_or_items(
    function: PythonFunction, returned: Any, rows: int, name: str, declared: pa.DataType
) -> pa.Array | list[Any]:
    """A returned column as :func:`_column` gives it; a list as it is where one item can make Arrow refuse it whole.

    Such an item is a decimal or an integer beyond those of Arrow, or a text that is not Unicode.
    """
    is_list = isinstance(returned, list | tuple) or str(getattr(returned, "dtype", "")) == "object"
    items = list(returned) if is_list and len(returned) == rows else []
    if _has(pa.types.is_decimal, declared) and _has_decimal(items):
        return items
    try:
        return _column(function, returned, rows, f"a column {name}")
    except Refused as error:
        if items and isinstance(error.__cause__, UnicodeEncodeError | OverflowError):
            return items
        raise


def _has_decimal(item: Any) -> bool:
    if isinstance(item, Mapping):
        return any(map(_has_decimal, item.values()))
    return isinstance(item, Decimal) or (isinstance(item, list | tuple) and any(map(_has_decimal, item)))


def _exact(columns: Mapping[str, pa.Array | list[Any]], rows: int, value_type: pa.StructType) -> Results | None:
    """The values of columns each of which is of its type with all values; None where a record may be rejected."""
    exact = []
    for field in value_type:
        column = columns.get(field.name)
        if column is None:
            exact.append(pa.nulls(rows, field.type))
            continue
        if isinstance(column, list) or not _casts_exactly(column.type, field.type):
            return None
        try:
            exact.append(column if column.type.equals(field.type) else column.cast(field.type))
        except pa.ArrowException:
            return None
        if not _is_sound(exact[-1]):
            return None
    return Results(pa.StructArray.from_arrays(exact, fields=list(value_type)), pa.nulls(rows, pa.string()))


def _judged_one_by_one(
    function: PythonFunction, columns: Mapping[str, pa.Array | list[Any]], rows: int, value_type: pa.StructType
) -> Results:
    """The values as :func:`parts_of` judges each."""
    values: list[dict[str, Any] | None] = []
    reasons: list[str | None] = []
    for row in range(rows):
        try:
            values.append(
                parts_of({name: _item(name, column[row]) for name, column in columns.items()}, value_type, "")
            )
            reasons.append(None)
        except Unfit as error:
            values.append(None)
            reasons.append(reason_of(function.name, function.call, error))
    return Results(pa.array(values, value_type), pa.array(reasons, pa.string()))


def _item(name: str, scalar: Any) -> Any:
    if not isinstance(scalar, pa.Scalar):
        return scalar
    try:
        return scalar.as_py(maps_as_pydicts="strict")
    except (pa.ArrowException, TypeError, ValueError, OverflowError, KeyError) as error:
        raise Unfit(f"returned a {name} that is no value of its type: {text_of(error)}") from error


def _has(is_wanted: Callable[[pa.DataType], bool], data_type: pa.DataType) -> bool:
    """Whether a type, or a part of it, is of a kind."""
    parts = (data_type.field(place).type for place in range(data_type.num_fields))
    return is_wanted(data_type) or any(_has(is_wanted, part) for part in parts)


def _casts_exactly(made: pa.DataType, declared: pa.DataType) -> bool:
    """Whether Arrow's cast of decimals cannot overflow: the digits before the point all have a place."""
    if made.equals(declared):
        return True
    if pa.types.is_decimal(made) and pa.types.is_decimal(declared):
        return bool(made.precision - made.scale <= declared.precision - declared.scale)
    if pa.types.is_struct(declared) and pa.types.is_struct(made):
        return all(_casts_exactly(part.type, declared.field(part.name).type) for part in made)
    return not _has(pa.types.is_decimal, declared) or (
        made.num_fields == 0
        or _casts_exactly(made.field(made.num_fields - 1).type, declared.field(declared.num_fields - 1).type)
    )


def _is_sound(array: pa.Array) -> bool:
    """Whether no number is NaN or infinite, and no moment out of the years that there are. A map is not judged."""
    of = array.type
    if pa.types.is_struct(of):
        return all(_is_sound(part) for part in array.flatten())
    if pa.types.is_list(of):
        return _is_sound(array.flatten())
    if pa.types.is_map(of):
        return False
    if pa.types.is_floating(of):
        return not pc.any(pc.invert(pc.is_finite(array))).as_py()
    if pa.types.is_timestamp(of) or pa.types.is_date(of):
        first, last = (pa.scalar(moment, _MOMENT).cast(of) for moment in (_FIRST, _LAST))
        return not pc.any(pc.or_(pc.less(array, first), pc.greater(array, last))).as_py()
    return True


def _fits(made: pa.DataType, declared: pa.DataType) -> bool:
    """Whether a column of a type can have values of the declared type."""
    if pa.types.is_null(made) or made.equals(declared):
        return True
    types = pa.types
    if types.is_struct(declared):
        return types.is_struct(made) and all(
            declared.get_field_index(part.name) >= 0 and _fits(part.type, declared.field(part.name).type)
            for part in made
        )
    if types.is_list(declared):
        is_list = types.is_list(made) or types.is_large_list(made) or types.is_fixed_size_list(made)
        return is_list and _fits(made.value_type, declared.value_type)
    if types.is_map(declared):
        return types.is_map(made) and types.is_string(made.key_type) and _fits(made.item_type, declared.item_type)
    if types.is_floating(declared):
        return bool(types.is_floating(made) or types.is_integer(made))
    if types.is_decimal(declared):
        return bool(types.is_decimal(made) or types.is_integer(made))
    if types.is_timestamp(declared):
        return types.is_timestamp(made) and made.tz is not None  # without a zone it is no moment
    if types.is_date(declared):
        return bool(types.is_date(made))
    if types.is_string(declared):
        return bool(types.is_large_string(made))
    return bool(types.is_integer(declared) and types.is_integer(made))


_REMEDY = "A function of an Arrow batch gives one result for each record, in the types of its schema."


def _refused(function: PythonFunction, observed: str, expected: str) -> Refused:
    return Refused(f"what {function.name} returned", expected=expected, observed=observed, remedy=_REMEDY)
