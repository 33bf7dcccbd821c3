"""The tasks that change what an application has left in Kafka: purging, reset, more partitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from streamplan.airflow.check_operators import ACTIVE_STATES
from streamplan.airflow.connections import brokers
from streamplan.errors import Refused
from streamplan.maintenance.repartition_plan import MOVED_ALONE
from streamplan.maintenance.reset_plan import RESET_ALONE, ResetPlan
from streamplan.registry import pipeline_named
from streamplan.settings import Settings

if TYPE_CHECKING:
    from airflow.sdk import Context


def active_runs(context: Context, pipeline: str, kinds: Iterable[str]) -> list[str]:
    """The DAGs of these kinds that have an active run."""
    dag_ids = [f"{pipeline}_{kind}" for kind in kinds]
    return [dag_id for dag_id in dag_ids if context["ti"].get_dr_count(dag_id=dag_id, states=ACTIVE_STATES)]


class PurgeOperator(BaseOperator):
    """Deletes the records of repartition topics that are counted and verified. Skipped when there are none.

    Not beside a deployment: that compares with what the state store held a while ago.
    """

    def __init__(self, *, pipeline: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline

    def execute(self, context: Context) -> dict[str, dict[str, int]]:
        from streamplan.maintenance.purge import purge

        if busy := active_runs(context, self.pipeline, ("deploy", "reset", "repartition")):
            raise AirflowSkipException(f"{', '.join(busy)} at work: the next run purges")
        purged = purge(pipeline_named(self.pipeline), brokers(), Settings.from_environment())
        if not purged.until:
            raise AirflowSkipException(purged.line)
        self.log.info("%s", purged.line)
        return {
            topic: {str(partition): until for partition, until in partitions.items()}
            for topic, partitions in purged.until.items()
        }


class PlanResetOperator(BaseOperator):
    """Shows what a reset would delete, for a person to approve. Refuses while the application runs; deletes nothing."""

    def __init__(self, *, pipeline: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline

    def execute(self, context: Context) -> dict[str, Any]:
        from streamplan.maintenance.reset import observe_reset

        try:
            plan = observe_reset(
                pipeline_named(self.pipeline),
                brokers(),
                Settings.from_environment(),
                runs=active_runs(context, self.pipeline, RESET_ALONE),
            )
        except Refused as error:
            self.log.error("%s", error)  # the reason in a line, above the traceback
            raise AirflowFailException(str(error)) from error
        self.log.info("%s", plan.text)
        return {"text": plan.text, "plan": plan.written()}


class ResetOperator(BaseOperator):
    """Deletes what was approved, and creates the internal topics again."""

    def __init__(self, *, pipeline: str, plan_task_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.plan_task_id = plan_task_id

    def execute(self, context: Context) -> None:
        from streamplan.maintenance.reset import apply_reset

        try:
            apply_reset(
                pipeline_named(self.pipeline),
                brokers(),
                Settings.from_environment(),
                ResetPlan.read(context["ti"].xcom_pull(task_ids=self.plan_task_id)["plan"]),
                say=self.log.info,
                runs=active_runs(context, self.pipeline, RESET_ALONE),
            )
        except Refused as error:
            self.log.error("%s", error)  # the reason in a line, above the traceback
            raise AirflowFailException(str(error)) from error


class PlanMoveOperator(BaseOperator):
    """Shows what moving to another number of partitions does, for a person to approve. Changes nothing."""

    def __init__(self, *, pipeline: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline

    def execute(self, context: Context) -> dict[str, Any]:
        from streamplan.maintenance.repartition import Move

        move = Move(pipeline_named(self.pipeline), brokers(), Settings.from_environment())
        try:
            plan = move.observe(runs=active_runs(context, self.pipeline, MOVED_ALONE))
        except Refused as error:
            self.log.error("%s", error)  # the reason in a line, above the traceback
            raise AirflowFailException(str(error)) from error
        self.log.info("%s", plan.text)
        return {"text": plan.text, "plan": plan.written()}


class MoveOperator(BaseOperator):
    """Moves what was approved. A run that died halfway is completed by the next one."""

    def __init__(self, *, pipeline: str, plan_task_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.plan_task_id = plan_task_id

    def execute(self, context: Context) -> None:
        from streamplan.maintenance.repartition import Move

        move = Move(pipeline_named(self.pipeline), brokers(), Settings.from_environment())
        approved = context["ti"].xcom_pull(task_ids=self.plan_task_id)["plan"]
        try:
            move.apply(approved, say=self.log.info, runs=active_runs(context, self.pipeline, MOVED_ALONE))
        except Refused as error:
            self.log.error("%s", error)  # the reason in a line, above the traceback
            raise AirflowFailException(str(error)) from error
