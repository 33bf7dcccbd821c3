"""Reads committed records of topics on and on, and tells how far it is and where the ends are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, NamedTuple

import confluent_kafka
from confluent_kafka import KafkaError

from streamplan.errors import BrokersUnavailable
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import READERS_GROUP, MessageBatch
from streamplan.kafka_port import RecordBatch, RecordsGone
from streamplan.kafka_types import OffsetByPartition

_BATCH_RECORDS = 2_000

_GONE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


class Read(NamedTuple):
    """What was read of a partition.

    Attributes:
        topic: The topic.
        partition: The partition.
        batch: The records; None where only markers of transactions, or aborted records, were passed.
        position: The offset that comes next.
    """

    topic: str
    partition: int
    batch: RecordBatch | None
    position: int


class FollowedTopics:
    """Follows partitions of topics from given offsets.

    Args:
        begin: By topic and partition the offset of the first record that is read.
    """

    def __init__(self, brokers: Brokers, begin: Mapping[str, OffsetByPartition]) -> None:
        self._consumer = brokers.consumer(
            READERS_GROUP,
            isolation_level="read_committed",
            auto_offset_reset="error",
            enable_partition_eof=True,
            fetch_queue_backoff_ms=5,
        )
        places = [
            confluent_kafka.TopicPartition(topic, partition, offset)
            for topic, offsets in begin.items()
            for partition, offset in offsets.items()
        ]
        self._consumer.assign(places)
        self._places = [(place.topic, place.partition) for place in places]

    def close(self) -> None:
        """End it."""
        self._consumer.close()

    def read(self, seconds: float) -> Iterator[Read]:
        """Wait for records, and yield what has come, at most 2,000 records.

        Args:
            seconds: The longest wait.

        Raises:
            RecordsGone: Records were deleted before they were read.
            BrokersUnavailable: The brokers do not permit to read.
        """
        first = self._consumer.poll(seconds)
        if first is None:
            return
        messages: list[Any] = [first, *self._consumer.consume(_BATCH_RECORDS - 1, 0)]
        for (topic, partition, is_error), run in groupby(messages, key=_kind):
            if is_error:
                for message in run:
                    if message.error().code() == KafkaError._PARTITION_EOF:
                        yield Read(topic, partition, None, message.offset())
                    else:
                        _raise_on(message.error(), topic, partition)
            else:
                of_run = list(run)
                yield Read(topic, partition, MessageBatch(partition, of_run), of_run[-1].offset() + 1)

    def ends(self) -> Mapping[tuple[str, int], int]:
        """Return the ends of the partitions, as the brokers said them with the last records. Nobody is asked."""
        found = {}
        for topic, partition in self._places:
            place = confluent_kafka.TopicPartition(topic, partition)
            _, end = self._consumer.get_watermark_offsets(place, cached=True)
            if end >= 0:
                found[topic, partition] = end
        return found


def _kind(message: Any) -> tuple[str, int, bool]:
    return message.topic(), message.partition(), message.error() is not None


def _raise_on(error: KafkaError, topic: str, partition: int) -> None:
    """Raise what does not pass by itself. Of a broker that is away, librdkafka tries again."""
    if error.code() in _GONE:
        raise RecordsGone(
            f"{topic}-{partition}",
            expected="the records behind those that were read",
            observed=error.str(),
            remedy="They were deleted before they were read: read the topic anew.",
        )
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED or error.fatal():
        raise BrokersUnavailable(
            f"records of {topic}",
            expected="records",
            observed=error.str(),
            remedy=f"Does this client have Read on topic {topic}? `streamplan acls` lists what each role needs.",
        )
