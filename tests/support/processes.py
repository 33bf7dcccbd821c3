"""What a test asks of processes, and does to them."""

from __future__ import annotations

import psutil


def kill(pid: int) -> None:
    """SIGKILL, and wait until it has gone: with all its threads, and reaped."""
    process = psutil.Process(pid)
    process.kill()
    process.wait(600)


def listening(pid: int) -> set[str]:
    """The addresses on which a process and its children listen."""
    family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    connections = [connection for process in family for connection in process.net_connections("tcp")]
    return {connection.laddr.ip for connection in connections if connection.status == psutil.CONN_LISTEN}
