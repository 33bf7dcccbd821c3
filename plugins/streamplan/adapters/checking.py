"""The checks of a declared pipeline with all they may be given: what was verified before, claims, a faster count."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from streamplan.adapters.counting import count_batch
from streamplan.adapters.kept import KeptFile
from streamplan.adapters.results import claim_file, read_claim, read_latest, verified_file
from streamplan.checks import check_named, lag, totals
from streamplan.checks.observation import Check, Outcome
from streamplan.checks.totals import StoreTotals


def prepare(name: str, pipeline: str, reports: Path, *, full: bool = False, store: StoreTotals | None = None) -> Check:
    """The check of that name. ``full`` recounts everything; ``store`` is what the state store held."""
    if name == totals.CHECK.name:
        return totals.check_with(
            kept=KeptFile(verified_file(reports, pipeline)), full=full, store=store, count=count_batch
        )
    if name == lag.CHECK.name:
        return lag.check_with(read_claim(claim_file(reports, pipeline)))
    return check_named(name)


def passed_lately(check: Check, pipeline: str, reports: Path) -> str | None:
    """When it passed, where that is not long enough ago to look again; else None."""
    last = read_latest(reports, pipeline).get(check.name)
    if last is None or last.outcome is not Outcome.PASSED:
        return None
    age = datetime.now(UTC) - datetime.fromisoformat(last.at)
    return last.at if timedelta(0) <= age < timedelta(minutes=check.every_minutes) else None


def unbounded(check: Check) -> Check:
    """The same check, looking at every record and not at a sample."""
    return replace(check, observe=lambda application, cluster: check.observe(application.without_bounds(), cluster))
