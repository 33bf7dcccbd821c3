"""The addresses of the Streams page, as the API server answers them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi.testclient import TestClient
from streamplan.airflow.streams_page import NAVIGATION, URL_PREFIX, routes

from tests.support.fake_cluster import FakeApplication, FakeCluster

ADDRESSES = [
    "/",
    "/api/pipelines",
    "/api/pipelines/orders",
    "/api/pipelines/orders/topology.svg",
    "/api/pipelines/orders/history",
    "/api/pipelines/orders/dead-letters",
    "/api/pipelines/orders/keys?key=0",
    "/api/pipelines/orders/topics/orders",
]
APPLICATIONS = "/api/connections/kafka_default/applications"
OF_ANY_APPLICATION = [
    APPLICATIONS,
    *(
        f"{APPLICATIONS}/orders-aggregator{part}"
        for part in (
            "",
            "/topology.svg",
            "/history",
            "/dead-letters",
            "/records?topic=orders",
            "/topics/orders",
            "/keys?key=0",
        )
    ),
]


@pytest.fixture
def client(home: Path, database: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """The page with an application that has counted 19 orders and rejected one; `ann` may see `orders` alone."""
    from airflow.api_fastapi.core_api.security import get_user
    from streamplan.pipelines.orders import PIPELINE

    cluster = FakeCluster()
    application = FakeApplication(cluster, PIPELINE)
    for n in range(19):
        application.order(n)
    application.order(20, product=7)
    application.drain()
    monkeypatch.setattr(routes, "_cluster", lambda kafka_conn_id: cluster)
    manager = SimpleNamespace(
        is_authorized_dag=lambda *, method, details, user: (
            (method, details.id, user) == ("GET", "orders_health", "ann")
        ),
        is_authorized_connection=lambda *, method, details, user: (
            (method, details.conn_id, user) == ("GET", "kafka_default", "ann")
        ),
    )
    monkeypatch.setattr("airflow.api_fastapi.app.get_auth_manager", lambda: manager)
    app = routes.make_app()
    app.dependency_overrides[get_user] = lambda: "ann"
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


@pytest.mark.parametrize("address", [*ADDRESSES, *OF_ANY_APPLICATION])
def test_nobody_sees_anything_without_a_login(client: TestClient, address: str) -> None:
    client.app.dependency_overrides.clear()  # type: ignore[attr-defined]
    assert client.get(address).status_code in (401, 403)


def test_a_pipeline_is_shown_to_those_who_may_see_its_health_dag(client: TestClient) -> None:
    assert client.get("/api/pipelines").json() == ["orders"]
    for address in ADDRESSES[2:]:
        assert client.get(address).status_code == 200
        assert client.get(address.replace("orders", "users")).status_code == 403


def test_any_application_is_shown_to_those_who_may_see_the_connection(client: TestClient) -> None:
    for address in OF_ANY_APPLICATION:
        assert client.get(address).status_code == 200, address
        assert client.get(address.replace("kafka_default", "kafka_other")).status_code == 403


def test_an_application_that_nobody_declared(client: TestClient) -> None:
    assert "orders-aggregator" in client.get(APPLICATIONS).json()
    declared = client.get("/api/pipelines/orders").json()
    found = client.get(f"{APPLICATIONS}/orders-aggregator").json()
    assert found["application_id"] == declared["application_id"]
    assert found["checks"] == []  # the results of checks have the name of the pipeline
    assert {topic["name"] for topic in found["topics"]} >= {
        "orders",
        "orders-aggregator-orders-products-quantities-repartition",
        "orders-aggregator-orders-products-quantities-changelog",
    }
    (total,) = client.get(f"{APPLICATIONS}/orders-aggregator/keys", params={"key": "0"}).json()
    assert total["value"] == "10"
    drawing = client.get(f"{APPLICATIONS}/orders-aggregator/topology.svg").text
    assert 'data-topic="orders"' in drawing
    assert 'class="store"' in drawing


def test_an_application_id_that_nobody_has(client: TestClient) -> None:
    assert "no-such-app" in client.get(f"{APPLICATIONS}/no-such-app").json()["problem"]
    answer = client.get(f"{APPLICATIONS}/no-such-app/topology.svg")
    assert (answer.status_code, "no-such-app" in answer.json()["detail"]) == (503, True)


def test_the_snapshot(client: TestClient) -> None:
    snapshot: dict[str, Any] = client.get("/api/pipelines/orders").json()
    assert snapshot["problem"] == ""
    assert [(task["task"], task["lag"]) for task in snapshot["tasks"]] == [
        ("0_0", 0),
        ("0_1", 0),
        ("1_0", 0),
        ("1_1", 0),
    ]


def test_a_total_with_its_last_update(client: TestClient) -> None:
    (found,) = client.get("/api/pipelines/orders/keys", params={"key": "0"}).json()
    assert (found["value"], found["key"]) == ("10", "'0'")
    assert client.get("/api/pipelines/orders/keys", params={"key": "5"}).json() == []


def test_a_dead_letter_with_its_reason_and_origin(client: TestClient) -> None:
    (letter,) = client.get("/api/pipelines/orders/dead-letters").json()
    assert letter["reason"] == "the reason"
    assert letter["value"] == '{"Id": "order_20", "ProductType": 7}'
    assert letter["origin"].startswith("orders-")


def test_the_page_loads_only_its_own_files(client: TestClient) -> None:
    page = client.get("/")
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert "http" not in page.text.replace('http-equiv="', "")
    for name in ("page.css", "page.js", "icon.svg", "icon-dark.svg"):
        assert client.get(f"/static/{name}").status_code == 200
    assert client.get("/static/routes.py").status_code == 404


def test_brokers_out_of_reach_are_told_on_the_page(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    from streamplan.errors import BrokersUnavailable

    class Away(FakeCluster):
        def names(self) -> list[str]:
            raise BrokersUnavailable("Kafka at broker:9092", observed="no answer")

    monkeypatch.setattr(routes, "_cluster", lambda kafka_conn_id: Away())
    assert "no answer" in client.get("/api/pipelines/orders").json()["problem"]
    answer = client.get("/api/pipelines/orders/dead-letters")
    assert (answer.status_code, "no answer" in answer.json()["detail"]) == (503, True)


def test_airflow_shows_it_in_its_navigation() -> None:
    from streamplan.airflow.plugin import StreamplanPlugin

    assert StreamplanPlugin.external_views == [NAVIGATION]
    assert (NAVIGATION["destination"], NAVIGATION["href"]) == ("nav", f"{URL_PREFIX}/")
