"""The triggers: one waits for the end of a supervised process, one for a consumer group to reach an end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from streamplan import processes
from streamplan.airflow.connections import brokers_in_trigger
from streamplan.errors import BrokersUnavailable, CouldNotLook

GRACE_SECONDS = 20.0
"""A process that is stopped has so long to end by itself."""

SETTLE_SECONDS = 3.0
"""No trigger fires sooner. The worker reports a deferred task a moment after it was deferred (at most
``workers.min_heartbeat_interval``). If the task were resumed by then, the scheduler would take that report for the end
of the resumed task and fail it."""

STALLED_SECONDS = 300.0
"""An aggregator that commits nothing for so long will not commit any more. One that starts needs less."""


class ProcessTrigger(BaseTrigger):
    """Fires when a supervised process has ended. When the task is stopped, the trigger stops the process.

    The event is ``{"status": int | None}``: the exit status, None for a process that was killed. The process is known
    by its id and its start time, so that a triggerer that was restarted watches the same process.
    """

    def __init__(
        self, name: str, pid: int, started: float, run_dir: str, status_file: str, poll_seconds: float
    ) -> None:
        super().__init__()
        self.name = name
        self.pid = pid
        self.started = started
        self.run_dir = run_dir
        self.status_file = status_file
        self.poll_seconds = poll_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what Airflow keeps of the trigger: its class and the arguments to make it again."""
        fields = ("name", "pid", "started", "run_dir", "status_file", "poll_seconds")
        return f"{__name__}.{type(self).__name__}", {field: getattr(self, field) for field in fields}

    @property
    def process(self) -> processes.ProcessRef:
        """The process that is watched."""
        return processes.ProcessRef(self.name, self.pid, self.started, Path(self.run_dir) / f"{self.name}.json")

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait until the process has ended."""
        await asyncio.sleep(SETTLE_SECONDS)
        while processes.is_alive(self.process):
            await asyncio.sleep(self.poll_seconds)
        # Perhaps the process was killed without its children. They would survive a run that is stopped between two
        # tries, because such a run has no trigger.
        await asyncio.to_thread(processes.stop, self.process, grace_seconds=GRACE_SECONDS)
        yield TriggerEvent({"status": read_status(Path(self.status_file))})

    async def on_kill(self) -> None:
        """Stop the process. Airflow calls this when a person stops, clears or deletes the run, not at a restart."""
        await asyncio.to_thread(processes.stop, self.process, grace_seconds=GRACE_SECONDS)


def read_status(file: Path) -> int | None:
    """Return the exit status that the wrapper of a supervised process wrote; None when it was killed before."""
    try:
        return int(file.read_text())
    except FileNotFoundError:
        return None


class ProcessedTrigger(BaseTrigger):
    """Fires when a consumer group's positions have reached ``targets``, or when that took too long.

    ``targets`` is ``{topic: {partition: offset}}``. The topics are waited for in their order. An internal topic has no
    target of its own (None): its target is its end once the topics before it are processed. The event is
    ``{"processed": bool, "state": str}``.
    """

    def __init__(
        self,
        group: str,
        targets: Mapping[str, Mapping[str, int] | None],
        job: str,
        run_dir: str,
        deadline: float,
        bootstrap_servers: str | None = None,
    ) -> None:
        super().__init__()
        # A trigger that an earlier version deferred still carries its brokers. They come from the connection now, since
        # a trigger's arguments are shown to people.
        del bootstrap_servers
        self.group = group
        self.targets = dict(targets)
        self.job = job
        self.run_dir = run_dir
        self.deadline = deadline

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what Airflow keeps of the trigger: its class and the arguments to make it again."""
        fields = ("group", "targets", "job", "run_dir", "deadline")
        return f"{__name__}.{type(self).__name__}", {field: getattr(self, field) for field in fields}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Ask Kafka for the positions until they have reached the targets."""
        from streamplan.kafka.cluster import KafkaCluster

        await asyncio.sleep(SETTLE_SECONDS)
        cluster = KafkaCluster(await brokers_in_trigger())
        state = "nothing was read yet"
        behind, moved = -1, time.time()
        for topic, given in self.targets.items():
            target = {int(partition): offset for partition, offset in given.items()} if given is not None else None
            while True:
                try:
                    if target is None:
                        offsets = await asyncio.to_thread(cluster.offsets, topic)
                        target = {partition: end.last_stable for partition, end in offsets.items()}
                    positions = await asyncio.to_thread(cluster.positions, self.group, topic)
                    before = behind
                    behind = sum(max(0, end - positions.get(partition, 0)) for partition, end in target.items())
                    if behind != before:
                        moved = time.time()
                    state = f"{topic}: {behind:,} offsets before the end"
                    if not behind:
                        break
                except (BrokersUnavailable, CouldNotLook) as error:
                    state = str(error)
                if time.time() > min(self.deadline, moved + STALLED_SECONDS):
                    alive = processes.find(Path(self.run_dir), self.job) is not None
                    yield TriggerEvent({"processed": False, "state": f"{state}; {self.job} is {_alive(alive)}"})
                    return
                await asyncio.sleep(0.5)
        yield TriggerEvent({"processed": True, "state": "all processed"})


def _alive(alive: bool) -> str:
    return "alive" if alive else "not running"
