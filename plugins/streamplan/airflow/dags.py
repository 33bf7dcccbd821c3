"""The four DAGs of a declared pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, Asset, AssetOrTimeSchedule, CronTriggerTimetable, Param, TaskGroup

from streamplan.airflow.check_operators import (
    CheckOperator,
    EnsureDagRunOperator,
    PlanProductionOperator,
    ProcessedOperator,
    RecountOperator,
    StateStoreOperator,
    TopicsOperator,
)
from streamplan.airflow.maintenance_operators import PurgeOperator
from streamplan.airflow.notifications import Announcement, Notifier
from streamplan.airflow.pipeline_dag import dag_of
from streamplan.airflow.supervised_job import AggregatorOperator, ProducerOperator
from streamplan.checks import scheduled_checks
from streamplan.checks.framework.application import aggregations, application_of
from streamplan.checks.framework.check import SparkJob
from streamplan.model.pipeline import Pipeline

_OPINION = {
    True: "`state_store` reads the totals Spark holds; the checks in `verify` compare them with the topics.",
    False: "The checks in `verify` compare what was written with what Spark computes anew from the input.",
}
MAX_RECORDS = 1_000_000_000
RESTARTS = 10_000
"""An aggregator is meant to run for ever: Airflow's retries are its restarts."""


def records_asset(pipeline: Pipeline) -> Asset:
    """Updated when a producer run has finished."""
    return Asset(
        name=f"{pipeline.topology.application_id} records",
        uri=f"streamplan://{pipeline.topology.application_id}/records",
    )


def totals_asset(pipeline: Pipeline) -> Asset:
    """Updated whenever the totals were verified; a DAG of a user's own can be scheduled on it."""
    return Asset(
        name=f"{pipeline.topology.application_id} verified totals",
        uri=f"streamplan://{pipeline.topology.application_id}/totals",
    )


def deploy_dag(pipeline: Pipeline) -> DAG:
    """``<name>_deploy``: topics, then producer and aggregator, then verification."""
    with dag_of(
        pipeline,
        "deploy",
        f"""
        Deploys **{pipeline.name}** and verifies it. {pipeline.description}

        1. `topics` creates what does not exist; when something is not as declared it refuses and lists all differences.
        2. `producer` writes the records asked for; `aggregator` sees to it that one streaming aggregator runs.
        3. `processed` waits until everything written so far is aggregated.
        4. {_OPINION[bool(aggregations(pipeline))]}

        Run it as often as you like: it leaves alone what is there and adds as many records again.
        """,
        params=_production_params(endless=False),
        max_active_runs=1,
    ) as dag:
        topics = TopicsOperator(
            task_id="topics",
            pipeline=pipeline.name,
            doc_md="Plan, show the plan, create, observe again. Nothing is widened or deleted.",
            execution_timeout=timedelta(minutes=2),
        )
        producer = TriggerDagRunOperator(
            task_id="producer",
            trigger_dag_id=f"{pipeline.name}_producer",
            conf={"records": "{{ params.records }}", "rate": "{{ params.rate }}"},
            wait_for_completion=True,
            deferrable=True,
            poke_interval=1,
            doc_md=f"Triggers {pipeline.name}_producer and waits for it.",
        )
        aggregator = EnsureDagRunOperator(
            task_id="aggregator",
            trigger_dag_id=f"{pipeline.name}_aggregator",
            doc_md=f"Triggers {pipeline.name}_aggregator, unless it has an active run.",
            execution_timeout=timedelta(minutes=2),
        )
        processed = ProcessedOperator(
            task_id="processed",
            pipeline=pipeline.name,
            records="{{ params.records }}",
            doc_md="Waits until the consumer group's positions are at the ends of the topics.",
        )
        with TaskGroup("verify", tooltip="The health checks") as verify:
            _check_tasks(pipeline, with_state_store=True)
        topics >> [producer, aggregator] >> processed
        if aggregations(pipeline):
            state_store = StateStoreOperator(
                task_id="state_store",
                pipeline=pipeline.name,
                execution_timeout=timedelta(minutes=5),
                doc_md="Reads the state store with a Spark job of its own; the query goes on meanwhile.",
            )
            processed >> state_store >> verify
        else:
            processed >> verify
    return dag


def producer_dag(pipeline: Pipeline) -> DAG:
    """``<name>_producer``: writes test data, each record once across kills and retries."""
    topics = " and ".join(f"`{topic}`" for topic in pipeline.test_data.topics)
    with dag_of(
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
            doc_md="The supervised producer. Done when the topic holds all; an endless one when its run is stopped.",
        )
        plan >> produce
    return dag


def aggregator_dag(pipeline: Pipeline) -> DAG:
    """``<name>_aggregator``: one supervised streaming aggregator."""
    with dag_of(
        pipeline,
        "aggregator",
        f"""
        Keeps the streaming aggregator of **{pipeline.name}** alive on Spark (connection `spark_default`).

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
            inlets=[records_asset(pipeline)],
            doc_md="Exit status 78 of the job is a refusal that a retry cannot mend: the task fails with its reason.",
        )
    return dag


def health_dag(pipeline: Pipeline, notifiers: Sequence[Notifier] = ()) -> DAG:
    """``<name>_health``: the checks, each a task of its own.

    ``notifiers``  are told when the outcome of a check changes: :class:`Announcement` says what their templates find
    """
    with dag_of(
        pipeline,
        "health",
        f"""
        Checks **{pipeline.name}** on a schedule and after each run of its producer. A task is green only when its check
        passed; *failed* and *could not look* are told apart in its first log line and in XCom.

        The checks are read-only. When the totals agree, `purge` deletes the records of repartition topics that are
        counted and verified (`Pipeline(purge=False)` keeps them).

        A check that reads much is skipped while its last pass is less than an hour old. Trigger a run to have all of
        them, and with `full` to have every record counted anew, not only those since the last verified cut or a sample.

        Paused until the first deployment: there is nothing to look at before.
        """,
        schedule=AssetOrTimeSchedule(
            timetable=CronTriggerTimetable(pipeline.health_schedule, timezone="UTC"),
            assets=[records_asset(pipeline)],
        ),
        max_active_runs=1,
        is_paused_upon_creation=True,
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


def _check_tasks(
    pipeline: Pipeline, *, with_state_store: bool, notifiers: Sequence[Notifier] = ()
) -> dict[str, CheckOperator]:
    """A task for each check, by its name; behind a task ``recount`` where only Spark can compute the totals anew."""
    application = application_of(pipeline)
    tasks = {}
    for check in scheduled_checks(application):
        announce = [Announcement(pipeline.name, check.name, notifiers)] if notifiers else None
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
            on_success_callback=announce,
            on_failure_callback=announce,
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
                doc_md="Computes every sub-topology anew from its input, with a Spark job of its own.",
            )
            recount >> task
    return tasks


def _production_params(*, endless: bool) -> dict[str, Param]:
    return {
        "records": Param(
            None if endless else 100_000,
            type=["null", "integer"] if endless else "integer",
            description="How many to produce; empty: without end." if endless else "How many to produce.",
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
