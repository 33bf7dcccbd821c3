"""The buffer of a stream task that holds back records before they are joined with a versioned table.

Sources: ``KStreamKTableJoinProcessor`` and ``RocksDBTimeOrderedKeyValueBuffer`` of Kafka Streams 4.3. The time that
counts is the newest one of the records that came into the buffer. A record that is older than the grace period when it
comes is passed at once, and passes nothing else. Every other record waits. Then all that has waited long enough is
passed, by time, key and number.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from heapq import heappop, heappush
from itertools import count
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle
from pyspark.sql.types import LongType, StructField, StructType

from streamplan.model.operations import BufferRecords
from streamplan.serdes.join_buffer import MOST_NUMBER, BufferKey
from streamplan.serdes.primitive import String
from streamplan.serdes.serde import MAX_BYTES, Undecodable, too_large
from streamplan.serdes.suppress_buffer import BufferedUpdate
from streamplan.spark.headers import headers_as_text, headers_from_text
from streamplan.spark.planning.function_results import Unfit
from streamplan.spark.planning.process_state import ProcessState
from streamplan.spark.planning.task_state import task_order
from streamplan.spark.sink.spec import NULL_KEY


class BufferState(ProcessState):
    """Holds the records of one stream task. The state has the keys and the values that the changelog has.

    What waits is due at its own time, and is passed when the stream time is later by the grace period. So the state
    says nothing of the grace period, which a later declaration may change.
    """

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state variables."""
        super().init(handle)
        self._numbers = handle.getValueState("number", StructType([StructField("number", LongType())]))

    def _process_all(self, rows: list[Row]) -> Iterator[Row]:
        known = self._numbers.get() if self._numbers.exists() else None
        self._number = known[0] if known else 0
        grace_ms = self._buffer.grace_ms
        self._load_timers(max(self._stream_time, *(row.at for row in rows)) - grace_ms)
        for row in sorted(rows, key=_order):
            places = count()
            value = row.record["value"] if row.value is None else row.value
            if value is None:  # the library drops it
                continue
            if row.key is None:
                if self._buffer.left:  # the library fails
                    yield from self._rows(NULL_KEY, row.at, row.record, places)
                continue
            key, data = bytes(row.key), bytes(value)
            if self._stream_time - grace_ms > row.at:
                yield from self._passed(row, key, data, row.at, row.record["headers"], places)
                continue
            yield from self._put(row, key, data, places)
            yield from self._pass_what_is_due(row, places)
        self._numbers.update((self._number,))

    @cached_property
    def _buffer(self) -> BufferRecords:
        assert isinstance(self._operation, BufferRecords)
        return self._operation

    def _put(self, row: Row, key: bytes, value: bytes, places: Iterator[int]) -> Iterator[Row]:
        record = row.record
        number = 0 if self._number == MOST_NUMBER else self._number + 1
        buffered = BufferKey(row.at, key, number).as_bytes()
        place = record["topic"] or "", record["partition"], record["offset"] or 0
        # The library writes no time behind the value.
        data = BufferedUpdate(value, row.at, 0, *place, headers_from_text(record["headers"])).as_bytes()
        if len(buffered) + len(data) > MAX_BYTES:
            reason = f"the buffer of the join cannot hold it: {too_large(MAX_BYTES)}"
            yield from self._rows(reason, row.at, record, places)
            return
        self._number = number
        self._stream_time = max(self._stream_time, row.at)
        self._entry(buffered).change(data, row.at, row.at)
        heappush(self._waiting, (row.at, buffered))

    def _pass_what_is_due(self, row: Row, places: Iterator[int]) -> Iterator[Row]:
        while self._waiting and self._waiting[0][0] <= self._stream_time - self._buffer.grace_ms:
            _, buffered = heappop(self._waiting)
            entry = self._entry(buffered)
            assert entry.value is not None
            held = BufferedUpdate.parse(entry.value)
            assert held.value is not None
            headers = headers_as_text(held.headers)
            yield from self._passed(row, BufferKey.parse(buffered).key, held.value, held.timestamp, headers, places)
            if entry.is_known:
                entry.change(None, None, self._stream_time)
            else:
                del self._entries[buffered]  # it has come and gone within the micro-batch

    def _passed(
        self, row: Row, key: bytes, value: bytes, at: int, headers: Any, places: Iterator[int]
    ) -> Iterator[Row]:
        """The rows of a record that waits no longer. Their place is that of the record that has let it pass."""
        of_held = {"original_key": key, "value": value, "headers": headers}
        try:
            made: list[dict[str, Any] | None] | str = [self._made.judged(self._serde.decode(value))]
            of_held["key"] = key.decode() if isinstance(self._key_serde, String) else key
        except (Undecodable, Unfit, UnicodeDecodeError) as error:  # an application on the JVM may have written it
            made = f"what the buffer of the join has cannot be read: {error}"
        yield from self._rows(made, at, {**row.record, **of_held}, places)


class RestoredBufferState(BufferState):
    """Puts the records of a changelog into the state that :class:`BufferState` goes on with.

    The newest record of the buffer always waits, unless the grace period is 0. So it tells the stream time.
    """

    def _process_all(self, rows: list[Row]) -> Iterator[Row]:
        number = 0
        for row in rows:
            key = bytes(row.key)
            place = BufferKey.parse(key)
            self._entry(key).change(bytes(row.value), place.timestamp, place.timestamp)
            heappush(self._waiting, (place.timestamp, key))
            self._stream_time = max(self._stream_time, place.timestamp)
            number = max(number, place.number)
        self._numbers.update((number,))
        yield from ()


def _order(row: Row) -> tuple[Any, ...]:
    return task_order(row.record)
