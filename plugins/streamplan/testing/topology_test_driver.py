"""A pipeline on one local Spark without Kafka (``org.apache.kafka.streams.TopologyTestDriver``).

The sub-topologies run with the plans of production, one micro-batch after the other. The writers choose keys,
partitions and bytes as in production. Only the source and the last step, the producer, are in memory.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self
from uuid import UUID, uuid4

from pyspark.sql import SparkSession

from streamplan.errors import Refused, StreamplanError, did_you_mean
from streamplan.judged_words import described
from streamplan.kafka_types import Headers, TopicPartition
from streamplan.model.partitioner import partition_for_key
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import Source
from streamplan.model.stages import stage_of
from streamplan.model.timestamps import timestamp_fault
from streamplan.serdes.given_values import encode_given
from streamplan.serdes.moments import as_datetime
from streamplan.serdes.primitive import FIELD, KeySerde
from streamplan.serdes.serde import Serde, Value
from streamplan.spark.aggregator import in_order_of_runs
from streamplan.spark.global_tables import TableRecord
from streamplan.spark.wall_clock import IdleTasks
from streamplan.testing.local_spark import as_tested, local_spark
from streamplan.testing.memory_output import WrittenRecord
from streamplan.testing.memory_query import MemoryQuery, SourceRecord
from streamplan.testing.moments import Moment, milliseconds, timestamp_ms
from streamplan.testing.records import DeadLetter, TestRecord
from streamplan.testing.written import StoreContent, WrittenTopics, is_primitive

_READ = "Write driver.output('topic'): all records since the last call, each with key, value, timestamp and headers"
_PIPE = "Write driver.pipe('topic', value, key=…, at='12:00')"
_OF_LIBRARY = {
    "create_input_topic": _PIPE,
    "pipe_input": _PIPE,
    "pipe_key_value_list": f"{_PIPE} for each record, within driver.micro_batch() where they come together",
    "create_output_topic": _READ,
    "read_output": _READ,
    "read_record": _READ,
    "read_key_value": _READ,
    "read_value": _READ,
    "advance_wall_clock_time": "Write driver.advance_wall_clock('30 seconds')",
    "advance_time": "Write driver.advance('5 minutes')",
    "produced_topic_names": _READ,
    "get_all_state_stores": "Write driver.store('name')",
}
"""What the library's driver and its topics have, and what to write here."""

START = "2026-01-01T00:00:00Z"
"""The time of a new driver. It is always the same, so that a test is the same on each day."""


class TopologyTestDriver:
    """Runs a pipeline in this process. It is a context manager; :meth:`close` frees what it holds.

    Each call of :meth:`pipe` is a micro-batch of one record, which passes all sub-topologies before the call returns.
    The records of a block ``with driver.micro_batch()`` are one micro-batch.

    Example::

        with TopologyTestDriver(PIPELINE) as driver:
            driver.pipe("visits", {"id": "1", "page": "/", "robot": False}, at="12:00")
            assert driver.store("visits-per-page")["/"] == 1

    Args:
        pipeline: A declared pipeline.
        start: The time of the first record that says none.
        spark: A session that the test has already. Without one the process's is used, which is started where there is
            none.

    Raises:
        Refused: Spark finds faults in the pipeline's expressions; the error tells all of them.
        StreamplanError: This machine has no PySpark or no fit Java.
    """

    def __init__(self, pipeline: Pipeline, *, start: Moment = START, spark: SparkSession | None = None) -> None:
        if not isinstance(pipeline, Pipeline):
            raise Refused(
                "the pipeline of TopologyTestDriver",
                expected="a Pipeline",
                observed=described(pipeline),
                remedy="Write TopologyTestDriver(PIPELINE), with from my_pipelines.orders import PIPELINE.",
            )
        self._declared = pipeline
        self._pipeline = as_tested(pipeline)
        self._now_ms = timestamp_ms(start, as_datetime(0).date())
        self._serdes = {
            node.topic: (node.value, node.key_serde)
            for node in self._pipeline.topology.processors.nodes
            if isinstance(node, Source) and node.value is not None
        }
        self._spark = local_spark(spark)
        self._queries = self._spark.take_queries(pipeline)
        global_topics = {topic for query in self._queries for topic in query.subtopology.global_topics}
        self._read_topics = frozenset(topic for query in self._queries for topic in query.topics) | global_topics
        self._global_tables: dict[str, list[TableRecord]] = {topic: [] for topic in global_topics}
        self._name = str(uuid4())
        self._written = WrittenTopics(self._pipeline)
        self._next_offsets: dict[TopicPartition, int] = defaultdict(int)
        self._held: list[SourceRecord] | None = None
        self._idle = {
            query.subtopology.id: IdleTasks(
                idle_ms, self._pipeline.partitions(query.subtopology), self._now_ms, step_ms=0
            )
            for query in self._queries
            if (idle_ms := stage_of(query.subtopology).idle_ms) is not None
        }
        self._begun: set[int] = set()
        self._fillings: dict[int, dict[str, dict[tuple[int, bytes], SourceRecord]]] = defaultdict(
            lambda: defaultdict(dict)
        )
        self._wall_ms = self._now_ms
        self._directory: Path | None = Path(tempfile.mkdtemp(prefix="streamplan-test-"))
        self._failed = False
        try:
            for query in self._queries:
                query.start(self._directory / str(query.subtopology.id))
                if times := self._wall_times(query):
                    query.run([], times)  # from here on the intervals of punctuators are counted
        except BaseException:
            self._failed = True
            self.close()
            raise

    @property
    def now(self) -> datetime:
        """The driver's time: that of the newest record, and what :meth:`advance` has added to it."""
        return as_datetime(self._now_ms)

    def advance(self, duration: str | timedelta) -> None:
        """Let time pass: records that say no time have the later one.

        Windows, and the timers of a processor, go by the times of records. Where ``OnWindowClose(idle=…)`` is declared,
        this is the wall clock, by which stream tasks go on that had no record for so long. It also is the wall clock of
        :meth:`advance_wall_clock`.

        Args:
            duration: As ``"5 minutes"``, or a timedelta.
        """
        self._require_open()
        self._now_ms += milliseconds(duration)
        self._wall_ms += milliseconds(duration)
        if self._held is None:
            self._process([], by_clock=True)

    def advance_wall_clock(self, duration: str | timedelta) -> None:
        """Let the wall clock go on, by which punctuators of ``WALL_CLOCK_TIME`` are called (``advanceWallClockTime``).

        The time of records that say none stays what it was. A punctuator is called once, however often its interval is
        over.

        Args:
            duration: As ``"5 minutes"``, or a timedelta.
        """
        self._require_open()
        self._wall_ms += milliseconds(duration)
        if self._held is None:
            self._process([], by_wall_clock=True)

    def pipe(
        self,
        topic: str,
        value: Value | bytes | str | int | float | None,
        *,
        key: str | int | float | UUID | bytes | None = None,
        at: Moment | None = None,
        headers: Iterable[tuple[str, str | bytes | None]] = (),
        partition: int | None = None,
    ) -> None:
        """Give the topology a record, and process it.

        Args:
            topic: A source topic.
            value: The fields of the value, which the topic's serde writes, a moment as a datetime or as its text; the
                text or the number of a serde that has only one; bytes, as they are; or None.
            key: The key, which the serde of the topic's keys writes; or bytes, as they are.
            at: The record's time: ``"12:00"`` on the driver's day, ISO 8601, a datetime, or ms since the epoch. A time
                without an offset is in UTC. By default it is the driver's time, which a later record moves on.
            headers: Names and values.
            partition: The partition; by default that of the key, and 0 without a key.

        Raises:
            Refused: The topology has no such source topic, or the topic no such field or partition.
            StreamplanError: An expression failed, which stops an application.
        """
        self._require_open()
        if not isinstance(topic, str) or topic not in self._serdes:
            raise Refused(
                f"topic {topic!r}",
                expected=f"a source topic of {self._pipeline.name}: {', '.join(sorted(self._serdes))}",
            )
        serde, key_serde = self._serdes[topic]
        data, raw_key = _encoded(topic, serde, value), _encoded_key(topic, key_serde, key)
        count = self._pipeline.partition_counts[topic]
        if partition is None:
            partition = 0 if raw_key is None else partition_for_key(raw_key, count)
        elif type(partition) is not int or not 0 <= partition < count:
            raise Refused(f"partition {partition!r} of {topic}", expected=f"0 to {count - 1}")
        timestamp = self._now_ms if at is None else timestamp_ms(at, self.now.date())
        if timestamp_fault(timestamp) is None:
            self._now_ms = max(self._now_ms, timestamp)
        record = self._appended(topic, partition, raw_key, data, timestamp, _encoded_headers(headers))
        if self._held is None:
            self._process([record])
        else:
            self._held.append(record)

    def __getattr__(self, name: str) -> NoReturn:
        word = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
        advice = "" if name.startswith("_") else _OF_LIBRARY.get(word, "")
        if not advice and word.endswith("_store") and word.startswith("get_"):
            advice = "Write driver.store('name')"
        if not advice and not name.startswith("_"):
            advice = did_you_mean(word, [each for each in vars(type(self)) if not each.startswith("_")])
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{advice and f'. {advice}'}")

    @contextmanager
    def micro_batch(self) -> Iterator[None]:
        """Make one micro-batch of the records that are piped in the block. It is processed at the block's end.

        This is how an aggregator works that finds several records: the updates of a key are one. It also is quicker
        than a micro-batch for each record.
        """
        self._require_open()
        if self._held is not None:
            raise StreamplanError("micro_batch() within micro_batch()", remedy="One block is one micro-batch.")
        self._held = []
        try:
            yield
            held = self._held
        finally:
            self._held = None
        self._process(held)

    def output(self, topic: str) -> list[TestRecord]:
        """Return what was written to a topic since the last call.

        Args:
            topic: A topic that the topology writes, also a repartition topic or a changelog.

        Raises:
            Refused: The topology writes no such topic.
        """
        return self._written.take(topic)

    def store(self, name: str) -> StoreContent:
        """Return what a state store holds: the values by key; those of a windowed store by key and start of the window.

        A value is what the changelog has of it. For ``avg``, ``min_by`` and ``max_by`` that is more than the result.

        ``driver.store("spent").put("ann", {"total": 7.5})`` fills the store before the first record.

        Args:
            name: The name of the store.

        Raises:
            Refused: The topology has no such store.
        """
        return self._written.store(name, self.now.date(), partial(self._fill, name))

    @property
    def dead_letters(self) -> list[DeadLetter]:
        """All records that could not be processed, in the order in which they were met."""
        return [*self._written.dead_letters]

    def close(self) -> None:
        """Stop the queries. A later driver of the same pipeline uses their plans again."""
        if self._directory is None:
            return
        for query in self._queries:
            query.stop()
        if not self._failed:
            self._spark.give_back(self._declared, self._queries)
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _fill(self, store: str, key: Any, value: Any, at: Moment | None, partition: int | None) -> None:
        """Put a value into a store; see :meth:`StoreContent.put`. The state is made when the first record comes."""
        self._require_open()
        changelog = self._written.changelog(store)
        query, output = next(
            (query, number)
            for query in self._queries
            for number, each in enumerate(query.plan.outputs)
            if each.topic == changelog
        )
        if store not in stage_of(query.subtopology).stores:
            raise Refused(
                f"put into {store}: no operation reads it", remedy="Pipe the records that it is written from."
            )
        if query.subtopology.id in self._begun:
            raise Refused(
                f"put into {store}: sub-topology {query.subtopology.id} has processed a record",
                remedy="Fill stores before the first record of a test.",
            )
        raw, stored_key, data = self._written.filled(store, key, value, query.plan.written[output])
        count = self._pipeline.partitions(query.subtopology)
        if partition is None:
            partition = partition_for_key(raw, count)
        elif not 0 <= partition < count:
            raise Refused(f"partition {partition} of the store {store}", expected=f"0 to {count - 1}")
        timestamp = self._now_ms if at is None else timestamp_ms(at, self.now.date())
        rows = self._fillings[query.subtopology.id][store]
        rows[partition, stored_key] = SourceRecord(store, partition, len(rows), stored_key, data, timestamp, ())

    def _begin(self, query: MemoryQuery) -> None:
        """Make the state that a test has put into the stores of a query."""
        self._begun.add(query.subtopology.id)
        if fillings := self._fillings.pop(query.subtopology.id, None):
            query.fill({store: [*rows.values()] for store, rows in fillings.items()})
            if times := self._wall_times(query):
                query.run([], times)

    def _require_open(self) -> None:
        if self._directory is None or self._failed:
            state = "closed" if self._directory is None else "stopped by an error"
            raise StreamplanError(
                f"the driver of {self._pipeline.name}", expected="open", observed=state, remedy="Make another one."
            )

    def _wall_times(self, query: MemoryQuery) -> dict[int, int]:
        """By partition the time that the wall clock gives to the stream tasks of a query with punctuators."""
        punctuates = stage_of(query.subtopology).punctuates_ms is not None
        return dict.fromkeys(range(self._pipeline.partitions(query.subtopology)), self._wall_ms) if punctuates else {}

    def _process(self, records: list[SourceRecord], *, by_clock: bool = False, by_wall_clock: bool = False) -> None:
        """Process a micro-batch in all sub-topologies, each after those that write what it reads.

        Args:
            records: The records of the source topics.
            by_clock: Whether the time of idle stream tasks goes on, and the wall clock.
            by_wall_clock: Whether the wall clock goes on.
        """
        arrived: dict[str, list[SourceRecord]] = defaultdict(list)
        for record in records:
            arrived[record.topic].append(record)
            self._take_row(record)
        by_number = {query.subtopology.id: query for query in self._queries}
        for subtopology in in_order_of_runs(self._pipeline.topology):
            query = by_number[subtopology.id]
            taken = [record for topic in sorted(query.topics) for record in arrived.pop(topic, [])]
            idle, times = self._idle.get(query.subtopology.id), {}
            if idle is not None:
                idle.note_records({record.partition for record in taken}, self._now_ms)
                times = idle.give_times(self._now_ms) if by_clock else {}
            if taken or by_clock or by_wall_clock:
                times |= self._wall_times(query)
            if not taken and not times:
                continue
            if query.subtopology.id not in self._begun:
                self._begin(query)
            for written in self._run(query, taken, times):
                self._written.append(written, query.window_bytes(written), query.plan.written.get(written.output))
                if written.topic in self._read_topics:
                    arrived[written.topic].append(self._appended(*written[1:]))
                    self._take_row(arrived[written.topic][-1])

    def _take_row(self, record: SourceRecord) -> None:
        """Add the record of a global table to it."""
        if record.topic in self._global_tables:
            row = TableRecord(record.partition, record.offset, record.key, record.value, record.timestamp)
            self._global_tables[record.topic].append(row)

    def _run(self, query: MemoryQuery, records: list[SourceRecord], times: Mapping[int, int]) -> list[WrittenRecord]:
        if topics := query.subtopology.global_topics:
            query.set_tables(self._name, {topic: self._global_tables[topic] for topic in topics})
        try:
            return query.run(records, times)
        except StreamplanError:
            self._failed = True
            raise

    def _appended(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers,
    ) -> SourceRecord:
        """Return a record with the next offset of its partition."""
        offset = self._next_offsets[topic, partition]
        self._next_offsets[topic, partition] += 1
        return SourceRecord(topic, partition, offset, key, value, timestamp, headers)


def _encoded_headers(headers: Any) -> Headers:
    given = list(headers.items()) if isinstance(headers, Mapping) else headers
    if not isinstance(given, Iterable) or not all(map(_is_header, given := list(given))):
        raise Refused(
            "headers",
            expected="pairs of a name, and of a text, bytes or None: headers=[('source', 'web')]",
            observed=repr(headers),
        )
    return tuple((name, value.encode() if isinstance(value, str) else value) for name, value in given)


def _is_header(each: Any) -> bool:
    if not isinstance(each, tuple | list) or len(each) != 2:
        return False
    return isinstance(each[0], str) and isinstance(each[1], str | bytes | None)


def _encoded_key(topic: str, serde: KeySerde, key: Any) -> bytes | None:
    if key is None or isinstance(key, bytes):
        return key
    try:
        return serde.write_key(key)
    except ValueError as error:
        raise Refused(
            f"the key for {topic}", expected=f"one of {serde.name}, bytes or None", observed=repr(key)
        ) from error


def _encoded(topic: str, serde: Serde, value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if is_primitive(serde) and not isinstance(value, Mapping):
        value = {FIELD: value}
    if not isinstance(value, Mapping):
        raise Refused(f"the value for {topic}", expected="a dict, bytes or None", observed=repr(value))
    if unknown := [name for name in value if name not in serde.fields]:
        raise Refused(
            f"the value for {topic}",
            expected=f"the declared fields {', '.join(serde.fields)}",
            observed=", ".join(map(str, unknown)),
            remedy="A value with other fields can be given as bytes.",
        )
    try:
        return encode_given(serde, value)
    except ValueError as error:
        raise Refused(f"the value for {topic}: {error}") from None
