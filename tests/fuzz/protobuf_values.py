"""Protobuf: generated values, and changed bytes. The partner is Google's library, with its JSON."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any

from google.protobuf import descriptor_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from streamplan.serdes.protobuf import Protobuf
from streamplan.serdes.protobuf_files import declared_schema
from streamplan.serdes.serde import Undecodable
from streamplan.testing.declared_schemas import DeclaredSchemas

from tests.fuzz.bytes_and_values import mutated, value_of
from tests.fuzz.judging import reading, shown, writing

NAME = "protobuf"

PREFIX = b"\0\0\0\0\1"
PIECES = (
    *(b"\x08", b"\x0a", b"\x0b", b"\x0c", b"\x80\x00", b"\xff" * 9 + b"\x01", b"\xff" * 10 + b"\x01", b"\0"),
    *(b"\x0a\x02\xc3\x28", b"\x02\x00", b"\x01", b"\xfe\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x0f", b"\x12\x7f" * 200),
)
_SCALARS = {1: "double", 3: "int64", 4: "uint64", 5: "int32", 8: "bool", 9: "string", 13: "uint32", 17: "sint32"}


@cache
def _serde(syntax: str) -> tuple[Protobuf, Any]:
    """A message of proto3 or proto2 with all forms of fields, and its class."""
    of_field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="all.proto", syntax=syntax, package="shop")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    state = file.enum_type.add(name="State")
    for number, name in enumerate(("NEW", "PAID")):
        state.value.add(name=name, number=number)
    line = file.message_type.add(name="Line")
    line.field.add(name="sku", number=1, type=9, label=1)
    line.field.add(name="n", number=2, type=5, label=1)
    message = file.message_type.add(name="All")
    number = 1
    for kind, name in _SCALARS.items():
        message.field.add(name=name, number=number, type=kind, label=1)
        message.field.add(name=f"{name}s", number=number + 1, type=kind, label=3)
        number += 2
    for name, of_type in (("line", ".shop.Line"), ("at", ".google.protobuf.Timestamp")):
        message.field.add(name=name, number=number, type=11, label=1, type_name=of_type)
        message.field.add(name=f"{name}_each", number=number + 1, type=11, label=3, type_name=of_type)
        number += 2
    message.field.add(name="note", number=60, type=11, label=1, type_name=".google.protobuf.StringValue")
    message.field.add(name="state", number=61, type=14, label=1, type_name=".shop.State")
    maybe = message.field.add(name="maybe", number=62, type=5, label=1)
    if syntax == "proto3":
        message.oneof_decl.add(name="_maybe")
        maybe.oneof_index, maybe.proto3_optional = 0, True
    else:
        message.extension_range.add(start=100, end=200)
        group = message.nested_type.add(name="Bundle")
        group.field.add(name="sku", number=1, type=9, label=1, default_value="none")
        of_group = {"type": of_field.TYPE_GROUP, "type_name": ".shop.All.Bundle"}
        message.field.add(name="bundle", number=64, label=3, **of_group)
    entry = message.nested_type.add(name="RatesEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=of_field.TYPE_INT32, label=1)
    entry.field.add(name="value", number=2, type=of_field.TYPE_DOUBLE, label=1)
    message.field.add(name="rates", number=63, type=11, label=3, type_name=".shop.All.RatesEntry")
    files = descriptor_pb2.FileDescriptorSet()
    for module in (timestamp_pb2, wrappers_pb2):
        files.file.add().ParseFromString(module.DESCRIPTOR.serialized_pb)
    files.file.add().CopyFrom(file)
    data = files.SerializeToString(deterministic=True)
    serde = Protobuf(b64encode(data).decode(), message="All")
    serde = serde.with_schemas(DeclaredSchemas((declared_schema(data, "all.proto"),)), "t")
    return serde, GetMessageClass(serde._declared_message.descriptor)


def findings(random: Random) -> Iterator[str]:
    """Make values, and changed bytes of them."""
    serde, message_class = _serde(random.choice(("proto2", "proto3")))
    values = []
    for _ in range(4):
        value = {name: value_of(random, of_field, 0) for name, of_field in serde.types.items()}
        value |= {"uint32": random.choice((0, 1, 2**32 - 1)), "state": random.choice(("NEW", "PAID"))}
        value["uint32s"] = [random.randrange(2**32) for _ in value["uint32s"]]
        value |= {"uint64": value["uint64"].copy_abs() % 2**64, "uint64s": []}
        value["rates"] = {str(random.randrange(-5, 5)): each for each in value["rates"].values()}
        for name in ("line", "at", "note", "maybe"):
            if random.random() < 0.3:
                value[name] = None
        yield from writing(serde, value)
        data = serde.encode(value)
        values += [data, *(mutated(random, data, PIECES) for _ in range(5))]
        values += [data[:6] + mutated(random, data[6:], PIECES) for _ in range(5)]
    yield from reading(serde, [*values, None])
    for data in values:
        yield from _taken_alike(serde, message_class, data)


def _taken_alike(serde: Protobuf, message_class: Any, data: bytes) -> Iterator[str]:
    """Google's library reads each value that is taken, and its scalar fields are the same."""
    try:
        found = serde.decode(data)
    except Undecodable:
        return
    start = 6 if data[5] == 0 else 7 if data[5:7] == b"\x02\x02" else 8
    try:
        message = message_class.FromString(data[start:])
    except DecodeError:
        yield f"the library refuses {shown(data)}, which is read as {shown(found)}"
        return
    for name in _SCALARS.values():
        is_absent = message.DESCRIPTOR.fields_by_name[name].has_presence and not message.HasField(name)
        expected = None if is_absent else getattr(message, name)
        if name != "uint64" and (found[name], found[f"{name}s"]) != (expected, list(getattr(message, f"{name}s"))):
            yield f"{name} of {shown(data)} is read as {shown(found[name])}"
    if not all(isinstance(text, str) for text in (found["string"] or "", *found["strings"])):
        yield f"a text of {shown(data)} is read as bytes"
    if found["maybe"] != (message.maybe if message.HasField("maybe") else None):
        yield f"maybe of {shown(data)} is read as {shown(found['maybe'])}"
