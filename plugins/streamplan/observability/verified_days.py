"""Were the totals of a day verified? The results of the check `totals`, by day."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from streamplan.checks.framework.check import CheckResult, Outcome

DAYS = 14
"""The number of days that are shown."""


@dataclass(frozen=True)
class VerifiedDay:
    """What the runs of the check found on one day.

    Attributes:
        day: The day in UTC, such as ``2026-03-08``.
        passed: How often the totals were verified.
        failed: How often they were wrong.
        could_not_look: How often the check could not decide.
        last: The last result of the day; None where the check did not run.
    """

    day: str
    passed: int
    failed: int
    could_not_look: int
    last: CheckResult | None


def first_moment(now: datetime) -> datetime:
    """Return when the first of the days that are shown begins."""
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight - timedelta(days=DAYS - 1)


def verified_days(results: Iterable[CheckResult], now: datetime) -> Sequence[VerifiedDay]:
    """Return the last days, the newest first. A day before the first result is left out; one without a run is not.

    Args:
        results: Results of the check, oldest first.
        now: The last day is that of this moment.
    """
    by_day: dict[date, list[CheckResult]] = {}
    for result in results:
        by_day.setdefault(datetime.fromisoformat(result.at).astimezone(UTC).date(), []).append(result)
    today = now.astimezone(UTC).date()
    days = [today - timedelta(days=number) for number in range(DAYS)]
    return [_of_day(day, by_day.get(day, [])) for day in days if by_day and day >= min(by_day)]


def _of_day(day: date, results: Sequence[CheckResult]) -> VerifiedDay:
    outcomes = [result.outcome for result in results]
    return VerifiedDay(
        day.isoformat(),
        outcomes.count(Outcome.PASSED),
        outcomes.count(Outcome.FAILED),
        outcomes.count(Outcome.COULD_NOT_LOOK),
        max(results, key=lambda result: result.at, default=None),
    )
