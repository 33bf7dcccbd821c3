"""The addresses of the Streams page, as the API server answers them."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2
import pytest
from fastapi.testclient import TestClient
from streamplan.airflow.streams_page import NAVIGATION, URL_PREFIX, overview, routes
from streamplan.checks.framework.check import CheckResult, Outcome
from streamplan.errors import BrokersUnavailable
from streamplan.model.dead_letters import LetterPlace, Redrive, mark_headers
from streamplan.model.group_member import Member
from streamplan.pipelines.orders import PIPELINE
from streamplan.registry import registered_pipelines
from streamplan.reports.results import write_result
from streamplan.settings import Settings

from tests.support.fake_cluster import FakeApplication, FakeCluster

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
in_a_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian's package chromium)")
PAGE_MS = 120_000

ADDRESSES = [
    "/",
    "/api/pipelines",
    "/api/broken-pipelines",
    "/api/overview",
    "/api/pipelines/orders",
    "/api/pipelines/orders/topology.svg",
    "/api/pipelines/orders/history",
    "/api/pipelines/orders/redrive",
    "/api/pipelines/orders/verified-days",
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
            "/redrive",
            "/verified-days",
            "/dead-letters",
            "/records?topic=orders",
            "/topics/orders",
            "/keys?key=0",
        )
    ),
]


@pytest.fixture
def application() -> FakeApplication:
    """It has counted 19 orders and rejected one."""
    application = FakeApplication(FakeCluster(), PIPELINE)
    for n in range(19):
        application.order(n)
    application.order(20, product=7)
    application.drain()
    return application


@pytest.fixture
def client(
    application: FakeApplication, home: Path, database: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TestClient]:
    """The page with the application; `ann` may see `orders` alone."""
    from airflow.api_fastapi.core_api.security import get_user

    monkeypatch.setattr(routes, "_cluster", lambda kafka_conn_id: application.cluster)
    manager = SimpleNamespace(
        is_authorized_dag=lambda *, method, details, user: (
            (method, details.id, user) == ("GET", "orders_health", "ann")
        ),
        is_authorized_view=lambda *, access_view, user: (access_view.value, user) == ("IMPORT_ERRORS", "ann"),
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
    for address in ADDRESSES[4:]:
        assert client.get(address).status_code == 200
        assert client.get(address.replace("orders", "users")).status_code == 403


@pytest.fixture
def broken_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A registered module with a typo, beside the examples."""
    (tmp_path / "typo_module.py").write_text("\nfrom streamplan import Pipline\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("STREAMPLAN_PIPELINES", "typo_module,streamplan.pipelines")
    return f"{tmp_path}/typo_module.py:2: ImportError: cannot import name 'Pipline'"


def test_a_broken_pipeline_is_named_to_those_who_may_see_import_errors_and_hides_no_other(
    client: TestClient, broken_module: str
) -> None:
    from airflow.api_fastapi.core_api.security import get_user

    assert client.get("/api/pipelines").json() == ["orders"]
    assert client.get("/api/pipelines/orders").json()["problem"] == ""
    (told,) = client.get("/api/broken-pipelines").json()
    assert broken_module in told
    client.app.dependency_overrides[get_user] = lambda: "bob"  # type: ignore[attr-defined]
    assert client.get("/api/broken-pipelines").json() == []


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
    assert (found["value"], found["key"]) == ("10", "0")
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
    class Away(FakeCluster):
        def names(self) -> list[str]:
            raise BrokersUnavailable("Kafka at broker:9092", observed="no answer")

    monkeypatch.setattr(routes, "_cluster", lambda kafka_conn_id: Away())
    assert "no answer" in client.get("/api/pipelines/orders").json()["problem"]
    answer = client.get("/api/pipelines/orders/dead-letters")
    assert (answer.status_code, "no answer" in answer.json()["detail"]) == (503, True)


def test_brokers_that_are_away_are_asked_once_for_all_pipelines_of_the_overview(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long they take, all rows say so."""
    asked = []

    class Away(FakeCluster):
        def names(self) -> list[str]:
            asked.append("names")
            time.sleep(0.2)
            raise BrokersUnavailable("Kafka at broker:9092", observed="no answer")

    away = Away()
    monkeypatch.setattr(overview, "LOOK_SECONDS", 0.1)
    pipelines = registered_pipelines()
    rows = overview.Overview(lambda kafka_conn_id: away).rows(pipelines, Settings.from_environment().reports)  # type: ignore[arg-type, return-value]
    assert [row.pipeline for row in rows] == [each.name for each in pipelines]
    assert all("no answer" in row.problems[0] for row in rows)
    assert asked == ["names"]


def test_an_answer_about_many_pipelines_comes_in_time_and_the_next_one_goes_on(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(FakeCluster):
        def names(self) -> list[str]:
            time.sleep(0.2)
            return []

    slow = Slow()
    monkeypatch.setattr(overview, "LOOK_SECONDS", 0.1)
    pipelines, seen = registered_pipelines()[:3], overview.Overview(lambda kafka_conn_id: slow)  # type: ignore[arg-type, return-value]
    reports = Settings.from_environment().reports
    assert [len(seen.rows(pipelines, reports)) for _ in range(4)] == [1, 2, 3, 3]


def test_airflow_shows_it_in_its_navigation() -> None:
    from streamplan.airflow.plugin import StreamplanPlugin

    assert StreamplanPlugin.external_views == [NAVIGATION]
    assert (NAVIGATION["destination"], NAVIGATION["href"]) == ("nav", f"{URL_PREFIX}/")


def looked(check: str, outcome: Outcome, days: float) -> None:
    at = (datetime.now(UTC) - timedelta(days=days)).isoformat()
    result = CheckResult("orders", check, outcome, f"{check} {outcome}", at, ())
    write_result(Settings.from_environment().reports, result)


def test_yesterdays_totals_are_answered_however_much_was_looked_at_since(client: TestClient) -> None:
    """Seven other checks every ten minutes fill a history quickly."""
    looked("totals", Outcome.PASSED, 1)
    for _ in range(1_000):
        looked("lag", Outcome.PASSED, 0)
    today, yesterday = client.get("/api/pipelines/orders/verified-days").json()
    assert (today["passed"], today["last"]) == (0, None)
    assert (yesterday["passed"], yesterday["last"]["reason"]) == (1, "totals passed")


@contextmanager
def shown(client: TestClient, width: int = 1280) -> Iterator[Page]:
    """The page in Chromium. What it asks for is answered by the routes, without a server."""
    from playwright.sync_api import expect, sync_playwright

    def answer(route: Route) -> None:
        url = urlsplit(route.request.url)
        found = client.get(f"{url.path}?{url.query}")
        route.fulfill(status=found.status_code, headers=dict(found.headers), body=found.content)

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            page = browser.new_page(viewport={"width": width, "height": 900})
            page.set_default_timeout(PAGE_MS)
            expect.set_options(timeout=PAGE_MS)
            page.route("**/*", answer)
            page.goto("http://streams.test/?pipeline=orders")
            expect(page.locator("#task-rows tbody tr")).to_have_count(4)
            yield page
        finally:
            browser.close()


@in_a_browser
@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ((), "no aggregator runs: the group has no member"),
        (
            (Member("streamplan:worker-1:4711:ab12cd34", "10.0.0.1", "id-1"),),
            "its position does not move: look whether a process is stopped",
        ),
    ],
)
def test_the_page_says_why_a_task_is_behind(
    client: TestClient, application: FakeApplication, members: tuple[Member, ...], reason: str
) -> None:
    from playwright.sync_api import expect

    application.cluster.group_members[application.group] = members
    for n in (21, 23):
        application.order(n)
    with shown(client) as page:
        behind = page.locator("#task-rows tr.behind")
        assert behind.count() >= 1
        expect(behind.first).to_contain_text(reason)
        expect(page.locator("#task-rows tbody tr:not(.behind)").first).not_to_contain_text(reason)


@in_a_browser
def test_the_page_names_a_broken_pipeline_above_the_one_that_it_shows(client: TestClient, broken_module: str) -> None:
    from playwright.sync_api import expect

    with shown(client) as page:
        expect(page.locator("#broken")).to_contain_text(broken_module)
        expect(page.locator("#problem")).to_be_hidden()


@in_a_browser
def test_without_a_broken_pipeline_the_page_says_nothing(client: TestClient) -> None:
    from playwright.sync_api import expect

    with shown(client) as page:
        expect(page.locator("#broken")).to_be_hidden()


@in_a_browser
def test_a_tile_names_the_check_that_failed_and_leads_to_it(client: TestClient) -> None:
    from playwright.sync_api import expect

    looked("lag", Outcome.FAILED, 0)
    looked("totals", Outcome.PASSED, 0)
    with shown(client) as page:
        tile = page.locator("#summary .tile", has_text="Checks, 1 of 2 not passed")
        expect(tile).to_contain_text("lag")
        tile.click()
        assert urlsplit(page.url).fragment == "checks"


@in_a_browser
@pytest.mark.parametrize("slow", ["topology.svg", "history"])
def test_an_answer_that_comes_after_another_application_was_chosen_is_not_shown(client: TestClient, slow: str) -> None:
    looked("lag", Outcome.FAILED, 0)
    held: list[Route] = []
    with shown(client) as page:
        page.route(f"**/api/pipelines/orders/{slow}*", lambda route: held.append(route))
        with page.expect_request(f"**/api/pipelines/orders/{slow}*"):
            page.reload()
        page.evaluate("history.pushState(null, '', '?application=orders-aggregator&connection=kafka_default')")
        page.evaluate("dispatchEvent(new PopStateEvent('popstate'))")
        page.wait_for_selector("#diagram svg")
        page.wait_for_selector("#task-rows tbody tr")
        [late] = held
        late.fulfill(
            body='<svg xmlns="http://www.w3.org/2000/svg" id="late"></svg>' if slow == "topology.svg" else "[]"
        )
        page.evaluate("new Promise((done) => setTimeout(done, 1000))")
        assert page.locator("#late").count() == 0
        assert page.locator("#check-rows").inner_text() == "No check has run yet."


@in_a_browser
def test_a_phone_shows_the_page_without_scrolling_sideways(client: TestClient) -> None:
    looked("totals", Outcome.PASSED, 1)
    with shown(client, width=390) as page:
        page.wait_for_selector("#verified-days tbody tr")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


@in_a_browser
def test_dead_letters_show_their_state_and_a_button_begins_a_redrive(
    client: TestClient, application: FakeApplication
) -> None:
    """The answers of Airflow's own API are stood in for: what the page sends is looked at."""
    from playwright.sync_api import expect

    cluster = application.cluster
    letters = cluster.existing[application.dead_letters].partitions
    first = next(each for partition in letters for each in partition.records)
    application.dead_letter(cluster.existing["orders"].partitions[0].records[0])
    still_open = letters[0].records[-1]
    who = Redrive("ann", "2026-01-02T03:04:05.000+00:00", "manual__1")
    mark = mark_headers(first.headers, LetterPlace(first.partition, first.offset), b"", who)
    coded = tuple((name, value.encode() if isinstance(value, str) else value) for name, value in mark)
    cluster.produce(application.dead_letters, None, None, partition=first.partition, headers=coded)
    sent: list[Any] = []

    def airflow(route: Route) -> None:
        sent.append((route.request.url.partition("/api/v2/")[2], route.request.post_data_json))
        refused = len(sent) > 2
        body = {"detail": "Forbidden"} if refused else {"dag_run_id": f"manual__{len(sent)}"}
        route.fulfill(status=403 if refused else 200, json=body)

    with shown(client) as page:
        page.route("**/api/v2/**", airflow)
        rows, run = page.locator("#dead-letter-rows"), page.locator("#redrive-answer a")
        expect(rows.locator("summary")).to_have_text("2 × the reason: 1 open, 1 re-driven")
        rows.locator("summary").click()
        expect(rows.locator("tbody tr").filter(has_text="re-driven by ann")).to_have_count(1)
        expect(rows.get_by_role("button", name="Re-drive the chosen ones")).to_be_disabled()
        rows.get_by_role("button", name="Re-drive all of this reason").click()
        expect(run).to_have_text("manual__1")
        expect(run).to_have_attribute("href", "../dags/orders_redrive/runs/manual__1")
        rows.get_by_role("checkbox").check()
        rows.get_by_role("button", name="Re-drive the chosen ones").click()
        expect(run).to_have_text("manual__2")
        rows.get_by_role("button", name="Re-drive all of this reason").click()
        expect(page.locator("#redrive-answer")).to_have_text("Forbidden")  # Airflow says who may not trigger it
        page.goto("http://streams.test/?application=orders-aggregator&connection=kafka_default")
        expect(page.locator("#as-of")).to_contain_text("orders-aggregator")
        expect(page.get_by_role("button", name="Re-drive all of this reason")).to_have_count(0)
    address = "dags/orders_redrive/dagRuns"
    assert sent[:2] == [
        (address, {"logical_date": None, "conf": {"reason": "the reason"}}),
        (address, {"logical_date": None, "conf": {"letters": [f"0@{still_open.offset}"]}}),
    ]


@pytest.mark.parametrize("part", ["", "/history", "/redrive", "/verified-days", "/topology.svg", "/dead-letters"])
@pytest.mark.parametrize("name", ["users", "no-longer-declared"])
def test_the_results_of_a_pipeline_need_the_permission_of_its_dag_at_every_address(
    client: TestClient, part: str, name: str
) -> None:
    """`ann` may see the connection, but not the DAG. One of the pipelines has left its results behind."""
    secret = CheckResult(name, "totals", Outcome.FAILED, "a secret", datetime.now(UTC).isoformat(), ())
    write_result(Settings.from_environment().reports, secret)
    answer = client.get(f"{APPLICATIONS}/{name}{part}")
    assert (answer.status_code, "a secret" in answer.text) == (403, False)
    assert f"{name}_health" in answer.json()["detail"]


@pytest.mark.parametrize("part", ["", "/history", "/verified-days"])
@pytest.mark.parametrize("name", ["..", "%2e%2e", "%2e", "a%2fb", "..%2forders", "x" * 300])
def test_a_name_leads_out_of_no_directory(client: TestClient, part: str, name: str) -> None:
    reports = Settings.from_environment().reports
    reports.mkdir(parents=True)
    for directory in (reports, reports.parent):
        (directory / "history.jsonl").write_text(json.dumps({"reason": "a secret"}) + "\n")
    for prefix in (APPLICATIONS, "/api/pipelines"):
        # As it is: the client would follow the dots itself.
        raw_path = f"{prefix}/{name}{part}".encode()
        answer = client.get(httpx2.URL("http://testserver").copy_with(raw_path=raw_path))
        assert answer.status_code in (403, 404), answer.text
        assert "a secret" not in answer.text


def test_an_edited_connection_is_followed(
    client: TestClient, application: FakeApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names other brokers now, and the old ones answer still."""
    assert client.get("/api/pipelines/orders").json()["tasks"]
    monkeypatch.setattr(routes, "_cluster", lambda kafka_conn_id: FakeCluster())
    assert client.get("/api/pipelines/orders").json()["tasks"]  # the brokers are the same
    extra = {"bootstrap.servers": "127.0.0.1:2"}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps({"conn_type": "kafka", "extra": extra}))
    snapshot = client.get("/api/pipelines/orders").json()
    assert all(topic["partitions"] is None for topic in snapshot["topics"])


@in_a_browser
def test_json_is_shown_by_line_with_its_digits_and_copied_as_it_is(
    client: TestClient, application: FakeApplication
) -> None:
    """A parser would round the number."""
    from playwright.sync_api import expect

    value = '{"Id": "a, b: {c}", "n": 12345678901234567890, "empty": [], "list": [1,"x\\"y"]}'
    application.cluster.produce("orders", b"k", value.encode(), partition=0)
    with shown(client) as page:
        page.locator("#records-partition").fill("0")
        page.get_by_role("button", name="Show records").click()
        row = page.locator("#record-rows tbody tr").filter(has_text="12345678901234567890")
        expect(row.locator("td:nth-child(5) pre")).to_have_text(
            '{\n  "Id": "a, b: {c}",\n  "n": 12345678901234567890,\n  "empty": [],\n'
            '  "list": [\n    1,\n    "x\\"y"\n  ]\n}'
        )
        copied = row.locator("td:nth-child(5) [data-copy]")
        expect(copied).to_have_attribute("data-copy", value)
        copied.click()
        expect(copied).to_have_text("Copied")


@in_a_browser
def test_the_newest_records_of_a_topic_are_followed(client: TestClient, application: FakeApplication) -> None:
    from playwright.sync_api import expect

    with shown(client) as page:
        page.get_by_label("follow").check()
        rows = page.locator("#record-rows tbody tr")
        expect(rows.first).to_be_visible()
        before = rows.count()
        application.order(77)
        expect(rows.filter(has_text="order_77")).to_have_count(1)
        assert rows.count() == before + 1


@in_a_browser
@pytest.mark.parametrize("width", [390, 600])
def test_a_large_drawing_fits_the_page_and_can_be_made_larger(client: TestClient, width: int) -> None:
    with shown(client, width=width) as page:
        page.wait_for_selector("#diagram svg")
        fits = "(() => { const d = document.getElementById('diagram'); return d.scrollWidth <= d.clientWidth; })()"
        page.wait_for_function(fits)
        width = page.locator("#diagram svg").bounding_box()["width"]  # type: ignore[index]
        page.get_by_role("button", name="Larger").click()
        assert page.locator("#diagram svg").bounding_box()["width"] > width  # type: ignore[index]
        page.get_by_title("As wide as the page").click()
        page.wait_for_function(fits)


@in_a_browser
def test_the_window_of_a_key_is_shown_as_a_time(client: TestClient) -> None:
    with shown(client) as page:
        shown_key = page.evaluate(
            "import('/static/records.js').then((records) => "
            "['a at 2026-03-08T09:30:00Z', 'a at 2026-03-08T09:30:00Z/2026-03-08T10:30:00.005Z']"
            ".map((key) => records.keyText(key, '').textContent))"
        )
        at = r"2026-03-08 \d\d:30:00"
        assert re.fullmatch(rf"a at {at}(Copy)?, a at {at}/{at}(Copy)?", ", ".join(shown_key))
