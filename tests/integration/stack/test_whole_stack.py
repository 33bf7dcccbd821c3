"""Brokers and Airflow as one: what listens where, what is mended, and what is left when all of it goes down."""

from __future__ import annotations

import os
import sys
from contextlib import chdir
from pathlib import Path

import psutil
import pytest
from streamplan import processes
from streamplan.errors import StreamplanError
from streamplan.local import airflow
from streamplan.local.airflow import API_SERVER, PROCESSES
from streamplan.local.airflow_rest import AirflowRest
from streamplan.local.ports import LOOPBACK
from streamplan.local.stack import Stack

from tests.support.airflow_rest import patient_rest
from tests.support.processes import kill, listening

BROKERS = ["kafka-1", "kafka-2"]


def faults(stack: Stack) -> dict[str, str]:
    return {state.name: state.fault for state in stack.states()}


def pids(stack: Stack) -> dict[str, int]:
    return {state.name: state.pid for state in stack.states() if not state.fault}


def group_of(process: psutil.Process) -> int | None:
    """The process group of a process that still runs."""
    try:
        return None if process.status() == psutil.STATUS_ZOMBIE else os.getpgid(process.pid)
    except (psutil.NoSuchProcess, ProcessLookupError):
        return None


def test_all_of_it_runs_on_loopback_alone(stack: Stack) -> None:
    assert {name: fault for name, fault in faults(stack).items() if name in [*BROKERS, *PROCESSES]} == dict.fromkeys(
        [*BROKERS, *PROCESSES], ""
    )
    for name in PROCESSES:
        assert listening(pids(stack)[name]) <= {LOOPBACK}
    for name in ("passwords.json", "environment.json"):
        assert (stack.settings.home / "airflow" / name).stat().st_mode & 0o077 == 0, name


def test_its_api_knows_its_user_and_no_stranger(stack: Stack) -> None:
    rest = patient_rest(stack)
    try:
        assert rest.dag("no_such_dag") is None
        assert rest.import_errors() == {}
    finally:
        rest.close()
    stranger = AirflowRest(stack.airflow.url, airflow.USER, "wrong")
    try:
        with pytest.raises(StreamplanError, match="status 401"):
            stranger.import_errors()
    finally:
        stranger.close()
    assert stack.airflow.url.endswith(str(stack.airflow._ports[API_SERVER]))


def test_what_was_killed_is_mended_and_nothing_is_left_when_it_goes_down(stack: Stack, repository: Path) -> None:
    settings = stack.settings
    before = pids(stack)
    for name in ("airflow-scheduler", "kafka-2"):
        kill(before[name])
    job = processes.start(
        "job",
        [sys.executable, "-c", "import time; time.sleep(600)"],
        env=os.environ,
        log_file=settings.logs / "job.log",
        run_dir=settings.run,
    )
    with chdir(repository):
        another = Stack(settings)
    another.up()
    assert {name: fault for name, fault in faults(stack).items() if fault and name != "job"} == {}
    after = pids(stack)
    groups = {*before.values(), *after.values()}
    assert {name for name in before if after[name] != before[name]} == {"airflow-scheduler", "kafka-2"}

    stopped = stack.down()
    assert sorted(stopped) == sorted([*PROCESSES, "job", *BROKERS])
    assert stopped.index("job") == len(PROCESSES)
    assert not processes.is_alive(job)
    assert not any(psutil.pid_exists(pid) for pid in after.values())
    assert [process for process in psutil.process_iter() if group_of(process) in groups] == []
    assert stack.down() == []
    assert processes.registered(settings.run) == []
