"""Groups and filters of a table, with the states in memory: beside a recount, over micro-batches and restarts."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pytest
from pyspark.sql import Row
from streamplan.model.functions import PythonFunction
from streamplan.model.operations import TableAggregate, TableCount, TableReduce
from streamplan.model.windows import SessionWindows, TimeWindows
from streamplan.serdes.changes import Changes
from streamplan.serdes.json import Json
from streamplan.serdes.primitive import STRING
from streamplan.serdes.serde import MAX_BYTES
from streamplan.spark.planning.old_values_state import Grouped, OldValuesState, OldWindowsState, sent_records
from streamplan.spark.planning.process_state import RestoredProcessState
from streamplan.spark.planning.table_aggregate_state import TableAggregateState

from tests.support.process_task import Variables

VALUE = Json("n bigint")
COLUMNS = (("n", "bigint"),)


def nothing() -> dict[str, int]:
    return {"n": 0}


def add(key: str, value: Any, total: Any) -> dict[str, int]:
    return {"n": total.n + value.n}


def take(key: str, value: Any, total: Any) -> dict[str, int] | None:
    return {"n": total.n - value.n} if total.n != value.n else None


def plus(total: Any, value: Any) -> dict[str, int]:
    return {"n": 10 * total.n + value.n}


def minus(total: Any, value: Any) -> dict[str, int]:
    if value.n == 9:
        raise ValueError("nine")
    return {"n": total.n - value.n}


def function(call: Any) -> PythonFunction:
    return PythonFunction(call.__name__, call)


COUNT = TableCount.of("store")
SUM = TableAggregate(function(add), "store", COLUMNS, COLUMNS, subtractor=function(take), initializer=function(nothing))
DIGITS = TableReduce(function(plus), "store", COLUMNS, COLUMNS, subtractor=function(minus))


def place(offset: int, order: list[int]) -> dict[str, Any]:
    return {"partition_time": None, "topic": "t", "partition": 0, "offset": offset, "order": order}


class Table:
    """The states of a grouped table, one for each key. A value is in the group of its remainder by 3, and 7 in none."""

    def __init__(self) -> None:
        self.states = defaultdict[str, Variables](Variables)

    def sent(self, updates: list[tuple[str, int | None]]) -> list[tuple[bytes, bytes]]:
        """What a micro-batch gives, in the order of the updates."""
        by_key = defaultdict[str, list[Row]](list)
        for offset, (key, n) in enumerate(updates):
            by_key[key].append(self._row(key, n, offset))
        found = []
        for key, rows in by_key.items():
            random.Random(len(rows)).shuffle(rows)
            found += [
                ((row.record["offset"], row.place), row.to, row.sent) for row in self._run(key, rows, restored=False)
            ]
        return [(to, sent) for _, to, sent in sorted(found)]

    def restore(self, values: Mapping[str, int]) -> None:
        self.states.clear()
        for key, n in values.items():
            assert self._run(key, [self._row(key, n, 0)], restored=True) == []

    def _run(self, key: str, rows: list[Row], *, restored: bool) -> list[Row]:
        state = OldValuesState(sends=True, restored=restored)
        state.init(self.states[key])  # type: ignore[arg-type]
        return list(state.handleInputRows((0, key.encode()), iter(rows), None))

    @staticmethod
    def _row(key: str, n: int | None, offset: int) -> Row:
        is_in_group = n is not None and n != 7
        to = str(n % 3).encode() if n is not None and is_in_group else None
        value = json.dumps({"n": n}).encode() if is_in_group else None
        return Row(partition=0, key=key.encode(), at=offset, to=to, value=value, record=place(offset, []))


class Task:
    """A stream task that aggregates the groups."""

    def __init__(self, operation: TableReduce) -> None:
        self.operation, self.offset = operation, 0
        self.changelog: dict[bytes, bytes | None] = {}
        self.variables = Variables()

    def run(self, sent: list[tuple[bytes, bytes]], at: int = 0) -> list[Row]:
        state = TableAggregateState(self.operation, Changes(VALUE), STRING, sweeps=True)
        state.init(self.variables)  # type: ignore[arg-type]
        made = list(state.handleInputRows((0,), self._rows(sent, at), None))
        for row in made:
            if "stored_key" in row:
                self.changelog[row.stored_key] = row.stored_value
        return [row for row in made if "stored_key" not in row]

    def restore(self) -> None:
        self.variables = Variables()
        state = RestoredProcessState(self.operation, VALUE, STRING, sweeps=False)
        state.init(self.variables)  # type: ignore[arg-type]
        stored = [Row(key=key, at=0, value=value) for key, value in self.changelog.items() if value is not None]
        list(state.handleInputRows((0,), iter(stored), None)) if stored else []

    @property
    def stored(self) -> dict[str, Any]:
        def read(value: bytes) -> Any:
            return int.from_bytes(value, "big") if self.operation is COUNT else json.loads(value)["n"]

        return {key.decode(): read(value) for key, value in self.changelog.items() if value is not None}

    def _rows(self, sent: list[tuple[bytes, bytes]], at: int) -> Iterator[Row]:
        for to, value in sent:
            self.offset += 1
            read = {"key": to.decode(), "original_key": to, "value": value, "headers": None, "reason": None}
            yield Row(partition=0, at=at, key=to, value=None, record={**place(self.offset, []), **read})


@pytest.mark.parametrize("seed", range(20))
def test_groups_have_what_the_table_has_now(seed: int) -> None:
    chosen = random.Random(seed)
    table, count, total = Table(), Task(COUNT), Task(SUM)
    now: dict[str, int] = {}
    for _ in range(12):
        updates = [(chosen.choice("abcd"), chosen.choice([None, *range(10)])) for _ in range(chosen.randrange(6))]
        for key, n in updates:
            if n is None:
                now.pop(key, None)
            else:
                now[key] = n
        sent = table.sent(updates)
        if sent:
            count.run(sent)
            total.run(sent)
        in_groups = [n for n in now.values() if n != 7]
        counts, sums = Counter(str(n % 3) for n in in_groups), Counter[str]()
        for n in in_groups:
            sums[str(n % 3)] += n
        assert {group: n for group, n in count.stored.items() if n} == counts
        assert {group: n for group, n in total.stored.items() if n} == {group: n for group, n in sums.items() if n}
        if chosen.random() < 0.3:
            table.restore(now)
            count.restore()
            total.restore()


def test_the_old_value_goes_first_and_stays_in_one_record_of_one_group() -> None:
    task = Task(DIGITS)
    sent = Table().sent([("a", 1), ("a", 4), ("a", 2), ("b", 1), ("b", None)])
    assert sent == [
        (b"1", b'{"n": 1}\1'),
        (b"1", b'\x10{"n": 4}{"n": 1}\2'),
        (b"1", b'{"n": 4}\0'),
        (b"2", b'{"n": 2}\1'),
        (b"1", b'{"n": 1}\1'),
        (b"1", b'{"n": 1}\0'),
    ]
    assert [row.fields for row in task.run(sent)] == [{"n": n} for n in (1, 4, 0, 2, 1, 0)]


def test_after_a_failed_call_the_value_is_as_before() -> None:
    task = Task(DIGITS)
    rows = task.run(Table().sent([("a", 9), ("b", 3), ("a", 6), ("b", 0)]))
    reasons = [row.asDict().get("reason") or "" for row in rows]
    assert ["minus" in reason and "nine" in reason for reason in reasons] == [False, False, True, False]
    assert task.stored == {"0": (93 - 3) * 10}


def test_a_deletion_has_the_time_of_its_record_and_a_value_the_latest_one() -> None:
    task = Task(SUM)
    assert [(row.fields, row.at) for row in task.run([(b"1", b'{"n": 1}\1')], at=9)] == [({"n": 1}, 9)]
    assert [(row.fields, row.at) for row in task.run([(b"1", b'{"n": 2}\1')], at=5)] == [({"n": 3}, 9)]
    assert [(row.fields, row.at) for row in task.run([(b"1", b'{"n": 3}\0')], at=4)] == [(None, 4)]


def test_what_leaves_a_group_that_there_is_not_is_left_out() -> None:
    task = Task(COUNT)
    assert task.run([(b"1", b'{"n": 1}\0')]) == []
    assert task.changelog == {}


def test_a_record_that_would_be_too_large_is_two() -> None:
    half = b"v" * (MAX_BYTES // 2)
    assert len(list(sent_records(Grouped(b"k", half[:-10]), Grouped(b"k", half)))) == 1
    assert [sent[-1:] for _, sent in sent_records(Grouped(b"k", half), Grouped(b"k", half))] == [b"\0", b"\1"]


def test_a_filter_leaves_out_the_deletion_of_nothing() -> None:
    state, variables = OldValuesState(sends=False, restored=False), Variables()
    state.init(variables)  # type: ignore[arg-type]
    values = [None, b"", b"", None, None, b"", None]
    rows = [Row(to=None, value=value, record=place(offset, [])) for offset, value in enumerate(values)]
    passed = [row.record["offset"] for row in state.handleInputRows((0, b"k"), iter(rows), None)]
    assert passed == [1, 2, 3, 5, 6]


class Windows:
    """The state of a filter of windows, of one stream task, over micro-batches and restarts."""

    def __init__(self, windows: TimeWindows | SessionWindows) -> None:
        self.windows, self.variables = windows, Variables()

    def passed(self, updates: Sequence[Update]) -> list[Update]:
        """What the filter passes of the updates of a micro-batch."""
        rows = [self._row(update, offset) for offset, update in enumerate(updates)]
        random.Random(len(rows)).shuffle(rows)
        return [updates[row.record["offset"]] for row in self._run(rows, restored=False)]

    def restore(self, values: Sequence[Update]) -> None:
        self.variables = Variables()
        assert self._run([self._row(value, 0) for value in values], restored=True) == []

    @property
    def known(self) -> set[tuple[bytes, int, int]]:
        return {(bytes(key), start, end) for (key, start, end), _ in self.variables.maps["old"].iterator()}

    def _run(self, rows: list[Row], *, restored: bool) -> list[Row]:
        state = OldWindowsState(self.windows, sends=False, restored=restored)
        state.init(self.variables)  # type: ignore[arg-type]
        return list(state.handleInputRows((0,), iter(rows), None))

    @staticmethod
    def _row(update: Update, offset: int) -> Row:
        value = b"" if update.kept else None
        bounds = {"start": update.start, "end": update.end}
        return Row(partition=0, key=update.key, at=update.at, to=None, value=value, record=place(offset, []), **bounds)


class Update(NamedTuple):
    key: bytes
    start: int
    end: int
    at: int
    kept: bool


def test_a_filter_leaves_out_the_deletion_of_a_window_that_it_has_not_passed() -> None:
    task = Windows(TimeWindows("1 minute", grace="1 minute"))
    minutes = [(0, 60_000), (60_000, 120_000)]
    one, other = ((b"k", *bounds) for bounds in minutes)
    first = [Update(*one, 1, False), Update(*one, 2, True), Update(*other, 60_001, False), Update(*one, 3, False)]
    assert task.passed(first) == [first[1], first[3]]
    second = [Update(*one, 4, False), Update(*other, 60_002, True), Update(b"l", *minutes[1], 60_003, False)]
    assert task.passed(second) == [second[1]]
    task.restore([Update(*one, 3, False), Update(*other, 60_002, True)])
    third = [Update(*one, 5, False), Update(*other, 60_004, False), Update(*other, 60_005, False)]
    assert task.passed(third) == [third[1]]


@pytest.mark.parametrize(
    "windows", [TimeWindows("1 minute", grace="1 hour"), SessionWindows("1 minute", grace="1 hour")]
)
def test_a_window_that_takes_no_update_any_more_is_forgotten(windows: TimeWindows | SessionWindows) -> None:
    task, minute = Windows(windows), 60_000
    passed = [Update(b"k", at, at + minute, at + 1, True) for at in range(0, 500 * minute, minute)]
    for update in passed:
        assert task.passed([update]) == [update]
    newest = passed[-1].at
    needed = {update[:3] for update in passed if update.end > newest - windows.retention_ms + minute}
    kept = {update[:3] for update in passed if update.end > newest - 2 * windows.retention_ms}
    assert needed <= task.known <= kept
    task.restore(passed)
    assert needed <= task.known <= kept


def test_a_session_that_the_store_of_the_table_has_forgotten_was_nothing() -> None:
    """The library looks in the store, and a session that ends at the last moment is not found there."""
    task = Windows(SessionWindows("30 seconds", grace="10 seconds"))
    session, newer = Update(b"k", 0, 0, 0, True), Update(b"l", 40_000, 40_000, 40_000, True)
    assert task.passed([session]) == [session]
    assert task.passed([newer]) == [newer]
    assert task.passed([session._replace(kept=False)]) == []
