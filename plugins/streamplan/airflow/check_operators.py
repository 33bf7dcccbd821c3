"""The tasks of a deployment besides the supervised jobs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from streamplan.airflow.connections import brokers
from streamplan.airflow.data_docs import DataDocsLink
from streamplan.airflow.supervised_job import job_environment, job_file, seconds_for, spark_hook
from streamplan.airflow.triggers import ProcessedTrigger
from streamplan.checks import check_named, scheduled_checks
from streamplan.checks.framework.application import Application, application_of
from streamplan.checks.framework.check import Check, CheckResult, Outcome, RecordedCheck, SparkJob
from streamplan.errors import CouldNotLook, Refused
from streamplan.registry import pipeline_named
from streamplan.settings import Settings

if TYPE_CHECKING:
    from airflow.sdk import Context

RECOUNT_MINUTES = 60
"""Totals that only Spark can compute anew are computed on a schedule not more often, once they have passed."""

ACTIVE_STATES = ["queued", "running"]


class TopicsOperator(BaseOperator):
    """Creates the topics of a pipeline, or refuses and lists every difference. Shows the plan first."""

    def __init__(self, *, pipeline: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline

    def execute(self, context: Context) -> dict[str, int]:
        from streamplan.kafka.topics import apply_topics

        try:
            plan = apply_topics(brokers(), pipeline_named(self.pipeline), show=self.log.info)
        except Refused as error:
            raise AirflowFailException(str(error)) from error
        return {"created": len(plan.create), "agreed": len(plan.agree)}


class PlanProductionOperator(BaseOperator):
    """Decides, once for all tries of ``produce``, which record numbers this run writes."""

    template_fields = ("records", "rate")

    def __init__(self, *, pipeline: str, records: Any, rate: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.records = records
        self.rate = rate

    def execute(self, context: Context) -> dict[str, int | None]:
        from streamplan.kafka.test_data import next_number

        first = next_number(pipeline_named(self.pipeline), brokers())
        until = None if self.records is None else first + int(self.records)
        self.log.info("Records %s to %s", f"{first:,}", "without end" if until is None else f"{until - 1:,}")
        return {"first": first, "until": until, "rate": int(self.rate or 0)}


class EnsureDagRunOperator(TriggerDagRunOperator):
    """Triggers a run of a DAG unless one is active; does not wait for it."""

    def execute(self, context: Context) -> None:
        active = context["ti"].get_dr_count(dag_id=self.trigger_dag_id, states=ACTIVE_STATES)
        if active:
            self.log.info("%s has an active run: it goes on", self.trigger_dag_id)
            return
        super().execute(context)


class ProcessedOperator(BaseOperator):
    """Waits until the aggregator has committed positions at the ends that the topics had when this task began."""

    template_fields = ("records",)

    def __init__(self, *, pipeline: str, records: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.records = records

    def execute(self, context: Context) -> None:
        from streamplan.kafka.cluster import KafkaCluster

        pipeline = pipeline_named(self.pipeline)
        topology = pipeline.topology
        cluster = KafkaCluster(brokers())
        targets: dict[str, Mapping[str, int] | None] = {
            topic: {str(partition): found.last_stable for partition, found in cluster.offsets(topic).items()}
            for topic in topology.source_topics
        }
        targets |= {topology.decorate(topic.name): None for topic in topology.repartition_topics}
        seconds = seconds_for(int(self.records or 0))
        group = topology.application_id
        self.log.info("Waiting at most %.0f s until group %s has processed %s", seconds, group, targets)
        self.defer(
            trigger=ProcessedTrigger(
                group=group,
                targets=targets,
                job=f"{self.pipeline}-aggregator",
                run_dir=str(Settings.from_environment().run),
                deadline=time.time() + seconds,
            ),
            method_name="resume",
        )

    def resume(self, context: Context, event: Mapping[str, Any]) -> None:
        if not event["processed"]:
            raise AirflowException(
                f"{self.pipeline}: expected all records processed by now, observed {event['state']}. "
                f"Look at the run of {self.pipeline}_aggregator and its log."
            )
        self.log.info("All processed")


class SparkJobOperator(BaseOperator):
    """Runs a Spark job that ends and writes what it finds to a file."""

    def __init__(self, *, pipeline: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self._hook: SparkSubmitHook | None = None

    def on_kill(self) -> None:
        if self._hook is not None:
            self._hook.on_kill()

    def _run(self, name: str, output: Path, *arguments: str) -> None:
        output.unlink(missing_ok=True)
        arguments = ("--pipeline", self.pipeline, "--output", str(output), *arguments)
        self._hook = spark_hook(Settings.from_environment(), f"{self.pipeline}-{name}", list(arguments))
        self._hook.submit(job_file(f"{name.replace('-', '_')}.py"), env=job_environment())


class StateStoreOperator(SparkJobOperator):
    """Reads what the state store holds, for the totals check to compare."""

    def execute(self, context: Context) -> None:
        from streamplan.files import ReportPaths

        settings = Settings.from_environment()
        output = ReportPaths(settings.reports, self.pipeline).state_store
        self._run("state-store", output, "--checkpoints", settings.checkpoints)


class RecountOperator(SparkJobOperator):
    """Computes the pipeline anew from its input, for the totals check to judge.

    On a schedule Spark is not started when nothing is new: the rows of the last time are judged again.
    """

    def execute(self, context: Context) -> None:
        from streamplan.files import ReportPaths
        from streamplan.kafka.cluster import KafkaCluster
        from streamplan.reports.observations import reusable_recount

        for check in scheduled_checks(application_of(pipeline_named(self.pipeline))):
            if SparkJob.RECOUNT in check.spark_jobs(application_of(pipeline_named(self.pipeline))):
                skip_when_passed_lately(context, check, self.pipeline, minutes=RECOUNT_MINUTES)
        output = ReportPaths(Settings.from_environment().reports, self.pipeline).recount(self.dag_id)
        if _is_on_schedule(context):
            application = application_of(pipeline_named(self.pipeline))
            last = reusable_recount(output, application, KafkaCluster(brokers()))
            if last is not None:
                self.log.info("Nothing has come, gone or been processed since %s: the recount of then holds.", last.at)
                return
        self._run("recount", output, "--bootstrap-servers", str(brokers()))


def skip_when_passed_lately(context: Context, check: Check, pipeline: str, *, minutes: int | None = None) -> None:
    """On a schedule alone: who triggers a run wants to know. ``minutes`` stands in for ``check.every_minutes``."""
    from streamplan.reports.results import passed_lately

    minutes = check.every_minutes if minutes is None else minutes
    passed = passed_lately(check.name, pipeline, Settings.from_environment().reports, minutes=minutes)
    if _is_on_schedule(context) and passed is not None:
        raise AirflowSkipException(f"{check.name} passed at {passed}: it is looked at every {minutes} min")


def _is_on_schedule(context: Context) -> bool:
    """And was not asked to look at everything."""
    run = context["dag_run"]
    return run.run_type == "scheduled" and not (run.conf or {}).get("full")


def _is_large(application: Application) -> bool:
    """Whether a topic has more records than are looked at in one place."""
    from streamplan.kafka.cluster import KafkaCluster

    cluster = KafkaCluster(brokers())
    names = [spec.name for spec in application.topics]
    return any(
        sum(found.last_stable - found.log_start for found in cluster.offsets(topic).values())
        > application.limits.scanned_records
        for topic in cluster.topics(names)
    )


class CheckOperator(SparkJobOperator):
    """Runs one check. Green only when it passed; failed and could not look are told apart.

    The reason is the first line of the log and stands in XCom; all rows are in the Data Docs. ``with_state_store``
    compares with what the state store held when it was last read, too. On a schedule a check that reads much is
    skipped while its last pass is young. With the parameter ``full`` everything is looked at, by Spark where it is
    more than one machine should read.
    """

    operator_extra_links = (DataDocsLink(),)

    def __init__(self, *, pipeline: str, check: str, with_state_store: bool = False, **kwargs: Any) -> None:
        super().__init__(pipeline=pipeline, **kwargs)
        self.check = check
        self.with_state_store = with_state_store

    def execute(self, context: Context) -> dict[str, str | None]:
        from streamplan.reports.great_expectations import run_check

        application = application_of(pipeline_named(self.pipeline))
        settings = Settings.from_environment()
        check = self._prepared(context, application, settings)
        result = run_check(application, check, brokers=brokers(), settings=settings)
        return self._tell(context, result)

    def _prepared(self, context: Context, application: Application, settings: Settings) -> Check:
        from streamplan.files import ReportPaths
        from streamplan.reports.check_context import check_context
        from streamplan.reports.observations import RecordedObservations

        check = check_named(self.check)
        skip_when_passed_lately(context, check, self.pipeline)
        full = bool(context["params"].get("full"))
        recounted = ReportPaths(settings.reports, self.pipeline).recount(self.dag_id)
        by_spark = SparkJob.RECOUNT in check.spark_jobs(application)
        if full and not by_spark and check.distributed and _is_large(application):
            rows = recounted.with_name(f"{self.dag_id}-{self.check}.json")
            arguments = ("--check", self.check, "--reports", str(settings.reports))
            self._run("check", rows, "--bootstrap-servers", str(brokers()), *arguments)
            return RecordedCheck(check, lambda: RecordedObservations.read(rows).observe())
        return check.configure(
            check_context(
                application,
                settings.reports,
                full=full,
                with_state_store=self.with_state_store,
                recounted=recounted if by_spark else None,
            )
        )

    def _tell(self, context: Context, result: CheckResult) -> dict[str, str | None]:
        line = f"{result.outcome}: {result.reason}"
        told: dict[str, str | None] = {
            "outcome": str(result.outcome),
            "reason": result.reason,
            "at": result.at,
            "data_docs": result.data_docs,
        }
        context["ti"].xcom_push(key="result", value=told)
        if result.outcome is Outcome.PASSED:
            self.log.info("%s", line)
            return told
        self.log.error("%s", line)
        if result.outcome is Outcome.FAILED:
            raise AirflowFailException(line)
        raise CouldNotLook(line)
