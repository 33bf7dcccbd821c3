"""Aggregates of windows by the time of the stream task: Spark's ``transformWithState``, with the task as one group.

Sessions and sliding windows are aggregated so, and time windows of which only the final results are passed; and beside
other state of a sub-topology every aggregate, where one without windows has one value of each key. What is too late,
and which windows close, is told by the newest record of the stream task, which is one for all keys
(``KStreamSessionWindowAggregate``, ``KStreamWindowAggregate``). So the group is the stream task, and not the key, as
for the join of two streams. The state of a key is the list of its windows.

A record may make one session of several. So what a window has aggregated is kept in parts that can be merged: a record
is one more session, from its time to its time, and a changelog has whole windows.

A micro-batch writes the changes of a window once, as the library's record cache does: what it became, or null where
another session has taken it in. With ``OnWindowClose`` these changes go to the changelog alone. A window that closes is
passed, and leaves the state. What closes follows from the newest record, which the changelog has, too. So a restored
state knows which windows were passed: those that were closed by then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from streamplan.errors import Refused
from streamplan.model.operations import (
    Aggregate,
    AggregateWindowsFunction,
    CogroupFunctions,
    Count,
    FinalAggregate,
    FinalCount,
    Reduce,
)
from streamplan.model.processor_topology import Processor
from streamplan.model.stages.aggregate import (
    has_custom_windows,
    has_functions,
    has_sliding_windows,
    has_suppressed_results,
)
from streamplan.model.windows import SessionWindows, TimeWindows
from streamplan.spark.planning.aggregation import (
    CLOSED_BY,
    PLACE,
    WINDOW_START,
    Argument,
    node_arguments,
    stored_key,
    stored_records,
    stored_session,
    stored_value,
)
from streamplan.spark.planning.field_types import as_state, declared_type, from_state
from streamplan.spark.planning.function_fold import FunctionFold, Functions, fields_of_reducer
from streamplan.spark.planning.merging import PARTS, Merging
from streamplan.spark.planning.records import RecordFrame
from streamplan.spark.planning.task_state import record_in_state, record_of_state, record_place
from streamplan.spark.planning.window_bounds import window_bounds, window_end
from streamplan.spark.planning.window_state import FinalResults, TotalAggregate, WindowAggregate

_ORDERED = (BooleanType, DateType, DecimalType, DoubleType, FloatType, IntegerType, LongType, StringType, TimestampType)
"""The types whose values Python orders as Spark does."""

_ORDERING = ("min", "max", "min_by", "max_by", "latest_min_by", "latest_max_by")
"""The functions that order values."""

_TIME = "time"
"""The name of the part that is the time of the newest record."""


def aggregate_windows(
    node: Processor,
    records: RecordFrame,
    ticks: DataFrame | None = None,
    *,
    by_record: bool = False,
    passes_each: bool = False,
    times: Mapping[int, int] | None = None,
) -> DataFrame:
    """Aggregate the records of each key and window.

    Args:
        node: The processor of a :class:`~streamplan.model.stages.window.WindowStage`, or of a
            :class:`~streamplan.model.stages.task_aggregate.TaskAggregateStage`.
        records: What it aggregates. All have a key, and none is rejected.
        ticks: A stream with rows for stream tasks whose time may go on without records; None without such tasks.
        by_record: Whether a final result has the place of the record that closed its window, in ``closed_by``, as other
            state needs it that it is given to. Without it final results are behind all records of a micro-batch.
        passes_each: Without windows, whether each record gives an update, with the place of the record in
            ``closed_by``. Without it the updates of a key are one for each micro-batch.
        times: By partition the time in ms that the wall clock has given to a stream task, where all records are
            recounted. None where the micro-batch has it.

    Returns:
        One row for each window that has changed: its key and ``window``, what the node's store holds of it in the
        columns ``s0_``, and the ``timestamp`` of its record in the changelog. ``deleted`` sessions are there no
        more, because another one has taken them in. ``place`` is that of the change among those of its stream task.

        For final results there is a row for each window that closes, too. ``place`` is its place among those of its
        stream task, and its ``timestamp`` is that of the result. In the other rows ``place`` is null.

        Where Python functions aggregate, or tell the windows, a row with a ``reason`` is a ``record`` for which one of
        them has failed.

    Raises:
        Refused: A function orders values of a type that has no order here, or a store cannot hold the values of the
            records.
    """
    node = with_fields(node, records)
    parts, windows = _Parts.of(node, records), _windows(node)
    at = F.unix_millis("record.timestamp")
    start, end = at, at
    if isinstance(windows, TimeWindows) and not (windows.begin_at_multiples or windows.are_of_function):
        start, end = window_bounds(windows, at)
    may_fail = has_functions(node) or has_custom_windows(node)
    whole = [record_in_state(records).alias("record")] if may_fail else []
    rows = records.data.select(
        F.col("record.partition").alias("partition"),
        record_place().alias("place"),
        records.key.alias("key"),
        start.alias("start"),
        end.alias("end"),
        at.alias("at"),
        parts.from_records_in_state().alias("parts"),
        *whole,
    )
    if ticks is not None:
        rows = rows.unionByName(ticks, allowMissingColumns=True)
    return _aggregated(node, parts, rows, records, by_record=by_record, passes_each=passes_each, times=times)


def restore_windows(node: Processor, records: RecordFrame, stored: DataFrame, times: Mapping[int, int]) -> DataFrame:
    """Read the windows of a changelog into the state that :func:`aggregate_windows` goes on with.

    Args:
        node: As for :func:`aggregate_windows`.
        records: As for :func:`aggregate_windows`; only their types are used.
        stored: The last record of each key of the changelog, in the columns :data:`streamplan.spark.sources.RAW`.
        times: By partition the time in ms that the wall clock has given to a stream task.
    """
    node = with_fields(node, records)
    parts, windows = _Parts.of(node, records), _windows(node)
    nothing = F.lit(0).cast("bigint")
    if isinstance(node.operation, Reduce):
        frame = stored_records(stored, records)
        rows = frame.data.select(
            F.col("record.partition").alias("partition"),
            frame.key.alias("key"),
            nothing.alias("start"),
            nothing.alias("end"),
            F.unix_millis("record.timestamp").alias("at"),
            _Parts.of(node, frame).from_records_in_state().alias("parts"),
        )
        return _aggregated(node, parts, rows, records, restored=times)
    types = records.data.limit(0).select(*parts.from_records()).select(*parts.stored_columns()).schema
    key = stored_session() if isinstance(windows, SessionWindows) else stored_key(windows)
    rows = stored.select("partition", "timestamp", *key, stored_value(0, node, types).alias("_stored"))
    if isinstance(windows, SessionWindows):
        bounds = {name: F.unix_millis(f"window.{name}") for name in ("start", "end")}
        bounds["at"] = bounds["end"]
    elif windows is None:
        bounds = {"start": nothing, "end": nothing, "at": F.unix_millis("timestamp")}
    else:
        start = F.unix_millis(WINDOW_START)
        bounds = {"start": start, "end": window_end(windows, start), "at": F.unix_millis("timestamp")}
    columns = parts.of_columns([argument.from_store for argument in parts.arguments])
    named = [bound.alias(name) for name, bound in bounds.items()]
    rows = rows.select("partition", F.col("key").cast("binary").alias("key"), *named, columns.alias("parts"))
    return _aggregated(node, parts, rows, records, restored=times)


def with_fields(node: Processor, records: RecordFrame) -> Processor:
    """Return a processor with the fields of its store: those of a reducer are those of the records.

    Args:
        node: An aggregation.
        records: What it aggregates.

    Raises:
        Refused: A store cannot hold the values of the records.
    """
    operation = node.operation
    if not isinstance(operation, AggregateWindowsFunction) or operation.initializer is not None:
        return node
    return replace(node, operation=replace(operation, fields=fields_of_reducer(records)))


def rejected_records(batch: DataFrame) -> tuple[DataFrame, DataFrame | None]:
    """Divide the rows of :func:`aggregate_windows` into what is aggregated, and the records that were rejected.

    Args:
        batch: The rows.

    Returns:
        The second one has the column ``record`` alone. It is None where no record can be rejected.
    """
    if "reason" not in batch.columns:
        return batch, None
    rejected = batch.where("reason is not null").select(
        F.col("record").withField("reason", F.col("reason")).alias("record")
    )
    return batch.where("reason is null").drop("reason", "record"), rejected


def windows_of(node: Processor) -> TimeWindows | SessionWindows:
    """Return the windows of an aggregation of windows."""
    windows = _windows(node)
    assert windows is not None, f"{node.name} aggregates no windows"
    return windows


def _windows(node: Processor) -> TimeWindows | SessionWindows | None:
    return node.operation.window if isinstance(node.operation, Count | Aggregate) else None


def sessions_of(node: Processor) -> SessionWindows:
    """Return the windows of an aggregation of sessions."""
    windows = windows_of(node)
    assert isinstance(windows, SessionWindows), f"{node.name} aggregates no sessions"
    return windows


def final_results(batch: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Divide the rows of :func:`aggregate_windows` into the changes of the store, and the windows that close.

    Args:
        batch: The rows of an aggregation with final results.
    """
    return batch.where(f"{PLACE} is null").drop(PLACE), batch.where(f"{PLACE} is not null")


def with_times_of_updates(stored: RecordFrame) -> RecordFrame:
    """Return the rows of a store with the times that its updates have. An update of a session has that of its end.

    Args:
        stored: The rows of the store, with the times that its changelog has.
    """
    if not stored.is_of_sessions:
        return stored
    return stored.with_record(F.col("record").withField("timestamp", F.col("record.window.end")))


@dataclass(frozen=True)
class _Parts:
    """The parts of what a window has aggregated: one for each argument of the node's aggregates, or two of an average.

    The last part is the time of the newest record, which is one more maximum; sessions have it in their end.

    Attributes:
        functions: The aggregate functions and the names of their columns, in the order of declaration.
        arguments: The argument of each part.
        types: The type of each part.
    """

    functions: Sequence[tuple[str, str]]
    arguments: Sequence[Argument]
    types: Sequence[DataType]

    @classmethod
    def of(cls, node: Processor, records: RecordFrame) -> _Parts:
        operation, functions = node.operation, [("count", "count")]
        match operation:
            case AggregateWindowsFunction():
                functions = [("function", "value")]
            case Aggregate(columns=aggregated):
                functions = [(column.function, column.name) for column in aggregated]
            case Reduce(greatest=greatest):
                functions = [("latest_max_by" if greatest else "latest_min_by", "kept")]
        arguments = node_arguments(0, node, records)
        if not isinstance(_windows(node), SessionWindows):
            functions.append(("max", _TIME))
            time = F.unix_millis("record.timestamp")
            arguments.append(Argument(_TIME, time, F.unix_millis("timestamp")))
        columns = [argument.from_record.alias(f"p{place}") for place, argument in enumerate(arguments)]
        types = [part.dataType for part in records.data.select(*columns).schema.fields]
        place = 0
        for function, name in functions:
            ordered = place + PARTS.get(function, 1) - 1
            if function in _ORDERING and not isinstance(types[ordered], _ORDERED):
                kind = "sessions" if isinstance(_windows(node), SessionWindows) else "final results"
                if not isinstance(operation, FinalCount | FinalAggregate) and kind != "sessions":
                    kind = "sliding windows" if has_sliding_windows(node) else "an aggregate beside other state"
                told = f"{name}: {function}"
                if isinstance(operation, Reduce):
                    told = f"reduce: {function.removeprefix('latest_')}"
                raise Refused(
                    f"{told} of {kind} by values of type {types[ordered].simpleString()}",
                    expected="a text, a number, a boolean, a date or a timestamp",
                    remedy="Order by one of its fields.",
                )
            place = ordered + 1
        return cls(functions, arguments, types)

    def of_columns(self, columns: Sequence[Column]) -> Column:
        """A struct of all parts in the form that the state has."""
        return F.struct(
            *(
                as_state(column, declared_type(of_part)).alias(f"p{place}")
                for place, (column, of_part) in enumerate(zip(columns, self.types, strict=True))
            )
        )

    def from_records_in_state(self) -> Column:
        """The parts of records in the form that the state has."""
        return self.of_columns([argument.from_record for argument in self.arguments])

    def from_records(self) -> list[Column]:
        """The parts of records as columns of their own."""
        return [argument.from_record.alias(f"p{place}") for place, argument in enumerate(self.arguments)]

    def from_struct(self) -> list[Column]:
        """The parts of the column ``parts`` as columns of their own."""
        return [
            from_state(F.col(f"parts.p{place}"), declared_type(of_part)).alias(f"p{place}")
            for place, of_part in enumerate(self.types)
        ]

    def stored_columns(self) -> list[Column]:
        """What the store holds, of the columns of all parts: the columns that ``aggregate`` gives of node 0."""
        columns, place = [], 0
        for function, name in self.functions:
            part, other = F.col(f"p{place}"), F.col(f"p{place + 1}")
            if function == "avg":
                part = F.struct(part.alias("sum"), other.alias("count"))
            elif function in ("min_by", "max_by"):
                part = F.when(other.isNotNull(), F.struct(part.alias("value"), other.alias("by")))
            columns.append(part.alias(f"s0_{name}"))
            place += PARTS.get(function, 1)
        return columns


def _aggregated(
    node: Processor,
    parts: _Parts,
    rows: DataFrame,
    records: RecordFrame,
    *,
    restored: Mapping[int, int] | None = None,
    by_record: bool = False,
    passes_each: bool = False,
    times: Mapping[int, int] | None = None,
) -> DataFrame:
    of_parts = rows.schema["parts"].dataType
    assert isinstance(of_parts, StructType)
    final = isinstance(node.operation, FinalCount | FinalAggregate)
    fields = [
        StructField("partition", IntegerType()),
        StructField("key", BinaryType()),
        StructField("start", LongType()),
        StructField("end", LongType()),
        StructField("at", LongType()),
        StructField("deleted", BooleanType()),
        StructField("parts", of_parts),
        StructField("place", IntegerType()),
    ]
    windows = _windows(node)
    passes_each = passes_each and windows is None
    has_place = passes_each or (final and by_record)
    closed_by = [StructField(CLOSED_BY, rows.schema["place"].dataType)] if has_place else []
    rejected: list[StructField] = []
    folding: Merging | FunctionFold = Merging(tuple(function for function, _ in parts.functions), tuple(parts.types))
    if isinstance(node.operation, AggregateWindowsFunction):
        folding = FunctionFold(_functions(node.operation), records.schema, records.key_serde, keeps_times=final)
    if has_functions(node) or has_custom_windows(node):
        of_record = rows.schema["record"].dataType if restored is None else StringType()
        rejected = [StructField("record", of_record), StructField("reason", StringType())]
    if windows is None:
        processor: WindowAggregate = TotalAggregate(folding, of_parts, restored=restored, passes_each=passes_each)
    else:
        of_task = FinalResults if final else WindowAggregate
        processor = of_task(
            windows,
            folding,
            of_parts,
            restored=restored,
            by_record=bool(closed_by),
            suppressed=has_suppressed_results(node),
            times=times,
        )
    changed = rows.groupBy("partition").transformWithState(
        processor, StructType([*fields, *closed_by, *rejected]), "Update", "none"
    )
    window = F.struct(F.timestamp_millis("start").alias("start"), F.timestamp_millis("end").alias("end"))
    at = F.timestamp_millis("at").alias("timestamp")
    key = F.col("key").cast("string")  # as of other aggregates: a string that holds the key's bytes as they are
    shared = [F.col("partition"), key.alias("key"), window.alias("window"), at, F.col("deleted")]
    names = ["place", *(field.name for field in closed_by)]
    if rejected:
        names.append("reason")
        of_record = records.data.schema["record"].dataType
        record = F.lit(None).cast(of_record) if restored is not None else record_of_state(records.key_serde)
        shared.append(record.alias("record"))
    columns = changed.select(*shared, *names, *parts.from_struct())
    names += ["record"] if rejected else []
    return columns.select("partition", "key", "window", "timestamp", "deleted", *names, *parts.stored_columns())


def _functions(operation: AggregateWindowsFunction) -> tuple[Functions, ...]:
    aggregators = operation.aggregators if isinstance(operation, CogroupFunctions) else (operation.function,)
    return tuple(Functions(each, operation.initializer, operation.merger, operation.fields) for each in aggregators)
