"""The orders topology under names of its own, run in the Spark session of the tests."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from pyspark.sql import SparkSession
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.task_ownership import ClaimedTasks, TaskOwnership
from streamplan.kafka.topics import apply_topics
from streamplan.model.pipeline import Pipeline, TestData
from streamplan.model.topology import Topology
from streamplan.pipelines.orders import ORDER, order

from tests.support.draining import drain
from tests.support.records import read_committed
from tests.support.waiting import DEADLINE_SECONDS

_numbers = itertools.count()


class Application:
    """The orders topology under names of its own, so that tests do not meet on the shared brokers."""

    def __init__(self, bootstrap_servers: str, checkpoints: Path, spark: SparkSession) -> None:
        number = next(_numbers)
        self.bootstrap_servers = bootstrap_servers
        self.checkpoints = checkpoints
        self.spark = spark
        self.orders = f"orders-{number}"
        self.topology = Topology(f"app-{number}")
        self.topology.stream(self.orders, value=ORDER).group_by("ProductType", name="quantities").count(store="totals")
        self.pipeline = Pipeline(
            name=f"app{number}",
            topology=self.topology,
            description="",
            topic_partitions={self.orders: 2},
            test_data=TestData((self.orders,), lambda n: (self.orders, *order(n)), "Id"),
        )
        self.repartition = self.topology.decorate("quantities-repartition")
        self.changelog = self.topology.changelog_topic("totals")
        self.dead_letter = self.topology.dead_letter_topic

    def create_topics(self) -> None:
        apply_topics(Brokers(self.bootstrap_servers), self.pipeline, deadline_seconds=DEADLINE_SECONDS)

    def produce(self, records: Sequence[tuple[bytes | None, bytes | None]], **more: Any) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "partitioner": "murmur2_random",
                "message.max.bytes": 4_000_000,
                "compression.type": "lz4",
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        for key, value in records:
            producer.poll(0)
            producer.produce(self.orders, key=key, value=value, **more)
        assert producer.flush(120) == 0

    def drain(self, *, max_offsets: int = 500_000, stop: threading.Event | None = None) -> None:
        drain(self.spark, self.pipeline, Brokers(self.bootstrap_servers), self.checkpoints, max_offsets, stop=stop)

    def claim(self) -> ClaimedTasks:
        """As a starting aggregator does."""
        with TaskOwnership(self.pipeline, Brokers(self.bootstrap_servers)) as ownership:
            return ownership.claim({0: False, 1: False})

    def committed(self, topic: str) -> list[Message]:
        """Every committed record, by a consumer that shares no code with the product."""
        return read_committed(self.bootstrap_servers, topic)

    def totals(self) -> dict[bytes, int]:
        """The last value of each key in the changelog."""
        return {m.key(): int.from_bytes(m.value(), "big", signed=True) for m in self.committed(self.changelog)}

    def lag(self, topic: str) -> int:
        consumer = Consumer({"bootstrap.servers": self.bootstrap_servers, "group.id": self.topology.application_id})
        try:
            positions = consumer.committed([TopicPartition(topic, partition) for partition in (0, 1)], 60)
            return sum(consumer.get_watermark_offsets(at, 60)[1] - at.offset for at in positions)
        finally:
            consumer.close()


def numbered(first: int, last: int) -> list[tuple[bytes | None, bytes | None]]:
    return [order(n) for n in range(first, last)]
