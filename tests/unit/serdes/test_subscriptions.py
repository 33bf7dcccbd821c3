"""The bytes of a join by a foreign key. tests/integration/testing compares them with the library's."""

from __future__ import annotations

import pytest
from streamplan.serdes.json import Json
from streamplan.serdes.serde import Undecodable
from streamplan.serdes.subscriptions import (
    Instruction,
    Response,
    Responses,
    Subscription,
    Subscriptions,
    combined_key,
    parse_combined_key,
    sent_in,
    value_hash,
)

HASH = bytes(range(16))
ASKED = Subscription(HASH, Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE, b"key", 3)


def test_a_subscription_has_version_instruction_hash_key_and_partition() -> None:
    assert ASKED.written() == b"\x01\x03" + HASH + b"key" + b"\0\0\0\x03"
    deleted = Subscription(None, Instruction.DELETE_KEY_AND_PROPAGATE, b"", 0)
    assert deleted.written() == b"\x81\x01" + bytes(4)
    assert [Subscription.parse(one.written()) for one in (ASKED, deleted)] == [ASKED, deleted]


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x00\x03" + HASH + b"key", b"\x01\x09" + HASH + b"key\0\0\0\0"])
def test_other_bytes_are_no_subscription(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"no subscription of version 1|is not a valid Instruction"):
        Subscription.parse(data)
    assert Subscriptions().decode_column([data, ASKED.written()]).rejected.keys() == {0}


def test_a_response_has_version_hash_and_value() -> None:
    assert Response(HASH, b"{}").written() == b"\0" + HASH + b"{}"
    assert Response(None, None).written() == b"\x80"
    for one in (Response(HASH, None), Response(None, b"{}")):
        assert Response.parse(one.written()) == one


def test_the_values_in_responses_are_read_by_column_as_one_by_one() -> None:
    serde = Responses("customers", Json("n int"))
    found = [
        Response(HASH, b'{"n": 1}'),
        Response(None, b'{"n": 2}'),
        Response(HASH, None),
        Response(None, b'{"n": ""}'),
    ]
    column = serde.decode_column([one.written() for one in found])
    assert column.fields.to_pylist()[:2] == [{"n": 1}, {"n": 2}]
    assert column.rejected.keys() == {3}
    assert [serde.decode(one.written()) for one in found[:3]] == [{"n": 1}, {"n": 2}, {"n": None}]
    with pytest.raises(Undecodable):
        serde.decode(found[3].written())


def test_a_key_of_the_store_has_the_length_of_the_foreign_key() -> None:
    assert combined_key(b"ab", b"c") == b"\0\0\0\x02abc"
    assert parse_combined_key(combined_key(b"", b"c")) == (b"", b"c")


def test_values_of_any_length_have_a_hash_of_their_own() -> None:
    hashes = [value_hash(bytes(length)) for length in range(40)]
    assert {*map(len, hashes)} == {16}
    assert len({*hashes}) == 40


@pytest.mark.parametrize(
    ("topic", "data", "found"),
    [
        ("app-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000006-topic", ASKED.written(), ASKED),
        ("app-j-subscription-registration-topic", ASKED.written(), ASKED),
        ("app-j-subscription-store-changelog", ASKED.written(), ASKED),
        ("app-KTABLE-FK-JOIN-SUBSCRIPTION-STATE-STORE-0000000010-changelog", b"{}", None),
        ("app-j-subscription-response-topic", Response(HASH, b"{}").written(), Response(HASH, b"{}")),
        ("app-orders-changelog", ASKED.written(), None),
    ],
)
def test_what_a_topic_has_is_told_by_its_name(topic: str, data: bytes, found: Subscription | Response | None) -> None:
    assert sent_in(topic, data) == found
