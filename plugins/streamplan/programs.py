"""What the programs in ``jobs`` share: lines on standard output, stopping on signals, and the exit status."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable

from streamplan.errors import Refused, StreamplanError

EX_CONFIG = 78
"""Exit status of a job for a fault that a retry cannot mend (sysexits.h)."""


def report(line: str) -> None:
    """Print one line at once, so that a log shows it when it happens."""
    print(line, flush=True)  # noqa: T201


def run_job(work: Callable[[], None], *, refused_status: int = 1) -> int:
    """Run the work of a job and print what stopped it.

    Args:
        work: The job itself.
        refused_status: The exit status for :class:`Refused`: :data:`EX_CONFIG` where the one who starts the job tries
            again after 1.

    Returns:
        The exit status: 0 done, 1 failed, or ``refused_status``.
    """
    try:
        work()
    except StreamplanError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)  # noqa: T201
        return refused_status if isinstance(error, Refused) else 1
    return 0


def stop_on_signals() -> threading.Event:
    """Return an event that is set when this process gets SIGTERM or Ctrl-C.

    A thread sets the event, and the signal handlers wake the thread through a pipe. A handler runs in the main thread,
    which may be inside ``wait`` of this event and hold its lock: if the handler set the event, it would wait for itself
    for ever.
    """
    stop = threading.Event()
    reading_end, writing_end = os.pipe()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os.write(writing_end, b"."))

    def wait() -> None:
        os.read(reading_end, 1)
        stop.set()

    threading.Thread(target=wait, daemon=True).start()
    return stop
