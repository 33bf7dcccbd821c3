"""The state of a stream task whose records a Python class or a Python function processes, and what is made of them.

The store has for each key the bytes of its value, as the changelog has them, and the time of the put. The group is the
stream task, and not the key: the stream time, by which timers fire, is one for all keys of a task.

A call of the class changes a copy of its key's value, which is taken over when the call has succeeded. What has changed
in the store is given at the end of a micro-batch, once for each key, as the library's record cache does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import count, groupby
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from streamplan.model.operations import AggregateFunction, Process
from streamplan.model.processor import KeyValueStore, Record
from streamplan.serdes.arrow import struct_type
from streamplan.serdes.moments import as_datetime, as_milliseconds
from streamplan.serdes.primitive import KeySerde, String
from streamplan.serdes.serde import MAX_BYTES, Serde, Undecodable, too_large
from streamplan.spark.headers import headers_from_text
from streamplan.spark.noted_records import note
from streamplan.spark.planning.field_types import in_state
from streamplan.spark.planning.function_fold import Functions, Made, Rejected, Values
from streamplan.spark.planning.function_results import (
    NOT_OF_A_FUNCTION,
    Unfit,
    fields_of,
    rejected_by,
    values_of,
)
from streamplan.spark.planning.keyed_state import KeyedState
from streamplan.spark.planning.python_functions import with_attributes
from streamplan.spark.planning.task_state import NEVER, named_tuples, sweep_is_due, task_order
from streamplan.spark.sink.spec import NULL_KEY

BEFORE_ALL_TIME = -(1 << 63)

_MOST_TIMERS = 10_000
"""A record calls the timer of a key at most so often. A record of the year 9999 would otherwise call one that sets
itself again for years."""


@dataclass
class _Entry:
    """What the store has of a key in a micro-batch.

    Attributes:
        value: In bytes; None for a key without a value.
        put_at: The time in ms of the last put.
        due: The time in ms of the timer; None without one.
        known_due: That of the timer which the state has.
        is_known: Whether the state has a value.
        changed_at: The time in ms of the last change; None where the micro-batch has changed nothing.
    """

    value: bytes | None = None
    put_at: int = BEFORE_ALL_TIME
    due: int | None = None
    known_due: int | None = None
    is_known: bool = False
    changed_at: int | None = None

    @classmethod
    def of(cls, state: Any) -> _Entry:
        """What a row of the state holds; None stands for a key without a row."""
        if state is None:
            return cls()
        value, put_at, due = state
        return cls(bytes(value), put_at, due, due, is_known=True)

    def change(self, value: bytes | None, due: int | None, at: int) -> None:
        self.value, self.due, self.put_at, self.changed_at = value, due, at, at


@dataclass(frozen=True)
class _StoreForm:
    """The form of a store's values: their fields, and the one of them that has the time of the timer."""

    values: Values
    timer: str | None

    def stored(self, value: Any) -> tuple[bytes, int | None]:
        """A value in bytes, and the time of its timer in ms. Raises TypeError where it has another form."""
        try:
            judged = self.values.judged(fields_of(value, self.values.types) or {})
        except Unfit as error:
            raise TypeError(f"the store cannot hold that: {str(error).removeprefix('returned ')}") from error
        return self.values.serde.encode(judged), self._due(judged)

    def due(self, data: bytes) -> int | None:
        """The time of the timer of a value in bytes."""
        return None if self.timer is None else self._due(self.values.serde.decode(data))

    def without_timer(self, data: bytes) -> bytes:
        """A value whose timer has fired."""
        assert self.timer is not None
        return self.values.serde.encode({**self.values.serde.decode(data), self.timer: None})

    def _due(self, value: Mapping[str, Any]) -> int | None:
        moment = None if self.timer is None else value[self.timer]
        return None if moment is None else as_milliseconds(moment)


class _Store(KeyValueStore):
    """The store as one call sees it.

    Args:
        form: The form of its values.
        key: The key as Python code sees it.
        raw_key: The key in bytes.
        value: The value in bytes; None for a key without a value.
        due: The time of its timer in ms.
        later_than: What a new timer must be later than, in ms.
    """

    def __init__(
        self, form: _StoreForm, key: Any, raw_key: bytes, value: bytes | None, due: int | None, later_than: int
    ) -> None:
        self.raw_key, self.value, self.due = raw_key, value, due
        self.is_changed = False
        self._form, self._key, self._later_than = form, key, later_than

    @property
    def key(self) -> Any:
        return self._key

    def get(self) -> Any:  # type: ignore[override]  # a store of one key is asked for none
        return None if self.value is None else self._form.values.seen(self.value)

    def put(self, value: Any, /) -> None:  # type: ignore[override]
        if value is None:
            self.delete()
            return
        data, due = self._form.stored(value)
        if len(self.raw_key) + len(data) > MAX_BYTES:
            raise ValueError(f"the store cannot hold that: {too_large(MAX_BYTES)}")
        if due is not None and due <= self._later_than:
            raise ValueError("a timer that on_timer sets must be later than the time that it was called with")
        self.value, self.due, self.is_changed = data, due, True

    def delete(self) -> None:  # type: ignore[override]
        self.value, self.due, self.is_changed = None, None, True


class ProcessState(KeyedState):
    """Processes the records of one stream task.

    Args:
        operation: What is done with them.
        serde: Reads the values of the records.
        key_serde: Reads their keys.
        sweeps: Whether values that are gone by their time to live are removed where no record asks for them, too.
        by_task: Whether there are rows with ``only_time``, too: the times of all records that the task has read.
    """

    def __init__(
        self, operation: Process, serde: Serde, key_serde: KeySerde, *, sweeps: bool, by_task: bool = False
    ) -> None:
        self._operation, self._serde, self._key_serde = operation, serde, key_serde
        self._by_task = by_task
        self._form = _StoreForm(Values(operation.state), operation.timer)
        self._made = Values(operation.fields)
        self._read_type = struct_type(serde.fields)
        self._ttl_ms = operation.ttl_ms
        self._sweeps = sweeps and self._ttl_ms is not None

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state variables."""
        key = StructType([StructField("key", BinaryType())])
        times = [StructField(name, LongType()) for name in ("put_at", "due")]
        self._stored = handle.getMapState("values", key, StructType([StructField("value", BinaryType()), *times]))
        if self._operation.timer is not None:
            self._timers = handle.getMapState("timers", key, StructType([StructField("due", LongType())]))
        names = ("stream_time", "swept", "earliest")
        self._times = handle.getValueState("times", StructType([StructField(name, LongType()) for name in names]))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        """Process the records of a micro-batch."""
        times = self._times.get() if self._times.exists() else None
        self._stream_time, self._swept, self._earliest = times or (BEFORE_ALL_TIME, BEFORE_ALL_TIME, NEVER)
        self._entries: dict[bytes, _Entry] = {}
        self._waiting: list[tuple[int, bytes]] = []
        self._has_all_timers = False
        yield from self._process_all(list(named_tuples(rows)))
        for name, entry in self._entries.items():
            if entry.changed_at is not None:
                yield Row(partition=key[0], at=entry.changed_at, stored_key=name, stored_value=entry.value)
        self._store()

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _process_all(self, rows: list[Any]) -> Iterator[Row]:
        processor = self._new_processor()
        rows.sort(key=lambda row: task_order(row.record))
        self._load_timers(max(row.at for row in rows))
        # The library looks for timers that are due when the whole sub-topology has processed a record that was read.
        for _, of_one in groupby(rows, key=lambda row: task_order(row.record)[:-1]):
            of_record = list(of_one)
            newest = max(row.at for row in of_record)
            time_moves = newest > self._stream_time
            self._stream_time = max(self._stream_time, newest)
            for row in of_record:
                places = count()
                if not (self._by_task and row.only_time):
                    yield from self._process(processor, row, places)
            if time_moves:
                yield from self._fire(processor, row, places)
                self._sweep()

    def _process(self, processor: Any, row: Any, places: Iterator[int]) -> Iterator[Row]:
        if row.key is None:  # without a key there is no state
            yield from self._rows(NULL_KEY, row.at, row.record, places)
            return
        key, data = bytes(row.key), row.record["value"] if row.value is None else row.value
        topic, partition, offset = (row.record[name] for name in ("topic", "partition", "offset"))
        note(topic, partition, offset)
        function = self._operation.function
        try:
            value = None if data is None else with_attributes(self._serde.decode(bytes(data)), self._read_type)
            read_key, headers = self._key_serde.read_key(key), tuple(headers_from_text(row.record["headers"]))
            record = Record(read_key, value, as_datetime(row.at), topic, partition, offset, headers)
        except Undecodable as error:  # An operation has made what cannot be read, such as a moment in the year 10000.
            unfit = Unfit(f"cannot be called: {error}")
            reason = rejected_by(*self._called(processor), unfit, function.on_error)
            yield from self._rows(reason, row.at, row.record, places)
            return
        made, at = self._made_of(processor, record, key, row.at)
        yield from self._rows(made, at, row.record, places)

    def _new_processor(self) -> Any:
        return self._operation.function.call()

    def _called(self, processor: Any) -> tuple[str, Callable[..., Any]]:
        """What is called with a record, and what its name is."""
        return f"{self._operation.function.name}.process", processor.process

    def _made_of(
        self, processor: Any, record: Record, key: bytes, at: int
    ) -> tuple[list[dict[str, Any] | None] | str, int]:
        """The values that are made of a record, or why that has failed; and their time in ms."""
        entry = self._entry(key)
        held = (entry.value, entry.due) if self._is_live(entry, self._stream_time) else (None, None)
        store = _Store(self._form, record.key, key, *held, BEFORE_ALL_TIME)
        return self._call("process", processor.process, record, store, entry, at), at

    def _call(
        self, name: str, method: Callable[..., Any], subject: Any, store: _Store, entry: _Entry, at: int
    ) -> list[dict[str, Any] | None] | str:
        """The values that a method returns, or why it has failed. Of a failed call nothing remains in the store."""
        function = self._operation.function
        try:
            values = values_of(method(subject, store), self._made.types)
            judged = [None if value is None else self._made.judged(value) for value in values]
        except BaseException as error:  # whatever a class of a declaration raises is the record's reason
            if isinstance(error, NOT_OF_A_FUNCTION):
                raise
            return rejected_by(f"{function.name}.{name}", method, error, function.on_error)
        if store.is_changed:
            entry.change(store.value, store.due, at)
            if store.due is not None:
                heappush(self._waiting, (store.due, store.raw_key))
        return judged

    def _fire(self, processor: Any, row: Any, places: Iterator[int]) -> Iterator[Row]:
        """Call ``on_timer`` for the timers that are due, by their times and keys. The record of ``row`` was processed.

        The value of a timer that has failed is what its dead letter has.
        """
        calls = Counter[bytes]()
        while self._waiting and self._waiting[0][0] <= self._stream_time:
            due, key = heappop(self._waiting)
            entry = self._entry(key)
            if entry.due != due or entry.value is None:  # since then it was set to another time, or removed
                continue
            entry.due = None
            if not self._is_live(entry, due):
                continue
            before = entry.value
            entry.change(self._form.without_timer(before), None, self._stream_time)
            store = _Store(self._form, self._key_serde.read_key(key), key, entry.value, None, due)
            calls[key] += 1
            if calls[key] <= _MOST_TIMERS:
                made = self._call("on_timer", processor.on_timer, as_datetime(due), store, entry, self._stream_time)
            else:
                made = self._too_many(processor)
            in_record = key.decode() if isinstance(self._key_serde, String) else key
            of_timer = {"key": in_record, "original_key": key, "value": before, "headers": None}
            yield from self._rows(made, due, {**row.record, **of_timer}, places)

    def _too_many(self, processor: Any) -> str:
        """The reason of a timer that is not called any more."""
        unfit = Unfit(f"was called {_MOST_TIMERS:,} times for one record, which is that much later than all before")
        name, function = f"{self._operation.function.name}.on_timer", self._operation.function
        return rejected_by(name, processor.on_timer, unfit, function.on_error)

    def _rows(
        self, made: list[dict[str, Any] | None] | str, at: int, record: Mapping[str, Any], places: Iterator[int]
    ) -> Iterator[Row]:
        common = {"partition": record["partition"], "at": at, "record": record}
        if isinstance(made, str):
            yield Row(**common, place=next(places), reason=made)
            return
        for value in made:
            yield Row(**common, place=next(places), fields=in_state(value, self._made.struct))

    def _entry(self, key: bytes) -> _Entry:
        if key not in self._entries:
            known = self._stored.containsKey((key,))  # Spark warns of a value that is not there
            self._entries[key] = _Entry.of(self._stored.getValue((key,)) if known else None)
        return self._entries[key]

    def _is_live(self, entry: _Entry, at: int) -> bool:
        """Whether a key has a value that is not gone at a time."""
        return entry.value is not None and (self._ttl_ms is None or entry.put_at + self._ttl_ms > at)

    def _load_timers(self, newest: int) -> None:
        """Read the timers of all keys, where one of them may be due at a time."""
        if self._operation.timer is not None and self._earliest <= newest:
            self._has_all_timers = True
            self._waiting = [(due, bytes(key)) for (key,), (due,) in list(self._timers.iterator())]
            heapify(self._waiting)

    def _sweep(self) -> None:
        """Remove the values that are gone, from time to time."""
        if not self._sweeps or not sweep_is_due(self._swept, self._stream_time, self._ttl_ms or 0):
            return
        self._swept = self._stream_time
        for (stored_key,), state in list(self._stored.iterator()):
            if (key := bytes(stored_key)) not in self._entries:
                entry = _Entry.of(state)
                if not self._is_live(entry, self._stream_time):
                    self._entries[key] = entry
        for entry in self._entries.values():
            if entry.value is not None and not self._is_live(entry, self._stream_time):
                entry.change(None, None, self._stream_time)

    def _store(self) -> None:
        for key, entry in self._entries.items():
            is_other_timer = entry.due != entry.known_due
            if entry.changed_at is None and not is_other_timer:
                continue
            if entry.value is not None:
                self._stored.updateValue((key,), (entry.value, entry.put_at, entry.due))
            elif entry.is_known:
                self._stored.removeKey((key,))
            if is_other_timer and entry.due is not None:
                self._timers.updateValue((key,), (entry.due,))
            elif is_other_timer:
                self._timers.removeKey((key,))
        waiting = [due for due, key in self._waiting if key not in self._entries or self._entries[key].due == due]
        if not self._has_all_timers:
            waiting.append(self._earliest)
        self._times.update((self._stream_time, self._swept, min(waiting, default=NEVER)))


class AggregateFunctionState(ProcessState):
    """Keeps for each key of one stream task what a function makes of the value so far and of that of a record.

    Source: ``org.apache.kafka.streams.kstream.internals.KStreamReduce`` and ``KStreamAggregate``, with the record cache
    that a store has unless it is turned off: what is removed from a store that does not have it is not passed.
    """

    def _new_processor(self) -> None:
        return None

    def _called(self, processor: Any) -> tuple[str, Callable[..., Any]]:
        return self._operation.function.name, self._operation.function.call

    def _made_of(
        self, processor: Any, record: Record, key: bytes, at: int
    ) -> tuple[list[dict[str, Any] | None] | str, int]:
        if record.value is None:  # the library drops it
            return [], at
        entry = self._entry(key)
        try:
            made = self._functions.added(record.key, key, record.value, [] if entry.value is None else [entry.value])
        except Rejected as error:
            return str(error), at
        return self._put(entry, made, at)

    def _put(self, entry: _Entry, made: Made, at: int) -> tuple[list[dict[str, Any] | None], int]:
        """Put what was made into the store, and return what is passed, with its time. A deletion has the record's."""
        if made.data is not None and entry.value is not None:
            at = max(at, entry.put_at)
        elif made.data is None and entry.value is None:
            return [], at
        entry.change(made.data, None, at)
        return [made.value], at

    @cached_property
    def _functions(self) -> Functions:
        operation = self._operation
        initializer = operation.initializer if isinstance(operation, AggregateFunction) else None
        return Functions(operation.function, initializer, None, operation.fields)


class RestoredProcessState(ProcessState):
    """Puts the values of a changelog into the state that :class:`ProcessState` goes on with.

    The stream time is then that of the newest put.
    """

    def _process_all(self, rows: list[Any]) -> Iterator[Row]:
        for row in rows:
            entry, key, data = _Entry(), bytes(row.key), bytes(row.value)
            entry.change(data, self._form.due(data), row.at)
            self._entries[key] = entry
            if entry.due is not None:
                self._waiting.append((entry.due, key))
            self._stream_time = self._swept = max(self._stream_time, row.at)
        yield from ()
