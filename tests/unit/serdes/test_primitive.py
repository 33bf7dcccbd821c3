from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from streamplan.serdes.primitive import Double, Integer, Long, String
from streamplan.serdes.serde import Serde, Undecodable, key_of

WRITTEN_BY_JAVA: list[tuple[Serde, Any, bytes]] = [
    (String(), "", b""),
    (String(), "Käse", b"K\xc3\xa4se"),
    (Integer(), -1, b"\xff\xff\xff\xff"),
    (Integer(), 258, b"\0\0\1\2"),
    (Long(), 1 << 40, b"\0\0\1\0\0\0\0\0"),
    (Long(), -(1 << 63), b"\x80\0\0\0\0\0\0\0"),
    (Double(), 0.1, b"\x3f\xb9\x99\x99\x99\x99\x99\x9a"),
]
"""Value and bytes, as the serializers of Kafka's clients write them."""

REJECTED: list[tuple[Serde, bytes | None, str]] = [
    (String(), None, "the value is null"),
    (String(), b"\xff", "the value is not UTF-8"),
    (Integer(), b"\0\0\0", "the value has 3 bytes; Integer has 4"),
    (Long(), b"\0\0\0\1", "the value has 4 bytes; Long has 8"),
    (Double(), b"", "the value has 0 bytes; Double has 8"),
    (Double(), struct.pack(">d", float("nan")), "the value is nan, which is no number"),
    (Double(), struct.pack(">d", float("-inf")), "the value is -inf, which is no number"),
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


@pytest.mark.parametrize("serde", [String(), Integer(), Long(), Double()], ids=identity)
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
    [(String(), None), (String(), 5), (Integer(), None), (Integer(), 1 << 31), (Long(), 0.5), (Double(), "x")],
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
