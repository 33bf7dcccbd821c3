"""Values in Protobuf and JSON Schema, through a registry, Kafka, Spark and Confluent's serializers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import SerializationContext
from pyspark.sql import SparkSession
from streamplan.errors import SchemaRegistryUnavailable
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.topics import resolve_pipeline
from streamplan.serdes.json_schema import JsonSchema
from streamplan.serdes.protobuf import Protobuf
from streamplan.serdes.serde import Serde
from streamplan.spark.recount.recount import recount

from tests.support.orders_with_registry import OrdersWithRegistry
from tests.support.protobuf_messages import made, message_class
from tests.support.schema_registry_server import SchemaRegistryServer
from tests.support.soak import soak

Write = Callable[[dict[str, Any], SerializationContext], bytes]


@dataclass(frozen=True)
class Format:
    """A format: the serdes of orders and of what is made of them, and Confluent's serializers of the same.

    ``write``, ``write_newer`` write an order, the second one with a schema that the declaration does not know;
    ``read`` reads what is made of it; ``broken`` are bytes that name the first schema and are no value of it, for the
    reason ``reason``.
    """

    orders: Serde
    priced: Serde
    write: Write
    write_newer: Write
    read: Callable[[bytes, SerializationContext], dict[str, Any]]
    broken: bytes
    reason: str


ORDER_PROTO = """syntax = "proto3"; package shop;
message Order { string id = 1; string shop = 2; int64 total = 3; %s }
message Priced { string id = 1; optional int64 net = 2; }"""


def protobuf(client: SchemaRegistryClient, folder: Path) -> Format:
    texts = {"older": ORDER_PROTO % "", "newer": ORDER_PROTO % "repeated string notes = 4;"}
    older, newer, priced = (
        message_class({"order.proto": texts[version]}, "order.proto", f"shop.{name}", folder / version)
        for version, name in (("older", "Order"), ("newer", "Order"), ("older", "Priced"))
    )
    declared = str(folder / "older" / "order.proto")
    read = ProtobufDeserializer(priced, {}, client)

    def write(of_class: Any) -> Write:
        serializer = ProtobufSerializer(of_class, client)
        return lambda order, values: serializer(made(of_class, order), values)

    def fields(data: bytes, values: SerializationContext) -> dict[str, Any]:
        message = read(data, values)
        return {"id": message.id, "net": message.net if message.HasField("net") else None}

    serdes = (Protobuf(declared, message=name) for name in ("Order", "Priced"))
    broken = b"\0\0\0\0\1\0\x0a\x05a"
    return Format(*serdes, write(older), write(newer), fields, broken, "the value is no shop.Order of schema 1")


def json_schema(client: SchemaRegistryClient, folder: Path) -> Format:
    def schema(title: str, *required: str, **properties: Any) -> str:
        return json.dumps({"title": title, "type": "object", "properties": properties, "required": [*required]})

    text, number = {"type": "string"}, {"type": "integer"}
    older = schema("Order", "id", "shop", id=text, shop=text, total=number)
    newer = schema("Order", "id", "shop", notes={"type": "array", "items": text}, id=text, shop=text, total=number)
    priced = schema("Priced", "id", "net", id=text, net={"type": ["integer", "null"]})
    return Format(
        JsonSchema(older),
        JsonSchema(priced),
        JSONSerializer(older, client),
        JSONSerializer(newer, client),
        JSONDeserializer(priced, schema_registry_client=client),
        b'\0\0\0\0\1{"id": "a"}',
        'the value is not valid: "shop" is a required property',
    )


@pytest.fixture
def orders(
    bootstrap_servers: str, tmp_path: Path, spark: SparkSession, registry_server: SchemaRegistryServer
) -> Iterator[OrdersWithRegistry]:
    tried = OrdersWithRegistry(bootstrap_servers, tmp_path / "checkpoints", spark, registry_server)
    yield tried
    tried.delete_topics()


def order(n: int, **more: Any) -> dict[str, Any]:
    return {"id": f"order_{n}", "shop": "north" if n % 3 else "south", "total": n, **more}


@pytest.mark.parametrize("format_of", soak([protobuf, json_schema]))
def test_an_outage_a_newer_schema_and_broken_bytes_lose_nothing_and_reject_what_is_broken(
    orders: OrdersWithRegistry, registry_server: SchemaRegistryServer, tmp_path: Path, format_of: Callable[..., Format]
) -> None:
    client = registry_server.client()
    of = format_of(client, tmp_path)
    read = orders.topology.stream(orders.named("orders"), value=of.orders)
    read.map_values({"id": "id", "net": "nullif(total * 2, 0)"}).to(orders.named("priced"), value=of.priced)
    read.group_by("shop", name="shops").count(store="orders")
    orders.create_topics()
    orders.send(of.write, [order(n) for n in range(20)])
    orders.produce("orders", [("x", of.broken, 1), ("x", b"\0\0\0\0\x63\0", 1)])
    orders.drain()
    orders.send(of.write_newer, [order(n, notes=["in the outage"]) for n in range(20, 40)])
    registry_server.away_from = len(registry_server.schemas)  # the aggregator starts, and then meets the newer schema
    with pytest.raises(SchemaRegistryUnavailable, match=r"HTTP 503, .*No record is lost or rejected"):
        orders.drain()
    registry_server.away_from = None
    shutil.rmtree(orders.checkpoints)  # the store is restored from its changelog
    orders.drain()

    stored = orders.read(orders.topology.changelog_topic("orders"))
    counts = {b"north": 26, b"south": 14}
    assert {each.key(): int.from_bytes(each.value(), "big") for each in stored} == counts
    made_of = [of.read(each.value(), orders.values("priced")) for each in orders.read(orders.named("priced"))]
    expected = [{"id": f"order_{n}", "net": 2 * n or None} for n in range(40)]
    assert sorted(made_of, key=lambda each: each["id"]) == sorted(expected, key=lambda each: str(each["id"]))
    reasons = sorted(reason for _, reason in orders.dead_letters())
    assert reasons == ["the Schema Registry has no schema 99", of.reason]
    assert registry_server.subjects[f"{orders.named('priced')}-value"]
    cluster = KafkaCluster(orders.brokers)
    rows = recount(orders.spark, resolve_pipeline(orders.pipeline, orders.brokers), cluster, orders.brokers)
    assert [row for row in rows if not row.agrees] == []
