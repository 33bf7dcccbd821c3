"""The buffer of a stream task that holds the updates of a table for some time: ``suppress(UntilTimeLimit(…))``.

Sources: ``KTableSuppressProcessorSupplier`` and ``InMemoryTimeOrderedKeyValueChangeBuffer`` of Kafka Streams 4.3. A key
waits from its first update on. Later updates replace the value, and not the time. What has waited long enough by the
newest update that has come is passed, by time and key. If more keys wait than the buffer takes, those are passed that
wait longest, or the application stops.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from heapq import heappop, heappush
from itertools import count
from typing import Any

from pyspark.sql import Row

from streamplan.errors import StreamplanError
from streamplan.model.operations import SuppressUpdates
from streamplan.model.windows import SessionWindows
from streamplan.serdes.primitive import String
from streamplan.serdes.serde import MAX_BYTES, Undecodable, too_large
from streamplan.serdes.suppress_buffer import BufferedUpdate
from streamplan.spark.headers import headers_as_text, headers_from_text
from streamplan.spark.planning.function_results import Unfit
from streamplan.spark.planning.process_state import ProcessState
from streamplan.spark.planning.task_state import task_order
from streamplan.spark.sink.spec import NULL_KEY


class SuppressState(ProcessState):
    """Holds the updates of one stream task. The state has the bytes that the changelog has."""

    def _process_all(self, rows: list[Any]) -> Iterator[Row]:
        rows = sorted((row for row in rows if not (self._by_task and row.only_time)), key=_order)
        if not rows:
            return
        self._load_timers(max(row.at for row in rows))
        self._waiting_keys = {key for _, key in self._waiting}
        for row in rows:
            places = count()
            if row.key is None:
                yield from self._rows(NULL_KEY, row.at, row.record, places)
                continue
            self._stream_time = max(self._stream_time, row.at)
            yield from self._buffer(row, bytes(row.key), places)
            yield from self._pass_what_is_due(row, places)

    def _load_timers(self, newest: int) -> None:
        if self._suppress.max_records is not None:
            self._earliest = min(self._earliest, newest)  # all that waits is counted
        super()._load_timers(newest)

    @cached_property
    def _suppress(self) -> SuppressUpdates:
        assert isinstance(self._operation, SuppressUpdates)
        return self._operation

    def _buffer(self, row: Any, key: bytes, places: Iterator[int]) -> Iterator[Row]:
        """Put an update in the place of the one of the same key that is waiting, or behind all others."""
        entry = self._entry(key)
        is_waiting = entry.value is not None
        buffered_at = BufferedUpdate.parse(entry.value).buffered_at if entry.value is not None else row.at
        record = row.record
        value = record["value"] if row.value is None else row.value
        update = BufferedUpdate(
            None if value is None else bytes(value),
            row.at,
            buffered_at,
            record["topic"] or "",
            record["partition"],
            record["offset"] or 0,
            headers_from_text(record["headers"]),
        )
        data = update.as_bytes()
        if len(key) + len(data) > MAX_BYTES:
            reason = f"the buffer of suppress cannot hold it: {too_large(MAX_BYTES)}"
            yield from self._rows(reason, row.at, record, places)
            return
        due = buffered_at + self._suppress.limit_ms
        entry.change(data, due, row.at)
        if not is_waiting:
            self._wait(due, key)

    def _pass_what_is_due(self, row: Any, places: Iterator[int]) -> Iterator[Row]:
        while self._waiting:
            due, key = self._waiting[0]
            entry = self._entry(key)
            if entry.due != due or entry.value is None:
                heappop(self._waiting)
                continue
            if due > self._stream_time:
                if not self._is_over_capacity:
                    return
                if self._suppress.shuts_down:
                    raise self._full(row)
            heappop(self._waiting)
            self._waiting_keys.discard(key)
            yield from self._passed(row, key, BufferedUpdate.parse(entry.value), places)
            entry.change(None, None, self._stream_time)

    def _wait(self, due: int, key: bytes) -> None:
        heappush(self._waiting, (due, key))
        self._waiting_keys.add(key)

    @property
    def _is_over_capacity(self) -> bool:
        most = self._suppress.max_records
        return most is not None and len(self._waiting_keys) > most

    def _full(self, row: Any) -> StreamplanError:
        record = row.record
        place = f", at {record['topic']}-{record['partition']} offset {record['offset']}" if record["topic"] else ""
        return StreamplanError(
            f"the buffer {self._operation.store} of suppress is full{place}",
            expected=f"at most {self._suppress.max_records} keys wait in a stream task",
            observed=f"{len(self._waiting_keys)} keys",
            remedy="Nothing of this micro-batch is committed. Declare a greater max_records, and start again.",
        )

    def _passed(self, row: Any, key: bytes, update: BufferedUpdate, places: Iterator[int]) -> Iterator[Row]:
        """The rows of an update, which belong to the record that has let it pass."""
        raw, window = self._unwindowed(key)
        of_update = {
            "key": raw.decode() if isinstance(self._key_serde, String) else raw,
            "original_key": raw,
            "value": update.value,
            "headers": headers_as_text(update.headers),
            **window,
        }
        try:
            value = None if update.value is None else self._made.judged(self._serde.decode(update.value))
            made: list[dict[str, Any] | None] | str = [value]
        except (Undecodable, Unfit) as error:
            made = f"what the buffer of suppress has cannot be read: {error}"
        yield from self._rows(made, update.timestamp, {**row.record, **of_update}, places)

    def _unwindowed(self, key: bytes) -> tuple[bytes, dict[str, int | None]]:
        """A key without its window, and the bounds of the window in ms. The end of a time window is not known here."""
        windows = self._suppress.window
        if windows is None:
            return key, {}
        if isinstance(windows, SessionWindows):
            end, start = (int.from_bytes(key[place:][:8], "big", signed=True) for place in (-16, -8))
            return key[:-16], {"start": start, "end": end}
        return key[:-8], {"start": int.from_bytes(key[-8:], "big", signed=True), "end": None}


class RestoredSuppressState(SuppressState):
    """Puts the updates of a changelog into the state that :class:`SuppressState` goes on with.

    The changelog of a JVM application has the times of its clock. So the stream time is that of the newest update.
    """

    def _process_all(self, rows: list[Any]) -> Iterator[Row]:
        self._waiting_keys = set()
        for row in rows:
            key, data = bytes(row.key), bytes(row.value)
            update = BufferedUpdate.parse(data)
            entry = self._entry(key)
            entry.change(data, update.buffered_at + self._suppress.limit_ms, update.timestamp)
            self._wait(update.buffered_at + self._suppress.limit_ms, key)
            self._stream_time = max(self._stream_time, update.buffered_at, update.timestamp)
        yield from ()


def _order(row: Any) -> tuple[Any, ...]:
    return task_order(row.record)
