"""Values of Avro's types: checked, and converted from what :mod:`.avro_binary` reads and to what Avro's library writes.

On the standard library alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from streamplan.serdes.field_types import (
    TIMESTAMP,
    ArrayType,
    DecimalType,
    FieldType,
    MapType,
    Scalar,
    StructType,
)
from streamplan.serdes.json_values import Misfit
from streamplan.serdes.schema_values import (
    NULL,
    Convert,
    bytes_of,
    convert_elements,
    convert_entries,
    day_of,
    days_of,
    decimal_of,
    enum_writer,
    microseconds_of,
    moment_of,
    read_number,
    same,
    unscaled_of,
    write_double,
    write_float,
    writer_of,
)


@dataclass(frozen=True)
class Part:
    """A type, and how its values are converted. Either function raises :class:`Misfit` for a value that is none of it.

    Attributes:
        type: The type of the field.
        read: Takes what :mod:`.avro_binary` has read, or the default of a field.
        write: Gives what Avro's library writes.
        plain: The schema that Avro's library writes by: without logical types and namespaces.
    """

    type: FieldType
    read: Convert
    write: Convert
    plain: Any


def or_null(part: Part, *, null_first: bool) -> Part:
    """Return a type whose values may be null.

    Args:
        part: The type.
        null_first: Whether null is the first type of the union.
    """
    plain = ["null", part.plain] if null_first else [part.plain, "null"]
    return Part(part.type, _or_null(part.read), _or_null(part.write), plain)


def _or_null(convert: Convert) -> Convert:
    if convert is same:
        return same
    return lambda value: None if value is None else convert(value)


def record_part(name: str, parts: Mapping[str, Part]) -> Part:
    """Return the type of a record with these fields.

    Args:
        name: A name that no other type of the schema has.
        parts: The fields.
    """
    fields = [{"name": each, "type": part.plain} for each, part in parts.items()]
    return Part(
        StructType(tuple((name, part.type) for name, part in parts.items())),
        _fields({name: part.read for name, part in parts.items()}),
        _fields({name: part.write for name, part in parts.items()}),
        {"type": "record", "name": name, "fields": fields},
    )


def _fields(parts: Mapping[str, Convert]) -> Convert:
    items = tuple(parts.items())

    def convert(value: Any) -> dict[str, Any]:
        if value is None:
            raise Misfit(NULL)
        found = {}
        for name, convert_part in items:
            try:
                found[name] = convert_part(value.get(name))
            except Misfit as misfit:
                misfit.path = f".{name}{misfit.path}"
                raise
        return found

    if all(convert_part is same for convert_part in parts.values()):
        return same
    return convert


def array_part(element: Part) -> Part:
    """Return the type of an array."""

    def each(convert_part: Convert) -> Convert:
        def convert(value: Any) -> list[Any]:
            if value is None:
                raise Misfit(NULL)
            return convert_elements(convert_part, value)

        return convert

    read = same if element.read is same else each(element.read)
    return Part(ArrayType(element.type), read, each(element.write), {"type": "array", "items": element.plain})


def map_part(of_value: Part) -> Part:
    """Return the type of a map."""

    def each(convert_part: Convert) -> Convert:
        def convert(value: Any) -> dict[str, Any]:
            if value is None:
                raise Misfit(NULL)
            return convert_entries(convert_part, value.items())

        return convert

    read = same if of_value.read is same else each(of_value.read)
    return Part(MapType(of_value.type), read, each(of_value.write), {"type": "map", "values": of_value.plain})


def decimal_part(name: str, precision: int, scale: int, size: int | None) -> Part:
    """Return the type of a decimal.

    Args:
        name: A name that no other type of the schema has. Bytes have none.
        precision: Its most digits.
        scale: Those behind the point.
        size: The number of its bytes; None for as many as it needs.
    """
    field_type = DecimalType(precision, scale)

    def read(value: Any) -> Decimal:
        data = value.encode("latin-1") if isinstance(value, str) else value  # the default of a field is text
        if not data:
            raise Misfit(f"is not of type {field_type}")
        return decimal_of(int.from_bytes(data, "big", signed=True), field_type)

    def write(value: Any) -> bytes:
        unscaled = unscaled_of(value, field_type)
        if size is None:
            return bytes_of(unscaled)
        try:
            return unscaled.to_bytes(size, "big", signed=True)
        except OverflowError as error:
            raise Misfit(f"is {value}, which does not fit into {size} bytes") from error

    plain = "bytes" if size is None else {"type": "fixed", "name": name, "size": size}
    return Part(field_type, read, write, plain)


def moment_part(unit: int) -> Part:
    """The type of a number of units since 1970, with the number of microseconds of a unit."""

    def read(value: int) -> datetime:
        return moment_of(value * unit)

    def write(value: Any) -> int:
        return microseconds_of(value) // unit

    return Part(TIMESTAMP, read, write, "long")


def enum_part(name: str, symbols: Sequence[str]) -> Part:
    """Return the type of an enum: one of its symbols as a text.

    Args:
        name: A name that no other type of the schema has.
        symbols: Its symbols.
    """
    plain = {"type": "enum", "name": name, "symbols": [*symbols]}
    return Part(Scalar("string"), same, enum_writer(symbols), plain)


DAY = Part(Scalar("date"), day_of, days_of, "int")

PRIMITIVES: Mapping[str, Part] = {
    "string": Part(Scalar("string"), same, writer_of((str,), "string"), "string"),
    "int": Part(Scalar("int"), same, writer_of((int,), "int", -(1 << 31), (1 << 31) - 1), "int"),
    "long": Part(Scalar("bigint"), same, writer_of((int,), "bigint", -(1 << 63), (1 << 63) - 1), "long"),
    "float": Part(Scalar("double"), read_number, write_float, "float"),
    "double": Part(Scalar("double"), read_number, write_double, "double"),
    "boolean": Part(Scalar("boolean"), same, writer_of((bool,), "boolean"), "boolean"),
}
"""By Avro's names the types without parts. ``bytes`` and ``null`` are none of a field."""
