"""Avro: generated schemas of writer and reader, their values, and changed bytes. The partner is Avro's own library.

That library reads bytes that the format forbids, so it is asked only about values that are taken.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from random import Random
from typing import Any

import fastavro
from streamplan.serdes.avro import Avro
from streamplan.serdes.schema_source import WrittenSchema
from streamplan.serdes.serde import Undecodable
from streamplan.testing.declared_schemas import DeclaredSchemas

from tests.fuzz.bytes_and_values import mutated, value_of
from tests.fuzz.judging import agreeing, reading, writing

NAME = "avro"

PREFIX = b"\0\0\0\0\1"
PIECES = (
    *(b"\x01", b"\x02", b"\x03", b"\x80\x00", b"\x80\x80\x80\x80\x80\x40", b"\xff" * 9 + b"\x01"),
    *(b"\xfe" + b"\xff" * 8 + b"\x01", b"\x80" * 10 + b"\0", b"\x03\x06\x02\x04\0", b"\x02" * 1000),
)
SCALARS: tuple[Any, ...] = (
    *("string", "int", "long", "double", "boolean"),
    {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
    {"type": "int", "logicalType": "date"},
    {"type": "long", "logicalType": "timestamp-micros"},
)
UNREAD: tuple[Any, ...] = (
    *("null", "bytes", "float", ["null", "long", "string"], ["boolean"]),
    {"type": "array", "items": ["null", "bytes"]},
    {"type": "long", "logicalType": "timestamp-nanos"},
)
TREE = {"type": "record", "name": "Tree", "fields": [{"name": "next", "type": ["null", "Tree"]}]}


def findings(random: Random) -> Iterator[str]:
    """Make two schemas, values of both, and changed bytes."""
    fields = [{"name": f"f{n}", "type": _type(random, 2, str(n))} for n in range(random.randrange(1, 5))]
    declared = _record(fields)
    others = [{"name": f"u{n}", "type": _unread(random, str(n))} for n in range(random.randrange(3))]
    mixed = [*fields, *others]
    random.shuffle(mixed)
    written = _record(mixed)
    serde = Avro(declared).with_schemas(DeclaredSchemas((WrittenSchema(written), WrittenSchema(declared))), "t")
    known: Any = fastavro.parse_schema(json.loads(written))
    reader: Any = fastavro.parse_schema(json.loads(declared))

    def partner(data: bytes) -> Any:
        try:
            return fastavro.schemaless_reader(io.BytesIO(data[len(PREFIX) :]), known, reader)
        except (EOFError, LookupError, TypeError, ArithmeticError) as error:
            raise ValueError(error) from error

    values = []
    for _ in range(5):
        value = {name: value_of(random, of_field, 0) for name, of_field in serde.types.items()}
        value |= {each["name"]: None for each in fields if isinstance(each["type"], list) and random.random() < 0.3}
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, known, {**value, **{each["name"]: _other(each) for each in others}})
        yield from writing(serde, value)
        data = PREFIX + stream.getvalue()
        yield from agreeing(serde, data, partner)
        values += [data, *(mutated(random, data, PIECES) for _ in range(6)), PREFIX + mutated(random, data[5:], PIECES)]
    yield from reading(serde, [*values, None])
    for data in values:
        yield from _taken_alike(serde, data, partner)


def _taken_alike(serde: Avro, data: bytes, partner: Any) -> Iterator[str]:
    try:
        serde.decode(data)
    except Undecodable:
        return
    if data[: len(PREFIX)] != PREFIX:
        return
    if any("map<" in str(of_field) for of_field in serde.types.values()):
        try:
            partner(data)
        except ValueError:
            return  # of a name that occurs twice in a map the last value counts; the library refuses for others, too
    yield from agreeing(serde, data, partner)


def _type(random: Random, depth: int, name: str) -> Any:
    match random.randrange(8 if depth else 5):
        case 5:
            return {"type": "array", "items": _type(random, depth - 1, f"{name}a")}
        case 6:
            return {"type": "map", "values": _type(random, depth - 1, f"{name}m")}
        case 7:
            parts = [{"name": f"p{n}", "type": _type(random, depth - 1, f"{name}r{n}")} for n in range(2)]
            return {"type": "record", "name": f"R{name}", "fields": parts}
        case 4:
            return {
                "type": "fixed",
                "name": f"F{name}",
                "size": 6,
                "logicalType": "decimal",
                "precision": 9,
                "scale": 1,
            }
        case 3:
            return ["null", random.choice(SCALARS)]
    return random.choice(SCALARS)


def _unread(random: Random, name: str) -> Any:
    named = (
        {"type": "enum", "name": f"E{name}", "symbols": ["A", "B"]},
        {"type": "fixed", "name": f"X{name}", "size": 3},
        {"type": "array", "items": {"type": "record", "name": f"Z{name}", "fields": []}},
        json.loads(json.dumps(TREE).replace("Tree", f"Tree{name}")),
    )
    return random.choice((*UNREAD, *named))


def _other(field: Any) -> Any:
    """A value of a type that only the writer has."""
    match field["type"]:
        case list() as branches:
            return True if branches == ["boolean"] else "x" if "string" in branches else None
        case {"type": "array"}:
            return []
        case {"type": "enum"}:
            return "B"
        case {"type": "fixed"}:
            return b"abc"
        case {"type": "record"}:
            return {"next": {"next": None}}
        case {"type": "long"}:
            return 7
        case name:
            return {"null": None, "bytes": b"\xff", "float": 0.5}[str(name)]


def _record(fields: list[Any]) -> str:
    return json.dumps({"type": "record", "name": "shop.Order", "fields": fields})
