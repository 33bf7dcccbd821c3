"""The deadline on the age of the last verification: whom its callback tells, and when it does not."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import AsyncCallback, DeadlineReference
from airflow.serialization.serialized_objects import DagSerialization
from streamplan.airflow import declare_dags, verification_deadline
from streamplan.checks.framework.check import CheckResult, Outcome
from streamplan.pipelines.orders import PIPELINE
from streamplan.reports.results import write_result
from streamplan.settings import Settings

WITHIN = timedelta(minutes=30)
MISSED = {"dag_run": {"dag_id": "orders_health"}, "deadline": {"id": "1"}}
TOLD: list[Any] = []


async def tell(word: str, context: dict[str, Any]) -> None:
    TOLD.append((word, context["dag_run"]["dag_id"], context["verification"]))
    if word == "broken":
        raise ConnectionError("no network")


def miss(word: str = "late") -> str:
    """Call what Airflow calls for a missed deadline: the path of the callback with its arguments and a context."""
    alert = verification_deadline(PIPELINE, WITHIN, AsyncCallback(tell, kwargs={"word": word}))
    module, name = alert.callback.path.rsplit(".", 1)
    callback = getattr(__import__(module, fromlist=[name]), name)
    answer: str = asyncio.run(callback(**alert.callback.kwargs, context=MISSED))
    return answer


def looked(outcome: Outcome, minutes: float, check: str = "totals") -> str:
    at = (datetime.now(UTC) - timedelta(minutes=minutes)).isoformat()
    write_result(Settings.from_environment().reports, CheckResult("orders", check, outcome, "", at, ()))
    return at


@pytest.fixture(autouse=True)
def reports(home: Path) -> None:
    TOLD.clear()


def test_the_health_dag_has_the_deadline_and_it_is_serialized() -> None:
    alert = verification_deadline(PIPELINE, WITHIN, AsyncCallback(tell, kwargs={"word": "late"}))
    assert (alert.reference, alert.interval) == (DeadlineReference.DAGRUN_QUEUED_AT, WITHIN)
    dag = declare_dags(PIPELINE, deadlines=[alert])["orders_health"]
    assert dag.deadline == [alert]
    assert DagSerialization.to_dict(dag)["dag"]["deadline"]


def test_totals_that_were_verified_in_time_are_no_news_though_the_run_failed() -> None:
    """A run that fails for another reason misses its deadline, too."""
    looked(Outcome.PASSED, 20)
    looked(Outcome.FAILED, 10, check="lag")
    assert miss().startswith("not called: the totals of orders were verified at ")
    assert TOLD == []


@pytest.mark.parametrize("since", [Outcome.FAILED, Outcome.COULD_NOT_LOOK])
def test_totals_that_have_not_passed_for_too_long_are_told_with_their_last_pass(since: Outcome) -> None:
    at = looked(Outcome.PASSED, 40)
    looked(since, 10)
    miss()
    (told,) = TOLD
    assert told == ("late", "orders_health", {"pipeline": "orders", "verified_at": at, "within": 1800.0})


def test_totals_that_failed_lately_are_not_too_old_before_their_time() -> None:
    looked(Outcome.PASSED, 20)
    looked(Outcome.FAILED, 10)
    miss()
    assert TOLD == []


def test_totals_that_were_never_verified_are_told() -> None:
    miss()
    assert [verification["verified_at"] for _, _, verification in TOLD] == [None]


def test_each_alert_tells_once_of_a_verification() -> None:
    looked(Outcome.PASSED, 60)
    for word in ("late", "late", "another", "late", "another"):
        miss(word)
    assert [word for word, _, _ in TOLD] == ["late", "another"]
    looked(Outcome.PASSED, 40)
    miss()
    assert [word for word, _, _ in TOLD] == ["late", "another", "late"]


def test_a_callback_that_raised_is_called_again() -> None:
    looked(Outcome.PASSED, 60)
    for _ in range(2):
        with pytest.raises(ConnectionError, match="no network"):
            miss("broken")
    assert len(TOLD) == 2


def test_a_verification_that_a_clock_ahead_has_dated_silences_no_alarm() -> None:
    """It neither counts as young for two days, nor does it hide the verifications after it."""
    ahead = looked(Outcome.PASSED, -2 * 24 * 60)
    miss()
    assert [verification["verified_at"] for _, _, verification in TOLD] == [ahead]
    looked(Outcome.PASSED, 20)
    assert miss().startswith("not called: the totals of orders were verified at ")
    at = looked(Outcome.PASSED, 40)
    miss()
    assert [verification["verified_at"] for _, _, verification in TOLD] == [ahead, at]


@pytest.mark.parametrize("torn", ['{"pipeline": "orders", "check": "totals", "outc', "\0" * 100, "[]"])
def test_torn_lines_silence_no_alert(torn: str) -> None:
    """As a full disk leaves them. The totals were last verified before it was full."""
    at = looked(Outcome.PASSED, 40)
    with (Settings.from_environment().reports / "orders" / "history.jsonl").open("a") as file:
        file.write(torn)
    miss()
    assert [verification["verified_at"] for _, _, verification in TOLD] == [at]
    looked(Outcome.PASSED, 1)
    assert miss().startswith("not called: the totals of orders were verified at ")


def test_an_alert_that_cannot_read_the_history_tells_that_each_time() -> None:
    (Settings.from_environment().reports / "orders" / "history.jsonl").mkdir(parents=True)
    miss()
    miss()
    assert [verification["verified_at"] for _, _, verification in TOLD] == [None, None]
    assert all("history.jsonl" in verification["problem"] for _, _, verification in TOLD)


def test_an_alert_tells_again_where_it_cannot_read_what_it_told() -> None:
    looked(Outcome.PASSED, 60)
    miss()
    (told,) = (Settings.from_environment().reports / "orders" / "announced").glob("verification-*")
    told.write_text("")
    miss()
    assert len(TOLD) == 2
