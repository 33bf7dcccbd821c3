"""Two real brokers for a whole test session, on random ports, in a temporary directory."""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark import SparkContext
from pyspark.sql import SparkSession
from streamplan import processes
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.topics import apply_topics
from streamplan.local.brokers import LocalKafka
from streamplan.local.jars import SPARK, require
from streamplan.local.ports import Ports
from streamplan.settings import Settings
from streamplan.spark.session import generate_code, open_session
from streamplan.spark.submit import LOCAL_MASTER, SHORT_RUN_OPTIONS, spark_submit_configs, submit_environment

from tests.support.aggregator_process import ORDERS, Aggregator
from tests.support.brokers import NewTopicFactory, await_coordinator, await_topics, local_kafka
from tests.support.schema_registry_server import SchemaRegistryServer, schema_registry
from tests.support.secured_brokers import SecuredBrokers
from tests.support.spark_cluster import DEFAULT_PORTS, EmbeddedSpark
from tests.support.token_issuer import TokenIssuer
from tests.support.waiting import DEADLINE_SECONDS
from tests.support.wheel import CLONE, Environment, build_wheel, requirements

os.environ.setdefault("JDK_JAVA_OPTIONS", " ".join(SHORT_RUN_OPTIONS))  # of brokers and Spark


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """The session's brokers. A test that stops one starts it again."""
    home = tmp_path_factory.mktemp("kafka")
    brokers = local_kafka(home)
    try:
        brokers.up(deadline_seconds=DEADLINE_SECONDS)
        await_coordinator(brokers.bootstrap_servers)
        yield brokers
    finally:
        brokers.down()
    assert processes.registered(home / "run") == []


@pytest.fixture(scope="session")
def secured_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBrokers]:
    """Brokers with SASL_SSL (SCRAM and tokens), mutual TLS and an authorizer. Only tests in ``secured/`` use them."""
    home = tmp_path_factory.mktemp("secured kafka")
    issuer = TokenIssuer(tmp_path_factory.mktemp("issuer"))  # Kafka takes no file URL with a space
    environment = {**os.environ, **issuer.java_options()}
    brokers = local_kafka(home, secure=True, properties=issuer.server_properties(), environment=environment)
    try:
        brokers.up(deadline_seconds=DEADLINE_SECONDS)
        await_coordinator(brokers.bootstrap_servers, brokers.brokers.properties)
        yield SecuredBrokers(brokers, issuer)
    finally:
        brokers.down()
    assert processes.registered(home / "run") == []


@pytest.fixture(scope="session")
def bootstrap_servers(kafka: LocalKafka) -> str:
    """``host:port,host:port`` of the session's brokers."""
    return kafka.bootstrap_servers


@pytest.fixture(scope="session")
def brokers(kafka: LocalKafka) -> Brokers:
    """The session's brokers as production code takes them."""
    return kafka.brokers


@pytest.fixture
def new_topic(bootstrap_servers: str) -> Iterator[NewTopicFactory]:
    """Creates a topic of a name never used before (``<name>-<random>``) and deletes it after the test."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    created: list[str] = []

    def create(
        name: str = "topic", *, partitions: int = 2, replication: int = 2, configs: Mapping[str, str] | None = None
    ) -> str:
        topic = f"{name}-{uuid.uuid4().hex[:12]}"
        admin.create_topics([NewTopic(topic, partitions, replication, config=dict(configs or {}))])[topic].result(120)
        created.append(topic)
        await_topics(bootstrap_servers, topic)
        return topic

    yield create
    for future in (admin.delete_topics(created) if created else {}).values():
        future.result(120)


@pytest.fixture
def registry_server() -> Iterator[SchemaRegistryServer]:
    """The tests' Schema Registry, without a schema."""
    with schema_registry() as running:
        yield running


@pytest.fixture(scope="session")
def spark_jars() -> Path:
    """The directory of Spark's Kafka connector."""
    return require(SPARK, os.environ)


@pytest.fixture(scope="session")
def spark_environment() -> Mapping[str, str]:
    """The environment of a spark-submit: our Python, our package, loopback."""
    return submit_environment(os.environ, local=True)


@pytest.fixture(scope="session")
def spark(spark_jars: Path, spark_environment: Mapping[str, str]) -> Iterator[SparkSession]:
    """One Spark in this process for all tests of queries."""
    os.environ.update(spark_environment)
    configs = {
        **spark_submit_configs(LOCAL_MASTER),
        "spark.ui.enabled": "false",
        "spark.driver.memory": "2g",  # a thousand tests share it
        "spark.python.unix.domain.socket.enabled": "true",  # as the TopologyTestDriver has it
        # For few records. A query that an aggregator starts sets its own number of partitions, and is not adaptive.
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.adaptive.enabled": "false",
        "spark.jars": ",".join(map(str, sorted(spark_jars.glob("*.jar")))),
    }
    SparkSession.builder.master(LOCAL_MASTER).config(map=dict(configs)).getOrCreate()
    session = open_session("tests")
    generate_code(session, whether=False)
    yield session
    session.stop()
    # The gateway's JVM would outlive its session until this process ends.
    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(600)
        SparkContext._gateway = SparkContext._jvm = None


@pytest.fixture
def aggregator(
    bootstrap_servers: str, tmp_path: Path, spark_environment: Mapping[str, str], spark_jars: Path
) -> Iterator[Aggregator]:
    apply_topics(Brokers(bootstrap_servers), ORDERS)
    made = Aggregator(bootstrap_servers, tmp_path, spark_environment, spark_jars)
    yield made
    made.kill()
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for future in admin.delete_topics([spec.name for spec in ORDERS.topics()]).values():
        future.exception(120)
    for future in admin.delete_consumer_groups([ORDERS.topology.application_id]).values():
        future.exception(120)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this clone."""
    return build_wheel(CLONE, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def wheel_environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The wheel and what it requires, without any extra: neither Spark nor Airflow."""
    environment = Environment.make(tmp_path_factory.mktemp("an environment") / "venv")
    environment.add_distributions(requirement.name for requirement in requirements())
    environment.install(str(wheel))
    return environment


@pytest.fixture
def spark_cluster(tmp_path: Path, spark_environment: Mapping[str, str]) -> Iterator[EmbeddedSpark]:
    """A master without workers."""
    base = random.randrange(15_000, 30_000, 10)
    ports = {name: base + offset for offset, name in enumerate(DEFAULT_PORTS)}
    settings = Settings.from_environment({"STREAMPLAN_HOME": str(tmp_path / "spark")})
    spark = EmbeddedSpark(settings, Ports(settings.home / "stack.json", ports), memory="512m")
    try:
        spark.start_master()
        yield spark
    finally:
        spark.down()
    assert not spark.running()
