"""State rebuilt from the changelog topics, as Kafka Streams' restoration does (``StoreChangelogReader``).

A stateful query is a fold, and a changelog has each key's result so far. So the state of a query without a checkpoint
is built by the same fold over those results: a query that has the same stateful operator, reads them once, and leaves
its state and its one micro-batch where the real query then goes on, at the committed positions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamplan.errors import Refused, StreamplanError
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import Processor, Subtopology
from streamplan.serdes.serde import Serde
from streamplan.spark.planning.plan import plan_restore
from streamplan.spark.sources import HEADERS, RAW_COLUMNS, read_batch
from streamplan.spark.state.checkpoint import Checkpoint

SLICE = 1_000_000
"""Offsets that are read at once: after so many there is progress to tell."""

_STORED = "store string, key binary, value binary, partition int, offset bigint, timestamp timestamp"


_STRANGE_VALUES = (
    *("MALFORMED_RECORD_IN_PARSING", "USER_RAISED_EXCEPTION", "NUMERIC_VALUE_OUT_OF_RANGE", "CAST_OVERFLOW"),
    "CAST_INVALID_INPUT",
)
"""Spark's error classes for a value that is not what it is read as."""


@dataclass(frozen=True)
class Restored:
    """``rows`` of the changelogs that the state was built from."""

    rows: int
    seconds: float


@dataclass(frozen=True)
class _Slice:
    """Offsets ``first <= offset < until`` of one changelog, by partition."""

    store: str
    topic: str
    ranges: Mapping[int, tuple[int, int]]

    @property
    def size(self) -> int:
        return sum(until - first for first, until in self.ranges.values())


def restore(
    spark: SparkSession,
    pipeline: Pipeline,
    subtopology: Subtopology,
    schemas: Mapping[str, Serde],
    *,
    brokers: Brokers,
    checkpoint: Checkpoint,
    report: Callable[[str], None],
) -> Restored:
    """Build the state of ``subtopology`` in ``checkpoint``, which has none, and return when it is complete.

    The changelogs must not be written meanwhile: every stream task has been claimed. ``schemas`` has the serdes of the
    repartition topics. ``report`` is told how far it is: records, rate, time left.
    """
    begun = time.monotonic()
    slices = list(_slices(pipeline, subtopology, KafkaCluster(brokers)))
    read = f"{checkpoint.location}.changelog"
    # A record of a table may be asked for at any time since; of an aggregate only the last value counts.
    every = bool(subtopology.joins)
    records = 0
    progress = _Progress(f"sub-topology {subtopology.id}", sum(one.size for one in slices), report)
    try:
        # Nothing is left of a changelog whose windows are all over: the state is empty, and that is a state.
        spark.createDataFrame([], _STORED).write.mode("overwrite").parquet(f"{read}/read")
        for one in slices:
            found = _read(spark, brokers, one)
            (found if every else _last(found)).write.mode("append").parquet(f"{read}/read")
            records += one.size
            progress(records)
        directory = f"{read}/read"
        if len(slices) > len(subtopology.stores) and not every:  # a key may be in several slices
            directory = f"{read}/last"
            _last(spark.read.schema(_STORED).parquet(f"{read}/read")).write.mode("overwrite").parquet(directory)
        _fold(spark, pipeline, subtopology, schemas, directory, checkpoint)
        rows = spark.read.schema(_STORED).parquet(directory).count()
    finally:
        checkpoint.remove_beside(read)
    return Restored(rows, time.monotonic() - begun)


def _fold(
    spark: SparkSession,
    pipeline: Pipeline,
    subtopology: Subtopology,
    schemas: Mapping[str, Serde],
    directory: str,
    checkpoint: Checkpoint,
) -> None:
    stream = spark.readStream.schema(_STORED).parquet(directory)

    def stored(node: Processor) -> DataFrame:
        rows = stream.where(F.col("store") == F.lit(node.store))
        if not subtopology.joins:
            rows = rows.where("value is not null")  # deleted
        missing = {"topic": F.lit(None).cast("string"), "headers": F.lit(None).cast(HEADERS)}
        if not subtopology.joins:
            missing["offset"] = F.lit(-1).cast("bigint")  # older than any record that comes
        return rows.select(*(missing.get(name, F.col(name)).alias(name) for name in RAW_COLUMNS))

    def discard(batch: DataFrame, number: int) -> None:
        batch.write.format("noop").mode("overwrite").save()

    query = (
        plan_restore(pipeline, subtopology, schemas, stored)
        .writeStream.queryName(f"{pipeline.topology.application_id}-{subtopology.id}-restore")
        .outputMode("update")
        .option("checkpointLocation", checkpoint.location)
        .foreachBatch(discard)
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        what, text = f"sub-topology {subtopology.id} could not be restored from its changelogs", str(error)
        if any(name in text for name in _STRANGE_VALUES):
            raise Refused(
                what,
                expected=f"values of {', '.join(map(str, subtopology.stores))} as declared",
                observed=next(line for line in text.splitlines() if any(name in line for name in _STRANGE_VALUES)),
                remedy="They were written by another topology: declare it as it was, or reset the application.",
            ) from error
        raise StreamplanError(what, observed=text) from error


def _slices(pipeline: Pipeline, subtopology: Subtopology, cluster: KafkaCluster) -> Iterator[_Slice]:
    for store in subtopology.stores:
        topic = pipeline.topology.changelog_topic(store)
        left = {number: (of.log_start, of.last_stable) for number, of in cluster.offsets(topic).items()}
        step = max(1, SLICE // len(left))
        while any(first < until for first, until in left.values()):
            yield _Slice(store, topic, {n: (first, min(first + step, until)) for n, (first, until) in left.items()})
            left = {n: (min(first + step, until), until) for n, (first, until) in left.items()}


def _read(spark: SparkSession, brokers: Brokers, one: _Slice) -> DataFrame:
    starts = {partition: first for partition, (first, _) in one.ranges.items()}
    ends = {partition: until for partition, (_, until) in one.ranges.items()}
    records = read_batch(spark, brokers, one.topic, ends, starts)
    return records.select(F.lit(one.store).alias("store"), "key", "value", "partition", "offset", "timestamp")


def _last(rows: DataFrame) -> DataFrame:
    """Of each key the record with the greatest offset."""
    kept = F.struct("value", "timestamp", "offset")
    last = rows.groupBy("store", "partition", "key").agg(F.max_by(kept, "offset").alias("kept"))
    return last.select("store", "key", "kept.value", "partition", "kept.offset", "kept.timestamp")


@dataclass
class _Progress:
    what: str
    total: int
    report: Callable[[str], None]

    def __post_init__(self) -> None:
        self._begun = time.monotonic()
        self.report(f"{self.what}: restoring from {self.total:,} changelog offsets")

    def __call__(self, read: int) -> None:
        seconds = time.monotonic() - self._begun
        rate = read / max(seconds, 0.001)
        left = (self.total - read) / max(rate, 1)
        self.report(f"{self.what}: read {read:,} of {self.total:,} changelog offsets, {rate:,.0f}/s, {left:.0f} s left")
