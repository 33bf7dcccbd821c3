"""What the scheduler has loaded when it forks its workers, asked of processes that Airflow starts as components."""

from __future__ import annotations

import json
import os
import subprocess
import sys

STARTS = """
import json, os, sys
from airflow.jobs.job import Job

for component, executor in json.loads(sys.argv.pop()):
    if os.fork() == 0:  # each begins without what another has loaded
        sys.argv = ["airflow", component]
        os.environ["AIRFLOW__CORE__EXECUTOR"] = executor
        Job()
        print([component, executor, *(name in sys.modules for name in ("great_expectations", "streamplan.pipelines"))])
        sys.stdout.flush()
        os._exit(0)
    os.wait()
"""

LOADED = {
    ("scheduler", "LocalExecutor"): True,
    ("scheduler", "airflow.executors.local_executor.LocalExecutor,CeleryExecutor"): True,
    ("scheduler", "CeleryExecutor"): False,  # its tasks are no children of the scheduler
    ("triggerer", "LocalExecutor"): False,
    ("dag-processor", "LocalExecutor"): False,
}


def test_checks_find_great_expectations_loaded_and_declarations_as_they_are_now(database: None) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STARTS, json.dumps([*LOADED])],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    told = [line for line in done.stdout.splitlines() if line.startswith("[")]
    assert told == [str([*start, loaded, False]) for start, loaded in LOADED.items()]
    assert done.stdout.count("Skipping registering function") == 0
