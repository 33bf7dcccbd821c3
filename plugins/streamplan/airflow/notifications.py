"""Notifies people when the outcome of a check changes, through Airflow's notifiers: Slack, e-mail, webhooks."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamplan.checks.framework.check import CheckResult, Outcome
from streamplan.errors import CouldNotLook
from streamplan.files import ReportPaths, read_json, write_atomically
from streamplan.reports.results import read_latest
from streamplan.settings import Settings

if TYPE_CHECKING:
    from airflow.sdk import Context

Notifier = Callable[[Any], None]
"""A ``BaseNotifier`` or any callable that takes the context of a task."""

log = logging.getLogger(__name__)


class OutcomeNotification:
    """A callback for success and failure of a check's task. It notifies once per change, not once per run.

    The templates of a notifier can use ``check`` with ``pipeline``, ``check``, ``outcome``, ``before`` (the outcome
    that this notifier was given last), ``reason``, ``at`` and ``data_docs``. A check that passes for the first time
    is no news. A notifier that raises an error is called again after the next run.
    """

    def __init__(self, pipeline: str, check: str, notifiers: Sequence[Notifier]) -> None:
        self.pipeline = pipeline
        self.check = check
        self.notifiers = tuple(notifiers)

    def __call__(self, context: Context) -> None:
        """Call each notifier whose last outcome is another one than that of the check's last result."""
        reports = Settings.from_environment().reports
        result = read_latest(reports, self.pipeline).get(self.check)
        if result is None:
            return  # the task failed before it had looked
        file = ReportPaths(reports, self.pipeline).notification(self.check)
        last_outcomes = _last_outcomes(file)
        for number, notifier in enumerate(self.notifiers):
            before = last_outcomes.get(str(number), str(Outcome.PASSED))
            if result.outcome == before:
                continue
            try:
                copy.deepcopy(notifier)({**context, "check": _template_values(result, before)})  # it renders itself
            except Exception:  # a notifier is anybody's code: whatever it raises must not turn a check red
                log.exception("The notifier %s failed. It is called again after the next run.", notifier)
            else:
                last_outcomes[str(number)] = str(result.outcome)
                self._remember(file, last_outcomes)

    @staticmethod
    def _remember(file: Path, last_outcomes: Mapping[str, str]) -> None:
        try:
            write_atomically(file, json.dumps(last_outcomes))
        except OSError:  # the other notifiers are called all the same
            log.exception("What the notifiers were told cannot be kept. They are called again after the next run.")


def _last_outcomes(file: Path) -> dict[str, str]:
    """Return what each notifier was told. Where that cannot be read, a notifier is called once more."""
    try:
        return read_json(file, dict, remedy="It is written again.") or {}
    except CouldNotLook as error:
        log.warning("%s", error)
        return {}


def _template_values(result: CheckResult, before: str) -> dict[str, str | None]:
    return {
        "pipeline": result.pipeline,
        "check": result.check,
        "outcome": str(result.outcome),
        "before": before,
        "reason": result.reason,
        "at": result.at,
        "data_docs": result.data_docs,
    }
