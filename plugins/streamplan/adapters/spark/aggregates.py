"""Aggregations as one native ``groupBy``, and what their stores hold.

A store holds what an aggregate can be continued from, so that a changelog alone restores it: an average is kept as sum
and count, the value with the greatest ``y`` together with that ``y``. Behind the store only the result is seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamplan.adapters.spark.frames import HEADERS, Frame
from streamplan.errors import Refused
from streamplan.kstream import LATEST
from streamplan.operations import Aggregate, AggregateColumn, Count, Reduce
from streamplan.processor_topology import Processor


def aggregate(nodes: Sequence[Processor], inputs: Mapping[str, Frame], *, merged: bool) -> DataFrame:
    """One row a key (and window, and node where there are several) of what each node's store holds.

    The columns of node ``n`` begin with ``s<n>_``. ``merged``: the records come from several topics, so that the latest
    is told by the time, and by the offset only within an instant.
    """
    alone = len(nodes) == 1
    projected = [_arguments(number, node, inputs[node.name], alone, merged) for number, node in enumerate(nodes)]
    data = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), projected)
    by = [name for name in ("partition", "node", "window", "key") if name in data.columns]
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
    return Frame(data.select(*fields, F.struct(*record).alias("record")), raw=True, clean=True, keyed=True)


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


def _arguments(number: int, node: Processor, frame: Frame, alone: bool, merged: bool) -> DataFrame:
    """Key, partition, window and the arguments ``a<n>_`` of the node's aggregates, null in the rows of other nodes.

    Null is what every one of :data:`streamplan.operations.AGGREGATE_FUNCTIONS` passes over.
    """
    columns = [F.col("record.partition").alias("partition"), F.col("record.key").alias("key")]
    columns.append(F.col("record.timestamp").alias("timestamp"))
    if not alone:
        columns.append(F.lit(number).alias("node"))
    match node.operation:
        case Aggregate(columns=declared):
            for column in declared:
                columns += [
                    F.expr(argument).alias(f"a{number}_{column.name}_{place}")
                    for place, argument in enumerate(_split(column))
                ]
        case Reduce():
            fields = F.struct(*(F.col(f"`{name}`") for name in frame.fields))
            kept = F.struct(frame.value.alias("value"), fields.alias("fields"))
            columns.append(kept.alias(f"a{number}_kept"))
            columns.append(_place(node.operation, merged).alias(f"a{number}_by"))
        case Count():
            columns.append(F.lit(1).alias(f"a{number}_one"))
    made = frame.data.select(*columns)
    window = node.operation.window if isinstance(node.operation, Count | Aggregate) else None
    if window is not None:
        made = made.withWatermark("timestamp", f"{window.grace_ms} milliseconds")
        made = made.withColumn("window", F.window("timestamp", f"{window.size_ms} milliseconds"))
    return made


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
            yield f"s{number}_count", F.count(f"a{number}_one")
        case Aggregate(columns=columns):
            for column in columns:
                arguments = [f"`a{number}_{column.name}_{place}`" for place in range(len(_split(column)))]
                yield f"s{number}_{column.name}", _fold(column, arguments)
        case Reduce(greatest=greatest):
            best = F.max_by if greatest else F.min_by
            yield f"s{number}_kept", best(f"a{number}_kept", f"a{number}_by")


def _fold(column: AggregateColumn, arguments: Sequence[str]) -> Column:
    match column.function, arguments:
        case "avg", [x]:
            return F.struct(F.expr(f"sum({x})").alias("sum"), F.expr(f"count({x})").alias("count"))
        case ("min_by" | "max_by") as best, [x, y]:
            return F.expr(f"{best}(named_struct('value', {x}, 'by', {y}), {y})")
        case function, _:
            return F.expr(f"{function}({', '.join(arguments)})")
    raise Refused(f"{column.name}: {column.function} takes other arguments")


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
