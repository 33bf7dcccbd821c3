"""How long stream tasks stop when an instance or the driver is killed, with ours and with the JVM library.

Run it with ``PYTHONPATH=plugins:. .venv/bin/python benchmarks/takeover.py [--rounds 3] [--rate 1000] [--json FILE]``.
It needs a JDK. ``--cases`` runs some of them.

Orders flow all the time. At the kill (SIGKILL) the end offsets of ``orders`` and of the repartition topic are recorded
for each partition. The time goes from the kill until the group's committed offsets have reached all of them. So it
includes what was left to process at the kill: the case "nothing is killed" shows how long that takes.
"""

from __future__ import annotations

import argparse
import itertools
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from applications import (
    LIBRARY_ID,
    ORDERS,
    Flow,
    Job,
    Measured,
    Positions,
    aggregator,
    compiled_classes,
    finish,
    library_instance,
    random_ports,
    report,
    running_brokers,
    wait_until,
    wait_until_running,
)
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.topics import apply_topics
from streamplan.settings import Settings
from streamplan.spark.submit import LOCAL_MASTER

from tests.support.spark_cluster import DEFAULT_PORTS, EmbeddedSpark

DEADLINE_SECONDS = 300.0
STEADY_SECONDS = 15
"""Before a kill the lag may be so many seconds of orders, because other processes may use the machine, too."""

SHORT_SESSION = {"session_timeout_ms": "6000", "heartbeat_interval_ms": "2000"}
"""The shortest session that the brokers' defaults allow."""


def seconds_to_pass(positions: Positions, kill: Callable[[], object]) -> float:
    """Kill, and return the seconds until everything is processed that was there at the kill."""
    ends = positions.ends()
    begun = time.monotonic()
    kill()
    wait_until("the positions pass what was there at the kill", lambda: positions.passed(ends), DEADLINE_SECONDS)
    return time.monotonic() - begun


class Bench:
    """The cases of this benchmark, and what was measured of them."""

    def __init__(self, home: Path, bootstrap_servers: str, rounds: int, rate: int, cases: list[str]) -> None:
        self.home, self.bootstrap_servers = home, bootstrap_servers
        self.rounds, self.rate, self.cases = rounds, rate, cases
        self.measured: list[Measured] = []

    def measure(
        self, case: str, positions: Positions, kill: Callable[[], object], mend: Callable[[], object] = lambda: None
    ) -> None:
        """Measure several rounds of a kill. ``mend`` brings the application back after each."""
        seconds: list[float] = []
        for _ in range(self.rounds):
            positions.wait_until_steady(STEADY_SECONDS * self.rate)
            seconds.append(seconds_to_pass(positions, kill))
            report(f"{case}: {seconds[-1]:.1f} s")
            mend()
        self.measured.append(Measured(case, tuple(seconds)))

    # -- ours

    def ours(self) -> None:
        """Measure our aggregator on a standalone cluster of this machine."""
        settings = Settings.from_environment({"STREAMPLAN_HOME": str(self.home / "spark")})
        ports = random_ports(settings.home / "stack.json", [*DEFAULT_PORTS])
        cluster = EmbeddedSpark(settings, ports, memory="512m", report=report)
        job = aggregator(
            self.bootstrap_servers,
            self.home,
            cluster.start_master(),
            *("--executor-cores", "1", "--executor-memory", "512m"),
        )
        positions = Positions(self.bootstrap_servers, ORDERS.topology.application_id)
        try:
            cluster.start_workers(1, 2)
            with Flow(self.bootstrap_servers, self.rate):
                job.start()
                self._workers(cluster, positions, 2)
                if "driver" in self.cases:
                    self._driver(cluster, positions, job)
                if "4" in self.cases:
                    cluster.start_workers(3, 4)
                    self._workers(cluster, positions, 4)
        finally:
            job.signal(signal.SIGKILL)
            cluster.down()

    def _workers(self, cluster: EmbeddedSpark, positions: Positions, count: int) -> None:
        def settled() -> None:
            cluster.start_workers(*range(1, count + 1))
            wait_until(
                f"{count} executors",
                lambda: sum(worker.cores_used for worker in cluster.workers() if worker.alive) == count,
                DEADLINE_SECONDS,
            )
            positions.wait_until_steady(STEADY_SECONDS * self.rate)
            time.sleep(5)  # Spark prefers the executor that has the state: let the new one get some tasks

        settled()
        victims = [number % count + 1 for number in range(self.rounds)]
        if str(count) in self.cases:
            self.measure(f"ours, {count} instances, nothing is killed", positions, lambda: None)
            left = iter(victims)
            self.measure(
                f"ours, {count} instances, one is killed with its worker",
                positions,
                lambda: cluster.kill_worker(next(left)),
                settled,
            )

    def _driver(self, cluster: EmbeddedSpark, positions: Positions, job: Job) -> None:
        def settled() -> None:
            wait_until("an executor", lambda: any(worker.cores_used for worker in cluster.workers()), DEADLINE_SECONDS)

        self.measure(
            "ours, the driver is killed and started again at once",
            positions,
            job.kill_and_start,
            settled,
        )

    def local(self) -> None:
        """Measure our aggregator with Spark in one JVM."""
        home = self.home / "local"
        home.mkdir()
        job = aggregator(self.bootstrap_servers, home, LOCAL_MASTER)
        positions = Positions(self.bootstrap_servers, ORDERS.topology.application_id)

        try:
            with Flow(self.bootstrap_servers, self.rate):
                job.start()
                self.measure(f"ours, {LOCAL_MASTER}, nothing is killed", positions, lambda: None)
                self.measure(
                    f"ours, {LOCAL_MASTER}, killed and started again at once",
                    positions,
                    job.kill_and_start,
                )
        finally:
            job.signal(signal.SIGKILL)

    # -- the JVM library

    def library(self) -> None:
        """Measure the JVM library."""
        classes = compiled_classes(self.home)
        for case, configs in (("jvm", {}), ("jvm-short", SHORT_SESSION)):
            if case in self.cases:
                self._library(case, classes, configs)

    def _library(self, case: str, classes: Path, configs: Mapping[str, str]) -> None:
        named = f"Kafka Streams, 2 instances, session.timeout.ms={configs.get('session_timeout_ms', '45000')}"
        positions = Positions(self.bootstrap_servers, LIBRARY_ID)
        running: list[Job] = []
        numbers = itertools.count()

        def start_one() -> None:
            state = self.home / f"{case}-{next(numbers)}"
            running.append(library_instance(self.bootstrap_servers, classes, state, **configs))
            running[-1].start()
            wait_until_running(running[-1])

        def settled() -> None:
            while len(running) < 2:
                start_one()
            positions.wait_until_steady(STEADY_SECONDS * self.rate)
            time.sleep(5)  # until tasks have moved to the new one

        try:
            with Flow(self.bootstrap_servers, self.rate):
                settled()
                self.measure(f"{named}, nothing is killed", positions, lambda: None)
                self.measure(
                    f"{named}, one is killed", positions, lambda: running.pop(0).signal(signal.SIGKILL), settled
                )
        finally:
            for instance in running:
                instance.signal(signal.SIGTERM)


CASES = ("local", "2", "4", "driver", "jvm", "jvm-short")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=int, default=1000, help="orders a second")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=[*CASES])
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="streamplan-bench-") as home,
        running_brokers(Path(home)) as bootstrap_servers,
    ):
        apply_topics(Brokers(bootstrap_servers), ORDERS)
        bench = Bench(Path(home), bootstrap_servers, options.rounds, options.rate, options.cases)
        try:
            if "local" in options.cases:
                bench.local()
            if {"2", "4", "driver"} & {*options.cases}:
                bench.ours()
            if {"jvm", "jvm-short"} & {*options.cases}:
                bench.library()
        finally:
            finish(bench.measured, options.json)


if __name__ == "__main__":
    main()
