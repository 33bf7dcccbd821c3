"""A reset: observed, refused while the application runs, applied. Doing it again after it died halfway is right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from streamplan.errors import Refused
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.groups import delete_group, fence
from streamplan.kafka.topics import apply_topics, delete_topics, refuse_unfinished_move
from streamplan.maintenance.require_stopped import WATCHED_SECONDS, require_rest
from streamplan.maintenance.reset_plan import ResetPlan
from streamplan.model.pipeline import Pipeline
from streamplan.model.topics import INTERNAL_ROLES
from streamplan.reports.results import state_files
from streamplan.settings import Settings
from streamplan.spark.state import checkpoint_files as checkpoints
from streamplan.spark.state.offset_log import checkpoint_location


def observe_reset(
    pipeline: Pipeline,
    brokers: Brokers,
    settings: Settings,
    *,
    runs: Sequence[str] = (),
    watched_seconds: float = WATCHED_SECONDS,
) -> ResetPlan:
    """What a reset would delete now. Raises :class:`Refused` while the application runs; changes nothing.

    ``runs``  active runs of DAGs that work on the application
    """
    require_rest(pipeline, brokers, settings, what="the reset", runs=runs, watched_seconds=watched_seconds)
    refuse_unfinished_move(brokers, pipeline)
    cluster = KafkaCluster(brokers)
    application_id = pipeline.topology.application_id
    there = cluster.topics([spec.name for spec in pipeline.internal_topics()])
    positions = cluster.committed_offsets(application_id)
    place = checkpoint_location(settings.checkpoints, application_id)
    return ResetPlan(
        pipeline=pipeline.name,
        application_id=application_id,
        topics={
            topic: sum(found.high_watermark - found.log_start for found in cluster.offsets(topic).values())
            for topic in sorted(there)
        },
        positions={
            f"{topic}-{partition}": offset
            for topic, partitions in positions.items()
            for partition, offset in partitions.items()
        },
        checkpoints=place if checkpoints.exists(settings.checkpoints, application_id) else "",
        files=tuple(str(path.relative_to(settings.reports)) for path in state_files(settings.reports, pipeline.name)),
        kept=tuple(spec.name for spec in pipeline.topics() if spec.role not in INTERNAL_ROLES),
    )


def apply_reset(
    pipeline: Pipeline,
    brokers: Brokers,
    settings: Settings,
    approved: ResetPlan,
    *,
    say: Callable[[str], None],
    runs: Sequence[str] = (),
    watched_seconds: float = WATCHED_SECONDS,
) -> None:
    """Delete what was approved, and create the internal topics again.

    In this order an aggregator that is started in between refuses: first there are no positions beside a checkpoint,
    then no topics. Nothing is deleted when there is more than was approved.
    """
    plan = observe_reset(pipeline, brokers, settings, runs=runs, watched_seconds=watched_seconds)
    if more := plan.more_than(approved):
        raise Refused(
            f"the reset of {pipeline.name}",
            expected="no more to delete than was approved",
            observed="; ".join(more),
            remedy="The application has run since. Nothing was deleted: look at a new plan.",
        )
    application_id = plan.application_id
    fence(brokers, application_id, pipeline.tasks())
    delete_group(brokers, application_id)
    say(f"group {application_id}: its positions are deleted")
    delete_topics(brokers, list(plan.topics))
    say(f"deleted {', '.join(plan.topics) or 'no topic'}")
    checkpoints.delete(settings.checkpoints, application_id)
    say(f"checkpoints: none in {checkpoint_location(settings.checkpoints, application_id)}")
    for name in plan.files:
        Path(settings.reports, name).unlink(missing_ok=True)
    apply_topics(brokers, pipeline, show=say)
    say(f"{pipeline.name} is reset: the next start of its aggregator reads the input from the beginning")
