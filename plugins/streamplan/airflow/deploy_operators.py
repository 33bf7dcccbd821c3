"""The tasks of a deployment besides the supervised jobs and the checks."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.providers.standard.triggers.external_task import DagStateTrigger
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowRuntimeError, AirflowSkipException

from streamplan.airflow.connections import brokers
from streamplan.airflow.supervised_job import seconds_for
from streamplan.airflow.triggers import ProcessedTrigger
from streamplan.errors import Refused, StreamplanError
from streamplan.registry import pipeline_named
from streamplan.settings import Settings

if TYPE_CHECKING:
    from airflow.sdk import Context

    from streamplan.kafka.brokers import Brokers
    from streamplan.model.pipeline import Pipeline

_log = logging.getLogger(__name__)

ACTIVE_STATES = ["queued", "running"]
"""The states of a DAG run that has not ended."""


def require_unpaused(context: Context, dag_ids: Iterable[str]) -> None:
    """Refuse where a DAG is paused: Airflow would keep its runs queued without a word.

    A task cannot end the pause: Airflow lets it read that a DAG is paused, and no more.

    Args:
        dag_ids: The DAGs. One that Airflow does not have is passed over.

    Raises:
        AirflowFailException: One of them is paused. It says how to end that.
    """
    paused = [dag_id for dag_id in dag_ids if _is_paused(context, dag_id)]
    if paused:
        commands = " and ".join(f"`airflow dags unpause {dag_id}`" for dag_id in paused)
        refused = Refused(
            f"DAG {', '.join(paused)}",
            expected="not paused, because its runs would stay queued",
            observed="paused",
            remedy=f"Unpause it on its page or with {commands}. Then clear this task.",
        )
        _log.error("%s", refused)  # the reason stands in one line above Airflow's traceback
        raise AirflowFailException(str(refused))


def _is_paused(context: Context, dag_id: str) -> bool:
    try:
        return bool(context["ti"].get_dag(dag_id).is_paused)
    except AirflowRuntimeError as error:
        if (error.error.detail or {}).get("status_code") == HTTPStatus.NOT_FOUND:
            return False
        raise


class TopicsOperator(BaseOperator):
    """Creates the topics of a pipeline, or refuses and lists every difference from the declaration."""

    def __init__(self, *, pipeline: str, needed_dags: Sequence[str] = (), **kwargs: Any) -> None:
        """Make the task.

        Args:
            pipeline: The name of a declared pipeline.
            needed_dags: The DAGs without which a deployment is not complete. Nothing is created while one is paused.
            **kwargs: What every operator takes.
        """
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.needed_dags = tuple(needed_dags)

    def execute(self, context: Context) -> dict[str, int]:
        """Log what the declaration changes, then create what it needs."""
        from streamplan.kafka.topics import apply_topics

        require_unpaused(context, self.needed_dags)
        pipeline, servers = pipeline_named(self.pipeline), brokers(self.pipeline)
        self._log_evolution(pipeline, servers)
        try:
            plan = apply_topics(servers, pipeline, report=self.log.info)
        except Refused as error:
            raise AirflowFailException(str(error)) from error
        return {"created": len(plan.create), "agreed": len(plan.agree)}

    def _log_evolution(self, pipeline: Pipeline, servers: Brokers) -> None:
        """Log what becomes of stores and positions. A deployment does not fail because that cannot be told."""
        from streamplan.kafka.cluster import KafkaCluster
        from streamplan.maintenance.evolution import observe_evolution

        try:
            plan = observe_evolution(pipeline, KafkaCluster(servers), Settings.from_environment().checkpoints)
        except StreamplanError as error:
            self.log.warning("It cannot be told what this deployment changes: %s", error)
        else:
            self.log.info(plan.text)


class PlanProductionOperator(BaseOperator):
    """Decides which record numbers this run writes, once for all tries of ``produce``."""

    template_fields = ("records", "rate")

    def __init__(self, *, pipeline: str, records: Any, rate: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.records = records
        self.rate = rate

    def execute(self, context: Context) -> dict[str, int | None]:
        """Return the first number, the number to stop before (None: without end), and the rate in records a second."""
        from streamplan.kafka.test_data import next_number

        first = next_number(pipeline_named(self.pipeline), brokers(self.pipeline))
        until = None if self.records is None else first + int(self.records)
        last = "on, without end" if until is None else f"to {until - 1:,}"
        self.log.info("This run writes the records from number %s %s", f"{first:,}", last)
        return {"first": first, "until": until, "rate": int(self.rate or 0)}


class ProduceTestDataOperator(TriggerDagRunOperator):
    """Triggers the producer of test data and waits for it. Skipped where no records are asked for.

    A deployment triggers one run, whose id is made of its own. Where a scheduler was away, Airflow may execute this
    task from its beginning again after the wait (``adopt_or_reset_orphaned_tasks``): a second run would produce the
    records twice.
    """

    def execute(self, context: Context) -> None:
        """Trigger the run with ``conf``, whose ``records`` says how many are asked for, or wait for it again.

        Raises:
            AirflowSkipException: No records are asked for.
        """
        if not int((self.conf or {})["records"]):
            raise AirflowSkipException("No test data is asked for: what is in the topics is processed and verified.")
        require_unpaused(context, [self.trigger_dag_id])
        ti = context["ti"]
        self.trigger_run_id = f"{ti.dag_id}__{ti.run_id}"
        if ti.get_dr_count(dag_id=self.trigger_dag_id, run_ids=[self.trigger_run_id]):
            self.log.info("%s has the run %s already. It is waited for.", self.trigger_dag_id, self.trigger_run_id)
            trigger = DagStateTrigger(
                dag_id=self.trigger_dag_id,
                states=[*self.allowed_states, *self.failed_states],
                run_ids=[self.trigger_run_id],
                poll_interval=self.poke_interval,
            )
            self.defer(trigger=trigger, method_name="execute_complete")
        super().execute(context)


class EnsureDagRunOperator(TriggerDagRunOperator):
    """Triggers a run of a DAG, unless one is active. It does not wait for the run."""

    def execute(self, context: Context) -> None:
        """Count the active runs, and trigger one where there is none."""
        active = context["ti"].get_dr_count(dag_id=self.trigger_dag_id, states=ACTIVE_STATES)
        if active:
            self.log.info("%s has an active run, which goes on.", self.trigger_dag_id)
            return
        require_unpaused(context, [self.trigger_dag_id])
        super().execute(context)


class ProcessedOperator(BaseOperator):
    """Waits until the aggregator has processed all records that the topics had when this task began."""

    def __init__(self, *, pipeline: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline

    def execute(self, context: Context) -> None:
        """Read the ends of the topics, and defer until the consumer group's positions have reached them."""
        from streamplan.kafka.cluster import KafkaCluster

        pipeline = pipeline_named(self.pipeline)
        topology = pipeline.topology
        cluster = KafkaCluster(brokers(self.pipeline))
        group = topology.application_id
        targets: dict[str, Mapping[str, int] | None] = {}
        unprocessed = 0
        for topic in topology.source_topics:
            positions, offsets = cluster.positions(group, topic), cluster.offsets(topic)
            targets[topic] = {str(partition): borders.last_stable for partition, borders in offsets.items()}
            unprocessed += sum(
                borders.last_stable - max(borders.log_start, positions.get(partition, 0))
                for partition, borders in offsets.items()
            )
        targets |= {topology.decorate(topic.name): None for topic in topology.repartition_topics}
        seconds = seconds_for(max(unprocessed, 0))
        self.log.info("Waiting at most %.0f s until group %s has processed %s", seconds, group, targets)
        self.defer(
            trigger=ProcessedTrigger(
                group=group,
                targets=targets,
                seconds=seconds,
                kafka_conn_id=pipeline.kafka_conn_id,
            ),
            method_name="resume",
        )

    def resume(self, context: Context, event: Mapping[str, Any]) -> None:
        """End the task with what :class:`ProcessedTrigger` saw."""
        if not event["processed"]:
            raise AirflowException(
                f"{self.pipeline}: expected all records processed by now, observed {event['state']}. "
                f"Look at the run of {self.pipeline}_aggregator and its log."
            )
        self.log.info("All records are processed.")
