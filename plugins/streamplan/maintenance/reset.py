"""A reset: observed, refused while the application runs, and applied. A run that died halfway can be repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from streamplan.checks.framework.active_application import application_still_running
from streamplan.errors import Refused
from streamplan.files import ReportPaths
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.groups import delete_group, fence
from streamplan.kafka.topics import apply_topics, delete_topics, refuse_unfinished_repartition, resolve_pipeline
from streamplan.kafka_port import Cluster
from streamplan.maintenance.require_stopped import require_stopped
from streamplan.maintenance.reset_plan import ResetPlan
from streamplan.model.committed_positions import latest_generation
from streamplan.model.pipeline import Pipeline
from streamplan.model.topics import INTERNAL_ROLES
from streamplan.reports.results import state_files
from streamplan.reports.sink_offsets import record_reset
from streamplan.settings import Settings
from streamplan.spark.state import checkpoint_files as checkpoints
from streamplan.spark.state.checkpoint_name import checkpoints_location


def plan_reset(
    pipeline: Pipeline,
    brokers: Brokers,
    settings: Settings,
    *,
    report: Callable[[str], None] = lambda line: None,
    runs: Sequence[str] = (),
) -> ResetPlan:
    """Plan what a reset would delete now. Changes nothing.

    Args:
        pipeline: The pipeline.
        brokers: The brokers.
        settings: The deployment's directories.
        report: Is told what is waited for.
        runs: Active runs of DAGs that work on the application.

    Raises:
        Refused: The application runs, a repartition is under way, or a topic of others does not exist.
        BrokersUnavailable: The brokers did not answer.
    """
    pipeline = resolve_pipeline(pipeline, brokers)
    require_stopped(pipeline, brokers, settings, action="the reset", report=report, runs=runs)
    refuse_unfinished_repartition(brokers, pipeline)
    cluster = KafkaCluster(brokers)
    application_id = pipeline.topology.application_id
    existing = cluster.topics([spec.name for spec in pipeline.internal_topics()])
    positions = cluster.committed_offsets(application_id)
    place = checkpoints_location(settings.checkpoints, application_id)
    runs_instead = application_still_running(pipeline, cluster)
    if runs_instead is not None:
        _refuse_halfway(pipeline, runs_instead, cluster)
    staging = cluster.topics([*pipeline.staging_topics.values()]) if runs_instead is not None else {}
    # The files say what is known of the application that runs.
    files = state_files(settings.reports, pipeline.name) if runs_instead is None else ()
    return ResetPlan(
        pipeline=pipeline.name,
        application_id=application_id,
        topics=_records(cluster, existing),
        positions={
            f"{topic}-{partition}": offset
            for topic, partitions in positions.items()
            for partition, offset in partitions.items()
        },
        checkpoints=place if checkpoints.exists(settings.checkpoints, application_id) else "",
        files=tuple(str(path.relative_to(settings.reports)) for path in files),
        kept=tuple(spec.name for spec in pipeline.topics() if spec.role not in INTERNAL_ROLES),
        staging=_records(cluster, staging),
        runs_instead=runs_instead or "",
    )


def _refuse_halfway(pipeline: Pipeline, old: str, cluster: Cluster) -> None:
    latest = latest_generation(cluster.committed_positions(old).values())
    if latest is not None and latest.is_beside:
        raise Refused(
            f"the reset of {pipeline.name}",
            expected=f"that either {old} or {pipeline.topology.application_id} writes the outputs",
            observed="that neither does, because a switch has stopped halfway",
            remedy=f"Run {pipeline.name}_upgrade, or `python -m streamplan upgrade {pipeline.name} switch`, which "
            "completes it. Nothing was changed.",
        )


def _records(cluster: Cluster, topics: Iterable[str]) -> Mapping[str, int]:
    """By topic the offsets from its beginning to its end."""
    return {
        topic: sum(offsets.high_watermark - offsets.log_start for offsets in cluster.offsets(topic).values())
        for topic in sorted(topics)
    }


def apply_reset(
    pipeline: Pipeline,
    brokers: Brokers,
    settings: Settings,
    approved: ResetPlan,
    *,
    report: Callable[[str], None],
    runs: Sequence[str] = (),
) -> None:
    """Delete what was approved, and create the internal topics again.

    The order makes an aggregator refuse that is started in between: first it finds a checkpoint without positions, then
    no topics. Nothing is deleted when there is more to delete than was approved.

    Args:
        pipeline: The pipeline.
        brokers: The brokers.
        settings: The deployment's directories.
        approved: The plan that a person approved.
        report: Is told each step.
        runs: Active runs of DAGs that work on the application.

    Raises:
        Refused: There is more to delete than was approved, or :func:`plan_reset` refuses.
        StreamplanError: The brokers or the checkpoints' file system did not answer.
    """
    pipeline = resolve_pipeline(pipeline, brokers)
    plan = plan_reset(pipeline, brokers, settings, report=report, runs=runs)
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
    report(f"group {application_id}: its positions are deleted")
    # From here on no aggregator starts before the reset is complete.
    paths = ReportPaths(settings.reports, pipeline.name)
    if not plan.runs_instead:  # else what is in the sinks is of the application that runs
        for topic, ends in record_reset(paths.sink_offsets, pipeline, KafkaCluster(brokers)).items():
            report(f"{topic}: left alone; the records of the next run begin at {dict(ends)}")
    delete_topics(brokers, [*plan.topics, *plan.staging])
    report(f"deleted {', '.join([*plan.topics, *plan.staging]) or 'no topic'}")
    checkpoints.delete(settings.checkpoints, application_id)
    report(f"checkpoints: none in {checkpoints_location(settings.checkpoints, application_id)}")
    for name in plan.files:
        Path(settings.reports, name).unlink(missing_ok=True)
    apply_topics(brokers, pipeline, report=report)
    if plan.runs_instead:
        report(f"{application_id} is reset, and {plan.runs_instead} goes on: nothing of an upgrade is left")
        return
    report(f"{pipeline.name} is reset: the next start of its aggregator reads the input from the beginning")
