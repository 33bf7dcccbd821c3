"""The state of a join of two streams, with the state variables in memory: what meets, and what is forgotten."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from pyspark.sql import Row

from tests.support.join_task import MINUTE, Arrived, Task


def pairs(records: Sequence[Arrived]) -> list[tuple[int, int, int]]:
    return sorted(
        (this.n, other.n, max(this.at, other.at))
        for this in records
        for other in records
        if (this.source, other.source) == (0, 1)
        and this.key == other.key
        and this.has_value
        and other.has_value
        and this.at - MINUTE <= other.at <= this.at + 2 * MINUTE
    )


@pytest.mark.parametrize("seed", range(20))
def test_each_two_within_the_window_meet_once_in_whatever_micro_batches_they_come(seed: int) -> None:
    chosen = random.Random(seed)
    records, now = [], 100 * MINUTE
    for n in range(200):
        now += chosen.choice([0, 1, 1000, 10_000])
        late = chosen.choice([0, 0, 0, 1, MINUTE // 2])
        records.append(Arrived(chosen.randrange(2), chosen.choice("abc"), now - late, n, chosen.random() < 0.95))
    task, met = Task(), []
    left = list(records)
    while left:
        size = chosen.randint(1, 30)
        met += task.run(left[:size])
        left = left[size:]
    assert sorted(met) == pairs(records)
    assert met


def test_a_record_that_is_older_than_the_retention_is_forgotten() -> None:
    """It is kept for 1 + 2 minutes and the grace of 1, by the newest record of its own stream."""
    task = Task()
    task.run([Arrived(0, "a", 100 * MINUTE, 0)])
    task.run([Arrived(0, "b", 104 * MINUTE - 1, 1)])
    assert task.run([Arrived(1, "a", 100 * MINUTE, 0)]) == [(0, 0, 100 * MINUTE)]
    task.run([Arrived(0, "b", 104 * MINUTE, 2)])
    assert task.run([Arrived(1, "a", 100 * MINUTE, 1)]) == []


def test_the_state_of_keys_that_come_no_more_is_removed() -> None:
    task = Task()
    task.run([Arrived(side, f"{side}-{n}", (100 + n) * MINUTE, n) for n in range(50) for side in (0, 1)])
    assert len(task.records.content) < 20
    task.run([Arrived(0, "x", 500 * MINUTE, 99), Arrived(1, "x", 500 * MINUTE, 99)])
    assert list(task.records.content) == [("x",)]


def test_the_state_of_one_stream_does_not_grow_while_the_other_is_silent() -> None:
    task = Task()
    for n in range(50):
        task.run([Arrived(0, str(n), (100 + n) * MINUTE, n)])
    assert len(task.records.content) < 10


def test_what_the_slower_stream_may_still_meet_is_kept() -> None:
    """A micro-batch reaches an hour in one topic and some minutes in the other, as after a pause."""
    other = [Arrived(1, "a", (100 + n) * MINUTE, n) for n in range(60)]
    this = [Arrived(0, "a", (100 + n) * MINUTE, n) for n in range(60)]
    task = Task()
    met = task.run([*this[:10], *other])
    for begin in range(10, 60, 10):
        beside = Arrived(1, "b", (160 + begin) * MINUTE, 1000 + begin)  # the other topic has new records all the time
        met += task.run([*this[begin : begin + 10], beside])
    assert sorted(met) == pairs([*this, *other])


def test_records_of_one_key_and_time_are_numbered() -> None:
    task = Task()
    numbers = []
    for n in range(3):
        row = Row(
            source=0,
            at=MINUTE,
            has_value=True,
            record={"key": "a", "topic": "t", "offset": n, "order": [], "partition_time": MINUTE},
            f0={"n": n},
            f1=None,
        )
        (stored,) = task.processor.handleInputRows((0,), iter([row]), None)
        numbers.append(stored.number)
    assert numbers == [1, 2, 3]
