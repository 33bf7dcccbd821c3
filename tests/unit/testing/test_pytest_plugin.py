"""What the package does in a user's pytest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from streamplan.settings import PROJECT

LEAVES_A_CONNECTION = """
import atexit
import logging
import sys

def closed():  # __del__ of a connection in py4j/clientserver.py
    logging.getLogger("py4j.clientserver").info("Closing down clientserver connection")

def test_that_leaves_a_connection():
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, force=True)  # as Airflow's configuration does
    atexit.register(closed)
"""


def test_after_the_last_test_nothing_is_printed(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(LEAVES_A_CONNECTION)
    environment = {**os.environ, "PYTHONPATH": str(PROJECT / "plugins"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "streamplan.testing.pytest_plugin", "test_one.py"]
    ended = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stdout
    assert ended.stderr == ""
    assert ended.stdout.splitlines()[-1].startswith("1 passed")
