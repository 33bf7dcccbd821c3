"""The aggregator job under spark-submit, as a process that a test can kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from streamplan.registry import pipeline_named
from streamplan.settings import PROJECT
from streamplan.spark.submit import LOCAL_MASTER, spark_submit_configs

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
        self.argv = [
            str(Path(sys.executable).with_name("spark-submit")),
            *(
                "--master",
                LOCAL_MASTER,
                "--driver-memory",
                "1g",
                "--conf",
                "spark.ui.enabled=false",
            ),
            *(part for config in spark_submit_configs(LOCAL_MASTER).items() for part in ("--conf", "=".join(config))),
            *("--jars", ",".join(map(str, sorted(jars.glob("*.jar"))))),
            str(PROJECT / "jobs" / "aggregator.py"),
            *("--pipeline", pipeline, "--bootstrap-servers", bootstrap_servers),
            *("--checkpoints", str(home / "checkpoints")),
        ]
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
