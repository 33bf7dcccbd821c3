from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]

FULL = """#!/bin/sh
if [ "$1" = -c ]; then echo 3 13; exit 0; fi
echo "OSError: [Errno 28] No space left on device: 'ensurepip'" >&2
exit 1
"""


def test_a_failed_step_is_told_with_the_end_of_its_output(tmp_path: Path) -> None:
    """The log of a CI run is often all that can be read afterwards."""
    project = tmp_path / "a project"
    (tmp_path / "bin").mkdir()
    project.mkdir()
    for name in ("bootstrap.py", "requirements.txt", "requirements-dev.txt"):
        (project / name).write_bytes((PROJECT / name).read_bytes())
    for minor in (11, 12, 13):
        python = tmp_path / "bin" / f"python3.{minor}"
        python.write_text(FULL)
        python.chmod(0o755)
    env = {name: value for name, value in os.environ.items() if name != "STREAMPLAN_HOME"}
    env["PATH"] = f"{tmp_path / 'bin'}:{env['PATH']}"
    ended = subprocess.run(
        [sys.executable, str(project / "bootstrap.py")],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 1
    first, *rest = ended.stderr.splitlines()
    assert first.startswith(f"`{tmp_path / 'bin' / 'python3.13'} -m venv .venv` failed. The last lines of {project}")
    assert rest[-1] == "  OSError: [Errno 28] No space left on device: 'ensurepip'"
