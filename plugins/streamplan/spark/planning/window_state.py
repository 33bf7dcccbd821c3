"""The state of windows that go by the time of the stream task: what changes, what closes, and what is forgotten."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from operator import itemgetter
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle
from pyspark.sql.types import ArrayType, BinaryType, LongType, StructField, StructType

from streamplan.model.functions import REJECT, function_name
from streamplan.model.windows import CustomWindows, SessionWindows, TimeWindows, stored_session_key
from streamplan.spark.planning.function_fold import FunctionFold, Rejected
from streamplan.spark.planning.function_results import NOT_OF_A_FUNCTION, rejected_by
from streamplan.spark.planning.key_windows import (
    Change,
    KeySessions,
    KeySlidingWindows,
    KeyTimeWindows,
    KeyTotal,
    KeyWindows,
)
from streamplan.spark.planning.keyed_state import KeyedState
from streamplan.spark.planning.merging import Merging
from streamplan.spark.planning.task_state import NEVER, named_tuples, sweep_is_due, task_order
from streamplan.spark.sink.writers import times_by_clock


class WindowAggregate(KeyedState):
    """Aggregates the windows of one stream task, and passes each change of a window.

    Args:
        folding: Adds records to windows.
        parts: The fields of what a window has aggregated.
        restored: Where the rows are the windows of a changelog, and no records: by partition the time in ms that the
            wall clock has given to a stream task. None where they are records.
        by_record: Whether a final result has ``closed_by``: the place of the record that has closed its window.
        suppressed: Whether final results are those of ``suppress``.
        times: By partition the time in ms that the wall clock has given to a stream task, where all records are
            recounted. None where the micro-batch has it.
    """

    _time_names = ("newest", "swept")

    def __init__(
        self,
        windows: TimeWindows | SessionWindows,
        folding: Merging | FunctionFold,
        parts: StructType,
        *,
        restored: Mapping[int, int] | None,
        by_record: bool = False,
        suppressed: bool = False,
        times: Mapping[int, int] | None = None,
    ) -> None:
        self._by_record = by_record
        self._suppressed = suppressed
        self._clock = times
        self._windows = windows
        self._retention_ms = windows.retention_ms
        self._gap_ms = windows.inactivity_gap_ms if isinstance(windows, SessionWindows) else 0
        self._grace_ms = windows.grace_ms
        self._folding = folding
        self._parts = parts
        self._restored = restored

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state variables."""
        window = StructType(
            [StructField("start", LongType()), StructField("end", LongType()), StructField("parts", self._parts)]
        )
        of_key = StructType([StructField("sessions", ArrayType(window))])
        self._state = handle.getMapState("sessions", StructType([StructField("key", BinaryType())]), of_key)
        times = StructType([StructField(name, LongType()) for name in self._time_names])
        self._times = handle.getValueState("times", times)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        """Process the records of a micro-batch, or the windows of a changelog."""
        newest, looked_at = (self._times.get() if self._times.exists() else None) or (-1, -1)
        self._newest_before = newest
        touched: dict[bytes, KeyWindows] = {}
        self._moved: list[tuple[int, int]] = []
        self._places: list[Any] = []
        rejected = []
        rows = named_tuples(rows)
        if self._restored is None:
            # A tick has no key. It only lets the micro-batch reach this stream task.
            rows = sorted((row for row in rows if row.key is not None), key=lambda row: task_order(row.place))
        for turn, row in enumerate(rows):
            name = bytes(row.key)
            if name not in touched:
                known = self._state.containsKey((name,))  # Spark warns of a value that is not there
                touched[name] = self._of(self._state.getValue((name,)) if known else None)
            windows, parts = touched[name], tuple(row.parts[part] for part in self._parts.names)
            if self._restored is not None:
                windows.restore(row.start, self._end_of(row), self._folding.restored(parts))
            else:
                windows.turn = turn
                self._places.append(row.place)
                try:
                    is_in_window = self._add(windows, row, parts, newest)
                except Rejected as error:  # The time does not go on: a restored state could not know of it.
                    rejected.append((row, str(error)))
                    continue
                if not is_in_window:  # The changelog has nothing of it, so it does not move the time, either.
                    continue
                if row.at > newest:
                    self._moved.append((row.at, turn))
                yield from self._passed_at_once(key[0], name, windows, row.place)
            newest = max(newest, row.at)
        given = self._clock if self._restored is None else self._restored
        times = times_by_clock() if given is None else given
        newest = max(newest, times.get(key[0], newest))
        changes = [(change, name) for name, windows in touched.items() for change in self._changes(windows)]
        changes.sort(key=lambda changed: changed[0].turn)  # those of one record keep their order
        for row, reason in rejected:
            yield Row(partition=key[0], at=row.at, record=row.record, reason=reason)
        for place, (change, name) in enumerate(changes):
            yield self._changed(key[0], name, change, place)
        yield from self._close(key[0], touched, newest, looked_at)

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _passed_at_once(self, partition: int, key: bytes, windows: KeyWindows, place: Any) -> Iterator[Row]:
        """Yield what is passed of a record before the records behind it."""
        yield from ()

    def _end_of(self, row: Any) -> Any:
        """The end of a window of a changelog. Windows of a function have their start alone in the key."""
        return self._windows.end_of(row.start) if isinstance(self._windows, CustomWindows) else row.end

    def _of(self, state: Any) -> KeyWindows:
        if isinstance(self._windows, SessionWindows):
            return KeySessions.of(state)
        return KeySlidingWindows.of(state) if self._windows.slides else KeyTimeWindows.of(state)

    def _add(self, windows: KeyWindows, row: Any, parts: Any, newest: int) -> bool:
        """Add a record to the windows of its key, and return whether it is in any, if only in closed ones.

        Args:
            windows: The windows of its key.
            row: The record.
            parts: What it gives to each part of an aggregate.
            newest: The newest time before it.
        """
        at, fold = row.at, self._folding.of(row)
        if isinstance(windows, KeySessions):
            assert isinstance(self._windows, SessionWindows)
            late_before = max(newest, at) - self._retention_ms
            over = newest - self._retention_ms
            windows.add(at, parts, self._gap_ms, over, late_before, fold)
        elif isinstance(windows, KeySlidingWindows):
            assert isinstance(self._windows, TimeWindows)
            closed_before = max(newest, at) - self._grace_ms
            windows.add(at, parts, self._windows.size_ms, closed_before, fold)
        elif isinstance(windows, KeyTimeWindows):
            assert isinstance(self._windows, TimeWindows)
            closed_until = max(newest, at) - self._grace_ms
            bounds = [(row.start, row.end)]
            if isinstance(self._windows, CustomWindows):
                bounds = _told(self._windows, at)
            elif self._windows.begin_at_multiples:
                bounds = [(start, start + self._windows.size_ms) for start in self._windows.starts_of(at)]
            windows.add(at, parts, bounds, closed_until, fold)
            return bool(bounds)
        return True

    def _changes(self, windows: KeyWindows) -> Iterator[Change]:
        return windows.changes()

    def _changed(self, partition: int, key: bytes, change: Change, place: int | None) -> Row:
        return self._row(partition, key, change.start, change.end, change.at, change.parts, place)

    def _row(self, partition: int, key: bytes, start: int, end: int, at: int, parts: Any, place: int | None) -> Row:
        is_deleted = parts is None or self._folding.is_deleted(parts)
        by_name = None if parts is None else dict(zip(self._parts.names, parts, strict=True))
        bounds = {"start": start, "end": end, "at": at}
        return Row(partition=partition, key=key, **bounds, deleted=is_deleted, parts=by_name, place=place)

    def _close(self, partition: int, touched: dict[bytes, KeyWindows], newest: int, swept: int) -> Iterator[Row]:
        """Put the windows into the state that take further records. The others are forgotten."""
        still_there = newest - self._retention_ms + 1
        for key, windows in touched.items():
            windows.take(still_there)
            self._put(key, windows)
        if sweep_is_due(swept, newest, self._retention_ms):
            swept = newest
            for key, windows in self._others(touched):
                windows.take(still_there)
                self._put(key, windows)
        self._times.update((newest, swept))
        yield from ()

    def _others(self, touched: Collection[bytes]) -> Iterator[tuple[bytes, KeyWindows]]:
        """Yield the windows of the keys of which no record has come."""
        for (key,), value in list(self._state.iterator()):
            if (name := bytes(key)) not in touched:
                yield name, self._of(value)

    def _put(self, key: bytes, windows: KeyWindows) -> None:
        if not windows.windows:
            self._state.removeKey((key,))
        elif windows.changed:
            self._state.updateValue((key,), (windows.windows,))


class TotalAggregate(WindowAggregate):
    """Aggregates the records of one stream task without windows, and passes each change of a key's total.

    Args:
        folding: As for :class:`WindowAggregate`.
        parts: As for :class:`WindowAggregate`.
        restored: As for :class:`WindowAggregate`.
        passes_each: Whether each record gives a row, with its place in ``closed_by``. Without it a key has one row.
    """

    def __init__(
        self,
        folding: Merging | FunctionFold,
        parts: StructType,
        *,
        restored: Mapping[int, int] | None,
        passes_each: bool = False,
    ) -> None:
        self._passes_each = passes_each
        self._by_record = False
        self._clock = None
        self._folding = folding
        self._parts = parts
        self._restored = restored

    def _end_of(self, row: Any) -> Any:
        return row.end

    def _of(self, state: Any) -> KeyWindows:
        return KeyTotal.of(state)

    def _add(self, windows: KeyWindows, row: Any, parts: Any, newest: int) -> bool:
        assert isinstance(windows, KeyTotal)
        windows.add(row.at, parts, self._folding.of(row))
        return True

    def _passed_at_once(self, partition: int, key: bytes, windows: KeyWindows, place: Any) -> Iterator[Row]:
        if self._passes_each:
            for change in windows.taken_changes():
                yield Row(**self._changed(partition, key, change, change.turn).asDict(), closed_by=place)

    def _close(self, partition: int, touched: dict[bytes, KeyWindows], newest: int, swept: int) -> Iterator[Row]:
        """Put the totals into the state."""
        for key, windows in touched.items():
            self._put(key, windows)
        self._times.update((newest, swept))
        yield from ()


class FinalResults(WindowAggregate):
    """Aggregates the windows of one stream task, and passes each window when it closes.

    The rows without ``place`` are the changes of the store. ``closed_by`` is the place of the record that has closed a
    window; None for one that the wall clock has closed.

    ``suppress`` passes sessions and sliding windows a millisecond before they are closed. A record of that time changes
    such a window once more, and the window is passed again, at once (``KTableSuppressProcessorSupplier``).
    """

    _time_names = ("newest", "earliest_end")

    def _changes(self, windows: KeyWindows) -> Iterator[Change]:
        """Each record changes the changelog: a restored state knows from its time which results were passed."""
        return windows.changes(of_nothing=True)

    def _changed(self, partition: int, key: bytes, change: Change, place: int | None) -> Row:
        return super()._changed(partition, key, change, None)

    def _close(self, partition: int, touched: dict[bytes, KeyWindows], newest: int, earliest: int) -> Iterator[Row]:
        """Yield the windows that close, in the order of the library's store: by end, start and key.

        A restored window that is closed was passed before.
        """
        closed_before = self._closed_before(newest)
        some_are_closed = earliest < closed_before
        left, closed = (NEVER if some_are_closed else earliest), []
        others = self._others(touched) if some_are_closed else ()
        for key, windows in chain(touched.items(), others):
            taken = windows.take(closed_before)
            if isinstance(windows, KeySlidingWindows):  # a later record needs what the windows before it have
                passed_before = self._closed_before(self._newest_before)
                windows.keep(window for window in taken if window[1] > newest - self._retention_ms)
                taken = [each for each in taken if each[1] >= passed_before or each[:2] in windows.changed_at]
            closed += [(end, start, key, parts) for start, end, parts in taken if not self._folding.is_deleted(parts)]
            if (end := windows.earliest_end(closed_before)) is not None:
                left = min(left, end)
            self._put(key, windows)
        self._times.update((newest, left))
        if self._restored is None:
            in_order = sorted(closed, key=_as_in_buffer if self._suppressed else itemgetter(0, 1, 2))
            for place, (end, start, key, parts) in enumerate(in_order):
                at = end if isinstance(self._windows, SessionWindows) else parts[-1]
                row = self._row(partition, key, start, end, at, parts, place)
                if self._by_record:
                    changed = touched[key].changed_at.get((start, end)) if key in touched else None
                    row = Row(**row.asDict(), closed_by=self._closed_by(end, -1 if changed is None else changed[0]))
                yield row

    def _closed_before(self, newest: int) -> int:
        """Return the time before which the windows end that are closed when the newest record is of this time."""
        if isinstance(self._windows, SessionWindows):
            return newest - self._retention_ms + (not self._has_end)
        return newest - self._grace_ms + (not self._has_end)

    @property
    def _has_end(self) -> bool:
        """Whether a window is open as long as a record may come that is as late as its end: the end belongs to it."""
        return not self._suppressed and (isinstance(self._windows, SessionWindows) or self._windows.slides)

    def _closed_by(self, end: int, changed: int) -> Any:
        """Return the place of the record that has closed a window, or has changed it when it was passed already.

        Args:
            end: Its end in ms.
            changed: The turn of the record that has changed it last; -1 for one before the micro-batch.
        """
        is_session = isinstance(self._windows, SessionWindows)
        closed_at = end + (self._retention_ms if is_session else self._grace_ms) + self._has_end
        if closed_at <= self._newest_before and changed >= 0:
            return self._places[changed]
        moved = bisect_left(self._moved, closed_at, key=itemgetter(0))
        return self._places[max(self._moved[moved][1], changed)] if moved < len(self._moved) else None


def _told(windows: CustomWindows, at: int) -> list[tuple[int, int]]:
    """The windows of a time, or Rejected where their function fails."""
    try:
        return windows.windows_of(at)
    except NOT_OF_A_FUNCTION:
        raise
    except BaseException as error:
        raise Rejected(rejected_by(function_name(windows.function), windows.function, error, REJECT)) from error


def _as_in_buffer(closed: tuple[int, int, bytes, Any]) -> tuple[int, bytes]:
    """The order of the library's buffer: by the end of a window, and by its key as a topic has it (``BufferKey``)."""
    end, start, key, _ = closed
    return end, stored_session_key(key, start, end)
