"""Sub-topologies as streaming queries on Spark's native operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streamplan.adapters.spark.checkpoint import Checkpoint
from streamplan.adapters.spark.sink import SinkTarget, commit_empty
from streamplan.adapters.spark.stages import WRITTEN_SCHEMA, Writer, changelog_writer, repartition_writer
from streamplan.errors import Refused
from streamplan.pipeline import Pipeline
from streamplan.serdes import Json
from streamplan.topology import Count, KeySelect, Sink, Subtopology


@dataclass(frozen=True)
class Written:
    """What one micro-batch of a sub-topology wrote."""

    subtopology: int
    batch: int
    written: int
    dead_lettered: int


@dataclass(frozen=True)
class Deployment:
    """Where a pipeline runs. ``max_offsets`` bounds the records of one micro-batch."""

    pipeline: Pipeline
    bootstrap_servers: str
    checkpoints: str
    max_offsets: int

    def checkpoint(self, spark: SparkSession, subtopology: Subtopology) -> Checkpoint:
        return Checkpoint(spark, f"{self.checkpoints}/{self.pipeline.topology.application_id}/{subtopology.id}")


def build_query(
    spark: SparkSession,
    deployment: Deployment,
    subtopology: Subtopology,
    positions: Mapping[int, int],
    written: Callable[[Written], None],
) -> DataStreamWriter:
    """The query of one sub-topology, not started. ``positions`` is where a query without a checkpoint begins."""
    pipeline = deployment.pipeline
    (topic,) = pipeline.source_topics(subtopology)
    partitions = pipeline.partitions(subtopology)
    # The state store has one partition a stream task; a query takes this setting along when it starts.
    spark.conf.set("spark.sql.shuffle.partitions", partitions)
    source = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", deployment.bootstrap_servers)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topic)
        .option("startingOffsets", _starting_offsets(topic, positions))
        .option("maxOffsetsPerTrigger", deployment.max_offsets)
        .option("failOnDataLoss", True)
        .option("includeHeaders", True)
        .load()
    )
    checkpoint = deployment.checkpoint(spark, subtopology)
    frame, writer_of, output_topic = _lower(pipeline, subtopology, source)
    dead_letters = next(spec for spec in pipeline.topics() if spec.name == pipeline.topology.dead_letter_topic)

    def write(batch: DataFrame, number: int) -> None:
        target = SinkTarget(
            bootstrap_servers=deployment.bootstrap_servers,
            application_id=pipeline.topology.application_id,
            subtopology=subtopology.id,
            source_topic=topic,
            ranges=checkpoint.ranges(number, topic),
            output_topic=output_topic,
            dead_letter_topic=dead_letters.name,
            dead_letter_partitions=dead_letters.partitions,
        )
        if frame.aggregated:  # one Spark task, and no other, writes for a stream task
            batch = (
                _ended(batch, partitions).repartitionById(partitions, F.col("partition")).sortWithinPartitions("last")
            )
        rows = batch.mapInArrow(writer_of(target), WRITTEN_SCHEMA).collect()
        commit_empty(target, target.ranges.keys() - {row["partition"] for row in rows})
        written(
            Written(
                subtopology.id,
                number,
                sum(row["written"] for row in rows),
                sum(row["dead_lettered"] for row in rows),
            )
        )

    return (
        frame.data.writeStream.queryName(f"{pipeline.topology.application_id}-{subtopology.id}")
        .outputMode("update" if frame.aggregated else "append")
        .option("checkpointLocation", checkpoint.location)
        .foreachBatch(write)
    )


@dataclass(frozen=True)
class _Frame:
    data: DataFrame
    aggregated: bool


def _lower(
    pipeline: Pipeline, subtopology: Subtopology, source: DataFrame
) -> tuple[_Frame, Callable[[SinkTarget], Writer], str]:
    """The native operators, what writes their result, and where to."""
    topology = pipeline.topology
    match subtopology.operations:
        case (KeySelect(field=field), *_):
            serde = subtopology.sources[0].value
            sink = next(node for node in subtopology.nodes if isinstance(node, Sink))
            assert isinstance(serde, Json)
            return _Frame(_records(source), False), _Repartition(serde, field), topology.decorate(sink.topic)
        case (Count(store=store),):
            counts = (
                _records(source)
                .where("key is not null")
                .groupBy("partition", "key")
                .agg(F.count("*").alias("value"), F.max("timestamp").alias("timestamp"))
            )
            return _Frame(counts, True), changelog_writer, topology.changelog_topic(store)
        case operations:
            named = ", ".join(type(operation).__name__ for operation in operations)
            raise Refused(f"sub-topology {subtopology.id} of {pipeline.name}: no query is known for {named}")


@dataclass(frozen=True)
class _Repartition:
    serde: Json
    field: str

    def __call__(self, target: SinkTarget) -> Writer:
        return repartition_writer(target, self.serde, self.field)


def _ended(batch: DataFrame, partitions: int) -> DataFrame:
    """With a row for each partition that, sorted last, tells the writer that it has seen all of them."""
    types = {name: kind for name, kind in batch.dtypes if name != "partition"}
    ends = batch.sparkSession.range(0, partitions, 1, 1).select(
        F.col("id").cast("int").alias("partition"),
        *(F.lit(None).cast(kind).alias(name) for name, kind in types.items()),
        F.lit(True).alias("last"),
    )
    return batch.withColumn("last", F.lit(False)).unionByName(ends)


def _records(source: DataFrame) -> DataFrame:
    return source.select(
        "key", "value", "partition", "offset", F.unix_millis("timestamp").alias("timestamp"), "headers"
    )


def _starting_offsets(topic: str, positions: Mapping[int, int]) -> str:
    offsets = ", ".join(f'"{partition}": {offset}' for partition, offset in sorted(positions.items()))
    return f'{{"{topic}": {{{offsets}}}}}'
