"""What the stream tasks of a sub-topology write, and where: the values that the sink is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from streamplan.kafka.brokers import Brokers
from streamplan.kafka_types import Header, TopicPartition
from streamplan.model.generation import Generation
from streamplan.model.processor_topology import TaskId
from streamplan.model.windows import STORED_SESSION_BYTES, WINDOW_START_BYTES

DEAD_LETTER = -1
"""Stands for the dead-letter topic where the number of an output is expected."""

PASSED_OVER = "\0"
"""The reason of a row that is neither a record nor a dead letter: it only says that a record was read."""

NULL_KEY = "the key is null"
"""The reason of a record without a key, where it needs one."""

TASK_ORDER = ("partition_time", "topic", "offset", "order")
"""The columns by which the records of a stream task are ordered, in the plan, in a state and when they are written."""


class PartitionBy(StrEnum):
    """How the partition of a record is chosen in an output topic.

    ``KEY``           by its key
    ``WINDOWED_KEY``  by its key without the bytes of the window
    ``SESSION_KEY``   by its key without the bytes of the session
    ``TASK``          the partition of the stream task
    ``BEHIND_VALUE``  the number in 4 bytes behind the value, which is not written with it
    """

    KEY = "key"
    WINDOWED_KEY = "windowed key"
    SESSION_KEY = "session key"
    TASK = "task"
    BEHIND_VALUE = "behind the value"

    @property
    def window_bytes(self) -> int:
        """How many bytes at the end of a key are those of its window."""
        return {PartitionBy.WINDOWED_KEY: WINDOW_START_BYTES, PartitionBy.SESSION_KEY: STORED_SESSION_BYTES}.get(
            self, 0
        )


@dataclass(frozen=True)
class Output:
    """A topic that a sub-topology writes: its name in Kafka and its number of partitions."""

    topic: str
    partition_by: PartitionBy
    partitions: int


@dataclass(frozen=True)
class RejectedRecord:
    """A record that cannot be processed, complete and with the reason.

    A record that an aggregate made has no ``topic`` and no ``offset``. ``timestamp`` is in ms; None stands for the time
    of writing, where the record's own is the fault.
    """

    topic: str | None
    partition: int
    offset: int | None
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    reason: str


@dataclass(frozen=True)
class HandedOnTo:
    """What a stream task was handed on in a micro-batch, see :class:`streamplan.spark.sink.handed_on.HandedOn`."""

    records: int = 0
    markers: int = 0


@dataclass(frozen=True)
class HandedOnInput:
    """What a sub-topology is handed on instead of reading it.

    ``topic``       that it does not read
    ``partitions``  of the topic
    ``tasks``       what the stream task of each partition was handed on; None while that is not known
    """

    topic: str
    partitions: int
    tasks: Mapping[int, HandedOnTo] | None = None


@dataclass(frozen=True)
class TransactionSpec:
    """Where the stream tasks of one sub-topology read and write in one micro-batch.

    ``generation``  of the aggregator; it is committed with every position
    ``ranges``      for each source topic and partition the offsets ``(first, past the last)`` of this micro-batch;
                    partitions without new records are left out
    ``outputs``     the topics that rows name by their number
    ``checkpoint``  id of the checkpoint that the query goes on with; it is committed with every position
    ``batch``       number of the micro-batch; it is committed with every position
    ``times``       by partition the time in ms that the wall clock gives to a stream task; it is committed with the
                    positions of this task. Only tasks with punctuators are given one beside records
    ``handed_on``   what the sub-topology is handed on instead of reading it. ``ranges`` is empty then
    """

    brokers: Brokers
    application_id: str
    generation: Generation
    transaction_timeout_ms: int
    subtopology: int
    ranges: Mapping[TopicPartition, tuple[int, int]]
    outputs: tuple[Output, ...]
    dead_letter_topic: str
    dead_letter_partitions: int
    checkpoint: str = ""
    batch: int | None = None
    times: Mapping[int, int] = field(default_factory=dict)
    handed_on: HandedOnInput | None = None

    def task(self, partition: int) -> TaskId:
        """Return the stream task of a partition."""
        return TaskId(self.subtopology, partition)

    @property
    def partitions(self) -> frozenset[int]:
        """The partitions whose stream tasks have something to read, or may be handed something on."""
        if self.handed_on is not None:
            return frozenset(range(self.handed_on.partitions))
        return frozenset(partition for _, partition in self.ranges)
