"""The commands of docs/operations.md that trigger and approve DAGs, compared with the Airflow that is installed."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from airflow.api_fastapi.core_api.datamodels.dag_run import DAGRunPatchBody, TriggerDAGRunPostBody
from airflow.api_fastapi.core_api.datamodels.dags import DAGPatchBody
from airflow.api_fastapi.core_api.datamodels.hitl import UpdateHITLDetailPayload
from airflow.api_fastapi.core_api.routes.public import public_router
from airflow.cli.cli_parser import get_parser
from airflow.providers.standard.operators.hitl import ApprovalOperator

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
SECTION = PAGE.partition("## Trigger and approve from a shell\n")[2].partition("\n## ")[0]
CALLS = [shlex.split(line) for line in re.findall(r"call ((?:GET|POST|PATCH) [^`\n|]*)", SECTION)]
RUN = "dags/orders_reset/dagRuns/reset-of-may"
BODIES = {
    "dags/{dag_id}": DAGPatchBody,
    "dags/{dag_id}/dagRuns": TriggerDAGRunPostBody,
    "dags/{dag_id}/dagRuns/{dag_run_id}": DAGRunPatchBody,
    "dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/{task_id}/{map_index}/hitlDetails": UpdateHITLDetailPayload,
}


def route(method: str, path: str) -> str:
    """The route of Airflow's REST API that takes a request."""
    path = path.partition("?")[0]
    routes: list[Any] = [*public_router.routes]
    [found] = [
        each.path
        for each in routes
        if method in getattr(each, "methods", ())
        and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", each.path), f"/api/v2/{path}")
    ]
    return str(found).removeprefix("/api/v2/")


def test_the_page_shows_the_whole_way_of_an_operation() -> None:
    assert f"export RUN={RUN}\n" in SECTION
    assert [method for method, *_ in CALLS] == ["PATCH", "POST", "GET", "PATCH", "GET", "PATCH"]


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_airflow_takes_a_request(call: list[str]) -> None:
    method, path, *given = call
    taken = route(method, path.replace("$RUN", RUN))
    assert (method == "GET") == (not given)
    if given:
        option, body = given
        assert option == "-d"
        BODIES[taken].model_validate(json.loads(body))


def test_an_answer_is_one_of_the_two_that_there_are() -> None:
    assert f'["{ApprovalOperator.APPROVE}"]' in SECTION
    assert f'`"{ApprovalOperator.REJECT}"`' in SECTION


@pytest.mark.parametrize("command", re.findall(r"^    airflow (.*)$", SECTION, re.M))
def test_airflow_s_command_line_takes_a_command(command: str) -> None:
    assert get_parser().parse_args(shlex.split(command)).func
