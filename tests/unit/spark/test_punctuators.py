"""Punctuators that are cancelled, and those that process and other punctuators schedule, with the state in memory."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import pytest
from streamplan.model.processor import (
    STREAM_TIME,
    WALL_CLOCK_TIME,
    Cancellable,
    KeyValueStore,
    Processor,
    ProcessorContext,
    Record,
)
from streamplan.serdes.primitive import Long, String

from tests.support.stores_task import Arrived, Forwarded, StoresTask

STORES = {"store": KeyValueStore(String(), Long())}
SECOND = 1_000


class Context(Processor):
    """Does what a record says, and tells which punctuator is called."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: Record) -> None:
        getattr(self, record.value.s)()

    def nothing(self) -> None: ...

    def tell(self, name: str) -> None:
        self.context.forward({"s": name})


def task_of(processor: type[Processor]) -> StoresTask:
    return StoresTask(processor, STORES, "s string")


def told(made: list[Forwarded]) -> list[tuple[str, int]]:
    return [(each.reason or each.value["s"], each.at) for each in made]


def run(task: StoresTask, *records: tuple[int, str], batch: int | None = None) -> list[tuple[str, int]]:
    """What micro-batches of one size make of records, each with its time and with what is done."""
    arrived = [Arrived("k", at, {"s": word}, offset) for offset, (at, word) in enumerate(records)]
    size, made = batch or len(arrived), []
    for begin in range(0, len(arrived), size):
        made += task.process(*arrived[begin : begin + size])
    return told(made)


class Two(Context):
    """Has two punctuators of init, of which the second one cancels both."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.one = context.schedule("1 second", STREAM_TIME, self.first)
        self.other = context.schedule("2 seconds", STREAM_TIME, lambda now: self.second(now))

    def first(self, now: datetime) -> None:
        self.tell("first")

    def second(self, now: datetime) -> None:
        self.tell("second")
        if now.timestamp() >= 4:
            self.one.cancel()
            self.other.cancel()

    def cancel(self) -> None:
        self.one.cancel()


@pytest.mark.parametrize("batch", [1, 2, 9])
def test_a_punctuator_cancels_itself_and_another_one_and_a_record_does(batch: int) -> None:
    records = [(second * SECOND, "nothing") for second in range(7)]
    of_two = ["first 0", "second 0", "first 1", "first 2", "second 2", "first 3", "first 4", "second 4"]
    expected = [(name, int(second) * SECOND) for name, second in map(str.split, of_two)]
    assert run(task_of(Two), *records, batch=batch) == expected
    records[3] = (3 * SECOND, "cancel")
    left = [each for each in expected if each not in (("first", 3 * SECOND), ("first", 4 * SECOND))]
    assert run(task_of(Two), *records, batch=batch) == left


def test_a_state_that_is_restored_has_the_punctuators_of_init_again() -> None:
    task = task_of(Two)
    run(task, (4 * SECOND, "nothing"))
    assert task.scheduled is not None
    assert told(task.process(Arrived("k", 9 * SECOND, {"s": "nothing"}, 1))) == []
    task.restore()
    assert task.scheduled is None
    assert told(task.process(Arrived("k", 10 * SECOND, {"s": "nothing"}, 2))) == [
        ("first", 10 * SECOND), ("second", 10 * SECOND)
    ]  # fmt: skip


class Later(Context):
    """Schedules when a record says so, as an application of the library does that asks whether it has scheduled."""

    reminder: Cancellable | None = None

    def schedule(self) -> None:
        if self.reminder is None:
            self.reminder = self.context.schedule("2 seconds", STREAM_TIME, self.remind)

    def remind(self, now: datetime) -> None:
        self.tell("remind")

    def cancel(self) -> None:
        if self.reminder is not None:
            self.reminder.cancel()
            self.reminder = None

    def forget(self) -> None:
        assert self.reminder is not None
        self.reminder.cancel()


@pytest.mark.parametrize("batch", [1, 2, 9])
def test_what_process_schedules_is_called_behind_its_record_and_at_multiples_until_it_is_cancelled(batch: int) -> None:
    words = ["nothing", "schedule", "schedule", "nothing", "nothing", "nothing", "cancel", "nothing", "schedule"]
    records = [(500 + second * SECOND, word) for second, word in enumerate(words)]
    at = [at for name, at in run(task_of(Later), *records, batch=batch) if name == "remind"]
    assert at == [1_500, 2_500, 4_500, 8_500]


def test_an_attribute_with_a_punctuator_that_is_cancelled_is_not_none_in_a_later_micro_batch() -> None:
    task = task_of(Later)
    assert run(task, (500, "schedule"), (600, "forget"), (3_000, "schedule"), (4_000, "cancel"), batch=1) == [
        ("remind", 500)
    ]
    assert task.scheduled is None
    assert run(task, (5_000, "schedule"), batch=1) == [("remind", 5_000)]


class Failing(Later):
    """Has a punctuator of init, and fails behind what it has scheduled and cancelled."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.of_init = context.schedule("1 second", STREAM_TIME, self.tick)

    def tick(self, now: datetime) -> None:
        self.tell("tick")

    def schedule(self) -> None:
        super().schedule()
        self.of_init.cancel()
        raise LookupError("no")


@pytest.mark.parametrize("batch", [1, 3])
def test_a_call_that_fails_schedules_and_cancels_nothing(batch: int) -> None:
    made = run(task_of(Failing), (500, "schedule"), (1_500, "schedule"), (2_500, "nothing"), batch=batch)
    reason = next(reason for reason, _ in made if "LookupError" in reason)
    assert made == [(reason, 500), ("tick", 500), (reason, 1_500), ("tick", 1_500), ("tick", 2_500)]


class Cascade(Context):
    """A punctuator that schedules another one, and ends."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.own = context.schedule("3 seconds", STREAM_TIME, self.begin)

    def begin(self, now: datetime) -> None:
        self.tell("begin")
        self.own.cancel()
        self.context.schedule("2 seconds", STREAM_TIME, self.go_on)

    def go_on(self, now: datetime) -> None:
        self.tell("go on")


@pytest.mark.parametrize("batch", [1, 2, 9])
def test_what_a_punctuator_schedules_by_stream_time_is_called_at_once(batch: int) -> None:
    records = [(1_000 + second * SECOND, "nothing") for second in range(4)]
    assert run(task_of(Cascade), *records, batch=batch) == [
        ("begin", 1_000), ("go on", 1_000), ("go on", 2_000), ("go on", 4_000)
    ]  # fmt: skip


class Anything(Context):
    """Schedules something that a later micro-batch could not find."""

    what: Callable[[Anything], Any]

    def schedule(self) -> None:
        self.context.schedule("1 second", STREAM_TIME, type(self).what(self))

    def _inner(self, now: datetime) -> None: ...


@pytest.mark.parametrize(
    ("what", "name"),
    [
        (lambda own: lambda now: own.tell("x"), "<lambda>"),
        (lambda own: print, "print"),
        (lambda own: Anything().tell, "tell"),
        (lambda own: 5, "int"),
        (lambda own: partial(print, "x"), "print"),
        (lambda own: partial(own.tell, name="x"), "partial"),
    ],
)
def test_outside_of_init_a_punctuator_is_a_method_of_the_processor(what: Any, name: str) -> None:
    ((reason, _),) = run(task_of(type("Anything", (Anything,), {"what": what})), (500, "schedule"))
    assert f"outside of init the punctuator is a method of the class, as self.punctuate, and not {name}" in reason
    assert "Keep in a store what it has to know" in reason


class OfKeys(Context):
    """Schedules for what a record says, until it was called twice."""

    def process(self, record: Record) -> None:
        if record.value.s != "nothing":
            self.context.schedule("2 seconds", STREAM_TIME, partial(self.remind, record.value.s, 1, None))

    def remind(self, word: str, number: int, nothing: None, now: datetime) -> None:
        self.tell(f"{word} {number} {nothing} {now.timestamp():g}")


@pytest.mark.parametrize("batch", [1, 2, 9])
def test_a_partial_of_a_method_goes_on_with_its_arguments(batch: int) -> None:
    records = [(500, "é"), (1_000, "b"), (1_500, "nothing"), (4_500, "nothing")]
    assert run(task_of(OfKeys), *records, batch=batch) == [
        ("é 1 None 0.5", 500), ("b 1 None 1", 1_000), ("é 1 None 4.5", 4_500), ("b 1 None 4.5", 4_500)
    ]  # fmt: skip


def test_a_partial_with_an_argument_that_the_state_cannot_have_is_refused() -> None:
    what = lambda own: partial(own.tell, own)  # noqa: E731
    ((reason, _),) = run(task_of(type("Anything", (Anything,), {"what": what})), (500, "schedule"))
    assert "schedule: tell is to be called with Anything, and the next micro-batch is told texts, numbers" in reason


def test_a_changed_class_goes_on_without_the_methods_that_it_has_no_more() -> None:
    class Other(Context):
        reminder: Cancellable | None = None

        def init(self, context: ProcessorContext) -> None:
            super().init(context)
            context.schedule("1 second", STREAM_TIME, self.tick)

        def tick(self, now: datetime) -> None:
            self.tell("tick" if self.reminder is None else "tick with a reminder")

    task = task_of(Later)
    run(task, (500, "schedule"))
    task.change(0, Other)
    assert told(task.process(Arrived("k", 4_000, {"s": "nothing"}, 1))) == [("tick with a reminder", 4_000)]


class Clocked(Later):
    """Schedules by the wall clock."""

    every = "5 seconds"

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        context.schedule("2 seconds", WALL_CLOCK_TIME, self.remind).cancel()

    def schedule(self) -> None:
        self.reminder = self.context.schedule(self.every, WALL_CLOCK_TIME, self.remind)

    def remind(self, now: datetime) -> None:
        super().remind(now)
        if now.timestamp() > 30:
            self.cancel()


def test_what_process_schedules_by_the_wall_clock_is_called_when_its_interval_is_over() -> None:
    task = task_of(Clocked)
    assert task.process(Arrived("k", 1, {"s": "schedule"}, 0), clock=10_000) == []
    calls = [now for now in (14_999, 15_000, 19_999, 27_000, 29_000, 30_500, 36_000, 50_000) if task.process(clock=now)]
    assert calls == [15_000, 27_000, 30_500]
    assert task.process(Arrived("k", 2, {"s": "schedule"}, 1), clock=61_000) == []
    assert [now for now in (65_999, 66_000, 80_000) if task.process(clock=now)] == [66_000]


@pytest.mark.parametrize("before", [[], [10_000]], ids=["before the first time", "between two times"])
def test_what_is_scheduled_while_the_wall_clock_tells_no_time_counts_from_its_next_one(before: list[int]) -> None:
    task = task_of(Clocked)
    for clock in before:
        task.process(clock=clock)
    assert task.process(Arrived("k", 1, {"s": "schedule"}, 0)) == []
    assert [now for now in (17_000, 21_999, 22_000) if task.process(clock=now)] == [22_000]


def test_a_wall_clock_that_was_set_back_calls_nothing_again() -> None:
    task = task_of(Clocked)
    task.process(Arrived("k", 1, {"s": "schedule"}, 0), clock=10_000)
    assert [now for now in (15_000, 9_000, 15_000, 19_000, 20_000) if task.process(clock=now)] == [15_000, 20_000]


@pytest.mark.parametrize(
    ("processor", "reason"),
    [
        (type("Short", (Clocked,), {"every": "1500 milliseconds"}), "every 1.5 seconds by WALL_CLOCK_TIME, where init"),
        (
            type("Unclocked", (Clocked,), {"init": Later.init}),
            "every 5 seconds by WALL_CLOCK_TIME, where init schedules none of WALL_CLOCK_TIME",
        ),
    ],
)
def test_the_wall_clock_is_told_as_often_as_init_says(processor: type[Processor], reason: str) -> None:
    ((given, _),) = run(task_of(processor), (500, "schedule"))
    assert reason in given
    assert "Write in init: context.schedule('" in given


class Random(Context):
    """Has two punctuators of init and up to three others, each of which an attribute holds."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.held0 = context.schedule("1 second", STREAM_TIME, self.punctuate0)
        self.held1 = context.schedule("3 seconds", STREAM_TIME, lambda now: self.tell("1"))

    def process(self, record: Record) -> None:
        word, number = record.value.s.split()
        if word == "cancel":
            getattr(self, f"held{number}").cancel()
        elif word == "schedule":
            method = getattr(self, f"punctuate{number}")
            setattr(self, f"held{number}", self.context.schedule(f"{number} seconds", STREAM_TIME, method))

    def punctuate0(self, now: datetime) -> None:
        self.tell("0")

    def punctuate2(self, now: datetime) -> None:
        self.tell("2")

    def punctuate3(self, now: datetime) -> None:
        self.tell("3")

    def punctuate4(self, now: datetime) -> None:
        self.tell("4")
        if now.timestamp() % 2 < 1:
            self.held4.cancel()


@dataclass
class Model:
    """``PunctuationQueue`` and ``PunctuationSchedule``, written down plainly, in memory from the first record on."""

    next: int
    interval: int
    name: str
    number: int
    is_cancelled: bool = False

    def go_on(self, now: int) -> None:
        following = self.next + self.interval
        if now >= following:
            following = self.next + ((now - self.next) // self.interval + 1) * self.interval
        self.next = following


@pytest.mark.parametrize("seed", range(8))
def test_all_that_is_scheduled_and_cancelled_goes_on_from_micro_batch_to_micro_batch(seed: int) -> None:
    drawn, at, newest, words, expected = random.Random(seed), 0, 0, [], []
    queue = [Model(0, SECOND, "0", 0), Model(0, 3 * SECOND, "1", 1)]
    held = {"0": queue[0], "1": queue[1]}
    for _ in range(80):
        at = max(0, at + drawn.choice([-300, 100, 400, 1_000, 2_500]))
        newest = max(newest, at)
        word, number = drawn.choice(["nothing", "nothing", "cancel", "schedule"]), drawn.choice("01234")
        if word == "cancel" and number not in held:
            word = "nothing"
        if word == "schedule" and number in "01":
            word = "nothing"
        if word == "cancel":
            held[number].is_cancelled = True
        elif word == "schedule":
            held[number] = Model(0, int(number) * SECOND, number, len(queue))
            queue.append(held[number])
        words.append((at, f"{word} {number}"))
        while due := [each for each in queue if each.next <= newest and not each.is_cancelled]:
            first = min(due, key=lambda each: (each.next, each.number))
            expected.append((first.name, newest))
            if first.name == "4" and newest // SECOND % 2 == 0:
                held["4"].is_cancelled = True
            first.go_on(newest)
    for batch in (1, 3, 80):
        assert run(task_of(Random), *words, batch=batch) == expected, f"micro-batches of {batch}"


def test_a_class_that_keeps_what_init_schedules_keeps_nothing_in_the_state() -> None:
    class Plain(Two):
        def second(self, now: datetime) -> None: ...

    task = task_of(Plain)
    run(task, (500, "nothing"), (1_500, "nothing"), batch=1)
    assert task.scheduled is None
