"""Updates of tables beside the values that the tables had before: groups of a table, and filters of tables with stores.

What an operation makes of a value is computed before the state, which holds what it has made of the value before. So
the state needs neither the expressions of the operation nor the fields of the old value.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from streamplan.model.operations import Aggregate, AggregateWindowsFunction, Count, TableCount, TableKeySelect
from streamplan.model.processor_topology import Processor
from streamplan.model.windows import SessionWindows, TimeWindows
from streamplan.serdes.changes import FORMAT, Changes
from streamplan.serdes.primitive import STRING, KeySerde
from streamplan.spark.planning.aggregation import (
    refusing_unreadable,
    store_result,
    stored_key,
    stored_record,
    stored_session,
    stored_value,
)
from streamplan.spark.planning.field_types import as_state, declared_fields, from_state, state_name
from streamplan.spark.planning.keys import new_key, read_key, write_key
from streamplan.spark.planning.old_values_state import OldValuesState, OldWindowsState
from streamplan.spark.planning.record_parts import table_key, without_told
from streamplan.spark.planning.records import RecordFrame, read_stored
from streamplan.spark.planning.window_bounds import told_end


def selected(frame: RecordFrame, operation: TableKeySelect) -> RecordFrame:
    """Return the updates of a table with the new key of each value in bytes, in ``record.to``.

    Args:
        frame: The updates.
        operation: Selects the key. A value whose key its serde rejects is rejected, and in no group.
    """
    frame, expression = table_key(frame.with_fields, operation)
    key, fault = new_key(operation.key_serde, frame.data, expression)
    record = F.col("record").withField("to", F.when(frame.has_value, write_key(operation.key_serde, key)))
    if fault is not None:
        record = record.withField("reason", F.coalesce(F.col("record.reason"), F.when(frame.has_value, fault)))
        frame = replace(frame, no_rejects=False)
    frame = frame.with_record(record)
    return frame if isinstance(operation.key, str) else without_told(frame)


def changes(node: Processor, frame: RecordFrame, windows: TimeWindows | SessionWindows | None) -> DataFrame:
    """Put each update beside what the operation has made of the value before.

    Args:
        node: Groups the table, or filters it.
        frame: What the operation makes of the updates, without those that were rejected before it: what
            :func:`selected` gave, or ``RecordFrame.deleting``.
        windows: Those of the table; None for a table without windows.
    """
    return _transformed(_rows(node, frame), node, windows, restored=False)


def restore_old_values(node: Processor, frame: RecordFrame, windows: TimeWindows | SessionWindows | None) -> DataFrame:
    """Put what the operation makes of the values of a table into the state that :func:`changes` goes on with.

    Args:
        node: As for :func:`changes`.
        frame: What the operation makes of the values that the store of the table has.
        windows: As for :func:`changes`.
    """
    return _transformed(_rows(node, frame), node, windows, restored=True)


def filtered_table(batch: DataFrame, frame: RecordFrame) -> RecordFrame:
    """Return the updates that a filter passes.

    Args:
        batch: What :func:`changes` gave.
        frame: As for :func:`changes`; only what is known of the records is used.
    """
    fields = [
        from_state(F.col(f"fields.`{state_name(name, place)}`"), of_field).alias(name)
        for place, (name, of_field) in enumerate(declared_fields(frame.data).items())
    ]
    record = _record(frame.key_serde, "key")
    if frame.windowed:
        record = _with_window(record)
    return replace(frame, data=batch.select(*fields, record.alias("record")))


def grouped_changes(batch: DataFrame, frame: RecordFrame, operation: TableKeySelect) -> RecordFrame:
    """Return the records of the repartition topic.

    Args:
        batch: What :func:`changes` gave.
        frame: As for :func:`changes`; only what is known of the records is used.
        operation: Selects the key.
    """
    without = ["to", *(["session"] if frame.is_of_sessions else [])]
    record = _record(operation.key_serde, "to").dropFields(*without)
    record = record.withField("order", F.concat(F.col("record.order"), F.array(F.col("place"))))
    record = record.withField("reason", F.lit(None).cast("string"))
    if not frame.keeps_original_value:
        record = record.withField("original_value", F.col("record.value"))
    record = record.withField("value", F.col("sent"))
    return RecordFrame(
        batch.select(record.alias("record")),
        value_is_raw=True,
        no_rejects=True,
        serde=Changes(frame.schema),
        format=FORMAT,
        key_serde=operation.key_serde,
    )


def without_changes(frame: RecordFrame, operation: TableKeySelect) -> RecordFrame:
    """Return what follows the grouping of a table, without a record: for its types alone.

    Args:
        frame: The updates of the table.
        operation: Selects the key.
    """
    rows = selected(frame, operation)
    columns = {"to": F.lit(b""), "sent": F.lit(b""), "place": F.lit(0), "key": frame.key}
    batch = rows.data.where("false").select(
        *(column.alias(name) for name, column in columns.items()),
        F.unix_millis("record.timestamp").alias("at"),
        (F.col("record").dropFields("window") if rows.windowed else F.col("record")).alias("record"),
    )
    return grouped_changes(batch, rows, operation)


def stored_table(node: Processor, rows: DataFrame, known: RecordFrame, written: RecordFrame) -> RecordFrame:
    """Return what a processor with a store has passed as the value of each key.

    Args:
        node: The processor.
        rows: Of its changelog, in the columns :data:`streamplan.spark.sources.RAW`.
        known: What it passes; only the types are used.
        written: What it writes into its changelog; only the types are used.
    """
    folds = isinstance(node.operation, Count | TableCount | Aggregate)
    windows = node.operation.window if isinstance(node.operation, Count | Aggregate) else None
    if isinstance(node.operation, AggregateWindowsFunction) and windows is not None:
        return _stored_windows(rows, known, windows)
    if not folds or isinstance(node.operation, AggregateWindowsFunction):
        return refusing_unreadable(read_stored(rows, known.schema, known.key_serde))
    fields = {name: written.data.schema[name].dataType for name in written.fields}
    types = StructType([StructField(f"s0_{name}", of_field) for name, of_field in fields.items()])
    value = stored_value(0, node, types)
    if isinstance(node.operation, Aggregate):
        columns = [value.getField(name).alias(name) for name in fields]
    else:
        columns = [value.alias("count")]
    key, parts = (F.col("key"), []) if windows is None else _key_and_window(windows)
    record = F.struct(*stored_record(key, F.col("value"), known.key_serde), *parts)
    frame = replace(written, data=rows.select(*columns, record.alias("record")), no_rejects=True)
    return store_result(node, frame)


def _stored_windows(rows: DataFrame, known: RecordFrame, windows: TimeWindows | SessionWindows) -> RecordFrame:
    """Return what functions have made as the value of each window."""
    frame = refusing_unreadable(read_stored(rows, known.schema, STRING))
    fields = F.struct(*(F.col(f"`{name}`") for name in frame.fields))
    data = frame.data.select(fields.alias("fields"), "record", F.col("record.original_key").alias("key"))
    key, parts = _key_and_window(windows)
    record = F.col("record").withField("key", read_key(known.key_serde, key))
    for name, part in zip(("window", "session"), parts, strict=False):
        record = record.withField(name, part)
    return replace(frame, data=data.select("fields.*", record.alias("record")), key_serde=known.key_serde)


def _key_and_window(windows: TimeWindows | SessionWindows) -> tuple[Column, list[Column]]:
    """Return the key in bytes of the column ``key`` of a changelog, and what ``record`` has of its window."""
    if isinstance(windows, SessionWindows):
        key, window = stored_session()
        return key.cast("binary"), [window, F.lit(True).alias("session")]
    key, start = stored_key(windows)
    begins = F.unix_millis(start)
    window = F.struct(start.alias("start"), F.timestamp_millis(told_end(windows, begins)).alias("end"))
    return key.cast("binary"), [window.alias("window")]


def _record(key_serde: KeySerde, key: str) -> Column:
    record = F.col("record").withField("timestamp", F.timestamp_millis("at"))
    return record.withField("key", read_key(key_serde, F.col(key)))


def _with_window(record: Column) -> Column:
    """Return ``record`` with the window that :func:`_rows` has taken out of it."""
    bounds = (F.timestamp_millis(name).alias(name) for name in ("start", "end"))
    return record.withField("window", F.struct(*bounds))


def _rows(node: Processor, frame: RecordFrame) -> DataFrame:
    selects = isinstance(node.operation, TableKeySelect)
    value = F.when(frame.has_value, F.lit(b""))
    extra = []
    if selects:
        is_accepted = F.col("record.to").isNotNull() & F.col("record.reason").isNull()
        value = F.when(is_accepted, frame.value)
    else:
        fields = F.struct(
            *(
                as_state(F.col(f"`{name}`"), of_field).alias(state_name(name, place))
                for place, (name, of_field) in enumerate(declared_fields(frame.data).items())
            )
        )
        extra.append(fields.alias("fields"))
    in_columns = ["timestamp", "key"]
    if frame.windowed:
        extra += [F.unix_millis(f"record.window.{name}").alias(name) for name in ("start", "end")]
        in_columns.append("window")
    return frame.data.select(
        F.col("record.partition").alias("partition"),
        frame.key.alias("key"),
        F.unix_millis("record.timestamp").alias("at"),
        (F.col("record.to") if selects else F.lit(None).cast("binary")).alias("to"),
        value.alias("value"),
        # ``at`` has the time in ms, and ``key`` the key in bytes; ``start`` and ``end`` have the window in ms.
        F.col("record").dropFields(*in_columns).alias("record"),
        *extra,
    )


def _transformed(
    rows: DataFrame, node: Processor, windows: TimeWindows | SessionWindows | None, *, restored: bool
) -> DataFrame:
    sends = isinstance(node.operation, TableKeySelect)
    added = [StructField("sent", BinaryType()), StructField("place", IntegerType())] if sends else []
    schema = StructType([*rows.schema.fields, *added])
    if windows is None:
        state = OldValuesState(sends=sends, restored=restored)
        return rows.groupBy("partition", "key").transformWithState(state, schema, "Update", "none")
    of_task = OldWindowsState(windows, sends=sends, restored=restored)
    return rows.groupBy("partition").transformWithState(of_task, schema, "Update", "none")
