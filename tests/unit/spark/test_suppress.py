"""The buffer of ``suppress(UntilTimeLimit(…))``, beside a plain account of what the library does with each update."""

from __future__ import annotations

import random

import pytest
from streamplan.errors import StreamplanError
from streamplan.model.operations import SuppressUpdates
from streamplan.serdes.suppress_buffer import BufferedUpdate

from tests.support.buffer_task import Arrived, BufferTask, Passed

LIMIT_MS = 10_000


def drawn(seed: int, count: int = 60) -> list[Arrived]:
    chosen = random.Random(seed)
    updates, now = [], 0
    for offset in range(count):
        now += 1000 * chosen.choice([0, 0, 1, 1, 2, 5, 9, 10, 11, 30])
        at = max(0, now - 1000 * chosen.choice([0, 0, 0, 1, 5, 10, 15]))
        value = chosen.choice([b'{"n": %d}' % offset, b'{"n": %d}' % offset, None])
        updates.append(Arrived(chosen.choice("abcd"), at, value, offset))
    return updates


def account(updates: list[Arrived], max_records: int | None = None) -> list[Passed]:
    waiting: dict[str, tuple[int, Arrived]] = {}
    passed, newest = [], -1
    for update in updates:
        newest = max(newest, update.at)
        waiting[update.key] = waiting.get(update.key, (update.at, update))[0], update
        for key in sorted(waiting, key=lambda key: (waiting[key][0], key)):
            is_full = max_records is not None and len(waiting) > max_records
            if waiting[key][0] + LIMIT_MS <= newest or is_full:
                last = waiting.pop(key)[1]
                value = None if last.value is None else {"n": last.offset}
                passed.append(Passed(key, last.at, value, update.offset))
    return passed


@pytest.mark.parametrize("max_records", [None, 1, 2])
def test_updates_are_passed_once_whatever_micro_batches_they_come_in(max_records: int | None) -> None:
    for seed in range(100):
        updates, chosen, passed = drawn(seed), random.Random(-seed), list[Passed]()
        expected = account(updates, max_records)
        task = BufferTask(SuppressUpdates.of("buffer", LIMIT_MS, max_records))
        while updates:
            taken = chosen.choice([1, 1, 2, 7, 30])
            passed += [each._replace(value=each.value and dict(each.value)) for each in task.process(updates[:taken])]
            updates = updates[taken:]
        assert passed == expected, seed
        assert passed


def test_a_buffer_that_is_full_stops_the_application_where_another_one_would_pass_an_update_early() -> None:
    stopped = 0
    for seed in range(100):
        updates = drawn(seed)
        for number in range(1, len(updates) + 1):  # the first update with which a buffer of two keys passes more
            if account(updates[:number], 2) != account(updates[:number]):
                break
        else:
            continue
        task = BufferTask(SuppressUpdates.of("buffer", LIMIT_MS, 2, shuts_down=True))
        task.process(updates[: number - 1])
        with pytest.raises(StreamplanError, match=f"of suppress is full, at t-0 offset {number - 1}:.* 3 keys"):
            task.process(updates[number - 1 :])
        stopped += 1
    assert stopped > 50


def test_what_waits_is_restored_from_the_changelog() -> None:
    """Updates come in the order of time. So what has waited long enough is passed when it would have been."""
    for seed in range(100):
        updates, chosen, passed = sorted(drawn(seed), key=lambda each: each.at), random.Random(-seed), list[Passed]()
        updates = [update._replace(offset=offset) for offset, update in enumerate(updates)]
        updates = [each._replace(value=each.value and b'{"n": %d}' % each.offset) for each in updates]
        expected = account(updates)
        task = BufferTask(SuppressUpdates.of("buffer", LIMIT_MS, None))
        while updates:
            taken = chosen.choice([1, 1, 2, 7])
            passed += [each._replace(value=each.value and dict(each.value)) for each in task.process(updates[:taken])]
            updates = updates[taken:]
            if chosen.random() < 0.4:
                task.restore()
        assert passed == expected, seed


def test_what_was_passed_leaves_the_changelog() -> None:
    task = BufferTask(SuppressUpdates.of("buffer", LIMIT_MS, None))
    task.process([Arrived("a", 0, b'{"n": 1}', 0), Arrived("b", 5000, b'{"n": 2}', 1), Arrived("b", 6000, None, 2)])
    assert {key: value and BufferedUpdate.parse(value) for key, value in task.changelog.items()} == {
        b"a": BufferedUpdate(b'{"n": 1}', 0, 0, "t", 0, 0, []),
        b"b": BufferedUpdate(None, 6000, 5000, "t", 0, 2, []),
    }
    task.process([Arrived("c", 10_000, b'{"n": 3}', 3)])
    assert task.changelog[b"a"] is None
    assert task.changelog[b"b"] is not None


@pytest.mark.parametrize("headers", [[], [("a", b"1"), ("b", None), ("a", b"")]])
@pytest.mark.parametrize("value", [None, b"", b"value"])
def test_the_bytes_of_an_update_are_read_again(value: bytes | None, headers: list[tuple[str, bytes | None]]) -> None:
    update = BufferedUpdate(value, 7, 5, "t\u00f6pic", 3, 42, headers)
    assert BufferedUpdate.parse(update.as_bytes()) == update
    for size in range(len(update.as_bytes())):
        with pytest.raises(ValueError, match="is no update of a buffer of suppress"):
            BufferedUpdate.parse(update.as_bytes()[:size])
