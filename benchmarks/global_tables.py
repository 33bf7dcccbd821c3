"""What a global table costs a Python worker: memory, and CPU seconds to read its rows and to look them up.

Run it with ``PYTHONPATH=plugins .venv/bin/python benchmarks/global_tables.py [--rows 100000]``. It needs neither
brokers nor Spark: the records come from memory, in batches of 10,000.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time

import psutil
import pyarrow as pa
from streamplan.serdes.json import Json
from streamplan.spark.global_tables import Rows, TableRecord

VALUE = Json("name string, price double")

BATCH = 10_000


def tell(line: str) -> None:
    """Print a figure."""
    sys.stdout.write(f"{line}\n")


def main() -> None:
    """Measure a table of so many rows, and print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    count = parser.parse_args().rows
    process = psutil.Process()
    rows = Rows("products", VALUE)
    rows.put([TableRecord(0, 0, b"warm", b'{"name": "x", "price": 1}')])
    gc.collect()
    before, began = process.memory_info().rss, time.process_time()
    for first in range(0, count, BATCH):
        rows.put(
            TableRecord(0, number, b"product_%d" % number, b'{"name": "Product %d", "price": 12.5}' % number)
            for number in range(first, first + BATCH)
        )
    read = time.process_time() - began
    gc.collect()
    tell(f"{count:,} rows: {(process.memory_info().rss - before) / 1e6:.0f} MB, read in {read:.2f} CPU seconds")
    keys = pa.array([b"product_%d" % (number * 7 % count) for number in range(BATCH)], pa.binary())
    began = time.process_time()
    for _ in range(100):
        rows.of(keys)
    tell(f"1,000,000 look-ups: {time.process_time() - began:.2f} CPU seconds")
    began = time.process_time()
    for number in range(100):
        rows.put([TableRecord(0, count + number, b"product_%d" % number, b'{"name": "New", "price": 1}')])
    tell(f"one new row: {(time.process_time() - began) * 10:.1f} CPU ms")


if __name__ == "__main__":
    main()
