"""The rows of global tables, in the Python workers: each worker process reads a topic whole, and keeps its newest rows.

A job carries the offsets up to which its micro-batch sees each topic. So all tasks of a micro-batch, and a task that
runs again, see the same rows. A worker goes on from the offsets of the micro-batch before, and reads only what is new.
A row is read by its serde once.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from streamplan.errors import StreamplanError
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka_port import Cluster
from streamplan.serdes.arrow import struct_type
from streamplan.serdes.serde import Serde

GLOBAL_TABLES = "streamplan.global-tables"
"""The local property of Spark jobs with the offsets of :func:`tell_offsets`, or the records of :func:`tell_records`."""


_MOST_UNUSED = 1_000
"""The rows that were replaced or deleted are removed when there are more of them than keys, and this many more."""


class TableRecord(NamedTuple):
    """A record of a table's topic."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int = 0


class Told(NamedTuple):
    """What a job says of a table.

    Attributes:
        ranges: Of each partition its number, the first offset that there is, and the offset up to which it is read.
        records: All records, with keys and values in base64, where the job carries them itself.
        topic_id: That of the topic, which tells it from an earlier one of the same name.
    """

    ranges: Sequence[tuple[int, int, int]]
    records: Sequence[tuple[int, int, str | None, str | None, int]] = ()
    topic_id: str = ""


class ReadTable(Protocol):
    """Reads the records of a table's topic in a worker. It can be pickled."""

    def __call__(self, topic: str, told: Told, after: Mapping[int, int]) -> Iterable[TableRecord]:
        """Return the records that are new; those of a partition in the order of their offsets.

        Args:
            topic: The name in Kafka.
            told: What the job says of the table.
            after: By partition the first offset that was not read yet. Partitions of which nothing was read are absent.
        """


class Reader(NamedTuple):
    """Who reads tables. Its micro-batches follow each other, so that each sees what is newer than the one before.

    Attributes:
        subtopology: The number of the sub-topology.
        run: Names the run of its query. A worker forgets the rows of another run.
    """

    subtopology: int
    run: str


@dataclass(frozen=True)
class TableInKafka:
    """Reads a topic up to the offsets that a job carries.

    Attributes:
        brokers: The brokers.
    """

    brokers: Brokers

    def __call__(self, topic: str, told: Told, after: Mapping[int, int]) -> Iterator[TableRecord]:
        """See :class:`ReadTable`.

        Raises:
            CouldNotLook: The records did not come.
            BrokersUnavailable: Kafka does not answer.
        """
        ranges = {number: (max(first, after.get(number, 0)), until) for number, first, until in told.ranges}
        new = {number: extent for number, extent in ranges.items() if extent[0] < extent[1]}
        for batch in KafkaCluster(self.brokers).read(topic, new) if new else ():
            for row in zip(batch.offsets, batch.keys, batch.values, batch.timestamps, strict=True):
                yield TableRecord(batch.partition, *row)


class TableInJob:
    """Gives the records that a job carries itself: for tests without Kafka."""

    def __call__(self, topic: str, told: Told, after: Mapping[int, int]) -> Iterator[TableRecord]:
        """See :class:`ReadTable`."""
        for partition, offset, *texts, at in told.records:
            if offset >= after.get(partition, 0):
                key, value = (None if text is None else b64decode(text) for text in texts)
                yield TableRecord(partition, offset, key, value, at)


def tell_offsets(spark: SparkSession, reader: Reader, cluster: Cluster, topics: Iterable[str]) -> None:
    """Let the following jobs of this thread see the tables as they are now.

    Args:
        spark: The session of the jobs.
        reader: Whose jobs they are.
        cluster: Where the topics are.
        topics: Their names in Kafka.

    Raises:
        BrokersUnavailable: Kafka does not answer.
        CouldNotLook: A topic is missing.
    """
    offsets = {topic: sorted(cluster.offsets(topic).items()) for topic in topics}
    ids = cluster.topic_ids([*offsets])
    told = {
        topic: Told([(number, at.log_start, at.last_stable) for number, at in of_topic], (), ids[topic])
        for topic, of_topic in offsets.items()
    }
    _tell(spark, reader, told)


def tell_records(spark: SparkSession, reader: Reader, records: Mapping[str, Sequence[TableRecord]]) -> None:
    """Let the following jobs of this thread see tables of these records.

    Args:
        spark: The session of the jobs.
        reader: Whose jobs they are.
        records: All records by topic; those of a partition in the order of their offsets.
    """

    def text(data: bytes | None) -> str | None:
        return None if data is None else b64encode(data).decode()

    told = {}
    for topic, of_topic in records.items():
        ends = {each.partition: each.offset + 1 for each in of_topic}
        rows = [(each.partition, each.offset, text(each.key), text(each.value), each.timestamp) for each in of_topic]
        told[topic] = Told([(number, 0, end) for number, end in ends.items()], rows)
    _tell(spark, reader, told)


def _tell(spark: SparkSession, reader: Reader, told: Mapping[str, Told]) -> None:
    spark.sparkContext.setLocalProperty(GLOBAL_TABLES, json.dumps([reader, told]))


class Rows:
    """The newest rows of a table.

    Args:
        topic: The topic, for the reasons of rejected records.
        serde: Reads the values.
    """

    def __init__(self, topic: str, serde: Serde) -> None:
        self._topic, self._serde = topic, serde
        self._places: dict[bytes, int] = {}
        self._fields: pa.StructArray = pa.array([], struct_type(serde.fields))
        self._reasons: pa.StringArray = pa.array([], pa.string())
        self.next_offsets: dict[int, int] = {}

    def put(self, records: Iterable[TableRecord]) -> None:
        """Take over records. A null value deletes its key. A record without a key is no row, as in the library."""
        changed: dict[bytes, TableRecord] = {}
        for record in records:
            if record.key is not None:
                changed[record.key] = record
        if not changed:
            return
        for key in changed:
            self._places.pop(key, None)
        written = [record for record in changed.values() if record.value is not None]
        decoded = self._serde.decode_column(pa.array([record.value for record in written], pa.binary()))
        rejected = [
            None if reason is None else f"its row, {self._topic}-{each.partition} offset {each.offset}: {reason}"
            for each, reason in zip(written, decoded.reasons().to_pylist(), strict=True)
        ]
        begin = len(self._fields)
        self._fields = pa.concat_arrays([self._fields, decoded.fields.cast(self._fields.type)])
        self._reasons = pa.concat_arrays([self._reasons, pa.array(rejected, pa.string())])
        self._places |= {each.key: place for place, each in enumerate(written, begin) if each.key is not None}
        if len(self._fields) > 2 * len(self._places) + _MOST_UNUSED:
            used = pa.array(self._places.values(), pa.int64())
            self._fields, self._reasons = self._fields.take(used), self._reasons.take(used)
            self._places = {key: place for place, key in enumerate(self._places)}

    def of(self, keys: pa.Array) -> tuple[pa.StructArray, pa.StringArray]:
        """Return the row of each key, null where there is none, and why it cannot be read."""
        places = pa.array([self._places.get(key) for key in keys.to_pylist()], pa.int64())
        return self._fields.take(places), self._reasons.take(places)


class StoredRows:
    """The newest records of a table, in bytes, as a Python class reads them: a store of the library has no more."""

    def __init__(self) -> None:
        self._records: dict[bytes, TableRecord] = {}
        self._sorted: list[bytes] | None = None
        self.next_offsets: dict[int, int] = {}

    def put(self, records: Iterable[TableRecord]) -> None:
        """Take over records. A null value deletes its key. A record without a key is no row, as in the library."""
        for record in records:
            if record.key is None:
                continue
            if record.value is None:
                known = self._records.pop(record.key, None) is not None
            else:
                known = record.key not in self._records
                self._records[record.key] = record
            if known:
                self._sorted = None

    def get(self, key: bytes) -> TableRecord | None:
        """Return the record of a key; None for none."""
        return self._records.get(key)

    def between(self, first: bytes | None, last: bytes | None) -> list[bytes]:
        """Return the keys from one to another, in the order of their bytes. None stands for no bound."""
        if self._sorted is None:
            self._sorted = sorted(self._records)
        begin = 0 if first is None else bisect_left(self._sorted, first)
        end = len(self._sorted) if last is None else bisect_right(self._sorted, last)
        return self._sorted[begin:end]


AnyRows = TypeVar("AnyRows", Rows, StoredRows)

_ROWS: dict[tuple[type[Any], str, int], tuple[tuple[str, str], Any]] = {}
"""The rows that this process keeps, by their form, topic and sub-topology, with the run of the query and the id of the
topic."""


def rows_of_job(topic: str, serde: Serde, read: ReadTable) -> Rows:
    """Return the rows of a table as the job of this worker sees it.

    Args:
        topic: The name in Kafka.
        serde: Reads the values.
        read: Reads the records that are new.

    Raises:
        StreamplanError: The job does not say up to where.
    """
    return _rows_of_job(Rows, lambda: Rows(topic, serde), topic, read)


def stored_rows_of_job(topic: str, read: ReadTable | None) -> StoredRows:
    """Return the rows of a table in bytes as the job of this worker sees it.

    Args:
        topic: The name in Kafka.
        read: Reads the records that are new. None takes a table without rows: where nobody looks at the results.

    Raises:
        StreamplanError: The job does not say up to where.
    """
    return StoredRows() if read is None else _rows_of_job(StoredRows, StoredRows, topic, read)


def _rows_of_job(kind: type[AnyRows], empty: Callable[[], AnyRows], topic: str, read: ReadTable) -> AnyRows:
    context = TaskContext.get()
    text = context.getLocalProperty(GLOBAL_TABLES) if context else None
    of_reader, told = json.loads(text) if text else ((0, ""), {})
    if topic not in told:
        raise StreamplanError(
            f"the global table {topic}", remedy="This job does not say up to which offsets it is read."
        )
    reader = Reader(*of_reader)
    of_topic = Told(*told[topic])
    read_for = reader.run, of_topic.topic_id
    place = kind, topic, reader.subtopology
    known_for, rows = _ROWS.get(place) or (None, empty())
    if known_for != read_for:  # also where the topic was deleted and created again
        rows = empty()
    rows.put(read(topic, of_topic, rows.next_offsets))
    rows.next_offsets |= {number: until for number, _, until in of_topic.ranges}
    _ROWS[place] = read_for, rows
    return rows
