"""What it costs to read values in JSON and in Avro: CPU seconds for a million of them, by the types of their fields.

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
from typing import Any

import pyarrow as pa
from streamplan.serdes.avro import Avro
from streamplan.serdes.json import Json
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


def avro_typed(n: int) -> bytes:
    """Return the value of :func:`typed` in Avro."""
    at = NOW + timedelta(microseconds=n)
    return AVRO_TYPED.encode({"id": str(n), "at": at, "day": date(2026, 11, 24), "price": Decimal(f"{n}.50")})


def avro_nested(n: int) -> bytes:
    """Return the value of :func:`nested` in Avro."""
    lines = [{"sku": f"a{n}", "price": Decimal("12.50")}, {"sku": "b", "price": Decimal("1.25")}]
    customer = {"name": f"n{n}", "address": {"city": "Rome"}}
    return AVRO_NESTED.encode({"id": str(n), "at": NOW, "customer": customer, "lines": lines})


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
        sys.stdout.write(f"{name:<32} {min(taken):6.2f}  median {statistics.median(taken):6.2f} CPU s per million\n")


if __name__ == "__main__":
    main()
