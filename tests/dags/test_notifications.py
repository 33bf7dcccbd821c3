"""Who is told of a check, and when."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import BaseNotifier
from streamplan.airflow.notifications import OutcomeNotification
from streamplan.checks.framework.check import CheckResult, Outcome
from streamplan.reports.results import write_result
from streamplan.settings import Settings

TOLD: list[str] = []
PASSED, FAILED, COULD_NOT_LOOK = Outcome.PASSED, Outcome.FAILED, Outcome.COULD_NOT_LOOK


class Spoken(BaseNotifier):
    """Keeps what its template says."""

    template_fields = ("text",)

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def notify(self, context: Any) -> None:
        TOLD.append(self.text)


TEMPLATE = "{{ check.pipeline }}/{{ check.check }} {{ check.before }} > {{ check.outcome }}: {{ check.reason }}"


@pytest.fixture
def run(home: Path) -> Callable[..., list[str]]:
    """One look after the other, each followed by the callback; returns what was told."""
    TOLD.clear()
    announcement = OutcomeNotification("orders", "totals", [Spoken(TEMPLATE)])
    reports = Settings.from_environment().reports

    def run(*outcomes: Outcome) -> list[str]:
        for outcome in outcomes:
            result = CheckResult("orders", "totals", outcome, "the reason", "2026-01-01T00:00:00+00:00", ())
            write_result(reports, result)
            announcement({})
        return [text.split(" ", 1)[1].split(":")[0] for text in TOLD]

    return run


def test_once_per_change_of_state(run: Callable[..., list[str]]) -> None:
    assert run(PASSED, PASSED) == []
    assert run(FAILED, FAILED, FAILED) == ["passed > failed"]
    assert run(COULD_NOT_LOOK) == ["passed > failed", "failed > could not look"]
    assert run(PASSED, PASSED, FAILED)[2:] == ["could not look > passed", "passed > failed"]
    assert TOLD[0] == "orders/totals passed > failed: the reason"


def test_a_first_look_that_fails_is_news(run: Callable[..., list[str]]) -> None:
    assert run(FAILED) == ["passed > failed"]


def test_a_retry_is_no_change(run: Callable[..., list[str]], home: Path) -> None:
    """Airflow calls back after the last try; the tries before have written results, too."""
    reports = Settings.from_environment().reports
    write_result(reports, CheckResult("orders", "totals", COULD_NOT_LOOK, "away", "2026-01-01T00:00:00+00:00", ()))
    assert run(COULD_NOT_LOOK) == ["passed > could not look"]


def test_a_notifier_that_fails_is_asked_again_and_keeps_no_other_from_being_told(home: Path) -> None:
    TOLD.clear()
    calls: list[str] = []

    def fails(context: Any) -> None:
        calls.append(context["check"]["outcome"])
        if len(calls) == 1:
            raise ConnectionError("no route")

    announcement = OutcomeNotification("orders", "lag", [fails, Spoken("{{ check.outcome }}")])
    for _ in range(3):
        result = CheckResult("orders", "lag", FAILED, "stalled", "2026-01-01T00:00:00+00:00", ())
        write_result(Settings.from_environment().reports, result)
        announcement({})
    assert calls == ["failed", "failed"]
    assert TOLD == ["failed"]
    (file,) = Settings.from_environment().reports.rglob("announced/*.json")
    assert json.loads(file.read_text()) == {"0": "failed", "1": "failed"}
