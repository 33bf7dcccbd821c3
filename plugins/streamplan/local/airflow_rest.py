"""Airflow's public REST API (v2), as far as the stack of one machine and its tests need it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import httpx

from streamplan.errors import StreamplanError

FINISHED_RUN_STATES = frozenset({"success", "failed"})
POLL_SECONDS = 1.0

IMPORT_ERROR_SECONDS = 30.0
"""Airflow parses all DAG files in about the same time: a DAG that has not come by then is in the file that fails."""

_QUESTIONS = 3
"""A question is asked at most three times."""

_DATABASE_ERROR = "Database error"


class AirflowRest:
    """One user's calls to one API server.

    Every call raises :class:`StreamplanError`, with the server's address, when the server does not answer or refuses.

    Attributes:
        url: The address of the server, without a path.
    """

    def __init__(self, url: str, username: str, password: str, *, timeout_seconds: float = 30.0) -> None:
        self.url = url
        self._login = {"username": username, "password": password}
        # The server is on loopback, so proxies of the environment are ignored.
        self._http = httpx.Client(base_url=url, timeout=timeout_seconds, trust_env=False)
        self._token: str | None = None

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def health(self) -> dict[str, Any]:
        """Return ``{component: {"status": ..., "latest_..._heartbeat": ...}}``. It needs no login."""
        return self._json(self._send("GET", "/api/v2/monitor/health"))

    def dag(self, dag_id: str) -> dict[str, Any] | None:
        """Return what Airflow knows about a DAG; None while it has not parsed it."""
        try:
            return self._call("GET", f"/api/v2/dags/{dag_id}")
        except NotFound:
            return None

    def import_errors(self) -> dict[str, str]:
        """Return the DAG files that fail to import, with their stack traces."""
        errors = self._call("GET", "/api/v2/importErrors")["import_errors"]
        return {str(error["filename"]): str(error["stack_trace"]) for error in errors}

    def wait_for_dag(self, dag_id: str, *, deadline_seconds: float = 60.0) -> dict[str, Any]:
        """Wait until the DAG processor has parsed the DAG, and return it.

        A file that fails to import may be that of another DAG. So an import error ends the wait only when the DAG has
        not come :data:`IMPORT_ERROR_SECONDS` after it.

        Raises:
            StreamplanError: The deadline has passed. The error has the import errors that there are.
        """
        begun = time.monotonic()
        deadline = begun + deadline_seconds
        while (dag := self.dag(dag_id)) is None:
            errors = self.import_errors()
            if errors:
                deadline = min(deadline, time.monotonic() + IMPORT_ERROR_SECONDS)
            if time.monotonic() > deadline:
                told = "".join(f"\nimport error of {file}:\n{error.rstrip()}" for file, error in errors.items())
                raise StreamplanError(
                    f"DAG {dag_id}",
                    expected="parsed by the DAG processor",
                    observed=f"not there after {time.monotonic() - begun:.0f} s{told}",
                    remedy=f"See the DAG list at {self.url}.",
                )
            time.sleep(POLL_SECONDS)
        return dag

    def unpause(self, dag_id: str) -> None:
        """Let the scheduler run the DAG."""
        self._call("PATCH", f"/api/v2/dags/{dag_id}", json={"is_paused": False})

    def pause(self, dag_id: str) -> None:
        """Let the scheduler run the DAG no more."""
        self._call("PATCH", f"/api/v2/dags/{dag_id}", json={"is_paused": True})

    def trigger(self, dag_id: str, conf: Mapping[str, Any] | None = None) -> str:
        """Start a run with these params and return its run id."""
        body = {"logical_date": None, "conf": dict(conf or {})}
        return str(self._call("POST", f"/api/v2/dags/{dag_id}/dagRuns", json=body)["dag_run_id"])

    def run_state(self, dag_id: str, run_id: str) -> str:
        """Return ``queued``, ``running``, ``success`` or ``failed``."""
        return str(self._call("GET", f"/api/v2/dags/{dag_id}/dagRuns/{run_id}")["state"])

    def set_run_state(self, dag_id: str, run_id: str, state: str) -> None:
        """Set the state of a run, as "mark as" in the UI does. ``failed`` stops the run's tasks."""
        self._call("PATCH", f"/api/v2/dags/{dag_id}/dagRuns/{run_id}", json={"state": state})

    def runs(self, dag_id: str, *, limit: int = 20) -> list[dict[str, Any]]:
        """Return the last runs, newest first."""
        query = {"limit": limit, "order_by": "-run_after"}
        runs = self._call("GET", f"/api/v2/dags/{dag_id}/dagRuns", params=query)["dag_runs"]
        return [dict(run) for run in runs]

    def running_dags(self) -> list[str]:
        """Return the ids of the DAGs that have a running run."""
        query = {"state": "running", "limit": 100}
        runs = self._call("GET", "/api/v2/dags/~/dagRuns", params=query)["dag_runs"]
        return sorted({str(run["dag_id"]) for run in runs})

    def task_instances(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """Return the task instances of a run."""
        instances = self._call("GET", f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances")["task_instances"]
        return [dict(instance) for instance in instances]

    def task_states(self, dag_id: str, run_id: str) -> dict[str, str | None]:
        """Return the state of each task by its id; None for a task that was not scheduled yet."""
        return {str(task["task_id"]): task["state"] for task in self.task_instances(dag_id, run_id)}

    def wait(
        self,
        dag_id: str,
        run_id: str,
        *,
        deadline_seconds: float,
        on_poll: Callable[[dict[str, str | None]], None] = lambda states: None,
    ) -> str:
        """Poll until the run has finished, and return its state.

        Args:
            deadline_seconds: How long to wait.
            on_poll: Gets the states of all tasks each time.

        Raises:
            StillRuns: The deadline has passed. It has the tasks that are not done.
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
                raise StillRuns(
                    f"Run {run_id} of {dag_id}",
                    expected=f"finished within {deadline_seconds:.0f} s",
                    observed=f"{state} after {waited:.0f} s; not done yet: {_not_done(states)}",
                    remedy=f"The run goes on. See {self.run_url(dag_id, run_id)}.",
                )
            time.sleep(POLL_SECONDS)

    def task_log(self, dag_id: str, run_id: str, task_id: str, *, try_number: int = 1) -> list[str]:
        """Return the log lines of one try of a task, without their timestamps."""
        log = self._call("GET", f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/logs/{try_number}")
        return [str(line.get("event", "") if isinstance(line, dict) else line) for line in log["content"]]

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value") -> Any:
        """Return an XCom of a task."""
        path = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/xcomEntries/{key}"
        return self._call("GET", path)["value"]

    def asked(self, dag_id: str, run_id: str, task_id: str) -> dict[str, Any] | None:
        """Return what a task asks a person: ``subject``, ``body``, ``options``; None while it asks nothing."""
        try:
            return self._call("GET", self._asked(dag_id, run_id, task_id))
        except NotFound:
            return None

    def answer(self, dag_id: str, run_id: str, task_id: str, option: str) -> None:
        """Answer a task that asks a person, as the buttons under Required Actions in the UI do."""
        self._call("PATCH", self._asked(dag_id, run_id, task_id), json={"chosen_options": [option]})

    @staticmethod
    def _asked(dag_id: str, run_id: str, task_id: str) -> str:
        return f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/-1/hitlDetails"

    def run_url(self, dag_id: str, run_id: str) -> str:
        """Return the address of the run's page in the UI."""
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
        """Send a request.

        What is not answered in time is asked for again, because the machine may be busy. So is what Airflow could not
        do because its database was locked: SQLite lets one process write at a time, and can keep another waiting for
        longer than its timeout. A POST is sent once, for doing it twice would do more.
        """
        for attempt in range(1, _QUESTIONS + 1):
            is_last = attempt == _QUESTIONS
            try:
                answer = self._http.request(method, path, **arguments)
            except httpx.HTTPError as error:
                if method != "POST" and isinstance(error, httpx.TimeoutException) and not is_last:
                    continue
                raise self._no_answer(method, path, error) from error
            was_locked = answer.status_code == httpx.codes.INTERNAL_SERVER_ERROR and _DATABASE_ERROR in answer.text
            if method == "POST" or not was_locked or is_last:
                return answer
        raise AssertionError("unreachable")

    def _no_answer(self, method: str, path: str, error: httpx.HTTPError) -> StreamplanError:
        return StreamplanError(
            f"Airflow at {self.url}",
            expected=f"an answer to {method} {path}",
            observed=f"{type(error).__name__} {error}".strip(),
            remedy="`python -m streamplan status` shows whether it runs.",
        )

    def _json(self, answer: httpx.Response) -> dict[str, Any]:
        if answer.is_error:
            error_class = NotFound if answer.status_code == httpx.codes.NOT_FOUND else StreamplanError
            raise error_class(
                f"Airflow at {self.url}",
                expected=f"{answer.request.method} {answer.request.url.path} is accepted",
                observed=f"status {answer.status_code}: {answer.text[:500]}",
            )
        return dict(answer.json())


class NotFound(StreamplanError):
    """The DAG, run or task does not exist."""


class StillRuns(StreamplanError):
    """A run has not finished within a deadline."""


def _not_done(states: Mapping[str, str | None]) -> str:
    """Return ``verify.recount (running), verify.totals (not started)``."""
    left = {task: state for task, state in states.items() if state not in ("success", "skipped")}
    return ", ".join(f"{task} ({(state or 'not started').replace('_', ' ')})" for task, state in left.items()) or "none"
