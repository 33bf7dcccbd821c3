"""Schemas as people have them in files: each is taken, or refused in words that name the file and the place."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from random import Random
from typing import Any

import fastavro
import pytest
from google.protobuf import duration_pb2, timestamp_pb2, wrappers_pb2
from streamplan.serdes.avro import Avro
from streamplan.serdes.json_schema import JsonSchema
from streamplan.serdes.protobuf import Protobuf
from streamplan.serdes.schema_source import WrittenSchema
from streamplan.testing.declared_schemas import DeclaredSchemas

from tests.support.avro_files import file_with_types

PREFIX = b"\0\0\0\0\1"


def avro(*fields: tuple[Any, ...], **more: Any) -> str:
    """The schema of a record. A field is a name, a type and perhaps a default."""
    listed = [{"name": each[0], "type": each[1], **({"default": each[2]} if each[2:] else {})} for each in fields]
    return json.dumps({"type": "record", "name": "Order", "fields": listed, **more})


def document(of_field: Any, **more: Any) -> str:
    return json.dumps({"type": "object", "properties": {"a": of_field}, **more})


ENUM = {"type": "enum", "name": "State", "symbols": ["NEW"]}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
FIXED = {"type": "fixed", "name": "F", "logicalType": "decimal", "precision": 4}
NESTED = '{"type": "array", "items": ' * 400 + '"int"' + "}" * 400
DEEP_OBJECT = '{"type": "object", "properties": {"a": ' * 300 + '{"type": "string"}' + "}}" * 300

TAKEN: list[tuple[str, str | bytes, dict[str, str]]] = [
    ("comments.avsc", '// of the shop\n/* {"no": "schema"} */\n' + avro(("a", "string")), {"a": "string"}),
    ("inner.avsc", avro(("a", "int")).replace('"fields"', '/* of // it */ "fields"'), {"a": "int"}),
    ("url.avsc", avro(("a", "string"), doc="https://shop.example/* not a comment */"), {"a": "string"}),
    ("returns.avsc", "{// of the shop\r" + avro(("a", "string"))[1:], {"a": "string"}),
    ("mark.avsc", b"\xef\xbb\xbf" + avro(("a", "string")).encode(), {"a": "string"}),
    ("one.avsc", f"[{json.dumps(ENUM)}, {avro(('a', 'State'))}]", {"a": "string"}),
    ("no_namespace.avsc", avro(("a", "int"), namespace=None), {"a": "int"}),
    ("written_null.avsc", avro(("a", [{"type": "null"}, "int"], None)), {"a": "int"}),
    ("second_default.avsc", avro(("a", ["null", "string"], "x")), {"a": "string"}),
    ("mark.json", b"\xef\xbb\xbf" + document({"type": "string"}).encode(), {"a": "string"}),
    ("comments.json", "// of the shop\n" + document({"type": "string"}), {"a": "string"}),
    (
        "own_name.json",
        document({"$ref": "x.json#/$defs/A"}, **{"$id": "x.json", "$defs": {"A": {"type": "integer"}}}),
        {"a": "bigint"},
    ),
    (
        "draft3.json",
        document({"type": "string"}, **{"$schema": "http://json-schema.org/draft-03/schema#"}),
        {"a": "string"},
    ),
    ("own_dialect.json", document({"type": "string"}, **{"$schema": "https://shop.example/schema"}), {"a": "string"}),
    ("mark.proto", b"\xef\xbb\xbf" + b'syntax = "proto3"; message M { string a = 1; }', {"a": "string"}),
    ("edition.proto", 'edition = "2023"; message M { string a = 1; }', {"a": "string"}),
    (
        "two.proto",
        'syntax = "proto2"; message M { optional group G = 1 { optional int32 x = 1; } extensions 9; }',
        {"g": "struct<x: int>"},
    ),
    (
        "names.proto",
        'syntax = "proto3"; message M { int32 class = 1; int32 DESCRIPTOR = 2; }',
        {"class": "int", "DESCRIPTOR": "int"},
    ),
]

REFUSED: list[tuple[str, str | bytes, str]] = [
    ("comma.avsc", '{"type": "record",\n "name": "O",}', "the schema is not JSON: .*line 2 column 1"),
    ("open.avsc", "/* no end " + avro(("a", "int")), "the schema is not JSON: .*line 1 column 1 "),
    ("utf16.avsc", avro(("a", "int")).encode("utf-16"), "the byte 0 is not UTF-8"),
    ("empty.avsc", "", "the schema is not JSON"),
    ("idl.avsc", "protocol P { record O { int a; } }", "the schema is not JSON"),
    ("primitive.avsc", '"string"', "the schema is not that of a record"),
    ("enum.avsc", json.dumps(ENUM), "the schema is not that of a record"),
    ("union.avsc", '["null", "string"]', "it has no record"),
    (
        "two.avsc",
        f"[{avro(('a', 'int'))}, {avro(('a', 'int'), name='Paid')}]",
        "name one by record=; its records are Order, Paid",
    ),
    ("name.avsc", avro(("a", "int"), name="my-order"), "'my-order' is not a legal name"),
    ("space.avsc", avro(("a", "int"), namespace=5), "the namespace 5, which is no text"),
    ("fields.avsc", '{"type": "record", "name": "O", "fields": {}}', "the record O has no fields"),
    ("field.avsc", '{"type": "record", "name": "O", "fields": [5]}', "a field without a legal name"),
    ("aliases.avsc", avro(("a", "int"), aliases="X"), "the aliases of Order are not a list of names"),
    ("itself.avsc", avro(("a", ["null", "Order"])), "a: Order contains itself"),
    ("twice.avsc", avro(("a", ENUM), ("b", ENUM)), "b: the type State is defined twice"),
    ("symbols.avsc", avro(("a", {**ENUM, "symbols": ["A", "A"]})), "a: the enum State has the symbol 'A'"),
    (
        "symbol.avsc",
        avro(("a", {**ENUM, "default": "LOST"})),
        "a: the default 'LOST' is not a symbol of the enum State",
    ),
    ("size.avsc", avro(("a", {**FIXED, "size": -1})), "a: there is no field type for fixed with decimal"),
    ("none.avsc", avro(("a", {"type": "array"})), r"a\[\]: None is not a type of Avro"),
    ("deep.avsc", avro(("a", "@")).replace('"@"', NESTED), r"a\[\].*: the types are nested more than 100 deep"),
    ("deeper.avsc", "[" * 100_000, "the schema is not JSON"),
    *[
        (f"default{n}.avsc", avro(("a", of_field, value)), "a: the default .*")
        for n, (of_field, value) in enumerate(
            [
                *[("string", 5), ("string", None), ("int", "x"), ("int", 1 << 31), ("int", True), ("long", 1 << 63)],
                *[("boolean", "true"), ("double", "1"), (["null", "string"], 5), (ENUM, "LOST"), (DECIMAL, "aaa")],
                *[(DECIMAL, ""), (DECIMAL, "\u0100"), ({"type": "array", "items": "int"}, [None])],
                *[({"type": "map", "values": "int"}, []), ({"type": "int", "logicalType": "date"}, 1 << 30)],
                ({"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}]}, {}),
            ]
        )
    ],
    ("boolean.json", "true", "the schema is not an object"),
    ("list.json", "[]", "the schema is not an object"),
    ("comma.json", '{"type": "object",\n}', "the schema is not JSON: .*line 2 column 1"),
    ("latin.json", b'{"title": "\xe9"}', "the byte 11 is not UTF-8"),
    ("type.json", document({"type": {}}), r"a: \{\} is not a type of JSON Schema"),
    ("types.json", document({"type": ["string", [1]]}), r"a: \[1\] is not a type of JSON Schema"),
    ("anything.json", document(True), "a: there is no field type for true"),
    ("one_of.json", document({"oneOf": 5}), "a: oneOf is a list of schemas"),
    ("all_of.json", document({"allOf": 5}), "a: allOf is a list of schemas"),
    ("properties.json", '{"type": "object", "properties": [1]}', '"properties" are schemas by their names'),
    ("required.json", document({"type": "string"}, required=5), '"required" is a list of names'),
    ("keyword.json", document({"type": "string", "minLength": "x"}), "is not valid: .*at #/properties/a/minLength"),
    ("pattern.json", document({"type": "string", "pattern": "("}), "is not valid: .*at #/properties/a/pattern"),
    (
        "great.json",
        '{"type": "object", "maximum": 1e99999999999999999999}',
        "1e9+ is not a number that a double can be",
    ),
    ("nan.json", '{"type": "object", "maximum": NaN}', "NaN is not a number"),
    ("anchor.json", document({"$ref": "#A"}), "a: it refers to #A, which is not there"),
    ("number.json", document({"$ref": 5}), "a: the reference 5 is not of a form"),
    (
        "remote.json",
        document({"$ref": "https://shop.example/a.json"}),
        "only files beside a schema are read, and nothing is fetched",
    ),
    ("wrong_file.json", document({"$ref": "comma.json"}), r"comma\.json: the schema is not JSON: .*line 2 column 1"),
    ("circle.json", document({"$ref": "circle2.json"}), r"circle2\.json: it refers to circle\.json, which leads back"),
    ("circle2.json", document({"$ref": "circle.json"}), "which leads back to it"),
    ("deep.json", DEEP_OBJECT, "nested"),
    ("deeper.json", "[" * 100_000, "the schema is not JSON"),
    ("syntax.proto", 'syntax = "proto3";\nmessage M { string a = ; }', r"syntax\.proto:2:24: Expected field number"),
    (
        "import.proto",
        'syntax = "proto3";\nimport "gone.proto";',
        r'import\.proto:2:1: Import "gone\.proto" was not found',
    ),
    ("edition.proto", 'edition = "2099"; message M { string a = 1; }', "Unknown edition"),
    ("none.proto", 'syntax = "proto3"; message M {}', r": M: the message M has no fields"),
    ("itself.proto", 'syntax = "proto3"; message M { M a = 1; }', r": a: M contains itself"),
    (
        "called.proto",
        'syntax = "proto3"; message M { int32 HasField = 1; }',
        r": HasField: a function of Google's",
    ),
    ("empty.binpb", b"", "it is an empty set of descriptors"),
    ("other.binpb", b"\x0a\x0a\x0a\x01x\x1a\x05no.pb", "no.pb"),
]


def serde_of(path: Path) -> Avro | JsonSchema | Protobuf:
    return {".avsc": Avro, ".json": JsonSchema}.get(path.suffix, Protobuf)(str(path))


@pytest.mark.parametrize(("name", "content", "fields"), TAKEN, ids=[each[0] for each in TAKEN])
def test_a_file_is_taken_as_people_have_it(
    tmp_path: Path, name: str, content: str | bytes, fields: dict[str, str]
) -> None:
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert dict(serde_of(tmp_path / name).fields) == fields


def test_a_file_is_refused_in_words_that_name_it_and_the_place(tmp_path: Path) -> None:
    for name, content, _ in REFUSED:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    for name, _, reason in REFUSED:
        with pytest.raises(ValueError, match=f"(?s)^(the schema {tmp_path}/)?{name}.*{reason}"):
            _ = serde_of(tmp_path / name).fields


def test_a_folder_is_no_schema(tmp_path: Path) -> None:
    for of_format in (Avro, JsonSchema, Protobuf):
        with pytest.raises(ValueError, match=f"the schema {tmp_path} cannot be read"):
            _ = of_format(str(tmp_path)).fields


# -- several records in a file of Avro

LINE = {"type": "record", "name": "Line", "namespace": "shop", "fields": [{"name": "sku", "type": "string"}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "first", "type": "Line"},
        {"name": "lines", "type": {"type": "array", "items": "shop.Line"}},
        {"name": "state", "type": ["null", "State"], "default": None},
    ],
}
STATE = {"type": "enum", "name": "shop.State", "symbols": ["NEW", "PAID"]}
OTHER = {"type": "record", "name": "old.Order", "fields": [{"name": "id", "type": "string"}]}


def test_a_record_of_several_in_a_file_is_chosen_and_contains_all_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "all.avsc").write_text(json.dumps([LINE, ORDER, STATE, OTHER]), encoding="utf-8")
    serde = Avro(str(tmp_path / "all.avsc"), record="shop.Order")
    assert serde.record_name == "shop.Order"
    assert serde.fields["lines"] == "array<struct<sku: string>>"
    assert serde == Avro(serde.schema)
    value: dict[str, Any] = {"first": {"sku": "a"}, "lines": [{"sku": "b"}], "state": "PAID"}
    ready = serde.with_schemas(DeclaredSchemas((serde.declared,)), "t")
    assert ready.decode(ready.encode(value)) == value
    # The registry gets a schema that Avro's library reads by itself.
    parsed: Any = fastavro.parse_schema(json.loads(serde.schema))
    assert parsed["name"] == "shop.Order"
    assert Avro(str(tmp_path / "all.avsc"), record="Line").fields == {"sku": "string"}
    assert Avro(json.dumps([LINE, ORDER, STATE]), record="Order") == serde
    assert (
        Avro(json.dumps({**ORDER, "fields": [{"name": "first", "type": LINE}]}), record="Line").record_name
        == "shop.Line"
    )


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Order", "it has several records named Order: its records are shop.Line, shop.Order, old.Order"),
        ("Paid", "it has no record named Paid: its records are shop.Line, shop.Order, old.Order"),
        ("State", "it has no record named State: "),
        ("", "it has several types: name one by record=; its records are shop.Line, shop.Order, old.Order"),
    ],
)
def test_a_name_that_is_none_of_a_record_or_of_several_is_refused(tmp_path: Path, name: str, reason: str) -> None:
    text = json.dumps([LINE, ORDER, STATE, OTHER])
    (tmp_path / "all.avsc").write_text(text, encoding="utf-8")
    for declared in (text, str(tmp_path / "all.avsc")):
        with pytest.raises(ValueError, match=reason):
            _ = Avro(declared, record=name).fields


@pytest.mark.parametrize(
    ("name", "question"),
    [
        ("order", "Did you mean Order?"),
        ("Lnie", "Did you mean Line?"),
        ("shops.Order", "Did you mean shop.Order?"),
        ("Invoice", "its records are shop.Line, shop.Order"),
        ("shop.Invoices.Paid", "its records are shop.Line, shop.Order"),
    ],
)
def test_a_misspelt_record_is_guessed_where_one_is_near(name: str, question: str) -> None:
    with pytest.raises(ValueError, match=re.escape(question) + "$"):
        _ = Avro(json.dumps([LINE, ORDER, STATE]), record=name).fields


@pytest.mark.parametrize("seed", range(60))
def test_a_record_of_any_file_with_several_types_is_as_fastavro_reads_it(seed: int) -> None:
    random = Random(seed)
    types = file_with_types(random)
    parsed: Any = fastavro.parse_schema(types, {})
    shuffled = random.sample(types, len(types))
    expanded = {each["name"]: each for each in fastavro.schema.expand_schema(json.loads(json.dumps(types)))}
    for each in parsed:
        if each["type"] != "record":
            continue
        serde = Avro(json.dumps(shuffled), record=each["name"])
        alone: Any = fastavro.parse_schema(json.loads(serde.schema), {})
        assert serde.record_name == alone["name"] == each["name"]
        assert fastavro.schema.expand_schema(json.loads(serde.schema)) == expanded[each["name"]]


def test_a_type_with_two_definitions_is_refused_unless_they_are_equal() -> None:
    other = {**LINE, "fields": [{"name": "sku", "type": "int"}]}
    within = {"type": "record", "name": "shop.Box", "fields": [{"name": "line", "type": {**LINE, "namespace": "shop"}}]}
    inherited = {name: each for name, each in LINE.items() if name != "namespace"}
    with pytest.raises(ValueError, match=r"the type shop\.Line is defined twice, and not in the same way"):
        _ = Avro(json.dumps([LINE, other, ORDER, STATE]), record="Order").fields
    for box in (within, {**within, "fields": [{"name": "line", "type": inherited}]}):
        assert Avro(json.dumps([LINE, box]), record="Box").fields == {"line": "struct<sku: string>"}


def test_a_name_with_a_dot_is_a_full_name_also_within_a_namespace() -> None:
    field = {"a": {"name": "a", "type": "int"}, "shop.a": {"name": "s", "type": "int"}}
    short, long = ({**LINE, "namespace": each, "fields": [field[each]]} for each in field)
    order = {"type": "record", "name": "shop.Order", "fields": [{"name": "line", "type": "a.Line"}]}
    for types in ([short, long, order], [long, short, order]):
        assert Avro(json.dumps(types), record="Order").fields == {"line": "struct<a: int>"}


PROTOCOL = {"protocol": "Shop", "namespace": "shop", "messages": {}}


def test_the_types_of_a_protocol_are_those_of_a_file_with_several(tmp_path: Path) -> None:
    without_namespace = [{name: each[name] for name in ("type", "name", "fields")} for each in (LINE, ORDER)]
    expected = Avro(json.dumps([LINE, ORDER, STATE]), record="Order")
    for protocol in (PROTOCOL, {"protocol": "shop.Shop"}):
        text = json.dumps({**protocol, "types": [*without_namespace, STATE]})
        (tmp_path / "shop.avpr").write_text(text, encoding="utf-8")
        serde = Avro(text, record="Order")
        assert json.loads(serde.schema) == json.loads(expected.schema)
        assert Avro(str(tmp_path / "shop.avpr"), record="shop.Order") == serde
        assert (
            Avro(json.dumps({**ORDER, "name": "New"}), references=str(tmp_path / "shop.avpr")).record_name == "shop.New"
        )
        with pytest.raises(ValueError, match=r"name one by record=; its records are shop\.Line, shop\.Order$"):
            _ = Avro(text).fields
    one = json.dumps({**PROTOCOL, "types": without_namespace[:1]})
    assert json.loads(Avro(one).schema) == LINE


@pytest.mark.parametrize(
    ("protocol", "reason"),
    [
        ({**PROTOCOL, "types": []}, "it has no record; its records are none"),
        ({**PROTOCOL, "protocol": 5, "types": [LINE]}, "a protocol without a name"),
        ({**PROTOCOL, "namespace": 5, "types": [LINE]}, "the protocol Shop has the namespace 5, which is no text"),
        ({**PROTOCOL, "types": {}}, "the schema is not that of a record"),
        (PROTOCOL, "the schema is not that of a record"),
    ],
)
def test_a_protocol_that_is_none_is_refused(tmp_path: Path, protocol: dict[str, Any], reason: str) -> None:
    (tmp_path / "shop.avpr").write_text(json.dumps(protocol), encoding="utf-8")
    for declared in (json.dumps(protocol), str(tmp_path / "shop.avpr")):
        with pytest.raises(ValueError, match=reason):
            _ = Avro(declared).fields


# -- a record of Avro in several files


def test_files_that_name_types_of_each_other_are_one_schema(tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER), encoding="utf-8")
    (tmp_path / "line.avsc").write_text(f"// the lines\n{json.dumps(LINE)}", encoding="utf-8")
    (tmp_path / "others.avsc").write_text("\ufeff" + json.dumps([STATE, OTHER]), encoding="utf-8")
    references = [str(tmp_path / name) for name in ("others.avsc", "line.avsc")]
    serde = Avro(str(tmp_path / "order.avsc"), references=references)
    assert serde == Avro(json.dumps([LINE, ORDER, STATE]), record="Order")
    assert serde == Avro(json.dumps(ORDER), references=references)
    assert serde == Avro(str(tmp_path / "order.avsc"), record="shop.Order", references=references[::-1])
    assert Avro(str(tmp_path / "line.avsc"), references=references[1]).fields == {"sku": "string"}


def test_a_type_of_another_file_is_refused_with_the_word_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER), encoding="utf-8")
    (tmp_path / "line.avsc").write_text(json.dumps(LINE)[:-1], encoding="utf-8")
    order = str(tmp_path / "order.avsc")
    with pytest.raises(ValueError, match=r"order\.avsc .*first: 'Line' is not a type .* named by references="):
        _ = Avro(order).fields
    with pytest.raises(ValueError, match=r"references='.*line\.avsc': the schema is not JSON: .* line 1 column"):
        _ = Avro(order, references=[str(tmp_path / "line.avsc")]).fields
    for absent in ("gone.avsc", ""):
        with pytest.raises(ValueError, match=rf"order\.avsc cannot be read: references='{tmp_path}/?{absent}': "):
            _ = Avro(order, references=str(tmp_path / absent)).fields
        with pytest.raises(ValueError, match=rf"references='{tmp_path}/?{absent}': "):
            _ = Avro(json.dumps(ORDER), references=str(tmp_path / absent)).fields


def test_a_schema_without_comments_is_kept_as_it_is(tmp_path: Path) -> None:
    text = json.dumps(OTHER, indent=3) + "\n"
    (tmp_path / "old.avsc").write_text(text, encoding="utf-8")
    assert Avro(str(tmp_path / "old.avsc")).schema.strip() == text.strip()


# -- Protobuf


def test_imports_are_found_in_several_folders(tmp_path: Path) -> None:
    for name, text in {
        "own/shop/order.proto": 'syntax = "proto3"; import "common/id.proto"; message Order { common.Id id = 1; }',
        "others/common/id.proto": 'syntax = "proto3"; package common; message Id { string id = 1; }',
    }.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    for roots in (("own", "others"), ["others", "own"]):
        serde = Protobuf("shop/order.proto", proto_path=[str(tmp_path / root) for root in roots])
        assert dict(serde.fields) == {"id": "struct<id: string>"}
    with pytest.raises(ValueError, match=r"own/shop/gone\.proto, .*others/shop/gone\.proto cannot be read"):
        _ = Protobuf("shop/gone.proto", proto_path=[str(tmp_path / root) for root in ("own", "others")]).fields


@pytest.mark.parametrize(
    ("message", "fields", "value"),
    [
        (timestamp_pb2.Timestamp, {"seconds": "bigint", "nanos": "int"}, {"seconds": 1 << 62, "nanos": -1}),
        (duration_pb2.Duration, {"seconds": "bigint", "nanos": "int"}, {"seconds": -5, "nanos": 7}),
        (wrappers_pb2.StringValue, {"value": "string"}, {"value": "a"}),
        (wrappers_pb2.UInt64Value, {"value": "decimal(20,0)"}, {"value": Decimal(7)}),
    ],
)
def test_a_value_that_is_a_well_known_type_is_a_message_with_its_fields(
    message: Any, fields: dict[str, str], value: dict[str, Any]
) -> None:
    serde = Protobuf.of(message)
    assert dict(serde.fields) == fields
    ready = serde.with_schemas(DeclaredSchemas((serde.declared,)), "t")
    assert ready.decode(ready.encode(value)) == value
    numbers = {name: int(each) if isinstance(each, Decimal) else each for name, each in value.items()}
    behind_the_indexes = len(PREFIX) + len(serde._declared_message.indexes)
    assert message.FromString(ready.encode(value)[behind_the_indexes:]) == message(**numbers)


def test_a_type_without_a_field_type_is_refused_by_name_also_as_the_value_itself() -> None:
    with pytest.raises(ValueError, match=r"wrappers\.proto: value: there is no field type for bytes"):
        _ = Protobuf.of(wrappers_pb2.BytesValue).fields


# -- JSON Schema


@pytest.mark.parametrize(
    "draft",
    [
        *(f"http://json-schema.org/draft-{number}/schema#" for number in ("03", "04", "06", "07")),
        *(f"https://json-schema.org/draft/{year}/schema" for year in ("2019-09", "2020-12")),
        *("http://json-schema.org/schema#", "https://shop.example/own", 5, None),
    ],
)
def test_formats_say_nothing_in_any_draft(draft: Any) -> None:
    properties = {
        f"f{n}": {"type": "string", "format": name} for n, name in enumerate(("email", "uuid", "ipv4", "uri"))
    }
    text = json.dumps({"type": "object", "properties": properties, **({"$schema": draft} if draft else {})})
    value = dict.fromkeys(properties, "no format")
    assert judged(text)(json.dumps(value)) == value


def judged(text: str) -> Callable[[str], dict[str, Any]]:
    serde = JsonSchema(text).with_schemas(DeclaredSchemas((WrittenSchema(text, (), "JSON"),)), "t")
    return lambda written: serde.decode(PREFIX + written.encode())


def test_a_draft_that_is_not_known_is_draft_7_and_a_known_one_is_itself() -> None:
    minimum = {"type": "integer", "minimum": 3, "exclusiveMinimum": True}  # legal in draft 4 alone
    assert judged(document(minimum, **{"$schema": "http://json-schema.org/draft-04/schema#"}))('{"a": 4}') == {"a": 4}
    for draft in ("https://shop.example/own", "http://json-schema.org/draft-07/schema#"):
        with pytest.raises(ValueError, match="the schema is not valid"):
            _ = JsonSchema(document(minimum, **{"$schema": draft})).fields


def test_nothing_is_fetched_for_a_schema() -> None:
    asked: list[str] = []

    class Server(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

    with HTTPServer(("127.0.0.1", 0), Server) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            address = f"http://127.0.0.1:{server.server_port}/schema.json"
            for schema in (
                document({"type": "string"}, **{"$schema": address}),
                document({"type": "string"}, **{"$id": address}),
            ):
                assert dict(JsonSchema(schema).fields) == {"a": "string"}
            for schema in (
                document({"$ref": address}),
                document({"type": "string", "allOf": [{"$ref": address}]}),
                document(
                    {"type": "string", "$dynamicRef": address},
                    **{"$schema": "https://json-schema.org/draft/2020-12/schema"},
                ),
                document(
                    {"type": "string", "$recursiveRef": address},
                    **{"$schema": "https://json-schema.org/draft/2019-09/schema"},
                ),
            ):
                with suppress(ValueError):
                    _ = JsonSchema(schema).fields
        finally:
            server.shutdown()
            thread.join(30)
    assert asked == []


@pytest.mark.parametrize("number", ["1e-9999999999999999999", "1e-400000000", "-1e-400", "0e999999999999999999"])
def test_a_double_with_a_long_exponent_beside_a_decimal_is_read_as_it_is_alone(number: str) -> None:
    text = json.dumps(
        {"type": "object", "properties": {"a": {"type": "number"}, "d": {"type": "number", "multipleOf": 0.01}}}
    )
    serde = JsonSchema(text).with_schemas(DeclaredSchemas((WrittenSchema(text, (), "JSON"),)), "t")
    values = [PREFIX + f'{{"a": {number}, "d": 1.25}}'.encode(), PREFIX + b'{"a": 1, "d": 1.25}']
    assert serde.decode(values[0]) == {"a": float(number), "d": Decimal("1.25")}
    column = serde.decode_column(values)
    assert not column.rejected
    assert column.fields.to_pylist() == [{"a": float(number), "d": Decimal("1.25")}, {"a": 1.0, "d": Decimal("1.25")}]


@pytest.mark.parametrize("levels", [1, 400, 499])
def test_a_deep_value_with_a_long_number_is_judged_whatever_the_callers_stack_is(levels: int) -> None:
    text = document({"type": "string"})
    written = f'{{"a": "x", "b": {"[" * levels}{"9" * 5000}{"]" * levels}}}'

    def deep(frames: int) -> Any:
        return deep(frames - 1) if frames else judged(text)(written)

    assert deep(0) == deep(600) == {"a": "x"}


@pytest.mark.parametrize("number", ["1e-9999999999999999999", "1e-400000000", "1e400000000", "1e9999999999999999999"])
def test_a_decimal_with_a_long_exponent_is_rejected_alone_and_in_a_column(number: str) -> None:
    text = document({"type": "number", "multipleOf": 0.01})
    serde = JsonSchema(text).with_schemas(DeclaredSchemas((WrittenSchema(text, (), "JSON"),)), "t")
    values = [PREFIX + f'{{"a": {number}}}'.encode(), PREFIX + b'{"a": 1.25}']
    column = serde.decode_column(values)
    assert [*column.rejected] == [0]
    assert column.fields.to_pylist() == [None, {"a": Decimal("1.25")}]


def test_an_int_of_avro_with_too_many_bits_is_rejected_in_a_column_and_the_others_are_read() -> None:
    text = avro(("a", "int"))
    serde = Avro(text).with_schemas(DeclaredSchemas((WrittenSchema(text),)), "t")
    column = serde.decode_column([PREFIX + b"\x02", PREFIX + b"\x80\x80\x80\x80\x80\x40", PREFIX + b"\x04"])
    assert column.fields.to_pylist() == [{"a": 1}, None, {"a": 2}]
    assert column.rejected == {1: "the value is no record of schema 1: a number has more than 32 bits"}
