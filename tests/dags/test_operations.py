"""The tasks of an operation whose plan a person approves: what they hand on, and how they end."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException
from streamplan.airflow.maintenance_operators import ApplyOperator, PlanOperator
from streamplan.errors import BrokersUnavailable, Refused
from streamplan.maintenance.operation import Operation
from streamplan.maintenance.operations import OPERATIONS
from streamplan.maintenance.reset_plan import ResetPlan

pytestmark = pytest.mark.usefixtures("home", "database")

PLAN = ResetPlan("orders", "orders-aggregator", {"a-topic": 7}, {"orders-0": 3}, "", (), ("orders",))


class Stand(Operation):
    """Stands in for an operation. It is refused beside an active run, as each of them is."""

    alone = ("aggregator", "deploy")
    applied: list[Mapping[str, Any]]

    def observe(self) -> ResetPlan:
        if runs := self.active_runs():
            raise Refused("the stand", observed=", ".join(runs))
        return PLAN

    def apply(self, approved: Mapping[str, Any]) -> ResetPlan:
        self.applied.append(approved)
        return self.observe()


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> type[Stand]:
    monkeypatch.setattr(Stand, "applied", [], raising=False)
    monkeypatch.setattr("streamplan.maintenance.operations.OPERATIONS", {"reset": Stand})
    return Stand


def context(xcoms: Mapping[str, Any] = {}, active: str = "") -> Any:
    instance = SimpleNamespace(
        xcom_pull=lambda task_ids: xcoms.get(task_ids), get_dr_count=lambda dag_id, states: int(dag_id == active)
    )
    return {"ti": instance}


def test_the_operations_are_known_by_the_kinds_of_their_dags() -> None:
    assert {*OPERATIONS} == {"reset", "repartition"}


def test_the_plan_is_shown_and_handed_on_as_json(stand: type[Stand]) -> None:
    task = PlanOperator(task_id="plan", pipeline="orders", operation="reset", dag=DAG("a_dag"))
    assert task.execute(context()) == {"text": PLAN.text, "plan": PLAN.written()}


def test_what_was_approved_is_applied(stand: type[Stand]) -> None:
    task = ApplyOperator(task_id="apply", pipeline="orders", operation="reset", dag=DAG("a_dag"))
    task.execute(context({"plan": {"text": PLAN.text, "plan": PLAN.written()}}))
    assert stand.applied == [PLAN.written()]


@pytest.mark.parametrize("dag_id", ["orders_aggregator", "orders_deploy"])
def test_beside_an_active_run_the_task_fails_and_is_not_tried_again(stand: type[Stand], dag_id: str) -> None:
    task = PlanOperator(task_id="plan", pipeline="orders", operation="reset", dag=DAG("a_dag"))
    with pytest.raises(AirflowFailException, match=f"the stand: observed {dag_id}"):
        task.execute(context(active=dag_id))
    task.execute(context(active="orders_producer"))


def test_what_was_not_refused_may_be_tried_again(stand: type[Stand], monkeypatch: pytest.MonkeyPatch) -> None:
    def away(self: Stand) -> ResetPlan:
        raise BrokersUnavailable("the brokers")

    monkeypatch.setattr(Stand, "observe", away)
    task = PlanOperator(task_id="plan", pipeline="orders", operation="reset", dag=DAG("a_dag"))
    with pytest.raises(BrokersUnavailable):
        task.execute(context())
