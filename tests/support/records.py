"""What is in a topic, read by a consumer that shares no code with the product."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, Message, TopicPartition


def read_committed(bootstrap_servers: str, topic: str, properties: Mapping[str, str] | None = None) -> list[Message]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "test-reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,  # for so long brokers keep the answer that a partition has no more records
            **(properties or {}),
        }
    )
    try:
        partitions = consumer.list_topics(topic, 60).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        found: list[Message] = []
        ended: set[int | None] = set()
        deadline = time.monotonic() + 300
        while len(ended) < len(partitions):
            assert time.monotonic() < deadline, f"no end of {topic} within 300 s"
            messages = consumer.consume(10_000, 0.02)
            ended |= {message.partition() for message in messages if message.error()}
            found += [message for message in messages if not message.error()]
        return found
    finally:
        consumer.close()


def recount(orders: Sequence[Message]) -> Counter[bytes]:
    return Counter(b"%d" % json.loads(message.value())["ProductType"] for message in orders)
