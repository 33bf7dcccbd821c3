"""A small file system of the suite's own below the checkpoints, where the machine lets us: one that can be full."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from streamplan.errors import StreamplanError

SIZE = "256m"


def may_mount() -> bool:
    """Root outside a container may; whether it works is seen when it is tried."""
    return os.geteuid() == 0 and Path("/proc/self/mounts").exists() and _effective(21)


def _effective(capability: int) -> bool:
    """Whether this process has it; 21 is CAP_SYS_ADMIN."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> capability & 1)
    return False


def mount(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(directory)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise StreamplanError(f"tmpfs at {directory}", expected="mounted", observed=done.stderr.strip())


def unmount(directory: Path) -> None:
    """What lies there is kept in the directory. Works also when somebody still has a file open there."""
    if os.path.ismount(directory):
        kept = directory.with_name(f"{directory.name}.kept")
        shutil.copytree(directory, kept, dirs_exist_ok=True)
        subprocess.run(["umount", "--lazy", str(directory)], capture_output=True, check=True)
        directory.rmdir()
        kept.rename(directory)
