"""Counts and reads the records of an aggregation's topics: source, repartition topic, changelog, dead letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from streamplan.checks.framework.application import Aggregation
from streamplan.checks.framework.consistent_cut import attempt
from streamplan.errors import CouldNotLook
from streamplan.kafka_port import Cluster, RecordBatch, read_records_at, records_of
from streamplan.kafka_types import Headers, OffsetByPartition, PartitionOffset, Record
from streamplan.model.dead_letters import (
    REDRIVEN_LETTER,
    LetterPlace,
    is_mark,
    own_headers,
    parse_origin,
    parse_subtopology,
)
from streamplan.model.timestamps import timestamp_fault
from streamplan.serdes.serde import MAX_BYTES, Undecodable, header_bytes

COUNT_BYTES = 8
"""The size of a count in a changelog: a big-endian signed integer, as ``LongSerializer`` writes it."""


@dataclass(frozen=True)
class Counts:
    """The records of some rows of the source.

    Attributes:
        by_key: The number of records of each key.
        rejected: The rows that cannot be counted.
    """

    by_key: Mapping[bytes, int]
    rejected: Sequence[int]


def count_records(aggregation: Aggregation, batch: RecordBatch) -> Counts:
    """Count the records of a batch of the source by the key that :meth:`Aggregation.key_of` gives each.

    Streamplan dead-letters a record with a faulty timestamp, and one that is too large for its next topic. Another
    application may count them.
    """
    serde, field = aggregation.serde, aggregation.field
    values, streamplans = batch.values, aggregation.dead_letters is not None
    rejected = _rows_with_faulty_timestamps(batch) if streamplans else set()
    if aggregation.left_out:
        rows = {row for row, offset in enumerate(batch.offsets) if (batch.partition, offset) in aggregation.left_out}
        values = [None if row in rows else value for row, value in enumerate(values)]
        rejected |= rows
    if serde is not None and field is not None:
        column = serde.key_column(field, values)
        headers = batch.headers if streamplans else ()
        if any(headers):
            rejected |= _rows_too_large(column.keys.to_pylist(), values, headers, serde.max_bytes)
        counted_keys = Counter(column.counts())
        counted_keys.subtract(key for row in rejected if (key := column.keys[row].as_py()) is not None)
        rejected |= column.rejected.keys()
        by_key = {aggregation.key_of_text(text): count for text, count in counted_keys.items() if count}
        return Counts(by_key, sorted(rejected))
    keys, passed_over = batch.keys, set[int]()
    if None in values:  # a count passes over a null value: KStreamAggregate
        passed_over = {row for row, value in enumerate(values) if value is None}
    if serde is not None:
        rejected |= serde.decode_column(values).rejected.keys() - passed_over
    if streamplans:
        rejected |= _rows_too_large(keys, values, batch.headers, MAX_BYTES)
    rejected |= {row for row, key in enumerate(keys) if key is None} if None in keys else set()
    left_out = rejected | passed_over
    counted = keys if not left_out else [key for row, key in enumerate(keys) if row not in left_out]
    return Counts(Counter(key for key in counted if key is not None), sorted(rejected))


def _rows_with_faulty_timestamps(batch: RecordBatch) -> set[int]:
    timestamps = batch.timestamps
    if not timestamps or (timestamp_fault(min(timestamps)) or timestamp_fault(max(timestamps))) is None:
        return set()
    return {row for row, timestamp in enumerate(timestamps) if timestamp_fault(timestamp) is not None}


def _rows_too_large(
    keys: Sequence[bytes | None], values: Sequence[bytes | None], headers: Sequence[Headers], max_bytes: int
) -> set[int]:
    return {
        row
        for row, (key, value, record_headers) in enumerate(zip(keys, values, headers, strict=True))
        if len(key or b"") + len(value or b"") + header_bytes(record_headers) > max_bytes
    }


class SourceCounts(NamedTuple):
    """The records of a range of the source: by key, those that cannot be counted, and how many there are in all."""

    by_key: Counter[bytes]
    rejected: set[PartitionOffset]
    records: int


def count_source(
    cluster: Cluster, aggregation: Aggregation, since: OffsetByPartition, until: OffsetByPartition
) -> SourceCounts:
    """Count the records of the source from ``since`` (0 where a partition is absent) to ``until``."""
    by_key, rejected, records = Counter[bytes](), set[PartitionOffset](), 0
    ranges = {number: (since.get(number, 0), last) for number, last in until.items()}
    for part in cluster.map_batches(aggregation.source, ranges, partial(_count_batches, aggregation)):
        by_key.update(part.by_key)
        rejected |= part.rejected
        records += part.records
    return SourceCounts(by_key, rejected, records)


def _count_batches(aggregation: Aggregation, batches: Iterator[RecordBatch]) -> SourceCounts:
    by_key, rejected, records = Counter[bytes](), set[PartitionOffset](), 0
    for batch in batches:
        counts = count_records(aggregation, batch)
        by_key.update(counts.by_key)
        records += len(batch)
        if counts.rejected:
            offsets = batch.offsets
            rejected |= {(batch.partition, offsets[row]) for row in counts.rejected}
    return SourceCounts(by_key, rejected, records)


def count_between(cluster: Cluster, topic: str, first: OffsetByPartition, last: OffsetByPartition) -> dict[bytes, int]:
    """Count the records of each key from ``first`` to ``last``; below 0 where ``last`` comes before ``first``."""
    counts: Counter[bytes] = Counter()
    borders = {number: (first.get(number, 0), last.get(number, 0)) for number in first.keys() | last.keys()}
    for batch in cluster.read(topic, {number: (min(border), max(border)) for number, border in borders.items()}):
        sign = 1 if borders[batch.partition][0] < borders[batch.partition][1] else -1
        for key, value in zip(batch.keys, batch.values, strict=True):
            if key is not None and value is not None:  # a count passes over the others
                counts[key] += sign
    return dict(counts)


class RekeyedCounts(NamedTuple):
    """The records of a range of the repartition topic that are still there.

    ``by_key`` has the number of records of each key. ``deleted_below`` has the partitions of which the first records of
    the range were deleted, with the first offset that is there.
    """

    by_key: Counter[bytes]
    since: OffsetByPartition
    until: OffsetByPartition
    deleted_below: OffsetByPartition


def count_rekeyed(cluster: Cluster, topic: str, since: OffsetByPartition, until: OffsetByPartition) -> RekeyedCounts:
    """Count the records of the repartition topic from ``since`` (0 where a partition is absent) to ``until``.

    Kafka Streams deletes what it has consumed. What is deleted while it is read is left out, too.
    """

    def read() -> RekeyedCounts:
        begins = {number: offsets.log_start for number, offsets in cluster.offsets(topic).items()}
        deleted_below = {
            number: begins[number]
            for number, end in until.items()
            if since.get(number, 0) < end and begins[number] > since.get(number, 0)
        }
        counts = RekeyedCounts(Counter(), since, until, deleted_below)
        ranges = {number: (max(since.get(number, 0), begins[number]), end) for number, end in until.items()}
        for by_key in cluster.map_batches(topic, ranges, _count_keys):
            counts.by_key.update(by_key)
        return counts

    return attempt(read)


def _count_keys(batches: Iterator[RecordBatch]) -> Counter[bytes]:
    by_key: Counter[bytes] = Counter()
    for batch in batches:
        keys = batch.keys
        if None in (values := batch.values):  # a count passes over a null value
            keys = [key for key, value in zip(keys, values, strict=True) if value is not None]
        by_key.update(key for key in keys if key is not None)
    return by_key


class ChangelogUpdates(NamedTuple):
    """The end of a changelog.

    ``values`` has the last count of each partition and key, 0 for a key that was deleted, and ``offsets`` the offset of
    that record. ``not_counts`` has the records whose value is no count, and those without a key.
    """

    values: Mapping[tuple[int, bytes], int]
    offsets: Mapping[tuple[int, bytes], int]
    not_counts: frozenset[PartitionOffset]


def read_changelog(
    cluster: Cluster, topic: str, since: OffsetByPartition, until: OffsetByPartition
) -> ChangelogUpdates:
    """Read the last count of each key that was written from ``since`` to ``until``."""
    last: dict[tuple[int, bytes], bytes | None] = {}
    offsets: dict[tuple[int, bytes], int] = {}
    not_counts: set[tuple[int, int]] = set()
    starts = cluster.offsets(topic)
    ranges = {number: (max(since.get(number, 0), starts[number].log_start), end) for number, end in until.items()}
    for batch in cluster.read(topic, ranges):
        for key, value, offset in zip(batch.keys, batch.values, batch.offsets, strict=True):
            if key is None:
                not_counts.add((batch.partition, offset))
            else:
                last[batch.partition, key] = value
                offsets[batch.partition, key] = offset
    values = {}
    for at, value in last.items():
        is_count = value is not None and len(value) == COUNT_BYTES
        values[at] = int.from_bytes(value, "big", signed=True) if value is not None and is_count else 0
        if value is not None and not is_count:
            not_counts.add((at[0], offsets[at]))
    return ChangelogUpdates(values, offsets, frozenset(not_counts))


class DeadLetterOrigins(NamedTuple):
    """The dead letters of an aggregation.

    ``origins`` says how often each record of the source stands in the dead-letter topic and was not re-driven.
    ``redriven`` has the records that were, with the place of the dead letter where the mark names it.
    ``deleted_below`` has the partitions of that topic whose first records, below that offset, were deleted before they
    were read.
    """

    origins: Mapping[PartitionOffset, int]
    redriven: Mapping[PartitionOffset, LetterPlace | None]
    deleted_below: OffsetByPartition


def read_dead_letters(
    cluster: Cluster, aggregation: Aggregation, since: OffsetByPartition, until: OffsetByPartition
) -> DeadLetterOrigins:
    """Read the dead letters from ``since`` to ``until``; none where the application has no dead-letter topic."""
    if aggregation.dead_letters is None:
        return DeadLetterOrigins({}, {}, {})
    origins: Counter[PartitionOffset] = Counter()
    redriven: dict[PartitionOffset, LetterPlace | None] = {}
    starts = {number: offsets.log_start for number, offsets in cluster.offsets(aggregation.dead_letters).items()}
    deleted_below = {number: start for number, start in starts.items() if start > since.get(number, 0)}
    ranges = {number: (max(starts[number], since.get(number, 0)), end) for number, end in until.items()}
    for batch in cluster.read(aggregation.dead_letters, ranges):
        for record in records_of(batch):
            origin = _origin_of(record, aggregation)
            if origin is None:
                continue
            if is_mark(record.headers):
                named = dict(record.headers).get(REDRIVEN_LETTER) or b""
                redriven[origin] = LetterPlace.parse(named.decode("ascii", "replace"))
            else:
                origins[origin] += 1
    origins.subtract(redriven.keys())
    return DeadLetterOrigins({origin: times for origin, times in origins.items() if times > 0}, redriven, deleted_below)


def count_redriven(
    cluster: Cluster, aggregation: Aggregation, redriven: Mapping[PartitionOffset, LetterPlace | None]
) -> tuple[Counter[bytes], int]:
    """Count records that were re-driven, by key. Each is read in the source, or else in its dead letter.

    Args:
        cluster: Where the topics are.
        aggregation: What is counted.
        redriven: The records, each with the place of its dead letter.

    Returns:
        The number of records of each key, and the number of records that no longer count as rejected.

    Raises:
        CouldNotLook: Both a record and its dead letter were deleted.
    """
    if not redriven or aggregation.dead_letters is None:
        return Counter(), 0
    found = {(each.partition, each.offset): each for each in read_records_at(cluster, aggregation.source, redriven)}
    letters = {place: origin for origin, place in redriven.items() if origin not in found and place is not None}
    for letter in read_records_at(cluster, aggregation.dead_letters, letters):
        origin = letters[LetterPlace(letter.partition, letter.offset)]
        found[origin] = letter._replace(headers=own_headers(letter.headers))
    if lost := sorted(redriven.keys() - found.keys()):
        partition, offset = lost[0]
        raise CouldNotLook(
            f"the record at {aggregation.source}-{partition} offset {offset}, which was re-driven",
            expected=f"the record, or its dead letter in {aggregation.dead_letters}",
            observed=f"neither, and the same for {len(lost) - 1:,} more records" if len(lost) > 1 else "neither",
            remedy="Its results can no longer be recounted: reset the application, or delete the verified cut.",
        )
    by_key, accepted = Counter[bytes](), 0
    for record in found.values():
        try:
            key = aggregation.key_of(record)
        except Undecodable:  # the declaration has changed once more; the record was counted, which is a fault
            continue
        accepted += 1
        if key is not None:
            by_key[key] += 1
    return by_key, accepted


def _origin_of(dead_letter: Record, aggregation: Aggregation) -> PartitionOffset | None:
    """Return the record of the source that a dead letter or a mark is about; None for one of another task."""
    origin = parse_origin(dead_letter.headers)
    if origin is None or origin.topic != aggregation.source:
        return None
    if parse_subtopology(dead_letter.headers) != b"%d" % aggregation.subtopology:
        return None
    return origin.partition, origin.offset
