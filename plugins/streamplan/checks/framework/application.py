"""What the checks know of a Kafka Streams application: its topics, and how they belong together.

From a declaration by :func:`application_of`; from what any application left in Kafka by ``checks.discovery``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from streamplan.checks.framework.cluster import Record
from streamplan.model.copartitioning import copartition_groups
from streamplan.model.operations import Count, KeySelect, NullKeyFilter
from streamplan.model.partitioner import partition_for_key
from streamplan.model.pipeline import Limits, Pipeline
from streamplan.model.processor_topology import Source
from streamplan.model.topics import TopicRole, TopicSpec
from streamplan.model.windows import without_suffix
from streamplan.serdes.serde import Serde, Undecodable, is_key_field, key_of, label_of

Partitioner = Callable[[bytes, int], int]
"""The partition of a key among so many partitions."""


@dataclass(frozen=True)
class SubtopologyTopics:
    """The stream tasks of a sub-topology: what they read, and the changelogs of their stores. Names are those in Kafka.

    ``sources`` are co-partitioned where ``joined``; else each is read for itself. ``id``: of the sub-topology, in the
    names of its tasks; None where it is not known.
    """

    name: str
    sources: tuple[str, ...]
    changelogs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    id: int | None = None


@dataclass(frozen=True)
class Aggregation:
    """A count, from the topic it begins with to its changelog. Names are those in Kafka.

    ``field``         of the value, by which it is counted; None for the record's key
    ``dead_letters``  None where the application has none: what cannot be counted then goes without a trace
    ``exactly_once``  whether it writes in transactions; None: as its topics show
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

    def label(self, key: bytes) -> str:
        """``orders-products-quantities[0] Jackets``."""
        text = key.decode("utf-8", "backslashreplace")
        label = label_of(self.serde, self.field, text) if self.serde else ""
        return f"{self.store}[{text}] {label}".rstrip()

    def key_of(self, record: Record) -> bytes:
        """The key that a record of the source is counted by, or :class:`Undecodable`."""
        if self.serde is not None and self.field is not None:
            return key_of(self.serde, self.field, record.value)
        if self.serde is not None:
            self.serde.decode(record.value)
        if record.key is None:
            raise Undecodable("the key is null")
        return record.key


@dataclass(frozen=True)
class Application:
    """The subject of the checks.

    ``name``           under which results are kept
    ``topics``         with what is expected of each
    ``groups``         sets of topics that are joined with each other
    ``aggregations``   the counts that can be recounted without an engine
    ``declared``       whether all that is expected was declared, or derived from what lies in Kafka
    ``partitioners``   of topics whose keys are not placed by murmur2
    ``notes``          what could not be found out, for people
    """

    name: str
    application_id: str
    topics: tuple[TopicSpec, ...]
    tasks: tuple[SubtopologyTopics, ...]
    groups: tuple[frozenset[str], ...]
    aggregations: tuple[Aggregation, ...]
    declared: bool
    limits: Limits = field(default_factory=Limits)
    partitioners: Mapping[str, Partitioner] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def with_role(self, *roles: TopicRole) -> tuple[TopicSpec, ...]:
        return tuple(spec for spec in self.topics if spec.role in roles)

    @property
    def keyed(self) -> tuple[TopicSpec, ...]:
        """Topics whose partition counts and placement must agree with others: the co-partitioning check's."""
        joined = {topic for group in self.groups for topic in group}
        internal = (TopicRole.REPARTITION, TopicRole.CHANGELOG)
        return tuple(spec for spec in self.topics if spec.role in internal or spec.name in joined)

    def without_bounds(self) -> Application:
        """The same, with every record to be looked at."""
        return replace(self, limits=replace(self.limits, scanned_records=sys.maxsize))

    def partition_of(self, spec: TopicSpec, key: bytes, partitions: int) -> int:
        """Where a record of that topic belongs."""
        partitioner = self.partitioners.get(spec.name, partition_for_key)
        return partitioner(without_suffix(key, spec.window_bytes), partitions)


def application_of(pipeline: Pipeline) -> Application:
    """A declared pipeline."""
    topology = pipeline.topology
    return Application(
        name=pipeline.name,
        application_id=topology.application_id,
        topics=pipeline.topics(),
        tasks=tuple(
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
    )


def aggregations(pipeline: Pipeline) -> tuple[Aggregation, ...]:
    """The one count of a pipeline that does nothing but count records by a field, or by their key.

    It can be recounted without an engine. Empty for every other pipeline: those are recounted by Spark.
    """
    topology = pipeline.topology
    match topology.subtopologies:
        case (upstream, downstream):
            pass
        case _:
            return ()
    match upstream.sources, upstream.operations, downstream.operations:
        case (Source(value=serde),), (NullKeyFilter(),), (Count(store=store, window=None),):
            if serde is None:
                return ()
            name = None
        case (Source(value=serde),), (KeySelect(key=key), NullKeyFilter()), (Count(store=store, window=None),):
            if serde is None or not is_key_field(serde, key):
                return ()
            name = key
        case _:
            return ()
    if len(upstream.sinks) != 1 or upstream.sink_topics != downstream.source_topics or downstream.sinks:
        return ()
    return (
        Aggregation(
            application_id=topology.application_id,
            subtopology=upstream.id,
            source=topology.decorate(upstream.source_topics[0]),
            serde=serde,
            field=name,
            repartition=topology.decorate(downstream.source_topics[0]),
            store=store,
            changelog=topology.changelog_topic(store),
            dead_letters=topology.dead_letter_topic,
            exactly_once=True,
        ),
    )
