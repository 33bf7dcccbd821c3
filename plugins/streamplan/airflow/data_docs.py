"""The Data Docs in Airflow's UI: a button on each check's task, and its page, for those who may see the DAG."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from airflow.sdk import BaseOperatorLink
from airflow.sdk.configuration import conf

from streamplan.reports.results import read_latest
from streamplan.settings import Settings

if TYPE_CHECKING:
    from fastapi import FastAPI

URL_PREFIX = "/streamplan"


class DataDocsLink(BaseOperatorLink):
    """To the page of the run's result, or to all of the pipeline where a check could not look."""

    name = "Data Docs"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        latest = read_latest(Settings.from_environment().reports, operator.pipeline).get(operator.check)
        page = latest.data_docs if latest is not None else None
        prefix = urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/")
        return f"{prefix}{URL_PREFIX}/{quote(page or f'{operator.pipeline}/data_docs/index.html')}"


class DataDocsApp:
    """The ASGI application, made when the API server is first asked: other processes load the plugin, too."""

    def __init__(self) -> None:
        self._app: FastAPI | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self._app is None:
            self._app = _make_app()
        await self._app(scope, receive, send)


def page_file(reports: Path, path: str) -> Path | None:
    """The file of ``<pipeline>/data_docs/...``; None for one that is not there, or is something else."""
    pipeline, _, page = path.partition("/")
    root = (reports / pipeline / "data_docs").resolve()
    file = (reports / pipeline / page).resolve()
    return file if root.parent.parent == reports.resolve() and file.is_relative_to(root) and file.is_file() else None


def _make_app() -> FastAPI:
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.models.resource_details import DagDetails
    from airflow.api_fastapi.core_api.security import get_user
    from fastapi import Depends, FastAPI, HTTPException
    from fastapi.responses import FileResponse

    app = FastAPI(title="Streamplan", openapi_url=None)

    def page(path: str, user: Any = Depends(get_user)) -> Any:  # noqa: B008  # so FastAPI is told
        dag = DagDetails(id=f"{path.partition('/')[0]}_health")
        if not get_auth_manager().is_authorized_dag(method="GET", details=dag, user=user):
            raise HTTPException(403, "Not allowed to see this pipeline")
        file = page_file(Settings.from_environment().reports, path)
        if file is None:
            raise HTTPException(404, "No such page. Has a check run, and does this server see STREAMPLAN_REPORTS?")
        return FileResponse(file)

    app.get("/{path:path}", response_class=FileResponse)(page)
    return app
