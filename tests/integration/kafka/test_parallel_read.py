"""Reading in shares: in processes beside this one, and by Spark."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from streamplan.checks import copartitioning, totals
from streamplan.checks.framework.application import application_of
from streamplan.checks.framework.check import run_check
from streamplan.errors import CouldNotLook
from streamplan.kafka import parallel_read as shares
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka_port import RecordBatch, RecordsGone
from streamplan.reports.observations import RecordedObservations
from streamplan.settings import PROJECT
from streamplan.spark.distributed_cluster import DistributedCluster

from tests.support.brokers import NewTopicFactory
from tests.support.soak import soak
from tests.support.transactional_application import TransactionalApplication

RECORDS = 30_000


@pytest.fixture
def topic(bootstrap_servers: str, new_topic: NewTopicFactory) -> str:
    """Keys 0 to 6, most of them in one partition."""
    name = new_topic("shared")
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for n in range(RECORDS):
        producer.produce(name, b"%d" % n, b"%d" % (n % 7), partition=int(n % 10 == 0))
        producer.poll(0)
    assert producer.flush(120) == 0
    return name


def count_keys(prefix: bytes, batches: Iterator[RecordBatch]) -> tuple[Counter[bytes], list[tuple[int, int]]]:
    counts: Counter[bytes] = Counter()
    seen = []
    for batch in batches:
        counts.update(prefix + key for key in batch.keys if key is not None)
        seen += [(batch.partition, offset) for offset in batch.offsets]
    return counts, seen


def expected(ranges: Mapping[int, tuple[int, int]]) -> tuple[Counter[bytes], list[tuple[int, int]]]:
    numbers = {0: [n for n in range(RECORDS) if n % 10], 1: [n for n in range(RECORDS) if n % 10 == 0]}
    counts = Counter(
        b"key-%d" % (n % 7) for partition, (first, last) in ranges.items() for n in numbers[partition][first:last]
    )
    return counts, [(partition, offset) for partition, (first, last) in ranges.items() for offset in range(first, last)]


def folded(cluster: KafkaCluster, topic: str, ranges: Mapping[int, tuple[int, int]]) -> int:
    """The number of shares, which together have every record once."""
    results = list(cluster.map_batches(topic, ranges, partial(count_keys, b"key-")))
    counts, seen = expected(ranges)
    assert sum((found for found, _ in results), Counter[bytes]()) == counts
    assert sorted(at for _, those in results for at in those) == seen
    return len(results)


RANGES = [{0: (0, 27_000), 1: (0, 3_000)}, {0: (100, 26_999), 1: (5, 5)}, {1: (0, 1)}]


@pytest.mark.parametrize("ranges", RANGES)
def test_processes(
    bootstrap_servers: str, topic: str, ranges: dict[int, tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "processes_for", lambda ranges: 3)
    assert folded(KafkaCluster(Brokers(bootstrap_servers)), topic, ranges) == 3


@pytest.mark.parametrize("ranges", RANGES)
def test_spark(
    bootstrap_servers: str,
    topic: str,
    ranges: dict[int, tuple[int, int]],
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("streamplan.spark.distributed_cluster.OFFSETS_PER_TASK", 10_000)
    assert folded(DistributedCluster(spark, Brokers(bootstrap_servers)), topic, ranges) >= 1


def test_what_goes_wrong_in_a_share_is_raised_and_no_process_is_left(
    bootstrap_servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "processes_for", lambda ranges: 2)
    started = []
    popen = shares.subprocess.Popen
    monkeypatch.setattr(
        shares.subprocess, "Popen", lambda *args, **more: started.append(popen(*args, **more)) or started[-1]
    )
    at = TopicPartition(topic, 1, 2_000)
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.delete_records([at])[at].result(120)
    with pytest.raises(RecordsGone, match=f"{topic}-1"):
        list(
            KafkaCluster(Brokers(bootstrap_servers)).map_batches(
                topic, {0: (0, 3000), 1: (0, 3000)}, partial(count_keys, b"")
            )
        )
    with pytest.raises(ZeroDivisionError):
        next(KafkaCluster(Brokers(bootstrap_servers)).map_batches(topic, {0: (0, 27_000)}, divide_by_zero))
    assert len(started) == 2
    assert all(process.poll() is not None for process in started)


def divide_by_zero(batches: Iterator[RecordBatch]) -> int:
    return 1 // 0


@pytest.mark.parametrize("count", [1, 2, 3, 7, 100])
def test_shares_are_of_equal_size_and_have_everything_once(count: int) -> None:
    ranges = {0: (10, 1000), 1: (0, 0), 2: (5, 7), 3: (0, 400)}
    divided = shares.divide(ranges, count)
    assert len(divided) == count
    sizes = [sum(last - first for first, last in share.values()) for share in divided]
    assert max(sizes) - min(sizes) <= count
    seen = sorted(
        (p, offset) for share in divided for p, (first, last) in share.items() for offset in range(first, last)
    )
    assert seen == [(p, offset) for p, (first, last) in ranges.items() for offset in range(first, last)]


def test_checks_read_by_spark_say_the_same(bootstrap_servers: str, spark: SparkSession) -> None:
    """Healthy, then with a record under the wrong product and one in the wrong partition."""
    application = TransactionalApplication(bootstrap_servers)
    application.create_topics()
    application.order_many(0, 19)
    application.drain()
    subject = application_of(application.pipeline)

    def seen(cluster: KafkaCluster) -> dict[str, list[tuple[str, int | str, int | str]]]:
        found = {check.name: run_check(subject, check, cluster) for check in (copartitioning.CHECK, totals.CHECK)}
        return {
            name: [(row.subject, row.expected, row.observed) for row in result.observations]
            for name, result in found.items()
        }

    clusters = (KafkaCluster(Brokers(bootstrap_servers)), DistributedCluster(spark, Brokers(bootstrap_servers)))
    try:
        here, there = map(seen, clusters)
        assert here == there
        assert all(expected == observed for rows in here.values() for _, expected, observed in rows)
        application.produce(application.repartition, b"0", b"", partition=1)
        here, there = map(seen, clusters)
        assert here == there
        assert all(any(expected != observed for _, expected, observed in rows) for rows in here.values())
    finally:
        application.close()


@pytest.mark.parametrize("check", ["totals", *soak(["copartitioning"])])
def test_the_job_says_why_it_could_not_look(
    bootstrap_servers: str, tmp_path: Path, spark_environment: Mapping[str, str], check: str
) -> None:
    """The declared orders pipeline has no topics on these brokers."""
    output = tmp_path / "rows.json"
    arguments = ["--pipeline", "orders", "--check", check, "--reports", str(tmp_path), "--output", str(output)]
    job = [sys.executable, str(PROJECT / "jobs" / "check.py"), "--bootstrap-servers", bootstrap_servers, *arguments]
    ended = subprocess.run(job, env=dict(spark_environment), capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    with pytest.raises(CouldNotLook, match=r"topic .*observed missing"):
        RecordedObservations.read(output).observe()
