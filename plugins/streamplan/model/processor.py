"""The Processor API for Python: what a class of a declaration does with each record and with the store of its key.

Source: ``org.apache.kafka.streams.processor.api``. There are two forms. A processor with ``store=`` sees the value of
the record's own key, and not those of the other keys of its stream task. So its results do not depend on the number of
partitions. A processor with ``stores=`` sees all keys that its stream task has in several stores, as in the library.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NamedTuple, overload

from streamplan.judged import judged_constructor
from streamplan.judged_words import shown
from streamplan.kafka_types import Headers
from streamplan.model.windows import Duration
from streamplan.serdes.primitive import KeySerde
from streamplan.serdes.serde import Serde

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
else:  # a default is only for type checkers
    from typing import TypeVar

    K, V = TypeVar("K"), TypeVar("V")

STREAM_TIME: Final = "STREAM_TIME"
WALL_CLOCK_TIME: Final = "WALL_CLOCK_TIME"
"""The names of ``org.apache.kafka.streams.processor.PunctuationType``."""


@dataclass(frozen=True, slots=True)
class Record(Generic[K, V]):
    """A record as a processor is given it. That of a parameter ``Record[str, Order]`` has an object of the dataclass.

    Example::

        class Copier(Processor):
            def process(self, record: Record, store: KeyValueStore) -> list[dict[str, str]]:
                return [{"key": record.key, "country": record.value.country}]

    Attributes:
        key: Its key: a text, or a number or bytes where its serde is of these.
        value: The fields of its value as attributes, or an object of a dataclass; None for a null value.
        timestamp: Its timestamp, with a time zone.
        topic: The topic that it was read from.
        partition: The partition of that topic.
        offset: Its offset.
        headers: Names and values.
    """

    key: K
    value: V
    timestamp: datetime
    topic: str
    partition: int
    offset: int
    headers: Headers = ()


class KeyValue(NamedTuple):
    """A key of a store and its value (``org.apache.kafka.streams.KeyValue``)."""

    key: Any
    value: Any


class ValueAndTimestamp(NamedTuple):
    """A value and its time (``org.apache.kafka.streams.state.ValueAndTimestamp``).

    Attributes:
        value: The value.
        timestamp: The time, with a time zone: of a table, that of its record.
    """

    value: Any
    timestamp: datetime


class VersionedRecord(NamedTuple):
    """A value of a versioned store (``org.apache.kafka.streams.state.VersionedRecord``).

    Attributes:
        value: The value.
        timestamp: Since when it is valid, with a time zone.
        valid_to: When the next value, or a deletion, has replaced it; None where nothing has.
    """

    value: Any
    timestamp: datetime
    valid_to: datetime | None = None


class Windowed(NamedTuple):
    """A key of a window store (``org.apache.kafka.streams.kstream.Windowed``).

    Attributes:
        key: The key.
        start: When its window begins.
        end: When its window ends.
    """

    key: Any
    start: datetime
    end: datetime


def _declared(store: Any, *options: str) -> str:
    """How a store is declared; of one that a processor uses its class."""
    given = vars(store)
    if not {"key_serde", "value_serde", *options} <= given.keys():
        return f"<{type(store).__name__}>"
    parts = [shown(store.key_serde), shown(store.value_serde), *(f"{name}={given[name]!r}" for name in options)]
    parts += ["retain_duplicates=True"] if given.get("retain_duplicates") else []
    return f"{type(store).__name__}({', '.join(parts)})"


@judged_constructor
class KeyValueStore(Generic[K, V]):
    """A key-value store of a processor.

    Example: ``KeyValueStore(String(), Long())``

    Declared in ``stores=`` it has the serdes of its keys and values. The processor is given the store of its stream
    task by :meth:`ProcessorContext.get_state_store`, and its methods take a key::

        class Counter(Processor):
            def init(self, context: ProcessorContext) -> None:
                self.counts = context.get_state_store("counts")

            def process(self, record: Record) -> None:
                self.counts.put(record.key, (self.counts.get(record.key) or 0) + 1)

        stream.process(Counter, stores={"counts": KeyValueStore(String(), Long())})

    A processor with ``store=`` is given the value of the record's key, and the methods take no key::

        class Counter(Processor):
            def process(self, record: Record, store: KeyValueStore) -> None:
                before = store.get()
                store.put({"n": 1 if before is None else before.n + 1})

    Keys are in the order of their bytes, as in the library: negative numbers come behind the positive ones. The first
    :meth:`range`, :meth:`all` or :meth:`prefix_scan` of a micro-batch reads all keys of the stream task.

    Args:
        key_serde: The serde of its keys.
        value_serde: The serde of its values. A value of ``Json(…)`` has its fields as attributes; one of ``String()``,
            ``Long()`` or another primitive serde is the text or the number itself.
    """

    def __init__(self, key_serde: KeySerde, value_serde: Serde) -> None:
        self.key_serde, self.value_serde = key_serde, value_serde

    def __repr__(self) -> str:
        """The store as a declaration has it."""
        return _declared(self)

    def __dir__(self) -> list[str]:
        """What is declared, the methods, and what Python has."""
        return [name for name in object.__dir__(self) if name.startswith("__") or not name.startswith("_")]

    @property
    def key(self) -> Any:
        """Of a store of one key: the key of the record, or of the timer."""
        raise NotImplementedError

    @overload
    def get(self) -> Any: ...
    @overload
    def get(self, key: K, /) -> Any: ...
    def get(self, *key: Any) -> Any:
        """Return the value of a key; None where the store has none."""
        raise NotImplementedError

    @overload
    def put(self, value: Any, /) -> None: ...
    @overload
    def put(self, key: K, value: Any, /) -> None: ...
    def put(self, *key_and_value: Any) -> None:
        """Set the value of a key. Of a store of one key it also sets the timer, or removes it where its field is null.

        Args:
            *key_and_value: The key, and the value: a mapping, a dataclass, a named tuple, or what :meth:`get` returned.
                A field that it does not have is null. None deletes the key, as in the library.

        Raises:
            TypeError: A field has another type than the declared one, or there is no such field.
            ValueError: Key and value are larger than the changelog takes.
        """
        raise NotImplementedError

    def put_if_absent(self, key: K, value: Any) -> Any:
        """Set the value of a key that has none.

        Returns:
            The value that the key had; None where the value was set.
        """
        raise NotImplementedError

    def put_all(self, entries: Iterable[tuple[K, Any]]) -> None:
        """Set the values of several keys, as :meth:`put` does.

        Args:
            entries: Pairs of a key and a value, as the ``items()`` of a dict.
        """
        raise NotImplementedError

    @overload
    def delete(self) -> Any: ...
    @overload
    def delete(self, key: K, /) -> Any: ...
    def delete(self, *key: Any) -> Any:
        """Remove the value of a key, and with it the timer.

        Returns:
            The value that it had; None for none, and of a store of one key.
        """
        raise NotImplementedError

    def range(self, first: K | None = None, last: K | None = None) -> Iterator[KeyValue]:
        """Return the keys from one to another with their values.

        Args:
            first: The first key; None for the first of all.
            last: The last key, which is among them; None for the last of all.
        """
        raise NotImplementedError

    def reverse_range(self, first: K | None = None, last: K | None = None) -> Iterator[KeyValue]:
        """Return what :meth:`range` returns, with the last key first."""
        raise NotImplementedError

    def all(self) -> Iterator[KeyValue]:
        """Return all keys with their values."""
        raise NotImplementedError

    def reverse_all(self) -> Iterator[KeyValue]:
        """Return all keys with their values, with the last key first."""
        raise NotImplementedError

    def prefix_scan(self, prefix: str | bytes) -> Iterator[KeyValue]:
        """Return the keys whose bytes begin with a prefix, with their values.

        Args:
            prefix: The bytes, or a text in UTF-8.
        """
        raise NotImplementedError

    def approximate_num_entries(self) -> int:
        """Return how many keys have a value."""
        raise NotImplementedError


@judged_constructor
class WindowStore(Generic[K, V]):
    """A window store of a processor (``Stores.persistentWindowStore``): a value for each key and start of a window.

    Example: ``WindowStore(String(), Long(), retention="10 minutes", size="5 minutes")``. In a processor::

        class Deduplicated(Processor):
            def init(self, context: ProcessorContext) -> None:
                self.context = context
                self.seen = context.get_state_store("seen")

            def process(self, record: Record) -> None:
                since = record.timestamp - timedelta(minutes=5)
                if not any(self.seen.fetch(record.key, since, record.timestamp)):
                    self.context.forward({"id": record.key})
                self.seen.put(record.key, 1, record.timestamp)

        seen = WindowStore(String(), Long(), retention="10 minutes", size="5 minutes")
        stream.process(Deduplicated, stores={"seen": seen}, schema="id string")

    A window is gone when its start is older than the retention, counted back from the newest start in the stream task.
    A time is a datetime with a time zone, or ms since the epoch.

    Args:
        key_serde: The serde of its keys.
        value_serde: The serde of its values; see :class:`KeyValueStore`.
        retention: A duration: for so long a window is kept.
        size: A duration: of each window, for :attr:`Windowed.end`.
        retain_duplicates: Whether several values of a key and a start are kept, in the order in which they were put.
            :meth:`put` then deletes nothing, as in the library.
    """

    def __init__(
        self,
        key_serde: KeySerde,
        value_serde: Serde,
        *,
        retention: Duration,
        size: Duration,
        retain_duplicates: bool = False,
    ) -> None:
        self.key_serde, self.value_serde = key_serde, value_serde
        self.retention, self.size, self.retain_duplicates = retention, size, retain_duplicates

    def __repr__(self) -> str:
        """The store as a declaration has it."""
        return _declared(self, "retention", "size")

    def __dir__(self) -> list[str]:
        """What is declared, the methods, and what Python has."""
        return [name for name in object.__dir__(self) if name.startswith("__") or not name.startswith("_")]

    def put(self, key: K, value: Any, at: datetime | int) -> None:
        """Set the value of a key and of the window that begins at a time. None deletes it.

        Raises:
            TypeError: A field has another type than the declared one, or there is no such field.
            ValueError: Key and value are larger than the changelog takes.
        """
        raise NotImplementedError

    @overload
    def fetch(self, key: K, first: datetime | int) -> Any: ...
    @overload
    def fetch(self, key: K, first: datetime | int, last: datetime | int) -> Iterator[KeyValue]: ...
    def fetch(self, key: K, first: datetime | int, last: datetime | int | None = None) -> Any:
        """Return the value of a key and of the window that begins at a time; None for none.

        With ``last`` it returns the starts of all windows of the key from one time to the other, each with its value.
        """
        raise NotImplementedError

    def backward_fetch(self, key: K, first: datetime | int, last: datetime | int) -> Iterator[KeyValue]:
        """Return what :meth:`fetch` returns with ``last``, with the last start first."""
        raise NotImplementedError

    def fetch_range(
        self, first_key: K | None, last_key: K | None, first: datetime | int, last: datetime | int
    ) -> Iterator[KeyValue]:
        """Return the windows of several keys that begin from one time to another (``fetch`` with four arguments).

        Each is a :class:`Windowed` key with its value. They are in the order of the library's segments of time, and in
        a segment in that of the bytes of the keys.

        Args:
            first_key: The first key; None for the first of all.
            last_key: The last key, which is among them; None for the last of all.
            first: The first start of a window.
            last: The last start of a window.
        """
        raise NotImplementedError

    def backward_fetch_range(
        self, first_key: K | None, last_key: K | None, first: datetime | int, last: datetime | int
    ) -> Iterator[KeyValue]:
        """Return what :meth:`fetch_range` returns, in the reverse order."""
        raise NotImplementedError

    def fetch_all(self, first: datetime | int, last: datetime | int) -> Iterator[KeyValue]:
        """Return all windows that begin from one time to another, each a :class:`Windowed` key with its value."""
        raise NotImplementedError

    def backward_fetch_all(self, first: datetime | int, last: datetime | int) -> Iterator[KeyValue]:
        """Return what :meth:`fetch_all` returns, in the reverse order."""
        raise NotImplementedError

    def all(self) -> Iterator[KeyValue]:
        """Return all windows, each a :class:`Windowed` key with its value."""
        raise NotImplementedError

    def backward_all(self) -> Iterator[KeyValue]:
        """Return what :meth:`all` returns, in the reverse order."""
        raise NotImplementedError


@judged_constructor
class TimestampedKeyValueStore(KeyValueStore[K, V]):
    """A key-value store whose values have a time (``Stores.timestampedKeyValueStoreBuilder``).

    Example::

        class Newest(Processor):
            def init(self, context: ProcessorContext) -> None:
                self.newest = context.get_state_store("newest")

            def process(self, record: Record) -> None:
                before = self.newest.get(record.key)
                if before is None or before.timestamp <= record.timestamp:
                    self.newest.put(record.key, (record.value.amount, record.timestamp))

        stream.process(Newest, stores={"newest": TimestampedKeyValueStore(String(), Long())})

    It has the methods of :class:`KeyValueStore`. It returns values as :class:`ValueAndTimestamp`, and is given such
    values, or pairs of a value and a time. The time is the timestamp of the record in the changelog.

    Args:
        key_serde: The serde of its keys.
        value_serde: The serde of its values; see :class:`KeyValueStore`.
    """


@judged_constructor
class TimestampedWindowStore(WindowStore[K, V]):
    """A window store whose values have a time (``Stores.timestampedWindowStoreBuilder``).

    Example: ``TimestampedWindowStore(String(), Long(), retention="10 minutes", size="5 minutes")``

    It has the methods of :class:`WindowStore`, and the values of :class:`TimestampedKeyValueStore`.

    Args:
        key_serde: The serde of its keys.
        value_serde: The serde of its values; see :class:`KeyValueStore`.
        retention: A duration: for so long a window is kept.
        size: A duration: of each window, for :attr:`Windowed.end`.
        retain_duplicates: Whether several values of a key and a start are kept; see :class:`WindowStore`.
    """


@judged_constructor
class SessionStore(Generic[K, V]):
    """A store of sessions of a processor (``Stores.persistentSessionStore``): a value for each key, start and end.

    Example: ``SessionStore(String(), Long(), retention="10 minutes")``. In a processor::

        class Visits(Processor):
            def init(self, context: ProcessorContext) -> None:
                self.visits = context.get_state_store("visits")

            def process(self, record: Record) -> None:
                begin = end = record.timestamp
                pages = 1
                gap = timedelta(minutes=5)
                for session, before in self.visits.find_sessions(record.key, begin - gap, end + gap):
                    self.visits.remove(record.key, session.start, session.end)
                    begin, end, pages = min(begin, session.start), max(end, session.end), pages + before
                self.visits.put(record.key, pages, begin, end)

        stream.process(Visits, stores={"visits": SessionStore(String(), Long(), retention="1 hour")})

    A session is gone when its end is older than the retention, counted back from the newest end in the stream task. A
    time is a datetime with a time zone, or ms since the epoch.

    Args:
        key_serde: The serde of its keys.
        value_serde: The serde of its values; see :class:`KeyValueStore`.
        retention: A duration: for so long a session is kept.
    """

    def __init__(self, key_serde: KeySerde, value_serde: Serde, *, retention: Duration) -> None:
        self.key_serde, self.value_serde, self.retention = key_serde, value_serde, retention

    def __repr__(self) -> str:
        """The store as a declaration has it."""
        return _declared(self, "retention")

    def __dir__(self) -> list[str]:
        """What is declared, the methods, and what Python has."""
        return [name for name in object.__dir__(self) if name.startswith("__") or not name.startswith("_")]

    def put(self, key: K, value: Any, start: datetime | int, end: datetime | int) -> None:
        """Set the value of a session. None deletes it.

        Raises:
            TypeError: A field has another type than the declared one, or there is no such field.
            ValueError: Key and value are larger than the changelog takes.
        """
        raise NotImplementedError

    def remove(self, key: K, start: datetime | int, end: datetime | int) -> None:
        """Delete a session."""
        raise NotImplementedError

    def fetch_session(self, key: K, start: datetime | int, end: datetime | int) -> Any:
        """Return the value of a session; None for none."""
        raise NotImplementedError

    def find_sessions(self, key: K, earliest_end: datetime | int, latest_start: datetime | int) -> Iterator[KeyValue]:
        """Return the sessions of a key that end and begin so, each a :class:`Windowed` key with its value.

        They are in the order of their ends.

        Args:
            earliest_end: They end then or later.
            latest_start: They begin then or before.
        """
        raise NotImplementedError

    def backward_find_sessions(
        self, key: K, earliest_end: datetime | int, latest_start: datetime | int
    ) -> Iterator[KeyValue]:
        """Return what :meth:`find_sessions` returns, with the latest end first."""
        raise NotImplementedError

    def fetch(self, key: K) -> Iterator[KeyValue]:
        """Return all sessions of a key, as :meth:`find_sessions` does."""
        raise NotImplementedError

    def backward_fetch(self, key: K) -> Iterator[KeyValue]:
        """Return all sessions of a key, as :meth:`backward_find_sessions` does."""
        raise NotImplementedError

    def fetch_range(self, first_key: K | None, last_key: K | None) -> Iterator[KeyValue]:
        """Return all sessions of several keys (``fetch`` with two arguments).

        They are in the order of the library's segments of time, and in a segment in that of the bytes of the keys.

        Args:
            first_key: The first key; None for the first of all.
            last_key: The last key, which is among them; None for the last of all.
        """
        raise NotImplementedError

    def backward_fetch_range(self, first_key: K | None, last_key: K | None) -> Iterator[KeyValue]:
        """Return what :meth:`fetch_range` returns, in the reverse order."""
        raise NotImplementedError


@judged_constructor
class VersionedKeyValueStore(Generic[K, V]):
    """A key-value store of a processor that keeps earlier values (``Stores.versionedKeyValueStoreBuilder``).

    Example: ``VersionedKeyValueStore(String(), Long(), history="1 hour")``. In a processor::

        class Priced(Processor):
            def init(self, context: ProcessorContext) -> None:
                self.context = context
                self.prices = context.get_state_store("prices")

            def process(self, record: Record) -> None:
                self.prices.put(record.key, record.value.amount, record.timestamp)
                an_hour_ago = self.prices.get(record.key, record.timestamp - timedelta(hours=1))
                if an_hour_ago is not None:
                    self.context.forward({"change": record.value.amount - an_hour_ago.value})

        prices = VersionedKeyValueStore(String(), Long(), history="2 hours")
        stream.process(Priced, stores={"prices": prices}, schema="change bigint")

    A value is valid from its time until that of the next one. It is kept for the history after that, counted back from
    the newest time that was put in the stream task. The last value of a key is always kept. A time is a datetime with a
    time zone, or ms since the epoch.

    Args:
        key_serde: The serde of its keys.
        value_serde: The serde of its values; see :class:`KeyValueStore`.
        history: A duration: so long after a value was replaced it is still found.
    """

    def __init__(self, key_serde: KeySerde, value_serde: Serde, *, history: Duration) -> None:
        self.key_serde, self.value_serde, self.history = key_serde, value_serde, history

    def __repr__(self) -> str:
        """The store as a declaration has it."""
        return _declared(self, "history")

    def __dir__(self) -> list[str]:
        """What is declared, the methods, and what Python has."""
        return [name for name in object.__dir__(self) if name.startswith("__") or not name.startswith("_")]

    def put(self, key: K, value: Any, at: datetime | int) -> bool:
        """Set the value of a key from a time on. It replaces a value of the same time. None says that there is none.

        Args:
            key: The key.
            value: The value; see :meth:`KeyValueStore.put`.
            at: The time. It may be earlier than that of other values of the key.

        Returns:
            Whether it was put. A time that is older than the history is left out, as in the library, which returns
            ``PUT_RETURN_CODE_NOT_PUT``. It is in the changelog all the same.

        Raises:
            TypeError: A field has another type than the declared one, or there is no such field.
            ValueError: Key and value are larger than the changelog takes.
        """
        raise NotImplementedError

    def delete(self, key: K, at: datetime | int) -> VersionedRecord | None:
        """Say that a key has no value from a time on.

        Returns:
            The value that was valid at this time, without ``valid_to``, as in the library. None for none, and for a
            time that is older than the history.
        """
        raise NotImplementedError

    def get(self, key: K, as_of: datetime | int | None = None) -> VersionedRecord | None:
        """Return the last value of a key; with ``as_of`` the one that was valid at that time. None for none.

        A time that is older than the history finds nothing, unless the last value of the key is older still.
        """
        raise NotImplementedError

    def versions(
        self, key: K, first: datetime | int | None = None, last: datetime | int | None = None
    ) -> Iterator[VersionedRecord]:
        """Return the values of a key that were valid at any time from one to another, the earliest first.

        It takes the place of the library's ``query`` with a ``MultiVersionedKeyQuery``.

        Args:
            key: The key.
            first: The first time; None for the beginning of the history.
            last: The last time; None for no bound.
        """
        raise NotImplementedError

    def reverse_versions(
        self, key: K, first: datetime | int | None = None, last: datetime | int | None = None
    ) -> Iterator[VersionedRecord]:
        """Return what :meth:`versions` returns, with the latest value first."""
        raise NotImplementedError


class RecordMetadata(NamedTuple):
    """Where a record was read (``org.apache.kafka.streams.processor.api.RecordMetadata``).

    Attributes:
        topic: The topic.
        partition: The partition of that topic.
        offset: The offset.
    """

    topic: str
    partition: int
    offset: int


OF_RECORD: Final[Any] = Ellipsis
"""Stands for the key of the record that is processed."""


class Cancellable(ABC):
    """A punctuator that is scheduled (``org.apache.kafka.streams.processor.Cancellable``).

    Example::

        class Greeting(Processor):
            def init(self, context: ProcessorContext) -> None:
                self.context = context
                self.once = context.schedule("1 minute", STREAM_TIME, self.greet)

            def process(self, record: Record) -> None: ...

            def greet(self, time: datetime) -> None:
                self.context.forward({"text": "the first record was there"})
                self.once.cancel()

        stream.process(Greeting, stores={"counts": KeyValueStore(String(), Long())}, schema="text string")

    An attribute of the processor that holds it is still there in the next micro-batch. Other attributes are not.
    """

    @abstractmethod
    def cancel(self) -> None:
        """Call the punctuator no more. A punctuator may cancel itself."""


class ProcessorContext(ABC):
    """What a processor with ``stores=`` is given by its stream task (``ProcessorContext``).

    Example::

        class WordCount(Processor):
            def init(self, context: ProcessorContext) -> None:
                self.context = context
                self.counts = context.get_state_store("counts")
                context.schedule("1 second", STREAM_TIME, self.punctuate)

            def process(self, record: Record) -> None:
                for word in record.value.line.split():
                    self.counts.put(word, (self.counts.get(word) or 0) + 1)

            def punctuate(self, time: datetime) -> None:
                for word, count in self.counts.all():
                    self.context.forward({"n": count}, key=word)

        stream.process(WordCount, stores={"counts": KeyValueStore(String(), Long())}, schema="n bigint")
    """

    @property
    @abstractmethod
    def task_id(self) -> str:
        """The stream task, such as ``1_0``."""

    @abstractmethod
    def get_state_store(self, name: str) -> Any:
        """Return a store that the processor was declared with, one of the classes of stores.

        That of a table is a :class:`KeyValueStore` which can only be read. Its values are :class:`ValueAndTimestamp`.
        """

    @abstractmethod
    def current_stream_time(self) -> datetime | None:
        """Return the newest timestamp that the stream task has read; None where it has read no record."""

    @abstractmethod
    def current_system_time(self) -> datetime:
        """Return the time of the wall clock, which is that of the micro-batch (``currentSystemTimeMs``).

        It is committed with what the micro-batch makes, so that a micro-batch that runs again has the same time.

        Raises:
            RuntimeError: The stream task is told no time, because no ``init`` schedules a punctuator of
                ``WALL_CLOCK_TIME``.
        """

    @abstractmethod
    def record_metadata(self) -> RecordMetadata | None:
        """Return where the record was read that is processed; None in a punctuator, and of an aggregate's update."""

    def commit(self) -> None:  # noqa: B027  a micro-batch is committed anyway
        """Do nothing. The library commits soon after this call, and here each micro-batch is committed as a whole."""

    @abstractmethod
    def schedule(
        self,
        interval: Duration,
        punctuation: Literal["STREAM_TIME", "WALL_CLOCK_TIME"],
        punctuator: Callable[[datetime], Any],
    ) -> Cancellable:
        """Call a function again and again.

        By ``STREAM_TIME`` it is called for the first record, and then whenever the stream time has reached a multiple
        of the interval, as in the library. By ``WALL_CLOCK_TIME`` it is called whenever the interval is over, also
        while there are no records. A time of the wall clock is committed with what the call makes, so that a
        micro-batch that runs again has the same time. Where several intervals have passed at once, it is called once.

        ``init`` schedules, and so may ``process`` and a punctuator. What they schedule is in the checkpoint, and not in
        a changelog: a state that is restored from changelogs has what ``init`` schedules.

        Args:
            interval: A duration, as ``"10 seconds"``, or a timedelta. A wall clock is looked at once in a second at
                most.
            punctuation: The time that it goes by: ``STREAM_TIME``, that of the records, or ``WALL_CLOCK_TIME``.
            punctuator: The function. It is given the time, and may forward records and change stores. Outside of
                ``init`` it is a method of the processor, which the next micro-batch finds by its name. Or it is a
                ``functools.partial`` of one with texts, numbers, booleans and None:
                ``partial(self.remind, record.key)``. Then these come before the time.

        Returns:
            What cancels it.

        Raises:
            ValueError: Outside of ``init``, an interval of the wall clock is shorter than all that ``init`` schedules.
        """

    @abstractmethod
    def forward(
        self,
        value: Any,
        *,
        key: Any = OF_RECORD,
        timestamp: datetime | None = None,
        headers: Iterable[tuple[str, str | bytes | None]] | None = None,
        child: str | None = None,
    ) -> None:
        """Pass a record on. Without other arguments it has key, timestamp and headers of the record that is processed.

        Args:
            value: The fields of its value: a mapping, a dataclass or a named tuple; None for a null value.
            key: Its key. In a punctuator it is null where it is not told.
            timestamp: Its timestamp, with a time zone. In a punctuator it is by default the time of the call.
            headers: Names and values. In a punctuator there are none by default.
            child: The name of the only operation behind the processor that takes the record, which it has by
                ``name=``. None for all.

        Raises:
            TypeError: A field has another type than the schema has, or there is no such field.
            ValueError: The serde of the keys cannot write the key, or there is no such child.
        """


class Processor:
    """What is done with each record of a stream (``org.apache.kafka.streams.processor.api.Processor``).

    Example::

        class Numbered(Processor):
            def process(self, record: Record, store: KeyValueStore) -> list[dict[str, int]]:
                before = store.get()
                number = 1 if before is None else before.n + 1
                store.put({"n": number})
                return [{"number": number}]

        stream.process(Numbered, store="numbers", state="n bigint", schema="number bigint")

    A subclass is given to :meth:`streamplan.model.kstream.KStream.process`. One object of it is made for each stream
    task and micro-batch. So what it remembers belongs into a store, and not into its attributes.
    """

    def init(self, context: ProcessorContext) -> None:
        """Take the stores of the stream task, and schedule punctuators. A processor with ``store=`` has none of both.

        Args:
            context: Of the stream task.
        """

    def close(self) -> None:
        """Close what ``process`` has opened. It is called at the end of a micro-batch, also after a failure.

        It is not called where the processor is declared with ``store=``.
        """

    def process(self, *args: Any, **kwargs: Any) -> Iterable[Any] | None:
        """Process a record.

        A subclass has ``process(self, record, store)`` where it is declared with ``store=``, and
        ``process(self, record)`` with ``stores=``.

        Args:
            *args: The record; and with ``store=`` the value that the store has of its key.
            **kwargs: None. A subclass names the two arguments.

        Returns:
            The values of any number of records: mappings, dataclasses or named tuples. They get key, timestamp and
            headers of the record. None stands for no record, and as one of the values for a null value.
        """
        raise NotImplementedError

    def on_timer(self, time: datetime, store: KeyValueStore) -> Iterable[Any] | None:
        """Do what is to be done at the time that the value of a key has in its timer field.

        The field is null in the store before this is called, so that a timer fires once.

        Args:
            time: The time. The stream time may be later.
            store: The value of the key.

        Returns:
            As :meth:`process`. The records get this time, the key, and no headers.
        """
        raise NotImplementedError
