"""Joins of two streams within a window: Spark's ``transformWithState``, with the state of a stream task as one group.

A Kafka Streams task keeps the records of both streams in window stores. A record that comes is looked up in the other
stream's store, and then put into its own (``KStreamJoinWindow``, ``KStreamKStreamJoin``). A store forgets what is older
than its retention, by the newest time of its own records. That time is one for all keys of a task. So the group is the
stream task, and not the key, and a row of the state holds the records of one key.

What a record gives comes of that record alone and of those before it. So a row that is written belongs to an offset, a
micro-batch can be committed in parts, and the same micro-batch gives the same rows again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import cast

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, BooleanType, IntegerType, StructField, StructType

from streamplan.model.operations import OuterStreamJoin, StreamJoin
from streamplan.model.windows import TIME_AND_SIDE_BYTES
from streamplan.serdes.moments import as_datetime
from streamplan.serdes.primitive import STRING
from streamplan.spark.arrow_function import ArrowFunction
from streamplan.spark.planning.aggregation import refusing_unreadable, stored_key
from streamplan.spark.planning.compiled_plan import map_in_arrow
from streamplan.spark.planning.field_types import as_state, declared_fields, from_state, state_name
from streamplan.spark.planning.outer_join_state import OuterJoinState, RestoredOuterJoinState, parse_stored_list
from streamplan.spark.planning.records import RecordFrame, read_stored
from streamplan.spark.planning.stream_join_state import StreamJoinState
from streamplan.spark.planning.task_state import record_in_state, record_of_state
from streamplan.spark.sources import RAW

WAITING = "waiting"
"""The format of the values of the store that both sides of a left or outer join share."""


def join_streams(inputs: Sequence[RecordFrame], join: StreamJoin) -> DataFrame:
    """Join the records of two streams.

    Args:
        inputs: The records of this and of the other stream. None is rejected. Only a left or outer join is given
            records without a key.

    Returns:
        One row for each record, whose fields stand in ``f0`` or ``f1``, with its number among the stored records of its
        key and time. And a row with ``joined`` for each two records that meet; it belongs to the later one of them,
        ``place`` is its place among the rows of that one, and ``at`` the greater time of both in ms.

        A left or outer join has such a row for each record without a match, too. It belongs to the record by whose time
        it is known that none comes. A row with ``shared_key`` is a change of the store that both sides share.
    """
    return _joined([_rows(number, frame) for number, frame in enumerate(inputs)], _types(inputs), join)


def restore_join(
    inputs: Sequence[RecordFrame], stored: Sequence[DataFrame], waiting: DataFrame | None, join: StreamJoin
) -> DataFrame:
    """Join what the stores held, which leaves the state that :func:`join_streams` goes on with.

    Args:
        inputs: As for :func:`join_streams`; only their types are used.
        stored: The records of the changelogs of this and of the other stream, in the columns
            :data:`streamplan.spark.sources.RAW`.
        waiting: Those of the store that both sides share, the last one of each key; None for an inner join.
        join: As for :func:`join_streams`.
    """
    key, start = stored_key(join.windows)
    rows = []
    for number, (frame, records) in enumerate(zip(inputs, stored, strict=True)):
        raw = records.withColumns({"timestamp": start, "key": key.cast("binary")})
        rows.append(_rows(number, refusing_unreadable(read_stored(raw, frame.schema, frame.key_serde))))
    if waiting is None:
        return _joined(rows, _types(inputs), join)
    rows = [each.withColumn("waiting", F.lit(False)) for each in rows]
    for number, frame in enumerate(inputs):
        raw = map_in_arrow(waiting, _waiting_records(number), RAW)
        restored = _rows(number, refusing_unreadable(read_stored(raw, frame.schema, frame.key_serde)))
        rows.append(restored.withColumn("waiting", F.lit(True)))
    return _joined(rows, _types(inputs), join)


def _waiting_records(number: int) -> ArrowFunction:
    """Give the records of a stream that the shared store holds, each with its place in the list as its offset."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            records = []
            for row in batch.to_pylist():
                at, is_this = int.from_bytes(row["key"][:8], "big"), row["key"][8]
                if is_this == 1 - number:
                    records += [
                        row
                        | {"key": row["key"][TIME_AND_SIDE_BYTES:], "value": value[1:], "offset": place}
                        | {"timestamp": as_datetime(at)}
                        for place, value in enumerate(parse_stored_list(row["value"]))
                    ]
            yield pa.RecordBatch.from_pylist(records, batch.schema)

    return read


def shared_changes(batch: DataFrame) -> RecordFrame:
    """Return the changes of the store that both sides of a left or outer join share. The key is in bytes.

    Args:
        batch: What :func:`join_streams` gave.
    """
    record = (
        _ordered(record_of_state(STRING))
        .withField("key", F.col("shared_key"))
        .withField("value", F.col("shared_value"))
    )
    data = batch.where("shared_key is not null").select(record.alias("record"))
    return RecordFrame(data, value_is_raw=True, no_rejects=True, key_not_null=True, format=WAITING)


def stored_records(number: int, batch: DataFrame, frame: RecordFrame) -> RecordFrame:
    """Return the records that were stored, with the window of their time and ``record.sequence_number``.

    Args:
        number: 0 for this stream, 1 for the other one.
        batch: What :func:`join_streams` gave.
        frame: The records of the stream; only what is known of them is used.
    """
    rows = batch.where(~F.col("joined") & (F.col("source") == number) & F.col("number").isNotNull())
    window = F.struct(F.timestamp_millis("at").alias("start"), F.timestamp_millis("at").alias("end"))
    record = record_of_state(frame.key_serde).withField("window", window).withField("sequence_number", F.col("number"))
    record = record.withField("value", F.coalesce("value", "record.value"))
    return replace(frame, data=rows.select(*_fields(number, frame), record.alias("record")))


def joined_records(batch: DataFrame, inputs: Sequence[RecordFrame]) -> RecordFrame:
    """Return a record for each two that meet: the fields of this stream, and those of the other one in ``other``.

    Args:
        batch: What :func:`join_streams` gave.
        inputs: As for :func:`join_streams`; only what is known of them is used.
    """
    rows = batch.where("joined")
    other = F.struct(*_fields(1, inputs[1])).alias("other")
    data = rows.select(*_fields(0, inputs[0]), other, _ordered(record_of_state(inputs[0].key_serde)).alias("record"))
    key_not_null = all(frame.key_not_null for frame in inputs)
    return replace(inputs[0], data=data, value_is_raw=False, serde=None, no_rejects=True, key_not_null=key_not_null)


def without_records(this: RecordFrame, other: RecordFrame) -> RecordFrame:
    """Return what :func:`joined_records` returns, without a record: for its types alone.

    Args:
        this: The records of this stream; only their types are used.
        other: The records of the other stream; only their types are used.
    """
    row_type = other.data.select(F.struct(*other.fields).alias("row")).schema["row"].dataType
    data = this.data.withColumn("other", F.lit(None).cast(row_type)).where("false")
    return replace(this, data=data, value_is_raw=False, serde=None, no_rejects=True)


_ADDED = [
    StructField("joined", BooleanType()),
    StructField("place", IntegerType()),
    StructField("number", IntegerType()),
]

_ADDED_BY_OUTER = [StructField("shared_key", BinaryType()), StructField("shared_value", BinaryType())]


def _types(inputs: Sequence[RecordFrame]) -> list[StructType]:
    frames = enumerate(inputs)
    return [cast(StructType, _rows(number, frame).schema[f"f{number}"].dataType) for number, frame in frames]


def _joined(inputs: Sequence[DataFrame], types: Sequence[StructType], join: StreamJoin) -> DataFrame:
    rows = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), inputs)
    fields = [*rows.schema.fields, *_ADDED]
    key_type = cast(StructType, rows.schema["record"].dataType)["key"].dataType
    state = StreamJoinState(types, key_type, join.windows)
    if isinstance(join, OuterStreamJoin):
        fields += _ADDED_BY_OUTER
        restores = "waiting" in rows.columns
        state = (RestoredOuterJoinState if restores else OuterJoinState)(types, key_type, join.windows, join.both)
    return rows.groupBy("partition").transformWithState(state, StructType(fields), "Update", "none")


def _rows(number: int, frame: RecordFrame) -> DataFrame:
    fields = F.struct(
        *(
            as_state(F.col(f"`{name}`"), of_field).alias(state_name(name, place))
            for place, (name, of_field) in enumerate(declared_fields(frame.data).items())
        )
    )
    return frame.data.select(
        F.col("record.partition").alias("partition"),
        F.lit(number).alias("source"),
        F.unix_millis("record.timestamp").alias("at"),
        frame.has_value.alias("has_value"),
        # A value that an operation has made stands beside the record, which keeps the value that was read.
        (F.lit(None).cast("binary") if frame.value_is_raw else frame.value).alias("value"),
        record_in_state(frame).alias("record"),
        fields.alias(f"f{number}"),
    )


def _ordered(record: Column) -> Column:
    """``record`` with its place among the rows that one record gives."""
    return record.withField("order", F.concat(F.col("record.order"), F.array(F.col("place"))))


def _fields(number: int, frame: RecordFrame) -> list[Column]:
    return [
        from_state(F.col(f"f{number}.`{state_name(name, place)}`"), of_field).alias(name)
        for place, (name, of_field) in enumerate(declared_fields(frame.data).items())
    ]
