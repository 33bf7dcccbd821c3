"""The aggregator job under spark-submit, as a process that a test can kill."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from streamplan.registry import pipeline_named
from streamplan.spark.submit import local_submit

from tests.support.waiting import DEADLINE_SECONDS, eventually

ORDERS = pipeline_named("orders")


REPARTITION = ORDERS.topology.decorate("orders-products-quantities-repartition")


CHANGELOG = ORDERS.topology.changelog_topic("orders-products-quantities")


class Aggregator:
    """``jobs/aggregator.py`` under spark-submit, in a process group of its own."""

    def __init__(
        self,
        bootstrap_servers: str,
        home: Path,
        environment: Mapping[str, str],
        jars: Path,
        *,
        pipeline: str = "orders",
    ) -> None:
        self.log = home / "aggregator.log"
        arguments = ["--pipeline", pipeline, "--bootstrap-servers", bootstrap_servers]
        arguments += ["--checkpoints", str(home / "checkpoints")]
        self.argv = local_submit("aggregator.py", arguments, jars)
        self.environment = environment
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.argv, *more],
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self.process

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(600)


def await_condition(what: str, condition: Callable[[], bool], log: Path, seconds: float = DEADLINE_SECONDS) -> None:
    """Wait until ``condition`` holds. When it does not, the test fails with the end of ``log``."""
    eventually(condition, what, seconds, interval=0.05, evidence=lambda: f"the log ends:\n{log.read_text()[-3000:]}")
