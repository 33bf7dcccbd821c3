"""How a job is given to spark-submit: the environment of the process, and the options that only spark-submit can set.

The driver's JVM gets these options when it starts, so a session cannot set them later.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from streamplan.errors import Refused
from streamplan.java import require_java
from streamplan.settings import PACKAGE

JVM_OPTIONS = (
    # A micro-batch of few records calls much of Spark's code once. With the default thresholds C2 compiles all of
    # that code after 5,000 calls, and takes a quarter of a core for minutes. Code that is called for each record
    # reaches thirty times as many calls soon enough.
    "-XX:Tier4InvocationThreshold=150000",
    "-XX:Tier4MinInvocationThreshold=20000",
    "-XX:Tier4CompileThreshold=500000",
    "-XX:Tier4BackEdgeThreshold=400000",
    # On few cores this collector takes less CPU than G1. Its pauses are shorter than a micro-batch.
    "-XX:+UseParallelGC",
    # By default Arrow checks bounds and nulls with each access. Spark's writers know both already.
    "-Darrow.enable_unsafe_memory_access=true",
    "-Darrow.enable_null_check_for_get=false",
)

SHORT_RUN_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m")
"""For tests, in which the optimizing compiler costs more than it gains.

Without it the JVM reserves 48 MB for compiled code, which Spark fills in minutes: then the JVM drops code and compiles
it again, all the time.
"""

QUIET_CLASS_DATA = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
"""The JVM does not log that an archive does not fit, nor which classes cannot be archived: it goes on without."""

REDACTION = {
    "spark.redaction.regex": r"(?i)secret|password|token|access[.]?key|sasl[.]jaas|keystore[.]key",
    "spark.sql.redaction.options.regex": r"(?i)url|secret|password|token|sasl[.]jaas|keystore[.]key",
}
"""Spark shows and logs no value of these options. The defaults leave out ``sasl.jaas.config`` and PEM keys."""

LOCAL_MASTER = "local[3,4]"
"""Spark in one JVM on this machine, for two cores and more: three tasks at a time, four attempts of each.

A task spends most of its time waiting for the brokers. With two tasks at a time, the first micro-batch of one
sub-topology would keep all others waiting. Plain ``local[3]`` would end the query at the first failure of a task.
"""

_PYTHON_DAEMON = "streamplan.spark.daemon"

_LOOPBACK = "127.0.0.1"


def in_image(file: Path | str) -> str:
    """Return the URI of a file that a driver in a pod finds in its image, so that nothing is uploaded.

    Args:
        file: Its absolute path.
    """
    return f"local://{quote(str(file))}"


def submit_environment(environment: Mapping[str, str], *, local: bool = False) -> dict[str, str]:
    """Return the environment in which spark-submit finds our Python and our package.

    Args:
        environment: The environment to start from. A ``PYSPARK_PYTHON`` and a ``SPARK_HOME`` that it names are kept,
            unless ``local``.
        local: Whether Spark runs on this machine alone, see :func:`local_spark_variables`.

    Raises:
        Refused: This environment has no PySpark; or ``local``, and this machine has no fit Java.
    """
    variables = {**environment, **(local_spark_variables(environment) if local else {})}
    bin_directory = str(Path(sys.executable).parent)
    variables["PATH"] = os.pathsep.join([bin_directory, variables.get("PATH", os.defpath)])
    variables["PYTHONPATH"] = import_path(variables)
    if "SPARK_HOME" not in variables:  # spark-submit does not find it in a path with a space
        variables["SPARK_HOME"] = str(pyspark_home())
    variables.setdefault("PYSPARK_PYTHON", shutil.which("python", path=variables["PATH"]) or sys.executable)
    return variables


def import_path(environment: Mapping[str, str]) -> str:
    """Return the ``PYTHONPATH`` with which another process imports what this one imports, from any directory.

    Args:
        environment: Its ``PYTHONPATH`` is kept. Relative directories become absolute.
    """
    kept = [os.path.abspath(part) for part in environment.get("PYTHONPATH", "").split(os.pathsep) if part]
    # An installed package is found without. Site-packages in PYTHONPATH would come before the standard library.
    ours = [] if PACKAGE.parent.name in ("site-packages", "dist-packages") else [str(PACKAGE.parent)]
    return os.pathsep.join(dict.fromkeys([*ours, *kept]))


def local_spark_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for Spark on this machine alone: this Python, PySpark's Spark, a fit Java, loopback.

    Args:
        environment: Where Java is looked for: ``JAVA_HOME``, then ``PATH``.

    Raises:
        Refused: This machine has no fit Java or no PySpark.
    """
    return {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_HOME": str(pyspark_home()),
        "SPARK_LOCAL_IP": _LOOPBACK,
        "JAVA_HOME": str(require_java(environment)),
    }


def pyspark_home() -> Path:
    """Return PySpark's directory, which is also its ``SPARK_HOME``.

    PySpark is not imported: that would take a second.

    Raises:
        Refused: PySpark is not installed.
    """
    spec = importlib.util.find_spec("pyspark")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        return Path(location)
    raise Refused(
        "PySpark",
        expected="installed",
        observed="not found",
        remedy="Run `pip install 'streamplan[spark]'`, or `make setup` in a clone.",
    )


def spark_submit_configs(master: str) -> dict[str, str]:
    """Return the configurations for ``--conf``.

    The driver's JVM runs on this machine, where the archive of classes is; executors may be anywhere, and get none.
    With ``local[n]`` the tasks run in the driver, whose environment has our package. Elsewhere our Python daemon
    could not be imported, so PySpark's own is used.

    Args:
        master: Spark's master URL.
    """
    options = " ".join(JVM_OPTIONS)
    archive = class_archive()
    shared = (f'"-XX:SharedArchiveFile={archive}"', *QUIET_CLASS_DATA)
    return {
        "spark.driver.extraJavaOptions": " ".join([options, *(shared if archive.exists() else ())]),
        "spark.executor.extraJavaOptions": options,
        # Spark creates it when it looks for a function that it does not know, by default in the working directory.
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir(), "spark-warehouse")),
        "spark.python.worker.faulthandler.enabled": "true",  # for streamplan.spark.noted_records, also with a state
        # With it, PySpark tells the JVM for each expression which line made it: 30 calls more for each.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        **REDACTION,
        **({"spark.python.daemon.module": _PYTHON_DAEMON} if master.partition("[")[0] == "local" else {}),
    }


def image_python() -> dict[str, str]:
    """Return the configurations with which a driver in a pod, and its executors, find the Python of this process.

    Their image is that of this process, so that all paths are the same.
    """
    return {"spark.pyspark.python": sys.executable, "spark.pyspark.driver.python": sys.executable}


def local_submit(job: str, arguments: Sequence[str], jars: Path) -> list[str]:
    """Return the call of spark-submit for a job whose Spark runs on this machine alone.

    Args:
        job: The name of a file in ``streamplan/jobs/``.
        arguments: The arguments of the job.
        jars: The directory of the jars of Spark's Kafka connector.
    """
    configs = {**spark_submit_configs(LOCAL_MASTER), "spark.ui.enabled": "false"}
    return [
        str(pyspark_home() / "bin" / "spark-submit"),
        *("--master", LOCAL_MASTER, "--driver-memory", "1g"),
        *(word for name, value in configs.items() for word in ("--conf", f"{name}={value}")),
        *("--jars", ",".join(map(str, sorted(jars.glob("*.jar"))))),
        str(PACKAGE / "jobs" / job),
        *arguments,
    ]


def class_archive() -> Path:
    """Return where this environment has its archive of Spark's classes. A file of this name is always complete.

    ``streamplan.spark.class_archive`` makes it.
    """
    return Path(sys.prefix) / "share" / "streamplan" / "spark-classes.jsa"
