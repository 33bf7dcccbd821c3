"""Topologies declared with the real StreamsBuilder, whose functions are those of Python."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from confluent_kafka.admin import (
    AdminClient,
)
from py4j.java_gateway import CallbackServerParameters, GatewayParameters, JavaGateway
from streamplan.local.jars import KAFKA_STREAMS, JarSet

from tests.support.kafka_streams import STREAMS, java, properties, state_of
from tests.support.waiting import eventually


class Record(NamedTuple):
    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int


PartitionOf = Callable[[bytes, int], int]
"""The partition of a key, among so many."""


KeyOf = Callable[[bytes | None, bytes | None], bytes | None]
"""The key by which a record is grouped. None: it is left out. ValueError: it cannot be processed."""


def fields(value: bytes | None, **kinds: type) -> dict[str, Any]:
    """The fields of a JSON value; ValueError where it is none, or a field is of another type."""
    found = json.loads(value or b"")
    if not isinstance(found, dict):
        raise ValueError("not an object")
    if any(type(found.get(name)) not in (kind, type(None)) for name, kind in kinds.items()):
        raise ValueError("a field of another type")
    return found


def text(found: str | None) -> bytes:
    if found is None:
        raise ValueError("the key is missing")
    return found.encode()


class Callback:
    """An object that the JVM takes for one of an interface of Java, and calls back."""

    def __init__(self, interface: str, **methods: Callable[..., Any]) -> None:
        self.Java = SimpleNamespace(implements=[interface])
        vars(self).update(methods)


def raw(data: Any) -> bytes | None:
    return None if data is None else bytes(data)


class Library:
    """Declares a topology with the real ``StreamsBuilder``. Keys and values are bytes, functions are Python's.

    What our pipelines dead-letter would stop it, so it skips that in its own two ways: a value that cannot be read is
    refused by a deserializer in front of ``LogAndContinueExceptionHandler``, and a record that a mapper gives no key is
    dropped before a repartition topic.
    """

    def __init__(self, jvm: Any, application_id: str) -> None:
        self.jvm = jvm
        self.application_id = application_id
        self.builder = jvm.org.apache.kafka.streams.StreamsBuilder()
        self.serdes = jvm.org.apache.kafka.common.serialization.Serdes
        self.bytes = self.serdes.ByteArray()

    def option(self, kind: str, method: str, *arguments: Any) -> Any:
        """``Grouped.with(…)`` and its like, whose names are reserved words."""
        return getattr(getattr(self.jvm.org.apache.kafka.streams.kstream, kind), method)(*arguments)

    def consumed(self, **kinds: type) -> Any:
        return self.consumed_if(lambda value: fields(value, **kinds))

    def consumed_if(self, judge: Callable[[bytes], object]) -> Any:
        """``judge`` raises ValueError for a value that is refused."""

        def deserialize(*arguments: Any) -> bytes | None:
            value = raw(arguments[-1])
            if value is not None:  # deletes from a table, and is dropped by a stream
                judge(value)
            return value

        reader = Callback(
            "org.apache.kafka.common.serialization.Deserializer",
            configure=lambda *_: None,
            close=lambda: None,
            deserialize=deserialize,
        )
        return self.option("Consumed", "with", self.bytes, self.serdes.serdeFrom(self.bytes.serializer(), reader))

    def stream(self, topic: str, **kinds: type) -> Any:
        return self.builder.stream(topic, self.consumed(**kinds))

    def grouped(self, stream: Any, key_of: KeyOf, name: str | None) -> Any:
        def apply(key: Any, value: Any) -> bytes | None:
            try:
                return key_of(raw(key), raw(value))
            except ValueError:
                return None

        names = [] if name is None else [name]
        grouped = self.option("Grouped", "with", *names, self.bytes, self.bytes)
        return stream.groupBy(Callback(f"{STREAMS}.kstream.KeyValueMapper", apply=apply), grouped)

    def stored(self, store: str) -> Any:
        return self.option("Materialized", "as", store)

    def to(self, stream: Any, topic: str) -> None:
        """Into a topic of its own, so that it can be compared with ours."""
        stream.to(self.output(topic), self.option("Produced", "with", self.bytes, self.bytes))

    def output(self, topic: str) -> str:
        return f"{self.application_id}-{topic}"


def order_key(key: bytes | None, value: bytes | None) -> bytes:
    kind = fields(value, Id=str, ProductType=int).get("ProductType")
    if kind not in (0, 1):
        raise ValueError("missing, or not allowed")
    return b"%d" % kind


@contextmanager
def java_with_callbacks(jars: JarSet = KAFKA_STREAMS) -> Iterator[Any]:
    """``gateway.jvm`` of the library's JVM, which can call functions of this process."""
    with java(jars) as started:
        gateway = JavaGateway(
            # Else each header that a deserializer is called with would be reported as forgotten, one by one.
            gateway_parameters=GatewayParameters(port=started._gateway_client.port, enable_memory_management=False),
            callback_server_parameters=CallbackServerParameters(port=0, daemonize=True, daemonize_connections=True),
        )
        client = gateway.java_gateway_server.getCallbackClient()
        port = gateway.get_callback_server().get_listening_port()
        gateway.java_gateway_server.resetCallbackClient(client.getAddress(), port)
        yield gateway.jvm
        gateway.shutdown_callback_server()


@contextmanager
def started(library: Library, built: Any, bootstrap_servers: str, state: Path, **config: str) -> Iterator[Any]:
    """The application runs. Afterwards nothing is left of it."""
    try:
        with running(library, built, bootstrap_servers, state, **config) as kafka_streams:
            yield kafka_streams
    finally:
        forget(library.application_id, bootstrap_servers)


def forget(application_id: str, bootstrap_servers: str) -> None:
    """Delete the internal topics and the consumer group of an application that is stopped."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    made = [name for name in admin.list_topics(timeout=60).topics if name.startswith(f"{application_id}-")]
    futures = [*admin.delete_topics(made).values()] if made else []
    for future in (*futures, *admin.delete_consumer_groups([application_id]).values()):
        future.exception(120)


@contextmanager
def running(library: Library, built: Any, bootstrap_servers: str, state: Path, **config: str) -> Iterator[Any]:
    """The application runs, and is closed afterwards. Its topics and its group stay."""
    kafka_streams = library.jvm.org.apache.kafka.streams.KafkaStreams(
        built,
        properties(
            library.jvm,
            {
                "application.id": library.application_id,
                "bootstrap.servers": bootstrap_servers,
                "state.dir": str(state),
                "commit.interval.ms": "200",
                "auto.offset.reset": "earliest",
                "default.key.serde": "org.apache.kafka.common.serialization.Serdes$ByteArraySerde",
                "default.value.serde": "org.apache.kafka.common.serialization.Serdes$ByteArraySerde",
                **{name.replace("_", "."): value for name, value in config.items()},
            },
        ),
    )
    faults: list[str] = []
    handler = library.jvm.org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler

    def handle(fault: Any) -> Any:
        while fault is not None:
            faults.append(str(fault.toString()))
            fault = fault.getCause()
        return handler.StreamThreadExceptionResponse.SHUTDOWN_CLIENT

    kafka_streams.setUncaughtExceptionHandler(
        Callback(f"{STREAMS}.errors.StreamsUncaughtExceptionHandler", handle=handle)
    )
    try:
        kafka_streams.start()
        eventually(lambda: bool(faults) or state_of(kafka_streams) == "RUNNING", "the library's application is running")
        assert not faults
        yield kafka_streams
    finally:
        kafka_streams.close(library.jvm.java.time.Duration.ofSeconds(120))
