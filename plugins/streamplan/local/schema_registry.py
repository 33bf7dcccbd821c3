"""The stand-in for a Schema Registry on this machine, for pipelines whose values name a schema.

Its schemas, its password and its port survive ``down`` and ``up``. A deployment that had one once keeps it, because the
pipelines of earlier demonstrations go on.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import httpx

from streamplan import processes
from streamplan.errors import StreamplanError
from streamplan.files import write_atomically
from streamplan.kafka.schema_registry import URL
from streamplan.local.ports import LOOPBACK, Ports
from streamplan.settings import Settings
from streamplan.spark.submit import import_path

PROCESS = "schema-registry"
DEFAULT_PORTS = {PROCESS: 8081}
READY_SECONDS = 30.0
_USER = "streamplan"
_USER_INFO = "basic.auth.user.info"
_ANSWER_SECONDS = 5.0


class LocalSchemaRegistry:
    """The registry of the deployment that ``settings`` describe."""

    def __init__(
        self,
        settings: Settings,
        ports: Ports,
        *,
        environment: Mapping[str, str] | None = None,
        wanted: bool = False,
    ) -> None:
        """Describe the registry; nothing is started.

        Args:
            environment: The environment of the process; by default that of this process.
            wanted: Whether a deployment that had none gets one.
        """
        self._settings = settings
        self._ports = ports
        self._environment = os.environ if environment is None else environment
        self._home = settings.home / PROCESS
        self._password_file = self._home / "user-info"
        self._wanted = wanted

    @property
    def is_used(self) -> bool:
        """Whether the deployment has a registry, or is to get one."""
        return self._wanted or self._password_file.exists()

    @property
    def address(self) -> str:
        """The address at which it serves."""
        return f"http://{LOOPBACK}:{self._ports[PROCESS]}"

    @property
    def properties(self) -> dict[str, str]:
        """The client properties to connect with; empty where there is none."""
        if not self._password_file.exists():
            return {}
        return {URL: self.address, _USER_INFO: self._password_file.read_text()}

    @property
    def log_file(self) -> Path:
        """The log of the process."""
        return self._settings.logs / f"{PROCESS}.log"

    def process(self) -> processes.ProcessRef | None:
        """Return the running process, or None."""
        ref = processes.find(self._settings.run, PROCESS)
        return ref if ref is not None and processes.is_alive(ref) else None

    def start(self, report: Callable[[str], None]) -> None:
        """Start it, unless it runs or is not used, without waiting until it serves (:meth:`wait_until_ready`).

        Args:
            report: Gets a line when its port is taken.
        """
        if not self.is_used or self.process() is not None:
            return
        port = self._ports.choose(PROCESS, report)
        if not self._password_file.exists():
            write_atomically(self._password_file, f"{_USER}:{secrets.token_urlsafe(24)}", mode=0o600)
        argv = [sys.executable, "-m", "streamplan.local.schema_registry_server", f"--port={port}"]
        argv += [f"--file={self._home / 'schemas.json'}", f"--user-info={self._password_file}"]
        processes.start(
            PROCESS,
            argv,
            env={**self._environment, "PYTHONPATH": import_path(self._environment)},
            log_file=self.log_file,
            cwd=self._home,
            run_dir=self._settings.run,
        )

    def wait_until_ready(self, *, deadline_seconds: float = READY_SECONDS) -> None:
        """Wait until it answers.

        Raises:
            StreamplanError: The deadline has passed, or the process has ended. It names the address and the log.
        """
        begun = time.monotonic()
        while (fault := self.probe()) is not None:
            waited = time.monotonic() - begun
            ended = self.process() is None
            if ended or waited > deadline_seconds:
                raise StreamplanError(
                    f"Schema Registry at {self.address}",
                    expected="an answer",
                    observed=f"{'its process ended' if ended else fault} after {waited:.1f} s",
                    remedy=f"See {self.log_file}.",
                )
            time.sleep(0.05)

    def probe(self) -> str | None:
        """Ask for its subjects. Return None when it answers, else what is wrong.

        Another server that has taken the port refuses the password.
        """
        user, _, password = self.properties.get(_USER_INFO, "").partition(":")
        try:
            # The server is on loopback, so proxies of the environment are ignored.
            answer = httpx.get(
                f"{self.address}/subjects", auth=(user, password), timeout=_ANSWER_SECONDS, trust_env=False
            )
            answer.raise_for_status()
        except httpx.HTTPError as error:
            return str(error)
        return None

    def down(self) -> list[str]:
        """Stop it and return its name if it ran."""
        ref = self.process()
        if ref is None:
            return []
        processes.stop(ref)
        return [PROCESS]
