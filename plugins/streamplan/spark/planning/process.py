"""Records that a Python class, or a Python function, processes with the state of their key: ``transformWithState``.

:mod:`streamplan.spark.planning.process_state` has the state of a stream task, and calls the class. What it makes of a
record belongs to that record. What the store has changed is given at the end of a micro-batch, so that a micro-batch is
committed as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, StringType, StructField, StructType

from streamplan.model.functions import STOP
from streamplan.model.operations import (
    AggregateFunction,
    BufferRecords,
    Operation,
    Process,
    ReduceFunction,
    SuppressUpdates,
    TableAggregate,
    TableCount,
    TableReduce,
)
from streamplan.model.processor_topology import Processor
from streamplan.model.windows import SessionWindows, TimeWindows
from streamplan.serdes.field_types import FieldType, parse_type
from streamplan.serdes.internal import repartition_serde
from streamplan.serdes.primitive import Bytes
from streamplan.serdes.suppress_buffer import FORMAT as BUFFERED
from streamplan.spark.planning.aggregation import stored_record
from streamplan.spark.planning.buffer_state import BufferState, RestoredBufferState
from streamplan.spark.planning.field_types import as_state, from_state, state_name
from streamplan.spark.planning.function_fold import fields_of_reducer
from streamplan.spark.planning.keys import big_endian
from streamplan.spark.planning.process_state import AggregateFunctionState, ProcessState, RestoredProcessState
from streamplan.spark.planning.records import RecordFrame
from streamplan.spark.planning.suppress_state import RestoredSuppressState, SuppressState
from streamplan.spark.planning.table_aggregate_state import TableAggregateState
from streamplan.spark.planning.task_state import record_in_state, record_of_state
from streamplan.spark.planning.window_bounds import told_end

_BEHIND_ALL = (1 << 31) - 1
"""A place behind all that is made of a record."""


def resolve_operation(node: Processor, records: RecordFrame) -> Process:
    """Return the operation of a processor, with the fields of its values: those of a reducer are those of its records.

    Args:
        node: A processor with a Python class, or with functions that aggregate.
        records: What it processes.

    Raises:
        Refused: A store cannot hold the values of the records.
    """
    operation = node.operation
    assert isinstance(operation, Process), f"{node.name} calls no class"
    takes_fields = ReduceFunction | TableReduce | SuppressUpdates | BufferRecords
    if not isinstance(operation, takes_fields) or isinstance(operation, TableAggregate):
        return operation
    fields = fields_of_reducer(records)
    return replace(operation, state=fields, fields=fields)


def process_records(
    node: Processor, records: RecordFrame, read: Sequence[RecordFrame] = (), *, sweeps: bool = True
) -> DataFrame:
    """Process the records of each stream task.

    Args:
        node: A processor with a Python class.
        records: What it processes. None is rejected. A record without a key becomes a dead letter.
        read: All records that the stream task reads, where the stream time is that of the task. Without them it is
            that of the records that come to the class.
        sweeps: Whether values that are gone by their time to live are removed where no record asks for them, too.

    Returns:
        A row for each record that the class gives, with its value in ``fields``; it belongs to the ``record`` that was
        processed, or that has moved the time on, and ``place`` is its place among the rows of that one. A row with a
        ``reason`` is a dead letter. A row with ``stored_key`` is a change of the store, once for each key.

    Raises:
        Refused: A field of the records has a type that Python is not given.
    """
    rows = records.data.select(
        F.col("record.partition").alias("partition"),
        F.unix_millis("record.timestamp").alias("at"),
        _key_of(records).alias("key"),
        # A value that an operation has made stands beside the record, which keeps the value that was read.
        (F.lit(None).cast("binary") if records.value_is_raw else records.value).alias("value"),
        _in_state(records).alias("record"),
    )
    of_record = cast(StructType, rows.schema["record"].dataType)
    if read:
        rows = reduce(DataFrame.unionByName, (_times(frame, rows.schema) for frame in read), _with_times(rows))
    operation = resolve_operation(node, records)
    of_task: type[ProcessState] = ProcessState
    if isinstance(operation, TableReduce):
        of_task = TableAggregateState
    elif isinstance(operation, ReduceFunction | AggregateFunction):
        of_task = AggregateFunctionState
    elif isinstance(operation, SuppressUpdates):
        of_task = SuppressState
    elif isinstance(operation, BufferRecords):
        of_task = BufferState
    state = of_task(operation, records.schema, records.key_serde, sweeps=sweeps, by_task=bool(read))
    return _transformed(rows, state, operation, of_record)


def restore_process(node: Processor, records: RecordFrame, stored: DataFrame) -> DataFrame:
    """Read the values of a changelog into the state that :func:`process_records` goes on with.

    Args:
        node: As for :func:`process_records`.
        records: What is processed; only what is known of the records is used.
        stored: The last record of each key of the changelog, in the columns :data:`streamplan.spark.sources.RAW`.
    """
    rows = stored.select("partition", F.unix_millis("timestamp").alias("at"), "key", "value")
    operation = resolve_operation(node, records)
    serde = repartition_serde({name: parse_type(of_field) for name, of_field in operation.state})
    of_task: type[ProcessState] = RestoredProcessState
    if isinstance(operation, SuppressUpdates):
        of_task = RestoredSuppressState
    elif isinstance(operation, BufferRecords):
        of_task = RestoredBufferState
    state = of_task(operation, serde, records.key_serde, sweeps=False)
    # It passes no record. Other state of the sub-topology that is restored behind it asks for the type.
    of_record = records.data.select(_in_state(records).alias("record")).schema["record"].dataType
    return _transformed(rows, state, operation, of_record)


def stored_changes(node: Processor, batch: DataFrame, records: RecordFrame) -> RecordFrame:
    """Return the changes of the store as records. Their values in bytes are what goes into the changelog.

    Args:
        node: As for :func:`process_records`.
        batch: What :func:`process_records` gave.
        records: What was processed; only what is known of the keys is used.
    """
    changes = batch.where("stored_key is not null").withColumn("timestamp", F.timestamp_millis("at"))
    # In the buffer of a join the key of a record stands between its time and its number.
    # In that of suppress the window stands behind the key.
    key_serde = Bytes() if isinstance(node.operation, BufferRecords) or records.windowed else records.key_serde
    record = F.struct(*stored_record(F.col("stored_key"), F.col("stored_value"), key_serde)).alias("record")
    return RecordFrame(
        changes.select(record),
        value_is_raw=True,
        no_rejects=True,
        key_not_null=True,
        format=_format_of(node.operation),
        key_serde=key_serde,
    )


def processed_records(node: Processor, batch: DataFrame, records: RecordFrame) -> RecordFrame:
    """Return the records that the class has given. Those for which it has failed are rejected.

    Args:
        node: As for :func:`process_records`.
        batch: What :func:`process_records` gave.
        records: What was processed; only what is known of the keys is used.
    """
    operation = resolve_operation(node, records)
    rejected = F.col("reason").isNotNull()
    # The value that was read is what a dead letter has. Of others it only tells whether there is a value.
    has_value = F.when(F.col("fields").isNotNull(), F.lit("").cast("binary"))
    record = record_of_state(records.key_serde).withField("reason", F.col("reason"))
    if isinstance(operation, SuppressUpdates) and operation.window is not None:
        record = _with_window(record, operation.window)
    record = record.withField("value", F.when(rejected, F.col("record.value")).otherwise(has_value))
    record = record.withField("order", F.concat(F.col("record.order"), F.array(F.col("place"))))
    fields = [
        from_state(F.col(f"fields.`{state_name(name, place)}`"), of_field).alias(name)
        for place, (name, of_field) in enumerate(_types_of(operation).items())
    ]
    counts = isinstance(operation, TableCount)
    if isinstance(operation, SuppressUpdates):  # what it passes of a count is a count
        counts = records.format == "count"
    if counts:
        value = F.when(rejected, F.col("record.value")).otherwise(big_endian(F.col("fields.count")))
        record = record.withField("value", value)
    return replace(
        records,
        data=batch.where("stored_key is null").select(*fields, record.alias("record")),
        value_is_raw=counts,
        no_rejects=operation.function.on_error == STOP and records.key_not_null,
        key_not_null=True,
        serde=None,
        format="count" if counts else None,
    )


def _key_of(records: RecordFrame) -> Column:
    """The key in bytes, with its window behind it as the library's serdes of windows write it."""
    if not records.windowed:
        return records.key
    start, end = (big_endian(F.unix_millis(f"record.window.{name}")) for name in ("start", "end"))
    return F.concat(records.key, end, start) if records.is_of_sessions else F.concat(records.key, start)


def _in_state(records: RecordFrame) -> Column:
    """The records for a state, with the bounds of their windows in ms."""
    record = record_in_state(records)
    if not records.windowed:
        return record
    bounds = {name: F.unix_millis(f"record.window.{name}") for name in _BOUNDS}
    record = record.dropFields("window")
    for name, bound in bounds.items():
        record = record.withField(name, bound)
    return record


def _with_window(record: Column, windows: TimeWindows | SessionWindows) -> Column:
    """Return ``record`` with the window that :func:`_in_state` has taken out of it. Its end follows from its start."""
    start = F.col("record.start")
    end = F.col("record.end") if isinstance(windows, SessionWindows) else told_end(windows, start)
    bounds = (F.timestamp_millis(bound).alias(name) for name, bound in zip(_BOUNDS, (start, end), strict=True))
    return record.dropFields(*_BOUNDS).withField("window", F.struct(*bounds))


_BOUNDS = ("start", "end")


def _format_of(operation: Operation) -> str:
    """The encoding of what a store holds."""
    if isinstance(operation, SuppressUpdates | BufferRecords):
        return BUFFERED
    return "count" if isinstance(operation, TableCount) else "json"


def _with_times(rows: DataFrame) -> DataFrame:
    return rows.withColumn("only_time", F.lit(False))


def _times(frame: RecordFrame, schema: StructType) -> DataFrame:
    """The times of records that a task reads, in rows of a schema. Each is behind all that is made of the record."""
    of_record = cast(StructType, schema["record"].dataType)
    known = {name: F.col(f"record.{name}") for name in ("topic", "partition", "offset", "partition_time")}
    known["order"] = F.array(F.lit(_BEHIND_ALL)).cast("array<int>")
    parts = [known.get(part.name, F.lit(None)).cast(part.dataType).alias(part.name) for part in of_record.fields]
    return frame.moving_time().data.select(
        F.col("record.partition").alias("partition"),
        F.unix_millis("record.timestamp").alias("at"),
        *(F.lit(None).cast("binary").alias(name) for name in ("key", "value")),
        F.struct(*parts).alias("record"),
        F.lit(True).alias("only_time"),
    )


def _types_of(operation: Process) -> dict[str, FieldType]:
    return {name: parse_type(of_field) for name, of_field in operation.fields}


def _transformed(rows: DataFrame, state: ProcessState, operation: Process, record: DataType) -> DataFrame:
    schema = StructType(
        [
            StructField("partition", IntegerType()),
            StructField("at", LongType()),
            StructField("record", record),  # null in the rows that are changes of the store
            StructField("place", IntegerType()),
            StructField("reason", StringType()),
            StructField("fields", _made(rows, operation)),
            StructField("stored_key", BinaryType()),
            StructField("stored_value", BinaryType()),
        ]
    )
    return rows.groupBy("partition").transformWithState(state, schema, "Update", "none")


def _made(rows: DataFrame, operation: Process) -> StructType:
    """The type of the records that the class gives, in the form that a state has."""
    columns: list[Column] = [
        as_state(F.lit(None).cast(str(of_field)), of_field).alias(state_name(name, place))
        for place, (name, of_field) in enumerate(_types_of(operation).items())
    ]
    return cast(StructType, rows.select(F.struct(*columns).alias("fields")).schema["fields"].dataType)
