"""Java 17 or 21, on which both Spark 4 and Kafka 4 run: found on this machine or, where possible, installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from streamplan.errors import Refused, StreamplanError

SUPPORTED_VERSIONS = (17, 21)
DEBIAN_PACKAGE = "openjdk-17-jre-headless"
INSTALL_SECONDS = 600


def find_java(environment: Mapping[str, str]) -> Path | None:
    """Return the home of a supported Java, or None.

    ``JAVA_HOME`` is tried first, then ``PATH``, then the places where operating systems install Java.
    """
    for binary in _candidates(environment):
        home = binary.resolve().parent.parent
        if version_of(home) in SUPPORTED_VERSIONS:
            return home
    return None


def require_java(environment: Mapping[str, str]) -> Path:
    """Return the home of a supported Java.

    Raises:
        Refused: There is none.
    """
    home = find_java(environment)
    if home is None:
        raise Refused(
            "Java",
            expected="17 or 21 in JAVA_HOME, on PATH or below /usr/lib/jvm",
            observed="none",
            remedy=f"Install one, such as the package {DEBIAN_PACKAGE}, or set JAVA_HOME.",
        )
    return home


def install_java(log_file: Path) -> None:
    """Install Debian's package of Java, which needs root.

    Raises:
        StreamplanError: This is no Debian, this process is not root, or the installation failed (the error names the
            log).
    """
    if os.name != "posix" or os.geteuid() != 0 or shutil.which("apt-get") is None:
        require_java({})
        return
    log_file.parent.mkdir(parents=True, exist_ok=True)
    for argv in (["apt-get", "update"], ["apt-get", "install", "-y", "--no-install-recommends", DEBIAN_PACKAGE]):
        with log_file.open("ab") as log:
            try:
                subprocess.run(
                    argv,
                    check=True,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    timeout=INSTALL_SECONDS,
                    env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
                )
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
                raise StreamplanError(
                    "Java",
                    expected=f"`{' '.join(argv)}` installs {DEBIAN_PACKAGE}",
                    observed=str(error),
                    remedy=f"See {log_file}, or install Java 17 or 21 yourself.",
                ) from error


def version_of(home: Path) -> int | None:
    """Return the major version of a Java: from its ``release`` file or, without that file, from the program itself."""
    try:
        text = (home / "release").read_text()
    except OSError:
        try:
            text = subprocess.run(
                [home / "bin" / "java", "-XshowSettings:properties", "-version"],
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
            ).stderr
        except (OSError, subprocess.TimeoutExpired):
            return None
    match = re.search(r'(?:JAVA_VERSION="|java\.version = )(\d+)', text)
    return int(match[1]) if match else None


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    home = environment.get("JAVA_HOME")
    if home:
        yield Path(home) / "bin" / "java"
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path:
        yield Path(on_path)
    for parent, pattern in (
        (Path("/usr/lib/jvm"), "*/bin/java"),
        (Path("/Library/Java/JavaVirtualMachines"), "*/Contents/Home/bin/java"),
        (Path("/opt/homebrew/opt"), "openjdk@*/bin/java"),
    ):
        yield from sorted(binary for binary in parent.glob(pattern) if os.access(binary, os.X_OK))
