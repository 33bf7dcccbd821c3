"""Prepares the checkpoint at which a query begins: the one there is, or one made from what is in Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.task_ownership import ClaimedTasks, TaskOwnership
from streamplan.model.checkpoint_identity import checkpoint_identity
from streamplan.model.linking import Link, linked_state
from streamplan.model.processor_topology import Subtopology
from streamplan.model.stages import repeats_its_state, stage_of
from streamplan.model.start_point import KafkaState, StartDecision, StartFrom, resolve_start
from streamplan.model.status import Restoration
from streamplan.serdes.serde import Serde
from streamplan.spark.deployment import Deployment
from streamplan.spark.state.checkpoint import Checkpoint, Checkpoints
from streamplan.spark.state.checkpoint_name import checkpoints_location
from streamplan.spark.state.restore import restore


def checkpoints_of(spark: SparkSession, deployment: Deployment) -> Checkpoints:
    """Return the application's checkpoints."""
    location = checkpoints_location(deployment.checkpoints, deployment.pipeline.topology.application_id)
    return Checkpoints(spark, location)


def identity_of(deployment: Deployment, subtopology: Subtopology) -> dict[str, str]:
    """Return the identity that a checkpoint of the sub-topology carries, see :func:`checkpoint_identity`.

    Raises:
        CouldNotLook: The brokers do not tell the topics' ids.
    """
    topics = deployment.pipeline.source_topics(subtopology)
    ids = KafkaCluster(deployment.brokers).topic_ids(topics)
    return checkpoint_identity(deployment.pipeline, subtopology, ids)


@dataclass(frozen=True)
class Beginning:
    """What the beginning of a query is decided by.

    Attributes:
        subtopology: Whose state its checkpoint has.
        topics: The topics of the query's sources, in the order of Spark's offset log.
        identity: That a checkpoint of the query has.
        committed: The positions in what it reads, and what the changelogs of its state hold.
        aggregates: See :func:`~streamplan.model.start_point.resolve_start`.
        subtopologies: Those that the query does. Their positions name its checkpoint.
        repeats: See :func:`~streamplan.model.start_point.resolve_start`.
    """

    subtopology: Subtopology
    topics: Sequence[str]
    identity: Mapping[str, str]
    committed: KafkaState
    aggregates: bool
    subtopologies: tuple[Subtopology, ...]
    repeats: bool = True

    @classmethod
    def of(
        cls, deployment: Deployment, claimed: ClaimedTasks, subtopology: Subtopology, topics: Sequence[str]
    ) -> Beginning:
        """Return that of the query of one sub-topology.

        Args:
            deployment: Where the pipeline runs.
            claimed: The committed positions, which no other aggregator can move.
            subtopology: The sub-topology.
            topics: See :class:`Beginning`.
        """
        identity, committed = identity_of(deployment, subtopology), claimed.committed[subtopology.id]
        aggregates, repeats = stage_of(subtopology).aggregates, repeats_its_state(subtopology)
        return cls(subtopology, topics, identity, committed, aggregates, (subtopology,), repeats)

    @classmethod
    def of_link(cls, deployment: Deployment, claimed: ClaimedTasks, link: Link, topics: Sequence[str]) -> Beginning:
        """Return that of the query of two linked sub-topologies.

        The second one is handed on all records of a micro-batch that runs again. So it is no matter that the first one
        has committed a part of it, unless it might make others (:attr:`Link.repeats`).

        Args:
            deployment: Where the pipeline runs.
            claimed: The committed positions, which no other aggregator can move.
            link: The two sub-topologies.
            topics: See :class:`Beginning`.
        """
        identity = link.identity(identity_of(deployment, link.writer), identity_of(deployment, link.reader))
        committed = linked_state(claimed.committed[link.writer.id], claimed.committed[link.reader.id])
        return cls(link.reader, topics, identity, committed, False, (link.writer, link.reader), link.repeats)

    def decision(self, found: Checkpoint | None) -> StartDecision:
        """Return where the query begins, see :func:`~streamplan.model.start_point.resolve_start`.

        Args:
            found: The checkpoint that the positions name; None where it is not there.
        """
        state = found.state(self.topics) if found and self.committed.checkpoint else None
        name = " and ".join(str(each.id) for each in self.subtopologies)
        return resolve_start(
            f"sub-topology {name}",
            state,
            self.identity,
            self.committed,
            aggregates=self.aggregates,
            repeats=self.repeats,
        )


def continue_linked(
    spark: SparkSession,
    deployment: Deployment,
    ownership: TaskOwnership,
    claimed: ClaimedTasks,
    apart: Beginning,
    linked: Beginning,
) -> Checkpoint | None:
    """Let the query of two linked sub-topologies go on with the state that the query of the second one has left.

    Args:
        spark: The session that will run the query.
        deployment: Where the pipeline runs.
        ownership: Of the application's stream tasks.
        claimed: The committed positions, which no other aggregator can move.
        apart: What the beginning of the second one alone would be decided by.
        linked: What the beginning of both is decided by.

    Returns:
        The checkpoint, which Kafka names; None where that state is not there, or does not belong to the positions.
    """
    checkpoints = checkpoints_of(spark, deployment)
    found = checkpoints.find(apart.subtopology.id, apart.committed.checkpoint)
    if found is None or apart.decision(found).start is not StartFrom.CHECKPOINT:
        return None  # a checkpoint of both is another's
    if found.last_planned() != found.last_committed():
        return None  # the micro-batch that is not finished reads the repartition topic
    checkpoint = checkpoints.take(found, claimed.generation.number)
    checkpoints.delete_left_over(checkpoint)
    checkpoint.continue_at(linked.committed.positions, linked.topics)
    checkpoint.complete(linked.identity)
    for named_by in linked.subtopologies:
        ownership.name_checkpoint(claimed, named_by.id, checkpoint.id)
    return checkpoint


def prepare_checkpoint(
    spark: SparkSession,
    deployment: Deployment,
    schemas: Mapping[str, Serde],
    ownership: TaskOwnership,
    claimed: ClaimedTasks,
    beginning: Beginning,
    report: Callable[[str], None],
    report_restoration: Callable[[int, Restoration], None],
) -> Checkpoint:
    """Return the checkpoint at which the query begins: the one that Kafka names, or a new one if that cannot be used.

    When this returns, Kafka names the checkpoint. A new one is complete by then.

    Args:
        spark: The session that will run the query.
        deployment: Where the pipeline runs.
        schemas: The serdes of the repartition topics.
        ownership: Of the application's stream tasks.
        claimed: The committed positions, which no other aggregator can move.
        beginning: What the beginning of the query is decided by.
        report: Is told why the checkpoint was not used, and how far a restoration is.
        report_restoration: Is told the latter, too, with the id of the sub-topology.

    Raises:
        Refused: See :func:`~streamplan.model.start_point.resolve_start`; or there is a newer aggregator.
        StreamplanError: The state could not be restored.
    """
    subtopology, committed, topics = beginning.subtopology, beginning.committed, beginning.topics
    name = f"sub-topology {subtopology.id}"
    checkpoints = checkpoints_of(spark, deployment)
    found = checkpoints.find(subtopology.id, committed.checkpoint)
    decision = beginning.decision(found)
    generation = claimed.generation.number
    if found and decision.start is StartFrom.CHECKPOINT:
        checkpoint = checkpoints.take(found, generation)
        checkpoints.delete_left_over(checkpoint)
        checkpoint.resume_ticks(topics, time.time_ns() // 1_000_000)
        return checkpoint
    if decision.reason:
        origin = "its changelog topics" if decision.start is StartFrom.RESTORE else "the committed positions"
        report(f"{name} begins with {origin}, because {decision.reason}")
    if found:
        aside = found.set_aside()
        if decision.reason:
            report(f"{name}: the old checkpoint is in {aside}")
    checkpoint = checkpoints.new(subtopology.id, generation)
    checkpoints.delete_left_over(checkpoint)  # also what earlier attempts to restore have left
    if decision.start is StartFrom.RESTORE:
        restored = restore(
            spark,
            deployment.pipeline,
            subtopology,
            schemas,
            brokers=deployment.brokers,
            checkpoint=checkpoint,
            times=committed.task_times,
            require_latest=ownership.require_latest,
            report=report,
            report_restoration=report_restoration,
        )
        checkpoint.continue_at(committed.positions, topics)
        report(f"{name}: restored {restored.rows:,} rows in {restored.seconds:.1f} s")
    else:
        checkpoint.begin_at(committed.positions, topics)
    checkpoint.complete(beginning.identity)
    for named_by in beginning.subtopologies:
        ownership.name_checkpoint(claimed, named_by.id, checkpoint.id)
    return checkpoint
