"""Re-keying by the driver while few records come: it goes on reading, and Spark's micro-batch lasts meanwhile.

Where a sub-topology only makes a field of the value the key, Spark does nothing with its records but hand them over. A
micro-batch costs a tenth of a second all the same: Spark looks for offsets, writes them into its log, plans, and starts
tasks. So while few records come, the driver reads them with a consumer of its own, and writes them as it writes small
micro-batches. Every few seconds it lets the micro-batch end, and goes on in the next one.

Exactly-once needs nothing new. The positions that are committed with the records say how far they are written. A
micro-batch that begins before them skips what lies below, as it does after a crash.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import confluent_kafka
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from streamplan.errors import Refused, StreamplanError
from streamplan.model.start_point import OffsetMap
from streamplan.spark.headers import headers_as_text
from streamplan.spark.sink.driver import write_collected
from streamplan.spark.sink.spec import TransactionSpec
from streamplan.spark.sink.transaction import KeptProducers
from streamplan.spark.sink.writers import RekeyedRecords, TaskProgress

_LOOK_SECONDS = 0.02
"""Records that have come since the last look are in the consumer's queue by then."""

_MOST_RECORDS = 10_000
"""So many records at once are a backlog, which the workers share."""

_MOST_SECONDS = 10.0
"""So long a micro-batch lasts at most. A start reads again what its last micro-batch has read."""

_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("headers", pa.string()),
    ]
)


class DirectRekeying:
    """Reads the topic of a re-keying sub-topology from where a micro-batch has ended, and re-keys its records.

    Args:
        row_format: The topic, and how its records are re-keyed.
        kept: The producers of this process.
        await_slot: Waits until the next records should be read. Returns False when the query is to end.
        report: Is told the number of the micro-batch and what was committed.
    """

    def __init__(
        self,
        row_format: RekeyedRecords,
        kept: KeptProducers,
        await_slot: Callable[[], bool],
        report: Callable[[int, Sequence[TaskProgress]], None],
    ) -> None:
        self._row_format = row_format
        self._kept = kept
        self._await_slot = await_slot
        self._report = report
        self._consumer: Consumer | None = None
        self._positions: dict[int, int] = {}
        self._ends: dict[int, int] = {}

    @property
    def reads(self) -> bool:
        """Whether it has begun, and has not stopped."""
        return self._consumer is not None

    def begin(self, spec: TransactionSpec, positions: OffsetMap) -> None:
        """Begin to read.

        Args:
            spec: Names the brokers and the application.
            positions: By topic and partition the offset past the last record that is committed.
        """
        self._positions = {partition: offset for (_, partition), offset in positions.items()}
        self._ends = {}
        self._consumer = spec.brokers.consumer(
            spec.application_id,
            isolation_level="read_committed",
            enable_partition_eof=True,
            auto_offset_reset="error",
            queued_max_messages_kbytes=16 * 1024,
        )
        topic = self._row_format.topic
        self._consumer.assign(
            [confluent_kafka.TopicPartition(topic, partition, at) for partition, at in self._positions.items()]
        )

    def stop(self) -> None:
        """Read no more."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def run(self, spec: TransactionSpec, number: int) -> bool:
        """Re-key records as they come, until the micro-batch has lasted for some seconds.

        It stops where the query is to end, where many records come at once, and after an error of the brokers, which
        Spark's micro-batch meets, too.

        Args:
            spec: The micro-batch.
            number: Its number.

        Returns:
            Whether everything of the micro-batch is committed. If not, it has to be written in another way.

        Raises:
            Refused: There is a newer aggregator, or a position is not where it should be.
        """
        until = time.monotonic() + _MOST_SECONDS
        goes_on = True
        try:
            while goes_on and time.monotonic() < until:
                goes_on = self._await_slot() and self._step(spec, number)
        except Refused:
            self.stop()
            raise
        except (StreamplanError, KafkaException):
            goes_on = False
        passed = all(self._positions.get(partition, -1) >= end for (_, partition), (_, end) in spec.ranges.items())
        if not (goes_on and passed):
            self.stop()
        return passed

    def _step(self, spec: TransactionSpec, number: int) -> bool:
        """Write the records that have come. Return whether it should go on."""
        assert self._consumer is not None
        records: list[Message] = []
        ends: dict[int, int] = {}
        for message in self._consumer.consume(_MOST_RECORDS, _LOOK_SECONDS):
            error, partition, offset = message.error(), message.partition(), message.offset()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            assert partition is not None
            assert offset is not None
            if error is None:
                records.append(message)
                ends[partition] = offset + 1
            else:
                self._ends[partition] = offset
        # Behind the last record there may be transaction markers. The position passes them when no record comes.
        ends = {**self._ends, **ends}
        topic, positions = self._row_format.topic, self._positions
        ranges = {(topic, partition): (positions[partition], end) for partition, end in ends.items()}
        ranges = {place: (first, end) for place, (first, end) in ranges.items() if end > first}
        if ranges:
            rows = [_rows(records)] if records else []
            written = write_collected(replace(spec, ranges=ranges), rows, self._row_format, self._kept)
            self._positions |= {partition: end for (_, partition), (_, end) in ranges.items()}
            self._report(number, written)
        return len(records) < _MOST_RECORDS


def _rows(records: Sequence[Message]) -> pa.RecordBatch:
    """Return records in the columns that :class:`RekeyedRecords` reads."""
    columns: Mapping[str, list[object]] = {
        "key": [record.key() for record in records],
        "value": [record.value() for record in records],
        "partition": [record.partition() for record in records],
        "offset": [record.offset() for record in records],
        "timestamp": [record.timestamp()[1] for record in records],
        "headers": [headers_as_text([*(record.headers() or ())]) for record in records],
    }
    return pa.RecordBatch.from_pydict(columns, schema=_SCHEMA)
