"""The way of a newcomer: the wheel, a secured cluster, a topic that others write, and an Airflow on PostgreSQL.

The steps are those of docs/your-repository.md, docs/your-topics.md and docs/security.md. Programs of the newcomer's own
environment take each of them; this process only plays the owner of the cluster and the person at Airflow's UI.
"""

from __future__ import annotations

import json
import os
import random
import re
import secrets
import signal
import subprocess
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation, NewTopic, ResourcePatternType, ResourceType
from streamplan.kafka.brokers import Brokers
from streamplan.local.airflow import PROCESSES
from streamplan.local.airflow_rest import AirflowRest

from tests.support.airflow_rest import ANSWER_SECONDS
from tests.support.postgresql import postgresql, programs
from tests.support.records import read_committed
from tests.support.secured_brokers import SecuredBrokers
from tests.support.waiting import eventually
from tests.support.wheel import Environment

USER, PASSWORD = "streamplan-of-a-team", "a-password-of-a-team"
SECONDS = 900.0
COUNTRIES = ("de", "fr", "it", "pl")
CHANGELOG = "payments-per-country-totals-changelog"

PAYMENTS = '''"""Counts the payments of each country."""

from streamplan import Json, Pipeline, Topology

topology = Topology("payments-per-country")
(
    topology.stream("payments", value=Json("country string, amount double"))
    .filter("amount > 0")
    .group_by("country", name="by-country")
    .count(store="totals")
)

PIPELINE = Pipeline(
    name="payments",
    topology=topology,
    description="Counts the payments of each country.",
    kafka_conn_id="kafka_payments",
    spark_conn_id="spark_payments",
)
'''


@dataclass
class Airflow:
    """An Airflow that the team has: its processes, with nothing of Streamplan's but the installed package."""

    environment: Environment
    home: Path
    variables: Mapping[str, str]
    port: int

    def command(self, *words: str) -> str:
        return self.environment.run("python", "-m", "airflow", *words, cwd=self.home, **self.variables)

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        log = (self.home / f"{words[0]}.log").open("ab")
        argv = [self.environment.python, "-m", "airflow", *words]
        with log:
            return subprocess.Popen(
                argv,
                cwd=self.home,
                env=self.environment.variables(self.variables),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def rest(self) -> AirflowRest:
        url = f"http://127.0.0.1:{self.port}"
        return AirflowRest(url, "admin", self.variables["PASSWORD_OF_ADMIN"], timeout_seconds=ANSWER_SECONDS)


@pytest.fixture(scope="module")
def team(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Environment, Path]:
    """The team's environment and repository."""
    home = tmp_path_factory.mktemp("a team")
    environment = Environment.make(home / "venv")
    environment.add_all_packages()
    environment.add_scripts_of("pyspark")
    environment.install(str(wheel))
    repository = home / "payments-team"
    environment.run("streamplan", "init", str(repository), cwd=home)
    package = repository / "payments_team"
    (package / "payments.py").write_text(PAYMENTS)
    (package / "__init__.py").write_text('PIPELINES = ("payments_team.payments",)\n')
    dag_file = repository / "dags" / "visits.py"
    (repository / "dags" / "payments.py").write_text(dag_file.read_text().replace("visits", "payments"))
    dag_file.unlink()
    environment.install(str(repository))
    return environment, repository


@pytest.fixture(scope="module")
def user(team: tuple[Environment, Path], secured_brokers: SecuredBrokers) -> Brokers:
    """The team's user, who may do what ``streamplan acls`` lists, and nothing else."""
    environment, repository = team
    made = secured_brokers.scram_user(USER, PASSWORD)
    listed = environment.run("streamplan", "acls", "payments", "--format", "json", cwd=repository)
    for entry in json.loads(listed):
        secured_brokers.allow(
            USER,
            ResourceType[entry["resourceType"].upper().replace("-", "_")],
            entry["name"],
            [AclOperation[re.sub("(?<=[a-z])(?=[A-Z])", "_", entry["operation"]).upper()]],
            ResourcePatternType[entry["patternType"].upper()],
        )
    return made


@dataclass
class Owner:
    """Another team, which owns the topic ``payments`` and writes to it."""

    brokers: Brokers
    counted: Counter[bytes]
    written: int = 0

    def write(self, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.brokers.servers, **self.brokers.properties})
        for n in range(self.written, self.written + count):
            country, amount = COUNTRIES[n * n % 7 % 4], n % 5 - 1.0
            value = {"id": f"payment_{n}", "country": country, "amount": amount, "unknown": {"to": "us"}}
            producer.produce("payments", json.dumps(value).encode(), f"payer_{n % 50}".encode())
            self.counted[country.encode()] += amount > 0
        assert producer.flush(120) == 0
        self.written += count

    def totals(self) -> Counter[bytes]:
        """What the pipeline has counted, as a plain consumer reads its changelog."""
        found = read_committed(self.brokers.servers, CHANGELOG, self.brokers.properties)
        return Counter({message.key(): int.from_bytes(message.value(), "big") for message in found})


@pytest.fixture(scope="module")
def owner(secured_brokers: SecuredBrokers) -> Owner:
    config = {"retention.ms": str(7 * 24 * 3_600_000), "min.insync.replicas": "2"}
    admin = secured_brokers.admin()
    admin.create_topics([NewTopic("payments", 3, 2, config=config)])["payments"].result(120)
    secured_brokers.await_topics("payments")
    owner = Owner(secured_brokers.super_user, Counter())
    owner.write(1_000)
    return owner


@pytest.fixture(scope="module")
def airflow(
    team: tuple[Environment, Path], user: Brokers, spark_jars: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Airflow]:
    directory = programs()
    if directory is None:
        pytest.skip("Debian's package postgresql is not installed")
    environment, repository = team
    home, port = tmp_path_factory.mktemp("their airflow"), random.randrange(15_000, 30_000)
    password = secrets.token_urlsafe(9)
    (home / "passwords.json").write_text(json.dumps({"admin": password}))
    with postgresql(directory) as database:
        key = urlsafe_b64encode(secrets.token_bytes(32)).decode()
        variables = {
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(repository / "dags"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__FERNET_KEY": key,
            "AIRFLOW__CORE__HOSTNAME_CALLABLE": "socket.gethostname",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(home / "passwords.json"),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database,
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(port),
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API__SECRET_KEY": key,
            "AIRFLOW__API_AUTH__JWT_SECRET": key,
            "STREAMPLAN_JARS": str(spark_jars),
            "PASSWORD_OF_ADMIN": password,
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
        }
        airflow = Airflow(environment, home, variables, port)
        airflow.command("db", "migrate")
        extra = json.dumps({"bootstrap.servers": user.servers, **user.properties})
        airflow.command("connections", "add", "kafka_payments", "--conn-type", "kafka", "--conn-extra", extra)
        airflow.command("connections", "add", "spark_payments", "--conn-type", "spark", "--conn-host", "local[2]")
        started = [airflow.start(*words) for words in PROCESSES.values()]
        try:
            yield airflow
        finally:
            for process in started:
                os.killpg(process.pid, signal.SIGTERM)
            for process in started:
                process.wait(300)


def client_properties(brokers: Brokers, path: Path) -> Path:
    """The file that Kafka's own tools take, with librdkafka's names."""
    path.write_text("".join(f"{name}={value}\n" for name, value in brokers.properties.items()))
    path.chmod(0o600)
    return path


@pytest.mark.soak
def test_from_the_wheel_to_verified_totals(
    team: tuple[Environment, Path], user: Brokers, owner: Owner, airflow: Airflow, tmp_path: Path
) -> None:
    environment, repository = team
    assert environment.run("streamplan", "validate", cwd=repository) == "payments: ok\n"
    [line] = environment.run("streamplan", "list", cwd=tmp_path).splitlines()[1:]
    assert line.split()[:3] == ["payments", "payments-per-country", "payments"]

    rest = airflow.rest()
    try:
        rest.wait_for_dag("payments_deploy", deadline_seconds=SECONDS)
        looked = environment.run("streamplan", "doctor", "payments", cwd=repository, **airflow.variables)
        assert f"brokers {user.servers}: 2 brokers answer over SASL_SSL" in " ".join(looked.split()), looked
        assert "0 problems" in looked, looked
        assert rest.import_errors() == {}
        run = rest.trigger("payments_deploy")
        state = rest.wait("payments_deploy", run, deadline_seconds=SECONDS)
        assert state == "success", rest.task_states("payments_deploy", run)
        assert owner.totals() == owner.counted

        owner.write(500)
        eventually(lambda: owner.totals() == owner.counted, "the new payments are counted", SECONDS)
        rest.unpause("payments_health")
        run = rest.trigger("payments_health")
        state = rest.wait("payments_health", run, deadline_seconds=SECONDS)
        assert state == "success", rest.task_states("payments_health", run)

        config = str(client_properties(user, tmp_path / "client.properties"))
        servers = ["--bootstrap-servers", user.servers, "--command-config", config]
        checked = environment.run("streamplan", "check", "payments", *servers, cwd=repository, **airflow.variables)
        assert "failed" not in checked, checked

        [aggregator] = [of for of in rest.runs("payments_aggregator") if of["state"] == "running"]
        rest.set_run_state("payments_aggregator", aggregator["dag_run_id"], "failed")
        eventually(lambda: not jobs(airflow), "the aggregator has ended with its run", SECONDS)
    finally:
        rest.close()


def jobs(airflow: Airflow) -> list[Path]:
    """The process files of the jobs that still run."""
    return [
        path
        for path in (airflow.home / "streamplan" / "run").glob("payments-*.json")
        if Path(f"/proc/{json.loads(path.read_text())['pid']}").exists()
    ]
