"""Reading shared among processes: Python makes one core's worth of records, however many cores there are.

A share is read by ``python -m streamplan.kafka.parallel_read``: its task comes by standard input, its result, or what
was raised, goes to standard output; both pickled.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from streamplan.kafka.brokers import Brokers

Ranges = Mapping[int, tuple[int, int]]
Result = TypeVar("Result")

WORTHWHILE = 500_000
"""Offsets of a share that take longer to read than a process takes to start."""

_END_SECONDS = 10.0


def processes_for(ranges: Ranges) -> int:
    """How many are worth their start."""
    offsets = sum(max(last - first, 0) for first, last in ranges.values())
    return max(1, min(len(os.sched_getaffinity(0)), offsets // WORTHWHILE))


def divide(ranges: Ranges, count: int) -> list[dict[int, tuple[int, int]]]:
    """``count`` shares of equal size; a partition may be divided."""
    left = sum(max(last - first, 0) for first, last in ranges.values())
    shares: list[dict[int, tuple[int, int]]] = [{} for _ in range(count)]
    number, room = 0, -(-left // count)
    for partition, (first, last) in ranges.items():
        begin = first
        while begin < last:
            end = min(last, begin + room)
            shares[number][partition] = (begin, end)
            room -= end - begin
            begin = end
            if room == 0 and number + 1 < count:
                number, room = number + 1, -(-left // count)
    return shares


@dataclass(frozen=True)
class Share(Generic[Result]):
    """One that is being read."""

    process: subprocess.Popen[bytes]

    def result(self) -> Result:
        """What the function made of it, once it is there; or raises what was raised there."""
        output, _ = self.process.communicate()
        if self.process.returncode != 0:
            raise RuntimeError(f"reading a share ended with status {self.process.returncode}")
        raised, value = pickle.loads(output)  # written by ourselves
        if raised:
            raise value
        found: Result = value
        return found


@contextmanager
def running(
    brokers: Brokers,
    deadline_seconds: float,
    topic: str,
    shares: Sequence[Ranges],
    function: Callable[[Iterator[Any]], Result],
) -> Iterator[list[Share[Result]]]:
    """Start a process for each share; none is left when the block is left."""
    started: list[Share[Result]] = []
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    try:
        for ranges in shares:
            process = subprocess.Popen(
                [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
            )
            started.append(Share(process))
            assert process.stdin is not None
            process.stdin.write(pickle.dumps((brokers, deadline_seconds, topic, dict(ranges), function)))
            process.stdin.flush()
        yield started
    finally:
        for share in started:
            if share.process.poll() is None:
                share.process.kill()
            share.process.communicate(timeout=_END_SECONDS)


def _main() -> None:
    from streamplan.kafka.cluster import KafkaCluster

    brokers, deadline_seconds, topic, ranges, function = pickle.load(sys.stdin.buffer)
    try:
        outcome = (
            False,
            function(KafkaCluster(brokers, deadline_seconds=deadline_seconds).read(topic, ranges)),
        )
    except Exception as error:  # noqa: BLE001  # raised again by whoever asked
        outcome = (True, error)
    pickle.dump(outcome, sys.stdout.buffer)


if __name__ == "__main__":
    _main()
