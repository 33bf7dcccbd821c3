"""The program that stands in for Python where Spark asks for state variables."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from streamplan.spark import state_variables_request


def test_python_runs_where_the_driver_does_not_answer(tmp_path: Path) -> None:
    words = ["-c", "import sys; print('ran', *sys.argv[1:])", "a", "b c"]
    environment = {"PYTHON_WORKER_FACTORY_PORT": "1", state_variables_request.SOCKET: str(tmp_path / "nobody")}
    command = [sys.executable, "-I", "-S", state_variables_request.__file__, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "ran a b c\n"
