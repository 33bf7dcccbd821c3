"""What only spark-submit can set, since the JVM has it from its start: options, and an archive of Spark's classes.

Without the archive a driver loads and verifies thousands of classes anew with each start (class-data sharing, JEP 350).
It is made once for each environment, by ``python -m streamplan.spark.submit`` (``make setup`` calls it); the
JVM refuses one that was made for other jars or by another Java, and goes on without.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from streamplan.errors import StreamplanError
from streamplan.local.jars import pyspark_home
from streamplan.local.java import require_java
from streamplan.settings import Settings

_JVM_OPTIONS = (
    # A micro-batch of few records goes once through much of Spark. C2 compiles all of that after 5,000 calls, and
    # takes a quarter of a core for minutes; what is called for each record passes thirty times that soon enough.
    "-XX:Tier4InvocationThreshold=150000",
    "-XX:Tier4MinInvocationThreshold=20000",
    "-XX:Tier4CompileThreshold=500000",
    "-XX:Tier4BackEdgeThreshold=400000",
    # On few cores it takes less CPU than G1, and nobody waits for its pauses: a micro-batch is longer.
    "-XX:+UseParallelGC",
    # Arrow checks bounds and nulls with each access else; Spark's writers know both.
    "-Darrow.enable_unsafe_memory_access=true",
    "-Darrow.enable_null_check_for_get=false",
)

# An archive that does not fit is no news: the JVM goes on without. Nor is what cannot be kept in one.
_NOT_TOLD = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")

LOCAL_MASTER = "local[3,4]"
"""Spark in one JVM on this machine, for the demo's two cores and upwards.

Three tasks at a time: most of what a task takes it waits for the brokers, and with two the first micro-batch of one
sub-topology keeps all others waiting. Four tries of each: plain ``local[3]`` would end the query at the first failure.
"""

_PYTHON_DAEMON = "streamplan.spark.daemon"

TRAINING_SECONDS = 300


def spark_submit_configs(master: str) -> dict[str, str]:
    """For ``--conf``. The driver's JVM is spark-submit's own and has the archive; executors may be anywhere.

    With ``local[n]`` the tasks run in the driver, whose environment has our package; where else they run a daemon of
    ours could not be imported.
    """
    options = " ".join(_JVM_OPTIONS)
    archive = class_archive()
    shared = (f'"-XX:SharedArchiveFile={archive}"', *_NOT_TOLD)
    return {
        "spark.driver.extraJavaOptions": " ".join([options, *(shared if archive.exists() else ())]),
        "spark.executor.extraJavaOptions": options,
        **({"spark.python.daemon.module": _PYTHON_DAEMON} if master.partition("[")[0] == "local" else {}),
    }


def class_archive() -> Path:
    """Where this environment has its archive. A file of this name is always complete."""
    return Path(sys.prefix) / "share" / "streamplan" / "spark-classes.jsa"


def make_class_archive(environment: Mapping[str, str], log_file: Path) -> None:
    """Run Spark once, and keep the classes that it has loaded. Raises StreamplanError (naming the log) if it fails."""
    archive = class_archive()
    archive.parent.mkdir(parents=True, exist_ok=True)
    log_file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=".spark-classes-") as scratch:
        draft = Path(scratch) / "draft.jsa"
        options = [*_JVM_OPTIONS, f'"-XX:ArchiveClassesAtExit={draft}"', *_NOT_TOLD]
        argv = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2]"]
        argv += ["--conf", f"spark.driver.extraJavaOptions={' '.join(options)}", "--conf", "spark.ui.enabled=false"]
        argv += [str(Path(__file__).with_name("training.py")), str(Path(scratch) / "checkpoint")]
        own = {
            "JAVA_HOME": str(require_java(environment)),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_HOME": str(pyspark_home()),  # spark-submit does not find it in a path with a space
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        fault: str | None = None
        try:
            with log_file.open("wb") as log:
                status = subprocess.call(
                    argv,
                    cwd=scratch,
                    env={**environment, **own},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    timeout=TRAINING_SECONDS,
                )
        except subprocess.TimeoutExpired:
            fault = "none by then"
        else:
            if status:
                fault = f"exit status {status}"
        if fault:
            raise StreamplanError(
                "archive of Spark's classes",
                expected=f"made within {TRAINING_SECONDS:g} s",
                observed=fault,
                remedy=f"See {log_file}. Spark runs without, and starts some seconds later.",
            )
        draft.replace(archive)


def main() -> int:
    begun = time.monotonic()
    archive, jars = class_archive(), pyspark_home() / "jars"
    if not archive.exists() or archive.stat().st_mtime < jars.stat().st_mtime:
        try:
            make_class_archive(os.environ, Settings.from_environment().logs / "spark-classes.log")
        except StreamplanError as error:
            sys.stderr.write(f"{error}\n")
        else:
            sys.stdout.write(f"[{time.monotonic() - begun:5.1f} s] Spark's classes are in {archive}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
