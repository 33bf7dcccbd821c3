"""Results of checks as files: the last one of each check, and the history. They are read without Airflow's database.

``reports/<pipeline>/<check>.json`` is the last result, ``reports/<pipeline>/history.jsonl`` has a line for each.
:class:`streamplan.files.ReportPaths` has the paths.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from streamplan.checks import CHECKS
from streamplan.checks.framework.check import CheckResult, Observation, Outcome
from streamplan.files import ReportPaths, write_atomically


def write_result(reports: Path, result: CheckResult) -> None:
    """Make ``result`` the last one of its check, and add it to the history with its wrong rows alone.

    Args:
        reports: The directory of all reports.
        result: The result of one run of a check.
    """
    paths = ReportPaths(reports, result.pipeline)
    write_atomically(paths.check_result(result.check), json.dumps(asdict(result), indent=1))
    wrong = tuple(row for row in result.observations if not row.agrees)
    line = json.dumps(asdict(replace(result, observations=wrong))) + "\n"
    # A single write in append mode: the lines of checks that end at the same time do not mix.
    history = os.open(paths.history, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(history, line.encode())
    finally:
        os.close(history)


def read_latest(reports: Path, pipeline: str) -> dict[str, CheckResult]:
    """Return the last result of each check that has run, by the check's name."""
    paths = {check.name: ReportPaths(reports, pipeline).check_result(check.name) for check in CHECKS}
    return {name: _decode(json.loads(path.read_text())) for name, path in paths.items() if path.exists()}


def read_history(reports: Path, pipeline: str, *, last: int = 100) -> list[CheckResult]:
    """Return the last results of all checks, oldest first. Their observations are those that were wrong."""
    path = ReportPaths(reports, pipeline).history
    if not path.exists():
        return []
    return [_decode(json.loads(line)) for line in path.read_text().splitlines()[-last:]]


def passed_lately(check: str, pipeline: str, reports: Path, *, minutes: float) -> str | None:
    """Return when the check last passed, if that is less than ``minutes`` ago and its last result; else None."""
    last = read_latest(reports, pipeline).get(check)
    if last is None or last.outcome is not Outcome.PASSED:
        return None
    return last.at if is_younger(last.at, timedelta(minutes=minutes)) else None


def is_younger(at: str, limit: timedelta) -> bool:
    """Whether a time is less than ``limit`` ago.

    A time in the future is not: the clocks of hosts differ, and no check is to be skipped for that.

    Args:
        at: ISO 8601 with a time zone.
        limit: The greatest age.
    """
    return timedelta(0) <= datetime.now(UTC) - datetime.fromisoformat(at) < limit


def state_files(reports: Path, pipeline: str) -> list[Path]:
    """Return the existing files that describe the state of a pipeline and not its history. A reset deletes them."""
    return ReportPaths(reports, pipeline).state_files(check.name for check in CHECKS)


def _decode(content: Mapping[str, Any]) -> CheckResult:
    return CheckResult(
        **{
            **content,
            "outcome": Outcome(content["outcome"]),
            "observations": tuple(Observation(**row) for row in content["observations"]),
        }
    )
