"""How long an application takes to start when its state is gone and is restored from the changelog topic.

Run it with ``PYTHONPATH=plugins .venv/bin/python benchmarks/restore.py [--keys 1000000] [--rounds 3] [--json FILE]``.
It needs a JDK. ``--who ours`` or ``--who library`` measures one of them.

The application counts one record of each key: ours counts clicks by page, the library orders by product. In each round
it is stopped, its state is deleted (our checkpoints, the library's state directory), one more record is produced, and
it is started again. The time goes from there until the new total is committed in the changelog. The same without
deleting the state shows what a start alone costs.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

from applications import (
    LIBRARY_ID,
    ORDERS,
    STORE,
    Flow,
    Job,
    Measured,
    aggregator,
    compiled_classes,
    finish,
    library_instance,
    report,
    running_brokers,
    wait_until,
)
from streamplan.errors import StreamplanError
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.topics import apply_topics
from streamplan.registry import pipeline_named
from streamplan.spark.submit import LOCAL_MASTER

DEADLINE_SECONDS = 900.0


CLICKS = pipeline_named("skewed")
"""It counts by any text. The pipeline ``orders`` knows two product types and rejects others."""


class Clicks(Flow):
    """A flow of clicks, each on a page of its own."""

    def _record(self, n: int, products: int, extra_field: bytes) -> tuple[str, bytes, bytes]:
        return "clicks", b'{"id": "click_%d", "page": "%d"}' % (n, n), b"click_%d" % n


class Bench:
    """An application whose starts are measured."""

    def __init__(self, bootstrap_servers: str, changelog: str, job: Job, state: Path, orders: Flow) -> None:
        self.cluster = KafkaCluster(Brokers(bootstrap_servers))
        self.changelog = changelog
        self.job, self.state, self.orders = job, state, orders

    def committed(self) -> int:
        """Return how many offsets of the changelog are in finished transactions."""
        return sum(offsets.last_stable for offsets in self.cluster.offsets(self.changelog).values())

    def until(self, what: str, condition: Callable[[], bool]) -> float:
        """Wait for a condition while the application runs, and return the seconds that it took."""

        def is_reached() -> bool:
            process = self.job.process
            if process is not None and process.poll() is not None and not condition():
                raise StreamplanError(what, observed=f"the application ended; see {_tail(self.job.log)}")
            return condition()

        return wait_until(what, is_reached, DEADLINE_SECONDS)

    def starts(self, rounds: int, *, keep: bool) -> tuple[float, ...]:
        """Return the seconds of several starts, with the state kept or deleted."""
        seconds = []
        for _ in range(rounds):
            if not keep:
                shutil.rmtree(self.state)
            before = self.committed()
            self.orders.produce(1, products=10**12)
            self.orders.flush()
            self.job.start()
            seconds.append(self.until("the new total", lambda before=before: self.committed() > before))  # type: ignore[misc]
            report(f"{self.changelog}, state {'kept' if keep else 'deleted'}: {seconds[-1]:.1f} s")
            self.job.signal(signal.SIGTERM, 120)
        return tuple(seconds)


def _tail(log: Path) -> str:
    return f"{log}, which ends:\n{log.read_text(errors='replace')[-2000:]}"


def ours(bootstrap_servers: str, home: Path, clicks: Flow, keys: int, rounds: int) -> list[Measured]:
    """Measure our aggregator."""
    job = aggregator(bootstrap_servers, home, LOCAL_MASTER, pipeline=CLICKS.name)
    changelog = CLICKS.topology.changelog_topic("clicks-by-page")
    bench = Bench(bootstrap_servers, changelog, job, home / "checkpoints", clicks)
    try:
        job.start("--available-now")
        process = job.process
        assert process is not None
        if process.wait(DEADLINE_SECONDS) != 0:
            raise StreamplanError("the aggregator", expected="drained", observed=_tail(job.log))
        counted = bench.committed()
        if counted < keys:
            raise StreamplanError("the aggregator", expected=f"{keys:,} pages counted", observed=f"{counted:,}")
        report(f"ours has counted {keys:,} pages")
        return [
            Measured(f"ours, {keys:,} keys, checkpoint kept", bench.starts(rounds, keep=True)),
            Measured(f"ours, {keys:,} keys, checkpoint deleted", bench.starts(rounds, keep=False)),
        ]
    finally:
        job.signal(signal.SIGKILL)


def library(bootstrap_servers: str, home: Path, orders: Flow, keys: int, rounds: int) -> list[Measured]:
    """Measure the JVM library."""
    state = home / "jvm"
    job = library_instance(bootstrap_servers, compiled_classes(home), state)
    bench = Bench(bootstrap_servers, f"{LIBRARY_ID}-{STORE}-changelog", job, state, orders)
    try:
        job.start()
        bench.until("the changelog", lambda: bench.changelog in KafkaCluster(Brokers(bootstrap_servers)).names())
        bench.until(f"{keys:,} products counted by Kafka Streams", lambda: bench.committed() >= keys)
        report(f"Kafka Streams has counted {keys:,} products")
        job.signal(signal.SIGTERM, 120)
        return [
            Measured(f"Kafka Streams, {keys:,} keys, state directory kept", bench.starts(rounds, keep=True)),
            Measured(f"Kafka Streams, {keys:,} keys, state directory deleted", bench.starts(rounds, keep=False)),
        ]
    finally:
        job.signal(signal.SIGKILL)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--who", choices=("ours", "library", "both"), default="both")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    measured: list[Measured] = []
    with (
        tempfile.TemporaryDirectory(prefix="streamplan-bench-") as name,
        running_brokers(Path(name)) as bootstrap_servers,
    ):
        apply_topics(Brokers(bootstrap_servers), ORDERS)
        apply_topics(Brokers(bootstrap_servers), CLICKS)
        orders = Flow(bootstrap_servers, 0)
        orders.produce(options.keys, products=options.keys)
        orders.flush()
        home = Path(os.path.realpath(name))
        try:
            if options.who in ("library", "both"):
                measured += library(bootstrap_servers, home, orders, options.keys, options.rounds)
            if options.who in ("ours", "both"):
                clicks = Clicks(bootstrap_servers, 0)
                clicks.produce(options.keys)
                clicks.flush()
                measured += ours(bootstrap_servers, home, clicks, options.keys, options.rounds)
        finally:
            finish(measured, options.json)


if __name__ == "__main__":
    main()
