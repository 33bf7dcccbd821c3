"""The streaming query of one sub-topology, with its plan as in production, over a source in memory."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from streamplan.errors import StreamplanError
from streamplan.kafka.brokers import Brokers
from streamplan.kafka_types import Headers, TopicPartition
from streamplan.model.generation import Generation
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import Source, Subtopology
from streamplan.model.stages import stage_of
from streamplan.serdes.serde import Serde
from streamplan.spark.headers import as_base64, headers_as_text
from streamplan.spark.planning.compiled_plan import compile_batch_plan
from streamplan.spark.planning.plan import plan_subtopology
from streamplan.spark.session import SPARK_CONFIGS, generate_code
from streamplan.spark.sink.spec import TransactionSpec
from streamplan.spark.sink.writers import MICRO_BATCH, micro_batch_as_text, write_stream_tasks
from streamplan.spark.sources import HEADERS, RAW_COLUMNS
from streamplan.testing.memory_output import MemoryOutput, WrittenRecord

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"

_MEMORY_PROVIDER = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
"""Keeps the state of aggregations on the JVM's heap. ``transformWithState``, which joins need, wants RocksDB."""

_DOCUMENT = (
    "array<struct<key: binary, value: binary, topic: string, partition: int, offset: bigint, timestamp: bigint, "
    f"headers: {HEADERS}>>"
)
"""The records of a micro-batch as one JSON document, with the timestamps in ms."""

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


class MemoryQuery:
    """The query of one sub-topology. It can be started again after it was stopped, and has no state then.

    Args:
        spark: The session that the query runs in.
        pipeline: The pipeline, with all partition counts.
        subtopology: One of its sub-topologies.
        schemas: The serdes of the repartition topics that it reads.

    Raises:
        PySparkException: Spark refuses an expression.
        Refused: A repartition topic cannot carry a field.
    """

    def __init__(
        self, spark: SparkSession, pipeline: Pipeline, subtopology: Subtopology, schemas: Mapping[str, Serde]
    ) -> None:
        self._spark, self._pipeline, self.subtopology = spark, pipeline, subtopology
        self.topics = frozenset(pipeline.source_topics(subtopology))
        self._source = _memory_stream(spark)
        self._records = _records_of(DataFrame(self._source.toDF(), spark))
        self.plan = plan_subtopology(pipeline, subtopology, schemas, self._read, self._ticks)
        self._compiled = compile_batch_plan(self.plan.batch, self.plan.rows)
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
        self._query: StreamingQuery | None = None
        self._ranges: Mapping[TopicPartition, tuple[int, int]] = {}
        self._times: Mapping[int, int] = {}
        self._written: list[WrittenRecord] = []

    def start(self, directory: Path) -> None:
        """Start the query without state.

        Args:
            directory: A directory of its own, for its checkpoint.
        """
        conf = self._spark.conf
        # One partition of the state is enough for few records, and each more costs a task in each micro-batch.
        conf.set("spark.sql.shuffle.partitions", 1)
        stage = stage_of(self.subtopology)
        transforms = stage.has_state and not stage.is_native
        conf.set(_PROVIDER, SPARK_CONFIGS[_PROVIDER] if transforms else _MEMORY_PROVIDER)
        generate_code(self._spark, False)  # compiling costs more than it gains
        self._source.reset()
        self._query = (
            self.plan.streaming.writeStream.outputMode("update" if self.plan.stateful else "append")
            .option("checkpointLocation", str(directory))
            .foreachBatch(self._write)
            .start()
        )

    def run(self, records: Sequence[SourceRecord], times: Mapping[int, int] | None = None) -> list[WrittenRecord]:
        """Process records as one micro-batch, and return what was written.

        Args:
            records: Of its topics, those of a partition in the order of their offsets.
            times: By partition the time in ms that the wall clock gives to a stream task without records.

        Raises:
            StreamplanError: An expression failed for a record, which stops the application.
        """
        assert self._query is not None, "the query was not started"
        self._times = times or {}
        nothing = {(topic, partition): (0, 0) for topic in self.topics for partition in self._times}
        self._ranges = nothing | _ranges(records)
        self._written = []
        document = json.dumps([_fields(record) for record in records])
        jvm: Any = self._spark._jvm
        converters = jvm.scala.jdk.javaapi.CollectionConverters
        self._source.addData(converters.asScala(jvm.java.util.List.of(document)))
        try:
            self._query.processAllAvailable()
        except StreamingQueryException as error:
            raise StreamplanError(
                f"sub-topology {self.subtopology.id} of {self._pipeline.name} stopped, as the application would",
                observed=_told(str(error)),
                remedy="Use try_divide and similar functions where an expression can fail. The driver cannot go on.",
            ) from error
        return self._written

    def window_bytes(self, record: WrittenRecord) -> int:
        """Return how many bytes of a key are those of its window, for a record of a topic that is no changelog."""
        return self.plan.outputs[record.output].partition_by.window_bytes if record.output >= 0 else 0

    def stop(self) -> None:
        """Stop the query, and forget its state."""
        if self._query is not None:
            self._query.stop()
            self._query = None

    def _read(self, source: Source) -> DataFrame:
        if len(self.topics) == 1:
            return self._records
        return self._records.where(F.col("topic") == self._pipeline.topology.decorate(source.topic))

    def _ticks(self) -> DataFrame:
        """Return a row for each stream task in each micro-batch."""
        last = self._pipeline.partitions(self.subtopology) - 1
        micro_batches = DataFrame(self._source.toDF(), self._spark)
        return micro_batches.select(F.explode(F.sequence(F.lit(0), F.lit(last))).alias("partition"))

    def _write(self, batch: DataFrame, number: int) -> None:
        """Run the compiled plan on a micro-batch. Spark also gives one without records, when a window is over."""
        spec = replace(self._spec, batch=number, ranges=self._ranges, times=self._times)
        self._ranges, self._times = {}, {}
        batch.sparkSession.sparkContext.setLocalProperty(MICRO_BATCH, micro_batch_as_text(spec))  # for the state
        with self.plan.cached(batch) as cached:
            rows = self._compiled.run(cached).rows.toArrow()
        output = partial(MemoryOutput, written=self._written)
        write_stream_tasks(rows.to_batches(), spec, self.plan.row_format, output)


def _memory_stream(spark: SparkSession) -> Any:
    """Return Spark's ``MemoryStream`` of texts, whose ``addData`` gives a micro-batch.

    The Java gateway reaches an object of Scala by its field ``MODULE$``.
    """
    jvm: Any = spark._jvm
    companion = getattr(jvm.org.apache.spark.sql.execution.streaming.runtime, "MemoryStream$")
    return getattr(companion, "MODULE$").apply(spark._jsparkSession, jvm.org.apache.spark.sql.Encoders.STRING())


def _records_of(micro_batches: DataFrame) -> DataFrame:
    """Return the columns :data:`streamplan.spark.sources.RAW` of the records in JSON documents."""
    records = micro_batches.select(F.inline(F.from_json("value", _DOCUMENT)))
    return records.withColumn("timestamp", F.timestamp_millis("timestamp")).select(*RAW_COLUMNS)


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
