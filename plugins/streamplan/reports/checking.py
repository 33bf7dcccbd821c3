"""What the reports directory holds for the checks: the verified cut, the aggregator's status, earlier results."""

from __future__ import annotations

import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from streamplan.checks.framework.application import Application
from streamplan.checks.framework.check import CheckContext, Outcome
from streamplan.checks.framework.cluster import Cluster
from streamplan.checks.framework.verified import NoVerifiedStore, VerifiedStore
from streamplan.reports.results import Recounted, read_latest, read_state_store, verified_file
from streamplan.reports.status import read_status, status_file
from streamplan.reports.verified_sqlite import SqliteVerifiedStore


def check_context(
    application: Application,
    reports: Path,
    *,
    full: bool = False,
    with_state_store: bool = False,
    recounted: Path | None = None,
) -> CheckContext:
    """Read what the checks of an application may be given.

    Args:
        application: A declared pipeline, or an application that was discovered.
        reports: The directory of all reports.
        full: Whether to look at every record.
        with_state_store: Whether to compare with what the state store held when it was last read.
        recounted: The file of ``jobs/recount.py``, where that job runs before the checks.
    """
    return CheckContext(
        full=full,
        verified=_verified_store(application, reports),
        aggregator=read_status(status_file(reports, application.name)) if application.declared else None,
        state_store=read_state_store(reports, application.name) if with_state_store else None,
        recounted=None if recounted is None else lambda: Recounted.read(recounted).observe(),
    )


def _verified_store(application: Application, reports: Path) -> VerifiedStore:
    if application.declared:
        return SqliteVerifiedStore(verified_file(reports, application.name))
    if not application.aggregations:
        return NoVerifiedStore()
    # The user says how a discovered application counts. Nothing is verified for a count that was described otherwise.
    (aggregation,) = application.aggregations
    version = zlib.crc32(repr(aggregation).encode())
    return SqliteVerifiedStore(reports / application.name / f"totals-{version:08x}.sqlite")


def passed_lately(check: str, pipeline: str, reports: Path, *, minutes: float) -> str | None:
    """Return when the check last passed if that is less than ``minutes`` ago, else None."""
    last = read_latest(reports, pipeline).get(check)
    if last is None or last.outcome is not Outcome.PASSED:
        return None
    return last.at if _is_younger(last.at, timedelta(minutes=minutes)) else None


def _is_younger(at: str, limit: timedelta) -> bool:
    """What is of the future is not: clocks differ, and nothing is to be skipped for that."""
    return timedelta(0) <= datetime.now(UTC) - datetime.fromisoformat(at) < limit


def contents(application: Application, cluster: Cluster) -> dict[str, Any]:
    """Of each topic its id, and by partition the first and the last stable offset and the application's position.

    Two that are equal: nothing has come, gone or been processed between. As JSON would give it back.
    """
    there = sorted(cluster.topics([spec.name for spec in application.topics]))
    ids = cluster.topic_ids(there)
    positions = cluster.committed_offsets(application.application_id)
    return {
        topic: {
            "id": ids[topic],
            "partitions": {
                str(number): [found.log_start, found.last_stable, positions.get(topic, {}).get(number)]
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
