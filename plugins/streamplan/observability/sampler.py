"""Takes snapshots of an application. It asks the brokers, and reads the reports; it writes nothing."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock

from streamplan.checks import CHECKS
from streamplan.checks.framework.application import Application
from streamplan.checks.framework.check import CheckContext, CheckResult, Outcome
from streamplan.checks.framework.task_inputs import TaskInput, read_inputs
from streamplan.checks.framework.verified import VerifiedStore
from streamplan.errors import CouldNotLook, StreamplanError
from streamplan.files import ReportPaths
from streamplan.kafka_port import Cluster, RecordsGone
from streamplan.kafka_types import Offsets, TopicPartition
from streamplan.model.status import AggregatorStatus, TaskMigration
from streamplan.model.topics import TopicRole
from streamplan.observability.dead_letter_counts import DeadLetterCounts
from streamplan.observability.snapshot import (
    MINUTES,
    InputSnapshot,
    Snapshot,
    TaskSnapshot,
    TopicSnapshot,
    VerifiedSnapshot,
)
from streamplan.reports.check_context import check_context
from streamplan.reports.results import read_latest
from streamplan.reports.status import read_migrations

SEARCHED_OFFSETS = 50
"""At most this many offsets behind a position are read to find the next record.

Where all of them hold transaction markers, the age of that record is not known.
"""


SHOWN_MIGRATIONS = 20

FIND_SECONDS = 60.0
"""The application is looked for again after this time: its topics are made, widened and deleted while it is watched."""


@dataclass(frozen=True)
class _Look:
    """Where positions and ends were, at a time of :func:`time.monotonic`."""

    time: float = 0.0
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    ends: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Seen:
    """What the brokers answered."""

    members: Sequence[str] | None = ()
    inputs: Sequence[TaskInput] = ()
    oldest: Mapping[TopicPartition, int] = field(default_factory=dict)
    offsets: Mapping[str, Mapping[int, Offsets]] = field(default_factory=dict)
    look: _Look = _Look()


class Sampler:
    """Takes snapshots of one application, and keeps the last one.

    Many viewers share a sampler, so that the brokers are asked as often as for one of them.

    Args:
        find: Returns the application as the checks see it. It is asked again until it answers, every
            :data:`FIND_SECONDS`, and while another application is to take over from the one that it has returned.
        name: The name of the pipeline, or the ``application.id`` where no pipeline is declared.
        reports: The directory of all reports.
    """

    def __init__(self, find: Callable[[], Application], name: str, cluster: Cluster, reports: Path) -> None:
        self._find = find
        self._name = name
        self._cluster = cluster
        self._reports = reports
        self._application: Application | None = None
        self._found_at = 0.0
        self._lock = Lock()
        self._last: tuple[float, Snapshot] | None = None
        self._look: _Look | None = None
        self._dead_letters = DeadLetterCounts(cluster)
        self._lags: dict[str, deque[tuple[int, int]]] = {}  # of each task the minute and the greatest lag in it

    def latest(self, max_age_seconds: float) -> Snapshot:
        """Return the last snapshot if it is young enough, else a new one.

        Args:
            max_age_seconds: The greatest age of the last snapshot.
        """
        with self._lock:
            if self._last is None or time.monotonic() - self._last[0] > max_age_seconds:
                snapshot = self.sample()
                self._last = time.monotonic(), snapshot  # after it: those who waited for it take it, too
            return self._last[1]

    def sample(self, *, problem: str = "") -> Snapshot:
        """Take a snapshot now. Where Kafka does not answer, it says so and has what the reports hold.

        Args:
            problem: Why Kafka is not asked; empty to ask.
        """
        seen = _Seen()
        try:
            if not problem:
                seen = self._ask(self._found())
        except StreamplanError as error:
            problem = " ".join(str(error).split())
        before, self._look = self._look, seen.look if not problem else None
        application = self._application
        latest = read_latest(self._reports, self._name)
        context = check_context(application, self._reports) if application else CheckContext()
        status = context.aggregator
        return Snapshot(
            pipeline=self._name,
            application_id=application.application_id if application else self._name,
            at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            problem=problem,
            members=seen.members,
            aggregator=replace(status, tasks={}) if status else None,
            silent=status is not None and status.is_silent(time.time()),
            tasks=[self._remember(task) for task in _tasks(application, seen, before, status)] if application else [],
            migrations=_migrations(self._reports, application) if application else [],
            topics=list(_topics(application, seen, before)) if application and not problem else [],
            dead_letters=self._dead_letters.by_reason(),
            checks=[latest[check.name] for check in CHECKS if check.name in latest],
            verified=_verified(context.verified, latest.get("totals")),
        )

    def _found(self) -> Application:
        is_old = time.monotonic() - self._found_at > FIND_SECONDS
        if self._application is None or self._application.runs_until or is_old:
            self._application = self._find()
            self._found_at = time.monotonic()
        return self._application

    def _remember(self, task: TaskSnapshot) -> TaskSnapshot:
        """Keep the lag of a task, and return the task with those of the last minutes."""
        lags = self._lags.setdefault(task.task, deque(maxlen=MINUTES))
        if task.lag is not None:
            minute, greatest = int(time.time() // 60), task.lag
            if lags and lags[-1][0] == minute:
                greatest = max(greatest, lags.pop()[1])
            lags.append((minute, greatest))
        return replace(task, lag_by_minute=[lag for _, lag in lags])

    def _ask(self, application: Application) -> _Seen:
        cluster = self._cluster
        members = cluster.members(application.application_id)
        existing = cluster.topics([spec.name for spec in application.topics])
        offsets = {name: cluster.offsets(name) for name in existing}
        for spec in application.with_role(TopicRole.DEAD_LETTER):
            self._dead_letters.update(spec.name, offsets.get(spec.name, {}))
        inputs = read_inputs(application, cluster)
        positions = {(item.topic, item.partition): item.position for item in inputs}
        look = _Look(
            time.monotonic(),
            {key: position for key, position in positions.items() if position is not None},
            {topic: sum(at.last_stable for at in partitions.values()) for topic, partitions in offsets.items()},
        )
        shown = None if members is None else [str(member) for member in members]
        return _Seen(shown, inputs, _oldest_unprocessed(cluster, inputs), offsets, look)


def _tasks(
    application: Application, seen: _Seen, before: _Look | None, status: AggregatorStatus | None
) -> Iterator[TaskSnapshot]:
    by_task: dict[str, list[TaskInput]] = {}
    for item in seen.inputs:
        by_task.setdefault(item.task, []).append(item)
    subtopology_of = {topic: each.name for each in application.subtopologies for topic in each.sources}
    for task, items in by_task.items():
        placement = status.tasks.get(task) if status else None
        inputs = [
            InputSnapshot(item.topic, item.partition, item.position, item.offsets.last_stable, _lag(item))
            for item in items
        ]
        lags = [each.lag for each in inputs if each.lag is not None]
        yield TaskSnapshot(
            task,
            subtopology_of[items[0].topic],
            inputs,
            sum(lags) if len(lags) == len(inputs) else None,
            _age(inputs, seen.oldest),
            _rate(before, seen.look, [(item.topic, item.partition) for item in items]),
            placement.instance if placement else None,
            placement.host if placement else None,
            placement.at if placement else None,
        )


def _topics(application: Application, seen: _Seen, before: _Look | None) -> Iterator[TopicSnapshot]:
    for spec in application.topics:
        offsets = seen.offsets.get(spec.name)
        yield TopicSnapshot(
            spec.name,
            spec.role,
            len(offsets) if offsets is not None else None,
            sum(max(at.last_stable - at.log_start, 0) for at in (offsets or {}).values()),
            seen.look.ends.get(spec.name, 0),
            _topic_rate(before, seen.look, spec.name),
        )


def _migrations(reports: Path, application: Application) -> list[TaskMigration]:
    if not application.declared:
        return []
    status = ReportPaths(reports, application.name).aggregator_status
    return read_migrations(status, last=SHOWN_MIGRATIONS)[::-1]


def _verified(store: VerifiedStore, totals: CheckResult | None) -> VerifiedSnapshot | None:
    try:
        cut = store.cut()
        if cut is None:
            return None
        keys = store.key_count()
    except CouldNotLook:  # the check `totals` reads the same file, and says so
        return None
    passed = totals is not None and totals.outcome is Outcome.PASSED
    return VerifiedSnapshot(cut.records, keys, totals.at if totals and passed else None)


def _oldest_unprocessed(cluster: Cluster, inputs: Sequence[TaskInput]) -> dict[TopicPartition, int]:
    """Return the timestamp of the next record of each partition that has one, in ms since the epoch."""
    by_topic: dict[str, dict[int, tuple[int, int]]] = {}
    for item in inputs:
        if _lag(item):
            last = min(item.offsets.last_stable, item.next_offset + SEARCHED_OFFSETS)
            by_topic.setdefault(item.topic, {})[item.partition] = (item.next_offset, last)
    oldest: dict[TopicPartition, int] = {}
    for topic, ranges in by_topic.items():
        try:
            for batch in cluster.read(topic, ranges):
                if len(batch):
                    oldest.setdefault((topic, batch.partition), batch.timestamps[0])
                if all((topic, partition) in oldest for partition in ranges):
                    break
        except RecordsGone:  # retention deleted them just now; the next snapshot has the new position
            continue
    return oldest


def _lag(item: TaskInput) -> int | None:
    return None if item.position is None else item.unprocessed_offsets


def _age(inputs: Sequence[InputSnapshot], oldest: Mapping[TopicPartition, int]) -> float | None:
    """Return the age of the oldest record that a task has not processed, in seconds."""
    if any(each.lag is None for each in inputs):
        return None
    waiting = [(each.topic, each.partition) for each in inputs if each.lag]
    known = [oldest[key] for key in waiting if key in oldest]
    if not waiting:
        return 0.0
    return max(round(time.time() - min(known) / 1000, 1), 0.0) if known else None


def _rate(before: _Look | None, now: _Look, partitions: Sequence[TopicPartition]) -> float | None:
    if before is None or not all(key in before.positions and key in now.positions for key in partitions):
        return None
    moved = sum(now.positions[key] - before.positions[key] for key in partitions)
    return round(max(moved, 0) / (now.time - before.time), 1)


def _topic_rate(before: _Look | None, now: _Look, topic: str) -> float | None:
    if before is None or topic not in before.ends or topic not in now.ends:
        return None
    return round(max(now.ends[topic] - before.ends[topic], 0) / (now.time - before.time), 1)
