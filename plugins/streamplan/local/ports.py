"""The ports of one deployment. They are chosen once and kept in ``stack.json``: a second ``up`` uses the same."""

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
    """Whether a server may listen on this port: nobody else does, on loopback or on every address."""
    with socket.socket() as probe:
        # Java's and uvicorn's servers set this, too: a port with closed connections in TIME_WAIT counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


class Ports:
    """Named ports. Those that were chosen are kept in ``file``, a JSON object; the others have their default."""

    def __init__(self, file: Path, defaults: Mapping[str, int]) -> None:
        self._file = file
        self._defaults = defaults
        self._chosen: dict[str, int] = json.loads(file.read_text()) if file.exists() else {}

    def __getitem__(self, name: str) -> int:
        return self._chosen.get(name, self._defaults[name])

    def choose(self, name: str, report: Callable[[str], None]) -> int:
        """Choose a free port for a server that is about to start, and keep it.

        The first choice is the port that the server had before, or else its default. When that is taken, ports above
        it are tried. A port of another server of this deployment is never chosen.

        Args:
            name: The name of the port, one of the defaults.
            report: Gets a line when the first choice is taken.

        Returns:
            The port.

        Raises:
            StreamplanError: None of :data:`TRIES` ports is free.
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
