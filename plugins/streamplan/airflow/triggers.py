"""The triggers: one waits for the end of a supervised job, one for a consumer group to reach an end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from streamplan import processes
from streamplan.airflow.connections import brokers_in_trigger
from streamplan.errors import BrokersUnavailable, CouldNotLook, StreamplanError
from streamplan.processes import PidNamespace, ProcessRef

if TYPE_CHECKING:
    from streamplan.kafka.brokers import Brokers
    from streamplan.kafka.remote_job import RemoteJob

log = logging.getLogger(__name__)

GRACE_SECONDS = 20.0
"""A process that is stopped has so long to end by itself."""

SETTLE_SECONDS = 3.0
"""No trigger fires sooner. The worker reports a deferred task a moment after it was deferred (at most
``workers.min_heartbeat_interval``). If the task were resumed by then, the scheduler would take that report for the end
of the resumed task and fail it."""

STALLED_SECONDS = 300.0
"""An aggregator that commits nothing for so long will not commit any more. One that starts needs less."""

START_SECONDS = 300.0
"""A job that this process cannot see has so long until its first sign of life in Kafka: from its start on the same
machine, otherwise from the first look."""

LOOK_SECONDS = 2.0
"""How often Kafka is asked about a job that this process cannot see."""

# The event loop keeps no reference to what it runs. These are the stops that go on.
_stops: set[asyncio.Future[None]] = set()


async def settle() -> None:
    """Wait until the scheduler has taken in that the task was deferred, see :data:`SETTLE_SECONDS`."""
    await asyncio.sleep(SETTLE_SECONDS)


async def await_silence(
    name: str, job: RemoteJob, has_ended: Callable[[], bool], *, start_seconds: float = START_SECONDS
) -> None:
    """Return when Kafka has shown no sign of life of a job for too long, or something else says that it has ended.

    Args:
        name: The name of the job.
        job: The job, as Kafka shows it.
        has_ended: Whether something else says that the job has ended. It is called in a thread.
        start_seconds: How long the job has until its first sign of life.
    """
    silent_since = time.monotonic()
    start_deadline = silent_since + start_seconds  # from now on: the clock of the job's host may be another one
    while not await asyncio.to_thread(has_ended):
        try:
            shows_life = await asyncio.to_thread(job.shows_life)
        except (BrokersUnavailable, CouldNotLook) as error:
            log.warning("Whether %s lives is unknown: %s", name, error)
            shows_life = True
        now = time.monotonic()
        if shows_life:
            silent_since = now
        elif now - silent_since > job.patience_seconds and (job.has_begun or now > start_deadline):
            return
        await asyncio.sleep(LOOK_SECONDS)


class RemoteTrigger(BaseTrigger):
    """A trigger that stops its job when Airflow stops the task."""

    name: str

    async def stop(self) -> None:
        """Stop the job.

        Raises:
            StreamplanError: It could not be stopped.
        """
        raise NotImplementedError

    async def on_kill(self) -> None:
        """Stop the job. Airflow calls this when a person stops, clears or deletes the run, not at a restart."""
        # Airflow cancels the trigger again every second until it has ended. The stop goes on nevertheless.
        stop = asyncio.ensure_future(self._stop())
        _stops.add(stop)
        stop.add_done_callback(_stops.discard)
        await asyncio.shield(stop)

    async def remote_job(self, name: str, *, until: int | None = None) -> RemoteJob:
        """Return a job as Kafka shows it, see :func:`streamplan.kafka.remote_job.remote_job`."""
        from streamplan.kafka.remote_job import pipeline_of, remote_job

        pipeline = await asyncio.to_thread(pipeline_of, name)
        brokers = await brokers_in_trigger(pipeline.kafka_conn_id)
        return await asyncio.to_thread(remote_job, name, brokers, until=until)

    async def _stop(self) -> None:
        try:
            await self.stop()
        except StreamplanError:
            log.exception("%s could not be stopped.", self.name)
        else:
            log.info("%s has stopped.", self.name)


class ProcessTrigger(RemoteTrigger):
    """Fires when a supervised job has ended. When the task is stopped, the trigger stops the job.

    The process is known by its id and its start time, so that a triggerer that was restarted watches the same process.
    Where the process is in another PID namespace than the triggerer, its id says nothing here. Then Kafka is asked:
    :mod:`streamplan.kafka.remote_job`.

    The event has the exit status (None where it is not known here) and the arguments of the trigger. With these,
    whoever resumes the task looks again: it may see more of the process than the triggerer.
    """

    def __init__(
        self,
        name: str,
        pid: int,
        started: float,
        run_dir: str,
        status_file: str,
        poll_seconds: float,
        namespace: Mapping[str, str] | None = None,
        until: int | None = None,
    ) -> None:
        super().__init__()
        self.name = name
        self.pid = pid
        self.started = started
        self.run_dir = run_dir
        self.status_file = status_file
        self.poll_seconds = poll_seconds
        self.namespace = namespace  # None where an earlier version deferred, which watched processes alone
        self.until = until

    @classmethod
    def of(
        cls, process: ProcessRef, run_dir: Path, status_file: Path, poll_seconds: float, until: int | None
    ) -> ProcessTrigger:
        """Make the trigger for a process.

        Args:
            run_dir: The directory of its entry.
            status_file: The file that gets its exit status.
            poll_seconds: How often the process is looked at where it can be seen.
            until: The first record number that a producer does not write; None for a job without end.
        """
        namespace = None if process.namespace is None else asdict(process.namespace)
        return cls(
            process.name, process.pid, process.started, str(run_dir), str(status_file), poll_seconds, namespace, until
        )

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what Airflow keeps of the trigger: its class and the arguments to make it again."""
        fields = ("name", "pid", "started", "run_dir", "status_file", "poll_seconds", "namespace", "until")
        return f"{__name__}.{type(self).__name__}", {field: getattr(self, field) for field in fields}

    @property
    def process(self) -> ProcessRef:
        """The process that is watched."""
        namespace = None if self.namespace is None else PidNamespace(**self.namespace)
        file = Path(self.run_dir) / f"{self.name}.json"
        return ProcessRef(self.name, self.pid, self.started, file, namespace=namespace)

    @property
    def event(self) -> dict[str, Any]:
        """What the trigger fires with: see :meth:`SupervisedJobOperator.resume`."""
        return {"status": self.status(), "job": self.serialize()[1]}

    def status(self) -> int | None:
        """Return the exit status that the wrapper of the process left; None when it was killed or left none here."""
        try:
            status, *whose = Path(self.status_file).read_text().split()
        except FileNotFoundError:
            return None
        is_its = not whose or self.namespace is None or whose == [str(self.pid), self.namespace["inode"]]
        return int(status) if is_its else None

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait until the job has ended."""
        await settle()
        if self.process.is_elsewhere:
            log.info(
                "%s runs in another PID namespace (%s), so Kafka is asked whether it lives.",
                self.name,
                self.process.namespace,
            )
            await await_silence(
                self.name,
                await self._remote_job(),
                lambda: self.status() is not None,
                start_seconds=self._start_seconds(),
            )
        else:
            while processes.is_alive(self.process):
                await asyncio.sleep(self.poll_seconds)
            # Perhaps the process was killed without its children. They would survive a run that is stopped between two
            # tries, because such a run has no trigger.
            await asyncio.to_thread(processes.stop, self.process, grace_seconds=GRACE_SECONDS)
        yield TriggerEvent(self.event)

    def _start_seconds(self) -> float:
        """Return how long the job has until its first sign of life. On the same machine it has the same clock."""
        here = PidNamespace.of_this_process()
        if self.namespace is None or self.namespace["boot_id"] != here.boot_id:
            return START_SECONDS
        return max(self.started + START_SECONDS - time.time(), 0.0)

    async def stop(self) -> None:
        """Stop the process, or fence it where it is elsewhere."""
        if self.process.is_elsewhere:
            await asyncio.to_thread((await self._remote_job()).stop)
            processes.forget(self.process)
        else:
            await asyncio.to_thread(processes.stop, self.process, grace_seconds=GRACE_SECONDS)

    async def _remote_job(self) -> RemoteJob:
        return await self.remote_job(self.name, until=self.until)


class ProcessedTrigger(BaseTrigger):
    """Fires when a consumer group's positions have reached ``targets``, or when that took too long.

    ``targets`` is ``{topic: {partition: offset}}``. The topics are waited for in their order. An internal topic has no
    target of its own (None): its target is its end once the topics before it are processed. It takes too long after
    ``seconds``, or when nothing moves for :data:`STALLED_SECONDS`. The event is ``{"processed": bool, "state": str}``.
    """

    def __init__(
        self,
        group: str,
        targets: Mapping[str, Mapping[str, int] | None],
        deadline: float | None = None,
        bootstrap_servers: str | None = None,
        job: str = "",
        run_dir: str = "",
        kafka_conn_id: str = "kafka_default",
        seconds: float = STALLED_SECONDS,
    ) -> None:
        super().__init__()
        # A trigger that an earlier version deferred still carries its brokers and the entry of the aggregator. The
        # brokers come from the connection now, since a trigger's arguments are shown to people. It also carries a
        # deadline by the clock of the worker, which the triggerer may not share.
        del deadline, bootstrap_servers, job, run_dir
        self.group = group
        self.targets = dict(targets)
        self.seconds = seconds
        self.kafka_conn_id = kafka_conn_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what Airflow keeps of the trigger: its class and the arguments to make it again."""
        fields = ("group", "targets", "seconds", "kafka_conn_id")
        return f"{__name__}.{type(self).__name__}", {field: getattr(self, field) for field in fields}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Ask Kafka for the positions until they have reached the targets."""
        from streamplan.kafka.cluster import KafkaCluster

        await asyncio.sleep(SETTLE_SECONDS)
        brokers = await brokers_in_trigger(self.kafka_conn_id)
        cluster = KafkaCluster(brokers)
        state = "nothing was read yet"
        behind, moved = -1, time.monotonic()
        deadline = moved + self.seconds
        for topic, given in self.targets.items():
            target = {int(partition): offset for partition, offset in given.items()} if given is not None else None
            while True:
                try:
                    if target is None:
                        offsets = await asyncio.to_thread(cluster.offsets, topic)
                        # Also what is in transactions that have not ended: the topics before it are processed.
                        target = {partition: end.high_watermark for partition, end in offsets.items()}
                    positions = await asyncio.to_thread(cluster.positions, self.group, topic)
                    before = behind
                    behind = sum(max(0, end - positions.get(partition, 0)) for partition, end in target.items())
                    if behind != before:
                        moved = time.monotonic()
                    state = f"{topic}: {behind:,} offsets before the end"
                    if not behind:
                        break
                except (BrokersUnavailable, CouldNotLook) as error:
                    state = str(error)
                if time.monotonic() > min(deadline, moved + STALLED_SECONDS):
                    alive = await asyncio.to_thread(_members, brokers, self.group)
                    yield TriggerEvent({"processed": False, "state": f"{state}; {alive}"})
                    return
                await asyncio.sleep(0.5)
        yield TriggerEvent({"processed": True, "state": "all processed"})


def _members(brokers: Brokers, group: str) -> str:
    """Say whether the application runs."""
    from streamplan.kafka.groups import members

    try:
        found = ", ".join(map(str, members(brokers, group)))
    except BrokersUnavailable as error:
        return str(error)
    return f"group {group} has " + (f"the members {found}" if found else "no member, so no aggregator runs")
