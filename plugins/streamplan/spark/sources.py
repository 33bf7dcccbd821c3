"""Kafka topics as DataFrames: as a stream, or as a batch of the records between two offsets of each partition."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streamplan.kafka.brokers import Brokers

HEADERS = "string"
"""The type of the column ``headers``: JSON, with the values in base64; null for a record without headers.

It is not Kafka's array, because Spark asks for each row how large its Arrow batch has become, and Arrow answers for an
array of nulls by looking at each of them again. That took three quarters of the executors' time.
"""

RAW_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
"""The columns of a record as it was read from Kafka."""

RAW = f"key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, headers {HEADERS}"
"""The same columns with their types, as Spark's DDL."""

_POLLED_RECORDS = 400_000
_FETCHED_BYTES = 16 * 1024 * 1024


def read_stream(
    spark: SparkSession,
    brokers: Brokers,
    topic: str,
    *,
    partitions: int,
    max_offsets: int | None = None,
    until: Mapping[int, int] | None = None,
) -> DataFrame:
    """Read the committed records of a topic as a stream.

    Args:
        spark: The session of the query.
        topic: The name in Kafka.
        partitions: How many partitions the session's streams read at a time, all together.
        max_offsets: The most offsets of one micro-batch; None takes all that there are.
        until: By partition the first offset that is left out. Spark's stream has no end: it reads what lies behind.

    Returns:
        A streaming DataFrame with the columns :data:`RAW`. It begins at the offsets in the query's checkpoint.
    """
    reader = (
        spark.readStream.format("kafka")
        .options(**brokers.spark_options())
        .options(**consumer_options(partitions))
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")  # Checkpoint.begin_at gives a new checkpoint its first offsets
        .option("failOnDataLoss", True)
        .option("includeHeaders", True)
    )
    if max_offsets is not None:
        reader = reader.option("maxOffsetsPerTrigger", max_offsets)
    records = reader.load()
    if until:
        end = of_partition(until, F.col("partition"))
        records = records.where(end.isNull() | (F.col("offset") < end))
    return raw_records(records)


def read_ticks(spark: SparkSession, partitions: int) -> DataFrame:
    """Read a stream that gives each stream task a row now and then, so that micro-batches run without records.

    Args:
        spark: The session of the query.
        partitions: The number of stream tasks.

    Returns:
        A streaming DataFrame with the column ``partition``. It has a row for each of them each second.
    """
    ticks = spark.readStream.format("rate").option("rowsPerSecond", 1).option("numPartitions", 1).load()
    return ticks.select(F.explode(F.sequence(F.lit(0), F.lit(partitions - 1))).alias("partition"))


def of_partition(offsets: Mapping[int, int], partition: Column) -> Column:
    """Return the offset that belongs to a partition; null where none does.

    Args:
        offsets: By partition the offset. There is at least one.
        partition: The number of the partition.
    """
    pairs = [(F.lit(number), F.lit(offset).cast("bigint")) for number, offset in sorted(offsets.items())]
    return F.try_element_at(F.create_map(*(column for pair in pairs for column in pair)), partition)


def read_batch(
    spark: SparkSession,
    brokers: Brokers,
    topic: str,
    ends: Mapping[int, int],
    starts: Mapping[int, int] | None = None,
) -> DataFrame:
    """Read the committed records of a topic between two offsets of each partition.

    Args:
        spark: Any session.
        topic: The name in Kafka.
        ends: For each partition the offset past the last record that is read.
        starts: For each partition the first offset that is read; None begins at the first offset there is.

    Returns:
        A DataFrame with the columns :data:`RAW`. Spark raises an error when records in the range are gone.
    """
    reader = (
        spark.read.format("kafka")
        .options(**brokers.spark_options())
        .options(**consumer_options(len(ends)))
        .option("subscribe", topic)
        .option("startingOffsets", "earliest" if starts is None else _offsets(topic, starts))
        .option("endingOffsets", _offsets(topic, ends))
        .option("failOnDataLoss", True)
        .option("includeHeaders", True)
    )
    return raw_records(reader.load())


def raw_records(records: DataFrame) -> DataFrame:
    """Select the columns :data:`RAW` from what Spark's connector read with ``includeHeaders``."""
    return records.withColumn("headers", F.to_json("headers")).select(*RAW_COLUMNS)


def consumer_options(partitions: int) -> dict[str, str]:
    """Options of the Kafka consumers in Spark's connector, for every way of reading.

    Args:
        partitions: How many partitions are read at a time. Spark keeps a consumer for each partition, together with the
            records that it has polled and not used yet. What is best for two partitions would take more than an
            executor's heap for 64, so that each consumer polls its share.
    """
    return {
        "kafka.isolation.level": "read_committed",
        # At the end of a topic the brokers keep an answer back for so long, 500 ms by default: a micro-batch whose last
        # offsets are transaction markers waits for it.
        "kafka.fetch.max.wait.ms": "20",
        # With each poll Spark asks the brokers for the first and the last offset: as many records as one answer has.
        "kafka.max.poll.records": str(max(500, _POLLED_RECORDS // partitions)),
        "kafka.max.partition.fetch.bytes": str(max(1024 * 1024, _FETCHED_BYTES // partitions)),
    }


def _offsets(topic: str, offsets: Mapping[int, int]) -> str:
    """Offsets as the connector's options take them."""
    return json.dumps({topic: {str(partition): offset for partition, offset in sorted(offsets.items())}})
