"""Of several records with the same greatest ``y``, ``max_by(x, y)`` may take any: the recount takes the store's."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from streamplan.model.operations import Aggregate, AggregateColumn, arguments_of_call
from streamplan.model.processor_topology import Processor
from streamplan.model.windows import SessionWindows, TimeWindows
from streamplan.serdes.field_types import has_map
from streamplan.spark.planning.aggregation import WINDOW_START, stored_key, stored_session, with_windows
from streamplan.spark.planning.field_types import declared_type
from streamplan.spark.planning.records import RecordFrame
from streamplan.spark.planning.recounted.sessions import with_sessions
from streamplan.spark.planning.recounted.sliding import with_sliding_windows
from streamplan.spark.planning.window_bounds import window_end


def with_observed_ties(node: Processor, inputs: RecordFrame, rows: DataFrame, changelog: DataFrame) -> DataFrame:
    """Let ``max_by`` and ``min_by`` have the value that the changelog has, where that is one of equals.

    What follows the store is then computed from the same value. A value that is not one of equals is left as it was
    recounted, and differs from the changelog.

    Args:
        node: An aggregation.
        inputs: The records that it aggregates.
        rows: What :func:`streamplan.spark.planning.aggregation.aggregate` gave for this node alone.
        changelog: The records of its changelog, in the columns :data:`streamplan.spark.sources.RAW`.
    """
    operation = node.operation
    if not isinstance(operation, Aggregate):
        return rows
    columns = [column for column in operation.columns if column.function in ("max_by", "min_by")]
    if not columns:
        return rows
    windows = operation.window
    by = ["partition", "key", *(["window"] if windows else [])]
    types = StructType([StructField(column.name, rows.schema[f"s0_{column.name}"].dataType) for column in columns])
    records = inputs.data.select(
        F.col("record.partition").alias("partition"),
        inputs.key.cast("string").alias("key"),
        F.col("record.timestamp").alias("timestamp"),
        *(
            F.expr(argument).alias(f"{name}_{column.name}")
            for column in columns
            for name, argument in zip("xy", arguments_of_call(column), strict=True)
        ),
    )
    if isinstance(windows, SessionWindows):
        records = with_sessions(records, windows)
    elif windows and windows.slides:
        records = with_sliding_windows(records, windows)
    elif windows:
        records = with_windows(records, windows, "timestamp")
    ties = (
        records.join(_last_values(changelog, types, windows), by)
        .groupBy(*by)
        .agg(
            *(_best(column, records.schema) for column in columns),
            *(F.first(_observed(column)).alias(_observed(column)) for column in columns),
        )
    )
    joined = rows.join(ties, by, "left")
    for column in columns:
        stored = F.col(f"s0_{column.name}")
        tied = stored.withField("value", F.col(_observed(column)))
        is_tied = F.col(f"best_{column.name}") == stored["by"]
        joined = joined.withColumn(f"s0_{column.name}", F.when(is_tied, tied).otherwise(stored))
    return joined.select(*rows.columns)


def _best(column: AggregateColumn, types: StructType) -> Column:
    """The greatest ``y``, or the least, of the records that have the observed ``x``; ``types`` are those of records."""
    best = F.max if column.function == "max_by" else F.min
    value, observed = F.col(f"x_{column.name}"), F.col(_observed(column))
    if has_map(declared_type(types[f"x_{column.name}"].dataType)):  # Spark compares no maps.
        value, observed = (F.to_json(F.struct(each.alias("x"))) for each in (value, observed))
    has_observed = value.eqNullSafe(observed)
    return best(F.when(has_observed, F.col(f"y_{column.name}"))).alias(f"best_{column.name}")


def _observed(column: AggregateColumn) -> str:
    """The name of the column with the value that the changelog has."""
    return f"observed_{column.name}"


def _last_values(changelog: DataFrame, types: StructType, windows: TimeWindows | SessionWindows | None) -> DataFrame:
    """The last value of each key in a changelog: of each of these fields the part ``value``, in a column of its own.

    Spark 4.2 fails to bind a field of a struct in the aggregation that follows.
    """
    last = changelog.groupBy("partition", "key").agg(F.max_by("value", "offset").alias("value"))
    last = last.withColumn("stored", F.from_json(F.col("value").cast("string"), types))
    values = [F.col(f"stored.`{name}`.value").alias(f"observed_{name}") for name in types.names]
    if isinstance(windows, SessionWindows):
        return last.select("partition", *stored_session(), *values)
    stored = last.select("partition", *stored_key(windows), *values)
    if windows is None:
        return stored
    if windows.slides:
        end = F.timestamp_millis(window_end(windows, F.unix_millis(WINDOW_START))).alias("end")
        window = F.struct(F.col(WINDOW_START).alias("start"), end)
        return stored.withColumn("window", window).drop(WINDOW_START)
    return with_windows(stored, windows, WINDOW_START).where(f"window.start = {WINDOW_START}").drop(WINDOW_START)
