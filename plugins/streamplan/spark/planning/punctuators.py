"""The punctuators of a stream task: when each is called, which ones are cancelled, and what a later micro-batch knows.

In the library, schedules are in the memory of a stream task. Here each micro-batch has new objects of the classes, and
their ``init`` schedules again. So the state keeps what differs from that: punctuators of ``init`` that are cancelled,
those that were scheduled later, and the attributes of the objects that hold a :class:`Cancellable`.

Source: ``PunctuationQueue`` and ``PunctuationSchedule`` of ``org.apache.kafka.streams.processor.internals``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any

from streamplan.model.operations import Schedule
from streamplan.model.processor import Cancellable, Processor


class Punctuator(Cancellable):
    """A punctuator that a class has scheduled.

    Attributes:
        of: The place of the class.
        id: What a later micro-batch knows it by.
        schedule: When it is called.
        call: The function.
        name: Its name.
        given: What it is called with before the time.
        next_ms: When it is called next; None while the wall clock has told no time since it was scheduled.
        is_cancelled: Whether it is not called again.
    """

    def __init__(
        self, task: Punctuators, of: int, name: str, schedule: Schedule, call: Callable[[datetime], Any], place: int
    ) -> None:
        self.of, self.id, self.schedule, self.call = of, name, schedule, call
        method, self.given = _method_and_arguments(call)
        self.name = getattr(method, "__name__", "punctuator")
        self.next_ms: int | None = None
        self.is_cancelled = False
        self._task, self._place = task, place

    def cancel(self) -> None:
        """See :meth:`Cancellable.cancel`."""
        if not self.is_cancelled:
            self.is_cancelled = True
            self._task.cancelled.append(self)

    def __lt__(self, other: Punctuator) -> bool:
        return (self.next_ms or 0, self._place) < (other.next_ms or 0, other._place)


class Punctuators:
    """The punctuators of a stream task in a micro-batch.

    Args:
        names: The names of the nodes of the classes.
        stream_time: That of the stream task in ms; None where it has read no record.
        wall_clock: The time in ms that the wall clock has told before this micro-batch; None for none.
        began: The first time that it has told. From then on the intervals of ``init`` are counted.
        now_ms: The time that it tells in this micro-batch; None for none.
        step_ms: How often it tells one: the shortest interval of the wall clock that ``init`` schedules; None where it
            schedules none.
    """

    def __init__(
        self,
        names: Sequence[str],
        stream_time: int | None,
        wall_clock: int | None,
        began: int | None,
        now_ms: int | None,
        step_ms: int | None,
    ) -> None:
        self._names = names
        self._stream_time, self._wall_clock, self._began = stream_time, wall_clock, began
        self._now_ms, self._step_ms = now_ms, step_ms
        self._queues: Mapping[bool, list[Punctuator]] = {False: [], True: []}
        self._waiting: list[Punctuator] = []
        self._known: dict[tuple[int, str], Punctuator] = {}
        self._of_init = Counter[tuple[int, str]]()
        self._cancelled_in_init: frozenset[Punctuator] = frozenset()
        self._handles_of_init: list[dict[str, str]] = []
        self._handles: list[set[str]] = []
        self._last = 0
        self._places = count()
        self._made: list[Punctuator] = []
        self.cancelled: list[Punctuator] = []
        """What the call that runs has cancelled."""

    def system_time(self) -> int:
        """Return the newest time in ms that the wall clock has told.

        Raises:
            RuntimeError: It has told none.
        """
        told = self._wall_clock if self._now_ms is None else self._now_ms
        if told is None:
            raise RuntimeError(
                "current_system_time: the stream task is told no time of the wall clock. Write in init: "
                "context.schedule('1 minute', WALL_CLOCK_TIME, …).cancel()"
            )
        return told

    def schedule_in_init(self, of: int, schedule: Schedule, call: Callable[[datetime], Any]) -> Punctuator:
        """Schedule what ``init`` schedules. It goes on as in the micro-batch before.

        Args:
            of: The place of the class.
            schedule: When it is called.
            call: The function.
        """
        name = f"{getattr(call, '__name__', 'punctuator')} {schedule.interval_ms} {schedule.wall_clock}"
        number = self._of_init[of, name]
        self._of_init[of, name] += 1
        if schedule.wall_clock:
            start, before = self._began, self._wall_clock
        else:
            start, before = 0, self._stream_time
        next_ms = None if schedule.wall_clock else 0  # the library's first call by stream time is for the first record
        if before is not None and start is not None:
            next_ms = start + ((before - start) // schedule.interval_ms + 1) * schedule.interval_ms
        return self._add(of, f"{name} {number}", schedule, call, next_ms)

    def schedule_later(
        self, of: int, schedule: Schedule, call: Callable[[datetime], Any], processor: Processor
    ) -> Punctuator:
        """Schedule what another method than ``init`` schedules.

        Args:
            of: The place of the class.
            schedule: When it is called.
            call: A method of the processor: a later micro-batch finds it by its name. Or a ``functools.partial`` of
                one, with arguments that JSON has.
            processor: The object of the class.

        Raises:
            TypeError: It is no such method.
            ValueError: The wall clock does not tell the time as often.
        """
        method, given = _method_and_arguments(call)
        name = getattr(method, "__name__", "")
        if getattr(method, "__self__", None) is not processor or getattr(processor, name, None) != method:
            raise TypeError(
                "schedule: outside of init the punctuator is a method of the class, as self.punctuate, and not "
                f"{name or type(method).__name__}: the next micro-batch finds it by its name. Keep in a store what it "
                "has to know, or write functools.partial(self.punctuate, record.key)"
            )
        for each in given:
            if not isinstance(each, str | int | float | bool | None):
                raise TypeError(
                    f"schedule: {name} is to be called with {type(each).__name__}, and the next micro-batch is told "
                    "texts, numbers, booleans and None alone. Keep in a store what else it has to know"
                )
        next_ms: int | None = 0
        if schedule.wall_clock:
            self._require_clock(schedule.interval_ms)
            next_ms = None if self._now_ms is None else self._now_ms + schedule.interval_ms
        self._last += 1
        made = self._add(of, str(self._last), schedule, call, next_ms)
        self._made.append(made)
        return made

    def keep(self) -> None:
        """Keep what a call has scheduled and cancelled."""
        self._made, self.cancelled = [], []

    def take_back(self, processor: Processor) -> None:
        """Forget what a call of an object has scheduled and cancelled. It has failed."""
        for punctuator in self.cancelled:
            punctuator.is_cancelled = False
        for made in self._made:
            made.is_cancelled = True
            del self._known[made.of, made.id]
        for name, value in [*_attributes(processor).items()]:
            if isinstance(value, Punctuator) and value in self._made:
                _attributes(processor)[name] = None
        self.keep()

    def start_clock(self, now: int) -> None:
        """Count the intervals of what was scheduled by the wall clock without a time from the time that it tells."""
        for punctuator in self._waiting:
            punctuator.next_ms = now + punctuator.schedule.interval_ms
            heappush(self._queues[True], punctuator)
        self._waiting = []

    def due(self, now: int, *, wall_clock: bool) -> Iterator[Punctuator]:
        """Yield one after the other what is due. Each is called before the next one is asked for.

        Args:
            now: The time in ms.
            wall_clock: Whether it is that of the wall clock.
        """
        queue = self._queues[wall_clock]
        while queue and (queue[0].next_ms or 0) <= now:
            punctuator = heappop(queue)
            if not punctuator.is_cancelled:
                yield punctuator
            if not punctuator.is_cancelled:
                at, interval = punctuator.next_ms or 0, punctuator.schedule.interval_ms
                punctuator.next_ms = at + ((now - at) // interval + 1) * interval
                heappush(queue, punctuator)

    def go_on(self, kept: str | None, processors: Sequence[Processor]) -> None:
        """Go on with what the micro-batch before has kept, when ``init`` of all classes was called.

        What a changed class has no more is forgotten: a method, or a punctuator of ``init``.

        Args:
            kept: See :meth:`to_keep`.
            processors: The objects of the classes.
        """
        self._cancelled_in_init = frozenset(self.cancelled)
        self.keep()
        self._handles_of_init = [_handles(processor) for processor in processors]
        self._handles = [{*handles} for handles in self._handles_of_init]
        if kept is None:
            return
        state, places = json.loads(kept), {name: of for of, name in enumerate(self._names)}
        self._last = state["last"]
        for node, name, method, interval_ms, wall_clock, next_ms, *given in state["later"]:
            call = None if node not in places else getattr(processors[places[node]], method, None)
            if callable(call):
                call = partial(call, *given) if given else call
                self._add(places[node], name, Schedule(interval_ms, wall_clock), call, next_ms)
        for node, name in state["cancelled"]:
            if node in places and (places[node], name) in self._known:
                self._known[places[node], name].is_cancelled = True
        for node, attribute, name in state["handles"]:
            if node in places:
                of = places[node]
                self._handles[of].add(attribute)
                _attributes(processors[of])[attribute] = None if name is None else self._handle(of, name)

    def to_keep(self, processors: Sequence[Processor]) -> str | None:
        """Return what a later micro-batch has to know; None where it is what ``init`` tells.

        Args:
            processors: The objects of the classes.
        """
        later, cancelled = [], []
        for (of, name), each in self._known.items():
            if " " not in name and not each.is_cancelled:
                schedule = each.schedule
                what = (each.name, schedule.interval_ms, schedule.wall_clock, each.next_ms, *each.given)
                later.append((self._names[of], name, *what))
            elif " " in name and each.is_cancelled and each not in self._cancelled_in_init:
                cancelled.append((self._names[of], name))
        handles = []
        for of, processor in enumerate(processors):
            held, in_init = _handles(processor), self._handles_of_init[of]
            for attribute in sorted(self._handles[of] | held.keys()):
                if held.get(attribute) != in_init.get(attribute):
                    handles.append((self._names[of], attribute, held.get(attribute)))
        if not (later or cancelled or handles):
            return None
        return json.dumps({"last": self._last, "later": later, "cancelled": cancelled, "handles": handles})

    def _add(
        self, of: int, name: str, schedule: Schedule, call: Callable[[datetime], Any], next_ms: int | None
    ) -> Punctuator:
        made = self._known[of, name] = Punctuator(self, of, name, schedule, call, next(self._places))
        made.next_ms = next_ms
        if next_ms is None:
            self._waiting.append(made)
        else:
            heappush(self._queues[schedule.wall_clock], made)
        return made

    def _require_clock(self, interval_ms: int) -> None:
        if self._step_ms is None or interval_ms < self._step_ms:
            least = "none of WALL_CLOCK_TIME" if self._step_ms is None else f"every {_seconds(self._step_ms)}"
            raise ValueError(
                f"schedule: every {_seconds(interval_ms)} by WALL_CLOCK_TIME, where init schedules {least}. The stream "
                "task is told the time as often as init says. Write in init: context.schedule('"
                f"{_seconds(interval_ms)}', WALL_CLOCK_TIME, …).cancel()"
            )

    def _handle(self, of: int, name: str) -> Punctuator:
        """What an attribute holds: one that is not there any more was cancelled."""
        return self._known.get((of, name)) or _cancelled(self, of, name)


def _cancelled(task: Punctuators, of: int, name: str) -> Punctuator:
    made = Punctuator(task, of, name, Schedule(1, False), print, 0)
    made.is_cancelled = True
    return made


def _method_and_arguments(call: Callable[..., Any]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """What a partial is a partial of, with its arguments; another function has none."""
    if isinstance(call, partial) and not call.keywords:
        return call.func, call.args
    return call, ()


def _seconds(ms: int) -> str:
    return f"{timedelta(milliseconds=ms) / timedelta(seconds=1):g} seconds"


def _attributes(processor: Processor) -> dict[str, Any]:
    return getattr(processor, "__dict__", {})


def _handles(processor: Processor) -> dict[str, str]:
    """The attributes of an object that hold a punctuator, and how a later micro-batch knows it."""
    return {name: value.id for name, value in _attributes(processor).items() if isinstance(value, Punctuator)}
