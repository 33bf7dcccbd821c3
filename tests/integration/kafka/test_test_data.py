"""The producer on real brokers: numbers 0 to N-1, each exactly once, whatever happens to its process."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping

import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from streamplan.errors import Refused, StreamplanError
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.test_data import next_number, produce
from streamplan.model.pipeline import Pipeline, TestData
from streamplan.model.topology import Topology
from streamplan.serdes.avro import Avro
from streamplan.settings import PROJECT

from tests.support.orders_pipeline import pipeline_of
from tests.support.records import read_committed
from tests.support.schema_registry_server import SchemaRegistryServer
from tests.support.soak import soak


def write(pipeline: Pipeline, bootstrap_servers: str, **extent: int) -> None:
    produce(pipeline, Brokers(bootstrap_servers), stop=threading.Event(), progress=lambda number, until: None, **extent)


def numbers(messages: list[Message]) -> list[int]:
    return sorted(int(message.key().removeprefix(b"order_")) for message in messages)


def test_numbers_go_on_where_the_topic_ends(bootstrap_servers: str, new_topic: Callable[..., str]) -> None:
    pipeline = pipeline_of(new_topic("orders"))
    topic = pipeline.test_data.topics[0]
    assert next_number(pipeline, Brokers(bootstrap_servers)) == 0
    write(pipeline, bootstrap_servers, records=19)
    write(pipeline, bootstrap_servers, records=6)
    write(pipeline, bootstrap_servers, until=25)  # reached already
    write(pipeline, bootstrap_servers, until=30)
    found = read_committed(bootstrap_servers, topic)
    assert numbers(found) == list(range(30))
    # Where the JVM's default partitioner puts them; 4 known ones of the 30.
    assert {m.key(): m.partition() for m in found}.items() >= {
        (b"order_0", _PLACES["order_0"]),
        (b"order_1", _PLACES["order_1"]),
        (b"order_17", _PLACES["order_17"]),
        (b"order_18", _PLACES["order_18"]),
    }


def test_records_of_others_in_the_tail_do_not_disturb(bootstrap_servers: str, new_topic: Callable[..., str]) -> None:
    pipeline = pipeline_of(new_topic("orders"))
    topic = pipeline.test_data.topics[0]
    write(pipeline, bootstrap_servers, records=10)
    stranger = Producer({"bootstrap.servers": bootstrap_servers})
    for n in range(3000):
        stranger.produce(topic, key=f"order_x{n}" if n % 2 else None, value="not json", partition=n % 2)
    assert stranger.flush(120) == 0
    write(pipeline, bootstrap_servers, records=5)
    ours = [m for m in read_committed(bootstrap_servers, topic) if m.value() != b"not json"]
    assert numbers(ours) == list(range(15))


_KILLED = """
import sys, threading
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.test_data import produce
from tests.support.orders_pipeline import pipeline_of
produce(pipeline_of(sys.argv[1]), Brokers(sys.argv[2]), until=int(sys.argv[3]), rate=20_000, stop=threading.Event(),
        progress=lambda number, until: print(number, flush=True))
"""


def test_each_number_once_after_kills_at_any_moment(
    bootstrap_servers: str, new_topic: Callable[..., str], spark_environment: Mapping[str, str]
) -> None:
    topic = new_topic("orders")
    chosen = random.Random(5)
    environment = {**spark_environment, "PYTHONPATH": f"{PROJECT / 'plugins'}:{PROJECT}"}
    argv = [sys.executable, "-c", _KILLED, topic, bootstrap_servers, "120000"]
    for _ in range(5):
        with subprocess.Popen(argv, env=environment, cwd=PROJECT, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()  # open: its first transaction begins
            time.sleep(chosen.uniform(0.0, 0.4))
            process.kill()
        assert process.returncode == -signal.SIGKILL, "it was done before it could be killed"
    subprocess.run(argv, env=environment, cwd=PROJECT, check=True, timeout=600, stdout=subprocess.DEVNULL)
    assert numbers(read_committed(bootstrap_servers, topic)) == list(range(120_000))


_JOB = """
import sys
from streamplan.jobs import producer
from tests.support.orders_pipeline import pipeline_of
producer.pipeline_named = lambda topic: pipeline_of(topic)
sys.exit(producer.main())
"""


def job(topic: str, bootstrap_servers: str, *words: str) -> subprocess.Popen[str]:
    """``jobs/producer.py`` itself, on a topic of its own."""
    argv = [sys.executable, "-c", _JOB, "--pipeline", topic, "--bootstrap-servers", bootstrap_servers, *words]
    environment = {**os.environ, "PYTHONPATH": f"{PROJECT / 'plugins'}:{PROJECT}"}
    return subprocess.Popen(
        argv, env=environment, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("rate", [[], *soak([["--rate", "2000"]])], ids=["unlimited", "paced"])
def test_an_endless_job_that_is_stopped_ends_well(
    rate: list[str], bootstrap_servers: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic("orders")
    with job(topic, bootstrap_servers, "--endless", *rate) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()  # progress: something is committed
            process.terminate()
            out, err = process.communicate(timeout=600)
        finally:
            process.kill()
    assert (process.returncode, err) == (0, "")
    found = read_committed(bootstrap_servers, topic)
    assert numbers(found) == list(range(len(found)))
    in_partition = [sum(message.partition() == number for message in found) for number in (0, 1)]
    summary = out.splitlines()[-1]
    assert summary.startswith(f"done: {len(found):,} records, numbers 0 to {len(found):,} (not included)")
    assert summary.endswith(f"by partition: {in_partition[0]:,} in 0, {in_partition[1]:,} in 1")


def test_a_second_producer_fences_the_first(bootstrap_servers: str, new_topic: Callable[..., str]) -> None:
    pipeline = pipeline_of(new_topic("orders"))
    caught: list[BaseException] = []
    started = threading.Event()
    stop = threading.Event()

    def progress(number: int, until: int | None) -> None:
        if number:
            started.set()

    def endless() -> None:
        try:
            produce(pipeline, Brokers(bootstrap_servers), rate=500, stop=stop, progress=progress)
        except StreamplanError as error:
            caught.append(error)

    first = threading.Thread(target=endless)
    first.start()
    try:
        assert started.wait(600)
        write(pipeline, bootstrap_servers, records=5)
        first.join(300)
    finally:
        stop.set()
        first.join(300)
    (error,) = caught
    assert isinstance(error, Refused), repr(error)
    assert "was fenced" in str(caught[0])
    found = numbers(read_committed(bootstrap_servers, pipeline.test_data.topics[0]))
    assert found == list(range(len(found)))


def test_a_missing_topic_is_named(bootstrap_servers: str) -> None:
    with pytest.raises(Refused, match=r"topic nowhere: expected to exist at .*orders_deploy creates it"):
        write(pipeline_of("nowhere"), bootstrap_servers, records=1)


@pytest.mark.soak
def test_brokers_away_are_named_with_the_time_tried(spark_environment: Mapping[str, str]) -> None:
    argv = [sys.executable, str(PROJECT / "jobs" / "producer.py"), "--pipeline", "orders"]
    argv += ["--bootstrap-servers", "127.0.0.1:9", "--records", "1"]
    done = subprocess.run(argv, env=dict(spark_environment), capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 75
    assert re.search(r"Kafka at 127\.0\.0\.1:9, .*within \d+ s", done.stderr)


# Computed by org.apache.kafka.common.utils.Utils.murmur2 of kafka-clients 4.3.1 over 2 partitions.
_PLACES = {"order_0": 0, "order_1": 0, "order_17": 0, "order_18": 1}


CLICK = (
    '{"type": "record", "name": "Click", "fields": [{"name": "id", "type": "string"}, {"name": "n", "type": "long"}]}'
)


def test_fields_are_written_with_the_schema_that_the_producer_registers(
    bootstrap_servers: str, new_topic: Callable[..., str], registry_server: SchemaRegistryServer
) -> None:
    """Confluent's own deserializer reads them."""
    topic = new_topic("clicks")
    topology = Topology(f"app-{topic}")
    topology.stream(topic, value=Avro(CLICK)).group_by_key().count()
    data = TestData((topic,), lambda n: (topic, b"k%d" % n, {"id": f"click_{n}", "n": n * n}), number="id")
    pipeline = Pipeline(topic, topology, "", {topic: 2}, test_data=data)
    with pytest.raises(Refused, match="the Schema Registry: expected its address"):
        write(pipeline, bootstrap_servers, records=1)
    brokers = Brokers(bootstrap_servers, {}, registry_server.properties)
    for records in (19, 6):
        produce(pipeline, brokers, records=records, stop=threading.Event(), progress=lambda number, until: None)
    assert next_number(pipeline, brokers) == 25
    read = AvroDeserializer(registry_server.client())
    context = SerializationContext(topic, MessageField.VALUE)
    found = {message.key(): read(message.value(), context) for message in read_committed(bootstrap_servers, topic)}
    assert found == {b"k%d" % n: {"id": f"click_{n}", "n": n * n} for n in range(25)}
    assert registry_server.subjects == {f"{topic}-value": [1]}
