"""The processes of the jobs, as the operating system shows them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass

import psutil
from streamplan import processes
from streamplan.errors import StreamplanError
from streamplan.settings import Settings

AGGREGATOR_JOB, PRODUCER_JOB = "orders-aggregator", "orders-producer"
PYTHON_DAEMON = "spark.daemon pyspark.worker"
"""In the command of PySpark's daemon, or of ours, and of the workers that it forks; not in that of the driver's JVM."""

KILL_SECONDS = 30.0


@dataclass(frozen=True)
class Jobs:
    """What the supervised jobs of a deployment consist of right now. Nothing is remembered."""

    settings: Settings

    def family(self, job: str) -> list[psutil.Process]:
        """Every living process of a supervised job: its group, and all descendants, parents first."""
        found: dict[int, psutil.Process] = {}
        ref = processes.find(self.settings.run, job)
        if ref is not None:
            leader = psutil.Process(ref.pid)
            for process in [leader, *leader.children(recursive=True)]:
                found[process.pid] = process
        return [process for process in found.values() if alive(process)]

    def matching(self, job: str, *words: str) -> list[psutil.Process]:
        """Those of the job's family with all of the words in their command."""
        return [process for process in self.family(job) if all(word in command(process) for word in words)]

    def driver_jvm(self) -> list[psutil.Process]:
        return self.matching(AGGREGATOR_JOB, "java", "org.apache.spark.deploy.SparkSubmit")

    def driver_python(self) -> list[psutil.Process]:
        found = self.matching(AGGREGATOR_JOB, "python", "aggregator.py")
        return [process for process in found if "SparkSubmit" not in command(process) and not _is_shell(process)]

    def python_workers(self) -> list[psutil.Process]:
        """Forks of the daemon; the daemon itself is the parent of others of its kind."""
        daemons = self.matching(AGGREGATOR_JOB, PYTHON_DAEMON)
        pids = {process.pid for process in daemons}
        return [process for process in daemons if _parent(process) in pids]

    def writers(self) -> list[psutil.Process]:
        """The processes that write transactions: Python workers, or the driver's Python while few records come."""
        return self.python_workers() or self.driver_python()

    def executors(self) -> list[psutil.Process]:
        return self.matching(AGGREGATOR_JOB, "java", "CoarseGrainedExecutorBackend")

    def producer(self) -> list[psutil.Process]:
        found = self.matching(PRODUCER_JOB, "python", "producer.py")
        return [process for process in found if not _is_shell(process)]

    def of_home(self) -> list[psutil.Process]:
        """Every process whose environment says that it belongs to this deployment, orphans too."""
        wanted = str(self.settings.home)
        found = []
        for process in psutil.process_iter():
            try:
                if process.pid != os.getpid() and process.environ().get("STREAMPLAN_HOME") == wanted and alive(process):
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found

    def resume_all(self) -> None:
        """No process of ours stays stopped: SIGTERM would never reach it."""
        for process in self.of_home():
            if process.status() == psutil.STATUS_STOPPED:
                process.resume()


def alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def command(process: psutil.Process) -> str:
    """The command line; empty for one that is gone."""
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return ""


def kill(victims: Iterable[psutil.Process]) -> None:
    """SIGKILL, at once, and wait until all are gone."""
    gone = list(victims)
    for process in gone:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    deadline = time.monotonic() + KILL_SECONDS
    while any(alive(process) for process in gone):
        if time.monotonic() > deadline:
            raise StreamplanError("SIGKILL", expected=f"gone after {KILL_SECONDS:g} s", observed=str(gone))
        time.sleep(0.02)


def _parent(process: psutil.Process) -> int | None:
    try:
        return process.ppid()
    except psutil.NoSuchProcess:
        return None


def _is_shell(process: psutil.Process) -> bool:
    """The wrapper has the whole command of its job in its own."""
    try:
        return os.path.basename(process.cmdline()[0]) in ("sh", "bash", "dash")
    except (psutil.NoSuchProcess, IndexError):
        return False
