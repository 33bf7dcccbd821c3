"""The state of a versioned table, against a plain list of all rows. The twin drivers compare it with the library."""

from __future__ import annotations

import random
from typing import Any

import pytest
from streamplan.spark.planning.stream_table_join import WAITING_ROWS

from tests.support.versioned_task import VersionedTask

HISTORY_MS = 1000


class Task(VersionedTask):
    def __init__(self) -> None:
        super().__init__(HISTORY_MS)

    @property
    def kept(self) -> list[int]:
        """The times of the rows that are kept."""
        content = self.variables["v0"].content
        return [] if content is None else [at for at, _ in content[0]]


def test_a_late_record_meets_the_row_of_its_time() -> None:
    task = Task()
    task.run(("price", 100, 1), ("price", 900, 2), ("price", 1900, 3))
    assert task.run(("order", 2000), ("order", 1000), ("order", 950)) == [3, 2, 2]


def test_a_late_row_takes_its_place_in_time() -> None:
    task = Task()
    task.run(("price", 100, 1), ("price", 900, 2), ("order", 950))
    task.run(("price", 500, 7))
    assert task.run(("order", 600), ("order", 400), ("order", 950)) == [7, 1, 2]


def test_a_row_of_the_same_time_replaces_another_one() -> None:
    task = Task()
    task.run(("price", 100, 1), ("price", 900, 2))
    task.run(("price", 100, 5))
    assert task.run(("order", 950), ("order", 100)) == [2, 5]


def test_a_deletion_ends_a_row_and_a_late_row_does_not_bring_it_back() -> None:
    task = Task()
    task.run(("price", 900, None), ("order", 950))
    task.run(("price", 500, 1))
    assert task.run(("order", 960), ("order", 600)) == [None, 1]


def test_what_the_history_has_passed_is_forgotten() -> None:
    task = Task()
    task.run(("price", 100, 1), ("price", 500, 2), ("price", 1600, 3), ("order", 1700))
    assert task.run(("order", 599), ("order", 600)) == [None, 2]
    assert task.kept == [500, 1600]
    task.run(("price", 599, 9))  # later than the history
    assert task.kept == [500, 1600]


def test_a_deletion_stays_so_that_no_late_row_brings_the_key_back() -> None:
    task = Task()
    task.run(("price", 1600, 3), ("price", 9000, None), ("order", 11_000))
    assert task.kept == [1600, 9000]
    task.run(("price", 8500, 4))
    assert task.run(("order", 11_000), ("order", 8600)) == [None, 4]


def test_the_last_row_is_never_forgotten() -> None:
    task = Task()
    task.run(("price", 100, 1), ("order", 900_000))
    assert task.run(("order", 100), ("order", 99)) == [1, None]


def test_a_stream_that_is_behind_finds_its_rows() -> None:
    task = Task()
    task.run(*(("price", at, at) for at in range(0, 10_000, 100)))
    assert task.run(("order", 250), ("order", 350)) == [200, 300]
    assert task.run(("order", 5050)) == [5000]
    assert task.kept[0] == 4000


def test_of_the_rows_that_wait_the_oldest_are_taken_over() -> None:
    task = Task()
    task.run(*(("price", at * 500, at) for at in range(2 * WAITING_ROWS)))
    assert len(task.kept) <= WAITING_ROWS + HISTORY_MS // 500 + 1


@pytest.mark.parametrize("seed", range(20))
def test_rows_are_those_of_a_plain_list(seed: int) -> None:
    """Rows and records at random, each a micro-batch or several together, late by less than the history."""
    chosen, task, rows, now = random.Random(seed), Task(), dict[int, Any](), 0
    for number in range(100):
        now += chosen.choice([0, 1, 300])
        late = now - chosen.randrange(HISTORY_MS // 2)
        if chosen.random() < 0.5:
            rows[late] = chosen.choice([number, None])
            task.run(("price", late, rows[late]))
        valid = max((at for at in rows if at <= late), default=None)
        assert task.run(("order", late), ("order", now))[0] == (None if valid is None else rows[valid])
