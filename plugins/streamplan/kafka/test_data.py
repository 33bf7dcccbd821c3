"""Writes a pipeline's test data: the records of number 0 to N-1, each exactly once, across kills and retries.

One transaction holds one contiguous range of numbers. A new producer fences an older one and ends its transaction. Then
the topics themselves tell which number comes next, so there is no second place that could disagree with them.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from streamplan.errors import Refused
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.schema_registry import SchemaRegistry
from streamplan.kafka.topics import observe_topics
from streamplan.kafka.transactions import transactional_producer
from streamplan.kafka_port import records_of
from streamplan.model.partitioner import LIBRDKAFKA_PARTITIONER
from streamplan.model.pipeline import Pipeline, TestData
from streamplan.serdes.serde import Serde

TRANSACTION_RECORDS = 100_000
TRANSACTION_SECONDS = 0.2
"""With a rate, how many seconds of records one transaction holds: readers see records when it is committed."""

_COMMIT_SECONDS = 60.0
_BATCH_RECORDS = 5_000
_TAIL_OFFSETS = 1_000


@dataclass(frozen=True)
class Produced:
    """What one run has written.

    Attributes:
        first: The first number.
        until: The number after the last.
        seconds: How long it took once the producer was open.
        partitions: How many records each partition holds, as the brokers acknowledged them.
    """

    first: int
    until: int
    seconds: float
    partitions: Mapping[int, int]

    @property
    def records(self) -> int:
        """How many records were written."""
        return self.until - self.first

    @property
    def rate(self) -> float:
        """Records a second."""
        return self.records / self.seconds if self.seconds else 0.0


@dataclass
class Pace:
    """A pace of ``rate`` records a second; 0 is without limit. Time that was lost is not made up for."""

    rate: int
    clock: Callable[[], float] = time.monotonic
    _due: float | None = field(default=None, init=False)

    def delay(self, records: int) -> float:
        """Return the seconds to wait after a transaction of this many records."""
        if not self.rate:
            return 0.0
        now = self.clock()
        self._due = (now if self._due is None else self._due) + records / self.rate
        if now - self._due > 1.0:
            self._due = now
        return max(0.0, self._due - now)


def next_number(pipeline: Pipeline, brokers: Brokers) -> int:
    """Return the number after the greatest one that is committed in the topics; 0 where there is none.

    Numbers rise within a partition, so the last of our records in each partition is enough. Records of others may
    follow it. So the search goes back, twice as far each time, until it finds one of ours or the partition begins.

    Raises:
        Refused: The pipeline declares no test data, a topic does not exist, or no Schema Registry is given for values
            that name a schema.
        BrokersUnavailable: The brokers did not answer.
        SchemaRegistryUnavailable: The registry gave no usable answer.
    """
    test_data = pipeline.require_test_data()
    topics = test_data.topics
    serdes = _serdes(pipeline, brokers)
    cluster = KafkaCluster(brokers)
    if missing := sorted(set(topics) - observe_topics(brokers, topics, with_configs=False).keys()):
        raise Refused(
            f"topic {', '.join(missing)}",
            expected=f"to exist at {brokers}",
            observed="no such topic",
            remedy=f"The task topics of {pipeline.name}_deploy creates it.",
        )
    greatest = -1
    partitions = [(topic, *partition) for topic in topics for partition in cluster.offsets(topic).items()]
    for topic, partition, offsets in partitions:
        window, end = _TAIL_OFFSETS, offsets.last_stable
        while end > offsets.log_start:
            first = max(offsets.log_start, end - window)
            numbers = [
                number
                for batch in cluster.read(topic, {partition: (first, end)})
                for record in records_of(batch)
                if (number := test_data.number_of(topic, record.key, record.value, serdes)) is not None
            ]
            if numbers:
                greatest = max(greatest, *numbers)
                break
            window, end = 2 * window, first
    return greatest + 1


def produce(
    pipeline: Pipeline,
    brokers: Brokers,
    *,
    records: int | None = None,
    until: int | None = None,
    rate: int = 0,
    stop: threading.Event,
    progress: Callable[[int, int | None], None],
) -> Produced:
    """Write records until a number is reached, or until ``stop`` is set.

    Args:
        pipeline: The pipeline whose test data are written.
        records: How many more records to write.
        until: The first number that is not written. Without ``records`` and ``until`` the run has no end.
        rate: Records a second; 0 is without limit.
        stop: Ends the run after the current transaction.
        progress: Is told the next number and the first that is not written, at first and after each transaction.

    Raises:
        Refused: The pipeline declares no test data, a newer producer has fenced this one, a topic does not exist, or
            the Schema Registry does not take a schema.
        BrokersUnavailable: The brokers did not answer.
        SchemaRegistryUnavailable: The registry gave no usable answer.
    """
    test_data = pipeline.require_test_data()
    next_number(pipeline, brokers)  # tells in its own words when the brokers or a topic are missing
    serdes = _serdes(pipeline, brokers)
    for topic in test_data.topics:
        serdes[topic].prepare_to_write()
    with transactional_producer(
        brokers,
        pipeline.producer_transactional_id,
        partitioner=LIBRDKAFKA_PARTITIONER,
        linger_ms=20,
        compression_type="lz4",
        batch_size=500_000,
        queue_buffering_max_messages=2 * TRANSACTION_RECORDS,
    ) as producer:
        first = number = next_number(pipeline, brokers)  # what an older producer left is decided only now
        if records is not None:
            until = first + records
        began = time.monotonic()
        progress(number, until)
        partitions: Counter[int] = Counter()
        pace = Pace(rate)
        size = max(1, min(TRANSACTION_RECORDS, int(rate * TRANSACTION_SECONDS))) if rate else TRANSACTION_RECORDS
        while not stop.is_set() and (until is None or number < until):
            end = number + size if until is None else min(number + size, until)
            partitions += _write(test_data, serdes, producer, number, end)
            number = end
            progress(number, until)
            stop.wait(pace.delay(size))
        seconds = time.monotonic() - began
    return Produced(first, number, seconds, partitions)


def fence_producer(pipeline: Pipeline, brokers: Brokers) -> None:
    """Fence a producer that runs, wherever it does: it can commit nothing any more, and ends.

    Raises:
        BrokersUnavailable: The brokers did not answer.
    """
    with transactional_producer(brokers, pipeline.producer_transactional_id):
        pass


def _serdes(pipeline: Pipeline, brokers: Brokers) -> Mapping[str, Serde]:
    return pipeline.with_schemas(SchemaRegistry.of(brokers)).source_serdes


def _write(test_data: TestData, serdes: Mapping[str, Serde], producer: Producer, first: int, end: int) -> Counter[int]:
    """Write one transaction. Returns how many records went into each partition."""
    partitions: Counter[int] = Counter()

    def acknowledged(error: KafkaError | None, message: Any) -> None:  # Any: the stubs take its partition for optional
        if error is None:  # with an error the commit fails, and says so
            partitions[message.partition()] += 1

    producer.begin_transaction()
    for at in range(first, end, _BATCH_RECORDS):  # librdkafka sends one batch while the next is made
        by_topic: dict[str, list[dict[str, Any]]] = {topic: [] for topic in test_data.topics}
        for n in range(at, min(at + _BATCH_RECORDS, end)):
            topic, key, value = test_data.written(n, serdes)
            by_topic[topic].append({"key": key, "value": value})
        for topic, messages in by_topic.items():
            queued = producer.produce_batch(topic, messages, on_delivery=acknowledged)
            if queued != len(messages):
                raise KafkaException(next(message["_error"] for message in messages if "_error" in message))
    producer.commit_transaction(_COMMIT_SECONDS)
    return partitions
