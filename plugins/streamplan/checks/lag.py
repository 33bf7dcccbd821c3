"""Lag and liveness: does every stream task stand where it should, and does it move?

Positions are those of the consumer group ``<application.id>``. A position may stay before the last offsets of a
partition when these hold transaction markers or aborted records alone (Kafka Streams' ``StreamTask.findOffset`` passes
them, other libraries do not): what is left to process are the committed records behind it, which are read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from streamplan.checks.framework.application import Application, SubtopologyTopics
from streamplan.checks.framework.check import Check, CheckContext, Observation, existing, limit
from streamplan.checks.framework.cluster import Cluster, Offsets, RecordsGone
from streamplan.checks.framework.consistent_cut import Deadline, attempt
from streamplan.errors import CouldNotLook
from streamplan.model.status import HEARTBEAT_TIMEOUT_SECONDS, AggregatorState, AggregatorStatus

LAG_DEADLINE = Deadline(seconds=90.0, interval=0.25)
"""Longer than the ``commit.interval.ms`` of ``at_least_once`` (30 s), a slow micro-batch, or a restart takes."""

COUNTED_OFFSETS = 10_000
"""So many offsets of a partition are read to count what is to process; of more the number is that of offsets."""

_HEALTHY = "caught up or moving"


@dataclass(frozen=True)
class _Waiting:
    """Committed records that are to process. ``oldest`` is the timestamp, in ms, of the one whose turn it is.

    ``exact``  else ``records`` is the number of offsets
    """

    records: int = 0
    exact: bool = True
    oldest: int | None = None


@dataclass
class _Input:
    """A partition that a stream task reads, as first seen; ``position`` and ``offsets`` as last seen.

    ``task``   those of one task move together
    ``moved``  whether its position was seen to move
    """

    task: str
    topic: str
    partition: int
    first_position: int | None
    first_stable: int
    position: int | None
    offsets: Offsets
    waiting: _Waiting = _Waiting()
    beyond_end: bool = False
    moved: bool = False
    transaction_moved: bool = False

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def title(self) -> str:
        return f"task {self.task} ({self.name})" if self.task != self.name else f"the task that reads {self.name}"

    @property
    def deleted(self) -> int:
        """Offsets that were deleted before they were processed. A single one, the last of all, is a marker's."""
        gap = max(self.offsets.log_start - self.position, 0) if self.position is not None else 0
        return gap if gap > 1 or self.waiting.records else 0

    @property
    def open_transaction(self) -> bool:
        return self.offsets.last_stable < self.offsets.high_watermark and not self.transaction_moved

    def see(self, before: Mapping[int, int], offsets: Mapping[int, Offsets], after: Mapping[int, int]) -> None:
        """``before`` and ``after`` are the positions around ``offsets``, for ends and positions grow all the time."""
        self.offsets = offsets[self.partition]
        early, late = before.get(self.partition), after.get(self.partition)
        self.beyond_end = early is not None and early > self.offsets.high_watermark
        self.position = late
        if late is not None:
            first = self.first_position
            self.moved |= first is None or late > first
            self.first_position = late if first is None else min(first, late)  # it may be reset meanwhile
        self.transaction_moved |= self.offsets.last_stable > self.first_stable


@dataclass(frozen=True)
class LagCheck(Check):
    """Looks at the aggregator's status, then at every partition that is read, until nothing is suspicious."""

    name = "lag"
    title = "Lag and liveness"
    healthy = (
        "Every stream task has processed all records, or its position moves. No position is missing, beyond the end"
        " of its partition or before its start; no transaction hangs; and an aggregator that says that it runs does."
    )

    aggregator: AggregatorStatus | None = None
    deadline: Deadline = LAG_DEADLINE
    now: Callable[[], float] = time.time

    def configure(self, context: CheckContext) -> Check:
        """Take the aggregator's status."""
        return replace(self, aggregator=context.aggregator)

    def observe(self, application: Application, cluster: Cluster) -> Iterable[Observation]:
        """Observe the aggregator and each stream task; see :class:`Check`."""
        rows = list(_alive(self.aggregator, self.now()))
        topics = list(dict.fromkeys(topic for tasks in application.tasks for topic in tasks.sources))
        existing(cluster, topics)
        inputs = _inputs(application, cluster)
        _count(application.application_id, cluster, inputs)
        seen_at = self.now()
        _watch(application.application_id, cluster, inputs, self.deadline)
        suspects = [found for found in inputs if found.waiting.records and not found.moved]
        if suspects:
            _count(application.application_id, cluster, suspects)
            seen_at = self.now()
        for found in inputs:
            rows += _rows(application, found, inputs, self.deadline, seen_at)
        if not any(found.offsets.high_watermark for found in inputs) and all(row.agrees for row in rows):
            subject = f"the lag of {application.application_id}"
            raise CouldNotLook(subject, expected="at least 1 record", observed="none")
        return rows


def _alive(status: AggregatorStatus | None, now: float) -> Iterable[Observation]:
    if status is None:
        return
    expected = f"a heartbeat within {HEARTBEAT_TIMEOUT_SECONDS:g} s"
    age = status.age(now)
    dead = status.state is AggregatorState.RUNNING and age > HEARTBEAT_TIMEOUT_SECONDS
    yield Observation(
        f"the aggregator, pid {status.pid} on {status.host}, says {status.state}",
        expected,
        f"none for {age:,.0f} s: it was killed, is stopped or hangs" if dead else expected,
    )


def _inputs(application: Application, cluster: Cluster) -> list[_Input]:
    inputs: dict[tuple[str, int], _Input] = {}
    for tasks in application.tasks:
        for topic in tasks.sources:
            before, offsets, after = _ask(application.application_id, cluster, topic)
            for number, seen in sorted(offsets.items()):
                position = after.get(number)
                found = _Input(_task(tasks, topic, number), topic, number, position, seen.last_stable, position, seen)
                found.see(before, offsets, after)
                inputs.setdefault((topic, number), found)
    return list(inputs.values())


def _task(tasks: SubtopologyTopics, topic: str, partition: int) -> str:
    return f"{topic}-{partition}" if tasks.id is None else f"{tasks.id}_{partition}"


def _ask(
    group: str, cluster: Cluster, topic: str
) -> tuple[Mapping[int, int], Mapping[int, Offsets], Mapping[int, int]]:
    return cluster.positions(group, topic), cluster.offsets(topic), cluster.positions(group, topic)


def _watch(group: str, cluster: Cluster, inputs: Sequence[_Input], deadline: Deadline) -> None:
    """Look again until all that is suspicious has moved, or the deadline is over.

    A position beyond the end is waited for, too: a new leader's end may be behind for as long as it waits for its
    followers.
    """
    suspicious = _suspicious(inputs)
    if suspicious:
        for _ in deadline.waits():
            for topic in sorted(_companions(suspicious, inputs)):
                seen = _ask(group, cluster, topic)
                for found in inputs:
                    if found.topic == topic:
                        found.see(*seen)
            suspicious = _suspicious(inputs)
            if not suspicious:
                break


def _suspicious(inputs: Sequence[_Input]) -> set[str]:
    """Return the topics with a partition that may be in trouble."""
    return {
        found.topic
        for found in inputs
        if found.open_transaction or found.beyond_end or (found.waiting.records and not _moves(found, inputs))
    }


def _companions(topics: set[str], inputs: Sequence[_Input]) -> set[str]:
    """Those topics, and what the same tasks read besides."""
    tasks = {found.task for found in inputs if found.topic in topics}
    return {found.topic for found in inputs if found.task in tasks}


def _moves(found: _Input, inputs: Sequence[_Input]) -> bool:
    """Whether its task moves. A task takes the oldest record of all it reads, so that one topic may have to wait.

    (``org.apache.kafka.streams.processor.internals.PartitionGroup``.) Where there is no position at all, that is an
    excuse only as long as others have older records: those of a topic once read are committed.
    """
    if found.moved:
        return True
    others = [other for other in inputs if other.task == found.task and other.moved]
    if found.position is not None:
        return bool(others)
    oldest = found.waiting.oldest
    return any(
        oldest is not None and other.waiting.oldest is not None and other.waiting.oldest <= oldest for other in others
    )


def _count(group: str, cluster: Cluster, inputs: Sequence[_Input]) -> None:
    """Count what is to process in each."""
    by_topic: dict[str, dict[int, _Input]] = {}
    for found in inputs:
        by_topic.setdefault(found.topic, {})[found.partition] = found
    for topic, partitions in by_topic.items():
        attempt(partial(_count_topic, group, cluster, topic, partitions))


def _count_topic(group: str, cluster: Cluster, topic: str, partitions: Mapping[int, _Input]) -> None:
    try:
        _count_records(cluster, topic, partitions)
    except RecordsGone:
        seen = _ask(group, cluster, topic)
        for found in partitions.values():
            found.see(*seen)
        raise


def _count_records(cluster: Cluster, topic: str, partitions: Mapping[int, _Input]) -> None:
    whole = {
        number: (max(found.position or 0, found.offsets.log_start), found.offsets.last_stable)
        for number, found in partitions.items()
    }
    ranges = {number: (first, min(last, first + COUNTED_OFFSETS)) for number, (first, last) in whole.items()}
    records = dict.fromkeys(ranges, 0)
    oldest: dict[int, int] = {}
    for batch in cluster.read(topic, ranges):
        if len(batch):
            oldest.setdefault(batch.partition, batch.timestamps[0])
            records[batch.partition] += len(batch)
    for number, (first, last) in whole.items():
        exact = ranges[number][1] >= last
        if not exact and number not in oldest:
            for batch in cluster.read(topic, {number: (ranges[number][1], last)}):
                if len(batch):
                    oldest[number] = batch.timestamps[0]
                    break
            exact = number not in oldest
        count = records[number] if exact else last - first
        partitions[number].waiting = _Waiting(count, exact, oldest.get(number))


def _rows(
    application: Application, found: _Input, inputs: Sequence[_Input], deadline: Deadline, now: float
) -> Iterable[Observation]:
    waiting, group = found.waiting, application.application_id
    age = now - waiting.oldest / 1000 if waiting.oldest is not None and waiting.oldest >= 0 else None
    subject = f"{found.title}: "
    if waiting.records:
        records = f"{waiting.records:,} record{'s' if waiting.records > 1 else ''} to process"
        subject += records if waiting.exact else f"up to {records}"
        subject += f", the oldest {_duration(age)} old" if age is not None else ""
    else:
        subject += "no record to process"
    within = f"within {deadline.seconds:g} s"
    if found.beyond_end:
        yield Observation(
            f"{found.title}: position of group {group}",
            f"at most {found.offsets.high_watermark}, the end of the partition",
            f"{found.position}: was the topic recreated or truncated?",
        )
    elif found.deleted:
        yield Observation(
            f"{found.title}: position of group {group}",
            f"at least {found.offsets.log_start}, the start of the partition",
            f"{found.position}: {found.deleted:,} offsets were deleted before they were processed",
        )
    elif not waiting.records or _moves(found, inputs):
        yield Observation(subject, _HEALTHY, _HEALTHY)
    elif found.position is None:
        yield Observation(subject, f"a committed position of group {group}", f"none {within}")
    else:
        yield Observation(subject, _HEALTHY, f"has not moved {within}", f"since {found.name} offset {found.position}")
    if found.open_transaction:
        yield Observation(
            f"{found.name}: transactions",
            f"each ends {within}",
            f"one is open since offset {found.offsets.last_stable}, and what follows cannot be read",
            "its producer is named by kafka-transactions.sh find-hanging",
        )
    bound = application.limits.lag_seconds
    if bound is not None:
        seconds = round(max(age or 0.0, 0.0), 1)
        yield limit(f"{found.title}: age of the oldest record to process", seconds, bound, " s")


def _duration(seconds: float) -> str:
    """``40 s``, ``12 min``, ``3 h``, ``2 days``."""
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0.0):.0f} s"


CHECK = LagCheck()
