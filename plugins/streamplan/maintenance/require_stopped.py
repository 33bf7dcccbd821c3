"""Whether anything of a pipeline runs. A reset or a repartition must be alone with its topics and positions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from streamplan import processes
from streamplan.errors import Refused
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.groups import members
from streamplan.kafka.membership import SESSION_SECONDS, GroupMember
from streamplan.kafka.requests import require_reachable
from streamplan.model.generation import Generation
from streamplan.model.group_member import Member
from streamplan.model.pipeline import Pipeline
from streamplan.settings import Settings

WATCHED_SECONDS = 3.0
"""For how long topics are watched that others may write: longer than a transaction of a busy producer."""

LEAVE_SECONDS = SESSION_SECONDS + 5.0
"""Deadline for a member to leave the group. One that was killed stays a member until its session is over."""


def require_stopped(
    pipeline: Pipeline,
    brokers: Brokers,
    settings: Settings,
    *,
    action: str,
    report: Callable[[str], None],
    runs: Sequence[str] = (),
    jobs: Sequence[str] = ("aggregator",),
    unchanged: Sequence[str] = (),
    watched_seconds: float = WATCHED_SECONDS,
    application_id: str | None = None,
) -> None:
    """Refuse while an application runs.

    An aggregator is a member of its consumer group, wherever it runs. One that is being started is not one yet: it is
    seen by its DAG run, or by its process where it can be seen.

    Args:
        settings: The deployment's directories.
        action: What is to be done, for the error.
        report: Is told what is waited for.
        runs: Active runs of DAGs that work on the application.
        jobs: Jobs of the pipeline that must not run.
        unchanged: Topics that others write, whose ends must not change. Their producers are members of no group.
        watched_seconds: For how long these topics are watched.
        application_id: The application; None for that of the declaration.

    Raises:
        Refused: Something of the application runs.
        BrokersUnavailable: The brokers did not answer.
    """
    require_reachable(brokers)
    group = application_id or pipeline.topology.application_id
    signs = [f"an active run of {run}" for run in runs]
    signs += _processes(pipeline, settings, jobs)
    found = members(brokers, group) if signs else _await_leave(group, brokers, report)
    signs += [f"a member of consumer group {group}: {member}" for member in found]
    if not signs and KafkaCluster(brokers).members(group) is None:
        signs += _unlisted(brokers, group, pipeline.topology.source_topics)
    if not signs and unchanged:
        signs += _changes(brokers, unchanged, watched_seconds)
    if signs:
        stopped = " and ".join(f"{pipeline.name}_{job}" for job in jobs)
        run = f"the run of {stopped} (mark it as failed or success) and every other process"
        raise Refused(
            f"{action} of {pipeline.name}",
            expected=f"application {group} stopped",
            observed="; ".join(signs),
            remedy=f"Stop {run if jobs else 'every process'} of this application id, then do this again. Nothing was "
            "changed.",
        )


def _processes(pipeline: Pipeline, settings: Settings, jobs: Sequence[str]) -> Iterable[str]:
    for job in jobs:
        process = processes.find(settings.run, f"{pipeline.name}-{job}")
        if process is not None and not process.is_elsewhere:
            yield f"the process {process.name}, pid {process.pid}"


def _await_leave(group: str, brokers: Brokers, report: Callable[[str], None]) -> list[Member]:
    """Return the members that are there to stay. A member of ours may have been killed, and leaves soon."""
    deadline = time.monotonic() + LEAVE_SECONDS
    is_told = False
    while found := members(brokers, group):
        if time.monotonic() > deadline or any(member.instance is None for member in found):
            break
        if not is_told:
            names = ", ".join(map(str, found))
            report(
                f"waiting at most {LEAVE_SECONDS:g} s until {names} leaves consumer group {group}: an aggregator that "
                f"was killed stays a member for {SESSION_SECONDS:g} s"
            )
            is_told = True
        time.sleep(0.5)
    return found


def _unlisted(brokers: Brokers, group: str, topics: Sequence[str]) -> Iterable[str]:
    """Tell whether a group has members whose protocol lets nobody list them: then nobody of another one can join."""
    instance = Generation.of_this_process(None).instance
    with GroupMember(brokers, group, topics, instance) as member:
        try:
            member.await_join(lambda line: None, foreign_seconds=LEAVE_SECONDS)
        except Refused as refused:
            yield f"in consumer group {group} {refused.observed}"


def _changes(brokers: Brokers, topics: Sequence[str], watched_seconds: float) -> Iterable[str]:
    cluster = KafkaCluster(brokers)
    existing = sorted(cluster.topics(topics))

    def observe() -> dict[str, int]:
        return {
            f"{topic}-{partition}": offsets.high_watermark
            for topic in existing
            for partition, offsets in cluster.offsets(topic).items()
        }

    before = observe()
    time.sleep(watched_seconds)
    for name, end in observe().items():
        if before.get(name) != end:
            yield f"the end of {name} moved from {before.get(name, 'none')} to {end} in {watched_seconds:g} s"
