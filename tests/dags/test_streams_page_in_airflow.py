"""The Streams page in the frame in which Airflow's own pages show it, in Chromium."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from fastapi.testclient import TestClient
from streamplan.airflow.plugin import StreamplanPlugin
from streamplan.airflow.streams_page import StreamsLink, routes
from streamplan.checks.framework.check import CheckResult, Observation, Outcome
from streamplan.pipelines.orders import PIPELINE
from streamplan.reports.redrive_outcome import RedriveOutcome, Stage, write_outcome
from streamplan.reports.results import write_result
from streamplan.settings import Settings

from tests.support.fake_cluster import FakeApplication, FakeCluster

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import BrowserContext, FrameLocator, Page, Route

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian's package chromium)")
PAGE_MS = 120_000
AIRFLOW = "http://airflow.test"
ALL = "/plugin/streams-page"
ORDERS = f"{ALL}/streams/?pipeline=orders"
CHANGELOG = "orders-aggregator-orders-products-quantities-changelog"


@pytest.fixture(scope="module")
def server(database: None) -> Iterator[TestClient]:
    """Airflow's API server with its pages and plugins, in this process."""
    from airflow.api_fastapi.app import create_app

    with TestClient(create_app(apps="core"), raise_server_exceptions=False, follow_redirects=False) as client:
        yield client


@pytest.fixture(scope="module")
def browser(server: TestClient) -> Iterator[BrowserContext]:
    """Chromium, in which an administrator has logged in. What it asks for is answered without a socket."""
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from playwright.sync_api import expect, sync_playwright

    token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username="ann", role="admin"))

    def answer(route: Route) -> None:
        asked = route.request
        url = urlsplit(asked.url)
        kept = {name: text for name, text in asked.headers.items() if name in ("content-type", "accept")}
        path = f"{url.path}?{url.query}" if url.query else url.path
        cookies = {"Cookie": f"_token={token}"}
        found = server.request(asked.method, path, headers=kept | cookies, content=asked.post_data_buffer)
        left_out = ("content-encoding", "content-length")
        headers = {name: text for name, text in found.headers.items() if name not in left_out}
        route.fulfill(status=found.status_code, headers=headers, body=found.content)

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            context = chromium.new_context(viewport={"width": 1280, "height": 900}, timezone_id="Europe/Paris")
            context.set_default_timeout(PAGE_MS)
            expect.set_options(timeout=PAGE_MS)
            context.route("**/*", answer)
            yield context
        finally:
            chromium.close()


@pytest.fixture
def application(home: Path, monkeypatch: pytest.MonkeyPatch) -> FakeApplication:
    """It has counted 19 orders and rejected one. The page finds it on its brokers."""
    application = FakeApplication(FakeCluster(), PIPELINE)
    for n in range(19):
        application.order(n)
    application.order(20, product=7)
    application.drain()
    monkeypatch.setattr(routes, "_cluster", lambda kafka_conn_id: application.cluster)
    _, streams = StreamplanPlugin.fastapi_apps
    monkeypatch.setattr(streams["app"], "_app", None)
    return application


Show = Callable[[str], "tuple[Page, FrameLocator]"]


@pytest.fixture
def show(browser: BrowserContext, application: FakeApplication) -> Iterator[Show]:
    pages: list[Page] = []

    def opened(address: str) -> tuple[Page, FrameLocator]:
        page = browser.new_page()
        pages.append(page)
        page.goto(f"{AIRFLOW}{address}")
        return page, page.frame_locator("iframe")

    yield opened
    for page in pages:
        page.close()


def failed(check: str = "totals", **fields: Any) -> None:
    row = Observation("orders-products-quantities[0] Jackets", 10, 11, f"in {CHANGELOG}-0 offset 9", topic=CHANGELOG)
    told: dict[str, Any] = {"advice": ("Read the records that are named.",)} | fields
    at = datetime.now(UTC).isoformat()
    result = CheckResult("orders", check, Outcome.FAILED, "1 of 2 wrong", at, (row,), **told)
    write_result(Settings.from_environment().reports, result)


def test_a_check_leads_to_its_run_its_log_and_its_data_docs_and_its_task_leads_to_the_check(show: Show) -> None:
    from playwright.sync_api import expect

    failed(task=("orders_health", "manual__1", "totals"), data_docs="orders/data_docs/validations/a page.html")
    address = StreamsLink().get_link(SimpleNamespace(pipeline="orders", check="totals"), ti_key=None)
    for label, path in (
        ("Run", "/dags/orders_health/runs/manual__1"),
        ("Log", "/dags/orders_health/runs/manual__1/tasks/totals"),
        ("Data Docs", "/streamplan/orders/data_docs/validations/a%20page.html"),
    ):
        page, frame = show(address)
        check = frame.locator("#check-totals")
        expect(check).to_be_in_viewport()
        check.get_by_role("link", name=label, exact=True).click()
        page.wait_for_url(f"{AIRFLOW}{path}")


def test_a_link_opens_another_tab_where_somebody_asks_for_it(show: Show) -> None:
    page, frame = show(ALL)
    with page.context.expect_page() as opened:
        frame.get_by_role("link", name="orders", exact=True).click(modifiers=["Control"])
    opened.value.wait_for_url(f"{AIRFLOW}{ORDERS}")
    opened.value.close()
    assert urlsplit(page.url).query == ""


def test_the_address_names_pipeline_and_part_and_a_reload_shows_the_same(show: Show) -> None:
    from playwright.sync_api import expect

    page, frame = show(ALL)
    frame.get_by_role("link", name="orders", exact=True).click()
    expect(frame.locator("#task-rows tbody tr")).to_have_count(4)
    frame.locator("#sections").get_by_role("link", name="Totals").click()
    page.wait_for_url(f"{AIRFLOW}{ORDERS}#totals")
    page.reload()
    expect(frame.locator("#as-of")).to_contain_text("orders-aggregator")
    expect(frame.locator("#totals")).to_be_in_viewport()
    frame.locator("#pipeline").select_option("users")
    page.wait_for_url(f"{AIRFLOW}{ALL}/streams/?pipeline=users")
    page.go_back()
    page.wait_for_url(f"{AIRFLOW}{ORDERS}#totals")
    expect(frame.locator("#as-of")).to_contain_text("orders-aggregator")
    frame.locator('#diagram [data-topic="orders"]').click()
    page.wait_for_url(re.compile(r"row=topic"))
    page.reload()
    expect(frame.locator('#topic-rows tr.chosen[data-row="orders"]')).to_be_in_viewport()
    page.get_by_role("link", name="Streams").click()
    expect(frame.locator("#overview-rows tbody tr").first).to_be_visible()


def later(frame: FrameLocator) -> None:
    """Wait until the page has brought itself up to date twice."""
    from playwright.sync_api import expect

    for _ in range(2):
        expect(frame.locator("#as-of")).not_to_have_text(frame.locator("#as-of").inner_text())


def test_focus_selection_and_the_chosen_row_outlive_what_changes(show: Show, application: FakeApplication) -> None:
    from playwright.sync_api import expect

    page, frame = show(f"{ORDERS}&row=topic+orders")
    rows = frame.locator("#dead-letter-rows")
    rows.locator("summary").click()
    rows.get_by_role("checkbox").check()
    inner = page.frames[1]
    inner.evaluate(
        "const cell = document.querySelector('[data-key$=\" 1_1\"] td:nth-child(2) span').firstChild;"
        "getSelection().setBaseAndExtent(cell, 0, cell, 6)"
    )
    assert inner.evaluate("String(getSelection())") == "orders"
    for n in (21, 23):  # the order of the rows of tasks changes with them
        application.order(n)
    application.order(25, product=9)
    application.drain()
    for n in (27, 29):
        application.order(n)
    expect(frame.locator("#task-rows tbody tr").first).to_contain_text("no aggregator runs")
    later(frame)
    assert inner.evaluate("String(getSelection())") == "orders"
    assert inner.evaluate("document.activeElement.getAttribute('aria-label')").startswith("choose dead letter")
    expect(rows.get_by_role("checkbox").first).to_be_visible()
    expect(rows.locator("input:checked")).to_have_count(1)
    expect(rows.get_by_role("button", name="Re-drive the chosen ones")).to_be_enabled()
    expect(frame.locator("#topic-rows tr.chosen")).to_have_attribute("data-row", "orders")


def test_what_a_check_finds_shows_in_all_parts_at_once(show: Show) -> None:
    """The history and the days are of the same moment as the result."""
    from playwright.sync_api import expect

    _, frame = show(ORDERS)
    expect(frame.locator("#check-rows")).to_contain_text("No check has run yet.")
    failed()
    check = frame.locator("#check-totals")
    expect(check).to_have_attribute("open", "")
    assert check.locator(".history i.failed").count() == 1
    assert frame.locator("#verified-days tbody tr").count() == 1


def test_a_red_check_marks_the_changelog_and_its_store_leads_to_the_record_and_says_the_next_step(show: Show) -> None:
    from playwright.sync_api import expect

    failed()
    page, frame = show(ORDERS)
    expect(frame.locator("#check-totals .next")).to_contain_text("Read the records that are named.")
    expect(frame.locator(f'#diagram [data-topic="{CHANGELOG}"]')).to_have_class(re.compile(r"\bbad\b"))
    expect(frame.locator("#diagram .store.bad")).to_have_count(1)
    expect(frame.locator("#diagram .topic.bad")).to_have_count(1)
    frame.locator("#check-totals").get_by_role("link", name=f"{CHANGELOG}-0 offset 9").click()
    expect(frame.locator("#record-rows tbody tr").last).to_contain_text("9")
    assert "offset=9" in page.url


def test_no_task_is_behind_is_not_said_while_records_wait_for_an_aggregator(
    show: Show, application: FakeApplication
) -> None:
    from playwright.sync_api import expect

    for n in range(21, 25):  # as many for each task: none is behind another
        application.order(n)
    _, frame = show(ORDERS)
    caption = frame.locator("#task-rows caption").first
    expect(caption).to_contain_text("No aggregator processes the records that wait (offsets: 4): 0_0, 0_1")
    application.drain()
    expect(caption).to_have_text("Nothing waits, and no aggregator runs.")


def test_the_overview_shows_what_is_wrong_first_and_no_pipeline_whose_dag_is_not_to_be_seen(
    show: Show, application: FakeApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.api_fastapi.app import get_auth_manager
    from playwright.sync_api import expect

    failed(figures={"lag_seconds": 42.0})
    application.order(21)
    seen = ("orders_health", "users_health", "alerts_health")
    allowed = lambda *, method, user, details=None, **_: details is None or details.id in seen  # noqa: E731
    monkeypatch.setattr(get_auth_manager(), "is_authorized_dag", allowed)
    _, frame = show(ALL)
    rows = frame.locator("#overview-rows tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.nth(0)).to_contain_text("no aggregator runs, and records wait (offsets: 1); failed: totals")
    expect(rows.nth(1)).to_contain_text("alerts")
    expect(rows.nth(2)).to_contain_text("users")
    expect(frame.locator("#overview-rows caption")).to_contain_text("1 of 3 applications")
    rows.nth(0).get_by_role("link", name="1", exact=True).click()
    expect(frame.locator("#dead-letters")).to_be_in_viewport()


def test_airflows_colours_font_and_time_zone_are_the_pages(show: Show) -> None:
    from playwright.sync_api import expect

    page, frame = show(ALL)
    expect(frame.locator("#as-of")).to_contain_text("Europe/Paris")
    for theme in ("dark", "light"):
        page.evaluate(f"localStorage.setItem('theme', '{theme}'); localStorage.setItem('timezone', 'Asia/Tokyo')")
        page.reload()
        expect(frame.locator("#as-of")).to_contain_text("Asia/Tokyo")
        expect(page.locator("html")).to_have_class(re.compile(theme))
        expect(frame.locator("html.dark")).to_have_count(int(theme == "dark"))
        of = "[getComputedStyle(document.body).color, getComputedStyle(document.body).fontFamily]"
        assert page.frames[1].evaluate(of) == page.evaluate(of)
    page.evaluate("localStorage.clear()")


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        (Stage.NOTHING, "had nothing to do"),
        (Stage.REFUSED, "was refused"),
        (Stage.DONE, "has processed what was approved"),
        (Stage.PLANNED, "has a plan and waits for an approval"),
    ],
)
def test_the_outcome_of_a_redrive_stands_on_the_page(show: Show, stage: Stage, words: str) -> None:
    from playwright.sync_api import expect

    outcome = RedriveOutcome(stage, "manual__1", datetime.now(UTC).isoformat(), "why, in words")
    write_outcome(Settings.from_environment().reports, "orders", outcome)
    page, frame = show(f"{ORDERS}#dead-letters")
    told = frame.locator("#redrive-outcome")
    expect(told).to_contain_text(words)
    expect(told).to_contain_text("why, in words")
    told.get_by_role("link", name="manual__1").click()
    page.wait_for_url(f"{AIRFLOW}/dags/orders_redrive/runs/manual__1")
