"""The state of a stream task whose records Python classes process that have all keys of some stores.

The group is the stream task, so each store has all of its keys. A call of a class that fails changes no store and
forwards nothing. What has changed in the stores is given at the end of a micro-batch, once for each key, as the
library's record cache does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import count, groupby
from typing import Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from streamplan.model.operations import Columns, ProcessWithStores, StateStore
from streamplan.model.processor import Cancellable, Processor, Record, RecordMetadata
from streamplan.model.processor_stores import require_store, schedule_of
from streamplan.model.windows import STORED_SESSION_BYTES, STORED_WINDOW_BYTES, Duration
from streamplan.serdes.arrow import struct_type
from streamplan.serdes.field_types import StructType as DeclaredStruct
from streamplan.serdes.field_types import parse_type
from streamplan.serdes.moments import as_datetime
from streamplan.serdes.primitive import KeySerde
from streamplan.serdes.serde import Serde, Undecodable
from streamplan.spark.global_tables import ReadTable as ReadGlobalTable
from streamplan.spark.global_tables import stored_rows_of_job
from streamplan.spark.headers import headers_from_text
from streamplan.spark.noted_records import note
from streamplan.spark.planning.field_types import in_state
from streamplan.spark.planning.forwarding import Current, ForwardingContext
from streamplan.spark.planning.function_results import NOT_OF_A_FUNCTION, Unfit, rejected_by
from streamplan.spark.planning.keyed_state import KeyedState
from streamplan.spark.planning.punctuators import Punctuators
from streamplan.spark.planning.python_functions import with_attributes
from streamplan.spark.planning.task_state import named_tuples, sweep_is_due, task_order
from streamplan.spark.planning.task_stores import (
    BEFORE_ALL_TIME,
    ReadTable,
    TableStore,
    TaskStore,
    bounds_of,
    global_store,
    start_of,
)
from streamplan.spark.sink.writers import times_by_clock

RECORD = ("topic", "partition", "offset", "headers", "original_key", "value", "reason", "order", "partition_time")
"""The parts of ``record`` that the rows of all classes have."""

_NO_RECORD: Mapping[str, Any] = {**dict.fromkeys(RECORD), "order": []}


@dataclass(frozen=True)
class TaskProcessor:
    """A class, and the records that it processes.

    Attributes:
        name: The name of its node.
        operation: What is done with the records.
        serde: Reads their values.
        key_serde: Reads their keys.
        children: The names of the nodes behind it.
    """

    name: str
    operation: ProcessWithStores
    serde: Serde
    key_serde: KeySerde
    children: tuple[str, ...] = ()

    @cached_property
    def read_type(self) -> pa.StructType:
        """The type of the values of the records."""
        return struct_type(self.serde.fields)

    @cached_property
    def made_type(self) -> pa.StructType:
        """The type of the values that are forwarded."""
        return struct_type(dict(self.operation.fields))

    @cached_property
    def made_struct(self) -> DeclaredStruct:
        """The same in the words of the serdes."""
        return struct_of(self.operation.fields)


def struct_of(fields: Columns) -> DeclaredStruct:
    """Return the type of a value with these fields."""
    return DeclaredStruct(tuple((name, parse_type(of_field)) for name, of_field in fields))


class _Context(ForwardingContext):
    """What a class has in one micro-batch.

    Args:
        task: The class.
        task_id: The stream task.
        stores: The stores of the stream task, and those of other operations.
        of: The place of the class.
        punctuators: Those of the stream task.
        read_table: Reads global tables; None takes them for empty.
    """

    def __init__(
        self,
        task: TaskProcessor,
        task_id: str,
        stores: Mapping[str, TaskStore | ReadTable],
        of: int,
        punctuators: Punctuators,
        read_table: ReadGlobalTable | None,
    ) -> None:
        super().__init__(task.operation, task.children)
        self._task, self._task_id, self._of, self._punctuators = task, task_id, of, punctuators
        self._stores = {name: stores[name].seen for name in task.operation.stores}
        for of_table in task.operation.global_stores:
            self._stores[of_table.store] = global_store(of_table, stored_rows_of_job(of_table.topic, read_table))
        self.stream_time = BEFORE_ALL_TIME
        self.processor: Processor | None = None
        """The object of the class, when its ``init`` was called."""

    @property
    def task_id(self) -> str:
        return self._task_id

    def get_state_store(self, name: str) -> Any:
        require_store(name, self._stores)
        return self._stores[name]

    def current_stream_time(self) -> datetime | None:
        return None if self.stream_time == BEFORE_ALL_TIME else as_datetime(self.stream_time)

    def current_system_time(self) -> datetime:
        return as_datetime(self._punctuators.system_time())

    def schedule(self, interval: Duration, punctuation: str, punctuator: Callable[[datetime], Any]) -> Cancellable:
        schedule = schedule_of(interval, punctuation)
        if self.processor is None:
            return self._punctuators.schedule_in_init(self._of, schedule, punctuator)
        return self._punctuators.schedule_later(self._of, schedule, punctuator, self.processor)

    def _made(self, value: dict[str, Any]) -> dict[str, Any]:
        judged = pa.scalar(value, self._task.made_type)
        made: dict[str, Any] = in_state(judged.as_py(maps_as_pydicts="strict"), self._task.made_struct)
        return made


class ProcessStoresState(KeyedState):
    """Processes the records of one stream task.

    Args:
        subtopology: The number of the sub-topology.
        tasks: The classes. A row of a record has the place of its class in ``of``; one without only has a time.
        stores: What writes each store, in the order of the state's variables.
        tables: The stores of other operations that the classes read. A row with a change of one has its place from the
            end in ``of``: -1 for the first one.
        read_table: Reads global tables; None takes them for empty.
    """

    def __init__(
        self,
        subtopology: int,
        tasks: Sequence[TaskProcessor],
        stores: Sequence[StateStore],
        tables: Sequence[TableStore] = (),
        read_table: ReadGlobalTable | None = None,
    ) -> None:
        self._read_table = read_table
        self._subtopology, self._tasks, self._operations, self._tables = subtopology, tasks, stores, tables

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state variables."""
        key, value = (StructType([StructField(name, BinaryType())]) for name in ("key", "value"))
        self._states = [handle.getMapState(f"store{n}", key, value) for n in range(len(self._operations))]
        self._read_states = [handle.getMapState(f"table{n}", key, value) for n in range(len(self._tables))]
        names = ("stream_time", "wall_clock", "began", "swept", *(f"observed{n}" for n in range(len(self._operations))))
        self._times = handle.getValueState("times", StructType([StructField(name, LongType()) for name in names]))
        self._scheduled = handle.getValueState("scheduled", StructType([StructField("kept", StringType())]))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        """Process the records of a micro-batch."""
        times: Sequence[int] | None = self._times.get() if self._times.exists() else None
        times = times or (BEFORE_ALL_TIME,) * (4 + len(self._operations))
        self._stream_time, self._wall_clock, self._began, self._swept = times[:4]
        self._stores = [TaskStore(*each) for each in zip(self._operations, self._states, times[4:], strict=True)]
        self._read = [ReadTable(*each) for each in zip(self._tables, self._read_states, strict=True)]
        self._processors: list[Processor] = []
        try:
            yield from self._process_all(key[0], list(named_tuples(rows)))
        finally:
            for processor in self._processors:
                processor.close()
        newest = max((store.observed for store in self._stores), default=BEFORE_ALL_TIME)
        retention = min((store.kept_ms for store in self._stores if store.kept_ms), default=None)
        if retention is not None and sweep_is_due(self._swept, newest, retention):
            self._swept = newest
            for store in self._stores:
                store.sweep()
        for place, store in enumerate(self._stores):
            yield from self._changes(key[0], place, store)
        for table in self._read:
            table.store()
        self._times.update(
            (self._stream_time, self._wall_clock, self._began, self._swept, *(each.observed for each in self._stores))
        )

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _changes(self, partition: int, place: int, store: TaskStore) -> Iterator[Row]:
        for number, change in enumerate(store.store()):
            common = {"partition": partition, "at": change.at, "store": place, "stored_value": change.value}
            if store.is_versioned:
                yield Row(**common, stored_key=change.key, place=number)
                continue
            if store.operation.retention_ms is None:
                yield Row(**common, stored_key=change.key)
                continue
            if store.has_sessions:
                start, end = bounds_of(change.key)
                yield Row(**common, stored_key=change.key[:-STORED_SESSION_BYTES], start=start, end=end)
                continue
            number = int.from_bytes(change.key[-4:], "big")
            own = {"stored_key": change.key[:-STORED_WINDOW_BYTES], "start": start_of(change.key), "number": number}
            yield Row(**common, **own)

    def _process_all(self, partition: int, rows: list[Any]) -> Iterator[Row]:
        now = times_by_clock().get(partition)
        if now is not None:
            now = max(now, self._wall_clock)  # the clock was set back
        self._open(f"{self._subtopology}_{partition}", now)
        of_state: Sequence[str] | None = self._scheduled.get() if self._scheduled.exists() else None
        kept = None if of_state is None else of_state[0]
        self._punctuators.go_on(kept, self._processors)
        # A tick has no record. It only lets the micro-batch reach this stream task.
        rows = sorted((row for row in rows if row.record is not None), key=_order)
        # The updates of an aggregate are in its record cache, and so in its store, before any of them is passed.
        for row in rows:
            if _is_of_table(row) and row.record["topic"] is None:
                self._take_over(row)
        rows = [row for row in rows if not (_is_of_table(row) and row.record["topic"] is None)]
        # The library looks for punctuators that are due when the sub-topology has processed a record that was read.
        for _, of_one in groupby(rows, key=lambda row: task_order(row.record)[:-1]):
            of_record = list(of_one)
            self._stream_time = max(self._stream_time, *(row.at for row in of_record))
            places = count()
            for row in of_record:
                if _is_of_table(row):
                    self._take_over(row)
                elif row.of is not None:
                    yield from self._process(row, places)
            yield from self._punctuate(self._stream_time, False, row.record, places)
        if now is not None:
            if self._wall_clock == BEFORE_ALL_TIME:  # the library's first call is an interval after the start
                self._began = now
            self._wall_clock = now
            self._punctuators.start_clock(now)
            yield from self._punctuate(now, True, {**_NO_RECORD, "partition": partition}, count())
        self._keep_punctuators(kept)

    def _take_over(self, row: Any) -> None:
        """Take over a change of the store of another operation."""
        value = row.record["value"] if row.value is None else row.value
        self._read[-1 - row.of].put(bytes(row.key), None if value is None else bytes(value), row.at)

    def _keep_punctuators(self, before: str | None) -> None:
        kept = self._punctuators.to_keep(self._processors)
        if kept is None and before is not None:
            self._scheduled.clear()
        elif kept is not None and kept != before:
            self._scheduled.update((kept,))

    def _open(self, task_id: str, now_ms: int | None) -> None:
        stores: dict[str, TaskStore | ReadTable] = {store.operation.store: store for store in self._stores}
        stores |= {table.name: read for table, read in zip(self._tables, self._read, strict=True)}
        schedules = (each for task in self._tasks for each in task.operation.schedules if each.wall_clock)
        self._punctuators = Punctuators(
            [task.name for task in self._tasks],
            _known(self._stream_time),
            _known(self._wall_clock),
            _known(self._began),
            now_ms,
            min((each.interval_ms for each in schedules), default=None),
        )
        self._contexts = [
            _Context(task, task_id, stores, of, self._punctuators, self._read_table)
            for of, task in enumerate(self._tasks)
        ]
        self._processors = [task.operation.function.call() for task in self._tasks]
        for context, processor in zip(self._contexts, self._processors, strict=True):
            processor.init(context)
            context.processor = processor

    def _process(self, row: Any, places: Iterator[int]) -> Iterator[Row]:
        task, context = self._tasks[row.of], self._contexts[row.of]
        data = row.record["value"] if row.value is None else row.value
        topic, partition, offset = (row.record[name] for name in ("topic", "partition", "offset"))
        note(topic, partition, offset)
        headers = row.record["headers"]

        def call() -> Any:
            try:
                value = None if data is None else with_attributes(task.serde.decode(bytes(data)), task.read_type)
                key = None if row.key is None else task.key_serde.read_key(bytes(row.key))
            except Undecodable as error:
                # An operation has made what cannot be read, such as a moment in the year 10000.
                raise Unfit(f"cannot be called: {error}") from error
            place = None if topic is None else RecordMetadata(topic, partition, offset)
            context.current = Current(key, row.at, headers, place)
            at = as_datetime(row.at)
            record = Record(key, value, at, topic, partition, offset, tuple(headers_from_text(headers)))
            return self._processors[row.of].process(record)

        yield from self._called(row.of, "process", call, row.at, row.record, places)

    def _punctuate(self, now: int, wall_clock: bool, record: Mapping[str, Any], places: Iterator[int]) -> Iterator[Row]:
        """Call the punctuators that are due. ``record`` has moved the time on."""
        nothing = {"original_key": None, "value": None, "headers": None}
        for punctuator in self._punctuators.due(now, wall_clock=wall_clock):
            self._contexts[punctuator.of].current = Current(None, now, None)

            def call(punctuate: Callable[[datetime], Any] = punctuator.call) -> Any:
                return punctuate(as_datetime(now))

            yield from self._called(punctuator.of, punctuator.name, call, now, {**record, **nothing}, places)

    def _called(
        self,
        of: int,
        name: str,
        call: Callable[[], Any],
        at: int,
        record: Mapping[str, Any],
        places: Iterator[int],
    ) -> Iterator[Row]:
        """The rows of what a call forwards, or of why it has failed. Of a failed call nothing remains in the stores."""
        context, function = self._contexts[of], self._tasks[of].operation.function
        context.stream_time, context.forwarded = self._stream_time, []
        observed = [store.observed for store in self._stores]
        for store in self._stores:
            store.at = at
        common = {"partition": record["partition"], "of": of, "record": record}
        try:
            context.forward_each(call())
        except BaseException as error:  # whatever a class of a declaration raises is the record's reason
            if isinstance(error, NOT_OF_A_FUNCTION):
                raise
            for store, newest in zip(self._stores, observed, strict=True):
                store.keys.take_back()
                store.observed = newest
            self._punctuators.take_back(self._processors[of])
            method = getattr(self._processors[of], "process", call)
            reason = rejected_by(f"{function.name}.{name}", method, error, function.on_error)
            yield Row(**common, at=at, place=next(places), reason=reason)
            return
        for store in self._stores:
            store.keys.keep()
        self._punctuators.keep()
        for made in context.forwarded:
            fields = {} if made.value is None else {f"fields{of}": made.value}
            own = {"key": made.key, "headers": made.headers, "child": made.child}
            yield Row(**common, at=made.at, place=next(places), **own, **fields)


def _known(time: int) -> int | None:
    return None if time == BEFORE_ALL_TIME else time


def _is_of_table(row: Any) -> bool:
    """Whether a row is a change of the store of another operation."""
    return row.of is not None and row.of < 0


def _order(row: Any) -> tuple[Any, ...]:
    """What sorts rows: by their records, and the change of a table before what is made of its record."""
    *of_record, place = task_order(row.record)
    return (*of_record, not _is_of_table(row), place)


class RestoredProcessStores(ProcessStoresState):
    """Puts what changelogs have into the state that :class:`ProcessStoresState` goes on with.

    The stream time is then that of the newest record of a changelog.

    Args:
        subtopology: As for :class:`ProcessStoresState`.
        tasks: As for :class:`ProcessStoresState`.
        stores: As for :class:`ProcessStoresState`.
        tables: As for :class:`ProcessStoresState`.
        times: By partition the time in ms that the wall clock has given to a stream task.
    """

    def __init__(
        self,
        subtopology: int,
        tasks: Sequence[TaskProcessor],
        stores: Sequence[StateStore],
        times: Mapping[int, int],
        tables: Sequence[TableStore] = (),
    ) -> None:
        super().__init__(subtopology, tasks, stores, tables)
        self._restored = times

    def _process_all(self, partition: int, rows: list[Any]) -> Iterator[Row]:
        for row in sorted(rows, key=lambda row: row.offset or 0):
            if _is_of_table(row):
                self._stream_time = max(self._stream_time, row.at)
                self._read[-1 - row.of].put(bytes(row.key), None if row.value is None else bytes(row.value), row.at)
                continue
            store = self._stores[row.of]
            if not store.has_times and not store.is_versioned:  # such a time is that of a value, and may be any
                self._stream_time = max(self._stream_time, row.at)
            store.restore(bytes(row.key), None if row.value is None else bytes(row.value), row.at)
            store.keys.keep()
        self._wall_clock = self._began = self._restored.get(partition, self._wall_clock)
        yield from ()

    def _changes(self, partition: int, place: int, store: TaskStore) -> Iterator[Row]:
        list(store.keys.store())
        yield from ()
