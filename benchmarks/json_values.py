"""What it costs to read values in JSON, Avro and Protobuf: CPU seconds for a million, by the types of their fields.

Run it with ``PYTHONPATH=plugins .venv/bin/python benchmarks/json_values.py [--values 200000] [--rounds 5]``. It needs
neither brokers nor Spark. Values are read in batches of 10,000, as Spark hands them to a Python worker. The least of
the rounds is shown, and the median.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from streamplan.serdes.avro import Avro
from streamplan.serdes.json import Json
from streamplan.serdes.json_schema import JsonSchema
from streamplan.serdes.protobuf import Protobuf
from streamplan.serdes.schema_serde import SchemaSerde
from streamplan.serdes.schema_source import WrittenSchema
from streamplan.serdes.serde import Serde
from streamplan.testing.declared_schemas import DeclaredSchemas

BATCH = 10_000

ORDER = Json("Id string, ProductType int", allowed={"ProductType": {0: "Jackets", 1: "Shirts"}})
TYPED = Json("id string, at timestamp, day date, price decimal(10,2)")
NESTED = Json(
    "id string, at timestamp, customer struct<name: string, address: struct<city: string>>,"
    " lines array<struct<sku: string, price: decimal(10,2)>>"
)
MAPPED = Json("id string, rates map<string, double>")


def order(n: int) -> bytes:
    """Return an order of the example."""
    return b'{"Id": "order_%d", "ProductType": %d}' % (n, n % 2)


def typed(n: int) -> bytes:
    """Return a value without nested fields."""
    return b'{"id":"%d","at":"2026-11-24T20:38:34.%06dZ","day":"2026-11-24","price":%d.50}' % (n, n % 1_000_000, n)


def nested(n: int) -> bytes:
    """Return a value with two levels, and a list of two objects."""
    customer = b'{"name":"n%d","address":{"city":"Rome"}}' % n
    lines = b'[{"sku":"a%d","price":12.50},{"sku":"b","price":1.25}]' % n
    return b'{"id":"%d","at":%d,"customer":%s,"lines":%s}' % (n, 1_764_016_714_123 + n, customer, lines)


def mapped(n: int) -> bytes:
    """Return a value with a map, which is read on its own."""
    return b'{"id":"%d","rates":{"EUR":12.50,"USD":1.0}}' % n


def one_is_no_json(n: int) -> bytes:
    """Return a nested value, or for one in 10,000 something else."""
    return b"x" if n % BATCH == BATCH // 2 else nested(n)


def schema(**fields: Any) -> str:
    """Return the schema of a record."""
    listed = [{"name": name, "type": of_field} for name, of_field in fields.items()]
    return json.dumps({"type": "record", "name": "Value", "fields": listed})


CENTS = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
MOMENT = {"type": "long", "logicalType": "timestamp-micros"}
LINE = {
    "type": "record",
    "name": "Line",
    "fields": [{"name": "sku", "type": "string"}, {"name": "price", "type": CENTS}],
}
ADDRESS = {"type": "record", "name": "Address", "fields": [{"name": "city", "type": "string"}]}
CUSTOMER = {
    "type": "record",
    "name": "Customer",
    "fields": [{"name": "name", "type": "string"}, {"name": "address", "type": ADDRESS}],
}
SCHEMAS = (
    schema(Id="string", ProductType="int"),
    schema(Id="string", ProductType="int", note="string"),
    schema(id="string", at=MOMENT, day={"type": "int", "logicalType": "date"}, price=CENTS),
    schema(id="string", at=MOMENT, customer=CUSTOMER, lines={"type": "array", "items": LINE}),
)
AVRO_ORDER, AVRO_NEWER, AVRO_TYPED, AVRO_NESTED = (
    Avro(text).with_schemas(DeclaredSchemas(tuple(map(WrittenSchema, SCHEMAS))), "values") for text in SCHEMAS
)
NOW = datetime(2026, 11, 24, 20, 38, 34, tzinfo=UTC)


def avro_order(n: int) -> bytes:
    """Return an order in Avro."""
    return AVRO_ORDER.encode({"Id": f"order_{n}", "ProductType": n % 2})


def newer_order(n: int) -> bytes:
    """Return an order in Avro that was written with another schema than it is read with."""
    return AVRO_NEWER.encode({"Id": f"order_{n}", "ProductType": n % 2, "note": ""})


def typed_fields(n: int) -> dict[str, Any]:
    """Return the fields of the value of :func:`typed`."""
    at = NOW + timedelta(microseconds=n)
    return {"id": str(n), "at": at, "day": date(2026, 11, 24), "price": Decimal(f"{n}.50")}


def nested_fields(n: int) -> dict[str, Any]:
    """Return the fields of the value of :func:`nested`."""
    lines = [{"sku": f"a{n}", "price": Decimal("12.50")}, {"sku": "b", "price": Decimal("1.25")}]
    customer = {"name": f"n{n}", "address": {"city": "Rome"}}
    return {"id": str(n), "at": NOW, "customer": customer, "lines": lines}


def avro_typed(n: int) -> bytes:
    """Return the value of :func:`typed` in Avro."""
    return AVRO_TYPED.encode(typed_fields(n))


def avro_nested(n: int) -> bytes:
    """Return the value of :func:`nested` in Avro."""
    return AVRO_NESTED.encode(nested_fields(n))


def registered(serde: SchemaSerde) -> SchemaSerde:
    """Return a serde that knows its own schema as the first one."""
    return serde.with_schemas(DeclaredSchemas((serde.declared,)), "values")


def with_prefix(value: Callable[[int], bytes]) -> Callable[[int], bytes]:
    """Return what makes the same values with the prefix of the first schema."""
    return lambda n: b"\0\0\0\0\1" + value(n)


def json_schema(**properties: Any) -> SchemaSerde:
    """Return the serde of a JSON Schema that requires all its properties."""
    return registered(JsonSchema(json.dumps({"type": "object", "properties": properties, "required": [*properties]})))


TEXT, JSON_CENTS = {"type": "string"}, {"type": "number", "multipleOf": 0.01}
JSON_LINE = {"type": "object", "properties": {"sku": TEXT, "price": JSON_CENTS}}
JSON_ADDRESS = {"type": "object", "properties": {"city": TEXT}}
JSON_CUSTOMER = {"type": "object", "properties": {"name": TEXT, "address": JSON_ADDRESS}}
JSON_MOMENT = {"type": "string", "format": "date-time"}
SCHEMA_ORDER = json_schema(Id=TEXT, ProductType={"enum": [0, 1]})
SCHEMA_TYPED = json_schema(id=TEXT, at=JSON_MOMENT, day={"type": "string", "format": "date"}, price=JSON_CENTS)
SCHEMA_NESTED = json_schema(
    id=TEXT, at=JSON_MOMENT, customer=JSON_CUSTOMER, lines={"type": "array", "items": JSON_LINE}
)

MESSAGES = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
import "google/type/date.proto";
import "confluent/meta.proto";
import "confluent/type/decimal.proto";
message Order { string Id = 1; int32 ProductType = 2; }
message Line {
  string sku = 1;
  confluent.type.Decimal price = 2 [
    (confluent.field_meta) = {params: [{key: "precision", value: "10"}, {key: "scale", value: "2"}]}
  ];
}
message Typed {
  string id = 1;
  google.protobuf.Timestamp at = 2;
  google.type.Date day = 3;
  confluent.type.Decimal price = 4 [
    (confluent.field_meta) = {params: [{key: "precision", value: "10"}, {key: "scale", value: "2"}]}
  ];
}
message Nested {
  message Address { string city = 1; }
  message Customer { string name = 1; Address address = 2; }
  string id = 1;
  google.protobuf.Timestamp at = 2;
  Customer customer = 3;
  repeated Line lines = 4;
}
"""


def protobuf(*names: str) -> list[SchemaSerde]:
    """Return the serdes of messages."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "values.proto")
        path.write_text(MESSAGES, encoding="utf-8")
        return [registered(Protobuf(str(path), message=name)) for name in names]


PROTO_ORDER, PROTO_TYPED, PROTO_NESTED = protobuf("Order", "Typed", "Nested")


def proto_order(n: int) -> bytes:
    """Return an order in Protobuf."""
    return PROTO_ORDER.encode({"Id": f"order_{n}", "ProductType": n % 2})


def proto_typed(n: int) -> bytes:
    """Return the value of :func:`typed` in Protobuf."""
    return PROTO_TYPED.encode(typed_fields(n))


def proto_nested(n: int) -> bytes:
    """Return the value of :func:`nested` in Protobuf."""
    return PROTO_NESTED.encode(nested_fields(n))


def nested_text(n: int) -> bytes:
    """Return the value of :func:`nested` with its timestamp as text."""
    return nested(n).replace(b"%d" % (1_764_016_714_123 + n), b'"2026-11-24T20:38:34.123Z"')


CASES: dict[str, tuple[Serde, Callable[[int], bytes]]] = {
    "an order": (ORDER, order),
    "timestamp, date, decimal": (TYPED, typed),
    "nested": (NESTED, nested),
    "nested, 1 in 10,000 is no JSON": (NESTED, one_is_no_json),
    "with a map": (MAPPED, mapped),
    "Avro: an order": (AVRO_ORDER, avro_order),
    "Avro: an order, another schema": (AVRO_ORDER, newer_order),
    "Avro: timestamp, date, decimal": (AVRO_TYPED, avro_typed),
    "Avro: nested": (AVRO_NESTED, avro_nested),
    "Protobuf: an order": (PROTO_ORDER, proto_order),
    "Protobuf: timestamp, date, dec.": (PROTO_TYPED, proto_typed),
    "Protobuf: nested": (PROTO_NESTED, proto_nested),
    "JSON Schema: an order": (SCHEMA_ORDER, with_prefix(order)),
    "JSON Schema: timestamp, date, dec.": (SCHEMA_TYPED, with_prefix(typed)),
    "JSON Schema: nested": (SCHEMA_NESTED, with_prefix(nested_text)),
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--values", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for name, (serde, value) in CASES.items():
        numbers = range(options.values)
        batches = [
            pa.array([value(n) for n in numbers[first : first + BATCH]], pa.binary())
            for first in range(0, options.values, BATCH)
        ]
        taken = []
        for _ in range(options.rounds):
            begun = time.process_time()
            for batch in batches:
                serde.decode_column(batch)
            taken.append((time.process_time() - begun) * 1_000_000 / options.values)
        sys.stdout.write(f"{name:<36} {min(taken):6.2f}  median {statistics.median(taken):6.2f} CPU s per million\n")


if __name__ == "__main__":
    main()
