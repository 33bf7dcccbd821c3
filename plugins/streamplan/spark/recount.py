"""Recounts a pipeline: Spark computes each sub-topology again as a batch, and compares that with what it has written.

The outputs of a sub-topology are compared with what its inputs demand, at a consistent cut: its committed positions,
and the ends of its outputs that belong to them. So records on the way between two sub-topologies are not counted twice,
and a wrong output is found in the sub-topology that wrote it.

What a join wrote depends on when a table's row came, and cannot be computed afterwards. In a sub-topology with joins
only the tables and the dead letters are compared.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import Any, TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streamplan.checks.framework.check import Observation
from streamplan.checks.framework.cluster import Cluster
from streamplan.checks.framework.consistent_cut import ConsistentCut, Deadline, await_consistent_cut
from streamplan.errors import CouldNotLook
from streamplan.kafka.brokers import Brokers
from streamplan.model.dead_letters import SOURCE_OFFSET, SOURCE_PARTITION, SOURCE_TOPIC, TASK
from streamplan.model.operations import Aggregate, Count
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import Processor, Source, Subtopology
from streamplan.model.windows import STORED_WINDOW_BYTES, WINDOW_START_BYTES
from streamplan.serdes.serde import Serde
from streamplan.spark.planning.operators import OperatorPlanner, read_source
from streamplan.spark.planning.output_rows import DEAD_LETTER
from streamplan.spark.planning.plan import number_outputs
from streamplan.spark.planning.records import RecordFrame
from streamplan.spark.planning.stream_table_join import join_tables, joined_frames
from streamplan.spark.planning.validation import resolve_schemas
from streamplan.spark.sink.spec import Output, PartitionBy
from streamplan.spark.sources import read_batch

NAMED = 20
"""The most wrong keys of an output that get a row each; the others are counted."""


_Read: TypeAlias = Callable[[str, Mapping[int, int]], DataFrame]
"""Reads the committed records of a topic up to the given offset of each partition."""


def recount(spark: SparkSession, pipeline: Pipeline, cluster: Cluster, brokers: Brokers) -> Iterator[Observation]:
    """Compute the rows of the totals check.

    Args:
        spark: A session for batches.
        pipeline: Whose outputs are compared.
        cluster: Answers positions, offsets and configurations.
        brokers: Where Spark reads the records.

    Yields:
        For each output the expected and the observed number of keys or records, and a row for each wrong key.

    Raises:
        CouldNotLook: Records of an input are gone.
    """
    assert spark.streams.active is not None  # this creates the state store coordinator, which a join needs
    topology = pipeline.topology
    names = [spec.name for spec in pipeline.topics()]
    if missing := sorted(set(names) - cluster.topics(names).keys()):
        yield from (Observation(f"topic {topic}", "exists", "missing") for topic in missing)
        return
    schemas = resolve_schemas(spark, pipeline)
    read: _Read = partial(read_batch, spark, brokers)
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
        expected = _expected(pipeline, subtopology, schemas, read, cut).persist()
        try:
            yield from _compare(pipeline, subtopology, read, cut, expected)
        finally:
            expected.unpersist()


def _refuse_gaps(topics: Sequence[str], cluster: Cluster, configs: Mapping[str, Mapping[str, str]]) -> None:
    gone = {
        f"{topic}-{partition}": offsets.log_start
        for topic in topics
        if configs[topic].get("cleanup.policy") != "compact"  # there the last value of each key is enough
        for partition, offsets in cluster.offsets(topic).items()
        if offsets.log_start > 0
    }
    if gone:
        raise CouldNotLook(
            f"what was made of {', '.join(topics)} cannot be recounted",
            expected="every record since offset 0",
            observed=", ".join(f"{partition} begins at offset {start}" for partition, start in gone.items()),
            remedy="What was deleted may have been processed rightly or not: it can no longer be proven.",
        )


def _expected(
    pipeline: Pipeline, subtopology: Subtopology, schemas: Mapping[str, Serde], read: _Read, cut: ConsistentCut
) -> DataFrame:
    """The rows that the inputs demand, of the columns ``OUTPUT`` of :mod:`streamplan.spark.planning.output_rows`."""
    numbers, _ = number_outputs(pipeline, subtopology)
    planner = OperatorPlanner(subtopology, numbers)

    def frame(source: Source) -> RecordFrame:
        topic = pipeline.topology.decorate(source.topic)
        return read_source(subtopology, source, schemas, read(topic, cut.positions[topic]))

    frames = {source.name: frame(source) for source in subtopology.sources}
    if subtopology.joins:
        stores = subtopology.table_stores
        frames = joined_frames(join_tables(frames, stores), frames, stores)
    for name, records in frames.items():
        planner.bind(name, records)
    planner.plan(subtopology.nodes)
    return reduce(DataFrame.unionByName, planner.take_output_rows().rows)


def _compare(
    pipeline: Pipeline, subtopology: Subtopology, read: _Read, cut: ConsistentCut, expected: DataFrame
) -> Iterable[Observation]:
    numbers, outputs = number_outputs(pipeline, subtopology)
    after_joins = subtopology.downstream_of({node.name for node in subtopology.joins})
    after_aggregations = subtopology.downstream_of({node.name for node in subtopology.aggregations})
    nodes = {node.name: node for node in subtopology.nodes}
    for name, number in numbers.items():
        output = outputs[number]
        demanded = expected.where(F.col("output") == number)
        written = read(output.topic, cut.ends[output.topic])
        if output.partition_by is PartitionBy.TASK or name in after_aggregations:
            yield from _compare_last_values(output, demanded, written, _retention_ms(nodes[name]))
        elif name not in after_joins:
            yield from _compare_records(output, demanded, written)
    yield _compare_dead_letters(pipeline, subtopology, read, cut, expected)


def _retention_ms(node: Any) -> int | None:
    if isinstance(node, Processor) and isinstance(node.operation, Count | Aggregate) and node.operation.window:
        return node.operation.window.retention_ms
    return None


def _compare_last_values(
    output: Output, demanded: DataFrame, written: DataFrame, retention_ms: int | None
) -> Iterable[Observation]:
    """Compare the last value of each key. Of a windowed store only the windows that it must still hold count."""
    expected = demanded.groupBy("key").agg(F.max_by("value", F.struct("offset", "order")).alias("expected"))
    last = written.where("key is not null").groupBy("key").agg(F.max_by("value", F.struct("offset")).alias("observed"))
    both = expected.join(last, "key", "full_outer").where("expected is not null or observed is not null")
    if retention_ms is not None:
        start = F.substr("key", F.length("key") - (STORED_WINDOW_BYTES - 1), F.lit(WINDOW_START_BYTES))
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


def _compare_records(output: Output, demanded: DataFrame, written: DataFrame) -> Iterable[Observation]:
    """Compare all records: their number and, where that agrees, a digest of them."""
    digest = F.bit_xor(F.xxhash64("key", "value"))
    expected = demanded.agg(F.count("*"), digest).first()
    observed = written.agg(F.count("*"), digest).first()
    if expected is None or observed is None:
        raise TypeError("an aggregate without groups has one row")
    yield Observation(f"{output.topic}: records", expected[0], observed[0])
    if expected[0] == observed[0]:
        yield Observation(f"{output.topic}: digest of keys and values", f"{expected[1]}", f"{observed[1]}")


def _compare_dead_letters(
    pipeline: Pipeline, subtopology: Subtopology, read: _Read, cut: ConsistentCut, expected: DataFrame
) -> Observation:
    topic = pipeline.topology.dead_letter_topic
    # There is one dead letter for each operation that could not process the record, and no more.
    demanded = expected.where(F.col("output") == DEAD_LETTER).select("topic", "partition", "offset")
    dead_letters = read(topic, cut.ends[topic]).where(_header(TASK).startswith(f"{subtopology.id}_"))
    written = dead_letters.select(
        _header(SOURCE_TOPIC).alias("topic"),
        _header(SOURCE_PARTITION).cast("int").alias("partition"),
        _header(SOURCE_OFFSET).cast("long").alias("offset"),
    )
    differences = demanded.exceptAll(written).unionByName(written.exceptAll(demanded))
    wrong = differences.orderBy("topic", "partition", "offset").limit(NAMED).collect()
    named = ", ".join(f"{row['topic']}-{row['partition']} offset {row['offset']}" for row in wrong)
    count = demanded.count()
    return Observation(
        f"{topic}: records that sub-topology {subtopology.id} could not process{f' (see {named})' if named else ''}",
        count,
        count if not wrong else written.count(),
    )


def _header(name: str) -> Column:
    """The last header of this name: headers of the record itself come before those that we add."""
    headers = F.from_json("headers", "array<struct<key: string, value: binary>>")
    values = F.filter(headers, lambda header: header["key"] == name)
    return F.try_element_at(values, F.lit(-1))["value"].cast("string")


def _alike(expected: bytes | None, observed: bytes | None) -> bool:
    """Whether two JSON values differ in nothing but the rounding of sums in another order."""
    try:
        left, right = json.loads(expected or b""), json.loads(observed or b"")
    except ValueError:
        return False
    return _close(left, right)


def _close(left: Any, right: Any) -> bool:
    if (isinstance(left, float) and isinstance(right, float | int)) or (
        isinstance(right, float) and isinstance(left, int)
    ):
        return math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-12)
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_close(value, right[name]) for name, value in left.items())
    return bool(left == right)


def _text(value: bytes | None) -> str:
    if value is None:
        return "none"
    if (len(value) == 8 and not bytes(value).isascii()) or bytes(value)[:4] == bytes(4):
        return str(int.from_bytes(value, "big", signed=True)) if len(value) == 8 else repr(bytes(value))
    return bytes(value).decode("utf-8", "backslashreplace")
