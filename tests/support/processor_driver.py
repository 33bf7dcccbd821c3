"""The JVM library's TopologyTestDriver with a topology whose processors are Python objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from streamplan.model.processor import (
    SessionStore,
    TimestampedKeyValueStore,
    TimestampedWindowStore,
    VersionedKeyValueStore,
    WindowStore,
)

from tests.support.kafka_streams import STREAMS, properties
from tests.support.streams_library import Callback, Library, raw


class Written(NamedTuple):
    """A record that the library has written, in bytes."""

    key: bytes | None
    value: bytes | None
    at: int
    headers: list[tuple[str, bytes | None]]


class ProcessorDriver:
    """``org.apache.kafka.streams.TopologyTestDriver``.

    Args:
        library: Has the topology.
        application: The application id.
        begin: The time in ms at which the wall clock begins.

    Attributes:
        description: What ``Topology.describe()`` of the library prints.
    """

    def __init__(self, library: Library, application: str, begin: int) -> None:
        self._jvm, self._bytes = library.jvm, library.bytes
        built = library.builder.build()
        self.description = str(built.describe().toString())
        self._state = TemporaryDirectory()
        config = {"application.id": application, "bootstrap.servers": "none:1", "state.dir": self._state.name}
        instant = self._jvm.java.time.Instant.ofEpochMilli(begin)
        driver = self._jvm.org.apache.kafka.streams.TopologyTestDriver
        self._driver = driver(built, properties(self._jvm, config), instant)

    def pipe(
        self,
        topic: str,
        value: bytes | None,
        at: int,
        *,
        key: bytes | None = b"k",
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> None:
        """Let the topology process a record."""
        serializer = self._bytes.serializer()
        of_record = self._jvm.org.apache.kafka.common.header.internals.RecordHeaders()
        for name, header in headers:
            of_record.add(name, header)
        instant = self._jvm.java.time.Instant.ofEpochMilli(at)
        record = self._jvm.org.apache.kafka.streams.test.TestRecord(key, value, of_record, instant)
        self._driver.createInputTopic(topic, serializer, serializer).pipeInput(record)

    def advance(self, milliseconds: int) -> None:
        """Let the wall clock go on."""
        self._driver.advanceWallClockTime(self._jvm.java.time.Duration.ofMillis(milliseconds))

    def output(self, topic: str) -> list[Written]:
        """What was written into a topic since the last call."""
        if topic not in [*self._driver.producedTopicNames()]:
            return []
        deserializer = self._bytes.deserializer()
        return [
            Written(
                raw(each.getKey()),
                raw(each.getValue()),
                int(each.timestamp()),
                [(header.key(), raw(header.value())) for header in each.headers().toArray()],
            )
            for each in self._driver.createOutputTopic(topic, deserializer, deserializer).readRecordsToList()
        ]

    def close(self) -> None:
        """End the topology, and delete its stores."""
        self._driver.close()
        self._state.cleanup()


def supplier(made: Callable[[], Any]) -> Callback:
    """Return a ``ProcessorSupplier`` of objects with ``init`` and ``process``."""

    def get() -> Callback:
        task = made()
        return Callback(f"{STREAMS}.processor.api.Processor", init=task.init, process=task.process, close=lambda: None)

    return Callback(f"{STREAMS}.processor.api.ProcessorSupplier", stores=lambda: None, get=get)


def add_stores(library: Library, stores: Mapping[str, Any]) -> None:
    """Add the library's stores of bytes to its topology.

    Args:
        stores: By name what a declaration has in their place. Their durations are each a ``timedelta``.
    """
    made = library.jvm.org.apache.kafka.streams.state.Stores

    def duration(of: timedelta) -> Any:
        return library.jvm.java.time.Duration.ofMillis(of // timedelta(milliseconds=1))

    for name, store in stores.items():
        match store:
            case SessionStore():
                builder, kept = made.sessionStoreBuilder, made.persistentSessionStore(name, duration(store.retention))
            case WindowStore():
                is_timed = isinstance(store, TimestampedWindowStore)
                builder = made.timestampedWindowStoreBuilder if is_timed else made.windowStoreBuilder
                persistent = made.persistentTimestampedWindowStore if is_timed else made.persistentWindowStore
                kept = persistent(name, duration(store.retention), duration(store.size), False)
            case VersionedKeyValueStore():
                builder = made.versionedKeyValueStoreBuilder
                kept = made.persistentVersionedKeyValueStore(name, duration(store.history))
            case TimestampedKeyValueStore():
                builder, kept = made.timestampedKeyValueStoreBuilder, made.persistentTimestampedKeyValueStore(name)
            case _:
                builder, kept = made.keyValueStoreBuilder, made.persistentKeyValueStore(name)
        library.builder.addStateStore(builder(kept, library.bytes, library.bytes))
