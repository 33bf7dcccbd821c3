"""What the doctor finds on a machine, asked with programs that a test writes."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import pytest
from streamplan.doctor.finding import Finding, State
from streamplan.doctor.machine import look_at_spark_submit


def looked(path: Path) -> Finding:
    [finding] = look_at_spark_submit({"PATH": f"{path}:/bin:/usr/bin"})
    return finding


@pytest.mark.parametrize(
    ("script", "state", "told"),
    [
        ("echo 'version 1.2.3' >&2", State.WARNING, "of Spark 1.2.3"),
        (f"echo 'version {metadata.version('pyspark')}' >&2", State.OK, metadata.version("pyspark")),
        ("echo '/bin/spark-class: No such file or directory' >&2; exit 127", State.PROBLEM, "No such file"),
        ("exit 0", State.PROBLEM, "no output"),
    ],
)
def test_spark_submit_is_started(tmp_path: Path, script: str, state: State, told: str) -> None:
    program = tmp_path / "spark-submit"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    found = looked(tmp_path)
    assert found.state is state
    assert told in found.observed


def test_a_spark_submit_that_is_not_on_the_path_is_a_problem(tmp_path: Path) -> None:
    found = looked(tmp_path)
    assert found.state is State.PROBLEM
    assert str(Path(sys.executable).parent) in found.remedy


def test_the_installed_spark_submit_starts() -> None:
    assert looked(Path(sys.executable).parent).state is State.OK
