"""What the reports directory holds for the checks: the verified cut, the aggregator's status, earlier observations."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from streamplan.checks.framework.application import Application
from streamplan.checks.framework.check import CheckContext
from streamplan.checks.framework.consistent_cut import tell_nobody
from streamplan.checks.framework.verified import NoVerifiedStore, StateStoreTotals, VerifiedStore
from streamplan.errors import CouldNotLook
from streamplan.files import ReportPaths, read_json
from streamplan.model.status import AggregatorStatus
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

    Raises:
        CouldNotLook: What the state store held cannot be read.
    """
    paths = ReportPaths(reports, application.name)
    aggregator, unreadable = None, ""
    if application.declared or application.runs_until:
        aggregator, unreadable = _aggregator(paths)
    return CheckContext(
        full=full,
        verified=_verified_store(application, paths),
        verified_topics={} if application.declared else _verified_topics(paths),
        aggregator=aggregator,
        unreadable_status=unreadable,
        state_store=read_state_store(reports, application.name) if with_state_store else None,
        recounted=None if recounted is None else lambda: RecordedObservations.read(recounted).observe(),
        report=report,
    )


def read_state_store(reports: Path, pipeline: str) -> StateStoreTotals | None:
    """Return what the state store held when ``jobs/state_store.py`` last read it; None when it never did.

    Raises:
        CouldNotLook: The file cannot be read.
    """
    path = ReportPaths(reports, pipeline).state_store
    return read_json(path, _decode_store, remedy=f"The task state_store of {pipeline}_deploy writes it again.")


def _aggregator(paths: ReportPaths) -> tuple[AggregatorStatus | None, str]:
    try:
        return read_status(paths.aggregator_status), ""
    except CouldNotLook as error:
        return None, str(error)


def _decode_store(content: Any) -> StateStoreTotals:
    return StateStoreTotals(
        positions={int(partition): position for partition, position in content["positions"].items()},
        totals={key.encode(): total for key, total in content["totals"].items()},
    )


def _verified_topics(paths: ReportPaths) -> dict[str, str]:
    """Return the topics of every verified cut, each with the file. A check of an application may count or not."""
    found: dict[str, str] = {}
    store = paths.verified_store
    for path in sorted(store.parent.glob(f"{store.stem}*{store.suffix}")):
        with suppress(CouldNotLook):  # the check `totals` says so
            cut = SqliteVerifiedStore(path).cut()
            found |= dict.fromkeys(cut.topic_ids if cut else (), str(path))
    return found


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
