"""What a Python function costs: CPU seconds for a million records, called with each record and with Arrow batches.

Run it with ``PYTHONPATH=plugins .venv/bin/python benchmarks/python_functions.py [--records 200000] [--rounds 5]``. It
needs neither brokers nor Spark. What Spark takes to hand the records to Python and back is the same for both, and not
in the figures. The least of the rounds is shown, and the median.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from streamplan.model.functions import PythonFunction, arrow_batch, function_name, is_of_batches
from streamplan.serdes.arrow import struct_type
from streamplan.spark.planning.python_functions import mapped_batches

BATCH = 10_000

FIELDS = {"id": "string", "amount": "bigint", "weight": "double", "paid": "boolean"}
NOW = datetime(2026, 11, 24, 20, 38, 34, tzinfo=UTC)
RECORD = pa.struct(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("key", pa.string()),
        ("original_key", pa.binary()),
        ("value", pa.binary()),
        ("reason", pa.string()),
        ("order", pa.list_(pa.int32())),
    ]
)


def risk_of(order: SimpleNamespace) -> dict[str, Any]:
    """Return two fields of two numbers."""
    return {"id": order.id, "risk": order.amount * 0.01 + order.weight}


@arrow_batch
def risks_of(orders: pa.RecordBatch) -> dict[str, pa.Array]:
    """Return the same for many records."""
    return {"id": orders["id"], "risk": pc.add(pc.multiply(orders["amount"], 0.01), orders["weight"])}


def with_key(order: SimpleNamespace) -> dict[str, Any]:
    """Return a text of the key, and whether a number is greater than another one."""
    return {"text": f"{order.record.key} {order.id}", "late": order.record.timestamp > NOW}


@arrow_batch
def with_keys(orders: pa.RecordBatch) -> dict[str, pa.Array]:
    """Return the same for many records."""
    record = orders["record"]
    text = pc.binary_join_element_wise(pc.struct_field(record, "key"), orders["id"], " ")
    return {"text": text, "late": pc.greater(pc.struct_field(record, "timestamp"), pa.scalar(NOW))}


def divided(order: SimpleNamespace) -> dict[str, Any]:
    """Return a number, or fail for one record in 10,000."""
    return {"risk": order.amount / (order.amount % BATCH)}


@arrow_batch
def all_divided(orders: pa.RecordBatch) -> dict[str, pa.Array]:
    """Do the same for many records."""
    amounts = orders["amount"]
    remainders = pc.subtract(amounts, pc.multiply(pc.divide(amounts, BATCH), BATCH))
    if pc.any(pc.equal(remainders, 0)).as_py():
        raise ZeroDivisionError
    return {"risk": pc.divide(amounts.cast(pa.float64()), remainders)}


CASES: dict[str, tuple[Any, dict[str, str]]] = {
    "two numbers, a record": (risk_of, {"id": "string", "risk": "double"}),
    "two numbers, a batch": (risks_of, {"id": "string", "risk": "double"}),
    "key and timestamp, a record": (with_key, {"text": "string", "late": "boolean"}),
    "key and timestamp, a batch": (with_keys, {"text": "string", "late": "boolean"}),
    "1 in 10,000 fails, a record": (divided, {"risk": "double"}),
    "1 in 10,000 fails, a batch": (all_divided, {"risk": "double"}),
}


def batch_of(first: int) -> pa.RecordBatch:
    """Return records as the plan hands them to Python."""
    numbers = range(first, first + BATCH)
    values = [{"id": f"order_{n}", "amount": n, "weight": n / 8, "paid": n % 2 == 0} for n in numbers]
    records = [
        {
            "topic": "orders",
            "partition": 0,
            "offset": n,
            "timestamp": NOW,
            "key": f"order_{n}",
            "original_key": b"order_%d" % n,
            "value": b'{"id":"order_%d","amount":%d,"weight":1.5,"paid":true}' % (n, n),
            "order": [],
        }
        for n in numbers
    ]
    columns = pa.array(values, struct_type(FIELDS)).flatten()
    return pa.RecordBatch.from_arrays([*columns, pa.array(records, RECORD)], names=[*FIELDS, "record"])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    batches = [batch_of(first) for first in range(0, options.records, BATCH)]
    records = BATCH * len(batches)
    for name, (call, fields) in CASES.items():
        function = PythonFunction(function_name(call), call, of_batches=is_of_batches(call))
        taken = []
        for _ in range(options.rounds):
            begun = time.process_time()
            for _made in mapped_batches(function, fields)(iter(batches)):
                pass
            taken.append((time.process_time() - begun) * 1_000_000 / records)
        sys.stdout.write(f"{name:<30} {min(taken):6.2f}  median {statistics.median(taken):6.2f} CPU s per million\n")


if __name__ == "__main__":
    main()
