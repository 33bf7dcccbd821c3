"""Python classes without a store on real brokers and Spark: keys, times and headers, and each result exactly once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.model.processor import Processor, ProcessorContext, Record
from streamplan.serdes.primitive import Long
from streamplan.spark.recount.recount import recount

from tests.support.tried_topology import EPOCH, SALE, Tried, sale


@pytest.fixture
def tried(bootstrap_servers: str, tmp_path: Path, spark: SparkSession) -> Iterator[Tried]:
    made = Tried(bootstrap_servers, tmp_path, spark, restoring=False)
    yield made
    made.delete_topics()


class Shares(Processor):
    """Forwards a record for each half of a sale, under a number. A sale that is not paid deletes."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: Record) -> None:
        sold = record.value
        for half in (1, 2):
            value = {"shop": sold.shop, "amount": 10 * half // sold.amount} if sold.paid else None
            later = record.timestamp + timedelta(seconds=half)
            self.context.forward(value, key=half, timestamp=later, headers=[("half", str(half))])


class Silent(Processor):
    """Forwards nothing, and fails for one shop."""

    def process(self, record: Record) -> None:
        if record.value.shop == "z":
            raise RuntimeError("no such shop")


@pytest.mark.soak
def test_what_a_class_forwards_is_written_once_and_recounted(tried: Tried) -> None:
    sales = tried.topology.stream(tried.named("sales"), value=SALE)
    shares = sales.process(Shares, schema="shop string, amount bigint", key_serde=Long())
    shares.to(tried.named("shares"))
    shares.group_by_key(name="by-half").count(store="halves")
    sales.process(Silent)
    tried.create_topics()
    tried.produce("sales", [("a", sale("x", 1), 0), ("a", sale("x", 0), 1), ("b", sale("y", 5, paid=False), 2)])
    tried.drain()
    tried.run_last_again(0)
    tried.produce("sales", [("a", sale("z", 2), 3)])
    tried.drain()
    of_key: dict[int, list[Any]] = {}
    for message in tried.read(tried.named("shares")):
        value = None if message.value() is None else json.loads(message.value())
        at = (message.timestamp()[1] - EPOCH) // 1000
        half = int.from_bytes(message.key(), "big")
        assert message.headers() == [("half", str(half).encode())]
        of_key.setdefault(half, []).append((value, at))
    assert {half: sorted(of, key=lambda each: each[1]) for half, of in of_key.items()} == {
        half: [
            ({"shop": "x", "amount": 10 * half}, half),
            (None, 2 + half),
            ({"shop": "z", "amount": 5 * half}, 3 + half),
        ]
        for half in (1, 2)
    }
    assert {key: int.from_bytes(n, "big") for key, n in last_counts(tried).items()} == {1: 2, 2: 2}, (
        "a null value is not counted"
    )
    reasons = sorted(reason for _, reason in tried.dead_letters())
    assert len(reasons) == 2
    assert "Shares.process raised ZeroDivisionError" in reasons[0]
    assert "Silent.process raised RuntimeError" in reasons[1]
    brokers = Brokers(tried.bootstrap_servers)
    rows = recount(tried.spark, tried.pipeline, KafkaCluster(brokers), brokers)
    assert rows
    assert [row for row in rows if not row.agrees] == []


def share(shop: str, amount: int) -> dict[str, Any]:
    return {"shop": shop, "amount": amount}


def last_counts(tried: Tried) -> dict[int, bytes]:
    found = tried.read(tried.topology.changelog_topic("halves"))
    return {int.from_bytes(message.key(), "big"): message.value() for message in found}
