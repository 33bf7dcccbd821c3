"""The order of partition times is the order in which a Kafka Streams task takes the records of several topics."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pyarrow as pa
import pytest
from streamplan.spark.planning.partition_times import PartitionTimes


def by_oldest_head(topics: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Topic and offset of each record as ``PartitionGroup.nextRecord`` takes them; of equals the lower topic first."""
    next_offsets = [0] * len(topics)
    taken = []
    while waiting := [number for number, times in enumerate(topics) if next_offsets[number] < len(times)]:
        topic = min(waiting, key=lambda number: topics[number][next_offsets[number]])
        taken.append((topic, next_offsets[topic]))
        next_offsets[topic] += 1
    return taken


def rows(
    times: Sequence[int], partitions: Sequence[int], rejected: Sequence[int] = ()
) -> tuple[pa.RecordBatch, pa.Array]:
    """Records with these times in ms, and the reasons of those that are rejected."""
    columns = [pa.array([1000 * time for time in times], pa.timestamp("us", "UTC")), pa.array(partitions, pa.int32())]
    reasons = pa.array(["bad" if row in rejected else None for row in range(len(times))], pa.string())
    return pa.RecordBatch.from_arrays(columns, names=["timestamp", "partition"]), reasons


def in_batches(times: Sequence[int], random: Random) -> list[int]:
    """The partition times, read in Arrow batches of any length."""
    counted, found, first = PartitionTimes(), list[int](), 0
    while first < len(times):
        until = first + random.randint(1, 4)
        found += counted.of(*rows(times[first:until], [7] * len(times[first:until]))).to_pylist()
        first = until
    return found


@pytest.mark.parametrize("seed", range(200))
def test_they_order_records_by_the_oldest_head(seed: int) -> None:
    random = Random(seed)
    count = random.randint(1, 4)
    # No two topics have a timestamp in common: the library does not say which of two equal heads comes first.
    topics = [[random.randrange(50) * count + number for _ in range(random.randrange(12))] for number in range(count)]
    timed = [
        (time, topic, offset)
        for topic, times in enumerate(topics)
        for offset, time in enumerate(in_batches(times, random))
    ]
    assert [(topic, offset) for _, topic, offset in sorted(timed)] == by_oldest_head(topics)


def test_each_partition_has_its_own() -> None:
    times = PartitionTimes()
    assert times.of(*rows([5, 1, 3, 9, 2], [0, 1, 0, 1, 0])).to_pylist() == [5, 1, 5, 9, 5]
    assert times.of(*rows([4, 4], [0, 1])).to_pylist() == [5, 9]
    assert times.of(*rows([], [])).to_pylist() == []


def test_a_rejected_record_does_not_count() -> None:
    """``RecordQueue.updateHead`` skips what cannot be deserialized."""
    assert PartitionTimes().of(*rows([5, 99, 6], [0, 0, 0], rejected=[1])).to_pylist() == [5, 5, 6]
