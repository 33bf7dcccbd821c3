"""What all programs share, commands and jobs: their exit statuses, lines on standard output, stopping on signals."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path

from streamplan.errors import Refused, StreamplanError, WrongUsage
from streamplan.files import write_atomically


class ExitStatus(IntEnum):
    """How a program ended. Each status means the same in every command and every job.

    75 and 78 are EX_TEMPFAIL and EX_CONFIG of sysexits.h, 130 is what a shell says of a program that Ctrl-C ended.
    """

    meaning: str

    DONE = 0, "done, and nothing is wrong"
    WRONG = 1, "something wrong was found, and is shown"
    USAGE = 2, "wrong usage: the command line is not understood"
    FAILED = 75, "failed, or could not look: a later try may succeed"
    REFUSED = 78, "refused: a new try helps when what the message names is changed"
    INTERRUPTED = 130, "ended by Ctrl-C"

    def __new__(cls, status: int, meaning: str) -> ExitStatus:
        """Make a status with its meaning."""
        member = int.__new__(cls, status)
        member._value_ = status
        member.meaning = meaning
        return member

    @classmethod
    def of(cls, error: StreamplanError) -> ExitStatus:
        """Return the status of a program that an error ends."""
        if isinstance(error, WrongUsage):
            return cls.USAGE
        return cls.REFUSED if isinstance(error, Refused) else cls.FAILED

    @classmethod
    def table(cls, *, done: str = "", wrong: str = "") -> str:
        """Return the statuses with their meanings, a line for each, for the help of a program.

        Args:
            done: What it means that this program is done; empty for the words that hold for all.
            wrong: What this program finds wrong; empty where it judges nothing.
        """
        meanings = {status: status.meaning for status in cls}
        meanings |= {cls.DONE: done or cls.DONE.meaning, cls.WRONG: wrong}
        return "".join(f"  {status:<4d} {meaning}\n" for status, meaning in meanings.items() if meaning)


def report(line: str) -> None:
    """Print one line at once, so that a log shows it when it happens."""
    print(line, flush=True)  # noqa: T201


def run_program(work: Callable[[], int | None], tell: Callable[[StreamplanError], None]) -> int:
    """Run a program, and tell what stopped it.

    Args:
        work: The program. It returns its exit status, or None where it is done.
        tell: Shows a person an error.

    Returns:
        The exit status, one of :class:`ExitStatus`.
    """
    try:
        return work() or ExitStatus.DONE
    except StreamplanError as error:
        tell(error)
        return ExitStatus.of(error)
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        return ExitStatus.INTERRUPTED
    except Exception:  # noqa: BLE001  Python's own status is 1, which says that something wrong was found
        traceback.print_exc()
        return ExitStatus.FAILED


def refusal_beside(output: Path) -> Path:
    """Return the file in which a job that writes ``output`` says why it was refused."""
    return output.with_name(f"{output.name}.refused")


def run_job(work: Callable[[], None], refusal: Path | None = None) -> int:
    """Run the work of a job, and return its exit status. What stopped it is on standard error.

    Args:
        work: The work.
        refusal: The file in which stands why the work was refused. Who started the job through spark-submit sees
            neither its exit status nor, among Spark's lines, its standard error.
    """

    def tell(error: StreamplanError) -> None:
        print(f"error: {error}", file=sys.stderr, flush=True)  # noqa: T201
        if refusal is not None and isinstance(error, Refused):
            write_atomically(refusal, str(error))

    return run_program(work, tell)


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
