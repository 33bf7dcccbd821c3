"""A long micro-batch is committed in parts, and each part ends between two records."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from streamplan.errors import Refused
from streamplan.spark.sink.spec import Output, PartitionBy
from streamplan.spark.sink.transaction import TaskTransaction
from streamplan.spark.sink.writers import PlannedRows, TaskProgress

Row = tuple[str | None, int | None, int]
"""Topic, offset, and the row's place among those of its record."""

RANGES = {"a": (5, 30), "b": (0, 20)}


class FakeTransaction:
    """The brokers' part of a :class:`TaskTransaction`, whose transactions are always old."""

    def __init__(self, positions: Mapping[str, int], *, old: bool = True) -> None:
        output = Output("out", PartitionBy.KEY, 1)
        self.spec = SimpleNamespace(outputs=(output, output), task=lambda partition: "0_0")
        self.partition = 0
        self.ranges = RANGES
        self.positions = dict(positions)
        self.old = old
        self.parts: list[tuple[list[bytes], dict[str, int]]] = []
        self.written: list[bytes] = []
        self.already_committed = False

    @property
    def untouched(self) -> bool:
        return all(self.positions[topic] == first for topic, (first, _) in RANGES.items())

    def produce(self, output: Output, keys: list[bytes], *more: Any) -> None:
        self.written += keys

    def dead_letter(self, letter: Any) -> None:
        self.written.append(letter.key)

    def commit_part(self, positions: Mapping[str, int]) -> None:
        self.parts.append((self.written, dict(positions)))
        self.written = []
        self.positions |= positions


def batch(rows: list[Row], outputs: list[int] | None = None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "partition": pa.array([0] * len(rows), pa.int32()),
            "output": pa.array(outputs or [0] * len(rows), pa.int32()),
            "key": pa.array([name(row) for row in rows], pa.binary()),
            "value": pa.nulls(len(rows), pa.binary()),
            "timestamp": pa.array([1] * len(rows), pa.int64()),
            "headers": pa.nulls(len(rows), pa.string()),
            "topic": pa.array([topic for topic, _, _ in rows], pa.string()),
            "offset": pa.array([offset for _, offset, _ in rows], pa.int64()),
            "order": pa.nulls(len(rows), pa.list_(pa.int32())),
            "reason": pa.nulls(len(rows), pa.string()),
            "last": pa.array([False] * len(rows), pa.bool_()),
        }
    )


def name(row: Row) -> bytes:
    return repr(row).encode()


def write(transaction: FakeTransaction, batches: list[pa.RecordBatch], *, divisible: bool = True) -> None:
    task = TaskProgress(cast(TaskTransaction, transaction))
    for rows in batches:
        PlannedRows(divisible).write(rows, task)


@pytest.mark.parametrize("seed", range(50))
def test_each_part_ends_between_two_records(seed: int) -> None:
    random = Random(seed)
    rows: list[Row] = [
        (topic, offset, number)
        for topic, (first, until) in RANGES.items()
        for offset in range(first, until)
        if random.random() < 0.8  # the others were filtered
        for number in range(random.choice([1, 1, 2, 15]))
    ]
    cuts = sorted(random.sample(range(1, len(rows)), random.choice([1, 5, 30])))
    batches = [batch(rows[first:last]) for first, last in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    transaction = FakeTransaction({topic: first for topic, (first, _) in RANGES.items()})
    write(transaction, batches)
    assert transaction.parts
    assert [key for part, _ in transaction.parts for key in part] + transaction.written == [name(row) for row in rows]
    done: list[bytes] = []
    for part, positions in transaction.parts:
        done += part
        below = [row for row in rows if row[0] in positions and (row[1] or 0) < positions[str(row[0])]]
        assert [name(row) for row in below] == done
    # The next run of the micro-batch, after a crash here, writes the rest.
    again = FakeTransaction(transaction.positions, old=False)
    write(again, batches)
    assert done + again.written == [name(row) for row in rows]


def test_rows_of_one_record_are_not_divided_by_their_outputs() -> None:
    """A record may have a row in several outputs, and dead letters."""
    rows: list[Row] = [("a", 5, 0), ("a", 5, 1), ("a", 6, 0), ("a", 6, 1)]
    transaction = FakeTransaction({"a": 5, "b": 0})
    write(transaction, [batch(rows[:1]), batch(rows[1:3], [1, 0]), batch(rows[3:], [-1])])
    assert transaction.parts == [([name(rows[0]), name(rows[1])], {"a": 6})]
    assert transaction.written == [name(rows[2]), name(rows[3])]


def test_the_end_of_a_partition_comes_by_itself_behind_a_part() -> None:
    end = batch([(None, None, 0)]).set_column(10, "last", pa.array([True]))
    transaction = FakeTransaction({"a": 5, "b": 0})
    write(transaction, [batch([("a", 5, 0)]), batch([("a", 6, 0)]), end])
    assert transaction.parts == [([name(("a", 5, 0))], {"a": 6})]
    assert transaction.written == [name(("a", 6, 0))]


def test_what_was_aggregated_is_committed_as_a_whole() -> None:
    aggregated: list[Row] = [(None, None, n) for n in range(3)]
    early: list[Row] = [("a", 7, 0), ("a", 8, 0)]
    batches = [batch([row]) for row in (*early, *aggregated)]
    transaction = FakeTransaction({"a": 5, "b": 0})
    write(transaction, batches, divisible=False)
    assert transaction.parts == []
    assert len(transaction.written) == 5
    with pytest.raises(Refused, match="a part of the micro-batch is committed already"):
        write(FakeTransaction({"a": 8, "b": 0}), batches, divisible=False)
