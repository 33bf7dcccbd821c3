"""Values in Avro with a Schema Registry, through Kafka and Spark, written and read by Confluent's serializers, too."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import SparkSession
from streamplan.checks.framework.application import application_in
from streamplan.checks.framework.verified import NoVerifiedStore
from streamplan.checks.recount.reader import TotalsReader
from streamplan.errors import SchemaRegistryUnavailable
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.serdes.avro import Avro
from streamplan.spark.recount.recount import recount

from tests.support.orders_with_registry import OrdersWithRegistry
from tests.support.schema_registry_server import SchemaRegistryServer

CENTS = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}


def schema(name: str, *fields: tuple[Any, ...]) -> str:
    listed = [
        {"name": field[0], "type": field[1], **({"default": field[2]} if len(field) > 2 else {})} for field in fields
    ]
    return json.dumps({"type": "record", "name": name, "namespace": "shop", "fields": listed})


ORDER = schema("Order", ("id", "string"), ("shop", "string"), ("total", CENTS))
NEWER = schema("Order", ("id", "string"), ("note", ["null", "string"], None), ("total", CENTS), ("shop", "string"))
PRICED = schema("Priced", ("id", "string"), ("net", ["null", CENTS], None))


class Orders(OrdersWithRegistry):
    """Orders above 1 by shop, and their prices in a topic of their own."""

    def __init__(
        self, bootstrap_servers: str, checkpoints: Path, spark: SparkSession, registry_server: SchemaRegistryServer
    ) -> None:
        super().__init__(bootstrap_servers, checkpoints, spark, registry_server)
        self.client = registry_server.client()

    def serializer(self, text: str) -> AvroSerializer:
        serializer = AvroSerializer(self.client, text)
        serializer({"id": "", "shop": "", "total": Decimal("0.00")}, self.values("orders"))  # registers it
        return serializer

    def written(self, topic: str) -> list[tuple[str, Any]]:
        """Key and value of an output, as Confluent's deserializer reads them."""
        deserializer, values = AvroDeserializer(self.client), SerializationContext(topic, MessageField.VALUE)
        records = [(each.key().decode(), deserializer(each.value(), values)) for each in self.read(topic)]
        return sorted(records, key=lambda pair: pair[0])  # those of a key stay in their order


@pytest.fixture
def orders(
    bootstrap_servers: str, tmp_path: Path, spark: SparkSession, registry_server: SchemaRegistryServer
) -> Iterator[Orders]:
    tried = Orders(bootstrap_servers, tmp_path / "checkpoints", spark, registry_server)
    yield tried
    tried.delete_topics()


def order(n: int, **more: Any) -> dict[str, Any]:
    return {"id": f"order_{n}", "shop": "north" if n % 3 else "south", "total": Decimal(n), **more}


@pytest.mark.soak
def test_an_outage_and_a_newer_schema_lose_and_reject_nothing(
    orders: Orders, registry_server: SchemaRegistryServer
) -> None:
    large = orders.topology.stream(orders.named("orders"), value=Avro(ORDER)).filter("total > 1")
    large.map_values({"id": "id", "net": "cast(total * 0.8 as decimal(12,2))"}).to(
        orders.named("priced"), value=Avro(PRICED)
    )
    by_shop = large.group_by("shop", name="shops")
    by_shop.count(store="orders")
    by_shop.reduce(max_by="total", store="greatest")
    orders.create_topics()
    orders.send(orders.serializer(ORDER), (order(n) for n in range(20)))
    orders.drain()
    newer = orders.serializer(NEWER)
    orders.send(newer, (order(n, note="in the outage") for n in range(20, 40)))
    registry_server.away_from = len(registry_server.schemas)  # the aggregator starts, and then meets the newer schema
    with pytest.raises(SchemaRegistryUnavailable, match=r"HTTP 503, .*No record is lost or rejected"):
        orders.drain()
    assert orders.dead_letters() == []
    registry_server.away_from = None
    shutil.rmtree(orders.checkpoints)  # the stores are restored from their changelogs
    orders.drain()

    expected = [order(n) for n in range(2, 40)]
    counts = {shop: sum(each["shop"] == shop for each in expected) for shop in ("north", "south")}
    stored = orders.read(orders.topology.changelog_topic("orders"))
    assert {each.key().decode(): int.from_bytes(each.value(), "big") for each in stored} == counts
    greatest = dict(orders.written(orders.topology.changelog_topic("greatest")))
    assert greatest == {"south": order(39, note="in the outage"), "north": order(38, note="in the outage")}
    priced = [(each["id"], {"id": each["id"], "net": each["total"] * Decimal("0.80")}) for each in expected]
    assert orders.written(orders.named("priced")) == sorted(priced, key=lambda pair: pair[0])
    assert orders.dead_letters() == []
    assert registry_server.subjects[f"{orders.named('priced')}-value"]
    rows = recount(orders.spark, orders.resolved, KafkaCluster(orders.brokers), orders.brokers)
    assert [row for row in rows if not row.agrees] == []


def test_counts_of_a_field_are_checked_without_spark(orders: Orders, registry_server: SchemaRegistryServer) -> None:
    orders.topology.stream(orders.named("orders"), value=Avro(ORDER)).group_by("shop", name="shops").count(
        store="orders"
    )
    orders.create_topics()
    orders.send(orders.serializer(ORDER), (order(n) for n in range(10)))
    orders.send(orders.serializer(NEWER), (order(n) for n in range(10, 20)))
    orders.produce("orders", [("x", b"no avro", 1), ("x", b"\0\0\0\0\x63\2x", 1)])
    orders.drain()
    reasons = [reason for _, reason in orders.dead_letters()]
    assert reasons == [
        "the Schema Registry has no schema 99",
        "the value does not begin with the byte 0 and the id of a schema",
    ]
    cluster = KafkaCluster(orders.brokers)
    (aggregation,) = application_in(orders.pipeline, cluster).aggregations
    totals = TotalsReader(aggregation, cluster, NoVerifiedStore()).totals()
    assert totals.agree
    assert totals.counted == {b"north": 13, b"south": 7}
    assert len(totals.rejected) == 2
    registry_server.answers_with = 503
    begun = [line for line in orders.lines if ": generation " in line]
    with pytest.raises(SchemaRegistryUnavailable):
        orders.drain()
    assert [line for line in orders.lines if ": generation " in line] == begun  # nothing was claimed
    away = KafkaCluster(
        Brokers(orders.bootstrap_servers, {}, {**registry_server.properties, "normalize.schemas": "true"})
    )
    (aggregation,) = application_in(orders.pipeline, away).aggregations
    with pytest.raises(SchemaRegistryUnavailable):
        TotalsReader(aggregation, away, NoVerifiedStore()).totals()
