"""The aggregator's processes are killed in the middle, as often as it takes, and the totals are exact afterwards."""

from __future__ import annotations

import json
import os
import runpy
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from streamplan import Pipeline
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.topics import apply_topics
from streamplan.pipelines.orders import order

from tests.support.aggregator_process import CHANGELOG, ORDERS, REPARTITION, Aggregator, await_condition
from tests.support.brokers import retried
from tests.support.records import read_committed
from tests.support.soak import soak

RECORDS = 80_000


def processed(consumer: Consumer, topic: str) -> int:
    """The sum of the committed positions in a topic with two partitions."""
    asked = [TopicPartition(topic, partition) for partition in (0, 1)]
    return sum(max(at.offset, 0) for at in retried(lambda: consumer.committed(asked, 120)))


def await_progress(consumer: Consumer, topic: str, before: int, aggregator: Aggregator) -> None:
    await_condition("progress", lambda: processed(consumer, topic) > before, aggregator.log)


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

    orders = threading.Thread(target=produce)
    orders.start()
    try:
        for kill in range(kills):
            before = processed(consumer, REPARTITION)
            aggregator.start("--max-offsets", "2000", "--trigger-interval-ms", "0")
            # Micro-batches follow each other without a pause: the kill lands wherever it lands in them.
            await_progress(consumer, REPARTITION, before, aggregator)
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


VISITS = """
from streamplan import Json, Pipeline, Processor, Topology


class Numbered(Processor):
    def process(self, record, store):
        before = store.get()
        number = 1 if before is None else before.n + 1
        store.put({"n": number})
        yield {"n": number, "id": record.value.id}


topology = Topology("visits")
numbered = topology.stream("visits", value=Json("id bigint")).process(
    Numbered, store="numbers", state="n bigint", schema="n bigint, id bigint"
)
numbered.to("numbered")
numbered.group_by_key().count(store="counted")
PIPELINE = Pipeline("visits", topology, "", {"visits": 2, "numbered": 2})
"""


@pytest.mark.soak
def test_a_class_takes_each_record_once_after_kills_in_the_middle(
    bootstrap_servers: str, tmp_path: Path, spark_environment: Mapping[str, str], spark_jars: Path
) -> None:
    """The micro-batches have several Arrow batches, and write for seconds: a class is never committed in parts."""
    (tmp_path / "visits.py").write_text(VISITS)
    pipeline: Pipeline = runpy.run_path(str(tmp_path / "visits.py"))["PIPELINE"]
    path = os.pathsep.join([str(tmp_path), spark_environment.get("PYTHONPATH", "")])
    environment = {**spark_environment, "PYTHONPATH": path, "STREAMPLAN_PIPELINES": "visits"}
    aggregator = Aggregator(bootstrap_servers, tmp_path, environment, spark_jars, pipeline="visits")
    apply_topics(Brokers(bootstrap_servers), pipeline)
    producer = Producer({"bootstrap.servers": bootstrap_servers, "partitioner": "murmur2_random"})
    for number in range(RECORDS):
        producer.produce("visits", key=f"visitor {number * number % 211}", value=json.dumps({"id": number}))
        producer.poll(0)
    assert producer.flush(120) == 0
    group = {"group.id": "visits", "isolation.level": "read_uncommitted"}
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, **group})

    try:
        for kill in range(3):
            before = processed(consumer, "visits")
            assert before < RECORDS, "all was done before the last kill"
            aggregator.start("--max-offsets", "16000", "--trigger-interval-ms", "0")
            await_progress(consumer, "visits", before, aggregator)
            time.sleep(0.9 * (kill + 1))
            aggregator.kill()
        drained = aggregator.start("--available-now")
        assert drained.wait(600) == 0, aggregator.log.read_text()[-3000:]

        ids: dict[bytes, list[int]] = {}
        for message in read_committed(bootstrap_servers, "visits"):
            ids.setdefault(message.key(), []).append(json.loads(message.value())["id"])
        numbered: dict[bytes, list[dict[str, int]]] = {}
        for message in read_committed(bootstrap_servers, "numbered"):
            numbered.setdefault(message.key(), []).append(json.loads(message.value()))
        assert numbered == {
            key: [{"n": n, "id": each} for n, each in enumerate(of, start=1)] for key, of in ids.items()
        }
        counted = read_committed(bootstrap_servers, pipeline.topology.changelog_topic("counted"))
        last = {message.key(): int.from_bytes(message.value(), "big") for message in counted}
        assert last == {key: len(of) for key, of in ids.items()}
    finally:
        aggregator.kill()
        consumer.close()
        admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        for future in admin.delete_topics([spec.name for spec in pipeline.topics()]).values():
            future.exception(120)
        for future in admin.delete_consumer_groups(["visits"]).values():
            future.exception(120)
