"""Telling people of a check's outcome when it changes, through Airflow's notifiers: Slack, e-mail, webhooks."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamplan.checks.framework.check import CheckResult, Outcome
from streamplan.reports.results import read_latest
from streamplan.settings import Settings

if TYPE_CHECKING:
    from airflow.sdk import Context

Notifier = Callable[[Any], None]
"""A ``BaseNotifier`` or any callable that takes the context of a task."""

log = logging.getLogger(__name__)


class Announcement:
    """A callback for success and failure of a check's task. Once per change of state, not once per run.

    Each notifier finds in its templates ``check``: ``pipeline``, ``check``, ``outcome``, ``before`` (the one that it
    was told last), ``reason``, ``at``, ``data_docs``. A check that passes for the first time is no news.
    """

    def __init__(self, pipeline: str, check: str, notifiers: Sequence[Notifier]) -> None:
        self.pipeline = pipeline
        self.check = check
        self.notifiers = tuple(notifiers)

    def __call__(self, context: Context) -> None:
        reports = Settings.from_environment().reports
        result = read_latest(reports, self.pipeline).get(self.check)
        if result is None:
            return  # the task failed before it had looked
        file = reports / self.pipeline / "announced" / f"{self.check}.json"
        told: dict[str, str] = json.loads(file.read_text()) if file.exists() else {}
        for number, notifier in enumerate(self.notifiers):
            before = told.get(str(number), str(Outcome.PASSED))
            if result.outcome == before:
                continue
            try:
                copy.deepcopy(notifier)({**context, "check": _shown(result, before)})  # it renders itself in place
            except Exception:  # a notifier is anybody's code: whatever it raises must not turn a check red
                log.exception("%s was not told: it is tried again after the next run", notifier)
            else:
                told[str(number)] = str(result.outcome)
                _write(file, told)


def _shown(result: CheckResult, before: str) -> dict[str, str | None]:
    return {
        "pipeline": result.pipeline,
        "check": result.check,
        "outcome": str(result.outcome),
        "before": before,
        "reason": result.reason,
        "at": result.at,
        "data_docs": result.data_docs,
    }


def _write(file: Path, told: Mapping[str, str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    part.write_text(json.dumps(told))
    part.replace(file)
