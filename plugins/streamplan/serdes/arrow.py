"""What serdes have in common when they read whole Arrow arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamplan.serdes.columns import DecodedColumn, KeyColumn
from streamplan.serdes.field_types import ArrayType, DecimalType, FieldType, MapType, StructType, parse_type
from streamplan.serdes.serde import OF_THE_DEPLOYMENT, Serde, Undecodable, missing, too_large, unexpected

_SCALAR_TYPES: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "date": pa.date32(),
    "binary": pa.binary(),
}
"""The Arrow types of :data:`streamplan.serdes.field_types.SCALAR_TYPES`, and of a value that is bytes."""


def arrow_type(field_type: FieldType) -> pa.DataType:
    """The Arrow type of a field's type, as Spark has it."""
    match field_type:
        case DecimalType(precision=precision, scale=scale):
            return pa.decimal128(precision, scale)
        case StructType(fields=fields):
            return pa.struct([(name, arrow_type(of_field)) for name, of_field in fields])
        case ArrayType(element=element):
            return pa.list_(arrow_type(element))
        case MapType(value=value):
            return pa.map_(pa.string(), arrow_type(value))
    return _SCALAR_TYPES[str(field_type)]


def struct_type(fields: Mapping[str, str]) -> pa.StructType:
    """The Arrow type of a value with these fields."""
    return pa.struct([(name, arrow_type(parse_type(text))) for name, text in fields.items()])


def binary_array(values: pa.Array | Sequence[bytes | None]) -> pa.Array:
    """The values as an Arrow array."""
    return values if isinstance(values, pa.Array) else pa.array(values, pa.binary())


def decode_each(serde: Serde, values: pa.Array) -> DecodedColumn:
    """Reads a binary array value by value: the reference, and the way of a format without a faster one."""
    decoded: list[dict[str, object] | None] = []
    rejected: dict[int, str] = {}
    for row, value in enumerate(values.to_pylist()):
        try:
            decoded.append(serde.decode(value))
        except Undecodable as error:
            decoded.append(None)
            rejected[row] = str(error)
    fields_type = struct_type(serde.fields)
    try:
        return DecodedColumn(pa.array(decoded, fields_type), rejected)
    except OF_THE_DEPLOYMENT:
        raise
    except Exception:  # noqa: BLE001  # a value is not of the type that the serde says
        for row, value in enumerate(decoded):
            try:
                pa.array([value], fields_type)
            except OF_THE_DEPLOYMENT:
                raise
            except Exception as error:  # noqa: BLE001  # the reason of this value
                decoded[row] = None
                rejected[row] = f"the value is not of its type: {unexpected(error)}"
        return DecodedColumn(pa.array(decoded, fields_type), dict(sorted(rejected.items())))


def decode_again(serde: Serde, values: pa.Array, column: pa.StructArray, rows: Sequence[int]) -> DecodedColumn:
    """``column`` with these rows, in ascending order, read anew by the reference."""
    if not rows:
        return DecodedColumn(column, {})
    again = decode_each(serde, values.take(pa.array(rows, pa.int64())))
    positions = list(range(len(column)))
    for number, row in enumerate(rows):
        positions[row] = len(column) + number
    fields = pa.concat_arrays([column, again.fields]).take(pa.array(positions, pa.int64()))
    return DecodedColumn(fields, {rows[number]: reason for number, reason in again.rejected.items()})


def numbers_of(values: pa.Array, code: str) -> pa.Array:
    """The numbers that binary values hold, none of which is null.

    Args:
        values: Binary array.
        code: The form of each value, in the words of NumPy, as ``>q``.

    Raises:
        pa.ArrowInvalid: A value has another size.
    """
    form = np.dtype(code)
    numbers = np.frombuffer(b"".join(values.cast(pa.binary(form.itemsize)).to_pylist()), form)
    return pa.array(numbers.astype(form.newbyteorder("=")))


def encode_each(serde: Serde, values: pa.StructArray) -> pa.Array:
    """Writes a struct array value by value."""
    decoded = values.to_pylist(maps_as_pydicts="strict")
    return pa.array([None if value is None else serde.encode(value) for value in decoded], pa.binary())


def python_values(batch: pa.RecordBatch) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """The rows of a batch in Python, and why a row is none there.

    Spark and Arrow hold what Python does not: moments beyond the years 1 to 9999, and text that is not UTF-8.

    Args:
        batch: Any columns.

    Returns:
        The fields of each row, and by the row the reason of one with a field that Python does not hold.
    """
    if not batch.num_columns:
        return [{} for _ in range(batch.num_rows)], {}
    try:
        return batch.to_pylist(maps_as_pydicts="strict"), {}
    except OF_THE_DEPLOYMENT:
        raise
    except Exception:  # noqa: BLE001  # whichever value it was: each is judged on its own
        values: list[dict[str, Any]] = [{} for _ in range(batch.num_rows)]
    reasons: dict[int, str] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        for row, scalar in enumerate(column):
            values[row][name] = None
            try:
                values[row][name] = scalar.as_py(maps_as_pydicts="strict")
            except OF_THE_DEPLOYMENT:
                raise
            except Exception as error:  # noqa: BLE001  # the reason of this value
                reasons.setdefault(row, f"{name} is no value in Python: {unexpected(error)}")
    return values, reasons


def key_column(serde: Serde, field: str, values: pa.Array | Sequence[bytes | None]) -> KeyColumn:
    """The keys that grouping by ``field`` gives these values; see :func:`streamplan.serdes.serde.key_of`."""
    values = binary_array(values)
    decoded = serde.decode_column(values)
    rejected = dict(decoded.rejected)
    keys = pc.struct_field(decoded.fields, field).cast(pa.string()).cast(pa.binary())
    if keys.null_count:
        rejected = {row: rejected.get(row, missing(field)) for row in true_rows(pc.is_null(keys))}
    if longest(values) + longest(keys) > serde.max_bytes:
        size = pc.add(pc.binary_length(values), pc.binary_length(keys))  # null, and so not too large, without a key
        beyond = pc.greater(size, serde.max_bytes).fill_null(False)
        rejected |= dict.fromkeys(true_rows(beyond), too_large(serde.max_bytes))
        keys = pc.if_else(beyond, pa.scalar(None, pa.binary()), keys)
    return KeyColumn(keys, rejected, decoded.fields)


def true_rows(mask: pa.Array) -> list[int]:
    """The rows in which ``mask`` is true, in ascending order."""
    rows: list[int] = pc.indices_nonzero(mask.fill_null(False)).to_pylist() if pc.any(mask).as_py() else []
    return rows


def longest(values: pa.Array) -> int:
    """The bytes of the longest value."""
    return int(pc.max(pc.binary_length(values)).as_py() or 0)
