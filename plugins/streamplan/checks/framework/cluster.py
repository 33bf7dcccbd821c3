"""What the checks need to see of Kafka. The real one is ``kafka.cluster``; unit tests bring their own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from streamplan.errors import CouldNotLook
from streamplan.model.topics import ObservedTopic

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


class RecordsGone(CouldNotLook):
    """Records asked for were deleted meanwhile, by retention or purging. Looking again at what is there may do."""


@dataclass(frozen=True)
class Offsets:
    """Of one partition: first offset, last stable offset (``read_committed``), high watermark."""

    log_start: int
    last_stable: int
    high_watermark: int


class Record(NamedTuple):
    """One record, where a check looks at each as a whole."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


Result = TypeVar("Result")


class RecordBatch(Protocol):
    """Records of one partition in the order of offsets, by column: a column that nobody asks for costs nothing."""

    @property
    def partition(self) -> int: ...

    @property
    def offsets(self) -> Sequence[int]: ...

    @property
    def timestamps(self) -> Sequence[int]:
        """In ms since the epoch."""

    @property
    def keys(self) -> Sequence[bytes | None]: ...

    @property
    def values(self) -> Sequence[bytes | None]: ...

    @property
    def headers(self) -> Sequence[Headers]: ...

    def __len__(self) -> int: ...


def records_of(batch: RecordBatch) -> Iterator[Record]:
    """The batch, record by record."""
    columns = (batch.offsets, batch.timestamps, batch.keys, batch.values, batch.headers)
    for row in zip(*columns, strict=True):
        yield Record(batch.partition, *row)


class Cluster(Protocol):
    """Read-only. Every method has a deadline.

    Raises :class:`CouldNotLook` when a topic is missing or records do not come, and
    :class:`streamplan.errors.BrokersUnavailable` when Kafka does not answer.
    """

    def names(self) -> Sequence[str]:
        """Of all topics."""

    def groups(self) -> Sequence[str]:
        """The ids of all consumer groups."""

    def broker_ids(self) -> Collection[int]:
        """Ids of those that are up and of those that hold a replica of any topic, up or not."""

    def topics(self, names: Sequence[str]) -> Mapping[str, ObservedTopic]:
        """Those of ``names`` that exist."""

    def topic_ids(self, names: Sequence[str]) -> Mapping[str, str]:
        """What tells a topic from another one that had its name before."""

    def offsets(self, topic: str) -> Mapping[int, Offsets]:
        """By partition. ``stable`` is read before ``end``: where they are equal, no transaction is open."""

    def positions(self, group: str, topic: str) -> Mapping[int, int]:
        """Committed, stable positions of a consumer group by partition; partitions without one are absent."""

    def committed_offsets(self, group: str) -> Mapping[str, Mapping[int, int]]:
        """The same by topic, of every topic in which the group has any."""

    def read(self, topic: str, ranges: Mapping[int, tuple[int, int]]) -> Iterator[RecordBatch]:
        """Committed records with ``first <= offset < last`` for each partition's ``(first, last)``, in batches.

        Within a partition records come in the order of their offsets. Raises :class:`RecordsGone`.
        """

    def map_batches(
        self, topic: str, ranges: Mapping[int, tuple[int, int]], function: Callable[[Iterator[RecordBatch]], Result]
    ) -> Iterator[Result]:
        """What ``function`` makes of the same records; of many in several shares, read side by side.

        It can be pickled, and does not depend on the order of partitions.
        """
