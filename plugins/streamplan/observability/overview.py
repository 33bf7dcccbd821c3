"""Many applications at one look: what is wrong, the lag in the last day, dead letters, the last verification.

The brokers say what is so now, the history of the checks what was so before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from streamplan.checks.framework.check import CheckResult, Outcome
from streamplan.checks.lag import LAG_SECONDS
from streamplan.checks.totals import CHECK as TOTALS
from streamplan.observability.snapshot import Snapshot

HOURS = 24
"""The number of hours of which the lag is shown."""

LATE_SECONDS = 60.0
"""A record that has waited for longer is worth a remark."""


@dataclass(frozen=True)
class ApplicationRow:
    """What the overview says of an application. The field names are keys in the page's JSON.

    Attributes:
        pipeline: The name of the pipeline.
        at: When the brokers were asked, ISO 8601.
        problems: What somebody has to look after.
        remarks: What is worth knowing.
        lag_seconds: The age of the oldest record that is not processed; None where it is not known.
        lag_by_hour: The greatest age that the check `lag` has measured in each of the last 24 hours, the oldest hour
            first; None where it measured none. The last one has the present age, too.
        greatest_lag_seconds: The greatest of them; None where none is known.
        verified: When the totals were last verified, ISO 8601; None where nobody knows of it.
        dead_letters: The number of open dead letters; None where the brokers did not answer.
    """

    pipeline: str
    at: str
    problems: Sequence[str]
    remarks: Sequence[str]
    lag_seconds: float | None
    lag_by_hour: Sequence[float | None]
    greatest_lag_seconds: float | None
    verified: str | None
    dead_letters: int | None


def not_asked(pipeline: str, now: datetime, problem: str) -> ApplicationRow:
    """Return the row of an application whose brokers are not known.

    Args:
        pipeline: The name of the pipeline.
        problem: Why they are not known.
    """
    at = now.isoformat(timespec="milliseconds")
    return ApplicationRow(pipeline, at, [problem], [], None, [None] * HOURS, None, None, None)


def summarize(
    snapshot: Snapshot, history: Iterable[CheckResult], now: datetime, *, answered: bool = True
) -> ApplicationRow:
    """Return the row of an application.

    Args:
        snapshot: What is so now.
        history: Results of its checks `lag` and `totals`, oldest first.
        now: The end of the last hour.
        answered: Whether the brokers answer. If they do, what was never checked is not deployed, and has no problem.
    """
    problems, remarks = _said(snapshot)
    if snapshot.problem and answered and not snapshot.checks:
        problems, remarks = [], [f"not deployed: {snapshot.problem}"]
    ages = [task.lag_seconds for task in snapshot.tasks]
    known = [age for age in ages if age is not None]
    lag = max(known) if known and len(known) == len(ages) else None
    if lag is not None and lag > LATE_SECONDS and not problems:
        remarks.append("records wait")
    by_hour: list[float | None] = [None] * HOURS
    verified = None
    for result in history:
        if result.check == TOTALS.name and result.outcome is Outcome.PASSED:
            verified = result.at
        hour = HOURS - 1 - int((now - datetime.fromisoformat(result.at)) // timedelta(hours=1))
        if LAG_SECONDS in result.figures and 0 <= hour < HOURS:
            by_hour[hour] = max(result.figures[LAG_SECONDS], by_hour[hour] or 0.0)
    if lag is not None:
        by_hour[-1] = max(lag, by_hour[-1] or 0.0)
    return ApplicationRow(
        snapshot.pipeline,
        snapshot.at,
        problems,
        remarks,
        lag,
        by_hour,
        max((value for value in by_hour if value is not None), default=None),
        verified,
        None if snapshot.problem else sum(snapshot.dead_letters.values()),
    )


def _said(snapshot: Snapshot) -> tuple[list[str], list[str]]:
    """Return the problems and the remarks about an application."""
    problems = [snapshot.problem] if snapshot.problem else []
    remarks: list[str] = []
    if not snapshot.problem and snapshot.members is not None and not snapshot.members:
        waiting = [task.lag for task in snapshot.tasks if task.lag != 0]
        offsets = sum(lag or 0 for lag in waiting)
        (problems if waiting else remarks).append(
            f"no aggregator runs, and records wait (offsets: {offsets:,})" if waiting else "no aggregator runs"
        )
    elif snapshot.silent:
        problems.append("the aggregator is silent")
    elif snapshot.aggregator is not None and snapshot.aggregator.held:
        problems.append("the aggregator holds a record back")
    for outcome, said, where in (
        (Outcome.FAILED, "failed", problems),
        (Outcome.COULD_NOT_LOOK, "could not look", remarks),
    ):
        if named := [check.check for check in snapshot.checks if check.outcome is outcome]:
            where.append(f"{said}: {', '.join(named)}")
    if not snapshot.checks:
        remarks.append("no check has run")
    return problems, remarks
