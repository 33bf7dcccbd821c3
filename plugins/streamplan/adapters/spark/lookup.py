"""Streams looked up in tables: Spark's ``transformWithState``, one state variable a table.

As in Kafka Streams a record meets the table as it was at the record's own time. There a stream task holds back the
topic that is ahead; here a micro-batch has of a table all that there is, and of a stream a part. So a row that came for
later records waits in the state, beside the one before it, until the stream has reached it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import reduce
from typing import Any, cast

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import ArrayType, LongType, StructField, StructType

from streamplan.adapters.spark.frames import Frame

WAITING_ROWS = 32
"""So many rows of a key, at most, wait for the stream to come to their time; of more the oldest are taken over."""


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
        self._types = types

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._tables = {number: _Table(handle, number, kind) for number, kind in self._types.items()}

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        for table in self._tables.values():
            table.load()
        streams: dict[int, list[Row]] = {}
        nothing = {f"t{number}": None for number in self._tables}
        for row in sorted(rows, key=lambda row: row.offset):
            if row.source not in self._tables:
                streams.setdefault(row.source, []).append(row)
                continue
            if not row.rejected:
                self._tables[row.source].put(row.at, None if row.deleted else row[f"f{row.source}"])
            yield Row(**row.asDict(), **nothing)
        for row in _in_time(streams.values()):
            yield Row(**row.asDict(), **{f"t{number}": table.get(row.at) for number, table in self._tables.items()})
        for table in self._tables.values():
            table.store()

    def close(self) -> None:
        pass


class _Table:
    """The row of one key as of the time that the stream has reached, and those that wait for it.

    A row becomes that of the key when the first record as late as it passes, or when too many wait.
    """

    def __init__(self, handle: StatefulProcessorHandle, number: int, kind: StructType) -> None:
        self._names = kind.names
        version = StructType([StructField("at", LongType()), StructField("row", kind)])
        self._state = handle.getValueState(
            f"t{number}", StructType([StructField("row", kind), StructField("waiting", ArrayType(version))])
        )

    def load(self) -> None:
        held = self._state.get() if self._state.exists() else None
        self._before = held
        self._row = self._named(held[0]) if held else None
        self._waiting = [(version[0], self._named(version[1])) for version in held[1]] if held else []

    def put(self, at: int, row: Mapping[str, Any] | None) -> None:
        """In the order of offsets: a row is no earlier than the one before it."""
        latest = self._waiting[-1][0] if self._waiting else at
        self._waiting.append((max(at, latest), None if row is None else {name: row[name] for name in self._names}))

    def get(self, at: int) -> dict[str, Any] | None:
        """What a stream's record finds."""
        while self._waiting and self._waiting[0][0] <= at:
            self._row = self._waiting.pop(0)[1]
        return self._row

    def store(self) -> None:
        while len(self._waiting) > WAITING_ROWS:
            self._row = self._waiting.pop(0)[1]
        if self._row is None and not self._waiting:
            if self._before is not None:
                self._state.clear()
            return
        waiting = [(at, None if row is None else tuple(row.values())) for at, row in self._waiting]
        held = (None if self._row is None else tuple(self._row.values()), waiting)
        if held != self._before:
            self._state.update(held)

    def _named(self, row: tuple[Any, ...] | None) -> dict[str, Any] | None:
        return None if row is None else dict(zip(self._names, row, strict=True))


def _in_time(queues: Iterable[list[Row]]) -> Iterator[Row]:
    """``PartitionGroup.nextRecord``: of the queues' heads the oldest. Within a queue the order is that of offsets."""
    ahead = [list(reversed(queue)) for queue in queues]
    while ahead := [queue for queue in ahead if queue]:
        yield min(ahead, key=lambda queue: queue[-1].at).pop()
