"""What runs in Spark's Python workers: whole Arrow batches in, transactions out.

Both writers yield one row a source partition: partition, records written, records dead-lettered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa

from streamplan.adapters.spark.deserialize import select_keys
from streamplan.adapters.spark.sink import DeadLetter, Headers, SinkTarget, TaskTransaction
from streamplan.errors import StreamplanError
from streamplan.serdes import Json

WRITTEN_SCHEMA = "partition int, written long, dead_lettered long"

Writer = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass
class _Account:
    transaction: TaskTransaction
    next_offset: int
    written: int = 0
    dead_lettered: int = 0


class _Tasks:
    """The transactions of the partitions that one Spark task meets; normally one."""

    def __init__(self, target: SinkTarget, stack: ExitStack) -> None:
        self._target = target
        self._stack = stack
        self.accounts: dict[int, _Account] = {}

    def of(self, partition: int) -> _Account:
        if partition not in self.accounts:
            transaction = self._stack.enter_context(TaskTransaction(self._target, partition))
            self.accounts[partition] = _Account(transaction, transaction.first)
        return self.accounts[partition]

    def commit(self) -> pa.RecordBatch:
        for account in self.accounts.values():
            if not account.transaction.already_committed:
                account.transaction.commit()
        return pa.RecordBatch.from_arrays(
            [
                pa.array(list(self.accounts), pa.int32()),
                pa.array([account.written for account in self.accounts.values()], pa.int64()),
                pa.array([account.dead_lettered for account in self.accounts.values()], pa.int64()),
            ],
            names=["partition", "written", "dead_lettered"],
        )


def repartition_writer(target: SinkTarget, serde: Json, field: str) -> Writer:
    """Re-key records and write them to the repartition topic; those without a key to the dead-letter topic.

    Takes ``key, value: binary, partition: int, offset: long, timestamp: long (ms), headers``.
    """

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with ExitStack() as stack:
            tasks = _Tasks(target, stack)
            for whole in batches:
                for partition, batch in by_partition(whole):
                    account = tasks.of(partition)
                    account.next_offset = batch["offset"][-1].as_py() + 1
                    rows = batch.filter(pa.compute.greater_equal(batch["offset"], account.transaction.position))
                    if rows.num_rows:
                        _forward(rows, partition, account, serde, field)
            for account in tasks.accounts.values():
                account.transaction.prove_complete(account.next_offset)
            yield tasks.commit()

    return write


def _forward(rows: pa.RecordBatch, partition: int, account: _Account, serde: Json, field: str) -> None:
    found = select_keys(rows["value"], serde, field)
    timestamps = rows["timestamp"].to_pylist()
    values = rows["value"].to_pylist()
    keys = found.keys.to_pylist()
    for row, reason in sorted(found.rejected.items()):
        account.transaction.dead_letter(
            DeadLetter(
                partition=partition,
                offset=rows["offset"][row].as_py(),
                timestamp=timestamps[row],
                key=rows["key"][row].as_py(),
                value=values[row],
                headers=_headers(rows["headers"][row]),
                reason=reason,
            )
        )
    plain = rows["headers"].null_count == rows.num_rows
    headers = repeat(None) if plain else map(_headers, rows["headers"])
    account.transaction.produce(keys, values, timestamps, headers)
    account.written += rows.num_rows - len(found.rejected)
    account.dead_lettered += len(found.rejected)


def changelog_writer(target: SinkTarget) -> Writer:
    """Write a count's new values to the changelog: 8 bytes, big-endian, into the partition of the key.

    Takes ``key: binary, value: long, partition: int, timestamp: long (ms), last: boolean``, each key once. The row
    with ``last`` ends a partition and has no key: only it proves that all rows of the partition have come.
    """

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with ExitStack() as stack:
            tasks = _Tasks(target, stack)
            for whole in batches:
                for partition, batch in by_partition(whole):
                    if partition not in target.ranges:
                        continue
                    account = tasks.of(partition)
                    if batch["last"][-1].as_py():
                        account.next_offset = account.transaction.until
                    if account.transaction.already_committed:
                        continue
                    batch = batch.filter(pa.compute.invert(batch["last"]))
                    packed = batch["value"].to_numpy().astype(">i8").tobytes()
                    values = (packed[at : at + 8] for at in range(0, len(packed), 8))
                    account.transaction.produce(
                        batch["key"].to_pylist(),
                        values,
                        batch["timestamp"].to_pylist(),
                        repeat(None),
                        partition,
                    )
                    account.written += batch.num_rows
            for account in tasks.accounts.values():
                if account.next_offset != account.transaction.until:
                    raise StreamplanError(
                        f"task {target.task(account.transaction.partition)}: its input ended early",
                        remedy="The task was killed; nothing of this try is committed, the next one reads it again.",
                    )
            yield tasks.commit()

    return write


def by_partition(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The batch cut by Kafka partition. Order within a partition is kept."""
    partitions = batch["partition"].to_numpy()
    if not len(partitions):
        return
    if (partitions == partitions[0]).all():
        yield int(partitions[0]), batch
        return
    for partition in np.unique(partitions):
        yield int(partition), batch.filter(pa.array(partitions == partition))


def _headers(headers: pa.Scalar) -> Headers:
    found: list[dict[str, Any]] | None = headers.as_py()
    return [(header["key"], header["value"]) for header in found or ()]
