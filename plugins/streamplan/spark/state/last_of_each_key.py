"""Selects the last record of each key, in a Python worker, from a partition that comes in the order of its offsets."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from streamplan.spark.arrow_without_pandas import use_arrow_without_pandas

_MIN_ROWS = 200_000
"""At least this many rows are collected, and as many as were selected so far, before the last of each key is taken."""

_ROWS_OF_BATCH = 10_000


def last_of_each_key(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the last row of each key, in the order in which they came.

    The memory that is needed is that of two rows for each key.

    Args:
        batches: All rows, with the columns ``partition`` and ``key``.
    """
    use_arrow_without_pandas()
    selected: list[pa.RecordBatch] = []
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(map(len, waiting)) >= max(_MIN_ROWS, sum(map(len, selected))):
            selected, waiting = _last_rows([*selected, *waiting]), []
    if selected or waiting:
        yield from _last_rows([*selected, *waiting])


def _last_rows(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    rows = pa.Table.from_batches(batches)
    numbered = rows.select(["partition", "key"]).append_column("row", pa.array(np.arange(rows.num_rows)))
    last = numbered.group_by(["partition", "key"]).aggregate([("row", "max")])["row_max"].to_numpy()
    selected: list[pa.RecordBatch] = rows.take(pa.array(np.sort(last))).combine_chunks().to_batches(_ROWS_OF_BATCH)
    return selected
