"""Pods of Airflow: one that runs, and a process of this machine that looks like one to Spark and Streamplan."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tests.integration.compose.engine import run
from tests.integration.kubernetes import airflow_steps
from tests.integration.kubernetes.control_plane import HOST, ControlPlane

PROGRAM = Path(airflow_steps.__file__)
MOUNTED = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where Kubernetes mounts the files of a service account."""

STEP_SECONDS = 900

AS_POD = f"""
mount -t tmpfs tmpfs "$(realpath /var/run)"
mkdir -p "$(dirname {MOUNTED})"
cp -r "$1/account" {MOUNTED}
mount --bind "$1/hosts" /etc/hosts
shift
exec "$@"
"""


class AirflowPod(Protocol):
    """A pod of Airflow."""

    def step(self, name: str, argument: str) -> dict[str, Any]:
        """Run a step of :mod:`.airflow_steps`, and return its outcome."""


@dataclass(frozen=True)
class LikePod:
    """A mount namespace in which the files of a service account lie where they lie in a pod.

    Attributes:
        mounts: The directory of these files.
        environment: The environment variables of its processes.
    """

    mounts: Path
    environment: Mapping[str, str]

    @classmethod
    def make(
        cls, plane: ControlPlane, account: tuple[str, str], mounts: Path, environment: Mapping[str, str]
    ) -> LikePod:
        """Write the files.

        Args:
            account: The namespace and the name of the service account.
            mounts: A new directory.
            environment: The environment variables of its processes.
        """
        namespace, name = account
        directory = mounts / "account"
        directory.mkdir(parents=True)
        (directory / "token").write_text(plane.kubectl("create", "token", name, "--namespace", namespace))
        (directory / "ca.crt").write_text(plane.authority.read_text())
        (directory / "namespace").write_text(namespace)
        (mounts / "hosts").write_text(f"{Path('/etc/hosts').read_text()}\n{plane.address} {HOST}\n")
        service = {"KUBERNETES_SERVICE_HOST": plane.address, "KUBERNETES_SERVICE_PORT": "443"}  # as in each pod
        own = {name: value for name, value in environment.items() if name != "KUBECONFIG"}  # Spark's client prefers it
        return cls(mounts, {**own, **service})

    def step(self, name: str, argument: str) -> dict[str, Any]:
        words = ["unshare", "--mount", "--propagation", "private", "bash", "-euc", AS_POD, "bash", str(self.mounts)]
        return _outcome(
            run([*words, sys.executable, str(PROGRAM), name, argument], self.environment, seconds=STEP_SECONDS)
        )


@dataclass(frozen=True)
class RunningPod:
    """A pod of the image, which waits for commands.

    Attributes:
        name: Its name in the namespace ``airflow``.
    """

    plane: ControlPlane
    name: str

    def step(self, name: str, argument: str) -> dict[str, Any]:
        command = ["python", "-c", PROGRAM.read_text(), name, argument]
        return _outcome(
            self.plane.kubectl("exec", "--namespace", "airflow", self.name, "--", *command, seconds=STEP_SECONDS)
        )

    def begin(self, name: str, argument: str) -> subprocess.Popen[bytes]:
        """Run a step in the background."""
        command = ["kubectl", "exec", "--namespace", "airflow", self.name, "--", "python", "-c", PROGRAM.read_text()]
        return subprocess.Popen(
            [*command, name, argument], env=self.plane.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )


def _outcome(said: str) -> dict[str, Any]:
    outcome: dict[str, Any] = json.loads(said.splitlines()[-1])
    return outcome
