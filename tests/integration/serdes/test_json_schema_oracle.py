"""JSON Schema as Confluent's serializers for Python write and read it is the truth for bytes and for what is valid."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError
from streamplan.kafka.schema_registry import SchemaRegistry
from streamplan.serdes.json_schema import JsonSchema
from streamplan.serdes.serde import Undecodable

from tests.support.json_schema_documents import EVERYTHING, document_of, random_value
from tests.support.schema_registry_server import SchemaRegistryServer
from tests.support.soak import seeds

VALUES = SerializationContext("orders", MessageField.VALUE)


@pytest.mark.parametrize("seed", seeds(1, 10))
def test_confluents_deserializer_reads_what_is_written_and_its_serializers_values_are_read(
    registry_server: SchemaRegistryServer, client: SchemaRegistryClient, seed: int
) -> None:
    serde = JsonSchema(EVERYTHING).with_schemas(SchemaRegistry(registry_server.properties), "orders")
    serde.prepare_to_write()
    # Its library finds that 0.07 is no multiple of 0.01.
    serializer = JSONSerializer(EVERYTHING, client, conf={"validate": False})
    deserializer = JSONDeserializer(EVERYTHING, schema_registry_client=client, conf={"validate": False})
    generator = random.Random(seed)
    for value in [random_value(generator) for _ in range(100)]:
        document = document_of(value)
        theirs, ours = serializer(document, VALUES), serde.encode(value)
        assert serde.decode(theirs) == value
        assert {**deserializer(ours, VALUES), "at": None} == {**document, "at": None}  # another text of the same moment
        assert ours[:5] == theirs[:5]
    assert registry_server.subjects == {"orders-value": [1]}


RESTRICTED = json.dumps(
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Order",
        "type": "object",
        "properties": {
            "id": {"type": "string", "pattern": "^o_[0-9]+$", "maxLength": 5},
            "n": {"type": "integer", "minimum": 0, "exclusiveMaximum": 10},
            "state": {"enum": ["NEW", "PAID", None]},
            "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True, "minItems": 1},
            "paid": {"type": ["boolean", "null"]},
            "line": {
                "type": "object",
                "properties": {"sku": {"type": "string"}, "n": {"type": "integer"}},
                "dependentRequired": {"n": ["sku"]},
                "unevaluatedProperties": False,
            },
        },
        "required": ["id"],
        "additionalProperties": False,
    }
)


def test_what_confluents_serializer_does_not_take_is_neither_read_nor_written(
    registry_server: SchemaRegistryServer, client: SchemaRegistryClient
) -> None:
    serde = JsonSchema(RESTRICTED).with_schemas(SchemaRegistry(registry_server.properties), "orders")
    serde.prepare_to_write()
    serializer = JSONSerializer(RESTRICTED, client)
    generator = random.Random(5)
    choices: dict[str, list[Any]] = {
        "id": ["o_1", "o_1234", "x", 7, None],
        "n": [0, 9, 10, -1, "1"],
        "state": ["NEW", None, "GONE", 1],
        "tags": [["a"], ["a", "b"], [], ["a", "a"], [1], "a", None],
        "paid": [True, None, "yes"],
        "line": [{"sku": "a"}, {"sku": "a", "n": 1}, {"n": 1}, {"other": 1}, {}, []],
        "other": [1],
    }
    valid = 0
    for _ in range(1500):
        document = {
            name: generator.choice(values[:2] if generator.random() < 0.7 else values)
            for name, values in choices.items()
            if generator.random() < (0.9 if name == "id" else 0.4 if name != "other" else 0.05)
        }
        data = b"\0\0\0\0\1" + json.dumps(document, separators=(",", ":")).encode()
        try:
            assert serializer(document, VALUES) == data
        except SerializationError:
            with pytest.raises(Undecodable):
                serde.decode(data)
            continue
        valid += 1
        value = serde.decode(data)
        assert {name: value[name] for name in document} | {"line": None} == document | {"line": None}
        given = {name: document[name] for name in choices if document.get(name) is not None}
        assert serde.encode(value) == serializer(given, VALUES)
    assert 300 < valid < 1200


def test_references_are_registered_as_confluents_client_finds_them(
    registry_server: SchemaRegistryServer, client: SchemaRegistryClient, tmp_path: Path
) -> None:
    money = json.dumps({"type": "object", "properties": {"cents": {"type": "integer"}}, "required": ["cents"]})
    order = json.dumps({"title": "Order", "type": "object", "properties": {"price": {"$ref": "money.json"}}})
    (tmp_path / "money.json").write_text(money)
    (tmp_path / "order.schema.json").write_text(order)
    serde = JsonSchema(str(tmp_path / "order.schema.json"))
    serde = serde.with_schemas(SchemaRegistry(registry_server.properties), "orders")
    serde.prepare_to_write()
    assert {*registry_server.subjects} == {"money.json", "orders-value"}
    ours = serde.encode({"price": {"cents": 7}})
    registered = Schema(order, "JSON", [SchemaReference("money.json", "money.json", 1)])
    assert JSONSerializer(registered, client)({"price": {"cents": 7}}, VALUES) == ours
    assert JSONDeserializer(None, schema_registry_client=client)(ours, VALUES) == {"price": {"cents": 7}}
    assert serde.decode(ours) == {"price": {"cents": 7}}
