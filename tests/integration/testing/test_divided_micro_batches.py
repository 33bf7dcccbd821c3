"""A micro-batch is committed in parts where all of its rows are made of single records, and else as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from streamplan.spark.sink.writers import write_stream_tasks
from streamplan.testing import TopologyTestDriver, memory_query
from streamplan.testing.memory_output import MemoryOutput

from tests.support.twin_drivers import APPLICATION, pipe, random_records
from tests.support.twin_topologies import ours, program

WHOLE = {
    "a class": "stream a; process; to made",
    "a count": "stream a; group_by_key; count; to_stream; counts; to counts",
    "a function that aggregates": "stream a; group_by_key; python_reduce; to_stream; to reduced",
    "suppressed updates": "unstored_table a; suppress_two; to_stream; to out",
    "a count of joined records": "table b; stream a; left_join 0; group_by_key; count; to_stream; counts; to counts; "
    "@2 to joined",
}
DIVIDED = {
    "a join with a table": "table b; stream a; left_join 0; to joined; @2 map_values; to mapped",
    "a left join of streams": "stream b; stream a; left_join_soon 0; to joined",
    "a join of tables": "table t; table u; outer_tables_stored 0; to_stream; to joined",
}


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, int]]:
    """Gets the parts. Each row comes to the writer by itself, in a transaction that is old at once."""
    found: list[Mapping[str, int]] = []
    commit_part = MemoryOutput.commit_part

    def noted(self: MemoryOutput, positions: Mapping[str, int]) -> None:
        found.append(dict(positions))
        commit_part(self, positions)

    def row_by_row(batches: Iterable[pa.RecordBatch], *more: Any) -> pa.RecordBatch:
        return write_stream_tasks((rows.slice(n, 1) for rows in batches for n in range(rows.num_rows)), *more)

    monkeypatch.setattr(MemoryOutput, "commit_part", noted)
    monkeypatch.setattr(MemoryOutput, "old", True)
    monkeypatch.setattr(memory_query, "write_stream_tasks", row_by_row)
    return found


@pytest.mark.parametrize(
    ("text", "divided"),
    [(text, False) for text in WHOLE.values()] + [(text, True) for text in DIVIDED.values()],
    ids=[*WHOLE, *DIVIDED],
)
def test_what_belongs_to_no_record_is_committed_with_all_records(
    spark: SparkSession, parts: list[Mapping[str, int]], text: str, divided: bool
) -> None:
    steps = program(text)
    pipeline = ours(steps, APPLICATION, 1)
    with TopologyTestDriver(pipeline, spark=spark) as driver:
        with driver.micro_batch():
            for record in random_records(1, steps, 12):
                pipe(driver, record)
        written = [topic for topic in pipeline.topology.sink_topics if driver.output(topic)]
    assert written
    assert bool(parts) is divided
