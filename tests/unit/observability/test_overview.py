"""The row of an application in the overview."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from streamplan.checks.framework.check import CheckResult, Outcome
from streamplan.observability.overview import HOURS, summarize
from streamplan.observability.snapshot import Snapshot, TaskSnapshot

NOW = datetime(2026, 3, 8, 12, 0, tzinfo=UTC)


def task(lag: int | None, seconds: float | None) -> TaskSnapshot:
    return TaskSnapshot("0_0", "sub-topology 0", (), lag, seconds, None, None, None, None)


def result(check: str, outcome: Outcome, hours: float, **figures: float) -> CheckResult:
    at = (NOW - timedelta(hours=hours)).isoformat()
    return CheckResult("orders", check, outcome, "", at, (), figures=figures)


def snapshot(
    *tasks: TaskSnapshot, members: tuple[str, ...] = ("one",), problem: str = "", checks: tuple[CheckResult, ...] = ()
) -> Snapshot:
    return Snapshot(
        "orders", "orders-app", NOW.isoformat(), problem, members, None, False, tasks, (), (), {"a": 2, "b": 1}, checks,
        None,
    )  # fmt: skip


PASSED = result("lag", Outcome.PASSED, 0)


@pytest.mark.parametrize(
    ("seen", "problems", "remarks"),
    [
        (snapshot(task(0, 0.0), checks=(PASSED,)), [], []),
        (snapshot(task(3, 2.0), checks=(PASSED,)), [], []),
        (snapshot(task(3, 90.0), checks=(PASSED,)), [], ["records wait"]),
        (snapshot(task(0, 0.0), members=(), checks=(PASSED,)), [], ["no aggregator runs"]),
        (
            snapshot(task(3, 2.0), members=(), checks=(PASSED,)),
            ["no aggregator runs, and records wait (offsets: 3)"],
            [],
        ),
        (snapshot(task(0, 0.0), checks=(result("lag", Outcome.FAILED, 0),)), ["failed: lag"], []),
        (snapshot(task(0, 0.0), checks=(result("lag", Outcome.COULD_NOT_LOOK, 0),)), [], ["could not look: lag"]),
        (snapshot(task(0, 0.0)), [], ["no check has run"]),
        (snapshot(problem="no topic", checks=(PASSED,)), ["no topic"], []),
        (snapshot(problem="no topic"), [], ["not deployed: no topic"]),
    ],
)
def test_a_problem_needs_somebody_and_a_remark_does_not(
    seen: Snapshot, problems: list[str], remarks: list[str]
) -> None:
    row = summarize(seen, (), NOW)
    assert (list(row.problems), list(row.remarks)) == (problems, remarks)


def test_brokers_that_do_not_answer_are_a_problem_of_a_pipeline_that_was_never_checked() -> None:
    assert list(summarize(snapshot(problem="no answer"), (), NOW, answered=False).problems) == ["no answer"]


def test_the_lag_of_the_last_day_by_hour_and_the_last_verification() -> None:
    history = [
        result("totals", Outcome.PASSED, 30),
        result("totals", Outcome.FAILED, 1),
        result("lag", Outcome.PASSED, 25, lag_seconds=99.0),
        result("lag", Outcome.PASSED, 23.5, lag_seconds=7.0),
        result("lag", Outcome.FAILED, 1.2, lag_seconds=5.0),
        result("lag", Outcome.PASSED, 1.1, lag_seconds=4.0),
    ]
    row = summarize(snapshot(task(3, 2.0)), history, NOW)
    assert row.lag_by_hour == [7.0, *[None] * (HOURS - 3), 5.0, 2.0]
    assert (row.lag_seconds, row.greatest_lag_seconds, row.dead_letters) == (2.0, 7.0, 3)
    assert row.verified == (NOW - timedelta(hours=30)).isoformat()
