"""A pipeline computed anew by Spark as a batch, sub-topology by sub-topology, and compared with what it has written.

Each sub-topology is asked whether its outputs are what its inputs demand, at a moment at which both hold still: its
committed positions, and the ends of its outputs that belong to them. So records on the way between two sub-topologies
need no account of their own, and what is wrong is found where it happened.

What a join wrote depends on when a table's row came, and cannot be told afterwards: of a sub-topology with joins the
tables and the dead letters are compared.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streamplan.checks.framework.check import Observation
from streamplan.checks.framework.cluster import Cluster
from streamplan.checks.framework.consistent_cut import ConsistentCut, Deadline, await_consistent_cut
from streamplan.errors import CouldNotLook
from streamplan.kafka.brokers import Brokers
from streamplan.model.operations import Aggregate, Count
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import Processor, Source, Subtopology
from streamplan.serdes.serde import Serde
from streamplan.spark.planning.operators import DEAD_LETTER, OUTPUT, OperatorPlanner, read_source
from streamplan.spark.planning.plan import number_outputs
from streamplan.spark.planning.records import RecordFrame
from streamplan.spark.planning.stream_table_join import join_tables, joined_frames
from streamplan.spark.planning.validation import resolve_schemas
from streamplan.spark.sink.transaction import Output, PartitionBy
from streamplan.spark.sources import read_batch

NAMED = 20
"""So many wrong keys of an output get a row each; the others are counted."""


@dataclass(frozen=True)
class _Reader:
    spark: SparkSession
    brokers: Brokers

    def read(self, topic: str, ends: Mapping[int, int]) -> DataFrame:
        """Committed records of a topic up to ``ends``, by partition."""
        return read_batch(self.spark, self.brokers, topic, ends)


def recount(spark: SparkSession, pipeline: Pipeline, cluster: Cluster, brokers: Brokers) -> Iterator[Observation]:
    """The rows of the totals check. Raises :class:`CouldNotLook` where input is gone."""
    assert spark.streams.active is not None  # a batch look-up asks the state store coordinator, which this makes
    topology = pipeline.topology
    names = [spec.name for spec in pipeline.topics()]
    if missing := sorted(set(names) - cluster.topics(names).keys()):
        yield from (Observation(f"topic {topic}", "exists", "missing") for topic in missing)
        return
    schemas = resolve_schemas(spark, pipeline)
    for subtopology in topology.subtopologies:
        topics = pipeline.source_topics(subtopology)
        _refuse_gaps(topics, cluster, {spec.name: spec.configs for spec in pipeline.topics()})
        _, outputs = number_outputs(pipeline, subtopology)
        written = list(dict.fromkeys(output.topic for output in outputs))
        cut = await_consistent_cut(
            cluster, topology.application_id, topics, [*written, topology.dead_letter_topic], Deadline()
        )
        if not any(any(positions.values()) for positions in cut.positions.values()):
            yield Observation(f"{', '.join(topics)}: records processed", "at least 1", "none")
            continue
        reader = _Reader(spark, brokers)
        expected = _expected(pipeline, subtopology, schemas, reader, cut).persist()
        try:
            yield from _compare(pipeline, subtopology, reader, cut, expected)
        finally:
            expected.unpersist()


def _refuse_gaps(topics: Sequence[str], cluster: Cluster, configs: Mapping[str, Mapping[str, str]]) -> None:
    gone = {
        f"{topic}-{partition}": found.log_start
        for topic in topics
        if configs[topic].get("cleanup.policy") != "compact"  # there the last value of each key is enough
        for partition, found in cluster.offsets(topic).items()
        if found.log_start > 0
    }
    if gone:
        raise CouldNotLook(
            f"what was made of {', '.join(topics)} cannot be recounted",
            expected="every record since offset 0",
            observed=", ".join(f"{partition} begins at offset {start}" for partition, start in gone.items()),
            remedy="What was deleted may have been processed rightly or not: it can no longer be proven.",
        )


def _expected(
    pipeline: Pipeline, subtopology: Subtopology, schemas: Mapping[str, Serde], reader: _Reader, cut: ConsistentCut
) -> DataFrame:
    """The rows that the inputs demand, of the columns ``OUTPUT`` of :mod:`streamplan.spark.planning.operators`."""
    numbers, _ = number_outputs(pipeline, subtopology)
    planner = OperatorPlanner(subtopology, numbers)

    def frame(source: Source) -> RecordFrame:
        topic = pipeline.topology.decorate(source.topic)
        return read_source(subtopology, source, schemas, reader.read(topic, cut.positions[topic]))

    frames = {source.name: frame(source) for source in subtopology.sources}
    if subtopology.joins:
        stores = subtopology.table_stores
        frames = joined_frames(join_tables(frames, stores), frames, stores)
    for name, records in frames.items():
        planner.bind(name, records)
    planner.plan(subtopology.nodes)
    rows = planner.take_output_rows().rows
    return reduce(DataFrame.unionByName, rows) if rows else reader.spark.createDataFrame([], OUTPUT)


def _compare(
    pipeline: Pipeline, subtopology: Subtopology, reader: _Reader, cut: ConsistentCut, expected: DataFrame
) -> Iterable[Observation]:
    numbers, outputs = number_outputs(pipeline, subtopology)
    untold = subtopology.downstream_of({node.name for node in subtopology.joins})
    folded = subtopology.downstream_of({node.name for node in subtopology.aggregations})
    nodes = {node.name: node for node in subtopology.nodes}
    for name, number in numbers.items():
        output = outputs[number]
        of_output = expected.where(F.col("output") == number)
        found = reader.read(output.topic, cut.ends[output.topic])
        if output.partition_by is PartitionBy.TASK or name in folded:
            yield from _compare_last_values(output, of_output, found, _retention_ms(nodes[name]))
        elif name not in untold:
            yield from _compare_records(output, of_output, found)
    yield _compare_dead_letters(pipeline, subtopology, reader, cut, expected)


def _retention_ms(node: Any) -> int | None:
    if isinstance(node, Processor) and isinstance(node.operation, Count | Aggregate) and node.operation.window:
        return node.operation.window.retention_ms
    return None


def _compare_last_values(
    output: Output, expected: DataFrame, found: DataFrame, retention_ms: int | None
) -> Iterable[Observation]:
    """The last value of each key. Of a windowed store only windows that it must still hold."""
    place = F.struct("offset")
    wanted = expected.groupBy("key").agg(F.max_by("value", F.struct("offset", "order")).alias("expected"))
    held = found.where("key is not null").groupBy("key").agg(F.max_by("value", place).alias("observed"))
    both = wanted.join(held, "key", "full_outer").where("expected is not null or observed is not null")
    if retention_ms is not None:
        start = F.substr("key", F.length("key") - 11, F.lit(8))
        both = both.withColumn("start", F.conv(F.hex(start), 16, 10).cast("long"))
        newest = both.agg(F.max("start")).first()
        oldest = (newest[0] if newest and newest[0] is not None else 0) - retention_ms
        both = both.where(F.col("start") >= oldest)
    both = both.persist()
    try:
        keys = both.count()
        differ = both.where(~F.col("expected").eqNullSafe(F.col("observed")))
        wrong = [row for row in differ.limit(100_000).collect() if not _alike(row["expected"], row["observed"])]
    finally:
        both.unpersist()
    yield Observation(f"{output.topic}: keys whose last value is the recounted one", keys, keys - len(wrong))
    for row in sorted(wrong, key=lambda row: bytes(row["key"]))[:NAMED]:
        yield Observation(f"{output.topic}: key {_text(row['key'])}", _text(row["expected"]), _text(row["observed"]))


def _compare_records(output: Output, expected: DataFrame, found: DataFrame) -> Iterable[Observation]:
    """Every record once. Where counts agree, a digest tells a record from another."""
    digest = F.bit_xor(F.xxhash64("key", "value"))
    demanded = expected.agg(F.count("*"), digest).first()
    observed = found.agg(F.count("*"), digest).first()
    if demanded is None or observed is None:
        raise TypeError("an aggregate without groups has one row")
    yield Observation(f"{output.topic}: records", demanded[0], observed[0])
    if demanded[0] == observed[0]:
        yield Observation(f"{output.topic}: digest of keys and values", f"{demanded[1]}", f"{observed[1]}")


def _compare_dead_letters(
    pipeline: Pipeline, subtopology: Subtopology, reader: _Reader, cut: ConsistentCut, expected: DataFrame
) -> Observation:
    topic = pipeline.topology.dead_letter_topic
    wanted = expected.where(F.col("output") == DEAD_LETTER).select("topic", "partition", "offset")
    letters = reader.read(topic, cut.ends[topic]).where(_header("task").startswith(f"{subtopology.id}_"))
    # One for each operation that could not take the record: as often as demanded, and no more.
    by = ["topic", "partition", "offset"]
    held = letters.select(
        _header("source.topic").alias("topic"),
        _header("source.partition").cast("int").alias("partition"),
        _header("source.offset").cast("long").alias("offset"),
    )
    wrong = wanted.exceptAll(held).unionByName(held.exceptAll(wanted)).orderBy(*by).limit(NAMED).collect()
    named = ", ".join(f"{row['topic']}-{row['partition']} offset {row['offset']}" for row in wrong)
    count = wanted.count()
    return Observation(
        f"{topic}: records that sub-topology {subtopology.id} could not process{f' (see {named})' if named else ''}",
        count,
        count if not wrong else held.count(),
    )


def _header(name: str) -> Column:
    """The last header of ours with that name: those of the record itself come before it."""
    headers = F.from_json("headers", "array<struct<key: string, value: binary>>")
    values = F.filter(headers, lambda header: header["key"] == f"streamplan.{name}")
    return F.try_element_at(values, F.lit(-1))["value"].cast("string")


def _alike(expected: bytes | None, observed: bytes | None) -> bool:
    """Whether two JSON values differ in nothing but the rounding of sums in another order."""
    try:
        one, other = json.loads(expected or b""), json.loads(observed or b"")
    except ValueError:
        return False
    return _close(one, other)


def _close(one: Any, other: Any) -> bool:
    if (isinstance(one, float) and isinstance(other, float | int)) or (
        isinstance(other, float) and isinstance(one, int)
    ):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_close(value, other[name]) for name, value in one.items())
    return bool(one == other)


def _text(value: bytes | None) -> str:
    if value is None:
        return "none"
    if (len(value) == 8 and not bytes(value).isascii()) or bytes(value)[:4] == bytes(4):
        return str(int.from_bytes(value, "big", signed=True)) if len(value) == 8 else repr(bytes(value))
    return bytes(value).decode("utf-8", "backslashreplace")
