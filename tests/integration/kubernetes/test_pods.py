"""docs/kubernetes.md on a node: its image, drivers and executors as pods, and what happens when they are killed.

The tests of this module are steps of one deployment, and run in this order. Each task of Airflow is a command in a pod
that has the image, the environment, the mounts and the service account that the chart's values give to its pods.
"""

from __future__ import annotations

import json
import time
import urllib.request

import pytest
import yaml

from tests.integration.kubernetes.airflow_pod import RunningPod
from tests.integration.kubernetes.cluster import STEP_SECONDS, Cluster
from tests.support.waiting import eventually

pytestmark = pytest.mark.soak


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
    cluster.prepare()
    for name in ("worker", "triggerer"):  # the chart makes them
        cluster.plane.kubectl("create", "serviceaccount", f"airflow-{name}", "--namespace", "airflow")


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
    cluster.carry_out("Answer queries")
    plane = cluster.plane
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
