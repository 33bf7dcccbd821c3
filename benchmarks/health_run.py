"""What a health run costs: CPU seconds of Airflow's processes for all checks of an idle pipeline.

Run it with ``PYTHONPATH=plugins:benchmarks .venv/bin/python benchmarks/health_run.py [--rounds 3]``; some four minutes.

A deployment of its own is started, ``orders`` is deployed, and nothing comes any more. First, without a run, what
Airflow's processes take all the time is measured; then runs of ``orders_health`` are triggered, one after the other,
which has every check look. What they took on top of that is told by component. Tasks are children of the scheduler.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil
from applications import random_ports, say
from streamplan.errors import StreamplanError
from streamplan.local.airflow import DEFAULT_PORTS as AIRFLOW_PORTS
from streamplan.local.airflow import PROCESSES
from streamplan.local.brokers import DEFAULT_PORTS
from streamplan.local.stack import Stack
from streamplan.settings import Settings

IDLE_SECONDS = 60.0
DEADLINE_SECONDS = 300.0


def cpu_seconds(stack: Stack) -> dict[str, float]:
    """Of each of Airflow's processes with all below it, those that have ended included."""
    return {name: _family(psutil.Process(ref.pid)) for name, ref in stack.airflow.running().items()}


def _family(root: psutil.Process) -> float:
    found = 0.0
    for process in [root, *root.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            found += times.user + times.system + times.children_user + times.children_system
    return found


def run_of(stack: Stack, dag_id: str, conf: Mapping[str, object]) -> dict[str, str | None]:
    rest = stack.airflow.rest()
    rest.wait_for_dag(dag_id)
    run = rest.trigger(dag_id, conf)
    state = rest.wait(dag_id, run, deadline_seconds=DEADLINE_SECONDS)
    states = rest.task_states(dag_id, run)
    if state != "success":
        raise StreamplanError(f"{dag_id}, run {run}", expected="success", observed=f"{state}: {states}")
    return states


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="health runs (default %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="streamplan-health-") as name:
        home = Path(name).resolve()
        random_ports(home / "stack.json", [*DEFAULT_PORTS, *AIRFLOW_PORTS])
        stack = Stack(Settings.from_environment({"STREAMPLAN_HOME": str(home)}), report=say)
        try:
            stack.up()
            say("Deploying orders.")
            run_of(stack, "orders_deploy", {"records": 1000})
            stack.airflow.rest().unpause("orders_health")
            run_of(stack, "orders_health", {})  # the first makes the context of Great Expectations
            say(f"Measuring {IDLE_SECONDS:g} s without a run.")
            time.sleep(10)
            before, begun = cpu_seconds(stack), time.monotonic()
            time.sleep(IDLE_SECONDS)
            waited = time.monotonic() - begun
            idle = {one: (now - before[one]) / waited for one, now in cpu_seconds(stack).items()}
            rounds = []
            for number in range(given.rounds):
                before, begun = cpu_seconds(stack), time.monotonic()
                states = run_of(stack, "orders_health", {})
                time.sleep(5)  # the last task's process has ended, and was waited for
                waited = time.monotonic() - begun
                rounds.append({one: now - before[one] - idle[one] * waited for one, now in cpu_seconds(stack).items()})
                looked = sum(state == "success" for state in states.values())
                say(f"round {number + 1}: {looked} tasks, {sum(rounds[-1].values()):.1f} CPU s in {waited - 5:.0f} s")
        finally:
            stack.down()
    for one in PROCESSES:
        values = [found[one] for found in rounds]
        sys.stdout.write(
            f"{one:<22} {statistics.median(values):6.1f} CPU s a run ({min(values):.1f} to {max(values):.1f}); "
            f"idle {idle[one]:.3f} cores\n"
        )
    sums = [sum(found.values()) for found in rounds]
    sys.stdout.write(f"{'all':<22} {statistics.median(sums):6.1f} CPU s a run ({min(sums):.1f} to {max(sums):.1f})\n")
    if given.json:
        given.json.write_text(json.dumps({"idle_cores": idle, "cpu_seconds": rounds}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
