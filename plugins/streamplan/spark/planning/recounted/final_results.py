"""Recounts the windows of which only the final results are passed.

A record is too late for a window by the newest record before it in the stream task. A stream task that reads one topic
takes its records by their offsets. So of such a task each window, and the order of the results, can be recounted.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from streamplan.model.processor_topology import Processor
from streamplan.model.stages.aggregate import has_suppressed_results
from streamplan.model.windows import SessionWindows, TimeWindows
from streamplan.spark.planning.aggregation import node_aggregates, node_arguments, with_windows
from streamplan.spark.planning.records import RecordFrame
from streamplan.spark.planning.recounted.sessions import record_columns
from streamplan.spark.planning.task_windows import windows_of
from streamplan.spark.sources import of_partition


def recounted_windows(node: Processor, inputs: RecordFrame) -> DataFrame:
    """Aggregate each time window of what came in time.

    Args:
        node: An aggregation of time windows with final results.
        inputs: All records that it aggregates.

    Returns:
        A row for each window, of the columns that ``aggregate`` gives of a node with windows.
    """
    windows = windows_of(node)
    assert isinstance(windows, TimeWindows), f"{node.name} aggregates no time windows"
    arguments = [argument.from_record.alias(argument.name) for argument in node_arguments(0, node, inputs)]
    so_far = Window.partitionBy("partition").orderBy("place").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    records = inputs.data.select(*record_columns(inputs), *arguments)
    records = records.withColumn("newest", F.max(F.unix_millis("timestamp")).over(so_far))
    records = with_windows(records, windows, "timestamp")
    records = records.where(F.unix_millis("window.end") > F.col("newest") - F.lit(windows.grace_ms))
    aggregates = [column.alias(name) for name, column in node_aggregates(0, node, records.schema)]
    return records.groupBy("partition", "key", "window").agg(*aggregates, F.max("timestamp").alias("timestamp"))


def closed_windows(node: Processor, inputs: RecordFrame, rows: DataFrame, times: Mapping[int, int]) -> DataFrame:
    """Return the windows that are closed, each with its ``place`` among the results of its stream task.

    Args:
        node: An aggregation with final results.
        inputs: All records that it aggregates.
        rows: A row for each window.
        times: By partition the time in ms that the wall clock has given to a stream task.
    """
    windows, end = windows_of(node), F.unix_millis("window.end")
    newest = inputs.data.groupBy(F.col("record.partition").alias("partition")).agg(
        F.max(F.unix_millis("record.timestamp")).alias("newest")
    )
    if times:
        newest = newest.withColumn("newest", F.greatest("newest", of_partition(times, F.col("partition"))))
    is_session, is_suppressed = isinstance(windows, SessionWindows), has_suppressed_results(node)
    closed_at = F.col("newest") - F.lit(windows.retention_ms if is_session else windows.grace_ms)
    is_closed = end <= closed_at
    if not is_suppressed and (isinstance(windows, SessionWindows) or windows.slides):
        is_closed = end < closed_at
    order = [F.col("window.end"), F.col("window.start"), F.col("key")]
    if is_session and is_suppressed:  # a key may be the beginning of another one, so the bytes behind it count
        bounds = [F.unhex(F.lpad(F.hex(F.unix_millis(f"window.{bound}")), 16, "0")) for bound in ("end", "start")]
        order = [order[0], F.concat(F.col("key").cast("binary"), *bounds)]
    in_order = Window.partitionBy("partition").orderBy(*order)
    closed = rows.join(F.broadcast(newest), "partition").where(is_closed)
    return closed.withColumn("place", F.row_number().over(in_order)).select(*rows.columns, "place")
