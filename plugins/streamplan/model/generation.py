"""Which of several aggregators of one application is the one: the newest.

Each start of an aggregator is a generation. Its number stands in the metadata of every position that it commits, in the
same transaction as the records, so that a stream task belongs to exactly one generation at any offset. An older
aggregator, one started by mistake or one that slept through its successor's start, finds the newer number and stops.

The number is one more than the newest number that is known, or the time of the start where that is greater or nothing
is known. It orders the generations of one group, and nothing else. It is compared with no clock, because the clocks of
hosts differ, and a clock can be set back. The instance tells which process made a generation: no other has the same.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

_PREFIX = "streamplan-generation"

_END = "."
"""The last word, which nobody reads: librdkafka 2.16 now and then gives bytes behind the end of a text."""

_STOP = "stop/"
"""How the instance of a generation begins that was made to stop the application."""

_BESIDE = "beside/"
"""How the instance of a generation begins of an application that stands beside another one, after ``stop/``."""


@dataclass(frozen=True)
class Generation:
    """One start of an aggregator, or the request that it stops.

    During an upgrade two applications have the state of one pipeline, and one of them stands *beside* the other: it
    writes to staging topics, and no aggregator of it starts. Its newest generation says so.

    Attributes:
        number: Greater than that of the newest known one. The time of the start in ms since the epoch where it can be.
        instance: ``<host>:<pid>:<random>`` of the process.
    """

    number: int
    instance: str

    @classmethod
    def of_this_process(cls, latest: Generation | None, *, stop: bool = False, beside: bool = False) -> Generation:
        """Make the generation of this process.

        Args:
            latest: The newest known generation; None where none is known.
            stop: Whether it is made to stop the application, by a process that is no aggregator.
            beside: Whether the application stands beside another one from now on.
        """
        process = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        instance = f"{_STOP if stop else ''}{_BESIDE if beside else ''}{process}"
        return cls(time.time_ns() // 1_000_000, instance).after(latest)

    def after(self, latest: Generation | None) -> Generation:
        """Return this generation, with a later number where ``latest`` has the same number or a later one."""
        if latest is None or latest == self or latest.number < self.number:
            return self
        return Generation(latest.number + 1, self.instance)

    @property
    def is_stop(self) -> bool:
        """Whether it was made to stop the application."""
        return self.instance.startswith(_STOP)

    @property
    def is_beside(self) -> bool:
        """Whether the application stands beside another one, which is the one that runs."""
        return self.instance.removeprefix(_STOP).startswith(_BESIDE)

    @property
    def host(self) -> str:
        """The host of the driver."""
        return self.instance.removeprefix(_STOP).removeprefix(_BESIDE).rsplit(":", 2)[0]

    @property
    def pid(self) -> int:
        """The process id of the driver; 0 if the instance names none."""
        _, _, pid = self.instance.rpartition(":")[0].rpartition(":")
        return int(pid) if pid.isdigit() else 0

    def is_superseded_by(self, other: Generation | None) -> bool:
        """Whether ``other``, which stands in a position that this generation has claimed, is that of another process.

        That process came later, whatever the numbers say: a claim commits all positions. After a reset the numbers
        begin again with the clock, which may be behind the one of before.
        """
        return other is not None and other != self

    def __str__(self) -> str:
        return f"generation {self.number} ({_time(self.number)}host {self.host}, pid {self.pid})"


@dataclass(frozen=True)
class PositionMetadata:
    """What stands in the metadata of a committed position.

    Attributes:
        generation: Of the aggregator that committed it.
        checkpoint: Id of the checkpoint that the sub-topology continues; empty before there is one.
        batch: The micro-batch of that checkpoint which moved the position last; None before the first.
        start: The offset at which the application began to read the partition; 0 for the first offset of any topic.
        time: The time in ms that the wall clock has given to the stream task last; None where it has given none.
    """

    generation: Generation
    checkpoint: str = ""
    batch: int | None = None
    start: int = 0
    time: int | None = None

    @classmethod
    def parse(cls, text: str | None) -> PositionMetadata | None:
        """Return what the text of a position says; None for a position that no aggregator committed."""
        words = (text or "").split(" ")
        if words[0] != _PREFIX or len(words) < 3 or not words[1].isdigit():
            return None
        checkpoint, batch, start, time = (*words[3:7], "", "", "", "")[:4]
        return cls(
            Generation(int(words[1]), words[2]),
            checkpoint,
            int(batch) if batch.isdigit() else None,
            int(start) if start.isdigit() else 0,
            int(time) if time.isdigit() else None,
        )

    @property
    def text(self) -> str:
        """The text that is committed with a position; see :meth:`parse`."""
        words = [_PREFIX, str(self.generation.number), self.generation.instance, self.checkpoint]
        words += ["" if self.batch is None else str(self.batch), str(self.start or "")]
        words += [_END] if self.time is None else [str(self.time), _END]
        return " ".join(words)


def named_checkpoint(positions: Iterable[PositionMetadata]) -> str:
    """Return the id of the checkpoint that all positions of a sub-topology name; empty where there is no such one."""
    named = {metadata.checkpoint for metadata in positions}
    return named.pop() if len(named) == 1 else ""


def _time(number: int) -> str:
    """The time that a number says, with a comma and a space; empty for the numbers of older versions, 1, 2, 3."""
    moment = datetime.fromtimestamp(number / 1000, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC, " if moment.year > 1971 else ""
