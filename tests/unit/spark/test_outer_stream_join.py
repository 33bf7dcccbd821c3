"""The state of a left or outer join of two streams: what is passed without a match, and what the shared store holds."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.types import StringType
from streamplan.spark.planning.outer_join_state import (
    OuterJoinState,
    RestoredOuterJoinState,
    parse_stored_list,
    stored_list,
)

from tests.support.join_task import FIELDS, MINUTE, WINDOWS, Arrived, Task

BEGIN = 100 * MINUTE
OVER = 5 * MINUTE
"""Later than this, no record is waited for: the window of either stream and the grace."""


def outer_task(both: bool = True) -> Task:
    return Task(OuterJoinState(FIELDS, StringType(), WINDOWS, both))


def alone(rows: Iterable[Row]) -> list[tuple[int | None, int | None, int]]:
    """The values of what was passed without a match, and its time."""
    found = [(row.f0 and row.f0["n"], row.f1 and row.f1["n"], row.at) for row in rows if row.joined]
    return [(this, other, at) for this, other, at in found if this is None or other is None]


def passed(rows: Iterable[Row]) -> list[tuple[Any, Any, int]]:
    """The values of all that was passed, and its time."""
    return [(row.f0, row.f1, row.at) for row in rows if row.joined]


def without_match(records: Sequence[Arrived]) -> list[tuple[int | None, int | None, int]]:
    """The same, by looking at all records."""

    def meets(one: Arrived, another: Arrived) -> bool:
        this, other = (one, another) if one.source == 0 else (another, one)
        near = this.at - MINUTE <= other.at <= this.at + 2 * MINUTE
        return one.source != another.source and one.key == another.key and near and another.has_value

    return [
        (one.n, None, one.at) if one.source == 0 else (None, one.n, one.at)
        for one in records
        if one.has_value and not any(meets(one, another) for another in records)
    ]


def store_of(rows: Iterable[Row]) -> dict[bytes, bytes]:
    store: dict[bytes, bytes] = {}
    for row in rows:
        if row.shared_key is not None and row.shared_value is None:
            del store[row.shared_key]
        elif row.shared_key is not None:
            store[row.shared_key] = row.shared_value
    return store


@pytest.mark.parametrize("seed", range(20))
def test_a_record_without_a_match_is_passed_once_in_whatever_micro_batches_they_come(seed: int) -> None:
    chosen = random.Random(seed)
    records, now = [], BEGIN
    for n in range(200):
        now += chosen.choice([0, 1, 1000, 10_000, 40_000])
        late = chosen.choice([0, 0, 0, 1, MINUTE // 2])
        records.append(Arrived(chosen.randrange(2), chosen.choice("abcde"), now - late, n, chosen.random() < 0.95))
    # What is over is found with a later record, and it may wait for that which was looked at last.
    ends = [Arrived(side, "end", now + many * OVER, 1000 + many, True) for many in (2, 4, 6) for side in (0, 1)]
    task, made = outer_task(), []
    left = [*records, *ends]
    while left:
        size = chosen.randint(1, 30)
        made += task.process(left[:size])
        left = left[size:]
    assert sorted(alone(made), key=repr) == sorted(without_match(records), key=repr)
    assert {row.at for row in made if row.joined and row.f0 and row.f1} != set()
    assert store_of(made) == {}
    assert task.maps["waiting"].content == {}


def restored(made: Iterable[Row]) -> Task:
    """A task whose state is made of what another one has written to its changelogs."""
    made = list(made)
    rows = [
        Row(source=row.source, at=row.at, value=None, record=row.record, f0=row.f0, f1=row.f1, waiting=False)
        for row in made
        if row.number is not None and row.has_value
    ]
    for key, value in store_of(made).items():
        for place, stored in enumerate(parse_stored_list(value)):
            fields: list[dict[str, int] | None] = [None, None]
            fields[1 - key[8]] = {"n": int(stored[1:])}
            record = {"key": key[9:].decode(), "topic": None, "offset": place, "order": [], "partition_time": None}
            record["value"] = stored[1:]
            at = int.from_bytes(key[:8], "big")
            rows.append(
                Row(source=1 - key[8], at=at, value=None, record=record, f0=fields[0], f1=fields[1], waiting=True)
            )
    rows = [Row(**row.asDict(), has_value=True) for row in rows]
    task = Task(RestoredOuterJoinState(FIELDS, StringType(), WINDOWS, both=True))
    assert list(task.processor.handleInputRows((0,), iter(rows), None)) == []
    task.processor = OuterJoinState(FIELDS, StringType(), WINDOWS, both=True)
    task.processor.init(task)  # type: ignore[arg-type]
    return task


@pytest.mark.parametrize("seed", range(10))
def test_a_restored_task_goes_on_as_the_one_that_was_lost(seed: int) -> None:
    chosen = random.Random(seed)
    records, now = [], BEGIN
    for n in range(200):
        now += chosen.choice([0, 0, 1000, 10_000])
        late = chosen.choice([0, 0, 0, 1, MINUTE // 2])
        records.append(Arrived(chosen.randrange(2), chosen.choice("abcdefghijklmnopqrstuvw"), now - late, n))
    ends = [Arrived(side, "end", now + many * OVER, 1000 + many) for many in (2, 4, 6) for side in (0, 1)]
    task, first = outer_task(), []
    for record in records[:100]:
        first += task.process([record])
    assert store_of(first)
    lost, again = [], []
    after = restored(first)
    for record in [*records[100:], *ends]:
        lost += task.process([record])
        again += after.process([record])
    assert sorted(map(repr, passed(again))) == sorted(map(repr, passed(lost)))
    assert store_of([*first, *again]) == store_of([*first, *lost]) == {}


def test_a_left_join_passes_this_stream_alone() -> None:
    task = outer_task(both=False)
    made = task.process([Arrived(0, "a", BEGIN, 1), Arrived(1, "b", BEGIN, 2)])
    made += task.process([Arrived(1, "c", BEGIN + OVER, 3)])
    assert alone(made) == [(1, None, BEGIN)]


def test_what_is_exactly_at_the_end_of_the_window_and_the_grace_still_waits() -> None:
    """This stream waits for 2 minutes and the grace of 1."""
    task = outer_task(both=False)
    task.process([Arrived(0, "a", BEGIN, 1)])
    assert alone(task.process([Arrived(0, "b", BEGIN + 3 * MINUTE, 2)])) == []
    assert alone(task.process([Arrived(0, "c", BEGIN + 3 * MINUTE + 1, 3)])) == [(1, None, BEGIN)]


def test_a_late_record_that_can_meet_nothing_is_passed_at_once() -> None:
    task = outer_task()
    task.process([Arrived(0, "a", BEGIN + 2 * MINUTE + 1, 1)])
    made = task.process([Arrived(0, "b", BEGIN, 2)])
    assert alone(made) == [(2, None, BEGIN)]
    assert [row.shared_key for row in made if row.shared_key] == []


def test_a_record_without_a_key_is_passed_at_once_where_its_stream_passes_alone() -> None:
    records = [Arrived(0, None, BEGIN, 1), Arrived(1, None, BEGIN, 2), Arrived(0, None, BEGIN, 3, has_value=False)]
    assert alone(outer_task().process(records)) == [(1, None, BEGIN), (None, 2, BEGIN)]
    made = outer_task(both=False).process(records)
    assert alone(made) == [(1, None, BEGIN)]
    assert len(made) == 1


def test_the_shared_store_has_the_bytes_of_the_library() -> None:
    """``TimestampedKeyAndJoinSideSerializer``, ``LeftOrRightValueSerializer`` and ``ListSerializer``."""
    task = outer_task()
    made = task.process([Arrived(0, "a", BEGIN, 7), Arrived(0, "a", BEGIN, 8), Arrived(1, "b", BEGIN, 9)])
    at = BEGIN.to_bytes(8, "big")
    one, two = b"\0\0\0\2" + b"\x017", b"\0\0\0\2" + b"\x018"
    assert [(row.shared_key, row.shared_value) for row in made if row.shared_key] == [
        (at + b"\1a", b"\1\0\0\0\1" + one),
        (at + b"\1a", b"\1\0\0\0\2" + one + two),
        (at + b"\0b", b"\1\0\0\0\1\0\0\0\2\x009"),
    ]
    met = task.process([Arrived(1, "a", BEGIN, 10)])
    assert [(row.shared_key, row.shared_value) for row in met if row.shared_key] == [(at + b"\1a", None)]


@pytest.mark.parametrize("values", [[], [b""], [b"a", b"", b"bc" * 200]])
def test_a_list_is_read_as_it_was_written(values: list[bytes]) -> None:
    assert parse_stored_list(stored_list(values)) == values


def test_what_the_slower_stream_may_still_meet_waits() -> None:
    """A micro-batch reaches an hour in one topic and some minutes in the other, as after a pause."""
    other = [Arrived(1, "a", BEGIN + n * MINUTE, n) for n in range(60)]
    this = [Arrived(0, "a", BEGIN + n * MINUTE, n) for n in range(60)]
    task = outer_task()
    made = task.process([*this[:10], *other])
    for begin in range(10, 60, 10):
        beside = Arrived(1, "b", (160 + begin) * MINUTE, 1000 + begin)
        made += task.process([*this[begin : begin + 10], beside])
    assert [(found, n, at) for found, n, at in alone(made) if n is None or n < 1000] == []
