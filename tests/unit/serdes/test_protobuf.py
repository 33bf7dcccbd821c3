from __future__ import annotations

import math
import pickle
import random
import re
import struct
from base64 import b64encode
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from streamplan.errors import Refused
from streamplan.serdes.protobuf import Protobuf
from streamplan.serdes.schema_serde import PREFIX
from streamplan.serdes.schema_source import Reference, WrittenSchema
from streamplan.serdes.serde import Undecodable, key_of
from streamplan.serdes.value_text import text_of_value
from streamplan.testing.declared_schemas import DeclaredSchemas

from tests.support.protobuf_messages import ABSENT, EVERYTHING, FIELDS, MESSAGE, made, message_class, random_value
from tests.support.serde_columns import changed, expect_column_as_values, reason_of
from tests.support.soak import seeds, soak

Declare = Callable[..., Protobuf]

MAIL = b"\0\0\0\0\1\0"
"""What stands before the first message of schema 1."""


@pytest.fixture
def declare(tmp_path: Path) -> Declare:
    """Declares a file with this text."""
    numbers = iter(range(1000))

    def declared(text: str, message: str = "", package: str = "package shop;") -> Protobuf:
        path = tmp_path / f"file{next(numbers)}.proto"
        path.write_text(text if "syntax" in text else f'syntax = "proto3"; {package} {text}')
        return Protobuf(str(path), message=message)

    return declared


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Protobuf:
    path = tmp_path_factory.mktemp("declared") / "everything.proto"
    path.write_text(EVERYTHING)
    serde = Protobuf(str(path), message=MESSAGE)
    return serde.with_schemas(DeclaredSchemas((serde.declared,)), "values")


@pytest.fixture(scope="module")
def googles(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The class of the same message by Google's compiler and library alone."""
    folder = tmp_path_factory.mktemp("google")
    return message_class({"everything.proto": EVERYTHING}, "everything.proto", f"shop.{MESSAGE}", folder)


def reading(serde: Protobuf, *written: Protobuf | WrittenSchema | str) -> Protobuf:
    """A serde with the schemas that have the ids 1, 2, ..."""

    def schema(each: Protobuf | WrittenSchema | str) -> WrittenSchema:
        if isinstance(each, str):
            return WrittenSchema(each, (), "PROTOBUF")
        return each.declared if isinstance(each, Protobuf) else each

    return serde.with_schemas(DeclaredSchemas(tuple(map(schema, written))), "orders")


# -- types


def test_the_types_of_a_message_are_those_of_fields(everything: Protobuf) -> None:
    assert dict(everything.fields) == FIELDS
    assert everything.record_name == "shop.Everything"


def test_a_message_without_types_of_fields_is_refused_with_the_reason(declare: Declare) -> None:
    refused = [
        ("bytes a = 1;", "a: there is no field type for bytes"),
        ("message N { repeated bytes b = 1; } N a = 1;", "a.b[]: there is no field type for bytes"),
        ("map<string, bytes> a = 1;", "a[]: there is no field type for bytes"),
        ("M3 a = 1;", "a: shop.M3 contains itself. A field cannot have a recursive type"),
        (
            "message N { repeated M4 b = 1; } N a = 1;",
            "a.b[]: shop.M4 contains itself. A field cannot have a recursive type",
        ),
        ("message N { } N a = 1;", "a: the message shop.M5.N has no fields"),
        ("", "shop.M6: the message shop.M6 has no fields"),
        ("google.protobuf.Value a = 1;", "a.struct_value.fields[]: google.protobuf.Value contains itself."),
        ("google.protobuf.Any a = 1;", "a.value: there is no field type for bytes"),
        ("google.protobuf.BytesValue a = 1;", "a: there is no field type for bytes"),
        ("confluent.type.Decimal a = 1;", "a.value: there is no field type for bytes"),
    ]
    names = [*(f"google/protobuf/{name}" for name in ("struct", "any", "wrappers")), "confluent/type/decimal"]
    text = "".join(f'import "{name}.proto"; ' for name in names)
    text += "".join(f"message M{n} {{ {fields} }} " for n, (fields, _) in enumerate(refused))
    whole = declare(text, "M0")
    for n, (_, reason) in enumerate(refused):
        with pytest.raises(ValueError, match=rf"^file0\.proto: {re.escape(reason)}"):
            _ = Protobuf(whole.schema, message=f"M{n}").fields


def test_a_file_with_none_or_several_messages_needs_a_name(declare: Declare) -> None:
    with pytest.raises(ValueError, match=r"^name one of the messages of file0\.proto by message=: none$"):
        _ = declare("enum E { A = 0; }").fields
    with pytest.raises(ValueError, match=r"^name one of the messages of file1\.proto by message=: A, B$"):
        _ = declare("message A { string a = 1; } message B { string a = 1; }").fields


def test_what_the_compiler_says_is_told(declare: Declare) -> None:
    with pytest.raises(ValueError, match=r'file0\.proto cannot be read: file0\.proto:1:\d+: "strin" is not defined\.$'):
        _ = declare("message M { strin a = 1; }").fields


def test_a_message_is_named_with_or_without_its_package(declare: Declare) -> None:
    whole = declare("message A { message B { string b = 1; } string a = 1; } message C { int32 c = 1; }", "C").schema
    for name, field in {"C": "c", "shop.C": "c", "A.B": "b", "shop.A.B": "b"}.items():
        assert [*Protobuf(whole, message=name).fields] == [field]
    with pytest.raises(ValueError, match=r"^file0\.proto has no message 'Order': its messages are A, C$"):
        _ = Protobuf(whole, message="Order").fields
    for misspelt in ("c", "shp.C"):
        with pytest.raises(ValueError, match=rf"no message '{misspelt}': its messages are A, C\. Did you mean C\?$"):
            _ = Protobuf(whole, message=misspelt).fields
    assert [*declare("message C { int32 c = 1; }", "C", package="").fields] == ["c"]


def test_a_declaration_can_be_a_file_a_set_of_descriptors_or_a_class(tmp_path: Path, googles: Any) -> None:
    (tmp_path / "protos" / "shop").mkdir(parents=True)
    (tmp_path / "protos" / "shop" / "everything.proto").write_text(EVERYTHING)
    declaring = tmp_path / "declaration.py"
    declaring.write_text(
        "from streamplan import Protobuf\n"
        "FILE = Protobuf('protos/shop/everything.proto', message='Everything')\n"
        "ROOTED = Protobuf('shop/everything.proto', message='Everything', proto_path='protos')\n"
        "SET = Protobuf('everything.binpb', message='shop.Everything')\n"
        "GONE = Protobuf('gone.proto')\n"
        "OTHER = Protobuf('declaration.py')\n"
    )
    (tmp_path / "everything.binpb").write_bytes(_set_of(googles))
    found: dict[str, Any] = {"googles": googles}
    exec(compile(declaring.read_text(), str(declaring), "exec"), found)
    for serde in (found["FILE"], found["ROOTED"], found["SET"], Protobuf.of(googles)):
        assert dict(serde.fields) == FIELDS
    with pytest.raises(ValueError, match=f"the schema {tmp_path}/gone.proto cannot be read. A relative path begins"):
        _ = found["GONE"].fields
    with pytest.raises(
        ValueError, match=r"declaration\.py cannot be read: it is neither a \.proto file nor a set of descr"
    ):
        _ = found["OTHER"].fields


def _set_of(of_class: Any) -> bytes:
    """``FileDescriptorSet``: each file with its imports before it."""
    files: dict[str, bytes] = {}

    def add(file: Any) -> None:
        for imported in file.dependencies:
            add(imported)
        files[file.name] = file.serialized_pb

    add(of_class.DESCRIPTOR.file)
    return b"".join(b"\x0a" + _varint(len(data)) + data for data in files.values())


def _varint(number: int) -> bytes:
    return bytes([number & 0x7F | 0x80]) + _varint(number >> 7) if number > 0x7F else bytes([number])


# -- values


@pytest.mark.parametrize("seed", seeds(1, 20))
def test_values_have_the_bytes_of_googles_library_and_are_read_from_them(
    everything: Protobuf, googles: Any, seed: int
) -> None:
    generator = random.Random(seed)
    values = [random_value(generator) for _ in range(100 if seed == 0 else 3000)]
    for value in values:
        message = made(googles, value)
        data = b"\0\0\0\0\1\2\2" + message.SerializeToString(deterministic=True)
        assert everything.encode(value) == data
        assert everything.decode(data) == value
    column = everything.decode_column([everything.encode(value) for value in values])
    assert column.rejected == {}
    assert column.fields.to_pylist(maps_as_pydicts="strict") == values
    assert everything.encode_column(column.fields).to_pylist() == [everything.encode(value) for value in values]


def test_an_absent_field_has_its_default_or_is_null_where_the_schema_tells_the_two_apart(everything: Protobuf) -> None:
    assert everything.decode(b"\0\0\0\0\1\2\2") == ABSENT
    assert everything.encode(ABSENT) == b"\0\0\0\0\1\2\2"


def test_what_is_set_to_its_default_is_no_null(everything: Protobuf) -> None:
    value = {**ABSENT, "maybe_text": "", "maybe_number": 0, "wrapped_i32": 0, "line": {"sku": "", "number": None}}
    assert everything.decode(everything.encode(value)) == value


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"text": None}, "text is null, and the schema has no null there"),
        ({"i32": 1 << 31}, "i32 is not of type int"),
        ({"u32": -1}, "u32 is not of type uint32"),
        ({"u32": 1 << 32}, "u32 is not of type uint32"),
        ({"i64": 1 << 63}, "i64 is not of type bigint"),
        ({"u64": Decimal(-1)}, "u64 is -1, which no uint64 can be"),
        ({"u64": Decimal(1 << 64)}, "u64 is 18446744073709551616, which no uint64 can be"),
        ({"u64": Decimal("0.5")}, "u64 is 0.5, and not of type decimal(20,0)"),
        ({"exact": float("nan")}, "exact is nan, which is no number"),
        ({"rough": 1e300}, "rough is 1e+300, which no float of 32 bits can be"),
        ({"yes": 1}, "yes is not of type boolean"),
        ({"state": "GONE"}, "state is 'GONE', and not one of NEW, PAID, SETTLED, LOST"),
        ({"lines": None}, "lines is null, and the schema has no null there"),
        ({"lines": [None]}, "lines[0] is null, and the schema has no null there"),
        ({"lines": [{"sku": "a"}, {"sku": None}]}, "lines[1].sku is null, and the schema has no null there"),
        ({"texts": ["a", None]}, "texts[1] is null, and the schema has no null there"),
        ({"rates": {"a": None}}, "rates['a'] is null, and the schema has no null there"),
        ({"by_name": {"a": {"sku": 1}}}, "by_name['a'].sku is not of type string"),
        ({"by_number": {"x": "a"}}, "by_number['x'] is no key of int32"),
        ({"by_number": {"2147483648": "a"}}, "by_number['2147483648'] is no key of int32"),
        ({"by_bool": {"yes": "NEW"}}, "by_bool['yes'] is no key of bool"),
        ({"mail": "a", "parcel": {"sku": "a"}}, "the value has both mail and parcel, and contact is one of them"),
    ],
)
def test_a_value_that_the_schema_does_not_have_is_not_written(
    everything: Protobuf, change: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}$"):
        everything.encode({**ABSENT, **change})


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (None, "the value is null"),
        (b"", "the value does not begin with the byte 0 and the id of a schema"),
        (b"\0\0\0\0", "the value does not begin with the byte 0 and the id of a schema"),
        (b'{"id": "1"}', "the value does not begin with the byte 0 and the id of a schema"),
        (b"\0\0\0\0\7\0", "the Schema Registry has no schema 7"),
        (b"\0\0\0\0\1", "the value has no message indexes behind the id of its schema"),
        (b"\0\0\0\0\1\2", "the value has no message indexes behind the id of its schema"),
        (b"\0\0\0\0\1\1", "the value has no message indexes behind the id of its schema"),
        (b"\0\0\0\0\1\xff\xff\xff\xff\xff\xff", "the value has no message indexes behind the id of its schema"),
        (b"\0\0\0\0\1\2\1", "the value has no message indexes behind the id of its schema"),
        (b"\0\0\0\0\1\2\x0e", "schema 1 has no message with the indexes 7"),
        (b"\0\0\0\0\1\4\2\x0e", "schema 1 has no message with the indexes 1, 7"),
        (b"\0\0\0\0\1\0\x0a\1a", "the value is a shop.Other, and declared is shop.Everything"),
        (b"\0\0\0\0\1\2\2\x0a", "the value is no shop.Everything of schema 1"),
        (b"\0\0\0\0\1\2\2\x0a\2\xff\xff", "the value is no shop.Everything of schema 1"),
        (b"\0\0\0\0\1\2\2\x78\7", "state is 7, which the enum State does not list"),
        (b"\0\0\0\0\1\2\2\x61\0\0\0\0\0\0\xf0\x7f", None),
        (b"\0\0\0\0\1\2\2\x69\0\0\0\0\0\0\xf0\x7f", "exact is inf, which is no number"),
        (b"\0\0\0\0\1\2\2\x9a\1\x06\x08\xff\xff\xff\xff\x7f", None),
        (b"\0\0\0\0\1\2\2\x9a\1\x07\x08\xff\xff\xff\xff\xff\x1f", "at is not of type timestamp"),
        (b"\0\0\0\0\1\2\2\x9a\1\x06\x10\x80\x94\xeb\xdc\x03", "at is not of type timestamp"),
        (b"\0\0\0\0\1\2\2\xa2\1\2\x08\x01", "day is not of type date"),
    ],
)
def test_what_is_no_such_value_is_rejected_with_the_reason(
    everything: Protobuf, data: bytes | None, reason: str | None
) -> None:
    if reason is not None:
        assert reason_of(everything, data) == reason
    else:
        assert everything.decode(data)


def test_without_a_registry_nothing_is_rejected_and_the_error_says_what_to_do(declare: Declare) -> None:
    with pytest.raises(Refused, match=r"values in Protobuf name their schema.*schema\.registry\.url"):
        declare("message M { string a = 1; }").decode(MAIL)


def test_without_the_compiler_nothing_is_rejected_and_the_error_says_what_to_do(
    declare: Declare, googles: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = 'syntax = "proto3"; message Everything { string text = 1; } // another one'
    serde = reading(Protobuf.of(googles), Protobuf.of(googles), other)
    monkeypatch.setattr("streamplan.serdes.protobuf_files.find_spec", lambda name: None)
    assert serde.decode(serde.encode(ABSENT)) == ABSENT  # one's own schema is not compiled
    for refused in (lambda: serde.decode(b"\0\0\0\0\2\0"), serde.prepare_to_read):
        with pytest.raises(Refused, match=r"pip install 'streamplan\[protobuf\]'"):
            refused()
    with pytest.raises(ValueError, match=r"file0\.proto cannot be read: .*pip install 'streamplan\[protobuf\]'"):
        _ = declare("message M { string a = 1; }").fields


def test_a_compiler_that_does_not_run_rejects_nothing(declare: Declare, monkeypatch: pytest.MonkeyPatch) -> None:
    serde = reading(declare("message M { string a = 1; }"), 'syntax = "proto3"; message M { string a = 1; } // other')
    monkeypatch.setattr("streamplan.serdes.protobuf_files.sys.executable", "/bin/false")
    monkeypatch.setattr("streamplan.serdes.protobuf_files._OF_A_FILE", 7)
    with pytest.raises(Refused, match="exit status 1"):
        serde.decode(MAIL)


def test_a_decimal_has_the_digits_of_its_options(declare: Declare) -> None:
    option = '[(confluent.field_meta) = {params: [{key: "precision", value: "6"}, {key: "scale", value: "2"}]}]'
    text = 'import "confluent/meta.proto"; import "confluent/type/decimal.proto";'
    serde = declare(f"{text} message M {{ confluent.type.Decimal a = 1 {option}; }}")
    assert dict(serde.fields) == {"a": "decimal(6,2)"}
    serde = reading(serde, serde)
    # BigDecimal("-1.28"): unscaledValue().toByteArray() is [-128], precision() 3, scale() 2
    assert serde.encode({"a": Decimal("-1.28")}) == MAIL + b"\x0a\x07\x0a\x01\x80\x10\x03\x18\x02"
    for value in ("0.00", "1.28", "-9999.99", "327.67", None):
        decimal = value and Decimal(value)
        assert serde.decode(serde.encode({"a": decimal})) == {"a": decimal}
    assert serde.decode(MAIL + b"\x0a\x03\x0a\x01\x0c") == {"a": Decimal("12.00")}  # scale 0
    assert serde.decode(MAIL + b"\x0a\x06\x0a\x02\x04\xb0\x18\x03") == {"a": Decimal("1.20")}  # 1.200
    assert reason_of(serde, MAIL + b"\x0a\x05\x0a\x01\x0c\x18\x03") == "a is not of type decimal(6,2)"  # 0.012
    assert reason_of(serde, MAIL + b"\x0a\x06\x0a\x04\x7f\xff\xff\xff") == "a is not of type decimal(6,2)"
    assert reason_of(serde, MAIL + b"\x0a\x00") == "a is not of type decimal(6,2)"


def test_proto2_has_required_fields_defaults_and_closed_enums(declare: Declare) -> None:
    serde = declare(
        'syntax = "proto2"; message M { enum E { X = 1; Y = 2; } required string id = 1; optional int32 n = 2;'
        " optional int32 d = 3 [default = 7]; optional E e = 4; repeated group G = 5 { required int32 g = 6; } }"
    )
    assert dict(serde.fields) == {"id": "string", "n": "int", "d": "int", "e": "string", "g": "array<struct<g: int>>"}
    serde = reading(serde, serde)
    assert serde.decode(MAIL + b"\x0a\1a") == {"id": "a", "n": None, "d": 7, "e": None, "g": []}
    assert serde.decode(MAIL + b"\x0a\1a\x10\0\x18\0\x20\2\x2b\x30\1\x2c") == {
        "id": "a", "n": 0, "d": 0, "e": "Y", "g": [{"g": 1}]
    }  # fmt: skip
    assert serde.decode(MAIL + b"\x0a\1a\x20\x09")["e"] is None
    assert reason_of(serde, MAIL) == "id is not written, and the schema requires it"
    assert reason_of(serde, MAIL + b"\x0a\1a\x2b\x2c") == "g[0].g is not written, and the schema requires it"
    with pytest.raises(ValueError, match=r"^id is null, and the schema has no null there$"):
        serde.encode({"id": None, "g": []})


def test_a_text_of_proto2_that_is_not_utf_8_is_rejected_as_that_of_proto3(declare: Declare) -> None:
    """Google's library does not judge it, and gives bytes in its place: a key was their representation."""
    fields = "string id = 1; {0} string each = 2; map<string, string> by = 3; oneof one {{ string a = 4; }}"
    old = declare(f'syntax = "proto2"; message M {{ optional {fields.format("repeated")} }}')
    new = declare(f'syntax = "proto3"; message M {{ {fields.format("repeated")} }}')
    for number, message in enumerate((b"\x0a\1\xff", b"\x12\1\xff", b"\x1a\6\x0a\1k\x12\1\xff", b"\x22\1\xff")):
        place = ("id", "each[0]", "by['k']", "a")[number]
        assert reason_of(reading(old, old), MAIL + message) == f"{place} is a text that is not UTF-8"
        assert reason_of(reading(new, new), MAIL + message) == "the value is no M of schema 1"
        expect_column_as_values(reading(old, old), [MAIL + message, MAIL + b"\x0a\1a"])
        with pytest.raises(Undecodable):
            key_of(reading(old, old), "id", MAIL + message)


# -- other schemas


def test_a_value_of_another_schema_is_read_by_the_numbers_of_its_fields(declare: Declare) -> None:
    older = declare("message M { string id = 1; int32 n = 2; string gone = 3; }")
    newer = declare("message M { int64 number = 2; string id = 1; optional string added = 4; repeated string m = 5; }")
    serde = reading(newer, newer, older)
    data = reading(older, "", older).encode({"id": "a", "n": 7, "gone": "x"})
    assert data[:6] == b"\0\0\0\0\2\0"
    assert serde.decode(data) == {"number": 7, "id": "a", "added": None, "m": []}


def test_the_schema_of_a_value_may_be_a_text_of_a_registry_or_a_descriptor(declare: Declare, googles: Any) -> None:
    serde = declare("message M { string id = 1; }")
    text = 'syntax = "proto3"; package other; message A { string a = 1; } message M { int32 n = 2; string id = 1; }'
    assert reading(serde, text).decode(b"\0\0\0\0\1\2\2\x0a\1a") == {"id": "a"}
    everything = Protobuf.of(googles)
    descriptor = b64encode(googles.DESCRIPTOR.file.serialized_pb).decode()
    assert reading(everything, descriptor).decode(b"\0\0\0\0\1\2\2") == ABSENT


def test_a_schema_may_import_those_of_its_references(declare: Declare) -> None:
    serde = declare("message M { message P { int64 cents = 1; } P price = 1; }")
    money = WrittenSchema('syntax = "proto3"; message Money { int64 cents = 1; }', (), "PROTOBUF")
    prices = WrittenSchema(
        'syntax = "proto3"; import "common/money.proto"; message Price { Money money = 1; }',
        (Reference("common/money.proto", money),),
        "PROTOBUF",
    )
    text = 'syntax = "proto3"; import "prices.proto"; import "common/money.proto"; message M { Money price = 1; }'
    references = (Reference("prices.proto", prices), Reference("common/money.proto", money))
    data = MAIL + b"\x0a\2\x08\7"
    assert reading(serde, WrittenSchema(text, references, "PROTOBUF")).decode(data) == {"price": {"cents": 7}}
    missing = WrittenSchema(text, references[1:], "PROTOBUF")
    assert reason_of(reading(serde, missing), data).startswith(
        'schema 1 cannot be used: prices.proto: File not found.; schema.proto:1:20: Import "prices.proto" was not found'
    )
    outside = WrittenSchema(text, (Reference("../../prices.proto", prices),), "PROTOBUF")
    assert "../../prices.proto is not the name of an imported file" in reason_of(reading(serde, outside), data)


def test_a_declaration_with_imports_is_registered_with_references(tmp_path: Path) -> None:
    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "money.proto").write_text('syntax = "proto3"; message Money { int64 cents = 1; }')
    (tmp_path / "order.proto").write_text(
        'syntax = "proto3"; import "common/money.proto"; import "google/protobuf/timestamp.proto";'
        "message Order { Money price = 1; google.protobuf.Timestamp at = 2; }"
    )
    serde = Protobuf(str(tmp_path / "order.proto"))
    (reference,) = serde.declared.references
    assert reference.name == "common/money.proto"
    assert reference.schema.references == ()
    at = datetime(2026, 11, 25, tzinfo=UTC)
    written = reading(serde, serde)
    assert written.decode(written.encode({"price": {"cents": 7}, "at": at})) == {"price": {"cents": 7}, "at": at}
    other = reading(serde, "", WrittenSchema(serde.declared.text, serde.declared.references, "PROTOBUF"))
    assert other.decode(b"\0\0\0\0\2" + written.encode({"price": {"cents": 7}, "at": at})[5:])["at"] == at


def of_each_case(declare: Declare, written: list[str], declared: list[str]) -> Iterator[tuple[Protobuf, Protobuf]]:
    """For each case a serde that writes and one that reads: messages of two files."""
    others = "message N { int32 n = 1; } message O { string n = 1; } enum E { X = 0; Y = 5; }"
    writer, reader = (
        declare(" ".join(f"message M{n} {{ {fields} }}" for n, fields in enumerate(each)) + others, "M0").schema
        for each in (written, declared)
    )
    known = DeclaredSchemas((Protobuf(writer, message="M0").declared,))
    for n in range(len(written)):
        serdes = [Protobuf(each, message=f"M{n}").with_schemas(known, "orders") for each in (writer, reader)]
        yield serdes[0], serdes[1]


def test_a_schema_that_the_declaration_cannot_read_rejects_all_values_and_says_why(declare: Declare) -> None:
    cases = [
        ("string a = 1;", "int32 a = 1;", "a is written as string, and declared as int32"),
        ("int64 a = 1;", "int32 a = 1;", "a is written as int64, and declared as int32"),
        ("int32 a = 1;", "sint32 a = 1;", "a is written as int32, and declared as sint32"),
        ("int32 a = 1;", "uint64 a = 1;", "a is written as int32, and declared as uint64"),
        ("uint32 a = 1;", "int32 a = 1;", "a is written as uint32, and declared as int32"),
        ("float a = 1;", "double a = 1;", "a is written as float, and declared as double"),
        ("repeated string a = 1;", "string a = 1;", "a is written as repeated string, and declared as string"),
        ("map<string, int32> a = 1;", "map<string, string> a = 1;", "a.value is written as int32, and declared as st"),
        ("N a = 1;", "string a = 1;", "a is written as the message shop.N, and declared as string"),
        ("repeated N a = 1;", "repeated O a = 1;", "a.n is written as int32, and declared as string"),
        ("map<string, N> a = 1;", "repeated N a = 1;", "a is written as map<string, the message shop.N>, and declared"),
    ]
    written, declared, sentences = zip(*cases, strict=True)
    for (writer, reader), sentence in zip(of_each_case(declare, [*written], [*declared]), sentences, strict=True):
        data = PREFIX.pack(0, 1) + writer._declared_message.indexes
        assert reason_of(reader, data).startswith(f"schema 1 cannot be read as declared: {sentence}")


def test_a_field_of_another_type_is_read_where_no_value_is_lost(declare: Declare) -> None:
    cases: list[tuple[str, Any, str, Any]] = [
        ("int32 a = 1;", -7, "int64 a = 1;", -7),
        ("uint32 a = 1;", 4_000_000_000, "int64 a = 1;", 4_000_000_000),
        ("uint32 a = 1;", 4_000_000_000, "uint64 a = 1;", Decimal(4_000_000_000)),
        ("sint32 a = 1;", -7, "sint64 a = 1;", -7),
        ("bool a = 1;", True, "int32 a = 1;", 1),
        ("E a = 1;", "Y", "int32 a = 1;", 5),
        ("int32 a = 1;", 5, "E a = 1;", "Y"),
        ("string a = 1;", "x", "repeated string a = 1;", ["x"]),
        ("int32 a = 1;", 3, "repeated int32 a = 1;", [3]),
        ("repeated int32 a = 1 [packed = false];", [3, 4], "repeated int32 a = 1;", [3, 4]),
        ("string old = 1;", "x", "string a = 1;", "x"),
        ("oneof c { string a = 1; }", "x", "optional string a = 1;", "x"),
    ]
    serdes = of_each_case(declare, [case[0] for case in cases], [case[2] for case in cases])
    for (writer, reader), (_, value, _, expected) in zip(serdes, cases, strict=True):
        (name,) = writer.fields
        assert reader.decode(writer.encode({name: value})) == {"a": expected}


def test_an_enum_of_another_schema_may_have_numbers_that_are_not_declared(declare: Declare) -> None:
    newer = declare("message M { enum E { X = 0; Y = 1; Z = 2; } E e = 1; }")
    serde = reading(declare("message M { enum E { X = 0; Y = 1; } E e = 1; }"), newer)
    assert serde.decode(MAIL + b"\x08\1") == {"e": "Y"}
    assert reason_of(serde, MAIL + b"\x08\2") == "e is 2, which the enum E does not list"
    assert [(each.text, each.always) for each in serde.differences(newer.declared)] == [
        ("e may be Z, which the declaration does not list", False)
    ]
    assert serde.undeclared_fields(newer.declared) == []


def test_what_is_no_schema_of_protobuf_is_told(declare: Declare) -> None:
    serde = reading(declare("message M { string a = 1; }"), WrittenSchema("{}", (), "AVRO"), "no file")
    assert reason_of(serde, MAIL) == "schema 1 is one of AVRO, and not of Protobuf"
    assert reason_of(serde, b"\0\0\0\0\2\0").startswith("schema 2 cannot be used: schema.proto:1:1: ")
    assert [each.text for each in serde.differences(declare("message N { string a = 1; }").declared)] == [
        "there is no message M in it"
    ]


# -- columns, and the whole


def values_with_faults(serde: Protobuf, number: int) -> Iterator[bytes | None]:
    generator = random.Random(7)
    for _ in range(number):
        yield changed(serde.encode(random_value(generator)), generator, lambda: generator.randrange(256))
    yield None


@pytest.mark.parametrize("number", [500, *soak([30_000])])
def test_a_column_is_read_as_its_values_are_and_no_bytes_do_any_harm(everything: Protobuf, number: int) -> None:
    expect_column_as_values(everything, [*values_with_faults(everything, number)])


def test_a_field_can_be_a_key(everything: Protobuf) -> None:
    data = everything.encode({**ABSENT, "state": "PAID", "i64": 1 << 40})
    assert key_of(everything, "state", data) == b"PAID"
    assert everything.key_column("i64", [data]).keys.to_pylist() == [key_of(everything, "i64", data)]


def test_a_serde_can_be_sent_to_other_processes(everything: Protobuf) -> None:
    assert everything.decode(everything.encode(ABSENT)) == ABSENT
    sent = pickle.loads(pickle.dumps(everything))
    assert sent == everything
    assert sent.decode(sent.encode(ABSENT)) == ABSENT


NO_JSON = """syntax = "proto3";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
message Event { google.protobuf.Timestamp at = 1; google.protobuf.Value value = 2; string name = 3; }
"""


@pytest.mark.parametrize(
    "message",
    [
        b"\x0a\x09\x08" + b"\xff" * 7 + b"\x0f",  # a moment that there is not
        b"\x12\x09\x11" + struct.pack("<d", math.nan),
    ],
)
def test_a_message_that_json_does_not_have_is_shown_as_no_json(message: bytes) -> None:
    """Google's library raises an error of its own for a part of a message, and ValueError for the message itself."""
    schemas = DeclaredSchemas((WrittenSchema(NO_JSON, format="PROTOBUF"),))
    assert text_of_value(b"\0\0\0\0\1\0\x1a\1a", schemas) == '{"name": "a"}'
    assert text_of_value(b"\0\0\0\0\1\0" + message, schemas) is None


def test_a_value_is_shown_as_json_with_all_that_was_written(declare: Declare, everything: Protobuf) -> None:
    value = {**ABSENT, "text": "ä", "day": date(2026, 11, 25), "mail": "m"}
    assert everything.schemas is not None
    shown = text_of_value(everything.encode(value), everything.schemas)
    assert shown is not None
    assert shown.startswith('{"text": "ä", "day": {"year": 2026, "month": 11, "day": 25}, "mail": "m", "i32": 0')
    other = text_of_value(b"\0\0\0\0\1\0\x0a\1a", everything.schemas)
    assert other == '{"name": "a"}'
    for no_value in (b"\0\0\0\0\1", b"\0\0\0\0\1\x0e\x0e", b"\0\0\0\0\1\0\x0a", b"\0\0\0\0\7\0a", b"\0\0\0\0\0\0a"):
        assert text_of_value(no_value, everything.schemas) is None
