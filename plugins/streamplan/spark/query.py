"""Sub-topologies as streaming queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streamplan.kafka.brokers import Brokers
from streamplan.kafka.task_ownership import ClaimedTasks
from streamplan.model.operations import KeySelect, NullKeyFilter, TableSource
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import Source, Subtopology
from streamplan.serdes.serde import Serde, is_key_field
from streamplan.spark.planning.compiled_plan import ArrowFunction, Replay, map_in_arrow, record
from streamplan.spark.planning.operators import Finished
from streamplan.spark.planning.plan import Lowered, lower, number_outputs
from streamplan.spark.session import CodeGeneration
from streamplan.spark.sink.transaction import Output, SinkTarget, commit_empty
from streamplan.spark.sink.writers import (
    RANGES,
    WRITTEN_SCHEMA,
    for_each_micro_batch,
    output_writer,
    ranges_as_text,
    repartition_writer,
)
from streamplan.spark.sources import read_stream
from streamplan.spark.state.checkpoint import Checkpoint
from streamplan.spark.state.offset_log import checkpoint_location
from streamplan.spark.status import TaskReport


@dataclass(frozen=True)
class Written:
    """What one micro-batch of a sub-topology wrote. ``peeked``: the metrics of each peek; ``tasks``: who wrote."""

    subtopology: int
    batch: int
    written: int
    dead_lettered: int
    peeked: Mapping[str, Mapping[str, object]]
    tasks: tuple[TaskReport, ...] = ()


@dataclass(frozen=True)
class Deployment:
    """Where a pipeline runs.

    ``max_offsets``  bounds the records of one micro-batch; None: as many as :meth:`micro_batch` says
    ``transaction_timeout_ms``  after so long the brokers abort a transaction that nobody ends
    """

    pipeline: Pipeline
    brokers: Brokers
    checkpoints: str
    max_offsets: int | None = None
    transaction_timeout_ms: int = 60_000

    def micro_batch(self, subtopology: Subtopology) -> int:
        """How many records one of its micro-batches has at most.

        A stream task costs the same in each micro-batch, however little it has to do (a Spark task in each stage, a
        transaction, its part of the state), so that more of them want more records.
        """
        return self.max_offsets or max(500_000, 100_000 * self.pipeline.partitions(subtopology))

    @property
    def source_partitions(self) -> int:
        """How many partitions the queries read, all together."""
        pipeline = self.pipeline
        return sum(
            pipeline.partition_counts[topic]
            for subtopology in pipeline.topology.subtopologies
            for topic in pipeline.source_topics(subtopology)
        )

    def checkpoint(self, spark: SparkSession, subtopology: Subtopology) -> Checkpoint:
        return Checkpoint(
            spark, checkpoint_location(self.checkpoints, self.pipeline.topology.application_id, subtopology.id)
        )


@dataclass(frozen=True)
class Query:
    """The query of one sub-topology, planned and not started.

    ``topics``   of its sources, in the order of Spark's offset log
    ``schemas``  the serdes of the repartition topics that it writes
    ``writer``   for whom the stream tasks were claimed, and who is told of each micro-batch
    """

    subtopology: Subtopology
    topics: Sequence[str]
    schemas: Mapping[str, Serde]
    writer: Callable[[ClaimedTasks, Callable[[Written], None]], DataStreamWriter]


@dataclass(frozen=True)
class _Plan:
    """The two halves of a query, which know nothing of what is claimed.

    ``streaming``  its own plan, ``stateful`` or not
    ``finish``     makes of a micro-batch the rows, all in one, that ``writer`` is given, for ``outputs``
    ``kept``       those read the micro-batch more than once
    """

    streaming: DataFrame
    stateful: bool
    finish: Callable[[DataFrame], Finished]
    outputs: tuple[Output, ...]
    writer: Callable[[SinkTarget], ArrowFunction]
    kept: bool


def plan_query(
    spark: SparkSession, deployment: Deployment, subtopology: Subtopology, schemas: Mapping[str, Serde]
) -> Query:
    """Raises what Spark says of an expression. ``schemas``: the serdes of the repartition topics that it reads."""
    pipeline = deployment.pipeline
    topics = pipeline.source_topics(subtopology)
    checkpoint = deployment.checkpoint(spark, subtopology)

    def raw(source: Source) -> DataFrame:
        return _read_stream(spark, deployment, subtopology, source)

    if (rekey := _rekey(subtopology)) is not None:
        plan = _rekeying(pipeline, subtopology, rekey, raw)
    else:
        plan = _on_operators(pipeline, subtopology, lower(pipeline, subtopology, schemas, raw))
    nothing = spark.createDataFrame([], plan.streaming.schema)
    model = record(nothing)
    finished = plan.finish(model)
    (rows,) = finished.rows

    def writer(claimed: ClaimedTasks, written: Callable[[Written], None]) -> DataStreamWriter:
        base = _target(deployment, subtopology, claimed, plan.outputs)
        done = map_in_arrow(rows, for_each_micro_batch(base, plan.writer), WRITTEN_SCHEMA)
        code = CodeGeneration()

        def write(batch: DataFrame, number: int) -> None:
            target = replace(base, ranges=checkpoint.offset_ranges(number, topics))
            code.suit(batch.sparkSession, sum(until - first for first, until in target.ranges.values()))
            spark.sparkContext.setLocalProperty(RANGES, ranges_as_text(target))
            with _kept(batch, nothing if plan.kept else None) as own:
                replay = Replay(model, own)
                tasks = replay.of(done).collect()
            written(
                Written(
                    subtopology.id,
                    number,
                    sum(row["written"] for row in tasks),
                    sum(row["dead_lettered"] for row in tasks),
                    {name: dict(replay.of(observation).get) for name, observation in finished.observations},
                    tuple(TaskReport(row["partition"], row["instance"], row["host"], row["written"]) for row in tasks),
                )
            )
            commit_empty(target, target.partitions - {row["partition"] for row in tasks})

        return (
            plan.streaming.writeStream.queryName(f"{pipeline.topology.application_id}-{subtopology.id}")
            .outputMode("update" if plan.stateful else "append")
            .option("checkpointLocation", checkpoint.location)
            .foreachBatch(write)
        )

    return Query(subtopology, _topics_in_order(plan.streaming), finished.schemas, writer)


def _target(
    deployment: Deployment, subtopology: Subtopology, claimed: ClaimedTasks, outputs: tuple[Output, ...]
) -> SinkTarget:
    """Of no micro-batch yet."""
    topology = deployment.pipeline.topology
    dead_letters = next(spec for spec in deployment.pipeline.topics() if spec.name == topology.dead_letter_topic)
    return SinkTarget(
        brokers=deployment.brokers,
        application_id=topology.application_id,
        generation=claimed.generation,
        transaction_timeout_ms=deployment.transaction_timeout_ms,
        subtopology=subtopology.id,
        ranges={},
        outputs=outputs,
        dead_letter_topic=dead_letters.name,
        dead_letter_partitions=dead_letters.partitions,
    )


def _rekeying(pipeline: Pipeline, subtopology: Subtopology, rekey: _Rekey, raw: Callable[[Source], DataFrame]) -> _Plan:
    """Records go to the writer as they come from Kafka, and it selects their keys."""
    (source,) = subtopology.sources
    (topic,) = pipeline.source_topics(subtopology)
    schemas = {sink.topic: rekey.value.unrestricted() for sink in subtopology.sinks if sink.internal}
    _, outputs = number_outputs(pipeline, subtopology)
    streaming = raw(source).withColumn("timestamp", F.unix_millis("timestamp")).drop("topic")
    writer = partial(repartition_writer, topic=topic, serde=rekey.value, key=rekey.field)
    return _Plan(streaming, False, lambda batch: Finished((batch,), schemas=schemas), outputs, writer, False)


def _on_operators(pipeline: Pipeline, subtopology: Subtopology, lowered: Lowered) -> _Plan:
    """One Spark task, and no other, writes for a stream task; its records in the order in which they came."""
    partitions = pipeline.partitions(subtopology)

    def finish(batch: DataFrame) -> Finished:
        finished = lowered.finish(batch)
        rows = reduce(lambda one, other: one.unionByName(other), finished.rows)
        placed = _ended(rows, partitions).repartitionById(partitions, F.col("partition"))
        return replace(finished, rows=(placed.sortWithinPartitions("last", "topic", "offset", "order"),))

    return _Plan(lowered.streaming, lowered.stateful, finish, lowered.outputs, output_writer, lowered.kept)


@contextmanager
def _kept(batch: DataFrame, nothing: DataFrame | None) -> Iterator[DataFrame]:
    """The micro-batch, with ``nothing`` (an empty one) computed once however often it is read.

    It claims to be ordered by columns that it has no longer, and Spark 4.2 then fails to keep it ("key not found" in
    InMemoryRelation.withOutput). A union claims nothing.
    """
    if nothing is None:
        yield batch
        return
    kept = batch.unionByName(nothing).persist()
    try:
        yield kept
    finally:
        kept.unpersist()


def _read_stream(spark: SparkSession, deployment: Deployment, subtopology: Subtopology, source: Source) -> DataFrame:
    topic = deployment.pipeline.topology.decorate(source.topic)
    # A table is read as far as it goes, so that no record of a stream misses a row that was there before it.
    max_offsets = None
    if not _is_table(subtopology, source):
        streams = sum(not _is_table(subtopology, other) for other in subtopology.sources)
        max_offsets = max(1, deployment.micro_batch(subtopology) // streams)
    return read_stream(
        spark,
        deployment.brokers,
        topic,
        partitions=deployment.source_partitions,
        max_offsets=max_offsets,
    )


def _is_table(subtopology: Subtopology, source: Source) -> bool:
    return any(
        isinstance(node.operation, TableSource) and source.name in subtopology.predecessors[node.name]
        for node in subtopology.processors
    )


@dataclass(frozen=True)
class _Rekey:
    value: Serde
    field: str


def _rekey(subtopology: Subtopology) -> _Rekey | None:
    """For a sub-topology that only gives records another key, a field of their value: what takes no detour.

    Keys are then selected where records are written, without a second way through Python and a shuffle.
    """
    match subtopology.sources, subtopology.operations, subtopology.sinks:
        case ((Source(value=value),), (KeySelect(key=key), NullKeyFilter()), (_,)):
            if value is not None and is_key_field(value, key):
                return _Rekey(value, key)
    return None


def _ended(rows: DataFrame, partitions: int) -> DataFrame:
    """With a row for each partition that, sorted last, tells the writer that it has seen all of them."""
    types = {name: kind for name, kind in rows.dtypes if name != "partition"}
    ends = rows.sparkSession.range(0, partitions, 1, 1).select(
        F.col("id").cast("int").alias("partition"),
        *(F.lit(None).cast(kind).alias(name) for name, kind in types.items()),
        F.lit(True).alias("last"),
    )
    return rows.withColumn("last", F.lit(False)).unionByName(ends)


def _topics_in_order(streaming: DataFrame) -> list[str]:
    """The topic of each source of a streaming plan, in the order of the lines of Spark's offset log.

    A plan that takes several ways from one topic has a line for each.
    """
    leaves: Any = streaming._jdf.queryExecution().analyzed().collectLeaves()
    found = [leaves.apply(number) for number in range(leaves.size())]
    sources = [leaf for leaf in found if leaf.getClass().getSimpleName() == "StreamingRelationV2"]
    return [str(source.extraOptions().get("subscribe")) for source in sources]
