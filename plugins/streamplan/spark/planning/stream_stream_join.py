"""Joins of two streams within a window: Spark's ``transformWithState``, with the state of a stream task as one group.

A Kafka Streams task keeps the records of both streams in window stores. A record that comes is looked up in the other
stream's store, and then put into its own (``KStreamJoinWindow``, ``KStreamKStreamJoin``). A store forgets what is older
than its retention, by the newest time of its own records. That time is one for all keys of a task. So the group is the
stream task, and not the key, and a row of the state holds the records of one key.

What a record gives comes of that record alone and of those before it. So a row that is written belongs to an offset, a
micro-batch can be committed in parts, and the same micro-batch gives the same rows again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, cast

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from streamplan.model.windows import JoinWindows
from streamplan.spark.planning.aggregation import refusing_unreadable, stored_key
from streamplan.spark.planning.field_types import as_state, declared_fields, from_state, state_name
from streamplan.spark.planning.records import RecordFrame, read_stored

_BEFORE_ALL_TIME = -(1 << 63)

_LEAST_SWEEP_MS = 60_000
"""How much time passes at least before the state is searched for keys that are too old, as for the library's segments
(``Stores.persistentWindowStore``)."""

_at = itemgetter(0)


def join_streams(inputs: Sequence[RecordFrame], windows: JoinWindows) -> DataFrame:
    """Join the records of two streams.

    Args:
        inputs: The records of this and of the other stream. All have a key, and none is rejected.
        windows: How far apart in time two records may be.

    Returns:
        One row for each record, whose fields stand in ``f0`` or ``f1``, with its number among the stored records of its
        key and time. And a row with ``joined`` for each two records that meet; it belongs to the later one of them,
        ``place`` is its place among the rows of that one, and ``at`` the greater time of both in ms.
    """
    return _joined(inputs, _types(inputs), windows)


def restore_join(inputs: Sequence[RecordFrame], stored: Sequence[DataFrame], windows: JoinWindows) -> DataFrame:
    """Join what the stores held, which leaves the state that :func:`join_streams` goes on with.

    Args:
        inputs: As for :func:`join_streams`; only their types are used.
        stored: The records of the changelogs of this and of the other stream, in the columns
            :data:`streamplan.spark.sources.RAW`.
        windows: As for :func:`join_streams`.
    """
    key, start = stored_key(windows)
    frames = []
    for frame, rows in zip(inputs, stored, strict=True):
        raw = rows.withColumns({"timestamp": start, "key": key.cast("binary")})
        frames.append(refusing_unreadable(read_stored(raw, frame.schema, frame.key_serde)))
    return _joined(frames, _types(inputs), windows)


def stored_records(number: int, batch: DataFrame, frame: RecordFrame) -> RecordFrame:
    """Return the records that were stored, with the window of their time and ``record.sequence_number``.

    Args:
        number: 0 for this stream, 1 for the other one.
        batch: What :func:`join_streams` gave.
        frame: The records of the stream; only what is known of them is used.
    """
    rows = batch.where(~F.col("joined") & (F.col("source") == number))
    window = F.struct(F.timestamp_millis("at").alias("start"), F.timestamp_millis("at").alias("end"))
    record = _record().withField("window", window).withField("sequence_number", F.col("number"))
    return replace(frame, data=rows.select(*_fields(number, frame), record.alias("record")))


def joined_records(batch: DataFrame, inputs: Sequence[RecordFrame]) -> RecordFrame:
    """Return a record for each two that meet: the fields of this stream, and those of the other one in ``other``.

    Args:
        batch: What :func:`join_streams` gave.
        inputs: As for :func:`join_streams`; only what is known of them is used.
    """
    rows = batch.where("joined")
    order = F.concat(F.col("record.order"), F.array(F.col("place")))
    other = F.struct(*_fields(1, inputs[1])).alias("other")
    data = rows.select(*_fields(0, inputs[0]), other, _record().withField("order", order).alias("record"))
    return replace(inputs[0], data=data, value_is_raw=False, serde=None, no_rejects=True, key_not_null=True)


def without_records(this: RecordFrame, other: RecordFrame) -> RecordFrame:
    """Return what :func:`joined_records` returns, without a record: for its types alone.

    Args:
        this: The records of this stream; only their types are used.
        other: The records of the other stream; only their types are used.
    """
    row_type = other.data.select(F.struct(*other.fields).alias("row")).schema["row"].dataType
    data = this.data.withColumn("other", F.lit(None).cast(row_type)).where("false")
    return replace(this, data=data, value_is_raw=False, serde=None, no_rejects=True)


def _types(inputs: Sequence[RecordFrame]) -> list[StructType]:
    frames = enumerate(inputs)
    return [cast(StructType, _rows(number, frame).schema[f"f{number}"].dataType) for number, frame in frames]


def _joined(inputs: Sequence[RecordFrame], types: Sequence[StructType], windows: JoinWindows) -> DataFrame:
    this, other = (_rows(number, frame) for number, frame in enumerate(inputs))
    rows = this.unionByName(other, allowMissingColumns=True)
    added = [("joined", BooleanType()), ("place", IntegerType()), ("number", IntegerType())]
    schema = StructType([*rows.schema.fields, *(StructField(name, of_type) for name, of_type in added)])
    return rows.groupBy("partition").transformWithState(_StreamJoin(types, windows), schema, "Update", "none")


def _rows(number: int, frame: RecordFrame) -> DataFrame:
    fields = F.struct(
        *(
            as_state(F.col(f"`{name}`"), of_field).alias(state_name(name, place))
            for place, (name, of_field) in enumerate(declared_fields(frame.data).items())
        )
    )
    return frame.data.select(
        F.col("record.partition").alias("partition"),
        F.lit(number).alias("source"),
        F.unix_millis("record.timestamp").alias("at"),
        frame.has_value.alias("has_value"),
        F.col("record").dropFields("timestamp").alias("record"),  # ``at`` has it in ms
        fields.alias(f"f{number}"),
    )


def _record() -> Column:
    return F.col("record").withField("timestamp", F.timestamp_millis("at"))


def _fields(number: int, frame: RecordFrame) -> list[Column]:
    return [
        from_state(F.col(f"f{number}.`{state_name(name, place)}`"), of_field).alias(name)
        for place, (name, of_field) in enumerate(declared_fields(frame.data).items())
    ]


class _StreamJoin(StatefulProcessor):
    """Joins the records of one stream task.

    Args:
        types: The fields of this and of the other stream.
        windows: How far apart in time two records may be.
    """

    def __init__(self, types: Sequence[StructType], windows: JoinWindows) -> None:
        self._types = types
        self._reach = ((windows.before_ms, windows.after_ms), (windows.after_ms, windows.before_ms))
        self._retention_ms = windows.retention_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        versions = [StructType([StructField("at", LongType()), StructField("row", of_type)]) for of_type in self._types]
        stored = StructType([StructField(f"r{number}", ArrayType(of_type)) for number, of_type in enumerate(versions)])
        self._records = handle.getMapState("records", StructType([StructField("key", StringType())]), stored)
        times = ("newest_0", "newest_1", "limit_0", "limit_1", "swept")
        self._times = handle.getValueState("times", StructType([StructField(name, LongType()) for name in times]))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        ordered = sorted(rows, key=_in_order)
        times = _Times(*(self._times.get() or ())) if self._times.exists() else _Times()
        times.begin({row.source for row in ordered if row.has_value})
        buffers: dict[str, _Buffer] = {}
        for row in ordered:
            name = str(row.record["key"])  # a number, too, is told by its text
            if name not in buffers:
                known = self._records.containsKey((name,))  # Spark warns of a value that is not there
                buffers[name] = _Buffer.of(self._records.getValue((name,)) if known else None)
            buffer = buffers[name]
            values = row.asDict() | {"joined": False, "place": None, "number": buffer.next_number(row.source, row.at)}
            if row.has_value:
                for place, (at, found) in enumerate(self._matches(row.source, row.at, buffer, times)):
                    fields = {f"f{1 - row.source}": self._by_name(1 - row.source, found)}
                    yield Row(**values | fields | {"at": max(at, row.at), "joined": True, "place": place})
                fields = row[f"f{row.source}"]
                row_values = tuple(fields[name] for name in self._types[row.source].names)
                buffer.put(row.source, row.at, row_values)
                times.note(row.source, row.at)
            yield Row(**values)
        self._store(buffers, times)

    def close(self) -> None:
        pass

    def _matches(self, source: int, at: int, buffer: _Buffer, times: _Times) -> Sequence[tuple[int, Any]]:
        """The records of the other stream that a record meets, in the order of their times."""
        before, after = self._reach[source]
        oldest = times.limit(1 - source, at) - self._retention_ms + 1
        return buffer.between(1 - source, max(0, at - before, oldest), max(0, at + after))

    def _by_name(self, source: int, row: Any) -> dict[str, Any]:
        return dict(zip(self._types[source].names, row, strict=True))

    def _store(self, buffers: dict[str, _Buffer], times: _Times) -> None:
        for source in times.present:
            times.limit(source, times.newest[source])
        oldest = [limit - self._retention_ms + 1 for limit in times.limits]
        for key, buffer in buffers.items():
            self._put(key, buffer, oldest)
        if times.swept + max(self._retention_ms // 2, _LEAST_SWEEP_MS) < max(times.limits):
            times.swept = max(times.limits)
            for (key,), value in list(self._records.iterator()):
                if key not in buffers:
                    self._put(key, _Buffer.of(value), oldest)
        self._times.update((*times.newest, *times.limits, times.swept))

    def _put(self, key: str, buffer: _Buffer, oldest: Sequence[int]) -> None:
        buffer.forget(oldest)
        if not any(buffer.records):
            self._records.removeKey((key,))
        elif buffer.changed:
            self._records.updateValue((key,), tuple(buffer.records))


def _in_order(row: Row) -> tuple[Any, ...]:
    """As a task takes records: by the partition's time. Both sides may have the same record."""
    record = row.record
    return record["partition_time"] or 0, record["topic"] or "", record["offset"], record["order"], row.source


@dataclass
class _Times:
    """How far a stream task has come in both streams, in ms.

    The library's store forgets by the newest record of its own stream alone, because a task takes the records of both
    streams in the order of their times. A micro-batch takes a share of each topic. So it may reach further in one of
    them. Where it has records of both, what the slower one may still meet is not forgotten.

    Attributes:
        newest_0: The newest time of this stream's stored records.
        newest_1: The same of the other stream.
        limit_0: The time by which this stream's records are forgotten.
        limit_1: The same of the other stream.
        swept: The time at which all keys were searched for records that are forgotten.
    """

    newest_0: int = _BEFORE_ALL_TIME
    newest_1: int = _BEFORE_ALL_TIME
    limit_0: int = _BEFORE_ALL_TIME
    limit_1: int = _BEFORE_ALL_TIME
    swept: int = _BEFORE_ALL_TIME
    present: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.newest = [self.newest_0, self.newest_1]
        self.limits = [self.limit_0, self.limit_1]

    def begin(self, present: Iterable[int]) -> None:
        """Begin a micro-batch with records of the streams ``present``."""
        self.present = set(present)

    def note(self, source: int, at: int) -> None:
        """Note that a record of a stream was stored."""
        self.newest[source] = max(self.newest[source], at)
        self.limit(source, at)

    def limit(self, source: int, at: int) -> int:
        """Return the time by which a stream's records are forgotten, when a record of time ``at`` is processed."""
        newest = self.newest[source]
        if len(self.present) > 1:
            newest = min(self.newest)
        else:
            newest = min(newest, max(at, *(self.newest[one] for one in self.present)))
        self.limits[source] = max(self.limits[source], newest)
        return self.limits[source]


@dataclass
class _Buffer:
    """The stored records of one key: of each stream the times and the fields, by time.

    Attributes:
        records: Of this and of the other stream.
        changed: Whether they differ from what the state has.
    """

    records: tuple[list[tuple[int, Any]], list[tuple[int, Any]]]
    changed: bool = False

    @classmethod
    def of(cls, state: Any) -> _Buffer:
        """Return the records that a row of the state holds; None stands for a key without a row."""
        this, other = state if state is not None else ((), ())
        return cls(([(each[0], each[1]) for each in this], [(each[0], each[1]) for each in other]))

    def between(self, source: int, first: int, last: int) -> list[tuple[int, Any]]:
        """Return the records of a stream between two times."""
        records = self.records[source]
        return records[bisect_left(records, first, key=_at) : bisect_right(records, last, key=_at)]

    def next_number(self, source: int, at: int) -> int:
        """Return the number of the next record of a stream and a time, from 1."""
        return len(self.between(source, at, at)) + 1

    def put(self, source: int, at: int, row: Any) -> None:
        """Add a record of a stream."""
        insort_right(self.records[source], (at, row), key=_at)
        self.changed = True

    def forget(self, oldest: Sequence[int]) -> None:
        """Remove the records before the times ``oldest`` of both streams."""
        for records, first in zip(self.records, oldest, strict=True):
            if forgotten := bisect_left(records, first, key=_at):
                del records[:forgotten]
                self.changed = True
