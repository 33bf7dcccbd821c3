"""What Avro's format forbids is rejected, where the declaration has the field and where it lacks it."""

from __future__ import annotations

import io
import json
import random
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from fastavro.utils import generate_one
from streamplan.serdes.avro import Avro, text_of_record
from streamplan.serdes.avro_binary import reader_of
from streamplan.serdes.schema_source import WrittenSchema
from streamplan.testing.declared_schemas import DeclaredSchemas

from tests.support.serde_columns import reason_of

PREFIX = b"\0\0\0\0\1"
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
RECURSIVE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
EMPTY = {"type": "array", "items": {"type": "record", "name": "Empty", "fields": []}}
NUMBER_OF_41_BITS = b"\x80\x80\x80\x80\x80\x40"
LONGEST = b"\xff" * 9 + b"\x01"
"""The least long: all 64 bits of its zigzag form are set."""

FORBIDDEN: list[tuple[Any, bytes, str]] = [
    (ENUM, b"\x01", "an enum has no symbol -1"),
    (ENUM, b"\x04", "an enum has no symbol 2"),
    (ENUM, NUMBER_OF_41_BITS, "a number has more than 32 bits"),
    (["null", "string"], b"\x01", "a union has no branch -1"),
    (["null", "string"], b"\x04", "a union has no branch 2"),
    ("boolean", b"\x02", "a boolean is the byte 2"),
    ("boolean", b"\xff", "a boolean is the byte 255"),
    ("int", NUMBER_OF_41_BITS, "a number has more than 32 bits"),
    ("int", b"\xff\xff\xff\xff\x1f", "a number has more than 32 bits"),
    ("int", b"\x80\x80\x80\x80\x80\x00", "a number has more than 32 bits"),
    ("long", b"\xff" * 9 + b"\x02", "a number has more than 64 bits"),
    ("long", b"\x80" * 10 + b"\x00", "a number has more than 64 bits"),
    ("long", b"\x80", "it ends early"),
    ("string", b"\x01", "a length is negative"),
    ("string", b"\xff\x01a", "a length is negative"),
    ("string", LONGEST, "a length is negative"),
    ("string", b"\xfe" + b"\xff" * 8 + b"\x01", "it ends early"),
    ("string", b"\x04a", "it ends early"),
    ("string", b"\x04\xc3\x28", "a text is not UTF-8"),
    ("string", b"\x06\xed\xa0\x80", "a text is not UTF-8"),
    ("bytes", b"\x01", "a length is negative"),
    ("bytes", b"\x06ab", "it ends early"),
    ({"type": "fixed", "name": "F", "size": 3}, b"ab", "it ends early"),
    ("float", b"\0\0\0", "it ends early"),
    ("double", b"\0" * 7, "it ends early"),
    ({"type": "array", "items": "int"}, b"\x02\x02", "it ends early"),
    ({"type": "array", "items": "int"}, b"\x03\x06\x02\x04\x00", "a block has another size than is written"),
    ({"type": "array", "items": "int"}, b"\x03\x03\x02\x04\x00", "a block has another size than is written"),
    ({"type": "array", "items": "int"}, b"\xfe" + b"\xff" * 8 + b"\x01\x02", "it ends early"),
    ({"type": "array", "items": "int"}, LONGEST + b"\x00", "it ends early"),
    ({"type": "map", "values": "int"}, b"\x02\x01", "a length is negative"),
    ({"type": "map", "values": "int"}, b"\x02\x02\xff\x02\x00", "a text is not UTF-8"),
    ({"type": "map", "values": ENUM}, b"\x02\x02a\x01\x00", "an enum has no symbol -1"),
    ({"type": "array", "items": "null"}, b"\xfe" + b"\xff" * 8 + b"\x01\x00", "an array has more than 10 elements"),
    (EMPTY, b"\x14\x02\x00", "an array has more than 10 elements that take no bytes"),
    (RECURSIVE, b"\x02" * 1_000_000 + b"\x00", "it is nested more than 300 deep"),
]


def record(*fields: tuple[str, Any]) -> str:
    listed = [{"name": name, "type": of_field} for name, of_field in fields]
    return json.dumps({"type": "record", "name": "shop.Order", "fields": listed})


def serde(declared: str, written: str) -> Avro:
    return Avro(declared).with_schemas(DeclaredSchemas((WrittenSchema(written),)), "orders")


@pytest.mark.parametrize(("schema", "data", "reason"), FORBIDDEN)
def test_what_the_format_forbids_is_rejected_in_a_field_that_is_not_declared(
    schema: Any, data: bytes, reason: str
) -> None:
    written = record(("other", schema), ("id", "string"))
    told = reason_of(
        serde(record(("id", "string")), written), PREFIX + data + (b"\x02a" if "early" not in reason else b"")
    )
    assert told.startswith(f"the value is no record of schema 1: {reason}")
    assert text_of_record(PREFIX + data + b"\x02a", WrittenSchema(written)) is None or "early" in reason


@pytest.mark.parametrize(
    ("schema", "data", "reason"),
    [each for each in FORBIDDEN if each[0] in (ENUM, "boolean", "int", "long", "string", "float", "double")]
    + [each for each in FORBIDDEN if each[0] in (["null", "string"], {"type": "map", "values": ENUM})],
)
def test_what_the_format_forbids_is_rejected_in_a_field_that_is_declared_alone_and_in_a_column(
    schema: Any, data: bytes, reason: str
) -> None:
    declared = record(("a", schema))
    told = reason_of(serde(declared, declared), PREFIX + data)
    assert told.startswith(f"the value is no record of schema 1: {reason}")
    column = serde(declared, declared).decode_column([PREFIX + data, None])
    assert column.rejected == {0: told, 1: "the value is null"}


@pytest.mark.parametrize(
    ("schema", "data", "value"),
    [
        ("int", b"\xff\xff\xff\xff\x0f", -(1 << 31)),
        ("int", b"\xfe\xff\xff\xff\x0f", (1 << 31) - 1),
        ("int", b"\x80\x00", 0),
        ("long", LONGEST, -(1 << 63)),
        ("long", b"\xfe" + b"\xff" * 8 + b"\x01", (1 << 63) - 1),
        ({"type": "array", "items": "int"}, b"\x03\x04\x02\x04\x02\x06\x00", [1, 2, 3]),
        ({"type": "array", "items": "int"}, b"\x00", []),
        ({"type": "map", "values": "int"}, b"\x03\x0c\x02a\x02\x02b\x04\x00", {"a": 1, "b": 2}),
        ({"type": "map", "values": "int"}, b"\x04\x02a\x02\x02a\x04\x00", {"a": 2}),
        ("boolean", b"\x01", True),
    ],
)
def test_what_the_format_allows_is_read(schema: Any, data: bytes, value: Any) -> None:
    declared = record(("a", schema))
    assert serde(declared, declared).decode(PREFIX + data) == {"a": value}
    other = record(("a", schema), ("id", "string"))
    assert serde(record(("id", "string")), other).decode(PREFIX + data + b"\x02x") == {"id": "x"}


def test_a_recursive_type_is_read_over_where_it_is_not_declared() -> None:
    written = record(("tree", RECURSIVE), ("id", "string"))
    assert serde(record(("id", "string")), written).decode(PREFIX + b"\x02" * 90 + b"\0\x02x") == {"id": "x"}


def test_a_schema_of_all_types_is_read_as_avros_own_library_reads_it() -> None:
    """The values and the bytes are made by that library, of schemas that are made at random."""
    generator = random.Random(5)

    def schema(depth: int, names: list[str]) -> Any:
        kinds = ["null", "boolean", "int", "long", "float", "double", "bytes", "string", "enum", "fixed"]
        match generator.choice(kinds + ["record", "array", "map", "union"] * (2 if depth else 0)):
            case "enum":
                names.append(f"N{len(names)}")
                return {"type": "enum", "name": names[-1], "symbols": ["A", "B", "C"]}
            case "fixed":
                names.append(f"N{len(names)}")
                return {"type": "fixed", "name": names[-1], "size": generator.randrange(1, 20)}
            case "record":
                names.append(f"N{len(names)}")
                name = names[-1]
                fields = [{"name": f"f{n}", "type": schema(depth - 1, names)} for n in range(generator.randrange(4))]
                return {"type": "record", "name": name, "fields": fields}
            case "array":
                return {"type": "array", "items": ["null", schema(0, names)] if depth == 1 else "long"}
            case "map":
                return {"type": "map", "values": schema(depth - 1, names)}
            case "union":
                return ["null", generator.choice(["string", "long", "boolean", {"type": "array", "items": "double"}])]
            case kind:
                return kind

    seen = set()
    for _ in range(400):
        fields = [{"name": f"f{n}", "type": schema(3, names)} for names in [[]] for n in range(4)]
        text = json.dumps({"type": "record", "name": "R", "fields": fields})
        parsed: Any = fastavro.parse_schema(json.loads(text))
        try:
            value = generate_one(parsed)
        except RecursionError:
            continue
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, value)
        data = stream.getvalue()
        found, end = reader_of(WrittenSchema(text))(data, 0, 0)
        stream.seek(0)
        assert (found, end) == (fastavro.schemaless_reader(stream, parsed, None), len(data))
        seen.add(text)
    assert len(seen) > 300


def test_each_promotion_of_the_specification_is_made() -> None:
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
    for written, read, data, value in [
        ("int", "long", b"\x02", 1),
        ("int", "float", b"\x02", 1.0),
        ("int", "double", b"\x02", 1.0),
        ("long", "float", b"\x02", 1.0),
        ("long", "double", b"\x02", 1.0),
        ("float", "double", b"\0\0\x80\x3f", 1.0),
        ("string", decimal, b"\x02A", Decimal("0.65")),
        ("bytes", "string", b"\x02A", "A"),
    ]:
        found = serde(record(("a", read)), record(("a", written))).decode(PREFIX + data)["a"]
        assert (found, type(found)) == (value, type(value))
