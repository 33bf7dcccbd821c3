"""docs/kubernetes.md at a real API server without nodes: its commands, its roles, and what becomes of a driver's pod.

The tests of this module are steps of one deployment, and run in this order. Pods stay ``Pending``. Where one has to
run or to end, the test writes its status, as the agent of a node does.
"""

from __future__ import annotations

import base64
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.topics import apply_topics, delete_topics
from streamplan.settings import PROJECT

from tests.integration.compose.engine import run
from tests.integration.kubernetes.airflow_pod import AirflowPod, LikePod
from tests.integration.kubernetes.control_plane import HOST, ControlPlane, missing, running_control_plane
from tests.integration.kubernetes.page import commands
from tests.support.aggregator_process import ORDERS
from tests.support.waiting import eventually

pytestmark = pytest.mark.soak

DEPLOY = PROJECT / "deploy" / "kubernetes"
VALUES: dict[str, Any] = yaml.safe_load((DEPLOY / "values.yaml").read_text())
MANIFESTS = sorted(file for file in DEPLOY.glob("*.yaml") if file.name != "values.yaml")
PASSWORD = "s3cret-of-registry"

WORKER = ("airflow", "airflow-worker")
DRIVER = ("streams", "streamplan-driver")
SUPERVISORS = [("airflow", f"airflow-{name}") for name in ("triggerer", "scheduler", "api-server")]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    if why := missing():
        pytest.skip(why)
    with running_control_plane(tmp_path_factory.mktemp("control plane")) as plane:
        yield plane


@pytest.fixture(scope="module")
def with_topics(bootstrap_servers: str) -> Iterator[Brokers]:
    brokers = Brokers(bootstrap_servers)
    apply_topics(brokers, ORDERS)
    yield brokers
    delete_topics(brokers, [spec.name for spec in ORDERS.topics()])


def pod_of(plane: ControlPlane, account: tuple[str, str], directory: Path, jars: Path) -> LikePod:
    """Return pods with a service account and with the environment that the chart's values give to Airflow's pods."""
    environment = {each["name"]: each["value"] for each in VALUES["env"]}
    for each in VALUES["secret"]:
        [secret] = plane.objects("secrets", "airflow", f"--field-selector=metadata.name={each['secretName']}")
        environment[each["envName"]] = base64.b64decode(secret["data"][each["secretKey"]]).decode()
    environment |= {
        "AIRFLOW_HOME": str(directory / "airflow"),
        "PYTHONPATH": str(PROJECT / "plugins"),
        "STREAMPLAN_HOME": str(directory / "streamplan"),
        "STREAMPLAN_JARS": str(jars),
        "SPARK_CONF_DIR": str(DEPLOY / "spark"),
    }
    return LikePod.make(plane, account, directory / "mounts", os.environ | environment)


@pytest.fixture(scope="module")
def worker(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory, spark_jars: Path) -> AirflowPod:
    return pod_of(plane, WORKER, tmp_path_factory.mktemp("worker"), spark_jars)


@pytest.fixture(scope="module")
def triggerer(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory, spark_jars: Path) -> AirflowPod:
    return pod_of(plane, SUPERVISORS[0], tmp_path_factory.mktemp("triggerer"), spark_jars)


@pytest.fixture(scope="module")
def api_server(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory, spark_jars: Path) -> AirflowPod:
    return pod_of(plane, SUPERVISORS[2], tmp_path_factory.mktemp("api server"), spark_jars)


def started(worker: AirflowPod, run: str) -> dict[str, Any]:
    """Let a worker start the aggregator of a DAG run, and return the trigger with which the task defers."""
    told = worker.step("execute", run)
    assert "trigger" in told, told
    trigger: dict[str, Any] = told["trigger"]
    return trigger


def drivers(plane: ControlPlane) -> list[str]:
    return [each["metadata"]["name"] for each in plane.objects("pods", "streams")]


def of_drivers(plane: ControlPlane) -> set[str]:
    """What belongs to drivers: ``Kind/name``."""
    kinds = "pods,secrets,services,configmaps,networkpolicies,persistentvolumeclaims"
    found = plane.objects(kinds, "streams")
    names = [(each["kind"], each["metadata"]["name"]) for each in found]
    return {f"{kind}/{name}" for kind, name in names if name.startswith(("orders-aggregator", "spark-"))}


def write_status(plane: ControlPlane, pod: str, phase: str, **state: Mapping[str, Any]) -> None:
    """Write what the agent of a node writes about a driver."""
    container = {
        "name": "spark-kubernetes-driver",
        "image": "registry.example/streamplan-airflow:1",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": state,
    }
    status = {"status": {"phase": phase, "containerStatuses": [container]}}
    where = ("--namespace", "streams", "--subresource=status", "--type=merge")
    plane.kubectl("patch", "pod", pod, *where, "--patch", json.dumps(status))


def test_the_commands_of_the_page_are_taken(plane: ControlPlane, with_topics: Brokers, tmp_path: Path) -> None:
    registry = {"url": "http://127.0.0.1:1", "basic.auth.user.info": f"reader:{PASSWORD}"}  # nobody asks it
    login = {
        "bootstrap.servers": str(with_topics),
        **{f"schema.registry.{name}": each for name, each in registry.items()},
    }
    files = {
        "kafka_default.json": json.dumps({"conn_type": "kafka", "extra": login}),
        "client.json": json.dumps(login),
        **dict.fromkeys(("access-key", "secret-key", "connection", "fernet-key", "api-secret-key", "jwt-secret"), "a"),
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    (tmp_path / "deploy").symlink_to(PROJECT / "deploy")
    for heading in ("2. The secrets", "3. Roles, volume, configurations, Airflow", "Answer queries"):
        run(["bash", "-euc", "\n".join(commands(heading))], plane.environment, seconds=300, folder=tmp_path)
    for file in MANIFESTS:
        plane.kubectl("get", "--filename", str(file))
    for namespace, name in [WORKER, *SUPERVISORS]:  # the chart makes them
        plane.kubectl("create", "serviceaccount", name, "--namespace", namespace)


def test_the_deployments_have_their_pods(plane: ControlPlane) -> None:
    wanted = {
        document["metadata"]["name"]: document["spec"]["replicas"]
        for file in MANIFESTS
        for document in yaml.safe_load_all(file.read_text())
        if document["kind"] == "Deployment"
    }
    assert wanted

    def pods() -> dict[str, int]:
        found = plane.objects("pods", "airflow")
        return Counter(each["metadata"]["labels"]["app.kubernetes.io/name"] for each in found)

    eventually(
        lambda: pods() == wanted,
        f"pods: {wanted}",
        interval=1,
        evidence=lambda: plane.kubectl("get", "events", "--namespace", "airflow"),
    )


@pytest.mark.parametrize(
    ("accounts", "verb", "resource", "namespace", "allowed"),
    [
        ([WORKER, DRIVER], "create", "pods", "streams", True),
        ([WORKER, DRIVER], "deletecollection", "pods", "streams", True),
        ([WORKER, DRIVER], "get", "pods/log", "streams", True),
        ([WORKER, DRIVER], "create", "secrets", "streams", True),
        ([WORKER, DRIVER], "get", "secrets", "streams", False),
        ([WORKER, DRIVER], "list", "secrets", "streams", False),
        ([WORKER, DRIVER], "create", "pods/exec", "streams", False),
        ([WORKER, DRIVER], "create", "pods", "airflow", False),
        ([WORKER, DRIVER], "get", "secrets", "airflow", False),
        (SUPERVISORS, "list", "pods", "streams", True),
        (SUPERVISORS, "delete", "pods", "streams", True),
        (SUPERVISORS, "create", "pods", "streams", False),
        (SUPERVISORS, "create", "secrets", "streams", False),
        (SUPERVISORS, "get", "secrets", "streams", False),
    ],
)
def test_the_roles_permit_what_the_page_says(
    plane: ControlPlane, accounts: list[tuple[str, str]], verb: str, resource: str, namespace: str, allowed: bool
) -> None:
    for home, name in accounts:
        user = f"system:serviceaccount:{home}:{name}"
        kind, _, part = resource.partition("/")
        question = ["auth", "can-i", verb, kind, f"--subresource={part}", f"--as={user}", "--namespace", namespace]
        answer = run(
            ["bash", "-c", 'kubectl "$@" || true', "bash", *question],  # its exit status is the answer, too
            plane.environment,
            seconds=120,
        )
        assert (answer.strip() == "yes") == allowed, user


def test_a_worker_gives_the_driver_a_pod_and_a_secret_that_it_cannot_read_itself(
    plane: ControlPlane, worker: AirflowPod
) -> None:
    trigger = started(worker, "manual__1")
    [pod] = plane.objects("pods", "streams")
    metadata = pod["metadata"]
    assert trigger["pod"] == {"master": f"k8s://https://{HOST}", "namespace": "streams", "name": metadata["name"]}
    [secret] = [each for each in plane.objects("secrets", "streams") if each["metadata"]["name"] != "streamplan-s3"]
    [owner] = secret["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Pod", metadata["uid"])
    assert PASSWORD in base64.b64decode(secret["data"]["client.json"]).decode()
    others = plane.objects("pods,services,configmaps,networkpolicies", "streams")
    assert {each["kind"] for each in others} == {"Pod", "Service", "ConfigMap", "NetworkPolicy"}
    assert PASSWORD not in json.dumps(others)


def test_a_retry_watches_the_same_pod(plane: ControlPlane, worker: AirflowPod) -> None:
    before = of_drivers(plane)
    [name] = drivers(plane)
    assert started(worker, "manual__1")["pod"]["name"] == name
    assert of_drivers(plane) == before


def test_the_end_of_a_driver_is_seen_by_the_triggerer_and_told_by_a_worker(
    plane: ControlPlane, worker: AirflowPod, triggerer: AirflowPod
) -> None:
    [name] = drivers(plane)
    trigger = started(worker, "manual__1")
    write_status(plane, name, "Failed", terminated={"exitCode": 78, "reason": "Error"})
    event = triggerer.step("watch", json.dumps(trigger))["event"]
    told = worker.step("resume", json.dumps(event))
    assert told["error"] == "AirflowFailException"
    assert "ended with exit status 78 (Error)" in told["text"]


def test_the_next_run_deletes_what_a_driver_has_left_behind(plane: ControlPlane, worker: AirflowPod) -> None:
    """Of a pod that was deleted Kubernetes deletes the secret, too."""
    [ended] = drivers(plane)
    left = started(worker, "manual__2")["pod"]["name"]
    newest = started(worker, "manual__3")["pod"]["name"]
    assert sorted(drivers(plane)) == sorted([ended, newest])
    eventually(
        lambda: not [each for each in of_drivers(plane) if left in each],
        f"all of {left} is deleted",
        interval=1,
        evidence=lambda: str(of_drivers(plane)),
    )
    assert f"Secret/{newest}-kafka" in of_drivers(plane)


def test_a_stopped_run_loses_its_driver_by_the_triggerer(
    plane: ControlPlane, worker: AirflowPod, triggerer: AirflowPod
) -> None:
    """No position holds a request to stop before the first start of an application, so the pod is deleted."""
    trigger = started(worker, "manual__3")
    triggerer.step("kill", json.dumps(trigger))
    assert trigger["pod"]["name"] not in drivers(plane)


def test_a_run_that_ends_without_a_triggerer_loses_its_driver_by_the_api_server_of_airflow(
    plane: ControlPlane, worker: AirflowPod, api_server: AirflowPod
) -> None:
    name = started(worker, "manual__4")["pod"]["name"]
    api_server.step("ended", "manual__3")
    assert name in drivers(plane)
    api_server.step("ended", "manual__4")
    assert name not in drivers(plane)


def test_a_driver_on_a_lost_node_is_deleted_and_the_next_try_starts_another_one(
    plane: ControlPlane, worker: AirflowPod, tmp_path: Path
) -> None:
    """Nobody ends the pod, so Kubernetes keeps it as it was, with the note that it was deleted."""
    trigger = started(worker, "manual__5")
    lost = trigger["pod"]["name"]
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "lost"}}
    target = {"apiVersion": "v1", "kind": "Node", "name": "lost"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": lost}, "target": target}
    for name, content in (("node", node), ("binding", binding)):
        (tmp_path / name).write_text(json.dumps(content))
    plane.kubectl("apply", "--filename", str(tmp_path / "node"))
    path = f"/api/v1/namespaces/streams/pods/{lost}/binding"
    plane.kubectl("create", f"--raw={path}", "--filename", str(tmp_path / "binding"))
    write_status(plane, lost, "Running", running={"startedAt": "2026-01-01T00:00:00Z"})
    told = worker.step("resume", json.dumps({"job": trigger}))
    assert "showed no life in Kafka, phase Running, and was deleted" in told["text"]
    assert lost in drivers(plane)
    again = started(worker, "manual__5")["pod"]["name"]
    assert again != lost
    plane.kubectl("delete", "pod", lost, "--namespace", "streams", "--force")
    plane.kubectl("delete", "node", "lost")


def test_a_triggerer_cannot_start_a_driver(plane: ControlPlane, triggerer: AirflowPod) -> None:
    """And the error says which role is missing."""
    told = triggerer.step("execute", "manual__6")
    assert told["error"] in ("AirflowException", "AirflowFailException")
    assert "forbidden" in told["text"].lower()
