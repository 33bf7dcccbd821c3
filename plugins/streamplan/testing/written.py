"""The topics that a topology writes in a test, and its stores as their changelogs have them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, TypeAlias

from streamplan.errors import Refused
from streamplan.model.dead_letters import REASON, TASK, parse_origin
from streamplan.model.pipeline import Pipeline
from streamplan.model.windows import (
    SEQUENCE_NUMBER_BYTES,
    STORED_SESSION_BYTES,
    STORED_WINDOW_BYTES,
    TIME_AND_SIDE_BYTES,
    WINDOW_START_BYTES,
    parse_stored_session,
    window_start_ms,
    without_suffix,
)
from streamplan.serdes.json_documents import parse_plain
from streamplan.serdes.json_keys import KeyFields
from streamplan.serdes.moments import as_datetime, as_milliseconds
from streamplan.serdes.primitive import FIELD, KeySerde, Primitive, String, key_serde_of_type
from streamplan.serdes.serde import Serde, Undecodable
from streamplan.serdes.suppress_buffer import FORMAT as BUFFERED
from streamplan.serdes.windowed import Windowed
from streamplan.spark.planning.foreign_key_join import SENT_FORMATS
from streamplan.spark.planning.outer_join_state import parse_stored_list
from streamplan.spark.planning.records import RecordFrame
from streamplan.spark.planning.stream_stream_join import WAITING
from streamplan.spark.sink.spec import DEAD_LETTER
from streamplan.testing.memory_output import WrittenRecord
from streamplan.testing.moments import Moment, timestamp_ms
from streamplan.testing.records import DeadLetter, Key, PlainKey, SessionKey, TestRecord, WindowedKey

Filling: TypeAlias = "Callable[[Any, Any, Moment | None, int | None], None]"
"""Puts a value into a store: key, value, time and partition, as :meth:`StoreContent.put` takes them."""


@dataclass(frozen=True, eq=False)  # a mapping is equal to a dict of the same content
class StoreContent(Mapping[Key, Any]):
    """What a state store holds: values by key.

    A key of a windowed store is looked up with the start of its window: ``store["DE", "12:00"]``. One of a session is
    looked up with start and end: ``store["ann", "12:00", "12:04"]``. A key of several fields is a dict.
    """

    name: str
    values_by_key: Mapping[Key, Any]
    day: date
    filling: Filling

    def put(self, key: Any, value: Any, *, at: Moment | None = None, partition: int | None = None) -> None:
        """Put a value into the store before the test: no record has come yet that this store is asked for.

        Example: ``driver.store("spent").put("ann", {"total": 7.5})``,
        ``driver.store("views").put(("DE", "12:00"), 3)``

        Args:
            key: As for a look-up.
            value: What the changelog has: a dict, the number of a count, or what the serde of the store writes.
            at: The time of the record in the changelog; see :meth:`TopologyTestDriver.pipe`.
            partition: The stream task whose store it is; by default that of the key.

        Raises:
            Refused: The store cannot hold that, or its sub-topology has processed a record.
        """
        self.filling(self._found(key), value, at, partition)

    def _found(self, key: Any) -> Any:
        found = KeyFields(key) if isinstance(key, dict) else key
        if isinstance(key, tuple) and not isinstance(key, WindowedKey | SessionKey):
            name, *moments = key
            if isinstance(name, dict):
                name = KeyFields(name)
            bounds = [as_datetime(timestamp_ms(moment, self.day)) for moment in moments]
            found = SessionKey(name, *bounds) if len(bounds) > 1 else WindowedKey(name, *bounds)
        return found

    def __getitem__(self, key: Any) -> Any:
        found = self._found(key)
        try:
            return self.values_by_key[found]
        except KeyError:
            known = ", ".join(map(repr, self.values_by_key)) or "no key"
            raise KeyError(f"the store {self.name} has no key {found!r}; it has {known}") from None

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TypeError(f"a store is filled with put: driver.store({self.name!r}).put({key!r}, {value!r})")

    def __iter__(self) -> Iterator[Key]:
        return iter(self.values_by_key)

    def __len__(self) -> int:
        return len(self.values_by_key)

    def __repr__(self) -> str:
        return repr(dict(self))


class WrittenTopics:
    """What a pipeline has written since its driver was made.

    Args:
        pipeline: The pipeline, with all partition counts.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        topology = pipeline.topology
        specs = {spec.name: spec for spec in pipeline.topics()}
        sinks = {topic for group in topology.subtopologies for topic in map(topology.decorate, group.sink_topics)}
        self._pipeline = pipeline
        self._key_serdes = {
            topology.decorate(source.topic): source.key_serde
            for group in topology.subtopologies
            for source in group.sources
        }
        self._window_bytes = {name: spec.window_bytes for name, spec in specs.items()}
        self._waiting = {name: key_serde_of_type(spec.key_type) for name, spec in specs.items() if spec.prefix_bytes}
        self._is_combined = {
            name: spec.primary_key_type is not None or spec.number_bytes > 0 for name, spec in specs.items()
        }
        self._changelogs = {
            node.store: topology.changelog_topic(node.store) for _, node in pipeline.stores if node.store
        }
        self._versioned = {name for name, spec in specs.items() if "min.compaction.lag.ms" in spec.configs}
        self._newest: dict[tuple[str, Key], int] = {}
        self._topics = {*sinks, *self._changelogs.values()}
        self._new: dict[str, list[TestRecord]] = defaultdict(list)
        self._stored: dict[str, dict[Key, Any]] = defaultdict(dict)
        self.dead_letters: list[DeadLetter] = []

    def append(self, record: WrittenRecord, window_bytes: int, frame: RecordFrame | None) -> None:
        """Add a record.

        Args:
            record: What a stream task has written.
            window_bytes: How many bytes of its key are those of its window, in a topic that is no changelog.
            frame: What is known of the records of its output; None for a dead letter.
        """
        if record.output == DEAD_LETTER:
            self.dead_letters.append(_dead_letter(record, self._key_serdes))
            return
        assert frame is not None, f"an output of {record.topic} that nobody has planned"
        if isinstance(frame.key_serde, Windowed) and not frame.windowed:
            window_bytes = 0  # the serde reads the window
        suffix = self._window_bytes[record.topic] or window_bytes
        if self._is_combined[record.topic]:
            key: Key = record.key
        elif record.topic in self._waiting:
            key = _key_of_waiting(self._waiting[record.topic], record.key)
        else:
            key = _key(frame.key_serde, record.key, suffix)
        value = _value(frame, record.value)
        shown = TestRecord(key, value, as_datetime(record.timestamp), record.headers, record.partition)
        self._new[record.topic].append(shown)
        if record.topic in self._versioned:
            if record.timestamp < self._newest.get((record.topic, key), record.timestamp):
                return  # a late value is not the last one of its key
            self._newest[record.topic, key] = record.timestamp
        if record.topic in self._changelogs.values():
            if record.value is None:
                self._stored[record.topic].pop(key, None)
            else:
                self._stored[record.topic][key] = value

    def take(self, topic: str) -> list[TestRecord]:
        """Return the records of a topic since the last call; see :meth:`TopologyTestDriver.output`."""
        name = self._pipeline.topology.decorate(topic) if isinstance(topic, str) else ""
        if name not in self._topics:
            raise Refused(
                f"topic {topic!r}",
                expected=f"a topic that {self._pipeline.name} writes: {', '.join(sorted(self._topics))}",
            )
        return self._new.pop(name, [])

    def store(self, name: str, day: date, filling: Filling) -> StoreContent:
        """Return what a store holds; see :meth:`TopologyTestDriver.store`.

        Args:
            name: The name of the store.
            day: That of times which say none.
            filling: Puts a value into the store.
        """
        return StoreContent(name, dict(self._stored[self.changelog(name)]), day, filling)

    def changelog(self, store: str) -> str:
        """Return the changelog of a store. Raises Refused where there is no such store."""
        if store not in self._changelogs:
            known = ", ".join(sorted(self._changelogs)) or "none"
            raise Refused(f"store {store!r}", expected=f"a store of {self._pipeline.name}: {known}")
        return self._changelogs[store]

    def filled(self, store: str, key: Any, value: Any, frame: RecordFrame) -> tuple[bytes, bytes, bytes]:
        """Note a value that a test puts into a store.

        Args:
            store: The name of the store.
            key: Its key, with its window.
            frame: What is known of the records of its changelog.

        Returns:
            The key in bytes without its window; the key, and the value, as the changelog has them.

        Raises:
            Refused: The store cannot hold that.
        """
        changelog, subject = self._changelogs[store], f"put into {store}"
        if changelog in self._waiting or self._is_combined[changelog] or frame.keeps_duplicates:
            raise Refused(f"{subject}: the records of a join wait in it", remedy="Pipe the records that are joined.")
        plain, suffix = key, b""
        size = self._window_bytes[changelog]
        windows = {0: "a plain key", STORED_WINDOW_BYTES: "(key, start)", STORED_SESSION_BYTES: "(key, start, end)"}
        given = {WindowedKey: STORED_WINDOW_BYTES, SessionKey: STORED_SESSION_BYTES}.get(type(key), 0)
        if given != size:
            raise Refused(f"{subject}: the key {key!r}", expected=windows.get(size, "a plain key"))
        if isinstance(key, WindowedKey):
            plain, suffix = key.key, _big_endian(key.start) + bytes(SEQUENCE_NUMBER_BYTES)
        elif isinstance(key, SessionKey):
            plain, suffix = key.key, _big_endian(key.end) + _big_endian(key.start)
        try:
            raw = plain if isinstance(plain, bytes) else frame.key_serde.write_key(plain)
        except ValueError as error:
            raise Refused(f"{subject}: the key {key!r}", expected=f"one of {frame.key_serde.name}") from error
        data = _stored_value(subject, frame, value)
        self._stored[changelog][key] = _value(frame, data)
        return raw, raw + suffix, data


def _key(serde: KeySerde, key: bytes | None, window_bytes: int) -> Key:
    if key is None or not window_bytes:
        return _plain_key(serde, key)
    raw = without_suffix(key, window_bytes)
    plain = _plain_key(serde, raw)
    assert plain is not None
    session = parse_stored_session(key) if window_bytes == STORED_SESSION_BYTES else None
    if session is not None:
        return SessionKey(plain, as_datetime(session.start_ms), as_datetime(session.end_ms))
    return WindowedKey(plain, as_datetime(window_start_ms(key[: len(raw) + WINDOW_START_BYTES])))


def _plain_key(serde: KeySerde, key: bytes | None) -> PlainKey | None:
    """Return a key as its serde reads it, or its bytes where it is no such key."""
    if key is None:
        return None
    try:
        read: PlainKey = serde.read_key(key)
    except Undecodable:
        return key
    return read


def _key_of_waiting(serde: KeySerde, key: bytes | None) -> Key:
    """Return the key of a record that waits for a match, with its time as the start of a window."""
    assert key is not None
    plain = _plain_key(serde, key[TIME_AND_SIDE_BYTES:])
    assert plain is not None
    return WindowedKey(plain, as_datetime(window_start_ms(key[:WINDOW_START_BYTES])))


def _value(frame: RecordFrame, data: bytes | None) -> Any:
    """Return a value as the bytes say it, with fields that are not declared, too."""
    if data is None:
        return None
    encoding = frame.format if frame.value_is_raw else "json"
    if encoding == "count":
        return int.from_bytes(data, "big", signed=True)
    if encoding == WAITING:
        return [_value_of_waiting(value[1:]) for value in parse_stored_list(data)]
    if encoding in (*SENT_FORMATS, BUFFERED):
        return data
    if encoding == "json" or frame.serde is None:
        return parse_plain(data)
    fields = frame.serde.decode(data)
    return fields[FIELD] if is_primitive(frame.serde) else fields


def _stored_value(subject: str, frame: RecordFrame, value: Any) -> bytes:
    """Return the bytes of a value in a changelog: what :func:`_value` reads. Raises Refused where it has no such."""
    if isinstance(value, bytes):
        return value
    encoding = frame.format if frame.value_is_raw else "json"
    if encoding == "count":
        if not isinstance(value, int):
            raise Refused(f"{subject}: the value {value!r}", expected="a number")
        return value.to_bytes(8, "big", signed=True)
    if encoding == "json" or frame.serde is None:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    if isinstance(value, Mapping) and (unknown := [name for name in value if name not in frame.serde.fields]):
        fields = f"the declared fields {', '.join(frame.serde.fields)}"
        raise Refused(f"{subject}: the value {value!r}", expected=fields, observed=", ".join(map(str, unknown)))
    try:
        return frame.serde.encode({FIELD: value} if is_primitive(frame.serde) else value)
    except (TypeError, ValueError) as error:
        raise Refused(f"{subject}: the value {value!r}", expected=f"a value of {frame.serde!r}") from error


def _big_endian(moment: datetime) -> bytes:
    return as_milliseconds(moment).to_bytes(8, "big", signed=True)


def _value_of_waiting(data: bytes) -> Any:
    """Return the value of a record that waits for a match; its bytes where they are not JSON."""
    try:
        return parse_plain(data)
    except Undecodable:
        return data


def is_primitive(serde: Serde) -> bool:
    """Whether the values of a serde are one text or one number."""
    return isinstance(serde, Primitive)


def _dead_letter(record: WrittenRecord, key_serdes: Mapping[str, KeySerde]) -> DeadLetter:
    """Return a dead letter from its record: the headers that the sink has added are its attributes."""
    headers = record.headers
    origin = parse_origin(headers)
    last = dict(headers)
    own = headers[: next(number for number, (name, _) in reversed([*enumerate(headers)]) if name == REASON)]
    return DeadLetter(
        reason=(last[REASON] or b"").decode(),
        topic=None if origin is None else origin.topic,
        partition=None if origin is None else origin.partition,
        offset=None if origin is None else origin.offset,
        key=_plain_key(String() if origin is None else key_serdes.get(origin.topic, String()), record.key),
        value=record.value,
        timestamp=None if record.timestamp == 0 else as_datetime(record.timestamp),
        headers=own,
        task=(last[TASK] or b"").decode(),
    )
