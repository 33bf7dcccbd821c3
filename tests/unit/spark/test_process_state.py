"""What a Python class makes of the records of a stream task, and what its store holds, against plain Python."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from streamplan.model.functions import STOP
from streamplan.model.processor import KeyValueStore, Processor, Record
from streamplan.model.timestamps import LATEST_MS

from tests.support.process_task import Arrived, Made, ProcessTask, in_micro_batches

MINUTE = 60_000
BEGIN = 100 * MINUTE
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(at: int) -> datetime:
    return EPOCH + timedelta(milliseconds=at)


def text_of(at: int) -> str:
    return moment(at).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Gaps(Processor):
    """Counts, and tells of a key without a record for a minute. A value of 0 deletes, and a negative one fails."""

    def process(self, record: Record, store: KeyValueStore) -> Iterator[dict[str, Any]]:
        n = None if record.value is None else record.value.n
        seen = store.get()
        count = 1 if seen is None else seen.count + 1
        store.put({"count": count, "due": record.timestamp + timedelta(minutes=1)})
        yield {"text": f"{record.key} {count}"}
        if n == 0:
            store.delete()
        if n is not None and n < 0:
            raise ValueError("negative")

    def on_timer(self, time: datetime, store: KeyValueStore) -> Iterator[dict[str, Any]]:
        seen = store.get()
        assert seen.due is None
        yield {"text": f"{store.key} silent with {seen.count}"}
        if seen.count % 2 == 0:
            store.delete()
        elif seen.count < 7:
            store.put({"count": seen.count + 2, "due": time + timedelta(minutes=1)})


def gaps() -> ProcessTask:
    return ProcessTask(Gaps, "count bigint, due timestamp", "text string", timer="due")


def expected_of(records: list[Arrived]) -> tuple[list[tuple[str, int, str | None]], dict[str, tuple[int, int | None]]]:
    """The same, by looking at the timers of all keys after each record. None is the text of a failed call."""
    made: list[tuple[str, int, str | None]] = []
    store: dict[str, tuple[int, int | None]] = {}
    stream_time = -1
    for record in records:
        moves, stream_time = record.at > stream_time, max(stream_time, record.at)
        if record.n is not None and record.n < 0:
            made.append((record.key, record.at, None))
        else:
            count = store.get(record.key, (0, None))[0] + 1
            made.append((record.key, record.at, f"{record.key} {count}"))
            store[record.key] = count, record.at + MINUTE
            if record.n == 0:
                del store[record.key]
        while moves and (due := [(at, key) for key, (_, at) in store.items() if at is not None and at <= stream_time]):
            at, key = min(due)
            count = store[key][0]
            made.append((key, at, f"{key} silent with {count}"))
            store[key] = count, None
            if count % 2 == 0:
                del store[key]
            elif count < 7:
                store[key] = count + 2, at + MINUTE
    return made, store


def test_timers_fire_when_all_that_was_made_of_a_record_is_processed() -> None:
    """Both records of the second call were made of one, as by ``flat_map``."""
    task, later = gaps(), BEGIN + MINUTE
    task.process([Arrived("a", BEGIN, 1, 0)])
    made = task.process([Arrived("b", later, 1, 1), Arrived("a", later, 1, 1)])
    assert [one.value["text"] for one in made] == ["b 1", "a 2"]


def random_records(seed: int, count: int) -> list[Arrived]:
    chosen = random.Random(seed)
    records, now = [], BEGIN
    for offset in range(count):
        now += chosen.choice([0, 1, 500, 9_000, 31_000, 5 * MINUTE])
        at = now - chosen.choice([0, 0, 0, 1, 20_000, 100_000])
        n = chosen.choices([1, None, 0, -1], [12, 1, 2, 2])[0]
        records.append(Arrived(chosen.choice("abcdef"), at, n, offset))
    return records


@pytest.mark.parametrize("restores", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_records_and_timers_in_whatever_micro_batches_they_come(seed: int, restores: bool) -> None:
    """In order of time where the state is lost: the stream time is then that of the newest put."""
    records = random_records(seed, 150)
    if restores:
        records = [record._replace(offset=n) for n, record in enumerate(sorted(records, key=lambda one: one.at))]
    chosen, task, made = random.Random(seed), gaps(), list[Made]()
    for batch in in_micro_batches(records, iter(lambda: chosen.randint(1, 20), 0)):
        made += task.process(batch)
        if restores and chosen.random() < 0.3:
            task.restore()
    expected, store = expected_of(records)
    assert [(one.key, one.at, one.value and one.value["text"]) for one in made] == expected
    held = {key: value for key, (value, _) in task.changelog.items() if value is not None}
    dues = {
        key: due and moment(due).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        for key, (_, due) in store.items()
    }
    assert {key: (value["count"], value.get("due")) for key, value in held.items()} == {
        key: (count, dues[key]) for key, (count, _) in store.items()
    }
    assert len(task.stored) == len(store)
    assert sum(one.reason is not None for one in made) == sum(text is None for _, _, text in expected) > 0


def test_of_a_failed_call_nothing_remains_and_the_reason_names_the_line() -> None:
    task = gaps()
    task.process([Arrived("a", BEGIN, 1, 0)])
    (made,) = task.process([Arrived("a", BEGIN + 1, -1, 1)])
    line = Gaps.process.__code__.co_firstlineno + 9
    assert made.reason == f"Gaps.process raised ValueError in line {line}: negative"
    assert task.changelog == {"a": ({"count": 1, "due": "1970-01-01T01:41:00.000Z"}, BEGIN)}
    assert len(task.changes) == 1


def test_a_class_may_stop_the_application() -> None:
    task = gaps()
    function = replace(task.operation.function, on_error=STOP)
    task.operation = replace(task.operation, function=function)
    with pytest.raises(ValueError, match="negative"):
        task.process([Arrived("a", BEGIN, -1, 0)])


class Exits(Processor):
    """Raises what is no Exception, and what has no text."""

    def process(self, record: Record, store: KeyValueStore) -> Iterator[dict[str, Any]]:
        store.put({"count": 1})
        raise SystemExit("\ud800") if record.key == "a" else ValueError("x" * 5_000_000)
        yield {}


def test_whatever_a_class_raises_is_a_reason_that_can_be_written() -> None:
    task = ProcessTask(Exits, "count bigint", "text string")
    first, second = task.process([Arrived("a", BEGIN, 1, 0), Arrived("b", BEGIN, 1, 1)])
    assert first.reason is not None
    assert first.reason.endswith(": \\ud800")
    assert second.reason is not None
    assert len(second.reason) < 5_000
    assert task.changelog == {}


def test_the_store_changes_once_for_each_key_and_micro_batch() -> None:
    task = gaps()
    task.process([Arrived(key, BEGIN + n, 1, n) for n, key in enumerate("abab")])
    assert len(task.changes) == 2
    assert {key: (value and value["count"], at) for key, (value, at) in task.changelog.items()} == {
        "a": (2, BEGIN + 2),
        "b": (2, BEGIN + 3),
    }


class Kept(Processor):
    """Tells what the store has, and puts the value."""

    def process(self, record: Record, store: KeyValueStore) -> list[dict[str, Any]]:
        seen = store.get()
        if record.value is not None:
            store.put({"n": record.value.n})
        return [{"n": None if seen is None else seen.n}]


def kept(records: list[Arrived], task: ProcessTask) -> list[int | None]:
    return [made.value["n"] for made in task.process(records)]


def test_a_value_is_gone_when_it_was_not_put_for_its_time_to_live() -> None:
    task = ProcessTask(Kept, "n bigint", "n bigint", ttl="10 minutes")
    assert kept([Arrived("a", BEGIN, 1, 0), Arrived("b", BEGIN, 2, 1)], task) == [None, None]
    later = BEGIN + 10 * MINUTE
    assert kept([Arrived("a", later - 1, None, 2), Arrived("a", later - 1, 3, 3)], task) == [1, 1]
    task.restore()
    assert kept([Arrived("b", later, None, 4), Arrived("a", later, None, 5)], task) == [None, 3]
    much_later = later + 60 * MINUTE
    assert kept([Arrived("c", much_later, 4, 6)], task) == [None]
    gone = (None, much_later)
    assert task.changelog == {"a": gone, "b": gone, "c": ({"n": 4}, much_later)}
    assert [key for (key,) in task.stored] == [b"c"]


class Wrong(Processor):
    def process(self, record: Record, store: KeyValueStore) -> Any:
        n = record.value.n
        if n == 0:
            store.put({"n": "4"})
        if n == 1:
            store.put({"m": 4})
        if n == 2:
            return {"n": 1}
        if n == 3:
            return [{"n": 4.5}]
        store.put(None)
        return [None]


def test_what_does_not_fit_its_schema_is_rejected() -> None:
    task = ProcessTask(Wrong, "n bigint", "n bigint")
    reasons = [made.reason for made in task.process([Arrived("a", BEGIN, n, n) for n in range(5)])]
    line = Wrong.process.__code__.co_firstlineno + 3
    cannot = "the store cannot hold that"
    assert reasons == [
        f"Wrong.process raised TypeError in line {line}: {cannot}: a n of another type than its schema: '4'",
        f"Wrong.process raised TypeError in line {line + 2}: {cannot}: the field m, which its schema does not have",
        "Wrong.process returned dict, and not a list of values",
        "Wrong.process returned a n of another type than its schema: 4.5",
        None,
    ]
    assert task.changelog == {"a": (None, BEGIN)}


class Backwards(Processor):
    def process(self, record: Record, store: KeyValueStore) -> None:
        store.put({"due": record.timestamp})

    def on_timer(self, time: datetime, store: KeyValueStore) -> None:
        store.put({"due": time})


def test_a_timer_fires_once_also_where_its_call_fails_and_cannot_set_itself_again() -> None:
    task = ProcessTask(Backwards, "due timestamp", "n bigint", timer="due")
    (made,) = task.process([Arrived("a", BEGIN, 1, 0)])
    assert "must be later than the time" in str(made.reason)
    assert task.process([Arrived("b", BEGIN + MINUTE, -1, 1)])[0].key == "b"
    assert task.changelog["a"] == ({}, BEGIN)


class EachMinute(Processor):
    def process(self, record: Record, store: KeyValueStore) -> Any:
        store.put({"n": 0, "due": record.timestamp + timedelta(minutes=1)})

    def on_timer(self, time: datetime, store: KeyValueStore) -> Any:
        store.put({"n": store.get().n + 1, "due": time + timedelta(minutes=1)})


def test_a_record_of_the_year_9999_does_not_call_timers_for_ever() -> None:
    """A producer's clock is wrong, or a date stands for no end."""
    task = ProcessTask(EachMinute, "n bigint, due timestamp", "n bigint", timer="due")
    assert task.process([Arrived("a", BEGIN, 1, 0), Arrived("b", BEGIN + 10_000 * MINUTE, 1, 1)]) == []
    assert task.changelog["a"][0]["n"] == 10_000  # each of them was called
    made = task.process([Arrived("c", LATEST_MS - 10 * MINUTE, 1, 2)])
    assert sorted(each.key for each in made) == ["a", "b"]
    assert {each.reason for each in made} == {
        "EachMinute.on_timer was called 10,000 times for one record, which is that much later than all before"
    }
