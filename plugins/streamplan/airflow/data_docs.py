"""The Data Docs in Airflow: a button on each check's task, and the pages, for those who may see the health DAG."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from airflow.sdk import BaseOperatorLink
from airflow.sdk.configuration import conf

from streamplan.files import ReportPaths
from streamplan.reports.results import read_latest
from streamplan.settings import Settings

if TYPE_CHECKING:
    from fastapi import FastAPI, Request, Response

URL_PREFIX = "/streamplan"
"""The pages have the addresses ``/streamplan/<pipeline>/data_docs/...`` on Airflow's API server."""


HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
}
"""The pages have no script and load nothing, so nothing of that kind may be in them. Only Airflow may frame them."""


class DataDocsLink(BaseOperatorLink):
    """The button of a task: to the page of the run whose result the check has, else to the index of all runs.

    The last task of the run writes the page. Until then the address answers 404 and says so.
    """

    name = "Data Docs"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return the address. A task that belongs to no check leads to the index."""
        latest = read_latest(Settings.from_environment().reports, operator.pipeline)
        result = latest.get(getattr(operator, "check", ""))
        page = result.data_docs if result is not None else None
        return page_address(page or f"{operator.pipeline}/data_docs/index.html")


class SummaryLink(BaseOperatorLink):
    """The button of the task that draws a week: to the newest picture. Airflow asks when the task ends."""

    name = "Picture"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return the address; empty where nothing was drawn yet."""
        pictures = summaries(Settings.from_environment().reports, operator.pipeline)
        newest = max(pictures.glob("*.svg"), default=None)
        return "" if newest is None else picture_address(operator.pipeline, newest)


def summaries(reports: Path, pipeline: str) -> Path:
    """Return the directory of the pictures of a pipeline's weeks. It lies in the Data Docs, which are served."""
    return ReportPaths(reports, pipeline).data_docs / "summaries"


def picture_address(pipeline: str, picture: Path) -> str:
    """Return the address of such a picture."""
    return page_address(f"{pipeline}/data_docs/{picture.parent.name}/{picture.name}")


class DataDocsApp:
    """The ASGI application that serves the pages.

    It is made with the first request: other processes of Airflow load the plugin, too, and need no application.
    """

    def __init__(self) -> None:
        self._app: FastAPI | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        if self._app is None:
            self._app = _make_app()
        await self._app(scope, receive, send)


def page_address(page: str) -> str:
    """Return the address of a page on Airflow's API server.

    Args:
        page: The page, ``<pipeline>/data_docs/...``.
    """
    return f"{base_path()}{URL_PREFIX}/{quote(page)}"


def base_path() -> str:
    """Return the path under which Airflow's API server is reached, such as ``/airflow``; empty for the root."""
    return urlsplit(str(conf.get("api", "base_url", fallback=""))).path.rstrip("/")


def page_file(reports: Path, path: str) -> Path | None:
    """Return the file of a page, or None where there is none.

    Args:
        reports: The directory of all reports.
        path: The page, ``<pipeline>/data_docs/...``. Any other path has no page, so that nothing else is served.
    """
    pipeline, _, page = path.partition("/")
    try:
        root = (reports / pipeline / "data_docs").resolve()
        file = (reports / pipeline / page).resolve()
        is_page = root.parent.parent == reports.resolve() and file.is_relative_to(root) and file.is_file()
    except (OSError, ValueError):  # a name that no file can have
        return None
    return file if is_page else None


def _make_app() -> FastAPI:
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.models.resource_details import DagDetails
    from airflow.api_fastapi.core_api.security import get_user
    from fastapi import Depends, FastAPI, HTTPException
    from fastapi.responses import FileResponse

    app = FastAPI(title="Streamplan", openapi_url=None)

    def page(path: str, user: Any = Depends(get_user)) -> Any:  # noqa: B008  # FastAPI's way to ask for the user
        dag = DagDetails(id=f"{path.partition('/')[0]}_health")
        if not get_auth_manager().is_authorized_dag(method="GET", details=dag, user=user):
            raise HTTPException(403, f"You are not allowed to see the DAG {dag.id}.")
        file = page_file(Settings.from_environment().reports, path)
        if file is None:
            raise HTTPException(
                404,
                "No such page. The task data_docs writes it when all checks of the run are done. If it is done, look"
                " whether this server sees the directory STREAMPLAN_REPORTS of the workers.",
            )
        return FileResponse(file)

    async def with_headers(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        response = await answer(request)
        response.headers.update(HEADERS)
        return response

    app.get("/{path:path}", response_class=FileResponse)(page)
    app.middleware("http")(with_headers)
    return app
