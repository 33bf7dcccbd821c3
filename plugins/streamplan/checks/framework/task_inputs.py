"""The partitions that stream tasks read: their positions, their unprocessed records, and whether they move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from streamplan.checks.framework.application import Application, SubtopologyTopics
from streamplan.checks.framework.consistent_cut import Deadline, attempt, some_of
from streamplan.kafka_port import Cluster, RecordsGone
from streamplan.kafka_types import Offsets, TopicPartition

COUNTED_OFFSETS = 10_000
"""At most this many offsets of a partition are read to count unprocessed records. Beyond that, offsets are counted."""


@dataclass(frozen=True)
class Unprocessed:
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
class TaskInput:
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
    unprocessed: Unprocessed = Unprocessed()
    beyond_end: bool = False
    moved: bool = False
    transaction_moved: bool = False

    @property
    def name(self) -> str:
        """``orders-0``."""
        return f"{self.topic}-{self.partition}"

    @property
    def title(self) -> str:
        """The stream task, as people see it."""
        return f"task {self.task} ({self.name})" if self.task != self.name else f"the task that reads {self.name}"

    @property
    def deleted(self) -> int:
        """The number of offsets that were deleted before they were processed.

        A single one behind the last record is that of a transaction's marker.
        """
        gap = max(self.offsets.log_start - self.position, 0) if self.position is not None else 0
        return gap if gap > 1 or self.unprocessed.records else 0

    @property
    def next_offset(self) -> int:
        """The first offset that is there and is not processed."""
        return max(self.position or 0, self.offsets.log_start)

    @property
    def unprocessed_offsets(self) -> int:
        """The number of offsets from there to the last stable one."""
        return max(self.offsets.last_stable - self.next_offset, 0)

    @property
    def open_transaction(self) -> bool:
        """Whether a transaction is open on the partition and was not seen to end."""
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


def read_inputs(application: Application, cluster: Cluster) -> list[TaskInput]:
    """Look once at every partition that the application reads."""
    inputs: dict[TopicPartition, TaskInput] = {}
    for subtopology in application.subtopologies:
        for topic in subtopology.sources:
            before, offsets, after = _ask(application.application_id, cluster, topic)
            for number, ends in sorted(offsets.items()):
                position, task = after.get(number), _task(subtopology, topic, number)
                item = TaskInput(task, topic, number, position, ends.last_stable, position, ends)
                item.see(before, offsets, after)
                inputs.setdefault((topic, number), item)
    return list(inputs.values())


def _task(subtopology: SubtopologyTopics, topic: str, partition: int) -> str:
    return f"{topic}-{partition}" if subtopology.id is None else f"{subtopology.id}_{partition}"


def _ask(
    group: str, cluster: Cluster, topic: str
) -> tuple[Mapping[int, int], Mapping[int, Offsets], Mapping[int, int]]:
    return cluster.positions(group, topic), cluster.offsets(topic), cluster.positions(group, topic)


def watch_inputs(group: str, cluster: Cluster, inputs: Sequence[TaskInput], deadline: Deadline) -> None:
    """Look again until everything suspicious has moved, or until the deadline.

    A position beyond the end is suspicious, too: the end that a new leader tells may be too small for as long as the
    leader waits for its followers.
    """
    suspicious = _suspicious(inputs)
    if suspicious:
        still = some_of([item.name for item in suspicious])
        for _ in deadline.waits(f"positions or transactions move on {still}"):
            for topic in sorted(_companions(suspicious, inputs)):
                seen = _ask(group, cluster, topic)
                for item in inputs:
                    if item.topic == topic:
                        item.see(*seen)
            suspicious = _suspicious(inputs)
            if not suspicious:
                break


def _suspicious(inputs: Sequence[TaskInput]) -> list[TaskInput]:
    """Return the partitions that may be in trouble."""
    return [
        item
        for item in inputs
        if item.open_transaction or item.beyond_end or (item.unprocessed.records and not task_moves(item, inputs))
    ]


def _companions(suspicious: Sequence[TaskInput], inputs: Sequence[TaskInput]) -> set[str]:
    """Return the topics of these partitions, and what the same tasks read besides."""
    topics = {item.topic for item in suspicious}
    tasks = {item.task for item in inputs if item.topic in topics}
    return {item.topic for item in inputs if item.task in tasks}


def task_moves(item: TaskInput, inputs: Sequence[TaskInput]) -> bool:
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


def count_unprocessed(group: str, cluster: Cluster, inputs: Sequence[TaskInput]) -> None:
    """Count the unprocessed records of each input."""
    by_topic: dict[str, dict[int, TaskInput]] = {}
    for item in inputs:
        by_topic.setdefault(item.topic, {})[item.partition] = item
    for topic, partitions in by_topic.items():
        attempt(partial(_count_topic, group, cluster, topic, partitions))


def _count_topic(group: str, cluster: Cluster, topic: str, partitions: Mapping[int, TaskInput]) -> None:
    try:
        _count_records(cluster, topic, partitions)
    except RecordsGone:
        seen = _ask(group, cluster, topic)
        for item in partitions.values():
            item.see(*seen)
        raise


def _count_records(cluster: Cluster, topic: str, partitions: Mapping[int, TaskInput]) -> None:
    whole = {number: (item.next_offset, item.offsets.last_stable) for number, item in partitions.items()}
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
        partitions[number].unprocessed = Unprocessed(count, exact, oldest.get(number))
