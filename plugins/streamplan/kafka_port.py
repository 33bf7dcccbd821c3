"""The Kafka port: what the package reads from Kafka, as a protocol.

``kafka.cluster`` implements it with confluent-kafka, and unit tests in memory. So the checks, and all else that only
reads, import no client. This module imports the standard library alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from streamplan.errors import CouldNotLook
from streamplan.kafka_types import (
    Headers,
    OffsetByPartition,
    OffsetRanges,
    Offsets,
    PartitionOffset,
    Record,
    TopicPartition,
)
from streamplan.model.committed_positions import CommittedPosition
from streamplan.model.group_member import Member
from streamplan.model.topics import ObservedTopic
from streamplan.serdes.schema_source import SchemaSource


class RecordsGone(CouldNotLook):
    """Retention, compaction or purging deleted records while they were read. A further attempt may succeed."""


Result = TypeVar("Result")


class RecordBatch(Protocol):
    """Records of one partition in the order of offsets, by column. A column that nobody asks for costs nothing."""

    @property
    def partition(self) -> int:
        """The partition of all records."""

    @property
    def offsets(self) -> Sequence[int]:
        """The offset of each record."""

    @property
    def timestamps(self) -> Sequence[int]:
        """The timestamp of each record, in ms since the epoch."""

    @property
    def keys(self) -> Sequence[bytes | None]:
        """The key of each record."""

    @property
    def values(self) -> Sequence[bytes | None]:
        """The value of each record."""

    @property
    def headers(self) -> Sequence[Headers]:
        """The headers of each record, see :attr:`streamplan.kafka_types.Record.headers`."""

    def __len__(self) -> int: ...


def records_of(batch: RecordBatch) -> Iterator[Record]:
    """Yield the records of a batch one by one."""
    columns = (batch.offsets, batch.timestamps, batch.keys, batch.values, batch.headers)
    for row in zip(*columns, strict=True):
        yield Record(batch.partition, *row)


class Cluster(Protocol):
    """Reads from Kafka and writes nothing. Every method has a deadline.

    Every method raises :class:`streamplan.errors.CouldNotLook` when a topic is missing or records do not come, and
    :class:`streamplan.errors.BrokersUnavailable` when Kafka does not answer.
    """

    @property
    def schemas(self) -> SchemaSource:
        """Knows the schemas that values name. It answers, or fails, when a schema is asked for."""

    def names(self) -> Sequence[str]:
        """Return the names of all topics."""

    def groups(self) -> Sequence[str]:
        """Return the ids of all consumer groups."""

    def members(self, group: str) -> Sequence[Member] | None:
        """Return the members of a consumer group.

        Returns:
            No member also for a group that does not exist. None where members cannot be seen: the group has the
            protocol ``streams`` (KIP-1071), which this client cannot describe.
        """

    def broker_ids(self) -> Collection[int]:
        """Return the ids of the brokers that are up, and of those that hold a replica of any topic, up or not."""

    def topics(self, names: Sequence[str]) -> Mapping[str, ObservedTopic]:
        """Return those topics of ``names`` that exist."""

    def topic_ids(self, names: Sequence[str]) -> Mapping[str, str]:
        """Return the ids of topics. A topic that was deleted and created again has another id."""

    def offsets(self, topic: str) -> Mapping[int, Offsets]:
        """Return the borders of each partition.

        ``last_stable`` is read before ``high_watermark``: where they are equal, no transaction is open.
        """

    def offsets_since(self, topic: str, timestamp_ms: int | None) -> OffsetByPartition:
        """Return where reading begins that begins at a moment.

        Args:
            topic: The topic.
            timestamp_ms: The time of the first record that is read, or later; None for the end of the topic.

        Returns:
            By partition the offset of the first such record, else the last stable offset.
        """

    def positions(self, group: str, topic: str) -> OffsetByPartition:
        """Return the committed, stable positions of a consumer group. Partitions without a position are absent."""

    def starts(self, group: str, topic: str) -> OffsetByPartition:
        """Return the offsets at which an application of ours began to read a topic. Partitions of others are absent."""

    def committed_offsets(self, group: str) -> Mapping[str, OffsetByPartition]:
        """Return the same positions by topic, for every topic in which the group has any."""

    def committed_positions(self, group: str) -> Mapping[TopicPartition, CommittedPosition]:
        """Return the same positions with their metadata, by topic and partition."""

    def read(self, topic: str, ranges: OffsetRanges) -> Iterator[RecordBatch]:
        """Read committed records in batches; within a partition in the order of their offsets.

        Args:
            topic: The name of the topic.
            ranges: For each partition the first offset, and the offset behind the last one.

        Raises:
            RecordsGone: Records of the ranges were deleted.
        """

    def read_uncommitted(self, topic: str, ranges: OffsetRanges) -> Iterator[RecordBatch]:
        """Read records as :meth:`read` does, with those of open and of aborted transactions."""

    def map_batches(
        self, topic: str, ranges: OffsetRanges, function: Callable[[Iterator[RecordBatch]], Result]
    ) -> Iterator[Result]:
        """Call a function with the batches of the same records. Many records are divided and read in parallel.

        Args:
            topic: The name of the topic.
            ranges: For each partition the first offset, and the offset behind the last one.
            function: Can be pickled, and does not depend on the order of partitions.

        Returns:
            The result of each call.

        Raises:
            RecordsGone: Records of the ranges were deleted.
        """


_NEAR_OFFSETS = 2_000
"""Records that are nearer to each other are read at once, with those between them: a read of its own costs more."""


def read_records_at(cluster: Cluster, topic: str, places: Iterable[PartitionOffset]) -> Iterator[Record]:
    """Yield single committed records. Those that are not there any more are left out.

    Args:
        cluster: The brokers.
        topic: An existing topic.
        places: Partitions and offsets.

    Raises:
        RecordsGone: Records were deleted while they were read. A further attempt may succeed.
    """
    wanted: dict[int, list[int]] = {}
    borders = cluster.offsets(topic)
    for partition, offset in sorted(set(places)):
        if partition in borders and borders[partition].log_start <= offset < borders[partition].last_stable:
            wanted.setdefault(partition, []).append(offset)
    runs = {partition: _runs_of_near_offsets(offsets) for partition, offsets in wanted.items()}
    while runs:
        ranges = {partition: (remaining[-1][0], remaining[-1][-1] + 1) for partition, remaining in runs.items()}
        taken = {partition: set(remaining.pop()) for partition, remaining in runs.items()}
        for batch in cluster.read(topic, ranges):
            if taken[batch.partition].isdisjoint(batch.offsets):
                continue
            yield from (record for record in records_of(batch) if record.offset in taken[batch.partition])
        runs = {partition: remaining for partition, remaining in runs.items() if remaining}


def _runs_of_near_offsets(offsets: Sequence[int]) -> list[list[int]]:
    """Divide ascending offsets into runs whose neighbours are near to each other; the last run comes first."""
    runs: list[list[int]] = []
    for offset in offsets:
        if runs and offset - runs[-1][-1] <= _NEAR_OFFSETS:
            runs[-1].append(offset)
        else:
            runs.append([offset])
    return runs[::-1]
