"""What the writer of a repartition topic hands on to the sub-topology that reads the topic: what it aggregates.

Both are in one query then (:mod:`streamplan.spark.linked`). The records themselves go to Kafka only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.accumulators import AccumulatorParam

from streamplan.model.timestamps import FIRST_WRITABLE_MS
from streamplan.spark.sink.spec import HandedOnTo

COUNTS = "partition int, key binary, timestamp timestamp, count bigint"
"""The columns of counts: the partition of the repartition topic, the key, the newest timestamp, and how many."""

RECORDS = "partition int, key binary, timestamp timestamp"
"""The columns of records: the partition of the repartition topic, the key and the timestamp. The fields follow them."""

_MOST_PARTS = 32
"""The counts of this many batches are added up, so that they take no more memory than their keys."""

_ROWS = 10_000

_SEED, _M = np.uint32(0x9747B28C), np.uint32(0x5BD1E995)


@dataclass(frozen=True)
class TaskWrote:
    """What a stream task has written and handed on.

    Attributes:
        row: Of the columns :data:`streamplan.spark.sink.writers.WRITTEN_SCHEMA`.
        records: See :class:`HandedOn`.
        markers: See :class:`HandedOn`.
    """

    row: Mapping[str, Any]
    records: npt.NDArray[np.int64]
    markers: npt.NDArray[np.int64]


def handed_on_to(tasks: Iterable[TaskWrote]) -> dict[int, HandedOnTo]:
    """Return by partition of the repartition topic what was handed on by all tasks of a micro-batch.

    Args:
        tasks: Those of the sub-topology that writes the topic.
    """
    totals = [*zip(*((task.records, task.markers) for task in tasks), strict=True)]
    if not totals:
        return {}
    sums = zip(*(np.sum(each, axis=0).tolist() for each in totals), strict=True)
    return {partition: HandedOnTo(records, markers) for partition, (records, markers) in enumerate(sums) if records}


class TaskReports(AccumulatorParam[dict[int, TaskWrote]]):
    """Collects by partition what stream tasks have written. A try that follows another one takes its place."""

    def zero(self, value: dict[int, TaskWrote]) -> dict[int, TaskWrote]:
        """Return what is collected before the first report."""
        return {}

    def addInPlace(self, value1: dict[int, TaskWrote], value2: dict[int, TaskWrote]) -> dict[int, TaskWrote]:
        """Add reports."""
        return {**value1, **value2}


@dataclass
class HandedOn(ABC):
    """Takes the records that a stream task writes, and gives what is made of them.

    Attributes:
        partitions: Of the repartition topic.
        records: How many records each partition gets in the micro-batch, those included that are committed already.
        markers: How many transactions of this run end in each partition. Kafka writes a marker for each of them.
        takes_null: Whether a record with a null value is handed on, too, as an aggregate of windows takes it.
    """

    partitions: int
    takes_null: bool = field(default=False, kw_only=True)
    records: npt.NDArray[np.int64] = field(init=False)
    markers: npt.NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self.records, self.markers = np.zeros((2, self.partitions), np.int64)
        self._written = np.zeros(self.partitions, np.bool_)

    @abstractmethod
    def add(self, rows: pa.RecordBatch, fields: pa.StructArray, not_yet_committed: int) -> None:
        """Take records that are in the repartition topic. They have a key and a timestamp in ms.

        Args:
            rows: The records.
            fields: What was read of their values.
            not_yet_committed: How many of the last ones this run writes.
        """

    def note(self, keys: pa.Array, not_yet_committed: int) -> None:
        """Note records that are in the repartition topic with a null value, of which nothing is made.

        Args:
            keys: Theirs.
            not_yet_committed: See :meth:`add`.
        """
        partitions = partitions_of_keys(keys, self.partitions)
        self.records += np.bincount(partitions, minlength=self.partitions)
        self._written[partitions[len(keys) - not_yet_committed :]] = True

    def committed(self) -> None:
        """Note that a transaction with what was written since the one before is committed."""
        self.markers += self._written
        self._written[:] = False

    def now(self) -> Iterator[pa.RecordBatch]:
        """Yield what can be handed on before all records have come."""
        return iter(())

    @abstractmethod
    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield what is left to be handed on when all records have come."""


@dataclass
class HandedOnCounts(HandedOn):
    """Counts records by their keys: gives a row for each key, of the columns :data:`COUNTS`."""

    _parts: list[pa.Table] = field(default_factory=list)

    def add(self, rows: pa.RecordBatch, fields: pa.StructArray, not_yet_committed: int) -> None:
        """See :meth:`HandedOn.add`."""
        records = pa.table({"key": rows["key"], "newest": rows["timestamp"]})
        counts = records.group_by("key").aggregate([("newest", "max"), ([], "count_all")]).combine_chunks()
        counts = counts.rename_columns(["key", "newest", "count"])
        partitions = partitions_of_keys(counts["key"].combine_chunks(), self.partitions)
        np.add.at(self.records, partitions, counts["count"].to_numpy())
        if not_yet_committed == rows.num_rows:
            self._written[partitions] = True
        elif not_yet_committed:
            keys = pc.unique(rows["key"].slice(rows.num_rows - not_yet_committed))
            self._written[partitions_of_keys(keys, self.partitions)] = True
        self._parts.append(counts.append_column("partition", pa.array(partitions)))
        if len(self._parts) >= _MOST_PARTS:
            self._parts = [self._sums()]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """See :meth:`HandedOn.batches`."""
        if not self._parts:
            return
        sums = self._sums()
        rows = pa.table(
            {
                "partition": sums["partition"],
                "key": sums["key"],
                "timestamp": _moments_written(sums["newest"]),
                "count": sums["count"],
            }
        )
        yield from rows.to_batches(_ROWS)

    def _sums(self) -> pa.Table:
        together = pa.concat_tables(self._parts).group_by("key")
        sums = together.aggregate([("newest", "max"), ("count", "sum"), ("partition", "max")])
        return sums.rename_columns(["key", "newest", "count", "partition"])


@dataclass
class HandedOnRecords(HandedOn):
    """Gives a row for each record, of the columns :data:`RECORDS` and a struct of fields, where there are any.

    Attributes:
        fields: Those of the values that are handed on, and their types.
    """

    fields: pa.StructType = field(default_factory=lambda: pa.struct([]))
    _taken: list[pa.RecordBatch] = field(default_factory=list)

    def add(self, rows: pa.RecordBatch, fields: pa.StructArray, not_yet_committed: int) -> None:
        """See :meth:`HandedOn.add`."""
        keys = rows["key"].dictionary_encode()
        partitions = partitions_of_keys(keys.dictionary, self.partitions)[keys.indices.to_numpy()]
        self.records += np.bincount(partitions, minlength=self.partitions)
        self._written[partitions[rows.num_rows - not_yet_committed :]] = True
        columns = {
            "partition": pa.array(partitions),
            "key": rows["key"],
            "timestamp": _moments_written(rows["timestamp"]),
        }
        if self.fields.num_fields:
            parts = [pc.struct_field(fields, each.name).cast(each.type) for each in self.fields]
            columns["fields"] = pa.StructArray.from_arrays(parts, fields=list(self.fields))
        self._taken.append(pa.RecordBatch.from_pydict(columns))

    def now(self) -> Iterator[pa.RecordBatch]:
        """See :meth:`HandedOn.now`."""
        while self._taken:
            yield self._taken.pop(0)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """See :meth:`HandedOn.batches`."""
        return self.now()


def _moments_written(timestamps: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The moments that records in the repartition topic have, from their timestamps in ms."""
    written = pc.max_element_wise(timestamps, pa.scalar(FIRST_WRITABLE_MS, pa.int64()))
    return written.cast(pa.timestamp("ms")).cast(pa.timestamp("us", tz="UTC"))


def partitions_of_keys(keys: pa.Array, partitions: int) -> npt.NDArray[np.int32]:
    """Return the partition of each key, as :func:`streamplan.model.partitioner.partition_for_key` does for one.

    Args:
        keys: In bytes, none of them null.
        partitions: How many the topic has.
    """
    offsets = np.frombuffer(keys.cast(pa.binary()).buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1]
    bytes_of_keys = keys.cast(pa.binary()).buffers()[2]
    data = np.frombuffer(bytes_of_keys, np.uint8) if bytes_of_keys is not None else np.empty(0, np.uint8)
    starts, lengths = offsets[:-1].astype(np.int64), np.diff(offsets)
    hashes = np.empty(len(keys), np.uint32)
    for length in np.unique(lengths):
        of_length = np.flatnonzero(lengths == length)
        matrix = data[starts[of_length][:, None] + np.arange(length)]
        hashes[of_length] = _murmur2(matrix)
    return ((hashes & np.uint32(0x7FFFFFFF)) % np.uint32(partitions)).astype(np.int32)


def _murmur2(keys: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """The hash of each row, see :func:`streamplan.model.partitioner.murmur2`."""
    count, length = keys.shape
    whole = length & ~3
    hashes = np.full(count, _SEED ^ np.uint32(length), np.uint32)
    words = np.ascontiguousarray(keys[:, :whole]).view("<u4") if whole else np.empty((count, 0), np.uint32)
    with np.errstate(over="ignore"):
        for word in range(whole // 4):
            mixed = words[:, word] * _M
            mixed ^= mixed >> np.uint32(24)
            hashes = (hashes * _M) ^ (mixed * _M)
        if length > whole:
            rest = np.zeros(count, np.uint32)
            for place in range(length - whole):
                rest |= keys[:, whole + place].astype(np.uint32) << np.uint32(8 * place)
            hashes = (hashes ^ rest) * _M
        hashes = (hashes ^ (hashes >> np.uint32(13))) * _M
        return hashes ^ (hashes >> np.uint32(15))
