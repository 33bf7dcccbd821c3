"""JSON Schemas as declarations: the types of their fields, and how values are written. On the standard library alone.

Drafts 4 to 2020-12 name types alike. What restricts values beside their types is left to the library that validates
them (:mod:`streamplan.serdes.json_schema`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC
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
from streamplan.serdes.json_schema_places import at_place, bundled, conjuncts
from streamplan.serdes.json_values import Misfit
from streamplan.serdes.schema_source import WrittenSchema
from streamplan.serdes.schema_values import (
    NULL,
    convert_elements,
    convert_entries,
    require_shallow,
    write_double,
    writer_of,
)

Text: TypeAlias = Callable[[Any], str]
"""Makes JSON of a value that is not null. Raises :class:`Misfit`."""

_NOT_OF_AN_OBJECT = '{}: "properties" are schemas by their names, and "required" is a list of names'

_TYPES = ("string", "integer", "number", "boolean", "object", "array", "null")


@dataclass(frozen=True)
class Part:
    """A type, and how its values are written.

    Attributes:
        type: The type of the field.
        text: Makes JSON of a value that is not null.
        nullable: Whether it may be null.
    """

    type: FieldType
    text: Text
    nullable: bool = False

    def written(self, value: Any) -> str:
        """Return a value as JSON, or raise :class:`Misfit`."""
        if value is not None:
            return self.text(value)
        if not self.nullable:
            raise Misfit(NULL)
        return "null"


@dataclass(frozen=True)
class ObjectSchema:
    """The schema of a document.

    Attributes:
        title: Its title; empty without one.
        types: The fields and their types.
        document: The schema with those that it refers to.
        write: Makes JSON of the fields. Raises :class:`Misfit`.
    """

    title: str
    types: Mapping[str, FieldType]
    document: Mapping[str, Any]
    write: Text


@lru_cache(maxsize=256)
def parse_object(written: WrittenSchema) -> ObjectSchema:
    """Read the schema of an object.

    Raises:
        ValueError: It is no schema, or a part of it has a type that no field can have. The message names the part.
    """
    document = bundled(written)
    part = _Parser(document).part(document, "", ())
    if not isinstance(part.type, StructType):
        raise ValueError('the schema is not that of an object with "properties"')
    title = document.get("title", "")
    return ObjectSchema(title if isinstance(title, str) else "", dict(part.type.fields), document, part.text)


def types_of(schema: Mapping[str, Any]) -> tuple[list[str], bool]:
    """Return the types of a schema without null, and whether it may be null.

    Raises:
        ValueError: It names a type that JSON does not have.
    """
    declared = schema.get("type")
    if declared is None:
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        declared = [_type_of_value(value) for value in values] if isinstance(values, list) else []
        if not declared and "properties" in schema:
            declared = ["object"]
    listed = declared if isinstance(declared, list) else [declared]
    if unknown := [name for name in listed if name not in _TYPES]:
        raise ValueError(f"{unknown[0]!r} is not a type of JSON Schema")
    names = dict.fromkeys(listed)
    allowed = schema.get("enum")
    nullable = "null" in names and not (isinstance(allowed, list) and None not in allowed)
    return [name for name in names if name != "null"], nullable


class _Parser:
    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document

    def part(self, schema: Any, path: str, around: tuple[str, ...]) -> Part:
        require_shallow(path)
        if not isinstance(schema, dict):
            raise ValueError(f"{_place(path)}: there is no field type for {json.dumps(schema)}")
        if (composed := self._composed(schema, path, around)) is not None:
            return composed
        if "$ref" in schema:
            return self._referenced(schema["$ref"], path, around)
        for word in ("oneOf", "anyOf"):
            if word in schema:
                try:
                    return self._one_of(schema[word], word, path, around)
                except ValueError:
                    if not isinstance(schema[word], list) or {"type", "properties"}.isdisjoint(schema):
                        raise
                    # The branches only restrict values whose type stands beside them, as by "required".
        if "allOf" in schema and "type" not in schema and "properties" not in schema:
            return self._all_of(schema["allOf"], path, around)
        try:
            names, nullable = types_of(schema)
        except ValueError as error:
            raise ValueError(f"{_place(path)}: {error}") from error
        if {*names} == {"integer", "number"}:
            names = ["number"]
        if len(names) != 1:
            raise ValueError(
                f"{_place(path)}: a field has one type, or that and null; there is no field type for "
                f"{' or '.join(names) or 'any value'}"
            )
        return replace(self._of_type(names[0], schema, path, around), nullable=nullable)

    def _referenced(self, reference: Any, path: str, around: tuple[str, ...]) -> Part:
        if reference in around or reference == "#":
            raise ValueError(f"{_place(path)}: {reference} contains itself. A field cannot have a recursive type")
        return self.part(at_place(self._document, reference, path), path, (*around, reference))

    def _composed(self, schema: Mapping[str, Any], path: str, around: tuple[str, ...]) -> Part | None:
        """The object whose properties stand in several schemas, of which all hold; None for anything else."""
        if "allOf" not in schema and ("$ref" not in schema or "properties" not in schema):
            return None
        declared = schema.get("type", "object")
        if "object" not in (declared if isinstance(declared, list) else [declared]):
            return None
        parts = [*conjuncts(self._document, schema, path, around)]
        if not any(isinstance(each.get("properties"), dict) and each["properties"] for each, _ in parts):
            return None
        properties: dict[str, list[tuple[Any, tuple[str, ...]]]] = {}
        required: list[str] = []
        nullable = []
        for each, leading in parts:
            own, demanded = each.get("properties") or {}, each.get("required") or []
            if not isinstance(own, dict) or not isinstance(demanded, list):
                raise ValueError(_NOT_OF_AN_OBJECT.format(_place(path)))
            for name, of_property in own.items():
                properties.setdefault(name, []).append((of_property, leading))
            required += demanded
            if "type" in each:
                nullable.append(types_of(each)[1])
        found = {name: self._first(each, f"{path}.{name}" if path else name) for name, each in properties.items()}
        return replace(_struct(_named(found, path), required), nullable=bool(nullable) and all(nullable))

    def _first(self, schemas: Sequence[tuple[Any, tuple[str, ...]]], path: str) -> Part:
        """The first of several schemas that tells a type. The others restrict its values."""
        faults = []
        for schema, around in schemas:
            try:
                return self.part(schema, path, around)
            except ValueError as fault:
                faults.append(fault)
        raise faults[0]

    def _one_of(self, branches: Any, word: str, path: str, around: tuple[str, ...]) -> Part:
        if not isinstance(branches, list):
            raise ValueError(f"{_place(path)}: {word} is a list of schemas")
        others = [each for each in branches if not _is_null(each)]
        if len(others) != 1:
            raise ValueError(
                f"{_place(path)}: {word} is a type or null; there is no field type for {len(others)} types"
            )
        part = self.part(others[0], path, around)
        return replace(part, nullable=part.nullable or len(others) < len(branches))

    def _all_of(self, branches: Any, path: str, around: tuple[str, ...]) -> Part:
        if not isinstance(branches, list):
            raise ValueError(f"{_place(path)}: allOf is a list of schemas")
        schemas = [each for each in branches if isinstance(each, dict)]
        typed = [each for each in schemas if not {"type", "$ref", "properties"}.isdisjoint(each)]
        typed = typed or [each for each in schemas if not {"enum", "const", "oneOf", "anyOf", "allOf"}.isdisjoint(each)]
        if len(typed) != 1:
            raise ValueError(f"{_place(path)}: there is no field type for allOf with {len(typed)} types")
        return self.part(typed[0], path, around)

    def _of_type(self, name: str, schema: Mapping[str, Any], path: str, around: tuple[str, ...]) -> Part:
        match name:
            case "string":
                return {"date-time": _MOMENT, "date": _DAY}.get(str(schema.get("format")), _STRING)
            case "integer":
                return _INT if schema.get("format") == "int32" else _BIGINT
            case "number":
                return _decimal(schema) or _DOUBLE
            case "boolean":
                return _BOOLEAN
            case "array":
                return self._array(schema, path, around)
        return self._object(schema, path, around)

    def _array(self, schema: Mapping[str, Any], path: str, around: tuple[str, ...]) -> Part:
        if "prefixItems" in schema or not isinstance(schema.get("items"), dict):
            raise ValueError(f'{_place(path)}: an array has one schema of its elements, as "items": {{…}}')
        element = self.part(schema["items"], f"{path}[]", around)

        def text(value: Any) -> str:
            return f"[{','.join(convert_elements(element.written, value))}]"

        return Part(ArrayType(element.type), text)

    def _object(self, schema: Mapping[str, Any], path: str, around: tuple[str, ...]) -> Part:
        properties, others = schema.get("properties") or {}, schema.get("additionalProperties")
        required = schema.get("required") or []
        if not isinstance(properties, dict) or not isinstance(required, list):
            raise ValueError(_NOT_OF_AN_OBJECT.format(_place(path)))
        if not properties:
            if not isinstance(others, dict) or "patternProperties" in schema:
                raise ValueError(
                    f'{_place(path)}: an object has "properties", or is a map by "additionalProperties": {{…}} alone'
                )
            return _map(self.part(others, f"{path}[]", around))
        parts = {name: self.part(each, f"{path}.{name}" if path else name, around) for name, each in properties.items()}
        return _struct(_named(parts, path), required)


def _named(parts: Mapping[str, Part], path: str) -> Mapping[str, Part]:
    if illegal := [name for name in parts if not name or "`" in name]:
        raise ValueError(f"{_place(path)}: no field can have the name {illegal[0]!r}")
    return parts


def _struct(parts: Mapping[str, Part], required: Sequence[str]) -> Part:
    items = [(name, _dumps(name), part.written, name in required) for name, part in parts.items()]

    def text(value: Any) -> str:
        written = []
        for name, quoted, write, is_required in items:
            each = value.get(name)
            if each is None and not is_required:
                continue
            try:
                written.append(f"{quoted}:{write(each)}")
            except Misfit as misfit:
                misfit.path = f".{name}{misfit.path}"
                raise
        return f"{{{','.join(written)}}}"

    return Part(StructType(tuple((name, part.type) for name, part in parts.items())), text)


def _map(of_value: Part) -> Part:
    def text(value: Any) -> str:
        written = convert_entries(of_value.written, value.items())
        return f"{{{','.join(f'{_dumps(key)}:{text}' for key, text in written.items())}}}"

    return Part(MapType(of_value.type), text)


def _type_of_value(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case Decimal():
            return "number"
        case str():
            return "string"
    return "array" if isinstance(value, list) else "object"


def _decimal(schema: Mapping[str, Any]) -> Part | None:
    """The type of multiples of 0.1, 0.01, …; None of other numbers."""
    unit = schema.get("multipleOf")
    if not isinstance(unit, Decimal):
        return None
    _, digits, exponent = unit.normalize().as_tuple()
    if digits != (1,) or not isinstance(exponent, int) or not -GREATEST_PRECISION <= exponent < 0:
        return None
    least, greatest = schema.get("minimum"), schema.get("maximum")
    precision = GREATEST_PRECISION
    if isinstance(least, int | Decimal) and isinstance(greatest, int | Decimal):
        precision = min(precision, len(str(int(max(abs(Decimal(least)), abs(Decimal(greatest)))))) - exponent)
    field_type = DecimalType(precision, -exponent)

    def text(value: Any) -> str:
        if not isinstance(value, Decimal) or not value.is_finite():
            raise Misfit(f"is not of type {field_type}")
        return f"{value:f}"

    return Part(field_type, text)


def _is_null(schema: Any) -> bool:
    try:
        return isinstance(schema, dict) and types_of(schema) == ([], True)
    except ValueError:
        return False


def _place(path: str) -> str:
    return path or "the schema"


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _scalar(field_type: str, check: Callable[[Any], Any]) -> Part:
    return Part(Scalar(field_type), lambda value: _dumps(check(value)))


def _moment(value: Any) -> str:
    moment = value.astimezone(UTC).replace(tzinfo=None)
    return f'"{moment.isoformat(timespec="microseconds" if moment.microsecond % 1000 else "milliseconds")}Z"'


_STRING = _scalar("string", writer_of((str,), "string"))
_INT = _scalar("int", writer_of((int,), "int", -(1 << 31), (1 << 31) - 1))
_BIGINT = _scalar("bigint", writer_of((int,), "bigint", -(1 << 63), (1 << 63) - 1))
_DOUBLE = _scalar("double", write_double)
_BOOLEAN = _scalar("boolean", writer_of((bool,), "boolean"))
_MOMENT = Part(TIMESTAMP, _moment)
_DAY = Part(Scalar("date"), lambda value: f'"{value.isoformat()}"')
