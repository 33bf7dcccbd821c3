from __future__ import annotations

import pytest
from streamplan.serdes.field_types import (
    ArrayType,
    DecimalType,
    MapType,
    Scalar,
    StructType,
    has_map,
    leaves,
    parse_fields,
    parse_type,
)


def test_the_fields_of_a_declaration_have_their_types() -> None:
    text = "id string, Customer STRUCT<name: string, address struct<city:string>>, prices map<string,decimal(10,2)>"
    address = StructType((("city", Scalar("string")),))
    assert parse_fields(text) == {
        "id": Scalar("string"),
        "Customer": StructType((("name", Scalar("string")), ("address", address))),
        "prices": MapType(DecimalType(10, 2)),
    }


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("array<array<int>>", "array<array<int>>"),
        ("ARRAY < Struct < a int , b : Date > >", "array<struct<a: int, b: date>>"),
        ("decimal( 38 , 0 )", "decimal(38,0)"),
        ("map<STRING, timestamp>", "map<string, timestamp>"),
        ("struct<`a b`: int>", "struct<`a b`: int>"),
        ("struct<`a`: int>", "struct<a: int>"),
    ],
)
def test_a_type_is_written_in_one_way_and_read_again(text: str, written: str) -> None:
    assert str(parse_type(text)) == written
    assert parse_type(written) == parse_type(text)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "'' is not a field"),
        ("a", "'a' is not a field"),
        ("a int,", "'' is not a field"),
        ("a int b string", "'b string' is not expected"),
        ("a struct<b: text>", "a.b: type 'text' is not one of"),
        ("a array<>", "type '>' is not one of"),
        ("a array<int", "a: expected '>', observed the end"),
        ("a struct", "a: expected '<', observed the end"),
        ("a struct<>", "is not a field"),
        ("a struct<b: int, b: string>", "'a.b' is declared twice"),
        ("a map<int, string>", "a: the keys of a map in JSON are of type string"),
        ("a decimal", r"a: write a decimal with its digits, at most 38"),
        ("a decimal(39,2)", "a: write a decimal"),
        ("a decimal(2,3)", "a: write a decimal"),
        ("a timestamp_ntz", "a: type 'timestamp_ntz' is not one of"),
    ],
)
def test_a_wrong_declaration_names_the_field(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        parse_fields(text)


def test_parts_of_a_type() -> None:
    nested = parse_type("struct<a: array<map<string, date>>, b: decimal(5,1)>")
    assert list(leaves(nested)) == [Scalar("date"), DecimalType(5, 1)]
    assert has_map(nested)
    assert not has_map(ArrayType(Scalar("int")))
