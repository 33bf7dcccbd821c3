"""What is in a topic, read by a consumer that shares no code with the product."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from tests.support.waiting import eventually

UNDECIDED_SECONDS = 0.5
"""So long a reader waits for the end of transactions. Brokers mark one soon after they have answered the producer."""


def read_committed(bootstrap_servers: str, topic: str, properties: Mapping[str, str] | None = None) -> list[Message]:
    """Return all records of a topic that are committed. Those of a transaction that stays open are left out."""
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
        partitions = [
            TopicPartition(topic, number, 0) for number in consumer.list_topics(topic, 60).topics[topic].partitions
        ]
        consumer.assign(partitions)
        found: list[Message] = []
        ends: dict[int | None, int | None] = {}

        def read_to_the_ends() -> bool:
            """Read on. Returns whether each partition has been read to the end of what is committed."""
            for message in consumer.consume(10_000, 0.02):
                if not message.error():
                    found.append(message)
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    ends[message.partition()] = message.offset()
            return len(ends) == len(partitions)

        def is_undecided() -> bool:
            """Whether a transaction has written more than that."""
            return any(consumer.get_watermark_offsets(at, cached=True)[1] != ends[at.partition] for at in partitions)

        eventually(read_to_the_ends, f"the end of {topic}", interval=0)
        decided = time.monotonic() + UNDECIDED_SECONDS
        while is_undecided() and time.monotonic() < decided:
            read_to_the_ends()
        return found
    finally:
        consumer.close()


def recount(orders: Sequence[Message]) -> Counter[bytes]:
    return Counter(b"%d" % json.loads(message.value())["ProductType"] for message in orders)
