"""The pages of the Data Docs as the API server gives them out."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from streamplan.airflow import data_docs
from streamplan.airflow.streams_page import StreamsApp
from streamplan.checks.framework.check import CheckResult, Outcome
from streamplan.reports.results import write_result
from streamplan.settings import Settings


@pytest.fixture
def page(home: Path) -> Path:
    file = Settings.from_environment().reports / "orders" / "data_docs" / "validations" / "a page.html"
    file.parent.mkdir(parents=True)
    file.write_text("<h1>orders</h1>")
    (file.parents[2] / "totals.sqlite").write_text("not for everyone")
    return file


@pytest.mark.parametrize(
    "path",
    [
        "orders/totals.sqlite",
        "orders/data_docs/../totals.sqlite",
        "orders/data_docs/../../../stack.json",
        "../orders/data_docs/validations/a page.html",
        "orders/data_docs/none.html",
        "orders/data_docs",
        "orders",
        "",
        "/etc/passwd",
        "orders/data_docs/\0",
        "orders/data_docs/" + "x" * 300,
        "orders/data_docs/link.html",
    ],
)
def test_nothing_but_pages(page: Path, path: str) -> None:
    reports = Settings.from_environment().reports
    (reports.parent / "stack.json").write_text("{}")
    (reports / "orders" / "data_docs" / "link.html").symlink_to(reports.parent / "stack.json")
    assert data_docs.page_file(reports, path) is None


def test_a_page(page: Path) -> None:
    found = data_docs.page_file(Settings.from_environment().reports, "orders/data_docs/validations/a page.html")
    assert found == page.resolve()


def test_for_those_who_may_see_the_dag(page: Path, database: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.api_fastapi.core_api.security import get_user
    from fastapi.testclient import TestClient

    asked: list[tuple[str, str]] = []

    def is_authorized_dag(*, method: str, details: Any, user: str) -> bool:
        asked.append((user, details.id))
        return user == "ann"

    manager = SimpleNamespace(is_authorized_dag=is_authorized_dag)
    monkeypatch.setattr("airflow.api_fastapi.app.get_auth_manager", lambda: manager)
    app = data_docs._make_app()
    client = TestClient(app, raise_server_exceptions=False)
    assert client.get("/orders/data_docs/validations/a page.html").status_code in (401, 403)  # nobody logged in
    app.dependency_overrides[get_user] = lambda: "ann"
    found = client.get("/orders/data_docs/validations/a page.html")
    assert (found.status_code, found.text) == (200, "<h1>orders</h1>")
    assert client.get("/orders/data_docs/none.html").status_code == 404
    app.dependency_overrides[get_user] = lambda: "bob"
    assert client.get("/orders/data_docs/validations/a page.html").status_code == 403
    assert set(asked) == {("ann", "orders_health"), ("bob", "orders_health")}


def test_no_route_answers_without_the_auth_manager_and_each_answer_has_the_headers(
    page: Path, database: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the plugin serves is asked for: by nobody, by one who may see nothing, by paths that lead out."""
    from airflow.api_fastapi.core_api.security import get_user
    from fastapi.testclient import TestClient
    from streamplan_plugin import StreamplanPlugin

    served, streams = StreamplanPlugin.fastapi_apps
    assert isinstance(served["app"], data_docs.DataDocsApp)
    assert isinstance(streams["app"], StreamsApp)  # tests/dags/test_streams_page.py asks its addresses
    manager = SimpleNamespace(is_authorized_dag=lambda **_: False)
    monkeypatch.setattr("airflow.api_fastapi.app.get_auth_manager", lambda: manager)
    app = data_docs._make_app()
    client = TestClient(app, raise_server_exceptions=False)
    paths = [
        "/",
        "/orders",
        "/orders/data_docs/validations/a page.html",
        "/docs",
        "/openapi.json",
        "/..%2f..%2fetc/passwd",
    ]
    for user, statuses in ((None, (401, 403)), ("bob", (403,))):
        if user is not None:
            app.dependency_overrides[get_user] = lambda: "bob"
        for path in paths:
            answer = client.get(path)
            assert answer.status_code in statuses, (path, answer.status_code)
            assert "frame-ancestors 'self'" in answer.headers["content-security-policy"]
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert client.post(path).status_code == 405


@pytest.mark.parametrize(
    ("docs", "link"),
    [
        ("orders/data_docs/validations/a page.html", "/streamplan/orders/data_docs/validations/a%20page.html"),
        (None, "/streamplan/orders/data_docs/index.html"),
    ],
)
def test_the_link_of_a_task(home: Path, docs: str | None, link: str) -> None:
    result = CheckResult("orders", "totals", Outcome.PASSED, "", "2026-01-01T00:00:00+00:00", (), docs)
    write_result(Settings.from_environment().reports, result)
    operator = SimpleNamespace(pipeline="orders", check="totals")
    assert data_docs.DataDocsLink().get_link(operator, ti_key=None) == link
