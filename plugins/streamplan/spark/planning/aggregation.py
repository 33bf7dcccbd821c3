"""Aggregations as one native ``groupBy``, and what their stores hold.

A store holds what an aggregate can be continued from, so that a changelog alone restores it: an average is kept as sum
and count, the value with the greatest ``y`` together with that ``y``. Behind the store only the result is seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ByteType, IntegerType, ShortType, StructField, StructType

from streamplan.errors import Refused
from streamplan.model.kstream import LATEST
from streamplan.model.operations import Aggregate, AggregateColumn, Count, Reduce
from streamplan.model.processor_topology import Processor
from streamplan.model.windows import STORED_WINDOW_BYTES
from streamplan.spark.planning.records import Frame, read_frame
from streamplan.spark.sources import HEADERS


def aggregate(nodes: Sequence[Processor], inputs: Mapping[str, Frame], *, merged: bool) -> DataFrame:
    """One row a key (and window, and node where there are several) of what each node's store holds.

    The columns of node ``n`` begin with ``s<n>_``. ``merged``: the records come from several topics, so that the latest
    is told by the time, and by the offset only within an instant.
    """
    return _fold(nodes, [_contributions(number, node, inputs[node.name], merged) for number, node in enumerate(nodes)])


def aggregate_again(
    nodes: Sequence[Processor], inputs: Mapping[str, Frame], stored: Mapping[str, DataFrame], *, merged: bool
) -> DataFrame:
    """The same fold, over what the stores held: each key's value contributes what it was made of.

    ``stored``  by the name of a node rows of the columns :data:`streamplan.spark.sources.RAW`, each key's last
    """
    types = aggregate(nodes, inputs, merged=merged).schema
    projected = []
    for number, node in enumerate(nodes):
        rows = stored[node.name]
        if _window(node):
            # The newest record of a window has a time within it, so the window in the key is not needed.
            rows = rows.withColumn("key", F.expr(f"substring(key, 1, octet_length(key) - {STORED_WINDOW_BYTES})"))
        if isinstance(node.operation, Reduce):
            frame = _readable(read_frame(rows, inputs[node.name].schema))
            projected.append(_contributions(number, node, frame, merged))
            continue
        value = _stored_value(number, node, types)
        made = rows.select("partition", F.col("key").cast("string").alias("key"), "timestamp", value.alias("_stored"))
        given = [
            contribution.restored.alias(contribution.name)
            for contribution in _arguments(number, node, inputs[node.name])
        ]
        projected.append(
            _windowed(node, made.select("partition", "key", "timestamp", F.lit(number).alias("node"), *given))
        )
    return _fold(nodes, projected)


def _fold(nodes: Sequence[Processor], projected: Sequence[DataFrame]) -> DataFrame:
    data = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), projected)
    several = ("node",) if len(nodes) > 1 else ()
    by = [name for name in ("partition", *several, "window", "key") if name in data.columns]
    folds = [fold.alias(name) for number, node in enumerate(nodes) for name, fold in _folds(number, node)]
    return data.groupBy(*by).agg(*folds, F.max("timestamp").alias("timestamp"))


def aggregated(number: int, node: Processor, batch: DataFrame, before: Frame) -> Frame:
    """The store's rows as a frame: the value in bytes is what goes into the changelog."""
    operation = node.operation
    data = batch.where(F.col("node") == number) if "node" in batch.columns else batch
    fields: list[Column]
    match operation:
        case Count():
            fields = [F.col(f"s{number}_count").alias("count")]
            value = F.unhex(F.lpad(F.hex(f"s{number}_count"), 16, "0"))
        case Aggregate(columns=columns):
            fields = [F.col(f"s{number}_{column.name}").alias(column.name) for column in columns]
            value = F.to_json(F.struct(*fields)).cast("binary")
        case Reduce():
            kept = f"s{number}_kept"
            fields = [F.col(f"{kept}.fields.`{name}`").alias(name) for name in before.fields]
            value = F.col(f"{kept}.value")
        case _:
            raise Refused(f"{node.name} is no aggregation")
    record = [
        F.lit(None).cast("string").alias("topic"),
        F.col("partition"),
        F.lit(None).cast("bigint").alias("offset"),
        F.col("timestamp"),
        F.col("key"),
        F.lit(None).cast(HEADERS).alias("headers"),
        F.col("key").cast("binary").alias("original_key"),
        value.alias("value"),
        F.lit(None).cast("string").alias("reason"),
        F.array().cast("array<int>").alias("order"),
    ]
    if _window(node):
        record.append(F.col("window"))
    serde = before.serde if isinstance(operation, Reduce) else None
    rows = data.select(*fields, F.struct(*record).alias("record"))
    return Frame(rows, raw=True, clean=True, keyed=True, serde=serde)


def shown(node: Processor, frame: Frame) -> Frame:
    """What is seen behind the store."""
    if not isinstance(node.operation, Aggregate):
        return frame
    kept = [column for column in node.operation.columns if column.function in _KEPT]
    if not kept:
        return frame
    results = {column.name: _KEPT[column.function] for column in kept}
    columns = [
        F.expr(results[name].format(name=f"`{name}`")).alias(name) if name in results else F.col(f"`{name}`")
        for name in frame.fields
    ]
    return replace(frame, data=frame.data.select(*columns, "record"), raw=False)


_KEPT = {
    "avg": "try_divide({name}.sum, {name}.count)",
    "min_by": "{name}.value",
    "max_by": "{name}.value",
}
"""Aggregates that a store keeps in more than their result, and the result of what is kept."""


def _window(node: Processor) -> bool:
    return isinstance(node.operation, Count | Aggregate) and node.operation.window is not None


@dataclass(frozen=True)
class _Argument:
    """A column ``name`` of what is folded: ``made`` of a record, ``restored`` from the column ``_stored``."""

    name: str
    made: Column
    restored: Column


def _contributions(number: int, node: Processor, frame: Frame, merged: bool) -> DataFrame:
    """Key, partition, window and the arguments ``a<n>_`` of the node's aggregates, null in the rows of other nodes.

    Null is what every fold passes over.
    """
    columns = [F.col("record.partition").alias("partition"), F.col("record.key").alias("key")]
    columns += [F.col("record.timestamp").alias("timestamp"), F.lit(number).alias("node")]
    if isinstance(node.operation, Reduce):
        fields = F.struct(*(F.col(f"`{name}`") for name in frame.fields))
        kept = F.struct(frame.value.alias("value"), fields.alias("fields"))
        columns.append(kept.alias(f"a{number}_kept"))
        columns.append(_place(node.operation, merged).alias(f"a{number}_by"))
    else:
        columns += [argument.made.alias(argument.name) for argument in _arguments(number, node, frame)]
    return _windowed(node, frame.data.select(*columns))


def _windowed(node: Processor, made: DataFrame) -> DataFrame:
    window = node.operation.window if isinstance(node.operation, Count | Aggregate) else None
    if window is None:
        return made
    made = made.withWatermark("timestamp", f"{window.grace_ms} milliseconds")
    return made.withColumn("window", F.window("timestamp", f"{window.size_ms} milliseconds"))


def _arguments(number: int, node: Processor, frame: Frame) -> list[_Argument]:
    """What a count and an aggregate fold: of a record, and of a stored value, so that either gives the same."""
    if isinstance(node.operation, Count):
        return [_Argument(f"a{number}_count_0", F.lit(1).cast("bigint"), F.col("_stored"))]
    assert isinstance(node.operation, Aggregate)
    found = []
    for column in node.operation.columns:
        stored = F.col(f"_stored.`{column.name}`")
        for place, (made, restored) in enumerate(_pairs(column, frame, stored)):
            kind = frame.data.select(made.alias("made")).schema["made"].dataType
            found.append(_Argument(f"a{number}_{column.name}_{place}", made, restored.cast(kind)))
    return found


def _pairs(column: AggregateColumn, frame: Frame, stored: Column) -> list[tuple[Column, Column]]:
    arguments = _split(column)
    present = reduce(lambda one, other: one & other, (F.expr(argument).isNotNull() for argument in arguments))
    counted = F.when(present, 1).otherwise(0).cast("bigint")
    match column.function, arguments:
        case "count", _:
            return [(counted, stored)]
        case "count_if", [condition]:
            return [(F.when(F.expr(condition), 1).otherwise(0).cast("bigint"), stored)]
        case "sum", [x]:
            return [(_wide(x, frame), stored)]
        case "avg", [x]:
            return [(_wide(x, frame), stored["sum"]), (counted, stored["count"])]
        case (("min_by" | "max_by"), [x, y]):
            return [(F.expr(x), stored["value"]), (F.expr(y), stored["by"])]
        case (("min" | "max" | "bool_and" | "bool_or"), [x]):
            return [(F.expr(x), stored)]
    raise Refused(f"{column.name}: {column.function} takes other arguments")


def _wide(x: str, frame: Frame) -> Column:
    """In the type of its sum, where a sum keeps that: a restored sum is added as a record's value is."""
    kind = frame.data.select(F.expr(x).alias("x")).schema["x"].dataType
    return F.expr(x).cast("bigint") if isinstance(kind, ByteType | ShortType | IntegerType) else F.expr(x)


def _stored_value(number: int, node: Processor, types: StructType) -> Column:
    """The value of a store from its bytes in the changelog; a query fails on bytes that are no such value."""
    if isinstance(node.operation, Count):
        strange = F.raise_error(F.lit("a changelog value of a count has 8 bytes"))
        count = F.conv(F.hex("value"), 16, 10).cast("bigint")
        return F.when(F.octet_length("value") == 8, count).otherwise(strange.cast("bigint"))
    assert isinstance(node.operation, Aggregate)
    held = StructType(
        [StructField(column.name, types[f"s{number}_{column.name}"].dataType) for column in node.operation.columns]
    )
    return F.from_json(F.col("value").cast("string"), held, {"mode": "FAILFAST"})


def _readable(frame: Frame) -> Frame:
    """Of a store that only readable values were written to: another value fails the query."""
    strange = F.raise_error(F.concat(F.lit("a changelog value cannot be read: "), F.col("record.reason")))
    key = F.when(F.col("record.reason").isNull(), F.col("record.key")).otherwise(strange.cast("string"))
    return replace(frame.with_record(F.col("record").withField("key", key)), clean=True)


def _place(operation: Reduce, merged: bool) -> Column:
    """Where a record stands among those of its key: the greatest is kept, or the least. Of equals it is the latest."""
    latest = [F.unix_micros("record.timestamp"), F.col("record.offset")] if merged else [F.col("record.offset")]
    by = F.expr(operation.by)
    if operation.by == LATEST:
        return F.struct(*latest)
    if operation.greatest:
        return F.struct(by, *latest)
    # What is least by the expression must be greatest by the offset. Null is neither greatest nor least.
    return F.struct(by.isNull(), by, *(-column for column in latest))


def _folds(number: int, node: Processor) -> Iterable[tuple[str, Column]]:
    match node.operation:
        case Count():
            yield f"s{number}_count", F.sum(f"a{number}_count_0")
        case Aggregate(columns=columns):
            for column in columns:
                names = [f"`a{number}_{column.name}_{place}`" for place in range(2)]
                yield f"s{number}_{column.name}", _fold_of(column, *names)
        case Reduce(greatest=greatest):
            best = F.max_by if greatest else F.min_by
            yield f"s{number}_kept", best(f"a{number}_kept", f"a{number}_by")


def _fold_of(column: AggregateColumn, first: str, second: str) -> Column:
    match column.function:
        case "count" | "count_if" | "sum":
            return F.sum(first)
        case "avg":
            return F.struct(F.sum(first).alias("sum"), F.sum(second).alias("count"))
        case ("min_by" | "max_by") as best:
            return F.expr(f"{best}(named_struct('value', {first}, 'by', {second}), {second})")
        case function:
            return F.expr(f"{function}({first})")


def _split(column: AggregateColumn) -> list[str]:
    """The arguments of the call. ``count(*)`` counts a constant."""
    if column.function == "count" and column.arguments == "*":
        return ["1"]
    return split_arguments(column.arguments)


def split_arguments(text: str) -> list[str]:
    """Cut at the commas outside of parentheses, brackets and quotes."""
    arguments, depth, quote, begun = [], 0, "", 0
    for at, character in enumerate(text):
        if quote:
            quote = "" if character == quote and text[at - 1] != "\\" else quote
        elif character in "'\"`":
            quote = character
        elif character in "([":
            depth += 1
        elif character in ")]":
            depth -= 1
        elif character == "," and depth == 0:
            arguments.append(text[begun:at].strip())
            begun = at + 1
    return [*arguments, text[begun:].strip()]
