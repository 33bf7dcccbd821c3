"""Airflow as larger teams have it: PostgreSQL, CeleryExecutor, and a worker in a PID namespace of its own."""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec

import psutil
import pytest
from sqlalchemy import create_engine, text
from streamplan import processes
from streamplan.checks import CHECKS
from streamplan.checks.framework.check import Outcome
from streamplan.local.airflow import DEFAULT_PORTS as AIRFLOW_PORTS
from streamplan.local.airflow import LocalAirflow
from streamplan.local.brokers import DEFAULT_PORTS
from streamplan.local.ports import Ports
from streamplan.local.stack import Stack
from streamplan.reports.results import read_latest
from streamplan.settings import PROJECT, Settings

from tests.support.airflow_rest import patient_rest
from tests.support.pid_namespaces import in_new_pid_namespace
from tests.support.postgresql import postgresql, programs
from tests.support.redis import redis
from tests.support.waiting import eventually

SECONDS = 900.0
WORKER = "celery-worker"
JOB = "orders-aggregator"


class AirflowOfATeam(LocalAirflow):
    """Airflow's processes with another metadata database and another executor."""

    changed: Mapping[str, str]

    def _variables(self, *arguments: object, **more: object) -> dict[str, str]:
        variables: Mapping[str, str] = super()._variables(*arguments, **more)  # type: ignore[arg-type]
        return {**variables, **self.changed}


@dataclass
class Worker:
    """The worker of Celery, as in a container of its own: it shares directories with the others, but no processes."""

    stack: Stack

    def start(self) -> None:
        processes.start(
            WORKER,
            [*in_new_pid_namespace(), sys.executable, "-m", "airflow", "celery", "worker", "--skip-serve-logs"],
            env=self.stack.airflow.environment(),
            log_file=self.stack.airflow.log_file(WORKER),
            cwd=PROJECT,
            run_dir=self.stack.settings.run,
        )

    def stop(self) -> None:
        """End it with all that it has started, as when its host is lost."""
        found = processes.find(self.stack.settings.run, WORKER)
        if found is not None:
            processes.stop(found, grace_seconds=0.0)

    def jobs(self) -> set[int]:
        """The drivers of the aggregator, as this process sees them: Spark's own class names the script."""
        found = set()
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess):
                words = process.cmdline()
                ours = any(str(self.stack.settings.home) in word for word in words)
                if ours and "org.apache.spark.deploy.SparkSubmit" in words and words[0].endswith("java"):
                    found.add(process.pid)
        return found

    def told(self) -> str:
        """What a failure shows."""
        logs = [self.stack.settings.logs / f"{name}.log" for name in (WORKER, JOB, "airflow-triggerer")]
        return "\n".join(f"{log}:\n{log.read_text(errors='replace')[-2000:]}" for log in logs if log.exists())


@pytest.fixture(scope="module")
def stack_of_a_team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    directory, program = programs(), shutil.which("redis-server")
    if directory is None or program is None:
        pytest.skip("Debian's packages postgresql and redis-server are not both installed")
    if find_spec("airflow.providers.celery") is None:
        pytest.skip("apache-airflow-providers-celery is not installed; `make soak` installs it")
    home = tmp_path_factory.mktemp("a team")
    base = random.randrange(15_000, 30_000, 10)
    names = {**DEFAULT_PORTS, **AIRFLOW_PORTS}
    (home / "stack.json").write_text(json.dumps({name: base + offset for offset, name in enumerate(sorted(names))}))
    stack = Stack(Settings.from_environment({"STREAMPLAN_HOME": str(home)}))
    airflow = AirflowOfATeam(stack.settings, Ports(home / "stack.json", names))
    stack.airflow = airflow
    with postgresql(directory) as database, redis(program, home) as queue:
        airflow.changed = {
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database,
            "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
            "AIRFLOW__CELERY__BROKER_URL": queue,
            "AIRFLOW__CELERY__RESULT_BACKEND": f"db+{database}",
            "AIRFLOW__CELERY__WORKER_CONCURRENCY": "4",
            "C_FORCE_ROOT": "true",
        }
        try:
            stack.up()
            yield stack
        finally:
            stack.down()


@pytest.fixture
def worker(stack_of_a_team: Stack) -> Iterator[Worker]:
    worker = Worker(stack_of_a_team)
    worker.start()
    try:
        yield worker
    finally:
        worker.stop()


@pytest.mark.soak
def test_a_deployment_is_supervised_restarted_and_stopped(stack_of_a_team: Stack, worker: Worker) -> None:
    stack = stack_of_a_team
    rest = patient_rest(stack)
    rest.wait_for_dag("orders_deploy", deadline_seconds=SECONDS)
    for records in (19, 81):
        run = rest.trigger("orders_deploy", {"records": records})
        state = rest.wait("orders_deploy", run, deadline_seconds=SECONDS)
        assert state == "success", f"{rest.task_states('orders_deploy', run)}\n{worker.told()}"
    results = read_latest(stack.settings.reports, "orders")
    assert {name: result.outcome for name, result in results.items()} == {
        check.name: Outcome.PASSED for check in CHECKS
    }
    with create_engine(stack.airflow.environment()["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]).connect() as connection:
        asked = "SELECT count(*) FROM dag_run WHERE dag_id = 'orders_deploy' AND state = 'success'"
        assert connection.execute(text(asked)).scalar() == 2

    [first] = worker.jobs()
    assert os.readlink(f"/proc/{first}/ns/pid") != os.readlink("/proc/self/ns/pid")
    psutil.Process(first).kill()
    eventually(lambda: worker.jobs() not in (set(), {first}), "the killed one has a successor", SECONDS)
    [second] = worker.jobs()

    worker.stop()
    eventually(lambda: not worker.jobs(), "the aggregator has ended with the container of its worker", SECONDS)
    worker.start()
    eventually(lambda: bool(worker.jobs()), "the new worker runs the successor", SECONDS, evidence=worker.told)
    assert worker.jobs() != {second}
    run = rest.trigger("orders_deploy", {"records": 100})
    assert rest.wait("orders_deploy", run, deadline_seconds=SECONDS) == "success", worker.told()

    [aggregator] = rest.runs("orders_aggregator")
    rest.set_run_state("orders_aggregator", aggregator["dag_run_id"], "failed")
    eventually(lambda: not worker.jobs(), "the aggregator has ended with its run", SECONDS, evidence=worker.told)
    rest.close()
