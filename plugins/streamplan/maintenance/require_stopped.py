"""Whether anything of a pipeline runs. A reset or a repartition must be alone with its topics and positions."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from streamplan import processes
from streamplan.errors import Refused
from streamplan.files import ReportPaths
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.groups import members
from streamplan.kafka.requests import require_reachable
from streamplan.model.pipeline import Pipeline
from streamplan.model.status import HEARTBEAT_TIMEOUT_SECONDS
from streamplan.reports.status import read_status
from streamplan.settings import Settings

WATCHED_SECONDS = 3.0
"""For how long positions and ends are watched: longer than a micro-batch of a busy aggregator."""


def require_stopped(
    pipeline: Pipeline,
    brokers: Brokers,
    settings: Settings,
    *,
    action: str,
    runs: Sequence[str] = (),
    jobs: Sequence[str] = ("aggregator",),
    unchanged: Sequence[str] = (),
    watched_seconds: float = WATCHED_SECONDS,
) -> None:
    """Refuse while an application runs, with every sign of life there is.

    Args:
        pipeline: The pipeline.
        brokers: The brokers.
        settings: The deployment's directories.
        action: What is to be done, for the error.
        runs: Active runs of DAGs that work on the application.
        jobs: Jobs of the pipeline that must not run.
        unchanged: Topics whose ends must not change, besides those that the application writes.
        watched_seconds: For how long positions and ends are watched.

    Raises:
        Refused: Something of the application runs.
        BrokersUnavailable: The brokers did not answer.
    """
    require_reachable(brokers)
    signs = [f"an active run of {run}" for run in runs]
    signs += _processes(pipeline, settings, jobs)
    signs += _heartbeats(pipeline, settings)
    group = pipeline.topology.application_id
    signs += [f"a member of consumer group {group}: {member}" for member in members(brokers, group)]
    if not signs:
        signs += _changes(pipeline, brokers, unchanged, watched_seconds)
    if signs:
        raise Refused(
            f"{action} of {pipeline.name}",
            expected=f"application {group} at rest",
            observed="; ".join(signs),
            remedy=f"Stop the run of {' and '.join(f'{pipeline.name}_{job}' for job in jobs)} (mark it as failed or "
            "success) and every other process of this application id, then do this again. Nothing was changed.",
        )


def _processes(pipeline: Pipeline, settings: Settings, jobs: Sequence[str]) -> Iterable[str]:
    for job in jobs:
        process = processes.find(settings.run, f"{pipeline.name}-{job}")
        if process is not None:
            yield f"the process {process.name}, pid {process.pid}"


def _heartbeats(pipeline: Pipeline, settings: Settings) -> Iterable[str]:
    status = read_status(ReportPaths(settings.reports, pipeline.name).aggregator_status)
    if status is None or not status.state.is_live:
        return
    age = status.age(time.time())
    if age <= HEARTBEAT_TIMEOUT_SECONDS:
        yield (
            f"an aggregator, pid {status.pid} on {status.host}, said {status.state} {age:.0f} s ago (a heartbeat "
            f"counts for {HEARTBEAT_TIMEOUT_SECONDS:g} s)"
        )


def _changes(pipeline: Pipeline, brokers: Brokers, unchanged: Sequence[str], watched_seconds: float) -> Iterable[str]:
    group = pipeline.topology.application_id
    cluster = KafkaCluster(brokers)
    specs = pipeline.topics()
    sources = {
        topic for subtopology in pipeline.topology.subtopologies for topic in pipeline.source_topics(subtopology)
    }
    existing = cluster.topics([*(spec.name for spec in specs), *unchanged])
    written = [
        spec.name for spec in specs if spec.name not in pipeline.topology.source_topics and spec.name in existing
    ]
    written += [topic for topic in unchanged if topic in existing]

    def observe() -> dict[str, int]:
        state = {
            f"the position of group {group} in {topic}-{partition}": position
            for topic in sorted(sources & existing.keys())
            for partition, position in cluster.positions(group, topic).items()
        }
        for topic in written:
            for partition, extent in cluster.offsets(topic).items():
                state[f"the end of {topic}-{partition}"] = extent.high_watermark
        return state

    before = observe()
    time.sleep(watched_seconds)
    after = observe()
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield f"{name} moved from {before.get(name, 'none')} to {after.get(name, 'none')} in {watched_seconds:g} s"
