"""What the doctor finds on a machine. Spark's own ``spark-submit`` runs with a Spark that a test writes."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from pathlib import Path

import pytest
from streamplan.doctor.finding import Finding, State
from streamplan.doctor.machine import look_at_spark_submit

PATH = os.pathsep.join(["/usr/bin", "/bin"])


def looked(**environment: str) -> Finding:
    [finding] = look_at_spark_submit({"PATH": PATH, **environment})
    return finding


@pytest.mark.parametrize(
    ("script", "state", "told"),
    [
        ("echo 'version 1.2.3' >&2", State.WARNING, "Spark 1.2.3"),
        (f"echo 'version {metadata.version('pyspark')}' >&2", State.OK, metadata.version("pyspark")),
        ("echo 'No such file or directory' >&2; exit 127", State.PROBLEM, "No such file"),
        ("exit 0", State.PROBLEM, "no output"),
    ],
)
def test_spark_submit_is_started(tmp_path: Path, script: str, state: State, told: str) -> None:
    program = tmp_path / "a spark" / "bin" / "spark-class"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    found = looked(SPARK_HOME=str(tmp_path / "a spark"))
    assert found.state is state
    assert told in found.observed


def test_the_installed_spark_submit_starts_also_with_a_python_in_a_path_with_a_space(tmp_path: Path) -> None:
    python = tmp_path / "a path" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    assert looked(PYSPARK_PYTHON=str(python)).state is State.OK
