"""A sub-topology on Spark's native operators.

A streaming query takes one stateful operator. So a sub-topology is cut there: what comes before it is part of the
streaming plan, what follows runs on each micro-batch, which is an ordinary DataFrame with as many branches as it likes.

    no state        sources                                  | every operation -> outputs
    aggregations    sources -> operations -> one groupBy     | changelogs, every operation behind -> outputs
    joins           sources -> look-up of the record's key   | changelogs, every operation -> outputs

Several aggregations side by side share the groupBy, as ``node`` tells them apart. Several joins share the look-up: the
key of a joined record is the one it was read with, since a changed key goes through a repartition topic first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamplan.model.operations import Aggregate, Count, FlatMap, KeySelect, Map
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import Node, Processor, Sink, Source, Subtopology
from streamplan.serdes.serde import Serde
from streamplan.spark.planning.aggregation import aggregate, aggregate_again, aggregated, shown
from streamplan.spark.planning.operators import Finished, Walk, read
from streamplan.spark.planning.records import Frame
from streamplan.spark.planning.stream_table_join import look_up, looked_up
from streamplan.spark.sink.transaction import Output, Placed


@dataclass(frozen=True)
class Lowered:
    """``streaming`` is the plan of the query; ``finish`` makes of a micro-batch rows of the columns ``walk.OUTPUT``.

    ``kept``: ``finish`` reads the micro-batch more than once, so that it has to be kept meanwhile. State must not be
    computed twice, and the rest need not.
    """

    streaming: DataFrame
    outputs: tuple[Output, ...]
    stateful: bool
    kept: bool
    finish: Callable[[DataFrame], Finished]


def lower(
    pipeline: Pipeline, subtopology: Subtopology, schemas: Mapping[str, Serde], raw: Callable[[Source], DataFrame]
) -> Lowered:
    """``raw`` gives the records of a source's topic; ``schemas`` has the serdes of the repartition topics."""
    numbers, outputs = number_outputs(pipeline, subtopology)
    walk = Walk(subtopology, numbers)
    held, looked_up_in = subtopology.aggregations, subtopology.joins
    if not held and not looked_up_in:
        frames = [raw(source) for source in subtopology.sources]

        def finish(batch: DataFrame) -> Finished:
            walk = Walk(subtopology, numbers)
            for source in subtopology.sources:
                topic = pipeline.topology.decorate(source.topic)
                own = batch if len(frames) == 1 else batch.where(F.col("topic") == topic)
                walk.put(source.name, read(subtopology, source, schemas, own))
            walk.visit(subtopology.nodes)
            return walk.finished()

        kept = len(frames) > 1 or len(outputs) > 1
        return Lowered(reduce(DataFrame.unionByName, frames), outputs, False, kept, finish)
    for source in subtopology.sources:
        walk.put(source.name, read(subtopology, source, schemas, raw(source)))
    if looked_up_in:
        return _with_look_up(subtopology, walk, numbers, outputs)
    return _with_aggregations(subtopology, walk, held, numbers, outputs)


def lower_again(
    pipeline: Pipeline,
    subtopology: Subtopology,
    schemas: Mapping[str, Serde],
    stored: Callable[[Processor], DataFrame],
) -> DataFrame:
    """A plan with the stateful operator of the sub-topology, over what its stores hold instead of records.

    ``stored`` gives the rows of a processor's store, in the columns :data:`streamplan.spark.sources.RAW`.
    """
    numbers, _ = number_outputs(pipeline, subtopology)
    held, stores = subtopology.aggregations, subtopology.table_stores
    writers = {node.store: node for node in subtopology.processors if node.writes_store}
    nothing = stored(next(iter(writers.values()))).where("false")
    walk = Walk(subtopology, numbers)
    if held:
        for source in subtopology.sources:
            walk.put(source.name, read(subtopology, source, schemas, nothing))
        inputs = _inputs(subtopology, walk, held)
        rows = {node.name: stored(node) for node in held}
        return aggregate_again(held, inputs, rows, merged=len(subtopology.sources) > 1)
    for source in subtopology.sources:
        raw = stored(writers[stores[source.name]]) if source.name in stores else nothing
        walk.put(source.name, read(subtopology, source, schemas, raw))
    frames = {source.name: frame for source in subtopology.sources if (frame := walk.take(source.name)) is not None}
    return look_up(frames, stores)


def _inputs(subtopology: Subtopology, walk: Walk, held: Sequence[Processor]) -> dict[str, Frame]:
    """What each aggregation aggregates."""
    names = {node.name for node in held}
    reached = subtopology.downstream_of(names)
    walk.visit(node for node in subtopology.nodes if node.name not in reached and node.name not in names)
    inputs: dict[str, Frame] = {}
    for node in held:
        (before,) = subtopology.predecessors[node.name]
        frame = walk.take(before)
        assert frame is not None  # only a walk that collects faults has none
        inputs[node.name] = walk.grouped(node, frame)
    return inputs


def _with_look_up(
    subtopology: Subtopology, walk: Walk, numbers: Mapping[str, int], outputs: tuple[Output, ...]
) -> Lowered:
    frames = {source.name: frame for source in subtopology.sources if (frame := walk.take(source.name)) is not None}
    stores = subtopology.table_stores
    streaming = look_up(frames, stores)

    def finish(batch: DataFrame) -> Finished:
        after = Walk(subtopology, numbers)
        for name, frame in looked_up(batch, frames, stores).items():
            after.put(name, frame)
        after.visit(subtopology.nodes)
        return after.finished()

    return Lowered(streaming, outputs, True, True, finish)


def _with_aggregations(
    subtopology: Subtopology,
    walk: Walk,
    held: Sequence[Processor],
    numbers: Mapping[str, int],
    outputs: tuple[Output, ...],
) -> Lowered:
    inputs = _inputs(subtopology, walk, held)
    reached = subtopology.downstream_of({node.name for node in held})
    folded = aggregate(held, inputs, merged=len(subtopology.sources) > 1)
    early = walk.finished()
    streaming = folded if not early.rows else _side_by_side(folded, early.rows)

    def finish(batch: DataFrame) -> Finished:
        after = Walk(subtopology, numbers)
        after.schemas |= early.schemas
        if early.rows:
            after.rows.append(batch.where("finished is not null").select("finished.*"))
            batch = batch.where("held is not null").select("held.*")
        for number, node in enumerate(held):
            frame = aggregated(number, node, batch, inputs[node.name])
            after.changelog(node, frame)
            after.put(node.name, shown(node, frame))
        after.visit(node for node in subtopology.nodes if node.name in reached)
        return after.finished()

    return Lowered(streaming, outputs, True, bool(early.rows) or len(outputs) > 1, finish)


def _side_by_side(folded: DataFrame, early: Sequence[DataFrame]) -> DataFrame:
    """What was aggregated, and rows that need no aggregation, in one plan: a query has one."""
    rows = reduce(DataFrame.unionByName, early)
    held = folded.select(F.struct(*folded.columns).alias("held"))
    finished = rows.select(F.struct(*rows.columns).alias("finished"))
    return held.unionByName(finished, allowMissingColumns=True)


def number_outputs(pipeline: Pipeline, subtopology: Subtopology) -> tuple[dict[str, int], tuple[Output, ...]]:
    """By the name of a sink, or of a processor with a changelog, the number of its output."""
    topology = pipeline.topology
    numbers: dict[str, int] = {}
    outputs: list[Output] = []
    for node in subtopology.nodes:
        if isinstance(node, Sink):
            placed = Placed.WINDOWED_KEY if _window_reaches(subtopology, node) else Placed.KEY
            topic = topology.decorate(node.topic)
            output = Output(topic, placed, pipeline.partition_counts[topic])
        elif isinstance(node, Processor) and node.writes_store and node.store is not None:
            output = Output(topology.changelog_topic(node.store), Placed.TASK, pipeline.partitions(subtopology))
        else:
            continue
        numbers[node.name] = len(outputs)
        outputs.append(output)
    return numbers, tuple(outputs)


def _window_reaches(subtopology: Subtopology, node: Node) -> bool:
    """Whether a node's records have a windowed key."""
    if isinstance(node, Processor):
        match node.operation:
            case Count(window=window) | Aggregate(window=window):
                return window is not None
            case KeySelect() | Map() | FlatMap():
                return False
    by_name = {one.name: one for one in subtopology.nodes}
    return any(_window_reaches(subtopology, by_name[before]) for before in subtopology.predecessors[node.name])
