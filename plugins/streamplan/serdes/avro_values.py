"""Values of Avro's types: checked, and converted from and to what Avro's library reads and writes.

On the standard library alone.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

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

Convert: TypeAlias = Callable[[Any], Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_DAY = date(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class Part:
    """A type, and how its values are converted. Either function raises :class:`Misfit` for a value that is none of it.

    Attributes:
        type: The type of the field.
        read: Takes what Avro's library has read.
        write: Gives what Avro's library writes.
    """

    type: FieldType
    read: Convert
    write: Convert


_NULL = "is null, and the schema has no null there"


def _same(value: Any) -> Any:
    return value


def or_null(part: Part) -> Part:
    """Return a type whose values may be null."""
    return Part(part.type, _or_null(part.read), _or_null(part.write))


def _or_null(convert: Convert) -> Convert:
    if convert is _same:
        return _same
    return lambda value: None if value is None else convert(value)


def record_part(parts: Mapping[str, Part]) -> Part:
    """Return the type of a record with these fields."""
    return Part(
        StructType(tuple((name, part.type) for name, part in parts.items())),
        _fields({name: part.read for name, part in parts.items()}),
        _fields({name: part.write for name, part in parts.items()}),
    )


def _fields(parts: Mapping[str, Convert]) -> Convert:
    items = tuple(parts.items())

    def convert(value: Any) -> dict[str, Any]:
        if value is None:
            raise Misfit(_NULL)
        found = {}
        for name, convert_part in items:
            try:
                found[name] = convert_part(value.get(name))
            except Misfit as misfit:
                misfit.path = f".{name}{misfit.path}"
                raise
        return found

    if all(convert_part is _same for convert_part in parts.values()):
        return _same
    return convert


def array_part(element: Part) -> Part:
    """Return the type of an array."""

    def each(convert_part: Convert) -> Convert:
        def convert(value: Any) -> list[Any]:
            if value is None:
                raise Misfit(_NULL)
            found: list[Any] = []
            for part in value:
                try:
                    found.append(convert_part(part))
                except Misfit as misfit:
                    misfit.path = f"[{len(found)}]{misfit.path}"
                    raise
            return found

        return convert

    read = _same if element.read is _same else each(element.read)
    return Part(ArrayType(element.type), read, each(element.write))


def map_part(of_value: Part) -> Part:
    """Return the type of a map."""

    def each(convert_part: Convert) -> Convert:
        def convert(value: Any) -> dict[str, Any]:
            if value is None:
                raise Misfit(_NULL)
            found: dict[str, Any] = {}
            for key, part in value.items():
                try:
                    found[key] = convert_part(part)
                except Misfit as misfit:
                    misfit.path = f"[{key!r}]{misfit.path}"
                    raise
            return found

        return convert

    read = _same if of_value.read is _same else each(of_value.read)
    return Part(MapType(of_value.type), read, each(of_value.write))


def decimal_part(precision: int, scale: int, size: int | None) -> Part:
    """Return the type of a decimal.

    Args:
        precision: Its most digits.
        scale: Those behind the point.
        size: The number of its bytes; None for as many as it needs.
    """
    field_type = DecimalType(precision, scale)
    limit = 10**precision

    def read(value: Any) -> Decimal:
        data = value.encode("latin-1") if isinstance(value, str) else value  # the default of a field is text
        unscaled = int.from_bytes(data, "big", signed=True)
        if not data or not -limit < unscaled < limit:
            raise Misfit(f"is not of type {field_type}")
        return Decimal(f"{unscaled}E-{scale}")

    def write(value: Any) -> bytes:
        if value is None:
            raise Misfit(_NULL)
        sign, digits, exponent = value.as_tuple()
        unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
        shift = exponent + scale
        unscaled, rest = (unscaled * 10**shift, 0) if shift >= 0 else divmod(unscaled, 10**-shift)
        if rest or not -limit < unscaled < limit:
            raise Misfit(f"is {value}, and not of type {field_type}")
        # As many bytes as java.math.BigInteger.toByteArray gives.
        length = size or (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
        try:
            data: bytes = unscaled.to_bytes(length, "big", signed=True)
        except OverflowError as error:
            raise Misfit(f"is {value}, which does not fit into {size} bytes") from error
        return data

    return Part(field_type, read, write)


def _read_day(value: int) -> date:
    try:
        return _FIRST_DAY + timedelta(days=value)
    except OverflowError as error:
        raise Misfit("is not of type date") from error


def _write_day(value: Any) -> int:
    if value is None:
        raise Misfit(_NULL)
    return int((value - _FIRST_DAY).days)


def moment_part(unit: int) -> Part:
    """The type of a number of units since 1970, each of so many microseconds."""

    def read(value: int) -> datetime:
        try:
            return _EPOCH + timedelta(microseconds=value * unit)
        except OverflowError as error:
            raise Misfit("is not of type timestamp") from error

    def write(value: Any) -> int:
        if value is None:
            raise Misfit(_NULL)
        return int((value - _EPOCH) // _MICROSECOND // unit)

    return Part(TIMESTAMP, read, write)


def _read_number(value: Any) -> float:
    if not math.isfinite(value):
        raise Misfit(f"is {value}, which is no number")
    return float(value)


def _write_float(value: Any) -> float:
    number = _write_double(value)
    try:
        struct.pack("<f", number)
    except OverflowError as error:
        raise Misfit(f"is {value}, which no float of 32 bits can be") from error
    return number


def _write_double(value: Any) -> float:
    if value is None:
        raise Misfit(_NULL)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Misfit("is not of type double")
    return _read_number(value)


def _writer_of(types: tuple[type, ...], field_type: str, bits: int = 0) -> Convert:
    def write(value: Any) -> Any:
        if value is None:
            raise Misfit(_NULL)
        if type(value) not in types or (bits and not -(1 << bits) <= value < 1 << bits):
            raise Misfit(f"is not of type {field_type}")
        return value

    return write


def enum_part(symbols: Sequence[str]) -> Part:
    """Return the type of an enum: one of its symbols as a text."""

    def write(value: Any) -> str:
        if value is None:
            raise Misfit(_NULL)
        if value not in symbols:
            raise Misfit(f"is {value!r}, and not one of {', '.join(symbols)}")
        return str(value)

    return Part(Scalar("string"), _same, write)


DAY = Part(Scalar("date"), _read_day, _write_day)

PRIMITIVES: Mapping[str, Part] = {
    "string": Part(Scalar("string"), _same, _writer_of((str,), "string")),
    "int": Part(Scalar("int"), _same, _writer_of((int,), "int", 31)),
    "long": Part(Scalar("bigint"), _same, _writer_of((int,), "bigint", 63)),
    "float": Part(Scalar("double"), _read_number, _write_float),
    "double": Part(Scalar("double"), _read_number, _write_double),
    "boolean": Part(Scalar("boolean"), _same, _writer_of((bool,), "boolean")),
}
"""By Avro's names the types without parts. ``bytes`` and ``null`` are none of a field."""
