"""The execution plan of a sub-topology, on Spark's native operators.

A record takes one way through it: source, operations before the state, (state), operations on the micro-batch, writer.
A streaming query has at most one stateful operator. So a sub-topology is cut there: what comes before it is part of the
streaming plan, and what follows is done with each micro-batch, which is an ordinary DataFrame with any number of
branches.

    sub-topology    in the streaming plan                    | with each micro-batch
    re-keying       source                                   | nothing; the writer selects the keys
    without state   sources                                  | every operation, outputs
    aggregations    sources, operations, one groupBy         | changelogs, every operation after them, outputs
    joins           sources, look-up of the record's key     | changelogs, every operation, outputs
    two streams     sources, operations, join                | changelogs, every operation after it, outputs
    windows         sources, operations, windows             | changelog, every operation after it, outputs
    two tables      sources, joins of their updates          | changelogs, every operation, outputs
    a foreign key   sources, one side of the join            | changelogs, every operation, outputs
    process         sources, operations, Python class        | changelog, every operation after it, outputs

Windows by the time of the stream task are those of sessions, and those of final results.

Several aggregations side by side share the groupBy; the column ``node`` tells them apart. Several joins share the
look-up: the key of a joined record is the one it was read with, since a changed key goes through a repartition topic
first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, reduce

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from streamplan.model.left_out import records_left_out
from streamplan.model.operations import (
    SETS_KEY,
    Aggregate,
    Count,
    ForeignKeyResult,
    ForeignTableJoin,
    KeySelect,
    NullKeyFilter,
    ResponseJoin,
    StreamJoin,
    SubscriptionJoin,
    SubscriptionReceive,
    SubscriptionSend,
)
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import Node, Processor, Sink, Source, Subtopology
from streamplan.model.windows import SessionWindows, TimeWindows
from streamplan.serdes.primitive import String
from streamplan.serdes.serde import Serde, is_key_field
from streamplan.spark.planning.aggregation import aggregate, restore_aggregation, store_result, store_rows
from streamplan.spark.planning.compiled_plan import batch_template
from streamplan.spark.planning.foreign_key_join import (
    carrying_source,
    join_by_foreign_key,
    joined_by_foreign_key,
    records_of_table,
    restore_foreign_key_join,
    sent_records,
    stored_subscriptions,
    table_source,
)
from streamplan.spark.planning.foreign_key_state import Made
from streamplan.spark.planning.operators import OperatorPlanner, read_source
from streamplan.spark.planning.output_rows import dead_letter_rows
from streamplan.spark.planning.process import process_records, restore_process
from streamplan.spark.planning.records import RecordFrame
from streamplan.spark.planning.stream_stream_join import (
    join_streams,
    joined_records,
    restore_join,
    shared_changes,
    stored_records,
)
from streamplan.spark.planning.stream_table_join import join_streams_with_tables, joined_frames
from streamplan.spark.planning.table_table_join import (
    join_table_updates,
    joined_tables,
    records_of_sources,
    restore_table_joins,
)
from streamplan.spark.planning.task_windows import aggregate_windows, restore_windows
from streamplan.spark.sink.spec import TASK_ORDER, Output, PartitionBy
from streamplan.spark.sink.writers import PlannedRows, RekeyedRecords, RowFormat


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
    def cached(self, batch: DataFrame) -> Iterator[DataFrame]:
        """Give the micro-batch, computed once where ``rows`` reads it more than once.

        A micro-batch claims to be ordered by columns that it no longer has, and Spark 4.2 then fails to cache it ("key
        not found" in InMemoryRelation.withOutput). Its union with an empty DataFrame claims nothing.
        """
        if not self.cache_batch:
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
) -> SubtopologyPlan:
    """Plan a sub-topology from its sources to the rows that are written.

    Args:
        pipeline: That the sub-topology belongs to.
        subtopology: What is planned.
        schemas: The serdes of the repartition topics that it reads.
        read: Gives the records of a source as a stream, in the columns :data:`streamplan.spark.sources.RAW`.
        ticks: Gives a stream with a row for each stream task now and then, in the column ``partition``. It is read
            where the time of a task goes on by the wall clock, and only there it must be given.

    Raises:
        PySparkException: Spark refuses an expression.
        Refused: A repartition topic cannot carry a field.
    """
    numbers, outputs = number_outputs(pipeline, subtopology)
    raw = {source.name: read(source) for source in subtopology.sources}
    if (rekeying := _rekeying(pipeline, subtopology)) is not None:
        (records,) = raw.values()
        streaming = records.withColumn("timestamp", F.unix_millis("timestamp")).drop("topic")
        batch = _batch_of(streaming)
        carried = {sink.topic: rekeying.serde.unrestricted() for sink in subtopology.sinks if sink.internal}
        rekeyed = RecordFrame(records, value_is_raw=True, serde=rekeying.serde, format=rekeying.serde.format)
        return SubtopologyPlan(streaming, False, batch, batch, batch, rekeying, outputs, carried, {0: rekeyed})
    planner = OperatorPlanner(subtopology, numbers)
    if subtopology.task_aggregations:
        of_idle_tasks = None
        if subtopology.idle_ms is not None:
            assert ticks is not None, f"sub-topology {subtopology.id} needs ticks"
            of_idle_tasks = ticks()
        cut = _cut_at_windows(subtopology, schemas, raw, planner, of_idle_tasks)
    elif subtopology.aggregations:
        cut = _cut_at_aggregations(subtopology, schemas, raw, planner)
    elif subtopology.joins:
        cut = _cut_at_joins(subtopology, schemas, raw, planner)
    elif subtopology.stream_joins:
        cut = _cut_at_stream_join(subtopology, schemas, raw, planner)
    elif subtopology.foreign_key_sides:
        cut = _cut_at_foreign_key(subtopology, schemas, raw, planner)
    elif subtopology.table_joins:
        cut = _cut_at_table_joins(subtopology, schemas, raw, planner)
    elif subtopology.processes:
        cut = _cut_at_process(subtopology, schemas, raw, planner)
    else:
        cut = _cut_at_sources(pipeline, subtopology, schemas, raw, planner)
    planner.plan(subtopology.nodes)
    output = planner.take_output_rows()
    rows = reduce(lambda upper, lower: upper.unionByName(lower), output.rows)
    return SubtopologyPlan(
        cut.streaming,
        cut.stateful,
        cut.batch,
        _by_task(rows, pipeline.partitions(subtopology)),
        rows,
        PlannedRows(),
        outputs,
        output.schemas,
        planner.written,
        output.observations,
        cache_batch=cut.divided or len(outputs) > 1,
    )


def plan_restore(
    pipeline: Pipeline,
    subtopology: Subtopology,
    schemas: Mapping[str, Serde],
    stored: Callable[[Processor], DataFrame],
    times: Mapping[int, int],
) -> DataFrame:
    """Plan the stateful operator of a sub-topology over what its stores hold instead of records.

    Args:
        pipeline: That the sub-topology belongs to.
        subtopology: With state.
        schemas: The serdes of the repartition topics that it reads.
        stored: Gives the rows of a processor's store, in the columns :data:`streamplan.spark.sources.RAW`.
        times: By partition the time in ms that the wall clock has given to a stream task.

    Returns:
        A streaming plan that leaves the state which the plan of the sub-topology goes on with.
    """
    nodes, stores = subtopology.aggregations, subtopology.table_stores
    names = [source.name for source in subtopology.sources]
    store_writers = {node.store: node for node in subtopology.processors if node.writes_store}
    no_records = stored(next(iter(store_writers.values()))).where("false")
    if nodes:
        frames = _read_sources(subtopology, schemas, dict.fromkeys(names, no_records))
        planner = OperatorPlanner(subtopology, output_numbers(subtopology))
        planner.bind_all(frames)
        inputs = planner.aggregation_inputs(nodes)
        if subtopology.task_aggregations:
            (node,) = nodes
            return restore_windows(node, inputs[node.name], stored(node), times)
        rows = {node.name: stored(node) for node in nodes}
        return restore_aggregation(
            nodes, inputs, rows, merged=len(names) > 1, ordered=subtopology.passes_updates_in_order
        )
    if subtopology.stream_joins:
        (join,) = subtopology.stream_joins
        assert isinstance(join.operation, StreamJoin)
        frames = _read_sources(subtopology, schemas, dict.fromkeys(names, no_records))
        planner = OperatorPlanner(subtopology, output_numbers(subtopology))
        sides = subtopology.sides_of(join)
        planner.bind_all(frames)
        join_inputs = planner.join_inputs(sides)
        shared = subtopology.shared_by(join)
        waiting = stored(shared) if shared is not None else None
        return restore_join(join_inputs, [stored(side) for side in sides], waiting, join.operation)
    if subtopology.processes:
        (node,) = subtopology.processes
        return restore_process(node, subtopology.key_serde_of(node.name), stored(node))
    raw = {name: stored(store_writers[stores[name]]) if name in stores else no_records for name in names}
    if subtopology.foreign_key_sides:
        for node in subtopology.responders:
            raw[carrying_source(subtopology).name] = stored_subscriptions(stored(node))
        frames = _read_sources(subtopology, schemas, raw)
        of_result = next(
            (node for node in subtopology.processors if isinstance(node.operation, ForeignKeyResult)), None
        )
        has_store = of_result is not None and of_result.writes_store
        return restore_foreign_key_join(subtopology, frames, stored(of_result) if of_result and has_store else None)
    tables = _read_sources(subtopology, schemas, raw)
    if subtopology.table_joins:
        results = {node.name: stored(node) for node in subtopology.table_joins if node.writes_store}
        return restore_table_joins(subtopology, tables, results)
    return join_streams_with_tables(tables, stores)


def number_outputs(pipeline: Pipeline, subtopology: Subtopology) -> tuple[dict[str, int], tuple[Output, ...]]:
    """Number the outputs of a sub-topology.

    Returns:
        The number of each output, by the name of its sink or of its processor with a changelog; and the outputs in the
        order of these numbers.
    """
    topology = pipeline.topology
    outputs: list[Output] = []
    for node in _writers(subtopology):
        if isinstance(node, Sink):
            by = _partition_by(subtopology, node)
            topic = topology.decorate(node.topic)
            output = Output(topic, by, pipeline.partition_counts[topic])
        else:
            changelog = topology.changelog_topic(node.store or "")
            output = Output(changelog, PartitionBy.TASK, pipeline.partitions(subtopology))
        outputs.append(output)
    return output_numbers(subtopology), tuple(outputs)


def output_numbers(subtopology: Subtopology) -> dict[str, int]:
    """Return the number of each output, by the name of its sink or of its processor with a changelog."""
    return {node.name: number for number, node in enumerate(_writers(subtopology))}


def _writers(subtopology: Subtopology) -> list[Sink | Processor]:
    return [
        node
        for node in subtopology.nodes
        if isinstance(node, Sink) or (isinstance(node, Processor) and node.writes_store and node.store is not None)
    ]


@dataclass(frozen=True)
class _Cut:
    """Where the streaming plan ends and the plan of the micro-batch begins.

    ``divided``  whether the micro-batch is read as several DataFrames from the first operation on
    """

    streaming: DataFrame
    stateful: bool
    batch: DataFrame
    divided: bool


def _cut_at_sources(
    pipeline: Pipeline,
    subtopology: Subtopology,
    schemas: Mapping[str, Serde],
    raw: Mapping[str, DataFrame],
    planner: OperatorPlanner,
) -> _Cut:
    """Let the planner begin with the records of a micro-batch, by their topics."""
    streaming = reduce(DataFrame.unionByName, raw.values())
    batch = _batch_of(streaming)
    for source in subtopology.sources:
        topic = pipeline.topology.decorate(source.topic)
        records = batch if len(raw) == 1 else batch.where(F.col("topic") == topic)
        planner.bind(source.name, read_source(subtopology, source, schemas, records))
    return _Cut(streaming, False, batch, divided=len(raw) > 1)


def _cut_at_joins(
    subtopology: Subtopology, schemas: Mapping[str, Serde], raw: Mapping[str, DataFrame], planner: OperatorPlanner
) -> _Cut:
    """Let the planner begin with the joined records of each source."""
    stores = subtopology.table_stores
    frames = _read_sources(subtopology, schemas, raw)
    streaming = join_streams_with_tables(frames, stores)
    batch = _batch_of(streaming)
    planner.bind_all(joined_frames(batch, frames, stores))
    return _Cut(streaming, True, batch, divided=True)


def _cut_at_table_joins(
    subtopology: Subtopology, schemas: Mapping[str, Serde], raw: Mapping[str, DataFrame], planner: OperatorPlanner
) -> _Cut:
    """Let the planner begin with the records of each source, and with the updates of each joined table."""
    frames = _read_sources(subtopology, schemas, raw)
    streaming = join_table_updates(subtopology, frames)
    batch = _batch_of(streaming)
    planner.bind_joined_tables(
        records_of_sources(batch, frames), joined_tables(batch, subtopology, frames), subtopology.table_joins
    )
    return _Cut(streaming, True, batch, divided=True)


def _cut_at_foreign_key(
    subtopology: Subtopology, schemas: Mapping[str, Serde], raw: Mapping[str, DataFrame], planner: OperatorPlanner
) -> _Cut:
    """Let the planner begin with the records of the table of one side, and with what this side has made of all."""
    frames = _read_sources(subtopology, schemas, raw)
    streaming = join_by_foreign_key(subtopology, frames)
    batch = _batch_of(streaming)
    bind_foreign_key_side(subtopology, frames, batch, planner)
    return _Cut(streaming, True, batch, divided=True)


def bind_foreign_key_side(
    subtopology: Subtopology, frames: Mapping[str, RecordFrame], batch: DataFrame, planner: OperatorPlanner
) -> None:
    """Let a planner begin with the records of the table of one side, and with what this side has made of all.

    Args:
        subtopology: With one side of a join by a foreign key.
        frames: What its sources give; only what is known of them is used.
        batch: What :func:`~streamplan.spark.planning.foreign_key_join.join_by_foreign_key` gave.
        planner: Of the sub-topology.
    """
    table = table_source(subtopology)
    records = records_of_table(batch, frames[table.name])
    planner.write(dead_letter_rows(records.rejected()))
    planner.bind(table.name, records.accepted())
    carrying = frames[carrying_source(subtopology).name]
    for node in subtopology.processors:
        match node.operation:
            case SubscriptionSend(key_serde=key_serde):
                known = replace(frames[table.name], key_serde=key_serde)
                planner.bind(node.name, sent_records(batch, Made.SUBSCRIPTION, known))
            case SubscriptionReceive():
                stored = sent_records(batch, Made.STORED, carrying)
                planner.bind(node.name, stored)
                planner.write_sent(node, stored)
            case SubscriptionJoin(key_serde=key_serde):
                known = replace(carrying, key_serde=key_serde)
                planner.bind(node.name, sent_records(batch, Made.RESPONSE, known))
            case ForeignTableJoin(key_serde=key_serde):  # the node before has all responses
                known = replace(carrying, key_serde=key_serde)
                planner.bind(node.name, sent_records(batch.where("false"), Made.RESPONSE, known))
            case ResponseJoin():
                planner.bind(node.name, joined_by_foreign_key(batch, subtopology, frames))


def _cut_at_aggregations(
    subtopology: Subtopology, schemas: Mapping[str, Serde], raw: Mapping[str, DataFrame], planner: OperatorPlanner
) -> _Cut:
    """Let the planner go on with what the aggregations store, and with the rows that were complete before them."""
    nodes = subtopology.aggregations
    planner.bind_all(_read_sources(subtopology, schemas, raw))
    inputs = planner.aggregation_inputs(nodes)
    aggregated = aggregate(nodes, inputs, merged=len(raw) > 1, ordered=subtopology.passes_updates_in_order)
    streaming, batch, aggregated_batch = _behind_state(aggregated, planner)
    for number, node in enumerate(nodes):
        stored = store_rows(number, node, aggregated_batch, inputs[node.name])
        planner.write_changelog(node, stored)
        planner.bind(node.name, store_result(node, stored))
    return _Cut(streaming, True, batch, divided=batch is not aggregated_batch)


def _cut_at_windows(
    subtopology: Subtopology,
    schemas: Mapping[str, Serde],
    raw: Mapping[str, DataFrame],
    planner: OperatorPlanner,
    ticks: DataFrame | None,
) -> _Cut:
    """Let the planner go on with the windows that have changed, or that close, and with what was complete before."""
    (node,) = subtopology.task_aggregations
    planner.bind_all(_read_sources(subtopology, schemas, raw))
    inputs = planner.aggregation_inputs([node])[node.name]
    streaming, batch, changed = _behind_state(aggregate_windows(node, inputs, ticks), planner)
    planner.bind(node.name, planner.with_windows(node, changed, inputs))
    divided = node in subtopology.final_aggregations or batch is not changed
    return _Cut(streaming, True, batch, divided=divided)


def _cut_at_stream_join(
    subtopology: Subtopology, schemas: Mapping[str, Serde], raw: Mapping[str, DataFrame], planner: OperatorPlanner
) -> _Cut:
    """Let the planner go on with what two streams give, and with the rows that were complete before."""
    (join,) = subtopology.stream_joins
    assert isinstance(join.operation, StreamJoin)
    sides = subtopology.sides_of(join)
    planner.bind_all(_read_sources(subtopology, schemas, raw))
    inputs = planner.join_inputs(sides)
    streaming, batch, joined = _behind_state(join_streams(inputs, join.operation), planner)
    for number, side in enumerate(sides):
        stored = stored_records(number, joined, inputs[number])
        planner.write_changelog(side, stored)
        planner.bind(side.name, stored)
    if (shared := subtopology.shared_by(join)) is not None:
        planner.write_changelog(shared, shared_changes(joined))
    planner.bind(join.name, joined_records(joined, inputs).select(join.operation.value))
    return _Cut(streaming, True, batch, divided=True)


def _cut_at_process(
    subtopology: Subtopology, schemas: Mapping[str, Serde], raw: Mapping[str, DataFrame], planner: OperatorPlanner
) -> _Cut:
    """Let the planner go on with what a Python class gives, and with the rows that were complete before."""
    (node,) = subtopology.processes
    planner.bind_all(_read_sources(subtopology, schemas, raw))
    inputs = planner.process_input(node)
    streaming, batch, processed = _behind_state(process_records(node, inputs), planner)
    planner.bind(node.name, planner.with_store(node, processed, inputs))
    return _Cut(streaming, True, batch, divided=True)


def _behind_state(stateful: DataFrame, planner: OperatorPlanner) -> tuple[DataFrame, DataFrame, DataFrame]:
    """Let the planner write the rows that were complete before the state, such as dead letters.

    Returns:
        The streaming plan, the micro-batch, and of the micro-batch what the stateful operator gave.
    """
    early = planner.take_output_rows().rows
    if not early:
        batch = _batch_of(stateful)
        return stateful, batch, batch
    streaming = _with_early_rows(stateful, early)
    batch = _batch_of(streaming)
    planner.write(batch.where("finished is not null").select("finished.*"))
    return streaming, batch, batch.where("held is not null").select("held.*")


def _read_sources(
    subtopology: Subtopology, schemas: Mapping[str, Serde], raw: Mapping[str, DataFrame]
) -> dict[str, RecordFrame]:
    return {source.name: read_source(subtopology, source, schemas, raw[source.name]) for source in subtopology.sources}


def _with_early_rows(aggregated: DataFrame, early: Sequence[DataFrame]) -> DataFrame:
    """What was aggregated, and output rows that need no aggregation, in one plan: a query has one."""
    rows = reduce(DataFrame.unionByName, early)
    held = aggregated.select(F.struct(*aggregated.columns).alias("held"))
    finished = rows.select(F.struct(*rows.columns).alias("finished"))
    return held.unionByName(finished, allowMissingColumns=True)


def _batch_of(streaming: DataFrame) -> DataFrame:
    return batch_template(streaming.sparkSession.createDataFrame([], streaming.schema))


def _by_task(together: DataFrame, partitions: int) -> DataFrame:
    """Arrange rows so that one Spark task, and no other, writes for a stream task, in the order of the records.

    :class:`PlannedRows` commits between two records: the rows of one record follow each other, and the records of one
    topic have the order of its offsets. A row for each partition, sorted last, tells the writer that it has seen all
    rows of the partition.
    """
    types = {name: data_type for name, data_type in together.dtypes if name != "partition"}
    last_rows = together.sparkSession.range(0, partitions, 1, 1).select(
        F.col("id").cast("int").alias("partition"),
        *(F.lit(None).cast(data_type).alias(name) for name, data_type in types.items()),
        F.lit(True).alias("last"),
    )
    marked = together.withColumn("last", F.lit(False)).unionByName(last_rows)
    placed = marked.repartitionById(partitions, F.col("partition"))
    return placed.sortWithinPartitions("last", *TASK_ORDER)


def _rekeying(pipeline: Pipeline, subtopology: Subtopology) -> RekeyedRecords | None:
    """Return how the writer re-keys, for a sub-topology that only makes the text of a field of the value the key.

    Such records need no second way through Python, and no shuffle.
    """
    match subtopology.sources, subtopology.operations, subtopology.sinks:
        case (
            (Source(topic=topic, value=serde, key_serde=String()),),
            (KeySelect(key=key, key_serde=String()), NullKeyFilter(relaxed=False)),
            (_,),
        ):
            if serde is not None and is_key_field(serde, key):
                name = pipeline.topology.decorate(topic)
                left_out = frozenset(record for record in records_left_out() if record.topic == name)
                return RekeyedRecords(name, serde, key, left_out)
    return None


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
