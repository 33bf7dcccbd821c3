"""Reading shared among processes: one Python process reads with one core, however many cores there are.

A share is read by ``python -m streamplan.kafka.parallel_read``. It receives its work by standard input and writes the
result, or the exception, to standard output; both are pickled. When the process that waits for it is killed, its
output has no reader any more and it ends, which a worker of ``concurrent.futures`` would not.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from streamplan.kafka_types import OffsetRanges

Result = TypeVar("Result")

WORTHWHILE_OFFSETS = 500_000
"""A process reads at least this many offsets: fewer are read sooner than it starts."""

_END_SECONDS = 10.0


def processes_for(ranges: OffsetRanges) -> int:
    """Return how many processes shorten the reading of these ranges."""
    offsets = sum(max(last - first, 0) for first, last in ranges.values())
    return max(1, min(len(os.sched_getaffinity(0)), offsets // WORTHWHILE_OFFSETS))


def divide(ranges: OffsetRanges, count: int) -> list[dict[int, tuple[int, int]]]:
    """Divide ranges into ``count`` shares of equal size. A partition may be divided."""
    remaining = sum(max(last - first, 0) for first, last in ranges.values())
    shares: list[dict[int, tuple[int, int]]] = [{} for _ in range(count)]
    number, room = 0, -(-remaining // count)
    for partition, (first, last) in ranges.items():
        begin = first
        while begin < last:
            end = min(last, begin + room)
            shares[number][partition] = (begin, end)
            room -= end - begin
            begin = end
            if room == 0 and number + 1 < count:
                number, room = number + 1, -(-remaining // count)
    return shares


@dataclass(frozen=True)
class Share(Generic[Result]):
    """A share that a process reads."""

    process: subprocess.Popen[bytes]

    def result(self) -> Result:
        """Wait for the process and return its result.

        Raises:
            RuntimeError: The process ended without a result.
            Exception: What was raised in the process.
        """
        output, _ = self.process.communicate()
        if self.process.returncode != 0:
            raise RuntimeError(f"reading a share ended with status {self.process.returncode}")
        raised, value = pickle.loads(output)  # our own process has written it
        if raised:
            raise value
        result: Result = value
        return result


@contextmanager
def running(
    read: Callable[[OffsetRanges], Iterator[Any]],
    shares: Sequence[OffsetRanges],
    function: Callable[[Iterator[Any]], Result],
) -> Iterator[list[Share[Result]]]:
    """Start a process for each share. No process is left when the block ends.

    Args:
        read: Reads the record batches of a share. It can be pickled.
        function: What each process applies to its record batches. It can be pickled, and so can its result.
    """
    started: list[Share[Result]] = []
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    try:
        for ranges in shares:
            process = subprocess.Popen(
                [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
            )
            started.append(Share(process))
            assert process.stdin is not None
            process.stdin.write(pickle.dumps((read, dict(ranges), function)))
            process.stdin.flush()
        yield started
    finally:
        for share in started:
            if share.process.poll() is None:
                share.process.kill()
            share.process.communicate(timeout=_END_SECONDS)


def _main() -> None:
    read, ranges, function = pickle.load(sys.stdin.buffer)
    try:
        outcome = (False, function(read(ranges)))
    except Exception as error:  # noqa: BLE001  # raised again in the process that waits
        outcome = (True, error)
    pickle.dump(outcome, sys.stdout.buffer)


if __name__ == "__main__":
    _main()
