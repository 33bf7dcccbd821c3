"""What runs in Spark's Python workers: whole Arrow batches in, transactions out.

Both writers yield one row a stream task: partition, records written, records dead-lettered, and the instance that did
it, with its host.
"""

from __future__ import annotations

import gc
import json
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from streamplan.errors import Refused, StreamplanError
from streamplan.serdes.serde import Serde
from streamplan.spark.sink.instance import this_instance
from streamplan.spark.sink.transaction import DeadLetter, Headers, Output, SinkTarget, TaskTransaction

if TYPE_CHECKING:
    from streamplan.spark.planning.compiled_plan import ArrowFunction

WRITTEN_SCHEMA = "partition int, written long, dead_lettered long, instance string, host string"

RANGES = "streamplan.ranges"
"""Local property of a micro-batch's job: its :attr:`SinkTarget.ranges`, by :func:`ranges_as_text`."""


def ranges_as_text(target: SinkTarget) -> str:
    return json.dumps([(*source, *extent) for source, extent in target.ranges.items()])


def for_each_micro_batch(target: SinkTarget, writer: Callable[[SinkTarget], ArrowFunction]) -> ArrowFunction:
    """The writer for micro-batches whose ranges are told by the job, so that Spark is given the same one for all."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        told = context.getLocalProperty(RANGES) if context else None
        assert told is not None, f"a job without {RANGES}"
        ranges = {(topic, partition): (first, until) for topic, partition, first, until in json.loads(told)}
        return writer(replace(target, ranges=ranges))(batches)

    return write


@dataclass
class _Account:
    transaction: TaskTransaction
    next_offset: int = 0
    complete: bool = False
    written: int = 0
    dead_lettered: int = 0


@dataclass
class _Tasks:
    """The transactions of the partitions that one Spark task meets; normally one."""

    target: SinkTarget
    stack: ExitStack
    accounts: dict[int, _Account] = field(default_factory=dict)

    def of(self, partition: int) -> _Account:
        if partition not in self.accounts:
            self.accounts[partition] = _Account(self.stack.enter_context(TaskTransaction(self.target, partition)))
        return self.accounts[partition]

    def commit(self) -> pa.RecordBatch:
        for account in self.accounts.values():
            if not account.transaction.already_committed:
                account.transaction.commit()
        instance, count = this_instance(), len(self.accounts)
        return pa.RecordBatch.from_arrays(
            [
                pa.array(list(self.accounts), pa.int32()),
                pa.array([account.written for account in self.accounts.values()], pa.int64()),
                pa.array([account.dead_lettered for account in self.accounts.values()], pa.int64()),
                pa.array([instance.id] * count, pa.string()),
                pa.array([instance.host] * count, pa.string()),
            ],
            names=["partition", "written", "dead_lettered", "instance", "host"],
        )


def repartition_writer(target: SinkTarget, topic: str, serde: Serde, key: str) -> ArrowFunction:
    """Re-key the records of ``topic`` by a field and write them as they are to the one output.

    Takes ``key, value: binary, partition: int, offset: long, timestamp: long (ms), headers``, straight from Kafka.
    """

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_what_is_loaded()
        with ExitStack() as stack:
            tasks = _Tasks(target, stack)
            for whole in batches:
                for partition, batch in by_partition(whole):
                    account = tasks.of(partition)
                    account.next_offset = batch["offset"][-1].as_py() + 1
                    position = account.transaction.positions[topic]
                    rows = batch.filter(pc.greater_equal(batch["offset"], position))
                    if rows.num_rows:
                        _rekey(rows, topic, partition, account, serde, key)
                        account.transaction.commit_before(topic, account.next_offset)
            for account in tasks.accounts.values():
                account.transaction.prove_complete(topic, account.next_offset)
            yield tasks.commit()

    return write


def _rekey(rows: pa.RecordBatch, topic: str, partition: int, account: _Account, serde: Serde, field: str) -> None:
    found = serde.key_column(field, rows["value"])
    if found.rejected:
        reasons = [found.rejected.get(row) for row in range(rows.num_rows)]
        rejected = pc.is_in(pa.array(range(rows.num_rows)), pa.array(list(found.rejected), pa.int64()))
        letters = rows.append_column("topic", pa.array([topic] * rows.num_rows, pa.string()))
        letters = letters.append_column("reason", pa.array(reasons, pa.string()))
        _dead_letter(letters.filter(rejected), partition, account)
        rows = rows.filter(pc.invert(rejected))
        keys = found.keys.filter(pc.invert(rejected))
    else:
        keys = found.keys
    rekeyed = rows.set_column(rows.schema.get_field_index("key"), "key", keys)
    _produce(rekeyed, account.transaction.target.outputs[0], account)


def output_writer(target: SinkTarget) -> ArrowFunction:
    """Write rows of the columns ``walk.OUTPUT`` to the topics that they name, and the dead letters.

    A row with ``last`` ends a partition and carries nothing else: only it proves that all rows of the partition have
    come. Spark ends the input of a killed task as it ends a complete one.
    """

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_what_is_loaded()
        with ExitStack() as stack:
            tasks = _Tasks(target, stack)
            for whole in batches:
                for partition, batch in by_partition(whole):
                    if partition in target.partitions:
                        _write(batch, partition, tasks.of(partition))
            for partition, account in tasks.accounts.items():
                if not account.complete:
                    raise StreamplanError(
                        f"task {target.task(partition)}: its input ended early",
                        remedy="The task was killed; nothing of this try is committed, the next one reads it again.",
                    )
            yield tasks.commit()

    return write


def _write(batch: pa.RecordBatch, partition: int, account: _Account) -> None:
    transaction = account.transaction
    account.complete = account.complete or batch["last"][-1].as_py()
    if transaction.already_committed:
        return
    rows = batch.filter(pc.invert(batch["last"]))
    if not transaction.untouched:
        rows = _not_yet_committed(rows, transaction)
    for output in pc.unique(rows["output"]).to_pylist():
        of_output = rows.filter(pc.equal(rows["output"], output))
        if output < 0:
            _dead_letter(of_output, partition, account)
        else:
            _produce(of_output, transaction.target.outputs[output], account)


def _not_yet_committed(rows: pa.RecordBatch, transaction: TaskTransaction) -> pa.RecordBatch:
    """Rows of records that an earlier run has not committed. What was aggregated over all of them cannot be cut."""
    if rows["offset"].null_count:
        raise Refused(
            f"task {transaction.target.task(transaction.partition)}: a part of the micro-batch is committed already",
            expected=f"positions at {transaction.ranges} or past it",
            observed=f"positions {transaction.positions}",
            remedy="The checkpoint is an old copy, or another's: bring the newest back, or reset the application.",
        )
    kept = pa.array([False] * rows.num_rows)
    for topic, position in transaction.positions.items():
        ahead = pc.and_(pc.equal(rows["topic"], topic), pc.greater_equal(rows["offset"], position))
        kept = pc.or_(kept, ahead)
    return rows.filter(kept)


def _produce(rows: pa.RecordBatch, output: Output, account: _Account) -> None:
    plain = rows["headers"].null_count == rows.num_rows
    account.transaction.produce(
        output,
        rows["key"].to_pylist(),
        rows["value"].to_pylist(),
        rows["timestamp"].to_pylist(),
        repeat(None) if plain else map(headers_of, rows["headers"]),
        rows["key"].nbytes + rows["value"].nbytes,
    )
    account.written += rows.num_rows


def _dead_letter(rows: pa.RecordBatch, partition: int, account: _Account) -> None:
    columns = ["topic", "offset", "timestamp", "key", "value", "reason"]
    for row, headers in zip(rows.select(columns).to_pylist(), rows["headers"], strict=True):
        account.transaction.dead_letter(DeadLetter(partition=partition, headers=headers_of(headers), **row))
    account.dead_lettered += rows.num_rows


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


def headers_of(headers: pa.Scalar) -> Headers:
    """As ``frames.HEADERS`` has them."""
    found = json.loads(headers.as_py() or "[]")
    return [(one["key"], b64decode(one["value"]) if "value" in one else None) for one in found]


def keep_what_is_loaded() -> None:
    """Spare this worker's collector what is loaded by now, modules above all: it is there to stay.

    PySpark's daemon collects after each task, which otherwise looks at all of it: 40 ms, five times what a task of few
    records takes.
    """
    if not gc.get_freeze_count():
        gc.freeze()


def as_they_are(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Changes nothing; a worker that is given it has this module loaded afterwards."""
    return batches
