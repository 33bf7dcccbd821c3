"""Records at the borders of time: timestamps that librdkafka, Spark, Python or the brokers take for something else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from streamplan.errors import Refused
from streamplan.model.windows import TimeWindows
from streamplan.serdes.json import Json

from tests.support.tried_topology import EPOCH, SALE, Tried, sale

ANY_TIMESTAMP = {"message.timestamp.after.max.ms": str(2**63 - 1)}
"""Brokers refuse timestamps that are more than an hour ahead otherwise."""


@pytest.fixture
def tried(bootstrap_servers: str, tmp_path: Path, spark: SparkSession) -> Iterator[Tried]:
    """All local state is deleted before each drain."""
    made = Tried(bootstrap_servers, tmp_path, spark, restoring=True)
    yield made
    made.delete_topics()


def produce_at(tried: Tried, topic: str, key: str, value: Any, timestamp: int) -> None:
    """Produce a record with any timestamp in ms."""
    coded = json.dumps(value).encode()
    if timestamp < 0:  # the JVM's producer refuses it
        producer = Producer({"bootstrap.servers": tried.bootstrap_servers, "partitioner": "murmur2_random"})
        producer.produce(tried.named(topic), coded, key, timestamp=timestamp)
        assert producer.flush(120) == 0
        return
    jvm: Any = tried.spark._jvm  # librdkafka takes 0 for now
    properties = jvm.java.util.Properties()
    properties.put("bootstrap.servers", tried.bootstrap_servers)
    for side in ("key", "value"):
        properties.put(f"{side}.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer")
    clients = jvm.org.apache.kafka.clients.producer
    kafka_producer = clients.KafkaProducer(properties)
    try:
        record = clients.ProducerRecord(tried.named(topic), None, timestamp, key.encode(), coded)
        kafka_producer.send(record).get()
    finally:
        kafka_producer.close()


def write_to_changelog(tried: Tried, store: str, key: bytes, value: Any, timestamp: int) -> None:
    """Produce one more update of a key, in the partition of the key's last one."""
    changelog = tried.topology.changelog_topic(store)
    (partition,) = {message.partition() for message in tried.read(changelog) if message.key() == key}
    producer = Producer({"bootstrap.servers": tried.bootstrap_servers})
    producer.produce(changelog, json.dumps(value), key, partition, timestamp=timestamp)
    assert producer.flush(120) == 0


@pytest.mark.soak
def test_a_record_of_timestamp_0_is_in_the_first_window(tried: Tried) -> None:
    """librdkafka would write it with the wall clock's time. The grace keeps its changelog record from being deleted."""
    windowed = (
        tried.topology.stream(tried.named("sales"), value=SALE)
        .group_by("shop", name="by-shop")
        .windowed_by(TimeWindows("1 minute", grace="40000 days"))
    )
    windowed.count(store="counted").to_stream().to(tried.named("shown"))
    tried.create_topics({"sales": ANY_TIMESTAMP})
    for _ in range(2):
        produce_at(tried, "sales", "k", sale("x", 1), 0)
        tried.drain()
    first = bytes(8)
    counted = tried.read(tried.topology.changelog_topic("counted"))
    assert [(m.key(), m.value()[-1], m.timestamp()[1]) for m in counted] == [
        (b"x" + first + bytes(4), 1, 1),
        (b"x" + first + bytes(4), 2, 1),
    ]
    assert {m.timestamp()[1] for m in tried.read(tried.topology.decorate("by-shop-repartition"))} == {1}
    assert [(m.key(), m.timestamp()[1]) for m in tried.read(tried.named("shown"))] == [(b"x" + first, 1)] * 2


@pytest.mark.soak
def test_a_restored_window_is_that_of_the_key(tried: Tried) -> None:
    """Its changelog record has a time outside of it when a clock of the brokers has set it."""
    tried.topology.stream(tried.named("sales"), value=SALE).group_by_key().windowed_by(
        TimeWindows("1 minute", grace="1 hour")
    ).aggregate({"total": "sum(amount)"}, store="totals")
    tried.create_topics()
    start = b"a" + EPOCH.to_bytes(8, "big") + bytes(4)
    tried.produce("sales", [("a", sale("x", 1), 10)])
    tried.drain()
    write_to_changelog(tried, "totals", start, {"total": 5}, EPOCH + 600_000)
    tried.produce("sales", [("a", sale("x", 2), 20)])
    tried.drain()
    changelog = tried.read(tried.topology.changelog_topic("totals"))
    assert [(m.key(), json.loads(m.value())["total"]) for m in changelog] == [(start, 1), (start, 5), (start, 7)]


def test_a_record_with_a_timestamp_that_cannot_be_processed_is_dead_lettered(tried: Tried) -> None:
    topology, named = tried.topology, tried.named
    shops = topology.table(named("shops"), value=Json("city string"), key="shop")
    topology.stream(named("joined"), value=SALE).left_join(shops).to(named("located"))
    topology.stream(named("rekeyed"), value=SALE).group_by("shop", name="by-shop").count(store="counted")
    topology.stream(named("summed"), value=SALE).group_by_key().aggregate({"total": "sum(amount)"}, store="totals")
    topology.stream(named("mapped"), value=SALE).map_values({"amount": "amount"}).to(named("amounts"))
    tried.create_topics(dict.fromkeys(("shops", "joined", "rekeyed", "summed", "mapped", "located"), ANY_TIMESTAMP))
    negative, too_late, far = -5, 253_402_300_800_000, 4_102_444_800_000
    streams = ("joined", "rekeyed", "summed", "mapped")
    for topic in streams:
        tried.produce(topic, [("k", sale("x", 1), 0)])
        produce_at(tried, topic, "k", sale("x", 2), negative)
        produce_at(tried, topic, "k", sale("x", 4), too_late)
        if topic != "mapped":  # whose output belongs to others, with the brokers' limit of an hour ahead
            produce_at(tried, topic, "k", sale("x", 8), far)
    tried.produce("shops", [("k", {"city": "Lyon"}, 0)])
    produce_at(tried, "shops", "k", {"city": "Gent"}, negative)
    tried.drain()
    reasons = ["the timestamp -5 is negative", "the timestamp 253402300800000 is beyond the year 9999"]
    faulty = [(topic, reason) for topic in streams for reason in reasons]
    assert tried.dead_letters() == sorted([*faulty, ("shops", reasons[0])])
    assert [value["amount"] for _, value in tried.records("located")] == [1, 8]
    assert {value["city"] for _, value in tried.records("located")} == {"Lyon"}
    assert tried.records("amounts") == [("k", {"amount": 1})]
    counted = tried.read(topology.changelog_topic("counted"))
    assert [(m.key(), m.value()[-1], m.timestamp()[1]) for m in counted] == [(b"x", 2, far)]
    assert tried.store("totals") == {"k": {"total": 9}}


def test_a_timestamp_that_the_source_cannot_read_is_refused_with_the_record_s_place(tried: Tried) -> None:
    """Nanoseconds in place of milliseconds, for example: no plan sees the record, so that none can dead-letter it."""
    tried.topology.stream(tried.named("sales"), value=SALE).map_values({"amount": "amount"}).to(tried.named("amounts"))
    tried.create_topics({"sales": ANY_TIMESTAMP})
    produce_at(tried, "sales", "k", sale("x", 1), EPOCH)
    produce_at(tried, "sales", "k", sale("x", 2), EPOCH * 1_000_000)
    with pytest.raises(Refused, match=r"cannot read the timestamp of a record.*partition \d offset 1 has timestamp"):
        tried.drain()
