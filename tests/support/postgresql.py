"""A PostgreSQL server of a test, from Debian's package ``postgresql``."""

from __future__ import annotations

import os
import random
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

USER = "airflow"


def programs() -> Path | None:
    """The directory of the server's programs, which Debian does not put on ``PATH``."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else None


@contextmanager
def postgresql(directory: Path, address: str = "127.0.0.1", clients: str = "127.0.0.1/32") -> Iterator[str]:
    """Run a server and give SQLAlchemy's address of an empty database.

    Args:
        directory: The directory of the server's programs.
        address: Where it listens.
        clients: The addresses that may connect.
    """
    # Root may not run the server, and nobody else may enter pytest's directories.
    home = Path(tempfile.mkdtemp(prefix="streamplan-postgresql-"))
    as_owner = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.getuid() == 0 else []
    password, port = secrets.token_hex(16), random.randrange(15_000, 30_000)

    def run(program: str, *words: str) -> None:
        done = subprocess.run(
            [*as_owner, str(directory / program), *words],
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    data, file = home / "data", home / "password"
    file.write_text(password)
    if as_owner:
        for path in (home, file):
            shutil.chown(path, "postgres", "postgres")
    try:
        run("initdb", "--pgdata", str(data), "--username", USER, "--auth", "scram-sha-256", "--pwfile", str(file))
        with (data / "pg_hba.conf").open("a") as rules:
            rules.write(f"host all all {clients} scram-sha-256\n")
        options = f"-c listen_addresses={address} -c port={port} -c unix_socket_directories='{home}'"
        run("pg_ctl", "start", "--wait", "--pgdata", str(data), "--log", str(home / "log"), "--options", options)
        try:
            yield f"postgresql+psycopg2://{USER}:{password}@{address}:{port}/postgres"
        finally:
            run("pg_ctl", "stop", "--wait", "--mode", "fast", "--pgdata", str(data))
    finally:
        shutil.rmtree(home)
