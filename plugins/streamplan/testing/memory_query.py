"""The streaming query of one sub-topology, with its plan as in production, over a source in memory."""

from __future__ import annotations

import json
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from streamplan.errors import StreamplanError
from streamplan.kafka.brokers import Brokers
from streamplan.kafka_types import Headers, TopicPartition
from streamplan.model.generation import Generation
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import Processor, Source, Subtopology
from streamplan.model.stages import stage_of
from streamplan.serdes.serde import Serde
from streamplan.spark.global_tables import Reader, TableInJob, TableRecord, tell_records
from streamplan.spark.headers import as_base64, headers_as_text
from streamplan.spark.planning.compiled_plan import batch_template, compile_batch_plan
from streamplan.spark.planning.plan import plan_subtopology
from streamplan.spark.planning.stages import plan_of
from streamplan.spark.planning.stages.stage_plan import StoredState
from streamplan.spark.session import SPARK_CONFIGS, generate_code
from streamplan.spark.sink.spec import TransactionSpec
from streamplan.spark.sink.writers import MICRO_BATCH, micro_batch_as_text, write_stream_tasks
from streamplan.spark.sources import HEADERS, RAW_COLUMNS
from streamplan.spark.state.offset_log import COMMITS, OFFSETS, head_of_offsets
from streamplan.spark.state.restore import as_stored
from streamplan.testing.memory_output import MemoryOutput, WrittenRecord
from streamplan.testing.prepared_plan import PreparedPlan

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"

_MEMORY_PROVIDER = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
"""Keeps the state of aggregations on the JVM's heap. ``transformWithState``, which joins need, wants RocksDB."""

_RECORD = (
    "struct<key: binary, value: binary, topic: string, partition: int, offset: bigint, timestamp: bigint, "
    f"headers: {HEADERS}>"
)
"""A record as a JSON document, with the timestamp in ms."""

_LATE_WORKER = "Python worker failed to connect back"
"""What Spark says when a process that is to tell the schema of a state has not started within 10 s, which no setting
changes. Spark starts it while it plans a micro-batch, so that nothing of the micro-batch is done then."""

_MAX_ATTEMPTS = 3

_NOTHING_READ = "-"
"""The offset of a source that was not read (Spark's class ``OffsetSeqLog``)."""

_NO_BROKERS = Brokers("in-memory:0")
"""The specification of a transaction names brokers. Nobody asks these."""


class SourceRecord(NamedTuple):
    """A record as it lies in a topic. ``timestamp`` is in ms."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


class MemoryQuery(ABC):
    """The query of one sub-topology. It can be started again after it was stopped, and has no state then.

    Args:
        spark: The session that the query runs in.
        pipeline: The pipeline, with all partition counts.
        subtopology: One of its sub-topologies.
        schemas: The serdes of the repartition topics that it reads.
        records: Stands for the records, with the timestamps in ms.

    Raises:
        PySparkException: Spark refuses an expression.
        Refused: A repartition topic cannot carry a field.
    """

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        subtopology: Subtopology,
        schemas: Mapping[str, Serde],
        records: DataFrame,
    ) -> None:
        self._spark, self._pipeline, self.subtopology = spark, pipeline, subtopology
        self._records = records.withColumn("timestamp", F.timestamp_millis("timestamp")).select(*RAW_COLUMNS)
        self.topics = frozenset(pipeline.source_topics(subtopology))
        self.plan = plan_subtopology(pipeline, subtopology, schemas, self._read, self._ticks, TableInJob())
        self._rows = compile_batch_plan(self.plan.batch, self.plan.collected)
        topology = pipeline.topology
        dead_letters = next(spec for spec in pipeline.topics() if spec.name == topology.dead_letter_topic)
        self._spec = TransactionSpec(
            brokers=_NO_BROKERS,
            application_id=topology.application_id,
            generation=Generation(0, "test"),
            transaction_timeout_ms=0,
            subtopology=subtopology.id,
            ranges={},
            outputs=self.plan.outputs,
            dead_letter_topic=dead_letters.name,
            dead_letter_partitions=dead_letters.partitions,
        )
        self._written: list[WrittenRecord] = []
        self._tables: tuple[Reader, Mapping[str, Sequence[TableRecord]]] = (Reader(subtopology.id, ""), {})

    @abstractmethod
    def start(self, directory: Path) -> None:
        """Start the query without state.

        Args:
            directory: A directory of its own, for its checkpoint.
        """

    def run(self, records: Sequence[SourceRecord], times: Mapping[int, int] | None = None) -> list[WrittenRecord]:
        """Process records as one micro-batch, and return what was written.

        Args:
            records: Of its topics, those of a partition in the order of their offsets.
            times: By partition the time in ms that the wall clock gives to a stream task without records.

        Raises:
            StreamplanError: An expression failed for a record, which stops the application.
        """
        times = times or {}
        nothing = {(topic, partition): (0, 0) for topic in self.topics for partition in times}
        spec = replace(self._spec, ranges=nothing | _ranges(records), times=times)
        self._written = []
        try:
            self._process([_fields(record) for record in records], spec)
        except (PySparkException, Py4JError) as error:
            raise StreamplanError(
                f"sub-topology {self.subtopology.id} of {self._pipeline.name} stopped, as the application would",
                observed=_told(str(error)),
                remedy="Use try_divide and similar functions where an expression can fail. The driver cannot go on.",
            ) from error
        return self._written

    def set_tables(self, driver: str, records: Mapping[str, Sequence[TableRecord]]) -> None:
        """Say what global tables have from now on.

        Args:
            driver: Names the driver.
            records: All records by topic.
        """
        self._tables = Reader(self.subtopology.id, driver), records

    def _tell_tables(self, spark: SparkSession) -> None:
        """Let the jobs of this thread see the global tables."""
        if self.subtopology.global_topics:
            tell_records(spark, *self._tables)

    def window_bytes(self, record: WrittenRecord) -> int:
        """Return how many bytes of a key are those of its window, for a record of a topic that is no changelog."""
        return self.plan.outputs[record.output].partition_by.window_bytes if record.output >= 0 else 0

    def fill(self, stored: Mapping[str, Sequence[SourceRecord]]) -> None:
        """Put records into stores, before the first micro-batch.

        Args:
            stored: By the name of a store the records that its changelog would have.
        """
        raise AssertionError(f"sub-topology {self.subtopology.id} has no state")

    @abstractmethod
    def stop(self) -> None:
        """Stop the query, and forget its state."""

    @abstractmethod
    def _process(self, records: Sequence[Mapping[str, Any]], spec: TransactionSpec) -> None:
        """Process a micro-batch.

        Args:
            records: Their fields as in :data:`_RECORD`, fit for JSON.
            spec: What is written for it.
        """

    def _write(self, rows: Sequence[pa.RecordBatch], spec: TransactionSpec) -> None:
        """Write what the plan has made of a micro-batch, one stream task after the other."""
        if not rows:
            return
        table, output = pa.Table.from_batches(rows), partial(MemoryOutput, written=self._written)
        for partition in sorted(spec.partitions):
            of_task = table.filter(pc.equal(table["partition"], partition))
            if of_task.num_rows:
                arranged = self.plan.row_format.arranged(of_task, partition).combine_chunks()
                write_stream_tasks(arranged.to_batches(), spec, self.plan.row_format, output)

    def _read(self, source: Source) -> DataFrame:
        if len(self.topics) == 1:
            return self._records
        return self._records.where(F.col("topic") == self._pipeline.topology.decorate(source.topic))

    def _ticks(self) -> DataFrame:
        """Return a row for each stream task in each micro-batch."""
        raise AssertionError(f"sub-topology {self.subtopology.id} has no state")


class StatelessQuery(MemoryQuery):
    """A query without state: a micro-batch is an ordinary DataFrame, so that Spark need not begin a streaming query."""

    def __init__(
        self, spark: SparkSession, pipeline: Pipeline, subtopology: Subtopology, schemas: Mapping[str, Serde]
    ) -> None:
        empty = spark.createDataFrame([], "value string")
        texts = batch_template(empty)
        records = texts.select(F.from_json("value", _RECORD).alias("record")).select("record.*")
        super().__init__(spark, pipeline, subtopology, schemas, records)
        read = compile_batch_plan(texts, self.plan.streaming)
        self._prepared = PreparedPlan(empty, lambda texts: self._rows.run(read.run(texts).rows).rows)
        jvm: Any = spark._jvm
        self._line_end = jvm.java.util.regex.Pattern.compile("\n")
        self._text = jvm.org.apache.spark.sql.Encoders.STRING()

    def start(self, directory: Path) -> None:
        """See :meth:`MemoryQuery.start`."""
        prepare_session(self._spark)

    def stop(self) -> None:
        """See :meth:`MemoryQuery.stop`."""

    def _process(self, records: Sequence[Mapping[str, Any]], spec: TransactionSpec) -> None:
        texts = self._line_end.splitAsStream("\n".join(map(json.dumps, records))).toList()
        dataset = self._spark._jsparkSession.createDataset(texts, self._text)
        self._tell_tables(self._spark)
        self._write(self._prepared.run(DataFrame(dataset.toDF(), self._spark)), spec)


class StatefulQuery(MemoryQuery):
    """A streaming query of Spark, over Spark's ``MemoryStream``."""

    def __init__(
        self, spark: SparkSession, pipeline: Pipeline, subtopology: Subtopology, schemas: Mapping[str, Serde]
    ) -> None:
        self._source = _memory_stream(spark)
        micro_batches = DataFrame(self._source.toDF(), spark)
        records = micro_batches.select(F.inline(F.from_json("value", f"array<{_RECORD}>")))
        super().__init__(spark, pipeline, subtopology, schemas, records)
        self._schemas = schemas
        self._prepared = PreparedPlan(self.plan.streaming, lambda batch: self._rows.run(batch).rows)
        self._query: StreamingQuery | None = None
        self._micro_batch = self._spec
        jvm: Any = spark._jvm
        self._list_of, self._as_scala = jvm.java.util.List.of, jvm.scala.jdk.javaapi.CollectionConverters.asScala

    def start(self, directory: Path) -> None:
        """See :meth:`MemoryQuery.start`."""
        prepare_session(self._spark)
        stage = stage_of(self.subtopology)
        self._spark.conf.set(_PROVIDER, _MEMORY_PROVIDER if stage.is_native else SPARK_CONFIGS[_PROVIDER])
        self._source.reset()
        self._directory = directory
        self._begin()

    def fill(self, stored: Mapping[str, Sequence[SourceRecord]]) -> None:
        """See :meth:`MemoryQuery.fill`. A query of its own leaves the state, as for a restoration."""
        assert self._query is not None, "the query was not started"
        self._query.processAllAvailable()  # from here on it knows its sources
        jsq: Any = self._query._jsq
        sources = jsq.streamingQuery().sources().size()
        self.stop()
        self._source.reset()
        shutil.rmtree(self._directory)
        source, stage = _memory_stream(self._spark), stage_of(self.subtopology)
        texts = DataFrame(source.toDF(), self._spark)
        rows = texts.select(F.inline(F.from_json("value", f"array<{_RECORD}>")))
        rows = rows.withColumn("timestamp", F.timestamp_millis("timestamp"))

        def of_store(node: Processor) -> DataFrame:
            return as_stored(rows.where(F.col("topic") == F.lit(node.store)), stage.part_of(node))

        of_stores = self.subtopology.as_stored()
        restored = plan_of(of_stores).restored(StoredState(of_stores, self._schemas, of_store, {}))
        query = (
            restored.writeStream.outputMode("update")
            .option("checkpointLocation", str(self._directory))
            .foreachBatch(_discard)
            .start()
        )
        records = [_fields(record._replace(topic=store)) for store, each in stored.items() for record in each]
        source.addData(self._as_scala(self._list_of(json.dumps(records))))
        query.processAllAvailable()
        query.stop()
        for offsets in (self._directory / OFFSETS).iterdir():
            if offsets.name.isdigit():
                commit = self._directory / COMMITS / offsets.name
                head = head_of_offsets(offsets.read_text(), commit.read_text())
                offsets.with_name(f".{offsets.name}.crc").unlink(missing_ok=True)
                offsets.write_text("\n".join([*head, *[_NOTHING_READ] * sources]))
        self._begin()

    def _begin(self) -> None:
        self._query = (
            self.plan.streaming.writeStream.outputMode("update")
            .option("checkpointLocation", str(self._directory))
            .foreachBatch(self._write_micro_batch)
            .start()
        )

    def stop(self) -> None:
        """See :meth:`MemoryQuery.stop`."""
        if self._query is not None:
            self._query.stop()
            self._query = None

    def _process(self, records: Sequence[Mapping[str, Any]], spec: TransactionSpec) -> None:
        assert self._query is not None, "the query was not started"
        self._micro_batch = spec
        self._source.addData(self._as_scala(self._list_of(json.dumps(records))))
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            try:
                self._query.processAllAvailable()
                return
            except PySparkException as error:
                if _LATE_WORKER not in str(error) or attempt == _MAX_ATTEMPTS:
                    raise
            self._begin()

    def _ticks(self) -> DataFrame:
        last = self._pipeline.partitions(self.subtopology) - 1
        micro_batches = DataFrame(self._source.toDF(), self._spark)
        return micro_batches.select(F.explode(F.sequence(F.lit(0), F.lit(last))).alias("partition"))

    def _write_micro_batch(self, batch: DataFrame, number: int) -> None:
        """Run the prepared plan on a micro-batch. Spark also gives one without records, when a window is over."""
        spec = replace(self._micro_batch, batch=number)
        self._micro_batch = self._spec
        batch.sparkSession.sparkContext.setLocalProperty(MICRO_BATCH, micro_batch_as_text(spec))  # for the state
        self._tell_tables(batch.sparkSession)
        self._write(self._prepared.run(batch), spec)


def memory_query(
    spark: SparkSession, pipeline: Pipeline, subtopology: Subtopology, schemas: Mapping[str, Serde]
) -> MemoryQuery:
    """Return the query of a sub-topology; see :class:`MemoryQuery` for the arguments and the errors."""
    kind = StatefulQuery if stage_of(subtopology).has_state else StatelessQuery
    return kind(spark, pipeline, subtopology, schemas)


def _memory_stream(spark: SparkSession) -> Any:
    """Return Spark's ``MemoryStream`` of texts, whose ``addData`` gives a micro-batch.

    The Java gateway reaches an object of Scala by its field ``MODULE$``.
    """
    jvm: Any = spark._jvm
    companion = getattr(jvm.org.apache.spark.sql.execution.streaming.runtime, "MemoryStream$")
    return getattr(companion, "MODULE$").apply(spark._jsparkSession, jvm.org.apache.spark.sql.Encoders.STRING())


def prepare_session(spark: SparkSession) -> None:
    """Set what a query takes from its session."""
    # One partition of the state is enough for few records, and each more costs a task in each micro-batch.
    spark.conf.set("spark.sql.shuffle.partitions", 1)
    generate_code(spark, False)  # compiling costs more than it gains


def _discard(batch: DataFrame, number: int) -> None:
    batch.write.format("noop").mode("overwrite").save()


def _fields(record: SourceRecord) -> dict[str, Any]:
    return {
        **record._asdict(),
        "key": None if record.key is None else as_base64(record.key),
        "value": None if record.value is None else as_base64(record.value),
        "headers": headers_as_text(record.headers),
    }


def _ranges(records: Sequence[SourceRecord]) -> dict[TopicPartition, tuple[int, int]]:
    ranges: dict[TopicPartition, tuple[int, int]] = {}
    for record in records:
        place = record.topic, record.partition
        first, _ = ranges.get(place, (record.offset, 0))
        ranges[place] = first, record.offset + 1
    return ranges


def _told(text: str) -> str:
    """Return the line of Spark's error with its cause: ``[DIVIDE_BY_ZERO] Division by zero. …``."""
    causes = re.findall(r"\[(?!STREAM_FAILED|FOREACH)[A-Z_.]+\] [^\n]*", text)
    return str(causes[0]) if causes else text
