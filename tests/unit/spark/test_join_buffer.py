"""The buffer of a join with a grace period, beside a plain account of what the library does with each record."""

from __future__ import annotations

import random

import pytest
from streamplan.model.operations import BufferRecords
from streamplan.serdes.join_buffer import MOST_NUMBER, BufferKey
from streamplan.serdes.suppress_buffer import BufferedUpdate

from tests.support.buffer_task import Arrived, BufferTask, Passed

GRACE_MS = 10_000


def drawn(seed: int, count: int = 60) -> list[Arrived]:
    chosen = random.Random(seed)
    records, now = [], 0
    for offset in range(count):
        now += 1000 * chosen.choice([0, 0, 1, 1, 2, 5, 9, 10, 11, 30])
        at = max(0, now - 1000 * chosen.choice([0, 0, 0, 1, 5, 10, 11, 15]))
        value = chosen.choice([b'{"n": %d}' % offset] * 5 + [None])
        records.append(Arrived(chosen.choice(["a", "b", "ab", "c", None]), at, value, offset))
    return records


def account(records: list[Arrived], grace_ms: int = GRACE_MS) -> list[Passed]:
    waiting: list[Arrived] = []
    passed, newest = [], -1
    for record in records:
        if record.value is None or record.key is None:
            continue
        if newest - grace_ms > record.at:
            passed.append(Passed(record.key, record.at, {"n": record.offset}, record.offset))
            continue
        newest = max(newest, record.at)
        waiting.append(record)
        due = [each for each in waiting if each.at <= newest - grace_ms]
        for each in sorted(due, key=_place):
            passed.append(Passed(each.key, each.at, {"n": each.offset}, record.offset))
            waiting.remove(each)
    return passed


def _place(record: Arrived) -> tuple[int, bytes]:
    assert record.key is not None
    return record.at, record.key.encode() + record.offset.to_bytes(4, "big")  # the numbers have the order of offsets


@pytest.mark.parametrize("grace_ms", [GRACE_MS, 1000, 0])
def test_records_are_passed_once_whatever_micro_batches_they_come_in(grace_ms: int) -> None:
    for seed in range(100):
        records, chosen, passed = drawn(seed), random.Random(-seed), list[Passed]()
        expected = account(records, grace_ms)
        task = BufferTask(BufferRecords.of("buffer", grace_ms, left=False))
        while records:
            taken = chosen.choice([1, 1, 2, 7, 30])
            passed += task.process(records[:taken])
            records = records[taken:]
        assert passed == expected, seed
        assert passed


def test_what_waits_is_restored_from_the_changelog() -> None:
    for seed in range(100):
        records, chosen, passed = drawn(seed), random.Random(-seed), list[Passed]()
        expected = account(records)
        task = BufferTask(BufferRecords.of("buffer", GRACE_MS, left=False))
        while records:
            taken = chosen.choice([1, 1, 2, 7])
            passed += task.process(records[:taken])
            records = records[taken:]
            if chosen.random() < 0.4:
                task.restore()
        assert passed == expected, seed


def test_the_changelog_has_what_waits_and_a_deletion_of_what_has_waited() -> None:
    task = BufferTask(BufferRecords.of("buffer", GRACE_MS, left=False))
    task.process([Arrived("a", 0, b'{"n": 1}', 0), Arrived("b", 5000, b'{"n": 2}', 1)])
    first, second = BufferKey(0, b"a", 1).as_bytes(), BufferKey(5000, b"b", 2).as_bytes()
    assert first == bytes(9) + b"a" + b"\0\0\0\1"
    assert {key: value and BufferedUpdate.parse(value) for key, value in task.changelog.items()} == {
        first: BufferedUpdate(b'{"n": 1}', 0, 0, "t", 0, 0, []),
        second: BufferedUpdate(b'{"n": 2}', 5000, 0, "t", 0, 1, []),
    }
    assert task.process([Arrived("c", 10_000, b'{"n": 3}', 2)]) == [Passed("a", 0, {"n": 1}, 2)]
    assert task.changelog[first] is None
    assert task.changelog[second] is not None


def test_a_record_that_comes_and_goes_within_a_micro_batch_is_not_in_the_changelog() -> None:
    task = BufferTask(BufferRecords.of("buffer", GRACE_MS, left=False))
    assert task.process([Arrived("a", 0, b'{"n": 1}', 0), Arrived("b", 10_000, b'{"n": 2}', 1)]) == [
        Passed("a", 0, {"n": 1}, 1)
    ]
    assert {BufferKey.parse(key).key for key in task.changelog} == {b"b"}


def test_a_record_without_a_key_is_dropped_and_a_left_join_tells_it() -> None:
    """The library's left join fails on it."""
    record = Arrived(None, 0, b'{"n": 1}', 0)
    assert BufferTask(BufferRecords.of("buffer", GRACE_MS, left=False)).process([record]) == []
    assert BufferTask(BufferRecords.of("buffer", GRACE_MS, left=True)).process([record]) == [
        Passed(None, 0, "the key is null", 0)
    ]


@pytest.mark.parametrize(
    "key", [BufferKey(0, b"", 1), BufferKey(1 << 40, b"k\xff", 0), BufferKey(7, b"a", MOST_NUMBER)]
)
def test_the_bytes_of_a_key_are_read_again(key: BufferKey) -> None:
    assert BufferKey.parse(key.as_bytes()) == key
    with pytest.raises(ValueError, match="is no key of the buffer of a join"):
        BufferKey.parse(b"\1" + key.as_bytes()[1:])
