"""Requests that write to SQLite at once, as the API server of this machine answers them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import Depends, FastAPI


@pytest.fixture
def api_server(database: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[FastAPI]:
    """Airflow's public API with the middlewares of the plugins. Everybody may do everything in it."""
    monkeypatch.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS", "True")
    from airflow.api_fastapi.app import cached_app, purge_cached_app

    purge_cached_app()
    yield cached_app(apps="core")
    purge_cached_app()


def test_a_request_that_writes_waits_for_the_one_that_has_the_lock(api_server: FastAPI) -> None:
    """Else the audit log of the second waits for the lock in the event loop, which the commit of the first needs."""
    from airflow.api_fastapi.common.db.common import _get_session
    from airflow.models import Variable

    holds_the_lock = threading.Event()

    @api_server.post("/of-the-test")
    def write_slowly(session: Any = Depends(_get_session, scope="function")) -> None:  # noqa: B008  # as FastAPI has it
        session.add(Variable("first", "1"))
        session.flush()
        holds_the_lock.set()
        time.sleep(1)  # The second request reaches its audit log meanwhile.

    # Airflow mounts an application at "/", which would answer before this route.
    api_server.router.routes.insert(0, api_server.router.routes.pop())

    async def write_twice() -> list[int]:
        transport = httpx.ASGITransport(api_server, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://airflow", timeout=None) as client:
            await client.get("/auth/token/login", follow_redirects=False)
            first = asyncio.create_task(client.post("/of-the-test"))
            assert await asyncio.to_thread(holds_the_lock.wait, 60)
            second = await client.post("/api/v2/variables", json={"key": "second", "value": "2"})
            return [(await first).status_code, second.status_code]

    assert asyncio.run(write_twice()) == [200, 201]
