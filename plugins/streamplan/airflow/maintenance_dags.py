"""The DAGs of a declared pipeline that change what it has left in Kafka, each behind a person's approval."""

from __future__ import annotations

from datetime import timedelta

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG

from streamplan.airflow.maintenance_operators import MoveOperator, PlanMoveOperator, PlanResetOperator, ResetOperator
from streamplan.airflow.pipeline_dag import dag_of
from streamplan.model.pipeline import Pipeline

ANSWERED_WITHIN = timedelta(days=1)
"""Without an answer by then nothing is done."""


MOVED_WITHIN = timedelta(hours=12)
"""For some hundred million records; a copy that is cut short is taken up by the next run."""


def _approval(subject: str) -> ApprovalOperator:
    return ApprovalOperator(
        task_id="approval",
        subject=subject,
        body="{{ ti.xcom_pull(task_ids='plan')['text'] }}",
        defaults=ApprovalOperator.REJECT,
        response_timeout=ANSWERED_WITHIN,
        # An answer within a moment of the question can reach the scheduler before the news that the question was
        # asked; it then takes the task for failed. Asking again beats a failed run.
        retries=2,
        retry_delay=timedelta(seconds=5),
        doc_md="Waits for a person, under Required Actions. Rejected, or not answered within a day: nothing is done.",
    )


def reset_dag(pipeline: Pipeline) -> DAG:
    """``<name>_reset``: what Kafka Streams' application reset tool does, behind an approval."""
    application_id = pipeline.topology.application_id
    with dag_of(
        pipeline,
        "reset",
        f"""
        Deletes all that **{pipeline.name}** has made of its input, so that it begins again at the start of its input.

        Deleted are the positions of the consumer group `{application_id}`, the repartition topics, changelogs and dead
        letters of exactly this application, its checkpoints, and what the checks kept of the old state. Topics from
        outside are left alone.

        1. `plan` refuses while the application runs, and shows what would be deleted. It deletes nothing.
        2. `approval` waits for a person.
        3. `apply` looks once more, deletes, and creates the internal topics anew.

        Stop the run of {pipeline.name}_aggregator first. A reset that died halfway is completed by another run.
        """,
        max_active_runs=1,
    ) as dag:
        plan = PlanResetOperator(
            task_id="plan",
            pipeline=pipeline.name,
            execution_timeout=timedelta(minutes=5),
            doc_md="What would be deleted, with record counts. Refused while the application runs.",
        )
        apply = ResetOperator(
            task_id="apply",
            pipeline=pipeline.name,
            plan_task_id="plan",
            execution_timeout=timedelta(minutes=10),
            doc_md="Refused when there is more to delete than was approved.",
        )
        plan >> _approval(f"Reset {application_id}?") >> apply
    return dag


def repartition_dag(pipeline: Pipeline) -> DAG:
    """``<name>_repartition``: records to a new topic with more partitions, behind an approval."""
    application_id = pipeline.topology.application_id
    with dag_of(
        pipeline,
        "repartition",
        f"""
        Moves the records of **{pipeline.name}** to a new topic with more partitions, totals unchanged.

        A key lies in partition murmur2(key) modulo the number of partitions, so partitions cannot be added in place.
        Declare the new topic in place of the old one, and `repartition_from={{"new": "old"}}`; then run this.

        1. `plan` refuses while aggregator or producer run, and where records of the old topic are not processed. It
           shows what moves, and changes nothing.
        2. `approval` waits for a person.
        3. `apply` copies the records, each exactly once, moves changelogs and dead letters to the new partitions, and
           sets the positions of group `{application_id}` behind them.

        A run that died halfway is completed by another one. The old topic is left in place.
        """,
        max_active_runs=1,
    ) as dag:
        plan = PlanMoveOperator(
            task_id="plan",
            pipeline=pipeline.name,
            execution_timeout=timedelta(minutes=15),
            doc_md="What moves where, with record counts. Where nothing is declared it says what to declare.",
        )
        apply = MoveOperator(
            task_id="apply",
            pipeline=pipeline.name,
            plan_task_id="plan",
            execution_timeout=MOVED_WITHIN,
            doc_md="Cleared or run again it goes on from where it stopped.",
        )
        plan >> _approval(f"More partitions for {application_id}?") >> apply
    return dag
