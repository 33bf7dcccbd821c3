"""docs/kubernetes.md with Airflow's chart: the installed Airflow deploys the orders and checks them on schedule.

The tests of this module are steps of one installation, and run in this order. The chart is a file that somebody has
pulled, because its repository has no package index that every machine reaches::

    go install helm.sh/helm/v3/cmd/helm@latest
    helm repo add apache-airflow https://airflow.apache.org
    helm pull apache-airflow/airflow
    AIRFLOW_CHART=airflow-1.22.0.tgz pytest -m soak tests/integration/kubernetes/test_chart.py
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.integration.compose.engine import run
from tests.integration.kubernetes.cluster import BATCH, SECRETS, STEP_SECONDS, Cluster
from tests.integration.kubernetes.node import HOST_ADDRESS
from tests.integration.kubernetes.page import commands
from tests.support.postgresql import postgresql, programs
from tests.support.waiting import eventually

pytestmark = pytest.mark.soak

COMPONENTS = {
    "api-server": "deployment/airflow-api-server",
    "scheduler": "deployment/airflow-scheduler",
    "dag-processor": "deployment/airflow-dag-processor",
    "triggerer": "statefulset/airflow-triggerer",
}
SLOW = {"timeoutSeconds": 120, "failureThreshold": 30}
VALUES = {
    "statsd": {"enabled": False},  # the node has no way to the registry of its image
    "config": {"core": {"dagbag_import_timeout": 600}, "dag_processor": {"dag_file_processor_timeout": 600}},
    # Airflow's commands take longer than the chart's time-outs where everything has two cores.
    "apiServer": {"startupProbe": SLOW, "livenessProbe": SLOW, "readinessProbe": SLOW},
    "scheduler": {"startupProbe": SLOW, "livenessProbe": SLOW},
    "dagProcessor": {"livenessProbe": SLOW},
    "triggerer": {"livenessProbe": SLOW},
}
"""Values of the tests' own, beside those of the page."""

SETTLED_SECONDS = 150
"""In this time each probe looks twice."""

RUN_SECONDS = 3600


@dataclass
class Airflow:
    """The installed Airflow, as the user that the chart makes."""

    cluster: Cluster

    def kubectl(self, *arguments: str, seconds: float = 120) -> str:
        return self.cluster.plane.kubectl(*arguments, "--namespace", "airflow", seconds=seconds)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Ask the REST API."""
        [pod] = self.cluster.plane.objects("pods", "airflow", "--selector=component=api-server")
        url = f"http://{pod['status']['podIP']}:8080"
        login = {"username": "admin", "password": "admin"}
        token = requests.post(f"{url}/auth/token", json=login, timeout=120)
        token.raise_for_status()
        headers = {"Authorization": f"Bearer {token.json()['access_token']}"}
        answer = requests.request(method, f"{url}/api/v2{path}", json=body, headers=headers, timeout=120)
        assert answer.ok, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json()

    def evidence(self) -> str:
        said = [self.cluster.evidence()]
        for name in COMPONENTS.values():
            command = ["kubectl", "logs", "--namespace", "airflow", name, "--all-containers", "--tail=60"]
            # A component that has no pod yet has no logs, and those of the others are still wanted.
            said.append(
                run(["bash", "-c", f"{' '.join(command)} 2>&1 || true"], self.cluster.plane.environment, seconds=60)
            )
        return "\n".join(said)

    def await_run(self, dag: str, number: str) -> None:
        """Wait for a green run."""

        def ended() -> bool:
            state = self.ask("GET", f"/dags/{dag}/dagRuns/{number}")["state"]
            assert state != "failed", f"{self.tasks(dag, number)}\n{self.evidence()}"
            return bool(state == "success")

        eventually(
            ended,
            f"{dag} is green",
            RUN_SECONDS,
            interval=10,
            evidence=lambda: f"{self.tasks(dag, number)}\n{self.evidence()}",
        )

    def tasks(self, dag: str, number: str) -> dict[str, str]:
        found = self.ask("GET", f"/dags/{dag}/dagRuns/{number}/taskInstances?limit=200")["task_instances"]
        return {each["task_id"]: each["state"] for each in found}


@pytest.fixture(scope="module")
def airflow(cluster: Cluster) -> Iterator[Airflow]:
    chart, database = os.environ.get("AIRFLOW_CHART"), programs()
    if not chart or shutil.which("helm") is None or database is None:
        pytest.skip("AIRFLOW_CHART names no chart, or helm or postgresql is not installed: see the module")
    with postgresql(database, HOST_ADDRESS, "198.18.0.0/15") as address:
        own = dict(
            zip(
                SECRETS,
                (
                    address,
                    base64.urlsafe_b64encode(os.urandom(32)).decode(),
                    secrets.token_hex(16),
                    secrets.token_hex(32),
                ),
                strict=True,
            )
        )
        cluster.prepare(own)
        [install] = commands("3. Roles, volume, configurations, Airflow", "helm install")
        install = install.replace("apache-airflow/airflow", str(Path(chart).resolve()))
        (cluster.folder / "tests.json").write_text(json.dumps(VALUES))
        install += " --values tests.json"
        run(["bash", "-euc", install], cluster.plane.environment, seconds=STEP_SECONDS, folder=cluster.folder)
        yield Airflow(cluster)


def test_the_components_become_ready_and_stay_so(airflow: Airflow) -> None:
    for name in COMPONENTS.values():
        wait = ("rollout", "status", name, f"--timeout={STEP_SECONDS}s")
        try:
            airflow.kubectl(*wait, seconds=STEP_SECONDS + 60)
        except AssertionError as error:
            raise AssertionError(airflow.evidence()) from error
    time.sleep(SETTLED_SECONDS)
    for component in COMPONENTS:
        [pod] = airflow.cluster.plane.objects("pods", "airflow", f"--selector=component={component}")
        restarts = {each["name"]: each["restartCount"] for each in pod["status"]["containerStatuses"]}
        assert not any(restarts.values()), f"{component}: {restarts}\n{airflow.evidence()}"


def test_a_deploy_counts_the_orders(airflow: Airflow) -> None:
    airflow.ask("PATCH", "/dags/orders_deploy", {"is_paused": False})
    begun = airflow.ask("POST", "/dags/orders_deploy/dagRuns", {"logical_date": None, "conf": {"records": BATCH}})
    airflow.await_run("orders_deploy", begun["dag_run_id"])
    airflow.cluster.await_counted("the orders are counted")


def test_scheduled_checks_are_green(airflow: Airflow) -> None:
    """Those before the deployment were skipped."""
    found: list[str] = []

    def scheduled() -> bool:
        runs = airflow.ask("GET", "/dags/orders_health/dagRuns?run_type=scheduled")["dag_runs"]
        numbers = [run["dag_run_id"] for run in runs]
        found[:] = [number for number in numbers if airflow.tasks("orders_health", number).get("totals") == "success"]
        return bool(found)

    eventually(scheduled, "a scheduled run of the checks", RUN_SECONDS, interval=10, evidence=airflow.evidence)
    airflow.await_run("orders_health", found[0])


def test_the_log_of_a_task_whose_pod_has_ended_is_there(airflow: Airflow) -> None:
    [first, *_] = airflow.ask("GET", "/dags/orders_deploy/dagRuns?limit=1")["dag_runs"]
    path = f"/dags/orders_deploy/dagRuns/{first['dag_run_id']}/taskInstances/topics/logs/1"
    assert "orders" in json.dumps(airflow.ask("GET", path))
