"""What only reads, beside the system that is broken: the exporter of metrics, and the service of queries."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from streamplan.errors import StreamplanError
from streamplan.settings import PROJECT

from tests.chaos.waiting import wait_for

STORE = "orders-products-quantities"
COMMANDS = {"exporter": ("exporter", "orders"), "serve": ("serve", "orders")}
PATHS = {"exporter": "/metrics", "serve": "/health"}
ANSWERING = re.compile(rb"^streamplan_brokers_answering\{[^}]*\} 1", re.MULTILINE)
"""Of the metrics while the brokers answer."""

ANSWER_SECONDS = 300.0
STOP_SECONDS = 60.0


class Readers:
    """The two processes. They must live through each fault, and answer as soon as the brokers do.

    Args:
        ports: By the name of each.
        environment: Gives that of the deployment, so that they count among its processes.
        servers: Where clients find the brokers.
        logs: The directory of their logs.
    """

    def __init__(
        self, ports: Mapping[str, int], environment: Callable[[], Mapping[str, str]], servers: str, logs: Path
    ) -> None:
        self._urls = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
        self._ports, self._environment, self._servers, self._logs = ports, environment, servers, logs
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        for name, words in COMMANDS.items():
            options = ("--port", str(self._ports[name]), "--bootstrap-servers", self._servers)
            with (self._logs / f"chaos-{name}.log").open("ab") as log:
                self._processes[name] = subprocess.Popen(
                    [sys.executable, "-m", "streamplan", *words, *options],
                    env=dict(self._environment()),
                    cwd=PROJECT,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )

    def stop(self) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def await_answers(self) -> None:
        """Wait until both answer, each by its first process."""
        for name, path in PATHS.items():
            wait_for(f"an answer of {name}", partial(self._lacking, name, path), ANSWER_SECONDS)

    def _lacking(self, name: str, path: str) -> str:
        status = self._processes[name].poll()
        if status is not None:
            raise StreamplanError(name, expected="still running", observed=f"exit status {status}")
        try:
            answer = self._ask(name, path)
        except OSError as error:
            return str(error)
        return "" if name == "serve" or ANSWERING.search(answer) else "the metrics say that no broker answers"

    def totals(self) -> dict[bytes, int]:
        """Return what the service of queries says of all keys."""
        found = json.loads(self._ask("serve", f"/stores/{STORE}/all?limit=100000"))
        return {str(each["key"]).encode(): int(each["value"]) for each in found["entries"]}

    def _ask(self, name: str, path: str) -> bytes:
        with urllib.request.urlopen(f"{self._urls[name]}{path}", timeout=60) as answer:
            content: bytes = answer.read()
        return content
