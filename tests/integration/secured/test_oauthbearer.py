"""Tokens instead of passwords: by OpenID Connect, and by a callback as Airflow's provider takes it."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from types import ModuleType

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from pyspark.sql import SparkSession
from streamplan.errors import BrokersUnavailable
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.client_properties import librdkafka_properties
from streamplan.kafka.cluster import KafkaCluster
from streamplan.local.security import SUPER_USER
from streamplan.spark.sources import read_batch

from tests.support.secured_brokers import SecuredBrokers
from tests.support.token_issuer import CLIENT, SECRET

RECORDS = 7


@pytest.fixture(scope="module")
def topic(secured_brokers: SecuredBrokers) -> str:
    """A topic with records."""
    name = f"topic-{uuid.uuid4().hex[:8]}"
    admin = secured_brokers.admin()
    admin.create_topics([NewTopic(name, 1, 2)])[name].result(120)
    secured_brokers.await_topics(name)
    producer = Producer(secured_brokers.super_user.client_configs())
    for number in range(RECORDS):
        producer.produce(name, b"%d" % number)
    assert producer.flush(120) == 0
    return name


@pytest.fixture
def oidc(secured_brokers: SecuredBrokers) -> Iterator[Brokers]:
    with secured_brokers.issuer.endpoint(SUPER_USER) as address:
        yield Brokers(
            secured_brokers.super_user.servers,
            {
                "security.protocol": "SASL_SSL",
                "ssl.ca.location": str(secured_brokers.security.authority_file),
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": CLIENT,
                "sasl.oauthbearer.client.secret": SECRET,
                "sasl.oauthbearer.scope": "kafka",
                "sasl.oauthbearer.token.endpoint.url": address,
            },
        )


def test_openid_connect_lets_in_librdkafka_and_spark(oidc: Brokers, topic: str, spark: SparkSession) -> None:
    assert KafkaCluster(oidc).offsets(topic)[0].last_stable == RECORDS
    assert read_batch(spark, oidc, topic, {0: RECORDS}).count() == RECORDS
    jvm = {name.removeprefix("kafka."): value for name, value in oidc.spark_options().items()}
    del jvm["bootstrap.servers"]
    assert librdkafka_properties(jvm) == oidc.properties


def test_a_wrong_client_secret_is_told(oidc: Brokers) -> None:
    wrong = Brokers(oidc.servers, {**oidc.properties, "sasl.oauthbearer.client.secret": "s3cret-and-wrong"})
    with pytest.raises(BrokersUnavailable, match=r"token|Authentication|OAUTHBEARER") as refused:
        KafkaCluster(wrong, deadline_seconds=5).names()
    assert "s3cret" not in str(refused.value)


def test_a_token_callback_lets_in_every_client(
    secured_brokers: SecuredBrokers, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def token(config: str) -> tuple[str, float]:
        asked.append(config)
        return secured_brokers.issuer.token(SUPER_USER)

    module = ModuleType("of_a_user")
    module.token = token  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    brokers = Brokers(
        secured_brokers.super_user.servers,
        {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(secured_brokers.security.authority_file),
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.config": "an argument",
            "oauth_cb": "of_a_user.token",
        },
    )
    cluster = KafkaCluster(brokers)
    assert cluster.offsets(topic)[0].last_stable == RECORDS
    assert sum(len(batch.offsets) for batch in cluster.read(topic, {0: (0, RECORDS)})) == RECORDS
    producer = brokers.producer(transactional_id=f"id-{uuid.uuid4().hex[:8]}")
    producer.init_transactions(120)
    assert asked
    assert set(asked) == {"an argument"}
