from __future__ import annotations

import struct
import uuid
from typing import Any

import pyarrow as pa
import pytest
from streamplan.serdes.primitive import KEY_SERDES, UUID, Bytes, Double, Integer, KeySerde, Long, String
from streamplan.serdes.serde import Serde, Undecodable, key_of

ONE_UUID = "0a1b2c3d-0000-4000-8000-00000000ffff"

WRITTEN_BY_JAVA: list[tuple[Serde, Any, bytes]] = [
    (String(), "", b""),
    (String(), "Käse", b"K\xc3\xa4se"),
    (Integer(), -1, b"\xff\xff\xff\xff"),
    (Integer(), 258, b"\0\0\1\2"),
    (Long(), 1 << 40, b"\0\0\1\0\0\0\0\0"),
    (Long(), -(1 << 63), b"\x80\0\0\0\0\0\0\0"),
    (Double(), 0.1, b"\x3f\xb9\x99\x99\x99\x99\x99\x9a"),
    (UUID(), ONE_UUID, ONE_UUID.encode()),
    (Bytes(), b"\xff\0\n", b"\xff\0\n"),
    (Bytes(), b"", b""),
]
"""Value and bytes, as the serializers of Kafka's clients write them."""

REJECTED: list[tuple[Serde, bytes | None, str]] = [
    (String(), None, "the value is null"),
    (Bytes(), None, "the value is null"),
    (String(), b"\xff", "the value is not UTF-8"),
    (Integer(), b"\0\0\0", "the value has 3 bytes; Integer has 4"),
    (Long(), b"\0\0\0\1", "the value has 4 bytes; Long has 8"),
    (Double(), b"", "the value has 0 bytes; Double has 8"),
    (Double(), struct.pack(">d", float("nan")), "the value is nan, which is no number"),
    (Double(), struct.pack(">d", float("-inf")), "the value is -inf, which is no number"),
    (UUID(), ONE_UUID[:-1].encode(), "the value is no UUID of 36 characters"),
    (UUID(), ONE_UUID.encode() + b"\n", "the value is no UUID of 36 characters"),
    (UUID(), b"\xff" * 36, "the value is no UUID of 36 characters"),
]


def identity(parameter: object) -> str:
    return repr(parameter)


@pytest.mark.parametrize(("serde", "value", "data"), WRITTEN_BY_JAVA, ids=identity)
def test_a_value_has_the_bytes_that_java_writes(serde: Serde, value: Any, data: bytes) -> None:
    assert serde.encode({"value": value}) == data
    assert serde.decode(data) == {"value": value}


@pytest.mark.parametrize(("serde", "data", "reason"), REJECTED, ids=identity)
def test_what_is_no_such_value_is_rejected_with_the_reason(serde: Serde, data: bytes | None, reason: str) -> None:
    with pytest.raises(Undecodable) as rejection:
        serde.decode(data)
    assert str(rejection.value) == reason


@pytest.mark.parametrize("serde", [String(), Integer(), Long(), Double(), UUID(), Bytes()], ids=identity)
def test_a_column_is_read_as_its_values_are(serde: Serde) -> None:
    good = [data for of, _, data in WRITTEN_BY_JAVA if of == serde]
    bad = [(data, reason) for of, data, reason in REJECTED if of == serde]
    for values in (good, [*good, None, *good], [*good, *(data for data, _ in bad), *good], []):
        column = serde.decode_column(pa.array(values, pa.binary()))
        expected: list[dict[str, Any] | None] = []
        reasons: dict[int, str] = {}
        for row, data in enumerate(values):
            try:
                expected.append(serde.decode(data))
            except Undecodable as error:
                expected.append(None)
                reasons[row] = str(error)
        assert column.fields.to_pylist() == expected
        assert column.rejected == reasons
        sliced = serde.decode_column(pa.array(values, pa.binary())[1:])
        assert sliced.fields.to_pylist() == expected[1:]


@pytest.mark.parametrize(
    ("serde", "value"),
    [
        (String(), None),
        (String(), 5),
        (Integer(), None),
        (Integer(), 1 << 31),
        (Long(), 0.5),
        (Double(), "x"),
        (UUID(), "x"),
        (Bytes(), "x"),
    ],
    ids=identity,
)
def test_a_value_of_another_type_is_not_written(serde: Serde, value: Any) -> None:
    with pytest.raises(ValueError, match="is no "):
        serde.encode({"value": value})


def test_a_text_and_a_whole_number_become_keys_and_a_double_does_not() -> None:
    assert key_of(String(), "value", "é".encode()) == "é".encode()
    assert key_of(Long(), "value", bytes(7) + b"\7") == b"7"
    keys = String().key_column("value", [b"a", None, b"b", b"a"])
    assert keys.keys.to_pylist() == [b"a", None, b"b", b"a"]
    assert keys.counts() == {b"a": 2, b"b": 1}


@pytest.mark.parametrize(("serde", "key", "data"), WRITTEN_BY_JAVA, ids=identity)
def test_one_class_serves_keys_and_values(serde: KeySerde, key: Any, data: bytes) -> None:
    assert serde.write_key(key) == data
    assert serde.read_key(data) == key
    assert serde.key_of_text(serde.key_text(key)) == key


def test_a_key_that_cannot_be_read_says_so_as_a_key() -> None:
    with pytest.raises(Undecodable, match="the key has 3 bytes; Long has 8"):
        Long().read_key(b"abc")


def test_a_uuid_is_the_same_in_either_case() -> None:
    assert UUID().read_key(ONE_UUID.upper().encode()) == ONE_UUID
    assert UUID().write_key(uuid.UUID(ONE_UUID)) == UUID().write_key(ONE_UUID.upper()) == ONE_UUID.encode()


def test_any_bytes_are_a_key_of_bytes_and_people_read_and_write_them_as_digits() -> None:
    assert Bytes().read_key(b"\xff\0") == Bytes().write_key(b"\xff\0") == b"\xff\0"
    assert Bytes().key_text(b"\xff\0") == "ff00"
    assert Bytes().key_of_text("ff00") == b"\xff\0"


def test_the_serdes_of_keys_have_the_names_of_the_command_line() -> None:
    assert {name: serde.name for name, serde in KEY_SERDES.items()} == {
        "string": "String",
        "int": "Integer",
        "long": "Long",
        "double": "Double",
        "uuid": "UUID",
        "bytes": "Bytes",
    }


@pytest.mark.parametrize(
    ("serde", "said"),
    [
        (Integer(), "'x' is not a whole number"),
        (Double(), "'x' is not a number"),
        (Bytes(), "'x' is not in hexadecimal digits, two for each byte"),
    ],
)
def test_a_text_that_is_no_key_is_told_as_people_write_keys(serde: KeySerde, said: str) -> None:
    with pytest.raises(ValueError, match=f"^{said}$"):
        serde.key_of_text("x")
