"""A listener that stops supervised processes when their DAG run has ended, whether a trigger watches them or not.

When a person stops a run, the triggerer stops its process. But Airflow forgets the trigger of a stopped run when no
triggerer holds it at that moment: while the triggerer is down, and for half a minute after a killed triggerer came back
(``triggerer_health_check_threshold``). So this module also listens to Airflow's event for the end of a run.

The API server sends the event for a run that a person marks, the scheduler for a run whose tasks have all ended. Both
know the processes of a run by their entries in ``run/``: they stop those that they see, and fence those elsewhere.
Where hosts share no ``run/``, nobody but the trigger knows of a process. A driver that is a pod is known to the API
server of Kubernetes. A run cannot be deleted before it has ended. A
DAG can be, and there is no event for that: if the triggerer is down then, the process goes on until the DAG runs again
or the deployment is stopped.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from airflow.listeners import hookimpl

from streamplan import processes
from streamplan.airflow.connections import brokers
from streamplan.airflow.triggers import GRACE_SECONDS
from streamplan.errors import StreamplanError
from streamplan.processes import Owner, ProcessRef
from streamplan.registry import registered_pipelines
from streamplan.settings import Settings

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun

log = logging.getLogger(__name__)


@hookimpl
def on_dag_run_failed(dag_run: DagRun, msg: str) -> None:
    """Stop the processes of a run that failed or was marked as failed."""
    stop_processes_of(Owner(dag_run.dag_id, dag_run.run_id))


@hookimpl
def on_dag_run_success(dag_run: DagRun, msg: str) -> None:
    """Stop the processes of a run that succeeded or was marked as a success."""
    stop_processes_of(Owner(dag_run.dag_id, dag_run.run_id))


def stop_processes_of(owner: Owner) -> list[threading.Thread]:
    """Begin to stop the processes of this DAG run that are alive, and those elsewhere that may be.

    It does not wait for their end, because a request or the scheduler's loop would wait with it.

    Args:
        owner: The DAG run.

    Returns:
        The threads that stop the processes, one for each.
    """
    run_dir = Settings.from_environment().run
    threads = []
    for process in processes.registered(run_dir):
        if process.owner == owner and (process.is_elsewhere or processes.is_alive(process)):
            log.info("Run %s has ended. Its process %s (pid %d) is stopped.", owner.run_id, process.name, process.pid)
            thread = threading.Thread(target=_stop, args=(process,), daemon=True)
            thread.start()
            threads.append(thread)
    if owner.dag_id.endswith(_AGGREGATOR):
        thread = threading.Thread(target=_stop_driver_pods, args=(owner,), daemon=True)
        thread.start()
        threads.append(thread)
    return threads


_AGGREGATOR = "_aggregator"


def _stop_driver_pods(owner: Owner) -> None:
    """Stop the drivers of a run that are pods. The API server knows them, no entry in ``run/`` does."""
    from streamplan.airflow.driver_pods import stop_drivers_of

    pipeline = owner.dag_id.removesuffix(_AGGREGATOR)
    if pipeline not in {registered.name for registered in registered_pipelines()}:
        return
    try:
        stop_drivers_of(f"{pipeline}-aggregator", owner, brokers)
    except StreamplanError:
        log.exception("It is not known whether a driver of %s runs on. Look with `kubectl get pods`.", pipeline)


def _stop(process: ProcessRef) -> None:
    if not process.is_elsewhere:
        processes.stop(process, grace_seconds=GRACE_SECONDS)
        return
    from streamplan.kafka.remote_job import pipeline_of, remote_job

    try:
        remote_job(process.name, brokers(pipeline_of(process.name).name)).stop()
    except StreamplanError:
        log.exception("%s could not be stopped. Stop it where it runs: %s.", process.name, process.namespace)
        return
    processes.forget(process)
