"""Deletes the records of a pipeline's repartition topics that are counted and verified."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamplan.checks.framework.application import aggregations
from streamplan.files import ReportPaths
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.task_ownership import checkpoint_in_use
from streamplan.kafka.topics import delete_records, resolve_pipeline
from streamplan.maintenance.purge_plan import Positions, plan_purge
from streamplan.model.pipeline import Pipeline
from streamplan.reports.verified_sqlite import SqliteVerifiedStore
from streamplan.settings import Settings
from streamplan.spark.state import checkpoint_files as checkpoints


@dataclass(frozen=True)
class Purged:
    """What a purge has deleted.

    Attributes:
        until: By topic and partition the offset below which records were deleted.
        why_nothing: The reason, where nothing was deleted.
    """

    until: Mapping[str, Mapping[int, int]]
    why_nothing: str = ""

    @property
    def line(self) -> str:
        """What was done, in one line."""
        if not self.until:
            return f"nothing to purge: {self.why_nothing}"
        listed = [
            f"{topic}-{partition} up to offset {offset:,}"
            for topic, partitions in self.until.items()
            for partition, offset in sorted(partitions.items())
        ]
        return f"purged {', '.join(listed)}"


def purge(pipeline: Pipeline, brokers: Brokers, settings: Settings) -> Purged:
    """Delete the records of repartition topics that nobody needs any more.

    A record is needed by the aggregator until its offset is committed; by an aggregator that restarts until Spark has
    finished the micro-batch (one whose transactions are committed is read again when Spark dies before it notes that);
    and by the totals check until a cut past it is verified.

    Args:
        settings: The deployment's directories.

    Raises:
        Refused: An external topic that the pipeline reads does not exist.
        BrokersUnavailable: The brokers did not answer.
    """
    if not pipeline.purge:
        return Purged({}, f"{pipeline.name} is declared with purge=False")
    counts = aggregations(pipeline)
    if not counts:
        return Purged({}, f"the totals of {pipeline.name} are recounted from all records of its repartition topics")
    pipeline = resolve_pipeline(pipeline, brokers)
    cluster = KafkaCluster(brokers)
    verified = SqliteVerifiedStore(ReportPaths(settings.reports, pipeline.name).verified_store).cut()
    purged: dict[str, Mapping[int, int]] = {}
    for count in counts:
        topic, group = count.repartition, count.application_id
        if verified is None or verified.topic_ids.get(topic) != cluster.topic_ids([topic])[topic]:
            return Purged({}, f"no cut of {topic} is verified")
        needed: list[Positions] = [verified.repartition, cluster.positions(group, topic)]
        reader = next(each for each in pipeline.topology.subtopologies if topic in pipeline.source_topics(each))
        in_use = checkpoint_in_use(pipeline, brokers, reader)
        by_spark = checkpoints.committed_offsets(settings.checkpoints, group, reader.id, in_use)
        if by_spark is not None and topic in by_spark:  # not where it is linked with the one that writes the topic
            needed.append(by_spark[topic])
        starts = {partition: offsets.log_start for partition, offsets in cluster.offsets(topic).items()}
        if until := plan_purge(starts, needed):
            delete_records(brokers, topic, until)
            purged[topic] = until
    return Purged(purged, "all that is verified is purged already")
