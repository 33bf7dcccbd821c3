"""Joins of tables: Spark's ``transformWithState``, with the rows that all tables have of a key as one state.

A stream task takes the records of its topics in the order that merged topics have, and each update of a table gives a
joined value at once (``KTableKTableJoinMerger``). It does not wait, as a row does that a stream is joined with:
whatever the order of two topics, in the end a key has the join of the last values of both.

The state gives the rows of all tables. The joined values are computed from them behind it, as Spark SQL. So joins of
joined tables need no second state.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import cast

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructField, StructType

from streamplan.model.merge_order import Ways, ways_that_meet
from streamplan.model.operations import TableJoin
from streamplan.model.processor_topology import Processor, Subtopology
from streamplan.serdes import field_types as declared
from streamplan.serdes.internal import value_expression
from streamplan.spark.planning.aggregation import refusing_unreadable
from streamplan.spark.planning.field_types import as_state, declared_fields, from_state, state_name
from streamplan.spark.planning.records import RecordFrame, rejecting_binary_keys
from streamplan.spark.planning.table_join_state import JoinOfTables, TableJoinState
from streamplan.spark.sink.spec import TASK_ORDER


@dataclass(frozen=True)
class Joins:
    """Joins of tables in one state.

    Attributes:
        subtopology: That has them.
        of_nodes: Each with the node that passes its result, behind those that it takes a table from.
        cached: The numbers of the tables whose updates come when all of a micro-batch have changed them, as those of
            the library's record cache do.
        of_results: Whether the tables are results, whose updates other nodes pass on.
    """

    subtopology: Subtopology
    of_nodes: Sequence[tuple[Processor, JoinOfTables]]
    cached: Collection[int] = ()
    of_results: bool = False

    @property
    def in_order(self) -> list[JoinOfTables]:
        """The joins alone."""
        return [join for _, join in self.of_nodes]


def join_table_updates(joins: Joins, frames: Mapping[str, RecordFrame]) -> DataFrame:
    """Join the updates of tables.

    Args:
        frames: The records of each source, by the name of the source; or the updates of each table, by the name of the
            node that passes them.

    Returns:
        One row for each record, but for the deletion of a key that the table does not have. Its fields stand in
        ``f<n>`` where source ``n`` has it. And a row with ``join``, the number of a join, for each joined value that a
        record gives, with the time of that value in ``at``. The rows of all tables stand in ``t<n>`` there.
    """
    rows = [_rows(number, frame) for number, frame in enumerate(frames.values())]
    return _joined(joins, frames, rows, restored=False)


def restore_table_joins(joins: Joins, frames: Mapping[str, RecordFrame], results: Mapping[str, DataFrame]) -> DataFrame:
    """Read the rows of changelogs into the state that :func:`join_table_updates` goes on with.

    Args:
        frames: The last records of each table's changelog, by the name of its source. Other sources have no records.
        results: By the name of a join with a store the last records of its changelog, in the columns
            :data:`streamplan.spark.sources.RAW`.
    """
    rows = [_rows(number, refusing_unreadable(frame)) for number, frame in enumerate(frames.values())]
    of_names = {node.name: join.number for node, join in joins.of_nodes}
    for name, records in results.items():
        record = rows[0].schema["record"].dataType
        rows.append(
            records.select(
                "partition",
                "key",
                F.lit(of_names[name]).alias("source"),
                F.unix_millis("timestamp").alias("at"),
                F.lit(False).alias("rejected"),
                F.lit(False).alias("deleted"),
                F.lit(None).cast(record).alias("record"),
            )
        )
    return _joined(joins, frames, rows, restored=True)


def records_of_sources(batch: DataFrame, frames: Mapping[str, RecordFrame]) -> dict[str, RecordFrame]:
    """Return the records of each source.

    Args:
        batch: What :func:`join_table_updates` gave.
        frames: As for :func:`join_table_updates`; only what is known of them is used.
    """
    found = {}
    for number, (name, frame) in enumerate(frames.items()):
        fields = [
            from_state(F.col(f"f{number}.`{state_name(field, place)}`"), of_field).alias(field)
            for place, (field, of_field) in enumerate(declared_fields(frame.data).items())
        ]
        record = F.col("record").withField("timestamp", F.timestamp_millis("at"))
        rows = batch.where(F.col("join").isNull() & (F.col("source") == number))
        found[name] = replace(frame, data=rows.select(*fields, record.alias("record")), no_rejects=False)
    return found


def joined_tables(batch: DataFrame, joins: Joins, frames: Mapping[str, RecordFrame]) -> dict[str, RecordFrame]:
    """Return the updates of each joined table, by the name of the processor that passes them.

    Args:
        batch: What :func:`join_table_updates` gave.
        frames: As for :func:`join_table_updates`; only what is known of them is used.
    """
    found: dict[str, RecordFrame] = {}
    ways = ways_that_meet(joins.subtopology)
    for node, join in joins.of_nodes:
        rows = batch.where(F.col("join") == join.number)
        rows = rows.withColumn("record", F.col("record").withField("timestamp", F.timestamp_millis("at")))
        data = _with_value(rows, join.number, joins.of_nodes, list(frames.values()))
        value = F.col(_value(join.number))
        order = F.concat("record.order", F.array(F.lit(join.number)))
        if ways.places:
            order = _order_of_joined(joins.subtopology, node, ways, list(frames))
        record = F.col("record").withField("order", order)
        record = record.withField("value", F.when(value.isNotNull(), F.lit(b"")))
        data = data.select(F.col(f"{_value(join.number)}.*"), record.alias("record"))
        encoded = F.when(F.col("record.value").isNotNull(), F.expr(value_expression(declared_fields(data))))
        data = data.withColumn("record", F.col("record").withField("value", encoded))
        key_serde = joins.subtopology.key_serde_of(node.name)
        found[node.name] = RecordFrame(
            data, value_is_raw=False, no_rejects=True, key_not_null=True, format="json", key_serde=key_serde
        )
    return found


def _order_of_joined(subtopology: Subtopology, node: Processor, ways: Ways, tables: Sequence[str]) -> Column:
    """The ``order`` of what a record of a table is joined to: with its way to the node that passes it."""
    behind = {name: node.name in subtopology.downstream_of([name]) for name in tables}
    found = F.col("record.order")
    for number, name in enumerate(tables):
        if behind[name]:
            begun = [ways.begun[name]] if name in ways.begun else []
            before, way = (
                F.array(*map(F.lit, places)).cast("array<int>")
                for places in (begun, ways.between(subtopology, name, node.name))
            )
            order = F.concat(before, "record.order", way)
            found = F.when(F.col("source") == number, order).otherwise(found)
    return found


def last_joined_tables(batch: DataFrame, joins: Joins, frames: Mapping[str, RecordFrame]) -> dict[str, RecordFrame]:
    """Return the last update of each key of each joined table, as of all records that there are.

    It does not depend on the order of the topics, but for its time where one of the tables has no value. That time is
    null. Of the record only the partition is told, as of the result of an aggregate.

    Args:
        batch: What :func:`join_table_updates` gave.
        frames: As for :func:`join_table_updates`; only what is known of them is used.
    """
    order = [F.desc(f"record.{name}") for name in TASK_ORDER]
    by_key = Window.partitionBy("join", "partition", "key").orderBy(*order)
    last = batch.where("join is not null").withColumn("_place", F.row_number().over(by_key)).where("_place = 1")
    by_number = {join.number: join for join in joins.in_order}

    def sources_of(number: int) -> list[int]:
        join = by_number.get(number)
        return [number] if join is None else [*sources_of(join.this), *sources_of(join.other)]

    at = F.lit(None).cast("bigint")
    for number in by_number:
        are_there = [F.col(f"t{source}").isNotNull() for source in sources_of(number)]
        at = F.when((F.col("join") == number) & reduce(and_, are_there), F.col("at")).otherwise(at)
    nothing = {"topic": F.lit(None).cast("string"), "offset": F.lit(None).cast("bigint")}
    record = reduce(lambda record, name: record.withField(name, nothing[name]), nothing, F.col("record"))
    return joined_tables(last.drop("_place").withColumns({"at": at, "record": record}), joins, frames)


def without_updates(this: RecordFrame, other: RecordFrame) -> RecordFrame:
    """Return what the expressions of a join see, without a record: for its types alone.

    Args:
        this: The records of this table; only their types are used.
        other: Those of the other table; only their types are used.
    """
    row_type = other.data.select(F.struct(*other.fields).alias("row")).schema["row"].dataType
    data = this.data.withColumn("table", F.lit(None).cast(row_type)).where("false")
    return replace(this, data=data, value_is_raw=False, serde=None, no_rejects=True)


def joins_of(subtopology: Subtopology, sources: Sequence[str]) -> list[tuple[Processor, JoinOfTables]]:
    """Return the joins of tables of a sub-topology, each behind those that it takes a table from.

    A table has the number of its source.

    Args:
        subtopology: The sub-topology.
        sources: The names of its sources, in the order of their numbers.
    """
    numbers = {
        node.name: sources.index(subtopology.predecessors[node.name][0])
        for node in subtopology.processors
        if subtopology.predecessors[node.name] and subtopology.predecessors[node.name][0] in sources
    }
    return _numbered(subtopology, subtopology.processors_with(TableJoin), numbers, len(sources))


def joins_at_sources(subtopology: Subtopology, sources: Iterable[str]) -> Joins:
    """Return the joins of the tables that the sources of a sub-topology read.

    Args:
        subtopology: The sub-topology.
        sources: The names of its sources, in the order of their numbers.
    """
    return Joins(subtopology, joins_of(subtopology, list(sources)))


def joins_of_results(
    subtopology: Subtopology, nodes: Sequence[Processor], tables: Sequence[Processor], cached: Collection[Processor]
) -> Joins:
    """Return joins of tables of which some are results.

    Args:
        subtopology: The sub-topology.
        nodes: The nodes that pass the joined values.
        tables: The nodes that pass the updates of the tables, in the order of their numbers.
        cached: Those whose updates the library's record cache holds back.
    """
    numbers = {node.name: number for number, node in enumerate(tables)}
    held_back = [number for number, node in enumerate(tables) if node in cached]
    return Joins(subtopology, _numbered(subtopology, nodes, numbers, len(tables)), held_back, of_results=True)


def _numbered(
    subtopology: Subtopology, nodes: Sequence[Processor], tables: Mapping[str, int], first: int
) -> list[tuple[Processor, JoinOfTables]]:
    """Number joins from ``first`` on. ``tables`` has the numbers of tables, by the nodes that pass their updates."""
    numbers, joins = dict(tables), []
    for place, node in enumerate(nodes, first):
        operation = node.operation
        assert isinstance(operation, TableJoin)
        numbers[node.name] = place
        this, other = (numbers[side.name] for side in subtopology.sides_of(node))
        joins.append((node, JoinOfTables(place, this, other, operation.left, operation.right, operation.store)))
    return joins


def _rows(number: int, original: RecordFrame) -> DataFrame:
    frame = rejecting_binary_keys(original)
    fields = F.struct(
        *(
            as_state(F.col(f"`{name}`"), of_field).alias(state_name(name, place))
            for place, (name, of_field) in enumerate(declared_fields(original.data).items())
        )
    )
    return frame.data.select(
        F.col("record.partition").alias("partition"),
        frame.key.alias("key"),
        F.lit(number).alias("source"),
        F.unix_millis("record.timestamp").alias("at"),
        F.col("record.reason").isNotNull().alias("rejected"),
        F.col("record.value").isNull().alias("deleted"),
        F.col("record").dropFields("timestamp").alias("record"),  # ``at`` has it in ms
        fields.alias(f"f{number}"),
    )


def _joined(
    joins: Joins, frames: Mapping[str, RecordFrame], inputs: Sequence[DataFrame], *, restored: bool
) -> DataFrame:
    rows = reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), inputs)
    tables = sorted({side for join in joins.in_order for side in (join.this, join.other) if side < len(frames)})
    types = {number: cast(StructType, rows.schema[f"f{number}"].dataType) for number in tables}
    added = [StructField("join", IntegerType()), *(StructField(f"t{number}", types[number]) for number in tables)]
    state = TableJoinState(
        types, joins.in_order, restored=restored, cached=joins.cached, passes_records=not joins.of_results
    )
    schema = StructType([*rows.schema.fields, *added])
    return rows.groupBy("partition", "key").transformWithState(state, schema, "Update", "none")


def _value(number: int) -> str:
    return f"_value{number}"


def _with_value(
    rows: DataFrame,
    number: int,
    joins: Sequence[tuple[Processor, JoinOfTables]],
    sources: Sequence[RecordFrame],
) -> DataFrame:
    """Add the value of a table, which is null where the table has none of the key."""
    if number < len(sources):
        types = declared.StructType(tuple(declared_fields(sources[number].data).items()))
        return rows.withColumn(_value(number), from_state(F.col(f"t{number}"), types))
    node, join = next((node, join) for node, join in joins if join.number == number)
    assert isinstance(node.operation, TableJoin)
    for side in (join.this, join.other):
        rows = _with_value(rows, side, joins, sources)
    this, other = F.col(_value(join.this)), F.col(_value(join.other))
    seen = rows.select(
        F.struct(*rows.columns).alias("_row"),
        F.col(f"{_value(join.this)}.*"),
        other.alias("table"),
        "record",
        _is_there(join, this, other).alias("_is_there"),
    )
    fields = F.struct(*(F.expr(expression).alias(name) for name, expression in node.operation.value))
    made = seen.select("_row", F.when(F.col("_is_there"), fields).alias(_value(number)))
    return made.select("_row.*", _value(number))


def _is_there(join: JoinOfTables, this: Column, other: Column) -> Column:
    """Whether there is a joined value; see :meth:`JoinOfTables.is_there`."""
    if join.left and join.right:
        return this.isNotNull() | other.isNotNull()
    if join.left:
        return this.isNotNull()
    return this.isNotNull() & other.isNotNull()
