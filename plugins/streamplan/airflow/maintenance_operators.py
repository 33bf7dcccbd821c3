"""The tasks that change what an application has in Kafka: purge, reset, partitions, re-drive, upgrade."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from streamplan.airflow.check_operators import SparkJobOperator
from streamplan.airflow.connections import brokers
from streamplan.airflow.deploy_operators import ACTIVE_STATES
from streamplan.errors import Refused
from streamplan.files import ReportPaths, write_atomically
from streamplan.maintenance.redrive_plan import REDRIVE_ALONE, RedrivePlan
from streamplan.maintenance.repartition_plan import MOVED_ALONE
from streamplan.maintenance.reset_plan import RESET_ALONE, ResetPlan
from streamplan.maintenance.upgrade_plan import UPGRADED_ALONE, Stage
from streamplan.registry import pipeline_named
from streamplan.settings import Settings

if TYPE_CHECKING:
    from airflow.sdk import Context


def active_runs(context: Context, pipeline: str, kinds: Iterable[str]) -> list[str]:
    """Return the ids of those DAGs of a pipeline that have an active run, among DAGs of these kinds."""
    dag_ids = [f"{pipeline}_{kind}" for kind in kinds]
    return [dag_id for dag_id in dag_ids if context["ti"].get_dr_count(dag_id=dag_id, states=ACTIVE_STATES)]


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

        if busy := active_runs(context, self.pipeline, ("deploy", "reset", "repartition")):
            raise AirflowSkipException(f"{', '.join(busy)} is active, so this run purges nothing. The next run purges.")
        purged = purge(pipeline_named(self.pipeline), brokers(self.pipeline), Settings.from_environment())
        if not purged.until:
            raise AirflowSkipException(purged.line)
        self.log.info("%s", purged.line)
        return {
            topic: {str(partition): until for partition, until in partitions.items()}
            for topic, partitions in purged.until.items()
        }


class PlanResetOperator(BaseOperator):
    """Shows what a reset would delete, for a person to approve. It deletes nothing.

    It refuses while the application runs.
    """

    def __init__(self, *, pipeline: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline

    def execute(self, context: Context) -> dict[str, Any]:
        """Return the plan: as text, and as the task ``apply`` reads it."""
        from streamplan.maintenance.reset import plan_reset

        try:
            plan = plan_reset(
                pipeline_named(self.pipeline),
                brokers(self.pipeline),
                Settings.from_environment(),
                report=self.log.info,
                runs=active_runs(context, self.pipeline, RESET_ALONE),
            )
        except Refused as error:
            self.log.error("%s", error)  # the reason stands in one line above Airflow's traceback
            raise AirflowFailException(str(error)) from error
        self.log.info("%s", plan.text)
        return {"text": plan.text, "plan": plan.written()}


class ResetOperator(BaseOperator):
    """Deletes what a person has approved, and creates the internal topics again."""

    def __init__(self, *, pipeline: str, plan_task_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.plan_task_id = plan_task_id

    def execute(self, context: Context) -> None:
        """Carry out the plan that was approved."""
        from streamplan.maintenance.reset import apply_reset

        try:
            apply_reset(
                pipeline_named(self.pipeline),
                brokers(self.pipeline),
                Settings.from_environment(),
                ResetPlan.read(context["ti"].xcom_pull(task_ids=self.plan_task_id)["plan"]),
                report=self.log.info,
                runs=active_runs(context, self.pipeline, RESET_ALONE),
            )
        except Refused as error:
            self.log.error("%s", error)  # the reason stands in one line above Airflow's traceback
            raise AirflowFailException(str(error)) from error


class PlanRepartitionOperator(BaseOperator):
    """Shows which records would move to a topic with more partitions, for a person to approve. It changes nothing."""

    def __init__(self, *, pipeline: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline

    def execute(self, context: Context) -> dict[str, Any]:
        """Return the plan: as text, and as the task ``apply`` reads it."""
        from streamplan.maintenance.repartition import Repartitioner

        repartitioner = Repartitioner(
            pipeline_named(self.pipeline), brokers(self.pipeline), Settings.from_environment()
        )
        try:
            plan = repartitioner.observe(report=self.log.info, runs=active_runs(context, self.pipeline, MOVED_ALONE))
        except Refused as error:
            self.log.error("%s", error)  # the reason stands in one line above Airflow's traceback
            raise AirflowFailException(str(error)) from error
        self.log.info("%s", plan.text)
        return {"text": plan.text, "plan": plan.written()}


class RepartitionOperator(BaseOperator):
    """Moves the records that a person has approved. The next run completes a run that died halfway."""

    def __init__(self, *, pipeline: str, plan_task_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.plan_task_id = plan_task_id

    def execute(self, context: Context) -> None:
        """Carry out the plan that was approved."""
        from streamplan.maintenance.repartition import Repartitioner

        repartitioner = Repartitioner(
            pipeline_named(self.pipeline), brokers(self.pipeline), Settings.from_environment()
        )
        approved = context["ti"].xcom_pull(task_ids=self.plan_task_id)["plan"]
        try:
            repartitioner.apply(approved, report=self.log.info, runs=active_runs(context, self.pipeline, MOVED_ALONE))
        except Refused as error:
            self.log.error("%s", error)  # the reason stands in one line above Airflow's traceback
            raise AirflowFailException(str(error)) from error


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
        plan = self.redrive(
            context,
            *(("--reason", reason) if reason else ()),
            *(part for letter in letters for part in ("--letter", letter)),
        )
        self.log.info("%s", plan.text)
        if not plan.done:
            raise AirflowSkipException(plan.text)
        return {"text": plan.text, "plan": plan.written()}

    def redrive(self, context: Context, *arguments: str) -> RedrivePlan:
        """Run the job, and return the plan that it leaves."""
        output = _redrive_file(self.pipeline, "redrive")
        active = active_runs(context, self.pipeline, REDRIVE_ALONE)
        runs = (part for run in active for part in ("--active-run", run))
        self._run("redrive", output, "--bootstrap-servers", str(brokers(self.pipeline)), *arguments, *runs)
        return RedrivePlan.read(json.loads(output.read_text()))


class RedriveOperator(PlanRedriveOperator):
    """Processes again what a person has approved. The next run completes a run that died halfway."""

    def __init__(self, *, plan_task_id: str, approval_task_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan_task_id = plan_task_id
        self.approval_task_id = approval_task_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Run ``jobs/redrive.py`` with the plan that was approved, and return what was done."""
        approved = _redrive_file(self.pipeline, "redrive-approved")
        write_atomically(approved, json.dumps(context["ti"].xcom_pull(task_ids=self.plan_task_id)["plan"]))
        by = answered_by(context, self.approval_task_id)
        done = self.redrive(context, "--approved", str(approved), "--by", by, "--run", str(context["run_id"]))
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
        active = active_runs(context, self.pipeline, UPGRADED_ALONE)
        runs = (part for run in active for part in ("--active-run", run))
        accepted = ("--accept-differences",) if context["params"].get("accept_differences") else ()
        if (most := context["params"].get("max_offsets")) is not None:
            accepted = (*accepted, "--max-offsets", str(most))
        servers = str(brokers(self.pipeline))
        self._run("upgrade", output, "--bootstrap-servers", servers, "--step", self.step, *accepted, *runs)
        found: dict[str, Any] = json.loads(output.read_text())
        self.log.info("%s", found["text"])
        if found["stage"] == Stage.DONE:
            raise AirflowSkipException(found["text"])
        return found


def _redrive_file(pipeline: str, name: str) -> Path:
    return ReportPaths(Settings.from_environment().reports, pipeline).directory / f"{name}.json"


def answered_by(context: Context, approval_task_id: str) -> str:
    """Return who answered the question of an ``ApprovalOperator``: the name of Airflow's user.

    Args:
        context: Of a task after the approval.
        approval_task_id: The task that asked.
    """
    answer = context["ti"].xcom_pull(task_ids=approval_task_id) or {}
    user = answer.get("responded_by_user") or {}
    return str(user.get("name") or user.get("id") or "unknown")
