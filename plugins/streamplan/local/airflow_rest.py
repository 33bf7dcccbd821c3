"""Airflow's public REST API (v2), as far as the embedded stack and its tests need it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import httpx

from streamplan.errors import StreamplanError

FINISHED_RUN_STATES = frozenset({"success", "failed"})
POLL_SECONDS = 1.0


class AirflowRest:
    """One user's calls to one API server. ``url`` is its address without a path.

    Every call raises StreamplanError, with the address, when the server is away or refuses.
    """

    def __init__(self, url: str, username: str, password: str, *, timeout_seconds: float = 30.0) -> None:
        self.url = url
        self._login = {"username": username, "password": password}
        # Loopback: a proxy of the environment has no business here.
        self._http = httpx.Client(base_url=url, timeout=timeout_seconds, trust_env=False)
        self._token: str | None = None

    def close(self) -> None:
        self._http.close()

    def health(self) -> dict[str, Any]:
        """``{component: {"status": ..., "latest_..._heartbeat": ...}}``; needs no login."""
        return self._json(self._send("GET", "/api/v2/monitor/health"))

    def dag(self, dag_id: str) -> dict[str, Any] | None:
        """What Airflow knows of a DAG; None while it has not parsed it."""
        try:
            return self._call("GET", f"/api/v2/dags/{dag_id}")
        except NotFound:
            return None

    def import_errors(self) -> dict[str, str]:
        """DAG files that do not import: file name to stack trace."""
        found = self._call("GET", "/api/v2/importErrors")["import_errors"]
        return {str(error["filename"]): str(error["stack_trace"]) for error in found}

    def wait_for_dag(self, dag_id: str, *, deadline_seconds: float = 60.0) -> dict[str, Any]:
        """Wait until the DAG processor has parsed the DAG; a file that does not import ends the wait."""
        begun = time.monotonic()
        while (dag := self.dag(dag_id)) is None:
            errors = self.import_errors()
            waited = time.monotonic() - begun
            if errors or waited > deadline_seconds:
                raise StreamplanError(
                    f"DAG {dag_id}",
                    expected="parsed by the DAG processor",
                    observed=f"import errors: {errors}" if errors else f"not there after {waited:.0f} s",
                    remedy=f"See the DAG list at {self.url}.",
                )
            time.sleep(POLL_SECONDS)
        return dag

    def unpause(self, dag_id: str) -> None:
        self._call("PATCH", f"/api/v2/dags/{dag_id}", json={"is_paused": False})

    def trigger(self, dag_id: str, conf: Mapping[str, Any] | None = None) -> str:
        """Start a run with these Params and return its run id."""
        body = {"logical_date": None, "conf": dict(conf or {})}
        return str(self._call("POST", f"/api/v2/dags/{dag_id}/dagRuns", json=body)["dag_run_id"])

    def run_state(self, dag_id: str, run_id: str) -> str:
        """``queued``, ``running``, ``success`` or ``failed``."""
        return str(self._call("GET", f"/api/v2/dags/{dag_id}/dagRuns/{run_id}")["state"])

    def set_run_state(self, dag_id: str, run_id: str, state: str) -> None:
        """What the UI's "mark as" does: ``failed`` stops the run's tasks."""
        self._call("PATCH", f"/api/v2/dags/{dag_id}/dagRuns/{run_id}", json={"state": state})

    def runs(self, dag_id: str, *, limit: int = 20) -> list[dict[str, Any]]:
        """The last runs, newest first."""
        query = {"limit": limit, "order_by": "-run_after"}
        found = self._call("GET", f"/api/v2/dags/{dag_id}/dagRuns", params=query)["dag_runs"]
        return [dict(run) for run in found]

    def task_instances(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        found = self._call("GET", f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances")["task_instances"]
        return [dict(instance) for instance in found]

    def task_states(self, dag_id: str, run_id: str) -> dict[str, str | None]:
        """Task id to state; None for a task that was not scheduled yet."""
        return {str(task["task_id"]): task["state"] for task in self.task_instances(dag_id, run_id)}

    def wait(
        self,
        dag_id: str,
        run_id: str,
        *,
        deadline_seconds: float,
        on_poll: Callable[[dict[str, str | None]], None] = lambda states: None,
    ) -> str:
        """Poll until the run has finished and return its state; ``on_poll`` gets the task states every time.

        Raises StreamplanError with the task states when it has not finished by the deadline.
        """
        begun = time.monotonic()
        while True:
            state = self.run_state(dag_id, run_id)
            states = self.task_states(dag_id, run_id)
            on_poll(states)
            if state in FINISHED_RUN_STATES:
                return state
            waited = time.monotonic() - begun
            if waited > deadline_seconds:
                raise StreamplanError(
                    f"Run {run_id} of {dag_id}",
                    expected=f"finished within {deadline_seconds:g} s",
                    observed=f"{state} after {waited:.0f} s; tasks {states}",
                    remedy=f"See {self.run_url(dag_id, run_id)}.",
                )
            time.sleep(POLL_SECONDS)

    def task_log(self, dag_id: str, run_id: str, task_id: str, *, try_number: int = 1) -> list[str]:
        """The log lines of one try of a task, without their timestamps."""
        found = self._call("GET", f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/logs/{try_number}")
        return [str(line.get("event", "") if isinstance(line, dict) else line) for line in found["content"]]

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value") -> Any:
        path = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/xcomEntries/{key}"
        return self._call("GET", path)["value"]

    def asked(self, dag_id: str, run_id: str, task_id: str) -> dict[str, Any] | None:
        """What a person is asked by a task: ``subject``, ``body``, ``options``; None where it asks nothing (yet)."""
        try:
            return self._call("GET", self._asked(dag_id, run_id, task_id))
        except NotFound:
            return None

    def answer(self, dag_id: str, run_id: str, task_id: str, option: str) -> None:
        """What the UI's buttons under Required Actions do."""
        self._call("PATCH", self._asked(dag_id, run_id, task_id), json={"chosen_options": [option]})

    @staticmethod
    def _asked(dag_id: str, run_id: str, task_id: str) -> str:
        return f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/-1/hitlDetails"

    def run_url(self, dag_id: str, run_id: str) -> str:
        """The run's page in the UI."""
        return f"{self.url}/dags/{dag_id}/runs/{run_id}"

    def _call(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        if self._token is None:
            self._log_in()
        answer = self._send(method, path, headers=self._headers(), **arguments)
        if answer.status_code == httpx.codes.UNAUTHORIZED:  # the token expired
            self._log_in()
            answer = self._send(method, path, headers=self._headers(), **arguments)
        return self._json(answer)

    def _log_in(self) -> None:
        self._token = str(self._json(self._send("POST", "/auth/token", json=self._login))["access_token"])

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}", "Accept": "application/json"}

    def _send(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        try:
            return self._http.request(method, path, **arguments)
        except httpx.HTTPError as fault:
            raise StreamplanError(
                f"Airflow at {self.url}",
                expected=f"an answer to {method} {path}",
                observed=f"{type(fault).__name__} {fault}".strip(),
                remedy="Is it up? `python -m streamplan status` tells.",
            ) from fault

    def _json(self, answer: httpx.Response) -> dict[str, Any]:
        if answer.is_error:
            kind = NotFound if answer.status_code == httpx.codes.NOT_FOUND else StreamplanError
            raise kind(
                f"Airflow at {self.url}",
                expected=f"{answer.request.method} {answer.request.url.path} is accepted",
                observed=f"status {answer.status_code}: {answer.text[:500]}",
            )
        return dict(answer.json())


class NotFound(StreamplanError):
    """The DAG, run or task is not there."""
