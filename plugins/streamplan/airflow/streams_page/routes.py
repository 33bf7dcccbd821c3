"""The addresses of the Streams page. They only read.

Those of a pipeline answer whoever may see its health DAG. Those of any other application answer whoever may see the
connection to its brokers, and the health DAG, too, where a pipeline has results under the same name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from threading import Lock
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse

from streamplan.airflow.connections import brokers_in, connection
from streamplan.airflow.streams_page.overview import Overview
from streamplan.checks.totals import CHECK as TOTALS
from streamplan.errors import Refused, StreamplanError
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.observability.diagram import svg
from streamplan.observability.lookup import find_key, moment, newest_dead_letters, read_records
from streamplan.observability.observed import Observed
from streamplan.observability.sampler import Sampler
from streamplan.observability.topic_view import view_topic
from streamplan.observability.verified_days import first_moment, verified_days
from streamplan.registry import broken_pipelines, pipeline_named, registered_pipelines
from streamplan.reports.check_context import read_state_store
from streamplan.reports.redrive_outcome import read_outcome
from streamplan.reports.results import MOST_RESULTS, has_history, read_history
from streamplan.settings import Settings

SNAPSHOT_SECONDS = 4.0
"""A snapshot is this old at most. All who look at a pipeline share it, so that the brokers are not asked more often."""

ANSWER_SECONDS = 10.0
"""How long the brokers have for an answer. A person who waits longer wants to be told."""

DEAD_LETTERS = 100
RECORDS = 25
HISTORY = 500

_MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
"""What is served as it is, by the ends of its names."""

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
}


@dataclass(frozen=True)
class _Chosen:
    """The application that a request is about."""

    name: str
    kafka_conn_id: str
    is_declared: bool

    def observed(self) -> Observed:
        """Read the connection, and return the application with its brokers."""
        pipeline = pipeline_named(self.name) if self.is_declared else None
        return Observed(self.name, _cluster(self.kafka_conn_id), pipeline)


class _Samplers:
    """The sampler of each application that somebody looks at. All who look at one share it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._samplers: dict[_Chosen, tuple[Brokers, Sampler]] = {}

    def snapshot(self, chosen: _Chosen) -> dict[str, Any]:
        """Return the snapshot of an application."""
        brokers = brokers_in(chosen.kafka_conn_id, connection(chosen.kafka_conn_id))  # somebody may have edited it
        with self._lock:
            known = self._samplers.get(chosen)
            if known is not None and known[0] == brokers:
                sampler = known[1]
            else:
                observed, reports = chosen.observed(), Settings.from_environment().reports
                sampler = Sampler(observed.find, observed.name, observed.cluster, reports)
                self._samplers[chosen] = brokers, sampler
        snapshot = sampler.latest(SNAPSHOT_SECONDS)
        if snapshot.problem:  # the connection may be corrected before the next question
            with self._lock:
                self._samplers.pop(chosen, None)
        return asdict(snapshot)


def _cluster(kafka_conn_id: str) -> KafkaCluster:
    return KafkaCluster(brokers_in(kafka_conn_id, connection(kafka_conn_id)), deadline_seconds=ANSWER_SECONDS)


def make_app() -> FastAPI:
    """Make the application with its routes."""
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, ConnectionDetails, DagDetails
    from airflow.api_fastapi.core_api.security import get_user

    app = FastAPI(title="Streams", openapi_url=None)
    overview = Overview(lambda kafka_conn_id: _cluster(kafka_conn_id))
    user_of_request = Depends(get_user)

    def may_see(pipeline: str, user: Any) -> bool:
        details = DagDetails(id=f"{pipeline}_health")
        return bool(get_auth_manager().is_authorized_dag(method="GET", details=details, user=user))

    def declared(name: str, user: Any = user_of_request) -> _Chosen:
        if not may_see(name, user):
            raise HTTPException(403, f"You are not allowed to see the DAG {name}_health.")
        return _Chosen(name, pipeline_named(name).kafka_conn_id, is_declared=True)

    def may_see_connection(kafka_conn_id: str, user: Any = user_of_request) -> str:
        details = ConnectionDetails(conn_id=kafka_conn_id)
        if not get_auth_manager().is_authorized_connection(method="GET", details=details, user=user):
            raise HTTPException(403, f"You are not allowed to see the connection {kafka_conn_id}.")
        return kafka_conn_id

    connection_of_request = Depends(may_see_connection)

    def discovered(name: str, user: Any = user_of_request, kafka_conn_id: str = connection_of_request) -> _Chosen:
        is_pipeline = any(each.name == name for each in registered_pipelines())
        # The reports of this name are those of a pipeline, whatever the application of this name is.
        if (is_pipeline or has_history(Settings.from_environment().reports, name)) and not may_see(name, user):
            raise HTTPException(403, f"You are not allowed to see the DAG {name}_health.")
        return _Chosen(name, kafka_conn_id, is_declared=False)

    @app.get("/")
    def page(user: Any = user_of_request) -> Response:
        return Response((files(__package__) / "page.html").read_bytes(), media_type="text/html")

    @app.get("/static/{name}")
    def static(name: str) -> Response:
        served = {each.name: each for each in files(__package__).iterdir() if Path(each.name).suffix in _MEDIA_TYPES}
        if name not in served:
            raise HTTPException(404, "No such file")
        return Response(served[name].read_bytes(), media_type=_MEDIA_TYPES[Path(name).suffix])

    @app.get("/api/pipelines")
    def pipelines(user: Any = user_of_request) -> list[str]:
        return [each.name for each in registered_pipelines() if may_see(each.name, user)]

    @app.get("/api/overview")
    def all_pipelines(user: Any = user_of_request) -> dict[str, Any]:
        visible = [each for each in registered_pipelines() if may_see(each.name, user)]
        rows = overview.rows(visible, Settings.from_environment().reports)
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        return {"at": at, "rows": [asdict(row) for row in rows], "pending": len(visible) - len(rows)}

    @app.get("/api/broken-pipelines")
    def broken(user: Any = user_of_request) -> list[str]:
        view = AccessView.IMPORT_ERRORS  # where Airflow shows the same
        may_see_errors = get_auth_manager().is_authorized_view(access_view=view, user=user)
        return [str(each) for each in broken_pipelines()] if may_see_errors else []

    @app.get("/api/connections/{kafka_conn_id}/applications")
    def consumer_groups(kafka_conn_id: str = connection_of_request) -> Sequence[str]:
        return _cluster(kafka_conn_id).groups()

    app.include_router(_addresses_of_one(Depends(declared)), prefix="/api/pipelines/{name}")
    application = "/api/connections/{kafka_conn_id}/applications/{name}"
    app.include_router(_addresses_of_one(Depends(discovered)), prefix=application)

    @app.exception_handler(StreamplanError)
    def told(request: Request, error: StreamplanError) -> Response:
        return JSONResponse({"detail": str(error)}, status_code=404 if isinstance(error, Refused) else 503)

    @app.middleware("http")
    async def with_headers(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        response = await answer(request)
        response.headers.update(HEADERS)
        return response

    return app


def _addresses_of_one(chosen: Any) -> APIRouter:
    """Return the addresses below that of one application.

    Args:
        chosen: FastAPI's dependency that returns the application and refuses those who may not see it.
    """
    router = APIRouter()
    samplers = _Samplers()

    @router.get("")
    def snapshot(asked: _Chosen = chosen) -> dict[str, Any]:
        return samplers.snapshot(asked)

    @router.get("/topology.svg")
    def topology(asked: _Chosen = chosen) -> Response:
        return Response(svg(asked.observed().diagram()), media_type="image/svg+xml")

    @router.get("/history")
    def history(asked: _Chosen = chosen) -> list[dict[str, Any]]:
        found = read_history(Settings.from_environment().reports, asked.name, last=HISTORY)
        return [{"check": each.check, "outcome": each.outcome, "at": each.at, "reason": each.reason} for each in found]

    @router.get("/redrive")
    def last_redrive(asked: _Chosen = chosen) -> dict[str, Any] | None:
        outcome = read_outcome(Settings.from_environment().reports, asked.name)
        return asdict(outcome) if outcome else None

    @router.get("/verified-days")
    def days(asked: _Chosen = chosen) -> list[dict[str, Any]]:
        now = datetime.now(UTC)
        reports = Settings.from_environment().reports
        found = read_history(reports, asked.name, last=MOST_RESULTS, check=TOTALS.name, since=first_moment(now))
        return [asdict(each) for each in verified_days(found, now)]

    @router.get("/dead-letters")
    def dead_letters(asked: _Chosen = chosen) -> list[dict[str, Any]]:
        observed = asked.observed()
        return [asdict(each) for each in newest_dead_letters(observed.find(), observed.cluster, DEAD_LETTERS)]

    @router.get("/records")
    def records(
        topic: str,
        partition: int | None = None,
        offset: int | None = None,
        since: str = "",
        uncommitted: bool = False,
        containing: str = "",
        asked: _Chosen = chosen,
    ) -> list[dict[str, Any]]:
        observed = asked.observed()
        found = read_records(
            observed.find(),
            observed.cluster,
            topic,
            last=RECORDS,
            partition=partition,
            offset=offset,
            since=moment(since),
            uncommitted=uncommitted,
            containing=containing,
        )
        return [asdict(each) for each in found]

    @router.get("/topics/{topic}")
    def topic(topic: str, asked: _Chosen = chosen) -> dict[str, Any]:
        observed = asked.observed()
        return asdict(view_topic(observed.find(), observed.cluster, topic))

    @router.get("/keys")
    def keys(key: str, asked: _Chosen = chosen) -> list[dict[str, Any]]:
        observed = asked.observed()
        application = observed.find()
        held = read_state_store(Settings.from_environment().reports, observed.name) if application.declared else None
        of_store = {aggregation.changelog for aggregation in application.aggregations}
        return [
            {**asdict(each), "in_state_store": held.totals.get(key.encode()) if each.changelog in of_store else None}
            if held
            else asdict(each)
            for each in find_key(application, observed.cluster, key)
        ]

    return router
