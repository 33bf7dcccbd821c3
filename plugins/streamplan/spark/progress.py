"""What an aggregator says in its log about its micro-batches: records written, peeks, and late records."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from streamplan.model.status import MicroBatchMeasures
from streamplan.spark.pacing import Pacing
from streamplan.spark.query import MicroBatchReport
from streamplan.spark.status import Heartbeat


@dataclass
class Progress:
    """Counts the records of all micro-batches, and reports them. The threads of the queries call it.

    Attributes:
        report: Gets lines for the log.
        heartbeat: Is told of each micro-batch.
        pacing: Knows how long the queries waited; None where they do not wait.
        interval_seconds: The least time between two lines with the counts.
        totals: Records written and dead-lettered so far, by the id of the sub-topology.
    """

    report: Callable[[str], None]
    heartbeat: Heartbeat = field(default_factory=Heartbeat)
    pacing: Pacing | None = None
    interval_seconds: float = 2.0
    totals: dict[int, tuple[int, int]] = field(default_factory=dict)
    _reported_at: float = 0.0
    _reported: str = ""
    _last_batches: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def record(self, batch: MicroBatchReport) -> None:
        """Take in a micro-batch that was committed."""
        self.heartbeat.record(batch.subtopology, batch.batch, batch.tasks)
        with self._lock:
            written, dead_lettered = self.totals.get(batch.subtopology, (0, 0))
            self.totals[batch.subtopology] = (written + batch.written, dead_lettered + batch.dead_lettered)
            for name, metrics in batch.peeked.items():
                self.report(_peek_line(name, batch.batch, metrics))
            line = self.line()
            if line != self._reported and time.monotonic() - self._reported_at >= self.interval_seconds:
                self._reported_at, self._reported = time.monotonic(), line
                self.report(line)

    def record_query(self, subtopologies: Sequence[int], query: StreamingQuery) -> None:
        """Report what Spark alone knows of the query's last micro-batch: late records, and peeks before stateful work.

        How long it took, and how much state there is, goes to the heartbeat. The thread that watches the queries calls
        this. A micro-batch that it has seen is not reported again.

        Args:
            subtopologies: Ids of the sub-topologies that the query does. The last one has its state.
        """
        progress = query.lastProgress
        # Without records Spark reports that it has looked, with the number of the micro-batch that will be next.
        if progress is None or "addBatch" not in progress["durationMs"]:
            return
        if progress["batchId"] == self._last_batches.get(query.name):
            return
        number = self._last_batches[query.name] = progress["batchId"]
        late = sum(operator["numRowsDroppedByWatermark"] for operator in progress["stateOperators"])
        if late:
            self.report(f"{query.name}, micro-batch {number}: {late} records came later than grace, and were dropped")
        *before, last = subtopologies
        self.heartbeat.measures[last] = self._measures(last, progress)
        for linked in before:
            self.heartbeat.measures[linked] = replace(self._measures(linked, progress), state_rows=0, state_bytes=0)
        for name, row in progress["observedMetrics"].items():
            self.report(_peek_line(name, number, row.asDict()))

    def _measures(self, subtopology: int, progress: StreamingQueryProgress) -> MicroBatchMeasures:
        written, dead_lettered = self.totals.get(subtopology, (0, 0))
        rested = self.pacing.rest_after(subtopology, progress["batchId"]) if self.pacing else 0.0
        return MicroBatchMeasures(
            batch=progress["batchId"],
            records=_records_read(progress),
            seconds=progress["durationMs"]["triggerExecution"] / 1000 - rested,
            write_seconds=progress["durationMs"]["addBatch"] / 1000 - rested,
            state_rows=sum(operator["numRowsTotal"] for operator in progress["stateOperators"]),
            state_bytes=sum(operator["memoryUsedBytes"] for operator in progress["stateOperators"]),
            written=written,
            dead_lettered=dead_lettered,
        )

    def line(self) -> str:
        """Return the counts of all sub-topologies in one line; empty before the first micro-batch."""
        return " · ".join(
            f"sub-topology {number}: {written:,} records written, {dead_lettered:,} dead-lettered"
            for number, (written, dead_lettered) in sorted(self.totals.items())
        )


def _records_read(progress: StreamingQueryProgress) -> int:
    """The rows of all sources but that of ticks (:func:`streamplan.spark.sources.read_ticks`)."""
    return sum(source["numInputRows"] for source in progress["sources"] if "RateStream" not in source["description"])


def _peek_line(name: str, batch: int, metrics: Mapping[str, object]) -> str:
    listed = ", ".join(f"{metric} {value}" for metric, value in metrics.items())
    return f"peek {name}, micro-batch {batch}: {listed}"
