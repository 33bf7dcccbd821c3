"""Keys of several fields, against Python's own JSON."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from streamplan.serdes.json import Json
from streamplan.serdes.json_keys import KeyFields
from streamplan.serdes.primitive import key_serde_of_type
from streamplan.serdes.serde import Undecodable

KEYS = Json("customer string, n int, large bigint, sure boolean")
KEY = {"customer": 'ä "\\ / \n\u2028\U0001f600', "n": -7, "large": 1 << 62, "sure": True}


def test_a_key_has_the_compact_form_in_the_order_of_its_declaration() -> None:
    data = json.dumps(KEY, separators=(",", ":"), ensure_ascii=False).encode()
    assert KEYS.write_key(KEY) == data
    assert KEYS.write_key({name: KEY[name] for name in reversed(KEY)}) == data
    assert KEYS.read_key(data) == KEY
    assert KEYS.key_text(KEY) == data.decode()
    text = json.dumps(dict(reversed(KEY.items())), indent=2)
    assert KEYS.write_key(KEYS.key_of_text(text)) == data


def test_a_control_character_is_written_with_capital_digits() -> None:
    """As Jackson writes it, and so Spark; Python writes small digits."""
    serde = Json("s string")
    assert serde.write_key({"s": "\x1f\\u001f\x7f"}) == b'{"s":"\\u001F\\\\u001f\x7f"}'
    assert serde.read_key(b'{"s":"\\u001F"}') == {"s": "\x1f"}


@pytest.mark.parametrize(
    "data",
    [
        b"", b"ann", b"null", b"[]", b"{}", b'"ann"', b"\xff",
        b'{"customer":"ann"}', b'{"n":1}', b'{"customer":"ann","n":null}',
        b'{"customer":"ann","n":1,"more":2}', b'{"n":1,"customer":"ann"}', b'{"customer":"ann","n":1,"n":1}',
        b'{"customer": "ann","n":1}', b'{"customer":"ann","n":1} ', b'{"customer":"\\u0061nn","n":1}',
        b'{"customer":"ann","n":1.0}', b'{"customer":"ann","n":"1"}', b'{"customer":"ann","n":2147483648}',
        b'{"customer":5,"n":1}', b'{"customer":"\xff","n":1}', b'{"customer":"ann","n":true}',
    ],
)  # fmt: skip
def test_other_bytes_are_no_key(data: bytes) -> None:
    serde = Json("customer string, n int")
    assert serde.read_key(b'{"customer":"ann","n":1}') == {"customer": "ann", "n": 1}
    with pytest.raises(Undecodable) as raised:
        serde.read_key(data)
    assert str(raised.value) == 'the key is not as Json("customer string, n int") writes it'


@pytest.mark.parametrize(
    "key",
    [
        "ann", 5, None, {}, {**KEY, "n": None}, {**KEY, "n": 1 << 31}, {**KEY, "n": True}, {**KEY, "sure": 1},
        {**KEY, "more": 1}, {"customer": "ann"}, {**KEY, "customer": b"ann"}, {**KEY, "customer": "\ud800"},
    ],
)  # fmt: skip
def test_what_is_no_key_is_not_written(key: Any) -> None:
    with pytest.raises(ValueError, match=r"is no key with the fields|is no mapping|surrogates not allowed"):
        KEYS.write_key(key)


@pytest.mark.parametrize("text", ["ann", "[]", '{"customer":'])
def test_a_text_that_is_no_object_is_no_key(text: str) -> None:
    with pytest.raises(ValueError, match=r"Expecting|is not a JSON object"):
        KEYS.key_of_text(text)


def test_the_fields_of_a_key_are_attributes_and_equal_fields_are_the_same_key() -> None:
    key = KeyFields(KEY)
    assert (key.n, key.sure) == (-7, True)
    assert {key: 1}[KeyFields(reversed(KEY.items()))] == 1
    assert key == KEY
    assert pickle.loads(pickle.dumps(key)) == key
    with pytest.raises(AttributeError, match="the key has no field 'other'; it has customer, n, large, sure"):
        _ = key.other


def test_a_serde_of_keys_is_found_by_the_name_of_its_type() -> None:
    assert KEYS.key_type == "struct<customer: string, n: int, large: bigint, sure: boolean>"
    found = key_serde_of_type(KEYS.key_type)
    assert found == KEYS
    assert Json("a  string,b int").key_type == Json("a string, b int").key_type


@pytest.mark.parametrize(
    ("serde", "fault"),
    [
        (KEYS, None),
        (Json("a double"), "a is of type double; the fields of a key are of string, int, bigint, boolean"),
        (
            Json("a struct<b: int>"),
            "a is of type struct<b: int>; the fields of a key are of string, int, bigint, boolean",
        ),
        (Json("`a b` int"), "a field of a key cannot be named 'a b'"),
        (Json("a int", allowed={"a": {1: "one"}}), "allowed= is only for values, not for keys"),
    ],
)
def test_some_fields_are_none_of_keys(serde: Json, fault: str | None) -> None:
    assert serde.key_fault == fault
