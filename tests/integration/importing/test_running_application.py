"""A real Kafka Streams application at work is imported with its brokers: they tell fields, counts and windows."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from streamplan.cli import main
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster

from tests.support.brokers import NewTopicFactory
from tests.support.streams_library import Library, java_with_callbacks, started
from tests.support.waiting import eventually

ORDERS = 200
KEYS = 20


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    with java_with_callbacks() as jvm:
        yield jvm


def declare(library: Library, orders: str) -> Any:
    """Counts, counts of a minute, and counts of a session in a sub-topology of their own."""
    kstream, minute = library.jvm.org.apache.kafka.streams.kstream, library.jvm.java.time.Duration.ofMinutes(1)
    stream = library.stream(orders)
    grouped = stream.groupByKey()
    grouped.count(library.stored("totals"))
    grouped.windowedBy(kstream.TimeWindows.ofSizeWithNoGrace(minute)).count(library.stored("by-minute"))
    sessions = kstream.SessionWindows.ofInactivityGapWithNoGrace(minute)
    repartitioned = library.option("Repartitioned", "with", library.bytes, library.bytes).withName("again")
    stream.repartition(repartitioned).groupByKey().windowedBy(sessions).count(library.stored("by-session"))
    return library.builder.build()


@pytest.mark.soak
def test_brokers_tell_what_the_description_does_not(
    jvm: Any,
    bootstrap_servers: str,
    new_topic: NewTopicFactory,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    orders = new_topic("orders", partitions=3)
    library = Library(jvm, f"imported-{uuid.uuid4().hex[:8]}")
    built = declare(library, orders)
    description = str(built.describe().toString())
    (tmp_path / "topology.txt").write_text(description)
    monkeypatch.chdir(tmp_path)
    producer = Producer({"bootstrap.servers": bootstrap_servers, "partitioner": "murmur2_random"})
    now = int(time.time() * 1000)
    for n in range(ORDERS):
        either = (b"1", b'"one"')[n % 2]
        value = b'{"id": "order_%d", "amount": %d, "weight": %d.5, "paid": true, "lines": [1], "either": %b}'
        value %= (n, n, n, either)
        producer.produce(orders, value, b"customer-%d" % (n % KEYS), timestamp=now)
    assert producer.flush(120) == 0
    with started(library, built, bootstrap_servers, tmp_path / "state"):
        cluster = KafkaCluster(Brokers(bootstrap_servers))
        changelogs = [f"{library.application_id}-{store}-changelog" for store in ("totals", "by-minute", "by-session")]

        def written(changelog: str) -> int:
            ranges = {number: (at.log_start, at.last_stable) for number, at in cluster.offsets(changelog).items()}
            return len({key for batch in cluster.read(changelog, ranges) for key in batch.keys})

        eventually(lambda: all(written(changelog) >= KEYS for changelog in changelogs), "each key is in each changelog")
        arguments = ["--application-id", library.application_id, "--topology", "topology.txt", "--output", "app.py"]
        assert main(["import", *arguments, "--bootstrap-servers", bootstrap_servers]) == 0
    text = (tmp_path / "app.py").read_text()
    assert f"# {orders} has 3 partitions.\n" in text
    assert 'value=Json("id string, amount bigint, weight double, paid boolean, lines array<bigint>")' in text
    assert 'grouped.count(store="totals")\n' in text
    assert text.count("# It looks like a count") == 3
    assert 'TimeWindows("TODO: the size of the windows of KSTREAM-AGGREGATE-0000000002' in text
    assert 'SessionWindows("TODO: the inactivity gap of the sessions of KSTREAM-AGGREGATE-' in text
    said = capsys.readouterr().out
    assert "byte for byte" in said
    assert f"fields of {orders}: left out either (bigint and string)" in said
