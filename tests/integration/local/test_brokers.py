"""The brokers of one machine: started, killed and started again."""

from __future__ import annotations

import os
import socket
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from streamplan import processes
from streamplan.errors import StreamplanError
from streamplan.local import brokers
from streamplan.local.brokers import NODES, LocalKafka
from streamplan.local.jars import BROKERS, directory_of, fetch, require
from streamplan.local.ports import LOOPBACK, Ports, is_free
from streamplan.settings import PROJECT

from tests.support.brokers import local_kafka
from tests.support.processes import kill, listening
from tests.support.waiting import DEADLINE_SECONDS


@pytest.fixture(scope="module")
def own_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """Brokers to break, in a directory with a space in its name."""
    made = local_kafka(tmp_path_factory.mktemp("a home") / "of kafka")
    try:
        made.up(deadline_seconds=DEADLINE_SECONDS)
        yield made
    finally:
        made.down()


def pids(kafka: LocalKafka) -> dict[int, int]:
    return {node: ref.pid for node in NODES if (ref := kafka.process(node)) is not None}


def write(kafka: LocalKafka, topic: str, value: bytes) -> None:
    faults: list[object] = []
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "acks": "all", "delivery.timeout.ms": 30_000})
    producer.produce(topic, value, on_delivery=lambda fault, _: faults.append(fault))
    assert producer.flush(120) == 0
    assert faults == [None]


def read(kafka: LocalKafka, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": uuid.uuid4().hex})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        return [message.value() for message in consumer.consume(count, timeout=120)]
    finally:
        consumer.close()


def test_two_brokers_serve_on_loopback_alone(own_kafka: LocalKafka) -> None:
    metadata = AdminClient({"bootstrap.servers": own_kafka.bootstrap_servers}).list_topics(timeout=60)
    assert {(node, f"{broker.host}:{broker.port}") for node, broker in metadata.brokers.items()} == {
        (node, own_kafka.address(node)) for node in NODES
    }
    for pid in pids(own_kafka).values():
        assert listening(pid) <= {LOOPBACK, f"::ffff:{LOOPBACK}"}
        assert listening(pid)


def test_a_second_up_starts_nothing(own_kafka: LocalKafka) -> None:
    before = pids(own_kafka)
    own_kafka.up(deadline_seconds=DEADLINE_SECONDS)
    assert pids(own_kafka) == before


def test_up_mends_a_killed_node_and_nothing_is_lost(own_kafka: LocalKafka) -> None:
    topic = f"kept-{uuid.uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": own_kafka.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 2)])[topic].result(120)
    write(own_kafka, topic, b"before")
    before = pids(own_kafka)

    kill(before[2])
    assert own_kafka.process(2) is None
    assert own_kafka.probe(2) is not None
    write(own_kafka, topic, b"with one broker")

    own_kafka.up(deadline_seconds=DEADLINE_SECONDS)
    after = pids(own_kafka)
    assert after[1] == before[1]
    assert after[2] != before[2]
    assert read(own_kafka, topic, 2) == [b"before", b"with one broker"]

    # Down, and up again: the same data at the same addresses.
    addresses = own_kafka.bootstrap_servers
    assert own_kafka.down() == ["kafka-2", "kafka-1"]
    assert own_kafka.down() == []
    assert not any(psutil.pid_exists(pid) for pid in after.values())
    assert own_kafka.up(deadline_seconds=DEADLINE_SECONDS) == addresses
    assert read(own_kafka, topic, 2) == [b"before", b"with one broker"]


def test_a_node_that_cannot_start_is_named_with_its_address_and_log(own_kafka: LocalKafka) -> None:
    own_kafka.stop(2)
    meta = own_kafka.log_file(2).parents[1] / "kafka-2" / "data" / "meta.properties"
    good = meta.read_text()
    meta.write_text(good.replace("node.id=2", "node.id=7"))
    try:
        with pytest.raises(StreamplanError) as caught:
            own_kafka.up(deadline_seconds=DEADLINE_SECONDS)
    finally:
        meta.write_text(good)
    message = str(caught.value)
    assert f"Kafka node 2 at {own_kafka.address(2)}" in message
    assert "its process ended after" in message
    assert str(own_kafka.log_file(2)) in message
    own_kafka.up(deadline_seconds=DEADLINE_SECONDS)


def test_half_formatted_storage_is_formatted_anew_and_a_cluster_id_may_begin_with_a_dash(tmp_path: Path) -> None:
    kafka = local_kafka(tmp_path)
    data = tmp_path / "kafka-2" / "data"
    data.mkdir(parents=True)
    (data / "bootstrap.checkpoint").write_bytes(b"torn")
    (tmp_path / "cluster-id").write_text("-_SGzYBWTf2OuSCpBMdk_w")
    try:
        kafka.up(deadline_seconds=DEADLINE_SECONDS)
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        assert admin.list_topics(timeout=60).cluster_id == "-_SGzYBWTf2OuSCpBMdk_w"
    finally:
        kafka.down()
    assert processes.registered(tmp_path / "run") == []


def test_taken_ports_are_passed_by_said_and_remembered(tmp_path: Path) -> None:
    said: list[str] = []
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        port = taken.getsockname()[1]
        ports = Ports(tmp_path / "stack.json", {"server": port, "other": port + 100})
        chosen = ports.choose("server", said.append)
        assert chosen not in (port, port + 100)
        assert is_free(chosen)
        assert said == [f"Port {port} is taken: server listens on {chosen}."]
    assert Ports(tmp_path / "stack.json", {"server": port})["server"] == chosen


def test_missing_jars_are_named_with_the_way_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(StreamplanError, match=r"Jars brokers 4\.3\.1: expected in .*no such directory.*local\.jars"):
        require(BROKERS, {"STREAMPLAN_CACHE": str(tmp_path)})


def test_a_failed_fetch_leaves_nothing_that_looks_complete(tmp_path: Path) -> None:
    environment = {**os.environ, "STREAMPLAN_CACHE": str(tmp_path), "STREAMPLAN_MAVEN": (tmp_path / "none").as_uri()}
    java_home = brokers.require_java(os.environ)
    with pytest.raises(StreamplanError, match=r"Jars brokers 4\.3\.1: .*fetch\.log") as caught:
        fetch(BROKERS, environment, java_home=java_home, log_file=tmp_path / "fetch.log")
    assert "STREAMPLAN_MAVEN" in str(caught.value)
    assert not directory_of(BROKERS, environment).exists()


@pytest.mark.soak
@pytest.mark.parametrize("node", NODES)
def test_the_health_check_of_docker_compose_passes_for_a_broker_and_not_for_one_that_is_down(
    own_kafka: LocalKafka, node: int
) -> None:
    compose = yaml.safe_load((PROJECT / "docker-compose.yml").read_text())
    program, *arguments, script, _ = compose["services"][f"kafka-{node}"]["healthcheck"]["test"][1:]
    host, port = own_kafka.address(node).split(":")
    check = [program, *arguments, script.replace("$$", "$").replace("/9092", f"/{port}"), host]
    assert subprocess.run(check, timeout=60).returncode == 0
    own_kafka.stop(node)
    try:
        assert subprocess.run(check, timeout=60, stderr=subprocess.DEVNULL).returncode != 0
    finally:
        own_kafka.up(deadline_seconds=DEADLINE_SECONDS)
    assert subprocess.run(check, timeout=60).returncode == 0
