"""What the scheduler has loaded when it forks its workers, asked of a process that Airflow starts as components."""

from __future__ import annotations

import json
import os
import subprocess
import sys

STARTS = """
import json, os, sys
from airflow.jobs.job import Job

found = []
for component, executor in json.loads(sys.argv.pop()):
    sys.argv = ["airflow", component]
    os.environ["AIRFLOW__CORE__EXECUTOR"] = executor
    Job()
    found.append([name in sys.modules for name in ("great_expectations", "streamplan.pipelines")])
print(json.dumps(found))
"""

WITHOUT = [
    ("scheduler", "CeleryExecutor"),  # its tasks are no children of the scheduler
    ("triggerer", "LocalExecutor"),
    ("dag-processor", "LocalExecutor"),
]


def test_checks_find_great_expectations_loaded_and_declarations_as_they_are_now(database: None) -> None:
    starts = [*WITHOUT, ("scheduler", "airflow.executors.local_executor.LocalExecutor,CeleryExecutor")]
    done = subprocess.run(
        [sys.executable, "-c", STARTS, json.dumps(starts)],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert json.loads(done.stdout.splitlines()[-1]) == [[False, False]] * len(WITHOUT) + [[True, False]]
    assert done.stdout.count("Skipping registering function") == 0
