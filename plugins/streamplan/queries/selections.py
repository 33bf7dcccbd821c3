"""What a query asks of a store: which stored keys, in which order. The names are those of the library's stores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from streamplan.errors import Refused
from streamplan.model.windows import stored_session_key, stored_window_key
from streamplan.queries.store_form import StoreForm
from streamplan.serdes.moments import as_milliseconds

LAST_TIME_MS = (1 << 63) - 1
"""The latest time in ms that a stored key can have."""

_LAST_NUMBER = (1 << 31) - 1


@dataclass(frozen=True)
class Selection:
    """The entries that a query asks for, in the order of their stored keys.

    Attributes:
        first: The first stored key; None for the first of all.
        last: The last stored key, which is among them; None for the last of all.
        of_key: Only windows or sessions of this key, in bytes; None for those of all keys.
        where: Is given a stored key, and tells whether it is asked for.
        reverse: Whether the last one comes first.
    """

    first: bytes | None = None
    last: bytes | None = None
    of_key: bytes | None = None
    where: Callable[[bytes], bool] = lambda stored: True
    reverse: bool = False


def raw_key(form: StoreForm, key: Any) -> bytes:
    """Return a key in bytes.

    Raises:
        Refused: The serde of the store's keys cannot write it.
    """
    try:
        return form.key_serde.write_key(key)
    except ValueError as error:
        raise Refused(
            f"the key {key!r} of store {form.name}",
            expected=f"a key of {form.key_serde.declaration}",
            observed=str(error),
        ) from error


def in_range(form: StoreForm, first: Any = None, last: Any = None, *, reverse: bool = False) -> Selection:
    """Select the keys from one to another, both among them; None stands for no bound."""
    begin, end = (None if bound is None else raw_key(form, bound) for bound in (first, last))
    return Selection(begin, end, reverse=reverse)


def with_prefix(prefix: str | bytes) -> Selection:
    """Select the keys whose bytes begin with a prefix. A text is one in UTF-8."""
    begin = prefix.encode() if isinstance(prefix, str) else prefix
    behind = begin.rstrip(b"\xff")  # the first key behind all those: its last byte is greater by 1
    end = behind[:-1] + bytes([behind[-1] + 1]) if behind else None
    return Selection(begin, end, where=lambda stored: stored.startswith(begin))


def one_window(form: StoreForm, key: Any, start: datetime | int) -> bytes:
    """Return the stored key of the window that begins at a time."""
    return stored_window_key(raw_key(form, key), as_ms(start))


def one_session(form: StoreForm, key: Any, start: datetime | int, end: datetime | int) -> bytes:
    """Return the stored key of the session that begins and ends at these times."""
    return stored_session_key(raw_key(form, key), as_ms(start), as_ms(end))


def windows_of(
    form: StoreForm, key: Any, first: datetime | int, last: datetime | int, *, reverse: bool = False
) -> Selection:
    """Select the windows of a key that begin from one time to another."""
    raw = raw_key(form, key)
    begin, end = stored_window_key(raw, max(0, as_ms(first))), stored_window_key(raw, max(0, as_ms(last)), _LAST_NUMBER)
    return Selection(begin, end, raw, reverse=reverse)


def windows_between(
    form: StoreForm, first: datetime | int, last: datetime | int, *, reverse: bool = False
) -> Selection:
    """Select the windows of all keys that begin from one time to another."""
    begin, end = as_ms(first), as_ms(last)
    return Selection(where=lambda stored: begin <= (form.time_ms(stored) or 0) <= end, reverse=reverse)


def sessions_of(
    form: StoreForm,
    key: Any,
    earliest_session_end: datetime | int = 0,
    latest_session_start: datetime | int = LAST_TIME_MS,
    *,
    reverse: bool = False,
) -> Selection:
    """Select the sessions of a key that end at a time or later, and begin at another one or earlier."""
    raw, latest = raw_key(form, key), as_ms(latest_session_start)
    begin = stored_session_key(raw, 0, max(0, as_ms(earliest_session_end)))
    end = stored_session_key(raw, LAST_TIME_MS, LAST_TIME_MS)

    def begins_in_time(stored: bytes) -> bool:
        bounds = form.bounds_ms(stored)
        return bounds is not None and bounds[0] <= latest

    return Selection(begin, end, raw, begins_in_time, reverse)


def as_ms(moment: datetime | int) -> int:
    """Return a time in ms since the epoch.

    Raises:
        Refused: It is a datetime without a time zone, or beyond the times of Kafka.
    """
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise Refused(f"the time {moment}", expected="a time with a time zone", observed="none")
        return as_milliseconds(moment)
    if not -LAST_TIME_MS <= moment <= LAST_TIME_MS:
        raise Refused(f"the time {moment}", expected="ms since the epoch in 64 bits", observed="more")
    return moment
