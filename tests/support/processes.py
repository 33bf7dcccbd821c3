"""What a test asks of processes, and does to them."""

from __future__ import annotations

from contextlib import suppress

import psutil


def kill(pid: int) -> None:
    """SIGKILL, and wait until it has gone: with all its threads, and reaped."""
    process = psutil.Process(pid)
    process.kill()
    process.wait(600)


def listening(pid: int) -> set[str]:
    """The addresses on which a process and its children listen."""
    addresses: set[str] = set()
    for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # a child that has ended meanwhile
            connections = process.net_connections("tcp")
            addresses |= {at.laddr.ip for at in connections if at.status == psutil.CONN_LISTEN}
    return addresses
