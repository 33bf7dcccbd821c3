"""Whether a repartition of a pipeline would lose records."""

from __future__ import annotations

from collections.abc import Mapping

from streamplan.errors import Refused
from streamplan.kafka.cluster import KafkaCluster, unprocessed
from streamplan.model.pipeline import Pipeline
from streamplan.model.stages import stage_of
from streamplan.model.topics import TopicRole, words


def require_movable(
    pipeline: Pipeline, cluster: KafkaCluster, counts: Mapping[str, int], *, copied: Mapping[str, object]
) -> None:
    """Refuse a repartition that would lose records.

    Args:
        counts: The number of partitions of each topic that exists.
        copied: The topics in which the ledger has offsets of an earlier run.

    Raises:
        Refused: A topic is missing, records were deleted or not processed, a new topic holds other records, or state
            is judged by the time of stream tasks whose keys would be others.
    """
    internal = [spec.name for spec in pipeline.internal_topics()]
    missing = [topic for topic in (*pipeline.repartition_from.values(), *internal) if topic not in counts]
    if missing:
        raise Refused(
            f"topic {', '.join(missing)}",
            expected="exists",
            observed="missing",
            remedy="There is nothing to move from. Where the application never ran, leave repartition_from out and run "
            f"{pipeline.name}_deploy.",
        )
    _require_no_task_time(pipeline, counts)
    for new, old in pipeline.repartition_from.items():
        _require_all_records(cluster, old)
        _require_read_from_the_beginning(pipeline, cluster, old)
        if (
            new in counts
            and old not in copied
            and any(offsets.high_watermark for offsets in cluster.offsets(new).values())
        ):
            raise Refused(
                f"topic {new}",
                expected="missing or empty, to take the records of " + old,
                observed="records that were not moved there",
                remedy=f"Stop whoever writes to {new}, and name another topic or delete this one.",
            )
    _require_processed(pipeline, cluster)


def _require_no_task_time(pipeline: Pipeline, counts: Mapping[str, int]) -> None:
    """Refuse other partitions for a sub-topology whose state is judged by the time of its stream task.

    Each stream task has a time of its own, and a key that comes to another task comes to another time. A window that is
    open would be closed there, and its result never passed; a window that is closed would be open, and its result
    passed again. Neither the changelog nor the positions say of a key what was passed.
    """
    timed: list[str] = []
    for subtopology in pipeline.topology.subtopologies:
        if any(
            counts[pipeline.repartition_from.get(topic, topic)] != pipeline.partition_counts[topic]
            for topic in pipeline.source_topics(subtopology)
        ):
            timed += [f"{name} ({decided})" for name, decided in stage_of(subtopology).judged_by_time.items()]
    if timed:
        old = ", ".join(pipeline.repartition_from.values())
        raise Refused(
            f"another number of partitions for {pipeline.name}",
            expected="no state that is judged by the time of its stream task",
            observed=", ".join(timed),
            remedy="A key that comes to another stream task comes to another time there. So results would be lost or "
            "passed twice, and stored records would be forgotten too early. Start again: declare another pipeline with "
            f"another application id and other output topics, that reads {old} from the beginning. It gets more stream "
            "tasks by repartition(number_of_partitions=…) before this operation. Let the consumers read its outputs "
            "when it has caught up. Nothing was changed.",
        )


def _require_all_records(cluster: KafkaCluster, topic: str) -> None:
    if "compact" in words(cluster.topics([topic])[topic].configs.get("cleanup.policy", "")):
        return  # the last value of each key is enough there
    gone = {
        f"{topic}-{number}": offsets.log_start
        for number, offsets in cluster.offsets(topic).items()
        if offsets.log_start
    }
    if gone:
        raise Refused(
            f"the records of {topic}",
            expected="all of them, from offset 0",
            observed=", ".join(f"{partition} begins at offset {start}" for partition, start in gone.items()),
            remedy="What was deleted has been counted and would be missing in the new topic: its totals could never be "
            "recounted again. Start again on the new topic, with a pipeline of its own.",
        )


def _require_read_from_the_beginning(pipeline: Pipeline, cluster: KafkaCluster, topic: str) -> None:
    starts = cluster.starts(pipeline.topology.application_id, topic)
    begun = {f"{topic}-{number}": start for number, start in sorted(starts.items()) if start}
    if begun:
        raise Refused(
            f"the records of {topic}",
            expected="all of them counted",
            observed=", ".join(f"{partition} counted from offset {start} on" for partition, start in begun.items()),
            remedy="The new topic would hold records that were never counted beside those that were. Start again on "
            "the new topic with a pipeline of its own.",
        )


def _require_processed(pipeline: Pipeline, cluster: KafkaCluster) -> None:
    group = pipeline.topology.application_id
    repartition = [spec.name for spec in pipeline.internal_topics() if spec.role is TopicRole.REPARTITION]
    topics = (*pipeline.repartition_from.values(), *repartition)
    if left := unprocessed(cluster, {topic: cluster.positions(group, topic) for topic in topics}):
        raise Refused(
            f"the input of {pipeline.name}",
            expected=f"that group {group} has processed all of it",
            observed=", ".join(f"{count:,} records of {topic} are not processed" for topic, count in left.items()),
            remedy="Stop the producers, declare the pipeline as it was, run its aggregator until all is processed "
            "(lag 0), stop it, declare the move again, and run this again. Nothing was changed.",
        )
