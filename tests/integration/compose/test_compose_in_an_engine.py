"""docker-compose.yml in a container engine: the commands of its header, killed services, a rebuild, and the totals.

The tests of this module are steps of one deployment, and run in this order.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from streamplan.local.airflow_rest import AirflowRest
from streamplan.local.ports import is_free
from streamplan.settings import PROJECT

from tests.integration.compose.engine import Engine, build_images, missing, run, running_engine
from tests.support.records import read_committed
from tests.support.waiting import eventually

pytestmark = pytest.mark.soak

UP_SECONDS = 3600
"""The first `up` installs all packages."""
STEP_SECONDS = 900
HEALTH_SECONDS = 1500
"""Scheduled checks run every ten minutes."""
ORDERS = 20_000
HOLDER = "processes"
"""Its namespace ends with it, and with the namespace the services that share it."""
PORTS = ("AIRFLOW_PORT", "SPARK_PORT", "KAFKA_1_PORT", "KAFKA_2_PORT")


@dataclass
class Deployment:
    """A clone of the repository, and what its docker-compose.yml has started.

    Attributes:
        folder: The clone.
        engine: Where its containers run.
        ports: Of this machine, by variable.
        brokers: The value of ``BROKERS``.
    """

    folder: Path
    engine: Engine
    ports: dict[str, int]
    brokers: str

    def environment(self) -> dict[str, str]:
        """Return what a shell of the user has. The builder of the engine uses the network of this machine."""
        ports = {name: str(port) for name, port in self.ports.items()}
        return self.engine.environment(
            COMPOSE_FILE="docker-compose.yml:build-network.yml", BROKERS=self.brokers, DOCKER_BUILDKIT="0", **ports
        )

    def shell(self, script: str, seconds: float) -> str:
        return run(["bash", "-euc", script], self.environment(), seconds=seconds, folder=self.folder)

    def make_settings(self) -> None:
        """Make ``.env`` by the commands at the beginning of ``.env.example``."""
        self.shell(commands((self.folder / ".env.example").read_text().split("\n\n")[0]), 60)

    def compose(self, *arguments: str, seconds: float = STEP_SECONDS) -> str:
        return run(["docker", "compose", *arguments], self.environment(), seconds=seconds, folder=self.folder)

    def containers(self) -> dict[str, dict[str, Any]]:
        """What Compose says of each container, by service. Containers that have ended are there, too."""
        lines = self.compose("ps", "--all", "--format", "json").splitlines()
        return {container["Service"]: container for container in map(json.loads, lines)}

    def ids(self) -> dict[str, str]:
        return {service: container["ID"] for service, container in self.containers().items()}

    def process(self, service: str) -> int:
        """The pid, on this machine, of the first process of a service: the engine notices its end as a crash."""
        return int(self.engine.docker("inspect", "--format", "{{.State.Pid}}", self.ids()[service]))

    def kill(self, service: str) -> None:
        """Kill the first process of a service, and wait until the engine has started another one."""
        killed = self.process(service)
        os.kill(killed, signal.SIGKILL)
        restarted = f"{service} is started again"
        eventually(lambda: self.process(service) not in (0, killed), restarted, STEP_SECONDS, interval=1)

    def unwell(self) -> dict[str, str]:
        """The state of each service that should run and is not healthy."""
        return {
            service: f"{container['State']} {container['Health']}"
            for service, container in self.containers().items()
            if not (container["State"] == "running" and container["Health"] == "healthy")
            and not (service in ("airflow-init", "certificates") and container["ExitCode"] == 0)
        }

    def await_healthy(self, what: str) -> None:
        eventually(lambda: not self.unwell(), what, STEP_SECONDS, interval=2, evidence=lambda: str(self.unwell()))

    def rest(self) -> AirflowRest:
        password = re.search(r"^AIRFLOW_ADMIN_PASSWORD=(.+)$", (self.folder / ".env").read_text(), re.MULTILINE)
        assert password is not None
        return AirflowRest(f"http://127.0.0.1:{self.ports['AIRFLOW_PORT']}", "admin", password[1])

    def deploy(self) -> None:
        rest = self.rest()
        rest.wait_for_dag("orders_deploy", deadline_seconds=300)
        deployed = rest.trigger("orders_deploy", {"records": ORDERS})
        state = rest.wait("orders_deploy", deployed, deadline_seconds=STEP_SECONDS)
        states = rest.task_states("orders_deploy", deployed)
        logs = [rest.task_log("orders_deploy", deployed, task) for task, each in states.items() if each == "failed"]
        assert state == "success", f"{states}\n" + "\n".join(line for log in logs for line in log[-20:])

    def await_counted(self, what: str) -> Counter[bytes]:
        """Wait until the changelog has what a plain recount of the orders has, and return it."""
        counts: list[Counter[bytes]] = []

        def agree() -> bool:
            counts[:] = [self._recounted(), self._counted()]
            return bool(counts[0]) and counts[0] == counts[1]

        eventually(agree, what, STEP_SECONDS, interval=2, evidence=lambda: str(counts))
        return counts[0]

    def _recounted(self) -> Counter[bytes]:
        orders = read_committed(self._servers(), "orders")
        return Counter(b"%d" % value["ProductType"] for value in map(json.loads, (order.value() for order in orders)))

    def _counted(self) -> Counter[bytes]:
        changes = read_committed(self._servers(), "orders-aggregator-orders-products-quantities-changelog")
        return Counter({change.key(): int.from_bytes(change.value(), "big") for change in changes})

    def _servers(self) -> str:
        return f"127.0.0.1:{self.ports['KAFKA_1_PORT']},127.0.0.1:{self.ports['KAFKA_2_PORT']}"


def commands(text: str) -> str:
    """The commands of a comment: its lines that are indented."""
    return "\n".join(line.removeprefix("#   ") for line in text.splitlines() if line.startswith("#   "))


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    if why := missing():
        pytest.skip(why)
    with running_engine(tmp_path_factory.mktemp("engine")) as engine:
        build_images(engine)
        yield engine


def clone(folder: Path, engine: Engine, brokers: str) -> Iterator[Deployment]:
    """Clone as a user with umask 077, and delete all that the clone has started at the end."""
    listed = run(["git", "ls-files", "-z"], engine.environment(), seconds=60, folder=PROJECT).split("\0")
    for name in filter(None, listed):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PROJECT / name, target)
    run(["chmod", "-R", "u=rwX,go=", str(folder)], engine.environment(), seconds=60)
    for connection in (folder / "compose").glob("*.json"):  # Compose mounts it, and Airflow's user reads it
        connection.chmod(0o644)
    (folder / "build-network.yml").write_text("services: {processes: {build: {network: host}}}\n")
    base = next(base for base in iter(lambda: random.randrange(15_000, 30_000, 10), 0) if is_free(base))
    deployment = Deployment(folder, engine, {name: base + number for number, name in enumerate(PORTS)}, brokers)
    try:
        yield deployment
    finally:
        if (folder / ".env").exists():
            deployment.compose("down", "--volumes", "--timeout", "60")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, engine: Engine) -> Iterator[Deployment]:
    yield from clone(tmp_path_factory.mktemp("a clone") / "streamplan", engine, "plain")


def test_the_commands_of_the_header_start_it_and_the_second_time_they_change_nothing(plain: Deployment) -> None:
    plain.make_settings()
    header = commands((plain.folder / "docker-compose.yml").read_text().split("\nname:")[0])
    _, *ports_and_up = header.splitlines()  # the first one copies .env.example, whose own commands have made .env
    plain.shell("\n".join(ports_and_up), UP_SECONDS)
    assert not plain.unwell()
    started = plain.ids()
    plain.shell("\n".join(ports_and_up), UP_SECONDS)
    assert plain.ids() == started


def test_a_deploy_counts_the_orders_on_both_workers(plain: Deployment) -> None:
    plain.deploy()
    counts = plain.await_counted("the orders are counted")
    assert sum(counts.values()) >= ORDERS
    with urllib.request.urlopen(f"http://127.0.0.1:{plain.ports['SPARK_PORT']}/json/", timeout=30) as answer:
        master = json.load(answer)
    used = {worker["host"]: worker["coresused"] for worker in master["workers"]}
    assert used == {"spark-worker-1": 2, "spark-worker-2": 2}


def test_scheduled_checks_are_green(plain: Deployment) -> None:
    rest = plain.rest()

    def green() -> bool:
        scheduled = [run for run in rest.runs("orders_health") if run["dag_run_id"].startswith("scheduled")]
        return any(run["state"] == "success" for run in scheduled)

    eventually(
        green, "a green scheduled run", HEALTH_SECONDS, interval=5, evidence=lambda: str(rest.runs("orders_health"))
    )


def test_each_killed_service_comes_back_by_itself(plain: Deployment) -> None:
    for service in sorted(set(plain.containers()) - {"airflow-init", HOLDER}):
        plain.kill(service)
        plain.await_healthy(f"all services after {service} was killed")
    before = sum(plain.await_counted("the orders are counted after all kills").values())
    plain.deploy()
    assert sum(plain.await_counted("the orders of a deploy after the kills are counted").values()) > before


def test_up_mends_what_the_end_of_the_shared_namespace_has_stopped(plain: Deployment) -> None:
    plain.kill(HOLDER)
    plain.compose("up", "--detach", "--no-build", "--wait")
    plain.await_healthy(f"all services after {HOLDER} was killed")
    plain.deploy()


def test_what_was_stopped_starts_again_with_its_totals(plain: Deployment) -> None:
    before = plain.await_counted("the orders are counted")
    plain.compose("stop")
    ended = {service: container["ExitCode"] for service, container in plain.containers().items()}
    assert 137 not in ended.values(), f"killed after the time to stop: {ended}"
    plain.compose("up", "--detach", "--no-build", "--wait")
    plain.deploy()
    after = plain.await_counted("the orders are counted after the start")
    assert all(after[key] > count for key, count in before.items())


def test_a_changed_source_recreates_what_uses_it_and_all_is_healthy(plain: Deployment) -> None:
    before = plain.ids()
    file = plain.folder / "plugins" / "streamplan" / "pipelines" / "orders.py"
    file.write_text(file.read_text() + "\n# A change.\n")
    plain.shell("docker compose up --build --detach --wait", UP_SECONDS)
    assert not plain.unwell()
    recreated = {service for service, container in plain.ids().items() if before.get(service) != container}
    assert recreated == {service for service in before if service not in ("kafka-1", "kafka-2", "postgres")}
    plain.deploy()
    plain.await_counted("the orders are counted by the new image")


def test_down_leaves_nothing(plain: Deployment) -> None:
    plain.compose("down", "--volumes")
    assert plain.engine.docker("ps", "--all", "--quiet") == ""
    assert plain.engine.docker("volume", "ls", "--quiet") == ""
    assert set(plain.engine.docker("network", "ls", "--format", "{{.Name}}").split()) == {"bridge", "host", "none"}


def test_secured_brokers_are_used_with_certificates(tmp_path: Path, engine: Engine) -> None:
    deployments = clone(tmp_path / "streamplan", engine, "secured")
    deployment = next(deployments)
    try:
        deployment.make_settings()
        deployment.shell("docker compose up --build --detach --wait", UP_SECONDS)
        assert not deployment.unwell()
        deployment.deploy()  # its last task runs the checks, among them the recount of the totals
    finally:
        deployments.close()
