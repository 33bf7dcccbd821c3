"""Timestamps that a declaration takes from the records (``org.apache.kafka.streams.processor.TimestampExtractor``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, TimestampType

from streamplan.errors import Refused
from streamplan.model.functions import PythonFunction
from streamplan.model.timestamps import LATEST_MS, timestamp_fault
from streamplan.spark.noted_records import noted
from streamplan.spark.planning.compiled_plan import map_in_arrow
from streamplan.spark.planning.function_results import Unfit
from streamplan.spark.planning.partition_times import PartitionTimes
from streamplan.spark.planning.python_functions import call_with_each, same_columns, with_parts
from streamplan.spark.planning.records import RecordFrame

_AT = "_at"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def with_timestamps(frame: RecordFrame, timestamp: str | PythonFunction, *, partition_time: bool) -> RecordFrame:
    """Give records the timestamps that an expression or a function tells. The others are rejected, and keep theirs.

    Args:
        frame: The records of a topic.
        timestamp: Tells a moment, or milliseconds since 1970.
        partition_time: Whether ``record.partition_time`` is told; see :mod:`streamplan.spark.planning.records`.

    Raises:
        Refused: The expression has another type.
    """
    if isinstance(timestamp, PythonFunction):
        frame = _by_function(frame, timestamp)
    else:
        frame = _by_expression(frame, timestamp)
    return _with_partition_times(frame) if partition_time else frame


def _by_expression(frame: RecordFrame, expression: str) -> RecordFrame:
    made = frame.data.select(F.expr(expression).alias(_AT)).schema[_AT].dataType
    if not isinstance(made, IntegerType | LongType | TimestampType):
        raise Refused(
            f"the timestamp {expression} is of type {made.simpleString()}",
            remedy="It is a timestamp, or a bigint with the milliseconds since 1970.",
        )
    told = F.expr(expression)
    told = F.unix_millis(told) if isinstance(made, TimestampType) else told.cast("bigint")
    data = frame.data.withColumn(_AT, F.when(F.col("record.reason").isNull(), told))
    at = F.col(_AT)
    fault = (
        F.when(at.isNull(), F.lit("the timestamp is missing"))
        .when(at < 0, F.concat(F.lit("the timestamp "), at, F.lit(" is negative")))
        .when(at > LATEST_MS, F.concat(F.lit("the timestamp "), at, F.lit(" is beyond the year 9999")))
    )
    moment = F.when(at.between(0, LATEST_MS), F.timestamp_millis(at)).otherwise(F.col("record.timestamp"))
    record = F.col("record").withField("timestamp", moment)
    record = record.withField("reason", F.coalesce(F.col("record.reason"), fault))
    return replace(frame, data=data.withColumn("record", record).drop(_AT), no_rejects=False)


def _by_function(frame: RecordFrame, function: PythonFunction) -> RecordFrame:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in noted(batches):
            told, reasons = call_with_each(function, batch, milliseconds_of)
            before = pc.struct_field(batch.column("record"), "timestamp")
            moments = pa.array(told, pa.timestamp("ms", tz="UTC")).cast(before.type)
            parts = {"timestamp": pc.coalesce(moments, before), "reason": pa.array(reasons, pa.string())}
            yield with_parts(batch, parts)

    return replace(frame, data=map_in_arrow(frame.data, run, same_columns(frame)), no_rejects=False)


def milliseconds_of(told: Any) -> int:
    """Return the timestamp that a function has told, in ms since 1970.

    Args:
        told: A moment with a zone, or the milliseconds.

    Raises:
        Unfit: It is none.
    """
    if isinstance(told, datetime) and told.tzinfo is not None:
        since = told - _EPOCH
        told = (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000
    if told is None:
        raise Unfit("told no timestamp")
    if isinstance(told, bool) or not isinstance(told, int):
        raise Unfit(f"told {type(told).__name__}, and not a datetime with a zone, or the milliseconds since 1970")
    if fault := timestamp_fault(told):
        raise Unfit(f"told {told}: {fault}")
    return told


def _with_partition_times(frame: RecordFrame) -> RecordFrame:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        times = PartitionTimes()
        for batch in noted(batches):
            records = batch.column("record")
            of_topic = pa.RecordBatch.from_arrays(
                [pc.struct_field(records, name) for name in ("partition", "timestamp")],
                names=["partition", "timestamp"],
            )
            told = times.of(of_topic, pc.struct_field(records, "reason"))
            yield with_parts(batch, {"partition_time": told})

    return replace(frame, data=map_in_arrow(frame.data, run, same_columns(frame)))
