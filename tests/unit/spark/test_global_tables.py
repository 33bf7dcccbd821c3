"""The rows of a global table in a Python worker, without Kafka and Spark."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession
from streamplan.serdes.json import Json
from streamplan.spark.global_tables import (
    Reader,
    Rows,
    StoredRows,
    TableInJob,
    TableRecord,
    Told,
    rows_of_job,
    tell_offsets,
)

from tests.support.fake_cluster import FakeCluster

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
    told = Told((), [(0, 0, "YQ==", "e30=", 7), (0, 1, "YQ==", "eyJuIjogNX0=", 8), (1, 0, "Yg==", None, 9)])
    assert len([*TableInJob()("t", told, {})]) == 3
    assert [*TableInJob()("t", told, {0: 1, 1: 1})] == [record(1, b"a", b'{"n": 5}')._replace(timestamp=8)]


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


def test_the_rows_that_a_class_reads_are_those_of_a_plain_fold_in_the_order_of_their_keys() -> None:
    chosen = random.Random(7)
    rows, expected = StoredRows(), dict[bytes, TableRecord]()
    keys = [b"%d" % number for number in range(20)]
    for offset in range(500):
        new = record(offset, chosen.choice([None, *keys]), chosen.choice([None, b"{}"]))
        rows.put([new])
        if new.key is not None:
            expected.pop(new.key, None)
            if new.value is not None:
                expected[new.key] = new
        assert [rows.get(key) for key in keys] == [expected.get(key) for key in keys]
        first, last = chosen.choice([None, *keys]), chosen.choice([None, *keys])
        within = [key for key in sorted(expected) if (first or b"") <= key <= (last or b"x")]
        assert rows.between(first, last) == within


class Job:
    """What the workers of a job are told, and its session."""

    sparkContext = property(lambda self: self)

    def __init__(self) -> None:
        self.properties: dict[str, str] = {}

    def setLocalProperty(self, name: str, value: str) -> None:
        self.properties[name] = value

    def getLocalProperty(self, name: str) -> str | None:
        return self.properties.get(name)


def test_a_topic_that_was_created_again_is_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its offsets begin again. The rows of the topic before were met for ever, and the first new ones were not."""
    cluster, job, reader = FakeCluster(), Job(), Reader(0, "run")
    monkeypatch.setattr(TaskContext, "get", lambda: job)

    def read(topic: str, told: Told, after: Mapping[int, int]) -> Iterator[TableRecord]:
        ranges = {number: (max(first, after.get(number, 0)), until) for number, first, until in told.ranges}
        for batch in cluster.read(topic, ranges):
            for row in zip(batch.offsets, batch.keys, batch.values, strict=True):
                yield TableRecord(batch.partition, *row)

    def rows(*values: int) -> list[Any]:
        for value in values:
            cluster.produce("again", b"k%d" % value, b'{"n": %d}' % value)
        tell_offsets(cast(SparkSession, job), reader, cluster, ["again"])
        return [row and row["n"] for row in found(rows_of_job("again", VALUE, read), b"k1", b"k2", b"k3", b"k4")]

    cluster.create("again", 1)
    assert rows(1, 2) == [1, 2, None, None]
    assert rows(3) == [1, 2, 3, None]
    for values, expected in (((4,), [None, None, None, 4]), ((1, 2, 3, 4), [1, 2, 3, 4])):
        cluster.existing["earlier"] = cluster.existing["again"]  # it stays, so that no other one has its id
        cluster.create("again", 1)
        assert rows(*values) == expected
