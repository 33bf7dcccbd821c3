"""Which DAGs of a pipeline have an active run in the Airflow of this machine."""

from __future__ import annotations

from collections.abc import Iterable

from streamplan.settings import Settings


def active_runs(pipeline: str, settings: Settings, kinds: Iterable[str]) -> list[str]:
    """List the DAGs with an active run: they would start the aggregator, or change the topics, meanwhile.

    Args:
        pipeline: The name of the pipeline.
        settings: The deployment's directories.
        kinds: The kinds of DAGs to ask for.
    """
    from streamplan.local.stack import Stack

    airflow = Stack(settings).airflow
    if not airflow.running():
        return []
    rest = airflow.rest()
    try:
        dag_ids = [dag_id for kind in kinds if rest.dag(dag_id := f"{pipeline}_{kind}") is not None]
        return [dag_id for dag_id in dag_ids if any(run["state"] in ("queued", "running") for run in rest.runs(dag_id))]
    finally:
        rest.close()
