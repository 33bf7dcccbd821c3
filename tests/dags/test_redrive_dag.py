"""The tasks of ``orders_redrive``: what they give the Spark job, and who stands in the marks."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from streamplan.airflow.maintenance_operators import PlanRedriveOperator, RedriveOperator, answered_by
from streamplan.files import ReportPaths
from streamplan.maintenance.redrive_plan import Choice, Group, RedrivePlan, Verdict
from streamplan.programs import refusal_beside
from streamplan.reports.redrive_outcome import Stage, read_outcome
from streamplan.settings import Settings

pytestmark = pytest.mark.usefixtures("home", "database")

PLAN = RedrivePlan(
    "orders", "orders-aggregator", Choice("r"), (Group("r", Verdict.PROCESSED, "", 2, ("0@1", "1@4")),), ("a note",)
)
NOTHING = RedrivePlan(
    "orders", "orders-aggregator", Choice("r"), (Group("r", Verdict.REJECTED, "still", 2, ("0@1", "1@4")),)
)


def run(
    task: Any, monkeypatch: pytest.MonkeyPatch, plan: RedrivePlan, context: dict[str, Any]
) -> tuple[Any, list[str]]:
    """Execute a task whose job leaves a plan; return what the task returns, and the arguments of the job."""
    given: list[str] = []

    def job(name: str, output: Path, *arguments: str) -> None:
        assert name == "redrive"
        given.extend(arguments)
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(plan.written()))

    monkeypatch.setattr(task, "_run", job)
    return task.execute(context), given


def instance(xcoms: dict[str, Any], active: str = "") -> SimpleNamespace:
    return SimpleNamespace(
        xcom_pull=lambda task_ids: xcoms.get(task_ids), get_dr_count=lambda dag_id, states: int(dag_id == active)
    )


@pytest.mark.parametrize(
    ("params", "arguments"),
    [
        ({"reason": None, "letters": []}, []),
        ({"reason": "ProductType is missing", "letters": []}, ["--reason", "ProductType is missing"]),
        ({"reason": None, "letters": ["0@1", "1@4"]}, ["--letter", "0@1", "--letter", "1@4"]),
    ],
)
def test_the_parameters_of_the_run_choose(
    monkeypatch: pytest.MonkeyPatch, params: dict[str, Any], arguments: list[str]
) -> None:
    task = PlanRedriveOperator(task_id="plan", pipeline="orders", dag=DAG("a_dag"))
    context = {"params": params, "ti": instance({}), "run_id": "manual__1"}
    returned, given = run(task, monkeypatch, PLAN, context)
    assert given == ["--bootstrap-servers", "127.0.0.1:1", *arguments]
    assert returned == {"text": PLAN.text, "plan": PLAN.written()}


def test_the_job_is_told_of_active_runs_and_refuses_beside_them(monkeypatch: pytest.MonkeyPatch) -> None:
    task = PlanRedriveOperator(task_id="plan", pipeline="orders", dag=DAG("a_dag"))
    context = {"params": {}, "ti": instance({}, active="orders_aggregator"), "run_id": "manual__1"}
    _, given = run(task, monkeypatch, PLAN, context)
    assert given[-2:] == ["--active-run", "orders_aggregator"]


def test_nobody_is_asked_where_nothing_can_be_processed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    task = PlanRedriveOperator(task_id="plan", pipeline="orders", dag=DAG("a_dag"))
    with pytest.raises(AirflowSkipException, match=r"2 × `r`: rejected again, it stays a dead letter: still"):
        run(task, monkeypatch, NOTHING, {"params": {}, "ti": instance({}), "run_id": "manual__1"})
    assert outcome() == (Stage.NOTHING, "manual__1", NOTHING.text)


def test_what_was_approved_is_done_in_the_name_of_who_approved_it(monkeypatch: pytest.MonkeyPatch) -> None:
    task = RedriveOperator(task_id="apply", pipeline="orders", dag=DAG("a_dag"))
    answer = {"chosen_options": ["Approve"], "responded_by_user": {"id": "7", "name": "ann"}}
    xcoms = {"plan": {"text": PLAN.text, "plan": PLAN.written()}, "approval": answer}
    context = {"params": {}, "ti": instance(xcoms), "run_id": "manual__1"}
    returned, given = run(task, monkeypatch, PLAN, context)
    approved, by, run_id = given[3], given[5], given[7]
    assert (given[2], given[4], given[6]) == ("--approved", "--by", "--run")
    assert RedrivePlan.read(json.loads(Path(approved).read_text())) == PLAN
    assert (by, run_id) == ("ann", "manual__1")
    assert returned["text"] == PLAN.text
    assert outcome() == (Stage.DONE, "manual__1", PLAN.text)


def test_a_plan_that_waits_for_an_approval_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    task = PlanRedriveOperator(task_id="plan", pipeline="orders", dag=DAG("a_dag"))
    run(task, monkeypatch, PLAN, {"params": {}, "ti": instance({}), "run_id": "manual__1"})
    assert outcome() == (Stage.PLANNED, "manual__1", PLAN.text)


def test_why_a_redrive_was_refused_is_told_without_the_log_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """spark-submit ends with an error that names neither the reason nor the job's exit status."""
    task = PlanRedriveOperator(task_id="plan", pipeline="orders", dag=DAG("a_dag"))

    class Submission:
        def submit(self, application: str, env: Any) -> None:
            assert application.endswith("redrive.py")
            directory = ReportPaths(Settings.from_environment().reports, "orders").directory
            directory.mkdir(parents=True, exist_ok=True)
            refusal_beside(directory / "redrive.json").write_text("the application runs")
            raise AirflowException("Cannot execute: spark-submit. Error code is: 1.")

    monkeypatch.setattr("streamplan.airflow.check_operators.spark_hook", lambda *_: Submission())
    with pytest.raises(AirflowFailException, match="the application runs"):
        task.execute({"params": {}, "ti": instance({}), "run_id": "manual__1"})  # type: ignore[arg-type]
    assert outcome() == (Stage.REFUSED, "manual__1", "the application runs")


def outcome() -> tuple[Stage, str, str]:
    """What the Streams page says of the last re-drive."""
    found = read_outcome(Settings.from_environment().reports, "orders")
    assert found is not None
    return found.stage, found.run, found.text


@pytest.mark.parametrize(
    ("answer", "who"),
    [
        ({"responded_by_user": {"id": "7", "name": "ann"}}, "ann"),
        ({"responded_by_user": {"id": "7", "name": ""}}, "7"),
        ({"responded_by_user": None}, "unknown"),
        (None, "unknown"),
    ],
)
def test_who_answered_is_the_user_of_airflow(answer: Any, who: str) -> None:
    context: Any = {"ti": instance({"approval": answer})}
    assert answered_by(context) == who
