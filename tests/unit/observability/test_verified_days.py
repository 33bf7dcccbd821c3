"""Whether yesterday's totals were verified, compared with what the test wrote into the history."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from streamplan.checks.framework.check import CheckResult, Outcome
from streamplan.observability.verified_days import DAYS, first_moment, verified_days

NOW = datetime(2026, 3, 8, 12, tzinfo=UTC)


def result(outcome: Outcome, at: datetime) -> CheckResult:
    return CheckResult("orders", "totals", outcome, f"{outcome} at {at:%H:%M}", at.isoformat(), ())


def test_a_day_says_how_often_the_totals_were_verified_and_what_was_last() -> None:
    yesterday = NOW - timedelta(days=1)
    results = [
        result(Outcome.PASSED, yesterday - timedelta(hours=3)),
        result(Outcome.FAILED, yesterday - timedelta(hours=2)),
        result(Outcome.COULD_NOT_LOOK, yesterday - timedelta(hours=1)),
        result(Outcome.PASSED, yesterday),
        result(Outcome.PASSED, NOW),
    ]
    today, before = verified_days(results, NOW)
    assert (today.day, today.passed, today.failed, today.could_not_look) == ("2026-03-08", 1, 0, 0)
    assert (before.day, before.passed, before.failed, before.could_not_look) == ("2026-03-07", 2, 1, 1)
    assert before.last == results[3]


def test_a_day_without_a_run_stands_there_as_not_verified() -> None:
    days = verified_days([result(Outcome.PASSED, NOW - timedelta(days=2))], NOW)
    assert [(each.day, each.passed, each.last is None) for each in days] == [
        ("2026-03-08", 0, True),
        ("2026-03-07", 0, True),
        ("2026-03-06", 1, False),
    ]


def test_days_are_those_of_utc() -> None:
    at = datetime(2026, 3, 8, 1, tzinfo=timezone(timedelta(hours=5)))  # 20:00 of the day before in UTC
    assert [each.day for each in verified_days([result(Outcome.PASSED, at)], NOW)][-1] == "2026-03-07"


def test_no_more_days_than_two_weeks_are_shown() -> None:
    results = [result(Outcome.PASSED, NOW - timedelta(days=number)) for number in range(30, -1, -1)]
    days = verified_days(results, NOW)
    assert len(days) == DAYS == 14
    assert days[-1].day == f"{first_moment(NOW):%Y-%m-%d}" == "2026-02-23"


def test_without_a_result_no_day_is_shown() -> None:
    assert list(verified_days([], NOW)) == []
