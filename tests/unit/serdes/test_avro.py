from __future__ import annotations

import io
import json
import pickle
import random
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from streamplan.errors import Refused
from streamplan.serdes.avro import Avro
from streamplan.serdes.schema_source import Reference, WrittenSchema
from streamplan.serdes.serde import key_of
from streamplan.testing.declared_schemas import DeclaredSchemas

from tests.support.serde_columns import expect_column_as_values, reason_of


def record(*fields: tuple[Any, ...], name: str = "shop.Order") -> str:
    """The schema of a record. A field is a name, a type and perhaps a default."""
    listed = [
        {"name": field[0], "type": field[1], **({"default": field[2]} if len(field) > 2 else {})} for field in fields
    ]
    return json.dumps({"type": "record", "name": name, "fields": listed})


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
DAY = {"type": "int", "logicalType": "date"}
STATE = {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}
LINE = {
    "type": "record",
    "name": "Line",
    "fields": [{"name": "sku", "type": "string"}, {"name": "price", "type": decimal(10, 2)}],
}
CENTS = {"type": "fixed", "name": "Cents", "size": 6, "logicalType": "decimal", "precision": 12, "scale": 2}

EVERYTHING = record(
    ("id", "string"),
    ("count", "int"),
    ("number", "long"),
    ("ratio", "double"),
    ("rough", "float"),
    ("paid", "boolean"),
    ("total", decimal(12, 2)),
    ("cents", CENTS),
    ("day", DAY),
    ("at", MILLIS),
    ("exactly", MICROS),
    ("state", STATE),
    ("before", ["null", "State"]),
    ("comment", ["string", "null"]),
    ("lines", {"type": "array", "items": LINE}),
    ("last", ["null", "Line"]),
    ("rates", {"type": "map", "values": ["null", "double"]}),
)

VALUE: dict[str, Any] = {
    "id": "Käse",
    "count": -3,
    "number": 1 << 40,
    "ratio": 0.1,
    "rough": 0.5,
    "paid": True,
    "total": Decimal("-12.50"),
    "cents": Decimal("1.28"),
    "day": date(2026, 11, 24),
    "at": datetime(2026, 11, 24, 20, 38, 34, 123000, UTC),
    "exactly": datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
    "state": "PAID",
    "before": None,
    "comment": "x",
    "lines": [{"sku": "a", "price": Decimal("12.50")}, {"sku": "b", "price": Decimal("0.00")}],
    "last": {"sku": "c", "price": Decimal("-1.28")},
    "rates": {"EUR": 1.5, "USD": None},
}


def read_with(reader: str, *written: str | WrittenSchema) -> Avro:
    """A serde with the schemas that have the ids 1, 2, ..."""
    known = tuple(WrittenSchema(each) if isinstance(each, str) else each for each in written)
    return Avro(reader).with_schemas(DeclaredSchemas(known), "orders")


def written(schema: str, value: dict[str, Any], schema_id: int = 1, named: dict[str, Any] | None = None) -> bytes:
    """A value as fastavro writes it by itself, in Confluent's wire format."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(schema), named or {}), value)
    return b"\0" + schema_id.to_bytes(4, "big") + stream.getvalue()


# -- types


def test_the_types_of_a_schema_are_those_of_fields() -> None:
    assert dict(Avro(EVERYTHING).fields) == {
        "id": "string",
        "count": "int",
        "number": "bigint",
        "ratio": "double",
        "rough": "double",
        "paid": "boolean",
        "total": "decimal(12,2)",
        "cents": "decimal(12,2)",
        "day": "date",
        "at": "timestamp",
        "exactly": "timestamp",
        "state": "string",
        "before": "string",
        "comment": "string",
        "lines": "array<struct<sku: string, price: decimal(10,2)>>",
        "last": "struct<sku: string, price: decimal(10,2)>",
        "rates": "map<string, double>",
    }


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("{", "the schema is not JSON: "),
        ('"string"', "the schema is not that of a record"),
        (record(("a", "bytes")), "a: there is no field type for bytes"),
        (record(("a", "null")), "a: there is no field type for null"),
        (record(("a", ["int", "string"])), 'a: a union is a type or null, as ["null", "string"]'),
        (record(("a", ["null", "int", "string"])), "a: a union is a type or null"),
        (record(("a", {"type": "fixed", "name": "F", "size": 4})), "a: there is no field type for fixed"),
        (record(("a", {"type": "int", "logicalType": "time-millis"})), "a: there is no field type for time-millis"),
        (
            record(("a", {"type": "array", "items": {"type": "long", "logicalType": "local-timestamp-micros"}})),
            "a[]: there is no field type for local-timestamp-micros",
        ),
        (record(("a", decimal(39, 2))), "a: a decimal of a field has from 1 to 38 digits"),
        (record(("a", decimal(2, 3))), "a: a decimal has a precision, and a scale from 0 to the precision"),
        (record(("a", ["null", "shop.Order"])), "a: shop.Order contains itself"),
        (record(("a", "Nowhere")), "a: 'Nowhere' is not a type of Avro"),
        (record(("a", "int"), ("a", "int")), "the field 'a' is declared twice"),
        (record(), "the schema: the record shop.Order has no fields"),
    ],
)
def test_a_schema_without_types_of_fields_is_refused_with_the_reason(schema: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}"):
        _ = Avro(schema).fields


@pytest.mark.parametrize(
    ("base", "logical", "expected"),
    [
        ("string", "time-millis", "string"),
        ("long", "time-millis", "bigint"),
        ("int", "timestamp-millis", "int"),
        ("int", "time-micros", "int"),
        ("string", "duration", "string"),
        ("double", "local-timestamp-nanos", "double"),
        ("string", "uuid", "string"),
        ("long", "made-up", "bigint"),
        ("string", "decimal", "string"),
    ],
)
def test_a_logical_type_of_another_type_is_ignored_as_avro_says(base: str, logical: str, expected: str) -> None:
    schema = record(("a", {"type": base, "logicalType": logical}))
    assert fastavro.parse_schema(json.loads(schema))
    assert Avro(schema).fields == {"a": expected}


def test_a_relative_path_begins_at_the_file_that_declares_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path.parent)
    (tmp_path / "order.avsc").write_text(EVERYTHING, encoding="utf-8")
    declaring = tmp_path / "declaration.py"
    declaring.write_text("from streamplan import Avro\nORDER = Avro('order.avsc')\nGONE = Avro('gone.avsc')\n")
    found: dict[str, Any] = {}
    exec(compile(declaring.read_text(), str(declaring), "exec"), found)
    assert found["ORDER"] == Avro(EVERYTHING)
    with pytest.raises(ValueError, match=f"the schema {tmp_path}/gone.avsc cannot be read"):
        _ = found["GONE"].fields


# -- bytes


def test_a_value_has_the_bytes_that_another_writer_writes() -> None:
    serde = read_with(EVERYTHING, EVERYTHING)
    data = written(EVERYTHING, VALUE)
    assert serde.encode({**VALUE, "last": None}) == written(EVERYTHING, {**VALUE, "last": None})
    assert serde.decode(data) == VALUE
    assert serde.decode(serde.encode(VALUE)) == VALUE


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"id": None}, "id is null, and the schema has no null there"),
        ({"count": 1 << 31}, "count is not of type int"),
        ({"number": 1 << 63}, "number is not of type bigint"),
        ({"ratio": float("nan")}, "ratio is nan, which is no number"),
        ({"rough": 1e300}, "rough is 1e+300, which no float of 32 bits can be"),
        ({"total": Decimal("0.001")}, "total is 0.001, and not of type decimal(12,2)"),
        ({"total": Decimal("10000000000.00")}, "total is 10000000000.00, and not of type decimal(12,2)"),
        ({"state": "LOST"}, "state is 'LOST', and not one of NEW, PAID"),
        ({"lines": [{"sku": "a"}]}, "lines[0].price is null, and the schema has no null there"),
        ({"paid": 1}, "paid is not of type boolean"),
    ],
)
def test_a_value_that_the_schema_does_not_have_is_not_written(value: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}$"):
        read_with(EVERYTHING, EVERYTHING).encode({**VALUE, **value})


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (None, "the value is null"),
        (b"", "the value does not begin with the byte 0 and the id of a schema"),
        (b"\0\0\0\0", "the value does not begin with the byte 0 and the id of a schema"),
        (b'{"id": "1"}', "the value does not begin with the byte 0 and the id of a schema"),
        (b"\0\0\0\0\7\2x", "the Schema Registry has no schema 7"),
        (b"\0\0\0\0\1", "the value is no record of schema 1: it ends early"),
        (b"\0\0\0\0\1\6ab", "the value is no record of schema 1: it ends early"),
        (b"\0\0\0\0\1\2\xff", "the value is no record of schema 1: a text is not UTF-8"),
        (b"\0\0\0\0\1\2xy", "the value goes on behind the record of schema 1"),
    ],
)
def test_what_is_no_such_value_is_rejected_with_the_reason(data: bytes | None, reason: str) -> None:
    schema = record(("id", "string"))
    assert reason_of(read_with(schema, schema), data) == reason


def test_numbers_that_no_field_has_are_rejected() -> None:
    plain = {"at": "long", "day": "int", "ratio": "double", "total": "bytes"}
    for name, (of_field, number, reason) in {
        "at": (MICROS, 1 << 62, "at is not of type timestamp"),
        "day": (DAY, -1_000_000, "day is not of type date"),
        "ratio": ("double", float("inf"), "ratio is inf, which is no number"),
        "total": (decimal(3, 1), b"\4\0", "total is not of type decimal(3,1)"),
    }.items():
        serde = read_with(record((name, of_field)), record((name, of_field)))
        assert reason_of(serde, written(record((name, plain[name])), {name: number})) == reason


def test_without_a_registry_nothing_is_rejected_and_the_error_says_what_to_do() -> None:
    with pytest.raises(Refused, match=r"schema\.registry\.url"):
        Avro(EVERYTHING).decode(written(EVERYTHING, VALUE))


# -- evolution


def test_a_value_of_an_older_schema_has_the_defaults_of_the_declaration() -> None:
    older = record(("id", "string"), ("count", "int"))
    newer = record(
        ("count", "long"),
        ("id", "string"),
        ("total", decimal(6, 2), "\u0000\u0080"),
        ("ratio", "double", 1),
        ("state", ["null", STATE], None),
        ("lines", {"type": "array", "items": LINE}, []),
    )
    assert read_with(newer, older).decode(written(older, {"id": "1", "count": 3})) == {
        "id": "1",
        "count": 3,
        "total": Decimal("1.28"),
        "ratio": 1.0,
        "state": None,
        "lines": [],
    }


def test_a_value_of_a_newer_schema_is_read_without_what_the_declaration_lacks() -> None:
    newer = record(("extra", ["null", LINE]), ("id", ["null", "string"]), ("count", ["int", "long"]))
    declared = record(("id", ["null", "string"]), ("count", "double"))
    value = {"extra": {"sku": "a", "price": Decimal("1.00")}, "id": "1", "count": 7}
    assert read_with(declared, newer).decode(written(newer, value)) == {"id": "1", "count": 7.0}


def test_each_value_is_read_with_the_schema_that_it_names() -> None:
    first, second = record(("id", "string")), record(("n", "long"), ("id", "string"))
    serde = read_with(first, first, second)
    assert serde.decode(written(second, {"n": 1, "id": "b"}, 2)) == {"id": "b"}
    assert serde.decode(written(first, {"id": "a"}, 1)) == {"id": "a"}


@pytest.mark.parametrize(
    ("fields", "value", "expected"),
    [
        ({"a": ["x"], "b": ["x"]}, {"x": 5}, {"a": -1, "b": 5}),
        ({"a": ["x"], "x": []}, {"x": 5}, {"a": 5, "x": -1}),
        ({"x": [], "a": ["x"]}, {"x": 5}, {"x": -1, "a": 5}),
        ({"a": ["b"], "b": ["a"]}, {"a": 5, "b": 6}, {"a": 6, "b": 5}),
        ({"a": ["b"], "b": ["c"], "c": ["a"]}, {"a": 5, "b": 6, "c": 7}, {"a": 6, "b": 7, "c": 5}),
        ({"a": ["x"]}, {"x": 5, "a": 6}, {"a": 6}),
        ({"x": [], "a": ["x"]}, {"x": 5, "a": 6}, {"x": 5, "a": 6}),
        ({"a": ["x", "y"]}, {"y": 5}, {"a": 5}),
    ],
)
def test_a_written_field_is_one_field_of_the_reader_also_where_several_have_its_name(
    fields: dict[str, list[str]], value: dict[str, int], expected: dict[str, int]
) -> None:
    """As ``Schema.applyAliases`` renames it. A field that another one had taken was missing, without its default."""

    def of(name: str, aliases: list[str]) -> dict[str, Any]:
        return {"name": name, "aliases": aliases, "type": "int", "default": -1}

    reader = json.dumps({"type": "record", "name": "O", "fields": [of(*each) for each in fields.items()]})
    writer = json.dumps({"type": "record", "name": "O", "fields": [{"name": name, "type": "int"} for name in value]})
    serde = read_with(reader, writer)
    assert serde.decode(written(writer, value)) == expected
    assert serde.decode_column([written(writer, value)]).fields.to_pylist() == [expected]


def test_a_field_may_have_another_name_with_an_alias() -> None:
    older = record(("ident", "string"))
    newer = json.dumps(
        {"type": "record", "name": "Order", "fields": [{"name": "id", "aliases": ["ident"], "type": "string"}]}
    )
    assert read_with(newer, older).decode(written(older, {"ident": "1"})) == {"id": "1"}


@pytest.mark.parametrize(
    ("writer", "reader", "sentence"),
    [
        (("id", "string"), ("id", "long"), "id is written as string, and declared as long"),
        (("id", "string"), ("id", ["null", "long"]), "id is written as string, and declared as long"),
        (("id", ["null", "string"]), ("id", "int"), "id is written as null or string, and declared as int"),
        (("id", "long"), ("id", "int"), "id is written as long, and declared as int"),
        (("id", "string"), ("name", "string"), "name is not written, and the declaration has no default for it"),
        (
            ("id", decimal(10, 2)),
            ("id", decimal(10, 3)),
            "id is written as decimal(10,2), and declared as decimal(10,3)",
        ),
        (("id", MILLIS), ("id", MICROS), "id is written as timestamp-millis, and declared as timestamp-micros"),
        (
            ("line", LINE),
            ("line", {**LINE, "fields": [{"name": "sku", "type": "int"}]}),
            "line.sku is written as string, and declared as int",
        ),
        (("line", LINE), ("line", {**LINE, "name": "Row"}), "line is written as the record shop.Line, and declared as"),
    ],
)
def test_a_schema_that_the_declaration_cannot_read_rejects_all_values_and_says_why(
    writer: tuple[Any, ...], reader: tuple[Any, ...], sentence: str
) -> None:
    serde = read_with(record(reader), record(writer))
    assert reason_of(serde, b"\0\0\0\0\1").startswith(f"schema 1 cannot be read as declared: {sentence}")


def test_a_value_that_the_declaration_does_not_allow_is_rejected_and_others_are_not() -> None:
    newer = record(("state", {**STATE, "symbols": ["NEW", "PAID", "LOST"]}), ("id", ["null", "string"]))
    serde = read_with(record(("state", STATE), ("id", "string")), newer)
    assert serde.decode(written(newer, {"state": "PAID", "id": "1"})) == {"state": "PAID", "id": "1"}
    for value in ({"state": "LOST", "id": "1"}, {"state": "NEW", "id": None}):
        reason = "a part of it has a type or a symbol that schema 1 allows and the declaration does not"
        assert reason_of(serde, written(newer, value)) == reason


def test_a_schema_may_name_types_of_its_references() -> None:
    refers = record(("id", "string"), ("line", "shop.Line"))
    named: dict[str, Any] = {}
    line = json.dumps({**LINE, "namespace": "shop"})
    fastavro.parse_schema(json.loads(line), named)
    data = written(refers, {"id": "1", "line": {"sku": "a", "price": Decimal("1.00")}}, named=named)
    declared = record(("line", LINE))
    serde = read_with(declared, WrittenSchema(refers, (Reference("shop.Line", WrittenSchema(line)),)))
    assert serde.decode(data) == {"line": {"sku": "a", "price": Decimal("1.00")}}


def test_a_schema_of_another_format_is_no_schema_of_avro() -> None:
    schema = record(("id", "string"))
    serde = read_with(schema, WrittenSchema("message M {}", format="PROTOBUF"), "no JSON")
    assert reason_of(serde, b"\0\0\0\0\1") == "schema 1 is one of PROTOBUF, and not of Avro"
    assert reason_of(serde, b"\0\0\0\0\2").startswith("schema 2 cannot be used: ")


# -- columns


def values_with_faults() -> Iterator[bytes | None]:
    generator = random.Random(7)
    good = written(EVERYTHING, VALUE)
    newer = written(record(*[("id", "string"), ("extra", "long")]), {"id": "1", "extra": 3}, 2)
    for _ in range(3000):
        data = bytearray(generator.choice((good, newer)))
        for _ in range(generator.choice((0, 0, 1, 3))):
            at = generator.randrange(len(data))
            match generator.randrange(3):
                case 0:
                    data[at] = generator.randrange(256)
                case 1:
                    del data[at:]
                    data += b"\0"
                case _:
                    data.insert(at, generator.randrange(256))
        yield bytes(data)
    yield None


def test_a_column_is_read_as_its_values_are_and_no_bytes_do_any_harm() -> None:
    serde = read_with(EVERYTHING, EVERYTHING, record(("id", "string"), ("extra", "long")))
    expect_column_as_values(serde, [*values_with_faults()])


def test_a_column_is_written_as_its_values_are() -> None:
    serde = read_with(EVERYTHING, EVERYTHING)
    column = serde.decode_column([written(EVERYTHING, VALUE)]).fields
    assert serde.encode_column(column).to_pylist() == [serde.encode(VALUE)]


def test_a_field_can_be_a_key() -> None:
    serde = read_with(EVERYTHING, EVERYTHING)
    data = written(EVERYTHING, VALUE)
    assert key_of(serde, "paid", data) == b"true"
    assert serde.key_column("number", [data]).keys.to_pylist() == [key_of(serde, "number", data)]


def test_a_serde_can_be_sent_to_other_processes() -> None:
    serde = read_with(EVERYTHING, EVERYTHING)
    assert dict(serde.fields)
    assert serde.decode(written(EVERYTHING, VALUE))
    assert pickle.loads(pickle.dumps(serde)) == serde


# -- names of types, which Avro's library resolves otherwise than Java's


def writing(fields: list[dict[str, Any]], **of_record: Any) -> Avro:
    serde = Avro(json.dumps({"type": "record", "name": "R", "fields": fields, **of_record}))
    return serde.with_schemas(DeclaredSchemas((serde.declared,)), "orders")


def test_a_type_without_a_namespace_is_found_within_one_and_values_are_written() -> None:
    """``Schema.Names.get``: where the namespace has no such type, the one without a namespace is meant."""
    kind = {"type": "enum", "name": "Kind", "namespace": "", "symbols": ["A", "B"]}
    serde = writing([{"name": "a", "type": kind}, {"name": "b", "type": ["null", "Kind"]}], namespace="shop")
    assert serde.decode(serde.encode({"a": "A", "b": "B"})) == {"a": "A", "b": "B"}


def fields_of_two_kinds(*namespaces: str) -> list[dict[str, Any]]:
    """Return fields of two types named Kind, with a field whose type is just Kind between them."""
    kinds = [
        {"type": "enum", "name": "Kind", "namespace": namespace, "symbols": [f"{namespace}A"]}
        for namespace in namespaces
    ]
    return [{"name": "a", "type": kinds[0]}, {"name": "b", "type": "Kind"}, {"name": "c", "type": kinds[1]}]


def reading_b(fields: Any, symbol: str) -> Avro:
    """Return a serde that reads the field b of what was written with the fields."""
    written = json.dumps({"type": "record", "name": "R", "namespace": "shop", "fields": fields})
    kind = {"type": "enum", "name": "Kind", "symbols": [symbol]}
    serde = Avro(json.dumps({"type": "record", "name": "shop.R", "fields": [{"name": "b", "type": kind}]}))
    return serde.with_schemas(DeclaredSchemas((WrittenSchema(written, (), "AVRO"),)), "orders")


def test_a_name_that_means_another_type_behind_it_is_refused() -> None:
    fields = fields_of_two_kinds("", "shop")
    reason = "the name Kind may mean shop.Kind, or the type Kind without a namespace"
    with pytest.raises(ValueError, match=reason):
        _ = writing(fields, namespace="shop").fields
    assert reason in reason_of(reading_b(fields, "A"), b"\0\0\0\0\1\0\0\0")


def test_a_name_means_the_type_of_its_namespace_before_one_without() -> None:
    fields = fields_of_two_kinds("shop", "")
    serde, values = writing(fields, namespace="shop"), {"a": "shopA", "b": "shopA", "c": "A"}
    assert serde.decode(serde.encode(values)) == values
    assert reading_b(fields, "shopA").decode(b"\0\0\0\0\1\0\0\0") == {"b": "shopA"}


def test_a_record_of_a_file_never_contains_a_name_that_would_mean_another_type() -> None:
    kind = {"type": "enum", "name": "Kind", "symbols": ["A"]}
    own, part, mine = (
        {"name": "own", "type": kind},
        {"name": "part", "type": "a.Part"},
        {"name": "mine", "type": {**kind, "namespace": ""}},
    )
    a_part = {"type": "record", "name": "a.Part", "fields": [{"name": "kind", "type": "Kind"}]}
    order = {"type": "record", "name": "shop.Order", "fields": [own, part, mine]}
    with pytest.raises(ValueError, match=r"the name Kind would mean shop\.Kind, and the type Kind has no namespace"):
        _ = Avro(json.dumps([a_part, order]), record="shop.Order").fields


@pytest.mark.parametrize("of_field", [{"type": {"type": "string"}}, {"type": ["null", "string"]}, {"type": ["string"]}])
def test_a_type_within_a_type_is_written(of_field: Any) -> None:
    serde = writing([{"name": "a", "type": of_field}])
    assert serde.decode(serde.encode({"a": "x"})) == {"a": "x"}


@pytest.mark.parametrize("nested", [["int"], {"type": ["int"]}, {"type": {"type": ["null", "int"]}}])
def test_a_union_in_a_union_is_none_of_avro(nested: Any) -> None:
    with pytest.raises(ValueError, match="a: a union is a type or null"):
        _ = writing([{"name": "a", "type": ["null", nested]}]).fields


@pytest.mark.parametrize("seed", range(30))
def test_whatever_the_names_of_types_are_values_are_written_and_read_again(seed: int) -> None:
    chosen = random.Random(seed)
    namespaces = ["", "shop", "shop.x", "Kind"]
    known: list[tuple[str, str]] = []
    fields, value = [], {}
    for number in range(6):
        name = f"f{number}"
        if known and chosen.random() < 0.5:
            reference, symbol = chosen.choice(known)
            fields.append({"name": name, "type": chosen.choice([reference, ["null", reference], [reference, "null"]])})
        else:
            namespace, symbol = chosen.choice(namespaces), f"S{number}"
            kind = {"type": "enum", "name": f"E{number}", "namespace": namespace, "symbols": ["Z", symbol]}
            known.append((f"{namespace}.E{number}".lstrip("."), symbol))
            nested = {"type": "record", "name": f"N{number}", "fields": [{"name": "k", "type": kind}]}
            within = chosen.choice([kind, {"type": "array", "items": kind}, nested])
            fields.append({"name": name, "type": within})
            value[name] = [symbol] if within is not kind and within is not nested else symbol
            if within is nested:
                value[name] = {"k": symbol}
            continue
        value[name] = symbol
    serde = writing(fields, namespace=chosen.choice(namespaces))
    assert serde.decode(serde.encode(value)) == value
