"""The execution plan of a sub-topology, on Spark's native operators.

A record takes one way through it: source, operations before the states, states, operations on the micro-batch, writer.
A sub-topology is cut at its states: what comes before them is part of the streaming plan, and what follows is done with
each micro-batch, which is an ordinary DataFrame with any number of branches. Where the cut is follows from the kinds of
state: :mod:`streamplan.spark.planning.stages`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from streamplan.model.left_out import records_left_out
from streamplan.model.linking import functions_of, is_record_by_record, passing, re_keying
from streamplan.model.operations import (
    ACTS,
    SETS_KEY,
    Aggregate,
    Count,
    ForeignTableJoin,
    SubscriptionJoin,
)
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import Node, Processor, Sink, Source, Subtopology
from streamplan.model.windows import SessionWindows, TimeWindows
from streamplan.serdes.serde import Serde
from streamplan.serdes.windowed import TimeWindowed, Windowed
from streamplan.spark.global_tables import ReadTable
from streamplan.spark.planning.operators import OperatorPlanner, read_source
from streamplan.spark.planning.output_rows import rows_of_records
from streamplan.spark.planning.records import RecordFrame
from streamplan.spark.planning.stages import plan_of
from streamplan.spark.planning.stages.stage_plan import Cut, Sources, StagePlan, batch_of
from streamplan.spark.sink.spec import TASK_ORDER, Output, PartitionBy
from streamplan.spark.sink.writers import PassedRecords, PlannedRows, RekeyedRecords, RowFormat, RowsOfRecords


@dataclass(frozen=True)
class SubtopologyPlan:
    """How Spark runs a sub-topology.

    ``streaming``     the plan of the streaming query, ``stateful`` or not
    ``batch``         stands for each micro-batch of it (:mod:`streamplan.spark.planning.compiled_plan`)
    ``rows``          what is made of ``batch``: the rows that the writer is given
    ``collected``     the same without an order, for the driver, which arranges them by ``row_format``
    ``row_format``    what the writer has to know of these rows
    ``outputs``       the topics that the rows name by their number
    ``schemas``       the serdes of the repartition topics among them
    ``written``       what is known of the records of each output, by its number
    ``observations``  the metrics of each peek by its name; they are there when the rows were collected
    ``cache_batch``   whether ``rows`` reads the micro-batch more than once, so that it must be cached
    """

    streaming: DataFrame
    stateful: bool
    batch: DataFrame
    rows: DataFrame
    collected: DataFrame
    row_format: RowFormat
    outputs: tuple[Output, ...]
    schemas: Mapping[str, Serde]
    written: Mapping[int, RecordFrame]
    observations: tuple[tuple[str, Observation], ...] = ()
    cache_batch: bool = False

    @contextmanager
    def cached(self, batch: DataFrame, *, always: bool = False) -> Iterator[DataFrame]:
        """Give the micro-batch, computed once where ``rows`` reads it more than once.

        A micro-batch claims to be ordered by columns that it no longer has, and Spark 4.2 then fails to cache it ("key
        not found" in InMemoryRelation.withOutput). Its union with an empty DataFrame claims nothing.

        Args:
            batch: The micro-batch.
            always: Whether something else reads it, too.
        """
        if not self.cache_batch and not always:
            yield batch
            return
        cached = batch.unionByName(self._empty_batch).persist()
        try:
            yield cached
        finally:
            cached.unpersist()

    @cached_property
    def _empty_batch(self) -> DataFrame:
        return self.streaming.sparkSession.createDataFrame([], self.streaming.schema)


def plan_subtopology(
    pipeline: Pipeline,
    subtopology: Subtopology,
    schemas: Mapping[str, Serde],
    read: Callable[[Source], DataFrame],
    ticks: Callable[[], DataFrame] | None = None,
    read_table: ReadTable | None = None,
) -> SubtopologyPlan:
    """Plan a sub-topology from its sources to the rows that are written.

    Args:
        pipeline: That the sub-topology belongs to.
        subtopology: What is planned.
        schemas: The serdes of the repartition topics that it reads.
        read: Gives the records of a source as a stream, in the columns :data:`streamplan.spark.sources.RAW`.
        ticks: Gives a stream with a row for each stream task now and then, in the column ``partition``. It is read
            where the time of a task goes on by the wall clock, and only there it must be given.
        read_table: Reads global tables in the workers. It must be given where there are any.

    Raises:
        PySparkException: Spark refuses an expression.
        Refused: A repartition topic cannot carry a field.
    """
    outputs = outputs_of(pipeline, subtopology)
    raw = {source.name: read(source) for source in subtopology.sources}
    if (rekeying := _rekeying(pipeline, subtopology)) is not None:
        (records,) = raw.values()
        streaming = records.withColumn("timestamp", F.unix_millis("timestamp")).drop("topic")
        batch = batch_of(streaming)
        carried = {sink.topic: rekeying.serde.unrestricted() for sink in subtopology.sinks if sink.internal}
        rekeyed = RecordFrame(records, value_is_raw=True, serde=rekeying.serde, format=rekeying.serde.format)
        return SubtopologyPlan(streaming, False, batch, batch, batch, rekeying, outputs, carried, {0: rekeyed})
    topics = {source.name: pipeline.topology.decorate(source.topic) for source in subtopology.sources}
    if is_record_by_record(subtopology):
        ((name, records),) = raw.items()
        return _record_by_record(pipeline, subtopology, schemas, records, topics[name])
    stage = plan_of(subtopology)
    planner = stage.planner()
    planner.read_table = read_table
    return planned_behind(
        pipeline, subtopology, stage, planner, stage.stream(Sources(subtopology, schemas, raw, topics), planner, ticks)
    )


def _record_by_record(
    pipeline: Pipeline, subtopology: Subtopology, schemas: Mapping[str, Serde], records: DataFrame, topic: str
) -> SubtopologyPlan:
    """Plan a sub-topology that makes records of each record by itself: its rows need no shuffle and no sort."""
    planner = OperatorPlanner(subtopology, plan_of(subtopology).apply, keeps_rows=True)
    (source,) = subtopology.sources
    planner.bind(source.name, read_source(subtopology, source, schemas, records))
    planner.plan(subtopology.nodes)
    streaming = rows_of_records(planner.written[0])
    batch = batch_of(streaming)
    schemas_written = planner.take_output_rows().schemas
    return SubtopologyPlan(
        streaming,
        False,
        batch,
        batch,
        batch,
        RowsOfRecords(topic, by_functions=bool(functions_of(subtopology))),
        outputs_of(pipeline, subtopology),
        schemas_written,
        planner.written,
    )


def planned_behind(
    pipeline: Pipeline, subtopology: Subtopology, stage: StagePlan[Any], planner: OperatorPlanner, cut: Cut
) -> SubtopologyPlan:
    """Plan what is done with each micro-batch, behind the cut.

    Args:
        pipeline: That the sub-topology belongs to.
        subtopology: What is planned.
        stage: The plans of its state.
        planner: Of the sub-topology; it goes on with what the streaming plan gives.
        cut: Where the streaming plan ends.
    """
    outputs = outputs_of(pipeline, subtopology)
    planner.plan(subtopology.nodes)
    output = planner.take_output_rows()
    rows = reduce(lambda upper, lower: upper.unionByName(lower), output.rows)
    return SubtopologyPlan(
        cut.streaming,
        stage.stage.has_state,
        cut.batch,
        _by_task(rows, pipeline.partitions(subtopology)),
        rows,
        PlannedRows(stage.stage.is_divisible),
        outputs,
        output.schemas,
        planner.written,
        output.observations,
        cache_batch=cut.divided or len(outputs) > 1 or any(isinstance(each, ACTS) for each in subtopology.operations),
    )


def outputs_of(pipeline: Pipeline, subtopology: Subtopology) -> tuple[Output, ...]:
    """Return the outputs of a sub-topology, in the order of their numbers (:attr:`Subtopology.output_numbers`)."""
    topology = pipeline.topology
    outputs: list[Output] = []
    for node in subtopology.writers:
        if isinstance(node, Sink):
            topic = topology.decorate(node.topic)
            outputs.append(Output(topic, _partition_by_sink(subtopology, node), pipeline.partition_counts[topic]))
        else:
            changelog = topology.changelog_topic(node.store or "")
            outputs.append(Output(changelog, PartitionBy.TASK, pipeline.partitions(subtopology)))
    return tuple(outputs)


def _by_task(together: DataFrame, partitions: int) -> DataFrame:
    """Arrange rows so that one Spark task, and no other, writes for a stream task, in the order of the records.

    :class:`PlannedRows` commits between two records: the rows of one record follow each other, and the records of one
    topic have the order of its offsets. What belongs to no record comes behind them: updates of aggregates, which the
    library's record cache passes then, and changes of stores. A row for each partition, sorted last, tells the writer
    that it has seen all rows of the partition.
    """
    types = {name: data_type for name, data_type in together.dtypes if name != "partition"}
    last_rows = together.sparkSession.range(0, partitions, 1, 1).select(
        F.col("id").cast("int").alias("partition"),
        *(F.lit(None).cast(data_type).alias(name) for name, data_type in types.items()),
        F.lit(True).alias("last"),
    )
    marked = together.withColumn("last", F.lit(False)).unionByName(last_rows)
    placed = marked.repartitionById(partitions, F.col("partition"))
    return placed.sortWithinPartitions("last", F.col("topic").isNull(), *TASK_ORDER)


def _rekeying(pipeline: Pipeline, subtopology: Subtopology) -> RekeyedRecords | None:
    """Return how the writer re-keys, for a sub-topology that only makes the text of a field of the value the key.

    Such records need no second way through Python, and no shuffle.
    """
    found, kind = re_keying(subtopology), RekeyedRecords
    if found is None:
        found, kind = passing(subtopology), PassedRecords
    if found is None:
        return None
    source, key = found
    assert source.value is not None
    name = pipeline.topology.decorate(source.topic)
    left_out = frozenset(record for record in records_left_out() if record.topic == name)
    return kind(name, source.value, key, left_out)


def _partition_by_sink(subtopology: Subtopology, sink: Sink) -> PartitionBy:
    """What the records of a sink are partitioned by.

    In the library only a sink knows that its serde of keys is a windowed one (``StreamSinkNode``). A repartition topic
    is partitioned by all bytes of a key.
    """
    by = _partition_by(subtopology, sink)
    serde = subtopology.key_serde_of(sink.name)
    if by is not PartitionBy.KEY or sink.internal or not isinstance(serde, Windowed):
        return by
    return PartitionBy.WINDOWED_KEY if isinstance(serde, TimeWindowed) else PartitionBy.SESSION_KEY


def _partition_by(subtopology: Subtopology, node: Node) -> PartitionBy:
    """What the records of a node are partitioned by: whether they have a windowed key."""
    if isinstance(node, Processor):
        match node.operation:
            case Count(window=TimeWindows()) | Aggregate(window=TimeWindows()):
                return PartitionBy.WINDOWED_KEY
            case Count(window=SessionWindows()) | Aggregate(window=SessionWindows()):
                return PartitionBy.SESSION_KEY
            case SubscriptionJoin() | ForeignTableJoin():
                return PartitionBy.BEHIND_VALUE
            case operation if isinstance(operation, SETS_KEY):
                return PartitionBy.KEY
    nodes = {node.name: node for node in subtopology.nodes}
    before = [_partition_by(subtopology, nodes[name]) for name in subtopology.predecessors[node.name]]
    return next((by for by in before if by is not PartitionBy.KEY), PartitionBy.KEY)
