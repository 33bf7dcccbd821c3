"""What it costs to read JSON values: CPU seconds for a million of them, by the types of their fields.

Run it with ``PYTHONPATH=plugins .venv/bin/python benchmarks/json_values.py [--values 200000] [--rounds 5]``. It needs
neither brokers nor Spark. Values are read in batches of 10,000, as Spark hands them to a Python worker. The least of
the rounds is shown, and the median.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import pyarrow as pa
from streamplan.serdes.json import Json

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


CASES: dict[str, tuple[Json, Callable[[int], bytes]]] = {
    "an order": (ORDER, order),
    "timestamp, date, decimal": (TYPED, typed),
    "nested": (NESTED, nested),
    "nested, 1 in 10,000 is no JSON": (NESTED, one_is_no_json),
    "with a map": (MAPPED, mapped),
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
