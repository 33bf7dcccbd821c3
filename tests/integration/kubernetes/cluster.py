"""A cluster with one node, brokers and a bucket, in which docs/kubernetes.md is carried out."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from streamplan.kafka.brokers import Brokers
from streamplan.kafka.test_data import produce
from streamplan.kafka.topics import apply_topics
from streamplan.local.brokers import LocalKafka
from streamplan.local.jars import cache_directory
from streamplan.settings import PROJECT

from tests.integration.compose import engine as compose
from tests.integration.compose.engine import Engine, run
from tests.integration.kubernetes import control_plane, node
from tests.integration.kubernetes.control_plane import ControlPlane, process, running_control_plane
from tests.integration.kubernetes.name_server import name_server
from tests.integration.kubernetes.node import API_ADDRESS, HOST_ADDRESS, PAUSE, SERVICES, Node, cable, running_node
from tests.integration.kubernetes.page import commands
from tests.support.aggregator_process import CHANGELOG, ORDERS
from tests.support.brokers import await_coordinator, local_kafka
from tests.support.records import read_committed, recount
from tests.support.waiting import eventually

MOTO = "moto[server]==5.2.5"
STEP_SECONDS = 1200
BUILD_SECONDS = 3600
BATCH = 5_000
SECRETS = ("connection", "fernet-key", "api-secret-key", "jwt-secret")
"""The files of section 2 of the page that have something of Airflow's own."""


@dataclass(frozen=True)
class Cluster:
    """A cluster with one node, brokers and a bucket.

    Attributes:
        deploy: A copy of ``deploy/kubernetes``, with the address of the bucket.
        brokers: Where pods and this process find them.
    """

    plane: ControlPlane
    node: Node
    deploy: Path
    brokers: Brokers

    def carry_out(self, heading: str) -> None:
        """Run the commands of ``kubectl`` below a heading of the page."""
        run(["bash", "-euc", "\n".join(commands(heading))], self.plane.environment, seconds=300, folder=self.folder)

    def prepare(self, secrets: Mapping[str, str] = MappingProxyType({})) -> None:
        """Carry out sections 2 and 3 of the page without Airflow's chart, on a volume of this machine.

        Args:
            secrets: The content of files of :data:`SECRETS`.
        """
        login = {"bootstrap.servers": str(self.brokers)}
        files = {
            "kafka_default.json": json.dumps({"conn_type": "kafka", "extra": login}),
            "client.json": json.dumps(login),
            **dict.fromkeys(("access-key", "secret-key"), "streamplan"),
            **dict.fromkeys(SECRETS, "a"),
            **secrets,
        }
        for name, content in files.items():
            (self.folder / name).write_text(content)
        for name in ("shared", "logs"):
            self._make_volume(name)
        for heading in ("2. The secrets", "3. Roles, volume, configurations, Airflow"):
            self.carry_out(heading)

    def _make_volume(self, name: str) -> None:
        """Make a volume of this machine for a claim of the page."""
        directory = self.folder / name
        directory.mkdir()
        directory.chmod(0o777)
        volume = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": "10Gi"},
                "accessModes": ["ReadWriteMany"],
                "hostPath": {"path": str(directory)},
            },
        }
        file = self.folder / f"{name}.json"
        file.write_text(json.dumps(volume))
        self.plane.kubectl("apply", "--filename", str(file))

    def pods(self, *selector: str) -> dict[str, dict[str, Any]]:
        """Return the status of pods in the namespace ``streams`` by their names."""
        found = self.plane.objects("pods", "streams", *selector)
        return {each["metadata"]["name"]: each["status"] for each in found}

    @property
    def folder(self) -> Path:
        """Where the commands of the page are run."""
        return self.deploy.parents[1]

    def executors(self, phase: str = "Running") -> set[str]:
        pods = self.pods("--selector=spark-role=executor")
        return {name for name, status in pods.items() if status["phase"] == phase}

    def kill(self, pod: str) -> None:
        """Kill the first process of a pod's container, as a lack of memory does."""
        [container] = self.pods()[pod]["containerStatuses"]
        number = container["containerID"].removeprefix("containerd://")
        found = {int(file.parent.name) for file in Path("/proc").glob("[0-9]*/cgroup") if number in _text(file)}
        [first] = [pid for pid in found if _parent(pid) not in found]
        os.kill(first, signal.SIGKILL)

    def produce(self) -> None:
        produce(ORDERS, self.brokers, records=BATCH, stop=threading.Event(), progress=lambda number, until: None)

    def await_counted(self, what: str) -> None:
        """Wait until the changelog has what a plain recount of the orders has."""
        counts: list[Counter[bytes]] = []

        def agree() -> bool:
            changes = read_committed(str(self.brokers), CHANGELOG)
            last = Counter({change.key() or b"": int.from_bytes(change.value() or b"", "big") for change in changes})
            counts[:] = [recount(read_committed(str(self.brokers), "orders")), last]
            return bool(counts[0]) and counts[0] == counts[1]

        eventually(agree, what, STEP_SECONDS, interval=2, evidence=lambda: f"{counts}\n{self.evidence()}")

    def evidence(self) -> str:
        said = [self.plane.kubectl("get", "pods,events", "--all-namespaces", "--output", "wide")]
        for name in self.pods():
            command = ["kubectl", "logs", "--namespace", "streams", name, "--tail=60"]
            said.append(
                f"{name}: {subprocess.run(command, env=self.plane.environment, capture_output=True, text=True).stdout}"
            )
        return "\n".join(said)


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:  # the process has ended
        return ""


def _parent(pid: int) -> int:
    """The pid of a process's parent: the second number behind its name, which stands in parentheses."""
    return int(_text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()[1])


class Reachable(LocalKafka):
    """Brokers that pods reach."""

    def address(self, node: int) -> str:
        return super().address(node).replace("127.0.0.1", HOST_ADDRESS)


@contextmanager
def bucket(directory: Path) -> Iterator[str]:
    """Serve an empty bucket ``streamplan``, and give the address of the server."""
    environment = cache_directory(os.environ) / "moto"
    if not (environment / "bin" / "moto_server").exists():
        run([sys.executable, "-m", "venv", "--clear", str(environment)], os.environ, seconds=600)
        run([str(environment / "bin" / "pip"), "install", MOTO], os.environ, seconds=1800)
    [port] = control_plane.free_ports(1)
    url = f"http://{HOST_ADDRESS}:{port}"
    command = [str(environment / "bin" / "moto_server"), "--host", HOST_ADDRESS, "--port", str(port)]
    with process(command, directory / "moto.log"):

        def made() -> bool:
            try:
                urllib.request.urlopen(urllib.request.Request(f"{url}/streamplan", method="PUT"), timeout=30).close()
            except OSError:
                return False
            return True

        eventually(made, "the bucket is made")
        yield url


def build(engine: Engine, directory: Path) -> None:
    """Build the image by the commands of the page."""
    compose.build_images(engine)
    context = directory / "pause"
    context.mkdir()
    (context / "Dockerfile").write_text('FROM streamplan-tests/base\nENTRYPOINT ["sleep", "infinity"]\n')
    engine.docker("build", "--tag", PAUSE, str(context), seconds=BUILD_SECONDS)
    for line in commands("1. The image", "docker build"):
        words = [*line.split()[1:2], "--network=host", *line.split()[2:]]
        run(["docker", *words], engine.environment(DOCKER_BUILDKIT="0"), seconds=BUILD_SECONDS, folder=PROJECT)


def missing() -> str:
    """Return why there can be no cluster on this machine; an empty text if there can."""
    return control_plane.missing(None) or compose.missing() or node.missing()


@contextmanager
def running_cluster(directory: Path) -> Iterator[Cluster]:
    """Start brokers, a bucket, a control plane and its node, and stop them by their pids.

    Args:
        directory: A new directory, for data and logs.
    """
    with ExitStack() as stack:
        stack.enter_context(cable())
        kafka = local_kafka(directory / "kafka", kind=Reachable)
        stack.callback(kafka.down)
        kafka.up(deadline_seconds=STEP_SECONDS)
        await_coordinator(kafka.bootstrap_servers)
        brokers = Brokers(kafka.bootstrap_servers)
        apply_topics(brokers, ORDERS)
        s3 = stack.enter_context(bucket(directory))
        (directory / "plane").mkdir()
        plane = stack.enter_context(running_control_plane(directory / "plane", address=API_ADDRESS, services=SERVICES))
        stack.enter_context(name_server(plane, HOST_ADDRESS))
        (directory / "node").mkdir()
        running = stack.enter_context(running_node(plane, directory / "node"))
        (directory / "engine").mkdir()
        with compose.running_engine(directory / "engine") as engine:
            build(engine, directory)
            for image in (PAUSE, "registry.example/streamplan-airflow:1"):
                running.take(engine, image)
        deploy = directory / "repository" / "deploy" / "kubernetes"
        shutil.copytree(PROJECT / "deploy" / "kubernetes", deploy)
        for file in (deploy / "values.yaml", deploy / "spark" / "spark-defaults.conf"):
            # Two cores have room for all pods at once, if each asks for little.
            file.write_text(file.read_text().replace("https://s3.example", s3).replace("500m", "100m"))
        yield Cluster(plane, running, deploy, brokers)
