"""Results of checks as files: the last one of each check, and the history. Read without Airflow's database.

``reports/<pipeline>/<check>.json`` is the last result, ``reports/<pipeline>/history.jsonl`` has a line for each.
``reports/<pipeline>/totals.sqlite`` is the last cut at which the totals agreed,
``reports/<pipeline>/state_store/totals.json`` is what the state store held when it was last read,
``reports/<pipeline>/recount/<DAG id>.json`` what Spark found when it last computed the pipeline anew.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from streamplan.checks import CHECKS
from streamplan.checks.framework.check import CheckResult, Observation, Outcome
from streamplan.checks.framework.verified import StateStoreTotals
from streamplan.errors import CouldNotLook
from streamplan.reports.status import status_file

_HISTORY = "history.jsonl"


def write_result(reports: Path, result: CheckResult) -> None:
    """Make ``result`` the last of its check, and add it to the history (with its wrong rows alone)."""
    directory = reports / result.pipeline
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=directory, prefix=f".{result.check}-", delete=False) as part:
        json.dump(asdict(result), part, indent=1)
    Path(part.name).chmod(0o644)
    Path(part.name).replace(directory / f"{result.check}.json")
    wrong = tuple(row for row in result.observations if not row.agrees)
    line = json.dumps(asdict(replace(result, observations=wrong))) + "\n"
    # One write in append mode: the lines of checks that end together do not mix.
    history = os.open(directory / _HISTORY, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(history, line.encode())
    finally:
        os.close(history)


def read_latest(reports: Path, pipeline: str) -> dict[str, CheckResult]:
    """The last result of each check that has run, by the check's name."""
    paths = {check.name: reports / pipeline / f"{check.name}.json" for check in CHECKS}
    return {name: _result(json.loads(path.read_text())) for name, path in paths.items() if path.exists()}


def read_history(reports: Path, pipeline: str, *, last: int = 100) -> list[CheckResult]:
    """The last results of all checks, oldest first; their observations are those that were wrong."""
    path = reports / pipeline / _HISTORY
    if not path.exists():
        return []
    return [_result(json.loads(line)) for line in path.read_text().splitlines()[-last:]]


def state_store_file(reports: Path, pipeline: str) -> Path:
    """Where ``jobs/state_store.py`` writes what the state store of a pipeline holds."""
    return reports / pipeline / "state_store" / "totals.json"


def verified_file(reports: Path, pipeline: str) -> Path:
    """Where the last cut is kept at which the totals agreed."""
    return reports / pipeline / "totals.sqlite"


def state_files(reports: Path, pipeline: str) -> list[Path]:
    """Those that describe the state of a pipeline and not its history; a reset deletes them."""
    directory = reports / pipeline
    candidates = [
        verified_file(reports, pipeline),
        verified_file(reports, pipeline).with_name("totals.sqlite-journal"),
        state_store_file(reports, pipeline),
        status_file(reports, pipeline),
        *sorted((directory / "recount").glob("*.json")),
        *(directory / f"{check.name}.json" for check in CHECKS),
    ]
    return [path for path in candidates if path.exists()]


def read_state_store(reports: Path, pipeline: str) -> StateStoreTotals | None:
    """What the state store held when it was last read; None when it never was."""
    path = state_store_file(reports, pipeline)
    if not path.exists():
        return None
    content = json.loads(path.read_text())
    return StateStoreTotals(
        positions={int(partition): position for partition, position in content["positions"].items()},
        totals={key.encode(): total for key, total in content["totals"].items()},
    )


def recount_file(reports: Path, pipeline: str, dag_id: str) -> Path:
    """Where ``jobs/recount.py``, called by a DAG, writes the rows of the totals check."""
    return reports / pipeline / "recount" / f"{dag_id}.json"


@dataclass(frozen=True)
class Recounted:
    """What ``jobs/recount.py`` found, or why it could not look.

    ``at``        when it began to look, ISO 8601
    ``contents``  what lay in Kafka then, as ``checking.contents`` tells it
    """

    rows: tuple[Observation, ...]
    could_not_look: str | None = None
    at: str = ""
    contents: Mapping[str, Any] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(asdict(self), indent=1))
        part.replace(path)

    @classmethod
    def read(cls, path: Path) -> Recounted:
        """Raises :class:`CouldNotLook` where there is none."""
        if not path.exists():
            raise CouldNotLook(f"{path}", expected="the rows of a recount", observed="none", remedy="Has recount run?")
        found = json.loads(path.read_text())
        rows = tuple(Observation(**row) for row in found.pop("rows"))
        return cls(rows, **found)

    def observe(self) -> tuple[Observation, ...]:
        if self.could_not_look is not None:
            raise CouldNotLook(self.could_not_look)
        return self.rows


def _result(fields: Mapping[str, Any]) -> CheckResult:
    return CheckResult(
        **{
            **fields,
            "outcome": Outcome(fields["outcome"]),
            "observations": tuple(Observation(**row) for row in fields["observations"]),
        }
    )
