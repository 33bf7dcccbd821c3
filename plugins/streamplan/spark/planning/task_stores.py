"""The stores that a Python class has in its stream task, on the map states of Spark.

A store reads a key from the state when the class asks for it, and knows it until the end of the micro-batch. Spark's
map state does not have the library's order of keys: RocksDB sorts the rows in which Spark holds them. So the first
range reads all keys of the stream task, and sorts them by their bytes.

Source: ``RocksDBStore``, ``AbstractRocksDBSegmentedBytesStore``, ``WindowKeySchema``, ``RocksDBVersionedStore`` of
``org.apache.kafka.streams.state.internals``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from operator import index
from typing import Any, NamedTuple, NoReturn

import pyarrow as pa

from streamplan.model.operations import (
    GlobalStore,
    SessionStateStore,
    StateStore,
    TimestampedStateStore,
    VersionedStateStore,
)
from streamplan.model.processor import (
    KeyValue,
    KeyValueStore,
    SessionStore,
    ValueAndTimestamp,
    VersionedKeyValueStore,
    VersionedRecord,
    Windowed,
    WindowStore,
)
from streamplan.model.timestamps import timestamp_fault
from streamplan.model.windows import (
    SEQUENCE_NUMBER_BYTES,
    STORED_SESSION_BYTES,
    STORED_WINDOW_BYTES,
    parse_stored_session,
    stored_session_key,
    stored_window_key,
)
from streamplan.serdes.arrow import struct_type
from streamplan.serdes.json import Json
from streamplan.serdes.moments import as_datetime, as_milliseconds
from streamplan.serdes.primitive import FIELD, KeySerde, Primitive
from streamplan.serdes.serde import MAX_BYTES, Serde, Undecodable, too_large
from streamplan.spark.global_tables import StoredRows
from streamplan.spark.planning.function_results import Unfit, fields_of, parts_of
from streamplan.spark.planning.python_functions import with_attributes

_LEAST_SEGMENT_MS = 60_000
"""``Stores.persistentWindowStore``: the interval of a segment is half of the retention, and at least a minute."""

BEFORE_ALL_TIME = -(1 << 63)

_TIME_BYTES = 8


class Change(NamedTuple):
    """A change of a store.

    Attributes:
        key: In bytes.
        value: In bytes; None for a key that was deleted.
        at: Its time in ms.
    """

    key: bytes
    value: bytes | None
    at: int


class TaskKeys:
    """The keys that a store has in a stream task, and their values, in bytes.

    Args:
        state: Spark's map state.
    """

    def __init__(self, state: Any) -> None:
        self._state = state
        self._values: dict[bytes, bytes | None] = {}
        self._stored: set[bytes] = set()
        self._dropped: set[bytes] = set()
        self._sorted: list[bytes] | None = None
        self._changed: dict[bytes, Change] = {}
        self._before: list[tuple[bytes, bytes | None, Change | None]] = []

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key; None for none."""
        if key not in self._values:
            known = self._sorted is None and self._state.containsKey((key,))  # Spark warns of one that is not there
            if known:
                self._stored.add(key)
            self._values[key] = bytes(self._state.getValue((key,))[0]) if known else None
        return self._values[key]

    def put(self, key: bytes, value: bytes | None, at: int, *, is_kept: bool = True) -> None:
        """Set the value of a key. None deletes it. One that is not kept only goes into the changelog."""
        self._before.append((key, self.get(key), self._changed.get(key)))
        if is_kept:
            self._set(key, value)
        self._changed[key] = Change(key, value, at)

    def drop(self, key: bytes) -> None:
        """Forget a key. The changelog is not told."""
        self.shorten(key, None)

    def shorten(self, key: bytes, value: bytes | None) -> None:
        """Forget a part of what a key has, or all of it. The changelog is not told."""
        self._set(key, value)
        self._dropped.add(key)

    def between(self, first: bytes | None, last: bytes | None) -> list[bytes]:
        """Return the keys from one to another, in the order of their bytes. None stands for no bound."""
        if self._sorted is None:
            for (found,), (value,) in list(self._state.iterator()):
                key = bytes(found)
                self._stored.add(key)
                self._values.setdefault(key, bytes(value))
            self._sorted = sorted(key for key, value in self._values.items() if value is not None)
        begin = 0 if first is None else bisect_left(self._sorted, first)
        end = len(self._sorted) if last is None else bisect_right(self._sorted, last)
        return self._sorted[begin:end]

    def keep(self) -> None:
        """Keep all changes: what has made them has succeeded."""
        self._before.clear()

    def take_back(self) -> None:
        """Take back the changes since :meth:`keep`: what has made them has failed."""
        for key, value, change in reversed(self._before):
            self._set(key, value)
            if change is None:
                self._changed.pop(key, None)
            else:
                self._changed[key] = change
        self._before.clear()

    def store(self) -> Iterator[Change]:
        """Put the changes into the state, and yield them, the last one of each key."""
        for key in [*self._changed, *self._dropped]:
            value = self._values[key]
            if value is not None:
                self._state.updateValue((key,), (value,))
            elif key in self._stored:
                self._state.removeKey((key,))
        yield from self._changed.values()

    def _set(self, key: bytes, value: bytes | None) -> None:
        if self._sorted is not None and (self._values[key] is None) != (value is None):
            if value is None:
                del self._sorted[bisect_left(self._sorted, key)]
            else:
                insort(self._sorted, key)
        self._values[key] = value


class VersionedKeys(TaskKeys):
    """The keys that a versioned store has in a stream task. The value of a key is all of its versions, in bytes.

    The changelog has every put, and not only the last one of a key.
    """

    def __init__(self, state: Any) -> None:
        super().__init__(state)
        self._puts: list[Change] = []
        self._succeeded = 0

    def log(self, change: Change) -> None:
        """Let the changelog have a put."""
        self._puts.append(change)

    def keep(self) -> None:
        """See :meth:`TaskKeys.keep`."""
        super().keep()
        self._succeeded = len(self._puts)

    def take_back(self) -> None:
        """See :meth:`TaskKeys.take_back`."""
        super().take_back()
        del self._puts[self._succeeded :]

    def store(self) -> Iterator[Change]:
        """Put the changes into the state, and yield all puts in their order."""
        list(super().store())
        yield from self._puts


class KeyBounds(NamedTuple):
    """The keys from one to another, in bytes. None stands for no bound."""

    first: bytes | None
    last: bytes | None

    def contain(self, key: bytes) -> bool:
        """Whether a key is among them."""
        return (self.first is None or self.first <= key) and (self.last is None or key <= self.last)


@dataclass(frozen=True)
class Codec:
    """The keys and values of a store: as Python code sees them, and in bytes.

    Attributes:
        key_serde: The serde of the keys.
        serde: The serde of the values.
    """

    key_serde: KeySerde
    serde: Serde

    @cached_property
    def _arrow_type(self) -> pa.StructType:
        return struct_type(self.serde.fields)

    def key(self, key: Any) -> bytes:
        """Return a key in bytes. Raises TypeError or ValueError where the serde has no such key."""
        if key is None:
            raise TypeError("the store has no null keys")
        return self.key_serde.write_key(key)

    def bounds(self, first: Any, last: Any) -> KeyBounds:
        """Return what contains the keys from one to another. None stands for no bound."""
        return KeyBounds(*(None if bound is None else self.key(bound) for bound in (first, last)))

    def value(self, value: Any) -> bytes:
        """Return a value in bytes. Raises TypeError where it has another form."""
        given = {FIELD: value} if isinstance(self.serde, Primitive) else value
        try:
            parts = parts_of(fields_of(given, self.serde.fields) or {}, self._arrow_type, "")
        except Unfit as error:
            raise TypeError(f"the store cannot hold that: {str(error).removeprefix('returned ')}") from error
        return self.serde.encode(pa.scalar(parts, self._arrow_type).as_py(maps_as_pydicts="strict"))

    def seen_key(self, key: bytes) -> Any:
        """Return a key as Python code sees it."""
        return self.key_serde.read_key(key)

    def seen(self, value: bytes | None) -> Any:
        """Return a value as Python code sees it; None for none."""
        if value is None:
            return None
        fields = self.serde.decode(value)
        if isinstance(self.serde, Primitive):
            return fields[FIELD]
        seen = with_attributes(fields, self._arrow_type)
        of_class = self.serde.record_class if isinstance(self.serde, Json) else None
        return seen if of_class is None else of_class.read(seen)


class TimestampedCodec(Codec):
    """The same of a store whose values have a time. In the state, 8 bytes with the time in ms begin each."""

    def value(self, value: Any) -> bytes:
        """Return a value with its time in bytes. Raises TypeError or ValueError where it is something else."""
        if not isinstance(value, tuple | list) or len(value) != len(ValueAndTimestamp._fields):
            raise TypeError(
                "the store cannot hold that: a value and its timestamp are expected, as (3, record.timestamp)"
            )
        of_store, at = value[0], _ms(value[1])
        if of_store is None:
            raise TypeError("the store cannot hold that: the value is null. Put None in place of the pair")
        if (fault := timestamp_fault(at)) is not None:
            raise ValueError(f"the store cannot hold that: {fault}")
        return with_time(super().value(of_store), at)

    def seen(self, value: bytes | None) -> ValueAndTimestamp | None:
        """Return a value with its time as Python code sees it; None for none."""
        if value is None:
            return None
        return ValueAndTimestamp(super().seen(value[_TIME_BYTES:]), as_datetime(time_in(value)))


def with_time(value: bytes, at: int) -> bytes:
    """Return a value in bytes with its time in ms, as a state has it."""
    return at.to_bytes(_TIME_BYTES, "big", signed=True) + value


def time_in(value: bytes) -> int:
    """Return the time in ms of a value that :func:`with_time` gave."""
    return int.from_bytes(value[:_TIME_BYTES], "big", signed=True)


class Version(NamedTuple):
    """A value of a key in a versioned store.

    Attributes:
        at: Since when it is valid, in ms.
        value: In bytes; None where the key has no value from then on.
    """

    at: int
    value: bytes | None


_NO_VALUE = (1 << 32) - 1


def versions_in(data: bytes | None) -> list[Version]:
    """Return the versions of a key, the earliest first, of what the state has of it: see :func:`versions_as_bytes`."""
    found, place, data = [], 0, data or b""
    while place < len(data):
        size = int.from_bytes(data[place + _TIME_BYTES : place + _TIME_BYTES + 4], "big")
        begin = place + _TIME_BYTES + 4
        value = None if size == _NO_VALUE else data[begin : begin + size]
        found.append(Version(time_in(data[place : place + _TIME_BYTES]), value))
        place = begin + len(value or b"")
    return found


def versions_as_bytes(versions: list[Version]) -> bytes:
    """Return the versions of a key as the state has them: of each its time, the size of its value, and its value."""
    return b"".join(
        with_time((_NO_VALUE if value is None else len(value)).to_bytes(4, "big"), at) + (value or b"")
        for at, value in versions
    )


class TaskStore:
    """A store of a stream task.

    Args:
        operation: Writes the store.
        state: Spark's map state.
        observed: Of a store of windows or sessions the newest time of what was put: the start of a window, or the end
            of a session.
    """

    def __init__(self, operation: StateStore, state: Any, observed: int) -> None:
        self.operation = operation
        self.keys = VersionedKeys(state) if isinstance(operation, VersionedStateStore) else TaskKeys(state)
        self.has_times = isinstance(operation, TimestampedStateStore)
        self.codec = (TimestampedCodec if self.has_times else Codec)(operation.key_serde, operation.value)
        self.observed = observed
        self.at = 0
        """The time in ms of the record or the punctuator that changes the store now."""

    def put(self, key: bytes, value: bytes | None, *, is_kept: bool = True) -> None:
        """Set a value in bytes. Raises ValueError where it is too large for the changelog."""
        if len(key) + len(value or b"") > MAX_BYTES:
            raise ValueError(f"the store cannot hold that: {too_large(MAX_BYTES)}")
        at = time_in(value) if self.has_times and value is not None else self.at
        self.keys.put(key, value, at, is_kept=is_kept)

    def restore(self, key: bytes, value: bytes | None, at: int) -> None:
        """Take over what the changelog has: a value in bytes, and the time of its record in ms."""
        if self.is_versioned:
            self.put_version(key, value, at)
            return
        if value is None:
            return
        if self.operation.retention_ms is not None:
            self.observed = max(self.observed, self.time_of(key))
        self.keys.put(key, with_time(value, at) if self.has_times else value, at)

    def store(self) -> Iterator[Change]:
        """Put the changes into the state, and yield them as the changelog has them, the last one of each key."""
        for change in self.keys.store():
            value = change.value
            yield change._replace(value=value[_TIME_BYTES:]) if self.has_times and value is not None else change

    def put_at(self, key: bytes, value: bytes | None, at: int) -> None:
        """Set the value of a window or a session in bytes.

        Args:
            key: With the bytes of the window or the session.
            value: None deletes it.
            at: The time that it belongs to in ms; see :meth:`time_of`.
        """
        observed = max(self.observed, at)
        live = (observed - (self.operation.retention_ms or 0)) // self.segment_ms
        # The library logs also what its store drops.
        self.put(key, value, is_kept=at // self.segment_ms >= live)
        self.observed = observed  # a class may go on after a put that was refused

    def put_version(self, key: bytes, value: bytes | None, at: int) -> bool:
        """Set the value of a key of a versioned store from a time in ms on. Returns whether it is not too old.

        Args:
            key: In bytes.
            value: In bytes; None for no value from then on.
            at: The time.
        """
        if len(key) + len(value or b"") > MAX_BYTES:
            raise ValueError(f"the store cannot hold that: {too_large(MAX_BYTES)}")
        assert isinstance(self.keys, VersionedKeys)
        self.keys.log(Change(key, value, at))
        if at < self.observed - self.kept_ms:
            return False
        self.observed = max(self.observed, at)
        versions = [each for each in self.versions(key) if each.at != at]
        versions.insert(bisect_left(versions, at, key=_at), Version(at, value))
        self.keys.put(key, versions_as_bytes(self._live(versions)), at)
        return True

    def _live(self, versions: list[Version]) -> list[Version]:
        """The versions that may still be found: the last one, and those that were valid within the history."""
        ends = [*(each.at for each in versions[1:]), None]
        oldest = self.observed - self.kept_ms
        return [each for each, end in zip(versions, ends, strict=True) if end is None or end >= oldest]

    def versions(self, key: bytes) -> list[Version]:
        """Return the versions of a key of a versioned store, the earliest first."""
        return versions_in(self.keys.get(key))

    @property
    def kept_ms(self) -> int:
        """How long windows, sessions or replaced values are kept; 0 in other stores."""
        if isinstance(self.operation, VersionedStateStore):
            return self.operation.history_ms
        return self.operation.retention_ms or 0

    @property
    def seen(self) -> KeyValueStore | WindowStore | SessionStore | VersionedKeyValueStore:
        """The store as a class sees it."""
        if self.is_versioned:
            return _Versions(self)
        if self.has_sessions:
            return _Sessions(self)
        return _KeyValues(self) if self.operation.retention_ms is None else _Windows(self)

    @property
    def has_sessions(self) -> bool:
        """Whether it is a store of sessions."""
        return isinstance(self.operation, SessionStateStore)

    @property
    def is_versioned(self) -> bool:
        """Whether it keeps earlier values."""
        return isinstance(self.operation, VersionedStateStore)

    def time_of(self, key: bytes) -> int:
        """Return the time in ms that a key belongs to: the start of a window, or the end of a session."""
        return bounds_of(key)[1] if self.has_sessions else start_of(key)

    @property
    def segment_ms(self) -> int:
        """Of a window store how much time a segment has."""
        return max((self.operation.retention_ms or 0) // 2, _LEAST_SEGMENT_MS)

    def sweep(self) -> None:
        """Forget the windows and sessions whose segment is over, and the keys that have no value in the history."""
        if self.is_versioned:
            for key in self.keys.between(None, None):
                versions = self.versions(key)
                found = self._live(versions)
                if found[-1].value is None and found[-1].at < self.observed - self.kept_ms:
                    self.keys.drop(key)
                elif len(found) < len(versions):
                    self.keys.shorten(key, versions_as_bytes(found))
        if self.operation.retention_ms is None:
            return
        live = (self.observed - self.operation.retention_ms) // self.segment_ms
        for key in self.keys.between(None, None):
            if self.time_of(key) // self.segment_ms < live:
                self.keys.drop(key)


@dataclass(frozen=True)
class TableStore:
    """The store of another operation, as a class can read it.

    Attributes:
        name: Of the store.
        key_serde: The serde of its keys.
        serde: Reads its values.
    """

    name: str
    key_serde: KeySerde
    serde: Serde


class ReadTable:
    """The values that another operation has stored in a stream task. In the state, 8 bytes with the time begin each.

    Args:
        state: Spark's map state.
    """

    def __init__(self, store: TableStore, state: Any) -> None:
        self._keys = TaskKeys(state)
        self.seen = _Table(store, self._keys)

    def put(self, key: bytes, value: bytes | None, at: int) -> None:
        """Take over what the operation has stored. None deletes the key."""
        self._keys.put(key, None if value is None else with_time(value, at), at)
        self._keys.keep()

    def store(self) -> None:
        """Put the changes into the state. The operation has written the changelog."""
        list(self._keys.store())


def global_store(store: GlobalStore, rows: StoredRows) -> KeyValueStore:
    """Return the store of a global table as a class sees it."""
    return _GlobalTable(store, rows)


class _GlobalKeys:
    """The keys of a global table, and their values with their times, in bytes."""

    def __init__(self, rows: StoredRows) -> None:
        self._rows, self.between = rows, rows.between

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key with its time; None for none."""
        record = self._rows.get(key)
        return None if record is None or record.value is None else with_time(record.value, record.timestamp)


def start_of(key: bytes) -> int:
    """Return when a window begins, in ms, of its key in bytes."""
    return int.from_bytes(key[-STORED_WINDOW_BYTES:-SEQUENCE_NUMBER_BYTES], "big", signed=True)


def bounds_of(key: bytes) -> tuple[int, int]:
    """Return when a session begins and ends, in ms, of its key in bytes."""
    stored = parse_stored_session(key)
    assert stored is not None
    return stored.start_ms, stored.end_ms


class _Entries(KeyValueStore[Any, Any]):
    """What can be read of keys and values."""

    def __init__(self, keys: TaskKeys | _GlobalKeys, codec: Codec) -> None:
        self._keys, self._codec = keys, codec

    def get(self, key: Any) -> Any:  # type: ignore[override]  # a store of all keys is asked for one
        return self._seen(self._keys.get(self._codec.key(key)))

    def range(self, first: Any = None, last: Any = None) -> Iterator[KeyValue]:
        return self._entries(self._between(first, last))

    def reverse_range(self, first: Any = None, last: Any = None) -> Iterator[KeyValue]:
        return self._entries(self._between(first, last)[::-1])

    def all(self) -> Iterator[KeyValue]:
        return self.range()

    def reverse_all(self) -> Iterator[KeyValue]:
        return self.reverse_range()

    def prefix_scan(self, prefix: str | bytes) -> Iterator[KeyValue]:
        begin = prefix.encode() if isinstance(prefix, str) else prefix
        keys = self._keys.between(begin, None)
        return self._entries(keys[: next((n for n, key in enumerate(keys) if not key.startswith(begin)), len(keys))])

    def approximate_num_entries(self) -> int:
        return len(self._keys.between(None, None))

    def _between(self, first: Any, last: Any) -> list[bytes]:
        bounds = (None if bound is None else self._codec.key(bound) for bound in (first, last))
        return self._keys.between(*bounds)

    def _entries(self, keys: list[bytes]) -> Iterator[KeyValue]:
        """The entries as they are now: an iterator of RocksDB sees no later change."""
        values = [(key, self._keys.get(key)) for key in keys]
        return (KeyValue(self._codec.seen_key(key), self._seen(value)) for key, value in values)

    def _seen(self, value: bytes | None) -> Any:
        return self._codec.seen(value)


class _KeyValues(_Entries):
    """A key-value store as a class sees it."""

    def __init__(self, store: TaskStore) -> None:
        super().__init__(store.keys, store.codec)
        self._store = store

    def put(self, key: Any, value: Any) -> None:  # type: ignore[override]
        self._store.put(self._codec.key(key), None if value is None else self._codec.value(value))

    def put_if_absent(self, key: Any, value: Any) -> Any:
        before = self.get(key)
        if before is None:
            self.put(key, value)
        return before

    def put_all(self, entries: Iterable[tuple[Any, Any]]) -> None:
        for key, value in entries:
            self.put(key, value)

    def delete(self, key: Any) -> Any:  # type: ignore[override]
        before = self.get(key)
        self.put(key, None)
        return before


class _Table(_Entries):
    """The store of another operation as a class sees it."""

    def __init__(self, store: TableStore, keys: TaskKeys | _GlobalKeys) -> None:
        super().__init__(keys, TimestampedCodec(store.key_serde, store.serde))
        self._name = store.name

    def put(self, *key_and_value: Any) -> NoReturn:
        self._refuse()

    def put_if_absent(self, key: Any, value: Any) -> NoReturn:
        self._refuse()

    def put_all(self, entries: Iterable[tuple[Any, Any]]) -> NoReturn:
        self._refuse()

    def delete(self, *key: Any) -> NoReturn:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise RuntimeError(
            f"the store {self._name!r} can only be read: its operation would not know of the change. "
            "Declare a store of the class: stores={'seen': KeyValueStore(…)}"
        )


class _GlobalTable(_Table):
    """The store of a global table as a class sees it."""

    def __init__(self, store: GlobalStore, rows: StoredRows) -> None:
        super().__init__(TableStore(store.store, store.key_serde, store.row), _GlobalKeys(rows))
        self._topic = store.topic

    def _seen(self, value: bytes | None) -> Any:
        try:
            return super()._seen(value)
        except Undecodable as error:
            raise ValueError(f"a row of the global table {self._topic}: {error}") from error


class _Windows(WindowStore[Any, Any]):
    """A window store as a class sees it."""

    def __init__(self, store: TaskStore) -> None:
        self._store, self._keys, self._codec = store, store.keys, store.codec
        operation = store.operation
        assert operation.retention_ms is not None
        self._retention_ms, self._window_ms = operation.retention_ms, operation.window_ms
        self._duplicates = operation.retain_duplicates

    def put(self, key: Any, value: Any, at: datetime | int) -> None:
        start, raw = _put_ms(at), self._codec.key(key)
        if value is None and self._duplicates:
            return
        data = None if value is None else self._codec.value(value)
        number = 0
        if self._duplicates:
            known = self._keys.between(stored_window_key(raw, start), stored_window_key(raw, start, _GREATEST_NUMBER))
            number = 1 + (int.from_bytes(known[-1][-SEQUENCE_NUMBER_BYTES:], "big") if known else 0)
        self._store.put_at(stored_window_key(raw, start, number), data, start)

    def fetch(self, key: Any, first: datetime | int, last: datetime | int | None = None) -> Any:
        raw = self._codec.key(key)
        if last is None:
            start = _ms(first)
            return self._codec.seen(self._keys.get(stored_window_key(raw, start)) if start >= self._earliest else None)
        return self._starts(self._of_key(raw, _ms(first), _ms(last)))

    def backward_fetch(self, key: Any, first: datetime | int, last: datetime | int) -> Iterator[KeyValue]:
        return self._starts(self._of_key(self._codec.key(key), _ms(first), _ms(last))[::-1])

    def fetch_range(
        self, first_key: Any, last_key: Any, first: datetime | int, last: datetime | int
    ) -> Iterator[KeyValue]:
        return self._windows(self._found(_ms(first), _ms(last), first_key, last_key))

    def backward_fetch_range(
        self, first_key: Any, last_key: Any, first: datetime | int, last: datetime | int
    ) -> Iterator[KeyValue]:
        return self._windows(self._found(_ms(first), _ms(last), first_key, last_key)[::-1])

    def fetch_all(self, first: datetime | int, last: datetime | int) -> Iterator[KeyValue]:
        return self._windows(self._found(_ms(first), _ms(last)))

    def backward_fetch_all(self, first: datetime | int, last: datetime | int) -> Iterator[KeyValue]:
        return self._windows(self._found(_ms(first), _ms(last))[::-1])

    def all(self) -> Iterator[KeyValue]:
        return self._windows(self._found(0, _LATEST))

    def backward_all(self) -> Iterator[KeyValue]:
        return self._windows(self._found(0, _LATEST)[::-1])

    def _of_key(self, raw: bytes, first: int, last: int) -> list[bytes]:
        """The windows of a key that begin from one time to another, in the order of their starts."""
        begin = max(first, self._earliest)
        if last < begin:
            return []
        keys = self._keys.between(stored_window_key(raw, max(begin, 0)), stored_window_key(raw, last, _GREATEST_NUMBER))
        return [name for name in keys if name[:-STORED_WINDOW_BYTES] == raw]

    def _found(self, first: int, last: int, first_key: Any = None, last_key: Any = None) -> list[bytes]:
        """The windows of keys from one to another that begin from one time to another.

        They are in the order of the library: by segment, then by key and start.
        """
        begin, bounds = max(first, self._earliest), self._codec.bounds(first_key, last_key)
        found = [name for name in self._keys.between(None, None) if begin <= start_of(name) <= last]
        found = [name for name in found if bounds.contain(name[:-STORED_WINDOW_BYTES])]
        return sorted(found, key=lambda name: (start_of(name) // self._store.segment_ms, name))

    def _starts(self, names: list[bytes]) -> Iterator[KeyValue]:
        values = [(name, self._keys.get(name)) for name in names]
        return (KeyValue(as_datetime(start_of(name)), self._codec.seen(value)) for name, value in values)

    def _windows(self, names: list[bytes]) -> Iterator[KeyValue]:
        values = [(name, self._keys.get(name)) for name in names]
        return (KeyValue(self._windowed(name), self._codec.seen(value)) for name, value in values)

    @property
    def _earliest(self) -> int:
        """The earliest start of a window that can be fetched."""
        return self._store.observed - self._retention_ms + 1

    def _windowed(self, name: bytes) -> Windowed:
        start = start_of(name)
        key = self._codec.seen_key(name[:-STORED_WINDOW_BYTES])
        return Windowed(key, as_datetime(start), as_datetime(start + self._window_ms))


class _Sessions(SessionStore[Any, Any]):
    """A store of sessions as a class sees it."""

    def __init__(self, store: TaskStore) -> None:
        self._store, self._keys, self._codec = store, store.keys, store.codec
        assert store.operation.retention_ms is not None
        self._retention_ms = store.operation.retention_ms

    def put(self, key: Any, value: Any, start: datetime | int, end: datetime | int) -> None:
        began, ended = _put_ms(start), _put_ms(end)
        if ended < began:
            raise ValueError(f"the store cannot hold that: the session from {began} to {ended} ends before it begins")
        name = stored_session_key(self._codec.key(key), began, ended)
        self._store.put_at(name, None if value is None else self._codec.value(value), ended)

    def remove(self, key: Any, start: datetime | int, end: datetime | int) -> None:
        self.put(key, None, start, end)

    def fetch_session(self, key: Any, start: datetime | int, end: datetime | int) -> Any:
        name = stored_session_key(self._codec.key(key), _ms(start), _ms(end))
        return self._codec.seen(self._keys.get(name) if _ms(end) >= self._earliest else None)

    def find_sessions(self, key: Any, earliest_end: datetime | int, latest_start: datetime | int) -> Iterator[KeyValue]:
        return self._sessions(self._of_key(key, _ms(earliest_end), _ms(latest_start)))

    def backward_find_sessions(
        self, key: Any, earliest_end: datetime | int, latest_start: datetime | int
    ) -> Iterator[KeyValue]:
        return self._sessions(self._of_key(key, _ms(earliest_end), _ms(latest_start))[::-1])

    def fetch(self, key: Any) -> Iterator[KeyValue]:
        return self.find_sessions(key, 0, _LATEST)

    def backward_fetch(self, key: Any) -> Iterator[KeyValue]:
        return self.backward_find_sessions(key, 0, _LATEST)

    def fetch_range(self, first_key: Any, last_key: Any) -> Iterator[KeyValue]:
        return self._sessions(self._found(first_key, last_key))

    def backward_fetch_range(self, first_key: Any, last_key: Any) -> Iterator[KeyValue]:
        return self._sessions(self._found(first_key, last_key)[::-1])

    def _of_key(self, key: Any, earliest_end: int, latest_start: int) -> list[bytes]:
        """The sessions of a key that end and begin so, in the order of their ends."""
        raw, earliest = self._codec.key(key), max(earliest_end, self._earliest, 0)
        keys = self._keys.between(stored_session_key(raw, 0, earliest), stored_session_key(raw, _LATEST, _LATEST))
        return [name for name in keys if name[:-STORED_SESSION_BYTES] == raw and bounds_of(name)[0] <= latest_start]

    def _found(self, first_key: Any, last_key: Any) -> list[bytes]:
        """The sessions of keys from one to another, in the order of the library: by segment, then by key and end."""
        bounds = self._codec.bounds(first_key, last_key)
        found = [name for name in self._keys.between(None, None) if bounds_of(name)[1] >= self._earliest]
        found = [name for name in found if bounds.contain(name[:-STORED_SESSION_BYTES])]
        return sorted(found, key=lambda name: (bounds_of(name)[1] // self._store.segment_ms, name))

    def _sessions(self, names: list[bytes]) -> Iterator[KeyValue]:
        values = [(name, self._keys.get(name)) for name in names]
        return (KeyValue(self._windowed(name), self._codec.seen(value)) for name, value in values)

    @property
    def _earliest(self) -> int:
        """The earliest end of a session that can be fetched."""
        return self._store.observed - self._retention_ms + 1

    def _windowed(self, name: bytes) -> Windowed:
        start, end = bounds_of(name)
        return Windowed(self._codec.seen_key(name[:-STORED_SESSION_BYTES]), as_datetime(start), as_datetime(end))


class _Versions(VersionedKeyValueStore[Any, Any]):
    """A versioned store as a class sees it."""

    def __init__(self, store: TaskStore) -> None:
        self._store, self._codec = store, store.codec

    def put(self, key: Any, value: Any, at: datetime | int) -> bool:
        moment = _put_ms(at)
        return self._store.put_version(
            self._codec.key(key), None if value is None else self._codec.value(value), moment
        )

    def delete(self, key: Any, at: datetime | int) -> VersionedRecord | None:
        moment = _put_ms(at)
        before = self.get(key, moment) if moment >= self._oldest else None
        self._store.put_version(self._codec.key(key), None, moment)
        return None if before is None else before._replace(valid_to=None)

    def get(self, key: Any, as_of: datetime | int | None = None) -> VersionedRecord | None:
        versions = self._store.versions(self._codec.key(key))
        moment = _LATEST if as_of is None else _ms(as_of)
        found = bisect_right(versions, moment, key=_at) - 1
        if found < 0 or (moment < self._oldest and found < len(versions) - 1):
            return None
        return self._seen(versions, found)

    def versions(
        self, key: Any, first: datetime | int | None = None, last: datetime | int | None = None
    ) -> Iterator[VersionedRecord]:
        return iter(self._valid(key, first, last))

    def reverse_versions(
        self, key: Any, first: datetime | int | None = None, last: datetime | int | None = None
    ) -> Iterator[VersionedRecord]:
        return iter(self._valid(key, first, last)[::-1])

    def _valid(self, key: Any, first: datetime | int | None, last: datetime | int | None) -> list[VersionedRecord]:
        """The values that were valid at any time from one to another."""
        versions = self._store.versions(self._codec.key(key))
        end = _LATEST if last is None else _ms(last)
        begin = self._oldest if first is None else max(_ms(first), self._oldest)
        found = []
        for place, (at, _) in enumerate(versions):
            replaced = versions[place + 1].at if place + 1 < len(versions) else None
            if at <= end and (replaced is None or (replaced > begin and end >= self._oldest)):
                found.append(self._seen(versions, place))
        return [each for each in found if each is not None]

    @property
    def _oldest(self) -> int:
        """The earliest time of the history."""
        return self._store.observed - self._store.kept_ms

    def _seen(self, versions: list[Version], place: int) -> VersionedRecord | None:
        at, value = versions[place]
        if value is None:
            return None
        replaced = versions[place + 1].at if place + 1 < len(versions) else None
        valid_to = None if replaced is None else as_datetime(replaced)
        return VersionedRecord(self._codec.seen(value), as_datetime(at), valid_to)


def _at(version: Version) -> int:
    return version.at


_LATEST = (1 << 63) - 1
_GREATEST_NUMBER = (1 << 31) - 1


def _put_ms(moment: datetime | int) -> int:
    """The time of a window or a session that is put: Spark makes a timestamp of it for the changelog."""
    at = _ms(moment)
    if fault := timestamp_fault(at):
        raise ValueError(f"the store cannot hold that: {fault}")
    return at


def _ms(moment: datetime | int) -> int:
    return as_milliseconds(moment) if isinstance(moment, datetime) else index(moment)
