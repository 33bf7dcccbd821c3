"""Records that Python classes without a store process: each Arrow batch is given to Python, as it is to a function.

What a class forwards belongs to the record that was processed, and has a key, a time and headers of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from streamplan.model.functions import STOP
from streamplan.model.operations import ProcessWithoutStores
from streamplan.model.processor import KeyValueStore, Processor, Record, RecordMetadata
from streamplan.model.processor_stores import require_store
from streamplan.model.windows import Duration
from streamplan.serdes.arrow import python_values, struct_type
from streamplan.serdes.moments import as_datetime, as_milliseconds
from streamplan.serdes.primitive import KeySerde
from streamplan.serdes.serde import Undecodable
from streamplan.spark.arrow_function import ArrowFunction
from streamplan.spark.global_tables import ReadTable, stored_rows_of_job
from streamplan.spark.headers import headers_from_text
from streamplan.spark.noted_records import noted
from streamplan.spark.planning.compiled_plan import map_in_arrow
from streamplan.spark.planning.field_types import declared_type
from streamplan.spark.planning.forwarding import Current, Forwarded, ForwardingContext
from streamplan.spark.planning.function_results import NOT_OF_A_FUNCTION, Unfit, rejected_by
from streamplan.spark.planning.keys import read_key
from streamplan.spark.planning.python_functions import with_attributes
from streamplan.spark.planning.records import CHILD, RecordFrame
from streamplan.spark.planning.task_stores import global_store
from streamplan.spark.sources import HEADERS

_KEY, _HAS_VALUE, _POSITION, _AT, _HEADERS, _CHILD = "_key", "_has_value", "_position", "_at", "_headers", "_child"

_PLACED = {
    _POSITION: pa.int32(),
    _KEY: pa.binary(),
    _HAS_VALUE: pa.bool_(),
    _AT: pa.int64(),
    _HEADERS: pa.string(),
    _CHILD: pa.string(),
}
"""What stands beside the value and the record: the place of a forwarded record, its key, time, headers and child."""


def process_records(
    frame: RecordFrame,
    operation: ProcessWithoutStores,
    subtopology: int,
    children: Sequence[str] = (),
    read_table: ReadTable | None = None,
) -> RecordFrame:
    """Call a class with each record.

    Args:
        frame: The records. The rejected ones pass unchanged.
        operation: What is done with them.
        subtopology: The number of the sub-topology.
        children: The names of the nodes behind it.
        read_table: Reads global tables in the workers. None takes them for empty: where nobody looks at the results.

    Returns:
        The records that the class forwards, and those that are rejected.
    """
    frame = frame.with_fields
    record_type = declared_type(frame.data.schema["record"].dataType)
    columns = [f"`{name}` {of_field}" for name, of_field in operation.fields]
    placed = (
        f"{_POSITION} int, {_KEY} binary, {_HAS_VALUE} boolean, {_AT} bigint, {_HEADERS} {HEADERS}, {_CHILD} string"
    )
    given = frame.data.withColumns({_KEY: frame.key, _HAS_VALUE: frame.has_value})
    made = processed_batches(operation, frame.key_serde, subtopology, children, read_table)
    data = map_in_arrow(given, made, ", ".join([*columns, f"record {record_type}", placed]))

    record, rejected = F.col("record"), F.col("record.reason").isNotNull()
    value = F.when(F.col(_HAS_VALUE), F.lit("").cast("binary"))  # of others it only tells whether there is a value
    parts = {
        "order": F.concat(F.col("record.order"), F.array(F.col(_POSITION))),
        "key": F.when(~rejected, read_key(operation.key_serde, F.col(_KEY))),
        "timestamp": F.when(rejected, F.col("record.timestamp")).otherwise(F.timestamp_millis(_AT)),
        "headers": F.when(rejected, F.col("record.headers")).otherwise(F.col(_HEADERS)),
        "value": F.when(rejected, F.col("record.value")).otherwise(value),
        CHILD: F.col(_CHILD),
    }
    for name, part in parts.items():
        record = record.withField(name, part)
    fields = [f"`{name}`" for name, _ in operation.fields]
    return RecordFrame(
        data.select(*fields, record.alias("record")),
        value_is_raw=False,
        no_rejects=frame.no_rejects and operation.function.on_error == STOP,
        key_serde=operation.key_serde,
    )


def processed_batches(
    operation: ProcessWithoutStores,
    key_serde: KeySerde,
    subtopology: int,
    children: Sequence[str] = (),
    read_table: ReadTable | None = None,
) -> ArrowFunction:
    """Return what makes of Arrow batches the records that a class forwards.

    Args:
        operation: What is done with the records.
        key_serde: Reads their keys.
        subtopology: The number of the sub-topology.
        children: The names of the nodes behind it.
        read_table: Reads global tables in the workers; None takes them for empty.
    """
    value_type = struct_type(dict(operation.fields))

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tasks: dict[int, _Task] = {}
        try:
            yield from processed_by(tasks, batches)
        finally:
            for task in tasks.values():
                task.close()

    def processed_by(tasks: dict[int, _Task], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in noted(batches):
            records = batch.column("record")
            names = [name for name in batch.schema.names if name not in ("record", _KEY, _HAS_VALUE)]
            values, faults = python_values(batch.select(names))
            of_type = pa.struct([batch.schema.field(name) for name in names])
            reasons = pc.struct_field(records, "reason").to_pylist()
            has_value, keys = batch.column(_HAS_VALUE).to_pylist(), batch.column(_KEY).to_pylist()
            rows: list[int] = []
            made: list[Forwarded] = []
            for row, value in enumerate(values):
                forwarded = [Forwarded(None, None, 0, None, None)]
                if reasons[row] is None:
                    of = {name: records[row][name].as_py() for name in _OF_RECORD}
                    task = tasks.get(of["partition"])
                    if task is None:
                        stores = {
                            each.store: global_store(each, stored_rows_of_job(each.topic, read_table))
                            for each in operation.global_stores
                        }
                        task_id = f"{subtopology}_{of['partition']}"
                        context = _Context(operation, children, task_id, stores)
                        task = tasks[of["partition"]] = _Task(operation, context)
                    try:
                        if row in faults:
                            raise Unfit(f"cannot be called: {faults[row]}")
                        seen = with_attributes(value, of_type) if has_value[row] else None
                        key = None if keys[row] is None else key_serde.read_key(keys[row])
                        forwarded = task.process(key, seen, of)
                    except BaseException as error:  # whatever a class of a declaration raises is the record's reason
                        if isinstance(error, NOT_OF_A_FUNCTION):
                            raise
                        told = Unfit(f"cannot be called: {error}") if isinstance(error, Undecodable) else error
                        name, function = f"{operation.function.name}.process", operation.function
                        reasons[row] = rejected_by(name, task.called, told, function.on_error)
                rows += [row] * len(forwarded)
                made += forwarded
            yield _made(batch, reasons, rows, made, value_type)

    return run


_OF_RECORD = ("topic", "partition", "offset", "timestamp", "headers")


def _made(
    batch: pa.RecordBatch,
    reasons: list[str | None],
    rows: list[int],
    made: list[Forwarded],
    value_type: pa.StructType,
) -> pa.RecordBatch:
    records = batch.column("record")
    columns = [
        pa.array(reasons, pa.string()) if part.name == "reason" else column
        for part, column in zip(records.type, records.flatten(), strict=True)
    ]
    judged = pa.StructArray.from_arrays(columns, fields=list(records.type))
    places, last = [], None
    for row in rows:
        places.append(places[-1] + 1 if row == last else 0)
        last = row
    values = pa.array([each.value for each in made], value_type)
    placed = (
        places,
        [each.key for each in made],
        [each.value is not None for each in made],
        [each.at for each in made],
        [each.headers for each in made],
        [each.child for each in made],
    )
    arrays = [pa.array(column, of_type) for column, of_type in zip(placed, _PLACED.values(), strict=True)]
    names = [*value_type.names, "record", *_PLACED]
    taken = judged.take(pa.array(rows, pa.int64()))
    return pa.RecordBatch.from_arrays([*values.flatten(), taken, *arrays], names=names)


class _Task:
    """An object of the class, for the records that a Spark task has of a stream task."""

    def __init__(self, operation: ProcessWithoutStores, context: _Context) -> None:
        self._context = context
        self._processor: Processor = operation.function.call()
        self._processor.init(context)
        self.called, self.close = self._processor.process, self._processor.close

    def process(self, key: Any, value: Any, of: Mapping[str, Any]) -> list[Forwarded]:
        context = self._context
        at = as_milliseconds(of["timestamp"])
        place = RecordMetadata(of["topic"], of["partition"], of["offset"])
        context.current = Current(key, at, of["headers"], place)
        context.forwarded = []
        record = Record(key, value, as_datetime(at), *place, tuple(headers_from_text(of["headers"])))
        context.forward_each(self.called(record))
        return context.forwarded


class _Context(ForwardingContext):
    """The context of a class that keeps nothing."""

    def __init__(
        self,
        operation: ProcessWithoutStores,
        children: Sequence[str],
        task_id: str,
        stores: Mapping[str, KeyValueStore[Any, Any]],
    ) -> None:
        super().__init__(operation, children)
        self._task_id, self._stores = task_id, stores

    @property
    def task_id(self) -> str:
        return self._task_id

    def get_state_store(self, name: str) -> Any:
        require_store(name, self._stores)
        return self._stores[name]

    def current_stream_time(self) -> datetime | None:
        raise RuntimeError("a processor without a store does not know the stream time: declare a store with stores=…")

    def current_system_time(self) -> NoReturn:
        raise RuntimeError("a processor without a store is told no time: declare a store with stores=…")

    def schedule(self, interval: Duration, punctuation: str, punctuator: Any) -> NoReturn:
        raise RuntimeError("a processor without a store schedules nothing: declare a store with stores=…")
