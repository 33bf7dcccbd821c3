"""Single records through the plan of a sub-topology without state: a re-drive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import NamedTuple
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka_types import Header, Record
from streamplan.model.dead_letters import Origin
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import Subtopology
from streamplan.serdes.serde import Serde
from streamplan.spark.global_tables import Reader, TableInKafka, tell_offsets
from streamplan.spark.headers import headers_as_text, headers_from_text
from streamplan.spark.planning.operators import read_source
from streamplan.spark.planning.plan import outputs_of
from streamplan.spark.planning.stages import plan_of
from streamplan.spark.sink.spec import DEAD_LETTER, Output
from streamplan.spark.sources import RAW_COLUMNS


class OutputRecord(NamedTuple):
    """A record that is made of another one; ``timestamp`` is in ms."""

    output: Output
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: list[Header]


class Results(NamedTuple):
    """What a sub-topology makes of a record: what is written, and the reasons for which it rejects it."""

    outputs: list[OutputRecord]
    reasons: list[str]


def process_records(
    spark: SparkSession,
    pipeline: Pipeline,
    subtopology: Subtopology,
    schemas: Mapping[str, Serde],
    records: Sequence[tuple[Origin, Record]],
    *,
    acts: bool,
    brokers: Brokers,
) -> dict[Origin, Results]:
    """Compute what a sub-topology without state makes of records. Nothing is written.

    Args:
        spark: A session for batches.
        pipeline: The declaration in force.
        subtopology: The sub-topology that reads the records.
        schemas: The serdes of the repartition topics.
        records: The records, each with the topic, partition and offset that the plan sees.
        acts: Whether the functions of ``foreach`` and ``peek`` are called.
        brokers: Have the global tables, whose newest rows are joined.

    Returns:
        The results of each record. A record that an operation leaves out has none.
    """
    found: dict[Origin, Results] = {origin: Results([], []) for origin, _ in records}
    outputs = outputs_of(pipeline, subtopology)
    planner = plan_of(subtopology).planner(acts=acts)
    if subtopology.global_topics:
        planner.read_table = TableInKafka(brokers)
        tell_offsets(spark, Reader(subtopology.id, str(uuid4())), KafkaCluster(brokers), subtopology.global_topics)
    raw = _raw(spark, records)
    for source in subtopology.sources:
        of_topic = raw.where(F.col("topic") == pipeline.topology.decorate(source.topic))
        planner.bind(source.name, read_source(subtopology, source, schemas, of_topic))
    planner.plan(subtopology.nodes)
    rows = reduce(DataFrame.unionByName, planner.take_output_rows().rows)
    for row in sorted(rows.collect(), key=lambda row: row["order"] or []):
        results = found[Origin(row["topic"], row["partition"], row["offset"])]
        if row["output"] == DEAD_LETTER:
            results.reasons.append(row["reason"])
        else:
            key, value = (None if row[name] is None else bytes(row[name]) for name in ("key", "value"))
            headers = headers_from_text(row["headers"])
            results.outputs.append(OutputRecord(outputs[row["output"]], key, value, row["timestamp"], headers))
    return found


def _raw(spark: SparkSession, records: Sequence[tuple[Origin, Record]]) -> DataFrame:
    """The records in the columns ``RAW`` of :mod:`streamplan.spark.sources`."""
    rows = [
        (record.key, record.value, *origin, record.timestamp, headers_as_text(record.headers))
        for origin, record in records
    ]
    schema = "key binary, value binary, topic string, partition int, offset bigint, timestamp bigint, headers string"
    raw = spark.createDataFrame(rows, schema)
    return raw.withColumn("timestamp", F.timestamp_millis("timestamp")).select(*RAW_COLUMNS)
