"""What the scheduler has loaded when it forks its workers, asked of a process that Airflow starts as a component."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

STARTS = """
import sys
from airflow.jobs.job import Job

sys.argv = ["airflow", sys.argv[1]]
Job()
print(*(name in sys.modules for name in ("great_expectations", "streamplan.pipelines")))
"""


@pytest.mark.parametrize(
    ("component", "executor", "loaded"),
    [
        ("scheduler", "LocalExecutor", True),
        ("scheduler", "airflow.executors.local_executor.LocalExecutor,CeleryExecutor", True),
        ("scheduler", "CeleryExecutor", False),  # its tasks are no children of the scheduler
        ("triggerer", "LocalExecutor", False),
        ("dag-processor", "LocalExecutor", False),
    ],
)
def test_checks_find_great_expectations_loaded_and_declarations_as_they_are_now(
    database: None, component: str, executor: str, loaded: bool
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STARTS, component],
        env={**os.environ, "AIRFLOW__CORE__EXECUTOR": executor},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == f"{loaded} False"
    assert done.stdout.count("Skipping registering function") == 0
