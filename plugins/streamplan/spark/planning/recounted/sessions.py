"""Recounts sessions with Spark's own windows and aggregates, and says of which keys that is possible.

Whether a late record is taken in depends on the records before it, and on what the store has forgotten by then. A
record that came less than the grace behind the newest one of its partition meets every session that it belongs to. A
key of which each record came in time therefore has the sessions that the times of its records make. The other keys are
not compared.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from streamplan.model.processor_topology import Processor
from streamplan.model.windows import SessionWindows
from streamplan.spark.planning.aggregation import node_aggregates, node_arguments
from streamplan.spark.planning.records import RecordFrame
from streamplan.spark.planning.task_state import record_place
from streamplan.spark.planning.task_windows import sessions_of, windows_of


def recounted_sessions(node: Processor, inputs: RecordFrame, late: DataFrame) -> DataFrame:
    """Aggregate each session of the keys without late records.

    Args:
        node: An aggregation with :class:`SessionWindows`.
        inputs: All records that it aggregates.
        late: What :func:`late_keys` gave.

    Returns:
        A row for each session, of the columns that ``aggregate`` gives of a node with windows. Its ``timestamp`` is
        that of the session's last record in the order of the stream task.
    """
    arguments = [argument.from_record.alias(argument.name) for argument in node_arguments(0, node, inputs)]
    records = inputs.data.select(*record_columns(inputs), *arguments).join(late, ["partition", "key"], "left_anti")
    records = with_sessions(records, sessions_of(node))
    aggregates = [column.alias(name) for name, column in node_aggregates(0, node, records.schema)]
    timestamp = F.max_by("timestamp", "place").alias("timestamp")
    return records.groupBy("partition", "key", "window").agg(*aggregates, timestamp)


def late_keys(node: Processor, inputs: RecordFrame) -> DataFrame:
    """Return the keys with a record that may have come too late: their partition and key.

    Args:
        node: An aggregation with sessions or sliding windows.
        inputs: All records that it aggregates.
    """
    before = Window.partitionBy("partition").orderBy("place").rowsBetween(Window.unboundedPreceding, -1)
    records = inputs.data.select(*record_columns(inputs))
    at = F.unix_millis("timestamp")
    records = records.withColumn("late", at <= F.max(at).over(before) - windows_of(node).grace_ms)
    return records.where("late").select("partition", "key").distinct()


def with_sessions(records: DataFrame, windows: SessionWindows) -> DataFrame:
    """Add to each record the session that it belongs to, in the column ``window``.

    Args:
        records: All records, with the columns ``partition``, ``key`` and ``timestamp``.
        windows: The sessions.
    """
    by_key = Window.partitionBy("partition", "key")
    in_time = by_key.orderBy("timestamp")
    at = F.unix_millis("timestamp")
    gap = at - F.lag(at).over(in_time)
    begins = F.when(gap <= windows.inactivity_gap_ms, 0).otherwise(1)
    so_far = in_time.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    numbered = records.withColumn("begins", begins).withColumn("session", F.sum("begins").over(so_far))
    session = Window.partitionBy("partition", "key", "session")
    bounds = F.struct(F.min("timestamp").over(session).alias("start"), F.max("timestamp").over(session).alias("end"))
    return numbered.withColumn("window", bounds).drop("begins", "session")


def record_columns(inputs: RecordFrame) -> list[Column]:
    """Return of records their partition, time, key, and place among those that the stream task takes.

    Args:
        inputs: The records.
    """
    columns = [F.col(f"record.{name}").alias(name) for name in ("partition", "timestamp")]
    return [*columns, inputs.key.cast("string").alias("key"), record_place().alias("place")]
