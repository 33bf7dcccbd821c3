"""Recounts a join of tables by a foreign key: the joined values of the last values of both tables.

What the two sides send each other depends on the moments at which the records of both tables came, and so do the joined
values between. The last ones do not. A key is left out while a subscription or a response of it is under way.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from streamplan.model.operations import ResponseJoin, SubscriptionReceive, SubscriptionSend
from streamplan.model.processor_topology import Processor
from streamplan.model.stages.foreign_key import ForeignKeyStage
from streamplan.serdes.subscriptions import HASH_BYTES, Instruction
from streamplan.spark.planning.foreign_key_join import foreign_keys, joined_values, judged, without_subscriptions
from streamplan.spark.planning.operators import OperatorPlanner
from streamplan.spark.planning.record_parts import TOLD_PART
from streamplan.spark.planning.records import RecordFrame, rejecting_binary_keys

_BEGIN = f"if(substring(value, 1, 1) >= X'80', 3, {3 + HASH_BYTES})"
"""Where the primary key begins in a subscription, counted from 1."""

_PRIMARY_KEY = f"substring(value, {_BEGIN}, octet_length(value) - {_BEGIN} - 3)"
"""The primary key of the subscription in the column ``value``."""

_DELETES = "substring(value, 2, 1) in ({})".format(", ".join(f"X'{each:02X}'" for each in Instruction if each.deletes))


def bind_recounted_side(
    planner: OperatorPlanner, side: ForeignKeyStage, this: RecordFrame, others: Mapping[str, RecordFrame]
) -> None:
    """Let a planner go on with what the records of one side of a join by a foreign key demand.

    Args:
        planner: Of the sub-topology.
        side: The side. Where it is the responder, the planner has all subscriptions that were sent.
        this: The records of its table.
        others: By the name of a source of responses the records of the other table.
    """
    match side.node.operation:
        case SubscriptionReceive() as receive:
            sent = planner.consume(side.carrying.name)
            assert sent is not None, f"{side.carrying.name} is not read"
            stored = _last_subscriptions(sent, receive)
            planner.bind(side.node.name, stored)
            planner.write_sent(side.node, stored)
            for node in side.responders:
                planner.bind(node.name, without_subscriptions(this, node.operation))
        case SubscriptionSend() as subscriber:
            planner.bind(side.node.name, without_subscriptions(this, subscriber))
            other = others[side.carrying.name]
            assert side.join is not None
            assert side.result is not None
            joined = _last_results(subscriber, side.join, this, other)
            planner.bind(side.join.name, judged(joined, side.result, side.subtopology))


def keys_under_way(subscriptions: DataFrame, responses: DataFrame) -> DataFrame:
    """Return the keys of this table of which something is under way.

    Args:
        subscriptions: The records of the registration topic that are not processed.
        responses: Those of the response topic.

    Returns:
        The column ``key``, in bytes.
    """
    return subscriptions.select(F.expr(_PRIMARY_KEY).alias("key")).unionByName(responses.select("key")).distinct()


def _last_subscriptions(frame: RecordFrame, operation: SubscriptionReceive) -> RecordFrame:
    """The last subscription of each foreign key and primary key, as the store has it."""
    rows = frame.data.select(frame.key.alias("foreign_key"), F.col("record.value").alias("value"), "record").where(
        "foreign_key is not null"
    )
    length = F.unhex(F.lpad(F.hex(F.octet_length("foreign_key")), 8, "0"))
    rows = rows.withColumn("to", F.concat(length, F.col("foreign_key"), F.expr(_PRIMARY_KEY)))
    rows = rows.withColumn("sent", F.when(~F.expr(_DELETES), F.col("value")))
    data = _last(rows, F.col("to")).select("to", "sent", "record")
    known = without_subscriptions(frame, operation)
    return RecordFrame(data, value_is_raw=True, no_rejects=True, format=known.format, key_serde=frame.key_serde)


def _last_results(subscriber: SubscriptionSend, node: Processor, this: RecordFrame, other: RecordFrame) -> RecordFrame:
    """The joined value of each key, null where there is none. Its time is null, since it depends on the order."""
    assert isinstance(node.operation, ResponseJoin)
    records, foreign_key = foreign_keys(this, subscriber)
    left = records.data.withColumn("_foreign_key", foreign_key).where("record.reason is null")
    left = _last(left, records.key)
    found = rejecting_binary_keys(other).accepted()
    right = _last(found.data, found.key).where("record.value is not null")
    table = F.struct(*(F.col(f"`{name}`") for name in found.fields)).alias("table")
    rows = left.join(right.select(found.key.alias("_foreign_key"), table), "_foreign_key", "left")
    is_there = F.col("record.value").isNotNull()
    if not node.operation.left:
        is_there &= F.col("table").isNotNull()
    record = F.col("record").dropFields(TOLD_PART)
    for name, of_column in {"topic": "string", "offset": "bigint", "timestamp": "timestamp"}.items():
        record = record.withField(name, F.lit(None).cast(of_column))
    fields = [F.col(f"`{name}`") for name in records.fields]
    seen = rows.select(*fields, "table", record.alias("record"), is_there.alias("_is_there"))
    return joined_values(seen, node, this)


def _last(rows: DataFrame, key: Column) -> DataFrame:
    """The last row of each key of each partition."""
    by_key = Window.partitionBy("record.partition", "_by").orderBy(F.desc("record.offset"))
    numbered = rows.withColumn("_by", key).withColumn("_number", F.row_number().over(by_key))
    return numbered.where("_number = 1").drop("_by", "_number")
