"""The state of an operation that needs the value which its table had of a key before an update.

Sources: ``KTableRepartitionMap`` and ``KTableFilter`` of Kafka Streams 4.3, with the record cache that a store has
unless it is turned off: what is removed from a table that does not have it is not passed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from streamplan.model.windows import SessionWindows, TimeWindows
from streamplan.serdes.changes import written_change
from streamplan.serdes.serde import MAX_BYTES
from streamplan.spark.planning.keyed_state import KeyedState
from streamplan.spark.planning.task_state import named_tuples, sweep_is_due, task_order


class Grouped(NamedTuple):
    """What an operation has made of a value.

    Attributes:
        to: The new key in bytes; None of a filter, which keeps the key.
        value: The value in bytes; empty of a filter, of which it only tells that there is one.
    """

    to: bytes | None
    value: bytes


class OldValuesState(KeyedState):
    """Takes the updates of one key of one stream task, and leaves out those of nothing by nothing.

    Args:
        sends: Whether records for a repartition topic are made: ``sent``, to the key ``to``, at ``place`` among those
            of an update.
        restored: Whether the rows are those of a changelog, and no updates.
    """

    def __init__(self, *, sends: bool, restored: bool) -> None:
        self._sends, self._restored = sends, restored

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state variable."""
        self._state = handle.getValueState("old", _GROUPED)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        """Process the updates of a key in a micro-batch."""
        stored = _grouped(self._state.get()) if self._state.exists() else None
        old = stored
        for row in self._in_order(rows):
            new = _made(row)
            yield from self._passed(row, new, old)
            old = new
        if old is not None and old != stored:
            self._state.update(tuple(old))
        elif old is None and stored is not None:
            self._state.clear()

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _in_order(self, rows: Iterable[Any]) -> list[Any]:
        # A look-up in the same table restores it from every record.
        place = (lambda row: row.record["offset"] or 0) if self._restored else (lambda row: task_order(row.record))
        return sorted(named_tuples(rows), key=place)

    def _passed(self, row: Any, new: Grouped | None, old: Grouped | None) -> Iterator[Row]:
        if self._restored or (new is None and old is None):
            return
        if not self._sends:
            yield Row(**row._asdict())
            return
        for place, (to, sent) in enumerate(sent_records(new, old)):
            yield Row(**{**row._asdict(), "to": to, "value": None}, sent=sent, place=place)


class OldWindowsState(OldValuesState):
    """Takes the updates of the windows of one stream task. It forgets a window when no update of it can come.

    Each record that moves the time of the stream task on gives an update with its time. So the updates tell the time.

    Args:
        windows: Those of the table.
        sends: As for :class:`OldValuesState`.
        restored: As for :class:`OldValuesState`.
    """

    def __init__(self, windows: TimeWindows | SessionWindows, *, sends: bool, restored: bool) -> None:
        super().__init__(sends=sends, restored=restored)
        self._windows = windows

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state variables."""
        bounds = [StructField(name, LongType()) for name in ("start", "end")]
        self._of_windows = handle.getMapState("old", StructType([StructField("key", BinaryType()), *bounds]), _GROUPED)
        times = [StructField(name, LongType()) for name in ("newest", "swept")]
        self._times = handle.getValueState("times", StructType(times))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        """Process the updates of a stream task in a micro-batch."""
        newest, swept = (self._times.get() if self._times.exists() else None) or (-1, -1)
        stored: dict[_Window, Grouped | None] = {}
        known: dict[_Window, Grouped | None] = {}
        for row in self._in_order(rows):
            window = _Window(bytes(row.key), row.start, row.end)
            if window not in stored:
                stored[window] = known[window] = self._stored(window)
            new = _made(row)
            yield from self._passed(row, new, None if self._is_forgotten(window, newest) else known[window])
            known[window] = new
            newest = max(newest, row.end if isinstance(self._windows, SessionWindows) else row.at)
        for window, old in known.items():
            kept = None if self._is_forgotten(window, newest) else old
            if kept is not None and kept != stored[window]:
                self._of_windows.updateValue(window, kept)
            elif kept is None and stored[window] is not None:
                self._of_windows.removeKey(window)
        if sweep_is_due(swept, newest, self._windows.retention_ms):
            swept = newest
            for (name, start, end), _ in list(self._of_windows.iterator()):
                if self._is_forgotten(window := _Window(bytes(name), start, end), newest):
                    self._of_windows.removeKey(window)
        self._times.update((newest, swept))

    def _stored(self, window: _Window) -> Grouped | None:
        # Spark warns of a value that is not there.
        return _grouped(self._of_windows.getValue(window)) if self._of_windows.containsKey(window) else None

    def _is_forgotten(self, window: _Window, newest: int) -> bool:
        """Whether the store of the table has forgotten a window, or takes no update of it any more."""
        if isinstance(self._windows, SessionWindows):
            return window.end <= newest - self._windows.retention_ms
        return window.end < newest - self._windows.grace_ms


class _Window(NamedTuple):
    """A window of a key, with its bounds in ms."""

    key: bytes
    start: int
    end: int


def sent_records(new: Grouped | None, old: Grouped | None) -> Iterator[tuple[bytes, bytes]]:
    """Yield the key and the value of each record that an update of a grouped table gives.

    It is one record where the group stays, and the topic takes it: else the old value goes first.

    Args:
        new: What the table has now.
        old: What it had.
    """
    if new is not None and old is not None and new.to == old.to:
        sent = written_change(new.value, old.value)
        if len(new.to or b"") + len(sent) <= MAX_BYTES:
            yield new.to or b"", sent
            return
    if old is not None:
        yield old.to or b"", written_change(None, old.value)
    if new is not None:
        yield new.to or b"", written_change(new.value, None)


_GROUPED = StructType([StructField(name, BinaryType()) for name in Grouped._fields])


def _grouped(state: Any) -> Grouped:
    to, value = map(_bytes, state)
    return Grouped(to, value or b"")


def _made(row: Any) -> Grouped | None:
    """What the operation has made of the value of an update; None of a deletion."""
    value = _bytes(row.value)
    return None if value is None else Grouped(_bytes(row.to), value)


def _bytes(data: bytes | bytearray | None) -> bytes | None:
    return None if data is None else bytes(data)
