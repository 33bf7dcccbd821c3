"""JSON Schema: generated schemas and documents, and changed bytes. The partner is the package jsonschema."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from decimal import Decimal
from random import Random
from typing import Any

from jsonschema import Draft4Validator, Draft6Validator, Draft7Validator, Draft201909Validator, Draft202012Validator
from streamplan.serdes.field_types import DecimalType, FieldType
from streamplan.serdes.json_schema import JsonSchema
from streamplan.serdes.schema_source import WrittenSchema
from streamplan.serdes.serde import Undecodable
from streamplan.testing.declared_schemas import DeclaredSchemas

from tests.fuzz.bytes_and_values import mutated, value_of
from tests.fuzz.judging import reading, shown, writing

NAME = "json_schema"

PREFIX = b"\0\0\0\0\1"
LONGEST_INTEGER = 4300
"""Digits of the longest integer that Python reads by default."""

PIECES = (
    *(b"1e-400000000", b"1e-9999999999999999999", b"1e400", b"-NaN", b"NaN", b"Infinity", b"1e5", b"0.1", b"1.0"),
    *(b'"\\ud800"', b"null", b"true", b"{}", b"[]", b'{"a":1}', b"-0", b"9" * 5000, b"[" * 2000, b'"f0":1,', b"1E+2"),
)
SCALARS: tuple[dict[str, Any], ...] = (
    {"type": "string"},
    {"type": "string", "maxLength": 5},
    {"type": ["string", "null"]},
    {"type": "integer"},
    {"type": "integer", "format": "int32"},
    {"type": "integer", "minimum": 0},
    {"type": "number"},
    {"type": "number", "exclusiveMaximum": 100},
    {"type": "number", "multipleOf": 0.01},
    {"type": "number", "multipleOf": 0.01, "minimum": -99999.99, "maximum": 99999.99},
    {"type": "boolean"},
    {"type": "string", "format": "date-time"},
    {"type": "string", "format": "date"},
    {"type": "string", "format": "email"},
    {"enum": ["a", "b"]},
)
DRAFTS: tuple[tuple[str | None, Any], ...] = (
    (None, Draft7Validator),
    ("x:own", Draft7Validator),
    ("http://json-schema.org/draft-04/schema#", Draft4Validator),
    ("http://json-schema.org/draft-06/schema#", Draft6Validator),
    ("http://json-schema.org/draft-07/schema#", Draft7Validator),
    ("https://json-schema.org/draft/2019-09/schema", Draft201909Validator),
    ("https://json-schema.org/draft/2020-12/schema", Draft202012Validator),
)
RESTRICTIONS: tuple[dict[str, Any], ...] = (
    {"oneOf": [{"required": ["f0"]}, {"required": ["f1"]}]},
    {"anyOf": [{"required": ["f1"]}, {"minProperties": 2}]},
    {"not": {"required": ["f2"]}},
    {"allOf": [{"maxProperties": 3}]},
    {"patternProperties": {"^x": {"type": "integer"}}},
    {"dependencies": {"f0": ["f1"]}},
    {"if": {"required": ["f0"]}, "then": {"required": ["f1"]}},
    {"dependentRequired": {"f0": ["f1"]}},
    {"propertyNames": {"maxLength": 2}},
)
"""Of objects, beside their types. A draft ignores the words that it does not have."""


def findings(random: Random) -> Iterator[str]:
    """Make a schema, documents of it, and changed bytes."""
    properties = {f"f{n}": _type(random, 2) for n in range(random.randrange(1, 5))}
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if random.random() < 0.3:
        schema["required"] = random.sample(sorted(properties), 1)
    if random.random() < 0.3:
        schema["additionalProperties"] = False
    for restriction in random.sample(RESTRICTIONS, random.choice((0, 0, 1, 2))):
        schema |= restriction
    definitions = {f"d{n}": _type(random, 1) for n in range(2)}
    schema = {**_with_references(random, schema, definitions), "definitions": definitions}
    draft, judged_by = random.choice(DRAFTS)
    if draft is not None:
        schema["$schema"] = draft
    if judged_by in (Draft201909Validator, Draft202012Validator):
        schema.pop("dependencies", None)  # They leave it open whether it is still obeyed.
    if judged_by is Draft4Validator:
        schema = _of_draft_4(schema)
    text = json.dumps(schema)
    serde = JsonSchema(text).with_schemas(DeclaredSchemas((WrittenSchema(text, (), "JSON"),)), "t")
    values: list[bytes | None] = [None]
    for _ in range(5):
        value = {name: value_of(random, of_field, 0.1) for name, of_field in serde.types.items()}
        try:
            data = serde.encode(value)
        except ValueError:  # not valid by the schema
            continue
        yield from writing(serde, value)
        values += [data, *(PREFIX + mutated(random, data[5:], PIECES) for _ in range(8)), mutated(random, data, PIECES)]
    yield from reading(serde, values)
    has_decimal = any(isinstance(each, DecimalType) for each in _parts(serde))
    judge = judged_by({name: each for name, each in schema.items() if name != "$schema"})
    for each in values:
        if each is not None and not has_decimal:  # the partner divides doubles where a decimal is exact
            yield from _judged_alike(serde, judge, each)


def _parts(serde: JsonSchema) -> Iterator[FieldType]:
    from streamplan.serdes.field_types import leaves

    for of_field in serde.types.values():
        yield from leaves(of_field)


def _judged_alike(serde: JsonSchema, judge: Any, data: bytes) -> Iterator[str]:
    """What is taken is valid; what is rejected as not valid is not."""
    try:
        document = json.loads(data[5:], parse_int=_integer)
    except (ValueError, RecursionError):
        document = math.nan
    try:
        found: Any = serde.decode(data)
    except Undecodable as rejection:
        if " is not valid: " in str(rejection) and judge.is_valid(document):
            yield f"{serde!r} rejects {shown(data)}: {rejection}"
        return
    if not judge.is_valid(document):
        yield f"{serde!r} takes {shown(data)} as {shown(found)}, which is not valid"


def _integer(text: str) -> int | Decimal:
    """Python refuses to read an integer with so many digits. JSON does not limit them."""
    return int(text) if len(text) <= LONGEST_INTEGER else Decimal(text)


def _with_references(random: Random, schema: Any, definitions: dict[str, Any]) -> Any:
    """A schema in which some types are references, may be null, or stand in a list of one."""
    if isinstance(schema, list):
        return [_with_references(random, each, definitions) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _with_references(random, each, definitions) for name, each in schema.items()}
    if "properties" in found:
        found["properties"] = {name: _wrapped(random, each, definitions) for name, each in found["properties"].items()}
    return found


def _wrapped(random: Random, schema: Any, definitions: dict[str, Any]) -> Any:
    match random.randrange(12):
        case 0:
            return {"$ref": f"#/definitions/{random.choice(sorted(definitions))}"}
        case 1:
            return {"oneOf": [{"type": "null"}, schema]} if "enum" in schema else {"anyOf": [schema, {"type": "null"}]}
        case 2:
            return {"allOf": [schema, {"title": "a title"}]}
    return schema


def _of_draft_4(schema: Any) -> Any:
    """A schema in which the bounds of draft 6 are those of draft 4."""
    if isinstance(schema, list):
        return [_of_draft_4(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _of_draft_4(each) for name, each in schema.items()}
    if isinstance(bound := found.pop("exclusiveMaximum", None), int):
        found |= {"maximum": bound, "exclusiveMaximum": True}
    return found


def _type(random: Random, depth: int) -> dict[str, Any]:
    match random.randrange(10 if depth else 7):
        case 7:
            return {"type": "array", "items": _type(random, depth - 1)}
        case 8:
            return {"type": "object", "additionalProperties": _type(random, depth - 1)}
        case 9:
            return {"type": "object", "properties": {f"p{n}": _type(random, depth - 1) for n in range(2)}}
    return dict(random.choice(SCALARS))
