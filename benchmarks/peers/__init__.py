"""Systems that a Python user could take instead, each in an environment of its own.

Their packages are not among those that Streamplan is tested with. The environments are made when they are needed
first, below ``.streamplan/peers``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from applications import Job, report
from streamplan.java import require_java
from streamplan.local.jars import JarSet, fetch_missing, require
from streamplan.settings import PROJECT

HERE = Path(__file__).parent
ENVIRONMENTS = PROJECT / ".streamplan" / "peers"
INSTALL_SECONDS = 1800
FLINK_CONNECTOR = JarSet(
    "flink-connector-kafka",
    "5.0.0-2.2",
    ("org.apache.flink:flink-sql-connector-kafka:5.0.0-2.2",),
    transitive=False,
)
PROCESSES = 2
"""Of Quix Streams: one for each partition of the orders, as many as there are cores."""


def flink(bootstrap_servers: str, home: Path, application_id: str, totals: str) -> Job:
    """Return the orders topology in Flink SQL."""
    fetch_missing([FLINK_CONNECTOR], os.environ, home, report)
    (jar,) = require(FLINK_CONNECTOR, os.environ).glob("*.jar")
    environment = {**os.environ, "JAVA_HOME": str(require_java(os.environ))}
    return _job("flink", [bootstrap_servers, application_id, totals, str(home), str(jar)], home, environment)


def quix(bootstrap_servers: str, home: Path, application_id: str, totals: str) -> Job:
    """Return the orders topology in Quix Streams."""
    arguments = [bootstrap_servers, application_id, totals, str(home), str(PROCESSES)]
    return _job("quix", arguments, home, dict(os.environ))


def _job(peer: str, arguments: list[str], home: Path, environment: dict[str, str]) -> Job:
    environment = {name: value for name, value in environment.items() if name != "PYTHONPATH"}
    return Job([str(_python(peer)), str(HERE / f"{peer}_orders.py"), *arguments], environment, home / f"{peer}.log")


def _python(peer: str) -> Path:
    """Return the Python of the peer's environment, and make the environment first where there is none."""
    directory = ENVIRONMENTS / peer
    if not (directory / "installed").exists():
        report(f"Installing {peer} in {directory}, once for this clone.")
        shutil.rmtree(directory, ignore_errors=True)
        requirements = str(HERE / f"requirements-{peer}.txt")
        _run([sys.executable, "-m", "venv", str(directory)])
        _run([str(directory / "bin" / "pip"), "install", "--quiet", "--requirement", requirements])
        (directory / "installed").touch()
    return directory / "bin" / "python"


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, timeout=INSTALL_SECONDS, stdin=subprocess.DEVNULL)
