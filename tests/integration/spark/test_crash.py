"""The aggregator's processes are killed in the middle, as often as it takes, and the totals are exact afterwards."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from streamplan.pipelines.orders import order

from tests.support.aggregator_process import CHANGELOG, ORDERS, REPARTITION, Aggregator, await_condition
from tests.support.brokers import retried
from tests.support.records import read_committed
from tests.support.soak import soak


@pytest.mark.soak
@pytest.mark.parametrize("kills", [1, *soak([4])])
def test_totals_are_exact_after_kills_in_the_middle(aggregator: Aggregator, bootstrap_servers: str, kills: int) -> None:
    stop = threading.Event()
    produced = 0

    def produce() -> None:
        nonlocal produced
        producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "partitioner": "murmur2_random", "enable.idempotence": True}
        )
        while not stop.wait(0.01):
            producer.poll(0)
            for _ in range(10):
                key, value = order(produced)
                producer.produce("orders", key=key, value=value)
                produced += 1
        producer.flush(120)

    # A killed aggregator leaves transactions open. Who reads committed positions waits until the next one fences them.
    group = {"group.id": ORDERS.topology.application_id, "isolation.level": "read_uncommitted"}
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, **group})

    def counted() -> int:
        asked = [TopicPartition(REPARTITION, partition) for partition in (0, 1)]
        return sum(max(at.offset, 0) for at in retried(lambda: consumer.committed(asked, 120)))

    orders = threading.Thread(target=produce)
    orders.start()
    try:
        for kill in range(kills):
            before = counted()
            aggregator.start("--max-offsets", "2000", "--trigger-interval-ms", "0")
            # Micro-batches follow each other without a pause: the kill lands wherever it lands in them.
            await_condition("progress", lambda before=before: counted() > before, aggregator.log)  # type: ignore[misc]
            time.sleep(0.37 * (kill + 1))
            aggregator.kill()
    finally:
        stop.set()
        orders.join(300)
        consumer.close()

    drained = aggregator.start("--available-now")
    assert drained.wait(600) == 0, aggregator.log.read_text()[-3000:]

    source = read_committed(bootstrap_servers, "orders")
    assert len(source) == produced
    expected = Counter(b"%d" % json.loads(message.value())["ProductType"] for message in source)
    repartitioned = read_committed(bootstrap_servers, REPARTITION)
    assert Counter(m.value() for m in repartitioned) == Counter(m.value() for m in source)  # each once
    values: dict[bytes, list[int]] = {}
    for message in read_committed(bootstrap_servers, CHANGELOG):
        values.setdefault(message.key(), []).append(int.from_bytes(message.value(), "big"))
    assert {key: counts[-1] for key, counts in values.items()} == expected
    assert all(counts == sorted(set(counts)) for counts in values.values())  # no count went back or stood still
