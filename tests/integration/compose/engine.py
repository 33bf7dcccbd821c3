"""A container engine of the tests' own: Debian's Docker, and Docker Compose built from its Go module.

No image registry is asked. The images that docker-compose.yml and Dockerfile name are built from Debian's packages, the
Python that runs the tests, and Kafka's jars from Maven Central. They are kept in the cache of Streamplan.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from streamplan.local.jars import BROKERS, cache_directory, directory_of

COMPOSE_MODULE = "github.com/docker/compose/v2@v2.40.3"
PROGRAMS = {
    "dockerd": "docker.io",
    "iptables": "iptables",
    "ip": "iproute2",
    "debootstrap": "debootstrap",
    "go": "Go of go.dev",
}
"""What must be installed, and the Debian package that has it."""

START_SECONDS = 120
STOP_SECONDS = 120
BUILD_SECONDS = 3600
IMAGES = Path(__file__).parent / "images"
NAMES = {
    "base": "streamplan-tests/base",
    "python": "python:3.12.12-slim-bookworm",
    "kafka": "apache/kafka:4.3.1",
    "postgres": "postgres:17.6-bookworm",
}
"""The image of each folder of ``images``, in the order in which they are built."""


def missing() -> str:
    """Return why no engine can be started on this machine; an empty text if one can."""
    if os.geteuid() != 0:
        return "an engine is started by root alone"
    lacking = sorted(package for program, package in PROGRAMS.items() if shutil.which(program) is None)
    return f"not installed: {', '.join(lacking)}" if lacking else ""


def cache() -> Path:
    """Return the directory where images, packages and the built Compose stay between runs."""
    directory = cache_directory(os.environ) / "compose"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


@dataclass(frozen=True)
class Engine:
    """A running engine.

    Attributes:
        socket: The address at which it listens.
        client: The configuration of the client, with Docker Compose as its plug-in.
    """

    socket: str
    client: Path

    def environment(self, **more: str) -> dict[str, str]:
        """Return the variables with which a command finds the engine, and ``docker compose`` finds Compose."""
        return os.environ | {"DOCKER_HOST": self.socket, "DOCKER_CONFIG": str(self.client)} | more

    def docker(self, *arguments: str, seconds: float = 120) -> str:
        """Run ``docker`` and return what it printed. A command that fails ends the test with its output."""
        return run(["docker", *arguments], self.environment(), seconds=seconds)


def run(command: list[str], environment: Mapping[str, str], *, seconds: float, folder: Path | None = None) -> str:
    """Run a command and return what it printed.

    Raises:
        AssertionError: The command has failed, or has not ended in time. The text has the end of its output.
    """
    try:
        ended = subprocess.run(
            command,
            env=dict(environment),
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        output = (error.stderr or b"").decode(errors="replace")
        raise AssertionError(f"{' '.join(command)}: not ended after {seconds:g} s\n{output[-4000:]}") from error
    assert ended.returncode == 0, f"{' '.join(command)}: exit status {ended.returncode}\n{ended.stderr[-4000:]}"
    return ended.stdout


@contextmanager
def running_engine(directory: Path) -> Iterator[Engine]:
    """Start an engine, and stop it by its pid.

    The rules of iptables are afterwards those of before, and the engine's bridge is deleted.

    Args:
        directory: For its socket, its pid and its log.
    """
    socket = directory / "docker.sock"
    rules = run(["iptables-save"], os.environ, seconds=30)
    with (directory / "dockerd.log").open("wb") as log:
        daemon = subprocess.Popen(
            [
                "dockerd",
                *("--data-root", str(cache() / "engine"), "--exec-root", str(directory / "exec")),
                *("--host", f"unix://{socket}", "--pidfile", str(directory / "pid")),
            ],
            stdout=log,
            stderr=log,
            env=os.environ | {"TMPDIR": str(directory)},
        )
    try:
        engine = Engine(f"unix://{socket}", built_compose())
        deadline = time.monotonic() + START_SECONDS
        while subprocess.run(["docker", "info"], env=engine.environment(), capture_output=True, check=False).returncode:
            text = (directory / "dockerd.log").read_text(errors="replace")[-2000:]
            assert daemon.poll() is None, f"dockerd has ended\n{text}"
            assert time.monotonic() < deadline, f"dockerd does not answer after {START_SECONDS} s\n{text}"
            time.sleep(0.5)
        yield engine
    finally:
        daemon.send_signal(signal.SIGTERM)
        try:
            daemon.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
        subprocess.run(
            ["umount", str(directory / "exec" / "netns" / "default")], capture_output=True, timeout=30, check=False
        )
        subprocess.run(["iptables-restore"], input=rules, text=True, timeout=30, check=False)
        subprocess.run(["ip", "link", "delete", "docker0"], capture_output=True, timeout=30, check=False)


def built_compose() -> Path:
    """Return the configuration of a client that has Docker Compose. It is built once."""
    program = cache() / "client" / "cli-plugins" / "docker-compose"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        module = cache() / "module"
        module.mkdir(exist_ok=True)
        (module / "go.mod").write_text("module streamplan-tests\n")
        told = run(["go", "mod", "download", "-json", COMPOSE_MODULE], os.environ, seconds=BUILD_SECONDS, folder=module)
        source = cache() / "compose-source"
        shutil.rmtree(source, ignore_errors=True)
        shutil.copytree(json.loads(told)["Dir"], source)
        # The module cache is read-only, and Go writes go.sum.
        run(["chmod", "-R", "u+w", str(source)], os.environ, seconds=60)
        built = program.with_suffix(".new")
        run(["go", "build", "-o", str(built), "./cmd"], os.environ, seconds=BUILD_SECONDS, folder=source)
        built.rename(program)
    return program.parent.parent


def build_images(engine: Engine) -> None:
    """Build the images that others take from a registry. What was built before is taken from the cache."""
    for folder, name in NAMES.items():
        context = cache() / "contexts" / folder
        shutil.rmtree(context, ignore_errors=True)
        shutil.copytree(IMAGES / folder, context)
        _fill(folder, context)
        engine.docker("build", "--network=host", "--quiet", "--tag", name, str(context), seconds=BUILD_SECONDS)


def _fill(folder: str, context: Path) -> None:
    """Add what an image needs besides its Dockerfile."""
    if folder == "base":
        packages = cache() / "bookworm.tar"
        if not packages.exists():
            root = cache() / "bookworm"
            shutil.rmtree(root, ignore_errors=True)
            run(["debootstrap", "--variant=minbase", "bookworm", str(root)], os.environ, seconds=BUILD_SECONDS)
            new = packages.with_suffix(".new")
            run(
                ["tar", "--numeric-owner", "--create", "--file", str(new), "--directory", str(root), "."],
                os.environ,
                seconds=600,
            )
            new.rename(packages)
            shutil.rmtree(root)
        os.link(packages, context / "rootfs.tar")
        trusted = Path("/usr/local/share/ca-certificates")
        shutil.copytree(trusted, context / "authorities") if trusted.is_dir() else (context / "authorities").mkdir()
    elif folder == "python":
        # The cache of Docker goes by the content, so the same Python makes the same image.
        shutil.copytree(sys.base_prefix, context / "python", symlinks=True, ignore=_not_needed)
        for program in ("python3", f"python3.{sys.version_info.minor}"):
            assert (context / "python" / "bin" / program).exists(), f"{sys.base_prefix} has no bin/{program}"
    elif folder == "kafka":
        shutil.copytree(directory_of(BROKERS, os.environ), context / "libs")


def _not_needed(directory: str, names: list[str]) -> set[str]:
    at = Path(directory)
    if at.name == "site-packages":
        return {name for name in names if not name.startswith("pip")}
    return {
        name for name in names if name in ("test", "tests", "__pycache__", "idlelib", "share") or name.endswith(".a")
    }
