"""The state of a join of two streams: which records meet, and which are forgotten."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, TypeAlias

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle
from pyspark.sql.types import ArrayType, DataType, LongType, StructField, StructType

from streamplan.model.windows import JoinWindows
from streamplan.spark.planning.keyed_state import KeyedState
from streamplan.spark.planning.task_state import named_tuples, sweep_is_due, task_order

StateKey: TypeAlias = str | bytes
"""The key of records as the state has it: a text, or the bytes that another serde writes."""

BEFORE_ALL_TIME = -(1 << 63)

_at = itemgetter(0)


class StreamJoinState(KeyedState):
    """Joins the records of one stream task.

    Args:
        types: The fields of this and of the other stream.
        key_type: A string or binary: what the keys of the records are.
        windows: How far apart in time two records may be.
    """

    def __init__(self, types: Sequence[StructType], key_type: DataType, windows: JoinWindows) -> None:
        self._types = types
        self._key_type = key_type
        self._reach = ((windows.before_ms, windows.after_ms), (windows.after_ms, windows.before_ms))
        self._retention_ms = windows.retention_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state variables."""
        versions = [StructType([StructField("at", LongType()), StructField("row", of_type)]) for of_type in self._types]
        stored = StructType([StructField(f"r{number}", ArrayType(of_type)) for number, of_type in enumerate(versions)])
        self._records = handle.getMapState("records", StructType([StructField("key", self._key_type)]), stored)
        times = ("newest_0", "newest_1", "limit_0", "limit_1", "swept")
        self._times = handle.getValueState("times", StructType([StructField(name, LongType()) for name in times]))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        """Process the records of a micro-batch."""
        ordered = sorted(named_tuples(rows), key=in_order)
        times = Times(*(self._times.get() or ())) if self._times.exists() else Times()
        buffers: dict[StateKey, Buffer] = {}
        self._begin(ordered, times)
        for row in ordered:
            yield from self._process(row, buffers, times)
        self._store(buffers, times)

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _begin(self, ordered: Sequence[Any], times: Times) -> None:
        times.begin({row.source for row in ordered if row.has_value})

    def _process(self, row: Any, buffers: dict[StateKey, Buffer], times: Times) -> Iterator[Row]:
        buffer = self._buffer(key_of(row), buffers)
        values = row._asdict() | {"joined": False, "place": None, "number": buffer.next_number(row.source, row.at)}
        if row.has_value:
            for place, (at, found) in enumerate(self._matches(row.source, row.at, buffer, times)):
                fields = {f"f{1 - row.source}": self._by_name(1 - row.source, found)}
                yield Row(**values | fields | {"at": max(at, row.at), "joined": True, "place": place})
            self._put_record(row, buffer, times)
        yield Row(**values)

    def _buffer(self, name: StateKey, buffers: dict[StateKey, Buffer]) -> Buffer:
        if name not in buffers:
            known = self._records.containsKey((name,))  # Spark warns of a value that is not there
            buffers[name] = Buffer.of(self._records.getValue((name,)) if known else None)
        return buffers[name]

    def _put_record(self, row: Any, buffer: Buffer, times: Times) -> None:
        buffer.put(row.source, row.at, self._fields_of(row))
        times.note(row.source, row.at)

    def _fields_of(self, row: Any) -> tuple[Any, ...]:
        fields = getattr(row, f"f{row.source}")
        return tuple(fields[name] for name in self._types[row.source].names)

    def _matches(self, source: int, at: int, buffer: Buffer, times: Times) -> Sequence[tuple[int, Any]]:
        """The records of the other stream that a record meets, in the order of their times."""
        before, after = self._reach[source]
        oldest = times.limit(1 - source, at) - self._retention_ms + 1
        return buffer.between(1 - source, max(0, at - before, oldest), max(0, at + after))

    def _by_name(self, source: int, row: Any) -> dict[str, Any]:
        return dict(zip(self._types[source].names, row, strict=True))

    def _store(self, buffers: dict[StateKey, Buffer], times: Times) -> None:
        for source in times.present:
            times.limit(source, times.newest[source])
        oldest = [limit - self._retention_ms + 1 for limit in times.limits]
        for key, buffer in buffers.items():
            self._put(key, buffer, oldest)
        if sweep_is_due(times.swept, max(times.limits), self._retention_ms):
            times.swept = max(times.limits)
            for (stored,), value in list(self._records.iterator()):
                if (key := hashable(stored)) not in buffers:
                    self._put(key, Buffer.of(value), oldest)
        self._times.update((*times.newest, *times.limits, times.swept))

    def _put(self, key: StateKey, buffer: Buffer, oldest: Sequence[int]) -> None:
        buffer.forget(oldest)
        if not any(buffer.records):
            self._records.removeKey((key,))
        elif buffer.changed:
            self._records.updateValue((key,), tuple(buffer.records))


def key_of(row: Any) -> StateKey:
    """Return the key of a record that has one."""
    return hashable(row.record["key"])


def hashable(key: str | bytes | bytearray) -> StateKey:
    """Return a key as Spark gives it, which may be a bytearray, in a form that is the key of a dict."""
    return key if isinstance(key, str) else bytes(key)


def in_order(row: Any) -> tuple[Any, ...]:
    """As a task takes records. Both sides may have the same one."""
    return *task_order(row.record), row.source


@dataclass
class Times:
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

    newest_0: int = BEFORE_ALL_TIME
    newest_1: int = BEFORE_ALL_TIME
    limit_0: int = BEFORE_ALL_TIME
    limit_1: int = BEFORE_ALL_TIME
    swept: int = BEFORE_ALL_TIME
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
class Buffer:
    """The stored records of one key: of each stream the times and the fields, by time.

    Attributes:
        records: Of this and of the other stream.
        changed: Whether they differ from what the state has.
    """

    records: tuple[list[tuple[int, Any]], list[tuple[int, Any]]]
    changed: bool = False

    @classmethod
    def of(cls, state: Any) -> Buffer:
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
