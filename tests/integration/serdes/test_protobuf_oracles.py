"""Protobuf as Confluent's serializers for Python write and read it, and as Java has it, is the truth for bytes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from streamplan.kafka.schema_registry import SchemaRegistry
from streamplan.serdes.protobuf import Protobuf
from streamplan.spark.submit import pyspark_home

from tests.support.kafka_streams import java_with
from tests.support.protobuf_messages import EVERYTHING, MESSAGE, json_of, made, message_class, random_value
from tests.support.schema_registry_server import SchemaRegistryServer
from tests.support.soak import seeds

VALUES = SerializationContext("orders", MessageField.VALUE)

NESTED = """
syntax = "proto3";
package shop;
import "common/money.proto";
import "google/protobuf/timestamp.proto";
message First { string id = 1; }
message Order {
  message Line { string sku = 1; Money price = 2; message Part { string id = 1; } }
  message Other { message Deep { string id = 1; google.protobuf.Timestamp at = 2; } string id = 1; }
  repeated Line lines = 1;
}
"""
MONEY = (
    'syntax = "proto3"; package shop; import "common/units.proto"; message Money { Unit unit = 1; int64 cents = 2; }'
)
UNITS = 'syntax = "proto3"; package shop; enum Unit { EUR = 0; USD = 1; }'
FILES = {"order.proto": NESTED, "common/money.proto": MONEY, "common/units.proto": UNITS}


@pytest.mark.parametrize("seed", seeds(1, 10))
def test_confluents_deserializer_reads_what_is_written_and_its_serializers_values_are_read(
    registry_server: SchemaRegistryServer, client: SchemaRegistryClient, tmp_path: Path, seed: int
) -> None:
    of_class = message_class({"everything.proto": EVERYTHING}, "everything.proto", f"shop.{MESSAGE}", tmp_path)
    serde = Protobuf(str(tmp_path / "everything.proto"), message=MESSAGE)
    serde = serde.with_schemas(SchemaRegistry(registry_server.properties), "orders")
    serde.prepare_to_write()
    serializer = ProtobufSerializer(of_class, client)
    deserializer = ProtobufDeserializer(of_class, {}, client)
    generator = random.Random(seed)
    for value in [random_value(generator) for _ in range(200)]:
        message = made(of_class, value)
        theirs = serializer(message, VALUES)
        ours = serde.encode(value)
        assert serde.decode(theirs) == value
        assert deserializer(ours, VALUES) == message
        assert len(ours) == len(theirs)
        if max(len(each) for each in value.values() if isinstance(each, dict)) < 2:  # entries of a map have no order
            assert ours == theirs
    assert registry_server.subjects == {"orders-value": [1]}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("First", {"id": "a"}),
        ("Order", {"lines": [{"sku": "a", "price": {"unit": "USD", "cents": 7}}]}),
        ("Order.Line", {"sku": "a", "price": None}),
        ("Order.Line.Part", {"id": "a"}),
        ("Order.Other", {"id": ""}),
        ("Order.Other.Deep", {"id": "a", "at": None}),
    ],
)
def test_each_message_of_a_file_has_the_prefix_that_confluents_serializer_gives_it(
    registry_server: SchemaRegistryServer,
    client: SchemaRegistryClient,
    tmp_path: Path,
    name: str,
    value: dict[str, Any],
) -> None:
    of_class = message_class(FILES, "order.proto", f"shop.{name}", tmp_path)
    theirs = ProtobufSerializer(of_class, client)(made(of_class, value), VALUES)
    registered = {subject: [*ids] for subject, ids in registry_server.subjects.items()}
    assert {*registered} == {"orders-value", "common/money.proto", "common/units.proto"}
    # What Confluent's serializer has registered is found: the same schema with the same references.
    found = SchemaRegistry({**registry_server.properties, "auto.register.schemas": "false"})
    serde = Protobuf(str(tmp_path / "order.proto"), message=name).with_schemas(found, "orders")
    serde.prepare_to_write()
    assert serde.encode(value) == theirs
    assert serde.decode(theirs) == value
    again = SchemaRegistry(registry_server.properties)
    again.register("orders", serde.record_name, serde.declared)
    assert registry_server.subjects == registered
    assert [*again.schema(int.from_bytes(theirs[1:5], "big")).flattened()] == [
        "common/units.proto",
        "common/money.proto",
    ]


def test_what_is_registered_with_its_references_is_read_by_confluents_deserializer(
    registry_server: SchemaRegistryServer, client: SchemaRegistryClient, tmp_path: Path
) -> None:
    of_class = message_class(FILES, "order.proto", "shop.Order", tmp_path)
    serde = Protobuf(str(tmp_path / "order.proto"), message="Order")
    serde = serde.with_schemas(SchemaRegistry(registry_server.properties), "orders")
    serde.prepare_to_write()
    value = {"lines": [{"sku": "a", "price": {"unit": "USD", "cents": 7}}]}
    assert ProtobufDeserializer(of_class, {}, client)(serde.encode(value), VALUES) == made(of_class, value)


def test_java_writes_the_same_bytes_of_what_it_has_read(tmp_path: Path) -> None:
    of_class = message_class({"everything.proto": EVERYTHING}, "everything.proto", f"shop.{MESSAGE}", tmp_path)
    serde = Protobuf(str(tmp_path / "everything.proto"), message=MESSAGE)
    generator = random.Random(3)
    with java_with(str(pyspark_home() / "jars" / "*")) as jvm:
        protobuf = jvm.org.apache.orc.protobuf  # Java's library, as the jars of PySpark have it
        descriptor = _descriptor(jvm, protobuf, of_class.DESCRIPTOR.file).findMessageTypeByName(MESSAGE)
        for value in [random_value(generator) for _ in range(200)]:
            data = serde._write(value).removeprefix(b"\2\2")
            read = protobuf.DynamicMessage.parseFrom(descriptor, bytearray(data))
            assert bytes(read.toByteArray()) == data
            text = read.getField(descriptor.findFieldByName("text"))
            assert text == value["text"] == json_of(value)["text"]
            assert read.getField(descriptor.findFieldByName("i64")) == value["i64"]
            assert str(read.getField(descriptor.findFieldByName("state"))) == value["state"]
            assert read.getUnknownFields().asMap().isEmpty()


def _descriptor(jvm: Any, protobuf: Any, file: Any) -> Any:
    descriptors = protobuf.Descriptors.FileDescriptor
    imported = [_descriptor(jvm, protobuf, each) for each in file.dependencies]
    of_class = jvm.java.lang.Class.forName("org.apache.orc.protobuf.Descriptors$FileDescriptor")
    dependencies = jvm.java.lang.reflect.Array.newInstance(of_class, len(imported))
    for place, each in enumerate(imported):
        jvm.java.lang.reflect.Array.set(dependencies, place, each)
    described = protobuf.DescriptorProtos.FileDescriptorProto.parseFrom(bytearray(file.serialized_pb))
    return descriptors.buildFrom(described, dependencies)
