"""A node of the tests' own: containerd, the kubelet and a scheduler, by which pods run.

The node has namespaces of its own for mounts, processes and the network. So everything that it starts and mounts ends
with it, its bridge and its rules of iptables, too. A virtual cable joins it with this machine.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from streamplan.local.jars import cache_directory

from tests.integration.compose.engine import Engine, run
from tests.integration.kubernetes.control_plane import (
    NODE,
    ControlPlane,
    built,
    free_ports,
    kubeconfig,
    process,
    write_private,
)
from tests.support.waiting import eventually

PROGRAMS = {"containerd": "containerd", "runc": "runc", "ip": "iproute2", "iptables": "iptables"}
"""What must be installed besides the programs of the control plane, and the Debian package that has it."""

PLUGINS = Path("/usr/lib/cni")
"""Of Debian's containernetworking-plugins."""

LINK, END = "streamplan-k8s", "streamplan-node"
"""The two ends of the cable: of this machine, and of the node."""

# The range 198.18.0.0/15 is for tests of networks (RFC 2544).
HOST_ADDRESS = "198.18.0.1"
NODE_ADDRESS = "198.18.0.2"
SERVICES = "198.18.1.0/24"
API_ADDRESS = "198.18.1.1"
"""The first address of the services. Pods are told that the API server is there."""
PODS = "198.18.2.0/24"

PAUSE = "streamplan-tests/pause:1"
"""The image of what holds the namespaces of a pod."""

READY_SECONDS = 600
IMPORT_SECONDS = 3600
GROUPS = Path("/sys/fs/cgroup")

TUNED = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}
"""What the kubelet sets for the whole machine. Instead it sees files of these values."""

NETWORK = f"""
while ! ip link show {END} > /dev/null 2>&1; do sleep 0.1; done
ip link set {END} name eth0
ip link set lo up
ip address add {NODE_ADDRESS}/24 dev eth0
ip link set eth0 up
ip route add default via {HOST_ADDRESS}
exec unshare --mount --propagation private --pid --uts --ipc --fork --kill-child --mount-proc bash -euc "$@"
"""

START = f"""
directory=$1 socket=$2 kubelet=$3
hostname {NODE}
echo 1 > /proc/sys/net/ipv4/ip_forward
mount -t tmpfs tmpfs "$(realpath /var/run)"
mount --bind "$directory/log" /var/log
cd "$directory/sys"
find * -type f | while read -r file; do mount --bind "$file" "/proc/sys/$file"; done
containerd --config "$directory/containerd.toml" > "$directory/containerd.log" 2>&1 &
while ! ctr --address "$socket" version > /dev/null 2>&1; do sleep 0.2; done
"$kubelet" --config "$directory/kubelet.json" --kubeconfig "$directory/kubeconfig" --hostname-override={NODE} \\
  --node-ip={NODE_ADDRESS} --root-dir="$directory/kubelet" --cert-dir="$directory/certificates" \\
  > "$directory/kubelet.log" 2>&1 &
wait
"""


def missing() -> str:
    """Return why no node can be started on this machine; an empty text if one can."""
    lacking = sorted(package for program, package in PROGRAMS.items() if shutil.which(program) is None)
    lacking += [] if (PLUGINS / "bridge").exists() else ["containernetworking-plugins"]
    if lacking:
        return f"not installed: {', '.join(lacking)}"
    return "" if (GROUPS / "memory").is_dir() else "Debian's containerd 1.6 was tried with control groups of version 1"


@contextmanager
def cable() -> Iterator[None]:
    """Make the cable and give this machine's end its addresses, of which one is the API server's."""
    run(["ip", "link", "add", LINK, "type", "veth", "peer", "name", END], os.environ, seconds=30)
    try:
        for address in (f"{HOST_ADDRESS}/24", f"{API_ADDRESS}/32"):
            run(["ip", "address", "add", address, "dev", LINK], os.environ, seconds=30)
        run(["ip", "link", "set", LINK, "up"], os.environ, seconds=30)
        yield
    finally:
        subprocess.run(["ip", "link", "delete", LINK], capture_output=True, timeout=30, check=False)


@dataclass(frozen=True)
class Node:
    """A running node.

    Attributes:
        directory: Its logs and data.
        socket: Where its containerd listens.
    """

    directory: Path
    socket: Path

    def take(self, engine: Engine, image: str) -> None:
        """Take an image from an engine. It was taken before where its id is the same."""
        number = engine.docker("inspect", "--format", "{{.Id}}", image).strip()
        taken = _images() / "taken.json"
        known: dict[str, str] = json.loads(taken.read_text()) if taken.exists() else {}
        if known.get(image) == number:
            return
        script = 'docker save "$1" | ctr --address "$2" --namespace k8s.io images import -'
        command = ["bash", "-euo", "pipefail", "-c", script, "bash", image, str(self.socket)]
        run(command, engine.environment(), seconds=IMPORT_SECONDS)
        taken.write_text(json.dumps({**known, image: number}))

    def log(self) -> str:
        """Return the ends of the logs of its programs."""
        files = (self.directory / f"{name}.log" for name in ("containerd", "kubelet"))
        return "\n".join(file.read_text(errors="replace")[-4000:] for file in files if file.exists())


def _images() -> Path:
    """Return the directory of containerd, which keeps the images between runs."""
    directory = cache_directory(os.environ) / "containerd"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


@contextmanager
def running_node(plane: ControlPlane, directory: Path) -> Iterator[Node]:
    """Start a node and the scheduler, and stop them by their pids.

    Args:
        plane: Its API server listens at :data:`API_ADDRESS`. The :func:`cable` was made.
        directory: For logs and data.
    """
    programs = built("kubelet", "kube-scheduler")
    socket = directory / "containerd.sock"
    _write_settings(plane, directory, socket)
    [port] = free_ports(1)
    scheduler = [str(programs / "kube-scheduler"), f"--kubeconfig={plane.directory / 'admin'}", "--leader-elect=false"]
    scheduler += ["--bind-address=127.0.0.1", f"--secure-port={port}"]
    scheduler += [f"--cert-dir={directory / 'certificates of the scheduler'}"]
    node = Node(directory, socket)
    words = ["unshare", "--net", "bash", "-euc", NETWORK, "bash", START, "bash"]
    with process(scheduler, directory / "kube-scheduler.log"), (directory / "node.log").open("wb") as log:
        started = subprocess.Popen(
            [*words, str(directory), str(socket), str(programs / "kubelet")],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            _plug_in(started.pid)
            eventually(
                lambda: '"Ready","status":"True"' in _readiness(plane),
                "the node is ready",
                READY_SECONDS,
                interval=1,
                evidence=lambda: f"{(directory / 'node.log').read_text()}\n{node.log()}",
            )
            yield node
        finally:
            os.kill(started.pid, signal.SIGKILL)  # with it ends the first process of its namespace, and so all others
            started.wait()
            _remove_groups()


def _plug_in(pid: int) -> None:
    """Give the node its end of the cable."""
    mine = os.readlink("/proc/self/ns/net")
    eventually(lambda: os.readlink(f"/proc/{pid}/ns/net") != mine, "the node has a network of its own")
    run(["ip", "link", "set", END, "netns", str(pid)], os.environ, seconds=30)

    def routed() -> bool:
        command = ["ip", "route", "replace", PODS, "via", NODE_ADDRESS]
        return subprocess.run(command, capture_output=True, timeout=30, check=False).returncode == 0

    eventually(routed, "the addresses of pods are behind the node")


def _readiness(plane: ControlPlane) -> str:
    conditions = [each["status"]["conditions"] for each in plane.objects("nodes", "default")]
    return json.dumps(
        [{"type": each["type"], "status": each["status"]} for found in conditions for each in found],
        separators=(",", ":"),
    )


def _write_settings(plane: ControlPlane, directory: Path, socket: Path) -> None:
    for name in ("log", "cni", "kubelet"):
        (directory / name).mkdir(parents=True)
    for name, value in TUNED.items():
        file = directory / "sys" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{value}\n")
    write_private(directory / "kubeconfig", kubeconfig(plane, plane.node_token))
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": PODS}]],
            "routes": [{"dst": "0.0.0.0/0"}],
            "dataDir": str(directory / "addresses"),
        },
    }
    network = {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}
    (directory / "cni" / "pods.conflist").write_text(json.dumps(network))
    plugin = 'plugins."io.containerd.grpc.v1.cri"'
    (directory / "containerd.toml").write_text(
        f"""version = 2
root = "{_images()}"
state = "{directory / "state"}"
[grpc]
address = "{socket}"
[{plugin}]
sandbox_image = "docker.io/{PAUSE}"
restrict_oom_score_adj = true # root without CAP_SYS_RESOURCE may not lower it
[{plugin}.cni]
bin_dir = "{PLUGINS}"
conf_dir = "{directory / "cni"}"
"""
    )
    settings = {
        "kind": "KubeletConfiguration",
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "address": NODE_ADDRESS,
        # This machine alone reaches it.
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "clusterDNS": [HOST_ADDRESS],
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": f"unix://{socket}",
        "failSwapOn": False,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "100Mi"},
        "podLogsDir": str(directory / "logs of pods"),
    }
    (directory / "kubelet.json").write_text(json.dumps(settings))


def _remove_groups() -> None:
    """Remove the control groups of containers, which do not end with their namespaces."""
    deadline = time.monotonic() + 30
    for top in GROUPS.glob("*/k8s.io"):
        for group in [*top.iterdir(), top] if top.is_dir() else []:
            while group.is_dir() and time.monotonic() < deadline:
                try:
                    group.rmdir()
                except OSError:  # its last process has not ended yet
                    time.sleep(0.1)
