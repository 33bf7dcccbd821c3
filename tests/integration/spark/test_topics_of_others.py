"""The aggregator and the totals on a topic that another team made and writes, with a retention of seven days."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from streamplan.checks.framework.application import application_in
from streamplan.checks.framework.check import Observation
from streamplan.checks.totals import TotalsCheck
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.topics import apply_topics, delete_records, delete_topics, resolve_pipeline
from streamplan.model.pipeline import Pipeline
from streamplan.model.topology import Topology
from streamplan.pipelines.orders import ORDER
from streamplan.reports.verified_sqlite import SqliteVerifiedStore
from streamplan.spark.recount.recount import recount

from tests.support.brokers import NewTopicFactory
from tests.support.draining import drain
from tests.support.records import read_committed

WEEK = {"cleanup.policy": "delete", "retention.ms": "604800000", "min.insync.replicas": "2"}


class Counting:
    """Orders of a topic of 3 partitions are counted from the end of the topic on, as it is at the first start."""

    def __init__(self, brokers: Brokers, spark: SparkSession, topic: str, directory: Path) -> None:
        self.brokers, self.spark, self.topic = brokers, spark, topic
        self.topology = Topology(f"counting-{os.getpid()}")
        self.topology.stream(topic, value=ORDER).group_by("ProductType", name="quantities").count(store="totals")
        self.pipeline = Pipeline(f"counting{os.getpid()}", self.topology, "", auto_offset_reset="latest")
        self.checkpoints = directory / "checkpoints"
        self.verified = SqliteVerifiedStore(directory / "totals.sqlite")
        apply_topics(brokers, self.pipeline)

    def write(self, first: int, last: int) -> Counter[bytes]:
        """Write orders by a client of the other team. Returns how many of each product type there are."""
        producer = Producer({"bootstrap.servers": str(self.brokers), "partitioner": "murmur2_random", "acks": "all"})
        for n in range(first, last):
            producer.produce(self.topic, json.dumps({"Id": f"order_{n}", "ProductType": n % 2}), f"order_{n}")
        assert producer.flush(120) == 0
        return Counter(b"%d" % (n % 2) for n in range(first, last))

    def drain(self) -> None:
        drain(self.spark, resolve_pipeline(self.pipeline, self.brokers), self.brokers, self.checkpoints)

    def totals(self) -> Counter[bytes]:
        changelog = read_committed(str(self.brokers), self.topology.changelog_topic("totals"))
        return Counter({message.key(): int.from_bytes(message.value(), "big") for message in changelog})

    def look(self) -> list[Observation]:
        cluster = KafkaCluster(self.brokers)
        return list(TotalsCheck(verified=self.verified).observe(application_in(self.pipeline, cluster), cluster))

    def delete_all(self) -> None:
        ends = {n: found.high_watermark for n, found in KafkaCluster(self.brokers).offsets(self.topic).items()}
        delete_records(self.brokers, self.topic, ends)


@pytest.fixture
def counting(brokers: Brokers, spark: SparkSession, new_topic: NewTopicFactory, tmp_path: Path) -> Iterator[Counting]:
    made = Counting(brokers, spark, new_topic("theirs", partitions=3, configs=WEEK), tmp_path)
    yield made
    delete_topics(brokers, [spec.name for spec in made.pipeline.declared_topics() if spec.owned])


def wrong(rows: list[Observation]) -> list[Observation]:
    return [row for row in rows if not row.agrees]


@pytest.mark.soak
def test_totals_from_the_start_moment_on_while_retention_deletes_the_input(counting: Counting) -> None:
    counting.write(0, 10)  # before the first start: never counted
    counting.drain()
    assert counting.totals() == Counter()
    truth = counting.write(10, 40)
    counting.drain()
    assert counting.totals() == truth
    rows = counting.look()
    assert wrong(rows) == []
    assert any("counted from the start of the application at" in row.subject for row in rows)

    # Retention deletes what was verified, and then more than that.
    counting.delete_all()
    truth += counting.write(40, 50)
    counting.drain()
    assert wrong(counting.look()) == []
    truth += counting.write(50, 60)
    counting.drain()
    counting.delete_all()
    truth += counting.write(60, 65)
    counting.drain()
    rows = counting.look()
    assert wrong(rows) == []
    assert any("deleted before they were compared" in row.where for row in rows if not row.is_judged)
    assert counting.totals() == truth

    # The recount by Spark compares each sub-topology by what it read: the repartition topic has all of it.
    resolved = resolve_pipeline(counting.pipeline, counting.brokers)
    recounted = recount(counting.spark, resolved, KafkaCluster(counting.brokers), counting.brokers)
    assert wrong(recounted) == []
    subjects = {row.subject: row.observed for row in recounted}
    assert subjects[f"{counting.topology.changelog_topic('totals')}: keys whose last value is the recounted one"] == 2

    # A record that is lost is red: a total that is one too small, written by somebody.
    changelog = counting.topology.changelog_topic("totals")
    (record,) = [m for m in read_committed(str(counting.brokers), changelog) if m.key() == b"0"][-1:]
    producer = Producer({"bootstrap.servers": str(counting.brokers)})
    producer.produce(changelog, (truth[b"0"] - 1).to_bytes(8, "big"), b"0", record.partition())
    assert producer.flush(120) == 0
    assert next(row.subject for row in wrong(counting.look())).startswith("totals[0]")
