"""Copies of topics: each record whole (key, value, timestamp, headers) and exactly once, however often a copy dies.

A timestamp of 0 becomes 1 ms (:mod:`streamplan.model.timestamps`).

A dead letter names the record that it is about by topic, partition and offset. Where that record was copied to another
topic, the copy of the dead letter names the record's new place.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing
from itertools import islice
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from streamplan.errors import Refused
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.transactions import send_positions, transactional_producer
from streamplan.kafka_port import records_of
from streamplan.kafka_types import UNREADABLE_HEADERS, Headers, OffsetRanges, Record
from streamplan.model.dead_letters import (
    REDRIVEN_LETTER,
    TASK,
    Origin,
    dead_letter_digest,
    is_mark,
    origin_headers,
    parse_origin,
    parse_subtopology,
    record_digest,
)
from streamplan.model.partitioner import partition_for_key
from streamplan.model.timestamps import writable_timestamp
from streamplan.model.topics import TopicSpec

TRANSACTION_RECORDS = 20_000
TRANSACTION_SECONDS = 60.0
"""Deadline of each answer while a transaction is written."""

MAX_TRANSACTION_SECONDS = 900
"""The brokers' default ``transaction.max.timeout.ms``."""

_CACHED_KEYS = 1_000_000


class PlacedRecord(NamedTuple):
    """A record and the partition that it is written to."""

    partition: int
    record: Record


def new_partition(
    key: bytes | None, partition: int, partitions: int, application_key: Callable[[bytes], bytes] = bytes
) -> int:
    """Return the partition of a record in a topic with another number of partitions.

    Args:
        key: The record's key.
        partition: The record's partition now. It decides for a record without a key.
        partitions: The number of partitions of the other topic.
        application_key: Gives the part of a stored key that counts (:meth:`TopicSpec.application_key`).
    """
    if key is None:
        return partition % partitions
    return partition_for_key(application_key(key), partitions)


def records_by_time(cluster: KafkaCluster, topic: str, ranges: OffsetRanges) -> Iterator[Record]:
    """Read the committed records of all partitions, the oldest first. Those of one partition keep their order.

    Records of two partitions that go to one must not follow each other partition by partition: a reader would take
    those of the second partition for late ones. The same ranges always give the same order, so that a copy can go on
    where another one stopped.

    Args:
        ranges: By partition the first offset and the offset past the last one.
    """
    partitions = [
        (record for batch in cluster.read(topic, {partition: extent}) for record in records_of(batch))
        for partition, extent in sorted(ranges.items())
    ]
    return heapq.merge(*partitions, key=lambda record: (record.timestamp, record.partition))


def copy_topic(
    brokers: Brokers,
    topic: str,
    to: str,
    partitions: int,
    *,
    group: str,
    transactional_id: str,
    report: Callable[[str], None],
    transaction_records: int = TRANSACTION_RECORDS,
) -> None:
    """Copy the records of a topic to another one, each to the partition of its key.

    A transaction holds records and the offsets of ``group`` in ``topic`` past them. A second run fences the first and
    goes on from those offsets.

    Args:
        topic: The topic that is read.
        to: The topic that is written.
        partitions: The number of partitions of ``to``.
        group: The consumer group that holds the progress of the copy.
        transactional_id: The transactional id of the copy.
        report: Is told the progress.
        transaction_records: The most records of one transaction.

    Raises:
        Refused: A newer run has fenced this one.
        BrokersUnavailable: The brokers did not answer.
    """
    with _transactions(brokers, transactional_id) as producer, closing(brokers.consumer(group)) as consumer:
        cluster = KafkaCluster(brokers)
        progress = dict(cluster.positions(group, topic))
        offsets = cluster.offsets(topic)
        ranges = {
            partition: (max(extent.log_start, progress.get(partition, 0)), extent.last_stable)
            for partition, extent in offsets.items()
        }
        records = records_by_time(cluster, topic, ranges)
        copied = 0
        while batch := list(islice(records, transaction_records)):
            rows = [PlacedRecord(new_partition(record.key, record.partition, partitions), record) for record in batch]
            _write_with_offsets(
                producer, consumer, to, rows, topic, {record.partition: record.offset + 1 for record in batch}
            )
            copied += len(batch)
            report(f"{topic} to {to}: {copied:,} records copied")
        # The ends lie past transaction markers. An empty topic is complete, too.
        ends = {partition: extent.last_stable for partition, extent in offsets.items()}
        _write_with_offsets(producer, consumer, to, [], topic, ends)


def write_all(
    brokers: Brokers,
    to: str,
    rows: Iterable[PlacedRecord],
    *,
    transactional_id: str,
    in_one_transaction: bool = False,
) -> int:
    """Write records in transactions.

    Args:
        to: The topic that is written.
        rows: The records.
        transactional_id: The transactional id of the writer.
        in_one_transaction: Whether all records are committed together.

    Returns:
        How many records were written.

    Raises:
        Refused: A newer run has fenced this one.
        BrokersUnavailable: The brokers did not answer.
    """
    written = 0
    remaining = iter(rows)
    with _transactions(brokers, transactional_id) as producer:
        while batch := list(islice(remaining, None if in_one_transaction else TRANSACTION_RECORDS)):
            producer.begin_transaction()
            _produce(producer, to, batch)
            producer.commit_transaction(TRANSACTION_SECONDS)
            written += len(batch)
    return written


def last_values(cluster: KafkaCluster, spec: TopicSpec) -> Iterator[PlacedRecord]:
    """Read the last record of each key of a changelog. Deleted keys are left out.

    Args:
        spec: The changelog, with the number of partitions of the topic that the records go to.
    """
    topic, partitions = spec.name, spec.partitions
    for partition, extent in sorted(cluster.offsets(topic).items()):
        last: dict[bytes, Record] = {}
        for batch in cluster.read(topic, {partition: (extent.log_start, extent.last_stable)}):
            for record in records_of(batch):
                if record.key is None:
                    continue
                last.pop(record.key, None)  # so that the keys are in the order of their last change
                if record.value is not None:
                    last[record.key] = record
        for record in last.values():
            yield PlacedRecord(new_partition(record.key, partition, partitions, spec.application_key), record)


def all_records(cluster: KafkaCluster, topic: str) -> Iterator[Record]:
    """Read all committed records, one partition after the other."""
    for partition, extent in sorted(cluster.offsets(topic).items()):
        for batch in cluster.read(topic, {partition: (extent.log_start, extent.last_stable)}):
            yield from records_of(batch)


def count_by_partition(cluster: KafkaCluster, topic: str, partitions: int | None) -> dict[int, int]:
    """Count the committed records of a topic by partition.

    Args:
        partitions: None counts each record in its own partition. A number counts it in the partition that it belongs to
            in a topic with this many partitions.
    """
    counts: dict[int, int] = {}
    known: dict[tuple[bytes | None, int], int] = {}
    for number, extent in cluster.offsets(topic).items():
        for batch in cluster.read(topic, {number: (extent.log_start, extent.last_stable)}):
            if partitions is None:
                counts[number] = counts.get(number, 0) + len(batch)
                continue
            for key in batch.keys:
                if (belongs := known.get((key, number))) is None:
                    belongs = new_partition(key, number, partitions)
                    if len(known) < _CACHED_KEYS:
                        known[key, number] = belongs
                counts[belongs] = counts.get(belongs, 0) + 1
    return {partition: count for partition, count in counts.items() if count}


def relocated_dead_letters(
    cluster: KafkaCluster, topic: str, copies: Mapping[str, str], partitions: int
) -> Iterator[PlacedRecord]:
    """Read all dead letters, with the new places of the records that were copied.

    A dead letter holds its record whole, or a digest of it. So the record's copy is found by key and value. Of several
    equal records any will do: what cannot be read in one cannot be read in the others. The mark of a re-drive names the
    same record, and gets the same place. It no longer names its dead letter, which has another offset now.

    Args:
        topic: The dead-letter topic.
        copies: By a topic that was copied, the topic that has the copy.
        partitions: The number of partitions of the dead-letter topic that the dead letters go to.
    """
    places = _new_origins(cluster, topic, copies)
    for record in all_records(cluster, topic):
        origin = parse_origin(record.headers)
        place = places.get(origin) if origin is not None else None
        if is_mark(record.headers):
            kept = tuple(header for header in record.headers if header[0] != REDRIVEN_LETTER)
            record = record._replace(headers=kept)
        if place is None:
            yield PlacedRecord(record.partition % partitions, record)
        else:
            headers = _with_origin(record.headers, place)
            yield PlacedRecord(place.partition % partitions, record._replace(headers=headers))


def _new_origins(cluster: KafkaCluster, dead_letters: str, copies: Mapping[str, str]) -> dict[Origin, Origin]:
    """Find the copies of the records that dead letters are about: the new place by the old one."""
    wanted: dict[str, dict[bytes, list[Origin]]] = {topic: defaultdict(list) for topic in copies}
    seen: set[Origin] = set()
    for record in all_records(cluster, dead_letters):
        origin = parse_origin(record.headers)
        if origin is None or origin.topic not in copies or origin in seen:
            continue  # one record has a dead letter for each operation that rejects it
        seen.add(origin)
        wanted[origin.topic][dead_letter_digest(record.key, record.value, record.headers)].append(origin)
    places: dict[Origin, Origin] = {}
    for topic, copy in copies.items():
        if not wanted[topic]:
            continue
        for record in all_records(cluster, copy):
            if origins := wanted[topic].get(record_digest(record.key, record.value)):
                places[origins.pop(0)] = Origin(copy, record.partition, record.offset)
    return places


def _with_origin(headers: Headers, origin: Origin) -> Headers:
    """Replace the origin in a dead letter's headers. Of equal names the last is ours, the others are the record's."""
    replaced = {name: value.encode() for name, value in origin_headers(origin).items()}
    replaced[TASK] = parse_subtopology(headers) + b"_%d" % origin.partition
    last = {name: number for number, (name, _) in enumerate(headers)}
    return tuple(
        (name, replaced[name] if name in replaced and last[name] == number else value)
        for number, (name, value) in enumerate(headers)
    )


def _write_with_offsets(
    producer: Producer,
    consumer: Consumer,
    to: str,
    rows: list[PlacedRecord],
    topic: str,
    offsets: Mapping[int, int],
) -> None:
    """Write records and commit the offsets of ``topic`` past them, in one transaction."""
    producer.begin_transaction()
    _produce(producer, to, rows)
    positions = [TopicPartition(topic, partition, offset) for partition, offset in sorted(offsets.items())]
    send_positions(producer, positions, consumer.consumer_group_metadata(), TRANSACTION_SECONDS)
    producer.commit_transaction(TRANSACTION_SECONDS)


def _produce(producer: Producer, to: str, rows: list[PlacedRecord]) -> None:
    for partition, record in rows:
        if record.headers == UNREADABLE_HEADERS:
            raise Refused(
                f"the record at partition {record.partition}, offset {record.offset} cannot be copied to {to}",
                expected="headers whose names are UTF-8",
                observed="a name that is not, which the client cannot read",
                remedy="The copy would lose its headers. Nothing of this transaction is committed. Copy the topic with "
                "a tool that copies names byte by byte (MirrorMaker 2 does not), or let the record go by retention.",
            )
        while True:
            try:
                producer.produce(
                    to,
                    record.value,
                    record.key,
                    partition,
                    timestamp=writable_timestamp(record.timestamp),
                    headers=list(record.headers) or None,
                )
                break
            except BufferError:  # the queue is full
                if producer.poll(TRANSACTION_SECONDS) == 0:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"nothing delivered to {to}")) from None
        producer.poll(0)


def _transactions(brokers: Brokers, transactional_id: str) -> AbstractContextManager[Producer]:
    return transactional_producer(
        brokers,
        transactional_id,
        seconds=TRANSACTION_SECONDS,
        transaction_timeout_ms=MAX_TRANSACTION_SECONDS * 1000,
        linger_ms=20,
        compression_type="lz4",
        message_max_bytes=16 * 1024 * 1024,
    )
