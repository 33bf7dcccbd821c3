"""A control plane of the tests' own: etcd of Debian, and Kubernetes built from its Go modules.

Without a node its pods stay ``Pending``. Everything else is real: admission, roles, validation of objects, owners and
their deletion. What was built is kept in the cache of Streamplan.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from streamplan.local.jars import cache_directory

from tests.integration.compose.engine import run

VERSION = "v1.32.13"
"""Kubernetes 1.35 and later refuse nodes with version 1 of control groups."""

STAGED = {"k8s.io/endpointslice": "v0.32.12"}
"""Modules of Kubernetes' own repository of which not every proxy serves the number of :data:`VERSION`."""

PROGRAMS = {"etcd": "etcd-server", "go": "Go of go.dev", "unshare": "util-linux"}
"""What must be installed, and the Debian package that has it."""

HOST = "kubernetes.default.svc"
"""The name of the API server in a cluster."""

ADDRESS = "127.77.0.1"
"""Where the API server listens by default: of loopback, so that its port 443 takes nobody's."""

SERVICES = "10.77.0.0/24"
"""The addresses of services by default."""

NODE = "node"
"""The name of the node, where there is one."""

START_SECONDS = 300
STOP_SECONDS = 60
BUILD_SECONDS = 7200


def missing(address: str | None = ADDRESS) -> str:
    """Return why no control plane can be started on this machine; an empty text if one can.

    Args:
        address: Where its API server would listen; None for an address that this machine does not have yet.
    """
    if os.geteuid() != 0:
        return "port 443 and a mount namespace are for root alone"
    lacking = sorted(package for program, package in PROGRAMS.items() if shutil.which(program) is None)
    if lacking:
        return f"not installed: {', '.join(lacking)}"
    if address is None:
        return ""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, 443))
        except OSError as error:
            return f"{address}:443 is not free: {error}"
    return ""


@dataclass(frozen=True)
class ControlPlane:
    """A running control plane.

    Attributes:
        directory: Its certificates, logs and data.
        programs: The directory of ``kubectl`` and the others.
        address: Where the API server listens, at port 443.
        node_token: With which the node's agent logs in.
    """

    directory: Path
    programs: Path
    address: str
    node_token: str

    @property
    def authority(self) -> Path:
        """The certificate of who has signed that of the API server."""
        return self.directory / "certificates" / "apiserver.crt"

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which ``kubectl`` finds the API server, as its administrator."""
        path = f"{self.programs}{os.pathsep}{os.environ['PATH']}"
        return os.environ | {"KUBECONFIG": str(self.directory / "admin"), "PATH": path}

    def kubectl(self, *arguments: str, seconds: float = 120) -> str:
        """Run ``kubectl`` and return what it printed. A command that fails ends the test with its output."""
        return run([str(self.programs / "kubectl"), *arguments], self.environment, seconds=seconds)

    def objects(self, kinds: str, namespace: str, *more: str) -> list[dict[str, Any]]:
        """Return objects as the API server has them.

        Args:
            kinds: Such as ``pods,secrets``.
        """
        found: list[dict[str, Any]] = json.loads(
            self.kubectl("get", kinds, "--namespace", namespace, "--output", "json", *more)
        )["items"]
        return found


def built(*names: str) -> Path:
    """Return the directory of Kubernetes' programs. Each is built once, which takes some minutes of CPU."""
    directory = cache_directory(os.environ) / f"kubernetes-{VERSION}"
    module = directory / "module"
    module.mkdir(parents=True, exist_ok=True)
    lacking = [name for name in names if not (directory / name).exists()]
    if lacking:
        _write_module(module)
    major, minor, _ = VERSION.removeprefix("v").split(".")
    about = "k8s.io/component-base/version"
    stamp = f"-s -w -X {about}.gitVersion={VERSION} -X {about}.gitMajor={major} -X {about}.gitMinor={minor}"
    environment = os.environ | {"CGO_ENABLED": "0"}
    for name in lacking:
        new = directory / f"{name}.new"
        command = ["go", "build", "-mod=mod", "-trimpath", "-buildvcs=false", "-ldflags", stamp, "-o", str(new)]
        run([*command, f"k8s.io/kubernetes/cmd/{name}"], environment, seconds=BUILD_SECONDS, folder=module)
        new.rename(directory / name)
    return directory


def _write_module(module: Path) -> None:
    """Write a module that requires Kubernetes.

    ``go install`` refuses it, because its own go.mod replaces the modules of its repository by directories that are not
    in its archive. They are published under the same number with the major version 0.
    """
    (module / "go.mod").write_text("module streamplan-tests\n")
    told = run(
        ["go", "mod", "download", "-json", f"k8s.io/kubernetes@{VERSION}"], os.environ, seconds=600, folder=module
    )
    theirs = Path(json.loads(told)["GoMod"]).read_text()
    staged = re.findall(r"^\t(\S+) => \./staging/", theirs, re.MULTILINE)
    lines = ["module streamplan-tests", *re.findall(r"^(?:go|godebug) .*$", theirs, re.MULTILINE)]
    lines += [f"require k8s.io/kubernetes {VERSION}"]
    number = f"v0{VERSION.removeprefix('v1')}"
    lines += [f"replace {name} => {name} {STAGED.get(name, number)}" for name in staged]
    (module / "go.mod").write_text("\n".join(lines) + "\n")


@contextmanager
def running_control_plane(
    directory: Path, *, address: str = ADDRESS, services: str = SERVICES
) -> Iterator[ControlPlane]:
    """Start etcd, the API server and the controller manager, and stop them by their pids.

    Args:
        directory: For their data and logs.
        address: Where the API server listens.
        services: The addresses of services.
    """
    programs = built("kube-apiserver", "kube-controller-manager", "kubectl")
    plane = ControlPlane(directory, programs, address, secrets.token_hex(16))
    client, peer, controllers = free_ports(3)
    token = secrets.token_hex(16)
    users = [f"{token},admin,admin,system:masters", f"{plane.node_token},system:node:{NODE},{NODE},system:nodes"]
    write_private(directory / "tokens", "\n".join(users) + "\n")
    write_private(directory / "admin", kubeconfig(plane, token))
    accounts = directory / "service-accounts.key"
    write_private(accounts, _key())
    etcd, peers = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
    store = [
        *("etcd", "--name=only", f"--data-dir={directory / 'etcd'}"),
        *(f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}"),
        *(f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}", f"--initial-cluster=only={peers}"),
    ]
    server = [
        str(programs / "kube-apiserver"),
        f"--etcd-servers={etcd}",
        *(f"--bind-address={address}", "--secure-port=443", f"--advertise-address={address}"),
        f"--cert-dir={plane.authority.parent}",
        f"--service-cluster-ip-range={services}",
        "--endpoint-reconciler-type=none",  # who asks for the service `kubernetes` is led to `address`
        "--kubelet-preferred-address-types=InternalIP",
        "--authorization-mode=Node,RBAC",
        "--feature-gates=WatchList=false",  # Debian's etcd 3.4 cannot tell the progress of a watch
        f"--token-auth-file={directory / 'tokens'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        *(f"--service-account-signing-key-file={accounts}", f"--service-account-key-file={accounts}"),
    ]
    controller_manager = [
        str(programs / "kube-controller-manager"),
        f"--kubeconfig={directory / 'admin'}",
        *("--bind-address=127.0.0.1", f"--secure-port={controllers}"),
        f"--cert-dir={directory / 'certificates of controllers'}",
        "--leader-elect=false",
        f"--root-ca-file={plane.authority}",
    ]
    with process(store, directory / "etcd.log"), process(server, directory / "kube-apiserver.log") as started:
        _await_ready(plane, started)
        with process(controller_manager, directory / "kube-controller-manager.log"):
            yield plane


def write_private(file: Path, content: str) -> None:
    """Write a file that its owner alone reads."""
    file.touch(0o600)
    file.write_text(content)


def _await_ready(plane: ControlPlane, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    command = [str(plane.programs / "kubectl"), "get", "--raw=/readyz"]
    while subprocess.run(command, env=plane.environment, capture_output=True, check=False).returncode:
        said = (plane.directory / "kube-apiserver.log").read_text(errors="replace")[-3000:]
        assert server.poll() is None, f"kube-apiserver has ended\n{said}"
        assert time.monotonic() < deadline, f"kube-apiserver is not ready after {START_SECONDS} s\n{said}"
        time.sleep(0.5)


@contextmanager
def process(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program, and stop it by its pid."""
    with log.open("wb") as said:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_ports(number: int) -> list[int]:
    """Return ports of loopback that nobody has now."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(number)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def _key() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form = serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


def kubeconfig(plane: ControlPlane, token: str) -> str:
    """Return a configuration with which programs of Kubernetes log in. They take JSON as well as YAML."""
    cluster = {"server": f"https://{plane.address}:443", "certificate-authority": str(plane.authority)}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "tests",
            "clusters": [{"name": "tests", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": token}}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "admin"}}],
        }
    )
