"""Streams looked up in tables: Spark's ``transformWithState``, one state variable a table.

As in Kafka Streams a record meets the table as it was at the record's own time: what a stream task reads from its
topics passes in the order of timestamps, and of equals the table goes first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import reduce
from typing import Any, cast

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import StructField, StructType

from streamplan.adapters.spark.frames import Frame


def look_up(frames: Mapping[str, Frame], tables: Mapping[str, str]) -> DataFrame:
    """Every record of every source, with what each table holds for its key.

    ``frames`` by the name of a source; ``tables``: the store of each source that is a table. Fields of source ``n``
    stand in ``f<n>``, the row of table ``n`` in ``t<n>``.
    """
    fields = {name: frame.data.drop("record").columns for name, frame in frames.items()}
    sides = []
    for number, (name, frame) in enumerate(frames.items()):
        sides.append(
            frame.data.select(
                F.col("record.partition").alias("partition"),
                F.col("record.key").alias("key"),
                F.lit(number).alias("source"),
                F.unix_millis("record.timestamp").alias("at"),
                F.col("record.offset").alias("offset"),
                (F.col("record.reason").isNotNull()).alias("rejected"),
                (F.col("record.value").isNull()).alias("deleted"),
                "record",
                F.struct(*(F.col(f"`{field}`") for field in fields[name])).alias(f"f{number}"),
            )
        )
    rows = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), sides)
    types = {
        number: cast(StructType, rows.schema[f"f{number}"].dataType)
        for number, name in enumerate(frames)
        if name in tables
    }
    schema = StructType([*rows.schema.fields, *(StructField(f"t{number}", kind) for number, kind in types.items())])
    processor = _LookUp(types)
    return rows.groupBy("partition", "key").transformWithState(processor, schema, "Update", "none")


def looked_up(batch: DataFrame, frames: Mapping[str, Frame], tables: Mapping[str, str]) -> dict[str, Frame]:
    """The frames of a micro-batch; ``record`` has the row of each table under the name of its store."""
    found = {}
    numbers = {name: number for number, name in enumerate(frames)}
    for name, frame in frames.items():
        record = F.col("record")
        for table, store in tables.items():
            record = record.withField(f"`{store}`", F.col(f"t{numbers[table]}"))
        rows = batch.where(F.col("source") == numbers[name])
        found[name] = replace(frame, data=rows.select(f"f{numbers[name]}.*", record.alias("record")))
    return found


class _LookUp(StatefulProcessor):
    """One key of one stream task. ``types``: the fields of each source that is a table, by its number."""

    def __init__(self, types: Mapping[int, StructType]) -> None:
        self._tables = list(types)
        self._types = types

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._held = {number: handle.getValueState(f"t{number}", self._types[number]) for number in self._tables}

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        sides: dict[int, list[Row]] = {}
        for row in rows:
            sides.setdefault(row.source, []).append(row)
        queues = [sorted(side, key=lambda row: row.offset) for side in sides.values()]
        held = {number: state.get() if state.exists() else None for number, state in self._held.items()}
        before = dict(held)
        for row in _in_time(queues, self._tables):
            if row.source in held and not row.rejected:
                fields = row[f"f{row.source}"]
                names = self._types[row.source].names
                held[row.source] = None if row.deleted else tuple(fields[name] for name in names)
            yield Row(**row.asDict(), **{f"t{number}": self._named(number, held[number]) for number in self._tables})
        for number, value in held.items():
            if value is None and before[number] is not None:
                self._held[number].clear()
            elif value is not None and value != before[number]:
                self._held[number].update(value)

    def close(self) -> None:
        pass

    def _named(self, number: int, held: tuple[Any, ...] | None) -> Row | None:
        return None if held is None else Row(**dict(zip(self._types[number].names, held, strict=True)))


def _in_time(queues: list[list[Row]], tables: list[int]) -> Iterator[Row]:
    """``PartitionGroup.nextRecord``: of the queues' heads the oldest. Within a queue the order is that of offsets."""
    ahead = [list(reversed(queue)) for queue in queues]
    while ahead := [queue for queue in ahead if queue]:
        yield min(ahead, key=lambda queue: (queue[-1].at, queue[-1].source not in tables)).pop()
