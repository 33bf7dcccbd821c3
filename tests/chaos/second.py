"""The mistake of a person: a second aggregator of the same application, started by hand."""

from __future__ import annotations

import json
from random import Random

from streamplan import processes
from streamplan.errors import StreamplanError

from tests.chaos.jobs import AGGREGATOR_JOB
from tests.chaos.system import AGGREGATOR, BACK_SECONDS, System
from tests.chaos.waiting import wait_for

JOB = "second-aggregator"
_WRAPPER_WORDS = 4
"""``sh -c <wrapper> <status file>`` stand before the command of a supervised job."""


def second_aggregator(system: System, random: Random) -> str:
    """Either is fenced, says so and ends; then the second is stopped, and the first triggered where it has ended."""
    wait_for("the aggregator", lambda: "" if system.jobs.driver_jvm() else "none", BACK_SECONDS)
    entry = json.loads((system.settings.run / f"{AGGREGATOR_JOB}.json").read_text())
    command = list(entry["argv"][_WRAPPER_WORDS:])
    directory = system.home / f"second-{random.getrandbits(32):08x}"
    command[command.index("--checkpoints") + 1] = str(directory)
    command[command.index("--heartbeat") + 1] = str(directory / "heartbeat.json")
    environment = system.stack.airflow.environment()
    logs = {job: system.settings.logs / f"{job}.log" for job in (JOB, AGGREGATOR_JOB)}
    before = {job: log.stat().st_size if log.exists() else 0 for job, log in logs.items()}
    second = processes.start(
        JOB, command, env=environment, log_file=logs[JOB], cwd=system.home, run_dir=system.settings.run
    )
    try:
        wait_for(
            "one of two aggregators is fenced",
            lambda: "both run" if processes.is_alive(second) and active(system) else "",
            BACK_SECONDS,
        )
        loser = JOB if not processes.is_alive(second) else AGGREGATOR_JOB
        said = logs[loser].read_text(errors="replace")[before[loser] :]
        if "a newer aggregator" not in said:
            raise StreamplanError(f"{loser}, fenced", expected="to say so", observed=said[-1000:])
    finally:
        processes.stop(second)
    if not active(system):
        system.rest.trigger(AGGREGATOR)
    return f"{loser} was fenced"


def active(system: System) -> bool:
    """Whether a run of the aggregator's DAG goes on."""
    return any(run["state"] in ("queued", "running") for run in system.rest.runs(AGGREGATOR))
