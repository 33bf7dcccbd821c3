"""Typed keys through real topics: a Long as the key, counted, joined, stored, restored and recounted."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.model.partitioner import partition_for_key
from streamplan.model.windows import JoinWindows, TimeWindows
from streamplan.serdes.json import Json
from streamplan.serdes.primitive import Integer, Long
from streamplan.spark.recount.recount import recount

from tests.support.tried_topology import EPOCH, PARTITIONS, Tried


@pytest.fixture
def tried(bootstrap_servers: str, tmp_path: Path, spark: SparkSession) -> Iterator[Tried]:
    made = Tried(bootstrap_servers, tmp_path / "checkpoints", spark, restoring=True)
    yield made
    made.delete_topics()


def long(number: int) -> bytes:
    return struct.pack(">q", number)


ACCOUNTS = (1, -2, 1 << 40)


@pytest.mark.soak
def test_typed_keys_are_counted_restored_and_recounted(tried: Tried) -> None:
    """Each time the aggregator begins without checkpoints: it goes on with what the changelogs hold."""
    topology, named = tried.topology, tried.named
    payments = topology.stream(named("payments"), value=Json("amount int"), key_serde=Long())
    by_key = payments.group_by_key()
    by_key.count(store="payments-per-account").to_stream().to(named("counts"))
    by_key.reduce(max_by="record.key + amount", store="greatest")
    by_key.windowed_by(TimeWindows("1 minute", grace="1 day")).count(store="per-minute")
    by_amount = payments.group_by("amount", key_serde=Integer(), name="by-amount")
    by_amount.aggregate({"accounts": "count(*)", "newest": "max_by(amount, amount)"}, store="per-amount")
    tried.create_topics()
    for turn in range(2):
        amounts = [(long(account), {"amount": 10 + turn}, turn) for account in ACCOUNTS]
        tried.produce("payments", [*amounts, (b"seven", {"amount": 1}, turn)])
        tried.drain()
    counted = tried.read(topology.changelog_topic("payments-per-account"))
    assert {m.key(): m.value() for m in counted} == {long(account): long(2) for account in ACCOUNTS}
    assert all(m.partition() == partition_for_key(m.key(), PARTITIONS) for m in counted)
    assert {m.key(): m.value() for m in tried.read(named("counts"))} == {long(account): long(2) for account in ACCOUNTS}
    greatest = tried.read(topology.changelog_topic("greatest"))
    assert {m.key(): json.loads(m.value()) for m in greatest} == {long(account): {"amount": 11} for account in ACCOUNTS}
    minute = {m.key(): m.value() for m in tried.read(topology.changelog_topic("per-minute"))}
    assert minute == {long(account) + long(EPOCH) + bytes(4): long(2) for account in ACCOUNTS}
    per_amount = tried.read(topology.changelog_topic("per-amount"))
    assert {m.key(): json.loads(m.value())["accounts"] for m in per_amount} == {
        struct.pack(">i", amount): 3 for amount in (10, 11)
    }
    carried = tried.read(topology.decorate("by-amount-repartition"))
    assert all(m.partition() == partition_for_key(m.key(), PARTITIONS) and len(m.key()) == 4 for m in carried)
    assert set(tried.dead_letters()) == {("payments", "the key has 5 bytes; Long has 8")}
    brokers = Brokers(tried.bootstrap_servers)
    rows = recount(tried.spark, tried.pipeline, KafkaCluster(brokers), brokers)
    assert [row for row in rows if not row.agrees] == []
    assert any("payments-per-account" in row.subject for row in rows)


@pytest.mark.soak
def test_records_of_typed_keys_meet_also_after_a_restore(tried: Tried) -> None:
    topology, named = tried.topology, tried.named
    accounts = topology.table(named("accounts"), value=Json("name string"), key_serde=Long(), store="accounts")
    orders = topology.stream(named("orders"), value=Json("id string"), key_serde=Long())
    orders.join(accounts, {"id": "id", "name": "table.name", "account": "record.key"}).to(named("joined"))
    sent, paid = (topology.stream(named(one), value=Json("id string"), key_serde=Long()) for one in ("sent", "paid"))
    sent.join(paid, {"id": "other.id"}, within=JoinWindows("1 hour"), store="met").to(named("met"))
    tried.create_topics()
    tried.produce("accounts", [(long(account), {"name": f"of {account}"}, 0) for account in ACCOUNTS])
    tried.produce("sent", [(long(account), {"id": "sent"}, 0) for account in ACCOUNTS])
    tried.drain()
    for topic in ("orders", "paid"):
        tried.produce(topic, [(long(account), {"id": f"{account}"}, 60) for account in (*ACCOUNTS, 3)])
    tried.drain()
    joined = {m.key(): json.loads(m.value()) for m in tried.read(named("joined"))}
    assert joined == {
        long(account): {"id": f"{account}", "name": f"of {account}", "account": account} for account in ACCOUNTS
    }
    met = {m.key(): json.loads(m.value()) for m in tried.read(named("met"))}
    assert met == {long(account): {"id": f"{account}"} for account in ACCOUNTS}


def fields(customer: str, product: int) -> bytes:
    """A key of two fields: Python's own JSON."""
    return json.dumps({"customer": customer, "product": product}, separators=(",", ":"), ensure_ascii=False).encode()


PAIRS = (("ann", 1), ("ann", 2), ('b\u00f6b "\\', 1))


@pytest.mark.soak
def test_keys_of_several_fields_are_counted_joined_restored_and_recounted(tried: Tried) -> None:
    """Each time the aggregator begins without checkpoints: it goes on with what the changelogs hold."""
    topology, named, serde = tried.topology, tried.named, Json("customer string, product int")
    orders = topology.stream(named("orders"), value=Json("customer string, product int"), key_serde=Long())
    orders.group_by("struct(customer, product)", key_serde=serde, name="by-pair").count(store="orders-per-pair")
    sales = topology.stream(named("sales"), value=Json("n int"), key_serde=serde)
    prices = topology.table(named("prices"), value=Json("price int"), key_serde=serde, store="prices")
    sales.join(prices, {"price": "table.price", "of": "record.key.customer"}).to(named("priced"))
    tried.create_topics()
    tried.produce("prices", [(fields(*pair), {"price": pair[1]}, 0) for pair in PAIRS])
    for turn in range(2):
        pairs = [(long(7), {"customer": customer, "product": product}, turn) for customer, product in PAIRS]
        tried.produce("orders", pairs)
        if turn:
            spaced = json.dumps({"customer": "ann", "product": 1}).encode()
            keys = (*(fields(*pair) for pair in PAIRS), fields("eve", 1), fields("ann", 1)[:-1], spaced)
            tried.produce("sales", [(key, {"n": 1}, 60) for key in keys])
        tried.drain()
    counted = tried.read(topology.changelog_topic("orders-per-pair"))
    assert {m.key(): m.value() for m in counted} == {fields(*pair): long(2) for pair in PAIRS}
    for placed in (counted, tried.read(topology.decorate("by-pair-repartition"))):
        assert all(m.partition() == partition_for_key(m.key(), PARTITIONS) for m in placed)
    priced = {m.key(): json.loads(m.value()) for m in tried.read(named("priced"))}
    assert priced == {fields(*pair): {"price": pair[1], "of": pair[0]} for pair in PAIRS}
    assert tried.dead_letters() == [("sales", f"the key is not as {serde.name} writes it")] * 2
    brokers = Brokers(tried.bootstrap_servers)
    rows = recount(tried.spark, tried.pipeline, KafkaCluster(brokers), brokers)
    assert [row for row in rows if not row.agrees] == []
    assert any("orders-per-pair" in row.subject for row in rows)
