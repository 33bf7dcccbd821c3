"""Tells when the totals of a pipeline were not verified for too long, by Airflow's deadline alerts.

A deadline of Airflow belongs to a run of a DAG. It is missed when the run has not succeeded in time, also where it has
failed long before. So a missed deadline alone does not say how old the last verification is: the totals may have been
verified in the very run that failed, or in a later one. The callback here looks at the last verification first.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk.definitions.callback import AsyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference

from streamplan.checks.totals import CHECK as TOTALS
from streamplan.errors import CouldNotLook
from streamplan.files import ReportPaths, read_json, write_atomically
from streamplan.reports.results import last_pass
from streamplan.settings import Settings

if TYPE_CHECKING:
    from streamplan.model.pipeline import Pipeline


def verification_deadline(pipeline: Pipeline, within: timedelta, callback: AsyncCallback) -> DeadlineAlert:
    """Return a deadline for ``declare_dags(..., deadlines=[...])`` on the age of the last verification.

    Each run of the health DAG that has not succeeded ``within`` that time after it was queued asks when the check
    `totals` last passed. Where that is longer ago than ``within``, or where it never passed, the callback is called:
    once for each verification that became too old, and again after each run when the callback raised an error.

    Args:
        within: The greatest age of the last verification. It is longer than the time between two runs of the health
            DAG, or each failed run calls the callback. Totals that Spark computes again are verified once an hour.
        callback: What to call in the triggerer: a notifier with ``async_notify``, or a function that is awaited. It is
            given ``context`` with ``dag_run``, ``deadline``, and ``verification``: ``pipeline``, ``verified_at`` (ISO
            8601; None where it never was) and ``within``, in seconds. Where the history of the checks cannot be read,
            it has ``problem``, too, and the callback is called each time.
    """
    seconds = within.total_seconds()
    arguments = {"pipeline": pipeline.name, "within": seconds, "path": callback.path, "arguments": callback.kwargs}
    return DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=within,
        callback=AsyncCallback(call_unless_verified, kwargs=arguments),
        name=f"totals of {pipeline.name} verified within {within}",
    )


async def call_unless_verified(
    pipeline: str, within: float, path: str, arguments: Mapping[str, Any], context: Mapping[str, Any]
) -> str:
    """Call a callback unless the totals were verified lately, or it was told of the same verification before.

    Args:
        pipeline: The name of the pipeline.
        within: The greatest age of the last verification, in seconds.
        path: The import path of the callback.
        context: What Airflow says of the missed deadline.

    Returns:
        What was done. Airflow keeps it with the callback.
    """
    reports = Settings.from_environment().reports
    verified_at, problem = None, ""
    try:
        verified_at = await asyncio.to_thread(last_pass, TOTALS.name, pipeline, reports)
    except OSError as error:  # what cannot be read was not verified, as far as anybody can tell
        problem = f"the history of the checks cannot be read: {error}"
    if verified_at is not None:
        # The check may have run under another clock: a time that is far ahead says nothing, and silences no alarm.
        age = abs(datetime.now(UTC) - datetime.fromisoformat(verified_at))
        if age < timedelta(seconds=within):
            return f"not called: the totals of {pipeline} were verified at {verified_at}"
    told = _told_file(reports, pipeline, [within, path, arguments])
    if not problem and await asyncio.to_thread(_was_told, told, verified_at):
        return f"not called again: last verification of the totals of {pipeline}: {verified_at or 'never'}"
    verification = {"pipeline": pipeline, "verified_at": verified_at, "within": within}
    if problem:
        verification["problem"] = problem
    module, _, name = path.rpartition(".")
    await getattr(import_module(module), name)(**arguments, context={**context, "verification": verification})
    if not problem:
        write_atomically(told, json.dumps(verified_at))
    return f"called {path}: last verification of the totals of {pipeline}: {problem or verified_at or 'never'}"


def _was_told(told: Path, verified_at: str | None) -> bool:
    """Return whether the alert told of this verification. Where that cannot be read, it tells once more."""
    try:
        return read_json(told, lambda content: content == verified_at, remedy="It is written again.") or False
    except CouldNotLook:
        return False


def _told_file(reports: Path, pipeline: str, alert: object) -> Path:
    """Return the file that remembers of which verification an alert told last. Each alert has one of its own."""
    digest = hashlib.sha256(json.dumps(alert, sort_keys=True).encode()).hexdigest()[:12]
    return ReportPaths(reports, pipeline).notification(f"verification-{digest}")
