"""The aggregator on several instances: who does which task, a spare one that takes over, and nothing lost meanwhile.

Spark places tasks in every micro-batch anew. What is asserted is what it promises: each task is done by some executor
that is there, executors never exceed what was asked for, and a worker without one gets one when another is lost.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from confluent_kafka import Producer
from streamplan.files import ReportPaths
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.model.status import AggregatorState, AggregatorStatus, TaskMigration
from streamplan.pipelines.orders import order
from streamplan.reports.status import read_migrations, read_status
from streamplan.settings import PROJECT

from tests.support.aggregator_process import CHANGELOG, ORDERS, REPARTITION, Aggregator, await_condition
from tests.support.records import read_committed
from tests.support.spark_cluster import EmbeddedSpark

TASKS = {"0_0", "0_1", "1_0", "1_1"}
INSTANCES = 3


class Orders:
    """Orders that flow, a few hundred a second, between ``start`` and ``stop``."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.produced = 0
        self._producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "partitioner": "murmur2_random", "enable.idempotence": True}
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def produce(self, count: int) -> None:
        for _ in range(count):
            key, value = order(self.produced)
            self._producer.produce("orders", key=key, value=value)
            self.produced += 1
        self._producer.poll(0)

    def _run(self) -> None:
        while not self._stop.wait(0.05):
            self.produce(10)

    def __enter__(self) -> Orders:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(300)
        self.flush()

    def flush(self) -> None:
        assert self._producer.flush(120) == 0


class OnCluster:
    """The aggregator of the fixture, on another master, with what it says of itself."""

    def __init__(self, base: Aggregator, home: Path, master: str, *more: str) -> None:
        self.base = base
        self.reports = home / "reports"
        self.status_file = ReportPaths(self.reports, "orders").aggregator_status
        package = shutil.make_archive(str(home / "streamplan"), "zip", PROJECT / "plugins", "streamplan")
        argv = base.argv
        argv[argv.index("--master") + 1] = master
        argv[argv.index("--driver-memory") + 1] = "512m"
        options = ["--executor-memory", "512m", "--py-files", package, *more]
        # Executors run the code of the package that is sent along, as behind Airflow.
        base.argv = [argv[0], *options, *argv[1:], "--heartbeat", str(self.status_file)]

    def start(self, *more: str) -> subprocess.Popen[bytes]:
        return self.base.start(*more)

    def stop(self) -> None:
        """As Airflow's supervisor does; it has stopped by its own will."""
        process = self.base.process
        assert process is not None
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(600)

    def status(self) -> AggregatorStatus:
        status = read_status(self.status_file)
        assert status is not None
        return status

    def moves(self) -> list[TaskMigration]:
        return read_migrations(self.status_file, last=100_000)

    def instances_since(self, seen: int) -> set[str]:
        """Those to which a task moved after the first ``seen`` moves."""
        return {move.instance.split(" on ")[0] for move in self.moves()[seen:]}

    def eventually(self, what: str, condition: Callable[[], bool], seconds: float = 600) -> None:
        def alive_and_so() -> bool:
            process = self.base.process
            assert process is not None
            if process.poll() is not None:
                pytest.fail(f"the aggregator ended; its log ends:\n{self.base.log.read_text()[-3000:]}")
            return condition()

        await_condition(what, alive_and_so, self.base.log, seconds)

    def command(self, *arguments: str) -> str:
        """``python -m streamplan tasks``: what it printed."""
        servers = self.base.argv[self.base.argv.index("--bootstrap-servers") + 1]
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "streamplan",
                "tasks",
                "--pipeline",
                "orders",
                "--bootstrap-servers",
                servers,
                *arguments,
            ],
            env={
                **os.environ,
                "PYTHONPATH": str(PROJECT / "plugins"),
                "STREAMPLAN_REPORTS": str(self.reports),
                "COLUMNS": "160",
            },
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def expect_exact(bootstrap_servers: str, produced: int) -> None:
    """The topics hold what a recount of the orders says, each once."""
    source = read_committed(bootstrap_servers, "orders")
    assert len(source) == produced
    expected = Counter(b"%d" % json.loads(message.value())["ProductType"] for message in source)
    repartitioned = read_committed(bootstrap_servers, REPARTITION)
    assert Counter(m.value() for m in repartitioned) == Counter(m.value() for m in source)
    values: dict[bytes, list[int]] = {}
    for message in read_committed(bootstrap_servers, CHANGELOG):
        values.setdefault(message.key(), []).append(int.from_bytes(message.value(), "big"))
    assert {key: counts[-1] for key, counts in values.items()} == expected
    assert all(counts == sorted(set(counts)) for counts in values.values())


def lag(bootstrap_servers: str) -> int:
    cluster = KafkaCluster(Brokers(bootstrap_servers))
    group = ORDERS.topology.application_id
    return sum(
        offsets.last_stable - cluster.positions(group, topic).get(number, 0)
        for topic in ("orders", REPARTITION)
        for number, offsets in cluster.offsets(topic).items()
    )


@pytest.mark.soak
def test_a_local_cluster_shares_the_tasks(aggregator: Aggregator, bootstrap_servers: str, tmp_path: Path) -> None:
    orders = Orders(bootstrap_servers)
    orders.produce(2_000)
    orders.flush()
    on = OnCluster(aggregator, tmp_path, "local-cluster[3,1,1024]")
    assert on.start("--available-now", "--max-offsets", "500").wait(420) == 0, aggregator.log.read_text()[-3000:]
    expect_exact(bootstrap_servers, 2_000)
    status = on.status()
    assert status.state is AggregatorState.STOPPED
    assert status.tasks.keys() == TASKS
    # The source's partitions have preferred executors, and these differ.
    instances = on.instances_since(0)
    assert {"0", "1", "2"} >= instances
    assert len(instances) >= 2
    for number in (0, 1):  # of the sub-topologies
        written = sum(placed.records for task, placed in status.tasks.items() if task.startswith(f"{number}_"))
        assert written >= (2_000 if number == 0 else 2)
        measures = status.measures[number]
        assert measures.written == written
        assert measures.dead_lettered == 0
        assert measures.seconds >= measures.write_seconds > 0
    assert [status.measures[number].state_rows for number in (0, 1)] == [0, 2]
    assert status.measures[1].state_bytes > 0
    assert status.started < status.at


@pytest.mark.soak
def test_instances_come_and_go_while_orders_flow(
    aggregator: Aggregator, bootstrap_servers: str, tmp_path: Path, spark_cluster: EmbeddedSpark
) -> None:
    on = OnCluster(
        aggregator, tmp_path, spark_cluster.url, "--executor-cores", "1", "--total-executor-cores", str(INSTANCES)
    )
    spark_cluster.start_workers(1)
    with Orders(bootstrap_servers) as orders:
        on.start()
        on.eventually("one instance does all tasks", lambda: _running(on) and on.status().tasks.keys() == TASKS)
        assert on.instances_since(0) == {"0"}
        printed = on.command("--history", "2")
        assert re.search(r"^\W*1_1 +0 +\S+ +[\d,]+ +[\d,]+ +[\d.]+ s ago", printed, re.MULTILINE), printed
        assert "the aggregator runs: streamplan:" in printed

        for size in range(2, INSTANCES + 1):
            spark_cluster.start_workers(size)
            on.eventually(f"{size} have an executor", lambda size=size: _busy(spark_cluster) == size)
        seen = len(on.moves())
        everyone = {str(number) for number in range(INSTANCES)}
        on.eventually("all of them at work", lambda: on.instances_since(seen) >= everyone)
        assert on.status().tasks.keys() == TASKS
        assert "task 0_" in aggregator.log.read_text()

        # One more waits: it has no executor as long as there are enough.
        spare = INSTANCES + 1
        spark_cluster.start_workers(spare)
        assert spark_cluster.executor_pids(spare) == []
        assert _busy(spark_cluster) == INSTANCES
        seen = len(on.moves())
        spark_cluster.kill_worker(2)
        on.eventually("the spare one takes over", lambda: str(INSTANCES) in on.instances_since(seen))
        assert len(spark_cluster.executor_pids(spare)) == 1

        # An executor alone is killed: its worker starts another.
        seen = len(on.moves())
        spark_cluster.kill_executors(1)
        successor = str(INSTANCES + 1)
        on.eventually("its successor works", lambda: successor in on.instances_since(seen))

        for number in range(3, spare + 1):
            spark_cluster.stop_worker(number)
        at = time.time()
        on.eventually("the last one goes on", lambda: _all_since(on, at))
        assert {placed.instance for placed in on.status().tasks.values()} == {successor}
    on.eventually("all is processed", lambda: lag(bootstrap_servers) == 0)
    on.stop()
    expect_exact(bootstrap_servers, orders.produced)
    printed = on.command("--history", "50")
    assert "no aggregator runs: group orders-aggregator has none as a member" in printed
    assert "instance" in printed
    assert " -> " in printed


@pytest.mark.soak
def test_a_master_that_has_forgotten_the_application_ends_the_aggregator_and_the_next_start_goes_on(
    aggregator: Aggregator, bootstrap_servers: str, tmp_path: Path, spark_cluster: EmbeddedSpark
) -> None:
    on = OnCluster(aggregator, tmp_path, spark_cluster.url, "--executor-cores", "1", "--total-executor-cores", "1")
    spark_cluster.start_workers(1)
    with Orders(bootstrap_servers) as orders:
        process = on.start()
        on.eventually("one instance does all tasks", lambda: _running(on) and on.status().tasks.keys() == TASKS)
        spark_cluster.kill_master()
        spark_cluster.kill_worker(1)
        spark_cluster.start_master()
        spark_cluster.start_workers(1)
        assert process.wait(600) == 75
        assert "none for 120 s" in aggregator.log.read_text()
        on.start()
    on.eventually("all is processed", lambda: lag(bootstrap_servers) == 0)
    on.stop()
    expect_exact(bootstrap_servers, orders.produced)


def _busy(cluster: EmbeddedSpark) -> int:
    return sum(worker.cores_used for worker in cluster.workers() if worker.alive)


def _running(on: OnCluster) -> bool:
    status = read_status(on.status_file)
    return status is not None and status.state is AggregatorState.RUNNING


def _all_since(on: OnCluster, at: float) -> bool:
    """Whether every task has committed a second after ``at``."""
    tasks = on.status().tasks
    return tasks.keys() == TASKS and all(
        datetime.fromisoformat(placed.at).timestamp() > at + 1 for placed in tasks.values()
    )
