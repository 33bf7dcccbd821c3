"""The stores as Python code asks them, with the names of Kafka Streams' interactive queries.

Source: ``ReadOnlyKeyValueStore``, ``ReadOnlyWindowStore``, ``ReadOnlySessionStore`` and ``ValueAndTimestamp`` of
``org.apache.kafka.streams.state``. A value is what its JSON says: an object is a dict. That of a count is an int.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

from streamplan.model.processor import KeyValue, Windowed
from streamplan.queries.selections import (
    Selection,
    in_range,
    one_session,
    one_window,
    raw_key,
    sessions_of,
    windows_between,
    windows_of,
    with_prefix,
)
from streamplan.queries.state_view import Entry, Page, Place, StoreView
from streamplan.queries.store_form import ReadValues, StoreForm, StoreKind
from streamplan.serdes.moments import as_datetime

PAGE_ENTRIES = 1_000
"""An iterator takes so many entries at a time. Between two pages it sees changes."""


class ValueAndTimestamp(NamedTuple):
    """A value with the time of its update (``ValueAndTimestamp``)."""

    value: Any
    timestamp: datetime


class _Store:
    """What all stores have in common.

    Args:
        view: The store.
        values: Reads its values.
        timestamped: Whether each value is a :class:`ValueAndTimestamp`.
        require_followed: Raises the reason why the changelog is not read any more.
    """

    def __init__(
        self, view: StoreView, values: ReadValues, timestamped: bool, require_followed: Callable[[], None]
    ) -> None:
        self._view, self._values = view, values
        self._timestamped, self._require_followed = timestamped, require_followed

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._form.name}, partitions {sorted(self._view.states)}>"

    def all(self) -> Iterator[KeyValue]:
        """Return all entries, in the order of the bytes of their keys."""
        return self._entries(Selection())

    def reverse_all(self) -> Iterator[KeyValue]:
        """Return all entries, the last one first."""
        return self._entries(Selection(reverse=True))

    def approximate_num_entries(self) -> int:
        """Return how many entries the partitions have that are read here."""
        self._require_followed()
        return len(self._view)

    @property
    def _form(self) -> StoreForm:
        return self._view.form

    def _entries(self, selection: Selection) -> Iterator[KeyValue]:
        first = self._page(selection, None)  # what is wrong with the query is told now, and not with the first entry

        def entries(page: Page) -> Iterator[KeyValue]:
            while True:
                for entry in page.entries:
                    yield KeyValue(self._key(entry), self._value(entry))
                if page.after is None:
                    return
                page = self._page(selection, page.after)

        return entries(first)

    def _page(self, selection: Selection, after: Place | None) -> Page:
        self._require_followed()
        return self._view.page(selection, after=after, limit=PAGE_ENTRIES)

    def _one(self, stored: bytes) -> Any:
        self._require_followed()
        found = self._view.get(stored)
        return None if found is None else self._value(found)

    def _key(self, entry: Entry) -> Any:
        key, bounds = self._form.key(entry.key), self._form.bounds_ms(entry.key)
        if bounds is None:
            return key
        start, end = bounds
        return Windowed(key, _moment(start), _moment(start if end is None else end))

    def _value(self, entry: Entry) -> Any:
        value = self._values.value(self._form, entry.value)
        return ValueAndTimestamp(value, _moment(entry.timestamp)) if self._timestamped else value


def _moment(time_ms: int) -> Any:
    """A time as a datetime; as a number of ms where Python has no such year: another program has written the record."""
    try:
        return as_datetime(time_ms)
    except OverflowError:
        return time_ms


class ReadOnlyKeyValueStore(_Store):
    """A key-value store.

    Example::

        for key, value in store.range("a", "m"):
            print(key, value)
    """

    def get(self, key: Any) -> Any:
        """Return the value of a key; None for none.

        Raises:
            PartitionNotHeld: The key is in a partition that is not read here.
            Refused: The serde of the keys cannot write it.
        """
        return self._one(raw_key(self._form, key))

    def range(self, first: Any = None, last: Any = None) -> Iterator[KeyValue]:
        """Return the keys from one to another with their values, in the order of their bytes.

        Args:
            first: The first key; None for the first of all.
            last: The last key, which is among them; None for the last of all.
        """
        return self._entries(in_range(self._form, first, last))

    def reverse_range(self, first: Any = None, last: Any = None) -> Iterator[KeyValue]:
        """Return what :meth:`range` returns, with the last key first."""
        return self._entries(in_range(self._form, first, last, reverse=True))

    def prefix_scan(self, prefix: str | bytes) -> Iterator[KeyValue]:
        """Return the keys whose bytes begin with a prefix, with their values.

        Args:
            prefix: The bytes, or a text in UTF-8.
        """
        return self._entries(with_prefix(prefix))


class ReadOnlyWindowStore(_Store):
    """A window store. A time is a datetime with a time zone, or ms since the epoch.

    Windows that are older than the retention, counted back from the newest one of their partition, are gone.

    Example::

        for start, count in store.fetch("ann", noon, noon + timedelta(hours=1)):
            print(start, count)
    """

    def fetch(self, key: Any, first: datetime | int, last: datetime | int | None = None) -> Any:
        """Return the value of a key and of the window that begins at a time; None for none.

        With ``last`` it returns the starts of all windows of the key from one time to the other, each with its value.

        Raises:
            PartitionNotHeld: The key is in a partition that is not read here.
            Refused: The serde of the keys cannot write it.
        """
        if last is None:
            return self._one(one_window(self._form, key, first))
        return self._by_start(self._entries(windows_of(self._form, key, first, last)))

    def backward_fetch(self, key: Any, first: datetime | int, last: datetime | int) -> Iterator[KeyValue]:
        """Return what :meth:`fetch` returns for two times, with the last window first."""
        return self._by_start(self._entries(windows_of(self._form, key, first, last, reverse=True)))

    def fetch_all(self, first: datetime | int, last: datetime | int) -> Iterator[KeyValue]:
        """Return all windows that begin from one time to another, each a :class:`Windowed` key with its value."""
        return self._entries(windows_between(self._form, first, last))

    def backward_fetch_all(self, first: datetime | int, last: datetime | int) -> Iterator[KeyValue]:
        """Return what :meth:`fetch_all` returns, with the last key first."""
        return self._entries(windows_between(self._form, first, last, reverse=True))

    @staticmethod
    def _by_start(entries: Iterator[KeyValue]) -> Iterator[KeyValue]:
        return (KeyValue(key.start, value) for key, value in entries)


class ReadOnlySessionStore(_Store):
    """A session store. A time is a datetime with a time zone, or ms since the epoch.

    Example::

        for session, count in store.fetch("ann"):
            print(session.start, session.end, count)
    """

    def fetch(self, key: Any) -> Iterator[KeyValue]:
        """Return all sessions of a key, each a :class:`Windowed` key with its value.

        Raises:
            PartitionNotHeld: The key is in a partition that is not read here.
            Refused: The serde of the keys cannot write it.
        """
        return self._entries(sessions_of(self._form, key))

    def backward_fetch(self, key: Any) -> Iterator[KeyValue]:
        """Return what :meth:`fetch` returns, with the last session first."""
        return self._entries(sessions_of(self._form, key, reverse=True))

    def fetch_session(self, key: Any, start: datetime | int, end: datetime | int) -> Any:
        """Return the value of the session that begins and ends at these times; None for none."""
        return self._one(one_session(self._form, key, start, end))

    def find_sessions(
        self, key: Any, earliest_session_end: datetime | int, latest_session_start: datetime | int
    ) -> Iterator[KeyValue]:
        """Return the sessions of a key that end at a time or later, and begin at another one or earlier."""
        return self._entries(sessions_of(self._form, key, earliest_session_end, latest_session_start))


STORES: dict[StoreKind, type[_Store]] = {
    StoreKind.KEY_VALUE: ReadOnlyKeyValueStore,
    StoreKind.WINDOW: ReadOnlyWindowStore,
    StoreKind.SESSION: ReadOnlySessionStore,
}
"""By the kind of a store what it is asked with."""
