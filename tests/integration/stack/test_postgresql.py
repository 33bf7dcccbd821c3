"""The deployment with PostgreSQL as Airflow's metadata database, as in ``docker-compose.yml``."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping

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
from streamplan.settings import Settings

from tests.support.airflow_rest import patient_rest
from tests.support.postgresql import postgresql, programs
from tests.support.waiting import eventually

DEPLOY_SECONDS = 900.0


class AirflowOn(LocalAirflow):
    """Airflow's processes with another metadata database."""

    database: str

    def _variables(self, *arguments: object, **more: object) -> dict[str, str]:
        variables: Mapping[str, str] = super()._variables(*arguments, **more)  # type: ignore[arg-type]
        return {**variables, "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": self.database}


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    directory = programs()
    if directory is None:
        pytest.skip("Debian's package postgresql is not installed")
    with postgresql(directory) as address:
        yield address


@pytest.fixture(scope="module")
def stack_on_postgresql(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    home = tmp_path_factory.mktemp("on postgresql")
    base = random.randrange(15_000, 30_000, 10)
    names = {**DEFAULT_PORTS, **AIRFLOW_PORTS}
    (home / "stack.json").write_text(json.dumps({name: base + offset for offset, name in enumerate(sorted(names))}))
    stack = Stack(Settings.from_environment({"STREAMPLAN_HOME": str(home)}))
    stack.airflow = AirflowOn(stack.settings, Ports(home / "stack.json", names))
    stack.airflow.database = database
    try:
        stack.up()
        yield stack
    finally:
        stack.down()


@pytest.mark.soak
def test_a_deployment_is_supervised_restarted_and_stopped(stack_on_postgresql: Stack, database: str) -> None:
    stack = stack_on_postgresql
    rest = patient_rest(stack)
    rest.wait_for_dag("orders_deploy", deadline_seconds=DEPLOY_SECONDS)
    for records in (19, 81):
        run = rest.trigger("orders_deploy", {"records": records})
        state = rest.wait("orders_deploy", run, deadline_seconds=DEPLOY_SECONDS)
        assert state == "success", rest.task_states("orders_deploy", run)
    results = read_latest(stack.settings.reports, "orders")
    assert {name: result.outcome for name, result in results.items()} == {
        check.name: Outcome.PASSED for check in CHECKS
    }
    [aggregator] = rest.runs("orders_aggregator")
    with create_engine(database).connect() as connection:
        asked = "SELECT count(*) FROM dag_run WHERE dag_id = 'orders_deploy' AND state = 'success'"
        assert connection.execute(text(asked)).scalar() == 2

    def job() -> processes.ProcessRef | None:
        found = processes.find(stack.settings.run, "orders-aggregator")
        return found if found is not None and processes.is_alive(found) else None

    first = job()
    assert first is not None
    processes.stop(first, grace_seconds=0.0)
    eventually(lambda: job() not in (None, first), "the aggregator is started again", DEPLOY_SECONDS)
    rest.set_run_state("orders_aggregator", aggregator["dag_run_id"], "failed")
    eventually(lambda: job() is None, "the aggregator has ended with its run", DEPLOY_SECONDS)
