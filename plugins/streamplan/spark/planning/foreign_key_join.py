"""Joins of tables by a foreign key: two sub-topologies, each with one ``transformWithState`` by key.

The sub-topology of this table sends a subscription for each change of a value, to the key of the other table that is
its foreign key. It reads the responses, and joins each with the value that this table has now. The sub-topology of the
other table keeps the subscriptions to each of its keys. It responds to a subscription, and to all of them when its
value changes. So each reads a topic that the other one writes, and no record goes round.

Both states give rows that say what they are (:class:`~streamplan.spark.planning.foreign_key_state.Made`). A row without
that is a record of the table, which the operations on the table are given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from streamplan.model.operations import (
    Operation,
    ResponseJoin,
    SubscriptionReceive,
    SubscriptionSend,
)
from streamplan.model.processor_topology import Processor, Subtopology
from streamplan.model.stages.foreign_key import ForeignKeyStage
from streamplan.serdes.internal import value_expression
from streamplan.spark.planning.aggregation import refusing_unreadable
from streamplan.spark.planning.field_types import as_state, declared_fields, from_state, state_name
from streamplan.spark.planning.foreign_key_state import OTHER, RESULT, THIS, Made, ResponderState, SubscriberState
from streamplan.spark.planning.keys import new_key, write_key
from streamplan.spark.planning.record_parts import TOLD, TOLD_PART, with_key_of, without_told
from streamplan.spark.planning.records import RecordFrame, rejecting_binary_keys

_THIS_FIELDS, _OTHER_FIELDS = "f0", "f1"

SENT_FORMATS = ("subscription", "response")
"""The formats of what one side of a join writes for the other."""

FOREIGN_KEY_IN_STORED = "substring(key, 5, cast(conv(hex(substring(key, 1, 4)), 16, 10) as int))"
"""The foreign key in the column ``key`` with a key of the store of the subscriptions."""


def join_by_foreign_key(side: ForeignKeyStage, this: RecordFrame, sent: RecordFrame) -> DataFrame:
    """Give one side of a join by a foreign key its records.

    Args:
        this: The updates of its table.
        sent: What the other side has written.

    Returns:
        One row for each record of a table that is read from a topic, but for the deletion of a key that the table does
        not have. And a row with ``made`` for all that the side has made of a record.
    """
    return _with_state(side, [this], sent, None, restored=False)


def restore_foreign_key_join(
    side: ForeignKeyStage, this: Sequence[RecordFrame], sent: RecordFrame, results: DataFrame | None
) -> DataFrame:
    """Read the rows of changelogs into the state that :func:`join_by_foreign_key` goes on with.

    Args:
        this: The last records of the table's changelog. Further ones have no records: they bring the operators before.
        sent: The last records of the store of the subscriptions as if they came from the registration topic; for the
            subscriber no records.
        results: The last records of the changelog of the result, in the columns :data:`streamplan.spark.sources.RAW`;
            None without one.
    """
    return _with_state(side, [refusing_unreadable(this[0]), *this[1:]], sent, results, restored=True)


def records_of_table(batch: DataFrame, frame: RecordFrame) -> RecordFrame:
    """Return the records of the table of a side.

    Args:
        batch: What :func:`join_by_foreign_key` gave.
        frame: The records that it was given; only what is known of them is used.
    """
    rows = batch.where(F.col("made").isNull())
    fields = _from_state(F.col(_THIS_FIELDS), frame)
    return replace(frame, data=rows.select(*fields, _record().alias("record")), no_rejects=False)


def sent_records(batch: DataFrame, made: Made, frame: RecordFrame) -> RecordFrame:
    """Return what a side has written to the other side, or to the store of the subscriptions.

    Args:
        batch: What :func:`join_by_foreign_key` gave.
        made: Which records.
        frame: Tells the serde of the keys.

    Returns:
        Records with the key in the column ``to`` and the value in the column ``sent``, both in bytes.
    """
    order = F.concat("record.order", F.array(F.col("place")))
    data = batch.where(F.col("made") == made.value).select(
        "to", "sent", _record().withField("order", order).alias("record")
    )
    kind = SENT_FORMATS[made is Made.RESPONSE]
    return replace(frame, data=data, value_is_raw=True, no_rejects=True, serde=None, format=kind)


def joined_by_foreign_key(batch: DataFrame, side: ForeignKeyStage, this: RecordFrame, sent: RecordFrame) -> RecordFrame:
    """Return the updates of the joined table.

    Args:
        batch: What :func:`join_by_foreign_key` gave.
        side: As for :func:`join_by_foreign_key`.
        this: As for :func:`join_by_foreign_key`; only what is known of the records is used.
        sent: As for :func:`join_by_foreign_key`; only what is known of the records is used.
    """
    node = side.join
    assert node is not None, f"{side.node.name} subscribes to nothing"
    rows = batch.where(F.col("made") == Made.RESULT.value)
    seen = rows.select(
        *_from_state(F.col("joined"), this),
        F.when(F.col(_OTHER_FIELDS).isNotNull(), F.struct(*_from_state(F.col(_OTHER_FIELDS), sent))).alias("table"),
        _record().alias("record"),
        F.col("joined").isNotNull().alias("_is_there"),
    )
    return joined_values(seen, node, this)


def joined_values(seen: DataFrame, node: Processor, this: RecordFrame) -> RecordFrame:
    """Return the joined values.

    Args:
        seen: The fields of this table, those of the other one as the struct ``table``, ``record``, and ``_is_there``:
            whether there is a joined value.
        node: The join.
        this: Tells the serde of the keys.
    """
    assert isinstance(node.operation, ResponseJoin)
    fields = F.struct(*(F.expr(expression).alias(name) for name, expression in node.operation.value))
    value = seen.select(F.when(F.col("_is_there"), fields).alias("_value"), "record", "_is_there")
    data = value.select(
        "_value.*", F.col("record").withField("value", F.when(F.col("_is_there"), F.lit(b""))).alias("record")
    )
    encoded = F.when(F.col("record.value").isNotNull(), F.expr(value_expression(declared_fields(data))))
    data = data.withColumn("record", F.col("record").withField("value", encoded))
    return RecordFrame(
        data, value_is_raw=False, no_rejects=True, key_not_null=True, format="json", key_serde=this.key_serde
    )


def without_responses(node: Processor, this: RecordFrame, responses: RecordFrame) -> RecordFrame:
    """Return what :func:`joined_by_foreign_key` gives, without a record: for its types alone.

    Args:
        node: The join.
        this: The records of this table; only their types are used.
        responses: Those of the response topic; only their types are used.
    """
    other = F.lit(None).cast(responses.data.select(F.struct(*responses.fields).alias("row")).schema["row"].dataType)
    seen = this.data.where("false").withColumn("table", other).withColumn("_is_there", F.lit(True))
    return joined_values(seen, node, responses)


def without_subscriptions(frame: RecordFrame, operation: Operation) -> RecordFrame:
    """Return what a side of the join sends, without a record: for its types alone.

    Args:
        frame: The records of a table, or those of the topic that the other side writes.
        operation: What is done.

    Raises:
        Refused: The expression of a foreign key has values that the other table's keys cannot have.
    """
    if isinstance(operation, SubscriptionSend):
        foreign_keys(frame, operation)
    nothing = F.lit(None).cast("binary")
    data = frame.data.where("false").select(nothing.alias("to"), nothing.alias("sent"), "record")
    kind = SENT_FORMATS[0] if isinstance(operation, SubscriptionSend | SubscriptionReceive) else SENT_FORMATS[1]
    return replace(frame, data=data, value_is_raw=True, no_rejects=True, serde=None, format=kind)


def foreign_keys(frame: RecordFrame, operation: SubscriptionSend) -> tuple[RecordFrame, Column]:
    """Return the foreign key of each value in bytes, null without one. A key that the serde rejects rejects its record.

    Args:
        frame: The records of this table.
        operation: Has the expression, or the function. What the function tells stays in the records.

    Raises:
        Refused: The expression has values that the serde of the other table's keys cannot write.
    """
    expression = operation.foreign_key
    if not isinstance(expression, str):
        frame, expression = with_key_of(frame, expression, operation.key_serde, of_table=True), TOLD
    key, fault = new_key(operation.key_serde, frame.data, expression)
    is_value = F.col("record.reason").isNull() & F.col("record.value").isNotNull()
    if fault is not None:
        reason = F.coalesce(F.col("record.reason"), F.when(is_value, fault))
        frame = replace(frame.with_record(F.col("record").withField("reason", reason)), no_rejects=False)
    return frame, F.when(is_value, write_key(operation.key_serde, key))


def judged(frame: RecordFrame, table: Processor, subtopology: Subtopology) -> RecordFrame:
    """Return the updates of a table without those that give a foreign key which its serde cannot write.

    Args:
        frame: The updates.
        table: The processor that passes them.
        subtopology: With the joins by a foreign key of the table.
    """
    for node in subtopology.processors_with(SubscriptionSend):
        if table.name in subtopology.predecessors[node.name]:
            assert isinstance(node.operation, SubscriptionSend)
            frame, _ = foreign_keys(frame, node.operation)
            frame = frame if isinstance(node.operation.foreign_key, str) else without_told(frame)
    return frame


def _with_state(
    side: ForeignKeyStage,
    tables: Sequence[RecordFrame],
    sent: RecordFrame,
    results: DataFrame | None,
    *,
    restored: bool,
) -> DataFrame:
    subtopology, subscriber, join = side.subtopology, side.node.operation, side.join
    tables = [judged(rejecting_binary_keys(each), side.table, subtopology) for each in tables]
    added = [StructField("made", StringType()), StructField("to", BinaryType())]
    added += [StructField("sent", BinaryType()), StructField("place", IntegerType())]
    if not isinstance(subscriber, SubscriptionSend):
        rows = _together([*(_rows(THIS, each) for each in tables), _rows(OTHER, sent)])
        schema = StructType([*rows.schema.fields, *added])
        responder = ResponderState(restored=restored, passes=side.is_at_sources)
        return rows.groupBy("partition", "key").transformWithState(responder, schema, "Update", "none")
    assert join is not None
    assert isinstance(join.operation, ResponseJoin)
    of_tables = []
    for each in tables:
        frame, key = foreign_keys(each, subscriber)
        frame = each if isinstance(subscriber.foreign_key, str) else frame
        of_tables.append(_rows(THIS, frame, key.alias("refers")))
    rows = _together([*of_tables, _rows(OTHER, sent, number=1)])
    if results is not None:
        rows = rows.unionByName(_stored_results(results), allowMissingColumns=True)
    of_value = cast(StructType, rows.schema[_THIS_FIELDS].dataType)
    schema = StructType([*rows.schema.fields, *added, StructField("joined", of_value)])
    state = SubscriberState(
        of_value,
        (_THIS_FIELDS, _OTHER_FIELDS),
        left=join.operation.left,
        stores_result=side.result is not None and side.result.writes_store,
        restored=restored,
        passes=side.is_at_sources,
    )
    return rows.groupBy("partition", "key").transformWithState(state, schema, "Update", "none")


def _together(rows: Sequence[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), rows)


def _rows(source: int, frame: RecordFrame, *more: Column, number: int = 0) -> DataFrame:
    """The rows of a source. The fields stand in ``f<number>``."""
    fields = F.struct(
        *(
            as_state(F.col(f"`{name}`"), of_field).alias(state_name(name, place))
            for place, (name, of_field) in enumerate(declared_fields(frame.data).items())
        )
    )
    columns = [
        F.col("record.partition").alias("partition"),
        frame.key.alias("key"),
        F.lit(source).alias("source"),
        F.unix_millis("record.timestamp").alias("at"),
        F.col("record.reason").isNotNull().alias("rejected"),
        F.col("record.value").isNull().alias("deleted"),
        F.col("record").dropFields("timestamp", TOLD_PART).alias("record"),  # ``at`` has the timestamp in ms
    ]
    if source == THIS or number:
        columns.append(fields.alias(f"f{number}"))
    return frame.data.select(*columns, *more)


def _stored_results(results: DataFrame) -> DataFrame:
    return results.select(
        "partition",
        "key",
        F.lit(RESULT).alias("source"),
        F.unix_millis("timestamp").alias("at"),
        F.lit(False).alias("rejected"),
        F.lit(False).alias("deleted"),
    )


def _record() -> Column:
    return F.col("record").withField("timestamp", F.timestamp_millis("at"))


def _from_state(row: Column, frame: RecordFrame) -> list[Column]:
    return [
        from_state(row.getField(state_name(field, place)), of_field).alias(field)
        for place, (field, of_field) in enumerate(declared_fields(frame.data).items())
    ]


def stored_subscriptions(stored: DataFrame) -> DataFrame:
    """Return the records of the store of the subscriptions as if they came from the registration topic."""
    return stored.withColumn("key", F.expr(FOREIGN_KEY_IN_STORED))
