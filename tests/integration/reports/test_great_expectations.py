"""Great Expectations as the judge, and its Data Docs. No brokers: the cluster is in memory, or away."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest
from streamplan.checks import CHECKS, check_named, totals
from streamplan.checks.framework.application import application_of
from streamplan.checks.framework.check import Check, CheckResult, Observation, Outcome, RecordedCheck
from streamplan.kafka.brokers import Brokers
from streamplan.pipelines.orders import PIPELINE
from streamplan.reports import great_expectations as expectations
from streamplan.reports.great_expectations import run_check
from streamplan.reports.results import read_history, read_latest
from streamplan.settings import PROJECT, Settings

from tests.support.fake_cluster import FakeApplication, FakeCluster


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.from_environment({"STREAMPLAN_HOME": str(tmp_path / "a home")})


def application() -> FakeApplication:
    made = FakeApplication(FakeCluster(), PIPELINE)
    for n in range(19):
        made.order(n)
    made.drain()
    return made


def run(check: Check, settings: Settings, cluster: FakeCluster) -> CheckResult:
    return run_check(application_of(PIPELINE), check, brokers=Brokers(""), settings=settings, cluster=cluster)


def test_green_and_red_with_a_page_each(settings: Settings) -> None:
    healthy = application()
    first = run(totals.CHECK, settings, healthy.cluster)
    assert (first.outcome, first.reason) == (Outcome.PASSED, "4 of 4 as expected")
    healthy.cluster.produce(healthy.changelog, b"0", (11).to_bytes(8, "big"))
    second = run(totals.CHECK, settings, healthy.cluster)
    assert second.outcome is Outcome.FAILED
    assert second.reason.startswith("2 of 4 wrong: orders-products-quantities[0] Jackets: expected 10, observed 11")
    assert first.data_docs is not None
    assert second.data_docs is not None
    assert "Jackets: expected 10, observed 10" in (settings.reports / first.data_docs).read_text()
    assert "Jackets: expected 10, observed 11" in (settings.reports / second.data_docs).read_text()
    index = (settings.reports / "orders" / "data_docs" / "index.html").read_text()
    for page in (first.data_docs, second.data_docs):
        assert page.removeprefix("orders/data_docs/") in index
    assert read_latest(settings.reports, "orders") == {"totals": second}
    assert [result.outcome for result in read_history(settings.reports, "orders")] == [first.outcome, second.outcome]


def test_no_rows_are_red(settings: Settings) -> None:
    result = run(RecordedCheck(totals.CHECK, tuple), settings, FakeCluster())
    assert (result.outcome, result.reason) == (Outcome.FAILED, "nothing to look at: the check found no rows")


def test_words_and_numbers_in_one_table(settings: Settings) -> None:
    rows = [Observation("a", 1, 1), Observation("b", "compact", "compact"), Observation("c", 2, "2")]
    mixed = RecordedCheck(totals.CHECK, lambda: rows)
    assert run(mixed, settings, FakeCluster()).reason == "1 of 3 wrong: c: expected 2, observed 2"


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_brokers_away_is_neither_green_nor_red(
    check: Check, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = expectations.KafkaCluster
    monkeypatch.setattr(expectations, "KafkaCluster", lambda servers: cluster(servers, deadline_seconds=0.3))
    result = run_check(application_of(PIPELINE), check, brokers=Brokers("127.0.0.1:1"), settings=settings)
    assert result.outcome is Outcome.COULD_NOT_LOOK
    assert "127.0.0.1:1" in result.reason
    assert "\n" not in result.reason
    assert read_latest(settings.reports, "orders")[check.name] == result


SIDE_BY_SIDE, RUNS = 4, 2

_RUN = """
import multiprocessing, sys
from tests.integration.reports.test_great_expectations import CHECKS, RUNS, SIDE_BY_SIDE, application, run, Settings

def look(check):
    for _ in range(RUNS):
        print(run(check, Settings.from_environment(), application().cluster).data_docs, flush=True)

context = multiprocessing.get_context("fork")  # as Airflow's LocalExecutor starts tasks
started = [context.Process(target=look, args=(check,)) for check in CHECKS[:SIDE_BY_SIDE]]
for process in started:
    process.start()
for process in started:
    process.join()
sys.exit(any(process.exitcode for process in started))
"""


def test_checks_that_run_at_once_share_the_site(settings: Settings) -> None:
    environment = {"STREAMPLAN_HOME": str(settings.home), "PYTHONPATH": f"{PROJECT / 'plugins'}:{PROJECT}", "PATH": ""}
    argv = [sys.executable, "-c", _RUN]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    pages = done.stdout.split()
    index = (settings.reports / "orders" / "data_docs" / "index.html").read_text()
    assert len(pages) == RUNS * SIDE_BY_SIDE
    for page in pages:
        assert (settings.reports / page).is_file()
        assert page.removeprefix("orders/data_docs/") in index
    assert len(read_history(settings.reports, "orders")) == RUNS * SIDE_BY_SIDE


def test_old_pages_are_forgotten(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expectations, "KEPT_PAGES", 2)
    cluster = application().cluster
    pages = [run(check_named("totals"), settings, cluster).data_docs for _ in range(4)]
    assert [(settings.reports / str(page)).exists() for page in pages] == [False, False, True, True]
    index = (settings.reports / "orders" / "data_docs" / "index.html").read_text()
    assert [str(page).removeprefix("orders/data_docs/") in index for page in pages] == [False, False, True, True]


def test_the_index_lists_the_newest_runs_and_is_left_to_whom_comes_next(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To write it anew costs as much as it lists; pages that it does not list are still there."""
    monkeypatch.setattr(expectations, "LISTED_PAGES", 2)
    check, cluster = check_named("totals"), application().cluster
    index = settings.reports / "orders" / "data_docs" / "index.html"
    before = [run(check, settings, cluster).data_docs for _ in range(2)]
    written = index.read_text()
    with (settings.reports / "orders" / ".gx.waiting").open("w") as another:
        fcntl.flock(another, fcntl.LOCK_SH)
        left = run(check, settings, cluster).data_docs
        assert index.read_text() == written
    pages = [*before, left, run(check, settings, cluster).data_docs]
    assert all((settings.reports / str(page)).exists() for page in pages)
    listed = index.read_text()
    assert [str(page).removeprefix("orders/data_docs/") in listed for page in pages] == [False, False, True, True]
