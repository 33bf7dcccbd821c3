"""Programs in a PID namespace of their own, as in a container of their own."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest


def in_new_pid_namespace() -> list[str]:
    """Return the words that, before a command, start it in a PID namespace of its own with a ``/proc`` of its own.

    The command ends when ``unshare`` is killed. The test that asks is skipped where the kernel allows no namespaces.
    """
    program = shutil.which("unshare")
    if program is None:
        pytest.skip("There is no program `unshare` (util-linux), and only it makes a PID namespace.")
    as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    words = [program, *as_root, "--pid", "--fork", "--kill-child", "--mount-proc"]
    tried = subprocess.run([*words, "true"], capture_output=True, text=True, timeout=60, check=False)
    if tried.returncode:
        pytest.skip(f"This machine lets nobody make a PID namespace: {tried.stderr.strip()}")
    return words
