"""What Spark's consumers keep between micro-batches, asked of the JVM itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from streamplan.spark.sources import consumer_options

from tests.support.brokers import NewTopicFactory

PARTITIONS = 32
RECORDS = 60_000
"""Of each partition: fewer than one fetch has."""

MOST = 200 * 2**20
"""Bytes on the heap: half of what all of the records take."""


def live_bytes(spark: SparkSession) -> int:
    """What is reachable on the heap of Spark's JVM."""
    jvm: Any = spark._jvm
    jvm.java.lang.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    return int(runtime.totalMemory() - runtime.freeMemory())


@pytest.fixture
def many(bootstrap_servers: str, new_topic: NewTopicFactory) -> str:
    topic = new_topic("many", partitions=PARTITIONS)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "compression.type": "lz4",
            "queue.buffering.max.messages": PARTITIONS * RECORDS,
        }
    )
    for number in range(RECORDS):
        for partition in range(PARTITIONS):
            producer.produce(topic, b'{"Id": "order_%d", "ProductType": 1}' % number, partition=partition)
        producer.poll(0)
    assert producer.flush(120) == 0
    return topic


@pytest.mark.soak
def test_what_the_consumers_keep_is_bounded_for_all_partitions_together(
    spark: SparkSession, bootstrap_servers: str, many: str
) -> None:
    before = live_bytes(spark)
    ends = json.dumps({many: {str(number): 100 for number in range(PARTITIONS)}})
    read = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap_servers)
    read = read.options(**consumer_options(PARTITIONS)).option("subscribe", many).option("endingOffsets", ends)
    assert read.load().count() == PARTITIONS * 100
    # A poll is for later micro-batches, too, and is kept. With the same poll for each partition all of them would be.
    assert live_bytes(spark) - before <= MOST
