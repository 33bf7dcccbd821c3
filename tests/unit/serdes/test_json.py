from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from streamplan.serdes.json import Json
from streamplan.serdes.serde import Undecodable, key_of, label_of

ISO = ": a text has date, time and zone, as 2026-11-24T20:38:34Z"

ORDER = Json("Id string, ProductType int", allowed={"ProductType": {0: "Jackets", 1: "Shirts"}})


@pytest.mark.parametrize(
    "value",
    [
        b'{"Id": "order_1", "ProductType": 1}',
        b'{"ProductType":1}',
        b' {"ProductType" : 1 , "more": [{"ProductType": 0}]}\n',
        b'{"Product\\u0054ype": 1}',
    ],
)
def test_the_key_is_the_text_of_the_field(value: bytes) -> None:
    assert key_of(ORDER, "ProductType", value) == b"1"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "the value is null"),
        (b"", "the value is not JSON: it is empty"),
        (b"not JSON", "the value is not JSON"),
        (b'{"ProductType": NaN}', "the value is not JSON: it has NaN"),
        (b'\xff{"ProductType": 1}', "the value is not JSON: it is not UTF-8"),
        (b"[1]", "the value is not a JSON object"),
        (b"{}", "ProductType is missing"),
        (b'{"ProductType": null}', "ProductType is missing"),
        (b'{"ProductType": "1"}', "ProductType is not of type int"),
        (b'{"ProductType": true}', "ProductType is not of type int"),
        (b'{"ProductType": 1.0}', "ProductType is not of type int"),
        (b'{"ProductType": 2147483648}', "ProductType is not of type int"),
        (b'{"ProductType": 7}', "ProductType is not one of 0, 1"),
    ],
)
def test_rejected_with_the_reason(value: bytes | None, reason: str) -> None:
    with pytest.raises(Undecodable) as rejection:
        key_of(ORDER, "ProductType", value)
    assert str(rejection.value) == reason


def test_a_boolean_is_written_as_spark_casts_it() -> None:
    assert key_of(Json("paid boolean"), "paid", b'{"paid": true}') == b"true"


def test_text_is_utf_8() -> None:
    assert key_of(Json("Id string"), "Id", '{"Id": "é"}'.encode()) == "é".encode()


def test_a_value_too_large_for_the_next_topic_is_rejected() -> None:
    with pytest.raises(Undecodable, match="larger than 20 bytes"):
        key_of(Json("Id string", max_bytes=20), "Id", b'{"Id": "0123456789"}')


@pytest.mark.parametrize(
    ("schema", "fault"), [("Id", "not a field"), ("Id text", "is not one of"), ("a int, a int", "declared twice")]
)
def test_a_wrong_schema(schema: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        _ = Json(schema).fields


def test_allowed_names_a_field() -> None:
    with pytest.raises(ValueError, match="Kind"):
        _ = Json("Id string", allowed={"Kind": {}}).fields


def test_what_is_written_is_read_again() -> None:
    serde = Json("Id string, total bigint, x double, paid boolean")
    value = {"Id": 'é"', "total": 2**62, "x": 0.1, "paid": None}
    data = serde.encode(value)
    assert data == '{"Id":"é\\"","total":4611686018427387904,"x":0.1}'.encode()
    assert serde.decode(data) == value


def test_a_column_is_written_as_its_values_are() -> None:
    values: list[bytes | None] = [b'{"Id":"a"}', None, b"{}"]
    column = Json("Id string").decode_column(values)
    assert Json("Id string").encode_column(column.fields).to_pylist() == values


def test_a_number_that_json_does_not_have_is_not_written() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        Json("x double").encode({"x": float("nan")})


def test_an_allowed_value_has_its_label_by_the_text_of_its_key() -> None:
    paid = Json("paid boolean", allowed={"paid": {True: "paid", False: "open"}})
    assert [label_of(paid, "paid", key) for key in ("true", "false", "True")] == ["paid", "open", ""]


def decoded(field_type: str, content: str) -> Any:
    return Json(f"x {field_type}").decode(f'{{"x": {content}}}'.encode())["x"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('"2026-11-24T20:38:34Z"', datetime(2026, 11, 24, 20, 38, 34, 0, UTC)),
        ('"2026-11-24T20:38:34.123456+05:30"', datetime(2026, 11, 24, 15, 8, 34, 123456, UTC)),
        ('"2026-11-24T20:38:34.1-0100"', datetime(2026, 11, 24, 21, 38, 34, 100_000, UTC)),
        ('"2026-11-24T20:38:34.123456789Z"', datetime(2026, 11, 24, 20, 38, 34, 123456, UTC)),
        ("1795552714123", datetime(2026, 11, 24, 20, 38, 34, 123_000, UTC)),
        ("-1", datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)),
    ],
)
def test_a_timestamp_is_text_with_a_zone_or_milliseconds(content: str, expected: datetime) -> None:
    assert decoded("timestamp", content) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("1.1", "1.10"),
        ('"1.10"', "1.10"),
        ("12e1", "120.00"),
        ("0.10000000000000000000000", "0.10"),
        ("-0.0", "0.00"),
        ("123456789012345678901234567890123456.78", "123456789012345678901234567890123456.78"),
    ],
)
def test_a_decimal_is_exact_and_has_its_scale(content: str, expected: str) -> None:
    assert str(decoded("decimal(38,2)", content)) == expected


@pytest.mark.parametrize(
    ("field_type", "content", "reason"),
    [
        ("timestamp", '"2026-11-24T20:38:34"', f"x is not of type timestamp{ISO}"),
        ("timestamp", '"2026-11-27 13:30:00"', f"x is not of type timestamp{ISO}"),
        ("timestamp", "1.5", "x is not of type timestamp"),
        ("date", '"2026-02-29"', "x is not of type date"),
        ("date", "20000", "x is not of type date"),
        ("decimal(4,2)", "100", "x is not of type decimal(4,2): the number has more digits"),
        ("decimal(4,2)", "0.001", "x is not of type decimal(4,2): the number has more digits"),
        ("decimal(4,2)", '"1.234"', "x is not of type decimal(4,2): the number has more digits"),
        ("decimal(4,2)", '"much"', "x is not of type decimal(4,2)"),
        ("decimal(4,2)", "true", "x is not of type decimal(4,2)"),
        ("struct<a: int>", "[]", "x is not of type struct"),
        ("struct<address: struct<city: string>>", '{"address": {"city": 5}}', "x.address.city is not of type string"),
        ("array<struct<sku: string>>", '[{}, {"sku": 1}]', "x[1].sku is not of type string"),
        ("array<int>", "{}", "x is not of type array"),
        ("map<string, int>", '{"a b": "1"}', "x['a b'] is not of type int"),
        ("map<string, int>", '{"\\ud800": 1}', "x['\\ud800'] is not valid Unicode"),
        ("array<string>", '["\\ud800"]', "x[0] is not valid Unicode"),
    ],
)
def test_a_reason_names_the_path(field_type: str, content: str, reason: str) -> None:
    with pytest.raises(Undecodable) as rejection:
        decoded(field_type, content)
    assert str(rejection.value) == reason


EVERY_TYPE = Json(
    "at timestamp, day date, price decimal(8,7), who struct<name: string, since: timestamp>, tags array<string>,"
    " rates map<string, decimal(4,2)>"
)


@pytest.mark.parametrize(
    "text",
    [
        '{"at":"2026-11-24T20:38:34.120Z","day":"0999-01-31","price":1E-7,"who":{"name":"é"},"tags":["a",null]}',
        '{"at":"2026-11-24T20:38:34.120000Z","who":{"since":"2026-11-24T20:38:34.123456Z"},"tags":[]}',
        '{"who":{},"rates":{"EUR":1.20,"a\\"b":null}}',
        '{"price":0E-7,"rates":{}}',
        "{}",
    ],
)
def test_every_type_is_written_as_spark_writes_it_and_read_again(text: str) -> None:
    """The texts are those of Spark; tests/integration/spark compares with Spark itself."""
    value = EVERY_TYPE.decode(text.encode())
    assert EVERY_TYPE.encode(value) == text.encode()
    column = EVERY_TYPE.decode_column([text.encode()])
    assert EVERY_TYPE.encode_column(column.fields).to_pylist() == [text.encode()]


def test_allowed_values_are_listed_for_simple_types_alone() -> None:
    with pytest.raises(ValueError, match=r"allowed names at, a timestamp; it can be string, int"):
        _ = Json("at timestamp", allowed={"at": {}}).fields


@pytest.mark.parametrize(
    ("schema", "value", "told"),
    [
        ("at timestamp", {"at": "2026"}, "at: expected datetime, observed str ('2026')"),
        ("day date", {"day": "2026"}, "day: expected date, observed str ('2026')"),
        ("a struct<days: array<date>>", {"a": {"days": [None, 3]}}, "a.days[1]: expected date, observed int (3)"),
        ("a map<string, struct<x: int>>", {"a": {"k": 3}}, "a['k']: expected dict, observed int (3)"),
        ("a array<int>", {"a": 3}, "a: expected list, observed int (3)"),
    ],
)
def test_a_value_of_another_class_is_refused_with_its_path(schema: str, value: Any, told: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(told)}$"):
        Json(schema).encode(value)
