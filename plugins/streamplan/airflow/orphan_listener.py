"""Stops supervised processes as soon as their run has ended, whether anybody watches them or not.

When a person stops a run, the triggerer stops its process. But Airflow forgets the trigger of a stopped run that no
triggerer has in its hands at that moment: while the triggerer is down, and for half a minute after one that was killed
came back (``triggerer_health_check_threshold``). So Airflow's own announcement of a run's end is listened to as well.

It is made by the API server for a run that a person marks, by the scheduler for one whose tasks have all ended. Either
acts only on processes that it sees. A run cannot be deleted before it has ended. A DAG can, and that is announced to
nobody: when the triggerer is down then, the process goes on until the DAG runs again or the deployment is stopped.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from airflow.listeners import hookimpl

from streamplan import processes
from streamplan.airflow.triggers import GRACE_SECONDS
from streamplan.processes import Owner
from streamplan.settings import Settings

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun

log = logging.getLogger(__name__)


@hookimpl
def on_dag_run_failed(dag_run: DagRun, msg: str) -> None:
    stop_processes_of(Owner(dag_run.dag_id, dag_run.run_id))


@hookimpl
def on_dag_run_success(dag_run: DagRun, msg: str) -> None:
    stop_processes_of(Owner(dag_run.dag_id, dag_run.run_id))


def stop_processes_of(owner: Owner) -> list[threading.Thread]:
    """Begin to stop what lives of this dag run. Does not wait: a request, or the scheduler's loop, would."""
    run_dir = Settings.from_environment().run
    threads = []
    for process in processes.registered(run_dir):
        # Where this process cannot see the job (another container), its entry must stay: hence the look at alive.
        if process.owner == owner and processes.is_alive(process):
            log.info("Run %s has ended: stopping %s (pid %d)", owner.run_id, process.name, process.pid)
            thread = threading.Thread(
                target=processes.stop, args=(process,), kwargs={"grace_seconds": GRACE_SECONDS}, daemon=True
            )
            thread.start()
            threads.append(thread)
    return threads
