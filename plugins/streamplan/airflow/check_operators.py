"""The tasks that check a pipeline: the Spark jobs before a check, the checks, and the page with what they found."""

from __future__ import annotations

import copy
import io
import os
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk import BaseOperator, ExceptionRetryPolicy, RetryAction, RetryRule
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    AirflowTaskTimeout,
)

from streamplan.airflow.connections import brokers
from streamplan.airflow.data_docs import DataDocsLink, SummaryLink, picture_address, summaries
from streamplan.airflow.notifications import Notifier, OutcomeNotification
from streamplan.airflow.streams_page import StreamsLink
from streamplan.airflow.supervised_job import job_environment, job_file, spark_hook
from streamplan.checks import CHECKS, check_named, scheduled_checks
from streamplan.checks.discovery.running import running_application
from streamplan.checks.framework.application import Application, application_of
from streamplan.checks.framework.check import (
    Check,
    CheckResult,
    Observation,
    Outcome,
    RecordedCheck,
    SparkJob,
    run_check,
)
from streamplan.checks.totals import CHECK as TOTALS
from streamplan.errors import CouldNotLook
from streamplan.files import ReportPaths, write_atomically
from streamplan.kafka.brokers import Brokers
from streamplan.programs import ExitStatus, refusal_beside
from streamplan.registry import pipeline_named
from streamplan.reports.observations import RecordedObservations, reason_left, reusable_recount
from streamplan.reports.results import (
    MOST_RESULTS,
    has_history,
    passed_lately,
    read_beside,
    read_history,
    read_latest,
    write_result,
)
from streamplan.reports.run_page import RunPage
from streamplan.settings import Settings

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

RECOUNT_MINUTES = 60
"""On a schedule, totals that only Spark can compute again are left alone for this time once they have passed."""

_LOG_COLUMNS = 84
"""At most this many characters stand in a line of the log of a failed check: a window of 1,280 pixels shows them."""

_RUN_BY_ITSELF = ("scheduled", "asset_triggered")
"""The types of DAG runs that nobody asked for."""

_REASON = "reason"
"""The key in XCom under which a task says why it ended without a result. Airflow deletes it before a retry."""

LOGGED_ROWS = 50
"""At most this many wrong rows stand in the log of a failed check. The Data Docs show more."""


class CheckFailed(SystemExit):
    """Ends the task of a check that found something wrong.

    Airflow's task runner logs any other exception with its traceback, which buries the reason. For an exit it logs one
    line with the status. The statuses are those of ``python -m streamplan check``.
    """

    def __init__(self) -> None:
        super().__init__(int(ExitStatus.WRONG))


class CheckCouldNotLook(SystemExit):
    """Ends the task of a check that could not decide. Airflow tries the task again. See :class:`CheckFailed`."""

    def __init__(self) -> None:
        super().__init__(int(ExitStatus.FAILED))


RETRY_POLICY = ExceptionRetryPolicy(
    [RetryRule(CheckFailed, RetryAction.FAIL, reason="The check has decided: looking again would not change it.")]
)
"""A check that could not look is tried again. A check that failed is not."""


class SparkJobOperator(BaseOperator):
    """Runs a Spark job that ends, and that writes its result to a file."""

    def __init__(self, *, pipeline: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self._hook: SparkSubmitHook | None = None

    def on_kill(self) -> None:
        """Stop the Spark job."""
        if self._hook is not None:
            self._hook.on_kill()

    @contextmanager
    def _leaving_a_reason(self, context: Context) -> Iterator[None]:
        """Leave in XCom why the task ends without a result. The task ``data_docs`` records it."""
        try:
            yield
        except AirflowSkipException:
            raise
        except AirflowTaskTimeout:
            context["ti"].xcom_push(key=_REASON, value=f"it took longer than {self.execution_timeout}")
            raise
        except Exception as error:
            context["ti"].xcom_push(key=_REASON, value=" ".join(str(error).split()) or type(error).__name__)
            raise

    def _run(self, name: str, output: Path, *arguments: str) -> None:
        refusal = refusal_beside(output)
        for path in (output, refusal):
            path.unlink(missing_ok=True)
        arguments = ("--pipeline", self.pipeline, "--output", str(output), *arguments)
        settings = Settings.from_environment()
        self._hook = spark_hook(settings, self.pipeline, name, list(arguments))
        properties_file = settings.run / f"{output.stem}-{os.getpid()}.kafka"
        try:
            environment = job_environment(brokers(self.pipeline), properties_file)
            self._hook.submit(job_file(f"{name.replace('-', '_')}.py"), env=environment)
        except AirflowException as error:
            if not refusal.exists():
                raise AirflowException(reason_left(output) or _status_of(error)) from error
            reason = refusal.read_text()
            self.log.error("%s", reason)  # below the lines of Spark, and above Airflow's traceback
            raise AirflowFailException(reason) from error
        finally:
            properties_file.unlink(missing_ok=True)


class StateStoreOperator(SparkJobOperator):
    """Reads what Spark's state store holds. The totals check compares it with the topics."""

    def execute(self, context: Context) -> None:
        """Run ``jobs/state_store.py``."""
        settings = Settings.from_environment()
        output = ReportPaths(settings.reports, self.pipeline).state_store
        servers = ("--bootstrap-servers", str(brokers(self.pipeline)))
        self._run("state-store", output, *servers, "--checkpoints", settings.checkpoints)


class RecountOperator(SparkJobOperator):
    """Computes the pipeline anew from its input. The totals check judges the result.

    On a schedule Spark is not started when nothing is new: the rows of the last time are judged again.
    """

    def execute(self, context: Context) -> None:
        """Run ``jobs/recount.py``, unless the rows of its last run still hold."""
        skip_before_deployment(context, self.pipeline)
        with self._leaving_a_reason(context):
            self._recount(context)

    def _recount(self, context: Context) -> None:
        from streamplan.kafka.cluster import KafkaCluster

        cluster = KafkaCluster(brokers(self.pipeline))
        application = running_application(pipeline_named(self.pipeline), cluster)
        if application.runs_until:
            raise AirflowSkipException(
                f"{application.runs_until} has not taken over from {application.application_id} yet. The recount runs "
                "when it has taken over."
            )
        paths = ReportPaths(Settings.from_environment().reports, self.pipeline)
        output = paths.recount(self.dag_id)
        for check in scheduled_checks(application):
            if SparkJob.RECOUNT in check.spark_jobs(application) and self._has_left_rows(check, paths):
                skip_when_passed_lately(context, check, self.pipeline, minutes=RECOUNT_MINUTES)
        if _is_on_schedule(context):
            last = reusable_recount(output, application, cluster)
            if last is not None:
                self.log.info(
                    "The recount of %s is still valid: since then no record was written, deleted or processed.", last.at
                )
                return
        sinks = ("--sinks", str(paths.sink_offsets))
        self._run("recount", output, "--bootstrap-servers", str(brokers(self.pipeline)), *sinks)

    def _has_left_rows(self, check: Check, paths: ReportPaths) -> bool:
        """Whether the last recount of the DAG in which the check was last run came to its end.

        A recount deletes the rows of the one before. So rows that are missing were not made: it was killed.
        """
        last = read_latest(paths.directory.parent, self.pipeline).get(check.name)
        dag_id = last.task[0] if last is not None and last.task else self.dag_id
        return not reason_left(paths.recount(dag_id), missing="it was killed")


class CheckOperator(SparkJobOperator):
    """Runs one check and judges. The task is green only when the check passed.

    The log begins with the outcome and the reason; the wrong rows follow as a table. XCom ``result`` has outcome,
    reason, time and the page in the Data Docs, which the task ``data_docs`` writes when all checks of the run are done.
    On a schedule a check that reads much is skipped while its last pass is young. With the parameter ``full``
    everything is looked at, by Spark where it is more than one machine should read.

    Where a check has verified totals, the event of the asset in ``outlets`` says up to where, see
    :func:`verified_positions`.
    """

    operator_extra_links = (DataDocsLink(), StreamsLink())

    def __init__(self, *, pipeline: str, check: str, with_state_store: bool = False, **kwargs: Any) -> None:
        """Make the task.

        Args:
            pipeline: The name of a declared pipeline.
            check: The name of the check.
            with_state_store: Whether the check also compares with what the state store held when it was last read.
            **kwargs: What every operator takes.
        """
        super().__init__(pipeline=pipeline, retry_policy=RETRY_POLICY, **kwargs)
        self.check = check
        self.with_state_store = with_state_store

    def execute(self, context: Context) -> dict[str, str | None]:
        """Run the check, write its result, and end the task with it."""
        skip_before_deployment(context, self.pipeline)
        with self._leaving_a_reason(context):
            return self._check(context)

    def _check(self, context: Context) -> dict[str, str | None]:
        from streamplan.kafka.cluster import KafkaCluster

        cluster = KafkaCluster(brokers(self.pipeline))
        application = running_application(pipeline_named(self.pipeline), cluster)
        settings = Settings.from_environment()
        if application.runs_until and (reason := check_named(self.check).applies_to(application)) is not None:
            raise AirflowSkipException(f"{'. '.join(application.notes)}. {reason.reason}")
        check = self._configured_check(context, application, settings)
        result = run_check(application, check, cluster)
        task = (self.dag_id, str(context["run_id"]), self.task_id)
        result = replace(result, data_docs=run_page(context, self.pipeline).path, task=task)
        try:
            write_result(settings.reports, result)
        except OSError as error:  # what was found is told all the same
            for line in log_lines(result):
                self.log.error("%s", line)
            self.log.error("This result cannot be kept: %s. Look whether the disk is full.", error)
            raise CheckFailed if result.outcome is Outcome.FAILED else CheckCouldNotLook from error
        if result.outcome is Outcome.PASSED:
            for asset in self.outlets:
                context["outlet_events"][asset].extra = verified_positions(application, settings.reports)
        return self._report(context, result)

    def get_openlineage_facets_on_start(self) -> OperatorLineage[Any, Any]:
        """Say to Airflow's OpenLineage provider which topics are looked at."""
        from streamplan.airflow.lineage import check_lineage

        return check_lineage(pipeline_named(self.pipeline), None, None)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any]:
        """Say what this run of the check found, and up to where the totals are verified."""
        from streamplan.airflow.lineage import check_lineage
        from streamplan.reports.check_context import check_context

        pipeline, reports = pipeline_named(self.pipeline), Settings.from_environment().reports
        result = read_latest(reports, self.pipeline).get(self.check)
        if result is None or datetime.fromisoformat(result.at) < task_instance.start_date:
            return check_lineage(pipeline, None, None)
        is_verified = self.check == "totals" and result.outcome is Outcome.PASSED
        cut = check_context(application_of(pipeline), reports).verified.cut() if is_verified else None
        return check_lineage(pipeline, result, cut)

    def _configured_check(self, context: Context, application: Application, settings: Settings) -> Check:
        from streamplan.reports.check_context import check_context

        check = check_named(self.check)
        skip_when_passed_lately(context, check, self.pipeline)
        full = bool(context["params"].get("full"))
        recounted = ReportPaths(settings.reports, self.pipeline).recount(self.dag_id)
        by_spark = SparkJob.RECOUNT in check.spark_jobs(application)
        if full and not by_spark and check.distributed and _is_large(application, brokers(self.pipeline)):
            rows = recounted.with_name(f"{self.dag_id}-{self.check}.json")
            arguments = ("--check", self.check, "--reports", str(settings.reports))
            self._run("check", rows, "--bootstrap-servers", str(brokers(self.pipeline)), *arguments)
            return RecordedCheck(check, lambda: RecordedObservations.read(rows).observe())
        return check.configure(
            check_context(
                application,
                settings.reports,
                full=full,
                with_state_store=self.with_state_store,
                recounted=recounted if by_spark else None,
                report=self._report_wait,
            )
        )

    def _report_wait(self, text: str) -> None:
        if text:
            self.log.info("%s %s", self.check, text)

    def _report(self, context: Context, result: CheckResult) -> dict[str, str | None]:
        summary: dict[str, str | None] = {
            "outcome": str(result.outcome),
            "reason": result.reason,
            "at": result.at,
            "data_docs": result.data_docs,
        }
        context["ti"].xcom_push(key="result", value=summary)
        if result.outcome is Outcome.PASSED:
            self.log.info("%s: %s", result.outcome, result.reason)
            return summary
        for line in log_lines(result):
            self.log.error("%s", line)
        raise CheckFailed if result.outcome is Outcome.FAILED else CheckCouldNotLook


def verified_positions(application: Application, reports: Path) -> dict[str, Any]:
    """Return how far the totals of an application are verified, for the event of an asset.

    Args:
        reports: The directory of all reports.

    Returns:
        ``application_id``; ``records`` and ``keys``, the numbers that agreed; ``positions``, the offset after the last
        verified record by topic and partition. Empty without a stored cut: totals that Spark computes again have none.
    """
    from streamplan.reports.check_context import check_context

    store = check_context(application, reports).verified
    cut = store.cut()
    if cut is None:
        return {}
    (source,) = {aggregation.source for aggregation in application.aggregations}
    positions = {str(partition): position for partition, position in sorted(cut.source.items())}
    return {
        "application_id": application.application_id,
        "records": cut.records,
        "keys": store.key_count(),
        "positions": {source: positions},
    }


class DataDocsOperator(BaseOperator):
    """Writes the page of the run in the Data Docs: what all of its checks found.

    It runs after the checks whatever their outcome was, as a teardown task: Airflow takes the state of the run from
    the checks before it, so that a page that was written does not make a run green. Only this task loads Great
    Expectations, which takes several CPU seconds.

    A check whose task failed without a result could not look: the task was killed, or the recount before it failed.
    This task records that, and tells the notifiers.
    """

    operator_extra_links = (DataDocsLink(),)

    def __init__(self, *, pipeline: str, notifiers: Sequence[Notifier] = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.notifiers = tuple(notifiers)

    def execute(self, context: Context) -> str:
        """Record the checks without a result, and write the page.

        Returns:
            The page, relative to the directory of all reports.

        Raises:
            AirflowSkipException: No check of this run has looked.
        """
        from streamplan.reports.great_expectations import write_data_docs

        reports = Settings.from_environment().reports
        page = run_page(context, self.pipeline)
        for check, task_id in self._without_result(context, read_beside(reports, self.pipeline, page.path)):
            result = self._could_not_look(context, check, task_id)
            write_result(reports, replace(result, data_docs=page.path))
            self.log.error("%s %s: %s", check, result.outcome, result.reason)
            if self.notifiers:
                OutcomeNotification(self.pipeline, check, self.notifiers)(context)
        results = read_beside(reports, self.pipeline, page.path)
        if not results:
            raise AirflowSkipException("No check of this run has a result, so there is no page to write.")
        write_data_docs(reports, page, results)
        self.log.info("%d checks are on the page %s", len(results), reports / page.path)
        return page.path

    def _without_result(self, context: Context, results: Sequence[CheckResult]) -> Iterator[tuple[str, str]]:
        """Yield the checks whose tasks failed in this run without a result, each with the task that failed.

        A result that passed is one of before the task was cleared.
        """
        run_id = str(context["run_id"])
        states: Mapping[str, Any] = context["ti"].get_task_states(dag_id=self.dag_id, run_ids=[run_id]).get(run_id, {})
        before = self.task_id[: self.task_id.rfind(".") + 1]  # the group of the tasks
        found = {result.check: result.outcome for result in results}
        for check in CHECKS:
            task_id, recount = before + check.name, before + SparkJob.RECOUNT
            state = states.get(task_id)
            if state == "failed" and found.get(check.name, Outcome.PASSED) is Outcome.PASSED:
                yield check.name, task_id
            elif state == "upstream_failed" and check.name == TOTALS.name and states.get(recount) == "failed":
                yield check.name, recount

    def _could_not_look(self, context: Context, check: str, task_id: str) -> CheckResult:
        run_id = str(context["run_id"])
        reason = context["ti"].xcom_pull(task_ids=task_id, key=_REASON, run_id=run_id)
        error = CouldNotLook(
            f"task {task_id}",
            expected="a result",
            observed=f"the task failed: {reason or 'it was killed, and has left no reason'}",
            remedy=f"Look at the log of the task in the run {run_id} of {self.dag_id}.",
        )
        at = datetime.now(UTC).isoformat(timespec="microseconds")
        task = (self.dag_id, run_id, task_id)
        return CheckResult(self.pipeline, check, Outcome.COULD_NOT_LOOK, str(error), at, (), task=task)


class SummaryOperator(BaseOperator):
    """Draws the last seven days of a pipeline: what arrived, lag, what was dead-lettered, what the checks found.

    The picture lies beside the Data Docs, and the button of the task leads to it. Notifiers can use ``summary`` in
    their templates: ``pipeline``, ``picture`` (the address on Airflow's API server) and ``text``.
    """

    operator_extra_links = (SummaryLink(),)

    def __init__(self, *, pipeline: str, notifiers: Sequence[Notifier] = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.notifiers = tuple(notifiers)

    def execute(self, context: Context) -> str:
        """Draw the picture, and tell the notifiers.

        Returns:
            The address of the picture on Airflow's API server.
        """
        from streamplan.kafka.cluster import KafkaCluster
        from streamplan.observability.week import LENGTH, describe, draw, look_back

        reports = Settings.from_environment().reports
        cluster = KafkaCluster(brokers(self.pipeline))
        now = datetime.now(UTC)
        history = read_history(reports, self.pipeline, last=MOST_RESULTS, since=now - LENGTH)
        week = look_back(running_application(pipeline_named(self.pipeline), cluster), cluster, history, now)
        file = summaries(reports, self.pipeline) / f"{context['dag_run'].run_after:%Y-%m-%dT%H%M%S}.svg"
        write_atomically(file, draw(week))
        picture = picture_address(self.pipeline, file)
        self.log.info("%s: %s", describe(week), picture)
        summary = {"pipeline": self.pipeline, "picture": picture, "text": describe(week)}
        for notifier in self.notifiers:
            copy.deepcopy(notifier)({**context, "summary": summary})  # it renders itself
        return picture


def _status_of(error: AirflowException) -> str:
    """Return what Airflow says of a Spark job that failed, without the command line, which fills a page."""
    _, status, number = str(error).rpartition("Error code is: ")
    return f"spark-submit ended with status {number.rstrip('.')}" if status else str(error)


def run_page(context: Context, pipeline: str) -> RunPage:
    """Return the page of the DAG run that this task belongs to. All tasks of the run return the same page."""
    run = context["dag_run"]
    return RunPage(pipeline, run.dag_id, run.run_after)


def log_lines(result: CheckResult) -> Iterator[str]:
    """Yield what the log says of a check that did not pass: the reason, what to do next, and a table of wrong rows."""
    yield from textwrap.wrap(f"{result.outcome}: {result.reason}", _LOG_COLUMNS, subsequent_indent="  ")
    for advice in result.advice:
        yield from textwrap.wrap(f"Next: {advice}", _LOG_COLUMNS, subsequent_indent="  ")
    wrong_rows = [row for row in result.observations if not row.agrees]
    if wrong_rows:
        yield from _table_lines(wrong_rows[:LOGGED_ROWS])
    if len(wrong_rows) > LOGGED_ROWS:
        yield f"{len(wrong_rows) - LOGGED_ROWS:,} more wrong rows are not shown here: see the Data Docs of this run."


def _table_lines(rows: Sequence[Observation]) -> list[str]:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table("Subject", "Expected", "Observed", box=box.SIMPLE_HEAD, show_lines=False)
    for column in table.columns:
        column.overflow = "fold"
    for row in rows:
        where = f"\n({row.where})" if row.where else ""
        table.add_row(f"{row.subject}{where}", str(row.expected), str(row.observed))
    text = io.StringIO()
    Console(file=text, width=_LOG_COLUMNS, color_system=None, markup=False, emoji=False, highlight=False).print(table)
    return [line.rstrip() for line in text.getvalue().splitlines() if line.strip()]


def skip_when_passed_lately(context: Context, check: Check, pipeline: str, *, minutes: int | None = None) -> None:
    """Skip the task on a schedule when the check passed a short time ago. Who triggers a run wants to know.

    Args:
        pipeline: The name of the pipeline.
        minutes: How long the check is left alone once it has passed; ``check.every_minutes`` where None.

    Raises:
        AirflowSkipException: The check is not due yet.
    """
    minutes = check.every_minutes if minutes is None else minutes
    passed_at = passed_lately(check.name, pipeline, Settings.from_environment().reports, minutes=minutes)
    if _is_on_schedule(context) and passed_at is not None:
        raise AirflowSkipException(f"{check.name} passed at {passed_at}. On a schedule it runs every {minutes} min.")


def skip_before_deployment(context: Context, pipeline: str) -> None:
    """Skip the task where nobody asked for the run and the pipeline was never deployed: there is nothing to look at.

    A deployment verifies the pipeline, so the history of its checks begins. Where that was lost, Airflow still knows
    the deployments that succeeded.

    Args:
        pipeline: The name of the pipeline.

    Raises:
        AirflowSkipException: The pipeline was never deployed.
    """
    if context["dag_run"].run_type not in _RUN_BY_ITSELF:
        return
    if has_history(Settings.from_environment().reports, pipeline):
        return
    deploy = f"{pipeline}_deploy"
    if not context["ti"].get_dr_count(dag_id=deploy, states=["success"]):
        raise AirflowSkipException(f"{pipeline} was never deployed. Trigger {deploy}; then this run looks.")


def _is_on_schedule(context: Context) -> bool:
    """Return whether the schedule started this run, and nobody asked it to look at everything."""
    run = context["dag_run"]
    return run.run_type == "scheduled" and not (run.conf or {}).get("full")


def _is_large(application: Application, brokers: Brokers) -> bool:
    """Return whether a topic of the application has more records than one process should read."""
    from streamplan.kafka.cluster import KafkaCluster

    cluster = KafkaCluster(brokers)
    names = [spec.name for spec in application.topics]
    return any(
        sum(offsets.last_stable - offsets.log_start for offsets in cluster.offsets(topic).values())
        > application.limits.scanned_records
        for topic in cluster.topics(names)
    )
