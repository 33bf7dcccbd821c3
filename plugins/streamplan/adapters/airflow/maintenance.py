"""The tasks that change what an application has left in Kafka: purging, reset, more partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowSkipException

from streamplan.adapters.airflow.connections import bootstrap_servers
from streamplan.adapters.airflow.operators import ACTIVE_STATES
from streamplan.pipelines import pipeline_named
from streamplan.settings import Settings

if TYPE_CHECKING:
    from airflow.sdk import Context


class PurgeOperator(BaseOperator):
    """Deletes the records of repartition topics that are counted and verified. Skipped when there are none.

    Not beside a deployment: that compares with what the state store held a while ago.
    """

    def __init__(self, *, pipeline: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline

    def execute(self, context: Context) -> dict[str, dict[str, int]]:
        from streamplan.adapters.purging import purge

        if context["ti"].get_dr_count(dag_id=f"{self.pipeline}_deploy", states=ACTIVE_STATES):
            raise AirflowSkipException(f"{self.pipeline}_deploy is at work: the next run purges")
        purged = purge(pipeline_named(self.pipeline), bootstrap_servers(), Settings.from_environment())
        if not purged.until:
            raise AirflowSkipException(purged.line)
        self.log.info("%s", purged.line)
        return {
            topic: {str(partition): until for partition, until in partitions.items()}
            for topic, partitions in purged.until.items()
        }
