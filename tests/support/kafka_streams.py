"""The real Kafka Streams on a JVM of its own, through py4j, and what it takes to call its internals."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import py4j.protocol
import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from streamplan.java import require_java
from streamplan.local.jars import JarSet, require
from streamplan.model.kstream import KStream, KTable
from streamplan.model.topology import Topology
from streamplan.model.windows import JoinWindows, TimeWindows
from streamplan.serdes.json import Json

from tests.support.library_windows import compiler

STREAMS = "org.apache.kafka.streams"


@contextmanager
def java(*jar_sets: JarSet) -> Iterator[Any]:
    """``gateway.jvm`` with these jars; the JVM is gone afterwards."""
    jars = [jar for jar_set in jar_sets for jar in sorted(require(jar_set, os.environ).glob("*.jar"))]
    with java_with(os.pathsep.join([*map(str, jars), compiler()])) as jvm:
        yield jvm


@contextmanager
def java_with(class_path: str) -> Iterator[Any]:
    """``gateway.jvm`` with this class path; the JVM is gone afterwards.

    A Spark session of this process has py4j ask Spark's JVM about every error, also about those of this JVM. Not here.
    """
    port, process = launch_gateway(
        classpath=class_path,
        java_path=str(require_java(os.environ) / "bin" / "java"),
        javaopts=["-Xmx512m"],
        die_on_exit=True,
        redirect_stderr=subprocess.DEVNULL,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    try:
        with pytest.MonkeyPatch.context() as plain:
            plain.setattr("py4j.java_gateway.get_return_value", py4j.protocol.get_return_value)
            yield gateway.jvm
    finally:
        gateway.shutdown()
        process.kill()  # its threads may be in the middle of anything, and nobody needs what they do
        process.wait(600)


def collection(jvm: Any, items: Iterable[Any], kind: str = "ArrayList") -> Any:
    made = getattr(jvm.java.util, kind)()
    for item in items:
        made.add(item)
    return made


def strings(jvm: Any, texts: Iterable[str]) -> Any:
    """``String[]``, which a method with ``String...`` takes."""
    listed = list(texts)
    made = jvm.java.lang.reflect.Array.newInstance(jvm.java.lang.Class.forName("java.lang.String"), len(listed))
    for number, text in enumerate(listed):
        jvm.java.lang.reflect.Array.set(made, number, text)
    return made


def java_map(jvm: Any, items: Mapping[Any, Any], kind: str = "HashMap") -> Any:
    made = getattr(jvm.java.util, kind)()
    for key, value in items.items():
        made.put(key, value)
    return made


def map_of_longs(jvm: Any, items: Mapping[Any, int]) -> Any:
    """``Map<…, Long>``: py4j would make an Integer of a number that fits one."""
    made = jvm.java.util.HashMap()
    (put,) = (method for method in made.getClass().getMethods() if method.getName() == "put")
    for key, value in items.items():
        entry = collection(jvm, [key, None]).toArray()
        boxed = jvm.java.util.stream.LongStream.of(value).boxed().toArray()
        jvm.java.lang.System.arraycopy(boxed, 0, entry, 1, 1)
        put.invoke(made, entry)
    return made


def cluster(jvm: Any, counts: Mapping[str, int]) -> Any:
    """``org.apache.kafka.common.Cluster``, of topics with these partition counts."""
    common = jvm.org.apache.kafka.common
    node = jvm.java.lang.Class.forName("org.apache.kafka.common.Node")
    nobody = jvm.java.lang.reflect.Array.newInstance(node, 0)
    partitions = [
        common.PartitionInfo(topic, partition, None, nobody, nobody)
        for topic, count in counts.items()
        for partition in range(count)
    ]
    none = jvm.java.util.HashSet()
    return common.Cluster("cluster", none, collection(jvm, partitions), none, none)


def properties(jvm: Any, items: Mapping[str, str]) -> Any:
    made = jvm.java.util.Properties()
    for key, value in items.items():
        made.setProperty(key, value)
    return made


def call(jvm: Any, target: Any, method: str, *arguments: Any) -> Any:
    """A method of an object's class, or of one above it, that is not public."""
    kind = target.getClass()
    while kind is not None:
        for declared in kind.getDeclaredMethods():
            if declared.getName() == method and declared.getParameterCount() == len(arguments):
                declared.setAccessible(True)
                return declared.invoke(target, collection(jvm, arguments).toArray())
        kind = kind.getSuperclass()
    raise LookupError(f"{target.getClass().getName()} has no method {method} of {len(arguments)} arguments")


# -- one declaration, in Python and in Java


class _Mapper:
    """A function that the library never calls: no record passes."""

    class Java:
        implements = (f"{STREAMS}.kstream.KeyValueMapper",)


class _Joiner:
    class Java:
        implements = (f"{STREAMS}.kstream.ValueJoiner",)


class _Aggregator:
    class Java:
        implements = (f"{STREAMS}.kstream.Aggregator",)


class _Initializer:
    class Java:
        implements = (f"{STREAMS}.kstream.Initializer",)


class _ValueMapper:
    class Java:
        implements = (f"{STREAMS}.kstream.ValueMapper",)


VALUE = Json("Id string, Amount bigint")


class Twin:
    """Declares the same topology with Streamplan's ``Topology`` and with the real ``StreamsBuilder``."""

    def __init__(self, jvm: Any, application_id: str) -> None:
        self.jvm = jvm
        self.topology = Topology(application_id)
        self.builder = jvm.org.apache.kafka.streams.StreamsBuilder()

    def stream(self, topic: str) -> TwinStream:
        return TwinStream(self, self.topology.stream(topic, value=VALUE), self.builder.stream(topic))

    def table(self, topic: str, *, name: str | None = None) -> TwinTable:
        table = self.topology.table(topic, value=VALUE, name=name)
        options = [self._as("Consumed", name)] if name else []
        return TwinTable(self, table, self.builder.table(topic, *options))

    def build(self) -> Any:
        """The real topology, after seeing that both describe themselves alike."""
        built = self.builder.build()
        assert self.topology.faults == ()
        assert self.topology.describe() == str(built.describe().toString())
        return built

    def _as(self, kind: str, name: str) -> Any:
        return getattr(getattr(self.jvm.org.apache.kafka.streams.kstream, kind), "as")(name)


@dataclass(frozen=True)
class TwinStream:
    twin: Twin
    python: KStream
    java: Any

    def select_key(self) -> TwinStream:
        return TwinStream(self.twin, self.python.select_key("Id"), self.java.selectKey(_Mapper()))

    def merge(self, other: TwinStream) -> TwinStream:
        return TwinStream(self.twin, self.python.merge(other.python), self.java.merge(other.java))

    def repartition(self, name: str, number_of_partitions: int | None = None) -> TwinStream:
        options = self.twin._as("Repartitioned", name)
        if number_of_partitions is not None:
            options = options.withNumberOfPartitions(number_of_partitions)
        python = self.python.repartition(name=name, number_of_partitions=number_of_partitions)
        return TwinStream(self.twin, python, self.java.repartition(options))

    def join(self, table: TwinTable) -> TwinStream:
        python = self.python.join(table.python, {"Id": "record.key", "Amount": "record.timestamp"})
        return TwinStream(self.twin, python, self.java.join(table.java, _Joiner()))

    def join_stream(self, other: TwinStream, within: JoinWindows) -> TwinStream:
        value = {"Id": "record.key", "Amount": "record.timestamp"}
        python = self.python.join(other.python, value, within=within)
        millis = self.twin.jvm.java.time.Duration.ofMillis
        windows = self.twin.jvm.org.apache.kafka.streams.kstream.JoinWindows
        java_windows = windows.ofTimeDifferenceAndGrace(millis(within.before_ms), millis(within.grace_ms))
        java_windows = java_windows.after(millis(within.after_ms))
        return TwinStream(self.twin, python, self.java.join(other.java, _Joiner(), java_windows))

    def cogroup(self, other: TwinStream, store: str) -> TwinTable:
        """Grouped by key. The groupings are named ``<store>-this`` and ``<store>-other``."""
        names = f"{store}-this", f"{store}-other"
        one, two = (stream.python.group_by_key(name=name) for stream, name in zip((self, other), names, strict=True))
        python = one.cogroup({"count": "count(*)"}).cogroup(two, {"count": "count(*)"}).aggregate(store=store)
        streams = zip((self, other), names, strict=True)
        this, that = (stream.java.groupByKey(self.twin._as("Grouped", name)) for stream, name in streams)
        java = this.cogroup(_Aggregator()).cogroup(that, _Aggregator())
        return TwinTable(self.twin, python, java.aggregate(_Initializer(), self.twin._as("Materialized", store)))

    def count(self, store: str, window: TimeWindows | None = None) -> TwinTable:
        """Grouped by key, and in windows."""
        python, java = self.python.group_by_key(), self.java.groupByKey()
        if window is None:
            return self._counted(python.count(store=store), java, store)
        millis = self.twin.jvm.java.time.Duration.ofMillis
        windows = self.twin.jvm.org.apache.kafka.streams.kstream.TimeWindows
        windowed = java.windowedBy(windows.ofSizeAndGrace(millis(window.size_ms), millis(window.grace_ms)))
        return self._counted(python.windowed_by(window).count(store=store), windowed, store)

    def to(self, topic: str) -> None:
        self.python.to(topic)
        self.java.to(topic)

    def _counted(self, python: KTable, java: Any, store: str) -> TwinTable:
        return TwinTable(self.twin, python, java.count(self.twin._as("Materialized", store)))


@dataclass(frozen=True)
class TwinTable:
    twin: Twin
    python: KTable
    java: Any

    def to_stream(self) -> TwinStream:
        """With the fields that all streams have here."""
        python = self.python.to_stream().map_values({"Id": "record.key", "Amount": "count"})
        return TwinStream(self.twin, python, self.java.toStream().mapValues(_ValueMapper()))


# -- an application at work


@contextmanager
def running(jvm: Any, topology: Any, bootstrap_servers: str, application_id: str, state: Path) -> Iterator[Any]:
    """A started ``KafkaStreams`` of one thread; closed afterwards, whatever it is doing."""
    serde = "org.apache.kafka.common.serialization.Serdes$StringSerde"
    config = {
        "application.id": application_id,
        "bootstrap.servers": bootstrap_servers,
        "state.dir": str(state),
        "default.key.serde": serde,
        "default.value.serde": serde,
    }
    application = jvm.org.apache.kafka.streams.KafkaStreams(topology, properties(jvm, config))
    try:
        application.start()
        yield application
    finally:
        application.close(jvm.java.time.Duration.ofSeconds(120))


def state_of(application: Any) -> str:
    return str(application.state().toString())


def wait_until_running(application: Any, seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while (state := state_of(application)) != "RUNNING":
        assert state in ("CREATED", "REBALANCING"), f"the application is in state {state}"
        assert time.monotonic() < deadline, f"the application is still {state} after {seconds} s"
        time.sleep(0.05)
