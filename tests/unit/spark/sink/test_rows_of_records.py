"""Rows of single records are written in the order of the records, and a record that does not pass only moves on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest
from streamplan.model.partitioner import partition_for_key
from streamplan.spark.sink.handed_on import HandedOnCounts, HandedOnRecords
from streamplan.spark.sink.spec import DEAD_LETTER, PASSED_OVER
from streamplan.spark.sink.writers import RowsOfRecords, TaskProgress

from tests.unit.spark.sink.test_planned_rows import FakeTransaction

PASSES, IS_PASSED_OVER, IS_REJECTED, HAS_NO_VALUE = range(4)


def rows(kinds: list[int], first: int = 0) -> pa.RecordBatch:
    """Rows of records from an offset on; the key is that of every third one."""
    reasons = {IS_PASSED_OVER: PASSED_OVER, IS_REJECTED: "bad"}
    passed_over = [kind == IS_PASSED_OVER for kind in kinds]
    offsets = range(first, first + len(kinds))
    keys = [None if over else b"%d" % (at % 3) for at, over in zip(offsets, passed_over, strict=True)]
    values = [None if kind in (IS_PASSED_OVER, HAS_NO_VALUE) else b"{}" for kind in kinds]
    columns = {
        "partition": pa.array([0] * len(kinds), pa.int32()),
        "output": pa.array([DEAD_LETTER if kind in reasons else 0 for kind in kinds], pa.int32()),
        "key": pa.array(keys, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "timestamp": pa.array([1] * len(kinds), pa.int64()),
        "headers": pa.nulls(len(kinds), pa.string()),
        "topic": pa.array(["a"] * len(kinds)),
        "offset": pa.array(offsets, pa.int64()),
        "reason": pa.array([reasons.get(kind) for kind in kinds], pa.string()),
    }
    return pa.RecordBatch.from_pydict(columns)


KINDS = [PASSES, IS_PASSED_OVER, IS_REJECTED, PASSES, HAS_NO_VALUE, PASSES, PASSES, IS_PASSED_OVER]


@pytest.mark.parametrize("committed", [0, 2, 5, 8])
def test_what_an_earlier_run_has_committed_is_not_written_again(committed: int) -> None:
    transaction = FakeTransaction({"a": committed}, old=False)
    task = TaskProgress(transaction)  # type: ignore[arg-type]
    RowsOfRecords("a").write(rows(KINDS), task)
    written = [at for at, kind in enumerate(KINDS) if kind != IS_PASSED_OVER and at >= committed]
    assert sorted(transaction.written) == sorted(b"%d" % (at % 3) for at in written)
    assert task.next_offsets == {"a": len(KINDS)}
    assert task.dead_lettered == sum(KINDS[at] == IS_REJECTED for at in written)


def test_records_that_do_not_pass_move_the_position_on() -> None:
    transaction = FakeTransaction({"a": 0})
    task = TaskProgress(transaction)  # type: ignore[arg-type]
    RowsOfRecords("a").write(rows([PASSES, IS_PASSED_OVER]), task)
    RowsOfRecords("a").write(rows([IS_PASSED_OVER] * 3, first=2), task)
    assert transaction.parts == [([b"0"], {"a": 2}), ([], {"a": 5})]


SEVERAL = [(0, True), (1, False), (1, False), (1, True), (2, True), (3, False), (3, True)]
"""The offset of the record that a row was made of, and whether it is the last row of the record."""


def rows_of(several: list[tuple[int, bool]]) -> pa.RecordBatch:
    """The key is the offset."""
    made = rows([PASSES] * len(several))
    columns = dict(zip(made.schema.names, made.columns, strict=True))
    columns["offset"] = pa.array([offset for offset, _ in several], pa.int64())
    columns["key"] = pa.array([b"%d" % offset for offset, _ in several], pa.binary())
    columns["ends"] = pa.array([ends for _, ends in several], pa.bool_())
    return pa.RecordBatch.from_pydict(columns)


@pytest.mark.parametrize("cut", range(1, len(SEVERAL)))
def test_a_part_ends_between_two_records_wherever_a_batch_ends(cut: int) -> None:
    transaction = FakeTransaction({"a": 0})
    task = TaskProgress(transaction, HandedOnCounts(1))  # type: ignore[arg-type]
    for batch in (rows_of(SEVERAL[:cut]), rows_of(SEVERAL[cut:])):
        RowsOfRecords("a").write(batch, task)
    assert [key for keys, _ in transaction.parts for key in keys] == [b"%d" % offset for offset, _ in SEVERAL]
    first = 0
    for keys, positions in transaction.parts:
        assert all(first <= int(key) < positions["a"] for key in keys)
        first = positions["a"]
    assert task.handed_on is not None
    assert task.handed_on.markers.tolist() == [len(transaction.parts)]
    assert task.handed_on.records.tolist() == [len(SEVERAL)]


@pytest.mark.parametrize(("cut", "missing"), [(1, 1), (2, 1), (3, 1), (4, 2), (5, 3), (6, 3), (7, 4)])
def test_a_record_whose_last_row_is_missing_is_missing(cut: int, missing: int) -> None:
    """A killed task's input may end between two rows of the last record."""
    task = TaskProgress(FakeTransaction({"a": 0}, old=False))  # type: ignore[arg-type]
    RowsOfRecords("a").write(rows_of(SEVERAL[:cut]), task)
    assert task.next_offsets == {"a": missing}


@pytest.mark.parametrize("number_of_rows", [1, 400_000])
def test_no_transaction_waits_for_a_function(number_of_rows: int) -> None:
    """Few rows wait in memory, and many in a file."""
    given = [rows_of([(offset, True)] * (number_of_rows if offset == 1 else 1)) for offset in range(3)]
    come: list[int] = []

    def coming() -> Iterator[pa.RecordBatch]:
        for number, each in enumerate(given):
            come.append(number)
            yield each

    at_once, waiting = (RowsOfRecords("a", by_functions=by_functions) for by_functions in (False, True))
    next(iter(at_once.arriving(coming())))
    assert come == [0]
    come.clear()
    arrived = []
    for each in waiting.arriving(coming()):
        assert come == [0, 1, 2]
        arrived.append(each)
    assert all(each.equals(same) for each, same in zip(arrived, given, strict=True))
    assert [*waiting.arriving(iter(()))] == []


def test_a_batch_may_have_no_last_row() -> None:
    transaction = FakeTransaction({"a": 0})
    task = TaskProgress(transaction)  # type: ignore[arg-type]
    for several in ([(0, False)] * 3, [(0, False)] * 2, [(0, True)]):
        RowsOfRecords("a").write(rows_of(several), task)
    assert transaction.parts == [([b"0"] * 6, {"a": 1})]


@pytest.mark.parametrize("committed", [0, 5, 8])
def test_all_records_are_handed_on_but_those_without_a_value(committed: int) -> None:
    transaction = FakeTransaction({"a": committed}, old=False)
    task = TaskProgress(transaction, HandedOnCounts(2))  # type: ignore[arg-type]
    RowsOfRecords("a").write(rows(KINDS), task)
    assert task.handed_on is not None
    task.handed_on.committed()
    (batch,) = task.handed_on.batches()
    counted = Counter(b"%d" % (at % 3) for at, kind in enumerate(KINDS) if kind == PASSES)
    assert {row["key"]: row["count"] for row in batch.to_pylist()} == counted
    in_topic = [b"%d" % (at % 3) for at, kind in enumerate(KINDS) if kind in (PASSES, HAS_NO_VALUE)]
    placed = Counter(partition_for_key(key, 2) for key in in_topic)
    assert task.handed_on.records.tolist() == [placed[0], placed[1]]
    now = [at for at, kind in enumerate(KINDS) if kind in (PASSES, HAS_NO_VALUE) and at >= committed]
    reached = {partition_for_key(b"%d" % (at % 3), 2) for at in now}
    assert task.handed_on.markers.tolist() == [int(partition in reached) for partition in range(2)]


@pytest.mark.parametrize("takes_null", [True, False])
def test_an_aggregate_of_windows_is_handed_records_without_a_value_too(takes_null: bool) -> None:
    task = TaskProgress(FakeTransaction({"a": 0}, old=False), HandedOnRecords(2, takes_null=takes_null))  # type: ignore[arg-type]
    RowsOfRecords("a").write(rows(KINDS), task)
    assert task.handed_on is not None
    (batch,) = task.handed_on.batches()
    handed_on = (PASSES, HAS_NO_VALUE) if takes_null else (PASSES,)
    assert Counter(batch["key"].to_pylist()) == Counter(
        b"%d" % (at % 3) for at, kind in enumerate(KINDS) if kind in handed_on
    )
    assert task.handed_on.records.sum() == KINDS.count(PASSES) + KINDS.count(HAS_NO_VALUE)
