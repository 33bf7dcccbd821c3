"""The values in the repartition topic of a grouped table."""

from __future__ import annotations

import pickle

import pytest
from streamplan.serdes.changes import Changes, parse_change, written_change
from streamplan.serdes.json import Json
from streamplan.serdes.serde import Undecodable

CHANGES = Changes(Json("n bigint"))


@pytest.mark.parametrize(
    ("new", "old", "data"),
    [
        (b"new", None, b"new\1"),
        (None, b"old", b"old\0"),
        (b"new", b"older", b"\6newolder\2"),
        (b"", b"\2", b"\0\2\2"),
        (b"n" * 63, b"o", b"\x7e" + b"n" * 63 + b"o\2"),
        (b"n" * 64, b"o", b"\x80\1" + b"n" * 64 + b"o\2"),
        (b"n" * 1_000_000, b"o", b"\x80\x89\x7a" + b"n" * 1_000_000 + b"o\2"),
    ],
)
def test_a_change_is_written_as_by_the_library(new: bytes | None, old: bytes | None, data: bytes) -> None:
    """Source: ChangedSerializer: newValue 1, oldValue 0, or VARINT newDataLength newValue oldValue 2."""
    assert written_change(new, old) == data
    assert parse_change(data) == (new, old)


@pytest.mark.parametrize("data", [b"", b"n", b"\5n\3", b"\2", b"\6ne\2", b"\xff\xff\xff\xff\xff\xff\2"])
def test_bytes_that_are_no_change_are_rejected(data: bytes) -> None:
    with pytest.raises(Undecodable):
        CHANGES.decode(data)
    assert CHANGES.decode_column([data]).rejected.keys() == {0}


def test_a_column_of_changes_is_read_as_each_of_them() -> None:
    values = [b'{"n": 1}\1', b'{"n": 2}\0', b'\x10{"n": 3}{"n": 4}\2', b"no\1"]
    column = CHANGES.decode_column(values)
    decoded = [CHANGES.decode(value) for value in values[:3]]
    assert column.fields.to_pylist()[:3] == decoded
    assert decoded == [
        {"new": {"n": 1}, "old": None},
        {"new": None, "old": {"n": 2}},
        {"new": {"n": 3}, "old": {"n": 4}},
    ]
    assert column.rejected.keys() == {3}
    assert [CHANGES.decode(CHANGES.encode(value)) for value in decoded] == decoded


def test_the_serde_is_sent_to_workers() -> None:
    assert pickle.loads(pickle.dumps(CHANGES)) == CHANGES
    assert CHANGES.fields == {"new": "struct<n: bigint>", "old": "struct<n: bigint>"}
