"""``orders_deploy`` through the real Airflow processes, on real Kafka and real Spark, as a person triggers it."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from streamplan.checks import CHECKS
from streamplan.checks.framework.check import Outcome
from streamplan.errors import StreamplanError
from streamplan.local.airflow import USER
from streamplan.local.stack import Stack
from streamplan.registry import pipeline_named
from streamplan.reports.results import read_latest

from tests.support.airflow_rest import patient_rest
from tests.support.records import read_committed
from tests.support.secrets import files_that_show, processes_that_show
from tests.support.waiting import eventually

ORDERS = pipeline_named("orders")
DEPLOY_SECONDS = 900.0
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
PAGE_MS = 300_000


def token(stack: Stack) -> dict[str, str]:
    """As a browser has it that is logged in."""
    login = {"username": USER, "password": stack.airflow.password}
    found = httpx.post(f"{stack.airflow.url}/auth/token", json=login, timeout=300).json()["access_token"]
    return {"Authorization": f"Bearer {found}"}


@dataclass(frozen=True)
class Deployment:
    """A run that has ended.

    Attributes:
        run: Its id.
        shown: The processes that showed the password of the brokers meanwhile.
    """

    run: str
    shown: frozenset[str]


@pytest.fixture(scope="module")
def deployment(stack: Stack) -> Deployment:
    """``orders_deploy`` with 19 orders, on secured brokers."""
    rest = patient_rest(stack)
    rest.wait_for_dag("orders_deploy", deadline_seconds=DEPLOY_SECONDS)
    with processes_that_show(stack.kafka.brokers.properties["sasl.password"]) as shown:
        run = rest.trigger("orders_deploy", {"records": 19})
        state = rest.wait("orders_deploy", run, deadline_seconds=DEPLOY_SECONDS)
    assert state == "success", rest.task_states("orders_deploy", run)
    (produced,) = rest.runs("orders_producer")
    planned = rest.xcom("orders_producer", produced["dag_run_id"], "plan")
    assert (planned["first"], planned["until"]) == (0, 19), rest.task_instances(
        "orders_producer", produced["dag_run_id"]
    )
    return Deployment(run, frozenset(shown))


def test_a_deployment_creates_produces_aggregates_and_verifies(stack: Stack, deployment: Deployment) -> None:
    rest, run = patient_rest(stack), deployment.run
    brokers = stack.kafka.brokers
    orders = read_committed(brokers.servers, "orders", brokers.properties)
    assert sorted(message.key() for message in orders) == sorted(b"order_%d" % n for n in range(19))
    recount = Counter(b"%d" % json.loads(message.value())["ProductType"] for message in orders)
    changelog = read_committed(
        brokers.servers, ORDERS.topology.changelog_topic("orders-products-quantities"), brokers.properties
    )
    totals = {message.key(): int.from_bytes(message.value(), "big") for message in changelog}
    assert totals == recount == {b"0": 10, b"1": 9}

    results = read_latest(stack.settings.reports, "orders")
    assert {name: result.outcome for name, result in results.items()} == {
        check.name: Outcome.PASSED for check in CHECKS
    }
    for check in CHECKS:
        told = rest.xcom("orders_deploy", run, f"verify.{check.name}", "result")
        assert told["outcome"] == "passed"
        assert (stack.settings.reports / told["data_docs"]).is_file()
        link = rest.xcom("orders_deploy", run, f"verify.{check.name}", "_link_DataDocsLink")
        assert link == f"/streamplan/{quote(told['data_docs'])}"
        assert httpx.get(f"{rest.url}{link}", timeout=300).status_code == httpx.codes.UNAUTHORIZED
        page = httpx.get(f"{rest.url}{link}", headers=token(stack), timeout=300)
        assert page.status_code == httpx.codes.OK, page.text
        assert f"orders_{check.name}" in page.text
        assert "in the state store" in page.text  # all checks of the run are on the page
    assert [found["state"] for found in rest.runs("orders_aggregator")] == ["running"]
    assert "orders_aggregator" in rest.running_dags()


def test_the_asset_of_the_totals_says_up_to_where_they_are_verified(stack: Stack, deployment: Deployment) -> None:
    asked = {"source_dag_id": "orders_deploy", "source_task_id": "verify.totals"}
    url = f"{stack.airflow.url}/api/v2/assets/events"
    (event,) = httpx.get(url, params=asked, headers=token(stack), timeout=300).json()["asset_events"]
    brokers = stack.kafka.brokers
    orders = Counter(message.partition() for message in read_committed(brokers.servers, "orders", brokers.properties))
    found = event["extra"]
    assert (found["application_id"], found["records"], found["keys"]) == ("orders-aggregator", 19, 2)
    assert found["positions"].keys() == {"orders"}
    # Behind each record there may be the marker of its transaction.
    assert all(0 <= found["positions"]["orders"][str(partition)] - orders[partition] <= 2 for partition in (0, 1))


def test_lineage_is_sent_of_what_the_tasks_read_and_wrote(stack: Stack, deployment: Deployment) -> None:
    """The events as Airflow's OpenLineage provider writes them, beside what lies in the topics."""
    brokers = stack.kafka.brokers
    orders = Counter(message.partition() for message in read_committed(brokers.servers, "orders", brokers.properties))
    lines = (stack.settings.home / "lineage.jsonl").read_text().splitlines()
    events = {(event["job"]["name"], event["eventType"]): event for event in map(json.loads, lines)}
    verified = datasets(events["orders_deploy.verify.totals", "COMPLETE"], "inputs")["orders"]
    (assertion,) = verified["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert (assertion["assertion"], assertion["success"]) == ("totals", True)
    ends = [at.split("@") for at in verified["facets"]["version"]["datasetVersion"].split(", ")]
    # Behind each record there may be the marker of its transaction.
    assert all(0 <= int(offset) - orders[int(partition)] <= 2 for partition, offset in ends)
    written = datasets(events["orders_aggregator.aggregate", "START"], "outputs")
    columns = written[ORDERS.topology.changelog_topic("orders-products-quantities")]["facets"]["columnLineage"]
    assert [(each["name"], each["field"]) for each in columns["fields"]["count"]["inputFields"]] == [
        ("orders", "ProductType")
    ]


def datasets(event: dict[str, Any], direction: str) -> dict[str, dict[str, Any]]:
    return {dataset["name"]: dataset for dataset in event[direction]}


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian's package chromium)")
def test_the_streams_page_shows_the_deployment(stack: Stack, deployment: Deployment) -> None:
    """As a person finds it: in the navigation, in a frame, with nothing that is loaded from elsewhere."""
    from playwright.sync_api import expect, sync_playwright

    asked: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.set_default_timeout(PAGE_MS)
            expect.set_options(timeout=PAGE_MS)
            page.on("request", lambda request: asked.append(request.url))
            page.goto(stack.airflow.url)
            page.fill("input[name=username]", USER)
            page.fill("input[name=password]", stack.airflow.password)
            page.keyboard.press("Enter")
            page.get_by_role("link", name="Streams").click()
            frame = page.frame_locator("iframe")
            frame.get_by_role("link", name="orders", exact=True).click()
            expect(frame.locator("#summary")).to_contain_text("all 8 passed")
            expect(frame.locator("#task-rows tbody tr")).to_have_count(4)
            expect(frame.locator("#diagram .subtopology")).to_have_count(2)
            expect(frame.locator("#verified")).to_contain_text("19 records and 2 keys")
            frame.get_by_label("Key").fill("0")
            frame.get_by_role("button", name="Look up").click()
            expect(frame.locator("#key-rows pre").last).to_have_text("10")  # jackets among 19 orders
            frame.locator('#diagram [data-topic="orders"]').click()
            expect(frame.locator("tr.chosen")).to_contain_text("orders")
            expect(frame.locator("#problem")).to_be_hidden()
            frame.get_by_text("Another application").click()
            frame.get_by_label("application.id").fill("orders-aggregator")
            frame.get_by_role("button", name="Show").first.click()
            expect(frame.locator("#diagram .subtopology")).to_have_count(2)
            expect(frame.locator("#diagram .processor")).to_have_count(0)  # nothing in Kafka says which there are
            expect(frame.locator("#task-rows tbody tr")).to_have_count(4)
            expect(frame.get_by_role("button", name="Run all checks")).to_be_hidden()
            expect(frame.locator("#problem")).to_be_hidden()
        finally:
            browser.close()
    of_page = [url for url in asked if "/streams/" in url]
    assert of_page
    assert [url for url in asked if not url.startswith((stack.airflow.url, "data:", "blob:"))] == []


def test_a_deployment_shows_the_password_in_no_process_log_report_or_field(
    stack: Stack, deployment: Deployment
) -> None:
    """Airflow's database is a file here: it has the rendered templates, the XComs and the audit log."""
    password, home = stack.kafka.brokers.properties["sasl.password"], stack.settings.home
    assert deployment.shown == frozenset()
    assert files_that_show(password, home) == set()
    private = {file.relative_to(home).as_posix() for file in home.rglob("*") if _has(file, password)}
    assert private == {"security/passwords.json", "airflow/connections.json"}
    assert password not in json.dumps(patient_rest(stack).task_instances("orders_deploy", deployment.run))


def test_a_deployment_writes_no_test_data_unless_it_is_asked_for_some(stack: Stack, deployment: Deployment) -> None:
    rest, brokers = patient_rest(stack), stack.kafka.brokers
    before = len(read_committed(brokers.servers, "orders", brokers.properties))
    run = rest.trigger("orders_deploy", {})
    eventually(
        lambda: rest.task_states("orders_deploy", run)["producer"] == "skipped", "nothing is produced", DEPLOY_SECONDS
    )
    rest.set_run_state("orders_deploy", run, "failed")
    assert len(read_committed(brokers.servers, "orders", brokers.properties)) == before


@pytest.mark.parametrize("conf", [{"records": -1}, {"records": "many"}, {"rate": -5}, {"records": None}])
def test_wrong_params_are_refused_with_the_reason(stack: Stack, conf: dict[str, object]) -> None:
    rest = patient_rest(stack)
    rest.wait_for_dag("orders_deploy", deadline_seconds=DEPLOY_SECONDS)
    with pytest.raises(StreamplanError, match=f"status {httpx.codes.BAD_REQUEST}.*{next(iter(conf))}"):
        rest.trigger("orders_deploy", conf)


def test_a_deployment_begins_the_scheduled_checks_and_nobody_unpauses_a_dag(
    stack: Stack, deployment: Deployment
) -> None:
    """On an Airflow as it is installed. Runs before the deployment looked at nothing, and were not red."""
    rest = patient_rest(stack)

    def scheduled() -> list[tuple[str, Any]]:
        runs = [run for run in rest.runs("orders_health") if run["run_type"] == "scheduled"]
        return [(run["state"], rest.task_states("orders_health", run["dag_run_id"]).get("totals")) for run in runs]

    eventually(lambda: ("success", "success") in scheduled(), "a scheduled run is green", DEPLOY_SECONDS)
    assert {state for state, _ in scheduled()} <= {"success", "running", "queued"}
    assert rest.dag("orders_health")["is_paused"] is False


def test_a_missed_deadline_tells_when_the_totals_were_last_verified(
    stack: Stack, deployment: Deployment, repository: Path
) -> None:
    """A run of the health DAG that takes longer than the second that the totals may be old here."""
    rest, told = patient_rest(stack), repository / "told.jsonl"
    deployed_at = rest.xcom("orders_deploy", deployment.run, "verify.totals", "result")["at"]

    def lines_since_deployment() -> list[dict[str, Any]]:
        found = [json.loads(line) for line in told.read_text().splitlines()] if told.exists() else []
        return [line for line in found if line["verified_at"] is not None]

    eventually(lines_since_deployment, "the callback is called", DEPLOY_SECONDS)
    lines = lines_since_deployment()
    assert {(line["dag_id"], line["pipeline"], line["within"]) for line in lines} == {("orders_health", "orders", 1.0)}
    verified_at = [datetime.fromisoformat(line["verified_at"]) for line in lines]
    assert verified_at[-1] >= datetime.fromisoformat(deployed_at)
    assert len({*verified_at}) == len(verified_at)  # once of each verification


def test_a_deployment_without_scheduled_checks_is_refused_and_says_how_to_have_them(
    stack: Stack, deployment: Deployment
) -> None:
    """Somebody has paused the health DAG, or an earlier version had created it paused."""
    rest = patient_rest(stack)
    rest.pause("orders_health")
    try:
        run = rest.trigger("orders_deploy", {})
        assert rest.wait("orders_deploy", run, deadline_seconds=DEPLOY_SECONDS) == "failed"
        assert rest.task_states("orders_deploy", run)["topics"] == "failed"
        log = "\n".join(rest.task_log("orders_deploy", run, "topics"))
        assert "DAG orders_health: expected not paused" in log
        assert "airflow dags unpause orders_health" in log
    finally:
        rest.unpause("orders_health")


def _has(file: Path, password: str) -> bool:
    try:
        return file.is_file() and password.encode() in file.read_bytes()
    except FileNotFoundError:
        return False
