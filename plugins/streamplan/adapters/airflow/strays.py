"""Stops supervised processes whose run ended while nobody watched them.

The triggerer stops the process of a run that a person stops. When it is down at that moment, Airflow forgets the
trigger, and the process would go on for ever. So whenever the scheduler or the triggerer starts, it looks once.
"""

from __future__ import annotations

import logging
from typing import Any

from airflow.listeners import hookimpl

from streamplan.adapters import processes
from streamplan.adapters.airflow.owner import Owner, read_owner
from streamplan.adapters.airflow.triggers import GRACE_SECONDS
from streamplan.settings import Settings

log = logging.getLogger(__name__)


@hookimpl
def on_starting(component: Any) -> None:
    """Airflow's hook: one of its processes, or a task, starts. Only its own processes see the database."""
    from airflow.jobs.job import Job

    if isinstance(component, Job):
        stop_strays(Settings.from_environment())


def stop_strays(settings: Settings) -> list[str]:
    """Stop each living process whose dag run is finished or gone; their names."""
    stopped = []
    for process in processes.registered(settings.run):
        owner = read_owner(settings.run, process.name)
        # Where this process cannot see the job (another container) it is not alive, and its entry must stay.
        if owner is None or not processes.is_alive(process) or is_active(owner):
            continue
        log.warning("%s (pid %d): its run %s has ended. Stopping it.", process.name, process.pid, owner)
        processes.stop(process, grace_seconds=GRACE_SECONDS)
        stopped.append(process.name)
    return stopped


def is_active(owner: Owner) -> bool:
    """Whether the dag run is there and unfinished."""
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from airflow.utils.state import State
    from sqlalchemy import select

    with create_session() as session:
        state = session.scalar(select(DagRun.state).where(DagRun.dag_id == owner.dag_id, DagRun.run_id == owner.run_id))
    return state in State.unfinished_dr_states
