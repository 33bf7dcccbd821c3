"""What the checks know about a Kafka Streams application: its topics, and how they belong together.

:func:`application_of` makes it from a declaration, ``checks.discovery`` from what any application left in Kafka.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from streamplan.errors import BrokersUnavailable, CouldNotLook, Refused
from streamplan.kafka_port import Cluster
from streamplan.kafka_types import Record
from streamplan.model.copartitioning import copartition_groups
from streamplan.model.left_out import REASON_LEFT_OUT, records_left_out
from streamplan.model.operations import Count, KeySelect, NullKeyFilter, StateStore
from streamplan.model.partitioner import partition_for_key
from streamplan.model.pipeline import Limits, Pipeline
from streamplan.model.processor_topology import Processor, Sink, Source
from streamplan.model.timestamps import timestamp_fault
from streamplan.model.topics import TopicRole, TopicSpec
from streamplan.model.topology import Topology
from streamplan.serdes.primitive import STRING, KeySerde, String
from streamplan.serdes.serde import (
    MAX_BYTES,
    Serde,
    Undecodable,
    header_bytes,
    is_key_field,
    key_of,
    key_text,
    label_of,
    too_large,
)

Partitioner = Callable[[bytes, int], int]
"""Returns the partition of a key, given the number of partitions."""


@dataclass(frozen=True)
class SubtopologyTopics:
    """The topics that the stream tasks of one sub-topology read and write, by their names in Kafka.

    Attributes:
        name: What people see, such as ``sub-topology 0``.
        sources: The topics that are read.
        changelogs: The changelogs of the state stores.
        outputs: The topics that are written.
        id: The number of the sub-topology in the names of its tasks; None where it is not known.
    """

    name: str
    sources: tuple[str, ...]
    changelogs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    id: int | None = None


@dataclass(frozen=True)
class Aggregation:
    """A count of records, from the topic in which they begin to the changelog. Topics have their names in Kafka.

    Attributes:
        application_id: The application that counts.
        subtopology: The number of the sub-topology that reads the source.
        source: The topic whose records are counted.
        serde: Reads the values of the source; None where values are not read.
        field: The field of the value by which records are counted; None for the record's key.
        repartition: The repartition topic.
        store: The name of the state store.
        changelog: The changelog of the store.
        dead_letters: The dead-letter topic. Where there is none, a record that cannot be counted leaves no trace.
        exactly_once: Whether the application writes in transactions; None to find out from its topics.
        key_serde: Writes the keys by which records are counted.
        left_out: The records of the source that are dead-lettered without being read.
    """

    application_id: str
    subtopology: int
    source: str
    serde: Serde | None
    field: str | None
    repartition: str
    store: str
    changelog: str
    dead_letters: str | None
    exactly_once: bool | None = None
    key_serde: KeySerde = STRING
    left_out: frozenset[tuple[int, int]] = frozenset()

    def label(self, key: bytes) -> str:
        """Return what people see of a key: ``orders-products-quantities[0] Jackets``."""
        return f"{self.store}[{self._text(key)}] {self.key_label(key)}".rstrip()

    def key_label(self, key: bytes) -> str:
        """Return the declared label of a key, such as ``Jackets``; empty where it has none."""
        return label_of(self.serde, self.field, self._text(key)) if self.serde else ""

    def keys_labelled(self, label: str) -> list[str]:
        """Return the texts of the keys that have a label."""
        allowed = self.serde.allowed.get(self.field or "", {}) if self.serde else {}
        return [key_text(value) for value, each in allowed.items() if each == label]

    def _text(self, key: bytes) -> str:
        try:
            return self.key_serde.key_text(self.key_serde.read_key(key))
        except Undecodable:
            return key.decode("utf-8", "backslashreplace")

    def key_of(self, record: Record) -> bytes | None:
        """Return the key by which a record of the source is counted; None for one that is passed over.

        Raises:
            Undecodable: The record cannot be counted.
        """
        if (record.partition, record.offset) in self.left_out:
            raise Undecodable(REASON_LEFT_OUT)
        if self.dead_letters is not None and (fault := timestamp_fault(record.timestamp)) is not None:
            raise Undecodable(fault)
        if self.serde is not None and self.field is not None:
            headers = record.headers if self.dead_letters is not None else ()
            return self.key_of_text(key_of(self.serde, self.field, record.value, headers))
        if self.serde is not None and record.value is not None:
            self.serde.decode(record.value)
        if record.key is None:
            raise Undecodable("the key is null")
        size = len(record.key) + len(record.value or b"") + header_bytes(record.headers)
        if self.dead_letters is not None and size > MAX_BYTES:
            raise Undecodable(too_large(MAX_BYTES))
        return None if record.value is None else record.key

    def key_of_text(self, text: bytes) -> bytes:
        """Return the key that is made of the text of a field."""
        serde = self.key_serde
        return text if isinstance(serde, String) else serde.write_key(serde.key_of_text(text.decode()))


@dataclass(frozen=True)
class Application:
    """What the checks look at.

    Attributes:
        name: The name under which results are stored.
        application_id: The ``application.id``.
        topics: All topics, with what is expected of each.
        subtopologies: The topics of each sub-topology.
        groups: Sets of topics that are joined with each other.
        aggregations: The counts that can be recounted without Spark.
        declared: Whether what is expected was declared, and not derived from what lies in Kafka.
        limits: The declared bounds of the checks.
        partitioners: The partitioners of topics whose keys murmur2 does not place.
        notes: What could not be found out, for people.
        unjudged: The changelogs whose keys tell no partition, each with the reason.
        null_keys: The internal topics into which the application may write records without a key. Each has the reason
            why that is not known; "" where it is known.
        runs_until: The application that will take over from this one, which runs until then; empty where there is none.
    """

    name: str
    application_id: str
    topics: tuple[TopicSpec, ...]
    subtopologies: tuple[SubtopologyTopics, ...]
    groups: tuple[frozenset[str], ...]
    aggregations: tuple[Aggregation, ...]
    declared: bool
    limits: Limits = field(default_factory=Limits)
    partitioners: Mapping[str, Partitioner] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    unjudged: Mapping[str, str] = field(default_factory=dict)
    null_keys: Mapping[str, str] = field(default_factory=dict)
    runs_until: str = ""

    def with_role(self, *roles: TopicRole) -> tuple[TopicSpec, ...]:
        """Return the topics with one of these roles."""
        return tuple(spec for spec in self.topics if spec.role in roles)

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of all topics that are read, each one once."""
        return tuple(dict.fromkeys(topic for subtopology in self.subtopologies for topic in subtopology.sources))

    @property
    def keyed(self) -> tuple[TopicSpec, ...]:
        """Topics whose partition counts and placement of keys must agree with those of others."""
        joined = {topic for group in self.groups for topic in group}
        internal = (TopicRole.REPARTITION, TopicRole.CHANGELOG)
        return tuple(spec for spec in self.topics if spec.role in internal or spec.name in joined)

    def without_bounds(self) -> Application:
        """Return the same application without the bound on how many records a check looks at."""
        return replace(self, limits=replace(self.limits, scanned_records=sys.maxsize))

    def key_label(self, topic: str, key: bytes) -> str:
        """Return the declared label of a key of a repartition topic or a changelog; empty where it has none."""
        return next(
            (each.key_label(key) for each in self.aggregations if topic in (each.repartition, each.changelog)), ""
        )

    def partition_of(self, spec: TopicSpec, key: bytes, partitions: int) -> int:
        """Return the partition in which a record with this key belongs."""
        partitioner = self.partitioners.get(spec.name, partition_for_key)
        return partitioner(spec.application_key(key), partitions)


def application_in(pipeline: Pipeline, cluster: Cluster) -> Application:
    """Return a declared pipeline as the checks see it, with the counts that a cluster has of the external topics.

    Where these counts cannot be resolved, the application has none: the check `topics` finds a topic that is missing,
    the check `copartitioning` counts that do not fit, and every check brokers that do not answer.
    """
    if not pipeline.is_resolved:
        with suppress(Refused, BrokersUnavailable, CouldNotLook):
            observed = cluster.topics(pipeline.topics_of_others)
            pipeline = pipeline.resolved({name: topic.partitions for name, topic in observed.items()})
    return application_of(pipeline.with_schemas(cluster.schemas))


def application_of(pipeline: Pipeline) -> Application:
    """Return a declared pipeline as the checks see it. It has no counts where those of others are not resolved."""
    topology = pipeline.topology
    return Application(
        name=pipeline.name,
        application_id=topology.application_id,
        topics=pipeline.declared_topics(),
        subtopologies=tuple(
            SubtopologyTopics(
                f"sub-topology {subtopology.id}",
                pipeline.source_topics(subtopology),
                tuple(topology.changelog_topic(store) for store in subtopology.stores),
                tuple(topology.decorate(topic) for topic in subtopology.sink_topics),
                subtopology.id,
            )
            for subtopology in topology.subtopologies
        ),
        groups=tuple(frozenset(map(topology.decorate, group)) for group in copartition_groups(topology)),
        aggregations=aggregations(pipeline),
        declared=True,
        limits=pipeline.limits,
        null_keys=dict.fromkeys(map(topology.decorate, _topics_with_null_keys(topology)), ""),
        unjudged={
            topology.changelog_topic(node.operation.store): "a processor puts any keys into its store"
            for _, node in pipeline.stores
            if isinstance(node.operation, StateStore)
        },
    )


def _topics_with_null_keys(topology: Topology) -> Iterator[str]:
    """Yield the internal topics that may have records without a key.

    They lead to a left or an outer join, or they are the subscriptions of a left join by a foreign key (KIP-962).
    """
    for subtopology in topology.subtopologies:
        operations = {node.name: node.operation for node in subtopology.nodes if isinstance(node, Processor)}
        for node in subtopology.nodes:
            if isinstance(node, Sink) and node.internal:
                before = [operations.get(name) for name in subtopology.predecessors[node.name]]
                if node.topic.endswith("-topic") or NullKeyFilter(relaxed=True) in before:
                    yield node.topic


def aggregations(pipeline: Pipeline) -> tuple[Aggregation, ...]:
    """Return the count of a pipeline that does nothing but count records by a field, or by their key, which is text.

    Such a count can be recounted without Spark. For every other pipeline the result is empty: Spark recounts it.
    """
    topology = pipeline.topology
    match topology.subtopologies:
        case (upstream, downstream):
            pass
        case _:
            return ()
    match upstream.sources, upstream.operations, downstream.operations:
        case (
            (Source(value=serde, key_serde=String(), timestamp=None),),
            (NullKeyFilter(),),
            (Count(store=store, window=None),),
        ):
            if serde is None:
                return ()
            name = None
        case (
            (Source(value=serde, key_serde=String(), timestamp=None),),
            (KeySelect(key=key, key_serde=String()), NullKeyFilter()),
            (Count(store=store, window=None),),
        ):
            if serde is None or not isinstance(key, str) or not is_key_field(serde, key):
                return ()
            name = key
        case _:
            return ()
    if len(upstream.sinks) != 1 or upstream.sink_topics != downstream.source_topics or downstream.sinks:
        return ()
    source = topology.decorate(upstream.source_topics[0])
    return (
        Aggregation(
            application_id=topology.application_id,
            subtopology=upstream.id,
            source=source,
            serde=serde,
            field=name,
            repartition=topology.decorate(downstream.source_topics[0]),
            store=store,
            changelog=topology.changelog_topic(store),
            dead_letters=topology.dead_letter_topic,
            exactly_once=True,
            left_out=frozenset(record[1:] for record in records_left_out() if record.topic == source),
        ),
    )
