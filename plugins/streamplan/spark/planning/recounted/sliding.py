"""Recounts sliding windows with Spark's own aggregates.

Of a key of which each record came less than the grace behind the newest one of its partition, the windows do not depend
on the order of the records: one ends at each record, and one begins behind each record that another one follows.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from streamplan.model.processor_topology import Processor
from streamplan.model.windows import TimeWindows
from streamplan.spark.planning.aggregation import node_aggregates, node_arguments
from streamplan.spark.planning.records import RecordFrame
from streamplan.spark.planning.recounted.sessions import record_columns
from streamplan.spark.planning.task_windows import windows_of


def recounted_sliding_windows(node: Processor, inputs: RecordFrame, late: DataFrame) -> DataFrame:
    """Aggregate each window of the keys without late records.

    Args:
        node: An aggregation with :class:`SlidingWindows`.
        inputs: All records that it aggregates.
        late: What ``late_keys`` gave.

    Returns:
        A row for each window, of the columns that ``aggregate`` gives of a node with windows.
    """
    windows = windows_of(node)
    assert isinstance(windows, TimeWindows), f"{node.name} aggregates no sliding windows"
    arguments = [argument.from_record.alias(argument.name) for argument in node_arguments(0, node, inputs)]
    records = inputs.data.select(*record_columns(inputs), *arguments).join(late, ["partition", "key"], "left_anti")
    records = with_sliding_windows(records, windows)
    aggregates = [column.alias(name) for name, column in node_aggregates(0, node, records.schema)]
    return records.groupBy("partition", "key", "window").agg(*aggregates, F.max("timestamp").alias("timestamp"))


def with_sliding_windows(records: DataFrame, windows: TimeWindows) -> DataFrame:
    """Repeat each record for every window that its time lies in, with the window in the column ``window``.

    Args:
        records: All records, with the columns ``partition``, ``key`` and ``timestamp``.
        windows: Sliding windows.
    """
    size, at = F.lit(windows.size_ms).cast("bigint"), F.unix_millis("timestamp")
    times = records.select(F.col("partition").alias("_partition"), F.col("key").alias("_key"), at.alias("_at"))
    following = F.lead("_at").over(Window.partitionBy("_partition", "_key").orderBy("_at"))
    times = times.distinct().withColumn("_next", following)
    ends_here = F.greatest(F.col("_at") - size, F.lit(0).cast("bigint"))
    begins_behind = F.when(F.col("_next") <= F.col("_at") + 1 + size, F.col("_at") + 1)
    starts = times.select("_partition", "_key", F.explode(F.array(ends_here, begins_behind)).alias("_start"))
    starts = starts.where("_start is not null").distinct()
    is_in = F.col("partition").eqNullSafe(F.col("_partition")) & F.col("key").eqNullSafe(F.col("_key"))
    is_in &= (at >= F.col("_start")) & (at <= F.col("_start") + size)
    start, end = (F.timestamp_millis(bound) for bound in (F.col("_start"), F.col("_start") + size))
    window = F.struct(start.alias("start"), end.alias("end")).alias("window")
    return records.join(starts, is_in).select(*records.columns, window)
