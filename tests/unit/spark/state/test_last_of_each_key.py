"""The last record of each key, however the records are divided."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest
from streamplan.spark.state import last_of_each_key as module


@pytest.mark.parametrize("seed", range(20))
def test_each_key_has_the_row_that_came_last(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    monkeypatch.setattr(module, "_MIN_ROWS", random.choice([1, 7, 10_000]))
    rows = [(random.randrange(2), b"%d" % random.randrange(40), offset) for offset in range(random.choice([0, 1, 500]))]
    cuts = sorted(random.randrange(len(rows) + 1) for _ in range(10))
    batches = [
        pa.RecordBatch.from_pydict(
            {
                "partition": pa.array([partition for partition, _, _ in part], pa.int32()),
                "key": pa.array([key for _, key, _ in part], pa.binary()),
                "value": pa.array([None if offset % 3 == 0 else b"%d" % offset for _, _, offset in part], pa.binary()),
                "offset": pa.array([offset for _, _, offset in part], pa.int64()),
            }
        )
        for part in (rows[first:last] for first, last in zip([0, *cuts], [*cuts, len(rows)], strict=True))
    ]
    expected = {(partition, key): offset for partition, key, offset in rows}
    selected = [row for batch in module.last_of_each_key(iter(batches)) for row in batch.to_pylist()]
    assert [row["offset"] for row in selected] == sorted(expected.values())
    assert {(row["partition"], row["key"]): row["offset"] for row in selected} == expected
    assert all(row["value"] == (None if row["offset"] % 3 == 0 else b"%d" % row["offset"]) for row in selected)
