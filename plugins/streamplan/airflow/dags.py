"""The DAGs of a declared pipeline: one function for each, and one for all.

The text of a DAG or a task is what people read in Airflow: the module is long because these pages are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.exceptions import AirflowTimetableInvalid
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import (
    DAG,
    Asset,
    AssetOrTimeSchedule,
    BaseOperator,
    CronTriggerTimetable,
    Param,
    TaskGroup,
    TriggerRule,
)
from airflow.timetables.trigger import CronTriggerTimetable as CronTimetable

from streamplan.airflow.check_operators import (
    CheckOperator,
    DataDocsOperator,
    RecountOperator,
    StateStoreOperator,
    SummaryOperator,
)
from streamplan.airflow.deploy_operators import (
    EnsureDagRunOperator,
    PlanProductionOperator,
    ProcessedOperator,
    ProduceTestDataOperator,
    TopicsOperator,
)
from streamplan.airflow.maintenance_operators import (
    APPLY,
    APPROVAL,
    PLAN,
    ApplyOperator,
    PlanOperator,
    PlanRedriveOperator,
    PurgeOperator,
    RedriveOperator,
    UpgradeOperator,
)
from streamplan.airflow.notifications import Notifier, OutcomeNotification
from streamplan.airflow.supervised_job import AggregatorOperator, ProducerOperator
from streamplan.checks import scheduled_checks
from streamplan.checks.framework.application import aggregations, application_of
from streamplan.checks.framework.check import SparkJob
from streamplan.errors import Refused
from streamplan.model.pipeline import Pipeline
from streamplan.registry import pipeline_named

if TYPE_CHECKING:
    from airflow.sdk.definitions.deadline import DeadlineAlert

OWNER = "streamplan"
"""The owner that Airflow shows for every task."""

MAX_RECORDS = 1_000_000_000
"""At most this many records are written by one run of the producer."""

RESTARTS = 10_000
"""An aggregator is meant to run for ever: Airflow's retries are its restarts."""

APPROVAL_TIMEOUT = timedelta(days=1)
"""Without an answer by then nothing is done."""

REPARTITION_TIMEOUT = timedelta(hours=12)
"""Enough for some hundred million records. The next run goes on with a copy that was cut short."""

REDRIVE_TIMEOUT = timedelta(hours=2)
"""Enough for some hundred thousand dead letters. The next run goes on with a re-drive that was cut short."""

BUILD_TIMEOUT = timedelta(hours=12)
"""Enough for some hundred million records. The next run goes on with a build that was cut short."""

SWITCH_TIMEOUT = timedelta(hours=1)
"""A switch processes what came since the build. Where that is too much, the build is repeated first."""

_VERIFICATION = {
    True: "`state_store` reads the totals that Spark holds. The checks in `verify` compare them with the topics.",
    False: "The checks in `verify` compare what was written with what Spark computes again from the input.",
}
"""The last step of a deployment, by whether the pipeline has aggregations."""

_TEST_DATA = " `producer` writes the test data that is asked for, by default none."


def declare_dags(
    pipeline: Pipeline,
    *,
    notifiers: Sequence[Notifier] = (),
    deadlines: Sequence[DeadlineAlert] = (),
    summary: str | None = None,
    summary_notifiers: Sequence[Notifier] = (),
) -> dict[str, DAG]:
    """Make the seven DAGs of a pipeline, one more where it is an upgrade, and one where a summary is asked for.

    A DAG file consists of these lines::

        from streamplan.airflow import declare_dags

        from my_pipelines.orders import PIPELINE

        globals().update(declare_dags(PIPELINE))

    Airflow reads a file only where the words "airflow" and "dag" are in it. These lines have both.

    Args:
        pipeline: The pipeline. It is registered, because tasks, triggers and jobs find it by its name.
        notifiers: They are called when the outcome of a check changes, see :func:`health_dag`.
        deadlines: Deadline alerts of the health DAG, such as :func:`streamplan.airflow.verification_deadline` returns.
        summary: The cron expression of ``<name>_summary``, such as ``0 6 * * 1``; None for no such DAG.
        summary_notifiers: They are told of each summary, see :class:`SummaryOperator`.

    Returns:
        The DAGs by their ids: ``<name>_deploy`` and so on. Without test data there is no ``<name>_producer``.

    Raises:
        Refused: The pipeline is not registered, or another one of its name is; or Airflow cannot read a schedule.
    """
    registered = pipeline_named(pipeline.name)
    if registered.topology.application_id != pipeline.topology.application_id:
        raise Refused(
            f"pipeline {pipeline.name!r}",
            expected=f"application id {pipeline.topology.application_id}, as in the DAG file",
            observed=f"another pipeline of that name is registered, with {registered.topology.application_id}",
            remedy="Give one of them another name.",
        )
    dags = [
        deploy_dag(pipeline),
        *([producer_dag(pipeline)] if pipeline.test_data is not None else []),
        aggregator_dag(pipeline),
        health_dag(pipeline, notifiers, deadlines),
        reset_dag(pipeline),
        repartition_dag(pipeline),
        redrive_dag(pipeline),
        *([upgrade_dag(pipeline)] if pipeline.upgrade_from is not None else []),
        *([summary_dag(pipeline, summary, summary_notifiers)] if summary is not None else []),
    ]
    return {dag.dag_id: dag for dag in dags}


def pipeline_dag(pipeline: Pipeline, kind: str, doc: str, **arguments: Any) -> DAG:
    """Make the DAG ``<name>_<kind>`` with what every DAG of a pipeline has: id, tags, owner and page.

    Args:
        kind: What the DAG does, in a word.
        doc: The page in Airflow, in Markdown. Its first sentence is the description of the DAG.
        **arguments: More arguments of ``DAG``. They win over what every DAG has.
    """
    return DAG(
        dag_id=f"{pipeline.name}_{kind}",
        dag_display_name=f"{pipeline.name}_{kind}",
        description=" ".join(re.split(r"\.\s", doc, maxsplit=1)[0].replace("**", "").split()) + ".",
        doc_md="\n".join(line.strip() for line in doc.strip().splitlines()),
        catchup=False,
        auto_register=False,  # the DAG file has it by its name, and a pipeline that is declared by half has none
        tags=["streamplan", pipeline.name, kind],
        default_args={"owner": OWNER, "retries": 0},
        **({"schedule": None, "is_paused_upon_creation": False, "render_template_as_native_obj": True} | arguments),
    )


def _cron(pipeline: Pipeline, expression: str, option: str) -> CronTriggerTimetable:
    """Return the timetable. Airflow would find a wrong expression when it writes all DAGs of the file, and write none.

    Raises:
        Refused: It is no cron expression.
    """
    try:
        CronTimetable(expression, timezone="UTC").validate()
    except (AirflowTimetableInvalid, ValueError, TypeError, AttributeError) as error:  # the last for what is no text
        location = pipeline.topology.processors.nodes[0].location
        raise Refused(
            f"{location}: {option} of pipeline {pipeline.name!r}",
            expected="a cron expression, such as '*/10 * * * *'",
            observed=f"{expression!r}: {error}",
        ) from error
    return CronTriggerTimetable(expression, timezone="UTC")


def records_asset(pipeline: Pipeline) -> Asset:
    """Return the asset that a producer run updates when it has finished."""
    return Asset(
        name=f"{pipeline.topology.application_id} records",
        uri=f"streamplan://{pipeline.topology.application_id}/records",
    )


def totals_asset(pipeline: Pipeline) -> Asset:
    """Return the asset that is updated whenever the totals were verified. Other DAGs can be scheduled on it."""
    return Asset(
        name=f"{pipeline.topology.application_id} verified totals",
        uri=f"streamplan://{pipeline.topology.application_id}/totals",
    )


def deploy_dag(pipeline: Pipeline) -> DAG:
    """Make ``<name>_deploy``: topics, then the aggregator and the test data asked for, then verification."""
    needed = ["aggregator", *(["producer"] if pipeline.test_data else []), "health"]
    with pipeline_dag(
        pipeline,
        "deploy",
        f"""
        Deploys **{pipeline.name}** and verifies it. {pipeline.description}

        1. `topics` creates what does not exist; when something is not as declared it refuses and lists all differences.
        2. `aggregator` makes sure that one streaming aggregator runs.{_TEST_DATA if pipeline.test_data else ""}
        3. `processed` waits until everything written so far is aggregated.
        4. {_VERIFICATION[bool(aggregations(pipeline))]}

        From then on `{pipeline.name}_health` checks it on its schedule. Run it as often as you like: it leaves alone
        what is there.
        """,
        params=_production_params(endless=False) if pipeline.test_data else {},
        max_active_runs=1,
    ) as dag:
        topics = TopicsOperator(
            task_id="topics",
            pipeline=pipeline.name,
            needed_dags=[f"{pipeline.name}_{kind}" for kind in needed],
            doc_md="Plan, show the plan, create, observe again. Nothing is widened or deleted. Refused while one of"
            f" the DAGs {', '.join(needed)} of this pipeline is paused.",
            execution_timeout=timedelta(minutes=2),
        )
        aggregator = _aggregator_run(pipeline)
        processed = ProcessedOperator(
            task_id="processed",
            pipeline=pipeline.name,
            trigger_rule=TriggerRule.NONE_FAILED,
            doc_md="Waits until the consumer group's positions are at the ends of the topics.",
        )
        with TaskGroup("verify", tooltip="The health checks") as verify:
            _check_tasks(pipeline, with_state_store=True)
        topics >> aggregator >> processed
        if pipeline.test_data is not None:
            producer = ProduceTestDataOperator(
                task_id="producer",
                trigger_dag_id=f"{pipeline.name}_producer",
                conf={"records": "{{ params.records }}", "rate": "{{ params.rate }}"},
                wait_for_completion=True,
                deferrable=True,
                poke_interval=1,
                doc_md=f"Triggers {pipeline.name}_producer and waits for it. Skipped where no records are asked for.",
            )
            topics >> producer >> processed
        if aggregations(pipeline):
            state_store = StateStoreOperator(
                task_id="state_store",
                pipeline=pipeline.name,
                retries=1,
                retry_delay=timedelta(seconds=10),
                execution_timeout=timedelta(minutes=5),
                doc_md="Reads the state store with a Spark job of its own. The query goes on.",
            )
            processed >> state_store >> verify
        else:
            processed >> verify
    return dag


def producer_dag(pipeline: Pipeline) -> DAG:
    """Make ``<name>_producer``: it writes test data, each record exactly once across kills and retries.

    Raises:
        Refused: The pipeline declares no test data.
    """
    topics = " and ".join(f"`{topic}`" for topic in pipeline.require_test_data().topics)
    with pipeline_dag(
        pipeline,
        "producer",
        f"""
        Writes test data for **{pipeline.name}** into {topics}.

        Record numbers go on where the topic ends, and each is there exactly once, also when the job is killed and
        retried: `plan` decides the numbers of this run, `produce` writes those that are missing.
        """,
        params=_production_params(endless=True),
        max_active_runs=1,
    ) as dag:
        plan = PlanProductionOperator(
            task_id="plan",
            pipeline=pipeline.name,
            records="{{ params.records }}",
            rate="{{ params.rate }}",
            doc_md="Reads from the topic which number comes next. Writes nothing.",
            execution_timeout=timedelta(minutes=2),
        )
        produce = ProducerOperator(
            task_id="produce",
            pipeline=pipeline.name,
            plan_task_id="plan",
            retries=RESTARTS,
            retry_delay=timedelta(seconds=3),
            outlets=[records_asset(pipeline)],
            doc_md="The supervised producer. It ends when the topic has all records of this run. A producer without end"
            " runs until its DAG run is stopped.",
        )
        plan >> produce
    return dag


def aggregator_dag(pipeline: Pipeline) -> DAG:
    """Make ``<name>_aggregator``: one supervised streaming aggregator."""
    with pipeline_dag(
        pipeline,
        "aggregator",
        f"""
        Keeps the streaming aggregator of **{pipeline.name}** alive on Spark (connection `{pipeline.spark_conn_id}`).

        The run has no end. The job holds no worker slot: the triggerer watches it, a dead one is started again by a
        retry, and it survives restarts of Airflow. Mark the run as failed or success and the job is stopped.
        """,
        max_active_runs=1,
    ) as dag:
        AggregatorOperator(
            task_id="aggregate",
            pipeline=pipeline.name,
            retries=RESTARTS,
            retry_delay=timedelta(seconds=3),
            inlets=[records_asset(pipeline)] if pipeline.test_data else [],
            doc_md="Exit status 78 of the job means that it refuses to run. A retry cannot help, so the task fails.",
        )
    return dag


def health_dag(pipeline: Pipeline, notifiers: Sequence[Notifier] = (), deadlines: Sequence[DeadlineAlert] = ()) -> DAG:
    """Make ``<name>_health``: the checks, each a task of its own, and the page with what they found.

    Args:
        notifiers: They are called when the outcome of a check changes. :class:`OutcomeNotification` says what their
            templates can use.
        deadlines: Airflow calls their callbacks for each run that has not succeeded in time, also where it has failed
            before. :func:`streamplan.airflow.verification_deadline` returns one that looks at the totals first.
    """
    after_production = " and after each run of its producer" if pipeline.test_data else ""
    timetable = _cron(pipeline, pipeline.health_schedule, "health_schedule")
    with pipeline_dag(
        pipeline,
        "health",
        f"""
        Checks **{pipeline.name}** on a schedule{after_production}. A task is green only when its check
        passed. The first line of its log says the outcome, *failed* or *could not look*, and the reason. The wrong rows
        follow as a table. The button *Data Docs* of a task leads to the page of the run, which `data_docs` writes when
        all checks are done. The page does not make a run green.

        The checks only read. When the totals agree, `purge` deletes the records of repartition topics that are
        counted and verified. `Pipeline(purge=False)` keeps them.

        A check that reads much is skipped on the schedule while its last pass is less than an hour old. Trigger a run
        to run all checks. With `full` they look at every record, and count all of them again.

        Until the first deployment the scheduled runs are skipped: there is nothing to look at.
        """,
        schedule=AssetOrTimeSchedule(timetable=timetable, assets=[records_asset(pipeline)])
        if pipeline.test_data
        else timetable,
        max_active_runs=1,
        deadline=[*deadlines] or None,
        params={
            "full": Param(
                False,
                type="boolean",
                title="Everything",
                description="Count all from the beginning and look at every record.",
            )
        },
    ) as dag:
        tasks = _check_tasks(pipeline, with_state_store=False, notifiers=notifiers)
        if pipeline.topology.repartition_topics:
            purge = PurgeOperator(
                task_id="purge",
                pipeline=pipeline.name,
                execution_timeout=timedelta(minutes=5),
                doc_md="Deletes repartition records that are counted and verified. Skipped when there are none.",
            )
            [
                tasks[check.name] for check in scheduled_checks(application_of(pipeline)) if check.stores_verified_cut
            ] >> purge
    return dag


def summary_dag(pipeline: Pipeline, schedule: str, notifiers: Sequence[Notifier] = ()) -> DAG:
    """Make ``<name>_summary``: a picture of the last seven days.

    Args:
        schedule: A cron expression, in UTC.
        notifiers: They are told of each picture.
    """
    with pipeline_dag(
        pipeline,
        "summary",
        f"""
        Draws the last seven days of **{pipeline.name}**: how much arrived, how far the stream tasks lagged, how much
        was dead-lettered, and what the checks found, in bars of six hours. The button *Picture* of the task leads to
        the picture.
        """,
        schedule=_cron(pipeline, schedule, "summary"),
        max_active_runs=1,
    ) as dag:
        SummaryOperator(
            task_id="draw",
            pipeline=pipeline.name,
            notifiers=notifiers,
            execution_timeout=timedelta(minutes=10),
            doc_md="Asks Kafka by the timestamps of its records, and reads the history of the checks.",
        )
    return dag


def _check_tasks(
    pipeline: Pipeline, *, with_state_store: bool, notifiers: Sequence[Notifier] = ()
) -> dict[str, CheckOperator]:
    """Make a task for each check, and the task that writes the page with what all of them found.

    Where only Spark can compute the totals anew, a task ``recount`` comes before the check that judges them.

    Returns:
        The tasks of the checks, by the name of the check.
    """
    application = application_of(pipeline)
    tasks = {}
    for check in scheduled_checks(application):
        notify = [OutcomeNotification(pipeline.name, check.name, notifiers)] if notifiers else None
        jobs = check.spark_jobs(application)
        task = CheckOperator(
            task_id=check.name,
            pipeline=pipeline.name,
            check=check.name,
            with_state_store=with_state_store and SparkJob.STATE_STORE in jobs,
            retries=1,  # for could not look; a failed check fails at once
            retry_delay=timedelta(seconds=10),
            execution_timeout=timedelta(minutes=15),
            outlets=[totals_asset(pipeline)] if check.stores_verified_cut else [],
            on_success_callback=notify,
            on_failure_callback=notify,
            doc_md=f"**{check.title}.** {check.healthy}",
        )
        tasks[check.name] = task
        if SparkJob.RECOUNT in jobs:
            recount = RecountOperator(
                task_id="recount",
                pipeline=pipeline.name,
                retries=1,
                retry_delay=timedelta(seconds=10),
                execution_timeout=timedelta(minutes=15),
                doc_md="Computes every sub-topology again from its input, with a Spark job of its own.",
            )
            recount >> task
    data_docs = DataDocsOperator(
        task_id="data_docs",
        pipeline=pipeline.name,
        notifiers=notifiers,
        execution_timeout=timedelta(minutes=5),
        doc_md="Writes the page of this run in the Data Docs, whatever the checks found. A check whose task ended"
        " without a result could not look. The state of the run is that of the checks.",
    )
    [*tasks.values()] >> data_docs.as_teardown()
    return tasks


def _operation_dag(
    pipeline: Pipeline,
    kind: str,
    doc: str,
    *,
    question: str,
    plan_doc: str,
    plan_timeout: timedelta,
    apply_doc: str,
    apply_timeout: timedelta,
    operators: tuple[Callable[..., BaseOperator], Callable[..., BaseOperator]] | None = None,
    params: dict[str, Param] | None = None,
) -> DAG:
    """Make the DAG of an operation whose plan a person approves: ``plan``, ``approval`` and ``apply``."""
    afterwards = f"Afterwards, when `apply` is done: trigger {pipeline.name}_aggregator, which starts the aggregator."
    doc = f"{doc}\n\n{afterwards}"
    make_plan, make_apply = operators or (partial(PlanOperator, operation=kind), partial(ApplyOperator, operation=kind))
    with pipeline_dag(pipeline, kind, doc, params=params, max_active_runs=1) as dag:
        plan = make_plan(task_id=PLAN, pipeline=pipeline.name, execution_timeout=plan_timeout, doc_md=plan_doc)
        apply = make_apply(task_id=APPLY, pipeline=pipeline.name, execution_timeout=apply_timeout, doc_md=apply_doc)
        plan >> _approval(question, afterwards) >> apply
    return dag


def reset_dag(pipeline: Pipeline) -> DAG:
    """Make ``<name>_reset``: what Kafka Streams' application reset tool does, behind an approval."""
    application_id = pipeline.topology.application_id
    return _operation_dag(
        pipeline,
        "reset",
        f"""
        Deletes all that **{pipeline.name}** has made of its input, so that it begins again at the start of its input.

        It deletes the positions of the consumer group `{application_id}`, the repartition topics, changelogs and dead
        letters of exactly this application, its checkpoints, and what the checks kept of the old state. It does not
        touch source and sink topics.

        1. `plan` refuses while the application runs, and shows what would be deleted. It deletes nothing.
        2. `approval` waits for a person.
        3. `apply` looks once more, deletes, and creates the internal topics again.

        Stop the run of {pipeline.name}_aggregator first. Another run completes a reset that died halfway.
        """,
        question=f"Reset {application_id}?",
        plan_doc="What would be deleted, with record counts. Refused while the application runs.",
        plan_timeout=timedelta(minutes=5),
        apply_doc="Refused when there is more to delete than was approved.",
        apply_timeout=timedelta(minutes=10),
    )


def repartition_dag(pipeline: Pipeline) -> DAG:
    """Make ``<name>_repartition``: it moves records to a new topic with more partitions, behind an approval."""
    application_id = pipeline.topology.application_id
    return _operation_dag(
        pipeline,
        "repartition",
        f"""
        Moves the records of **{pipeline.name}** to a new topic with more partitions. The totals do not change.

        A key is in partition murmur2(key) modulo the number of partitions, so partitions cannot be added in place.
        Declare the new topic in place of the old one, and `repartition_from={{"new": "old"}}`. Then run this.

        1. `plan` refuses while aggregator or producer run, or while records of the old topic are not processed. It
           shows what moves, and changes nothing.
        2. `approval` waits for a person.
        3. `apply` copies the records, each exactly once, moves changelogs and dead letters to the new partitions, and
           sets the positions of group `{application_id}` behind them.

        Another run completes one that died halfway. The old topic stays.
        """,
        question=f"More partitions for {application_id}?",
        plan_doc="What moves where, with record counts. If nothing is declared, it says what to declare.",
        plan_timeout=timedelta(minutes=15),
        apply_doc="If this task is cleared or run again, it continues where it stopped.",
        apply_timeout=REPARTITION_TIMEOUT,
    )


def redrive_dag(pipeline: Pipeline) -> DAG:
    """Make ``<name>_redrive``: it processes dead letters again, behind an approval."""
    application_id = pipeline.topology.application_id
    return _operation_dag(
        pipeline,
        "redrive",
        f"""
        Processes dead letters of **{pipeline.name}** again under the declaration as it is now, each exactly once.

        One transaction writes the results of a record and a mark in the dead-letter topic. The mark says who approved
        it, when, and in which run. Nothing is written to the topics that the application reads, and the positions of
        group `{application_id}` do not move. A record that the declaration still rejects stays a dead letter.

        1. `plan` refuses while the application runs, and shows what becomes of each chosen dead letter. It writes
           nothing, and is skipped when nothing can be processed again.
        2. `approval` waits for a person.
        3. `apply` looks once more, and processes what was approved.

        Stop the run of {pipeline.name}_aggregator first. Another run completes a re-drive that died halfway.
        """,
        question=f"Re-drive dead letters of {application_id}?",
        plan_doc="What becomes of each dead letter, by reason. Refused while the application runs.",
        plan_timeout=REDRIVE_TIMEOUT,
        apply_doc="Refuses if more would be processed again than was approved. If it is run again, it continues.",
        apply_timeout=REDRIVE_TIMEOUT,
        operators=(PlanRedriveOperator, RedriveOperator),
        params={
            "reason": Param(
                None,
                type=["null", "string"],
                title="Reason",
                description="Only open dead letters of this reason; empty: of all reasons.",
            ),
            "letters": Param(
                [],
                type="array",
                items={"type": "string", "pattern": "^[0-9]+@[0-9]+$"},
                title="Dead letters",
                description="Process only these, each as PARTITION@OFFSET. Empty: process all open dead letters.",
            ),
        },
    )


def upgrade_dag(pipeline: Pipeline) -> DAG:
    """Make ``<name>_upgrade``: it lets a changed declaration take over from the old application, behind an approval."""
    application_id, old = pipeline.topology.application_id, pipeline.upgrade_from
    with pipeline_dag(
        pipeline,
        "upgrade",
        f"""
        Compares the application `{application_id}` of **{pipeline.name}** with `{old}`, and lets it take over.

        1. `build` processes the input up to the positions of `{old}`, while `{old}` runs. The results go to staging
           topics. Then it compares the stores that mean the same.
        2. `approval` waits for a person, and shows the comparison.
        3. `switch` asks `{old}` to process what is in its repartition topics, and to stop. It processes what is left,
           compares once more, and lets `{application_id}` take over at the same positions.
        4. `aggregator` starts {pipeline.name}_aggregator, unless it has an active run.

        `{old}` keeps its topics, positions and checkpoints. To go back, declare it as it was, with
        `upgrade_from="{application_id}"`, and run this again. Another run completes one that died halfway.
        """,
        params={
            "accept_differences": Param(
                False,
                type="boolean",
                title="Accept differences",
                description="Switch although stores that mean the same differ, or input was deleted.",
            ),
            "max_offsets": Param(
                None,
                type=["null", "integer"],
                minimum=1,
                title="Records of a micro-batch",
                description="Empty: as many as the aggregator takes. With a smaller number, fewer records are late "
                "behind a repartition topic, but the build is slower.",
            ),
        },
        max_active_runs=1,
    ) as dag:
        build = UpgradeOperator(
            task_id="build",
            pipeline=pipeline.name,
            step="build",
            execution_timeout=BUILD_TIMEOUT,
            doc_md="Builds the state of the candidate application, and compares the stores. If it is run again, it"
            " continues.",
        )
        switch = UpgradeOperator(
            task_id="switch",
            pipeline=pipeline.name,
            step="switch",
            execution_timeout=SWITCH_TIMEOUT,
            doc_md="Ends the old application. Refuses if stores differ. If it is cleared or run again, it continues.",
        )
        aggregator = _aggregator_run(pipeline)
        afterwards = f"Afterwards nothing is left to do: the task `aggregator` starts {pipeline.name}_aggregator."
        build >> _approval(f"Let {application_id} take over from {old}?", afterwards, "build") >> switch >> aggregator
    return dag


def _aggregator_run(pipeline: Pipeline) -> EnsureDagRunOperator:
    return EnsureDagRunOperator(
        task_id="aggregator",
        trigger_dag_id=f"{pipeline.name}_aggregator",
        doc_md=f"Triggers {pipeline.name}_aggregator, unless it has an active run.",
        execution_timeout=timedelta(minutes=2),
    )


def _approval(subject: str, afterwards: str, plan_task_id: str = PLAN) -> ApprovalOperator:
    return ApprovalOperator(
        task_id=APPROVAL,
        subject=subject,
        body=f"{{{{ ti.xcom_pull(task_ids='{plan_task_id}')['text'] }}}}\n\n{afterwards}",
        defaults=ApprovalOperator.REJECT,
        response_timeout=APPROVAL_TIMEOUT,
        # An answer within a moment of the question can reach the scheduler before the news that the question was
        # asked; it then takes the task for failed. Asking again beats a failed run.
        retries=2,
        retry_delay=timedelta(seconds=5),
        doc_md="Waits for a person, under Required Actions. Rejected, or not answered within a day: nothing is done.",
    )


def _production_params(*, endless: bool) -> dict[str, Param]:
    return {
        "records": Param(
            None if endless else 0,
            type=["null", "integer"] if endless else "integer",
            description="How many to produce; empty: without end." if endless else "How much test data to produce.",
            minimum=0,
            maximum=MAX_RECORDS,
            title="Records",
        ),
        "rate": Param(
            0,
            type="integer",
            minimum=0,
            maximum=10_000_000,
            title="Records a second",
            description="0 is as fast as the brokers take them.",
        ),
    }
