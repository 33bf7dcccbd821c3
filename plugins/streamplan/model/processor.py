"""The Processor API for Python: what a class of a declaration does with each record and with the store of its key.

Source: ``org.apache.kafka.streams.processor.api``. A processor here sees the value of the record's own key,
and not those of the other keys of its stream task. So its results do not depend on the number of partitions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Generic

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
    """

    key: K
    value: V
    timestamp: datetime
    topic: str
    partition: int
    offset: int


class KeyValueStore(ABC):
    """The value that a state store has for one key.

    Example::

        class Counter(Processor):
            def process(self, record: Record, store: KeyValueStore) -> None:
                before = store.get()
                store.put({"n": 1 if before is None else before.n + 1})
    """

    @property
    @abstractmethod
    def key(self) -> Any:
        """The key: that of the record, or that of the timer."""

    @abstractmethod
    def get(self) -> Any:
        """Return the value with its fields as attributes; None where the store has none."""

    @abstractmethod
    def put(self, value: Any) -> None:
        """Set the value. It also sets the timer, or removes it where the field of the timer is null.

        Args:
            value: A mapping, a dataclass, a named tuple, or what :meth:`get` returned. A field that it does not have is
                null. None deletes the key, as in the library.

        Raises:
            TypeError: A field has another type than the declared one, or there is no such field.
            ValueError: The value is larger than the changelog takes.
        """

    @abstractmethod
    def delete(self) -> None:
        """Remove the value, and with it the timer."""


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
    task and micro-batch. So what it remembers belongs into the store, and not into its attributes.
    """

    def process(self, record: Record, store: KeyValueStore) -> Iterable[Any] | None:
        """Process a record.

        Args:
            record: The record.
            store: The value of its key.

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
