"""Records from one topic to another, whole: key, value, timestamp, headers. Each exactly once, across kills."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from itertools import islice
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from streamplan.checks.framework.cluster import Record, records_of
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.transactions import transactional_producer
from streamplan.maintenance.repartition_plan import place

TRANSACTION_RECORDS = 20_000
TRANSACTION_SECONDS = 60.0
MAX_TRANSACTION_SECONDS = 900
"""The brokers' default ``transaction.max.timeout.ms``."""


class Placed(NamedTuple):
    """A record, and the partition it goes to."""

    partition: int
    record: Record


def in_order_of_time(cluster: KafkaCluster, topic: str, ranges: Mapping[int, tuple[int, int]]) -> Iterator[Record]:
    """Committed records of all partitions, the oldest first; those of one partition keep their order.

    Two partitions that become one must not come one behind the other: whoever reads that later would take the second
    for late. The same ranges give the same order, wherever a copy is taken up again.
    """
    parts = [
        (record for batch in cluster.read(topic, {partition: extent}) for record in records_of(batch))
        for partition, extent in sorted(ranges.items())
    ]
    return heapq.merge(*parts, key=lambda record: (record.timestamp, record.partition))


def copy_topic(
    brokers: Brokers,
    topic: str,
    to: str,
    partitions: int,
    *,
    group: str,
    transactional_id: str,
    say: Callable[[str], None],
    transaction_records: int = TRANSACTION_RECORDS,
) -> None:
    """Copy what ``topic`` holds to ``to`` with its ``partitions``, placed by key.

    A transaction carries records and the position of ``group`` in ``topic`` behind them; whoever does this again fences
    the one before and goes on from there.
    """
    with _transactions(brokers, transactional_id) as producer:
        cluster = KafkaCluster(brokers)
        positions = dict(cluster.positions(group, topic))
        offsets = cluster.offsets(topic)
        ranges = {
            number: (max(found.log_start, positions.get(number, 0)), found.last_stable)
            for number, found in offsets.items()
        }
        records = in_order_of_time(cluster, topic, ranges)
        reader = brokers.consumer(group)
        copied = 0
        try:
            while some := list(islice(records, transaction_records)):
                rows = [Placed(place(one.key, one.partition, partitions), one) for one in some]
                behind = {one.partition: one.offset + 1 for one in some}
                _commit(producer, reader, to, rows, topic, behind)
                copied += len(some)
                say(f"{topic} to {to}: {copied:,} records copied")
            # The ends lie behind transaction markers; and an empty topic is complete, too.
            _commit(producer, reader, to, [], topic, {number: found.last_stable for number, found in offsets.items()})
        finally:
            reader.close()


def write_all(
    brokers: Brokers, to: str, rows: Iterable[Placed], *, transactional_id: str, at_once: bool = False
) -> int:
    """Write the rows in transactions, all of them in one where ``at_once``; how many there were."""
    written = 0
    left = iter(rows)
    with _transactions(brokers, transactional_id) as producer:
        while some := list(islice(left, None if at_once else TRANSACTION_RECORDS)):
            producer.begin_transaction()
            _produce(producer, to, some)
            producer.commit_transaction(TRANSACTION_SECONDS)
            written += len(some)
    return written


def last_values(cluster: KafkaCluster, topic: str, partitions: int, window_bytes: int) -> Iterator[Placed]:
    """The last record of each key of a changelog; keys that were deleted are left out."""
    for number, found in sorted(cluster.offsets(topic).items()):
        last: dict[bytes, Record] = {}
        for batch in cluster.read(topic, {number: (found.log_start, found.last_stable)}):
            for record in records_of(batch):
                if record.key is None:
                    continue
                last.pop(record.key, None)  # so that those that stay are in the order of their last change
                if record.value is not None:
                    last[record.key] = record
        for record in last.values():
            yield Placed(place(record.key, number, partitions, window_bytes=window_bytes), record)


def all_records(cluster: KafkaCluster, topic: str) -> Iterator[Record]:
    """Committed records, partition by partition."""
    for number, found in sorted(cluster.offsets(topic).items()):
        for batch in cluster.read(topic, {number: (found.log_start, found.last_stable)}):
            yield from records_of(batch)


def count_by_place(cluster: KafkaCluster, topic: str, partitions: int | None) -> dict[int, int]:
    """Committed records by the partition they are in; with ``partitions``, they belong in among so many."""
    counts: dict[int, int] = {}
    places: dict[tuple[bytes | None, int], int] = {}
    for number, found in cluster.offsets(topic).items():
        for batch in cluster.read(topic, {number: (found.log_start, found.last_stable)}):
            if partitions is None:
                counts[number] = counts.get(number, 0) + len(batch)
                continue
            for key in batch.keys:
                if (where := places.get((key, number))) is None:
                    where = place(key, number, partitions)
                    if len(places) < 1_000_000:
                        places[key, number] = where
                counts[where] = counts.get(where, 0) + 1
    return {number: count for number, count in counts.items() if count}


def _commit(
    producer: Producer, reader: Consumer, to: str, rows: list[Placed], topic: str, positions: Mapping[int, int]
) -> None:
    producer.begin_transaction()
    _produce(producer, to, rows)
    at = [TopicPartition(topic, partition, offset) for partition, offset in sorted(positions.items())]
    producer.send_offsets_to_transaction(at, reader.consumer_group_metadata(), TRANSACTION_SECONDS)
    producer.commit_transaction(TRANSACTION_SECONDS)


def _produce(producer: Producer, to: str, rows: list[Placed]) -> None:
    for partition, record in rows:
        while True:
            try:
                producer.produce(
                    to,
                    record.value,
                    record.key,
                    partition,
                    timestamp=record.timestamp,
                    headers=list(record.headers) or None,
                )
                break
            except BufferError:
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
