"""Streams looked up in tables: Spark's ``transformWithState``, one state variable a table.

As in Kafka Streams a record meets the table as it was at the record's own time. There a stream task holds back the
topic that is ahead; here a micro-batch has of a table all that there is, and of a stream a part. So a row that came for
later records waits in the state, beside the one before it, until the stream has reached it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import itemgetter
from typing import Any, cast

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import ArrayType, LongType, StructField, StructType

from streamplan.spark.planning.records import Frame

WAITING_ROWS = 1000
"""So many rows of a key, at most, wait for the stream to come to their time; of more the oldest are taken over."""

_REACHED_NOTHING = -(1 << 63)


def look_up(frames: Mapping[str, Frame], tables: Mapping[str, str]) -> DataFrame:
    """Every record of every source, with what each table holds for its key.

    ``frames`` by the name of a source; ``tables``: the store of each source that is a table. Fields of source ``n``
    stand in ``f<n>``, the row of table ``n`` in ``t<n>``.
    """
    fields = {name: frame.data.drop("record").columns for name, frame in frames.items()}
    sides = []
    for number, (name, given) in enumerate(frames.items()):
        frame = _with_text_key(given)
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
    processor = _LookUp(types, [number for number in range(len(frames)) if number not in types])
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
        found[name] = replace(frame, data=rows.select(f"f{numbers[name]}.*", record.alias("record")), clean=False)
    return found


def _with_text_key(frame: Frame) -> Frame:
    """A state is kept by text: a key that is none is rejected here, where else its bytes are good for anything."""
    text = F.try_validate_utf8("record.key")
    frame = frame.rejecting(F.col("record.key").isNotNull() & text.isNull(), "the key is not UTF-8")
    return frame.with_record(F.col("record").withField("key", text))


class _LookUp(StatefulProcessor):
    """One key of one stream task.

    ``types``    the fields of each source that is a table, by its number
    ``streams``  the numbers of the other sources
    """

    def __init__(self, types: Mapping[int, StructType], streams: Sequence[int]) -> None:
        self._types = types
        self._streams = streams

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._tables = {}
        for number, kind in self._types.items():
            # A table's own updates may be looked up in another; the stream that counts is a stream, where there is one.
            readers = self._streams or [other for other in self._types if other != number]
            self._tables[number] = _Table(handle, number, kind, readers)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        for table in self._tables.values():
            table.load()
        ordered = sorted(rows, key=lambda row: row.offset)  # of each source; between them time decides
        for row in ordered:
            if row.source in self._tables and not row.rejected:
                self._tables[row.source].put(row.at, None if row.deleted else row[f"f{row.source}"])
        for row in ordered:
            found = {
                f"t{number}": None if row.rejected or row.source == number else table.get(row.source, row.at)
                for number, table in self._tables.items()
            }
            yield Row(**row.asDict(), **found)
        for table in self._tables.values():
            table.store()

    def close(self) -> None:
        pass


class _Table:
    """The row of one key as of the time that all its readers have reached, and those that wait for them.

    ``readers``  the numbers of the sources that are looked up in it. A late record of one meets the table as the record
                 before it did: that is where a stream task is
    """

    def __init__(self, handle: StatefulProcessorHandle, number: int, kind: StructType, readers: Sequence[int]) -> None:
        self._names = kind.names
        self._readers = readers
        version = StructType([StructField("at", LongType()), StructField("row", kind)])
        held = [StructField("row", kind), StructField("waiting", ArrayType(version))]
        if len(readers) > 1:  # of a single one, what is before its time waits no more
            held.append(StructField("reached", ArrayType(LongType())))
        self._state = handle.getValueState(f"t{number}", StructType(held))

    def load(self) -> None:
        held = self._state.get() if self._state.exists() else None
        self._before = held
        self._row = self._named(held[0]) if held else None
        self._waiting = [(version[0], self._named(version[1])) for version in held[1]] if held else []
        reached = held[2] if held and len(held) > 2 else [_REACHED_NOTHING] * len(self._readers)
        self._reached = dict(zip(self._readers, reached, strict=True))

    def put(self, at: int, row: Mapping[str, Any] | None) -> None:
        """In the order of offsets: a row is no earlier than the one before it."""
        latest = self._waiting[-1][0] if self._waiting else at
        self._waiting.append((max(at, latest), None if row is None else {name: row[name] for name in self._names}))

    def get(self, source: int, at: int) -> dict[str, Any] | None:
        """What a record finds."""
        if source in self._reached:
            self._reached[source] = at = max(at, self._reached[source])
        place = self._place(at)
        return self._waiting[place - 1][1] if place else self._row

    def store(self) -> None:
        passed = max(self._place(min(self._reached.values())), len(self._waiting) - WAITING_ROWS)
        if passed > 0:
            self._row = self._waiting[passed - 1][1]
            self._waiting = self._waiting[passed:]
        if self._row is None and not self._waiting:
            if self._before is not None:
                self._state.clear()
            return
        waiting = [(at, None if row is None else tuple(row.values())) for at, row in self._waiting]
        held: tuple[Any, ...] = (None if self._row is None else tuple(self._row.values()), waiting)
        if len(self._readers) > 1:
            held = (*held, list(self._reached.values()))
        if held != self._before:
            self._state.update(held)

    def _place(self, at: int) -> int:
        """So many of those that wait are of that time or earlier."""
        return bisect_right(self._waiting, at, key=itemgetter(0))

    def _named(self, row: tuple[Any, ...] | None) -> dict[str, Any] | None:
        return None if row is None else dict(zip(self._names, row, strict=True))
