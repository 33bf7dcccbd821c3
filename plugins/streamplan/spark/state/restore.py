"""Rebuilds the state of a query from the changelog topics, as Kafka Streams does (``StoreChangelogReader``).

A stateful operator adds each record to the state of the record's key, and a changelog topic holds the results. So a
restoring query gives these results once more to the same operator. It leaves a checkpoint with the whole state and one
micro-batch, from which the real query continues at the committed positions.

Of an aggregation's changelog only the last record of each key is given to the operator, which would add an older one to
it. Python workers select them from a changelog of counts or aggregates that is not too long for their memory. Any other
one is first copied from Kafka to files, in slices.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from py4j.protocol import Py4JJavaError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamplan.errors import Refused, StreamplanError
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import Processor, Subtopology
from streamplan.model.stages import stage_of
from streamplan.model.stages.stage import Restore, Stage
from streamplan.model.status import Restoration
from streamplan.serdes.serde import Serde
from streamplan.spark.planning.compiled_plan import map_in_arrow
from streamplan.spark.planning.stages import plan_of
from streamplan.spark.planning.stages.stage_plan import StoredState
from streamplan.spark.sources import HEADERS, RAW_COLUMNS, read_batch, read_stream
from streamplan.spark.state.checkpoint import Checkpoint
from streamplan.spark.state.last_of_each_key import last_of_each_key

SLICE_OFFSETS = 1_000_000
"""Offsets that are copied at a time. After each slice the progress is reported."""

DIRECT_OFFSETS = 2_000_000
"""Python workers select the last records of at most this many offsets, of all partitions together."""

_COPIES = "changelog"
"""The directory in the new checkpoint that the records are copied to. No other start of an aggregator knows it."""

_WATCH_SECONDS = 1
"""How often it is asked, while the restoring query runs, whether there is a newer aggregator."""

_LAST = "key binary, value binary, partition int, offset bigint, timestamp timestamp"

_LAST_COLUMNS = ("key", "value", "partition", "offset", "timestamp")

_STORED = "store string, key binary, value binary, partition int, offset bigint, timestamp timestamp"

_UNREADABLE_VALUES = (
    "MALFORMED_RECORD_IN_PARSING",
    "USER_RAISED_EXCEPTION",
    "NUMERIC_VALUE_OUT_OF_RANGE",
    "CAST_OVERFLOW",
    "CAST_INVALID_INPUT",
)
"""Spark's error classes for a value that does not have the declared form."""


@dataclass(frozen=True)
class Restored:
    """A finished restoration.

    Attributes:
        rows: Number of changelog records that the state was built from.
        seconds: How long it took.
    """

    rows: int
    seconds: float


@dataclass(frozen=True)
class _ChangelogSlice:
    """Offsets ``first <= offset < until`` of one changelog topic, by partition."""

    store: str
    topic: str
    ranges: Mapping[int, tuple[int, int]]

    @property
    def offsets(self) -> int:
        return sum(until - first for first, until in self.ranges.values())


def restore(
    spark: SparkSession,
    pipeline: Pipeline,
    subtopology: Subtopology,
    schemas: Mapping[str, Serde],
    *,
    brokers: Brokers,
    checkpoint: Checkpoint,
    times: Mapping[int, int],
    require_latest: Callable[[], None],
    report: Callable[[str], None],
    report_restoration: Callable[[int, Restoration], None],
) -> Restored:
    """Build the state of a sub-topology, and return when it is complete.

    Nobody may write to the changelogs meanwhile: every stream task has been claimed. An aggregator that has lost its
    tasks to a newer one stops to restore them.

    Args:
        spark: The session; its number of shuffle partitions is the number of stream tasks.
        pipeline: The pipeline of the sub-topology.
        subtopology: The sub-topology.
        schemas: The serdes of the repartition topics.
        brokers: Where the changelog topics are.
        checkpoint: A checkpoint that does not exist yet. It gets the state.
        times: By partition the time in ms that the wall clock has given to a stream task.
        require_latest: Raises :class:`Refused` when there is a newer aggregator. It is called often.
        report: Is told the progress: offsets, rate, time left.
        report_restoration: Is told the offsets, too, with the id of the sub-topology.

    Raises:
        Refused: A changelog holds values of another form than the declared one, or there is a newer aggregator.
        StreamplanError: Spark failed for another reason.
    """
    begun = time.monotonic()
    slices = list(_slices(pipeline, subtopology, KafkaCluster(brokers)))
    progress = _Progress(subtopology.id, sum(part.offsets for part in slices), report, report_restoration)
    if _fits_in_workers(subtopology, progress.total):
        require_latest()
        read = partial(_read_last_of_each_key, spark, brokers, pipeline, pipeline.partitions(subtopology))
        rows = _run_restoring_query(spark, pipeline, subtopology, schemas, read, checkpoint, times, require_latest)
        progress.add(progress.total)
        return Restored(rows, time.monotonic() - begun)
    try:
        directory = f"{checkpoint.location}/{_COPIES}"
        records = _copy_changelogs(spark, subtopology, slices, brokers, directory, require_latest, progress)
        stream = spark.readStream.schema(_STORED).parquet(records)

        def copied(node: Processor) -> DataFrame:
            return stream.where(F.col("store") == F.lit(node.store))

        _run_restoring_query(spark, pipeline, subtopology, schemas, copied, checkpoint, times, require_latest)
        rows = spark.read.schema(_STORED).parquet(records).count()
    except Py4JJavaError as error:  # reading a changelog or writing its copy failed
        raise _restore_error(subtopology, str(error)) from error
    finally:
        checkpoint.delete(_COPIES)
    return Restored(rows, time.monotonic() - begun)


def _fits_in_workers(subtopology: Subtopology, offsets: int) -> bool:
    """Return whether the last records of the changelogs are few and small.

    Without any offset Spark would run no micro-batch, and there would be no state to go on with.
    """
    return stage_of(subtopology).restores_in_workers and 0 < offsets <= DIRECT_OFFSETS


def _copy_changelogs(
    spark: SparkSession,
    subtopology: Subtopology,
    slices: Sequence[_ChangelogSlice],
    brokers: Brokers,
    directory: str,
    require_latest: Callable[[], None],
    progress: _Progress,
) -> str:
    """Copy the records that the state is built from to Parquet files; returns the directory of these files.

    Of a store that is restored from the last record of each key the last ones of each slice are copied, which bounds
    what is written. A key may be in several slices, so they are not yet the last ones of the changelog.
    """
    stores = stage_of(subtopology).stores
    last_only = [store for store, restored in stores.items() if restored is Restore.LAST_OF_KEY]
    copied = f"{directory}/read"
    # A changelog may be empty, for instance when all its windows are over. The query needs files all the same.
    spark.createDataFrame([], _STORED).write.mode("overwrite").parquet(copied)
    for part in slices:
        require_latest()
        records = _read_slice(spark, brokers, part)
        (_last_of_each_key(records) if part.store in last_only else records).write.mode("append").parquet(copied)
        progress.add(part.offsets)
    if not last_only:
        return copied
    merged = f"{directory}/last"
    records = spark.read.schema(_STORED).parquet(copied)
    is_last_only = F.col("store").isin(list(last_only))
    last = _last_of_each_key(records.where(is_last_only))
    last.unionByName(records.where(~is_last_only)).write.mode("overwrite").parquet(merged)
    return merged


def _run_restoring_query(
    spark: SparkSession,
    pipeline: Pipeline,
    subtopology: Subtopology,
    schemas: Mapping[str, Serde],
    read: Callable[[Processor], DataFrame],
    checkpoint: Checkpoint,
    times: Mapping[int, int],
    require_latest: Callable[[], None],
) -> int:
    """Run the restoring query to its end. Returns how many rows of the state it wrote."""
    stage = stage_of(subtopology)

    def stored(node: Processor) -> DataFrame:
        return as_stored(read(node), stage.part_of(node))

    def discard(batch: DataFrame, number: int) -> None:
        batch.write.format("noop").mode("overwrite").save()

    of_stores = subtopology.as_stored()
    query = (
        plan_of(of_stores)
        .restored(StoredState(of_stores, schemas, stored, times))
        .writeStream.queryName(f"{pipeline.topology.application_id}-{subtopology.id}-restore")
        .outputMode("update")
        .option("checkpointLocation", checkpoint.location)
        .foreachBatch(discard)
        .trigger(availableNow=True)
        .start()
    )
    try:
        while not query.awaitTermination(_WATCH_SECONDS):
            require_latest()
        return sum(
            operator["numRowsUpdated"] for progress in query.recentProgress for operator in progress["stateOperators"]
        )
    except StreamingQueryException as error:
        raise _restore_error(subtopology, str(error)) from error
    finally:
        query.stop()


def as_stored(rows: DataFrame, stage: Stage) -> DataFrame:
    """Return records of a changelog as :class:`StoredState` has them.

    Args:
        rows: With the columns of :data:`streamplan.spark.sources.RAW` but ``topic`` and ``headers``.
        stage: That has the store.
    """
    columns = {"topic": F.lit(None).cast("string"), "headers": F.lit(None).cast(HEADERS)}
    if not stage.restores_deletions:
        rows = rows.where("value is not null")  # a null value deletes the key
    if stage.aggregates:
        columns["offset"] = F.lit(-1).cast("bigint")  # before any record that comes
    return rows.select(*(columns.get(name, F.col(name)).alias(name) for name in RAW_COLUMNS))


def _read_last_of_each_key(
    spark: SparkSession, brokers: Brokers, pipeline: Pipeline, partitions: int, node: Processor
) -> DataFrame:
    topic = pipeline.topology.changelog_topic(str(node.store))
    records = read_stream(spark, brokers, topic, partitions=partitions).select(*_LAST_COLUMNS)
    return map_in_arrow(records, last_of_each_key, _LAST)


def _restore_error(subtopology: Subtopology, text: str) -> StreamplanError:
    subject = f"sub-topology {subtopology.id} could not be restored from its changelogs"
    # The text has the plan of the query, too, in which an error may stand that nothing has raised.
    lines = [line for line in text.splitlines() if "raise_error(" not in line]
    unreadable = [line for line in lines if any(name in line for name in _UNREADABLE_VALUES)]
    if unreadable:
        return Refused(
            subject,
            expected=f"values of {', '.join(map(str, subtopology.stores))} as declared",
            observed=unreadable[0],
            remedy="They were written by another topology: declare it as it was, or reset the application.",
        )
    told = [line for line in lines if "most recent failure" in line]
    return StreamplanError(subject, observed=told[0].partition("most recent failure: ")[2] if told else text)


def _slices(pipeline: Pipeline, subtopology: Subtopology, cluster: KafkaCluster) -> Iterator[_ChangelogSlice]:
    """Divide the changelogs into slices of about :data:`SLICE_OFFSETS`, in the order of their offsets."""
    for store in subtopology.stores:
        topic = pipeline.topology.changelog_topic(store)
        left = {number: (extent.log_start, extent.last_stable) for number, extent in cluster.offsets(topic).items()}
        step = max(1, SLICE_OFFSETS // len(left))
        while any(first < until for first, until in left.values()):
            ranges = {number: (first, min(first + step, until)) for number, (first, until) in left.items()}
            yield _ChangelogSlice(store, topic, ranges)
            left = {number: (ranges[number][1], until) for number, (_, until) in left.items()}


def _read_slice(spark: SparkSession, brokers: Brokers, part: _ChangelogSlice) -> DataFrame:
    starts = {partition: first for partition, (first, _) in part.ranges.items()}
    ends = {partition: until for partition, (_, until) in part.ranges.items()}
    records = read_batch(spark, brokers, part.topic, ends, starts)
    return records.select(F.lit(part.store).alias("store"), "key", "value", "partition", "offset", "timestamp")


def _last_of_each_key(records: DataFrame) -> DataFrame:
    last = F.max_by(F.struct("value", "timestamp", "offset"), "offset").alias("last")
    by_key = records.groupBy("store", "partition", "key").agg(last)
    return by_key.select("store", "key", "last.value", "partition", "last.offset", "last.timestamp")


@dataclass
class _Progress:
    """Reports how far a restoration has come."""

    subtopology: int
    total: int
    report: Callable[[str], None]
    report_restoration: Callable[[int, Restoration], None]
    copied: int = 0
    begun: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.report(f"sub-topology {self.subtopology}: restoring from {self.total:,} changelog offsets")
        self.report_restoration(self.subtopology, Restoration(0, self.total))

    def add(self, offsets: int) -> None:
        self.copied += offsets
        rate = self.copied / max(time.monotonic() - self.begun, 0.001)
        left = (self.total - self.copied) / max(rate, 1)
        read = f"read {self.copied:,} of {self.total:,} changelog offsets"
        self.report(f"sub-topology {self.subtopology}: {read}, {rate:,.0f}/s, {left:.0f} s left")
        self.report_restoration(self.subtopology, Restoration(self.copied, self.total))
