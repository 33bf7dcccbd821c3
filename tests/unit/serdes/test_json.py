from __future__ import annotations

import pytest
from streamplan.serdes.json import Json
from streamplan.serdes.serde import Undecodable, key_of, label_of

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
        (b"", "the value is not JSON"),
        (b"not JSON", "the value is not JSON"),
        (b'{"ProductType": NaN}', "the value is not JSON"),
        (b'\xff{"ProductType": 1}', "the value is not JSON"),
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
        Json(schema)


def test_allowed_names_a_field() -> None:
    with pytest.raises(ValueError, match="Kind"):
        Json("Id string", allowed={"Kind": {}})


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
