"""One request that writes at a time, where Airflow's API server has its database in SQLite.

SQLite has one lock for all writers. A request takes it with its first statement that writes, in a thread. It gives it
back with its commit, after a step of the server's event loop. Airflow's audit log commits in the event loop itself
(``airflow.api_fastapi.logging.decorators``). Where it does so between the two, it waits for a lock that only the event
loop can set free: the server answers nothing until SQLite gives up, and that is a minute here.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from airflow import settings

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_READ_ONLY = frozenset({"GET", "HEAD", "OPTIONS"})


class OneWriteAtATime:
    """ASGI middleware: a request that may write waits until the one before it is answered.

    It does nothing where the database is another one than SQLite.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        engine = settings.engine
        self._writing = asyncio.Lock() if engine is not None and engine.dialect.name == "sqlite" else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, at once or after those that wrote before it."""
        if self._writing is None or scope["type"] != "http" or scope["method"] in _READ_ONLY:
            await self._app(scope, receive, send)
            return
        async with self._writing:
            await self._app(scope, receive, send)
