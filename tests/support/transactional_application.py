"""The orders application in plain Python on real brokers, with transactions as ``exactly_once_v2`` has them.

It shares nothing with the aggregator; the checks must hold for any application that keeps Kafka Streams' protocol.
"""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.topics import apply_topics
from streamplan.kafka_port import records_of
from streamplan.model.pipeline import Pipeline, TestData
from streamplan.model.processor_topology import TaskId
from streamplan.model.topics import resolve_configs
from streamplan.model.topology import Topology
from streamplan.pipelines.orders import ORDER, order

from tests.support.brokers import await_topics, retried

_numbers = itertools.count()

Written: TypeAlias = tuple[str, bytes | None, bytes | None, int | None, list[tuple[str, bytes]]]
"""Topic, key, value, partition (None: as the partitioner says), headers."""
Alter: TypeAlias = Callable[[list[Written]], list[Written]]


class TransactionalApplication:
    """``partitioner``: librdkafka's name of what places the records of the repartition topic; ``longer``: its names;
    ``name``: its application id; ``orders``, ``partitions``, ``repartition_from``: of its source."""

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        partitioner: str = "murmur2_random",
        longer: int = 0,
        name: str = "",
        orders: str = "",
        partitions: int = 2,
        repartition_from: Mapping[str, str] | None = None,
    ) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.partitioner = partitioner
        name = name or f"checked-{os.getpid()}-{next(_numbers)}{'-' * longer}"
        self.orders = orders or f"{name}-orders"
        self.partitions = partitions
        topology = Topology(name)
        topology.stream(self.orders, value=ORDER).group_by("ProductType", name="quantities").count(store="totals")
        self.pipeline = Pipeline(
            name[:100],
            topology,
            "",
            {self.orders: partitions},
            self._test_data(),
            repartition_from=repartition_from or {},
        )
        self.group = topology.application_id
        self.repartition = topology.decorate("quantities-repartition")
        self.changelog = topology.changelog_topic("totals")
        self.dead_letters = topology.dead_letter_topic
        self.stores: dict[int, Counter[bytes]] = {number: Counter() for number in range(partitions)}
        """Of each task of the second sub-topology."""
        self.cluster = KafkaCluster(Brokers(bootstrap_servers))
        self.admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 2})
        self._positions = {
            (topic, number): 0 for topic in (self.orders, self.repartition) for number in range(partitions)
        }
        self._producers: dict[TaskId, Producer] = {}
        self._kept: list[Producer] = []
        self._group_reader = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": self.group, "log_level": 2})
        self.plain = Producer({"bootstrap.servers": bootstrap_servers, "partitioner": "murmur2_random", "log_level": 2})

    def _test_data(self) -> TestData:
        return TestData((self.orders,), lambda n: (self.orders, *order(n)), "Id")

    @property
    def totals(self) -> Counter[bytes]:
        return sum(self.stores.values(), Counter[bytes]())

    def create_topics(self, otherwise: NewTopic | None = None) -> None:
        """As declared, but for one that is given."""
        if otherwise is None:
            apply_topics(Brokers(self.bootstrap_servers), self.pipeline)
        else:
            self._create(otherwise)
        at = [
            TopicPartition(topic, number, 0)
            for topic, number in self._positions
            if otherwise is None or topic != otherwise.topic or number < otherwise.num_partitions
        ]
        retried(lambda: self._group_reader.commit(offsets=at, asynchronous=False))

    def _create(self, otherwise: NewTopic) -> None:
        specs = [spec for spec in self.pipeline.topics() if spec.name != otherwise.topic]
        new = [NewTopic(spec.name, spec.partitions, 2, config=resolve_configs(spec, 2)) for spec in specs]
        for future in self.admin.create_topics([otherwise, *new]).values():
            future.result(120)
        await_topics(self.bootstrap_servers, otherwise.topic, *(spec.name for spec in specs))

    def commit(self, topic: str, partition: int, position: int) -> None:
        at = TopicPartition(topic, partition, position)
        retried(lambda: self._group_reader.commit(offsets=[at], asynchronous=False))

    def forget_positions(self) -> None:
        """The group is deleted, positions and all."""
        self._group_reader.close()
        self.admin.delete_consumer_groups([self.group])[self.group].result(120)

    def resume(self) -> None:
        """Go on where the group stands, with the totals of the changelog: what an aggregator restores."""
        for topic in (self.orders, self.repartition):
            for number, position in self.cluster.positions(self.group, topic).items():
                self._positions[topic, number] = position
        for number, found in self.cluster.offsets(self.changelog).items():
            for batch in self.cluster.read(self.changelog, {number: (found.log_start, found.last_stable)}):
                for record in records_of(batch):
                    assert record.key is not None
                    self.stores[number][record.key] = int.from_bytes(record.value or b"", "big")

    def keep(self, producer: Producer) -> None:
        """One that must not be collected while its transaction is to stay open."""
        self._kept.append(producer)

    def close(self) -> None:
        for producer in self._kept:
            producer.abort_transaction(120)
        self._group_reader.close()
        for future in self.admin.delete_topics([spec.name for spec in self.pipeline.topics()]).values():
            future.exception(120)

    def produce(self, topic: str, key: bytes | None, value: bytes | None, **more: Any) -> None:
        """Outside any transaction."""
        self.plain.produce(topic, value, key, **more)
        assert self.plain.flush(120) == 0

    def order_many(self, first: int, last: int) -> None:
        for n in range(first, last):
            key, value = order(n)
            self.plain.produce(self.orders, value, key)
        assert self.plain.flush(120) == 0

    def drain(self) -> None:
        for subtopology, source in ((0, self.orders), (1, self.repartition)):
            self._settle(source)
            for partition in range(self.partitions):
                self.step(TaskId(subtopology, partition))

    def _settle(self, topic: str) -> None:
        """Markers are written after the producer's commit has returned."""
        deadline = time.monotonic() + 300
        while any(found.last_stable != found.high_watermark for found in self.cluster.offsets(topic).values()):
            assert time.monotonic() < deadline, f"a transaction on {topic} stays open"

    def step(self, task: TaskId, *, abort: bool = False, alter: Alter | None = None) -> None:
        """One transaction of a stream task: all that its partition holds, and the position.

        ``alter`` makes of what it would write, topic, key, value and partition, what it writes instead.
        """
        source = (self.orders, self.repartition)[task.subtopology]
        offsets = self.cluster.offsets(source)
        first = self._positions[source, task.partition]
        if task.partition not in offsets or first == (last := offsets[task.partition].last_stable):
            return
        written: list[Written] = []
        producer = self._producer(task)
        producer.begin_transaction()
        store = self.stores[task.partition].copy()
        for batch in self.cluster.read(source, {task.partition: (first, last)}):
            for record in records_of(batch):
                if task.subtopology == 1 and record.key is not None:
                    store[record.key] += 1
                    count = store[record.key].to_bytes(8, "big")
                    written.append((self.changelog, record.key, count, task.partition, []))
                elif (record.value or b"")[-2:] in (b"0}", b"1}"):
                    written.append((self.repartition, (record.value or b"")[-2:-1], record.value, None, []))
                elif task.subtopology == 0:
                    written.append(self._dead_letter(task, record.offset, record.key, record.value))
        for topic, key, value, partition, headers in alter(written) if alter else written:
            more = {} if partition is None else {"partition": partition}
            producer.produce(topic, value, key, headers=headers, **more)
        if abort:
            producer.flush(120)
            producer.abort_transaction(120)
            return
        at = TopicPartition(source, task.partition, last)
        producer.send_offsets_to_transaction([at], self._group_reader.consumer_group_metadata(), 120)
        producer.commit_transaction(120)
        self._positions[source, task.partition] = last
        if task.subtopology == 1:
            self.stores[task.partition] = store

    def skip_one(self, partition: int) -> None:
        """A lost record: the position moves, and nothing was written."""
        self._positions[self.orders, partition] += 1
        self.commit(self.orders, partition, self._positions[self.orders, partition])

    def _dead_letter(self, task: TaskId, offset: int, key: bytes | None, value: bytes | None) -> Written:
        headers = {
            "streamplan.reason": "unfit",
            "streamplan.task": str(task),
            "streamplan.source.topic": self.orders,
            "streamplan.source.partition": str(task.partition),
            "streamplan.source.offset": str(offset),
        }
        coded = [(name, text.encode()) for name, text in headers.items()]
        return self.dead_letters, key, value, task.partition, coded

    def _producer(self, task: TaskId) -> Producer:
        if task not in self._producers:
            self._producers[task] = Producer(
                {
                    "bootstrap.servers": self.bootstrap_servers,
                    "transactional.id": f"{self.group}-{task}",
                    "partitioner": self.partitioner,
                    "log_level": 2,
                }
            )
            self._producers[task].init_transactions(120)
        return self._producers[task]
