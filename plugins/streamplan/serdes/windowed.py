"""Keys with a window, in the bytes of the library's windowed serdes (``WindowedSerdes``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Protocol

from streamplan.judged import judged_constructor
from streamplan.judged_words import completed
from streamplan.serdes.json_keys import KeyFields
from streamplan.serdes.moments import as_datetime, as_milliseconds
from streamplan.serdes.serde import Undecodable


class PlainKeySerde(Protocol):
    """The serde of a key without its window: one of those of one text or one number."""

    field_type: ClassVar[str]
    key_type: ClassVar[str]

    @property
    def declaration(self) -> str:
        """The serde as a declaration has it."""

    def read_key(self, data: bytes) -> Any:
        """Reads one key."""

    def write_key(self, key: Any) -> bytes:
        """Writes one key."""

    def key_text(self, key: Any) -> str:
        """A key as people read it."""

    def key_of_text(self, text: str) -> Any:
        """The key that people write so."""


_NUMBER_BYTES = 8


@dataclass(frozen=True)
class KeyInWindow:
    """A key with its window, as people read it. ``str()`` is the text that commands and tests show, and commands take.

    Attributes:
        key: The key alone.
        start: When the window begins, ISO 8601 in UTC; ms since the epoch where Python has no such year.
        end: The time of the last record of a session, in the same form; None for other windows.
    """

    key: str
    start: str
    end: str | None = None

    @classmethod
    def of(cls, key: str, start_ms: int, end_ms: int | None = None) -> KeyInWindow:
        """Return a key with a window whose times are in ms since the epoch."""
        return cls(key, moment_text(start_ms), None if end_ms is None else moment_text(end_ms))

    def __str__(self) -> str:
        return f"{self.key} at {self.start}" + ("" if self.end is None else f"/{self.end}")


@dataclass(frozen=True, repr=False)
class Windowed:
    """What both kinds have in common."""

    key: PlainKeySerde

    bounds: ClassVar[tuple[str, ...]]
    """The numbers behind the key, in the order of their bytes: times of the window in ms since the epoch."""

    fields: ClassVar[tuple[str, ...]]
    """The fields of such a key, in the order of their declaration."""

    @property
    def name(self) -> str:
        """The serde as people read it."""
        return f"{self.kind}({self.key.declaration})"

    @property
    def kind(self) -> str:
        """The name of the class."""
        return type(self).__name__

    @property
    def declaration(self) -> str:
        """The serde as a declaration has it."""
        return self.name

    def __dir__(self) -> list[str]:
        """What is declared, and what Python has."""
        return completed(self)

    def __repr__(self) -> str:
        """The serde as a declaration has it."""
        return self.name

    @property
    def window_bytes(self) -> int:
        """How many bytes at the end of a key are those of its window."""
        return len(self.bounds) * _NUMBER_BYTES

    @property
    def field_type(self) -> str:
        """The type of a key, in Spark's DDL."""
        types = {**dict.fromkeys(self.fields, "bigint"), "key": self.key.field_type}
        return f"struct<{', '.join(f'{name}: {of_field}' for name, of_field in types.items())}>"

    @property
    def key_type(self) -> str:
        """The name of the serde of keys in topics: the class and the name of the serde of the key alone."""
        return f"{self.kind}({self.key.key_type})"

    def read_key(self, data: bytes) -> KeyFields:
        """Reads one key, with its fields.

        Raises:
            Undecodable: The bytes are no such key.
        """
        if len(data) < self.window_bytes:
            raise Undecodable(self.fault_of_size(len(data)))
        end = len(data) - self.window_bytes
        found = {"key": self.key.read_key(data[:end])}
        for place, name in enumerate(self.bounds):
            begin = end + place * _NUMBER_BYTES
            found[name] = int.from_bytes(data[begin : begin + _NUMBER_BYTES], "big", signed=True)
        return KeyFields({name: found[name] for name in self.fields})

    def fault_of_size(self, size: int | str) -> str:
        """Return the reason of a key with too few bytes."""
        return f"the key has {size} bytes; {self.name} has {self.window_bytes} or more"

    def write_key(self, key: Any) -> bytes:
        """Writes one key: a mapping with its fields. Raises ValueError where it is no such key."""
        if not isinstance(key, Mapping) or key.keys() != {*self.fields}:
            raise ValueError(f"{key!r} is no mapping of {', '.join(self.fields)}")
        bounds = [key[name] for name in self.bounds]
        if not all(type(bound) is int and -(1 << 63) <= bound < 1 << 63 for bound in bounds):
            raise ValueError(f"the window of {dict(key)!r} is not in ms since 1970")
        window = b"".join(bound.to_bytes(_NUMBER_BYTES, "big", signed=True) for bound in bounds)
        return self.key.write_key(key["key"]) + window

    def in_window(self, key: Any) -> KeyInWindow:
        """A key that was read, as people read it."""
        return KeyInWindow.of(self.key.key_text(key["key"]), *(key[name] for name in self.fields[1:]))

    def key_text(self, key: Any) -> str:
        """A key that was read, as people read and write it: the text of :class:`KeyInWindow`."""
        return str(self.in_window(key))

    def key_of_text(self, text: str) -> Any:
        """The key that people write so. Raises ValueError where the text is no such key."""
        key, between, window = text.rpartition(" at ")
        times = window.split("/")
        if not between or len(times) != len(self.bounds):
            raise ValueError(f"{text!r} is no key with a window; write it as in 'ann at 2026-01-01T12:00:00Z'")
        bounds = dict(zip(self.fields[1:], map(_ms_of, times), strict=True))
        return KeyFields({"key": self.key.key_of_text(key), **bounds})


@judged_constructor
@dataclass(frozen=True, repr=False)
class TimeWindowed(Windowed):
    """Keys with a time window: the key, and the start of the window in 8 bytes (``TimeWindowedSerde``).

    Example: ``topology.stream("counts", value=Json("n bigint"), key_serde=TimeWindowed(String()))``

    An expression sees ``record.key.key`` and ``record.key.start``, in ms since 1970. A new key is a struct of both, as
    ``struct(country as key, unix_millis(record.window.start) as start)``.

    Attributes:
        key: The serde of the key alone, as ``String()``.
    """

    bounds: ClassVar[tuple[str, ...]] = ("start",)
    fields: ClassVar[tuple[str, ...]] = ("key", "start")


@judged_constructor
@dataclass(frozen=True, repr=False)
class SessionWindowed(Windowed):
    """Keys with a session: the key, and the session's end and start in 8 bytes each (``SessionWindowedSerde``).

    Example: ``topology.stream("visits", value=Json("n bigint"), key_serde=SessionWindowed(String()))``

    An expression sees ``record.key.key``, ``record.key.start`` and ``record.key.end``, in ms since 1970.

    Attributes:
        key: The serde of the key alone, as ``String()``.
    """

    bounds: ClassVar[tuple[str, ...]] = ("end", "start")
    fields: ClassVar[tuple[str, ...]] = ("key", "start", "end")


def moment_text(at_ms: int) -> str:
    """Return a time of a window in ms since the epoch as people read and write it: ISO 8601 in UTC."""
    try:
        moment = as_datetime(at_ms)
    except OverflowError:
        return str(at_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z").replace(".000Z", "Z")


def _ms_of(text: str) -> int:
    if text.removeprefix("-").isdecimal():
        return int(text)
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone; write it as in 2026-01-01T12:00:00Z")
    return as_milliseconds(moment)
