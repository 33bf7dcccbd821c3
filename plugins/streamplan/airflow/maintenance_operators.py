"""The tasks that change what an application has in Kafka: purge, reset, partitions, re-drive, upgrade."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from streamplan.airflow.check_operators import SparkJobOperator
from streamplan.airflow.connections import brokers
from streamplan.airflow.deploy_operators import ACTIVE_STATES
from streamplan.errors import Refused
from streamplan.files import ReportPaths, write_atomically
from streamplan.maintenance.operation import Operation, Plan, active_runs
from streamplan.maintenance.redrive_plan import REDRIVE_ALONE, RedrivePlan
from streamplan.maintenance.upgrade_plan import UPGRADED_ALONE
from streamplan.maintenance.upgrade_plan import Stage as UpgradeStage
from streamplan.registry import pipeline_named
from streamplan.reports.redrive_outcome import RedriveOutcome, Stage, write_outcome
from streamplan.settings import Settings

if TYPE_CHECKING:
    from airflow.sdk import Context

PLAN, APPROVAL, APPLY = "plan", "approval", "apply"
"""The tasks of an operation that a person approves."""


def is_active(context: Context) -> Callable[[str], bool]:
    """Return the function that says whether a DAG has an active run, by its id."""
    return lambda dag_id: bool(context["ti"].get_dr_count(dag_id=dag_id, states=ACTIVE_STATES))


class PurgeOperator(BaseOperator):
    """Deletes the records of repartition topics that are counted and verified. Skipped when there are none.

    It is also skipped during a deployment, which compares with what the state store held a while ago.
    """

    def __init__(self, *, pipeline: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline

    def execute(self, context: Context) -> dict[str, dict[str, int]]:
        """Delete, and return the offset up to which each partition of each topic was purged."""
        from streamplan.maintenance.purge import purge

        if busy := active_runs(self.pipeline, ("deploy", "reset", "repartition"), is_active(context)):
            raise AirflowSkipException(f"{', '.join(busy)} is active, so this run purges nothing. The next run purges.")
        purged = purge(pipeline_named(self.pipeline), brokers(self.pipeline), Settings.from_environment())
        if not purged.until:
            raise AirflowSkipException(purged.line)
        self.log.info("%s", purged.line)
        return {
            topic: {str(partition): until for partition, until in partitions.items()}
            for topic, partitions in purged.until.items()
        }


class OperationOperator(BaseOperator):
    """A task of an operation whose plan a person approves: a reset or a repartition."""

    def __init__(self, *, pipeline: str, operation: str, **kwargs: Any) -> None:
        """Make the task.

        Args:
            pipeline: The name of a registered pipeline.
            operation: The operation, by its name in :data:`streamplan.maintenance.operations.OPERATIONS`.
            **kwargs: What every operator takes.
        """
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.operation = operation

    def _do(self, context: Context, step: Callable[[Operation], Plan]) -> Plan:
        """Do a step of the operation. What it refuses fails the task, and is not tried again."""
        from streamplan.maintenance.operations import OPERATIONS

        try:
            return step(
                OPERATIONS[self.operation](
                    pipeline_named(self.pipeline),
                    brokers(self.pipeline),
                    Settings.from_environment(),
                    self.log.info,
                    is_active(context),
                )
            )
        except Refused as error:
            self.log.error("%s", error)  # the reason stands in one line above Airflow's traceback
            raise AirflowFailException(str(error)) from error


class PlanOperator(OperationOperator):
    """Shows what an operation would do, for a person to approve. It changes nothing."""

    def execute(self, context: Context) -> dict[str, Any]:
        """Return the plan: as text, and as the task ``apply`` reads it."""
        plan = self._do(context, lambda operation: operation.observe())
        self.log.info("%s", plan.text)
        return {"text": plan.text, "plan": plan.written()}


class ApplyOperator(OperationOperator):
    """Does what a person has approved. The next run completes a run that died halfway."""

    def execute(self, context: Context) -> None:
        """Carry out the plan that was approved."""
        approved = context["ti"].xcom_pull(task_ids=PLAN)["plan"]
        self._do(context, lambda operation: operation.apply(approved))


class PlanRedriveOperator(SparkJobOperator):
    """Shows what the declaration makes of the chosen dead letters now, for a person to approve. It changes nothing.

    The parameters of the run choose: ``reason``, or ``letters``; without either all that are open.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Run ``jobs/redrive.py``, and return the plan: as text, and as the task ``apply`` reads it.

        Raises:
            AirflowSkipException: No chosen dead letter can be processed again.
        """
        reason, letters = context["params"].get("reason"), context["params"].get("letters") or ()
        plan = self._redrive(
            context,
            *(("--reason", reason) if reason else ()),
            *(part for letter in letters for part in ("--letter", letter)),
        )
        self.log.info("%s", plan.text)
        if plan.empty:
            self._tell(context, Stage.NOTHING, plan.text)
            raise AirflowSkipException(plan.text)
        self._tell(context, Stage.PLANNED, plan.text)
        return {"text": plan.text, "plan": plan.written()}

    def _redrive(self, context: Context, *arguments: str) -> RedrivePlan:
        """Run the job, and return the plan that it leaves. What it refuses is told on the Streams page, too."""
        output = _redrive_file(self.pipeline, "redrive")
        runs = _active_run_arguments(context, self.pipeline, REDRIVE_ALONE)
        try:
            self._run("redrive", output, "--bootstrap-servers", str(brokers(self.pipeline)), *arguments, *runs)
        except AirflowFailException as error:
            self._tell(context, Stage.REFUSED, str(error))
            raise
        return RedrivePlan.read(json.loads(output.read_text()))

    def _tell(self, context: Context, stage: Stage, text: str) -> None:
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        outcome = RedriveOutcome(stage, str(context["run_id"]), at, text)
        write_outcome(Settings.from_environment().reports, self.pipeline, outcome)


class RedriveOperator(PlanRedriveOperator):
    """Processes again what a person has approved. The next run completes a run that died halfway."""

    def execute(self, context: Context) -> dict[str, Any]:
        """Run ``jobs/redrive.py`` with the plan that was approved, and return what was done."""
        approved = _redrive_file(self.pipeline, "redrive-approved")
        write_atomically(approved, json.dumps(context["ti"].xcom_pull(task_ids=PLAN)["plan"]))
        by = answered_by(context)
        done = self._redrive(context, "--approved", str(approved), "--by", by, "--run", str(context["run_id"]))
        self._tell(context, Stage.DONE, done.text)
        return {"text": done.text, "plan": done.written()}


class UpgradeOperator(SparkJobOperator):
    """Does a step of an upgrade: builds the new state beside the old application and compares, or switches.

    The parameter ``accept_differences`` of the run lets the switch be made where stores that mean the same differ. With
    ``max_offsets`` micro-batches are smaller.
    """

    def __init__(self, *, step: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.step = step

    def execute(self, context: Context) -> dict[str, Any]:
        """Run ``jobs/upgrade.py``, and return what it found, as text for the task ``approval``.

        Raises:
            AirflowSkipException: The new application has taken over already.
        """
        output = ReportPaths(Settings.from_environment().reports, self.pipeline).directory / f"upgrade-{self.step}.json"
        runs = _active_run_arguments(context, self.pipeline, UPGRADED_ALONE)
        accepted = ("--accept-differences",) if context["params"].get("accept_differences") else ()
        if (most := context["params"].get("max_offsets")) is not None:
            accepted = (*accepted, "--max-offsets", str(most))
        servers = str(brokers(self.pipeline))
        self._run("upgrade", output, "--bootstrap-servers", servers, "--step", self.step, *accepted, *runs)
        found: dict[str, Any] = json.loads(output.read_text())
        self.log.info("%s", found["text"])
        if found["stage"] == UpgradeStage.DONE:
            raise AirflowSkipException(found["text"])
        return found


def _active_run_arguments(context: Context, pipeline: str, kinds: Iterable[str]) -> list[str]:
    runs = active_runs(pipeline, kinds, is_active(context))
    return [part for run in runs for part in ("--active-run", run)]


def _redrive_file(pipeline: str, name: str) -> Path:
    return ReportPaths(Settings.from_environment().reports, pipeline).directory / f"{name}.json"


def answered_by(context: Context) -> str:
    """Return who answered the question of the task ``approval``: the name of Airflow's user."""
    answer = context["ti"].xcom_pull(task_ids=APPROVAL) or {}
    user = answer.get("responded_by_user") or {}
    return str(user.get("name") or user.get("id") or "unknown")
