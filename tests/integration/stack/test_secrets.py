"""A deployment on secured brokers shows the password of its connection nowhere."""

from __future__ import annotations

import json
from pathlib import Path

from streamplan.local.stack import Stack

from tests.support.airflow_rest import patient_rest
from tests.support.secrets import files_that_show, processes_that_show

DEPLOY_SECONDS = 900.0


def test_a_deployment_shows_the_password_in_no_process_log_report_or_field(stack: Stack) -> None:
    """Airflow's database is a file here: it has the rendered templates, the XComs and the audit log."""
    password = stack.kafka.brokers.properties["sasl.password"]
    rest = patient_rest(stack)
    rest.wait_for_dag("orders_deploy", deadline_seconds=DEPLOY_SECONDS)
    with processes_that_show(password) as found:
        run = rest.trigger("orders_deploy", {"records": 19})
        state = rest.wait("orders_deploy", run, deadline_seconds=DEPLOY_SECONDS)
    assert state == "success", rest.task_states("orders_deploy", run)
    assert found == set()
    home = stack.settings.home
    assert files_that_show(password, home) == set()
    private = {file.relative_to(home).as_posix() for file in home.rglob("*") if _has(file, password)}
    assert private == {"security/passwords.json", "airflow/connections.json"}
    assert password not in json.dumps(rest.task_instances("orders_deploy", run))


def _has(file: Path, password: str) -> bool:
    try:
        return file.is_file() and password.encode() in file.read_bytes()
    except FileNotFoundError:
        return False
