"""A real Spark standalone cluster on this machine: a master, and workers of one core each. One executor a worker.

Each is a process of its own, registered in ``run/``: a worker is started, stopped and killed like a machine would be.
Everything listens on loopback alone.
"""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from streamplan import processes
from streamplan.errors import StreamplanError
from streamplan.local.ports import LOOPBACK, Ports
from streamplan.settings import Settings
from streamplan.spark.submit import local_spark_variables, pyspark_home

MASTER = "spark-master"
MASTER_UI = "spark-master-ui"
DEFAULT_PORTS = {MASTER: 7077, MASTER_UI: 8090}
READY_SECONDS = 300.0
ANSWER_SECONDS = 60.0
DAEMON_MEMORY = "256m"
"""Heap of the master and of each worker; executors have their own."""

_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


@dataclass(frozen=True)
class Worker:
    """As the master sees it. ``id`` is Spark's; ``cores_used`` those that executors have."""

    id: str
    port: int
    alive: bool
    cores: int
    cores_used: int


class EmbeddedSpark:
    """The master and the workers, numbered from 1, of the deployment that ``settings`` describe."""

    def __init__(
        self,
        settings: Settings,
        ports: Ports,
        *,
        environment: Mapping[str, str] | None = None,
        memory: str = "1g",
        worker_timeout_seconds: int = 60,
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        """``memory`` of each worker, for its executor.

        ``worker_timeout_seconds``  after which the master gives up a worker that says nothing and is still connected;
                                    one that was killed closes its connection and is given up at once
        """
        self._settings = settings
        self._ports = ports
        self._outer = os.environ if environment is None else environment
        self._memory = memory
        self._worker_timeout_seconds = worker_timeout_seconds
        self._report = report

    @property
    def url(self) -> str:
        """For ``--master``."""
        return f"spark://{LOOPBACK}:{self._ports[MASTER]}"

    def log_file(self, name: str) -> Path:
        return self._settings.logs / f"{name}.log"

    def start_master(self, *, deadline_seconds: float = READY_SECONDS) -> str:
        """Start the master unless it runs, wait until it serves, and return its URL."""
        if self._process(MASTER) is None:
            self._ports.choose(MASTER, self._report)
            self._ports.choose(MASTER_UI, self._report)
            options = ["--host", LOOPBACK, "--port", str(self._ports[MASTER])]
            self._start(MASTER, "master.Master", [*options, "--webui-port", str(self._ports[MASTER_UI])])
        self._await([MASTER], "the master serves", lambda: self._state() is not None, deadline_seconds)
        return self.url

    def start_workers(self, *numbers: int, deadline_seconds: float = READY_SECONDS) -> None:
        """Start those that do not run, and wait until the master knows them."""
        missing = [number for number in numbers if self.worker_process(number) is None]
        before = {worker.id for worker in self.workers() if worker.alive}
        for number in missing:
            directory = self._settings.home / "spark-work" / _name(number)
            directory.mkdir(parents=True, exist_ok=True)
            options = ["--host", LOOPBACK, "--cores", "1", "--memory", self._memory, "--work-dir", str(directory)]
            self._start(_name(number), "worker.Worker", [*options, "--port", "0", "--webui-port", "0", self.url])
        self._await(
            [MASTER, *map(_name, missing)],
            f"{len(missing)} more workers registered",
            lambda: len({worker.id for worker in self.workers() if worker.alive} - before) >= len(missing),
            deadline_seconds,
        )

    def scale(self, count: int) -> None:
        """So many workers run afterwards: those from 1 to ``count``."""
        for number in self.running():
            if number > count:
                self.stop_worker(number)
        self.start_workers(*range(1, count + 1))

    def running(self) -> list[int]:
        """The numbers of the workers whose processes are alive."""
        prefix = _name("")
        found = processes.registered(self._settings.run)
        return sorted(int(ref.name.removeprefix(prefix)) for ref in found if ref.name.startswith(prefix)
                      and processes.is_alive(ref))  # fmt: skip

    def stop_worker(self, number: int) -> bool:
        """Stop a worker and its executors in good order; False when it was not running."""
        ref = self.worker_process(number)
        if ref is not None:
            processes.stop(ref)
        return ref is not None

    def kill_worker(self, number: int) -> list[int]:
        """SIGKILL for a worker, its executors and their Python workers at one stroke, as when its machine dies.

        Returns the pids.
        """
        worker = self._running(number)
        family = [worker, *worker.children(recursive=True)]
        return _kill(family)

    def kill_master(self) -> None:
        """SIGKILL for the master. The next one has forgotten the applications."""
        ref = self._process(MASTER)
        assert ref is not None
        master = psutil.Process(ref.pid)
        _kill([master])
        psutil.wait_procs([master], ANSWER_SECONDS)

    def kill_executors(self, number: int) -> list[int]:
        """SIGKILL for the executors of a worker alone, which then starts another one. Returns their pids."""
        return _kill(self._executors(number))

    def executor_pids(self, number: int) -> list[int]:
        """Of the executors that the worker runs now; empty for one that waits."""
        return [child.pid for child in self._executors(number)]

    def _executors(self, number: int) -> list[psutil.Process]:
        """Not Hadoop's helpers, which a worker that has just started has as children, too."""
        return [child for child in self._running(number).children() if _EXECUTOR in _command_line(child)]

    def workers(self) -> list[Worker]:
        """The workers as the master's page shows them.

        Raises:
            StreamplanError: The page did not answer within ``ANSWER_SECONDS``.
        """
        deadline = time.monotonic() + ANSWER_SECONDS
        while (state := self._state()) is None:
            if time.monotonic() > deadline:
                raise StreamplanError(
                    f"Spark master at {self._status_url}",
                    expected=f"an answer within {ANSWER_SECONDS:g} s",
                    observed="none",
                    remedy=f"See {self.log_file(MASTER)}.",
                )
            time.sleep(0.1)
        return [
            Worker(one["id"], one["port"], one["state"] == "ALIVE", one["cores"], one["coresused"])
            for one in state["workers"]
        ]

    def worker_process(self, number: int) -> processes.ProcessRef | None:
        """The running process of a worker, or None."""
        return self._process(_name(number))

    def down(self) -> list[str]:
        """Stop the workers, then the master; the names of what ran."""
        numbers = self.running()
        stopped = [_name(number) for number in numbers if self.stop_worker(number)]
        master = self._process(MASTER)
        for ref in processes.registered(self._settings.run):
            if ref.name == MASTER or ref.name.startswith(_name("")):
                processes.stop(ref)  # entries of killed ones, too
        return stopped + ([MASTER] if master else [])

    @property
    def _status_url(self) -> str:
        return f"http://{LOOPBACK}:{self._ports[MASTER_UI]}/json/"

    def _state(self) -> dict[str, Any] | None:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback needs no proxy
        try:
            with opener.open(self._status_url, timeout=ANSWER_SECONDS) as answer:
                state: dict[str, Any] = json.load(answer)
        except (urllib.error.URLError, TimeoutError, ConnectionError, ValueError):
            return None
        # Another master that took the port meanwhile is not ours.
        return state if state.get("url") == self.url and state.get("status") == "ALIVE" else None

    def _start(self, name: str, main: str, options: list[str]) -> None:
        kept = {key: value for key, value in self._outer.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
        environment = {
            **kept,
            **local_spark_variables(self._outer),
            "SPARK_DAEMON_MEMORY": DAEMON_MEMORY,
            "SPARK_MASTER_OPTS": f"-Dspark.worker.timeout={self._worker_timeout_seconds}",
            # What applications leave in the work directory is removed, an hour after they have ended.
            "SPARK_WORKER_OPTS": "-Dspark.worker.cleanup.enabled=true -Dspark.worker.cleanup.appDataTtl=3600",
        }
        processes.start(
            name,
            [str(pyspark_home() / "bin" / "spark-class"), f"org.apache.spark.deploy.{main}", *options],
            env=environment,
            log_file=self.log_file(name),
            run_dir=self._settings.run,
        )

    def _await(self, names: list[str], what: str, ready: Callable[[], bool], deadline_seconds: float) -> None:
        begun = time.monotonic()
        while not ready():
            waited = time.monotonic() - begun
            gone = [name for name in names if self._process(name) is None]
            if gone or waited > deadline_seconds:
                raise StreamplanError(
                    f"Spark cluster at {self.url}",
                    expected=what,
                    observed=f"{f'the process of {gone[0]} ended' if gone else 'not yet'} after {waited:.1f} s",
                    remedy=f"See {self.log_file((gone or names)[0])}.",
                )
            time.sleep(0.1)

    def _process(self, name: str) -> processes.ProcessRef | None:
        return processes.find(self._settings.run, name)

    def _running(self, number: int) -> psutil.Process:
        ref = self.worker_process(number)
        if ref is None:
            raise StreamplanError(f"Spark worker {number}", expected="running", observed="no process of it")
        return psutil.Process(ref.pid)


def _name(number: int | str) -> str:
    return f"spark-worker-{number}"


def _command_line(process: psutil.Process) -> list[str]:
    """Empty for one that has ended meanwhile."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def _kill(family: list[psutil.Process]) -> list[int]:
    for process in family:
        try:
            process.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            continue
    return [process.pid for process in family]
