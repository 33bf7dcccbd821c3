"""Lag and liveness: is the position of every stream task right, and does it move?

Positions are those of the consumer group ``<application.id>``. A position may stay before the last offsets of a
partition when these offsets hold only transaction markers or aborted records. (Kafka Streams' ``StreamTask.findOffset``
passes them, other libraries do not.) So the check reads the committed records behind a position: they are unprocessed.
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
"""Longer than the ``commit.interval.ms`` of ``at_least_once`` (30 s), than a slow micro-batch, and than a restart."""

COUNTED_OFFSETS = 10_000
"""So many offsets of a partition are read to count unprocessed records. Of more, the offsets are counted."""

_HEALTHY = "caught up or moving"


@dataclass(frozen=True)
class _Unprocessed:
    """Committed records behind a position.

    Attributes:
        records: Their number.
        exact: Whether that is the number of records, and not of offsets.
        oldest: The timestamp of the next record, in ms since the epoch.
    """

    records: int = 0
    exact: bool = True
    oldest: int | None = None


@dataclass
class _Input:
    """A partition that a stream task reads.

    Attributes:
        task: The stream task; the positions of one task move together.
        topic: The topic.
        partition: The partition.
        first_position: The smallest position that was seen.
        first_last_stable: The last stable offset at the first look.
        position: The position at the last look.
        offsets: The offsets at the last look.
        unprocessed: The records behind the position when they were last counted.
        beyond_end: Whether the position was beyond the end at the last look.
        moved: Whether the position was seen to move.
        transaction_moved: Whether the last stable offset was seen to move.
    """

    task: str
    topic: str
    partition: int
    first_position: int | None
    first_last_stable: int
    position: int | None
    offsets: Offsets
    unprocessed: _Unprocessed = _Unprocessed()
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
        """The number of offsets that were deleted before they were processed.

        A single one behind the last record is that of a transaction's marker.
        """
        gap = max(self.offsets.log_start - self.position, 0) if self.position is not None else 0
        return gap if gap > 1 or self.unprocessed.records else 0

    @property
    def open_transaction(self) -> bool:
        return self.offsets.last_stable < self.offsets.high_watermark and not self.transaction_moved

    def see(self, before: Mapping[int, int], offsets: Mapping[int, Offsets], after: Mapping[int, int]) -> None:
        """Take in a look. ``before`` and ``after`` are the positions around it, since ends and positions grow."""
        self.offsets = offsets[self.partition]
        early, late = before.get(self.partition), after.get(self.partition)
        self.beyond_end = early is not None and early > self.offsets.high_watermark
        self.position = late
        if late is not None:
            first = self.first_position
            self.moved |= first is None or late > first
            self.first_position = late if first is None else min(first, late)  # it may be reset meanwhile
        self.transaction_moved |= self.offsets.last_stable > self.first_last_stable


@dataclass(frozen=True)
class LagCheck(Check):
    """Looks at the aggregator's status, then at every partition that is read, until nothing is suspicious."""

    name = "lag"
    title = "Lag and liveness"
    healthy = (
        "Every stream task has processed all records, or its position moves; no position is missing or out of range, no"
        " transaction hangs, and an aggregator that says it runs sends heartbeats."
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
        existing(cluster, application.sources)
        inputs = _inputs(application, cluster)
        _count(application.application_id, cluster, inputs)
        seen_at = self.now()
        _watch(application.application_id, cluster, inputs, self.deadline)
        suspects = [item for item in inputs if item.unprocessed.records and not item.moved]
        if suspects:
            _count(application.application_id, cluster, suspects)
            seen_at = self.now()
        for item in inputs:
            rows += _rows(application, item, inputs, self.deadline, seen_at)
        if not any(item.offsets.high_watermark for item in inputs) and all(row.agrees for row in rows):
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
    for subtopology in application.subtopologies:
        for topic in subtopology.sources:
            before, offsets, after = _ask(application.application_id, cluster, topic)
            for number, ends in sorted(offsets.items()):
                position, task = after.get(number), _task(subtopology, topic, number)
                item = _Input(task, topic, number, position, ends.last_stable, position, ends)
                item.see(before, offsets, after)
                inputs.setdefault((topic, number), item)
    return list(inputs.values())


def _task(subtopology: SubtopologyTopics, topic: str, partition: int) -> str:
    return f"{topic}-{partition}" if subtopology.id is None else f"{subtopology.id}_{partition}"


def _ask(
    group: str, cluster: Cluster, topic: str
) -> tuple[Mapping[int, int], Mapping[int, Offsets], Mapping[int, int]]:
    return cluster.positions(group, topic), cluster.offsets(topic), cluster.positions(group, topic)


def _watch(group: str, cluster: Cluster, inputs: Sequence[_Input], deadline: Deadline) -> None:
    """Look again until everything suspicious has moved, or until the deadline.

    A position beyond the end is suspicious, too: the end that a new leader tells may be too small for as long as the
    leader waits for its followers.
    """
    suspicious = _suspicious(inputs)
    if suspicious:
        for _ in deadline.waits():
            for topic in sorted(_companions(suspicious, inputs)):
                seen = _ask(group, cluster, topic)
                for item in inputs:
                    if item.topic == topic:
                        item.see(*seen)
            suspicious = _suspicious(inputs)
            if not suspicious:
                break


def _suspicious(inputs: Sequence[_Input]) -> set[str]:
    """Return the topics with a partition that may be in trouble."""
    return {
        item.topic
        for item in inputs
        if item.open_transaction or item.beyond_end or (item.unprocessed.records and not _moves(item, inputs))
    }


def _companions(topics: set[str], inputs: Sequence[_Input]) -> set[str]:
    """Return these topics, and what the same tasks read besides."""
    tasks = {item.task for item in inputs if item.topic in topics}
    return {item.topic for item in inputs if item.task in tasks}


def _moves(item: _Input, inputs: Sequence[_Input]) -> bool:
    """Whether the task of an input moves.

    A task takes the oldest record of all its topics (``org.apache.kafka.streams.processor.internals.PartitionGroup``).
    So one topic may have to wait while another one moves. An input without any position may wait only while the others
    have older records: once a topic is read, its position is committed.
    """
    if item.moved:
        return True
    others = [other for other in inputs if other.task == item.task and other.moved]
    if item.position is not None:
        return bool(others)
    oldest = item.unprocessed.oldest
    return any(
        oldest is not None and other.unprocessed.oldest is not None and other.unprocessed.oldest <= oldest
        for other in others
    )


def _count(group: str, cluster: Cluster, inputs: Sequence[_Input]) -> None:
    """Count the unprocessed records of each input."""
    by_topic: dict[str, dict[int, _Input]] = {}
    for item in inputs:
        by_topic.setdefault(item.topic, {})[item.partition] = item
    for topic, partitions in by_topic.items():
        attempt(partial(_count_topic, group, cluster, topic, partitions))


def _count_topic(group: str, cluster: Cluster, topic: str, partitions: Mapping[int, _Input]) -> None:
    try:
        _count_records(cluster, topic, partitions)
    except RecordsGone:
        seen = _ask(group, cluster, topic)
        for item in partitions.values():
            item.see(*seen)
        raise


def _count_records(cluster: Cluster, topic: str, partitions: Mapping[int, _Input]) -> None:
    whole = {
        number: (max(item.position or 0, item.offsets.log_start), item.offsets.last_stable)
        for number, item in partitions.items()
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
        partitions[number].unprocessed = _Unprocessed(count, exact, oldest.get(number))


def _rows(
    application: Application, item: _Input, inputs: Sequence[_Input], deadline: Deadline, now: float
) -> Iterable[Observation]:
    unprocessed, group = item.unprocessed, application.application_id
    age = now - unprocessed.oldest / 1000 if unprocessed.oldest is not None and unprocessed.oldest >= 0 else None
    subject = f"{item.title}: "
    if unprocessed.records:
        records = f"{unprocessed.records:,} record{'s' if unprocessed.records > 1 else ''} to process"
        subject += records if unprocessed.exact else f"up to {records}"
        subject += f", the oldest {_duration(age)} old" if age is not None else ""
    else:
        subject += "no record to process"
    within = f"within {deadline.seconds:g} s"
    if item.beyond_end:
        yield Observation(
            f"{item.title}: position of group {group}",
            f"at most {item.offsets.high_watermark}, the end of the partition",
            f"{item.position}: was the topic recreated or truncated?",
        )
    elif item.deleted:
        yield Observation(
            f"{item.title}: position of group {group}",
            f"at least {item.offsets.log_start}, the start of the partition",
            f"{item.position}: {item.deleted:,} offsets were deleted before they were processed",
        )
    elif not unprocessed.records or _moves(item, inputs):
        yield Observation(subject, _HEALTHY, _HEALTHY)
    elif item.position is None:
        yield Observation(subject, f"a committed position of group {group}", f"none {within}")
    else:
        yield Observation(subject, _HEALTHY, f"has not moved {within}", f"since {item.name} offset {item.position}")
    if item.open_transaction:
        yield Observation(
            f"{item.name}: transactions",
            f"each ends {within}",
            f"one is open since offset {item.offsets.last_stable}, and what follows cannot be read",
            "its producer is named by kafka-transactions.sh find-hanging",
        )
    bound = application.limits.lag_seconds
    if bound is not None:
        seconds = round(max(age or 0.0, 0.0), 1)
        yield limit(f"{item.title}: age of the oldest record to process", seconds, bound, " s")


def _duration(seconds: float) -> str:
    """``40 s``, ``12 min``, ``3 h``, ``2 days``."""
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0.0):.0f} s"


CHECK = LagCheck()
