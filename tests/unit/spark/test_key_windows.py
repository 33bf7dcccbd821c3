"""The sessions of one key, beside a plain account of what the library does with each record."""

from __future__ import annotations

import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql.types import BooleanType, DataType, DecimalType, DoubleType, LongType, StringType
from streamplan.spark.planning.key_windows import KeySessions
from streamplan.spark.planning.merging import Merging

COUNT = Merging(("count",), (LongType(),))
GAP = 10


class Task:
    """The sessions of one key in a stream task that processes no other one. Its records carry the number 1."""

    def __init__(self, grace: int = 1000) -> None:
        self.grace = grace
        self.newest = -1
        self.state: Any = None
        self.begin()

    def begin(self) -> None:
        """A micro-batch begins."""
        self.sessions = KeySessions.of(self.state)

    def add(self, *times: int) -> None:
        retention = GAP + self.grace
        for at in times:
            late_before = max(self.newest, at) - retention
            self.sessions.add(at, (1,), GAP, self.newest - retention, late_before, COUNT)
            self.newest = max(self.newest, at)

    def end(self) -> list[tuple[int, int, int | None]]:
        """The micro-batch ends. Of each change: start, end and count, or None."""
        changes = [(start, end, parts and parts[0]) for _, start, end, _, parts in self.sessions.changes()]
        self.sessions.take(self.newest - GAP - self.grace + 1)
        self.state = (self.sessions.windows,)
        self.begin()
        return changes

    def step(self, *times: int) -> list[tuple[int, int, int | None]]:
        self.add(*times)
        return self.end()


def test_records_within_the_gap_are_one_session() -> None:
    task = Task()
    assert task.step(100) == [(100, 100, 1)]
    assert task.step(110) == [(100, 100, None), (100, 110, 2)]
    assert task.step(121) == [(121, 121, 1)]


def test_a_record_between_two_sessions_makes_them_one() -> None:
    task = Task()
    task.step(100, 120)
    assert task.step(110) == [(100, 100, None), (120, 120, None), (100, 120, 3)]


def test_a_record_within_a_session_changes_its_value_and_not_its_bounds() -> None:
    task = Task()
    task.step(100, 110)
    assert task.step(105) == [(100, 110, 3)]


def test_equal_times_are_one_session() -> None:
    task = Task()
    assert task.step(100, 100) == [(100, 100, 2)]


def test_a_session_that_comes_and_goes_in_one_micro_batch_is_not_written() -> None:
    assert Task().step(100, 105, 108) == [(100, 108, 3)]


def test_a_record_is_late_when_its_session_ended_before_gap_and_grace() -> None:
    task = Task(grace=5)
    task.step(100)
    assert task.step(85) == [(85, 85, 1)]  # 100 - 10 - 5
    assert task.step(84) == []


def test_a_late_record_is_taken_where_a_session_still_reaches_it() -> None:
    task = Task(grace=5)
    task.step(90, 100)
    assert task.step(80) == [(90, 100, None), (80, 100, 3)]


def test_a_session_that_is_over_takes_in_nothing() -> None:
    """It ended at 85. A store of the library does not find it any more when the newest record is of 100."""
    task = Task(grace=5)
    task.step(85)
    task.step(100)
    assert task.state == ([(100, 100, (1,))],)
    assert task.step(86) == [(86, 86, 1)]


def test_sessions_are_the_same_however_the_records_are_divided_into_micro_batches() -> None:
    for seed in range(300):
        chosen = random.Random(seed)
        times, now = [], 0
        for _ in range(30):
            now += chosen.choice([0, 1, 9, 10, 11, 30])
            times.append(max(0, now - chosen.choice([0, 0, 0, 5, 15, 16, 40])))
        one_by_one, together, last = Task(grace=5), Task(grace=5), {}
        for at in times:
            for start, end, count in one_by_one.step(at):
                last[start, end] = count
        found: dict[tuple[int, int], int | None] = {}
        while times:
            taken = chosen.randint(1, 9)
            for start, end, count in together.step(*times[:taken]):
                found[start, end] = count
            times = times[taken:]
        there = {window: count for window, count in last.items() if count is not None}
        assert {window: count for window, count in found.items() if count is not None} == there
        assert one_by_one.state == together.state


# -- what is merged


@pytest.mark.parametrize(
    ("function", "types", "one", "other", "merged"),
    [
        ("sum", [LongType()], [2], [3], (5,)),
        ("sum", [LongType()], [None], [3], (3,)),
        ("sum", [LongType()], [None], [None], (None,)),
        ("sum", [DoubleType()], [0.5], [0.25], (0.75,)),
        ("sum", [DecimalType(38, 0)], [Decimal(10**37)], [Decimal(1)], (Decimal(10**37 + 1),)),
        ("count_if", [LongType()], [2], [0], (2,)),
        ("avg", [LongType(), LongType()], [7, 2], [None, 0], (7, 2)),
        ("min", [StringType()], ["b"], ["a"], ("a",)),
        ("max", [StringType()], ["z"], ["é"], ("é",)),  # by code points, as in Spark
        ("max", [LongType()], [None], [1], (1,)),
        ("max", [DoubleType()], [float("inf")], [float("nan")], "nan"),
        ("min", [DoubleType()], [float("nan")], [1.0], (1.0,)),
        ("max_by", [StringType(), LongType()], ["x", 1], ["y", 2], ("y", 2)),
        ("max_by", [StringType(), LongType()], ["x", 1], [None, 2], (None, 2)),
        ("max_by", [StringType(), LongType()], ["x", 1], ["y", None], ("x", 1)),
        ("max_by", [StringType(), LongType()], ["x", 1], ["y", 1], ("x", 1)),
        ("min_by", [StringType(), LongType()], ["x", None], ["y", 2], ("y", 2)),
        ("bool_and", [BooleanType()], [True], [False], (False,)),
        ("bool_or", [BooleanType()], [None], [False], (False,)),
        ("bool_or", [BooleanType()], [True], [False], (True,)),
    ],
)
def test_what_two_sessions_have_aggregated_is_merged_as_spark_aggregates(
    function: str, types: Sequence[DataType], one: Sequence[Any], other: Sequence[Any], merged: Any
) -> None:
    found = Merging((function,), tuple(types)).merge(one, other)
    assert found == merged or (merged == "nan" and found[0] != found[0])


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("function", ["latest_max_by", "latest_min_by"])
def test_a_reduction_keeps_the_last_of_the_best_and_one_without_a_rank_where_there_is_no_other(
    function: str, seed: int
) -> None:
    chosen = random.Random(seed)
    ranks = chosen.choices([None, 1.0, 2.0, 3.0, float("nan")] if seed % 2 else [None, 1.0], k=seed + 1)
    merging, kept = Merging((function,), (LongType(), DoubleType())), (0, ranks[0])
    for place, rank in enumerate(ranks[1:], 1):
        kept = merging.merge(kept, (place, rank))
    known = [(rank != rank, rank, place) for place, rank in enumerate(ranks) if rank is not None]
    numbers = [(is_nan, 0.0 if is_nan else rank, place) for is_nan, rank, place in known]
    if function == "latest_min_by":
        numbers = [(not is_nan, -rank, place) for is_nan, rank, place in numbers]
    assert kept[0] == (max(numbers)[2] if numbers else len(ranks) - 1)


def test_several_functions_have_their_parts_side_by_side() -> None:
    merging = Merging(("avg", "max_by", "count"), (LongType(), LongType(), StringType(), LongType(), LongType()))
    assert merging.merge((1, 1, "x", 5, 1), (2, 1, "y", 7, 1)) == (3, 2, "y", 7, 2)


def test_a_function_whose_parts_cannot_be_merged_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="the parts of mode cannot be merged"):
        Merging(("mode",), (LongType(),)).merge([1], [2])


@pytest.mark.parametrize(
    ("of_part", "one"),
    [(LongType(), 2**63 - 1), (DecimalType(4, 2), Decimal("99.99")), (DecimalType(3, 0), Decimal(999))],
)
def test_a_sum_that_does_not_fit_its_type_stops_the_application(of_part: DataType, one: Any) -> None:
    with pytest.raises(ArithmeticError, match=r"the sum .* of a session does not fit into"):
        Merging(("sum",), (of_part,)).merge([one], [type(one)(1)])
