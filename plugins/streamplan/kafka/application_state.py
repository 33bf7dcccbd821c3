"""What Kafka has of an application before one of its aggregators starts.

The start of an aggregator and the plan of a changed declaration look at the same facts, so both decide alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamplan.kafka_port import Cluster
from streamplan.kafka_types import TopicPartition
from streamplan.model.committed_positions import CommittedPosition, Extent, ResolvedPositions, SubtopologyInput
from streamplan.model.generation import Generation, named_checkpoint
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import Subtopology
from streamplan.model.start_point import KafkaState, OffsetMap


@dataclass(frozen=True)
class ApplicationState:
    """What Kafka has of an application at one moment.

    Attributes:
        pipeline: The declaration.
        extents: By topic and partition what the source topics and the internal topics hold.
        committed: The positions of the group.
        starts: Where a new sub-topology begins in streams from outside; those that begin at their first offset, or are
            read already, are left out.
    """

    pipeline: Pipeline
    extents: Mapping[str, Mapping[int, Extent]]
    committed: Mapping[TopicPartition, CommittedPosition]
    starts: OffsetMap

    def input_of(self, subtopology: Subtopology, *, has_checkpoint: bool) -> SubtopologyInput:
        """Return what is known of a sub-topology before it starts.

        Args:
            subtopology: One of the sub-topologies.
            has_checkpoint: Whether there is a checkpoint that has read what the sub-topology reads.
        """
        topology = self.pipeline.topology
        internal = {spec.name for spec in self.pipeline.internal_topics()} - {topology.dead_letter_topic}
        written = {topology.changelog_topic(store) for store in subtopology.stores}
        written |= {topology.decorate(topic) for topic in subtopology.sink_topics}
        reads = self.pipeline.source_topics(subtopology)
        return SubtopologyInput(
            subtopology.id,
            {(topic, number): extent for topic in reads for number, extent in self.extents[topic].items()},
            sum(self.offsets_of(topic) for topic in written & internal),
            has_checkpoint,
            {place: offset for place, offset in self.starts.items() if place[0] in reads},
        )

    def kafka_state(self, subtopology: Subtopology, resolved: ResolvedPositions, generation: Generation) -> KafkaState:
        """Return what Kafka has of a sub-topology.

        Args:
            subtopology: One of the sub-topologies.
            resolved: Where it begins.
            generation: The generation that claims it.
        """
        return KafkaState(
            resolved.offsets,
            {(topic, number): self.extents[topic][number].log_start for topic, number in resolved.offsets},
            sum(self.offsets_of(self.pipeline.topology.changelog_topic(store)) for store in subtopology.stores),
            named_checkpoint(resolved.metadata.values()),
            {place: metadata.batch for place, metadata in resolved.metadata.items() if metadata.batch is not None},
            {place: metadata.start for place, metadata in resolved.claimed(generation).items()},
            {place: metadata.time for place, metadata in resolved.metadata.items() if metadata.time is not None},
        )

    def offsets_of(self, topic: str) -> int:
        """Return how many offsets a topic was ever given."""
        return sum(extent.end for extent in self.extents[topic].values())


def observe_application(
    pipeline: Pipeline,
    cluster: Cluster,
    committed: Mapping[TopicPartition, CommittedPosition],
    *,
    missing: Mapping[str, int] | None = None,
) -> ApplicationState:
    """Observe what the topics of an application hold.

    Args:
        pipeline: The declaration.
        committed: The positions of the group.
        missing: Topics that do not exist yet, with the number of their partitions. They are taken for empty.

    Raises:
        CouldNotLook: Another topic does not exist.
    """
    missing = missing or {}
    topics = {topic for group in pipeline.topology.subtopologies for topic in pipeline.source_topics(group)}
    topics |= {spec.name for spec in pipeline.internal_topics()}
    extents = {
        topic: {
            number: Extent(offsets.log_start, offsets.high_watermark)
            for number, offsets in cluster.offsets(topic).items()
        }
        if topic not in missing
        else dict.fromkeys(range(missing[topic]), Extent(0, 0))
        for topic in sorted(topics)
    }
    begun = {topic for topic, _ in committed}
    starts = {
        (topic, partition): offset
        for group in pipeline.topology.subtopologies
        for topic in sorted(_streams_from_outside(pipeline, group) - missing.keys())
        if not pipeline.start_moment.is_earliest and begun.isdisjoint(_streams_from_outside(pipeline, group))
        for partition, offset in cluster.offsets_since(topic, pipeline.start_moment.timestamp_ms()).items()
    }
    return ApplicationState(pipeline, extents, committed, starts)


def _streams_from_outside(pipeline: Pipeline, subtopology: Subtopology) -> set[str]:
    return {*pipeline.topology.source_topics} & {*pipeline.source_topics(subtopology)} - pipeline.tables
