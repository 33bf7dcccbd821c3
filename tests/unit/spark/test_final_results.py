"""The windows that close, beside a plain account of what the library does with each record."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import Row
from streamplan.model.windows import CalendarWindows, CustomWindows, SessionWindows, SlidingWindows, TimeWindows

from tests.support.library_windows import shifts
from tests.support.window_task import WindowTask

SECOND = 1000
TUMBLING = TimeWindows("10 seconds", grace="5 seconds")
HOPPING = TimeWindows("10 seconds", grace="5 seconds", advance="4 seconds")
SESSIONS = SessionWindows("10 seconds", grace="5 seconds")

Result = tuple[str, int, int, int, int]
"""Key, start, end, time of the result, count."""

CLOCK = ""
"""Stands for the key of a record where the wall clock gives the stream task a time."""


def results_of(rows: Sequence[Row]) -> list[Result]:
    closed = [row for row in rows if row.place is not None]
    assert [row.place for row in closed] == [*range(len(closed))]
    return [(row.key.decode(), row.start, row.end, row.at, row.parts["p0"]) for row in closed]


def account_of_windows(records: Sequence[tuple[str, int]], windows: TimeWindows) -> list[Result]:
    size, advance, grace = windows.size_ms, windows.advance_ms, windows.grace_ms
    held: dict[tuple[int, str], list[int]] = {}
    passed: list[Result] = []
    newest = -1
    for key, at in records:
        newest = max(newest, at)
        for start in range(0, at + 1, advance) if key != CLOCK else ():
            if at < start + size and start + size > newest - grace:
                held.setdefault((start, key), []).append(at)
        for start, name in sorted(held):
            if start + size <= newest - grace:
                times = held.pop((start, name))
                passed.append((name, start, start + size, max(times), len(times)))
    return passed


def account_of_sessions(
    records: Sequence[tuple[str, int]], windows: SessionWindows, *, suppressed: bool = False
) -> list[Result]:
    """A session that is on the edge takes nothing more, and is there until it is passed. ``suppress`` passes it."""
    gap, retention = windows.inactivity_gap_ms, windows.retention_ms
    held: list[tuple[int, int, str, int]] = []  # end, start, key, count
    passed: list[Result] = []
    newest = -1
    for key, at in records:
        found = [one for one in held if one[2] == key and one[0] > newest - retention]
        met = [one for one in found if one[0] >= at - gap and one[1] <= at + gap]
        newest = max(newest, at)
        end, start = max([at, *(one[0] for one in met)]), min([at, *(one[1] for one in met)])
        if key != CLOCK and end >= newest - retention:
            held = [one for one in held if one not in met]
            held.append((end, start, key, 1 + sum(one[3] for one in met)))
        for one in sorted(held):
            if one[0] < newest - retention + suppressed:
                held.remove(one)
                passed.append((one[2], one[1], one[0], one[0], one[3]))
    return passed


def drawn(seed: int, count: int = 80) -> list[tuple[str, int]]:
    chosen = random.Random(seed)
    records, now = [], 0
    for _ in range(count):
        now += SECOND * chosen.choice([0, 0, 1, 1, 2, 5, 10, 11, 15, 16, 40])
        records.append((chosen.choice("abc"), max(0, now - SECOND * chosen.choice([0, 0, 0, 1, 5, 15, 16, 30]))))
    return records


@pytest.mark.parametrize("windows", [TUMBLING, HOPPING, SESSIONS], ids=["tumbling", "hopping", "sessions"])
def test_each_window_is_passed_once_however_often_the_state_is_restored(windows: TimeWindows | SessionWindows) -> None:
    """In micro-batches of any size. Before some the state is lost, and restored from what the changelog has."""
    for seed in range(150):
        records, chosen = drawn(seed), random.Random(-seed)
        expected = (
            account_of_sessions(records, windows)
            if isinstance(windows, SessionWindows)
            else account_of_windows(records, windows)
        )
        task, passed = WindowTask(windows), list[Result]()
        changelog: dict[tuple[str, int, int], Row] = {}
        while records:
            taken = chosen.choice([1, 1, 2, 7, 30])
            rows = task.process(records[:taken])
            records = records[taken:]
            passed += results_of(rows)
            for row in rows:
                if row.place is None:
                    place = (row.key, row.start, row.end)
                    changelog.pop(place, None)
                    if not row.deleted:
                        changelog[place] = row
            if chosen.random() < 0.3:
                task = WindowTask(windows, changelog.values())
        assert sorted(passed) == sorted(expected), seed
        assert passed == expected, seed
        assert passed


def test_each_suppressed_session_is_passed_once_however_often_the_state_is_restored() -> None:
    """With sessions that end so long before the newest record that they take nothing more, and are not closed yet."""
    differs = False
    for seed in range(150):
        records, chosen = drawn(seed), random.Random(-seed)
        expected = account_of_sessions(records, SESSIONS, suppressed=True)
        differs |= expected != account_of_sessions(records, SESSIONS)
        task, passed, changelog = WindowTask(SESSIONS, suppressed=True), list[Result](), dict[Any, Row]()
        while records:
            taken = chosen.choice([1, 1, 2, 7, 30])
            rows = task.process(records[:taken])
            records = records[taken:]
            passed += results_of(rows)
            for row in rows:
                if row.place is None:
                    changelog.pop((row.key, row.start, row.end), None)
                    if not row.deleted:
                        changelog[row.key, row.start, row.end] = row
            if chosen.random() < 0.3:
                task = WindowTask(SESSIONS, changelog.values(), suppressed=True)
        assert sorted(passed) == sorted(expected), seed
    assert differs


@pytest.mark.parametrize("windows", [TUMBLING, HOPPING, SESSIONS], ids=["tumbling", "hopping", "sessions"])
def test_what_the_wall_clock_closes_is_passed_once_however_often_the_state_is_restored(
    windows: TimeWindows | SessionWindows,
) -> None:
    """Its times come between the micro-batches. The last one is committed, and known to a restored state."""
    by_clock = 0
    for seed in range(100):
        chosen, records, now = random.Random(seed), list[tuple[str, int]](), 0
        for _ in range(60):
            now += SECOND * chosen.choice([0, 1, 2, 5, 10, 15, 16, 40]) + 1  # no session is on the edge of being closed
            at = max(0, now - SECOND * chosen.choice([0, 0, 1, 5, 16, 30]))
            records.append((chosen.choice(["a", "b", "c", CLOCK]), at))
        expected = (
            account_of_sessions(records, windows)
            if isinstance(windows, SessionWindows)
            else account_of_windows(records, windows)
        )
        task, passed, by_then = WindowTask(windows), list[Result](), None
        changelog: dict[tuple[str, int, int], Row] = {}
        for key, at in records:
            rows = task.tick(at) if key == CLOCK else task.process([(key, at)])
            by_then = max(at, by_then or 0) if key == CLOCK else by_then
            closed = results_of(rows)
            by_clock += len(closed) if key == CLOCK else 0
            passed += closed
            for row in rows:
                if row.place is None:
                    changelog.pop((row.key, row.start, row.end), None)
                    if not row.deleted:
                        changelog[row.key, row.start, row.end] = row
            if chosen.random() < 0.2:
                task = WindowTask(windows, changelog.values(), by_then)
        assert passed == expected, seed
    assert by_clock > 100


BERLIN = ZoneInfo("Europe/Berlin")
DAYS = CalendarWindows("1 day", time_zone="Europe/Berlin", grace="2 hours")


def day_of(at: int) -> tuple[int, int]:
    """The start and the end in ms of a day of Berlin."""
    date = datetime.fromtimestamp(at / SECOND, BERLIN).date()
    midnights = (datetime.combine(day, time(), BERLIN) for day in (date, date + timedelta(days=1)))
    start, end = (round(midnight.timestamp()) * SECOND for midnight in midnights)
    return start, end


def account_of_days(records: Sequence[tuple[str, int]]) -> list[Result]:
    held: dict[tuple[int, int, str], list[int]] = {}
    passed: list[Result] = []
    newest = -1
    for key, at in records:
        newest = max(newest, at)
        start, end = day_of(at)
        if end > newest - DAYS.grace_ms:
            held.setdefault((end, start, key), []).append(at)
        for place in sorted(held):
            if place[0] <= newest - DAYS.grace_ms:
                times = held.pop(place)
                passed.append((place[2], place[1], place[0], max(times), len(times)))
    return passed


def test_a_day_closes_at_the_midnight_of_its_zone_also_where_it_has_23_or_25_hours() -> None:
    hour, lengths = 3600 * SECOND, set[int]()
    for month, day in ((3, 27), (10, 23)):
        begin = round(datetime(2026, month, day, tzinfo=UTC).timestamp()) * SECOND
        for seed in range(50):
            chosen, records, now = random.Random(seed), list[tuple[str, int]](), begin
            for _ in range(40):
                now += hour // 4 * chosen.choice([0, 1, 2, 8, 24])
                records.append((chosen.choice("abc"), now - hour // 4 * chosen.choice([0, 0, 0, 1, 8, 20])))
            task, passed = WindowTask(DAYS, bounds=day_of), list[Result]()
            changelog: dict[tuple[bytes, int], Row] = {}
            for record in records:
                rows = task.process([record])
                passed += results_of(rows)
                changelog |= {(row.key, row.start): row for row in rows if row.place is None}
                if chosen.random() < 0.2:
                    task = WindowTask(DAYS, changelog.values(), bounds=day_of)
            assert passed == account_of_days(records), seed
            lengths |= {(end - start) // hour for _, start, end, _, _ in passed}
    assert lengths == {23, 24, 25}


def test_custom_windows_are_restored_with_the_ends_that_their_function_tells() -> None:
    """Windows that overlap, and between which are times without a window: a record of such a time closes none."""

    def beginnings(at: int) -> list[tuple[int, int]]:
        return [(start, min(end, start + 35_000)) for start, end in shifts(at) if at < start + 35_000]

    windows = CustomWindows(beginnings, size="40 seconds", grace="5 seconds")
    for seed in range(100):
        records, chosen, held, newest = drawn(seed), random.Random(-seed), dict[tuple[int, int, str], list[int]](), -1
        expected = []
        for key, at in records:
            newest = max(newest, at) if beginnings(at) else newest
            for start, end in beginnings(at):
                if end > newest - windows.grace_ms:
                    held.setdefault((end, start, key), []).append(at)
            for place in sorted(held):
                if place[0] <= newest - windows.grace_ms:
                    times = held.pop(place)
                    expected.append((place[2], place[1], place[0], max(times), len(times)))
        task, passed, changelog = WindowTask(windows), list[Result](), dict[Any, Row]()
        while records:
            taken = chosen.choice([1, 1, 2, 7])
            rows = task.process(records[:taken])
            records = records[taken:]
            passed += results_of(rows)
            changelog |= {(row.key, row.start): row for row in rows if row.place is None}
            if chosen.random() < 0.3:
                task = WindowTask(windows, [Row(**row.asDict() | {"end": 0}) for row in changelog.values()])
        assert passed == expected, seed


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        ([1], "returned 1, and not the start and the end of a window in ms"),
        ([(0, 1.5)], "returned (0, 1.5), and not the start and the end of a window in ms"),
        ([(5, 5)], "returned a window from 5 to 5, in which 9 does not lie"),
        ([(-5, 15)], "returned a window from -5 to 15, in which 9 does not lie"),
        ([(0, 10), (0, 9 + 1)], "returned two windows that begin at 0"),
        ([(0, 11)], "returned a window from 0 to 11, which is longer than size='10 milliseconds'"),
        ([(0, 1 << 63)], "which is longer than size='10 milliseconds'"),
        ([(False, 10)], "returned (False, 10), and not the start and the end of a window in ms"),
        (None, "'NoneType' object is not iterable"),
    ],
)
def test_a_record_is_rejected_where_the_function_of_its_windows_fails(returned: Any, reason: str) -> None:
    """The time does not go on with it."""
    windows = CustomWindows(lambda at: returned if at == 9 else [(0, 10)], size="10 milliseconds", grace="0 seconds")
    task = WindowTask(windows)
    rows = task.process([("k", 1), ("k", 9)])
    assert [row.reason.endswith(reason) for row in rows if "reason" in row] == [True]
    assert [row.parts["p0"] for row in rows if "reason" not in row] == [1]


def test_a_function_that_ends_in_no_window_is_asked_no_longer_than_a_time_has_windows() -> None:
    windows = CustomWindows(lambda at: ((start, at + 1) for start in range(at)), size="1 day")
    with pytest.raises(ValueError, match="returned more than 20,000 windows"):
        windows.windows_of(10**7)


@pytest.mark.parametrize("function", [lambda at: 1 / 0, lambda at: None, lambda at: [(0, at + 1)], lambda at: ()])
def test_a_window_of_a_store_ends_by_its_size_where_the_function_does_not_tell(function: Any) -> None:
    """A state is restored, and a store read, whatever became of the function."""
    assert CustomWindows(function, size="10 seconds").end_of(60_000) == 70_000


SLIDING = SlidingWindows("10 seconds", grace="1 hour")


def account_of_sliding_windows(records: Sequence[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, int]]:
    """By key and start the count and the newest time: a window ends at each record, and one begins behind it."""
    counted = {}
    for key, at in records:
        times = [other for name, other in records if name == key]
        for start in (max(0, at - SLIDING.size_ms), at + 1):
            if within := [other for other in times if start <= other <= start + SLIDING.size_ms]:
                counted[key, start] = len(within), max(within)
    return counted


@pytest.mark.parametrize("begin", [0, 10**6])
def test_sliding_windows_do_not_depend_on_the_order_of_records_that_are_in_time(begin: int) -> None:
    """Before some micro-batches the state is lost, and restored from what the changelog has."""
    for seed in range(150):
        chosen, times = random.Random(seed), [begin]
        while len(times) < 30:
            times.append(times[-1] + chosen.choice([0, 1, 1, 500, 3000, 9999, 10_000, 10_001, 15_000]))
        records = [(chosen.choice("ab"), at) for at in times]
        chosen.shuffle(records)
        expected, changelog = account_of_sliding_windows(records), dict[tuple[str, int], Row]()
        task = WindowTask(SLIDING, final=False)
        while records:
            taken = chosen.choice([1, 1, 2, 7])
            changelog |= {(row.key.decode(), row.start): row for row in task.process(records[:taken])}
            records = records[taken:]
            if chosen.random() < 0.2:
                task = WindowTask(SLIDING, changelog.values(), final=False)
        assert {place: (row.parts["p0"], row.at) for place, row in changelog.items()} == expected, seed


def test_each_sliding_window_is_passed_once_however_often_the_state_is_restored() -> None:
    """With records in the order of time. A closed window tells later records which windows they begin."""
    windows = SlidingWindows("10 seconds", grace="3 seconds")
    for seed in range(150):
        chosen, times = random.Random(seed), [10**6]
        while len(times) < 40:
            times.append(times[-1] + chosen.choice([0, 1, 1, 500, 3000, 9999, 10_000, 10_001, 15_000]))
        records = [(chosen.choice("ab"), at) for at in times]
        expected = [
            (key, start, start + SLIDING.size_ms, newest, count)
            for (key, start), (count, newest) in account_of_sliding_windows(records).items()
            if start + SLIDING.size_ms < times[-1] - windows.grace_ms
        ]
        task, passed, changelog = WindowTask(windows), list[Result](), dict[tuple[bytes, int], Row]()
        while records:
            taken = chosen.choice([1, 1, 2, 7])
            rows = task.process(records[:taken])
            passed += results_of(rows)
            changelog |= {(row.key, row.start): row for row in rows if row.place is None}
            records = records[taken:]
            if chosen.random() < 0.2:
                task = WindowTask(windows, changelog.values())
        assert passed == sorted(expected, key=lambda result: (result[2], result[1], result[0])), seed


def test_a_window_closes_when_a_record_is_as_late_as_its_end_and_the_grace() -> None:
    task = WindowTask(TUMBLING)
    assert results_of(task.process([("a", 9 * SECOND), ("b", 15 * SECOND - 1)])) == []
    assert results_of(task.process([("c", 15 * SECOND)])) == [("a", 0, 10 * SECOND, 9 * SECOND, 1)]
    assert task.process([("a", 9 * SECOND)]) == []


def test_a_session_closes_when_a_record_is_later_than_its_end_the_gap_and_the_grace() -> None:
    task = WindowTask(SESSIONS)
    assert results_of(task.process([("a", 1 * SECOND), ("b", 16 * SECOND)])) == []
    assert results_of(task.process([("c", 16 * SECOND + 1)])) == [("a", 1000, 1000, 1000, 1)]


def test_the_state_keeps_nothing_of_what_is_closed() -> None:
    """The newest record is of 999 s. So the windows that begin at 984 s or before are closed."""
    task = WindowTask(HOPPING)
    task.process([(f"key {number}", number * SECOND) for number in range(1000)])
    held = {row[0][0] for row in task.maps["sessions"].iterator()}
    assert held == {b"key %d" % number for number in range(988, 1000)}


@pytest.mark.parametrize("windows", [TUMBLING, HOPPING, SESSIONS])
@pytest.mark.parametrize("suppressed", [False, True], ids=["emitted", "suppressed"])
@pytest.mark.parametrize("seed", range(5))
def test_a_result_has_the_place_of_the_record_that_has_closed_its_window(
    windows: TimeWindows | SessionWindows, suppressed: bool, seed: int
) -> None:
    """Whatever micro-batches the records come in."""
    records, expected = drawn(seed), list[tuple[Result, int]]()
    of_sessions = partial(account_of_sessions, suppressed=suppressed)
    account = of_sessions if isinstance(windows, SessionWindows) else account_of_windows
    for number in range(len(records)):
        passed = account(records[: number + 1], windows)  # type: ignore[arg-type]
        expected += [(result, number) for result in passed[len(expected) :]]
    chosen, task, found = (
        random.Random(seed),
        WindowTask(windows, by_record=True, suppressed=suppressed),
        list[tuple[Result, int]](),
    )
    while records:
        size = chosen.randint(1, 20)
        rows = task.process(records[:size])
        closed = [row.closed_by["offset"] for row in rows if row.place is not None]
        found += zip(results_of(rows), closed, strict=True)
        records = records[size:]
    assert found
    assert sorted(found) == sorted(expected)
