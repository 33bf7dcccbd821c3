"""Avro: values of a writer whose schema has grown apart from the reader's. The partner is Avro's own library.

Types are promoted, wrapped in unions and taken out of them, fields are renamed, moved, added and left out with their
defaults, and enums have other symbols.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import fastavro
from streamplan.serdes.avro import Avro
from streamplan.serdes.schema_source import WrittenSchema
from streamplan.testing.declared_schemas import DeclaredSchemas

from tests.fuzz.avro_values import PREFIX
from tests.fuzz.bytes_and_values import DOUBLES, INTEGERS, TEXTS
from tests.fuzz.judging import agreeing, reading

NAME = "avro-evolution"

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SYMBOLS = ("NEW", "PAID", "SENT", "LOST")
NUMBERS = {"long": ("int",), "double": ("int", "long", "float"), "string": ("bytes",)}
"""What a type can be made of. Avro's library for Python also reads the numbers of an ``int`` as a ``float``."""

SCALARS: tuple[Any, ...] = (
    *("string", "int", "long", "double", "boolean"),
    {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
    {"type": "int", "logicalType": "date"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "string", "logicalType": "uuid"},
    {"type": "long", "logicalType": "made-up"},
)


def findings(random: Random) -> Iterator[str]:
    """Make a reader's schema, what the writer has of it, and values."""
    names = _Names(random)
    reader = {"type": "record", "name": "Order", "namespace": "shop", "fields": names.fields(2)}
    writer = names.evolved(reader)
    declared, written = json.dumps(reader), json.dumps(writer)
    serde = Avro(declared).with_schemas(DeclaredSchemas((WrittenSchema(written), WrittenSchema(declared))), "t")
    known: Any = fastavro.parse_schema(_plain(writer))
    wanted: Any = fastavro.parse_schema(_plain(reader))

    def partner(data: bytes) -> Any:
        try:
            return _read(reader, fastavro.schemaless_reader(io.BytesIO(data[len(PREFIX) :]), known, wanted))
        except (EOFError, LookupError, TypeError, ArithmeticError, fastavro.read.SchemaResolutionError) as error:
            raise ValueError(error) from error

    values = []
    for _ in range(6):
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, known, _value(random, writer))
        values.append(PREFIX + stream.getvalue())
    yield from reading(serde, values)
    for data in values:
        yield from agreeing(serde, data, partner)


class _Names:
    """Makes types, each named once."""

    def __init__(self, random: Random) -> None:
        self._random, self._number = random, 0

    def _new(self, letter: str) -> str:
        self._number += 1
        return f"{letter}{self._number}"

    def fields(self, depth: int) -> list[dict[str, Any]]:
        found = []
        for _ in range(self._random.randrange(1, 5)):
            field = {"name": self._new("f"), "type": self._type(depth)}
            match self._random.randrange(4):
                case 0 if isinstance(field["type"], list):
                    field["default"] = None
                case 1 if field["type"] == "long" or field["type"] == "double":
                    field["default"] = 7
                case 2 if field["type"] == "string":
                    field["default"] = "ä"
                case 3:
                    field["aliases"] = [f"{field['name']}_old", "never"]
            found.append(field)
        return found

    def _type(self, depth: int) -> Any:
        match self._random.randrange(9 if depth else 6):
            case 5:
                symbols = self._random.sample(SYMBOLS, self._random.randrange(1, 4))
                default = {"default": symbols[0]} if self._random.random() < 0.5 else {}
                return {"type": "enum", "name": self._new("E"), "symbols": symbols, **default}
            case 6:
                return {"type": "array", "items": self._type(depth - 1)}
            case 7:
                return {"type": "map", "values": self._type(depth - 1)}
            case 8:
                return {"type": "record", "name": self._new("R"), "fields": self.fields(depth - 1)}
            case 4 | 3:
                return ["null", self._random.choice(SCALARS)]
        return self._random.choice(SCALARS)

    def evolved(self, schema: Any) -> Any:
        """What the writer has in the place of a type."""
        random = self._random
        if isinstance(schema, list):
            branches = ["null", self.evolved(schema[1])]
            if isinstance(branches[1], list):
                return branches[1]
            return random.choice(
                (branches, branches[::-1], branches[1], [*branches, {"type": "array", "items": "int"}])
            )
        if isinstance(schema, str) and schema in NUMBERS and random.random() < 0.4:
            return random.choice(NUMBERS[schema])
        if isinstance(schema, dict):
            schema = self._parts(dict(schema))
        if random.random() < 0.1:
            return random.choice(
                (["null", schema], [schema], [{"type": "fixed", "name": self._new("X"), "size": 2}, schema])
            )
        return schema

    def _parts(self, schema: dict[str, Any]) -> dict[str, Any]:
        random = self._random
        match schema["type"]:
            case "array":
                schema["items"] = self.evolved(schema["items"])
            case "map":
                schema["values"] = self.evolved(schema["values"])
            case "enum":
                schema["symbols"] = random.sample(SYMBOLS, random.randrange(1, 5))
                schema.pop("default", None)
            case "record":
                fields = [self._field(dict(field)) for field in schema["fields"]]
                fields = [field for field in fields if "default" not in field or random.random() < 0.5]
                fields += [{"name": self._new("u"), "type": self._type(1)} for _ in range(random.randrange(2))]
                random.shuffle(fields)
                schema["fields"] = [
                    {name: part for name, part in field.items() if name in ("name", "type")} for field in fields
                ]
        return schema

    def _field(self, field: dict[str, Any]) -> dict[str, Any]:
        if "aliases" in field and self._random.random() < 0.5:
            field["name"] = field["aliases"][0]
        return {**field, "type": self.evolved(field["type"])}


def _plain(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_plain(branch) for branch in schema]
    if isinstance(schema, dict):
        return {name: _plain(part) for name, part in schema.items() if name != "logicalType"}
    return schema


def _read(schema: Any, value: Any) -> Any:
    """A value as its fields have it, of what the library reads without logical types."""
    if isinstance(schema, list):
        return None if value is None else _read(schema[1], value)
    if not isinstance(schema, dict):
        return float(value) if schema == "double" else value
    match schema["type"], schema.get("logicalType"):
        case "record", _:
            return {field["name"]: _read(field["type"], value[field["name"]]) for field in schema["fields"]}
        case "array", _:
            return [_read(schema["items"], each) for each in value]
        case "map", _:
            return {key: _read(schema["values"], each) for key, each in value.items()}
        case _, "decimal":
            return Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-2)
        case _, "date":
            return date(1970, 1, 1) + timedelta(days=value)
        case _, "timestamp-millis" | "timestamp-micros" as unit:
            return EPOCH + timedelta(microseconds=value * (1000 if unit == "timestamp-millis" else 1))
    return value


def _value(random: Random, schema: Any) -> Any:
    """A value of a type, as the library writes it without logical types."""
    if isinstance(schema, list):
        branch = random.choice(schema)
        return _value(random, branch)
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    match schema["type"] if isinstance(schema, dict) else schema:
        case "record":
            return {field["name"]: _value(random, field["type"]) for field in schema["fields"]}
        case "array":
            return [_value(random, schema["items"]) for _ in range(random.choice((0, 1, 3)))]
        case "map":
            return {random.choice(TEXTS): _value(random, schema["values"]) for _ in range(random.choice((0, 1, 3)))}
        case "enum":
            return random.choice(schema["symbols"])
        case "null":
            return None
        case "boolean":
            return random.random() < 0.5
        case "int":
            bound = 10**5 if logical else 1 << 31
            return random.choice([n for n in INTEGERS if -bound <= n < bound])
        case "long":
            return random.choice([n for n in INTEGERS if logical in (None, "made-up") or abs(n) < 10**14])
        case "float":
            return random.choice((0.5, -0.0, 1.5e30, 2.0**-149))
        case "double":
            return random.choice(DOUBLES)
        case "fixed":
            return b"\xff\0"
        case "bytes" if logical:
            return random.randrange(-(10**11), 10**11).to_bytes(6, "big", signed=True)
        case "bytes":
            return random.choice(TEXTS).encode()
        case "string":
            return "7d444840-9dc0-11d1-b245-5ffdce74fad2" if logical else random.choice(TEXTS)
    raise AssertionError(f"no value of type {schema}")
