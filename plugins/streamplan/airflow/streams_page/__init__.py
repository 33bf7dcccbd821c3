"""The Streams page in Airflow: what each pipeline does now, for those who may see its health DAG.

``page.html``, ``page.css`` and the modules in JavaScript, of which ``page.js`` is the first, are served as they are.
They load nothing from outside and need no build.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from airflow.sdk import BaseOperatorLink

from streamplan.airflow.data_docs import base_path

if TYPE_CHECKING:
    from fastapi import FastAPI

URL_PREFIX = "/streams"
"""The page has the address ``/streams/`` on Airflow's API server."""

NAVIGATION = {
    "name": "Streams",
    "href": f"{base_path()}{URL_PREFIX}/",
    "destination": "nav",
    "url_route": "streams-page",
    "icon": f"{base_path()}{URL_PREFIX}/static/icon.svg",
    "icon_dark_mode": f"{base_path()}{URL_PREFIX}/static/icon-dark.svg",
}
"""Airflow shows the page in a frame of its own, below its navigation."""


def page_address(pipeline: str, part: str = "") -> str:
    """Return the address in Airflow at which the page shows a pipeline, in Airflow's frame.

    Airflow's own address of a page in a frame ends with the address of what is in the frame.

    Args:
        pipeline: The name of the pipeline.
        part: The part that is brought into sight, such as ``check-lag``; empty for the top.
    """
    inner = f"{base_path()}{URL_PREFIX}/?{urlencode({'pipeline': pipeline})}{f'#{part}' if part else ''}"
    return f"{base_path()}/plugin/{NAVIGATION['url_route']}{inner}"


class StreamsLink(BaseOperatorLink):
    """The button of a check's task: to what the page says of the check and its pipeline now."""

    name = "Streams"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return the address."""
        return page_address(operator.pipeline, f"check-{operator.check}")


class StreamsApp:
    """The ASGI application of the page.

    It is made with the first request: other processes of Airflow load the plugin, too, and need neither Kafka's client
    nor an application.
    """

    def __init__(self) -> None:
        self._app: FastAPI | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        if self._app is None:
            from streamplan.airflow.streams_page.routes import make_app

            self._app = make_app()
        await self._app(scope, receive, send)
