"""Where a secret can be seen: in files, on command lines, and in environments of processes."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SECONDS = 0.1


@contextmanager
def processes_that_show(secret: str) -> Iterator[set[str]]:
    """Look at all processes of the machine, again and again; the set gets what shows the secret."""
    found: set[str] = set()
    ended, looked = threading.Event(), threading.Event()

    def look() -> None:
        while not ended.is_set():
            for pid in filter(str.isdigit, os.listdir("/proc")):
                for file in (Path("/proc", pid, name) for name in ("cmdline", "environ")):
                    found.update(f"{file}: {words[:80]!r}" for words in _words(file) if secret.encode() in words)
            looked.set()
            ended.wait(_SECONDS)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        alive = thread.is_alive()  # a thread that has died has looked at nothing since
        thread.join()
        assert alive
        assert looked.is_set()


def _words(file: Path) -> list[bytes]:
    try:
        return file.read_bytes().split(b"\0")
    except OSError:  # the process has ended, or belongs to somebody else
        return []


def files_that_show(secret: str, directory: Path) -> set[Path]:
    """Return the files below a directory that have the secret and that others than their owner may read."""
    found = set()
    for file in directory.rglob("*"):
        try:
            if file.is_file() and file.stat().st_mode & 0o077 and secret.encode() in file.read_bytes():
                found.add(file)
        except FileNotFoundError:  # it was removed meanwhile
            continue
    return found
