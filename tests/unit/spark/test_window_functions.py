"""Windows that Python functions aggregate: a stream task against a dictionary and a loop."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest
from streamplan.model.functions import STOP, PythonFunction
from streamplan.model.windows import SessionWindows, SlidingWindows, TimeWindows
from streamplan.spark.planning.function_fold import Functions

from tests.support.function_window_task import FunctionWindowTask, Given, Windowed, in_micro_batches

BEGIN = 6_000_000
FIELDS = (("total", "bigint"), ("last", "array<bigint>"))


class Totals(NamedTuple):
    total: int
    last: list[int | None]


def none_yet() -> Totals:
    return Totals(0, [])


def add(key: str, value: Any, aggregate: Any) -> Any:
    """Changes the aggregate that it is given. A total that 7 divides deletes. A negative number fails."""
    n = None if value is None else value.n
    aggregate.total += n or 0
    aggregate.last = [*aggregate.last, n][-3:]
    if n is not None and n < 0:
        raise ValueError(f"{key} has a negative number")
    return aggregate if aggregate.total % 7 else None


def merge(key: str, one: Any, other: Any) -> Any:
    """Depends on the order of the sessions. The first one is empty."""
    return {"total": one.total + other.total, "last": [*one.last, *other.last][-3:]}


def wind(old: Any, new: Any) -> Any:
    """Depends on the order."""
    if new is None:
        return old
    if new.n < 0:
        raise ValueError("a negative number")
    return {"n": (10 * old.n + new.n) % 1_000_000} if new.n != 7 else None


def function(call: Any, on_error: str = "reject") -> PythonFunction:
    return PythonFunction(call.__qualname__, call, on_error)


def functions_of(kind: str, *, of_sessions: bool) -> Functions:
    if kind == "reduce":
        return Functions(function(wind), None, None, (("n", "bigint"),))
    return Functions(function(add), function(none_yet), function(merge) if of_sessions else None, FIELDS)


class Failed(Exception):
    """A function has failed."""


def folded(kind: str, totals: Iterable[Any], n: int | None) -> Any:
    """What the library's aggregators give of the totals of some sessions, or of one window, and of a record."""
    if kind == "reduce":
        values = [*totals, None if n is None else {"n": n}]
        made = values[0]
        for value in values[1:]:
            if made is None:
                made = value
            elif value is not None:
                if value["n"] < 0:
                    raise Failed
                made = {"n": (10 * made["n"] + value["n"]) % 1_000_000} if value["n"] != 7 else None
        return made
    made = {"total": 0, "last": []}
    for total in totals:
        made = {"total": made["total"] + total["total"], "last": [*made["last"], *total["last"]][-3:]}
    if n is not None and n < 0:
        raise Failed
    made = {"total": made["total"] + (n or 0), "last": [*made["last"], n][-3:]}
    return made if made["total"] % 7 else None


class Expected:
    """The same as the library's processors do, with dictionaries.

    A time window with a final result has the time of its newest record, also where the window was deleted since.

    Attributes:
        store: By window its value, and the time of its record in the changelog.
        failed: The records for which a function fails.
    """

    def __init__(self, kind: str, windows: TimeWindows | SessionWindows, *, final: bool) -> None:
        self._kind, self._windows, self._final, self._newest = kind, windows, final, -1
        self._times: dict[Windowed, int] = {}
        self.store: dict[Windowed, tuple[Any, int]] = {}
        self.failed: list[Given] = []

    def add(self, record: Given) -> None:
        newest = max(self._newest, record.at)
        try:
            if isinstance(self._windows, SessionWindows):
                self._add_to_sessions(record, newest, self._windows)
            else:
                self._add_to_windows(record, newest, self._windows)
        except Failed:
            self.failed.append(record)
            return
        self._newest = newest

    def _add_to_windows(self, record: Given, newest: int, windows: TimeWindows) -> None:
        made = {}
        first = record.at - record.at % windows.advance_ms
        for start in range(first, record.at - windows.size_ms, -windows.advance_ms):
            window = (record.key, start, start + windows.size_ms)
            if start + windows.size_ms > newest - windows.grace_ms:
                before = self.store.get(window)
                value = folded(self._kind, [] if before is None else [before[0]], record.n)
                at = record.at if before is None else max(before[1], record.at)
                if self._final:
                    at = self._times[window] = max(self._times.get(window, 0), at)
                made[window] = value, at
        self._put(made)

    def _add_to_sessions(self, record: Given, newest: int, windows: SessionWindows) -> None:
        gap = windows.inactivity_gap_ms
        met = [
            session
            for session in sorted(self.store, key=lambda each: (each[2], each[1]))
            if session[0] == record.key and session[1] - gap <= record.at <= session[2] + gap
            if session[2] > self._newest - windows.retention_ms
        ]
        start, end = min([record.at, *(each[1] for each in met)]), max([record.at, *(each[2] for each in met)])
        if end < newest - windows.retention_ms:
            return
        value = folded(self._kind, [self.store[session][0] for session in met], record.n)
        self._put({**dict.fromkeys(met, (None, 0)), (record.key, start, end): (value, record.at)})

    def _put(self, made: dict[Windowed, tuple[Any, int]]) -> None:
        for window, (value, at) in made.items():
            if value is None:
                self.store.pop(window, None)
            else:
                self.store[window] = value, at

    def final(self) -> list[tuple[Windowed, Any]]:
        """The windows that are closed, in the order of their results."""
        closed_before = self._newest - self._windows.grace_ms + 1
        if isinstance(self._windows, SessionWindows):
            closed_before = self._newest - self._windows.retention_ms
        closed = sorted(
            (window for window in self.store if window[2] < closed_before), key=lambda w: (w[2], w[1], w[0])
        )
        return [(window, self.store[window][0]) for window in closed]


WINDOWS = {
    "tumbling": TimeWindows("1 minute", grace="20 seconds"),
    "hopping": TimeWindows("1 minute", grace="20 seconds", advance="20 seconds"),
    "sessions": SessionWindows("5 seconds", grace="10 seconds"),
}


def random_records(seed: int, count: int) -> list[Given]:
    chosen, now = random.Random(seed), BEGIN
    records = []
    for _ in range(count):
        now += chosen.choice([0, 500, 4_000, 9_000])
        n = chosen.choices([chosen.randrange(7), None, 7, -1], [12, 1, 3, 2])[0]
        records.append(Given(chosen.choice("abc"), now - chosen.choice([0, 0, 0, 3_000, 15_000, 60_000]), n))
    return records


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", ["aggregate", "reduce"])
@pytest.mark.parametrize("of", WINDOWS)
def test_windows_are_those_of_a_loop_in_whatever_micro_batches_the_records_come(of: str, kind: str, seed: int) -> None:
    windows, functions, chosen = WINDOWS[of], functions_of(kind, of_sessions=of == "sessions"), random.Random(seed)
    task, final = (FunctionWindowTask(windows, functions, final=final) for final in (False, True))
    records = random_records(seed, 150)
    for batch in in_micro_batches(records, iter(lambda: chosen.randint(1, 20), 0)):
        for each in (task, final):
            each.process(batch)
    for each in (task, final):
        expected = Expected(kind, windows, final=each is final)
        for record in records:
            expected.add(record)
        assert each.held == expected.store
        assert [record for record, _ in each.rejected] == expected.failed
    assert [(window, value) for window, value, _ in final.passed] == expected.final()
    assert expected.failed
    assert None in [value for value, _ in final.changelog.values()]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", ["aggregate", "reduce"])
@pytest.mark.parametrize("of", WINDOWS)
def test_a_task_that_is_restored_passes_each_final_result_once(of: str, kind: str, seed: int) -> None:
    windows, functions, chosen = WINDOWS[of], functions_of(kind, of_sessions=of == "sessions"), random.Random(seed)
    task, expected = FunctionWindowTask(windows, functions, final=True), Expected(kind, windows, final=True)
    records = random_records(seed, 150)
    for batch in in_micro_batches(records, iter(lambda: chosen.randint(1, 20), 0)):
        task.process(batch)
        task.restore()
    for record in records:
        expected.add(record)
    assert task.held == expected.store
    assert [(window, value) for window, value, _ in task.passed] == expected.final()


@pytest.mark.parametrize("windows", [WINDOWS["hopping"], SlidingWindows("1 minute", grace="20 seconds")])
def test_a_record_that_fails_in_one_of_its_windows_changes_none_of_them(windows: TimeWindows) -> None:
    def fourth_fails(key: str, value: Any, aggregate: Any) -> Any:
        if aggregate.total == 3:
            raise ValueError("enough")
        return {"total": aggregate.total + 1}

    functions = Functions(function(fourth_fails), function(none_yet), None, FIELDS)
    task = FunctionWindowTask(windows, functions)
    task.process([Given("a", BEGIN, 1), Given("a", BEGIN + 1, 1), Given("a", BEGIN + 2, 1)])
    before = dict(task.changelog)
    task.process([Given("a", BEGIN + 20_000, 1)])
    line = fourth_fails.__code__.co_firstlineno + 2
    reason = f"{fourth_fails.__qualname__} raised ValueError in line {line}: enough"
    assert task.rejected == [(Given("a", BEGIN + 20_000, 1), reason)]
    assert task.changelog == before


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", ["aggregate", "reduce"])
def test_a_task_of_sliding_windows_that_is_restored_passes_what_one_without_a_restart_passes(
    kind: str, seed: int
) -> None:
    windows, functions, chosen = (
        SlidingWindows("20 seconds", grace="20 seconds"),
        functions_of(kind, of_sessions=False),
        random.Random(seed),
    )
    restored, other = (FunctionWindowTask(windows, functions, final=True) for _ in range(2))
    for batch in in_micro_batches(random_records(seed, 150), iter(lambda: chosen.randint(1, 20), 0)):
        restored.process(batch)
        restored.restore()
        other.process(batch)
    assert restored.passed == other.passed
    assert restored.changelog == other.changelog
    assert len({window for window, _, _ in restored.passed}) == len(restored.passed) > 20
    assert None in [value for value, _ in restored.changelog.values()]


def test_a_record_that_fails_does_not_move_the_time_on() -> None:
    """A state that is restored could not know of it."""
    task = FunctionWindowTask(WINDOWS["tumbling"], functions_of("aggregate", of_sessions=False), final=True)
    task.process([Given("a", BEGIN, 1), Given("a", BEGIN + 600_000, -1)])
    assert task.passed == []
    task.process([Given("b", BEGIN + 600_000, 1)])
    assert [window for window, _, _ in task.passed] == [("a", BEGIN, BEGIN + 60_000)]


def test_a_merger_that_fails_is_named() -> None:
    def broken(key: str, one: Any, other: Any) -> Any:
        raise RuntimeError("apart")

    functions = Functions(function(add), function(none_yet), function(broken), FIELDS)
    task = FunctionWindowTask(WINDOWS["sessions"], functions)
    task.process([Given("a", BEGIN, 1), Given("a", BEGIN + 1_000, 1)])
    line = broken.__code__.co_firstlineno + 1
    assert [reason for _, reason in task.rejected] == [
        f"{broken.__qualname__} raised RuntimeError in line {line}: apart"
    ]


def test_a_function_may_stop_the_application() -> None:
    functions = Functions(function(wind, STOP), None, None, (("n", "bigint"),))
    task = FunctionWindowTask(WINDOWS["tumbling"], functions)
    with pytest.raises(ValueError, match="a negative number"):
        task.process([Given("a", BEGIN, 1), Given("a", BEGIN, -1)])
