"""How others see that an aggregator runs, and where its stream tasks are: a file, rewritten every few seconds.

``reports/status.py`` has the format of the file.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from streamplan.model.processor_topology import TaskId
from streamplan.model.status import (
    AggregatorState,
    AggregatorStatus,
    MicroBatch,
    MicroBatchMeasures,
    Restoration,
    TaskMigration,
    TaskPlacement,
)
from streamplan.reports.status import append_migrations, write_status

INTERVAL_SECONDS = 5.0

LOG_SECONDS = 5.0
"""The log shows placements at most this often: a task without state may migrate in every micro-batch."""

_MAX_PENDING_MIGRATIONS = 10_000
"""Migrations kept in memory until they are written. Later ones are dropped from the history."""


@dataclass(frozen=True)
class TaskReport:
    """What one stream task wrote in a micro-batch.

    Attributes:
        partition: The task's partition; its sub-topology is that of the micro-batch.
        instance: Id of the Spark executor that wrote.
        host: Host name of the executor.
        written: Number of records.
    """

    partition: int
    instance: str
    host: str
    written: int


@dataclass
class TaskPlacements:
    """Which instance does which stream task. Spark decides that anew in every micro-batch.

    The threads of the queries report; the thread that watches the queries reads.
    """

    _placements: dict[TaskId, TaskPlacement] = field(default_factory=dict)
    _logged: dict[TaskId, str] = field(default_factory=dict)
    _pending: list[TaskMigration] = field(default_factory=list)
    _logged_at: float = float("-inf")
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def record(self, subtopology: int, tasks: Sequence[TaskReport], at: str) -> None:
        """Take in what the tasks of a micro-batch wrote.

        Args:
            subtopology: Id of the sub-topology.
            tasks: One report for each task that wrote.
            at: When the micro-batch was committed, ISO 8601.
        """
        with self._lock:
            for report in tasks:
                task = TaskId(subtopology, report.partition)
                before = self._placements.get(task)
                records = report.written + (before.records if before else 0)
                placement = TaskPlacement(report.instance, report.host, records, at)
                self._placements[task] = placement
                old, new = _instance_name(before) if before else "", _instance_name(placement)
                if old != new and len(self._pending) < _MAX_PENDING_MIGRATIONS:
                    self._pending.append(TaskMigration(at, str(task), old, new, os.getpid()))

    def current(self) -> Mapping[str, TaskPlacement]:
        """Return the last placement of each task that has written, by the task's id."""
        with self._lock:
            return {str(task): self._placements[task] for task in sorted(self._placements)}

    def take_migrations(self) -> list[TaskMigration]:
        """Return the migrations since the last call."""
        with self._lock:
            migrations, self._pending = self._pending, []
            return migrations

    def log_lines(self) -> list[str]:
        """Return a line for each task that is elsewhere than the log said last; at most every few seconds."""
        if time.monotonic() - self._logged_at < LOG_SECONDS:
            return []
        with self._lock:
            current = {task: _instance_name(placement) for task, placement in sorted(self._placements.items())}
        migrated = {task: instance for task, instance in current.items() if self._logged.get(task) != instance}
        if not migrated:
            return []
        lines = [
            f"task {task}: instance {self._logged[task]} -> instance {instance}"
            if task in self._logged
            else f"task {task}: instance {instance}"
            for task, instance in migrated.items()
        ]
        self._logged |= migrated
        self._logged_at = time.monotonic()
        return lines


@dataclass
class Heartbeat:
    """Reports the status of an aggregator while it runs, as a context manager. Without a ``file`` it writes nothing.

    It has no thread of its own: whoever watches the queries calls :meth:`beat`. So when that thread hangs, or Spark's
    JVM does not answer, the heartbeats stop. Until the queries run the state is STARTING, however long Spark takes. An
    aggregator that ends reports STOPPED before it stops its queries, because it may be killed while it stops them.

    Attributes:
        file: The status file; the migrations of tasks go to a file beside it.
        stop: Set when the aggregator was told to stop. Whatever goes wrong after that is no failure.
        report: Gets lines for the log.
        batches: The last micro-batch of each sub-topology, by its id.
        placements: The placements of the stream tasks.
        measures: What was measured of each sub-topology, by its id.
        restorations: The restorations since the start, by the id of the sub-topology.
        held: What is not processed for now, each as an error tells it.
    """

    file: Path | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    report: Callable[[str], None] = lambda line: None
    batches: dict[int, MicroBatch] = field(default_factory=dict)
    placements: TaskPlacements = field(default_factory=TaskPlacements)
    measures: dict[int, MicroBatchMeasures] = field(default_factory=dict)
    restorations: dict[int, Restoration] = field(default_factory=dict)
    held: list[str] = field(default_factory=list)
    _started: str = field(default_factory=lambda: _now())
    _state: AggregatorState | None = None
    _written_at: float = 0.0

    def __enter__(self) -> Heartbeat:
        self._write(AggregatorState.STARTING)
        return self

    def __exit__(
        self, exception_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        in_order = exception_type is None or self.stop.is_set()
        self._write(AggregatorState.STOPPED if in_order else AggregatorState.FAILED)

    def beat(self) -> None:
        """Report RUNNING, unless that was reported a moment ago, and the tasks that migrated."""
        if self._state is not AggregatorState.RUNNING or time.monotonic() - self._written_at >= INTERVAL_SECONDS:
            self._write(AggregatorState.RUNNING)
        self._report_migrations()

    def announce_stop(self) -> None:
        """Report STOPPED. Call this before the queries are stopped."""
        self._report_migrations()
        self._write(AggregatorState.STOPPED)

    def record_restoration(self, subtopology: int, restoration: Restoration) -> None:
        """Report how far a restoration is.

        Args:
            subtopology: Id of the sub-topology.
            restoration: How far.
        """
        self.restorations[subtopology] = restoration
        self._write(self._state or AggregatorState.STARTING)

    def record(self, subtopology: int, batch: int, tasks: Sequence[TaskReport] = ()) -> None:
        """Take in a micro-batch that was committed. The threads of the queries call this; the next beat reports it.

        Args:
            subtopology: Id of the sub-topology.
            batch: Number of the micro-batch.
            tasks: One report for each task that wrote.
        """
        now = _now()
        self.batches[subtopology] = MicroBatch(batch, now)
        self.placements.record(subtopology, tasks, now)

    def status(self) -> AggregatorStatus:
        """Return what the aggregator says about itself now. Any thread may call this."""
        return AggregatorStatus(
            self._state or AggregatorState.STARTING,
            os.getpid(),
            socket.gethostname(),
            _now(),
            dict(self.batches),
            self.placements.current(),
            self._started,
            dict(self.measures),
            dict(self.restorations),
            tuple(self.held),
        )

    def _report_migrations(self) -> None:
        for line in self.placements.log_lines():
            self.report(line)
        migrations = self.placements.take_migrations()
        if self.file is None or not migrations:
            return
        try:
            append_migrations(self.file, migrations)
        except OSError as error:  # the aggregator works without it
            self.report(f"no history of stream tasks: {error}")

    def _write(self, state: AggregatorState) -> None:
        self._state, self._written_at = state, time.monotonic()
        if self.file is None:
            return
        try:
            write_status(self.file, self.status())
        except OSError as error:  # the aggregator works without it
            self.report(f"no heartbeat: {error}")


def _instance_name(placement: TaskPlacement) -> str:
    return f"{placement.instance} on {placement.host}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
