"""Where we claim to agree with Kafka Streams, the real library is asked (kafka-streams on the JVM, through py4j)."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from streamplan.adapters.embedded.jars import KAFKA_STREAMS, require
from streamplan.adapters.embedded.java import require_java
from streamplan.partitions import murmur2, partition_for_key
from streamplan.pipelines import PIPELINES
from streamplan.serdes import Json
from streamplan.topics import CHANGELOG_CONFIGS, REPARTITION_CONFIGS
from streamplan.topology import Topology

VALUE = Json("Id string, ProductType int")
STREAMS = "org.apache.kafka.streams"


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    jars = sorted(require(KAFKA_STREAMS, os.environ).glob("*.jar"))
    port = launch_gateway(
        classpath=os.pathsep.join(map(str, jars)),
        java_path=str(require_java(os.environ) / "bin" / "java"),
        die_on_exit=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    yield gateway.jvm
    gateway.shutdown()


class _Mapper:
    """A selector that the library never calls: a topology is only described here."""

    class Java:
        implements = (f"{STREAMS}.kstream.KeyValueMapper",)


def described(jvm: Any, topic: str, *, name: str | None, store: str | None) -> str:
    builder = jvm.org.apache.kafka.streams.StreamsBuilder()
    kstream = jvm.org.apache.kafka.streams.kstream
    stream = builder.stream(topic)
    grouped = stream.groupBy(_Mapper(), getattr(kstream.Grouped, "as")(name)) if name else stream.groupBy(_Mapper())
    grouped.count(getattr(kstream.Materialized, "as")(store)) if store else grouped.count()
    return str(builder.build().describe().toString())


@pytest.mark.parametrize("store", ["orders-products-quantities", None])
@pytest.mark.parametrize("name", ["orders-products-quantities", None])
def test_describe_is_what_the_library_prints(jvm: Any, name: str | None, store: str | None) -> None:
    topology = Topology("app")
    topology.stream("orders", value=VALUE).group_by("ProductType", name=name).count(store=store)
    assert topology.describe() == described(jvm, "orders", name=name, store=store)


def test_the_declared_orders_pipeline_is_the_reference_example(jvm: Any) -> None:
    (orders,) = (pipeline for pipeline in PIPELINES if pipeline.name == "orders")
    name = "orders-products-quantities"
    assert orders.topology.describe() == described(jvm, "orders", name=name, store=name)


@pytest.mark.parametrize(
    ("config", "ours"),
    [
        ("RepartitionTopicConfig", REPARTITION_CONFIGS),
        ("UnwindowedUnversionedChangelogTopicConfig", CHANGELOG_CONFIGS),
    ],
)
def test_internal_topics_have_the_configs_the_library_gives_them(jvm: Any, config: str, ours: dict[str, str]) -> None:
    internals = jvm.java.lang.Class.forName(f"{STREAMS}.processor.internals.{config}")
    none = jvm.java.util.HashMap()
    for constructor in internals.getDeclaredConstructors():
        if constructor.getParameterCount() == 2:  # name and overrides; the class is not public
            constructor.setAccessible(True)
            made = constructor.newInstance(_array(jvm, "topic", none))
            break
    else:
        pytest.fail(f"{config} has no constructor of a name and overrides")
    properties = made.properties(none, 0)
    assert {str(key): str(properties[key]) for key in properties} == ours


def test_partitions_are_those_of_the_default_partitioner(jvm: Any) -> None:
    chosen = random.Random(4)
    keys = [b"", b"0", b"1", *(chosen.randbytes(chosen.randint(1, 40)) for _ in range(300))]
    utils = jvm.org.apache.kafka.common.utils.Utils
    partitioner = jvm.org.apache.kafka.clients.producer.internals.BuiltInPartitioner
    for key in keys:
        assert murmur2(key) == utils.murmur2(key)
        for partitions in (1, 2, 3, 12):
            assert partition_for_key(key, partitions) == partitioner.partitionForKey(key, partitions)


def _array(jvm: Any, *items: Any) -> Any:
    listed = jvm.java.util.ArrayList()
    for item in items:
        listed.add(item)
    return listed.toArray()
