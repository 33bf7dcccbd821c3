"""What an application has left in Kafka and in its checkpoints, as far as this machine sees it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from streamplan.checks.discovery.discover import own_topics
from streamplan.errors import BrokersUnavailable, StreamplanError
from streamplan.kafka.application_state import ApplicationState, observe_application
from streamplan.kafka_port import Cluster
from streamplan.kafka_types import TopicPartition
from streamplan.model.committed_positions import CommittedPosition
from streamplan.model.generation import PositionMetadata
from streamplan.model.group_member import Member
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import Subtopology
from streamplan.model.start_point import STORE, CheckpointState, KafkaState
from streamplan.model.topics import ObservedTopic, resolve_replication_factor, temporary_topic
from streamplan.spark.state.checkpoint_files import StoredCheckpoint, read_checkpoints
from streamplan.spark.state.checkpoint_name import checkpoints_location

TopicIds = Mapping[str, str]


@dataclass(frozen=True)
class Deployed:
    """What there is of an application.

    Attributes:
        topics: The topics that exist: those that are declared, and the internal topics that are not declared any more.
        records: By left-over internal topic the offsets from its beginning to its end.
        unread: By left-over internal topic that was read the offsets from the committed positions to its end.
        topic_ids: The ids of the source topics that exist.
        temporary: The topics of a repartition that is under way.
        replication_factor: The replicas of a topic that is created.
        members: The members of the consumer group; None where they cannot be seen.
        state: What the topics and the group hold. A declared topic that does not exist is taken for empty.
        checkpoints: The complete checkpoints that this machine sees, the one that was used last first.
        location: Where they are.
        unreadable: Why the checkpoints cannot be read; empty where they can.
    """

    topics: Mapping[str, ObservedTopic]
    records: Mapping[str, int]
    unread: Mapping[str, int]
    topic_ids: TopicIds
    temporary: Collection[str]
    replication_factor: int
    members: Sequence[Member] | None
    state: ApplicationState
    checkpoints: Sequence[StoredCheckpoint]
    location: str
    unreadable: str = ""

    @property
    def is_running(self) -> bool:
        """Whether one of our aggregators runs."""
        return any(member.instance is not None for member in self.members or ())

    @cached_property
    def held(self) -> Mapping[str, str]:
        """By store what it holds, as the checkpoints say that the committed positions name."""
        return _held(self.checkpoints, self.state.committed)

    def has_checkpoint(self, subtopology: Subtopology, reads: Collection[str]) -> bool:
        """Return whether the checkpoint of a sub-topology that was used last has read these topics."""
        newest = next((each for each in self.checkpoints if each.name.subtopology == subtopology.id), None)
        return newest is not None and newest.has_read(reads)

    def checkpoint_of(self, subtopology: Subtopology, kafka: KafkaState) -> CheckpointState | None:
        """Return what the checkpoint says that Kafka names for a sub-topology; None where it is not there.

        An aggregator that runs moves positions and checkpoint. One that has ended leaves them at the same place.
        """
        for each in self.checkpoints if kafka.checkpoint else ():
            if (each.name.subtopology, each.name.id) == (subtopology.id, kafka.checkpoint):
                if not self.is_running or each.state.corruption:
                    return each.state
                last = max(kafka.batches.values(), default=each.state.batch)
                return replace(each.state, committed=kafka.positions, planned=kafka.positions, batch=last)
        return None


def held_stores(
    checkpoints: str, application_id: str, committed: Mapping[TopicPartition, CommittedPosition]
) -> Mapping[str, str]:
    """Return by store what an application holds, as far as its checkpoints can be read from here.

    Args:
        checkpoints: The directory of all applications' checkpoints, a path or a URI.
        committed: Its positions, which name its checkpoints.

    Raises:
        BrokersUnavailable: The brokers did not answer.
    """
    stored, _ = _readable(checkpoints, application_id)
    return _held(stored, committed)


def _readable(checkpoints: str, application_id: str) -> tuple[Sequence[StoredCheckpoint], str]:
    """Read the checkpoints of an application; return none, and the reason, where they cannot be read from here."""
    try:
        return read_checkpoints(checkpoints, application_id), ""
    except BrokersUnavailable:
        raise
    except StreamplanError as error:
        return (), str(error)


def _held(
    checkpoints: Sequence[StoredCheckpoint], committed: Mapping[TopicPartition, CommittedPosition]
) -> Mapping[str, str]:
    parsed = [PositionMetadata.parse(position.metadata) for position in committed.values()]
    named = {metadata.checkpoint for metadata in parsed if metadata is not None and metadata.checkpoint}
    return {
        name.removeprefix(STORE): operation
        for checkpoint in reversed(checkpoints)
        if checkpoint.name.id in named
        for name, operation in checkpoint.state.identity.items()
        if name.startswith(STORE)
    }


def observe_deployed(pipeline: Pipeline, cluster: Cluster, checkpoints: str) -> Deployed:
    """Look at what there is of an application. Changes nothing.

    Args:
        pipeline: The pipeline, with the partition counts of the external topics.
        checkpoints: The directory of all applications' checkpoints, a path or a URI.

    Raises:
        BrokersUnavailable: The brokers did not answer.
    """
    application_id = pipeline.topology.application_id
    stored, unreadable = _readable(checkpoints, application_id)  # before the positions: they are never behind it
    specs = {spec.name: spec for spec in pipeline.topics()}
    temporary = {temporary_topic(spec).name for spec in pipeline.internal_topics()}
    committed = cluster.committed_positions(application_id)
    names = cluster.names()
    own = own_topics(application_id, names, cluster.groups(), {topic for topic, _ in committed})
    left_over = {*own} - specs.keys() - temporary
    topics = cluster.topics([*specs, *left_over])

    def position(topic: str, number: int) -> int:
        found = committed.get((topic, number))
        return 0 if found is None else found.offset

    missing = {name: spec.partitions for name, spec in specs.items() if name not in topics}
    left = {name: cluster.offsets(name) for name in sorted(left_over)}
    read = {topic for group in pipeline.topology.subtopologies for topic in pipeline.source_topics(group)}
    return Deployed(
        topics,
        {name: sum(at.high_watermark - at.log_start for at in offsets.values()) for name, offsets in left.items()},
        {
            name: sum(at.high_watermark - max(at.log_start, position(name, number)) for number, at in offsets.items())
            for name, offsets in left.items()
            if any((name, number) in committed for number in offsets)
        },
        cluster.topic_ids(sorted(read & topics.keys())) if read & topics.keys() else {},
        sorted(temporary & {*names}),
        resolve_replication_factor(len(cluster.broker_ids())),
        cluster.members(application_id),
        observe_application(pipeline, cluster, committed, missing=missing),
        stored,
        checkpoints_location(checkpoints, application_id),
        unreadable,
    )
