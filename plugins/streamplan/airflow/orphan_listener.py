"""A listener that stops supervised processes when their DAG run has ended, whether a trigger watches them or not.

When a person stops a run, the triggerer stops its process. But Airflow forgets the trigger of a stopped run when no
triggerer holds it at that moment: while the triggerer is down, and for half a minute after a killed triggerer came back
(``triggerer_health_check_threshold``). So this module also listens to Airflow's event for the end of a run.

The API server sends the event for a run that a person marks, the scheduler for a run whose tasks have all ended. Both
stop only processes that they see. A run cannot be deleted before it has ended. A DAG can be, and there is no event for
that: if the triggerer is down then, the process goes on until the DAG runs again or the deployment is stopped.
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
    """Stop the processes of a run that failed or was marked as failed."""
    stop_processes_of(Owner(dag_run.dag_id, dag_run.run_id))


@hookimpl
def on_dag_run_success(dag_run: DagRun, msg: str) -> None:
    """Stop the processes of a run that succeeded or was marked as a success."""
    stop_processes_of(Owner(dag_run.dag_id, dag_run.run_id))


def stop_processes_of(owner: Owner) -> list[threading.Thread]:
    """Begin to stop the processes of this DAG run that are alive.

    It does not wait for their end, because a request or the scheduler's loop would wait with it.

    Args:
        owner: The DAG run.

    Returns:
        The threads that stop the processes, one for each.
    """
    run_dir = Settings.from_environment().run
    threads = []
    for process in processes.registered(run_dir):
        # In another container the job is not visible and does not look alive. Its entry must stay there.
        if process.owner == owner and processes.is_alive(process):
            log.info("Run %s has ended. Its process %s (pid %d) is stopped.", owner.run_id, process.name, process.pid)
            thread = threading.Thread(
                target=processes.stop, args=(process,), kwargs={"grace_seconds": GRACE_SECONDS}, daemon=True
            )
            thread.start()
            threads.append(thread)
    return threads
