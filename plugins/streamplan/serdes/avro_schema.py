"""Avro schemas as declarations: the types of their fields, and how values of these types are checked and converted.

Avro's library reads and writes numbers, bytes and texts. Logical types are applied here, by the schema of the reader,
as Java's Avro applies them. So the library is given schemas without logical types (:func:`without_logical_types`). On
the standard library alone.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, TypeAlias

from streamplan.serdes.field_types import (
    GREATEST_PRECISION,
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

_PRIMITIVES = {
    "string": "string",
    "int": "int",
    "long": "bigint",
    "float": "double",
    "double": "double",
    "boolean": "boolean",
}
_UNREAD_LOGICAL_TYPES = (
    *("time-millis", "time-micros", "timestamp-nanos", "duration"),
    *("local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos"),
)
"""Logical types of the specification that no type of a field stands for. What it does not name is ignored."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_DAY = date(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


@dataclass(frozen=True)
class RecordSchema:
    """The schema of a record.

    Attributes:
        name: Its full name.
        types: The fields and their types.
        plain: The schema without logical types, as JSON.
        read: Makes the fields of a value of what Avro's library has read. Raises :class:`Misfit`.
        write: Makes of the fields what Avro's library writes. Raises :class:`Misfit`.
    """

    name: str
    types: Mapping[str, FieldType]
    plain: Any
    read: Convert
    write: Convert


@dataclass(frozen=True)
class _Part:
    type: FieldType
    read: Convert
    write: Convert


@lru_cache(maxsize=256)
def parse_record(text: str) -> RecordSchema:
    """Read the schema of a record.

    Raises:
        ValueError: It is no schema, or a part of it has a type that no field can have. The message names the part.
    """
    schema = parse_json(text)
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise ValueError('the schema is not that of a record: {"type": "record", "name": …, "fields": […]}')
    part = _Parser().part(schema, "", "")
    assert isinstance(part.type, StructType)
    name, _ = full_name(schema, "")
    return RecordSchema(name, dict(part.type.fields), without_logical_types(schema), part.read, part.write)


def parse_json(text: str) -> Any:
    """Read the JSON of a schema.

    Raises:
        ValueError: It is no JSON.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the schema is not JSON: {error}") from error


def full_name(schema: Mapping[str, Any], namespace: str) -> tuple[str, str]:
    """Return the full name of a record, an enum or a fixed, and the namespace of what stands in it.

    Args:
        schema: Its schema.
        namespace: That of what it stands in.
    """
    name = schema.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError(f"a {schema.get('type')} without a name")
    if "." not in name:
        namespace = schema.get("namespace", namespace) or ""
        name = f"{namespace}.{name}" if namespace else name
    return name, name.rpartition(".")[0]


def without_logical_types(schema: Any) -> Any:
    """Return a schema of which Avro's library converts no value."""
    if isinstance(schema, list):
        return [without_logical_types(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {name: value for name, value in schema.items() if name != "logicalType"}
    for name in ("type", "items", "values", "fields"):
        if name in plain:
            plain[name] = without_logical_types(plain[name])
    return plain


class _Parser:
    def __init__(self) -> None:
        self._named: dict[str, _Part | None] = {}
        """By full name the types that were met; None while one is being read."""

    def part(self, schema: Any, path: str, namespace: str) -> _Part:
        if isinstance(schema, list):
            return self._union(schema, path, namespace)
        if isinstance(schema, str):
            return (
                self._primitive(schema, path)
                if schema in (*_PRIMITIVES, "bytes", "null")
                else self._named_part(schema, path, namespace)
            )
        if not isinstance(schema, dict) or "type" not in schema:
            raise ValueError(f"{_place(path)}: {schema!r} is no type of Avro")
        match schema["type"]:
            case "record":
                return self._record(schema, path, namespace)
            case "enum":
                return self._enum(schema, path, namespace)
            case "fixed":
                return self._fixed(schema, path, namespace)
            case "array":
                return _array(self.part(schema.get("items"), f"{path}[]", namespace))
            case "map":
                return _map(self.part(schema.get("values"), f"{path}[]", namespace))
            case str() as name if name in (*_PRIMITIVES, "bytes"):
                return self._logical(schema, path)
            case inner:
                return self.part(inner, path, namespace)

    def _union(self, schema: list[Any], path: str, namespace: str) -> _Part:
        others = [branch for branch in schema if branch != "null"]
        if len(others) != 1 or len(schema) > 2:
            raise ValueError(
                f'{_place(path)}: a union is a type or null, as ["null", "string"]; '
                f"there is no field type for {json.dumps(schema)}"
            )
        part = self.part(others[0], path, namespace)
        if len(schema) == 1:
            return part
        return _Part(part.type, _or_null(part.read), _or_null(part.write))

    def _primitive(self, name: str, path: str) -> _Part:
        return self._logical({"type": name}, path)

    def _logical(self, schema: Mapping[str, Any], path: str) -> _Part:
        name, logical = schema["type"], schema.get("logicalType")
        if logical in _UNREAD_LOGICAL_TYPES:
            raise ValueError(f"{_place(path)}: there is no field type for {logical}")
        match name, logical:
            case "bytes", "decimal":
                return _decimal(schema, path, None)
            case "int", "date":
                return _Part(Scalar("date"), _read_day, _write_day)
            case "long", "timestamp-millis":
                return _moment(1000)
            case "long", "timestamp-micros":
                return _moment(1)
            case (("bytes" | "null"), _):
                raise ValueError(f"{_place(path)}: there is no field type for {name}")
        field_type = Scalar(_PRIMITIVES[name])
        return _Part(field_type, _READERS[name], _WRITERS[name])

    def _named_part(self, name: str, path: str, namespace: str) -> _Part:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = full if full in self._named else name
        if found not in self._named:
            raise ValueError(
                f"{_place(path)}: {name!r} is no type of Avro, and the schema defines no type of that name"
            )
        if (part := self._named[found]) is None:
            raise ValueError(f"{_place(path)}: {name} contains itself. A field has a type that ends")
        return part

    def _record(self, schema: Mapping[str, Any], path: str, namespace: str) -> _Part:
        full, inner = full_name(schema, namespace)
        self._named[full] = None
        fields = schema.get("fields")
        if not isinstance(fields, list) or not fields:
            raise ValueError(f"{_place(path)}: the record {full} has no fields")
        parts: dict[str, _Part] = {}
        for declared in fields:
            if not isinstance(declared, dict) or not _NAME.fullmatch(str(declared.get("name", ""))):
                raise ValueError(f"{_place(path)}: the record {full} has a field without a legal name")
            name = declared["name"]
            within = f"{path}.{name}" if path else name
            if name in parts:
                raise ValueError(f"the field {within!r} is declared twice")
            if "type" not in declared:
                raise ValueError(f"{within}: a field without a type")
            parts[name] = self.part(declared["type"], within, inner)
        struct_type = StructType(tuple((name, part.type) for name, part in parts.items()))
        part = _Part(
            struct_type,
            _fields({name: part.read for name, part in parts.items()}),
            _fields({name: part.write for name, part in parts.items()}),
        )
        self._named[full] = part
        return part

    def _enum(self, schema: Mapping[str, Any], path: str, namespace: str) -> _Part:
        full, _ = full_name(schema, namespace)
        symbols = schema.get("symbols")
        if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
            raise ValueError(f"{_place(path)}: the enum {full} has no list of symbols")

        def write(value: Any) -> str:
            if value is None:
                raise Misfit(_NULL)
            if value not in symbols:
                raise Misfit(f"is {value!r}, and not one of {', '.join(symbols)}")
            return str(value)

        part = self._named[full] = _Part(Scalar("string"), _same, write)
        return part

    def _fixed(self, schema: Mapping[str, Any], path: str, namespace: str) -> _Part:
        full, _ = full_name(schema, namespace)
        if schema.get("logicalType") != "decimal" or not isinstance(schema.get("size"), int):
            kind = f"fixed with {schema['logicalType']}" if schema.get("logicalType") else "fixed"
            raise ValueError(f"{_place(path)}: there is no field type for {kind}")
        part = self._named[full] = _decimal(schema, path, schema["size"])
        return part


_NULL = "is null, and the schema has no null there"


def _place(path: str) -> str:
    return path or "the schema"


def _same(value: Any) -> Any:
    return value


def _or_null(convert: Convert) -> Convert:
    if convert is _same:
        return _same
    return lambda value: None if value is None else convert(value)


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


def _array(element: _Part) -> _Part:
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
    return _Part(ArrayType(element.type), read, each(element.write))


def _map(of_value: _Part) -> _Part:
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
    return _Part(MapType(of_value.type), read, each(of_value.write))


def _decimal(schema: Mapping[str, Any], path: str, size: int | None) -> _Part:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision:
        raise ValueError(f"{_place(path)}: a decimal has a precision, and a scale from 0 to the precision")
    if not 0 < precision <= GREATEST_PRECISION:
        raise ValueError(f"{_place(path)}: a decimal of a field has at most {GREATEST_PRECISION} digits")
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

    return _Part(field_type, read, write)


def _read_day(value: int) -> date:
    try:
        return _FIRST_DAY + timedelta(days=value)
    except OverflowError as error:
        raise Misfit("is not of type date") from error


def _write_day(value: Any) -> int:
    if value is None:
        raise Misfit(_NULL)
    return int((value - _FIRST_DAY).days)


def _moment(unit: int) -> _Part:
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

    return _Part(TIMESTAMP, read, write)


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


_READERS: Mapping[str, Convert] = {
    **dict.fromkeys(("string", "int", "long", "boolean"), _same),
    **dict.fromkeys(("float", "double"), _read_number),
}
_WRITERS: Mapping[str, Convert] = {
    "string": _writer_of((str,), "string"),
    "int": _writer_of((int,), "int", 31),
    "long": _writer_of((int,), "bigint", 63),
    "boolean": _writer_of((bool,), "boolean"),
    "float": _write_float,
    "double": _write_double,
}
