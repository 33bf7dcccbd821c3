"""What Python classes do with the stores of their stream task, with the state in memory."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from streamplan.model.processor import (
    STREAM_TIME,
    WALL_CLOCK_TIME,
    KeyValue,
    KeyValueStore,
    Processor,
    ProcessorContext,
    Record,
    RecordMetadata,
    SessionStore,
    TimestampedKeyValueStore,
    TimestampedWindowStore,
    ValueAndTimestamp,
    VersionedKeyValueStore,
    VersionedRecord,
    WindowStore,
)
from streamplan.model.timestamps import LATEST_MS
from streamplan.model.windows import stored_session_key, stored_window_key
from streamplan.serdes.json import Json
from streamplan.serdes.primitive import Double, Integer, Long, String
from streamplan.serdes.serde import MAX_BYTES

from tests.support.stores_task import Arrived, StoresTask

SECOND = 1_000


def moment(at: int) -> datetime:
    return datetime.fromtimestamp(at / 1000, UTC)


class Context(Processor):
    """Keeps its context, for the functions of the tests."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context


class WordCount(Context):
    """Kafka's own example: counts words, and forwards all counts once in a second."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.counts = context.get_state_store("counts")
        context.schedule("1 second", STREAM_TIME, self.punctuate)

    def process(self, record: Record) -> None:
        for word in record.value.s.lower().split():
            self.counts.put(word, (self.counts.get(word) or 0) + 1)

    def punctuate(self, _: datetime) -> None:
        for word, n in self.counts.all():
            self.context.forward({"n": n}, key=word)


def long(n: int) -> bytes:
    return n.to_bytes(8, "big", signed=True)


def test_a_store_has_keys_that_are_no_keys_of_records_and_a_punctuator_forwards_all_of_them() -> None:
    task = StoresTask(WordCount, {"counts": KeyValueStore(String(), Long())})
    first = task.process(Arrived("x", 500, {"s": "b a"}, 0))
    assert [(made.key, made.value, made.at) for made in first] == [(b"a", {"n": 1}, 500), (b"b", {"n": 1}, 500)]
    assert task.process(Arrived("y", 900, {"s": "a"}, 1)) == []
    last = task.process(Arrived("z", 2_500, {"s": "a"}, 2))
    assert [(made.key, made.value, made.at) for made in last] == [(b"a", {"n": 3}, 2_500), (b"b", {"n": 1}, 2_500)]
    assert task.changelogs["counts"] == {b"a": (long(3), 2_500), b"b": (long(1), 500)}


@pytest.mark.parametrize("sizes", [[1], [3], [7, 1, 2], [100]])
def test_micro_batches_of_any_size_give_the_same_and_so_does_a_restored_state(sizes: list[int]) -> None:
    drawn = random.Random(7)
    words = ["a", "b", "c", "d", "e", "f"]
    at = 0
    records = []
    for offset in range(40):
        at += drawn.randrange(800)
        records.append(Arrived("k", at, {"s": " ".join(drawn.choices(words, k=3))}, offset))
    whole = StoresTask(WordCount, {"counts": KeyValueStore(String(), Long())})
    expected = whole.process(*records)
    task = StoresTask(WordCount, {"counts": KeyValueStore(String(), Long())})
    made, left, turn = [], records, 0
    while left:
        size = sizes[turn % len(sizes)]
        made += task.process(*left[:size])
        left, turn = left[size:], turn + 1
        if turn % 4 == 0:
            task.restore()  # each record has put a word, so the changelog has the stream time
    assert made == expected
    assert task.changelogs == whole.changelogs


class Operations(Context):
    """Does what a value says, and forwards what the store answers."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.store = context.get_state_store("store")

    def process(self, record: Record) -> Iterator[dict[str, Any]]:
        name, *arguments = json.loads(record.value.s)
        answer = getattr(self.store, name)(*arguments)
        if answer is not None and not isinstance(answer, int):
            answer = [[key, value] for key, value in answer]
        yield {"s": json.dumps(answer)}
        if record.value.n:
            raise ValueError("taken back")


class Model:
    """The same in plain Python: a store is a dict, in the order of the bytes of its keys."""

    def __init__(self, width: int) -> None:
        self.values: dict[int, int] = {}
        self.width = width

    def raw(self, key: int) -> bytes:
        return key.to_bytes(self.width, "big", signed=True)

    def ordered(self) -> list[list[int]]:
        return [[key, self.values[key]] for key in sorted(self.values, key=self.raw)]

    def call(self, name: str, *arguments: Any) -> Any:
        match name, arguments:
            case "get", [key]:
                return self.values.get(key)
            case "put", [key, value]:
                self.values[key] = value
                if value is None:
                    del self.values[key]
                return None
            case "put_if_absent", [key, value]:
                before = self.values.get(key)
                self.values.setdefault(key, value)
                return before
            case "delete", [key]:
                return self.values.pop(key, None)
            case "all", []:
                return self.ordered()
            case "reverse_all", []:
                return self.ordered()[::-1]
            case "approximate_num_entries", []:
                return len(self.values)
            case (("range" | "reverse_range"), [first, last]):
                low = b"" if first is None else self.raw(first)
                high = b"\xff" * 9 if last is None else self.raw(last)
                found = [each for each in self.ordered() if low <= self.raw(each[0]) <= high]
                return found if name == "range" else found[::-1]
        raise AssertionError(name)


@pytest.mark.parametrize("seed", range(12))
def test_a_key_value_store_is_a_dict_in_the_order_of_the_bytes_of_its_keys(seed: int) -> None:
    drawn = random.Random(seed)
    serde, width = drawn.choice([(Integer(), 4), (Long(), 8)])
    task = StoresTask(Operations, {"store": KeyValueStore(serde, Long())}, "s string")
    model, answers, expected, batch = Model(width), [], [], []
    for offset in range(120):
        keys = [drawn.randrange(-4, 5) for _ in range(2)]
        bounds = [key if drawn.random() < 0.8 else None for key in keys]
        call = drawn.choice(
            [
                ["get", keys[0]],
                ["put", keys[0], drawn.choice([None, 1, 2])],
                ["put_if_absent", keys[0], 3],
                ["delete", keys[0]],
                ["all"],
                ["reverse_all"],
                ["approximate_num_entries"],
                ["range", *bounds],
                ["reverse_range", *bounds],
            ]
        )
        if call[0] == "put" and call[2] is None and call[1] not in model.values:
            call = ["get", call[1]]
        fails = drawn.random() < 0.15
        before = dict(model.values)
        answer = model.call(*call)
        if fails:
            model.values = before
        expected.append("raised" if fails else json.dumps(answer))
        batch.append(Arrived("k", 1, {"s": json.dumps(call), "n": int(fails)}, offset))
        if drawn.random() < 0.3:
            answers += task.process(*batch)
            batch = []
    answers += task.process(*batch)
    assert ["raised" if made.reason else made.value["s"] for made in answers] == expected
    stored = {model.raw(key): long(value) for key, value in model.values.items()}
    assert {key: value for key, (value, _) in task.changelogs["store"].items() if value is not None} == stored
    assert {key: value for (key,), (value,) in task.state["store"].items()} == stored


class Forwarding(Context):
    def process(self, record: Record) -> Iterator[dict[str, int]]:
        self.context.forward({"n": 1})
        self.context.forward(None, key=7, timestamp=record.timestamp + timedelta(seconds=1), headers=[("a", "b")])
        self.context.forward({"n": 2}, key=None, headers=())
        yield {"n": len(record.headers)}


def test_forward_takes_another_key_time_and_headers_and_else_those_of_the_record() -> None:
    class Keyed(Forwarding):
        def process(self, record: Record) -> Iterator[dict[str, int]]:
            self.context.forward({"n": 0}, key=5)
            yield from ()

    task = StoresTask(Forwarding, {"store": KeyValueStore(String(), Long())}, key_serde=String())
    made = task.process(Arrived("k", 5, {"s": "x"}, 0, headers=(("h", b"v"),)))
    assert len(made) == 1
    assert str(made[0].reason).startswith("Forwarding.process raised ")
    by_number = StoresTask(Keyed, {"store": KeyValueStore(String(), Long())}, key_serde=Long())
    assert [each.key for each in by_number.process(Arrived("k", 5, None, 0))] == [long(5)]


def test_a_record_without_a_key_is_processed_as_in_the_library() -> None:
    class Passing(Context):
        def process(self, record: Record) -> None:
            self.context.forward({"n": 1 if record.key is None else 2}, headers=[("a", "b"), ("c", None)])
            self.context.forward(None)

    task = StoresTask(Passing, {"store": KeyValueStore(String(), Long())})
    made = task.process(Arrived(None, 5, None, 0, headers=(("h", b"v"),)))
    assert [(each.key, each.value, each.at) for each in made] == [(None, {"n": 1}, 5), (None, None, 5)]
    assert [json.loads(each.headers or "") for each in made] == [
        [{"key": "a", "value": "Yg=="}, {"key": "c"}],
        [{"key": "h", "value": "dg=="}],
    ]


class Recent(Context):
    """Forwards how many windows of a key are there."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.windows = context.get_state_store("recent")

    def process(self, record: Record) -> None:
        windows, at = self.windows, record.timestamp
        if record.value.s == "put":
            windows.put(record.key, record.value.n, at)
        else:
            since = at - timedelta(seconds=record.value.n)
            answer: Any = {
                "fetch": lambda: [
                    [int(start.timestamp()), value] for start, value in windows.fetch(record.key, since, at)
                ],
                "one": lambda: windows.fetch(record.key, at),
                "fetch_all": lambda: [
                    [key.key, int(key.start.timestamp()), value] for key, value in windows.fetch_all(since, at)
                ],
                "all": lambda: [[key.key, int(key.end.timestamp()), value] for key, value in windows.all()],
            }[record.value.s]()
            self.context.forward({"s": json.dumps(answer)})


@pytest.mark.parametrize("seed", range(8))
def test_a_window_store_is_a_dict_of_keys_and_starts_that_forgets_what_is_too_old(seed: int) -> None:
    """The retention is long, so that only the least start that is fetched moves on."""
    drawn = random.Random(seed)
    store = WindowStore(String(), Long(), retention="5 minutes", size="1 second")
    task = StoresTask(Recent, {"recent": store}, "s string")
    values: dict[tuple[str, int], int] = {}
    made, expected, now, newest = [], [], 0, -1
    for offset in range(150):
        now = max(0, now + drawn.randrange(-5, 12))
        key, word, n = drawn.choice("ab"), drawn.choice(["put", "put", "fetch", "one", "fetch_all", "all"]), 30
        made += task.process(Arrived(key, now * SECOND, {"s": word, "n": n}, offset))
        if word == "put":
            values[key, now], newest = n, max(newest, now)
            continue
        earliest = -1 if newest < 0 else newest - 300 + 0.001
        live = {each: value for each, value in values.items() if each[1] >= earliest}
        segments = sorted(live, key=lambda each: (each[1] // 150, each))
        expected.append(
            {
                "fetch": [[at, n] for name, at in sorted(live) if name == key and now - n <= at <= now],
                "one": live.get((key, now)),
                "fetch_all": [[name, at, n] for name, at in segments if now - n <= at <= now],
                "all": [[name, at + 1, n] for name, at in segments],
            }[word]
        )
    assert [json.loads(each.value["s"]) for each in made] == expected
    assert task.changelogs["recent"].keys() == {stored_window_key(key.encode(), at * SECOND) for key, at in values}


class Visits(Context):
    """Puts and removes sessions, and forwards those that there are."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.sessions = context.get_state_store("visits")

    def process(self, record: Record) -> None:
        sessions, at, n = self.sessions, record.timestamp, record.value.n
        begin = at - timedelta(seconds=n % 7)
        match record.value.s:
            case "put":
                sessions.put(record.key, n, begin, at)
            case "remove":
                sessions.remove(record.key, begin, at)
            case "one":
                self.context.forward({"s": json.dumps(sessions.fetch_session(record.key, begin, at))})
            case word:
                found = sessions.fetch(record.key)
                if word == "find":
                    found = sessions.find_sessions(record.key, at - timedelta(seconds=n), at)
                bounds = [[int(each.start.timestamp()), int(each.end.timestamp()), value] for each, value in found]
                self.context.forward({"s": json.dumps(bounds)})


@pytest.mark.parametrize("seed", range(5))
def test_a_session_store_is_a_dict_of_keys_starts_and_ends_that_forgets_what_is_too_old(seed: int) -> None:
    """The retention is long, so that only the least end that is fetched moves on."""
    drawn = random.Random(seed)
    store = SessionStore(String(), Long(), retention="5 minutes")
    task = StoresTask(Visits, {"visits": store}, "s string")
    values: dict[tuple[str, int, int], int] = {}
    made, expected, now, newest = [], [], 20, -1
    for offset in range(150):
        now = max(20, now + drawn.randrange(-5, 12))
        key, word, n = (
            drawn.choice("ab"),
            drawn.choice(["put", "put", "remove", "one", "find", "all"]),
            drawn.randrange(30),
        )
        made += task.process(Arrived(key, now * SECOND, {"s": word, "n": n}, offset))
        if offset % 40 == 39:
            task.restore()
        if word in ("put", "remove"):
            newest = max(newest, now)
            values.pop((key, now - n % 7, now), None)
            if word == "put":
                values[key, now - n % 7, now] = n
            continue
        earliest = -1 if newest < 0 else newest - 300 + 0.001
        live = {each: value for each, value in values.items() if each[2] >= earliest and each[0] == key}
        in_order = sorted(live, key=lambda each: (each[2], each[1]))
        expected.append(
            {
                "one": live.get((key, now - n % 7, now)),
                "find": [[*each[1:], live[each]] for each in in_order if each[2] >= now - n and each[1] <= now],
                "all": [[*each[1:], live[each]] for each in in_order],
            }[word]
        )
    assert [json.loads(each.value["s"]) for each in made] == expected
    assert {key: value for key, (value, _) in task.changelogs["visits"].items() if value is not None} == {
        stored_session_key(key.encode(), start * SECOND, end * SECOND): long(n)
        for (key, start, end), n in values.items()
    }


def test_a_window_whose_segment_is_over_is_gone_from_the_state_and_not_put() -> None:
    store = WindowStore(String(), Long(), retention="2 minutes", size="1 second")
    task = StoresTask(Recent, {"recent": store}, "s string")
    for offset, at in enumerate((0, 400 * SECOND, 10 * SECOND)):
        task.process(Arrived("k", at, {"s": "put", "n": 1}, offset))
    assert [key for (key,) in task.state["recent"]] == [stored_window_key(b"k", 400 * SECOND)]
    assert len(task.changelogs["recent"]) == 3
    task.restore()
    assert [key for (key,) in task.state["recent"]] == [stored_window_key(b"k", 400 * SECOND)]
    (made,) = task.process(Arrived("k", 500 * SECOND, {"s": "all", "n": 0}, 3))
    assert json.loads(made.value["s"]) == [["k", 401, 1]]


def test_a_window_store_that_keeps_duplicates_has_all_values_of_a_window() -> None:
    store = WindowStore(String(), Long(), retention="2 minutes", size="1 second", retain_duplicates=True)
    task = StoresTask(Recent, {"recent": store}, "s string")
    for offset, n in enumerate((1, 2, 3)):
        task.process(Arrived("k", SECOND, {"s": "put", "n": n}, offset))
    (made,) = task.process(Arrived("k", SECOND, {"s": "fetch", "n": 0}, 3))
    assert json.loads(made.value["s"]) == [[1, 1], [1, 2], [1, 3]]
    assert len(task.changelogs["recent"]) == 3


def test_processors_share_a_store_and_see_each_others_changes_in_the_order_of_the_records() -> None:
    class Filling(Context):
        def init(self, context: ProcessorContext) -> None:
            self.rules = context.get_state_store("rules")

        def process(self, record: Record) -> None:
            self.rules.put(record.key, record.value.n)

    class Asking(Context):
        def init(self, context: ProcessorContext) -> None:
            super().init(context)
            self.rules = context.get_state_store("rules")

        def process(self, record: Record) -> None:
            self.context.forward({"n": sum(n for _, n in self.rules.all())})

    task = StoresTask([Filling, Asking], {"rules": KeyValueStore(String(), Long())})
    made = task.process(
        Arrived("x", 1, None, 0, of=1),
        Arrived("a", 1, {"n": 1}, 1, of=0),
        Arrived("x", 1, None, 2, of=1),
        Arrived("b", 1, {"n": 2}, 3, of=0),
        Arrived("x", 1, None, 4, of=1),
    )
    assert [each.value["n"] for each in made] == [0, 1, 3]


def test_a_failed_call_forwards_nothing_and_changes_no_store() -> None:
    class Failing(Context):
        def init(self, context: ProcessorContext) -> None:
            super().init(context)
            self.one, self.other = context.get_state_store("one"), context.get_state_store("other")
            context.schedule("1 second", STREAM_TIME, self.late)

        def process(self, record: Record) -> None:
            self.one.put("k", record.value.n)
            self.other.put(record.value.n, {"s": "x"})
            self.context.forward({"n": record.value.n})
            if record.value.s:
                raise LookupError(record.value.s)

        def late(self, now: datetime) -> None:
            self.one.delete("k")
            if now > moment(1_000):
                raise LookupError("late")

    stores = {"one": KeyValueStore(String(), Long()), "other": KeyValueStore(Long(), Json("s string"))}
    task = StoresTask(Failing, stores)
    made = task.process(Arrived("x", 1, {"n": 1}, 0), Arrived("x", 2, {"n": 2, "s": "no"}, 1))
    assert [(each.value, bool(each.reason)) for each in made] == [({"n": 1}, False), (None, True)]
    assert str(made[1].reason).endswith(": no")
    assert {key: value for key, (value, _) in task.changelogs["other"].items()} == {long(1): b'{"s":"x"}'}
    late = task.process(Arrived("x", 1_500, {"n": 4}, 2))
    assert "late raised LookupError" in str(late[1].reason)
    assert task.changelogs["one"] == {b"k": (long(4), 1_500)}


def test_a_value_or_a_key_of_another_type_than_the_declared_one_rejects_the_record() -> None:
    class Wrong(Context):
        def init(self, context: ProcessorContext) -> None:
            super().init(context)
            self.store = context.get_state_store("store")

        def process(self, record: Record) -> Any:
            match record.value.s:
                case "value":
                    self.store.put("k", "text")
                case "key":
                    self.store.put(1, 1)
                case "null key":
                    self.store.get(None)
                case "forward":
                    self.context.forward({"m": 1})
                case "forward key":
                    self.context.forward({"n": 1}, key=1)
                case "time":
                    self.context.forward({"n": 1}, timestamp=moment(-1))
                case "schedule":
                    self.context.schedule("1 second", STREAM_TIME, print)
                case "store":
                    self.context.get_state_store("other")
                case "value returned":
                    return "text"
            return None

    task = StoresTask(Wrong, {"store": KeyValueStore(String(), Long())})
    words = ("value", "key", "null key", "forward", "forward key", "time", "schedule", "store", "value returned")
    made = task.process(*(Arrived("k", 1, {"s": word}, offset) for offset, word in enumerate(words)))
    reasons = dict(zip(words, (str(each.reason) for each in made), strict=True))
    assert all(reason.startswith("test_a_value_or") for reason in reasons.values()), reasons
    assert not any(task.changelogs["store"])


@pytest.mark.parametrize("seed", range(6))
def test_punctuators_by_stream_time_are_called_when_the_library_calls_them(seed: int) -> None:
    """Against ``PunctuationSchedule.next`` and ``PunctuationQueue.mayPunctuate``, written down plainly."""

    class Ticking(Context):
        def init(self, context: ProcessorContext) -> None:
            super().init(context)
            context.schedule("1 second", STREAM_TIME, lambda now: context.forward({"n": 1}))
            context.schedule("3 seconds", STREAM_TIME, lambda now: context.forward({"n": 3}))

        def process(self, record: Record) -> None: ...

    drawn, at, next_times, expected, made = random.Random(seed), 0, {1: 0, 3: 0}, [], []
    task = StoresTask(Ticking, {"store": KeyValueStore(String(), Long())})
    newest = 0
    for offset in range(60):
        at = max(0, at + drawn.choice([-300, 100, 400, 1_000, 2_500]))
        newest = max(newest, at)
        while min(next_times.values()) <= newest:
            seconds = min(next_times, key=lambda each: (next_times[each], each))
            expected.append((seconds, newest))
            interval, fired = seconds * SECOND, next_times[seconds]
            following = fired + interval
            if newest >= following:
                following = fired + ((newest - fired) // interval + 1) * interval
            next_times[seconds] = following
        made += task.process(Arrived("k", at, None, offset))
    assert [(each.value["n"], each.at) for each in made] == expected


def test_a_declaration_tells_what_its_class_schedules() -> None:
    class Both(Context):
        def init(self, context: ProcessorContext) -> None:
            context.schedule("1 second", STREAM_TIME, print)
            context.schedule(timedelta(minutes=1), WALL_CLOCK_TIME, print)

    task = StoresTask(Both, {"store": KeyValueStore(String(), Double())})
    assert [(each.interval_ms, each.wall_clock) for each in task.tasks[0].operation.schedules] == [
        (SECOND, False),
        (60 * SECOND, True),
    ]


class Clocked(Context):
    """Forwards the times of the wall clock, and counts them in a store."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.calls = context.get_state_store("calls")
        context.schedule("2 seconds", WALL_CLOCK_TIME, self.punctuate)

    def process(self, record: Record) -> None:
        self.context.forward({"n": 0})

    def punctuate(self, now: datetime) -> None:
        self.calls.put("k", (self.calls.get("k") or 0) + 1)
        self.context.forward({"n": self.calls.get("k")}, key="clock")


def test_punctuators_by_the_wall_clock_count_from_the_first_time_and_are_called_once_for_several_intervals() -> None:
    task = StoresTask(Clocked, {"calls": KeyValueStore(String(), Long())})
    begun = 1_000_500
    made = [task.process(clock=begun + after) for after in (0, 1_999, 2_000, 3_999, 9_000, 9_999, 10_000)]
    assert [[(each.key, each.value["n"], each.at) for each in batch] for batch in made] == [
        [],
        [],
        [(b"clock", 1, begun + 2_000)],
        [],
        [(b"clock", 2, begun + 9_000)],
        [],
        [(b"clock", 3, begun + 10_000)],
    ]


def test_the_wall_clock_is_called_behind_the_records_of_the_micro_batch_and_leaves_the_stream_time_alone() -> None:
    task = StoresTask(Clocked, {"calls": KeyValueStore(String(), Long())})
    task.process(clock=5_000)
    made = task.process(Arrived("k", 9, None, 0), clock=7_000)
    assert [(each.value["n"], each.at) for each in made] == [(0, 9), (1, 7_000)]


def test_a_restored_state_goes_on_from_the_wall_clock_that_was_committed() -> None:
    task = StoresTask(Clocked, {"calls": KeyValueStore(String(), Long())})
    for clock in (5_000, 7_000, 8_000):
        task.process(clock=clock)
    task.restore({0: 8_000})
    assert task.process(clock=9_999) == []
    assert [(each.value["n"], each.at) for each in task.process(clock=10_000)] == [(2, 10_000)]


class Newest(Context):
    """Keeps what a record says, with a time that the record says, too."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.newest, self.recent = context.get_state_store("newest"), context.get_state_store("recent")

    def process(self, record: Record) -> Iterator[dict[str, str]]:
        name, *arguments = json.loads(record.value.s)
        if name == "window":
            self.recent.put(record.key, (1, moment(7)), record.timestamp)
        else:
            getattr(self.newest, name)(*arguments)
        recent = [(start, each) for start, each in self.recent.fetch(record.key, 0, record.timestamp)]
        yield {"s": str([[*self.newest.all()], recent])}


NEWEST = {
    "newest": TimestampedKeyValueStore(String(), Long()),
    "recent": TimestampedWindowStore(String(), Long(), retention="2 minutes", size="1 second"),
}


def test_a_value_with_a_time_has_it_in_the_changelog_and_after_a_restore() -> None:
    task = StoresTask(Newest, NEWEST, "s string")
    calls = [["put", "a", [5, 90_000]], ["put", "b", [6, 3]], ["put_if_absent", "a", [7, 4]], ["window"]]
    made = task.process(*(Arrived("k", 2_000, {"s": json.dumps(call)}, n) for n, call in enumerate(calls)))
    assert task.changelogs["newest"] == {b"a": (long(5), 90_000), b"b": (long(6), 3)}
    assert task.changelogs["recent"] == {stored_window_key(b"k", 2_000): (long(1), 7)}
    expected = [
        [KeyValue("a", ValueAndTimestamp(5, moment(90_000))), KeyValue("b", ValueAndTimestamp(6, moment(3)))],
        [(moment(2_000), ValueAndTimestamp(1, moment(7)))],
    ]
    assert made[-1].value == {"s": str(expected)}
    assert [each.reason for each in made] == [None] * 4
    task.restore()
    (made_again,) = task.process(Arrived("k", 2_500, {"s": json.dumps(["delete", "a"])}, 9))
    assert made_again.value == {"s": str([expected[0][1:], expected[1]])}
    assert task.changelogs["newest"][b"a"] == (None, 2_500)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (5, "a value and its timestamp are expected"),
        ([5, -1], "the timestamp -1 is negative"),
        ([None, 1], "Put None in place of the pair"),
        (["x", 1], "the store cannot hold that"),
        ([5, 1, 2], "a value and its timestamp are expected"),
        ([5, "now"], "cannot be interpreted as an integer"),
    ],
)
def test_a_value_without_a_time_is_the_reason_of_its_record(value: Any, reason: str) -> None:
    (made,) = StoresTask(Newest, NEWEST, "s string").process(Arrived("k", 1, {"s": json.dumps(["put", "a", value])}, 0))
    assert reason in (made.reason or "")


class Places(Context):
    """Tells where a record was read, and which time it is."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        context.schedule("1 minute", WALL_CLOCK_TIME, self.tick)
        assert context.record_metadata() is None

    def process(self, record: Record) -> Iterator[dict[str, str]]:
        self.context.commit()
        yield {"s": f"{self.context.record_metadata()} {self.context.current_system_time()}"}

    def tick(self, now: datetime) -> Iterator[dict[str, str]]:
        yield {"s": f"{self.context.record_metadata()} {self.context.current_system_time()}"}


def test_the_context_tells_where_the_record_was_read_and_the_time_of_the_micro_batch() -> None:
    task = StoresTask(Places, {"store": KeyValueStore(String(), Long())}, "s string")
    of_record = RecordMetadata("t", 0, 3)
    (made,) = task.process(Arrived("k", 1, {"s": ""}, 3), clock=60_000)
    assert made.value == {"s": f"{of_record} {moment(60_000)}"}
    (again,) = task.process(Arrived("k", 1, {"s": ""}, 3))
    assert again == made
    (update,) = task.process(Arrived("k", 1, {"s": ""}, 3, is_update=True), clock=70_000)
    assert update.value == {"s": f"None {moment(70_000)}"}
    (tick,) = task.process(clock=125_000)
    assert tick.value == {"s": f"None {moment(125_000)}"}


def test_close_is_called_behind_the_micro_batch_and_after_a_failure() -> None:
    called = []

    class Opened(Processor):
        def init(self, context: ProcessorContext) -> None:
            called.append("init")

        def process(self, record: Record) -> None:
            called.append(f"process {record.key}")
            if record.key == "stop":
                raise KeyboardInterrupt

        def close(self) -> None:
            called.append("close")

    task = StoresTask(Opened, {"store": KeyValueStore(String(), Long())})
    called.clear()
    task.process(Arrived("a", 1, {"n": 1}, 1), Arrived("b", 2, {"n": 1}, 2))
    with pytest.raises(KeyboardInterrupt):
        task.process(Arrived("stop", 3, {"n": 1}, 3))
    assert called == ["init", "process a", "process b", "close", "init", "process stop", "close"]


def test_a_stream_task_without_punctuators_of_the_wall_clock_is_told_no_time() -> None:
    class Timeless(Places):
        def init(self, context: ProcessorContext) -> None:
            self.context = context

    task = StoresTask(Timeless, {"store": KeyValueStore(String(), Long())}, "s string")
    (made,) = task.process(Arrived("k", 1, {"s": ""}, 3))
    assert "Write in init: context.schedule('1 minute', WALL_CLOCK_TIME, …).cancel()" in (made.reason or "")


class Careless(Context):
    """Goes on after a put that was refused."""

    at: Any = 0
    times = 1

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.store = context.get_state_store("store")

    def process(self, record: Record) -> Iterator[dict[str, Any]]:
        if record.value.n is None:
            with suppress(TypeError, ValueError, ArithmeticError, AttributeError):
                self.store.put("k", "x" * (record.value.s == "long") * MAX_BYTES, *[self.at] * self.times)
            return
        self.store.put("k", "here", *[1_000] * self.times)
        yield {"n": len([*self.store.fetch("k", 0, 2_000)]) if self.times == 1 else len([*self.store.fetch("k")])}


@pytest.mark.parametrize("at", [1.5, math.nan, 1 << 70, -(1 << 70), "1", None, datetime(2026, 1, 1), 1 << 62])
@pytest.mark.parametrize("times", [1, 2], ids=["a window", "a session"])
def test_a_put_that_was_refused_does_not_move_the_time_of_the_store(at: Any, times: int) -> None:
    """The store forgot its windows, and a time that is none in 64 bits ended the query when its state was written."""
    window = WindowStore(String(), String(), retention="5 minutes", size="1 second")
    store = window if times == 1 else SessionStore(String(), String(), retention="5 minutes")
    task = StoresTask(type("Careless", (Careless,), {"at": at, "times": times}), {"store": store})
    text = "long" if at == 1 << 62 else "short"
    made = task.process(Arrived("x", 500, {"s": text}, 0), Arrived("x", 500, {"n": 1, "s": ""}, 1))
    assert [each.value for each in made] == [{"n": 1}]
    assert task.times[-1] == 1_000


class Putting(Context):
    times: Any = ()

    def init(self, context: ProcessorContext) -> None:
        self.store = context.get_state_store("store")

    def process(self, record: Record) -> None:
        self.store.put("k", "x", *self.times)


@pytest.mark.parametrize("at", [LATEST_MS + 1, 1_767_225_600_000_000_000, 1 << 62, (1 << 63) - 1, -1, -(1 << 63)])
@pytest.mark.parametrize("times", [1, 2], ids=["a window", "a session"])
def test_a_window_or_session_beyond_all_timestamps_is_the_reason_of_its_record(at: int, times: int) -> None:
    """Spark makes timestamps of its bounds, and stopped the application at each one that is too large."""
    window = WindowStore(String(), String(), retention="5 minutes", size="1 second")
    store = window if times == 1 else SessionStore(String(), String(), retention="5 minutes")
    task = StoresTask(type("Putting", (Putting,), {"times": [at] * times}), {"store": store})
    (made,) = task.process(Arrived("x", 500, {"s": "short"}, 0))
    assert re.search(r"the store cannot hold that: the timestamp -?\d+ is (negative|beyond the year 9999)", made.reason)
    assert task.changelogs["store"] == {}


def test_a_session_does_not_end_before_it_begins() -> None:
    task = StoresTask(
        type("Putting", (Putting,), {"times": (2, 1)}),
        {"store": SessionStore(String(), String(), retention="5 minutes")},
    )
    (made,) = task.process(Arrived("x", 500, {"s": "short"}, 0))
    assert "the store cannot hold that: the session from 2 to 1 ends before it begins" in made.reason


class Heads(Context):
    headers: Any = ()

    def process(self, record: Record) -> None:
        self.context.forward({"n": 1}, headers=self.headers)


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (("\ud800", b"x"), "surrogates not allowed"),
        ((5, b"x"), "the name of a header is a text without NUL, and not 5"),
        ((None, b"x"), "the name of a header is a text without NUL, and not None"),
        (("a\0b", b"x"), "without NUL"),
        (("a", 5), "the header a is a text or bytes, and not 5"),
        (("a", "\ud800"), "surrogates not allowed"),
        (("a", b"x", b"y"), "a header is a name and a value"),
        ("ab", "a header is a name and a value, and not 'ab'"),
    ],
)
def test_a_header_that_kafka_s_client_cannot_write_is_the_reason_of_its_record(header: Any, reason: str) -> None:
    """librdkafka's client ended its process at a name with half of a surrogate pair, and wrote any bytes for 5."""
    heads = type("Heads", (Heads,), {"headers": [("a", b"x"), header]})
    task = StoresTask(heads, {"store": KeyValueStore(String(), Long())})
    (made,) = task.process(Arrived("x", 500, {"s": ""}, 0))
    assert reason in (made.reason or "")


class Versions(Context):
    """Does what a value says with a versioned store, and forwards the answer."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.store = context.get_state_store("store")

    def process(self, record: Record) -> Iterator[dict[str, str]]:
        name, *arguments = json.loads(record.value.s)
        answer = getattr(self.store, name)(*arguments)
        yield {"s": str([*answer] if name.endswith("versions") else answer)}
        if record.value.n:
            raise ValueError("taken back")


def version(value: int, at: int, valid_to: int | None = None) -> VersionedRecord:
    return VersionedRecord(value, moment(at), None if valid_to is None else moment(valid_to))


VERSIONED = {"store": VersionedKeyValueStore(String(), Long(), history="1 minute")}


def called(task: StoresTask, *calls: Any, n: int | None = None) -> list[Any]:
    made = task.process(*(Arrived("k", 1, {"s": json.dumps(call), "n": n}, at) for at, call in enumerate(calls)))
    return [each.value and each.value["s"] for each in made]


def test_a_versioned_store_finds_the_value_of_a_time_and_takes_late_values() -> None:
    task = StoresTask(Versions, VERSIONED, "s string")
    puts = [["put", "a", 1, 10_000], ["put", "a", 3, 30_000], ["put", "a", 2, 20_000], ["put", "b", 7, 5_000]]
    assert called(task, *puts) == ["True"] * 4
    asked = [["get", "a"], ["get", "a", 25_000], ["get", "a", 9_999], ["get", "x"], ["versions", "a", 20_000, 30_000]]
    expected = [version(3, 30_000), version(2, 20_000, 30_000), None, None]
    answers = [*map(str, expected), str([version(2, 20_000, 30_000), version(3, 30_000)])]
    assert called(task, *asked) == answers
    assert called(task, ["reverse_versions", "a"]) == [
        str([version(3, 30_000), version(2, 20_000, 30_000), version(1, 10_000, 20_000)])
    ]
    task.restore()
    assert called(task, *asked) == answers
    assert called(task, ["delete", "a", 40_000], ["get", "a"], ["get", "a", 39_999]) == [
        str(version(3, 30_000)), "None", str(version(3, 30_000, 40_000)),
    ]  # fmt: skip
    task.restore()
    assert called(task, ["get", "a"], ["get", "a", 39_999]) == ["None", str(version(3, 30_000, 40_000))]


def test_a_versioned_store_forgets_replaced_values_behind_the_history_and_keeps_the_last_one() -> None:
    task = StoresTask(Versions, VERSIONED, "s string")
    called(task, ["put", "a", 1, 1_000], ["put", "a", 2, 2_000], ["put", "b", 3, 3_000], ["put", "c", 9, 100_000])
    assert called(task, ["get", "a", 1_500], ["get", "a", 2_000], ["get", "b"], ["put", "a", 5, 39_999]) == [
        "None", str(version(2, 2_000)), str(version(3, 3_000)), "False",
    ]  # fmt: skip
    assert called(task, ["put", "a", 5, 40_000], ["get", "a", 40_000]) == ["True", str(version(5, 40_000))]
    assert called(task, ["delete", "b", 100_000], ["put", "c", 1, 400_000]) == [str(version(3, 3_000)), "True"]
    assert set(task.state["store"]) == {(b"a",), (b"c",)}  # of a key that was deleted so long ago nothing is left


def test_each_put_of_a_versioned_store_is_in_the_changelog_and_that_of_a_failed_call_is_not() -> None:
    task = StoresTask(Versions, VERSIONED, "s string")
    called(task, ["put", "a", 1, 10_000], ["put", "a", 2, 5_000], ["put", "a", 3, 10_000], ["put", "b", 4, 90_000])
    called(task, ["put", "a", 8, 95_000], n=1)
    called(task, ["put", "a", 6, 1], ["delete", "a", 95_000])
    assert task.changes == [
        ("store", b"a", long(1), 10_000), ("store", b"a", long(2), 5_000), ("store", b"a", long(3), 10_000),
        ("store", b"b", long(4), 90_000), ("store", b"a", long(6), 1), ("store", b"a", None, 95_000),
    ]  # fmt: skip


def test_what_the_context_does_not_have_is_told_in_the_reason_of_the_record() -> None:
    class Old(Context):
        def process(self, record: Record) -> None:
            self.context.forward({"n": self.context.timestamp()})

    (made,) = StoresTask(Old, {"store": KeyValueStore(String(), Long())}).process(Arrived("k", 1, {"n": 1}, 0))
    assert "'ProcessorContext' object has no attribute 'timestamp'. Write record.timestamp" in (made.reason or "")
