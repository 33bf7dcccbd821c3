"""Joins of streams with global tables: each Python worker looks the keys of its records up in rows of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F

from streamplan.model.operations import GlobalJoin
from streamplan.spark.arrow_function import ArrowFunction
from streamplan.spark.global_tables import ReadTable, rows_of_job
from streamplan.spark.noted_records import noted
from streamplan.spark.planning.compiled_plan import map_in_arrow
from streamplan.spark.planning.keys import new_key, write_key
from streamplan.spark.planning.python_functions import same_columns, with_parts
from streamplan.spark.planning.record_parts import TOLD, with_key_of, without_told
from streamplan.spark.planning.records import RecordFrame

_KEY = "_key"


def join_with_global_table(frame: RecordFrame, join: GlobalJoin, read: ReadTable | None) -> RecordFrame:
    """Join records with the rows that a global table has when their micro-batch begins.

    As in the library, a record with a null value is dropped, and so is one without a row in an inner join. A record
    whose row cannot be read is rejected.

    Args:
        frame: The records.
        read: Reads the table in the workers. None takes a table without rows: where nobody looks at the results.

    Raises:
        Refused: The key has values that the serde of the table's keys cannot write.
    """
    frame = frame.with_value()
    expression = join.key
    if not isinstance(expression, str):
        frame, expression = with_key_of(frame, expression, join.key_serde), TOLD
    column, fault = new_key(join.key_serde, frame.data, expression)
    if fault is not None:
        reason = F.coalesce(F.col("record.reason"), _unless_rejected(frame, fault))
        frame = replace(frame.with_record(F.col("record").withField("reason", reason)), no_rejects=False)
    key = _unless_rejected(frame, write_key(join.key_serde, column))

    fields = ", ".join(f"`{name}`: {data_type}" for name, data_type in join.row.fields.items())
    row_type = f"struct<{fields}>"
    if read is None:
        data = frame.data.withColumn("table", F.lit(None).cast(row_type))
    else:
        looked_up = _look_up(join, read)
        data = map_in_arrow(frame.data.withColumn(_KEY, key), looked_up, f"{same_columns(frame)}, table {row_type}")
    joined = replace(frame, data=data, no_rejects=False)
    joined = joined if isinstance(join.key, str) else without_told(joined)
    return (joined if join.left else joined.where("table is not null")).select(join.value)


def _look_up(join: GlobalJoin, read: ReadTable) -> ArrowFunction:
    """What replaces the key of each record by its row."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = None
        for batch in noted(batches):
            rows = rows or rows_of_job(join.topic, join.row, read)
            found, faults = rows.of(batch.column(_KEY))
            reasons = pc.coalesce(pc.struct_field(batch.column("record"), "reason"), faults)
            yield with_parts(batch.drop_columns([_KEY]), {"reason": reasons}).append_column("table", found)

    return run


def _unless_rejected(frame: RecordFrame, column: Column) -> Column:
    return column if frame.no_rejects else F.when(F.col("record.reason").isNull(), column)
