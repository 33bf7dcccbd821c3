"""Random topologies, and the partition counts that the real Kafka Streams gives them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JJavaError
from streamplan.model.windows import JoinWindows, TimeWindows

from tests.support.kafka_streams import (
    STREAMS,
    Twin,
    TwinStream,
    TwinTable,
    call,
    cluster,
    properties,
)


@dataclass
class Answer:
    """The library's co-partition groups and the counts of its repartition topics, by names in Kafka; or its refusal."""

    groups: set[frozenset[str]] = field(default_factory=set)
    counts: dict[str, int] = field(default_factory=dict)
    refusal: str = ""


def metadata_of(twin: Twin, built: Any) -> Any:
    """``TopologyMetadata``, from which the assignor works."""
    jvm = twin.jvm
    config = jvm.org.apache.kafka.streams.StreamsConfig(
        properties(jvm, {"application.id": twin.topology.application_id, "bootstrap.servers": "127.0.0.1:1"})
    )
    kind = jvm.java.lang.Class.forName(f"{STREAMS}.Topology")
    builder = kind.getDeclaredField("internalTopologyBuilder")
    builder.setAccessible(True)
    metadata = jvm.org.apache.kafka.streams.processor.internals.TopologyMetadata(builder.get(built), config)
    metadata.buildAndRewriteTopology()
    return metadata


def asked(twin: Twin, external: Mapping[str, int]) -> Answer:
    """What ``RepartitionTopics.setup`` does, but for creating the topics."""
    internals = twin.jvm.org.apache.kafka.streams.processor.internals
    outside = cluster(twin.jvm, external)
    answer = Answer()
    try:
        metadata = metadata_of(twin, twin.build())
        groups = metadata.copartitionGroups()
        answer.groups = {frozenset(map(str, group)) for group in groups}
        enforcer = internals.assignment.CopartitionedTopicsEnforcer("")
        topics = internals.RepartitionTopics(metadata, None, enforcer, outside, "")
        found = call(twin.jvm, topics, "computeRepartitionTopicConfig", outside)
        if not found.isEmpty():
            call(twin.jvm, topics, "ensureCopartitioning", groups, found, outside)
    except Py4JJavaError as error:
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        if cause.getClass().getSimpleName() != "TopologyException":
            raise
        answer.refusal = str(cause.getMessage())
    else:
        answer.counts = {str(name): int(found[name].numberOfPartitions().get()) for name in found}
    return answer


def drawn(jvm: Any, chosen: random.Random) -> tuple[Twin, dict[str, int]]:
    """A topology of random operations, and partition counts of the topics that it reads."""
    twin = Twin(jvm, f"app{chosen.randrange(1000)}")
    names = (f"{chosen.choice('abcdefgh')}{number}" for number in range(1000))
    few = chosen.sample([1, 2, 3, 4, 6], chosen.choice([1, 2, 2, 3]))
    external: dict[str, int] = {}

    def topic() -> str:
        name = next(names)
        external[name] = chosen.choice(few)
        return name

    streams: list[TwinStream] = [twin.stream(topic())]
    tables: list[TwinTable] = []
    for _ in range(chosen.randint(3, 10)):
        stream = chosen.choice(streams)
        match chosen.choice(
            ["stream", "table", "rekey", "rekey", "repartition", "join", "join", "count", "merge", "join streams"]
        ):
            case "stream":
                streams.append(twin.stream(topic()))
            case "table":
                tables.append(twin.table(topic()))
            case "rekey":
                streams.append(stream.select_key())
            case "repartition":
                streams.append(stream.repartition(next(names), chosen.choice([None, None, *few])))
            case "join":
                table = chosen.choice(tables) if tables and chosen.random() < 0.7 else twin.table(topic())
                tables.append(table)
                streams.append(stream.join(table))
            case "join streams":
                within = JoinWindows(f"{chosen.randrange(100)} minutes", chosen.choice(["1 day", "60 days"]))
                streams.append(stream.join_stream(chosen.choice(streams), within))
            case "count":
                window = TimeWindows("1 minute", "0 seconds") if chosen.random() < 0.3 else None
                table = stream.count(next(names), window)
                if window is None:
                    tables.append(table)
                    streams.append(table.to_stream())
            case "merge":
                other = chosen.choice(streams)
                if other is not stream:
                    streams.append(stream.merge(other))
    return twin, external
