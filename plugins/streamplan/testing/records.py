"""What a topology has written, as a test reads it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

from streamplan.errors import Refused
from streamplan.judged_words import described
from streamplan.kafka_types import Headers
from streamplan.serdes.json_keys import KeyFields
from streamplan.serdes.moments import as_milliseconds
from streamplan.serdes.windowed import KeyInWindow

PlainKey: TypeAlias = str | int | float | bytes | KeyFields


class WindowedKey(NamedTuple):
    """A key with its window. ``start`` is the first moment of the window, in UTC."""

    key: PlainKey
    start: datetime


class SessionKey(NamedTuple):
    """A key with its session. ``start`` and ``end`` are the times of its first and last record, in UTC."""

    key: PlainKey
    start: datetime
    end: datetime


Key: TypeAlias = PlainKey | WindowedKey | SessionKey | None
"""As the serde of the keys reads it; bytes where it is no such key."""


@dataclass(frozen=True)
class TestRecord:
    """A record of a topic (``org.apache.kafka.streams.test.TestRecord``).

    Attributes:
        key: The key as its serde reads it, by default as text, with its window where it has one.
        value: A dict of a JSON object, an int of the 8 bytes of a count, the text or the number of a serde that has no
            other fields, and None of a null value.
        timestamp: In UTC.
        headers: Names and values.
        partition: The partition of the topic.
    """

    __test__ = False  # For pytest: this class is no test.

    key: Key
    value: Any
    timestamp: datetime
    headers: Headers = ()
    partition: int = 0

    def __str__(self) -> str:
        return _line(self.timestamp, self.key, self.value, self.headers)


@dataclass(frozen=True)
class DeadLetter:
    """A record that could not be processed.

    Attributes:
        reason: Why.
        topic: Where it was read; None for a record that an aggregate made.
        partition: Where it was read; None for a record that an aggregate made.
        offset: Where it was read; None for a record that an aggregate made.
        key: The key as its serde reads it; bytes where it is no such key.
        value: The value in bytes, as it was read.
        timestamp: In UTC; None where the timestamp is the fault.
        headers: Its own headers, without those that a dead letter has besides.
        task: The stream task that met it, as ``0_1``.
    """

    reason: str
    topic: str | None
    partition: int | None
    offset: int | None
    key: Key
    value: bytes | None
    timestamp: datetime | None
    headers: Headers
    task: str

    def __str__(self) -> str:
        return f"{_line(self.timestamp, self.key, self.value, self.headers)}  {self.topic}: {self.reason}"


def as_text(records: Iterable[TestRecord | DeadLetter]) -> str:
    """Return a line for each record: time, key, value, and headers where it has some. Equal records have equal lines.

    Compare it with a text in the test, or with a file beside it.

    Args:
        records: From ``driver.output(…)`` or ``driver.dead_letters``.
    """
    held: list[Any] = list(records) if isinstance(records, Iterable) else [records]
    if not all(isinstance(each, TestRecord | DeadLetter) for each in held):
        raise Refused(
            "the records of as_text",
            expected="as_text(driver.output('topic')), or as_text(driver.dead_letters)",
            observed=described(records),
        )
    return "".join(f"{record}\n" for record in held)


def text_of(data: bytes | None) -> str | bytes | None:
    """Return bytes as text, or as they are where they are no UTF-8."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _line(timestamp: datetime | None, key: Key, value: Any, headers: Headers) -> str:
    parts = ["no time" if timestamp is None else _time(timestamp), _shown_key(key), _shown(value)]
    parts += [f"{name}={_shown(text_of(content))}" for name, content in headers]
    return "  ".join(parts)


def _shown_key(key: Key) -> str:
    if not isinstance(key, WindowedKey | SessionKey):
        return _shown(key)
    return str(KeyInWindow.of(_shown(key.key), *map(as_milliseconds, key[1:])))


def _shown(value: Any) -> str:
    if isinstance(value, bytes):
        value = text_of(value)
    if value is None or isinstance(value, bytes):
        return "null" if value is None else repr(value)
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)


def _time(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
