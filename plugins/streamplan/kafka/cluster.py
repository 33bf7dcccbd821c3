"""Kafka as the checks see it (``checks.port.Cluster``), through confluent-kafka. Reads, and nothing else."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import groupby
from typing import Any
from warnings import catch_warnings, simplefilter

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec

from streamplan.checks.framework.cluster import Headers, Offsets, RecordBatch, RecordsGone, Result
from streamplan.errors import CouldNotLook
from streamplan.kafka import parallel_read as shares
from streamplan.kafka.brokers import ANSWER_SECONDS, Brokers
from streamplan.kafka.groups import committed_offsets
from streamplan.kafka.requests import Answer, call_with_retry, raise_unavailable
from streamplan.kafka.topics import broker_ids, observe_topics
from streamplan.model.topics import ObservedTopic

_CHUNK = 20_000
_POLL_SECONDS = 0.1
_GRACE_SECONDS = 1.0  # a request's own deadline comes first and says more
_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_OWN = ("__consumer_offsets", "__transaction_state", "__share_group_state")
"""Of the brokers themselves, with many partitions."""

_MISSING = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)


class KafkaCluster:
    """One Kafka cluster. Opens its connections when first asked; every answer has the same deadline."""

    def __init__(self, brokers: Brokers, *, deadline_seconds: float = ANSWER_SECONDS) -> None:
        self._brokers = brokers
        self.deadline_seconds = deadline_seconds
        self._admin_client: AdminClient | None = None
        self._consumers: dict[str, Consumer] = {}
        self._partition_counts: dict[str, int] = {}

    def names(self) -> Sequence[str]:
        return sorted(self._ask(lambda left: self._admin.list_topics(timeout=left), "its topics").topics)

    def groups(self) -> Sequence[str]:
        def question(left: float) -> list[str]:
            # list_consumer_groups leaves out those of Kafka Streams' own protocol (group.protocol=streams, KIP-1071).
            with catch_warnings():
                simplefilter("ignore", DeprecationWarning)
                return sorted(str(group.id) for group in self._admin.list_groups(timeout=left))

        return self._ask(question, "its consumer groups")

    def broker_ids(self) -> frozenset[int]:
        return broker_ids(self._ask(lambda left: self._admin.list_topics(timeout=left), "its brokers"))

    def topics(self, names: Sequence[str]) -> Mapping[str, ObservedTopic]:
        return observe_topics(self._brokers, names, admin=self._admin, deadline_seconds=self.deadline_seconds)

    def topic_ids(self, names: Sequence[str]) -> Mapping[str, str]:
        def question(left: float) -> dict[str, str]:
            futures = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=left)
            return {name: str(future.result(left + _GRACE_SECONDS).topic_id) for name, future in futures.items()}

        return self._ask(question, f"the ids of {', '.join(names)}")

    def offsets(self, topic: str) -> Mapping[int, Offsets]:
        partitions = range(self._partitions(topic))
        starts = self._list_offsets(topic, partitions, _EARLIEST, IsolationLevel.READ_UNCOMMITTED)
        # In this order: end >= stable then holds, and end == stable means that no transaction was open in between.
        stable = self._list_offsets(topic, partitions, _LATEST, IsolationLevel.READ_COMMITTED)
        ends = self._list_offsets(topic, partitions, _LATEST, IsolationLevel.READ_UNCOMMITTED)
        return {number: Offsets(starts[number], stable[number], ends[number]) for number in partitions}

    def positions(self, group: str, topic: str) -> Mapping[int, int]:
        return self._committed(group, {topic: self._partitions(topic)}).get(topic, {})

    def committed_offsets(self, group: str) -> Mapping[str, Mapping[int, int]]:
        self._learn_partitions()
        return self._committed(group, {name: n for name, n in self._partition_counts.items() if name not in _OWN})

    def read(self, topic: str, ranges: Mapping[int, tuple[int, int]]) -> Iterator[RecordBatch]:
        until = {partition: last for partition, (first, last) in ranges.items() if first < last}
        if not until:
            return
        consumer = self._brokers.consumer(
            "streamplan-checks",  # never joined and never committed to: the consumer is assigned
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
        try:
            consumer.assign([TopicPartition(topic, partition, ranges[partition][0]) for partition in until])
            yield from self._consume(consumer, topic, until)
        finally:
            consumer.close()

    def map_batches(
        self, topic: str, ranges: Mapping[int, tuple[int, int]], function: Callable[[Iterator[RecordBatch]], Result]
    ) -> Iterator[Result]:
        first, *others = shares.divide(ranges, shares.processes_for(ranges))
        read = partial(_read_share, self._brokers, self.deadline_seconds, topic)
        with shares.running(read, others, function) as running:
            yield function(self.read(topic, first))
            for share in running:
                yield share.result()

    def _consume(self, consumer: Consumer, topic: str, until: dict[int, int]) -> Iterator[RecordBatch]:
        """Until every partition has reached its end; ``until`` loses those that have."""
        deadline = time.monotonic() + self.deadline_seconds
        while until:
            # Any: the stubs take every field for optional
            messages: list[Any] = consumer.consume(_CHUNK, _POLL_SECONDS)
            reached: set[int] = set()
            moved = False
            for partition, run in _runs(messages):
                last = until.get(partition, 0)
                if run[-1].error() is not None:
                    # Nothing but markers, aborted records or gaps of compaction may stand before the end: it is
                    # recognised by the offset that comes next, never by counting.
                    if run[-1].error().code() != KafkaError._PARTITION_EOF:
                        _raise_on(run[-1].error(), topic, partition, self._brokers, self.deadline_seconds)
                    elif run[-1].offset() >= last:
                        reached.add(partition)
                    continue
                if run[-1].offset() >= last:
                    reached.add(partition)
                    run = run[: bisect_left(run, last, key=_offset)]
                if run:
                    moved = True
                    yield _Messages(partition, run)
            finished = reached & until.keys()
            for partition in finished:
                del until[partition]
            if finished and until:
                consumer.incremental_unassign([TopicPartition(topic, partition) for partition in finished])
            if moved or finished:
                deadline = time.monotonic() + self.deadline_seconds
            elif time.monotonic() > deadline:
                listed = ", ".join(f"{topic}-{partition} up to {last}" for partition, last in sorted(until.items()))
                raise CouldNotLook(
                    f"Kafka at {self._brokers}, asked for {listed}",
                    expected=f"records within {self.deadline_seconds:g} s",
                    observed="none",
                    remedy="Has each partition a leader, and is no transaction left open?",
                )

    def _consumer_of(self, group: str) -> Consumer:
        if group not in self._consumers:
            # Positions inside an open transaction are waited for.
            self._consumers[group] = self._brokers.consumer(group, isolation_level="read_committed")
        return self._consumers[group]

    @property
    def _admin(self) -> AdminClient:
        if self._admin_client is None:
            self._admin_client = self._brokers.admin()
        return self._admin_client

    def _partitions(self, topic: str) -> int:
        """Asked once: the checks ask for offsets and positions many times over."""
        if topic not in self._partition_counts:
            self._learn_partitions()
        if not self._partition_counts.get(topic):
            raise CouldNotLook(f"topic {topic} does not exist at {self._brokers}")
        return self._partition_counts[topic]

    def _learn_partitions(self) -> None:
        metadata = self._ask(lambda left: self._admin.list_topics(timeout=left), "its topics")
        self._partition_counts |= {name: len(found.partitions) for name, found in metadata.topics.items()}

    def _committed(self, group: str, counts: Mapping[str, int]) -> dict[str, dict[int, int]]:
        partitions = [(topic, number) for topic, count in counts.items() for number in range(count)]
        offsets: dict[str, dict[int, int]] = {}
        for at in committed_offsets(self._consumer_of(group), group, partitions, self._brokers, self.deadline_seconds):
            if at.offset >= 0:
                offsets.setdefault(at.topic, {})[at.partition] = at.offset
        return offsets

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
        return call_with_retry(question, about, self._brokers, self.deadline_seconds, reopen=self._reopen)

    def _reopen(self) -> None:
        self._admin_client = None


def _runs(messages: list[Any]) -> Iterator[tuple[int, list[Any]]]:
    """Messages that follow each other in one partition; one that is an error is alone."""
    partitions = [message.partition() for message in messages]
    errors = [index for index, message in enumerate(messages) if message.error() is not None]
    begin = 0
    for stop in (*errors, len(messages)):
        for partition, same in groupby(partitions[begin:stop]):
            run = messages[begin : begin + sum(1 for _ in same)]
            begin += len(run)
            yield partition, run
        if stop < len(messages):
            yield partitions[stop], [messages[stop]]
            begin = stop + 1


class _Messages:
    """A ``RecordBatch`` of what the consumer delivered."""

    def __init__(self, partition: int, messages: list[Any]) -> None:
        self.partition = partition
        self._messages = messages

    @property
    def offsets(self) -> list[int]:
        return [message.offset() for message in self._messages]

    @property
    def timestamps(self) -> list[int]:
        return [message.timestamp()[1] for message in self._messages]

    @property
    def keys(self) -> list[bytes | None]:
        return [message.key() for message in self._messages]

    @property
    def values(self) -> list[bytes | None]:
        return [message.value() for message in self._messages]

    @property
    def headers(self) -> list[Headers]:
        return [tuple(message.headers() or ()) for message in self._messages]

    def __len__(self) -> int:
        return len(self._messages)


def _read_share(brokers: Brokers, deadline_seconds: float, topic: str, ranges: shares.Ranges) -> Iterator[RecordBatch]:
    return KafkaCluster(brokers, deadline_seconds=deadline_seconds).read(topic, ranges)


def _offset(message: Any) -> int:
    return int(message.offset())


def _raise_on(error: KafkaError, topic: str, partition: int, brokers: Brokers, seconds: float) -> None:
    if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
        raise RecordsGone(
            f"{topic}-{partition}",
            expected="the records that were there a moment ago",
            observed=error.str(),
            remedy="They were deleted while they were read: look again.",
        )
    if error.code() in _MISSING or error.fatal() or not error.retriable():
        raise_unavailable(KafkaException(error), f"records of {topic}", brokers, seconds)
