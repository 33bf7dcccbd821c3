"""docs/kubernetes.md on a node: its image, drivers and executors as pods, and what happens when they are killed.

The tests of this module are steps of one deployment, and run in this order. Each task of Airflow is a command in a pod
that has the image, the environment, the mounts and the service account that the chart's values give to its pods.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.test_data import produce
from streamplan.kafka.topics import apply_topics
from streamplan.local.brokers import LocalKafka
from streamplan.local.jars import cache_directory
from streamplan.settings import PROJECT

from tests.integration.compose import engine as compose
from tests.integration.compose.engine import Engine, run
from tests.integration.kubernetes import control_plane, node
from tests.integration.kubernetes.airflow_pod import RunningPod
from tests.integration.kubernetes.control_plane import ControlPlane, process, running_control_plane
from tests.integration.kubernetes.name_server import name_server
from tests.integration.kubernetes.node import API_ADDRESS, HOST_ADDRESS, PAUSE, SERVICES, Node, cable, running_node
from tests.integration.kubernetes.page import commands
from tests.support.aggregator_process import CHANGELOG, ORDERS
from tests.support.brokers import await_coordinator, local_kafka
from tests.support.records import read_committed, recount
from tests.support.waiting import eventually

pytestmark = pytest.mark.soak

MOTO = "moto[server]==5.2.5"
STEP_SECONDS = 1200
BUILD_SECONDS = 3600
BATCH = 5_000


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

    def pods(self, *selector: str) -> dict[str, dict[str, Any]]:
        """Return the status of pods in the namespace ``streams`` by their names."""
        found = self.plane.objects("pods", "streams", *selector)
        return {each["metadata"]["name"]: each["status"] for each in found}

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


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if why := control_plane.missing(None) or compose.missing() or node.missing():
        pytest.skip(why)
    directory = tmp_path_factory.mktemp("cluster")
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
            file.write_text(file.read_text().replace("https://s3.example", s3))
        yield Cluster(plane, running, deploy, brokers)


@pytest.fixture(scope="module")
def worker(cluster: Cluster) -> RunningPod:
    return airflow_pod(cluster, "worker")


@pytest.fixture(scope="module")
def triggerer(cluster: Cluster) -> RunningPod:
    return airflow_pod(cluster, "triggerer")


def airflow_pod(cluster: Cluster, component: str) -> RunningPod:
    """Start a pod as the chart starts those of a component."""
    values = yaml.safe_load((cluster.deploy / "values.yaml").read_text())
    secret = [
        {
            "name": each["envName"],
            "valueFrom": {"secretKeyRef": {"name": each["secretName"], "key": each["secretKey"]}},
        }
        for each in values["secret"]
    ]
    container = {
        "name": "base",
        "image": f"{values['images']['airflow']['repository']}:{values['images']['airflow']['tag']}",
        "args": ["sleep", "infinity"],
        "env": [*values["env"], *secret],
        "volumeMounts": values["volumeMounts"],
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": component, "labels": {"component": component}},
        "spec": {
            "serviceAccountName": f"airflow-{component}",
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            "volumes": values["volumes"],
        },
    }
    file = cluster.deploy / f"{component}.json"
    file.write_text(json.dumps(pod))
    cluster.plane.kubectl("apply", "--namespace", "airflow", "--filename", str(file))
    ready = ("--for=condition=Ready", f"--timeout={STEP_SECONDS}s")
    cluster.plane.kubectl("wait", "--namespace", "airflow", f"pod/{component}", *ready, seconds=STEP_SECONDS + 60)
    return RunningPod(cluster.plane, component)


def test_the_commands_of_the_page_are_taken(cluster: Cluster) -> None:
    folder, plane = cluster.deploy.parents[1], cluster.plane
    login = {"bootstrap.servers": str(cluster.brokers)}
    files = {
        "kafka_default.json": json.dumps({"conn_type": "kafka", "extra": login}),
        "client.json": json.dumps(login),
        **dict.fromkeys(("access-key", "secret-key"), "streamplan"),
        **dict.fromkeys(("connection", "fernet-key", "api-secret-key", "jwt-secret"), "a"),
    }
    for name, content in files.items():
        (folder / name).write_text(content)
    (folder / "shared").mkdir()
    (folder / "shared").chmod(0o777)
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "shared"},
        "spec": {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteMany"],
            "hostPath": {"path": str(folder / "shared")},
        },
    }
    (folder / "volume.json").write_text(json.dumps(volume))
    plane.kubectl("apply", "--filename", str(folder / "volume.json"))
    for heading in ("2. The secrets", "3. Roles, volume, configurations, Airflow"):
        run(["bash", "-euc", "\n".join(commands(heading))], plane.environment, seconds=300, folder=folder)
    for name in ("worker", "triggerer"):  # the chart makes them
        plane.kubectl("create", "serviceaccount", f"airflow-{name}", "--namespace", "airflow")


def test_orders_are_counted_by_pods(cluster: Cluster, worker: RunningPod) -> None:
    told = worker.step("execute", "manual__1")
    assert "trigger" in told, told
    cluster.produce()
    cluster.await_counted("the orders are counted")
    assert len(cluster.executors()) == 2
    name = told["trigger"]["pod"]["name"]
    assert cluster.plane.kubectl("logs", "--namespace", "streams", name)


def test_a_killed_executor_is_replaced_and_the_totals_stay_exact(cluster: Cluster) -> None:
    before = cluster.executors()
    cluster.kill(min(before))
    cluster.produce()
    cluster.await_counted("the orders are counted after an executor was killed")
    eventually(
        lambda: len(cluster.executors()) == 2 and cluster.executors() != before,
        "another executor",
        STEP_SECONDS,
        interval=1,
        evidence=cluster.evidence,
    )


def test_a_killed_driver_is_told_and_the_next_try_goes_on(
    cluster: Cluster, worker: RunningPod, triggerer: RunningPod
) -> None:
    trigger = worker.step("execute", "manual__1")["trigger"]
    with triggerer.begin("watch", json.dumps(trigger)) as watching:
        time.sleep(10)
        cluster.kill(trigger["pod"]["name"])
        said, _ = watching.communicate(timeout=STEP_SECONDS)
    event = json.loads(said.decode().splitlines()[-1])["event"]
    told = worker.step("resume", json.dumps(event))
    assert told["error"] == "AirflowException"
    assert "ended with exit status 137" in told["text"]
    cluster.produce()
    again = worker.step("execute", "manual__1")["trigger"]["pod"]["name"]
    assert again != trigger["pod"]["name"]
    cluster.await_counted("the orders are counted by the next driver")


def test_deployments_of_the_page_become_ready(cluster: Cluster) -> None:
    folder, plane = cluster.deploy.parents[1], cluster.plane
    run(["bash", "-euc", "\n".join(commands("Answer queries"))], plane.environment, seconds=300, folder=folder)
    for name in ("streamplan-exporter", "streamplan-serve"):
        ready = ("--for=condition=Available", f"--timeout={STEP_SECONDS}s")
        plane.kubectl("wait", "--namespace", "airflow", f"deployment/{name}", *ready, seconds=STEP_SECONDS + 60)
    [pod] = plane.objects("pods", "airflow", "--selector=app.kubernetes.io/name=streamplan-exporter")
    address = pod["status"]["podIP"]
    with urllib.request.urlopen(f"http://{address}:9404/metrics", timeout=60) as answer:
        assert b"streamplan_" in answer.read()


def test_a_stopped_driver_completes_and_keeps_its_log(
    cluster: Cluster, worker: RunningPod, triggerer: RunningPod
) -> None:
    trigger = worker.step("execute", "manual__1")["trigger"]
    name = trigger["pod"]["name"]
    triggerer.step("kill", json.dumps(trigger))
    eventually(
        lambda: cluster.pods()[name]["phase"] == "Succeeded",
        "the driver has completed",
        STEP_SECONDS,
        interval=1,
        evidence=cluster.evidence,
    )
    assert cluster.plane.kubectl("logs", "--namespace", "streams", name)
    eventually(lambda: not cluster.executors(), "no executor is left", STEP_SECONDS, interval=1)
