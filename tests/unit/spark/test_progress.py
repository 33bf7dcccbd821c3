"""What the thread that watches the queries takes from Spark's reports of them.

The reports are those of Spark 4.2: while there are no records, one comes every ten seconds with the number of the
micro-batch that will be next, and without a duration ``addBatch``.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from pyspark.sql.streaming import StreamingQuery
from streamplan.spark.progress import Progress


def ran(batch: int, *, records: int, late: int = 0) -> dict[str, Any]:
    operator = {"numRowsTotal": 2, "memoryUsedBytes": 1024, "numRowsDroppedByWatermark": late}
    durations = {"triggerExecution": 500, "addBatch": 250}
    return {
        "batchId": batch,
        "numInputRows": records,
        "sources": [{"description": "KafkaV2[Subscribe[orders]]", "numInputRows": records}],
        "durationMs": durations,
        "stateOperators": [operator],
        "observedMetrics": {},
    }


def idle(batch: int) -> dict[str, Any]:
    return ran(batch, records=0) | {"durationMs": {"triggerExecution": 3, "latestOffset": 2}}


def test_a_micro_batch_after_a_pause_is_reported() -> None:
    lines: list[str] = []
    progress = Progress(lines.append)
    query = SimpleNamespace(name="orders-1")

    def see(report: dict[str, Any]) -> None:
        query.lastProgress = report
        progress.record_query([1], cast(StreamingQuery, query))

    see(idle(0))
    assert progress.heartbeat.measures == {}
    see(ran(0, records=19))
    assert progress.heartbeat.measures[1].records == 19
    see(idle(1))
    see(ran(1, records=7, late=3))
    assert (progress.heartbeat.measures[1].batch, progress.heartbeat.measures[1].records) == (1, 7)
    assert lines == ["orders-1, micro-batch 1: 3 records came later than grace, and were dropped"]


def test_a_micro_batch_is_reported_once() -> None:
    lines: list[str] = []
    progress = Progress(lines.append)
    query = SimpleNamespace(name="orders-1", lastProgress=ran(4, records=7, late=3))
    for _ in range(3):
        progress.record_query([1], cast(StreamingQuery, query))
    assert len(lines) == 1
