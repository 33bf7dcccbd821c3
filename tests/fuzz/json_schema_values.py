"""JSON Schema: generated schemas and documents, and changed bytes. The partner is the package jsonschema."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from decimal import Decimal
from random import Random
from typing import Any

from jsonschema import Draft7Validator
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
DRAFTS = (None, "http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema", "x:own")


def findings(random: Random) -> Iterator[str]:
    """Make a schema, documents of it, and changed bytes."""
    properties = {f"f{n}": _type(random, 2) for n in range(random.randrange(1, 5))}
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if random.random() < 0.3:
        schema["required"] = random.sample(sorted(properties), 1)
    if random.random() < 0.3:
        schema["additionalProperties"] = False
    if draft := random.choice(DRAFTS):
        schema["$schema"] = draft
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
    judge = Draft7Validator({name: each for name, each in schema.items() if name != "$schema"})
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


def _type(random: Random, depth: int) -> dict[str, Any]:
    match random.randrange(10 if depth else 7):
        case 7:
            return {"type": "array", "items": _type(random, depth - 1)}
        case 8:
            return {"type": "object", "additionalProperties": _type(random, depth - 1)}
        case 9:
            return {"type": "object", "properties": {f"p{n}": _type(random, depth - 1) for n in range(2)}}
    return dict(random.choice(SCALARS))
