"""Aggregations as one native ``groupBy``, and what their stores hold.

A store holds what an aggregate can be continued from, so that a changelog alone restores it: an average is stored as
sum and count, and the value with the greatest ``y`` together with that ``y``. Operations after the store see only the
result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ByteType,
    DecimalType,
    FloatType,
    IntegerType,
    ShortType,
    StructField,
    StructType,
)

from streamplan.errors import Refused
from streamplan.model.kstream import LATEST
from streamplan.model.operations import (
    STREAM_OF_RECORD,
    Aggregate,
    AggregateColumn,
    AggregateWindowsFunction,
    Count,
    Reduce,
    TableCount,
    arguments_of_call,
    value_of_stream,
)
from streamplan.model.processor_topology import Processor
from streamplan.model.stages.aggregate import windows_of
from streamplan.model.windows import STORED_SESSION_BYTES, STORED_WINDOW_BYTES, JoinWindows, SessionWindows, TimeWindows
from streamplan.serdes.field_types import FIELD_TYPES, GREATEST_PRECISION
from streamplan.serdes.internal import value_expression
from streamplan.serdes.primitive import STRING, KeySerde
from streamplan.spark.planning.field_types import declared_fields, unreadable_types
from streamplan.spark.planning.keys import big_endian, number_in_key, read_key
from streamplan.spark.planning.records import RecordFrame, read_stored
from streamplan.spark.planning.window_bounds import window_bounds
from streamplan.spark.sources import HEADERS

WINDOW_START = "window_start"
"""The column with the start of the window that a row of a store belongs to."""

PLACE = "place"
"""The column with the place of an update among those of its stream task."""

CLOSED_BY = "closed_by"
"""The column with the place of the record that has closed a window or changed a total, where a result has it."""

_WATERMARK = "spark.watermarkDelayMs"
"""Marks the column by which the state forgets what the watermark has passed (``EventTimeWatermark.delayKey``)."""


def aggregate(
    nodes: Sequence[Processor], inputs: Mapping[str, RecordFrame], *, merged: bool, ordered: bool
) -> DataFrame:
    """Aggregate the records of several nodes with one ``groupBy``.

    Args:
        nodes: Aggregations of one sub-topology.
        inputs: By the name of a node the records that it aggregates.
        merged: Whether the records come from several topics. The latest is then told by its time, and by its offset
            only among records of equal time.
        ordered: Whether a row has the ``place`` of the last record that went into it
            (:attr:`Stage.passes_updates_in_order`).

    Returns:
        One row for each key (and window, and node where there are several) with what the node's store holds. The
        columns of node ``n`` begin with ``s<n>_``.
    """
    contributions = [_contributions(number, node, inputs[node.name], merged) for number, node in enumerate(nodes)]
    return _fold(nodes, contributions if ordered else [each.drop(PLACE) for each in contributions])


def fold_counts(node: Processor, counts: DataFrame) -> DataFrame:
    """Add counts up with the same ``groupBy`` as :func:`aggregate` has for the count of one node.

    Args:
        node: A count without windows.
        counts: In the columns :data:`streamplan.spark.sink.handed_on.COUNTS`.
    """
    by_key = counts.withColumnRenamed("count", "a0_count_0").withColumn("key", read_key(STRING, F.col("key")))
    return _fold([node], [by_key])


def cogrouped(streams: Sequence[RecordFrame]) -> RecordFrame:
    """Return the records of several streams that are aggregated together. The fields of the other streams are null.

    Args:
        streams: The records of each stream, with the fields that it gives to the aggregate.

    Raises:
        Refused: A field that several streams have is not of one type.
    """
    types: dict[str, str] = {}
    for stream in streams:
        for name in stream.fields:
            of_field = stream.data.schema[name].dataType.simpleString()
            if types.setdefault(name, of_field) != of_field:
                raise Refused(
                    f"cogroup, {name.rpartition('_')[0]}: {types[name]} of one stream and {of_field} of another",
                    remedy="Cast one of them.",
                )
    frames = (stream.data for stream in streams)
    return replace(streams[0], data=reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames))


def numbered_values(records: RecordFrame, number: int) -> RecordFrame:
    """Return the records of one of several streams that functions aggregate, each value in the field of its stream.

    Args:
        records: The records of the stream.
        number: That of the stream.

    Raises:
        Refused: A field of the records has a type that Python is not given.
    """
    if unsupported := [
        f"{name} of type {told}" for name, told in declared_fields(records.data).items() if any(unreadable_types(told))
    ]:
        raise Refused(
            f"the functions of a cogroup are not given {', '.join(unsupported)}",
            remedy=f"With map_values give it one of {', '.join(FIELD_TYPES)}, as in base64(value).",
        )
    value = F.when(records.has_value, F.struct(*(F.col(f"`{name}`") for name in records.fields)))
    fields = [F.lit(number).alias(STREAM_OF_RECORD), value.alias(value_of_stream(number))]
    data = records.data.select(*fields, "record")
    return replace(records, data=data, value_is_raw=False, serde=None, format=None)


def restore_aggregation(
    nodes: Sequence[Processor],
    inputs: Mapping[str, RecordFrame],
    stored: Mapping[str, DataFrame],
    *,
    merged: bool,
    ordered: bool,
) -> DataFrame:
    """Aggregate what the stores held, with the same ``groupBy``: each stored value is fed back as one input.

    Args:
        nodes: As for :func:`aggregate`.
        inputs: As for :func:`aggregate`; only their types are used.
        stored: By the name of a node the last record of each key of its changelog, in the columns
            :data:`streamplan.spark.sources.RAW`.
        merged: As for :func:`aggregate`.
        ordered: As for :func:`aggregate`.
    """
    types = aggregate(nodes, inputs, merged=merged, ordered=ordered).schema
    contributions = []
    for number, node in enumerate(nodes):
        rows = stored[node.name]
        if isinstance(node.operation, Reduce):
            contributions.append(_contributions(number, node, stored_records(rows, inputs[node.name]), merged))
            continue
        value = stored_value(number, node, types)
        rows = rows.select("partition", *stored_key(_window(node)), "timestamp", value.alias("_stored"))
        arguments = [
            argument.from_store.alias(argument.name) for argument in node_arguments(number, node, inputs[node.name])
        ]
        window_start = (WINDOW_START,) if _window(node) else ()
        rows = rows.select("partition", "key", *window_start, "timestamp", F.lit(number).alias("node"), *arguments)
        contributions.append(_with_window(node, rows, *window_start))
    contributions = [each.drop(PLACE) for each in contributions]
    if ordered:
        no_place = F.lit(None).cast(types[PLACE].dataType).alias(PLACE)
        contributions = [each.select("*", no_place) for each in contributions]
    return _fold(nodes, contributions)


def store_rows(number: int, node: Processor, batch: DataFrame, inputs: RecordFrame) -> RecordFrame:
    """Return the rows of a node's store as records. Their value in bytes is what goes into the changelog.

    Args:
        number: The number of the node among those that were aggregated together.
        node: An aggregation.
        batch: What :func:`aggregate` gave, or ``aggregate_windows``, whose ``deleted`` rows have a null value, and
            Rows with a ``place`` are written in the order of that, and those of windows by their starts.
        inputs: The records that the node aggregated; only what is known of them is used.
    """
    operation = node.operation
    data = batch.where(F.col("node") == number) if "node" in batch.columns else batch
    fields: list[Column]
    encoding: str | None
    match operation:
        case Count():
            fields = [F.col(f"s{number}_count").alias("count")]
            value, encoding = big_endian(F.col(f"s{number}_count")), "count"
        case AggregateWindowsFunction(fields=made):
            value, encoding = F.col(f"s{number}_value"), "json"
            types = data.select(*(F.lit(None).cast(of_field).alias(name) for name, of_field in made)).schema
            data = data.withColumn("_made", _from_stored(value, types))
            fields = [F.col(f"_made.`{name}`").alias(name) for name, _ in made]
        case Aggregate(columns=columns):
            fields = [F.col(f"s{number}_{column.name}").alias(column.name) for column in columns]
            stored = declared_fields(data.select(*fields))
            value, encoding = F.expr(value_expression(stored, prefix=f"s{number}_")), "json"
        case Reduce():
            kept = f"s{number}_kept"
            fields = [F.col(f"{kept}.fields.`{name}`").alias(name) for name in inputs.fields]
            value, encoding = F.col(f"{kept}.value"), inputs.format if inputs.value_is_raw else "json"
        case _:
            raise Refused(f"{node.name} is no aggregation")
    if "deleted" in data.columns:
        value = F.when(~F.col("deleted"), value)
    record = stored_record(F.col("key").cast("binary"), value, inputs.key_serde)
    places = [F.col(place) for place in _places(data)]
    if windows_of(node):
        places.append(F.unix_millis("window.start"))
    order = F.array(*chain(*map(_as_ints, places))).cast("array<int>")
    if CLOSED_BY in data.columns:
        order = F.concat(F.coalesce(f"{CLOSED_BY}.order", F.array(F.lit(0))), order)
        topic, partition, offset, *others, _ = record
        topic, offset, time = (
            F.col(f"{CLOSED_BY}.{name}").alias(name) for name in ("topic", "offset", "partition_time")
        )
        record = [topic, partition, offset, *others, time]
    record = [*record[:-2], order.alias("order"), record[-1]]
    if windows_of(node):
        record.append(F.col("window"))
    if isinstance(windows_of(node), SessionWindows):
        record.append(F.lit(True).alias("session"))
    return RecordFrame(
        data.select(*fields, F.struct(*record).alias("record")),
        value_is_raw=True,
        no_rejects=True,
        key_not_null=True,
        serde=inputs.serde if isinstance(operation, Reduce) else None,
        format=encoding,
        key_serde=inputs.key_serde,
    )


def _places(data: DataFrame) -> list[str]:
    """The columns, each of a number, that are the places of rows."""
    if PLACE not in data.columns:
        return []
    of_place = data.schema[PLACE].dataType
    return [f"{PLACE}.time", f"{PLACE}.offset"] if isinstance(of_place, StructType) else [PLACE]


def _as_ints(number: Column) -> tuple[Column, Column]:
    """A number below 2^62 as two of 31 bits, which have the same order."""
    return F.shiftright(number.cast("bigint"), 31), number.cast("bigint").bitwiseAND(F.lit((1 << 31) - 1))


def stored_record(key: Column, value: Column, key_serde: KeySerde) -> list[Column]:
    """Return the parts of ``record`` for an update of a store, which belongs to no record that was read.

    Its partition and its timestamp are the columns of these names.

    Args:
        key: The key in bytes.
        value: The value in bytes.
        key_serde: Reads the key.
    """
    return [
        F.lit(None).cast("string").alias("topic"),
        F.col("partition"),
        F.lit(None).cast("bigint").alias("offset"),
        F.col("timestamp"),
        read_key(key_serde, key).alias("key"),
        F.lit(None).cast(HEADERS).alias("headers"),
        key.alias("original_key"),
        value.alias("value"),
        F.lit(None).cast("string").alias("reason"),
        F.array().cast("array<int>").alias("order"),
        F.lit(None).cast("bigint").alias("partition_time"),
    ]


def store_result(node: Processor, frame: RecordFrame) -> RecordFrame:
    """Return what the operations after a store see of its rows: the results of its aggregates."""
    if not isinstance(node.operation, Aggregate):
        return frame
    results = {
        column.name: _RESULTS[column.function] for column in node.operation.columns if column.function in _RESULTS
    }
    if not results:
        return frame
    columns = [
        F.expr(results[name].format(name=f"`{name}`")).alias(name) if name in results else F.col(f"`{name}`")
        for name in frame.fields
    ]
    return replace(frame, data=frame.data.select(*columns, "record"), value_is_raw=False)


_RESULTS = {
    "avg": "try_divide({name}.sum, {name}.count)",
    "min_by": "{name}.value",
    "max_by": "{name}.value",
}
"""The aggregates of which a store holds more than the result, each with the expression of its result."""


_DIGITS_OF_SUM = 10
"""So many digits more than its summands has a sum of decimals in Spark (``Sum.resultType``)."""


@dataclass(frozen=True)
class Argument:
    """A column ``name`` that is aggregated: ``from_record`` of a record, ``from_store`` of the column ``_stored``."""

    name: str
    from_record: Column
    from_store: Column


def _fold(nodes: Sequence[Processor], contributions: Sequence[DataFrame]) -> DataFrame:
    # A union has the metadata of its first part, and with them the watermark by which the state drops late records.
    contributions = sorted(contributions, key=lambda each: "window" not in each.columns)
    data = reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), contributions)
    node_column = ("node",) if len(nodes) > 1 else ()
    by = [name for name in ("partition", *node_column, "window", "key") if name in data.columns]
    aggregates = [
        column.alias(name)
        for number, node in enumerate(nodes)
        for name, column in node_aggregates(number, node, data.schema)
    ]
    places = [F.max(PLACE).alias(PLACE)] if PLACE in data.columns else []
    return data.groupBy(*by).agg(*aggregates, F.max("timestamp").alias("timestamp"), *places)


def _contributions(number: int, node: Processor, frame: RecordFrame, merged: bool) -> DataFrame:
    """Key, partition, window and the arguments ``a<n>_`` of the node's aggregates.

    The arguments of other nodes are null in these rows, and every aggregate passes over null.
    """
    columns = [F.col("record.partition").alias("partition"), frame.key.cast("string").alias("key")]
    columns += [F.col("record.timestamp").alias("timestamp"), F.lit(number).alias("node")]
    columns.append(_place(merged).alias(PLACE))
    if isinstance(node.operation, Reduce):
        columns.append(_kept(frame).alias(f"a{number}_kept"))
        columns.append(_rank(node.operation, merged).alias(f"a{number}_by"))
    else:
        columns += [argument.from_record.alias(argument.name) for argument in node_arguments(number, node, frame)]
    return _with_window(node, frame.data.select(*columns))


def _kept(frame: RecordFrame) -> Column:
    """What a reduction keeps of a record: the value in bytes and its fields."""
    fields = F.struct(*(F.col(f"`{name}`") for name in frame.fields))
    return F.struct(frame.value.alias("value"), fields.alias("fields"))


def _place(merged: bool) -> Column:
    """The place of a record among all that a stream task takes. An offset alone costs the least.

    With several topics, the records of a micro-batch may be earlier than those of the one before. So the moment of the
    micro-batch comes first.
    """
    if not merged:
        return F.col("record.offset")
    time = F.coalesce("record.partition_time", F.unix_millis("record.timestamp"))
    batch = F.unix_millis(F.current_timestamp())
    return F.struct(batch.alias("batch"), time.alias("time"), F.col("record.offset").alias("offset"))


def _window(node: Processor) -> TimeWindows | None:
    windows = windows_of(node)
    assert not isinstance(windows, SessionWindows), f"{node.name} aggregates sessions, which groupBy does not"
    return windows


def _with_window(node: Processor, rows: DataFrame, time: str = "timestamp") -> DataFrame:
    window = _window(node)
    if window is None:
        return rows
    # Also where the start of a stored window tells the window: the time goes on from that of the newest record.
    rows = rows.withWatermark("timestamp", f"{window.grace_ms} milliseconds")
    rows = with_windows(rows, window, time)
    return rows.where(f"window.start = {WINDOW_START}") if time == WINDOW_START else rows


def with_windows(rows: DataFrame, windows: TimeWindows, time: str) -> DataFrame:
    """Repeat each row for every window that a time lies in, with the window in the column ``window``.

    Spark's ``window`` makes a projection of the plan for each window that a time can lie in. There may be thousands of
    windows that overlap, so their starts are computed here, as ``TimeWindows.windowsFor`` does.

    Args:
        rows: Any rows.
        time: The name of a column with a timestamp.
    """
    at = F.unix_millis(time)
    if not windows.begin_at_multiples:
        return rows.select("*", _window_of(windows, *window_bounds(windows, at)))
    if windows.advance is None:
        return rows.withColumn("window", F.window(time, f"{windows.size_ms} milliseconds"))
    advance = F.lit(windows.advance_ms).cast("bigint")
    offset = F.lit(windows.offset_ms).cast("bigint")
    earliest = F.greatest(F.lit(0).cast("bigint"), at - F.lit(windows.size_ms) + advance - offset)
    first = offset + earliest - earliest % advance
    starts = F.when(first <= at, F.sequence(first, F.greatest(first, at), advance))
    start = F.col("_start")
    rows = rows.withColumn("_start", F.explode(starts))
    return rows.select("*", _window_of(windows, start, start + F.lit(windows.size_ms))).drop("_start")


def _window_of(windows: TimeWindows, start: Column, end: Column) -> Column:
    window = F.struct(F.timestamp_millis(start).alias("start"), F.timestamp_millis(end).alias("end"))
    return window.alias("window", metadata={_WATERMARK: windows.grace_ms})


def stored_key(windows: TimeWindows | JoinWindows | None) -> list[Column]:
    """Return the key of a changelog record, and the start of its window, which the key's last bytes hold.

    The record's timestamp does not tell the window for certain: another clock may have set it, and windows may overlap.

    Args:
        windows: The windows of the store; None for a store without windows, whose keys have no start.

    Returns:
        The columns ``key`` and, for a windowed store, :data:`WINDOW_START`.
    """
    if windows is None:
        return [F.col("key").cast("string").alias("key")]
    key = F.expr(f"substring(key, 1, octet_length(key) - {STORED_WINDOW_BYTES})")
    start = F.timestamp_millis(number_in_key(STORED_WINDOW_BYTES))
    return [key.cast("string").alias("key"), start.alias(WINDOW_START)]


def stored_session() -> list[Column]:
    """Return the key of a changelog record, and its session, which the key's last bytes hold (``SessionKeySchema``)."""
    end, start = (F.timestamp_millis(number_in_key(STORED_SESSION_BYTES - 8 * place)) for place in range(2))
    key = F.expr(f"substring(key, 1, octet_length(key) - {STORED_SESSION_BYTES})").cast("string")
    return [key.alias("key"), F.struct(start.alias("start"), end.alias("end")).alias("window")]


def node_arguments(number: int, node: Processor, frame: RecordFrame) -> list[Argument]:
    """Return what an aggregation takes of a record and of a stored value, so that either gives the same.

    A stored value of a reduction is read as a record (:func:`stored_records`).

    Args:
        number: The number of the node among those that are aggregated together.
        node: An aggregation.
        frame: The records that it aggregates.
    """
    if isinstance(node.operation, AggregateWindowsFunction):
        return [Argument(f"a{number}_value", frame.value, F.col("_stored"))]
    if isinstance(node.operation, Count):
        return [Argument(f"a{number}_count_0", F.lit(1).cast("bigint"), F.col("_stored"))]
    if isinstance(node.operation, Reduce):
        by = F.lit(0) if node.operation.by == LATEST else F.expr(node.operation.by)
        named = (("kept", _kept(frame)), ("by", by))
        return [Argument(f"a{number}_{name}", column, F.col("_stored")) for name, column in named]
    assert isinstance(node.operation, Aggregate)
    arguments = []
    for column in node.operation.columns:
        stored = F.col(f"_stored.`{column.name}`")
        for place, (from_record, from_store) in enumerate(_pairs(column, frame, stored)):
            data_type = frame.data.select(from_record.alias("argument")).schema["argument"].dataType
            arguments.append(Argument(f"a{number}_{column.name}_{place}", from_record, from_store.cast(data_type)))
    return arguments


def _pairs(column: AggregateColumn, frame: RecordFrame, stored: Column) -> list[tuple[Column, Column]]:
    """For each argument of an aggregate what a record gives, and what a stored value gives."""
    arguments = arguments_of_call(column)
    present = reduce(lambda left, right: left & right, (F.expr(argument).isNotNull() for argument in arguments))
    counted = F.when(present, 1).otherwise(0).cast("bigint")
    match column.function, arguments:
        case "count", _:
            return [(counted, stored)]
        case "count_if", [condition]:
            return [(F.when(F.expr(condition), 1).otherwise(0).cast("bigint"), stored)]
        case "sum", [x]:
            return [(_summand(x, frame), stored)]
        case "avg", [x]:
            return [(_summand(x, frame), stored["sum"]), (counted, stored["count"])]
        case (("min_by" | "max_by"), [x, y]):
            return [(F.expr(x), stored["value"]), (F.expr(y), stored["by"])]
        case (("min" | "max" | "bool_and" | "bool_or"), [x]):
            return [(F.expr(x), stored)]
    raise Refused(f"{column.name}: {column.function} takes other arguments")


def _summand(x: str, frame: RecordFrame) -> Column:
    """``x`` in the type of its sum where that is another: a restored sum is added as a record's value is."""
    data_type = frame.data.select(F.expr(x).alias("x")).schema["x"].dataType
    match data_type:
        case ByteType() | ShortType() | IntegerType():
            return F.expr(x).cast("bigint")
        case FloatType():
            return F.expr(x).cast("double")
        case DecimalType(precision=precision, scale=scale):
            return F.expr(x).cast(DecimalType(min(precision + _DIGITS_OF_SUM, GREATEST_PRECISION), scale))
    return F.expr(x)


def stored_value(number: int, node: Processor, types: StructType) -> Column:
    """Return the value of a store from its bytes in the changelog. A query fails on bytes that are no such value.

    Args:
        number: The number of the node among those that are aggregated together.
        node: An aggregation that is no reduction.
        types: With the type of each column ``s<n>_`` of its store.
    """
    if isinstance(node.operation, AggregateWindowsFunction):
        return F.col("value")
    if isinstance(node.operation, Count | TableCount):
        failure = F.raise_error(F.lit("a changelog value of a count has 8 bytes"))
        count = F.conv(F.hex("value"), 16, 10).cast("bigint")
        return F.when(F.octet_length("value") == 8, count).otherwise(failure.cast("bigint"))
    assert isinstance(node.operation, Aggregate)
    value_type = StructType(
        [StructField(column.name, types[f"s{number}_{column.name}"].dataType) for column in node.operation.columns]
    )
    return _from_stored(F.col("value"), value_type)


def _from_stored(value: Column, value_type: StructType) -> Column:
    return F.from_json(value.cast("string"), value_type, {"mode": "FAILFAST", "timeZone": "UTC"})


def stored_records(rows: DataFrame, inputs: RecordFrame) -> RecordFrame:
    """Return the values that a reduction has stored as records. A query fails on bytes that are no such value.

    Args:
        rows: Of its changelog, in the columns :data:`streamplan.spark.sources.RAW`.
        inputs: The records that it takes; only their types are used.
    """
    return refusing_unreadable(read_stored(rows, inputs.schema, inputs.key_serde))


def refusing_unreadable(frame: RecordFrame) -> RecordFrame:
    """Let the query fail on a value that cannot be read: only readable values were written to the store."""
    failure = F.raise_error(F.concat(F.lit("a changelog value cannot be read: "), F.col("record.reason")))
    key = F.when(F.col("record.reason").isNull(), F.col("record.key")).otherwise(
        failure.cast(frame.key_serde.field_type)
    )
    return replace(frame.with_record(F.col("record").withField("key", key)), no_rejects=True)


def _rank(operation: Reduce, merged: bool) -> Column:
    """What records of a key are compared by: the greatest is kept, or the least; of equals the latest."""
    latest = [F.unix_micros("record.timestamp"), F.col("record.offset")] if merged else [F.col("record.offset")]
    by = F.expr(operation.by)
    if operation.by == LATEST:
        return F.struct(*latest)
    if operation.greatest:
        return F.struct(by, *latest)
    # What is least by the expression must be greatest by the offset. Null is neither greatest nor least.
    return F.struct(by.isNull(), by, *(-column for column in latest))


def node_aggregates(number: int, node: Processor, types: StructType) -> Iterable[tuple[str, Column]]:
    """Yield the columns ``s<n>_`` of a node's store by their names.

    Args:
        number: The number of the node among those that are aggregated together.
        node: An aggregation.
        types: Those of its arguments.
    """
    match node.operation:
        case Count():
            yield f"s{number}_count", F.sum(f"a{number}_count_0")
        case Aggregate(columns=columns):
            for column in columns:
                arguments = [f"a{number}_{column.name}_{place}" for place in range(2)]
                yield f"s{number}_{column.name}", _aggregate_of(column, types, *arguments)
        case Reduce(greatest=greatest):
            best = F.max_by if greatest else F.min_by
            yield f"s{number}_kept", best(f"a{number}_kept", f"a{number}_by")


def _aggregate_of(column: AggregateColumn, types: StructType, first: str, second: str) -> Column:
    match column.function:
        case "count" | "count_if" | "sum":
            return _sum(first, types)
        case "avg":
            return F.struct(_sum(first, types).alias("sum"), F.sum(f"`{second}`").alias("count"))
        case ("min_by" | "max_by") as best:
            return F.expr(f"{best}(named_struct('value', `{first}`, 'by', `{second}`), `{second}`)")
        case function:
            return F.expr(f"{function}(`{first}`)")


def _sum(argument: str, types: StructType) -> Column:
    """The sum of an argument that has the type of its sum: Spark would make that of a decimal wider again."""
    data_type = types[argument].dataType
    total = F.sum(f"`{argument}`")
    return total.cast(data_type) if isinstance(data_type, DecimalType) else total
