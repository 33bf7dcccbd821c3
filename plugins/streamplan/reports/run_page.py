"""The page of one run in the Data Docs, and the index of all pages: what stands on them, and where they lie.

Great Expectations' site builder makes a :class:`RunRenderer` and a :class:`RunView` by their names, which stand in the
configuration of ``reports.great_expectations``, and calls them. This module itself does not import Great Expectations,
so that a check's task can say where the page of its run will lie. The pages need no network: they have no script, and
the style sheet is part of each page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamplan.checks import check_named
from streamplan.checks.framework.check import FOR_INFORMATION, NOT_JUDGED, CheckResult, Observation, Outcome
from streamplan.files import ReportPaths, write_atomically
from streamplan.reports.results import read_history

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"

ASSET = "checks"
"""The name of the data asset in Great Expectations: the observations of all checks of a run."""

SHOWN_ROWS = 100
"""At most this many rows of a check are on its page, the wrong ones first."""

LISTED_PAGES = 100
"""At most this many pages of runs are listed in the index, the newest first."""

_RESULTS_PER_PAGE = 10
"""The lines of the history that the index reads for each page that it lists. At least as many as there are checks."""


@dataclass(frozen=True)
class RunPage:
    """The page of one run. Each task of the run can say where it will lie, before it is written.

    Attributes:
        pipeline: The name of the pipeline.
        suite: The name of the expectation suite: the id of the DAG.
        at: When the run was due. It tells the runs of a DAG apart, and a task that is cleared keeps its page.
    """

    pipeline: str
    suite: str
    at: datetime

    @property
    def run_name(self) -> str:
        """The name of the run in Great Expectations, which is a directory there. The names sort by time."""
        return f"{self.at.astimezone(UTC):%Y%m%dT%H%M%S.%fZ}"

    @property
    def path(self) -> str:
        """The file, relative to the directory of all reports. Great Expectations' ``HtmlSiteStore`` has this layout."""
        run = self.run_name
        return f"{self.pipeline}/data_docs/validations/{self.suite}/{run}/{run}/observations-{ASSET}.html"


def rows_shown(result: CheckResult) -> list[Observation]:
    """List the rows of a result, the wrong ones first, then those that are not judged.

    A result without rows has one row that says so.
    """
    if result.outcome is Outcome.COULD_NOT_LOOK:
        return [Observation("the check itself", "an answer", f"could not look: {result.reason}")]
    if not result.observations:
        return [Observation("rows to look at", "at least 1", 0)]
    return sorted(result.observations, key=lambda row: (row.agrees, row.is_judged))


def page_content(result: CheckResult) -> dict[str, Any]:
    """Say what the page shows of one check, as JSON: it travels as the ``meta`` of the check's expectation."""
    check = check_named(result.check)
    rows = rows_shown(result)
    return {
        "name": result.check,
        "title": check.title,
        "healthy": check.healthy,
        "outcome": str(result.outcome),
        "reason": result.reason,
        "advice": list(result.advice),
        "at": _time(result.at),
        "rows": [[row.subject, row.expected, row.observed, row.where, row.agrees] for row in rows[:SHOWN_ROWS]],
        "rows_left_out": max(0, len(rows) - SHOWN_ROWS),
    }


class RunRenderer:
    """Takes what the page shows out of a validation result: a renderer as Great Expectations' site builder calls it."""

    def render(self, validation_result: Any) -> dict[str, Any]:
        """Return the content of the page: the suite, the name of the run, and a mapping for each check."""
        return {
            "suite": validation_result.suite_name,
            "run_name": validation_result.meta["run_id"]["run_name"],
            "checks": [result.expectation_config.meta for result in validation_result.results],
        }


class RunView:
    """Makes HTML of what the renderer returned: a view as Great Expectations' site builder calls it."""

    def render(self, content: Mapping[str, Any], **_: Any) -> str:
        """Return the page of the run."""
        outcomes = {check["outcome"] for check in content["checks"]}
        template = _environment().get_template("run_page.html.j2")
        return template.render(content, outcome=_worst(outcomes), says_nothing=(NOT_JUDGED, FOR_INFORMATION))


def index_page(pipeline: str, history: Sequence[CheckResult], exists: Mapping[str, bool]) -> str:
    """Make the index of the Data Docs: a line for each of the last runs that have a page.

    Args:
        pipeline: The name of the pipeline.
        history: Results of its checks, the oldest first.
        exists: Whether a page is there, by its path relative to all reports.
    """
    runs: dict[str, dict[str, CheckResult]] = {}
    for result in reversed(history):
        if result.data_docs is not None and exists[result.data_docs]:
            runs.setdefault(result.data_docs, {}).setdefault(result.check, result)
    lines = [
        {
            "link": path.removeprefix(f"{pipeline}/data_docs/"),
            "suite": Path(path).parents[2].name,
            "at": _time(min(result.at for result in results.values())),
            "outcome": _worst({str(result.outcome) for result in results.values()}),
            "counts": _counts(results.values()),
        }
        for path, results in list(runs.items())[:LISTED_PAGES]
    ]
    return _environment().get_template("index.html.j2").render(pipeline=pipeline, runs=lines)


def write_index(reports: Path, pipeline: str) -> None:
    """Write the index of a pipeline's Data Docs anew, from the history of its checks."""
    history = read_history(reports, pipeline, last=LISTED_PAGES * _RESULTS_PER_PAGE)
    paths = {result.data_docs for result in history if result.data_docs is not None}
    exists = {path: (reports / path).is_file() for path in paths}
    write_atomically(ReportPaths(reports, pipeline).data_docs / "index.html", index_page(pipeline, history, exists))


def _worst(outcomes: Iterable[str]) -> str:
    order = [Outcome.FAILED, Outcome.COULD_NOT_LOOK, Outcome.PASSED]
    return str(next((outcome for outcome in order if outcome in outcomes), Outcome.COULD_NOT_LOOK))


def _counts(results: Iterable[CheckResult]) -> str:
    """Say how many checks passed, and which did not: ``7 passed; failed: totals``."""
    names: dict[Outcome, list[str]] = {outcome: [] for outcome in Outcome}
    for result in results:
        names[result.outcome].append(result.check)
    parts = [f"{len(names[Outcome.PASSED])} passed"] if names[Outcome.PASSED] else []
    parts += [
        f"{outcome}: {', '.join(sorted(names[outcome]))}"
        for outcome in (Outcome.FAILED, Outcome.COULD_NOT_LOOK)
        if names[outcome]
    ]
    return "; ".join(parts)


def _time(at: str) -> str:
    """Show an ISO 8601 time of a result to the second: ``2026-01-31 12:00:00 UTC``."""
    return f"{datetime.fromisoformat(at).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
