"""The aggregator's processes are killed in the middle, as often as it takes, and the totals are exact afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.topics import apply_topics
from streamplan.pipelines import pipeline_named
from streamplan.pipelines.orders import order
from streamplan.spark.submit import LOCAL_MASTER, spark_submit_configs

from tests.integration.spark.test_aggregator import read_committed

PROJECT = Path(__file__).resolve().parents[3]
ORDERS = pipeline_named("orders")
REPARTITION = ORDERS.topology.decorate("orders-products-quantities-repartition")
CHANGELOG = ORDERS.topology.changelog_topic("orders-products-quantities")
KILLS = 2


class Aggregator:
    """``jobs/aggregator.py`` under spark-submit, in a process group of its own."""

    def __init__(
        self,
        bootstrap_servers: str,
        home: Path,
        environment: Mapping[str, str],
        jars: Path,
        *,
        pipeline: str = "orders",
    ) -> None:
        self.log = home / "aggregator.log"
        self.argv = [
            str(Path(sys.executable).with_name("spark-submit")),
            *(
                "--master",
                LOCAL_MASTER,
                "--driver-memory",
                "1g",
                "--conf",
                "spark.ui.enabled=false",
            ),
            *(part for config in spark_submit_configs(LOCAL_MASTER).items() for part in ("--conf", "=".join(config))),
            *("--jars", ",".join(map(str, sorted(jars.glob("*.jar"))))),
            str(PROJECT / "jobs" / "aggregator.py"),
            *("--pipeline", pipeline, "--bootstrap-servers", bootstrap_servers),
            *("--checkpoints", str(home / "checkpoints")),
        ]
        self.environment = environment
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.argv, *more],
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self.process

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(30)


@pytest.fixture
def aggregator(
    bootstrap_servers: str, tmp_path: Path, spark_environment: Mapping[str, str], spark_jars: Path
) -> Iterator[Aggregator]:
    apply_topics(bootstrap_servers, ORDERS)
    made = Aggregator(bootstrap_servers, tmp_path, spark_environment, spark_jars)
    yield made
    made.kill()
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for future in admin.delete_topics([spec.name for spec in ORDERS.topics()]).values():
        future.exception(10)
    for future in admin.delete_consumer_groups([ORDERS.topology.application_id]).values():
        future.exception(10)


def await_condition(what: str, condition: Callable[[], bool], log: Path, seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"{what}: not within {seconds:g} s; the log ends:\n{log.read_text()[-3000:]}")
        time.sleep(0.05)


def test_totals_are_exact_after_kills_in_the_middle(aggregator: Aggregator, bootstrap_servers: str) -> None:
    stop = threading.Event()
    produced = 0

    def produce() -> None:
        nonlocal produced
        producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "partitioner": "murmur2_random", "enable.idempotence": True}
        )
        while not stop.wait(0.01):
            producer.poll(0)
            for _ in range(10):
                key, value = order(produced)
                producer.produce("orders", key=key, value=value)
                produced += 1
        producer.flush(30)

    cluster = KafkaCluster(bootstrap_servers)

    def counted() -> int:
        return sum(cluster.positions(ORDERS.topology.application_id, REPARTITION).values())

    orders = threading.Thread(target=produce)
    orders.start()
    try:
        for kill in range(KILLS):
            before = counted()
            aggregator.start("--max-offsets", "2000", "--trigger-interval-ms", "0")
            # Micro-batches follow each other without a pause: the kill lands wherever it lands in them.
            await_condition("progress", lambda before=before: counted() > before, aggregator.log)  # type: ignore[misc]
            time.sleep(0.37 * (kill + 1))
            aggregator.kill()
    finally:
        stop.set()
        orders.join(30)

    drained = aggregator.start("--available-now")
    assert drained.wait(120) == 0, aggregator.log.read_text()[-3000:]

    source = read_committed(bootstrap_servers, "orders")
    assert len(source) == produced
    expected = Counter(b"%d" % json.loads(message.value())["ProductType"] for message in source)
    repartitioned = read_committed(bootstrap_servers, REPARTITION)
    assert Counter(m.value() for m in repartitioned) == Counter(m.value() for m in source)  # each once
    values: dict[bytes, list[int]] = {}
    for message in read_committed(bootstrap_servers, CHANGELOG):
        values.setdefault(message.key(), []).append(int.from_bytes(message.value(), "big"))
    assert {key: counts[-1] for key, counts in values.items()} == expected
    assert all(counts == sorted(set(counts)) for counts in values.values())  # no count went back or stood still
