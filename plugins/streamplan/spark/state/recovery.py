"""The checkpoint at which a query begins: the one there is, or one made from what is in Kafka."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import SparkSession

from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.task_ownership import Claimed
from streamplan.model.processor_topology import Subtopology
from streamplan.model.start_point import STORES, Start, resolve_start
from streamplan.serdes.serde import Serde
from streamplan.spark.query import Deployment, Query
from streamplan.spark.state.checkpoint import Checkpoint
from streamplan.spark.state.restore import restore


def identity_of(deployment: Deployment, subtopology: Subtopology) -> dict[str, str]:
    """What the checkpoint of a sub-topology says of itself. Raises :class:`CouldNotLook`."""
    pipeline = deployment.pipeline
    cluster = KafkaCluster(deployment.bootstrap_servers)
    topics = pipeline.source_topics(subtopology)
    ids = cluster.topic_ids(topics)
    stores = [(node.store, node.operation) for node in subtopology.processors if node.writes_store]
    return {
        "application": pipeline.topology.application_id,
        "sub-topology": str(subtopology.id),
        "topics": ", ".join(
            f"{topic} ({pipeline.partition_counts[topic]} partitions, {ids[topic]})" for topic in topics
        ),
        STORES: "; ".join(f"{store}: {operation}" for store, operation in stores),
    }


def prepare_checkpoint(
    spark: SparkSession,
    deployment: Deployment,
    schemas: Mapping[str, Serde],
    claimed: Claimed,
    query: Query,
    report: Callable[[str], None],
) -> Checkpoint:
    """The checkpoint at which the query begins: the one there is, or one made from what is in Kafka."""
    subtopology = query.subtopology
    what = f"sub-topology {subtopology.id}"
    checkpoint = deployment.checkpoint(spark, subtopology)
    identity = identity_of(deployment, subtopology)
    committed = claimed.committed[subtopology.id]
    view = checkpoint.view(query.topics)
    decision = resolve_start(what, view, identity, committed, stateful=bool(subtopology.stores))
    if decision.start is Start.CHECKPOINT:
        return checkpoint
    if decision.reason:
        instead = "its changelog topics" if decision.start is Start.RESTORE else "the committed positions"
        report(f"{what} begins with {instead}, for {decision.reason}")
    aside = checkpoint.set_aside()
    if decision.reason and aside:
        report(f"{what}: the old checkpoint lies in {aside}")
    if decision.start is Start.RESTORE:
        restored = restore(
            spark,
            deployment.pipeline,
            subtopology,
            schemas,
            bootstrap_servers=deployment.bootstrap_servers,
            checkpoint=checkpoint,
            report=report,
        )
        checkpoint.go_on_at(committed.positions, query.topics)
        report(f"{what}: restored {restored.rows:,} rows in {restored.seconds:.1f} s")
    else:
        checkpoint.begin_at(committed.positions, query.topics)
    checkpoint.identify(identity)
    return checkpoint
