from __future__ import annotations

import json
import pickle
import random
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from streamplan.errors import Refused
from streamplan.serdes.json_schema import JsonSchema
from streamplan.serdes.schema_source import Reference, WrittenSchema
from streamplan.serdes.serde import Undecodable, key_of
from streamplan.serdes.value_text import text_of_value
from streamplan.testing.declared_schemas import DeclaredSchemas

from tests.support.json_schema_documents import EVERYTHING, FIELDS, LEAST, document_of, random_value
from tests.support.serde_columns import changed, expect_column_as_values, reason_of
from tests.support.soak import seeds, soak

PREFIX = b"\0\0\0\0\1"


def schema(properties: dict[str, Any], *required: str, **more: Any) -> str:
    return json.dumps({"type": "object", "properties": properties, "required": [*required], **more})


def reading(declared: str | JsonSchema, *written: str | WrittenSchema) -> JsonSchema:
    """A serde with the schemas that have the ids 1, 2, ...; without any, with its own."""
    serde = JsonSchema(declared) if isinstance(declared, str) else declared
    known = (WrittenSchema(each, (), "JSON") if isinstance(each, str) else each for each in written)
    return serde.with_schemas(DeclaredSchemas(tuple(known) or (serde.declared,)), "orders")


# -- types


def test_the_types_of_a_schema_are_those_of_fields() -> None:
    serde = JsonSchema(EVERYTHING)
    assert dict(serde.fields) == FIELDS
    assert serde.record_name == "shop.Everything"
    assert JsonSchema(schema({"a": {"type": "string"}})).record_name == ""


@pytest.mark.parametrize(
    ("of_field", "reason"),
    [
        ({}, "a: a field has one type, or that and null; there is no field type for any value"),
        (True, "a: there is no field type for true"),
        ({"type": "null"}, "a: a field has one type, or that and null; there is no field type for any value"),
        (
            {"type": ["string", "integer"]},
            "a: a field has one type, or that and null; there is no field type for string",
        ),
        ({"type": "text"}, "a: 'text' is not a type of JSON Schema"),
        ({"enum": ["x", 1]}, "a: a field has one type, or that and null; there is no field type for string or integer"),
        (
            {"oneOf": [{"type": "string"}, {"type": "integer"}]},
            "a: oneOf is a type or null; there is no field type for 2",
        ),
        ({"allOf": [{"type": "string"}, {"type": "integer"}]}, "a: there is no field type for allOf with 2 types"),
        ({"type": "array"}, 'a: an array has one schema of its elements, as "items": {…}'),
        ({"type": "array", "items": [{"type": "string"}]}, "a: an array has one schema of its elements"),
        ({"type": "array", "items": {"type": "object"}}, 'a[]: an object has "properties", or is a map by'),
        ({"type": "object", "additionalProperties": True}, 'a: an object has "properties", or is a map by'),
        ({"$ref": "#"}, "a: # contains itself. A field cannot have a recursive type"),
        ({"$ref": "#/definitions/gone"}, "a: it refers to #/definitions/gone, which is not there"),
        ({"$ref": "gone.json"}, "it refers to gone.json, which is not there"),
        ({"$ref": "#name"}, "a: it refers to #name, which is not there"),
        ({"type": "string", "minLength": "x"}, "the schema is not valid: "),
    ],
)
def test_a_schema_without_types_of_fields_is_refused_with_the_reason(of_field: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}"):
        _ = JsonSchema(schema({"a": of_field})).fields


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "the schema is not JSON: "),
        ('{"type": "string"}', 'the schema is not that of an object with "properties"'),
        ('{"type": "object", "additionalProperties": {"type": "string"}}', "the schema is not that of an object with"),
        ("{}", "the schema: a field has one type"),
        (schema({"": {"type": "string"}}), "the schema: no field can have the name ''"),
    ],
)
def test_what_is_no_schema_of_an_object_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}"):
        _ = JsonSchema(text).fields


def test_a_schema_that_contains_itself_is_refused() -> None:
    tree = {"type": "object", "properties": {"left": {"$ref": "#/definitions/tree"}}}
    with pytest.raises(ValueError, match=r"^a\.left: #/definitions/tree contains itself"):
        _ = JsonSchema(schema({"a": {"$ref": "#/definitions/tree"}}, definitions={"tree": tree})).fields


def test_a_relative_path_begins_at_the_file_that_declares_it_and_files_beside_it_are_references(tmp_path: Path) -> None:
    (tmp_path / "order.schema.json").write_text(schema({"total": {"$ref": "money.json#/definitions/Money"}}))
    money = {"type": "object", "properties": {"unit": {"$ref": "units.json"}, "cents": {"$ref": "#/definitions/Cents"}}}
    cents = {"type": "integer", "minimum": 0}
    in_money = json.dumps({"$id": "https://shop/money", "definitions": {"Money": money, "Cents": cents}})
    (tmp_path / "money.json").write_text(in_money)
    (tmp_path / "units.json").write_text('{"enum": ["EUR", "USD"]}')
    declaring = tmp_path / "declaration.py"
    declaring.write_text(
        "from streamplan import JsonSchema\nORDER = JsonSchema('order.schema.json')\nGONE = JsonSchema('gone.json')\n"
    )
    found: dict[str, Any] = {}
    exec(compile(declaring.read_text(), str(declaring), "exec"), found)
    serde: JsonSchema = found["ORDER"]
    assert dict(serde.fields) == {"total": "struct<unit: string, cents: bigint>"}
    units = Reference("units.json", WrittenSchema('{"enum": ["EUR", "USD"]}', (), "JSON"))
    assert serde.declared.references == (Reference("money.json", WrittenSchema(in_money, (units,), "JSON")),)
    assert reading(serde).decode(PREFIX + b'{"total": {"unit": "USD", "cents": 7}}') == {
        "total": {"unit": "USD", "cents": 7}
    }
    assert reason_of(reading(serde), PREFIX + b'{"total": {"unit": "CHF"}}').startswith("total.unit is not valid: ")
    assert reason_of(reading(serde), PREFIX + b'{"total": {"cents": -1}}').startswith(
        "total.cents is not valid: -1 is "
    )
    with pytest.raises(ValueError, match=f"the schema {tmp_path}/gone.json cannot be read"):
        _ = found["GONE"].fields


@pytest.mark.parametrize(
    ("of_field", "field_type"),
    [
        ({"type": "number", "multipleOf": 0.5}, "double"),
        ({"type": "number", "multipleOf": 1}, "double"),
        ({"type": "number", "multipleOf": 0.1}, "decimal(38,1)"),
        ({"type": "number", "multipleOf": 1e-3, "minimum": 0, "maximum": 999}, "decimal(6,3)"),
        ({"type": "number", "multipleOf": 0.01, "minimum": -1000, "maximum": 5}, "decimal(6,2)"),
        ({"type": "integer", "format": "int64"}, "bigint"),
        ({"type": "string", "format": "uuid"}, "string"),
        ({"type": "object", "properties": {"b": {"type": "null"}, "c d": {"type": "boolean"}}}, None),
        ({"type": "object", "properties": {"c d": {"type": "boolean"}}}, "struct<`c d`: boolean>"),
        ({"properties": {"b": {"const": 1}}}, "struct<b: bigint>"),
        ({"type": "string", "anyOf": [{"pattern": "^a"}, {"maxLength": 3}]}, "string"),
        ({"type": ["string", "null"], "oneOf": [{"minLength": 1}, {"type": "null"}]}, "string"),
        ({"type": "array", "items": {"type": "integer"}, "anyOf": [{"minItems": 1}]}, "array<bigint>"),
        ({"type": ["integer", "number"]}, "double"),
        ({"enum": [1, 1.5, None]}, "double"),
        ({"allOf": [{"enum": ["a", "b"]}, {"title": "A"}]}, "string"),
        ({"allOf": [{"type": "string"}, {"enum": ["a", "b"]}]}, "string"),
        ({"type": "object", "oneOf": [{"type": "null"}, {"properties": {"b": {"const": 1}}}]}, "struct<b: bigint>"),
    ],
)
def test_numbers_formats_and_objects_have_the_types_that_stand_in_the_schema(
    of_field: dict[str, Any], field_type: str | None
) -> None:
    serde = JsonSchema(schema({"a": of_field}))
    if field_type is None:
        with pytest.raises(ValueError, match=r"^a\.b: "):
            _ = serde.fields
    else:
        assert dict(serde.fields) == {"a": field_type}


def test_branches_beside_a_type_restrict_its_values() -> None:
    """Which properties are there together is a frequent use of ``oneOf``; such a schema was refused as a union."""
    both = {"a": {"type": "string"}, "b": {"type": "string"}}
    one_of = schema(both, oneOf=[{"required": ["a"]}, {"required": ["b"]}])
    serde = reading(one_of, one_of)
    assert dict(serde.fields) == {"a": "string", "b": "string"}
    assert serde.decode(PREFIX + b'{"b": "x"}') == {"a": None, "b": "x"}
    for document in (b"{}", b'{"a": "x", "b": "x"}'):
        with pytest.raises(Undecodable, match="is not valid"):
            serde.decode(PREFIX + document)


# -- values


@pytest.mark.parametrize("seed", seeds(1, 20))
def test_values_are_written_as_documents_and_read_from_those_of_others(seed: int) -> None:
    serde, generator = reading(EVERYTHING), random.Random(seed)
    values = [random_value(generator) for _ in range(100 if seed == 0 else 3000)]
    documents = [json.dumps(document_of(value), ensure_ascii=generator.random() < 0.5) for value in values]
    theirs = [PREFIX + document.encode() for document in documents]
    ours = [serde.encode(value) for value in values]
    for value, their_data, our_data in zip(values, theirs, ours, strict=True):
        assert serde.decode(their_data) == value
        assert serde.decode(our_data) == value
        assert {**json.loads(our_data[5:]), "at": None} == {**document_of(value), "at": None}
    for data in (theirs, ours):
        column = serde.decode_column(data)
        assert column.rejected == {}
        assert column.fields.to_pylist(maps_as_pydicts="strict") == values
        assert serde.encode_column(column.fields).to_pylist() == ours


def test_a_document_is_written_without_spaces_and_without_what_is_absent() -> None:
    serde = reading(EVERYTHING)
    assert serde.encode(LEAST) == PREFIX + b'{"text":"","large":0,"maybe_text":null,"lines":[]}'
    value = {**LEAST, "at": datetime(2026, 11, 25, 9, 0, 0, 5, UTC), "price": Decimal("1.50"), "text": "ä"}
    assert (
        serde.encode(value)
        == PREFIX
        + (
            '{"text":"ä","large":0,"price":1.50,"at":"2026-11-25T09:00:00.000005Z","maybe_text":null,"lines":[]}'
        ).encode()
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"text": None}, "text is null, and the schema has no null there"),
        ({"small": 1 << 31}, "small is not of type int"),
        ({"large": 1 << 63}, "large is not of type bigint"),
        ({"exact": float("nan")}, "exact is nan, which is no number"),
        ({"price": Decimal("0.001")}, "price is not valid: 0.001 is not a multiple of 0.01"),
        ({"price": Decimal("100000.00")}, "price is not valid: 100000.00 is greater than the maximum of 99999.99"),
        ({"state": "GONE"}, 'state is not valid: "GONE" is not one of "NEW" or "PAID"'),
        ({"lines": [None]}, "lines[0] is null, and the schema has no null there"),
        ({"lines": [{"sku": "a", "price": None}]}, "lines[0].price is null, and the schema has no null there"),
        ({"lines": [{"sku": "", "price": Decimal(1)}]}, 'lines[0].sku is not valid: "" is shorter than 1 character'),
        ({"rates": {"a": None}}, "rates['a'] is null, and the schema has no null there"),
        ({"yes": 1}, "yes is not of type boolean"),
    ],
)
def test_a_value_that_the_schema_does_not_have_is_not_written(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}$"):
        reading(EVERYTHING).encode({**LEAST, **change})


LINES = '{"text": "", "large": 0, "maybe_text": null, "lines": %s}'


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (None, "the value is null"),
        (b"", "the value does not begin with the byte 0 and the id of a schema"),
        (b"\0\0\0\0", "the value does not begin with the byte 0 and the id of a schema"),
        (b'{"text": "1"}', "the value does not begin with the byte 0 and the id of a schema"),
        (b"\0\0\0\0\7{}", "the Schema Registry has no schema 7"),
        (b"\0\0\0\0\1", "the value is not JSON"),
        (b"\0\0\0\0\1{", "the value is not JSON"),
        (b"\0\0\0\0\1{} {}", "the value is not JSON"),
        (b"\0\0\0\0\1\xff", "the value is not JSON"),
        (b"\0\0\0\0\1[]", "the value is not a JSON object"),
        (b'\0\0\0\0\1{"a": NaN}', "the value is not JSON"),
        (b"\0\0\0\0\1{}", 'the value is not valid: "text" is a required property'),
        (b'\0\0\0\0\1{"text": 1}', "text is not of type string"),
        (b'\0\0\0\0\1{"large": 1.5}', "large is not of type bigint"),
        (b'\0\0\0\0\1{"at": "yesterday"}', "at is not of type timestamp"),
        (PREFIX + (LINES % '[{"sku": "a", "price": 1}, {"sku": "b"}]').encode(), 'lines[1] is not valid: "price" is a'),
        (PREFIX + (LINES % '[{"sku": "a", "price": 1.234}]').encode(), "lines[0].price is not of type decimal(7,2)"),
        (PREFIX + (LINES % '[], "\\ud800": 1').encode(), "the value cannot be judged: "),
        (PREFIX + (LINES % '[], "state": "GONE"').encode(), 'state is not valid: "GONE" is not one of'),
        (PREFIX + (LINES % '[], "state": null').encode(), "state is not valid: null is not one of"),
    ],
)
def test_what_is_no_such_value_is_rejected_with_the_reason(data: bytes | None, reason: str) -> None:
    serde = reading(EVERYTHING)
    assert reason_of(serde, data).startswith(reason)
    assert [*serde.decode_column([data]).rejected.values()] == [reason_of(serde, data)]


def test_a_long_value_is_not_repeated_in_the_reason() -> None:
    serde = reading(schema({"a": {"type": "string", "maxLength": 3}}))
    reason = reason_of(serde, PREFIX + json.dumps({"a": "x" * 5000}).encode())
    assert reason.startswith('a is not valid: "xxx')
    assert len(reason) < 350


def test_numbers_beyond_all_limits_do_no_harm() -> None:
    serde = reading(schema({"a": {"type": "number", "multipleOf": 0.01}, "b": {"type": "string"}}))
    for number in ("1e400", "1e999999999", "-1e-999999999", "1" * 4000, "0." + "0" * 5000 + "1"):
        assert serde.decode(PREFIX + f'{{"b": "x", "other": {number}}}'.encode()) == {"a": None, "b": "x"}
        reason = reason_of(serde, PREFIX + f'{{"a": {number}}}'.encode())
        assert reason == "a is not of type decimal(38,2): the number has more digits"
    assert serde.decode(PREFIX + b'{"a": 123456789012345678901234567890.07}')["a"] == Decimal(
        "123456789012345678901234567890.07"
    )


def test_without_a_registry_nothing_is_rejected_and_the_error_says_what_to_do() -> None:
    with pytest.raises(Refused, match=r"values in JSON Schema name their schema.*schema\.registry\.url"):
        JsonSchema(EVERYTHING).decode(PREFIX + b"{}")
    with pytest.raises(Refused, match=r"schema\.registry\.url"):
        JsonSchema(EVERYTHING).decode_column([PREFIX + b"{}"])


def test_a_schema_without_a_draft_is_one_of_draft_7_and_newer_drafts_are_judged_by_their_rules() -> None:
    of_field = {"type": "array", "items": {"type": "integer"}, "contains": {"const": 1}, "minContains": 2}
    once = PREFIX + b'{"a": [1, 2]}'
    assert reading(schema({"a": of_field})).decode(once) == {"a": [1, 2]}
    newer = schema({"a": of_field}, **{"$schema": "https://json-schema.org/draft/2020-12/schema"})
    assert reason_of(reading(newer), once).startswith("a is not valid: ")


# -- other schemas


def test_each_value_is_judged_by_the_declared_schema_whatever_it_was_written_with() -> None:
    declared = schema({"id": {"type": "string"}, "n": {"type": "integer"}}, "id")
    other = schema({"id": {"type": ["string", "integer"]}, "extra": {"type": "string"}})
    serde = reading(declared, other)
    assert serde.decode(PREFIX + b'{"id": "a", "extra": "x"}') == {"id": "a", "n": None}
    assert reason_of(serde, PREFIX + b'{"id": 1}') == "id is not of type string"
    assert reason_of(serde, PREFIX + b'{"extra": "x"}') == 'the value is not valid: "id" is a required property'
    closed = reading(schema({"id": {"type": "string"}}, additionalProperties=False), other)
    assert reason_of(closed, PREFIX + b'{"id": "a", "extra": "x"}').startswith("the value is not valid: Additional")


def test_a_schema_of_another_format_is_no_json_schema() -> None:
    serde = reading(EVERYTHING, WrittenSchema("message M {}", (), "PROTOBUF"))
    assert reason_of(serde, PREFIX + b"{}") == "schema 1 is one of PROTOBUF, and not of JSON Schema"


TEXT, NUMBER = {"type": "string"}, {"type": "integer"}


@pytest.mark.parametrize(
    ("written", "declared", "sentence", "always"),
    [
        (TEXT, TEXT, None, False),
        (NUMBER, {"type": "number"}, None, False),
        (TEXT, {"type": ["string", "null"]}, None, False),
        (TEXT, NUMBER, "a is written as string, and declared as integer", True),
        ({"type": ["string", "null"]}, NUMBER, "a is written as string or null, and declared as integer", True),
        ({"type": ["string", "null"]}, TEXT, "a may be null, and the declaration has no null there", False),
        ({"type": ["string", "integer"]}, TEXT, "a may be of type integer, and is declared as string", False),
        ({"type": "number"}, NUMBER, "a may be of type number, and is declared as integer", False),
        (TEXT, {"type": "string", "format": "date-time"}, "a may be a text that is no date-time", False),
        ({"enum": ["x", "y"]}, {"enum": ["x"]}, "a may be y, which the declaration does not list", False),
        ({"type": "array", "items": TEXT}, {"type": "array", "items": NUMBER}, "a[] is written as string, and", True),
        ({"properties": {"b": TEXT}}, {"properties": {"b": NUMBER}}, "a.b is written as string, and declared as", True),
        ({"properties": {"b": TEXT}}, {"properties": {"b": TEXT}, "required": ["b"]}, "a.b may be absent, and", False),
        ({"properties": {"b": TEXT}}, {"properties": {"c": TEXT}, "required": ["c"]}, "a.c is not written, and", True),
        (
            {"properties": {"b": TEXT, "c": TEXT}},
            {"properties": {"c": TEXT}, "additionalProperties": False},
            "a.b may be there, and the declaration allows no other properties",
            False,
        ),
        ({"$ref": "#/definitions/x"}, NUMBER, "a is written as string, and declared as integer", True),
    ],
)
def test_the_differences_of_two_schemas_are_told(
    written: dict[str, Any], declared: dict[str, Any], sentence: str | None, always: bool
) -> None:
    definitions = {"x": TEXT}
    serde = JsonSchema(schema({"a": declared}))
    other = WrittenSchema(schema({"a": written, "more": TEXT}, definitions=definitions), (), "JSON")
    found = serde.differences(other)
    assert [each.always for each in found] == ([] if sentence is None else [always])
    assert sentence is None or found[0].text.startswith(sentence)
    assert serde.undeclared_fields(other) == ["more"]


# -- columns, and the whole


def values_with_faults(number: int) -> Iterator[bytes | None]:
    serde, generator = reading(EVERYTHING), random.Random(7)

    def inserted() -> int:
        return generator.choice(b'0"[]{},:.e-\\') if generator.random() < 0.8 else 255

    for _ in range(number):
        yield changed(serde.encode(random_value(generator)), generator, inserted)
    yield None


SIMPLE = schema(
    {"id": TEXT, "n": {"type": "integer", "minimum": 0}, "price": {"type": "number", "multipleOf": 0.01}}, "id"
)


def simple_values(number: int) -> Iterator[bytes | None]:
    """Values without a map: Arrow reads them."""
    generator = random.Random(3)
    for n in range(number):
        data = bytearray(b'\0\0\0\0\1{"id": "%d", "n": %d, "price": %d.25}' % (n, generator.choice((-1, 0, n)), n))
        if generator.random() < 0.3:
            at = generator.randrange(len(data))
            data[at : at + generator.randrange(2)] = generator.choice((b"", b"0", b'"', b"\xff", b"{"))
        yield bytes(data)
    yield None


@pytest.mark.parametrize("number", [500, *soak([30_000])])
def test_a_column_is_read_as_its_values_are_and_no_bytes_do_any_harm(number: int) -> None:
    expect_column_as_values(reading(EVERYTHING), [*values_with_faults(number)])
    expect_column_as_values(reading(SIMPLE), [*simple_values(number)])


def test_a_field_can_be_a_key() -> None:
    serde = reading(EVERYTHING)
    data = serde.encode({**LEAST, "large": 1 << 40, "state": "PAID"})
    assert key_of(serde, "state", data) == b"PAID"
    assert serde.key_column("large", [data]).keys.to_pylist() == [key_of(serde, "large", data)]
    assert len(serde.decode_column([]).fields) == 0


def test_a_serde_can_be_sent_to_other_processes() -> None:
    serde = reading(EVERYTHING)
    assert serde.decode(serde.encode(LEAST)) == LEAST
    sent = pickle.loads(pickle.dumps(serde))
    assert sent == serde
    assert sent.decode(sent.encode(LEAST)) == LEAST


def test_a_value_is_shown_as_it_was_written() -> None:
    serde = reading(EVERYTHING)
    assert serde.schemas is not None
    assert text_of_value(PREFIX + b'{"any": 1}', serde.schemas) == '{"any": 1}'
    assert text_of_value(PREFIX + b"{", serde.schemas) is None


def test_the_reason_of_a_column_is_that_of_a_single_value_with_control_characters_escaped() -> None:
    schema = '{"type": "object", "properties": {"f": {"type": "object", "additionalProperties": {"maximum": 1}}}}'
    schema = schema.replace('{"maximum": 1}', '{"type": "number", "maximum": 1}')
    serde = JsonSchema(schema).with_schemas(DeclaredSchemas((WrittenSchema(schema, (), "JSON"),)), "t")
    data = b'\0\0\0\0\1{"f": {"\\u0000": 2}}'
    with pytest.raises(Undecodable) as single:
        serde.decode(data)
    assert serde.decode_column([data]).rejected == {0: str(single.value)}
    assert "\0" not in str(single.value)
