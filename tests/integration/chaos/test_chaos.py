"""A short run of the chaos suite: ``make chaos`` runs the long ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from streamplan.settings import PROJECT

ROUNDS = 1
SEED = 4
ORDERS_PER_SECOND = 500
SECONDS = 1800.0
FAULTS = "kill-driver-jvm,kill-writer,kill-broker,reset,kill-triggerer"
"""One of each kind that is over soon."""


@pytest.mark.soak
def test_nothing_is_lost_or_doubled_in_a_short_chaos(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    arguments = ["--rounds", str(ROUNDS), "--seed", str(SEED), "--faults", FAULTS, "--report", str(report)]
    arguments += ["--orders-per-second", str(ORDERS_PER_SECOND)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", *arguments, "--home", str(tmp_path / "the home")],
        env={**os.environ, "PYTHONPATH": f"{PROJECT / 'plugins'}{os.pathsep}{PROJECT}"},
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    found = json.loads(report.read_text())
    assert len(found["rounds"]) == ROUNDS
    assert found["failure"] is None
    assert found["final"]["orders"] == found["final"]["repartitioned"] > 0
