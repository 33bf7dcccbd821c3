"""A tried topology whose orders have values that name a schema of a registry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import SparkSession
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.topics import resolve_pipeline
from streamplan.model.pipeline import Pipeline

from tests.support.draining import drain
from tests.support.schema_registry_server import SchemaRegistryServer
from tests.support.tried_topology import Tried


class OrdersWithRegistry(Tried):
    """It knows the registry as an aggregator does, by the properties of its brokers."""

    def __init__(
        self, bootstrap_servers: str, checkpoints: Path, spark: SparkSession, registry_server: SchemaRegistryServer
    ) -> None:
        super().__init__(bootstrap_servers, checkpoints, spark, restoring=False)
        self.brokers = Brokers(bootstrap_servers, {}, registry_server.properties)

    @property
    def resolved(self) -> Pipeline:
        return resolve_pipeline(self.pipeline, self.brokers)

    def values(self, topic: str) -> SerializationContext:
        """What Confluent's serializers are told of the values of a topic."""
        return SerializationContext(self.named(topic), MessageField.VALUE)

    def send(self, write: Callable[[Any, SerializationContext], bytes], orders: Iterable[Mapping[str, Any]]) -> None:
        """Produce orders with their ids as keys, written by one of Confluent's serializers."""
        producer = Producer({"bootstrap.servers": self.bootstrap_servers, "partitioner": "murmur2_random"})
        for order in orders:
            producer.produce(self.named("orders"), write(dict(order), self.values("orders")), order["id"])
        assert producer.flush(120) == 0

    def drain(self) -> None:
        drain(self.spark, self.resolved, self.brokers, self.checkpoints, report=self.lines.append)
