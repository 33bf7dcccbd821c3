"""Small micro-batches, which the driver writes by itself.

A worker opens a producer for each transaction, because Spark gives a stream task to another worker each time. The
driver stays, so that it keeps its producers. For few records that takes less time than the way through a worker. Many
records are for the workers, which share the work and need not hold all of it.

The driver only writes what Spark has collected as a whole: the answer of a job has the rows of every partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
from confluent_kafka import KafkaException

from streamplan.errors import Refused, StreamplanError
from streamplan.spark.sink.spec import TransactionSpec
from streamplan.spark.sink.transaction import KeptProducers, open_transaction
from streamplan.spark.sink.writers import RowFormat, TaskProgress, by_partition

_MAX_RECORDS = 20_000
_MAX_BYTES = 16 * 1024 * 1024
_MAX_TASKS = 16
"""Each producer that is kept has threads of its own, and a connection to each broker."""

_ROWS_OF_BATCH = 10_000
"""A worker gets this many rows at a time. Between two of these batches a long transaction is committed in parts."""

_SMALL_ONES = 2
"""The driver begins to write after this many small micro-batches, because a change costs more than to go on."""

_MAX_ATTEMPTS = 4
"""Spark tries a task as often (``LOCAL_MASTER``)."""


@dataclass
class DriverShare:
    """Decides which micro-batches of a query the driver writes.

    ``possible``  whether it may write any: only where Spark runs in the driver's own process
    """

    possible: bool
    _bytes_per_record: float | None = None
    _small: int = 0

    def takes(self, records: int, tasks: int) -> bool:
        """Return whether the driver writes a micro-batch.

        How large the records are is known from the micro-batch before. So the workers write the first one.

        Args:
            records: How many it has.
            tasks: In how many stream tasks.
        """
        small = (
            self._bytes_per_record is not None
            and records <= _MAX_RECORDS
            and records * self._bytes_per_record <= _MAX_BYTES
            and tasks <= _MAX_TASKS
        )
        self._small = self._small + 1 if small else 0
        return self.possible and self._small >= _SMALL_ONES

    def note(self, records: int, written_bytes: int) -> None:
        """Note the bytes that were written for a number of records. Nothing is known from what was committed before."""
        if records and written_bytes:
            self._bytes_per_record = written_bytes / records


def write_collected(
    spec: TransactionSpec, rows: Sequence[pa.RecordBatch], row_format: RowFormat, kept: KeptProducers
) -> list[TaskProgress]:
    """Write all rows of a micro-batch, each stream task in a transaction of its own. They are committed side by side.

    A transaction that fails is tried again with a new producer, which ends it and reads what was committed.

    Args:
        spec: Where the stream tasks read and write.
        rows: All rows of the micro-batch.
        row_format: How they are read.
        kept: The producers of this process.

    Returns:
        What each stream task of the micro-batch has written.

    Raises:
        Refused: There is a newer aggregator, or a position is not where it should be.
        StreamplanError: A transaction failed each time.
        KafkaException: The same.
    """
    parts: dict[int, list[pa.RecordBatch]] = {partition: [] for partition in sorted(spec.partitions)}
    for batch in rows:
        for partition, part in by_partition(batch):
            if partition in parts:
                parts[partition].append(part)
    if spec.handed_on is not None:  # nothing was written for the others
        parts = {partition: part for partition, part in parts.items() if part}

    def write(partition: int) -> TaskProgress:
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            try:
                return _write_task(spec, partition, parts[partition], row_format, kept)
            except Refused:
                raise
            except (StreamplanError, KafkaException):
                if attempt == _MAX_ATTEMPTS:
                    raise
        raise AssertionError("unreachable")

    if len(parts) == 1:
        return [write(partition) for partition in parts]
    with ThreadPoolExecutor(len(parts) or 1) as pool:
        return list(pool.map(write, parts))


def _write_task(
    spec: TransactionSpec, partition: int, rows: Sequence[pa.RecordBatch], row_format: RowFormat, kept: KeptProducers
) -> TaskProgress:
    with open_transaction(spec, partition, kept) as transaction:
        task = TaskProgress(transaction)
        if rows:  # there may be none beside transaction markers
            arranged = row_format.arranged(pa.Table.from_batches(rows), partition).combine_chunks()
            for batch in arranged.to_batches(_ROWS_OF_BATCH):
                row_format.write(batch, task)
            row_format.require_complete_input(task)
        if not transaction.already_committed:
            transaction.commit()
    return task
