"""The state of a left or outer join of two streams: which records wait for a match, and when they wait no more.

Source: ``KStreamKStreamJoin`` of Kafka Streams 4.3. A record that meets none of the other stream is stored in a
key-value store that both sides share. A record that meets it removes it from there. When the newest record of the
stream task is later than its window and the grace, it is passed without a match.

``KStreamKStreamJoin`` looks for such records once in a second of the wall clock. Here it is done with each record, as
there with ``__emit.interval.ms.kstreams.outer.join.spurious.results.fix__=0``, so that the same records give the same
result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, count
from typing import Any, NamedTuple

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StructField,
    StructType,
)

from streamplan.model.windows import JoinWindows
from streamplan.spark.planning.stream_join_state import (
    BEFORE_ALL_TIME,
    Buffer,
    StateKey,
    StreamJoinState,
    Times,
    hashable,
    key_of,
)

_NEVER = (1 << 63) - 1

_ADDED = ("joined", "place", "number", "shared_key", "shared_value")
"""What rows have beside the columns of a record."""


class TimestampedKeyAndJoinSide(NamedTuple):
    """The key of the shared store (``TimestampedKeyAndJoinSide``). Its order is that of its bytes.

    Attributes:
        at: The record's time in ms.
        is_this: 1 for a record of this stream, 0 for one of the other.
        key: The record's key.
    """

    at: int
    is_this: int
    key: StateKey

    @classmethod
    def of(cls, source: int, at: int, key: StateKey) -> TimestampedKeyAndJoinSide:
        """Return the place of a record of this stream (0) or of the other one (1)."""
        return cls(at, 1 - source, key)

    @property
    def source(self) -> int:
        """0 for this stream, 1 for the other one."""
        return 1 - self.is_this

    @property
    def stored_key(self) -> bytes:
        """The key in bytes (``TimestampedKeyAndJoinSideSerializer``)."""
        key = self.key.encode() if isinstance(self.key, str) else self.key
        return self.at.to_bytes(8, "big") + bytes([self.is_this]) + key


def stored_list(values: Sequence[bytes]) -> bytes:
    """Return the value of the shared store in bytes: a list (``ListSerializer``) of what waits at one place."""
    lengths_and_values = chain.from_iterable((len(value).to_bytes(4, "big"), value) for value in values)
    return b"\x01" + len(values).to_bytes(4, "big") + b"".join(lengths_and_values)


def parse_stored_list(stored: bytes) -> list[bytes]:
    """Return the values in the bytes that :func:`stored_list` gives."""
    values, begin = [], 5
    for _ in range(int.from_bytes(stored[1:5], "big")):
        end = begin + 4 + int.from_bytes(stored[begin : begin + 4], "big")
        values.append(stored[begin + 4 : end])
        begin = end
    return values


class OuterJoinState(StreamJoinState):
    """Joins the records of one stream task, and passes those without a match.

    Args:
        types: As for :class:`StreamJoinState`.
        key_type: As for :class:`StreamJoinState`.
        windows: How far apart in time two records may be.
        both: Whether the other stream's records are passed without a match, too.
    """

    def __init__(self, types: Sequence[StructType], key_type: DataType, windows: JoinWindows, both: bool) -> None:
        super().__init__(types, key_type, windows)
        self._grace_ms = windows.grace_ms
        self._both = both

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state variables."""
        super().init(handle)
        fields = [StructField(f"f{number}", of_type) for number, of_type in enumerate(self._types)]
        waiting = StructType([StructField("value", BinaryType()), *fields])
        place = [StructField("at", LongType()), StructField("is_this", IntegerType())]
        places = StructType([*place, StructField("key", self._key_type)])
        self._waiting = _Waiting(
            handle.getMapState("waiting", places, StructType([StructField("records", ArrayType(waiting))]))
        )
        names = ("stream_time", "newest", "earliest")
        self._tracked = handle.getValueState("tracked", StructType([StructField(name, LongType()) for name in names]))

    def _begin(self, ordered: Sequence[Any], times: Times) -> None:
        super()._begin(ordered, times)
        self._waiting.begin()
        tracked = self._tracked.get() if self._tracked.exists() else None
        self._stream_time, self._newest, self._earliest = tracked or (BEFORE_ALL_TIME, BEFORE_ALL_TIME, _NEVER)
        # A micro-batch takes a share of each topic. So it may reach further in one of them. What the slower stream may
        # still meet waits, as for the records that both streams have stored.
        reached = [max((row.at for row in ordered if row.source == source), default=None) for source in (0, 1)]
        both = reached[0] is not None and reached[1] is not None
        self._latest = min(max(at or 0, new) for at, new in zip(reached, times.newest, strict=True)) if both else _NEVER

    def _process(self, row: Any, buffers: dict[StateKey, Buffer], times: Times) -> Iterator[Row]:
        self._newest = max(self._newest, row.at)
        self._stream_time = max(self._stream_time, min(self._newest, self._latest))
        values = row._asdict() | dict.fromkeys(_ADDED) | {"joined": False}
        places = count()
        passes_alone = row.has_value and (row.source == 0 or self._both)
        if row.record["key"] is None:
            if passes_alone:
                yield Row(**values | {"joined": True, "place": next(places)})
            return
        key = key_of(row)
        buffer = self._buffer(key, buffers)
        if row.has_value:
            if row.at >= self._stream_time:
                for place in self._over(row.source):
                    for waiting in self._waiting.take(place):
                        yield Row(**values | self._alone(place, waiting, row) | {"joined": True, "place": next(places)})
                    yield Row(**values | {"shared_key": place.stored_key, "place": next(places)})
            matches = self._matches(row.source, row.at, buffer, times)
            for at, found in matches:
                met = TimestampedKeyAndJoinSide.of(1 - row.source, at, key)
                if self._waiting.take(met):
                    yield Row(**values | {"shared_key": met.stored_key, "place": next(places)})
                fields = {f"f{1 - row.source}": self._by_name(1 - row.source, found)}
                yield Row(**values | fields | {"at": max(at, row.at), "joined": True, "place": next(places)})
            if passes_alone and not matches:
                if max(0, row.at + self._reach[row.source][1]) < self._stream_time:
                    yield Row(**values | {"joined": True, "place": next(places)})
                else:
                    place = TimestampedKeyAndJoinSide.of(row.source, row.at, key)
                    stored = {"shared_key": place.stored_key, "shared_value": self._wait(place, row)}
                    yield Row(**values | stored | {"place": next(places)})
        number = buffer.next_number(row.source, row.at)
        if row.has_value:
            self._put_record(row, buffer, times)
        yield Row(**values | {"number": number})

    def _wait(self, place: TimestampedKeyAndJoinSide, row: Any) -> bytes:
        """Let a record wait for a match; return what the shared store has of its place."""
        value = row.value if row.value is not None else row.record["value"]
        fields: list[Any] = [None, None]
        fields[row.source] = self._fields_of(row)
        self._earliest = min(self._earliest, place.at)
        waiting = self._waiting.add(place, (bytes(value), *fields))
        side = bytes([place.is_this])  # ``LeftOrRightValueSerializer``
        return stored_list([side + bytes(each[0]) for each in waiting])

    def _over(self, source: int) -> Iterator[TimestampedKeyAndJoinSide]:
        """Yield the places whose records wait no more, while a record of a stream is processed.

        The time by which it is decided whether to look at all is that of the place that was looked at last, as in
        ``emitNonJoinedOuterRecords``. So what is over may wait until the window of a later record is over, too.
        """
        if self._earliest + self._reach[source][1] + self._grace_ms >= self._stream_time:
            return
        self._earliest = _NEVER
        open_sides: set[int] = set()
        for place in self._waiting.in_order():
            self._earliest = place.at
            if len(open_sides) == 2:
                break
            if place.at + self._reach[place.source][1] + self._grace_ms >= self._stream_time:
                open_sides.add(place.source)
                continue
            yield place

    def _alone(self, place: TimestampedKeyAndJoinSide, waiting: tuple[Any, ...], row: Any) -> dict[str, Any]:
        """What a record gives that has waited in vain, while ``row`` is processed."""
        fields: dict[str, Any] = {"f0": None, "f1": None}
        fields[f"f{place.source}"] = self._by_name(place.source, waiting[1 + place.source])
        return {**fields, "at": place.at, "record": {**row.record, "key": place.key}}

    def _store(self, buffers: dict[StateKey, Buffer], times: Times) -> None:
        super()._store(buffers, times)
        self._waiting.store()
        self._tracked.update((self._stream_time, self._newest, self._earliest))


class RestoredOuterJoinState(OuterJoinState):
    """Puts the records of the changelogs into the state that :class:`OuterJoinState` goes on with.

    A row with ``waiting`` is one of the shared store's.
    """

    def _process(self, row: Any, buffers: dict[StateKey, Buffer], times: Times) -> Iterator[Row]:
        key = key_of(row)
        self._newest = self._stream_time = max(self._newest, row.at)
        if row.waiting:
            self._wait(TimestampedKeyAndJoinSide.of(row.source, row.at, key), row)
        else:
            self._put_record(row, self._buffer(key, buffers), times)
        yield from ()


class _Waiting:
    """The records that wait for a match, by their places, with what a micro-batch has changed of them.

    Args:
        state: The map state.
    """

    def __init__(self, state: Any) -> None:
        self._state = state
        self.begin()

    def begin(self) -> None:
        """Begin a micro-batch."""
        self._known: dict[TimestampedKeyAndJoinSide, list[tuple[Any, ...]]] = {}
        self._changed: set[TimestampedKeyAndJoinSide] = set()
        self._complete = False

    def add(self, place: TimestampedKeyAndJoinSide, record: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """Let a record wait; return all that wait at its place."""
        self._at(place).append(record)
        self._changed.add(place)
        return self._known[place]

    def take(self, place: TimestampedKeyAndJoinSide) -> list[tuple[Any, ...]]:
        """Remove the records at a place, and return them."""
        found = self._at(place)
        if found:
            self._known[place] = []
            self._changed.add(place)
        return found

    def in_order(self) -> list[TimestampedKeyAndJoinSide]:
        """Return the places where records wait, in the order of the store."""
        if not self._complete:
            for key, value in list(self._state.iterator()):
                self._known.setdefault(TimestampedKeyAndJoinSide(key[0], key[1], hashable(key[2])), list(value[0]))
            self._complete = True
        return sorted(place for place, records in self._known.items() if records)

    def store(self) -> None:
        """Write what was changed."""
        for place in self._changed:
            if records := self._known[place]:
                self._state.updateValue(tuple(place), (records,))
            elif self._state.containsKey(tuple(place)):
                self._state.removeKey(tuple(place))

    def _at(self, place: TimestampedKeyAndJoinSide) -> list[tuple[Any, ...]]:
        if place not in self._known:
            known = not self._complete and self._state.containsKey(tuple(place))
            self._known[place] = list(self._state.getValue(tuple(place))[0]) if known else []
        return self._known[place]
