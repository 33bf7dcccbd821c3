"""JSON Schemas as declarations: the types of their fields, and how values are written. On the standard library alone.

Drafts 4 to 2020-12 name types alike. What restricts values beside their types is left to the library that validates
them (:mod:`streamplan.serdes.json_schema`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from decimal import Decimal
from functools import lru_cache
from typing import Any, TypeAlias
from urllib.parse import unquote

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

_DEFINITIONS = "$streamplan"
"""Where the schemas that a schema refers to stand in it."""

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


def parse_json(text: str, name: str = "the schema") -> Any:
    """Read the JSON of a schema; a number with a point is a ``Decimal``.

    Raises:
        ValueError: It is no JSON.
    """
    try:
        return json.loads(text, parse_float=_number, parse_constant=_number)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} is not JSON: {error}") from error


def _number(text: str) -> Decimal:
    """A number with a point or an exponent, as exact as it is; one too small for a double is 0."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a number that a double can be")
    return Decimal(text) if number else Decimal(0)


def bundled(written: WrittenSchema) -> Mapping[str, Any]:
    """Return a schema in which the schemas stand that it refers to by other names than its own.

    Raises:
        ValueError: It is no object in JSON, or one that it refers to is not there.
    """
    texts = written.flattened()
    places = {name: f"#/{_DEFINITIONS}/{number}" for number, name in enumerate(texts)}
    parsed = parse_json(written.text)
    if not isinstance(parsed, dict):
        raise ValueError("the schema is not an object")
    own = {str(name).partition("#")[0]: "#" for name in (parsed.get("$id"), parsed.get("id")) if name}
    document: dict[str, Any] = _with_places(parsed, "#", {**own, **places})
    if places:
        document[_DEFINITIONS] = {}
    for (name, text), place in zip(texts.items(), places.values(), strict=True):
        inner = _with_places(parse_json(text, name), place, places)
        if isinstance(inner, dict):  # its own name would be the base of its references
            inner = {key: value for key, value in inner.items() if key not in ("$id", "id", "$schema")}
        document[_DEFINITIONS][place.rpartition("/")[2]] = inner
    return document


def referenced_names(text: str) -> list[str]:
    """Return the names of other schemas that a schema refers to, each once.

    Raises:
        ValueError: It is no JSON.
    """
    found: dict[str, None] = {}

    def collect(schema: Any) -> None:
        if isinstance(schema, list):
            for part in schema:
                collect(part)
        elif isinstance(schema, dict):
            if isinstance(reference := schema.get("$ref"), str) and (name := reference.partition("#")[0]):
                found.setdefault(name)
            for part in schema.values():
                collect(part)

    collect(parse_json(text))
    return [*found]


def _with_places(schema: Any, own: str, places: Mapping[str, str]) -> Any:
    """A schema whose references are places in the document that it will stand in."""
    if isinstance(schema, list):
        return [_with_places(part, own, places) for part in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _with_places(part, own, places) for name, part in schema.items()}
    if isinstance(reference := schema.get("$ref"), str):
        name, _, pointer = reference.partition("#")
        if name and name not in places:
            raise ValueError(
                f"it refers to {name}, which is not there: only files beside a schema are read, and nothing is fetched"
            )
        found["$ref"] = (places[name] if name else own) + pointer
    return found


def at_place(document: Any, reference: Any, path: str) -> Any:
    """Return the schema at a place of a document, as ``#/definitions/Line``.

    Args:
        document: A schema that :func:`bundled` has made.
        reference: The place.
        path: Of the field that refers to it.

    Raises:
        ValueError: There is none.
    """
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        raise ValueError(f"{_place(path)}: the reference {reference} is not of a form such as #/definitions/Line")
    found = document
    for step in unquote(reference[1:]).split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        elif isinstance(found, dict) and key in found:
            found = found[key]
        else:
            raise ValueError(f"{_place(path)}: it refers to {reference}, which is not there")
    return found


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
            raise ValueError(
                f'{_place(path)}: "properties" are schemas by their names, and "required" is a list of names'
            )
        if not properties:
            if not isinstance(others, dict) or "patternProperties" in schema:
                raise ValueError(
                    f'{_place(path)}: an object has "properties", or is a map by "additionalProperties": {{…}} alone'
                )
            return _map(self.part(others, f"{path}[]", around))
        parts = {name: self.part(each, f"{path}.{name}" if path else name, around) for name, each in properties.items()}
        if illegal := [name for name in parts if not name or "`" in name]:
            raise ValueError(f"{_place(path)}: no field can have the name {illegal[0]!r}")
        return _struct(parts, required)


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
