"""Confluent's client of the tests' Schema Registry."""

from __future__ import annotations

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from tests.support.schema_registry_server import SchemaRegistryServer


@pytest.fixture
def client(registry_server: SchemaRegistryServer) -> SchemaRegistryClient:
    return registry_server.client()
