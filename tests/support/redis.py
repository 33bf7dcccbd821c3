"""A Redis server of a test, from Debian's package ``redis-server``."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.waiting import eventually


@contextmanager
def redis(program: str, home: Path) -> Iterator[str]:
    """Run a server on loopback, which keeps nothing, and give its address.

    Args:
        program: The server's program.
        home: Its working directory, for its log.
    """
    port, log_file = random.randrange(15_000, 30_000), home / "redis.log"
    words = [program, "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--logfile", str(log_file)]
    with subprocess.Popen(words, cwd=home, stdin=subprocess.DEVNULL) as server:
        try:
            eventually(
                lambda: server.poll() is not None or (log_file.exists() and "Ready to accept" in log_file.read_text()),
                "Redis accepts connections",
            )
            assert server.poll() is None, log_file.read_text()
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            server.terminate()
