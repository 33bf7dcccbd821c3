"""Makes an archive of Spark's classes, so that a driver starts some seconds sooner (class-data sharing, JEP 350).

Without the archive each driver loads and verifies thousands of classes. ``python -m streamplan.spark.class_archive``
makes it once for each environment. ``make demo`` calls it when the pipeline is deployed, ``make test`` beside the first
tests. The JVM refuses an archive that was made for other jars or by another Java, and then loads the classes as usual.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from streamplan.errors import StreamplanError
from streamplan.settings import Settings
from streamplan.spark.submit import JVM_OPTIONS, QUIET_CLASS_DATA, class_archive, pyspark_home, submit_environment

TRAINING_SECONDS = 900


def make_class_archive(environment: Mapping[str, str], log_file: Path) -> None:
    """Run Spark once (``training.py``), and keep the classes that it has loaded.

    Args:
        environment: The environment of the run; Java is looked for in it.
        log_file: Gets the output of the run.

    Raises:
        StreamplanError: The run failed or took too long. The message names the log.
    """
    archive = class_archive()
    archive.parent.mkdir(parents=True, exist_ok=True)
    log_file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=".spark-classes-") as scratch:
        draft = Path(scratch) / "draft.jsa"
        options = [*JVM_OPTIONS, f'"-XX:ArchiveClassesAtExit={draft}"', *QUIET_CLASS_DATA]
        argv = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2]"]
        argv += ["--conf", f"spark.driver.extraJavaOptions={' '.join(options)}", "--conf", "spark.ui.enabled=false"]
        argv += [str(Path(__file__).with_name("training.py")), str(Path(scratch) / "checkpoint")]
        fault = _run(argv, Path(scratch), submit_environment(environment, local=True), log_file)
        if fault is not None:
            raise StreamplanError(
                "archive of Spark's classes",
                expected=f"made within {TRAINING_SECONDS:g} s",
                observed=fault,
                remedy=f"See {log_file}. Spark runs without the archive, and starts some seconds later.",
            )
        draft.replace(archive)


def _run(argv: list[str], directory: Path, environment: Mapping[str, str], log_file: Path) -> str | None:
    """Run a command to its end. Returns what went wrong, or None."""
    try:
        with log_file.open("wb") as log:
            status = subprocess.call(
                argv,
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=TRAINING_SECONDS,
            )
    except subprocess.TimeoutExpired:
        return "still running by then"
    return f"exit status {status}" if status else None


def main() -> int:
    """Make the archive unless there is one that is younger than PySpark's jars. A failure is reported and ignored."""
    archive, jars = class_archive(), pyspark_home() / "jars"
    if not archive.exists() or archive.stat().st_mtime < jars.stat().st_mtime:
        sys.stdout.write("Writing an archive of Spark's classes, once: later starts are some seconds shorter.\n")
        sys.stdout.flush()
        try:
            make_class_archive(os.environ, Settings.from_environment().logs / "spark-classes.log")
        except StreamplanError as error:
            sys.stderr.write(f"{error}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
