"""The rows that are written: records and dead letters of all outputs of a sub-topology, in the same columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from streamplan.serdes.serde import Serde
from streamplan.spark.planning.records import RecordFrame, record_has
from streamplan.spark.sink.spec import DEAD_LETTER, PASSED_OVER
from streamplan.spark.sources import HEADERS

OUTPUT = f"""partition int, output int, key binary, value binary, timestamp bigint, headers {HEADERS}, topic string,
    offset bigint, `order` array<int>, reason string, partition_time bigint"""
"""The columns of the rows that are written, as Spark's DDL.

``partition`` of the stream task; ``output`` the number of the topic that the row goes to; ``timestamp`` in ms;
``topic``, ``offset`` and ``order`` where the record came from; ``reason`` of a dead letter; ``partition_time`` orders
the records of several topics.
"""

OUTPUT_COLUMNS = (
    *("partition", "output", "key", "value", "timestamp", "headers"),
    *("topic", "offset", "order", "reason", "partition_time"),
)


@dataclass(frozen=True)
class OutputRows:
    """What the operations of a sub-topology come to.

    ``rows``          to be written, each of the columns :data:`OUTPUT`
    ``observations``  the metrics of each peek by its name; they are there when the rows were collected
    ``schemas``       the serdes of the repartition topics among the outputs
    """

    rows: tuple[DataFrame, ...]
    observations: tuple[tuple[str, Observation], ...] = ()
    schemas: Mapping[str, Serde] = field(default_factory=dict)


def output_rows(frame: RecordFrame, output: int, key: Column, value: Column, more: Sequence[Column] = ()) -> DataFrame:
    """Return a row for each record; the rejected records become dead letters.

    Args:
        frame: The records.
        output: The number of the topic that they go to.
        key: Their key in bytes.
        value: Their value in bytes.
        more: Further columns.
    """
    columns = _output_columns(F.lit(output), key, value)
    if frame.no_rejects:
        return frame.data.select(*columns, *more)
    dead_letter_columns = _dead_letter_columns(frame.data)
    accepted = F.col("record.reason").isNull()
    return frame.data.select(
        *(
            F.when(accepted, column).otherwise(dead_letter_column).alias(name)
            for name, column, dead_letter_column in zip(OUTPUT_COLUMNS, columns, dead_letter_columns, strict=True)
        ),
        *more,
    )


def rows_of_records(frame: RecordFrame, fields: Sequence[str] = ()) -> DataFrame:
    """Return the rows for :class:`~streamplan.spark.sink.writers.RowsOfRecords`.

    Args:
        frame: At least one row of each record that was read. All go to the first output.
        fields: The fields of the value that the rows have, too, in a struct ``fields``.
    """
    more = [F.struct(*(F.col(f"`{name}`") for name in fields)).alias("fields")] if fields else []
    if record_has(frame.data, "ends"):
        more.append(frame.ends.alias("ends"))
    rows = output_rows(frame, 0, frame.key, frame.value, more)
    passed_over = F.col("reason").eqNullSafe(PASSED_OVER)
    without = {name: F.when(~passed_over, F.col(name)) for name in ("key", "value", "headers")}
    return rows.select(*(without.get(name, F.col(name)).alias(name) for name in rows.columns))


def dead_letter_rows(data: DataFrame) -> DataFrame:
    """Return a dead letter for each row of a :class:`RecordFrame`."""
    return data.select(*_dead_letter_columns(data))


def _dead_letter_columns(data: DataFrame) -> list[Column]:
    value = "original_value" if record_has(data, "original_value") else "value"
    return _output_columns(F.lit(DEAD_LETTER), F.col("record.original_key"), F.col(f"record.{value}"))


def _output_columns(output: Column, key: Column, value: Column) -> list[Column]:
    columns = {
        "output": output,
        "key": key,
        "value": value,
        "timestamp": F.unix_millis("record.timestamp"),
    }
    return [columns.get(name, F.col(f"record.{name}")).alias(name) for name in OUTPUT_COLUMNS]
