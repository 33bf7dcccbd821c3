"""Kafka as the checks see it (``checks.port.Cluster``), through confluent-kafka. Reads, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec

from streamplan.adapters.kafka.admin import observe_topics
from streamplan.adapters.kafka.connect import (
    ANSWER_SECONDS,
    Answer,
    admin_client,
    ask,
    client_config,
    raise_no_answer,
)
from streamplan.checks.observation import CouldNotLook
from streamplan.checks.port import Offsets, Record, RecordsGone
from streamplan.topics import ObservedTopic

_CHUNK = 20_000
_POLL_SECONDS = 0.1
_GRACE_SECONDS = 1.0  # a request's own deadline comes first and says more
_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_MISSING = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)


class KafkaCluster:
    """One Kafka cluster. Opens its connections when first asked; every answer has the same deadline."""

    def __init__(self, bootstrap_servers: str, *, deadline_seconds: float = ANSWER_SECONDS) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.deadline_seconds = deadline_seconds
        self._admin_client: AdminClient | None = None
        self._consumers: dict[str, Consumer] = {}
        self._partition_counts: dict[str, int] = {}

    def topics(self, names: Sequence[str]) -> Mapping[str, ObservedTopic]:
        return observe_topics(self.bootstrap_servers, names, admin=self._admin, deadline_seconds=self.deadline_seconds)

    def offsets(self, topic: str) -> Mapping[int, Offsets]:
        partitions = range(self._partitions(topic))
        starts = self._list_offsets(topic, partitions, _EARLIEST, IsolationLevel.READ_UNCOMMITTED)
        # In this order: end >= stable then holds, and end == stable means that no transaction was open in between.
        stable = self._list_offsets(topic, partitions, _LATEST, IsolationLevel.READ_COMMITTED)
        ends = self._list_offsets(topic, partitions, _LATEST, IsolationLevel.READ_UNCOMMITTED)
        return {number: Offsets(starts[number], stable[number], ends[number]) for number in partitions}

    def positions(self, group: str, topic: str) -> Mapping[int, int]:
        partitions = [TopicPartition(topic, number) for number in range(self._partitions(topic))]

        consumer = self._consumer_of(group)

        def question(left: float) -> dict[int, int]:
            found = consumer.committed(partitions, left)
            for partition in found:
                if partition.error is not None:
                    raise KafkaException(partition.error)
            return {partition.partition: partition.offset for partition in found if partition.offset >= 0}

        return self._ask(question, f"the positions of group {group}")

    def records(self, topic: str, ranges: Mapping[int, tuple[int, int]]) -> Iterator[Sequence[Record]]:
        until = {partition: last for partition, (first, last) in ranges.items() if first < last}
        if not until:
            return
        consumer = Consumer(
            client_config(
                self.bootstrap_servers,
                group_id="streamplan-checks",  # never joined and never committed to: the consumer is assigned
                enable_auto_commit=False,
                isolation_level="read_committed",
                auto_offset_reset="error",
                enable_partition_eof=True,
                # The end of a range often lies behind transaction markers: it is told by an empty answer.
                fetch_wait_max_ms=50,
                fetch_message_max_bytes=8 * 1024 * 1024,
                queued_min_messages=1_000_000,
                # A full queue is refilled at once; by default librdkafka waits a second.
                fetch_queue_backoff_ms=5,
            )
        )
        try:
            consumer.assign([TopicPartition(topic, partition, ranges[partition][0]) for partition in until])
            yield from self._consume(consumer, topic, until)
        finally:
            consumer.close()

    def _consume(self, consumer: Consumer, topic: str, until: dict[int, int]) -> Iterator[Sequence[Record]]:
        """Until every partition has reached its end; ``until`` loses those that have."""
        deadline = time.monotonic() + self.deadline_seconds
        while until:
            messages: list[Any] = consumer.consume(
                _CHUNK, _POLL_SECONDS
            )  # Any: the stubs take every field for optional
            records: list[Record] = []
            reached: set[int] = set()
            for message in messages:
                partition = message.partition()
                error = message.error()
                if error is not None:
                    # Nothing but markers, aborted records or gaps of compaction may stand before the end: it is
                    # recognised by the offset that comes next, never by counting.
                    if error.code() != KafkaError._PARTITION_EOF:
                        _raise_on(error, topic, partition, self.bootstrap_servers, self.deadline_seconds)
                    elif message.offset() >= until.get(partition, 0):
                        reached.add(partition)
                elif partition in until and (offset := message.offset()) < until[partition]:
                    records.append(_record(message, partition, offset))
                else:
                    reached.add(partition)
            if records:
                yield records
            finished = reached & until.keys()
            for partition in finished:
                del until[partition]
            if finished and until:
                consumer.incremental_unassign([TopicPartition(topic, partition) for partition in finished])
            if records or finished:
                deadline = time.monotonic() + self.deadline_seconds
            elif time.monotonic() > deadline:
                listed = ", ".join(f"{topic}-{partition} up to {last}" for partition, last in sorted(until.items()))
                raise CouldNotLook(
                    f"Kafka at {self.bootstrap_servers}, asked for {listed}",
                    expected=f"records within {self.deadline_seconds:g} s",
                    observed="none",
                    remedy="Has each partition a leader, and is no transaction left open?",
                )

    def _consumer_of(self, group: str) -> Consumer:
        """A consumer that never joins the group: it only asks for positions.

        Not the admin client: librdkafka 2.16 crashes in ``list_consumer_group_offsets`` when a broker answers that it
        is not the coordinator, as it does while the group's first positions are on their way.
        """
        if group not in self._consumers:
            self._consumers[group] = Consumer(
                client_config(
                    self.bootstrap_servers,
                    group_id=group,
                    enable_auto_commit=False,
                    isolation_level="read_committed",  # positions inside an open transaction are waited for
                )
            )
        return self._consumers[group]

    @property
    def _admin(self) -> AdminClient:
        if self._admin_client is None:
            self._admin_client = admin_client(self.bootstrap_servers)
        return self._admin_client

    def _partitions(self, topic: str) -> int:
        """Asked once: the checks ask for offsets and positions many times over."""
        if topic not in self._partition_counts:
            metadata = self._ask(lambda left: self._admin.list_topics(timeout=left), "its topics")
            self._partition_counts |= {name: len(found.partitions) for name, found in metadata.topics.items()}
        if not self._partition_counts.get(topic):
            raise CouldNotLook(f"topic {topic} does not exist at {self.bootstrap_servers}")
        return self._partition_counts[topic]

    def _list_offsets(
        self, topic: str, partitions: Sequence[int], spec: OffsetSpec, isolation: IsolationLevel
    ) -> dict[int, int]:
        def question(left: float) -> dict[int, int]:
            futures: Mapping[TopicPartition, Future[ListOffsetsResultInfo]] = self._admin.list_offsets(
                {TopicPartition(topic, partition): spec for partition in partitions},
                isolation_level=isolation,
                request_timeout=left,
            )
            return {at.partition: future.result(left + _GRACE_SECONDS).offset for at, future in futures.items()}

        return self._ask(question, f"the offsets of {topic}")

    def _ask(self, question: Callable[[float], Answer], about: str) -> Answer:
        return ask(question, about, self.bootstrap_servers, self.deadline_seconds)


def _record(message: Any, partition: int, offset: int) -> Record:
    return Record(
        partition, offset, message.timestamp()[1], message.key(), message.value(), tuple(message.headers() or ())
    )


def _raise_on(error: KafkaError, topic: str, partition: int, bootstrap_servers: str, seconds: float) -> None:
    if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
        raise RecordsGone(
            f"{topic}-{partition}",
            expected="the records that were there a moment ago",
            observed=error.str(),
            remedy="They were deleted while they were read: look again.",
        )
    if error.code() in _MISSING or error.fatal() or not error.retriable():
        raise_no_answer(KafkaException(error), f"records of {topic}", bootstrap_servers, seconds)
