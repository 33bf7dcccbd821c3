from __future__ import annotations

import httpx
import pytest
from streamplan.errors import StreamplanError
from streamplan.local.airflow_rest import AirflowRest, StillRuns


def server(rest: AirflowRest, *, slow_answers: int) -> list[str]:
    """Let an API server answer that is too slow for the first requests; return the requests that it gets."""
    requests: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(f"{request.method} {request.url.path}")
        if len(requests) <= slow_answers:
            raise httpx.ReadTimeout("timed out", request=request)
        return httpx.Response(200, json={"access_token": "token"})

    rest._http = httpx.Client(transport=httpx.MockTransport(answer), base_url=rest.url)
    return requests


def test_a_question_that_is_not_answered_in_time_is_asked_again() -> None:
    rest = AirflowRest("http://airflow", "user", "password")
    requests = server(rest, slow_answers=2)
    assert rest.health() == {"access_token": "token"}
    assert requests == ["GET /api/v2/monitor/health"] * 3


def test_what_can_be_done_twice_is_asked_for_again() -> None:
    rest = AirflowRest("http://airflow", "user", "password")
    rest._token = "token"
    requests = server(rest, slow_answers=2)
    rest.unpause("orders_deploy")
    assert requests == ["PATCH /api/v2/dags/orders_deploy"] * 3


def test_an_order_is_given_once() -> None:
    """The server may have obeyed, and only its answer is late."""
    rest = AirflowRest("http://airflow", "user", "password")
    requests = server(rest, slow_answers=1)
    with pytest.raises(StreamplanError, match="expected an answer to POST /auth/token, observed ReadTimeout"):
        rest.trigger("orders_deploy", {})
    assert requests == ["POST /auth/token"]


@pytest.mark.parametrize(("method", "asked"), [("GET", 2), ("PATCH", 2), ("POST", 1)])
def test_what_a_locked_database_refused_is_asked_for_again_where_that_does_no_harm(method: str, asked: int) -> None:
    requests: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request.method)
        if len(requests) == 1:
            return httpx.Response(500, json={"detail": {"reason": "Database error", "orig_error": "hidden"}})
        return httpx.Response(200, json={})

    rest = AirflowRest("http://airflow", "user", "password")
    rest._http = httpx.Client(transport=httpx.MockTransport(answer), base_url=rest.url)
    rest._send(method, "/api/v2/dags/orders_deploy")
    assert requests == [method] * asked


@pytest.mark.parametrize(("comes", "asked"), [(True, 3), (False, 4)])
def test_an_import_error_of_another_file_does_not_end_the_wait_for_a_dag(
    comes: bool, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr("streamplan.local.airflow_rest.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("streamplan.local.airflow_rest.time.sleep", lambda seconds: clock.__setitem__(0, clock[0] + 11))
    looks: list[str] = []
    errors = [{"filename": "broken.py", "stack_trace": "File their_broken.py, line 7\nImportError"}]

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/importErrors"):
            return httpx.Response(200, json={"import_errors": errors})
        looks.append(request.url.path)
        return httpx.Response(200 if comes and len(looks) == 3 else 404, json={"dag_id": "orders_deploy"})

    rest = AirflowRest("http://airflow", "user", "password")
    rest._token = "token"
    rest._http = httpx.Client(transport=httpx.MockTransport(answer), base_url=rest.url)
    if comes:
        assert rest.wait_for_dag("orders_deploy") == {"dag_id": "orders_deploy"}
    else:
        with pytest.raises(StreamplanError, match=r"import error of broken.py:\nFile their_broken.py, line 7"):
            rest.wait_for_dag("orders_deploy")
    assert len(looks) == asked


def test_a_run_that_has_not_finished_in_time_is_told_with_its_tasks_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("streamplan.local.airflow_rest.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("streamplan.local.airflow_rest.time.sleep", lambda seconds: clock.__setitem__(0, clock[0] + 11))
    states = {"topics": "success", "produce": "skipped", "verify.recount": "up_for_retry", "verify.totals": None}

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/taskInstances"):
            tasks = [{"task_id": task, "state": state} for task, state in states.items()]
            return httpx.Response(200, json={"task_instances": tasks})
        return httpx.Response(200, json={"state": "running"})

    rest = AirflowRest("http://airflow", "user", "password")
    rest._token = "token"
    rest._http = httpx.Client(transport=httpx.MockTransport(answer), base_url=rest.url)
    with pytest.raises(StillRuns) as raised:
        rest.wait("orders_deploy", "manual__1", deadline_seconds=10)
    assert str(raised.value) == (
        "Run manual__1 of orders_deploy: expected finished within 10 s, observed running after 11 s; not done yet: "
        "verify.recount (up for retry), verify.totals (not started). The run goes on. See "
        "http://airflow/dags/orders_deploy/runs/manual__1."
    )


def test_the_dags_that_run_are_asked_for_in_one_question() -> None:
    questions: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        questions.append(f"{request.url.path}?{request.url.query.decode()}")
        return httpx.Response(200, json={"dag_runs": [{"dag_id": "b"}, {"dag_id": "a"}, {"dag_id": "b"}]})

    rest = AirflowRest("http://airflow", "user", "password")
    rest._token = "token"
    rest._http = httpx.Client(transport=httpx.MockTransport(answer), base_url=rest.url)
    assert rest.running_dags() == ["a", "b"]
    assert questions == ["/api/v2/dags/~/dagRuns?state=running&limit=100"]
