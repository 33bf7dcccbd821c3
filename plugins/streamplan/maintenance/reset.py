"""A reset: observed, refused while the application runs, and applied. A run that died halfway can be repeated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamplan.checks.framework.active_application import application_still_running
from streamplan.errors import Refused
from streamplan.files import ReportPaths
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.groups import delete_group, fence
from streamplan.kafka.topics import apply_topics, delete_topics, refuse_unfinished_repartition, resolve_pipeline
from streamplan.kafka_port import Cluster
from streamplan.maintenance.operation import Operation
from streamplan.maintenance.require_stopped import require_stopped
from streamplan.maintenance.reset_plan import RESET_ALONE, ResetPlan
from streamplan.model.committed_positions import latest_generation
from streamplan.model.pipeline import Pipeline
from streamplan.model.topics import INTERNAL_ROLES
from streamplan.reports.results import state_files
from streamplan.reports.sink_offsets import record_reset
from streamplan.spark.state import checkpoint_files as checkpoints
from streamplan.spark.state.checkpoint_name import checkpoints_location


@dataclass(frozen=True)
class Resetter(Operation):
    """Deletes all that an application has made of its input, as Kafka's ``StreamsResetter`` and ``cleanUp()`` do."""

    alone = RESET_ALONE

    def observe(self) -> ResetPlan:
        """Plan what would be deleted now."""
        pipeline = resolve_pipeline(self.pipeline, self.brokers)
        require_stopped(
            pipeline, self.brokers, self.settings, action="the reset", report=self.report, runs=self.active_runs()
        )
        refuse_unfinished_repartition(self.brokers, pipeline)
        cluster = KafkaCluster(self.brokers)
        application_id = pipeline.topology.application_id
        existing = cluster.topics([spec.name for spec in pipeline.internal_topics()])
        positions = cluster.committed_offsets(application_id)
        place = checkpoints_location(self.settings.checkpoints, application_id)
        runs_instead = application_still_running(pipeline, cluster)
        if runs_instead is not None:
            _refuse_halfway(pipeline, runs_instead, cluster)
        staging = cluster.topics([*pipeline.staging_topics.values()]) if runs_instead is not None else {}
        # The files say what is known of the application that runs.
        files = state_files(self.settings.reports, pipeline.name) if runs_instead is None else ()
        return ResetPlan(
            pipeline=pipeline.name,
            application_id=application_id,
            topics=_records(cluster, existing),
            positions={
                f"{topic}-{partition}": offset
                for topic, partitions in positions.items()
                for partition, offset in partitions.items()
            },
            checkpoints=place if checkpoints.exists(self.settings.checkpoints, application_id) else "",
            files=tuple(str(path.relative_to(self.settings.reports)) for path in files),
            kept=tuple(spec.name for spec in pipeline.topics() if spec.role not in INTERNAL_ROLES),
            staging=_records(cluster, staging),
            runs_instead=runs_instead or "",
        )

    def apply(self, approved: Mapping[str, Any]) -> ResetPlan:
        """Delete what was approved, and create the internal topics again.

        The order makes an aggregator refuse that is started in between: first it finds a checkpoint without positions,
        then no topics. Nothing is deleted when there is more to delete than was approved.
        """
        pipeline = resolve_pipeline(self.pipeline, self.brokers)
        plan = self.observe()
        if more := plan.more_than(ResetPlan.read(approved)):
            raise Refused(
                f"the reset of {pipeline.name}",
                expected="no more to delete than was approved",
                observed="; ".join(more),
                remedy="The application has run since. Nothing was deleted: look at a new plan.",
            )
        application_id = plan.application_id
        fence(self.brokers, application_id, pipeline.tasks())
        delete_group(self.brokers, application_id)
        self.report(f"group {application_id}: its positions are deleted")
        # From here on no aggregator starts before the reset is complete.
        paths = ReportPaths(self.settings.reports, pipeline.name)
        if not plan.runs_instead:  # else what is in the sinks is of the application that runs
            for topic, ends in record_reset(paths.sink_offsets, pipeline, KafkaCluster(self.brokers)).items():
                self.report(f"{topic}: left alone; the records of the next run begin at {dict(ends)}")
        delete_topics(self.brokers, [*plan.topics, *plan.staging])
        self.report(f"deleted {', '.join([*plan.topics, *plan.staging]) or 'no topic'}")
        checkpoints.delete(self.settings.checkpoints, application_id)
        self.report(f"checkpoints: none in {checkpoints_location(self.settings.checkpoints, application_id)}")
        for name in plan.files:
            Path(self.settings.reports, name).unlink(missing_ok=True)
        apply_topics(self.brokers, pipeline, report=self.report)
        if plan.runs_instead:
            self.report(f"{application_id} is reset, and {plan.runs_instead} goes on: nothing of an upgrade is left")
            return plan
        self.report(f"{pipeline.name} is reset: the next start of its aggregator reads the input from the beginning")
        return plan


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
