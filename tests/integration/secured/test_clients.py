"""Every kind of client on secured brokers: a whole run of the orders pipeline, and the errors of who gets not in."""

from __future__ import annotations

import pickle
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from streamplan.errors import BrokersUnavailable, StreamplanError
from streamplan.kafka import parallel_read
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.groups import members
from streamplan.kafka.membership import GroupMember
from streamplan.kafka.test_data import produce
from streamplan.kafka.topics import apply_topics
from streamplan.kafka_port import RecordBatch
from streamplan.local.security import LocalSecurity
from streamplan.spark.distributed_cluster import DistributedCluster
from streamplan.spark.sources import read_batch
from streamplan.testing import assert_healthy

from tests.support.draining import drain
from tests.support.orders_pipeline import pipeline_of
from tests.support.records import read_committed
from tests.support.secured_brokers import SecuredBrokers
from tests.support.soak import soak

RECORDS = 19
TOTALS = {b"0": 10, b"1": 9}


def offsets_read(batches: Iterator[RecordBatch]) -> int:
    return sum(len(batch.offsets) for batch in batches)


@pytest.mark.parametrize("login", ["certificate", *soak(["password"])])
def test_the_orders_pipeline_runs_and_all_its_checks_pass(
    secured_brokers: SecuredBrokers, spark: SparkSession, tmp_path: Path, login: str
) -> None:
    brokers = secured_brokers.super_user if login == "password" else secured_brokers.super_user_by_certificate
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    pipeline = pipeline_of(topic)
    apply_topics(brokers, pipeline)
    secured_brokers.await_topics(*(spec.name for spec in pipeline.topics()))
    produced = produce(pipeline, brokers, records=RECORDS, stop=threading.Event(), progress=lambda *_: None)
    assert produced.records == RECORDS
    drain(spark, pipeline, brokers, tmp_path / "checkpoints", 1000)

    servers, properties = secured_brokers.super_user.servers, secured_brokers.super_user.properties
    changelog = read_committed(servers, pipeline.topology.changelog_topic("s"), properties)
    assert {message.key(): int.from_bytes(message.value(), "big") for message in changelog} == TOTALS
    results = assert_healthy(brokers, pipeline)
    assert len(results) >= 7
    assert_healthy(brokers, pipeline.topology.application_id, topology=pipeline.topology.describe())

    # Other processes and Spark's executors connect by themselves.
    ends = {number: offsets.last_stable for number, offsets in KafkaCluster(brokers).offsets(topic).items()}
    ranges = {number: (0, end) for number, end in ends.items()}
    shares = parallel_read.divide(ranges, 2)
    reader = KafkaRead(brokers, topic)
    with parallel_read.running(reader, shares, offsets_read) as started:
        assert sum(share.result() for share in started) == RECORDS
    assert sum(DistributedCluster(spark, brokers).map_batches(topic, ranges, offsets_read)) == RECORDS
    assert read_batch(spark, brokers, topic, ends).count() == RECORDS

    with GroupMember(brokers, pipeline.topology.application_id, [topic], "a-host:1:x") as member:
        member.await_join(lambda line: None)
        assert [found.client_id for found in members(brokers, pipeline.topology.application_id)] == [member.client_id]


class KafkaRead:
    """Reads a share in another process."""

    def __init__(self, brokers: Brokers, topic: str) -> None:
        self.brokers, self.topic = brokers, topic
        assert pickle.loads(pickle.dumps(brokers)) == brokers

    def __call__(self, ranges: parallel_read.Ranges) -> Iterator[RecordBatch]:
        yield from KafkaCluster(self.brokers).read(self.topic, ranges)


def refusal(brokers: Brokers) -> str:
    """What a command says that cannot get in."""
    with pytest.raises(StreamplanError) as error:
        KafkaCluster(brokers, deadline_seconds=3).names()
    assert isinstance(error.value, BrokersUnavailable)
    return str(error.value)


@pytest.fixture(scope="module")
def told(secured_brokers: SecuredBrokers, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What is said to clients with a mistake in their properties. All of them ask at once: each waits some seconds."""
    of_password, of_certificate = secured_brokers.super_user, secured_brokers.super_user_by_certificate
    another = LocalSecurity(tmp_path_factory.mktemp("another"))
    another.make()
    no_certificate = {"security.protocol": "SSL", "ssl.ca.location": str(secured_brokers.security.authority_file)}
    mistaken = {
        "password": {**of_password.properties, "sasl.password": "s3cret-and-wrong"},
        "authority": {**of_password.properties, "ssl.ca.location": str(another.authority_file)},
        "certificate": no_certificate,
        "protocol": {},
    }
    clients = {
        mistake: replace(of_certificate if mistake == "certificate" else of_password, properties=properties)
        for mistake, properties in mistaken.items()
    }
    with ThreadPoolExecutor(len(clients)) as pool:
        return dict(zip(clients, pool.map(refusal, clients.values()), strict=True))


def test_a_wrong_password_is_told_with_what_to_do(told: dict[str, str]) -> None:
    message = told["password"]
    assert "invalid credentials" in message
    assert "Correct sasl.username, sasl.password" in message
    assert "s3cret" not in message


def test_an_untrusted_authority_is_told_with_what_to_do(told: dict[str, str]) -> None:
    message = told["authority"]
    assert "certificate verify failed" in message
    assert "ssl.ca.location" in message


def test_a_missing_certificate_is_told_with_what_to_do(told: dict[str, str]) -> None:
    message = told["certificate"]
    assert "certificate" in message
    assert "own certificate" in message


def test_another_protocol_is_told_with_what_to_do(told: dict[str, str]) -> None:
    assert "Set security.protocol" in told["protocol"]


def test_a_user_without_acls_is_told_so(secured_brokers: SecuredBrokers) -> None:
    pipeline = pipeline_of(f"orders-{uuid.uuid4().hex[:8]}")
    with pytest.raises(StreamplanError, match=r"(?i)authoriz|permit"):
        apply_topics(secured_brokers.scram_user(), pipeline)
