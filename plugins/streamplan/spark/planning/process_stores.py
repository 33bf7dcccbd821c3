"""Records that Python classes process with all keys of some stores: ``transformWithState`` by stream task.

:mod:`streamplan.spark.planning.process_stores_state` has the state of a stream task, and calls the classes. What they
forward belongs to the record that was processed, or that has moved the time on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from types import MappingProxyType
from typing import cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, StringType, StructField, StructType

from streamplan.model.functions import STOP
from streamplan.model.operations import Count, ProcessWithStores, SessionStateStore, StateStore, VersionedStateStore
from streamplan.model.processor_topology import Processor
from streamplan.serdes.field_types import parse_type
from streamplan.spark.global_tables import ReadTable
from streamplan.spark.planning.aggregation import stored_record
from streamplan.spark.planning.field_types import as_state, from_state, state_name
from streamplan.spark.planning.keys import number_of, read_key
from streamplan.spark.planning.process_stores_state import (
    RECORD,
    ProcessStoresState,
    RestoredProcessStores,
    TaskProcessor,
    struct_of,
)
from streamplan.spark.planning.records import CHILD, RecordFrame
from streamplan.spark.planning.task_stores import TableStore

_BEHIND_ALL = (1 << 31) - 1
"""A place behind all that is made of a record."""


def process_with_stores(
    subtopology: int,
    nodes: Sequence[Processor],
    stores: Sequence[Processor],
    records: Sequence[RecordFrame],
    read: Sequence[RecordFrame],
    ticks: DataFrame | None = None,
    tables: Sequence[ReadUpdates] = (),
    children: Mapping[str, Sequence[str]] = MappingProxyType({}),
    read_table: ReadTable | None = None,
) -> DataFrame:
    """Process the records of each stream task.

    Args:
        subtopology: The number of the sub-topology.
        nodes: The processors, which share stores.
        stores: The nodes that write the stores, by their names.
        records: What each processor processes. None is rejected.
        read: All records that the stream task reads, where some of them come to no processor: for the stream time.
        ticks: A stream with rows for stream tasks that the wall clock may give a time; None where it gives none.
        tables: The stores of other operations that the classes read.
        children: By the name of a processor the names of the nodes behind it.
        read_table: Reads global tables in the workers; None takes them for empty.

    Returns:
        A row for each record that a class forwards, with its value in ``fields<of>``, where ``of`` is the place of the
        processor; it belongs to the ``record`` that was processed, or that has moved the time on, and ``place`` is its
        place among the rows of that one. A row with a ``reason`` is a dead letter. A row with ``store`` is a change of
        the store of this place, once for each key.
    """
    tasks = _tasks(nodes, records, children)
    rows = reduce(DataFrame.unionByName, (_rows(place, frame) for place, frame in enumerate(records)))
    rows = reduce(DataFrame.unionByName, (_times(frame) for frame in read), rows)
    rows = reduce(DataFrame.unionByName, (_changes(place, table) for place, table in enumerate(tables)), rows)
    if ticks is not None:
        rows = rows.unionByName(ticks, allowMissingColumns=True)
    state = ProcessStoresState(subtopology, tasks, _operations(stores), [table.store for table in tables], read_table)
    return _transformed(rows, state, nodes)


def restore_stores(
    subtopology: int,
    nodes: Sequence[Processor],
    stores: Sequence[Processor],
    records: Sequence[RecordFrame],
    stored: Sequence[DataFrame],
    times: Mapping[int, int],
    tables: Sequence[ReadUpdates] = (),
) -> DataFrame:
    """Read what changelogs have into the state that :func:`process_with_stores` goes on with.

    Args:
        subtopology: As for :func:`process_with_stores`.
        nodes: As for :func:`process_with_stores`.
        stores: As for :func:`process_with_stores`.
        records: As for :func:`process_with_stores`; only what is known of them is used.
        stored: The last record of each key of each changelog, in the columns :data:`streamplan.spark.sources.RAW`.
        times: By partition the time in ms that the wall clock has given to a stream task.
        tables: The stores of other operations that the classes read, and what they hold.
    """
    at = F.unix_millis("timestamp").alias("at")
    own = [
        each.select("partition", at, "key", "value", F.lit(place).alias("of"), "offset")
        for place, each in enumerate(stored)
    ]
    value = F.coalesce("value", "record.value").alias("value")
    others = [
        _changes(place, table).select("partition", "at", "key", value, "of", "record.offset")
        for place, table in enumerate(tables)
    ]
    rows = reduce(DataFrame.unionByName, [*own, *others])
    read = [table.store for table in tables]
    state = RestoredProcessStores(subtopology, _tasks(nodes, records), _operations(stores), times, read)
    return _transformed(rows, state, nodes)


def restored_updates(node: Processor, updates: RecordFrame, stored: DataFrame) -> RecordFrame:
    """Return what the changelog of an aggregate has as its updates.

    Args:
        node: The aggregate. Its changelog has its results alone.
        updates: Its updates; only what is known of them is used.
        stored: The last record of each key of the changelog, in the columns :data:`streamplan.spark.sources.RAW`.
    """
    value = F.col("value")
    if isinstance(node.operation, Count):
        value = F.when(value.isNotNull(), F.to_json(F.struct(number_of(value).alias("count"))).cast("binary"))
    nothing = {"headers": "string", "reason": "string", "order": "array<int>", "partition_time": "bigint"}
    record = F.struct(
        *("topic", "partition", "offset", "timestamp"),
        read_key(updates.key_serde, F.col("key")).alias("key"),
        F.col("key").alias("original_key"),
        value.alias("value"),
        *(F.lit(None).cast(of_type).alias(name) for name, of_type in nothing.items()),
    )
    return replace(updates, data=stored.select(record.alias("record")), value_is_raw=True, serde=updates.schema)


def stored_changes(batch: DataFrame, place: int, store: Processor) -> RecordFrame:
    """Return the changes of a store as records. Their values in bytes are what goes into the changelog.

    Args:
        batch: What :func:`process_with_stores` gave.
        place: The place of the store.
        store: The node that writes it.
    """
    operation = store.operation
    assert isinstance(operation, StateStore)
    changes = batch.where(F.col("store") == place).withColumn("timestamp", F.timestamp_millis("at"))
    parts = stored_record(F.col("stored_key"), F.col("stored_value"), operation.key_serde)
    if operation.retention_ms is not None:
        bounds = {"start": F.col("start"), "end": F.col("start") + F.lit(operation.window_ms)}
        if isinstance(operation, SessionStateStore):
            bounds["end"] = F.col("end")
        parts.append(F.struct(*(F.timestamp_millis(each).alias(name) for name, each in bounds.items())).alias("window"))
    if isinstance(operation, SessionStateStore):
        parts.append(F.lit(True).alias("session"))
    if operation.retain_duplicates:
        parts.append(F.col("number").alias("sequence_number"))
    record = F.struct(*parts)
    if isinstance(operation, VersionedStateStore):  # each put is written, and of two of one time the later one counts
        record = record.withField("order", F.array("place"))
    return RecordFrame(
        changes.select(record.alias("record")),
        value_is_raw=True,
        no_rejects=True,
        key_not_null=True,
        serde=operation.value,
        format=operation.value.format,
        key_serde=operation.key_serde,
    )


def forwarded_records(node: Processor, place: int, batch: DataFrame) -> RecordFrame:
    """Return the records that a class has forwarded. Those for which it has failed are rejected.

    Args:
        node: The processor.
        place: Its place.
        batch: What :func:`process_with_stores` gave.
    """
    operation = node.operation
    assert isinstance(operation, ProcessWithStores)
    rows, rejected = batch.where(F.col("of") == place), F.col("reason").isNotNull()
    fields, has_value = [], F.lit(None).cast("binary")
    if operation.fields:
        # The value that was read is what a dead letter has. Of others it only tells whether there is a value.
        has_value = F.when(F.col(f"fields{place}").isNotNull(), F.lit("").cast("binary"))
        fields = [
            from_state(F.col(f"fields{place}.`{state_name(name, at)}`"), parse_type(of_field)).alias(name)
            for at, (name, of_field) in enumerate(operation.fields)
        ]
    record = F.struct(
        F.col("record.topic").alias("topic"),
        F.col("record.partition").alias("partition"),
        F.col("record.offset").alias("offset"),
        F.timestamp_millis("at").alias("timestamp"),
        read_key(operation.key_serde, F.col("key")).alias("key"),
        F.when(rejected, F.col("record.headers")).otherwise(F.col("headers")).alias("headers"),
        F.col("record.original_key").alias("original_key"),
        F.when(rejected, F.col("record.value")).otherwise(has_value).alias("value"),
        F.col("reason"),
        F.concat(F.col("record.order"), F.array(F.col("place"))).alias("order"),
        F.col("record.partition_time").alias("partition_time"),
        F.col(CHILD),
    )
    return RecordFrame(
        rows.select(*fields, record.alias("record")),
        value_is_raw=False,
        no_rejects=operation.function.on_error == STOP,
        key_serde=operation.key_serde,
    )


@dataclass(frozen=True)
class ReadUpdates:
    """The updates of the store of another operation, which classes read.

    Attributes:
        node: The operation.
        updates: Its updates. None is rejected.
    """

    node: Processor
    updates: RecordFrame

    @property
    def store(self) -> TableStore:
        """The store as the classes read it."""
        return TableStore(str(self.node.store), self.updates.key_serde, self.updates.schema)


def _operations(stores: Sequence[Processor]) -> list[StateStore]:
    return [node.operation for node in stores if isinstance(node.operation, StateStore)]


def _tasks(
    nodes: Sequence[Processor],
    records: Sequence[RecordFrame],
    children: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> list[TaskProcessor]:
    return [
        TaskProcessor(node.name, node.operation, frame.schema, frame.key_serde, tuple(children.get(node.name, ())))
        for node, frame in zip(nodes, records, strict=True)
        if isinstance(node.operation, ProcessWithStores)
    ]


def _rows(place: int, records: RecordFrame) -> DataFrame:
    # A value that an operation has made stands beside the record, which keeps the value that was read.
    value = F.lit(None).cast("binary") if records.value_is_raw else records.value
    return _of_record(records, records.key, value, F.col("record.order"), F.lit(place))


def _changes(place: int, table: ReadUpdates) -> DataFrame:
    """The changes of the store of another operation."""
    return _rows(-1 - place, table.updates)


def _times(records: RecordFrame) -> DataFrame:
    """The times of records that a task reads. Each is behind all that is made of the record."""
    nothing = F.lit(None).cast("binary")
    return _of_record(
        records.moving_time(), nothing, nothing, F.array(F.lit(_BEHIND_ALL)).cast("array<int>"), F.lit(None).cast("int")
    )


def _of_record(records: RecordFrame, key: Column, value: Column, order: Column, of: Column) -> DataFrame:
    # The types of a record that was read; those of the updates of a store are the same.
    parts = [(order if name == "order" else F.col(f"record.{name}")).alias(name) for name in RECORD]
    return records.data.select(
        F.col("record.partition").alias("partition"),
        F.unix_millis("record.timestamp").alias("at"),
        key.alias("key"),
        value.alias("value"),
        F.struct(*parts).alias("record"),
        of.alias("of"),
    )


def _transformed(rows: DataFrame, state: ProcessStoresState, nodes: Sequence[Processor]) -> DataFrame:
    of_record = rows.schema["record"].dataType if "record" in rows.columns else _RECORD_TYPE
    schema = StructType(
        [
            StructField("partition", IntegerType()),
            StructField("at", LongType()),
            StructField("of", IntegerType()),
            StructField("record", of_record),  # null in the rows that are changes of a store
            StructField("place", IntegerType()),
            StructField("reason", StringType()),
            StructField("key", BinaryType()),
            StructField("headers", StringType()),
            StructField("child", StringType()),
            *(
                StructField(f"fields{place}", _made(rows, node.operation))
                for place, node in enumerate(nodes)
                if isinstance(node.operation, ProcessWithStores) and node.operation.fields
            ),
            StructField("store", IntegerType()),
            StructField("stored_key", BinaryType()),
            StructField("stored_value", BinaryType()),
            StructField("start", LongType()),
            StructField("end", LongType()),
            StructField("number", LongType()),
        ]
    )
    return rows.groupBy("partition").transformWithState(state, schema, "Update", "none")


_RECORD_TYPE: DataType = StructType([StructField("topic", StringType())])
"""Stands for the type of ``record`` where no row has one."""


def _made(rows: DataFrame, operation: ProcessWithStores) -> StructType:
    """The type of the values that a class forwards, in the form that a state has."""
    columns = [
        as_state(F.lit(None).cast(str(of_field)), of_field).alias(state_name(name, place))
        for place, (name, of_field) in enumerate(struct_of(operation.fields).fields)
    ]
    return cast(StructType, rows.select(F.struct(*columns).alias("fields")).schema["fields"].dataType)
