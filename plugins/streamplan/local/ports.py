"""The ports of one deployment: chosen once, kept in ``stack.json``, so that a second ``up`` finds the first."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

from streamplan.errors import StreamplanError
from streamplan.files import write_atomically

LOOPBACK = "127.0.0.1"
STEP = 100
TRIES = 50


def is_free(port: int) -> bool:
    """Whether a server may listen there: nobody does, on loopback or on every address."""
    with socket.socket() as probe:
        # As Java's and uvicorn's servers do: closed connections that linger do not count as taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


class Ports:
    """Named ports, persisted in ``file`` as a JSON object."""

    def __init__(self, file: Path, defaults: Mapping[str, int]) -> None:
        self._file = file
        self._defaults = defaults
        self._chosen: dict[str, int] = json.loads(file.read_text()) if file.exists() else {}

    def __getitem__(self, name: str) -> int:
        return self._chosen.get(name, self._defaults[name])

    def choose(self, name: str, report: Callable[[str], None]) -> int:
        """A free port for a server that is about to start: the one it had, else its default, else one above.

        The others of this deployment are kept clear of. Says so when it is not the default.
        """
        wanted = self[name]
        others = {self[other] for other in self._defaults if other != name}
        for port in range(wanted, min(wanted + STEP * TRIES, 65_536), STEP):
            if port not in others and is_free(port):
                if port != wanted:
                    report(f"Port {wanted} is taken: {name} listens on {port}.")
                self._chosen[name] = port
                self._save()
                return port
        raise StreamplanError(
            f"Port for {name}",
            expected=f"a free one among {TRIES} from {wanted} on",
            observed="all taken",
            remedy="Stop what holds them.",
        )

    def _save(self) -> None:
        write_atomically(self._file, json.dumps(self._chosen, indent=2) + "\n")
