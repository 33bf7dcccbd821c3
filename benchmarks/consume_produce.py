"""Re-keys orders in plain Python: librdkafka, our JSON reader, one transaction every 100 ms. No framework is faster.

It runs one process for each partition and ends when everything is read. Arguments: bootstrap servers, group, output
topic, number of partitions.
"""

from __future__ import annotations

import sys
import time
from multiprocessing import Process

from confluent_kafka import Consumer, Producer, TopicPartition
from streamplan.model.partitioner import LIBRDKAFKA_PARTITIONER
from streamplan.registry import pipeline_named
from streamplan.serdes.json import Json

COMMIT_SECONDS = 0.1


def run(servers: str, group: str, output: str, number: int) -> None:
    """Re-key one partition."""
    (source,) = pipeline_named("orders").topology.subtopologies[0].sources
    assert isinstance(source.value, Json)
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": f"{group}-{number}",
            "partitioner": LIBRDKAFKA_PARTITIONER,
            "compression.type": "lz4",
            "batch.size": 1_000_000,
            "linger.ms": 5,
            "queue.buffering.max.messages": 10_000_000,
        }
    )
    at, end = consumer.get_watermark_offsets(TopicPartition("orders", number), 30)
    consumer.assign([TopicPartition("orders", number, at)])
    producer.init_transactions(30)
    produce = producer.produce
    while at < end:
        producer.begin_transaction()
        until = time.monotonic() + COMMIT_SECONDS
        while time.monotonic() < until:
            messages = consumer.consume(10_000, 0.01)
            if not messages:
                continue
            values = [message.value() for message in messages]
            columns = source.value.key_column("ProductType", values)
            for key, value, message in zip(columns.keys.to_pylist(), values, messages, strict=True):
                produce(output, value, key, -1, None, None, message.timestamp()[1])
            producer.poll(0)
            last = messages[-1].offset()
            assert last is not None
            at = last + 1
        position = TopicPartition("orders", number, at)
        producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), 30)
        producer.commit_transaction(60)
    consumer.close()


def main() -> None:
    """Re-key all partitions."""
    servers, group, output, partitions = sys.argv[1:5]
    running = [Process(target=run, args=(servers, group, output, number)) for number in range(int(partitions))]
    for process in running:
        process.start()
    for process in running:
        process.join()
    sys.exit(max(process.exitcode or 0 for process in running))


if __name__ == "__main__":
    main()
