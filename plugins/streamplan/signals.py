"""How a job is asked to stop."""

from __future__ import annotations

import os
import signal
import threading


def stop_on_signals() -> threading.Event:
    """Set by SIGTERM and Ctrl-C.

    By a thread, which the handlers wake through a pipe. They run in the main thread, perhaps while that is inside
    ``wait`` of this very event and holds its lock: setting it there would wait for itself for ever.
    """
    stop = threading.Event()
    awaited, signalled = os.pipe()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os.write(signalled, b"."))

    def wait() -> None:
        os.read(awaited, 1)
        stop.set()

    threading.Thread(target=wait, daemon=True).start()
    return stop
