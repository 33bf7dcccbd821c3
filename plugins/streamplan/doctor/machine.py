"""This machine: Python and its packages, Java, the jars of Spark's connector, and the disk."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from importlib import metadata
from importlib.util import find_spec

from streamplan.doctor.finding import Finding, not_looked, ok, problem, warning
from streamplan.errors import StreamplanError
from streamplan.java import require_java, version_of
from streamplan.settings import Settings
from streamplan.spark.submit import submit_environment

PYTHONS = ((3, 11), (3, 13))
"""The first and the last version of Python that the locked packages exist for."""

PACKAGES = {
    "confluent-kafka": "every command that asks Kafka",
    "pyspark": "the aggregator and recounts",
    "apache-airflow": "the DAGs",
    "great-expectations": "the pages of health runs",
}
"""The packages, and what needs each."""

_DISK_BYTES = 1 << 30
_SECONDS = 120


def look_at_python() -> Iterable[Finding]:
    """Look at the version of Python, and at the packages that the parts of a pipeline need."""
    found = sys.version_info[:2]
    first, last = (".".join(map(str, version)) for version in PYTHONS)
    if PYTHONS[0] <= found <= PYTHONS[1]:
        yield ok("Python", f"{platform.python_version()} in {sys.executable}")
    else:
        yield problem("Python", platform.python_version(), f"Use a Python from {first} to {last}.")
    for package, needed_by in PACKAGES.items():
        try:
            yield ok(package, metadata.version(package))
        except metadata.PackageNotFoundError:
            remedy = f"It is needed by {needed_by}. Install it there: pip install {package}."
            yield not_looked(package, "not installed", remedy)


def look_at_java(environment: Mapping[str, str]) -> Iterable[Finding]:
    """Look for a Java that Spark runs on."""
    try:
        home = require_java(environment)
    except StreamplanError as error:
        yield problem("Java", error.observed or "none", error.remedy)
    else:
        yield ok("Java", f"{version_of(home)} in {home}")


def look_at_spark_submit(environment: Mapping[str, str]) -> Iterable[Finding]:
    """Start ``spark-submit`` in the environment in which a task starts it.

    Args:
        environment: The environment of Airflow's processes.
    """
    if find_spec("pyspark") is None:
        return  # told by :func:`look_at_python`
    of_a_job = submit_environment(environment)
    try:
        done = subprocess.run(
            ["spark-submit", "--version"],
            env=of_a_job,
            executable=shutil.which("spark-submit", path=of_a_job["PATH"]),
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        yield problem("spark-submit", str(error), "Try it: spark-submit --version")
        return
    said = done.stdout + done.stderr
    found = re.search(r"version (\S+)", said)
    if done.returncode or found is None:
        last = (said.strip().splitlines() or ["no output"])[-1]
        yield problem("spark-submit", last, f"Try it: SPARK_HOME={of_a_job['SPARK_HOME']} spark-submit --version")
    elif found[1] != metadata.version("pyspark"):
        yield warning("spark-submit", f"Spark {found[1]} in {of_a_job['SPARK_HOME']}", "Unset SPARK_HOME.")
    else:
        yield ok("spark-submit", f"{found[1]} in {of_a_job['SPARK_HOME']}")


def look_at_files(settings: Settings) -> Iterable[Finding]:
    """Look at the jars of Spark's Kafka connector, and at the disk that the deployment writes to."""
    if settings.jars is None:
        yield not_looked(
            "Kafka connector of Spark",
            "STREAMPLAN_JARS is not set",
            "Set it to the directory of the connector's jars, unless Spark has them already.",
        )
    elif names := sorted(path.name for path in settings.jars.glob("spark-sql-kafka-0-10_*.jar")):
        yield ok("Kafka connector of Spark", f"{names[0]} in {settings.jars}")
    else:
        yield problem(
            "Kafka connector of Spark",
            f"no spark-sql-kafka-0-10 jar in {settings.jars}",
            "Put the connector of Spark's own version and its dependencies there, or set STREAMPLAN_JARS to where they "
            "are.",
        )
    existing = next(path for path in (settings.home, *settings.home.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    space = f"{free / (1 << 30):,.1f} GiB free in {existing}"
    if free < _DISK_BYTES:
        yield warning("disk", space, "Checkpoints and reports are written there: make room, or set STREAMPLAN_HOME.")
    else:
        yield ok("disk", space)
