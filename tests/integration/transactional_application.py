"""The orders application in plain Python on real brokers, with transactions as ``exactly_once_v2`` has them.

It shares nothing with the aggregator; the checks must hold for any application that keeps Kafka Streams' protocol.
"""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from streamplan.adapters.kafka.admin import apply_topics
from streamplan.adapters.kafka.reader import KafkaCluster
from streamplan.pipeline import Pipeline, TestData
from streamplan.pipelines.orders import ORDER, order
from streamplan.processor_topology import TaskId
from streamplan.topology import Topology

_numbers = itertools.count()


class TransactionalApplication:
    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        name = f"checked-{os.getpid()}-{next(_numbers)}"
        self.orders = f"{name}-orders"
        topology = Topology(name)
        topology.stream(self.orders, value=ORDER).group_by("ProductType", name="quantities").count(store="totals")
        self.pipeline = Pipeline(name, topology, "", {self.orders: 2}, self._test_data())
        self.group = topology.application_id
        self.repartition = topology.decorate("quantities-repartition")
        self.changelog = topology.changelog_topic("totals")
        self.dead_letters = topology.dead_letter_topic
        self.totals: Counter[bytes] = Counter()
        self.cluster = KafkaCluster(bootstrap_servers)
        self.admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        self._positions = {(topic, number): 0 for topic in (self.orders, self.repartition) for number in (0, 1)}
        self._producers: dict[TaskId, Producer] = {}
        self._group_reader = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": self.group})
        self.plain = Producer({"bootstrap.servers": bootstrap_servers, "partitioner": "murmur2_random"})

    def _test_data(self) -> TestData:
        return TestData((self.orders,), lambda n: (self.orders, *order(n)), "Id")

    def create_topics(self) -> None:
        apply_topics(self.bootstrap_servers, self.pipeline)
        at = [TopicPartition(topic, number, 0) for topic, number in self._positions]
        self._group_reader.commit(offsets=at, asynchronous=False)

    def close(self) -> None:
        self._group_reader.close()
        for future in self.admin.delete_topics([spec.name for spec in self.pipeline.topics()]).values():
            future.exception(10)

    def produce(self, topic: str, key: bytes | None, value: bytes | None, **more: Any) -> None:
        """Outside any transaction."""
        self.plain.produce(topic, value, key, **more)
        assert self.plain.flush(10) == 0

    def order_many(self, first: int, last: int) -> None:
        for n in range(first, last):
            key, value = order(n)
            self.plain.produce(self.orders, value, key)
        assert self.plain.flush(10) == 0

    def drain(self) -> None:
        for subtopology, source in ((0, self.orders), (1, self.repartition)):
            self._settle(source)
            for partition in (0, 1):
                self.step(TaskId(subtopology, partition))

    def _settle(self, topic: str) -> None:
        """Markers are written after the producer's commit has returned."""
        deadline = time.monotonic() + 10
        while any(found.stable != found.end for found in self.cluster.offsets(topic).values()):
            assert time.monotonic() < deadline, f"a transaction on {topic} stays open"

    def step(self, task: TaskId, *, abort: bool = False) -> None:
        """One transaction of a stream task: all that its partition holds, and the position."""
        source = (self.orders, self.repartition)[task.subtopology]
        first = self._positions[source, task.partition]
        last = self.cluster.offsets(source)[task.partition].stable
        if first == last:
            return
        producer = self._producer(task)
        producer.begin_transaction()
        totals = self.totals.copy()
        for chunk in self.cluster.records(source, {task.partition: (first, last)}):
            for record in chunk:
                if task.subtopology == 1:
                    totals[record.key or b""] += 1
                    count = totals[record.key or b""].to_bytes(8, "big")
                    producer.produce(self.changelog, count, record.key, partition=task.partition)
                elif (record.value or b"")[-2:] in (b"0}", b"1}"):
                    producer.produce(self.repartition, record.value, (record.value or b"")[-2:-1])
                else:
                    self._dead_letter(producer, task, record.offset, record.key, record.value)
        if abort:
            producer.flush(10)
            producer.abort_transaction(10)
            return
        at = TopicPartition(source, task.partition, last)
        producer.send_offsets_to_transaction([at], self._group_reader.consumer_group_metadata(), 10)
        producer.commit_transaction(10)
        self._positions[source, task.partition] = last
        if task.subtopology == 1:
            self.totals = totals

    def skip_one(self, partition: int) -> None:
        """A lost record: the position moves, and nothing was written."""
        at = TopicPartition(self.orders, partition, self._positions[self.orders, partition] + 1)
        self._group_reader.commit(offsets=[at], asynchronous=False)
        self._positions[self.orders, partition] += 1

    def _dead_letter(
        self, producer: Producer, task: TaskId, offset: int, key: bytes | None, value: bytes | None
    ) -> None:
        headers = {
            "streamplan.reason": "unfit",
            "streamplan.task": str(task),
            "streamplan.source.topic": self.orders,
            "streamplan.source.partition": str(task.partition),
            "streamplan.source.offset": str(offset),
        }
        producer.produce(self.dead_letters, value, key, partition=task.partition, headers=list(headers.items()))

    def _producer(self, task: TaskId) -> Producer:
        if task not in self._producers:
            self._producers[task] = Producer(
                {
                    "bootstrap.servers": self.bootstrap_servers,
                    "transactional.id": f"{self.group}-{task}",
                    "partitioner": "murmur2_random",
                }
            )
            self._producers[task].init_transactions(30)
        return self._producers[task]
