"""What the reports directory holds for the checks: the verified cut, the aggregator's status, earlier observations."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path

from streamplan.checks.framework.application import Application
from streamplan.checks.framework.check import CheckContext
from streamplan.checks.framework.consistent_cut import tell_nobody
from streamplan.checks.framework.verified import NoVerifiedStore, StateStoreTotals, VerifiedStore
from streamplan.files import ReportPaths
from streamplan.reports.observations import RecordedObservations
from streamplan.reports.status import read_status
from streamplan.reports.verified_sqlite import SqliteVerifiedStore


def check_context(
    application: Application,
    reports: Path,
    *,
    full: bool = False,
    with_state_store: bool = False,
    recounted: Path | None = None,
    report: Callable[[str], None] = tell_nobody,
) -> CheckContext:
    """Read what the checks of an application may be given.

    Args:
        application: A declared pipeline, or an application that was discovered.
        reports: The directory of all reports.
        full: Whether to look at every record.
        with_state_store: Whether to compare with what the state store held when it was last read.
        recounted: The file of ``jobs/recount.py``, where that job runs before the checks.
        report: Is told what a check waits for.
    """
    paths = ReportPaths(reports, application.name)
    return CheckContext(
        full=full,
        verified=_verified_store(application, paths),
        aggregator=read_status(paths.aggregator_status) if application.declared or application.runs_until else None,
        state_store=read_state_store(reports, application.name) if with_state_store else None,
        recounted=None if recounted is None else lambda: RecordedObservations.read(recounted).observe(),
        report=report,
    )


def read_state_store(reports: Path, pipeline: str) -> StateStoreTotals | None:
    """Return what the state store held when ``jobs/state_store.py`` last read it; None when it never did."""
    path = ReportPaths(reports, pipeline).state_store
    if not path.exists():
        return None
    content = json.loads(path.read_text())
    return StateStoreTotals(
        positions={int(partition): position for partition, position in content["positions"].items()},
        totals={key.encode(): total for key, total in content["totals"].items()},
    )


def _verified_store(application: Application, paths: ReportPaths) -> VerifiedStore:
    if application.declared:
        return SqliteVerifiedStore(paths.verified_store)
    if not application.aggregations:
        return NoVerifiedStore()
    # The user says how a discovered application counts. Nothing is verified for a count that was described otherwise.
    (aggregation,) = application.aggregations
    version = zlib.crc32(repr(aggregation).encode())
    path = paths.verified_store
    return SqliteVerifiedStore(path.with_name(f"{path.stem}-{version:08x}{path.suffix}"))
