"""The checks of a declared pipeline with all they may be given: what was verified before, claims, a faster count."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from streamplan.checks import check_named, lag, totals
from streamplan.checks.framework.application import Application
from streamplan.checks.framework.check import Check, Outcome
from streamplan.checks.framework.cluster import Cluster
from streamplan.checks.totals import StoreTotals
from streamplan.reports.results import Recounted, read_latest, verified_file
from streamplan.reports.status import read_status, status_file
from streamplan.reports.verified_sqlite import KeptFile


def prepare(name: str, pipeline: str, reports: Path, *, full: bool = False, store: StoreTotals | None = None) -> Check:
    """The check of that name. ``full`` recounts everything; ``store`` is what the state store held."""
    if name == totals.CHECK.name:
        return totals.check_with(kept=KeptFile(verified_file(reports, pipeline)), full=full, store=store)
    if name == lag.CHECK.name:
        return lag.check_with(read_status(status_file(reports, pipeline)))
    return check_named(name)


def passed_lately(check: Check, pipeline: str, reports: Path) -> str | None:
    """When it passed, where that is not long enough ago to look again; else None."""
    last = read_latest(reports, pipeline).get(check.name)
    if last is None or last.outcome is not Outcome.PASSED:
        return None
    return last.at if _is_younger(last.at, timedelta(minutes=check.every_minutes)) else None


def _is_younger(at: str, limit: timedelta) -> bool:
    """What is of the future is not: clocks differ, and nothing is to be skipped for that."""
    return timedelta(0) <= datetime.now(UTC) - datetime.fromisoformat(at) < limit


def contents(application: Application, cluster: Cluster) -> dict[str, Any]:
    """Of each topic its id, and by partition the first and the last stable offset and the application's position.

    Two that are equal: nothing has come, gone or been processed between. As JSON would give it back.
    """
    there = sorted(cluster.topics([spec.name for spec in application.topics]))
    ids = cluster.topic_ids(there)
    positions = cluster.read_by(application.application_id)
    return {
        topic: {
            "id": ids[topic],
            "partitions": {
                str(number): [found.start, found.stable, positions.get(topic, {}).get(number)]
                for number, found in sorted(cluster.offsets(topic).items())
            },
        }
        for topic in there
    }


RECOUNTED_HOURS = 24
"""After so long Spark recounts again, though nothing is new: the declaration may be."""


def recounted_before(path: Path, application: Application, cluster: Cluster) -> Recounted | None:
    """What Spark found when it last computed the pipeline anew, if it would find the same now."""
    if not path.exists():
        return None
    last = Recounted.read(path)
    if last.could_not_look is not None or not last.contents:
        return None
    young = _is_younger(last.at, timedelta(hours=RECOUNTED_HOURS))
    return last if young and last.contents == contents(application, cluster) else None


def unbounded(check: Check) -> Check:
    """The same check, looking at every record and not at a sample."""
    return replace(check, observe=lambda application, cluster: check.observe(application.without_bounds(), cluster))
