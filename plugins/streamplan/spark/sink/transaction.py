"""The transactional sink: output records and input position move together or not at all.

The protocol is that of Kafka Streams' ``exactly_once_v2`` (KIP-447), in Python workers with librdkafka. Each stream
task has one transaction in each micro-batch: produce, send the positions of the source partitions to the transaction,
commit. When the same micro-batch runs again after a crash, it finds these positions and skips what is committed.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from streamplan.errors import Refused, StreamplanError
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.groups import committed_offsets
from streamplan.kafka.requests import call_with_retry, error_code, is_fenced
from streamplan.kafka.task_ownership import superseded_error
from streamplan.kafka.transactions import (
    DEADLINE_SECONDS,
    NoAnswerToPositions,
    open_task_producer,
    send_positions,
)
from streamplan.kafka_types import Header, TopicPartition
from streamplan.model.committed_positions import CommittedPosition, foreign_position_error
from streamplan.model.dead_letters import ERROR_MESSAGE, MAX_BYTES, REASON, TASK, Origin, fit_record, origin_headers
from streamplan.model.generation import PositionMetadata
from streamplan.model.partitioner import LIBRDKAFKA_PARTITIONER, partition_for_key
from streamplan.model.processor_topology import TaskId
from streamplan.model.timestamps import FIRST_WRITABLE_MS, writable_timestamp
from streamplan.serdes.reason import harmless
from streamplan.serdes.serde import header_bytes
from streamplan.serdes.subscriptions import LENGTH_BYTES
from streamplan.spark.sink import delivery_queue
from streamplan.spark.sink.foreign_records import require_own_records
from streamplan.spark.sink.spec import HandedOnTo, Output, PartitionBy, RejectedRecord, TransactionSpec

_COMMIT_INTERVAL_SECONDS = 1.0
"""After so long a transaction of records that are written one by one is committed, and another one goes on.

So the sub-topology that reads them need not wait for the rest of a long micro-batch. Each commit costs about 50 ms, in
which the coordinator is still busy with the transaction before.
"""

_SHARE_OF_TIMEOUT = 0.25
"""The share of its time-out that such a transaction takes at most. The rest is for the brokers."""


_MARKER_SECONDS = 0.005
"""How often it is looked whether the markers of a transaction are written, which takes some milliseconds."""

PRODUCER_CONFIGS: Mapping[str, Any] = {
    "partitioner": LIBRDKAFKA_PARTITIONER,
    "compression_type": "lz4",
    "linger_ms": 5,
    "message_max_bytes": 16 * 1024 * 1024,  # before compression; the topic's own limit is after it
}
"""Properties of every producer that writes outputs of a sub-topology, with underscores for dots."""


class TaskOutput(ABC):
    """What one stream task ``n_p`` writes in a micro-batch, and how far it is committed.

    A producer is given each record with its partition, its timestamp and its headers. Where these records go, and what
    a commit is, is left to the subclasses: :class:`TaskTransaction` writes to Kafka.

    ``ranges``     by source topic the offsets of this micro-batch
    ``positions``  by source topic the offset past the last record that is committed
    ``goes_by_clock``  whether the task has no records, and its time goes on by the wall clock

    Args:
        spec: Where the stream task reads and writes.
        partition: The ``p`` of the task.
    """

    positions: dict[str, int]

    def __init__(self, spec: TransactionSpec, partition: int) -> None:
        self.spec = spec
        self.partition = partition
        self.ranges = {topic: extent for (topic, number), extent in spec.ranges.items() if number == partition}
        self.goes_by_clock = partition in spec.times and all(first == until for first, until in self.ranges.values())
        self._batch_is_committed = False

    def _write_to(self, producer: Producer) -> None:
        self._producer = producer
        self._queue = delivery_queue.DeliveryQueue(producer)

    @property
    def already_committed(self) -> bool:
        """Whether an earlier run has committed this whole micro-batch for the partition."""
        if self.goes_by_clock:  # no position moves
            return self._batch_is_committed
        return all(self.positions[topic] >= until for topic, (_, until) in self.ranges.items())

    @property
    def untouched(self) -> bool:
        """Whether no earlier run has committed a part of it: then what was aggregated over all of it may be written."""
        return all(self.positions[topic] == first for topic, (first, _) in self.ranges.items())

    def produce(
        self,
        output: Output,
        keys: Iterable[bytes | None],
        values: Iterable[bytes | None],
        timestamps: Iterable[int],
        headers: Iterable[list[Header] | None],
        size: int,
    ) -> None:
        """Queue records for an output, see :func:`produce_records`.

        Args:
            output: The topic.
            keys: The keys in bytes.
            values: The values in bytes, as many as keys.
            timestamps: In ms, as many as keys.
            headers: Of each record; None for a record without headers. librdkafka takes no tuple.
            size: The bytes of all keys and values.
        """
        self._queue.reserve(size)
        produce_records(self._producer, output, self.partition, keys, values, timestamps, headers)

    def dead_letter(self, rejected: RejectedRecord) -> None:
        """Queue a record for the dead-letter topic, with where it came from and the reason as headers.

        Parts that make it too large for the topic are left out, and a header says so.
        """
        reason = harmless(rejected.reason)
        added = {REASON: reason, ERROR_MESSAGE: reason, TASK: str(self.spec.task(self.partition))}
        if rejected.topic is not None and rejected.offset is not None:
            added |= origin_headers(Origin(rejected.topic, rejected.partition, rejected.offset))
        record = fit_record(rejected.key, rejected.value, rejected.headers, added)
        self._queue.reserve(len(record.key or b"") + len(record.value or b"") + header_bytes(record.headers))
        self._producer.produce(
            self.spec.dead_letter_topic,
            key=record.key,
            value=record.value,
            partition=rejected.partition % self.spec.dead_letter_partitions,
            timestamp=0 if rejected.timestamp is None else writable_timestamp(rejected.timestamp),  # 0 is now
            headers=[*record.headers, *((name, text.encode()) for name, text in record.added.items())],
        )

    @property
    @abstractmethod
    def old(self) -> bool:
        """Whether what was written so far should be committed, where it can be."""

    @abstractmethod
    def require_complete_input(self, topic: str, next_offset: int) -> None:
        """Raise StreamplanError unless all records of a source topic have come, up to the end of the micro-batch."""

    @abstractmethod
    def commit_part(self, positions: Mapping[str, int]) -> None:
        """Commit what was written so far, and go on."""

    @abstractmethod
    def commit(self) -> None:
        """Commit the records together with the positions past the micro-batch."""

    def __enter__(self) -> Self:
        return self

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take back what is not committed."""


class TaskTransaction(TaskOutput):
    """The transaction of one stream task ``n_p``; a context manager that aborts unless :meth:`commit` was called.

    Opening it fences every earlier producer of the task and ends the transaction that it left. ``positions`` are read
    after that and so are final: an earlier run has committed the records below them.

    A producer that is kept was opened by an earlier transaction of the same generation. Only a newer producer of the
    task can have fenced it, and then nothing of this transaction is committed.

    Args:
        spec: Where the stream task reads and writes.
        partition: The ``p`` of the task.
        kept: Has the producer of the task, and gets it when the transaction is committed; None where it is closed.

    Raises:
        Refused: There is a newer aggregator, or a position is missing, behind the micro-batch or another program's.
    """

    def __init__(self, spec: TransactionSpec, partition: int, kept: KeptProducers | None = None) -> None:
        super().__init__(spec, partition)
        self._kept = kept
        self._committed = False
        producer = kept.take(spec.task(partition)) if kept is not None else None
        if producer is None:
            # Before the transactional id is taken, so that a superseded aggregator does not disturb its successor.
            self._require_own(self._read("read_uncommitted"))
            producer = _open_producer(spec, partition)
        self._write_to(producer)
        try:
            self.positions = self._read_positions()
            self._settle_ranges()
            self._require_not_ahead()
            self._begin()
        except BaseException:  # nobody else knows the producer
            _close(producer)
            raise

    def require_complete_input(self, topic: str, next_offset: int) -> None:
        """See :meth:`TaskOutput.require_complete_input`."""
        require_complete(self.spec, self.partition, topic, next_offset, self.ranges[topic][1])

    @property
    def old(self) -> bool:
        """Whether the transaction has lasted so long that it should be committed, where it can be."""
        timeout = self.spec.transaction_timeout_ms / 1000
        return time.monotonic() - self._begun >= min(_COMMIT_INTERVAL_SECONDS, timeout * _SHARE_OF_TIMEOUT)

    def commit_part(self, positions: Mapping[str, int]) -> None:
        """Commit what was written so far, and go on in another transaction.

        This is only for rows that were made of single records: another run of the micro-batch skips the records below
        the positions. Otherwise a micro-batch that takes longer than a transaction may last would be aborted, however
        often it is tried.

        Args:
            positions: By source topic the offset past the last record of which everything, and nothing past it, was
                written.
        """
        self._commit(positions)
        self.positions |= positions
        self._begin()

    def commit(self) -> None:
        """Commit the records together with the positions past the micro-batch."""
        self._commit({topic: until for topic, (_, until) in self.ranges.items()})
        self._committed = True

    def _settle_ranges(self) -> None:
        """Find out the offsets of the micro-batch, where they follow from what is in Kafka by now."""

    def _require_not_ahead(self) -> None:
        """Raise :class:`Refused` where records between a committed position and the micro-batch would be lost."""
        for topic, position in self.positions.items():
            first, _ = self.ranges[topic]
            if position < first:
                raise Refused(
                    f"task {self.spec.task(self.partition)}: the checkpoint is ahead of Kafka",
                    expected=f"{topic}-{self.partition} committed up to {first}",
                    observed=f"position {position} of group {self.spec.application_id}",
                    remedy="Records in between would be lost. Look whether somebody has reset the group, or whether "
                    "the checkpoint belongs to another cluster.",
                )

    def _begin(self) -> None:
        self._begun = time.monotonic()
        self._producer.begin_transaction()

    def _commit(self, ends: Mapping[str, int]) -> None:
        spec = self.spec
        time = max((each for each in (self._time, spec.times.get(self.partition)) if each is not None), default=None)
        metadata = PositionMetadata(spec.generation, spec.checkpoint, spec.batch, time=time)
        positions = [
            confluent_kafka.TopicPartition(
                topic,
                self.partition,
                max(until, self.positions[topic]),
                replace(metadata, start=self._starts[topic]).text,
            )
            for topic, until in ends.items()
        ]
        group = _consumer(self.spec).consumer_group_metadata()
        send_positions(self._producer, positions, group)
        self._producer.commit_transaction(DEADLINE_SECONDS)
        self._queue.emptied()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, NoAnswerToPositions):
            return
        try:
            if not self._committed:
                self._abort()
        finally:
            if self._kept is not None and self._committed and error is None:
                self._kept.keep(self.spec.task(self.partition), self._producer)
            else:
                _close(self._producer)
        lasted = time.monotonic() - self._begun
        if isinstance(error, KafkaException) and lasted * 1000 > self.spec.transaction_timeout_ms:
            raise StreamplanError(
                f"task {self.spec.task(self.partition)}: its transaction lasted too long and was aborted",
                expected=f"at most {self.spec.transaction_timeout_ms / 1000:g} s",
                observed=f"{lasted:.0f} s",
                remedy="The brokers are slow, or what one transaction must hold (the updates of an aggregate, or all "
                "that is made of one record) is large. Raise --transaction-timeout-ms "
                "(STREAMPLAN_AGGREGATOR_OPTIONS), up to the brokers' transaction.max.timeout.ms.",
            ) from error
        if isinstance(error, KafkaException) and error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:
            raise Refused(
                f"task {self.spec.task(self.partition)}: a topic refuses a record, or a batch of records, as too large",
                expected="max.message.bytes of each topic that it writes to be as large as when it was created: "
                f"{MAX_BYTES} for {self.spec.dead_letter_topic}, and 1048588 or more for each other one",
                observed=error.args[0].str(),
                remedy="Raise max.message.bytes of that topic, and start the application again. Nothing of this "
                "transaction is committed.",
            ) from error
        if error is not None and is_fenced(error):
            raise StreamplanError(
                f"task {self.spec.task(self.partition)} was fenced by a newer producer with its transactional id",
                remedy="What it had produced is aborted; a retry goes on from the committed position. "
                f"When it keeps happening, a second application {self.spec.application_id} is running.",
            ) from error

    def _abort(self) -> None:
        try:
            self._producer.abort_transaction(DEADLINE_SECONDS)
        except KafkaException as error:
            # A fenced producer cannot abort, and need not: the newer producer did. After any other fault, and while a
            # commit is still going on, the next init_transactions ends the transaction, or the coordinator does when it
            # times out.
            if not error.args[0].fatal() and error.args[0].code() not in (KafkaError._STATE, KafkaError._CONFLICT):
                raise

    def _read_positions(self) -> dict[str, int]:
        positions: dict[str, int] = {}
        self._starts: dict[str, int] = {}
        self._time: int | None = None
        committed = self._read("read_committed")
        self._require_own(committed)
        for topic in self.ranges:
            position = committed.get((topic, self.partition))
            if position is None:
                raise Refused(
                    f"group {self.spec.application_id} has no position for {topic}-{self.partition}",
                    remedy="It was deleted, or has expired (offsets.retention.minutes) beside a checkpoint, or the "
                    "topic has got more partitions: the next start says which.",
                )
            positions[topic] = position.offset
            metadata = PositionMetadata.parse(position.metadata)
            self._starts[topic] = metadata.start if metadata is not None else 0
            if metadata is not None:
                self._note_time(metadata)
        return positions

    def _note_time(self, committed: PositionMetadata) -> None:
        """Note which time is committed, and whether this micro-batch committed it."""
        if committed.time is not None:
            self._time = max(committed.time, self._time or 0)
        batch, own = committed.batch, committed.checkpoint == self.spec.checkpoint
        if own and batch is not None and self.spec.batch is not None and batch >= self.spec.batch:
            self._batch_is_committed = True

    def _read(self, isolation_level: str) -> dict[TopicPartition, CommittedPosition]:
        """Read the positions. ``read_committed`` waits until no transaction that may move them is open."""
        consumer = _consumer(self.spec, isolation_level)
        partitions = [(topic, self.partition) for topic in self.ranges]
        return committed_offsets(consumer, self.spec.application_id, partitions, self.spec.brokers, DEADLINE_SECONDS)

    def _require_own(self, positions: Mapping[TopicPartition, CommittedPosition]) -> None:
        """Require that the aggregator's own generation committed the positions: it did so when it claimed the tasks."""
        foreign: dict[TopicPartition, CommittedPosition] = {}
        for place, position in positions.items():
            metadata = PositionMetadata.parse(position.metadata)
            if metadata is not None and self.spec.generation.is_superseded_by(metadata.generation):
                raise superseded_error(self.spec.application_id, self.spec.generation, metadata.generation)
            if metadata is None or metadata.generation != self.spec.generation:
                foreign[place] = position
        if foreign:
            raise foreign_position_error(self.spec.application_id, foreign)


def require_complete(spec: TransactionSpec, partition: int, topic: str, next_offset: int, until: int) -> None:
    """Require that no committed record lies from ``next_offset`` to the end of the micro-batch.

    Spark ends a killed task's input as it ends a complete one. To commit because an iterator has ended would skip the
    rest. Transaction markers and aborted records may lie there.

    Args:
        spec: Where the stream task reads and writes.
        partition: The ``p`` of the task.
        topic: A source topic.
        next_offset: The offset past the last record of it that has come.
        until: The offset at which the micro-batch ends.

    Raises:
        StreamplanError: A record is missing.
    """
    if next_offset >= until:
        return
    missing = _next_record(spec, (topic, partition), next_offset, until)
    if missing is not None:
        raise StreamplanError(
            f"task {spec.task(partition)}: its input ended early",
            expected=f"the record at {topic}-{partition} offset {missing}",
            observed=f"no record after offset {next_offset - 1}",
            remedy="The task was killed; nothing of this try is committed, and the next one reads it all again.",
        )


class HandedOnTransaction(TaskTransaction):
    """The transaction of a stream task that is handed on what was written into its source partition, and reads nothing.

    Everything that the micro-batch wrote there is committed by now, and nobody else writes there. So the micro-batch
    ends where the partition does. Whether an earlier run has committed it is told by its number.
    """

    def __init__(self, spec: TransactionSpec, partition: int, kept: KeptProducers | None = None) -> None:
        assert spec.handed_on is not None
        super().__init__(replace(spec, ranges={(spec.handed_on.topic, partition): (0, 0)}), partition, kept)

    @property
    def already_committed(self) -> bool:
        """See :attr:`TaskOutput.already_committed`."""
        return self._batch_is_committed

    @property
    def untouched(self) -> bool:
        """See :attr:`TaskOutput.untouched`. What was aggregated is committed as a whole."""
        return not self._batch_is_committed

    def _settle_ranges(self) -> None:
        self.ranges = {
            topic: (position, max(position, self._end_of(topic))) for topic, position in self.positions.items()
        }
        handed_on = self.spec.handed_on
        if handed_on is None or handed_on.tasks is None or self.already_committed:
            return
        expected = handed_on.tasks.get(self.partition, HandedOnTo())
        for topic, extent in self.ranges.items():
            task, source = self.spec.task(self.partition), (topic, self.partition)
            require_own_records(self.spec.brokers, task, source, extent, expected)

    def _end_of(self, topic: str) -> int:
        """Return the end of the source partition, when no transaction is open there.

        The brokers confirm a transaction before its markers are in all partitions.
        """
        end = self._watermark(topic, "read_uncommitted")
        seconds = self.spec.transaction_timeout_ms / 1000 + DEADLINE_SECONDS
        deadline = time.monotonic() + seconds
        while True:
            stable = self._watermark(topic, "read_committed")
            if stable >= end:
                return stable  # behind the markers, too
            if time.monotonic() > deadline:
                raise StreamplanError(
                    f"task {self.spec.task(self.partition)}: a transaction is open in {topic}-{self.partition}",
                    expected=f"that the brokers end every transaction up to offset {end} within {seconds:g} s",
                    observed=f"one at offset {stable}",
                    remedy="Look for a program that writes to this topic of the application, and stop it.",
                )
            time.sleep(_MARKER_SECONDS)

    def _watermark(self, topic: str, isolation_level: str) -> int:
        """Return the end of the source partition; with ``read_committed`` where the first open transaction begins.

        Raises:
            BrokersUnavailable: The partition has had no leader until the deadline.
        """
        consumer = _consumer(self.spec, isolation_level)
        place = confluent_kafka.TopicPartition(topic, self.partition)

        def request(left: float) -> int:
            try:
                _, end = consumer.get_watermark_offsets(place, left)
            except KafkaException as error:
                if error_code(error) != KafkaError._UNKNOWN_PARTITION:
                    raise
                # So librdkafka says that the partition has no leader. It is there: positions in it are committed.
                raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE)) from error
            return int(end)

        subject = f"the end of {topic}-{self.partition}"
        needs = f"Describe on topic {topic}"
        return call_with_retry(request, subject, self.spec.brokers, DEADLINE_SECONDS, needs=needs)


def open_transaction(spec: TransactionSpec, partition: int, kept: KeptProducers | None = None) -> TaskTransaction:
    """Open the transaction of a stream task, see :class:`TaskTransaction`."""
    kind = TaskTransaction if spec.handed_on is None else HandedOnTransaction
    return kind(spec, partition, kept)


def produce_records(
    producer: Producer,
    output: Output,
    task_partition: int,
    keys: Iterable[bytes | None],
    values: Iterable[bytes | None],
    timestamps: Iterable[int],
    headers: Iterable[list[Header] | None],
) -> None:
    """Queue records for an output, each for the partition in which it belongs.

    With positional arguments ``produce`` of librdkafka costs half of what it costs with keywords, and less than
    ``produce_batch``, which accepts neither timestamps nor headers.

    Args:
        producer: With :data:`PRODUCER_CONFIGS`, and in a transaction.
        output: The topic.
        task_partition: The partition of the stream task.
        keys: The keys in bytes.
        values: The values in bytes, as many as keys.
        timestamps: In ms, as many as keys.
        headers: Of each record; None for a record without headers. librdkafka takes no tuple.
    """
    produce: Callable[..., None] = producer.produce  # annotated for headers with texts, too
    topic = output.topic
    partition = task_partition if output.partition_by is PartitionBy.TASK else -1
    window_bytes = output.partition_by.window_bytes
    is_named = output.partition_by is PartitionBy.BEHIND_VALUE
    for key, value, timestamp, record_headers in zip(keys, values, timestamps, headers, strict=False):
        if window_bytes and key is not None:  # WindowedStreamPartitioner
            partition = partition_for_key(key[:-window_bytes], output.partitions)
        if is_named and value is not None:
            partition, value = int.from_bytes(value[-LENGTH_BYTES:], "big"), value[:-LENGTH_BYTES]
        produce(topic, value, key, partition, None, None, timestamp or FIRST_WRITABLE_MS, record_headers)
    producer.poll(0)


class KeptProducers:
    """Producers of stream tasks that their process keeps from one transaction to the next; a context manager.

    Transactions of different stream tasks may use it at the same time.
    """

    def __init__(self) -> None:
        self._producers: dict[TaskId, Producer] = {}

    def take(self, task: TaskId) -> Producer | None:
        """Return the producer of a stream task, which is not kept any more; None where there is none."""
        return self._producers.pop(task, None)

    def keep(self, task: TaskId, producer: Producer) -> None:
        """Keep a producer that has committed its transaction."""
        self._producers[task] = producer

    def close(self, subtopology: int | None = None) -> None:
        """Close the producers of a sub-topology; without one all of them."""
        for task in [*self._producers]:
            if subtopology in (None, task.subtopology) and (producer := self.take(task)) is not None:
                _close(producer)

    def __enter__(self) -> KeptProducers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _open_producer(spec: TransactionSpec, partition: int) -> Producer:
    return open_task_producer(
        spec.brokers,
        spec.application_id,
        spec.task(partition),
        transaction_timeout_ms=spec.transaction_timeout_ms,
        topic=spec.outputs[0].topic if spec.outputs else spec.dead_letter_topic,
        **PRODUCER_CONFIGS,
        batch_size=1_000_000,
        queue_buffering_max_messages=10_000_000,  # bounded by DeliveryQueue instead
        queue_buffering_max_kbytes=16 * delivery_queue.MAX_BYTES // 1024,
    )


def _close(producer: Producer) -> None:
    producer.purge()
    with suppress(KafkaException):  # a fenced producer refuses to close; what it wrote is settled by now
        producer.close()


_consumers: dict[tuple[Brokers, str, str], Consumer] = {}

_opening = threading.Lock()
"""In the driver several threads use the consumers."""

_reading = threading.Lock()
"""One thread at a time assigns partitions to a consumer and reads them."""


def _consumer(spec: TransactionSpec, isolation_level: str = "read_committed") -> Consumer:
    """Return the process's consumer without a subscription: it only reads positions and names the group."""
    identity = (spec.brokers, spec.application_id, isolation_level)
    with _opening:
        if identity not in _consumers:
            _consumers[identity] = spec.brokers.consumer(
                spec.application_id,
                isolation_level=isolation_level,
                enable_partition_eof=True,
                auto_offset_reset="error",
                fetch_wait_max_ms=10,
            )
        return _consumers[identity]


def _next_record(spec: TransactionSpec, source: TopicPartition, first: int, until: int) -> int | None:
    """Return the offset of the first committed record in ``first <= offset < until``; None when there is none."""
    consumer = _consumer(spec)
    with _reading:
        return _next_record_of(consumer, source, first, until)


def _next_record_of(consumer: Consumer, source: TopicPartition, first: int, until: int) -> int | None:
    consumer.assign([confluent_kafka.TopicPartition(*source, first)])
    try:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < deadline:
            message = consumer.poll(0.1)
            if message is None:
                continue
            error, offset = message.error(), message.offset()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            if offset is not None and (error is None or offset >= until):
                return offset if error is None and offset < until else None
    finally:
        consumer.unassign()
    raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"{source[0]}-{source[1]} from {first}"))


def commit_empty(spec: TransactionSpec, partitions: Iterable[int], kept: KeptProducers | None = None) -> None:
    """Commit the positions of partitions whose part of the micro-batch has no records, only transaction markers."""
    for partition in partitions:
        with open_transaction(spec, partition, kept) as transaction:
            if not transaction.already_committed:
                transaction.commit()
