"""Where the time of a micro-batch goes: its parts, for each sub-topology of the orders pipeline at a steady rate.

Run it with ``PYTHONPATH=plugins .venv/bin/python benchmarks/micro_batch_parts.py [--seconds 90] [--json FILE]
[--before FILE]``. With ``--before`` it compares the parts with those of an earlier run, which ``--json`` wrote, and its
exit status is 1 when a part takes 50 ms more. Measure both on the same machine, with nothing else on it.

    latestOffset, walCommit, queryPlanning, addBatch, commitOffsets    what Spark measures (``durationMs``)
    offsets    addBatch: the offsets of the micro-batch are read from the checkpoint
    collect    addBatch: Spark computes the rows of a micro-batch that the driver writes
    write      addBatch: the driver writes them, and commits
    wait       addBatch: the query waits for its next micro-batch
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

SPARK_PARTS = ("latestOffset", "walCommit", "queryPlanning", "addBatch", "commitOffsets")
OUR_PARTS = ("offsets", "collect", "write", "wait")
MORE_MS = 50
RATE = 1000
SAMPLES = 100
"""The last micro-batches of which Spark keeps the durations."""

ASK_SECONDS = 10
"""How often Spark is asked for them: the answer is long."""

Parts = Mapping[str, Mapping[str, float]]
"""By sub-topology and part the median in ms."""


def job(bootstrap_servers: str, home: Path) -> None:
    """Run the pipeline by spark-submit until a signal, and write the parts when it ends."""
    from streamplan.kafka.brokers import Brokers
    from streamplan.programs import stop_on_signals
    from streamplan.registry import pipeline_named
    from streamplan.spark import query
    from streamplan.spark.aggregator import run
    from streamplan.spark.deployment import Deployment
    from streamplan.spark.pacing import Pacing
    from streamplan.spark.progress import Progress
    from streamplan.spark.session import open_session
    from streamplan.spark.state.checkpoint import Checkpoint

    spent: dict[tuple[int, str], list[float]] = defaultdict(list)

    def measured(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            begun = time.monotonic()
            try:
                return function(*arguments, **options)
            finally:
                spent[threading.get_ident(), part].append((time.monotonic() - begun) * 1000)

        return call

    medians: dict[str, dict[str, float]] = {}
    asked_at: dict[int, float] = defaultdict(float)

    def rest(pacing: Pacing, subtopology: int, batch: int, **options: bool) -> None:
        measured("wait", original_rest)(pacing, subtopology, batch, **options)
        medians.setdefault(str(subtopology), {}).update(
            {
                part: statistics.median(spent[threading.get_ident(), part][-SAMPLES:])
                for part in OUR_PARTS
                if spent[threading.get_ident(), part]
            }
        )

    def record_query(progress: Progress, subtopology: int, started: Any) -> None:
        original_record(progress, subtopology, started)
        if time.monotonic() - asked_at[subtopology] < ASK_SECONDS:
            return
        asked_at[subtopology] = time.monotonic()
        recent = [each["durationMs"] for each in started.recentProgress if "addBatch" in each["durationMs"]]
        medians.setdefault(str(subtopology), {}).update(
            {part: statistics.median(each.get(part, 0) for each in recent) for part in SPARK_PARTS if recent}
        )

    original_rest, Pacing.rest = Pacing.rest, rest  # type: ignore[method-assign]
    original_record, Progress.record_query = Progress.record_query, record_query  # type: ignore[method-assign]
    query.collect_in_arrow = measured("collect", query.collect_in_arrow)
    query.write_collected = measured("write", query.write_collected)
    Checkpoint.offset_ranges = measured("offsets", Checkpoint.offset_ranges)  # type: ignore[method-assign]
    stop = stop_on_signals()
    deployment = Deployment(pipeline_named("orders"), Brokers(bootstrap_servers), str(home / "checkpoints"))
    try:
        run(
            open_session("micro-batch parts"),
            deployment,
            available_now=False,
            trigger_interval_ms=500,
            stop=stop,
            report=lambda line: None,
        )
    finally:
        (home / "parts.json").write_text(json.dumps(medians))


def measure(seconds: int) -> Parts:
    """Run brokers, pipeline and a flow of orders for so long; return the parts."""
    import signal

    from applications import ORDERS, Flow, Positions, running_brokers, spark_job, wait_until
    from streamplan.errors import StreamplanError
    from streamplan.kafka.brokers import Brokers
    from streamplan.kafka.topics import apply_topics
    from streamplan.spark.submit import LOCAL_MASTER

    with (
        tempfile.TemporaryDirectory(prefix="streamplan-parts-") as name,
        running_brokers(Path(name)) as bootstrap_servers,
    ):
        home = Path(os.path.realpath(name))
        apply_topics(Brokers(bootstrap_servers), ORDERS)
        started = spark_job(Path(__file__), ["--job", bootstrap_servers, str(home)], home, LOCAL_MASTER)
        started.start()
        flow = Flow(bootstrap_servers, RATE)
        flow.produce(RATE)
        flow.flush()
        positions = Positions(bootstrap_servers, ORDERS.topology.application_id)
        ends = positions.ends()
        wait_until("the first orders are processed", lambda: positions.passed(ends), 300)
        with flow:
            time.sleep(seconds)
            assert started.process is not None
            if started.process.poll() is not None:
                raise StreamplanError("the pipeline", observed=f"it ended; {started.log.read_text()[-3000:]}")
            started.signal(signal.SIGTERM)
        parts: Parts = json.loads((home / "parts.json").read_text())
        return parts


def compare(parts: Parts, before: Parts) -> list[str]:
    """Return a line for each part that takes :data:`MORE_MS` more than before. Waiting is no work."""
    return [
        f"sub-topology {number}: {part} takes {value:.0f} ms, and took {before[number][part]:.0f}"
        for number, by_part in parts.items()
        for part, value in by_part.items()
        if part not in ("wait", "addBatch") and value > before.get(number, {}).get(part, value) + MORE_MS
    ]


def main() -> int:
    """Measure, print and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=90, help="at the steady rate (default %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--before", type=Path, metavar="FILE")
    parser.add_argument("--job", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.job:
        job(given.job[0], Path(given.job[1]))
        return 0
    parts = measure(given.seconds)
    for number, by_part in sorted(parts.items()):
        listed = ", ".join(f"{part} {by_part[part]:.0f}" for part in (*SPARK_PARTS, *OUR_PARTS) if part in by_part)
        sys.stdout.write(f"sub-topology {number}, median ms: {listed}\n")
    if given.json:
        given.json.write_text(json.dumps(parts, indent=1) + "\n")
    slower = compare(parts, json.loads(given.before.read_text())) if given.before else []
    sys.stdout.writelines(f"{line}\n" for line in slower)
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
