"""The page of a run in the Data Docs, as Great Expectations renders it. The cluster is in memory, or away."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from streamplan.checks import CHECKS, check_named, totals
from streamplan.checks.framework.application import application_of
from streamplan.checks.framework.check import Check, CheckResult, Observation, Outcome, RecordedCheck, run_check
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.pipelines.orders import PIPELINE
from streamplan.reports import great_expectations as expectations
from streamplan.reports import run_page as pages
from streamplan.reports.great_expectations import write_data_docs
from streamplan.reports.results import read_beside, read_history, read_latest, write_result
from streamplan.reports.run_page import RunPage
from streamplan.settings import PROJECT, Settings

from tests.support.fake_cluster import FakeApplication, FakeCluster

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
AWAY = "Kafka at 127.0.0.1:1: expected an answer, observed <none>"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.from_environment({"STREAMPLAN_HOME": str(tmp_path / "a home")})


def application() -> FakeApplication:
    made = FakeApplication(FakeCluster(), PIPELINE)
    for n in range(19):
        made.order(n)
    made.drain()
    return made


def run(
    settings: Settings,
    cluster: FakeCluster,
    *,
    minute: int = 0,
    dag_id: str = "orders_health",
    instead: Mapping[str, CheckResult] | None = None,
) -> Path:
    """What the tasks of a run do: each check looks and writes its result, the last task writes the page."""
    page = RunPage("orders", dag_id, NOON + timedelta(minutes=minute))
    for check in CHECKS:
        result = (instead or {}).get(check.name) or run_check(application_of(PIPELINE), check, cluster)
        write_result(settings.reports, replace(result, data_docs=page.path))
    write_data_docs(settings.reports, page, read_beside(settings.reports, "orders", page.path))
    return settings.reports / page.path


def could_not_look(check: str) -> CheckResult:
    return CheckResult("orders", check, Outcome.COULD_NOT_LOOK, AWAY, "2026-01-31T12:00:00+00:00", ())


def index(settings: Settings) -> str:
    return (settings.reports / "orders" / "data_docs" / "index.html").read_text()


def test_all_checks_of_a_run_are_on_one_page(settings: Settings) -> None:
    healthy = application()
    healthy.cluster.produce(healthy.changelog, b"0", (11).to_bytes(8, "big"))
    page = run(settings, healthy.cluster, instead={"lag": could_not_look("lag")}).read_text()
    for check in CHECKS:
        assert f'id="orders_{check.name}"' in page
        assert check.title in page
        assert check.healthy.split(".")[0].split("'")[0] in page
    assert "2 of 5 wrong: orders-products-quantities[0] Jackets: expected 10, observed 11" in page
    rows = re.findall(
        r'<td>([^<]*Jackets)<.*?<td class="number">(.*?)</td>\s*<td class="number">(.*?)</td>', page, re.S
    )
    assert ("orders-products-quantities[0] Jackets", "10", "11") in rows
    assert "could not look" in page
    assert "observed &lt;none&gt;" in page  # escaped


def test_great_expectations_says_of_each_check_what_the_check_said(settings: Settings) -> None:
    """The check is the judge. A check without rows, and one that could not look, are not successful either."""
    nothing = run_check(application_of(PIPELINE), RecordedCheck(totals.CHECK, tuple), FakeCluster())
    assert (nothing.outcome, nothing.reason) == (Outcome.FAILED, "nothing to look at: the check found no rows")
    rows = [Observation("a", 1, 1), Observation("b", "compact", "compact"), Observation("c", 2, "2")]
    mixed = replace(nothing, check="skew", observations=tuple(rows))
    run(settings, application().cluster, instead={"totals": nothing, "skew": mixed, "lag": could_not_look("lag")})
    (file,) = (settings.reports / "orders" / "gx" / "validations").glob("orders_health/*/*/*.json")
    results = json.loads(file.read_text())["results"]
    success = {result["expectation_config"]["meta"]["name"]: result["success"] for result in results}
    latest = read_latest(settings.reports, "orders")
    assert success == {name: result.outcome is Outcome.PASSED for name, result in latest.items()}
    assert [name for name, passed in success.items() if not passed] == ["repartition", "totals", "lag", "skew"]


def test_the_pages_need_no_network(settings: Settings) -> None:
    run(settings, application().cluster, instead={"lag": could_not_look("lag")})
    written = sorted((settings.reports / "orders" / "data_docs").rglob("*.html"))
    assert len(written) == 2  # the page and the index
    for page in written:
        html = page.read_text()
        assert re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?\s*(?:https?:)?//""", html) == []
        assert re.findall(r"<(?:script|iframe|img|link(?! rel=\"icon\" href=\"data:))", html) == []
        assert "<style>" in html


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_brokers_away_is_neither_green_nor_red(check: Check) -> None:
    cluster = KafkaCluster(Brokers("127.0.0.1:1"), deadline_seconds=0.3)
    result = run_check(application_of(PIPELINE), check, cluster)
    assert result.outcome is Outcome.COULD_NOT_LOOK
    assert "127.0.0.1:1" in result.reason
    assert "\n" not in result.reason


def test_the_index_leads_to_every_run_and_names_what_is_wrong(settings: Settings) -> None:
    healthy = application()
    fit = replace(could_not_look("repartition"), outcome=Outcome.PASSED, reason="as expected")
    first = run(settings, healthy.cluster, instead={"repartition": fit})
    healthy.cluster.produce(healthy.changelog, b"0", (11).to_bytes(8, "big"))
    second = run(settings, healthy.cluster, minute=1, instead={"repartition": fit, "lag": could_not_look("lag")})
    lines = re.findall(r'<a href="(.*?)">.*?</tr>', index(settings), re.S)
    root = settings.reports / "orders" / "data_docs"
    assert [root / line for line in lines] == [second, first]
    assert "8 passed" in index(settings)
    assert "6 passed; failed: totals; could not look: lag" in index(settings)


def test_a_result_that_a_later_run_replaced_stays_on_its_page(settings: Settings) -> None:
    """Two DAGs may look at the same time. The history has the wrong rows alone."""
    page, later = RunPage("orders", "orders_deploy", NOON), RunPage("orders", "orders_health", NOON)
    passed = run_check(application_of(PIPELINE), check_named("totals"), application().cluster)
    assert passed.outcome is Outcome.PASSED
    assert passed.observations
    for result in (could_not_look("lag"), passed):
        write_result(settings.reports, replace(result, data_docs=page.path))
    write_result(settings.reports, replace(could_not_look("totals"), data_docs=later.path))
    found = read_beside(settings.reports, "orders", page.path)
    assert [result.check for result in found] == ["totals", "lag"]
    assert found[0].observations == passed.observations
    write_data_docs(settings.reports, page, found)
    assert "Shirts" in (settings.reports / page.path).read_text()


def test_old_pages_are_forgotten(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expectations, "KEPT_PAGES", 2)
    cluster = application().cluster
    deployment = run(settings, cluster, dag_id="orders_deploy")
    runs = [run(settings, cluster, minute=minute) for minute in range(4)]
    assert [page.exists() for page in [deployment, *runs]] == [True, False, False, True, True]
    listed = [
        page.relative_to(settings.reports / "orders" / "data_docs").as_posix() in index(settings) for page in runs
    ]
    assert listed == [False, False, True, True]


def test_the_index_lists_the_newest_runs_alone(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pages that it does not list are still there."""
    monkeypatch.setattr(pages, "LISTED_PAGES", 2)
    cluster = application().cluster
    runs = [run(settings, cluster, minute=minute) for minute in range(3)]
    assert all(page.exists() for page in runs)
    listed = [page.parents[1].name in index(settings) for page in runs]
    assert listed == [False, True, True]
    assert len(read_history(settings.reports, "orders")) == 3 * len(CHECKS)


RUNS = 2

_RUNS_OF_TWO_DAGS = """
import multiprocessing, sys
from tests.integration.reports.test_great_expectations import RUNS, application, run, Settings

def runs(dag_id):
    for minute in range(RUNS):
        print(run(Settings.from_environment(), application().cluster, minute=minute, dag_id=dag_id), flush=True)

context = multiprocessing.get_context("fork")  # as Airflow's LocalExecutor starts tasks
processes = [context.Process(target=runs, args=(dag_id,)) for dag_id in ("orders_health", "orders_deploy")]
for process in processes:
    process.start()
for process in processes:
    process.join()
sys.exit(any(process.exitcode for process in processes))
"""


@pytest.mark.soak
def test_runs_of_two_dags_write_at_the_same_time(settings: Settings) -> None:
    environment = {"STREAMPLAN_HOME": str(settings.home), "PYTHONPATH": f"{PROJECT / 'plugins'}:{PROJECT}", "PATH": ""}
    argv = [sys.executable, "-c", _RUNS_OF_TWO_DAGS]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    written = [Path(line) for line in done.stdout.splitlines()]
    assert len(written) == 2 * RUNS
    assert all(page.is_file() for page in written)
    assert len(read_history(settings.reports, "orders")) == 2 * RUNS * len(CHECKS)
