"""The totals of topologies that only Spark can compute anew: green on what is healthy, red where it is wrong."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from streamplan.checks.framework.application import application_of
from streamplan.checks.framework.check import Observation
from streamplan.errors import CouldNotLook
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.topics import apply_topics
from streamplan.model.pipeline import Pipeline, TestData
from streamplan.model.topology import Topology
from streamplan.reports.observations import offsets_fingerprint
from streamplan.serdes.json import Json
from streamplan.spark.recount.recount import recount

from tests.support.draining import drain

_numbers = itertools.count()


class Sales:
    """Sales above 10 by shop: their sum and mean in a store, and the sums in a topic."""

    def __init__(self, bootstrap_servers: str, checkpoints: Path, spark: SparkSession) -> None:
        name = f"recounted-{os.getpid()}-{next(_numbers)}"
        self.bootstrap_servers, self.checkpoints, self.spark = bootstrap_servers, checkpoints, spark
        self.sales, self.sums = f"{name}-sales", f"{name}-sums"
        topology = Topology(name)
        (
            topology.stream(self.sales, value=Json("shop string, amount bigint"))
            .filter("amount > 10")
            .group_by("upper(shop)", name="shops")
            .aggregate({"total": "sum(amount)", "mean": "avg(amount)"}, store="totals")
            .to_stream()
            .map_values({"total": "total"})
            .to(self.sums)
        )
        counts = {self.sales: 2, self.sums: 2}
        test_data = TestData((self.sales,), lambda n: (self.sales, b"", b""), "n")
        self.pipeline = Pipeline(name, topology, "", counts, test_data)
        self.repartition = topology.decorate("shops-repartition")
        self.changelog = topology.changelog_topic("totals")
        self.admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        apply_topics(Brokers(bootstrap_servers), self.pipeline)

    def produce(self, topic: str, key: bytes | None, value: bytes, **more: object) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap_servers, "partitioner": "murmur2_random"})
        producer.produce(topic, value, key, **more)
        assert producer.flush(120) == 0

    def sell(self, *amounts: int) -> None:
        for amount in amounts:
            shop = "ab"[amount % 2]
            self.produce(self.sales, b"till", b'{"shop": "%s", "amount": %d}' % (shop.encode(), amount))

    def drain(self) -> None:
        drain(self.spark, self.pipeline, Brokers(self.bootstrap_servers), self.checkpoints, 1000)

    def rows(self) -> list[Observation]:
        brokers = Brokers(self.bootstrap_servers)
        return list(recount(self.spark, self.pipeline, KafkaCluster(brokers), brokers))

    def wrong(self) -> list[str]:
        return [f"{row.subject}: {row.expected}, {row.observed}" for row in self.rows() if not row.agrees]

    def close(self) -> None:
        for future in self.admin.delete_topics([spec.name for spec in self.pipeline.topics()]).values():
            future.exception(120)


@pytest.fixture
def sales(bootstrap_servers: str, tmp_path: Path, spark: SparkSession) -> Iterator[Sales]:
    made = Sales(bootstrap_servers, tmp_path, spark)
    yield made
    made.close()


def test_what_was_processed_agrees_also_with_records_on_the_way(sales: Sales) -> None:
    sales.sell(5, 20, 21, 30)
    sales.produce(sales.sales, b"till", b"not JSON")
    sales.drain()
    sales.sell(40, 41)
    sales.drain()
    sales.sell(100, 101)  # nobody has read these
    rows = sales.rows()
    assert [row for row in rows if not row.agrees] == []
    subjects = [row.subject for row in rows]
    assert any(subject.startswith(f"{sales.repartition}: records") for subject in subjects)
    assert any(subject.startswith(f"{sales.changelog}: keys") for subject in subjects)
    assert any(subject.startswith(f"{sales.sums}: keys") for subject in subjects)


def test_what_lies_in_kafka_differs_when_something_has_come_or_was_processed(sales: Sales) -> None:
    def found() -> object:
        cluster = KafkaCluster(Brokers(sales.bootstrap_servers))
        return json.loads(json.dumps(offsets_fingerprint(application_of(sales.pipeline), cluster)))

    sales.sell(20, 21)
    sales.drain()
    seen = [found()]
    assert found() == seen[0]
    sales.sell(30)
    seen.append(found())
    sales.drain()
    seen.append(found())
    assert seen[0] != seen[1] != seen[2] != seen[0]


def test_nothing_to_look_at_is_not_green(sales: Sales) -> None:
    rows = sales.rows()
    assert rows
    assert not any(row.agrees for row in rows)


def _tamper_with_a_total(sales: Sales) -> None:
    sales.produce(sales.changelog, b"A", b'{"total":51,"mean":{"sum":50,"count":2}}')


def _double_a_record(sales: Sales) -> None:
    sales.produce(sales.repartition, b"A", b'{"shop": "a", "amount": 20}', partition=0)


def _dead_letter_once_more(sales: Sales) -> None:
    headers = [("streamplan.task", b"0_0"), ("streamplan.source.topic", sales.sales.encode())]
    headers += [("streamplan.source.partition", b"0"), ("streamplan.source.offset", b"0")]
    sales.produce(sales.pipeline.topology.dead_letter_topic, b"k", b"v", headers=headers)


def test_each_fault_is_named(sales: Sales) -> None:
    sales.sell(20, 21, 30)
    sales.drain()
    _tamper_with_a_total(sales)
    _double_a_record(sales)
    _dead_letter_once_more(sales)
    wrong = sales.wrong()
    topics = (sales.changelog, sales.repartition, sales.pipeline.topology.dead_letter_topic)
    told = {topic: [row for row in wrong if topic in row] for topic in topics}
    assert sorted(wrong) == sorted(row for rows in told.values() for row in rows), wrong
    for topic, named in zip(
        topics,
        (
            'key A: {"total":50,"mean":{"sum":50,"count":2}}, {"total":51',
            "records that the input does not demand: 0, 1",
            "offset 0",
        ),
        strict=True,
    ):
        assert any(named in row for row in told[topic]), wrong


@pytest.mark.soak
def test_a_record_of_another_producer_is_no_fault(sales: Sales) -> None:
    sales.sell(20, 21, 30)
    sales.drain()
    sales.produce(sales.sums, b"C", b'{"total":1}')
    with pytest.raises(CouldNotLook, match=r"1 keys that the input does not demand \(C\).*All that can be compared"):
        sales.rows()


@pytest.mark.soak
def test_what_was_made_of_deleted_input_is_not_compared(sales: Sales) -> None:
    """The totals are: they were made of the records in the repartition topic."""
    sales.sell(20, 21)
    sales.drain()
    ends = [TopicPartition(sales.sales, partition, 1) for partition in (0, 1)]
    for future in sales.admin.delete_records([end for end in ends if _length(sales, end)]).values():
        future.result(120)
    rows = sales.rows()
    assert [row for row in rows if not row.agrees] == []
    assert any(f"what was made of {sales.sales}-" in row.subject for row in rows if not row.is_judged)


def _length(sales: Sales, end: TopicPartition) -> int:
    return KafkaCluster(Brokers(sales.bootstrap_servers)).offsets(end.topic)[end.partition].high_watermark
