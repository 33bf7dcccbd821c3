"""Spark's types in the words of the serdes, and values in the form in which a state variable has them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as spark_types

from streamplan.serdes import field_types as declared
from streamplan.serdes.schema_values import microseconds_of

_SCALARS: Mapping[type[spark_types.DataType], str] = {
    spark_types.StringType: "string",
    spark_types.IntegerType: "int",
    spark_types.LongType: "bigint",
    spark_types.DoubleType: "double",
    spark_types.BooleanType: "boolean",
    spark_types.TimestampType: "timestamp",
    spark_types.DateType: "date",
}


def declared_type(data_type: spark_types.DataType) -> declared.FieldType:
    """Return a type in the words of the serdes. One that they do not have is a scalar with the name that Spark gives.

    Args:
        data_type: Spark's type.
    """
    match data_type:
        case spark_types.DecimalType():
            return declared.DecimalType(data_type.precision, data_type.scale)
        case spark_types.StructType():
            return declared.StructType(tuple((field.name, declared_type(field.dataType)) for field in data_type.fields))
        case spark_types.ArrayType():
            return declared.ArrayType(declared_type(data_type.elementType))
        case spark_types.MapType(keyType=spark_types.StringType()):
            return declared.MapType(declared_type(data_type.valueType))
    return declared.Scalar(_SCALARS.get(type(data_type), data_type.simpleString()))


def declared_fields(data: DataFrame) -> dict[str, declared.FieldType]:
    """Return the columns of a DataFrame with their types, without the column ``record``."""
    return {field.name: declared_type(field.dataType) for field in data.schema.fields if field.name != "record"}


def unreadable_types(field_type: declared.FieldType) -> Iterator[str]:
    """Yield the parts of a type that no serde reads."""
    for leaf in declared.leaves(field_type):
        if isinstance(leaf, declared.Scalar) and leaf.name not in declared.SCALAR_TYPES:
            yield leaf.name


def as_state(column: Column, field_type: declared.FieldType) -> Column:
    """Return a column in the form in which a state variable and Python's workers have it.

    A timestamp is the microseconds since the epoch: Python's workers are given it in their local time, of which an hour
    a year is ambiguous. A name that Avro does not have is replaced: Spark describes state variables in Avro's words.

    Args:
        column: A column of values.
        field_type: Their type.
    """
    return _converted(column, field_type, _TO_STATE)


def from_state(column: Column, field_type: declared.FieldType) -> Column:
    """Return a column as it was before :func:`as_state`.

    Args:
        column: What :func:`as_state` gave.
        field_type: The type that it had.
    """
    return _converted(column, field_type, _FROM_STATE)


def in_state(value: Any, field_type: declared.FieldType) -> Any:
    """Return a Python value in the form that :func:`as_state` gives a column.

    Args:
        value: The value, with dictionaries for structs and maps.
        field_type: Its type.
    """
    if value is None or not _differs_in_state(field_type):
        return value
    match field_type:
        case declared.StructType(fields=fields):
            return {state_name(name, place): in_state(value[name], part) for place, (name, part) in enumerate(fields)}
        case declared.ArrayType(element=part):
            return [in_state(each, part) for each in value]
        case declared.MapType(value=part):
            return {key: in_state(each, part) for key, each in value.items()}
    return microseconds_of(value)


def state_name(name: str, place: int) -> str:
    """Return the name of a field of a struct in a state variable.

    Args:
        name: Its name.
        place: Its place among the fields of the struct.
    """
    return name if _AVRO_NAME.fullmatch(name) else f"__{place}"


@dataclass(frozen=True)
class _Direction:
    """What :func:`as_state` and :func:`from_state` do with a timestamp, and with the two names of a field."""

    timestamps: Callable[[Column], Column]
    names: Callable[[str, str], tuple[str, str]]


_AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_TO_STATE = _Direction(F.unix_micros, lambda name, of_state: (name, of_state))
_FROM_STATE = _Direction(F.timestamp_micros, lambda name, of_state: (of_state, name))


def _converted(column: Column, field_type: declared.FieldType, direction: _Direction) -> Column:
    if not _differs_in_state(field_type):
        return column
    match field_type:
        case declared.StructType(fields=fields):
            parts = []
            for place, (name, part) in enumerate(fields):
                before, after = direction.names(name, state_name(name, place))
                parts.append(_converted(column.getField(before), part, direction).alias(after))
            return F.when(column.isNotNull(), F.struct(*parts))
        case declared.ArrayType(element=part):
            return F.transform(column, lambda element: _converted(element, part, direction))
        case declared.MapType(value=part):
            return F.transform_values(column, lambda _, value: _converted(value, part, direction))
    return direction.timestamps(column)


def _differs_in_state(field_type: declared.FieldType) -> bool:
    match field_type:
        case declared.StructType(fields=fields):
            return any(state_name(name, 0) != name or _differs_in_state(part) for name, part in fields)
        case declared.ArrayType(element=part) | declared.MapType(value=part):
            return _differs_in_state(part)
    return field_type == declared.TIMESTAMP
