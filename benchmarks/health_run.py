"""What a health run costs: CPU seconds of Airflow's processes for all checks of an idle pipeline.

Run it with ``PYTHONPATH=plugins:benchmarks .venv/bin/python benchmarks/health_run.py [--rounds 3]``. It takes some four
minutes.

It starts a deployment of its own and deploys ``orders``. No more orders come after that. First it measures what
Airflow's processes use without a run. Then it triggers runs of ``orders_health``, which runs every check, one after the
other. It prints what each process used on top of its idle use. Tasks are children of the scheduler.
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
from applications import random_ports, report
from streamplan.errors import StreamplanError
from streamplan.local.airflow import DEFAULT_PORTS as AIRFLOW_PORTS
from streamplan.local.airflow import PROCESSES
from streamplan.local.brokers import DEFAULT_PORTS
from streamplan.local.stack import Stack
from streamplan.settings import Settings

IDLE_SECONDS = 60.0
DEADLINE_SECONDS = 300.0


def cpu_seconds(stack: Stack) -> dict[str, float]:
    """Return the CPU seconds of each of Airflow's processes with its descendants, ended ones included."""
    return {name: _family(psutil.Process(ref.pid)) for name, ref in stack.airflow.running().items()}


def _family(root: psutil.Process) -> float:
    seconds = 0.0
    for process in [root, *root.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            seconds += times.user + times.system + times.children_user + times.children_system
    return seconds


def run_dag(stack: Stack, dag_id: str, conf: Mapping[str, object]) -> dict[str, str | None]:
    """Trigger a run, wait until it has succeeded, and return the states of its tasks."""
    rest = stack.airflow.rest()
    rest.wait_for_dag(dag_id)
    run = rest.trigger(dag_id, conf)
    state = rest.wait(dag_id, run, deadline_seconds=DEADLINE_SECONDS)
    states = rest.task_states(dag_id, run)
    if state != "success":
        raise StreamplanError(f"{dag_id}, run {run}", expected="success", observed=f"{state}: {states}")
    return states


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="health runs (default %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="streamplan-health-") as name:
        home = Path(name).resolve()
        random_ports(home / "stack.json", [*DEFAULT_PORTS, *AIRFLOW_PORTS])
        stack = Stack(Settings.from_environment({"STREAMPLAN_HOME": str(home)}), report=report)
        try:
            stack.up()
            report("Deploying orders.")
            run_dag(stack, "orders_deploy", {"records": 1000})
            stack.airflow.rest().unpause("orders_health")
            run_dag(stack, "orders_health", {})  # the first run creates the context of Great Expectations
            report(f"Measuring {IDLE_SECONDS:g} s without a run.")
            time.sleep(10)
            before, begun = cpu_seconds(stack), time.monotonic()
            time.sleep(IDLE_SECONDS)
            waited = time.monotonic() - begun
            idle = {process: (now - before[process]) / waited for process, now in cpu_seconds(stack).items()}
            rounds = []
            for number in range(given.rounds):
                before, begun = cpu_seconds(stack), time.monotonic()
                states = run_dag(stack, "orders_health", {})
                time.sleep(5)  # until the last task's process has ended
                waited = time.monotonic() - begun
                used = {process: now - before[process] for process, now in cpu_seconds(stack).items()}
                rounds.append({process: used[process] - idle[process] * waited for process in used})
                succeeded = sum(state == "success" for state in states.values())
                report(
                    f"round {number + 1}: {succeeded} tasks, {sum(rounds[-1].values()):.1f} CPU s in {waited - 5:.0f} s"
                )
        finally:
            stack.down()
    for process in PROCESSES:
        values = [used[process] for used in rounds]
        sys.stdout.write(
            f"{process:<22} {statistics.median(values):6.1f} CPU s a run ({min(values):.1f} to {max(values):.1f}); "
            f"idle {idle[process]:.3f} cores\n"
        )
    sums = [sum(used.values()) for used in rounds]
    sys.stdout.write(f"{'all':<22} {statistics.median(sums):6.1f} CPU s a run ({min(sums):.1f} to {max(sums):.1f})\n")
    if given.json:
        given.json.write_text(json.dumps({"idle_cores": idle, "cpu_seconds": rounds}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
