"""The Arrow deserializer agrees, record for record, with the reference on the standard library."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from streamplan.serdes.json import Json
from streamplan.serdes.serde import Undecodable, key_of

ORDER = Json("Id string, ProductType int", allowed={"ProductType": {0: "Jackets", 1: "Shirts"}})
OTHER = Json("Id string, paid boolean, total bigint")
EVERY = Json("Id string, ProductType int, x double, v bigint, paid boolean")

VALUES: list[bytes | None] = [
    None,
    b"",
    b" ",
    b"x",
    b"null",
    b"5",
    b"[]",
    b'[{"ProductType":1}]',
    b"{}",
    b'{"ProductType":0}',
    b'{"ProductType":null}',
    b'{"ProductType":"1"}',
    b'{"ProductType":1.0}',
    b'{"ProductType":1e0}',
    b'{"ProductType":7}',
    b'{"ProductType":-0}',
    b'{"ProductType":01}',
    b'{"ProductType":true}',
    b'{"ProductType":1}{"ProductType":0}',
    b'{"ProductType":1} x',
    b'{"ProductType":1,"ProductType":0}',
    b'{"Product\\u0054ype":1}',
    b'{"producttype":1}',
    b'{"ProductType":99999999999}',
    b'{"ProductType":1,"Id":"\xff"}',
    b"{'ProductType':1}",
    b'{"ProductType":NaN}',
    b'{"ProductType":1,"x":NaN}',
    b'{"ProductType":1,"x":-Infinity}',
    b'{"ProductType":1,"x":1e999}',
    b'{\n "ProductType" : 1\n}\n',
    b'\xef\xbb\xbf{"ProductType":1}',
    b'{"ProductType":1,"Id":"a\nb"}',
    b'{"ProductType":1,"Id":"\\ud800"}',
    b'{"x":1}',
    b'{"x":-0.0,"v":9223372036854775807,"paid":false}',
    b'{"x":1e400}',
    b'{"x":12345678901234567890123}',
    b'{"x":0.1,"Id":""}',
    b'{"x":"1"}',
    b'{"ProductType":1,"Id":5}',
    b'{"ProductType":1,}',
    b'{"ProductType":1//c\n}',
    b'{"ProductType":',
    b"1}",
    b'{"a":{"ProductType":1}}',
    b'{"ProductType":1,"x":[1,{"ProductType":0}]}',
    b'{"ProductType":1,"v":{"ProductType":0}}',
    b'{"ProductType":1}\x00',
    b'\xc2\xa0{"ProductType":1}',
    b'{"ProductType":1,"x":"' + b"y" * 1_000_000 + b'"}',
    b'{"ProductType":1,"x":"' + b"y" * 1_048_000 + b'"}',
    b'{"ProductType":1,"x":' + b"[" * 5000 + b"]" * 5000 + b"}",
    b'{"ProductType":1,"x":' + b"9" * 5000 + b"}",
]


def reference(serde: Json, field: str, value: bytes | None) -> tuple[bytes | None, str | None]:
    try:
        return key_of(serde, field, value), None
    except Undecodable as rejection:
        return None, str(rejection)


def deserialized(serde: Json, field: str, values: list[bytes | None]) -> list[tuple[bytes | None, str | None]]:
    found = serde.key_column(field, pa.array(values, pa.binary()))
    return [(key, found.rejected.get(row)) for row, key in enumerate(found.keys.to_pylist())]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:40])
def test_each_value_is_read_as_the_reference_reads_it_alone_and_between_others(value: bytes | None) -> None:
    expected = reference(ORDER, "ProductType", value)
    assert deserialized(ORDER, "ProductType", [value]) == [expected]
    assert deserialized(ORDER, "ProductType", [b'{"ProductType":0}', value, b'{"ProductType":1}']) == [
        (b"0", None),
        expected,
        (b"1", None),
    ]


def test_known_values_have_known_keys() -> None:
    values: list[bytes | None] = [b'{"Id":"order_17","ProductType":1}', b"not json", b'{"ProductType":7}', None]
    assert deserialized(ORDER, "ProductType", values) == [
        (b"1", None),
        (None, "the value is not JSON"),
        (None, "ProductType is not one of 0, 1"),
        (None, "the value is null"),
    ]


def test_documents_cannot_shift_their_neighbours() -> None:
    """Two documents in one value and none in another add up to the right number of documents."""
    values: list[bytes | None] = [b'{"ProductType":0}{"ProductType":1}', b"", b'{"ProductType":', b"1}"]
    assert [key for key, _ in deserialized(ORDER, "ProductType", values)] == [None] * 4


@pytest.mark.parametrize(
    ("field", "value", "key"),
    [
        ("Id", b'{"Id":"\\u00e9\\ud83d\\ude00"}', "é😀".encode()),
        ("Id", b'{"Id":"2020-01-01T00:00:00Z"}', b"2020-01-01T00:00:00Z"),
        ("Id", b'{"Id":""}', b""),
        ("Id", b'{"Id":"\\ud800"}', None),
        ("paid", b'{"paid":true}', b"true"),
        ("paid", b'{"paid":1}', None),
        ("total", b'{"total":9223372036854775807}', b"9223372036854775807"),
        ("total", b'{"total":9223372036854775808}', None),
    ],
)
def test_keys_of_every_type(field: str, value: bytes, key: bytes | None) -> None:
    assert deserialized(OTHER, field, [value])[0][0] == key == reference(OTHER, field, value)[0]


def test_mutated_documents_are_read_as_the_reference_reads_them() -> None:
    chosen = random.Random(20261121)
    short = [value for value in VALUES if value and len(value) < 200]
    for _ in range(3000):
        value = bytearray(chosen.choice(short))
        for _ in range(chosen.randint(1, 3)):
            at = chosen.randrange(len(value) + 1)
            value[at : at + chosen.randint(0, 1)] = bytes([chosen.choice(b'{}[]",:\\01eE+-. \n\t\x00\xff tfnulrs')])
        found = deserialized(ORDER, "ProductType", [bytes(value)])
        assert found == [reference(ORDER, "ProductType", bytes(value))], bytes(value)


def rows(serde: Json, values: list[bytes | None]) -> list[tuple[object, str | None]]:
    found = serde.decode_column(pa.array(values, pa.binary()))
    return [(row, found.rejected.get(number)) for number, row in enumerate(found.fields.to_pylist())]


def row(serde: Json, value: bytes | None) -> tuple[object, str | None]:
    try:
        return serde.decode(value), None
    except Undecodable as rejection:
        return None, str(rejection)


@pytest.mark.parametrize("serde", [ORDER, OTHER, EVERY], ids=["order", "other", "every"])
def test_rows_are_read_as_the_reference_reads_them(serde: Json) -> None:
    for value in VALUES:
        assert rows(serde, [value]) == [row(serde, value)]
        good = b'{"ProductType":0}'
        assert rows(serde, [good, value, good]) == [row(serde, good), row(serde, value), row(serde, good)]


def test_mutated_rows_are_read_as_the_reference_reads_them() -> None:
    chosen = random.Random(20261122)
    short = [value for value in VALUES if value and len(value) < 200]
    for _ in range(3000):
        value = bytearray(chosen.choice(short))
        for _ in range(chosen.randint(1, 3)):
            at = chosen.randrange(len(value) + 1)
            value[at : at + chosen.randint(0, 1)] = bytes([chosen.choice(b'{}[]",:\\01eE+-. \n\t\x00\xff tfnulrsxv')])
        assert rows(EVERY, [bytes(value)]) == [row(EVERY, bytes(value))], bytes(value)


def test_each_row_has_its_reason() -> None:
    column = ORDER.decode_column([b'{"ProductType":0}', b"x", None])
    assert column.reasons().to_pylist() == [None, "the value is not JSON", "the value is null"]
    assert ORDER.decode_column([b'{"ProductType":0}'] * 2).reasons().to_pylist() == [None, None]
