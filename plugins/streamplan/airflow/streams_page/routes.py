"""The addresses of the Streams page. They only read, and answer those who may see the health DAG of a pipeline."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from importlib.resources import files
from threading import Lock
from typing import TYPE_CHECKING, Any

from streamplan.airflow.connections import brokers
from streamplan.checks.framework.application import Application, application_in
from streamplan.errors import Refused, StreamplanError
from streamplan.kafka.cluster import KafkaCluster
from streamplan.model.pipeline import Pipeline
from streamplan.observability.diagram import diagram_of, svg
from streamplan.observability.lookup import find_key, newest_dead_letters, read_records
from streamplan.observability.sampler import Sampler
from streamplan.registry import pipeline_named, registered_pipelines
from streamplan.reports.results import read_history
from streamplan.settings import Settings

if TYPE_CHECKING:
    from fastapi import FastAPI, Request, Response

SNAPSHOT_SECONDS = 4.0
"""A snapshot is this old at most. All who look at a pipeline share it, so that the brokers are not asked more often."""

ANSWER_SECONDS = 10.0
"""How long the brokers have for an answer. A person who waits longer wants to be told."""

DEAD_LETTERS = 100
RECORDS = 25
HISTORY = 500

_STATIC = {
    "page.css": "text/css",
    "page.js": "text/javascript",
    "icon.svg": "image/svg+xml",
    "icon-dark.svg": "image/svg+xml",
}

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
}


class _Pipelines:
    """The sampler of each pipeline that somebody looks at."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._samplers: dict[str, Sampler] = {}

    def snapshot(self, name: str) -> dict[str, Any]:
        """Return the snapshot of a pipeline."""
        with self._lock:
            sampler = self._samplers.get(name)
            if sampler is None:
                sampler = self._samplers[name] = _sampler(pipeline_named(name))
        snapshot = sampler.latest(SNAPSHOT_SECONDS)
        if snapshot.problem:  # the connection may be corrected before the next question
            with self._lock:
                self._samplers.pop(name, None)
        return asdict(snapshot)


def _cluster(pipeline: Pipeline) -> KafkaCluster:
    return KafkaCluster(brokers(pipeline.name), deadline_seconds=ANSWER_SECONDS)


def _sampler(pipeline: Pipeline) -> Sampler:
    cluster = _cluster(pipeline)
    return Sampler(lambda: _application(pipeline, cluster), pipeline.name, cluster, Settings.from_environment().reports)


def _application(pipeline: Pipeline, cluster: KafkaCluster) -> Application:
    cluster.names()  # where Kafka does not answer, it is waited for once
    return application_in(pipeline, cluster)


def make_app() -> FastAPI:
    """Make the application with its routes."""
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.models.resource_details import DagDetails
    from airflow.api_fastapi.core_api.security import get_user
    from fastapi import Depends, FastAPI, HTTPException
    from fastapi import Response as Answer
    from fastapi.responses import JSONResponse

    app = FastAPI(title="Streams", openapi_url=None)
    pipelines = _Pipelines()
    user_of_request = Depends(get_user)

    def may_see(name: str, user: Any) -> bool:
        details = DagDetails(id=f"{name}_health")
        return bool(get_auth_manager().is_authorized_dag(method="GET", details=details, user=user))

    def pipeline(name: str, user: Any = user_of_request) -> Pipeline:
        if not may_see(name, user):
            raise HTTPException(403, f"You are not allowed to see the DAG {name}_health.")
        return pipeline_named(name)

    chosen = Depends(pipeline)

    @app.get("/")
    def page(user: Any = user_of_request) -> Answer:
        return Answer(_read("page.html"), media_type="text/html")

    @app.get("/static/{name}")
    def static(name: str) -> Answer:
        if name not in _STATIC:
            raise HTTPException(404, "No such file")
        return Answer(_read(name), media_type=_STATIC[name])

    @app.get("/api/pipelines")
    def names(user: Any = user_of_request) -> list[str]:
        return [each.name for each in registered_pipelines() if may_see(each.name, user)]

    @app.get("/api/pipelines/{name}")
    def snapshot(pipeline: Pipeline = chosen) -> dict[str, Any]:
        return pipelines.snapshot(pipeline.name)

    @app.get("/api/pipelines/{name}/topology.svg")
    def topology(pipeline: Pipeline = chosen) -> Answer:
        return Answer(svg(diagram_of(pipeline)), media_type="image/svg+xml")

    @app.get("/api/pipelines/{name}/history")
    def history(pipeline: Pipeline = chosen) -> list[dict[str, Any]]:
        found = read_history(Settings.from_environment().reports, pipeline.name, last=HISTORY)
        return [{"check": each.check, "outcome": each.outcome, "at": each.at, "reason": each.reason} for each in found]

    @app.get("/api/pipelines/{name}/dead-letters")
    def dead_letters(pipeline: Pipeline = chosen) -> list[dict[str, Any]]:
        cluster = _cluster(pipeline)
        return [asdict(each) for each in newest_dead_letters(_application(pipeline, cluster), cluster, DEAD_LETTERS)]

    @app.get("/api/pipelines/{name}/records")
    def records(
        topic: str,
        partition: int | None = None,
        offset: int | None = None,
        containing: str = "",
        pipeline: Pipeline = chosen,
    ) -> list[dict[str, Any]]:
        cluster = _cluster(pipeline)
        found = read_records(
            _application(pipeline, cluster),
            cluster,
            topic,
            last=RECORDS,
            partition=partition,
            offset=offset,
            containing=containing,
        )
        return [asdict(each) for each in found]

    @app.get("/api/pipelines/{name}/keys")
    def keys(key: str, pipeline: Pipeline = chosen) -> list[dict[str, Any]]:
        cluster = _cluster(pipeline)
        return [asdict(each) for each in find_key(_application(pipeline, cluster), cluster, key)]

    @app.exception_handler(StreamplanError)
    def told(request: Request, error: StreamplanError) -> Response:
        return JSONResponse({"detail": str(error)}, status_code=404 if isinstance(error, Refused) else 503)

    @app.middleware("http")
    async def with_headers(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        response = await answer(request)
        response.headers.update(HEADERS)
        return response

    return app


def _read(name: str) -> bytes:
    return (files("streamplan.airflow.streams_page") / name).read_bytes()
