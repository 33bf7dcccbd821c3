"""Kafka as the checks see it (``streamplan.kafka_port.Cluster``), through confluent-kafka. It only reads."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import cached_property, partial
from itertools import groupby
from operator import methodcaller
from typing import Any
from warnings import catch_warnings, simplefilter

import confluent_kafka
from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec

from streamplan.errors import BrokersUnavailable, CouldNotLook
from streamplan.kafka import parallel_read as shares
from streamplan.kafka.brokers import ANSWER_SECONDS, Brokers
from streamplan.kafka.groups import committed_offsets, members
from streamplan.kafka.requests import Answer, call_with_retry, error_code, raise_unavailable
from streamplan.kafka.schema_registry import SchemaRegistry
from streamplan.kafka.topics import broker_ids, observe_topics
from streamplan.kafka_port import Cluster, RecordBatch, RecordsGone, Result
from streamplan.kafka_types import UNREADABLE_HEADERS, Headers, OffsetByPartition, OffsetRanges, Offsets, TopicPartition
from streamplan.model.committed_positions import CommittedPosition
from streamplan.model.generation import PositionMetadata
from streamplan.model.group_member import Member
from streamplan.model.topics import ObservedTopic
from streamplan.serdes.schema_source import SchemaSource

PARTITIONS_SECONDS = 2.0
"""Partition counts are asked for again after this time: topics are made, widened and deleted while a process lives."""

_BATCH_RECORDS = 20_000
_POLL_SECONDS = 0.1
_GRACE_SECONDS = 1.0  # the request's own deadline comes first, and its error says more
_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_BROKERS_TOPICS = ("__consumer_offsets", "__transaction_state", "__share_group_state")
"""Topics of the brokers themselves, with many partitions."""

READERS_GROUP = "streamplan-checks"
"""The consumer group that readers name, because librdkafka wants one. They never join it, and need no permission."""

_MISSING = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)


class KafkaCluster:
    """One Kafka cluster. It connects when it is first asked, and every answer has the same deadline.

    Each method raises :class:`streamplan.errors.BrokersUnavailable` when the brokers do not answer, and
    :class:`CouldNotLook` when a topic does not exist.

    Args:
        deadline_seconds: The deadline of each answer.
    """

    def __init__(self, brokers: Brokers, *, deadline_seconds: float = ANSWER_SECONDS) -> None:
        self._brokers = brokers
        self.deadline_seconds = deadline_seconds
        self._admin_client: AdminClient | None = None
        self._consumers: dict[str, Consumer] = {}
        self._partition_counts: dict[str, int] = {}
        self._counted_at = -PARTITIONS_SECONDS

    @property
    def schemas(self) -> SchemaSource:
        """The Schema Registry that stands with the brokers."""
        return SchemaRegistry.of(self._brokers)

    def names(self) -> Sequence[str]:
        """Return the names of all topics."""
        return sorted(self._request(lambda left: self._admin.list_topics(timeout=left), "its topics").topics)

    def groups(self) -> Sequence[str]:
        """Return the ids of all consumer groups."""

        def request(left: float) -> list[str]:
            # list_consumer_groups leaves out those of Kafka Streams' own protocol (group.protocol=streams, KIP-1071).
            with catch_warnings():
                simplefilter("ignore", DeprecationWarning)
                return sorted(str(group.id) for group in self._admin.list_groups(timeout=left))

        return self._request(request, "its consumer groups", "Describe on cluster kafka-cluster")

    def members(self, group: str) -> Sequence[Member] | None:
        """Return the members of a group; None where they cannot be seen.

        librdkafka 2.16 describes groups of the protocols ``classic`` and ``consumer``. A group of the protocol
        ``streams`` (KIP-1071) it takes for one that does not exist, and leaves it out where it lists consumer groups
        (tried with Kafka 4.3.1).
        """
        found = members(self._brokers, group, deadline_seconds=self.deadline_seconds)
        hidden = not found and group in self.groups() and group not in self._consumer_groups()
        return None if hidden else found

    def _consumer_groups(self) -> set[str]:
        def request(left: float) -> set[str]:
            listed = self._admin.list_consumer_groups(request_timeout=left).result(left + _GRACE_SECONDS)
            return {str(group.group_id) for group in listed.valid}

        return self._request(request, "its consumer groups", "Describe on cluster kafka-cluster")

    def broker_ids(self) -> frozenset[int]:
        """Return the ids of all brokers, up or not."""
        return broker_ids(self._request(lambda left: self._admin.list_topics(timeout=left), "its brokers"))

    def topics(self, names: Sequence[str]) -> Mapping[str, ObservedTopic]:
        """Describe those of ``names`` that exist."""
        return observe_topics(self._brokers, names, admin=self._admin, deadline_seconds=self.deadline_seconds)

    def topic_ids(self, names: Sequence[str]) -> Mapping[str, str]:
        """Return the ids of topics, which tell a topic from an earlier one of the same name."""

        def request(left: float) -> dict[str, str]:
            futures = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=left)
            return {name: str(future.result(left + _GRACE_SECONDS).topic_id) for name, future in futures.items()}

        return self._request(request, f"the ids of {', '.join(names)}", f"Describe on topic {', '.join(names)}")

    def offsets(self, topic: str) -> Mapping[int, Offsets]:
        """Return the offsets of each partition."""
        deadline = time.monotonic() + self.deadline_seconds
        while True:
            try:
                return self._offsets(topic)
            except BrokersUnavailable as error:
                # It was deleted, or created again with fewer partitions, or not every broker knows it yet.
                is_missing = error.__cause__ is not None and error_code(error.__cause__) in _MISSING
                if not is_missing or time.monotonic() > deadline:
                    raise
                self._counted_at = -PARTITIONS_SECONDS

    def _offsets(self, topic: str) -> Mapping[int, Offsets]:
        partitions = range(self._partitions(topic))
        starts = self._list_offsets(topic, partitions, _EARLIEST, IsolationLevel.READ_UNCOMMITTED)
        # In this order: end >= stable then holds, and end == stable means that no transaction was open in between.
        stable = self._list_offsets(topic, partitions, _LATEST, IsolationLevel.READ_COMMITTED)
        ends = self._list_offsets(topic, partitions, _LATEST, IsolationLevel.READ_UNCOMMITTED)
        return {number: Offsets(starts[number], stable[number], ends[number]) for number in partitions}

    def offsets_since(self, topic: str, timestamp_ms: int | None) -> OffsetByPartition:
        """Return where reading begins that begins at a moment, see :meth:`streamplan.kafka_port.Cluster`."""
        stable = {number: offsets.last_stable for number, offsets in self.offsets(topic).items()}
        if timestamp_ms is None:
            return stable
        spec = OffsetSpec.for_timestamp(timestamp_ms)
        found = self._list_offsets(topic, [*stable], spec, IsolationLevel.READ_COMMITTED)
        return {number: end if found[number] < 0 else min(found[number], end) for number, end in stable.items()}

    def starts(self, group: str, topic: str) -> OffsetByPartition:
        """Return the offsets at which an aggregator began to read a topic, by partition."""
        found = self._committed_positions(group, {topic: self._partitions(topic)})
        parsed = {number: PositionMetadata.parse(at.metadata) for (_, number), at in found.items()}
        return {number: metadata.start for number, metadata in parsed.items() if metadata is not None}

    def positions(self, group: str, topic: str) -> OffsetByPartition:
        """Return the committed offsets of a group in one topic, by partition."""
        return _by_topic(self._committed_positions(group, {topic: self._partitions(topic)})).get(topic, {})

    def committed_offsets(self, group: str) -> Mapping[str, OffsetByPartition]:
        """Return the committed offsets of a group in all topics, by topic and partition."""
        return _by_topic(self.committed_positions(group))

    def committed_positions(self, group: str) -> Mapping[TopicPartition, CommittedPosition]:
        """Return the committed offsets of a group in all topics, with their metadata."""
        self._learn_partitions()
        return self._committed_positions(
            group, {name: n for name, n in self._partition_counts.items() if name not in _BROKERS_TOPICS}
        )

    def read(self, topic: str, ranges: OffsetRanges) -> Iterator[RecordBatch]:
        """Read committed records, see :meth:`streamplan.kafka_port.Cluster.read`."""
        return self._read(topic, ranges, "read_committed")

    def read_uncommitted(self, topic: str, ranges: OffsetRanges) -> Iterator[RecordBatch]:
        """Read all records, see :meth:`streamplan.kafka_port.Cluster.read_uncommitted`."""
        return self._read(topic, ranges, "read_uncommitted")

    def _read(self, topic: str, ranges: OffsetRanges, isolation_level: str) -> Iterator[RecordBatch]:
        until = {partition: last for partition, (first, last) in ranges.items() if first < last}
        if not until:
            return
        consumer = self._brokers.consumer(
            READERS_GROUP,
            isolation_level=isolation_level,
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
            consumer.assign(
                [confluent_kafka.TopicPartition(topic, partition, ranges[partition][0]) for partition in until]
            )
            yield from self._consume(consumer, topic, until)
        finally:
            consumer.close()

    def map_batches(
        self, topic: str, ranges: OffsetRanges, function: Callable[[Iterator[RecordBatch]], Result]
    ) -> Iterator[Result]:
        """Apply a function to committed records, in several processes where there are many."""
        first, *others = shares.divide(ranges, shares.processes_for(ranges))
        read = partial(_read_share, self._brokers, self.deadline_seconds, topic)
        with shares.running(read, others, function) as running:
            yield function(self.read(topic, first))
            for share in running:
                yield share.result()

    def _consume(self, consumer: Consumer, topic: str, until: dict[int, int]) -> Iterator[RecordBatch]:
        """Read until every partition has reached its end. Partitions that have are removed from ``until``."""
        deadline = time.monotonic() + self.deadline_seconds
        while until:
            # Any: the stubs take every field for optional
            messages: list[Any] = consumer.consume(_BATCH_RECORDS, _POLL_SECONDS)
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
                    yield MessageBatch(partition, run)
            finished = reached & until.keys()
            for partition in finished:
                del until[partition]
            if finished and until:
                consumer.incremental_unassign(
                    [confluent_kafka.TopicPartition(topic, partition) for partition in finished]
                )
            if moved or finished:
                deadline = time.monotonic() + self.deadline_seconds
            elif time.monotonic() > deadline:
                listed = ", ".join(f"{topic}-{partition} up to {last}" for partition, last in sorted(until.items()))
                raise CouldNotLook(
                    f"Kafka at {self._brokers}, asked for {listed}",
                    expected=f"records within {self.deadline_seconds:g} s",
                    observed="none",
                    remedy="Look whether each partition has a leader, and whether a transaction was left open.",
                )

    def _consumer_of(self, group: str) -> Consumer:
        if group not in self._consumers:
            # Positions inside an open transaction are waited for.
            self._consumers[group] = self._brokers.consumer(group, isolation_level="read_committed")
        return self._consumers[group]

    @property
    def _admin(self) -> AdminClient:
        admin = self._admin_client
        if admin is None:  # another thread may reopen it meanwhile
            admin = self._admin_client = self._brokers.admin()
        return admin

    def _partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic. Checks ask many times, so an answer is kept for a moment."""
        is_old = time.monotonic() - self._counted_at > PARTITIONS_SECONDS
        if is_old or topic not in self._partition_counts:
            self._learn_partitions()
        if not self._partition_counts.get(topic):
            raise CouldNotLook(f"topic {topic} does not exist at {self._brokers}")
        return self._partition_counts[topic]

    def _learn_partitions(self) -> None:
        metadata = self._request(lambda left: self._admin.list_topics(timeout=left), "its topics")
        self._partition_counts = {name: len(topic.partitions) for name, topic in metadata.topics.items()}
        self._counted_at = time.monotonic()

    def _committed_positions(self, group: str, counts: Mapping[str, int]) -> dict[TopicPartition, CommittedPosition]:
        partitions = [(topic, number) for topic, count in counts.items() for number in range(count)]
        return committed_offsets(self._consumer_of(group), group, partitions, self._brokers, self.deadline_seconds)

    def _list_offsets(
        self, topic: str, partitions: Sequence[int], spec: OffsetSpec, isolation: IsolationLevel
    ) -> dict[int, int]:
        def request(left: float) -> dict[int, int]:
            futures: Mapping[confluent_kafka.TopicPartition, Future[ListOffsetsResultInfo]] = self._admin.list_offsets(
                {confluent_kafka.TopicPartition(topic, partition): spec for partition in partitions},
                isolation_level=isolation,
                request_timeout=left,
            )
            return {at.partition: future.result(left + _GRACE_SECONDS).offset for at, future in futures.items()}

        try:
            return self._request(request, f"the offsets of {topic}", f"Describe on topic {topic}")
        except BrokersUnavailable:
            self._require_leaders(topic)
            raise

    def _require_leaders(self, topic: str) -> None:
        """Raise the error that names the partitions without a leader, where that is why there was no answer."""
        metadata = self._request(lambda left: self._admin.list_topics(timeout=left), "its topics")
        partitions = metadata.topics[topic].partitions.values() if topic in metadata.topics else ()
        if leaderless := [f"{topic}-{partition.id}" for partition in partitions if partition.leader < 0]:
            raise CouldNotLook(
                f"the offsets of {', '.join(leaderless)}",
                expected="a leader of the partition",
                observed="none",
                remedy="Look at the result of the check `topics`: it has a row for each partition without a leader.",
            )

    def _request(self, request: Callable[[float], Answer], about: str, needs: str = "") -> Answer:
        return call_with_retry(request, about, self._brokers, self.deadline_seconds, needs=needs, reopen=self._reopen)

    def _reopen(self) -> None:
        self._admin_client = None


def _by_topic(positions: Mapping[TopicPartition, CommittedPosition]) -> dict[str, dict[int, int]]:
    offsets: dict[str, dict[int, int]] = {}
    for (topic, number), at in positions.items():
        offsets.setdefault(topic, {})[number] = at.offset
    return offsets


def _runs(messages: list[Any]) -> Iterator[tuple[int, list[Any]]]:
    """Divide messages into runs of one partition. A message that is an error is a run of its own."""
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


class MessageBatch:
    """A ``RecordBatch`` of messages that the consumer delivered."""

    def __init__(self, partition: int, messages: list[Any]) -> None:
        self.partition = partition
        self._messages = messages

    @property
    def offsets(self) -> list[int]:
        """The offset of each record."""
        return [message.offset() for message in self._messages]

    @property
    def timestamps(self) -> list[int]:
        """The timestamp of each record, in ms since the epoch."""
        return [message.timestamp()[1] for message in self._messages]

    @property
    def keys(self) -> list[bytes | None]:
        """The key of each record."""
        return [message.key() for message in self._messages]

    @property
    def values(self) -> list[bytes | None]:
        """The value of each record."""
        return [message.value() for message in self._messages]

    @cached_property
    def headers(self) -> list[Headers]:  # a message must not be asked twice, see _headers_of
        """The headers of each record."""
        return [_headers_of(message) for message in self._messages]

    def __len__(self) -> int:
        return len(self._messages)


_read_headers = methodcaller("headers")
"""It checks whether the client has set an exception beside its result. A call that CPython has specialized does not."""


def _headers_of(message: Any) -> Headers:
    """Return the headers of a message; ``UNREADABLE_HEADERS`` where a name is not UTF-8.

    confluent-kafka raises then, and when it is asked again it gives tuples with a null pointer in place of that name.
    """
    try:
        return tuple(_read_headers(message) or ())
    except (SystemError, UnicodeDecodeError):  # a SystemError in place of the other, or of one in its chain
        return UNREADABLE_HEADERS


def _read_share(brokers: Brokers, deadline_seconds: float, topic: str, ranges: OffsetRanges) -> Iterator[RecordBatch]:
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
    if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
        return  # librdkafka looks for the coordinator of each consumer's group; who only reads needs none
    if error.code() in _MISSING or error.fatal() or not error.retriable():
        needs = f"Read on topic {topic}"
        raise_unavailable(KafkaException(error), f"records of {topic}", brokers, seconds, needs=needs)


def unprocessed(cluster: Cluster, positions: Mapping[str, Mapping[int, int]]) -> dict[str, int]:
    """Count the records behind positions.

    What lies behind an open transaction counts, too: it may be committed at any moment. The brokers confirm a commit
    before its marker is in each partition.

    Args:
        positions: By topic and partition the offset that is read next.

    Returns:
        How many there are, by topic; topics without any are left out. In open transactions the offsets are counted.
    """
    left = {}
    for topic, at in positions.items():
        borders = cluster.offsets(topic)
        ranges = {
            number: (max(offsets.log_start, at.get(number, offsets.log_start)), offsets.last_stable)
            for number, offsets in borders.items()
        }
        in_transactions = sum(offsets.high_watermark - offsets.last_stable for offsets in borders.values())
        # A position may stand before transaction markers, so records are counted and not offsets.
        if count := sum(map(len, cluster.read(topic, ranges))) + in_transactions:
            left[topic] = count
    return left


def await_transactions(cluster: Cluster, topics: Iterable[str], seconds: float) -> dict[str, int]:
    """Wait until no transaction is open in these topics.

    Args:
        topics: Topics to which nobody begins to write any more. Transactions that were confirmed may not have ended.
        seconds: The deadline.

    Returns:
        The number of offsets that are still in open transactions, by topic; empty where there are none.
    """
    deadline = time.monotonic() + seconds
    while True:
        left = {
            topic: count
            for topic in topics
            if (count := sum(at.high_watermark - at.last_stable for at in cluster.offsets(topic).values()))
        }
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(_POLL_SECONDS)
