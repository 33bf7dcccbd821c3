"""The rows of a global table in a Python worker, without Kafka and Spark."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from streamplan.serdes.json import Json
from streamplan.spark.global_tables import Rows, TableInJob, TableRecord, Told

VALUE = Json("n bigint, s string")


def record(offset: int, key: bytes | None, value: bytes | None, partition: int = 0) -> TableRecord:
    return TableRecord(partition, offset, key, value)


def found(rows: Rows, *keys: bytes | None) -> list[Any]:
    fields, reasons = rows.of(pa.array(keys, pa.binary()))
    pairs = zip(fields.to_pylist(), reasons.to_pylist(), strict=True)
    return [field if reason is None else reason for field, reason in pairs]


def test_the_newest_row_of_a_key_is_met_and_a_null_value_deletes_it() -> None:
    rows = Rows("t", VALUE)
    assert found(rows, b"a", None) == [None, None]
    rows.put([record(0, b"a", b'{"n": 1}'), record(1, b"b", b'{"n": 2}'), record(2, b"a", b'{"n": 3}')])
    assert found(rows, b"b", b"a", b"c", None) == [{"n": 2, "s": None}, {"n": 3, "s": None}, None, None]
    rows.put([record(3, b"b", None), record(4, b"c", b"{}")])
    assert found(rows, b"a", b"b", b"c") == [{"n": 3, "s": None}, None, {"n": None, "s": None}]


def test_a_row_that_cannot_be_read_gives_the_reason_until_another_one_comes() -> None:
    rows = Rows("t", VALUE)
    rows.put([record(6, b"a", b'{"n": 1}'), record(7, b"a", b"no JSON", partition=2), record(8, None, b"{}")])
    assert found(rows, b"a") == ["its row, t-2 offset 7: the value is not JSON"]
    rows.put([record(8, b"a", None, partition=2)])
    assert found(rows, b"a") == [None]


def test_only_what_is_new_is_read() -> None:
    told = Told((), [(0, 0, "YQ==", "e30="), (0, 1, "YQ==", "eyJuIjogNX0="), (1, 0, "Yg==", None)])
    assert len([*TableInJob()("t", told, {})]) == 3
    assert [*TableInJob()("t", told, {0: 1, 1: 1})] == [record(1, b"a", b'{"n": 5}')]


def test_rows_are_those_of_a_plain_fold_of_all_records() -> None:
    chosen = random.Random(7)
    rows, expected = Rows("t", VALUE), dict[bytes, Mapping[str, Any]]()
    keys = [b"%d" % number for number in range(20)]
    for offset in range(0, 6_000, 3):  # most of these rows are replaced
        records = []
        for place in range(3):
            key, number = chosen.choice(keys), chosen.randrange(9)
            records.append(record(offset + place, key, b'{"n": %d}' % number if number else None))
            expected.pop(key, None)
            if number:
                expected[key] = {"n": number, "s": None}
        rows.put(records)
        assert found(rows, *keys) == [expected.get(key) for key in keys]
