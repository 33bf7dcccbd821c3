"""Which of several aggregators of one application is the one: the newest.

Each start of an aggregator is a generation. Its number stands in the metadata of every position that it commits, in the
same transaction as the records, so that a stream task belongs to exactly one generation at any offset. An older
aggregator, one started by mistake or one that slept through its successor's start, finds the newer number and stops.

Kafka Streams has the generation of its consumer group for that (KIP-447); a query on Spark has no members in a group.
"""

from __future__ import annotations

import os
import socket
import uuid
from dataclasses import dataclass

_PREFIX = "streamplan-generation"


@dataclass(frozen=True)
class Generation:
    """``number`` counts from 1; ``instance`` is ``<host>:<pid>:<random>`` of the aggregator's driver."""

    number: int
    instance: str

    @classmethod
    def of_this_process(cls, number: int) -> Generation:
        """A generation of the aggregator whose driver is this process."""
        return cls(number, f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}")

    @classmethod
    def parse(cls, metadata: str | None) -> Generation | None:
        """What a position's metadata say; None when it was not committed by an aggregator."""
        prefix, _, rest = (metadata or "").partition(" ")
        number, _, instance = rest.partition(" ")
        if prefix != _PREFIX or not number.isdigit():
            return None
        return cls(int(number), instance)

    @property
    def metadata(self) -> str:
        """The metadata of the positions that the aggregator commits; see :meth:`parse`."""
        return f"{_PREFIX} {self.number} {self.instance}"

    @property
    def host(self) -> str:
        """The host of the driver."""
        return self.instance.rsplit(":", 2)[0]

    @property
    def pid(self) -> int:
        """The process id of the driver; 0 if the metadata names none."""
        _, _, pid = self.instance.rpartition(":")[0].rpartition(":")
        return int(pid) if pid.isdigit() else 0

    def is_superseded_by(self, other: Generation | None) -> bool:
        """Whether ``other`` is the generation of another aggregator that was started later."""
        return other is not None and other != self and other.number >= self.number

    def __str__(self) -> str:
        return f"generation {self.number} (host {self.host}, pid {self.pid})"
