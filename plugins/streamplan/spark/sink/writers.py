"""What runs in Spark's Python workers: whole Arrow batches in, transactions out.

A writer takes rows in one of these formats. :class:`PlannedRows` were made by the plan of a sub-topology.
:class:`RowsOfRecords` were, too, each of one record, in the order of the records. :class:`RekeyedRecords` come straight
from Kafka, and the writer selects their keys; :class:`PassedRecords` are such records that need not have a key. The
rest is the same for all.
"""

from __future__ import annotations

import gc
import json
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, repeat
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import Accumulator, TaskContext

from streamplan.errors import Refused, StreamplanError
from streamplan.kafka_types import Header
from streamplan.model.dead_letters import Origin
from streamplan.model.left_out import REASON_LEFT_OUT
from streamplan.serdes.arrow import longest, true_rows
from streamplan.serdes.columns import reason_array
from streamplan.serdes.serde import MAX_BYTES, Serde, header_bytes, too_large
from streamplan.spark.arrow_function import ArrowFunction
from streamplan.spark.headers import headers_from_text
from streamplan.spark.noted_records import noted
from streamplan.spark.sink.handed_on import HandedOn, TaskWrote
from streamplan.spark.sink.instance import this_instance
from streamplan.spark.sink.owner import OwnedTransaction
from streamplan.spark.sink.spec import (
    DEAD_LETTER,
    PASSED_OVER,
    TASK_ORDER,
    HandedOnTo,
    Output,
    RejectedRecord,
    TransactionSpec,
)
from streamplan.spark.sink.transaction import TaskOutput, open_transaction
from streamplan.spark.timestamps import timestamp_faults

WRITTEN_SCHEMA = (
    "partition int, written long, dead_lettered long, bytes long, topics array<string>, instance string, host string"
)
"""The row that a writer yields for each stream task: what was written, and the instance that did it."""

MICRO_BATCH = "streamplan.micro-batch"
"""Local property of a micro-batch's job: its number, its ranges and its times, by :func:`micro_batch_as_text`."""

MICRO_BATCH_OF_WRITER = "streamplan.micro-batch-of-writer"
"""The same of the first of two linked sub-topologies."""

BY_OWNER = "streamplan.by-owner"
"""Local property of a micro-batch's job: whether the driver writes for the workers (:mod:`.owner`)."""

_BYTES_IN_MEMORY = 16 * 1024 * 1024
"""Rows that wait for the last one are in a file when they have more bytes than this."""


class RowFormat(Protocol):
    """How a writer reads its rows. An implementation is a value that can be pickled."""

    def arriving(self, rows: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        """Return the rows as they are written: as soon as they come, or when all have come."""

    def write(self, rows: pa.RecordBatch, task: TaskProgress) -> None:
        """Produce the rows of one stream task that no earlier run has committed."""

    def arranged(self, rows: pa.Table, partition: int) -> pa.Table:
        """Return all rows of one stream task, which were collected without an order, as they are written."""

    def require_complete_input(self, task: TaskProgress) -> None:
        """Raise StreamplanError unless all rows of the stream task have come.

        Spark ends the input of a killed task as it ends a complete one, so that the end of the input proves nothing.
        """


@dataclass
class TaskProgress:
    """How far a writer is with one stream task.

    ``next_offsets``  by source topic the offset past the last record that came
    ``complete``      whether the row came that ends the partition
    ``topics``        those with records of the micro-batch, apart from the dead-letter topic
    ``handed_on``     takes the records for the sub-topology that reads them, also those that an earlier run has
                      committed; None where they are read from Kafka
    """

    transaction: TaskOutput
    handed_on: HandedOn | None = None
    next_offsets: dict[str, int] = field(default_factory=dict)
    complete: bool = False
    written: int = 0
    dead_lettered: int = 0
    bytes: int = 0
    topics: set[str] = field(default_factory=set)

    def produce(self, rows: pa.RecordBatch, output: Output) -> None:
        """Produce rows to an output topic."""
        no_headers = rows["headers"].null_count == rows.num_rows
        size = rows["key"].nbytes + rows["value"].nbytes + rows["headers"].nbytes
        self.transaction.produce(
            output,
            rows["key"].to_pylist(),
            rows["value"].to_pylist(),
            rows["timestamp"].to_pylist(),
            repeat(None) if no_headers else map(headers_of, rows["headers"]),
            size,
        )
        self.written += rows.num_rows
        self.bytes += size
        self.topics.add(output.topic)

    def dead_letter(self, rows: pa.RecordBatch) -> None:
        """Produce rows to the dead-letter topic."""
        partition = self.transaction.partition
        columns = ["topic", "offset", "timestamp", "key", "value", "reason"]
        for row, headers in zip(rows.select(columns).to_pylist(), rows["headers"], strict=True):
            self.transaction.dead_letter(RejectedRecord(partition=partition, headers=headers_of(headers), **row))
        self.dead_lettered += rows.num_rows
        self.bytes += rows["key"].nbytes + rows["value"].nbytes + rows["headers"].nbytes


@dataclass(frozen=True)
class PlannedRows:
    """Rows of the columns ``OUTPUT`` of :mod:`streamplan.spark.planning.output_rows`, and a column ``last``.

    A row with ``last`` ends a partition and carries nothing else. Rows that were made of one record follow each other,
    and those of one topic have the order of its offsets. Rows without topic and offset, which belong to no record, come
    behind them.

    ``divisible``  whether each row is made of one record. Then a long micro-batch is committed in parts between two
                   records, and a run of it skips what is committed. Any other one is committed as a whole.
    """

    divisible: bool

    def arriving(self, rows: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        """A sort has waited for all of them; see :meth:`RowFormat.arriving`."""
        return rows

    def write(self, rows: pa.RecordBatch, task: TaskProgress) -> None:
        """Produce each row to the topic that it names; see :meth:`RowFormat.write`."""
        transaction = task.transaction
        task.complete = task.complete or rows["last"][-1].as_py()
        if transaction.already_committed:
            return
        rows = rows.filter(pc.invert(rows["last"]))
        if not transaction.untouched:
            rows = _not_yet_committed(rows, transaction)
        if not rows.num_rows:
            return
        if self.divisible and task.next_offsets and transaction.old:
            begun = _rows_of_record_begun(rows, task)
            if begun < rows.num_rows:
                _write_rows(rows.slice(0, begun), task)
                transaction.commit_part(task.next_offsets)
                rows = rows.slice(begun)
        _write_rows(rows, task)
        if self.divisible:
            task.next_offsets |= _next_offsets(rows)

    def arranged(self, rows: pa.Table, partition: int) -> pa.Table:
        """Sort the rows as :func:`streamplan.spark.planning.plan.plan_subtopology` lets Spark sort them.

        Nulls come first, as in Spark, but for those of a topic.
        """
        topics, values = rows["topic"].to_pylist(), [rows[name].to_pylist() for name in TASK_ORDER]
        indices = sorted(
            range(rows.num_rows),
            key=lambda row: (topics[row] is None, *((value[row] is not None, value[row]) for value in values)),
        )
        marked = rows.take(indices).append_column("last", pa.array([False] * rows.num_rows, pa.bool_()))
        columns = [pa.nulls(1, data_type) for data_type in rows.schema.types]
        columns[rows.schema.get_field_index("partition")] = pa.array([partition], pa.int32())
        last = pa.Table.from_arrays([*columns, pa.array([True])], schema=marked.schema)
        return pa.concat_tables([marked, last])

    def require_complete_input(self, task: TaskProgress) -> None:
        """The row with ``last`` proves it; see :meth:`RowFormat.require_complete_input`."""
        if not task.complete:
            transaction = task.transaction
            raise StreamplanError(
                f"task {transaction.spec.task(transaction.partition)}: its input ended early",
                remedy="The task was killed; nothing of this try is committed, the next one reads it again.",
            )


@dataclass(frozen=True)
class _InOrder(ABC):
    """Rows of the records of one topic, in the order of their offsets. ``topic`` is the one that they come from.

    A long micro-batch is committed in parts, each of which ends between the rows of two records.
    """

    topic: str

    def arriving(self, rows: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        """They are written as soon as they come; see :meth:`RowFormat.arriving`."""
        return rows

    def write(self, rows: pa.RecordBatch, task: TaskProgress) -> None:
        """Produce the rows; see :meth:`RowFormat.write`. They may end within those of a record."""
        complete = self._rows_of_complete_records(rows)
        if complete:
            self._write(rows.slice(0, complete), task)
            task.next_offsets[self.topic] = rows["offset"][complete - 1].as_py() + 1
            if task.transaction.old:
                task.transaction.commit_part(task.next_offsets)
                if task.handed_on is not None:
                    task.handed_on.committed()
        if complete < rows.num_rows:
            self._write(rows.slice(complete), task)

    @abstractmethod
    def _write(self, rows: pa.RecordBatch, task: TaskProgress) -> None:
        """Produce rows."""

    def _rows_of_complete_records(self, rows: pa.RecordBatch) -> int:
        """Return how many of the rows there are up to the last one that is the last of its record."""
        return len(rows)

    def arranged(self, rows: pa.Table, partition: int) -> pa.Table:
        """They have the order of their offsets: Spark reads a partition of a topic in one task."""
        return rows

    def require_complete_input(self, task: TaskProgress) -> None:
        """Kafka proves it: no record lies after the last one; see :meth:`RowFormat.require_complete_input`."""
        task.transaction.require_complete_input(self.topic, task.next_offsets.get(self.topic, 0))


@dataclass(frozen=True)
class RowsOfRecords(_InOrder):
    """Rows of the columns ``OUTPUT`` of :mod:`streamplan.spark.planning.output_rows`, made of the records of a topic.

    Each record has a row. One of which nothing is made has a row with the reason :data:`PASSED_OVER`. Where several
    rows may be made of a record, a column ``ends`` says which one is its last. Where records are handed on, the rows
    have the struct ``fields`` of what is needed of them.

    ``by_functions``  whether Python functions make them
    """

    by_functions: bool = False

    def arriving(self, rows: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        """No transaction waits for a function, which may take any time; see :meth:`RowFormat.arriving`."""
        return when_all_have_come(rows) if self.by_functions else rows

    def _write(self, rows: pa.RecordBatch, task: TaskProgress) -> None:
        """See :meth:`_InOrder._write`."""
        if rows["reason"].null_count < rows.num_rows:
            rows = rows.filter(pc.not_equal(rows["reason"], PASSED_OVER).fill_null(True))
        uncommitted = _from_position(rows, self.topic, task)
        if task.handed_on is not None:
            _hand_on(rows, uncommitted, task.handed_on)
        if uncommitted.num_rows:
            _write_rows(uncommitted, task)

    def _rows_of_complete_records(self, rows: pa.RecordBatch) -> int:
        """See :meth:`_InOrder._rows_of_complete_records`."""
        if "ends" not in rows.schema.names:
            return len(rows)
        ends = np.flatnonzero(rows["ends"].to_numpy(zero_copy_only=False))
        return int(ends[-1]) + 1 if len(ends) else 0


def _hand_on(rows: pa.RecordBatch, uncommitted: pa.RecordBatch, handed_on: HandedOn) -> None:
    """Hand on the records among rows.

    Args:
        rows: All of them.
        uncommitted: Those at the end that no earlier run has committed.
        handed_on: Takes them.
    """
    records, left = (each.filter(pc.is_null(each["reason"])) for each in (rows, uncommitted))
    if records["value"].null_count and not handed_on.takes_null:
        without, left_without = (each.filter(pc.is_null(each["value"])) for each in (records, left))
        handed_on.note(without["key"], left_without.num_rows)
        records, left = (each.filter(pc.is_valid(each["value"])) for each in (records, left))
    if records.num_rows:
        fields = records["fields"] if "fields" in records.schema.names else pa.nulls(records.num_rows, pa.struct([]))
        handed_on.add(records, fields, left.num_rows)


@dataclass(frozen=True)
class RekeyedRecords(_InOrder):
    """Records straight from Kafka, which are written as they are under another key, to the one output.

    Their columns are ``key, value: binary, partition: int, offset: long, timestamp: long (ms), headers``.

    ``serde``  reads their values
    ``field``  of the value, whose text is the key
    ``left_out``  the records that are dead-lettered and not read
    """

    serde: Serde
    field: str
    left_out: frozenset[Origin] = frozenset()

    def _write(self, rows: pa.RecordBatch, task: TaskProgress) -> None:
        """Produce each record under its new key; see :meth:`_InOrder._write`."""
        if task.handed_on is None:
            rows = self._not_yet_committed(rows, task)
        if rows.num_rows:
            for noted_rows in noted(iter([rows]), self.topic):
                self._rekey(noted_rows, task)

    def _rekey(self, rows: pa.RecordBatch, task: TaskProgress) -> None:
        offsets = {record.offset for record in self.left_out if record.partition == task.transaction.partition}
        values, left_out = rows["value"], list[int]()
        if offsets:
            is_left_out = pc.is_in(rows["offset"], pa.array([*offsets], pa.int64()))
            values, left_out = pc.if_else(is_left_out, pa.scalar(None, values.type), values), true_rows(is_left_out)
        keys, fields, unreadable = self._read(rows, values)
        unreadable |= dict.fromkeys(left_out, REASON_LEFT_OUT)
        faults = timestamp_faults(rows["timestamp"])
        if unreadable or faults is not None:
            reasons = reason_array(unreadable, rows.num_rows)
            if faults is not None:
                reasons = pc.coalesce(reasons, faults)
                timestamps = pc.if_else(pc.is_null(faults), rows["timestamp"], pa.scalar(None, pa.int64()))
                rows = rows.set_column(rows.schema.get_field_index("timestamp"), "timestamp", timestamps)
            accepted = pc.is_null(reasons)
            described = rows.append_column("topic", pa.array([self.topic] * rows.num_rows, pa.string()))
            described = described.append_column("reason", reasons)
            task.dead_letter(self._not_yet_committed(described.filter(pc.invert(accepted)), task))
            rows = rows.filter(accepted)
            keys, fields = keys.filter(accepted), fields.filter(accepted)
        rekeyed = rows.set_column(rows.schema.get_field_index("key"), "key", keys)
        if task.handed_on is not None and rekeyed.num_rows:
            handed_on, rekeyed = rekeyed, self._not_yet_committed(rekeyed, task)
            task.handed_on.add(handed_on, fields, rekeyed.num_rows)
        if rekeyed.num_rows:
            task.produce(rekeyed, task.transaction.spec.outputs[0])

    def _read(self, rows: pa.RecordBatch, values: pa.Array) -> tuple[pa.Array, pa.StructArray, dict[int, str]]:
        """Return the new keys, what was read of the values, and by row the reason of a record that is rejected."""
        decoded = self.serde.key_column(self.field, values)
        rejected = {**decoded.rejected, **_too_large(rows, decoded.keys, self.serde.max_bytes)}
        return decoded.keys, decoded.fields, rejected

    def _not_yet_committed(self, rows: pa.RecordBatch, task: TaskProgress) -> pa.RecordBatch:
        return _from_position(rows, self.topic, task)


@dataclass(frozen=True)
class PassedRecords(RekeyedRecords):
    """Records straight from Kafka that are written to a topic from outside, where a record needs neither key nor value.

    With an empty ``field`` they keep their key.
    """

    def _read(self, rows: pa.RecordBatch, values: pa.Array) -> tuple[pa.Array, pa.StructArray, dict[int, str]]:
        """See :meth:`RekeyedRecords._read`. As in a plan, a null value is not read, and gives a null key."""
        decoded = self.serde.decode_column(values)
        rejected = dict(decoded.rejected)
        if values.null_count:
            without_value = {*true_rows(pc.is_null(values))}
            rejected = {row: reason for row, reason in rejected.items() if row not in without_value}
        keys = rows["key"]
        if self.field:
            keys = pc.struct_field(decoded.fields, self.field).cast(pa.string()).cast(pa.binary())
        if longest(keys) + longest(values) > MAX_BYTES:
            sizes = (pc.binary_length(column).fill_null(0) for column in (keys, values))
            beyond = true_rows(pc.greater(pc.add(*sizes), MAX_BYTES))
            rejected = {**dict.fromkeys(beyond, too_large(MAX_BYTES)), **rejected}
        return keys, decoded.fields, {**_too_large(rows, keys, MAX_BYTES), **rejected}


def transactional_writer(spec: TransactionSpec, row_format: RowFormat) -> ArrowFunction:
    """Return the function that writes the rows of stream tasks, each task in a transaction of its own.

    Args:
        spec: Where the stream tasks read and write.
        row_format: How the rows are read.

    Returns:
        A function for :func:`streamplan.spark.planning.compiled_plan.map_in_arrow`, with :data:`WRITTEN_SCHEMA`.
    """

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_gc()
        yield write_stream_tasks(batches, spec, row_format, open_transaction)

    return write


def write_stream_tasks(
    batches: Iterable[pa.RecordBatch],
    spec: TransactionSpec,
    row_format: RowFormat,
    open_output: Callable[[TransactionSpec, int], TaskOutput],
) -> pa.RecordBatch:
    """Write the rows of stream tasks, and commit what each task has written.

    Args:
        batches: The rows.
        spec: Where the stream tasks read and write.
        row_format: How the rows are read.
        open_output: Takes what the stream task of a partition writes.

    Returns:
        A row for each stream task, of the columns :data:`WRITTEN_SCHEMA`.
    """
    with ExitStack() as stack:
        tasks = _Tasks(spec, row_format, open_output, stack)
        for batch in row_format.arriving(batches):
            tasks.write(batch)
        return tasks.commit()


def handing_writer(
    spec: TransactionSpec,
    row_format: RowFormat,
    hand_on: Callable[[], HandedOn],
    reports: Accumulator[dict[int, TaskWrote]],
    owner: str,
) -> ArrowFunction:
    """Return the function that writes the rows of stream tasks, and hands their records on.

    Spark takes the result of a task whose function has ended. By then everything is committed.

    Args:
        spec: Where the stream tasks read and write.
        row_format: How the rows are read.
        hand_on: Makes what takes the records of a stream task.
        reports: Gets by partition what the stream task has written.
        owner: Writes for the workers in the micro-batches whose job says so (:data:`BY_OWNER`).

    Returns:
        A function for :func:`streamplan.spark.planning.compiled_plan.map_in_arrow`, with the columns of what is handed
        on.
    """

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_gc()
        context = TaskContext.get()
        by_owner = context is not None and context.getLocalProperty(BY_OWNER)
        open_output = partial(OwnedTransaction, address=owner) if by_owner else open_transaction
        with ExitStack() as stack:
            tasks = _Tasks(spec, row_format, open_output, stack, hand_on)
            for batch in row_format.arriving(batches):
                tasks.write(batch)
                for task in tasks.handed_on.values():
                    yield from task.now()
            written = {row["partition"]: row for row in tasks.commit().to_pylist()}
        handed_on = tasks.handed_on
        reports.add({each: TaskWrote(written[each], task.records, task.markers) for each, task in handed_on.items()})
        for task in handed_on.values():
            yield from task.batches()

    return write


def for_each_micro_batch(
    spec: TransactionSpec, writer: Callable[[TransactionSpec], ArrowFunction], local_property: str = MICRO_BATCH
) -> ArrowFunction:
    """Return the writer of all micro-batches, which takes number and ranges from the job: Spark is given it once.

    Args:
        spec: Without a micro-batch.
        writer: Makes the writer of one micro-batch.
        local_property: Where the job has them.
    """

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = _micro_batch(local_property)
        assert found is not None, f"a job without {local_property}"
        number, extents, times, tasks = found
        ranges = {(topic, partition): (first, until) for topic, partition, first, until in extents}
        handed_on = spec.handed_on
        if handed_on is not None and tasks is not None:
            handed_on = replace(handed_on, tasks={partition: HandedOnTo(*each) for partition, *each in tasks})
        of_batch = replace(spec, batch=number, ranges=ranges, times=dict(times), handed_on=handed_on)
        return writer(of_batch)(batches)

    return write


def times_by_clock() -> Mapping[int, int]:
    """Return by partition the time in ms that the wall clock gives to a stream task in the micro-batch of this job."""
    found = _micro_batch(MICRO_BATCH)
    return dict(found[2]) if found is not None else {}


def _micro_batch(local_property: str) -> tuple[int, list[Any], list[Any], list[Any] | None] | None:
    context = TaskContext.get()
    text = context.getLocalProperty(local_property) if context else None
    return None if text is None else tuple(json.loads(text))


def micro_batch_as_text(spec: TransactionSpec) -> str:
    """Return what a job's local property carries of a micro-batch: number, ranges, times, and what was handed on."""
    tasks = spec.handed_on.tasks if spec.handed_on is not None else None
    return json.dumps(
        [
            spec.batch,
            [(*source, *extent) for source, extent in spec.ranges.items()],
            [*spec.times.items()],
            None if tasks is None else [(partition, each.records, each.markers) for partition, each in tasks.items()],
        ]
    )


@dataclass
class _Tasks:
    """The transactions of the partitions that one Spark task meets; normally one."""

    spec: TransactionSpec
    row_format: RowFormat
    open_output: Callable[[TransactionSpec, int], TaskOutput]
    stack: ExitStack
    hand_on: Callable[[], HandedOn] | None = None
    progress: dict[int, TaskProgress] = field(default_factory=dict)
    handed_on: dict[int, HandedOn] = field(default_factory=dict)

    def write(self, rows: pa.RecordBatch) -> None:
        """Write rows of any partitions."""
        for partition, of_partition in by_partition(rows):
            if partition in self.spec.partitions:
                self.row_format.write(of_partition, self._of(partition))

    def _of(self, partition: int) -> TaskProgress:
        if partition not in self.progress:
            transaction = self.stack.enter_context(self.open_output(self.spec, partition))
            if self.hand_on is not None:
                self.handed_on[partition] = self.hand_on()
            self.progress[partition] = TaskProgress(transaction, self.handed_on.get(partition))
        return self.progress[partition]

    def commit(self) -> pa.RecordBatch:
        """Commit all of them when all rows have come; return a row for each, of the columns :data:`WRITTEN_SCHEMA`."""
        for task in self.progress.values():
            self.row_format.require_complete_input(task)
        for task in self.progress.values():
            if not task.transaction.already_committed:
                task.transaction.commit()
                if task.handed_on is not None:
                    task.handed_on.committed()
        instance, count = this_instance(), len(self.progress)
        return pa.RecordBatch.from_arrays(
            [
                pa.array(list(self.progress), pa.int32()),
                pa.array([task.written for task in self.progress.values()], pa.int64()),
                pa.array([task.dead_lettered for task in self.progress.values()], pa.int64()),
                pa.array([task.bytes for task in self.progress.values()], pa.int64()),
                pa.array([sorted(task.topics) for task in self.progress.values()], pa.list_(pa.string())),
                pa.array([instance.id] * count, pa.string()),
                pa.array([instance.host] * count, pa.string()),
            ],
            names=["partition", "written", "dead_lettered", "bytes", "topics", "instance", "host"],
        )


def _write_rows(rows: pa.RecordBatch, task: TaskProgress) -> None:
    """Produce each row to the topic that it names."""
    for output in pc.unique(rows["output"]).to_pylist():
        rows_of_output = rows.filter(pc.equal(rows["output"], output))
        if output == DEAD_LETTER:
            task.dead_letter(rows_of_output)
        else:
            task.produce(rows_of_output, task.transaction.spec.outputs[output])


def _rows_of_record_begun(rows: pa.RecordBatch, task: TaskProgress) -> int:
    """Return how many of the first rows were made of the record that the rows before them were made of."""
    topics, offsets = rows["topic"], rows["offset"]
    ahead = pa.array([True] * rows.num_rows, pa.bool_())
    for topic, next_offset in task.next_offsets.items():
        ahead = pc.and_(ahead, pc.or_(pc.not_equal(topics, topic), pc.greater_equal(offsets, next_offset)))
    first = pc.index(ahead, True).as_py()
    return rows.num_rows if first < 0 else int(first)


def _next_offsets(rows: pa.RecordBatch) -> dict[str, int]:
    """Return by topic the offset past the last record that the rows were made of."""
    topics, offsets = rows["topic"], rows["offset"]
    return {
        topic: pc.max(offsets.filter(pc.equal(topics, topic))).as_py() + 1 for topic in pc.unique(topics).to_pylist()
    }


def _from_position(rows: pa.RecordBatch, topic: str, task: TaskProgress) -> pa.RecordBatch:
    """Rows of records of one topic, in their order, that an earlier run has not committed."""
    position = task.transaction.positions[topic]
    if not rows.num_rows or rows["offset"][0].as_py() >= position:
        return rows
    return rows.filter(pc.greater_equal(rows["offset"], position))


def _not_yet_committed(rows: pa.RecordBatch, transaction: TaskOutput) -> pa.RecordBatch:
    """Rows of records that an earlier run has not committed. What was aggregated over all of them cannot be cut."""
    if rows["offset"].null_count:
        raise Refused(
            f"task {transaction.spec.task(transaction.partition)}: a part of the micro-batch is committed already",
            expected=f"positions at {transaction.ranges} or past it",
            observed=f"positions {transaction.positions}",
            remedy="The checkpoint is an old copy, or another's: bring the newest back, or reset the application.",
        )
    uncommitted = pa.array([False] * rows.num_rows, pa.bool_())
    for topic, position in transaction.positions.items():
        ahead = pc.and_(pc.equal(rows["topic"], topic), pc.greater_equal(rows["offset"], position))
        uncommitted = pc.or_(uncommitted, ahead)
    return rows.filter(uncommitted)


def when_all_have_come(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches when the last one has come. Until then they are in a temporary file, small ones in memory."""
    directory = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0] or None
    with tempfile.SpooledTemporaryFile(_BYTES_IN_MEMORY, dir=directory) as file:
        remaining = iter(batches)
        if (first := next(remaining, None)) is None:
            return
        with pa.ipc.new_stream(file, first.schema) as stream:
            for batch in chain([first], remaining):
                stream.write_batch(batch)
        file.seek(0)
        yield from pa.ipc.open_stream(file)


def by_partition(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Cut a batch by Kafka partition. The order within a partition stays."""
    partitions = batch["partition"].to_numpy()
    if not len(partitions):
        return
    if (partitions == partitions[0]).all():
        yield int(partitions[0]), batch
        return
    for partition in np.unique(partitions):
        yield int(partition), batch.filter(pa.array(partitions == partition))


def _too_large(rows: pa.RecordBatch, keys: pa.Array, max_bytes: int) -> dict[int, str]:
    """Return the reason of each row with a key that is too large for its next topic because of its headers."""
    headers = rows["headers"]
    if headers.null_count == rows.num_rows:
        return {}
    sizes = pc.add(pc.binary_length(keys).fill_null(0), pc.binary_length(rows["value"]).fill_null(0))
    possible = pc.greater(pc.add(sizes, pc.binary_length(headers)), max_bytes)  # their JSON is longer than they are
    return {
        row: too_large(max_bytes)
        for row in pc.indices_nonzero(possible.fill_null(False)).to_pylist()
        if sizes[row].as_py() + header_bytes(headers_of(headers[row])) > max_bytes
    }


def headers_of(headers: pa.Scalar) -> list[Header]:
    """Return headers from the text that :data:`streamplan.spark.sources.HEADERS` describes."""
    return headers_from_text(headers.as_py())


def freeze_gc() -> None:
    """Call ``gc.freeze()`` once: PySpark's daemon runs a collection after each task.

    The collection would look at all loaded modules each time: 40 ms, five times what a task of few records takes.
    """
    if not gc.get_freeze_count():
        gc.freeze()


def identity(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Identity. Shipping it makes a worker import this module early."""
    return batches
