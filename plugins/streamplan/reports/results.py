"""Results of checks as files: the last one of each check, and the history. They are read without Airflow's database.

``reports/<pipeline>/<check>.json`` is the last result, ``reports/<pipeline>/history.jsonl`` has a line for each. A long
history goes to ``history.1.jsonl``, which replaces an older one. The results of one run of a DAG lie beside its page.
:class:`streamplan.files.ReportPaths` has the paths.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any

from streamplan.checks import CHECKS
from streamplan.checks.framework.check import CheckResult, Observation, Outcome
from streamplan.errors import CouldNotLook
from streamplan.files import NOT_AS_WRITTEN, ReportPaths, append_bounded, older_file, read_json, write_atomically

MOST_RESULTS = 100_000
"""More of the last results are never asked for: those of three months, with eight checks in ten minutes."""

HISTORY_BYTES = 64 * 1024 * 1024
"""A history beyond this many bytes is renamed: those of some four months, with eight checks in ten minutes."""

HISTORY_ROWS = 1_000
"""At most this many wrong rows stand in a line of the history: a check that finds many displaces no other results."""

_BLOCK = 1 << 18
"""The history is read in pieces of this many bytes."""

_log = logging.getLogger(__name__)


def write_result(reports: Path, result: CheckResult, *, limit: int = HISTORY_BYTES) -> None:
    """Make ``result`` the last one of its check, and add it to the history with its wrong rows alone.

    A result that belongs on a page is also kept beside it: another run may replace the last one before the page is
    written.

    Args:
        reports: The directory of all reports.
        result: The result of one run of a check.
        limit: A history beyond this many bytes is renamed, and a new one begins.
    """
    paths = ReportPaths(reports, result.pipeline)
    content = json.dumps(asdict(result), indent=1)
    write_atomically(paths.check_result(result.check), content)
    if result.data_docs is not None:
        write_atomically(_beside(reports / result.data_docs, result.check), content)
    wrong = tuple(row for row in result.observations if not row.agrees)[:HISTORY_ROWS]
    append_bounded(paths.history, json.dumps(asdict(replace(result, observations=wrong))) + "\n", limit)


def read_latest(reports: Path, pipeline: str) -> dict[str, CheckResult]:
    """Return the last result of each check that has run, by the check's name.

    Where a result cannot be read, the check could not look: its reason names the file.
    """
    paths = ReportPaths(reports, pipeline)
    found = {check.name: _read_result(paths.check_result(check.name), pipeline, check.name) for check in CHECKS}
    return {name: result for name, result in found.items() if result is not None}


def read_beside(reports: Path, pipeline: str, page: str) -> list[CheckResult]:
    """Return the results of the run with this page, in the order of ``CHECKS``.

    Args:
        reports: The directory of all reports.
        pipeline: The name of the pipeline.
        page: The page of the run in the Data Docs, relative to ``reports``. It need not exist.
    """
    found = (_read_result(_beside(reports / page, check.name), pipeline, check.name) for check in CHECKS)
    return [result for result in found if result is not None]


def _beside(page: Path, check: str) -> Path:
    return page.with_name(f"{check}.json")


def _read_result(path: Path, pipeline: str, check: str) -> CheckResult | None:
    try:
        return read_json(
            path, _decode, remedy="The next run of the check writes it again. Look whether the disk is full."
        )
    except CouldNotLook as error:
        return CheckResult(pipeline, check, Outcome.COULD_NOT_LOOK, str(error), _written_at(path), ())


def _written_at(path: Path) -> str:
    try:
        seconds = path.stat().st_mtime
    except OSError:  # it may not even be seen
        seconds = datetime.now(UTC).timestamp()
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")


def has_history(reports: Path, pipeline: str) -> bool:
    """Return whether a check of a deployment has ever written a result.

    Raises:
        OSError: The directory of the reports cannot be read.
    """
    history = ReportPaths(reports, pipeline).history
    return history.exists() or older_file(history).exists()


def read_history(
    reports: Path, pipeline: str, *, last: int = 100, check: str | None = None, since: datetime | None = None
) -> list[CheckResult]:
    """Return the last results of checks, oldest first. Their observations are those that were wrong.

    A line that cannot be read is passed over, and the log says so: a full disk may have cut it short.

    Args:
        reports: The directory of all reports.
        pipeline: The name of the pipeline.
        last: The most results that are returned. The files are read from their ends, and no further than is needed.
        check: The name of the check; all checks where None.
        since: Results of earlier runs are left out.

    Raises:
        OSError: A file cannot be read.
    """
    unreadable = 0
    found: list[CheckResult] = []
    paths = ReportPaths(reports, pipeline)
    for line in chain(_newest_lines(paths.history), _newest_lines(older_file(paths.history))):
        if check is not None and f'"check": "{check}"' not in line:
            continue  # most lines are those of other checks, and need not be decoded
        try:
            result = _decode(json.loads(line))
        except NOT_AS_WRITTEN:
            unreadable += 1
            continue
        if since is not None and datetime.fromisoformat(result.at) < since:
            break
        if check in (None, result.check):
            found.append(result)
        if len(found) == last:
            break
    if unreadable:
        _log.warning("%s: lines that cannot be read and are passed over: %d", paths.history, unreadable)
    return found[::-1]


def _newest_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file, the last one first."""
    if not path.exists():
        return
    with path.open("rb") as file:
        position, rest = file.seek(0, os.SEEK_END), b""
        while position:
            size = min(_BLOCK, position)
            position = file.seek(position - size)
            rest, *lines = (file.read(size) + rest).split(b"\n")
            yield from (line.decode(errors="replace") for line in reversed(lines) if line)
        if rest:
            yield rest.decode(errors="replace")


def passed_lately(check: str, pipeline: str, reports: Path, *, minutes: float) -> str | None:
    """Return when the check last passed, if that is less than ``minutes`` ago and its last result; else None."""
    last = read_latest(reports, pipeline).get(check)
    if last is None or last.outcome is not Outcome.PASSED:
        return None
    return last.at if is_younger(last.at, timedelta(minutes=minutes)) else None


def last_pass(check: str, pipeline: str, reports: Path) -> str | None:
    """Return when the check last passed, ISO 8601; None where no result that is left says that it did.

    The last one is that which was written last. One that a clock ahead has dated later does not hide it.
    """
    results = read_history(reports, pipeline, last=MOST_RESULTS, check=check)
    return next((result.at for result in reversed(results) if result.outcome is Outcome.PASSED), None)


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
    result = CheckResult(
        **{
            **content,
            "outcome": Outcome(content["outcome"]),
            "observations": tuple(Observation(**row) for row in content["observations"]),
            "advice": tuple(content.get("advice", ())),
            "task": tuple(content.get("task", ())),
        }
    )
    datetime.fromisoformat(result.at)  # refuses what is no time
    return result
