"""What a writer hands on is what the repartition topic has: counted by key, and placed as Kafka places it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext as does_not_raise
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from streamplan.errors import Refused
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.model.dead_letters import Origin
from streamplan.model.partitioner import partition_for_key
from streamplan.model.processor_topology import TaskId
from streamplan.serdes.arrow import struct_type
from streamplan.serdes.json import Json
from streamplan.spark.sink.foreign_records import require_own_records
from streamplan.spark.sink.handed_on import (
    HandedOn,
    HandedOnCounts,
    HandedOnRecords,
    TaskReports,
    TaskWrote,
    handed_on_to,
    partitions_of_keys,
)
from streamplan.spark.sink.spec import HandedOnTo
from streamplan.spark.sink.writers import RekeyedRecords, TaskProgress

from tests.unit.spark.sink.test_planned_rows import FakeTransaction

NO_FIELDS = pa.nulls(0, pa.struct([]))


@pytest.mark.parametrize("partitions", [1, 2, 7, 96])
def test_a_key_is_in_the_partition_in_which_kafka_puts_it(partitions: int) -> None:
    random = Random(partitions)
    keys = [random.randbytes(random.randrange(20)) for _ in range(2000)]
    array = pa.array([b"before", *keys, b"behind"], pa.binary()).slice(1, len(keys))
    assert partitions_of_keys(array, partitions).tolist() == [partition_for_key(key, partitions) for key in keys]


def test_the_counts_of_many_batches_are_those_of_all_records() -> None:
    random = Random(1)
    records = [(b"%d" % random.randrange(50), random.randrange(10_000)) for _ in range(20_000)]
    handed_on = HandedOnCounts(3)
    for first in range(0, len(records), 137):
        part = records[first : first + 137]
        handed_on.add(rows(part), NO_FIELDS, len(part))
    found = [row for batch in handed_on.batches() for row in batch.to_pylist()]
    assert {row["key"]: row["count"] for row in found} == Counter(key for key, _ in records)
    newest: dict[bytes, int] = {}
    for key, at in records:
        newest[key] = max(at, newest.get(key, 0))
    assert {row["key"]: round(row["timestamp"].timestamp() * 1000) for row in found} == newest
    assert {row["key"]: row["partition"] for row in found} == {
        row["key"]: partition_for_key(row["key"], 3) for row in found
    }


def test_nothing_is_handed_on_of_no_records() -> None:
    assert [*HandedOnCounts(2).batches()] == []


def test_the_newest_timestamp_is_one_that_can_be_written() -> None:
    handed_on = HandedOnCounts(1)
    handed_on.add(rows([(b"a", 0)]), NO_FIELDS, 1)
    (batch,) = handed_on.batches()
    assert batch["timestamp"][0].as_py().timestamp() == 0.001


@pytest.mark.parametrize("committed", [0, 3, 10])
def test_records_that_are_committed_are_handed_on_and_not_written_again(committed: int) -> None:
    """The micro-batch runs again after a crash."""
    values = [b'{"kind": %d}' % (number % 2) for number in range(8)] + [b"no JSON", b"{}"]
    transaction = FakeTransaction({"orders": committed}, old=False)
    task = TaskProgress(transaction, HandedOnCounts(1))  # type: ignore[arg-type]
    left_out = frozenset({Origin("orders", 0, 1)})
    RekeyedRecords("orders", Json("kind int"), "kind", left_out).write(source(values), task)
    (batch,) = task.handed_on.batches()  # type: ignore[union-attr]
    assert {row["key"]: row["count"] for row in batch.to_pylist()} == {b"0": 4, b"1": 3}
    expected = [b"%d" % (number % 2) for number in range(8) if number >= committed and number != 1]
    dead = [key(number) for number in (1, 8, 9) if number >= committed]
    assert sorted(transaction.written) == sorted([*expected, *dead])


def test_records_are_handed_on_with_the_fields_that_are_needed() -> None:
    fields = {"kind": "int", "amount": "bigint", "tags": "array<string>"}
    values = [{"kind": number % 3, "amount": number, "tags": ["a"] * (number % 2)} for number in range(9)]
    data = [json.dumps(value).encode() for value in values]
    data[4], data[6] = b"no JSON", b'{"amount": 1}'
    serde = Json(", ".join(f"{name} {of_field}" for name, of_field in fields.items()))
    needed = struct_type({name: fields[name] for name in ("tags", "amount")})
    transaction = FakeTransaction({"orders": 3}, old=False)
    task = TaskProgress(transaction, HandedOnRecords(3, needed))  # type: ignore[arg-type]
    RekeyedRecords("orders", serde, "kind").write(source(data), task)
    assert task.handed_on is not None
    (batch,) = task.handed_on.now()
    assert [*task.handed_on.batches()] == []  # each once
    accepted = [value for number, value in enumerate(values) if number not in (4, 6)]
    assert batch.select(["partition", "key", "fields"]).to_pylist() == [
        {
            "partition": partition_for_key(b"%d" % int(str(value["kind"])), 3),
            "key": b"%d" % int(str(value["kind"])),
            "fields": {"tags": value["tags"], "amount": value["amount"]},
        }
        for value in accepted
    ]
    assert {moment.as_py().timestamp() for moment in batch["timestamp"]} == {0.001}
    assert sorted(transaction.written) == sorted([key(4), key(6), b"0", b"2", b"1", b"2"])
    placed = Counter(batch["partition"].to_pylist())
    assert task.handed_on.records.tolist() == [placed[partition] for partition in range(3)]


def test_of_two_tries_of_a_task_the_last_one_counts() -> None:
    def wrote(records: int, markers: int) -> TaskWrote:
        return TaskWrote({}, np.array([records, 0]), np.array([markers, 0]))

    reports = TaskReports()
    both = reports.addInPlace(reports.zero({}), {0: wrote(5, 1), 1: wrote(7, 2)})
    assert handed_on_to(reports.addInPlace(both, {0: wrote(5, 0)}).values()) == {0: HandedOnTo(12, 2)}


@pytest.mark.parametrize("kind", [HandedOnCounts, HandedOnRecords])
def test_a_partition_gets_a_marker_of_each_transaction_that_wrote_there(kind: type[HandedOn]) -> None:
    """Those that an earlier run has committed have a marker already."""
    assert [partition_for_key(key, 2) for key in (b"0", b"1", b"2", b"3")] == [0, 1, 0, 1]
    handed_on = kind(2)
    for keys, committed in (("02", 0), ("130", 2), ("11", 2), ("01", 0)):
        handed_on.add(rows([(key.encode(), 1) for key in keys]), NO_FIELDS, len(keys) - committed)
        handed_on.committed()
    assert handed_on.records.tolist() == [4, 5]
    assert handed_on.markers.tolist() == [3, 1]


@pytest.mark.parametrize(
    ("extent", "lies_there", "is_refused"),
    [
        ((10, 16), None, False),  # nothing is read
        ((10, 17), 6, True),
        ((10, 15), 4, True),
        ((10, 18), 5, False),  # aborted records, or more markers
        ((10, 40), 5, False),
    ],
)
def test_records_of_another_program_are_told_by_the_offsets(
    monkeypatch: pytest.MonkeyPatch, extent: tuple[int, int], lies_there: int | None, is_refused: bool
) -> None:
    def read(cluster: object, topic: str, ranges: Mapping[int, tuple[int, int]]) -> list[range]:
        assert (topic, ranges) == ("counts-repartition", {1: extent})
        assert lies_there is not None
        return [range(2), range(lies_there - 2)]

    monkeypatch.setattr(KafkaCluster, "read", read)
    handed_on, outcome = HandedOnTo(records=5, markers=1), does_not_raise()
    if is_refused:
        outcome = pytest.raises(Refused, match=f"counts-repartition-1 .*expected 5 records.*observed {lies_there}")
    with outcome:
        require_own_records(Brokers("nowhere:1"), TaskId(1, 1), ("counts-repartition", 1), extent, handed_on)


def rows(records: Sequence[tuple[bytes, int]]) -> pa.RecordBatch:
    keys, timestamps = zip(*records, strict=True)
    return pa.RecordBatch.from_pydict(
        {"key": pa.array(keys, pa.binary()), "timestamp": pa.array(timestamps, pa.int64())}
    )


def key(number: int) -> bytes:
    return b"order_%d" % number


def source(values: Sequence[bytes]) -> pa.RecordBatch:
    count = len(values)
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([key(number) for number in range(count)], pa.binary()),
            "value": pa.array(values, pa.binary()),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": pa.array([1] * count, pa.int64()),
            "headers": pa.nulls(count, pa.string()),
        }
    )
