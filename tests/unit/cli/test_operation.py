"""How a command runs an operation: it looks, shows, asks, and does what was approved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from streamplan.cli.operation import run_operation
from streamplan.kafka.brokers import Brokers
from streamplan.maintenance.operation import Operation
from streamplan.maintenance.reset_plan import ResetPlan
from streamplan.pipelines.orders import PIPELINE
from streamplan.settings import Settings

NOTHING = ResetPlan("orders", "orders-aggregator", {}, {}, "", (), ("orders",))
SOMETHING = ResetPlan("orders", "orders-aggregator", {"a-topic": 7}, {}, "", (), ("orders",))
WORDS = {"action": "the stand", "purpose": "delete this", "unchanged": "Nothing was deleted."}


class Stand(Operation):
    alone = ("aggregator",)
    plan = SOMETHING
    applied: list[Mapping[str, Any]]

    def observe(self) -> ResetPlan:
        return self.plan

    def apply(self, approved: Mapping[str, Any]) -> ResetPlan:
        self.applied.append(approved)
        return self.plan


@pytest.fixture
def stand() -> Stand:
    made = Stand(PIPELINE, Brokers("nowhere:1"), Settings.from_environment({"STREAMPLAN_HOME": "/nowhere"}))
    Stand.applied = []
    return made


def answer(monkeypatch: pytest.MonkeyPatch, *, agrees: bool) -> None:
    monkeypatch.setattr("streamplan.cli.operation.is_confirmed", lambda *_, **__: agrees)


def test_a_person_who_agrees_gets_what_was_shown(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(monkeypatch, agrees=True)
    assert run_operation(stand, agreed=False, **WORDS) == 0
    assert "topic a-topic: at most 7 records" in capsys.readouterr().out
    assert stand.applied == [SOMETHING.written()]


def test_a_person_who_does_not_agree_is_told_that_nothing_was_done(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(monkeypatch, agrees=False)
    assert run_operation(stand, agreed=False, **WORDS) == 78
    assert capsys.readouterr().out.endswith("Nothing was deleted.\n")
    assert stand.applied == []


def test_where_there_is_nothing_to_do_or_the_plan_alone_is_wanted_nobody_is_asked(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_operation(stand, agreed=True, dry_run=True, **WORDS) == 0
    monkeypatch.setattr(Stand, "plan", NOTHING)
    assert run_operation(stand, agreed=False, **WORDS) == 0
    assert stand.applied == []


def test_an_operation_knows_the_active_runs_beside_which_it_is_refused() -> None:
    class Alone(Stand):
        alone = ("aggregator", "deploy", "reset")

    asked: list[str] = []

    def is_active(dag_id: str) -> bool:
        asked.append(dag_id)
        return dag_id != "orders_deploy"

    operation = Alone(PIPELINE, Brokers("nowhere:1"), Settings.from_environment({}), is_active=is_active)
    assert operation.active_runs() == ["orders_aggregator", "orders_reset"]
    assert asked == ["orders_aggregator", "orders_deploy", "orders_reset"]
