"""The plan of two sub-topologies in one query: the second aggregates what the first has just written.

The first one writes a repartition topic, and the second one reads nothing else. So the writer of the first one also
hands on its records (:mod:`streamplan.spark.sink.handed_on`), and nothing is read back from Kafka. For a count without
windows it hands on counts by key, for any other aggregate records with the fields that the arguments name.

No record is rejected behind the link: the writer has read or made each value as a whole, and has dead-lettered those
that cannot be read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql import DataFrame

from streamplan.model.left_out import records_left_out
from streamplan.model.linking import Link
from streamplan.model.operations import Aggregate, Count
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import Processor
from streamplan.serdes.arrow import struct_type
from streamplan.serdes.serde import Serde
from streamplan.spark.arrow_function import ArrowFunction
from streamplan.spark.planning.aggregation import fold_counts
from streamplan.spark.planning.compiled_plan import is_deterministic, map_in_arrow
from streamplan.spark.planning.operators import OperatorPlanner
from streamplan.spark.planning.output_rows import rows_of_records
from streamplan.spark.planning.plan import SubtopologyPlan, planned_behind
from streamplan.spark.planning.records import RecordFrame, read_handed_on
from streamplan.spark.planning.stages import plan_of
from streamplan.spark.planning.stages.aggregate import AggregatePlan
from streamplan.spark.planning.stages.grouping import takes_null_values
from streamplan.spark.planning.stages.stage_plan import Cut, batch_of
from streamplan.spark.sink.handed_on import COUNTS, RECORDS, HandedOn, HandedOnCounts, HandedOnRecords
from streamplan.spark.sink.writers import RekeyedRecords, RowsOfRecords


@dataclass(frozen=True)
class LinkedPlan:
    """How Spark runs two sub-topologies in one query.

    ``link``     the two sub-topologies
    ``writer``   the plan of the first one; its rows are records of Kafka
    ``reader``   the plan of the second one. Its streaming plan is a stand-in without records, see :meth:`streaming`
    ``handing``  what the first one hands on to the second
    """

    link: Link
    writer: SubtopologyPlan
    reader: SubtopologyPlan
    handing: _Handing

    @property
    def hand_on(self) -> Callable[[], HandedOn]:
        """Makes what takes the records of a stream task of the first one. It can be pickled."""
        return self.handing.hand_on

    def streaming(self, write: ArrowFunction) -> DataFrame:
        """Return the streaming plan.

        Args:
            write: Writes the records of the first sub-topology, and gives what :attr:`hand_on` makes of them.
        """
        return self.handing.fold(map_in_arrow(self.writer.streaming, write, self.handing.columns))


@dataclass(frozen=True)
class _Handing:
    """What is handed on: rows of these ``columns``, with which ``fold`` does what the second sub-topology does."""

    hand_on: Callable[[], HandedOn]
    columns: str
    fold: Callable[[DataFrame], DataFrame]


def plan_linked(
    pipeline: Pipeline, link: Link, writer: SubtopologyPlan, schemas: Mapping[str, Serde]
) -> LinkedPlan | None:
    """Plan two sub-topologies in one query; return None where the first one cannot hand on what it writes.

    Args:
        pipeline: That they belong to.
        link: The two sub-topologies.
        writer: The plan of the first one.
        schemas: The serdes of the repartition topics.
    """
    stage = plan_of(link.reader)
    if not isinstance(writer.row_format, RekeyedRecords | RowsOfRecords) or not isinstance(stage, AggregatePlan):
        return None
    (source,), node = link.reader.sources, link.aggregate
    topic, partitions = pipeline.topology.decorate(source.topic), pipeline.partitions(link.reader)
    serde = schemas[source.topic]
    fields = {name: serde.fields[name] for name in _fields_named(node, serde)}
    if isinstance(writer.row_format, RowsOfRecords):
        written = writer.written[0]
        if not is_deterministic(written.data) or not (written.value_is_raw or _stay_the_same(fields)):
            return None
        writer = replace(writer, streaming=rows_of_records(written, [*fields]))
    of_struct = ", ".join(f"`{name}`: {data_type}" for name, data_type in fields.items())
    columns = f"{RECORDS}, fields struct<{of_struct}>" if fields else RECORDS

    def inputs(rows: DataFrame) -> tuple[OperatorPlanner, Mapping[str, RecordFrame]]:
        planner = stage.planner()
        planner.bind_all({source.name: read_handed_on(rows, serde, source.key_serde, topic)})
        return planner, stage.inputs(planner)

    def fold(rows: DataFrame) -> DataFrame:
        return stage.operate(inputs(rows)[1], None)

    spark = writer.streaming.sparkSession
    no_records = spark.createDataFrame([], columns)
    planner, typed = inputs(no_records)
    if isinstance(node.operation, Count) and node.operation.window is None:
        handing = _Handing(partial(HandedOnCounts, partitions), COUNTS, partial(fold_counts, node))
        stand_in = handing.fold(spark.createDataFrame([], COUNTS))
    else:
        hand_on = partial(HandedOnRecords, partitions, struct_type(fields), takes_null=takes_null_values(node))
        handing = _Handing(hand_on, columns, fold)
        stand_in = stage.operate(typed, None)
        if _adds_doubles(node, stand_in) or any(record.topic == topic for record in records_left_out()):
            return None
    batch = batch_of(stand_in)
    stage.bind(planner, batch, typed)
    reader = planned_behind(pipeline, link.reader, stage, planner, Cut(stand_in, batch, divided=False))
    return LinkedPlan(link, writer, reader, handing)


def _fields_named(node: Processor, serde: Serde) -> tuple[str, ...]:
    """The fields of a value that an aggregate may need: those whose names are in the text of its arguments."""
    columns = node.operation.columns if isinstance(node.operation, Aggregate) else ()
    text = " ".join(column.arguments for column in columns).lower()
    return tuple(name for name in serde.fields if "`" in name or name.lower() in text)


_SAME = re.compile(r"boolean|tinyint|smallint|int|bigint|decimal\(\d+, ?\d+\)")
"""The types whose values are surely the same when they are written to a repartition topic and read from it."""


def _stay_the_same(fields: Mapping[str, str]) -> bool:
    return all(_SAME.fullmatch(of_field) for of_field in fields.values())


def _adds_doubles(node: Processor, rows: DataFrame) -> bool:
    """Whether a result depends on the order of its summands, which come in any order through a shuffle.

    A micro-batch that runs again would then make another value than the one that is committed.
    """
    columns = node.operation.columns if isinstance(node.operation, Aggregate) else ()
    added = (f"s0_{column.name}" for column in columns if column.function in ("sum", "avg"))
    return any("double" in rows.schema[name].dataType.simpleString() for name in added)
