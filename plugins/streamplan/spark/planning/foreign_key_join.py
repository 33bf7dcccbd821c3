"""Joins of tables by a foreign key: two sub-topologies, each with one ``transformWithState`` by key.

The sub-topology of this table sends a subscription for each change of a value, to the key of the other table that is
its foreign key. It reads the responses, and joins each with the value that this table has now. The sub-topology of the
other table keeps the subscriptions to each of its keys. It responds to a subscription, and to all of them when its
value changes. So each reads a topic that the other one writes, and no record goes round.

Both states give rows that say what they are (:class:`~streamplan.spark.planning.foreign_key_state.Made`). A row without
that is a record of the table, which the operations on the table are given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from streamplan.model.operations import (
    ForeignKeyResult,
    Operation,
    ResponseJoin,
    SubscriptionReceive,
    SubscriptionSend,
)
from streamplan.model.processor_topology import Processor, Source, Subtopology
from streamplan.serdes.internal import value_expression
from streamplan.spark.planning.aggregation import refusing_unreadable
from streamplan.spark.planning.field_types import as_state, declared_fields, from_state, state_name
from streamplan.spark.planning.foreign_key_state import OTHER, RESULT, THIS, Made, ResponderState, SubscriberState
from streamplan.spark.planning.keys import new_key, write_key
from streamplan.spark.planning.records import RecordFrame, rejecting_binary_keys

_THIS_FIELDS, _OTHER_FIELDS = "f0", "f1"

SENT_FORMATS = ("subscription", "response")
"""The formats of what one side of a join writes for the other."""

FOREIGN_KEY_IN_STORED = "substring(key, 5, cast(conv(hex(substring(key, 1, 4)), 16, 10) as int))"
"""The foreign key in the column ``key`` with a key of the store of the subscriptions."""


def join_by_foreign_key(subtopology: Subtopology, frames: Mapping[str, RecordFrame]) -> DataFrame:
    """Give one side of a join by a foreign key its records.

    Args:
        subtopology: With such a side.
        frames: The records of its two sources, by the name of the source.

    Returns:
        One row for each record of the table, but for the deletion of a key that the table does not have. And a row with
        ``made`` for all that the side has made of a record.
    """
    return _with_state(subtopology, frames, None, restored=False)


def restore_foreign_key_join(
    subtopology: Subtopology, frames: Mapping[str, RecordFrame], results: DataFrame | None
) -> DataFrame:
    """Read the rows of changelogs into the state that :func:`join_by_foreign_key` goes on with.

    Args:
        subtopology: With one side of such a join.
        frames: The last records of the table's changelog, and of the store of the subscriptions as if they came from
            the registration topic, by the names of the sources.
        results: The last records of the changelog of the result, in the columns :data:`streamplan.spark.sources.RAW`;
            None without one.
    """
    table = table_source(subtopology)
    frames = {**frames, table.name: refusing_unreadable(frames[table.name])}
    return _with_state(subtopology, frames, results, restored=True)


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


def joined_by_foreign_key(batch: DataFrame, subtopology: Subtopology, frames: Mapping[str, RecordFrame]) -> RecordFrame:
    """Return the updates of the joined table.

    Args:
        batch: What :func:`join_by_foreign_key` gave.
        subtopology: As for :func:`join_by_foreign_key`.
        frames: As for :func:`join_by_foreign_key`; only what is known of them is used.
    """
    (node,) = subtopology.processors_with(ResponseJoin)
    rows = batch.where(F.col("made") == Made.RESULT.value)
    this, other = (frames[source.name] for source in (table_source(subtopology), carrying_source(subtopology)))
    seen = rows.select(
        *_from_state(F.col("joined"), this),
        F.when(F.col(_OTHER_FIELDS).isNotNull(), F.struct(*_from_state(F.col(_OTHER_FIELDS), other))).alias("table"),
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


def without_responses(node: Processor, responses: RecordFrame) -> RecordFrame:
    """Return what :func:`joined_by_foreign_key` gives, without a record: for its types alone.

    Args:
        node: The join.
        responses: Records that have the row of this table in ``record``, under the name of its store. Only their types
            are used.
    """
    assert isinstance(node.operation, ResponseJoin)
    other = F.struct(*(F.col(f"`{name}`") for name in responses.fields))
    columns = (
        F.col(f"record.`{node.operation.store}`.*"),
        other.alias("table"),
        "record",
        F.lit(True).alias("_is_there"),
    )
    return joined_values(responses.data.where("false").select(*columns), node, responses)


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
        operation: Has the expression.

    Raises:
        Refused: The expression has values that the serde of the other table's keys cannot write.
    """
    key, fault = new_key(operation.key_serde, frame.data, operation.foreign_key)
    is_value = F.col("record.reason").isNull() & F.col("record.value").isNotNull()
    if fault is not None:
        reason = F.coalesce(F.col("record.reason"), F.when(is_value, fault))
        frame = replace(frame.with_record(F.col("record").withField("reason", reason)), no_rejects=False)
    return frame, F.when(is_value, write_key(operation.key_serde, key))


def table_source(subtopology: Subtopology) -> Source:
    """Return the source of the table of one side of a join by a foreign key."""
    return next(source for source in subtopology.sources if source.carried is None)


def carrying_source(subtopology: Subtopology) -> Source:
    """Return the source with what the other side has written."""
    return next(source for source in subtopology.sources if source.carried is not None)


def _with_state(
    subtopology: Subtopology, frames: Mapping[str, RecordFrame], results: DataFrame | None, *, restored: bool
) -> DataFrame:
    table, carrying = table_source(subtopology), carrying_source(subtopology)
    this = rejecting_binary_keys(frames[table.name])
    other = frames[carrying.name]
    added = [StructField("made", StringType()), StructField("to", BinaryType())]
    added += [StructField("sent", BinaryType()), StructField("place", IntegerType())]
    if subtopology.processors_with(SubscriptionReceive):
        rows = _rows(THIS, this).unionByName(_rows(OTHER, other), allowMissingColumns=True)
        schema = StructType([*rows.schema.fields, *added])
        responder = ResponderState(restored=restored)
        return rows.groupBy("partition", "key").transformWithState(responder, schema, "Update", "none")
    (subscriber,) = subtopology.processors_with(SubscriptionSend)
    (join,) = subtopology.processors_with(ResponseJoin)
    assert isinstance(subscriber.operation, SubscriptionSend)
    assert isinstance(join.operation, ResponseJoin)
    this, foreign_key = foreign_keys(this, subscriber.operation)
    rows = _rows(THIS, this, foreign_key.alias("refers"))
    rows = rows.unionByName(_rows(OTHER, other, number=1), allowMissingColumns=True)
    if results is not None:
        rows = rows.unionByName(_stored_results(results), allowMissingColumns=True)
    of_value = cast(StructType, rows.schema[_THIS_FIELDS].dataType)
    schema = StructType([*rows.schema.fields, *added, StructField("joined", of_value)])
    state = SubscriberState(
        of_value,
        (_THIS_FIELDS, _OTHER_FIELDS),
        left=join.operation.left,
        stores_result=any(
            isinstance(node.operation, ForeignKeyResult) and node.store for node in subtopology.processors
        ),
        restored=restored,
    )
    return rows.groupBy("partition", "key").transformWithState(state, schema, "Update", "none")


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
        F.col("record").dropFields("timestamp").alias("record"),  # ``at`` has it in ms
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
