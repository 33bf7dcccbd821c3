"""Waiting and trying again: deadlines, repeated reading, and consistent cuts of a running application."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeVar

from streamplan.errors import CouldNotLook
from streamplan.kafka_port import Cluster, RecordsGone

MAX_ATTEMPTS = 3
"""How often a check reads a topic from which records are deleted meanwhile."""

TOLD_AFTER_SECONDS = 1.0
"""A wait that takes less is not worth telling."""

NAMED = 3
"""At most this many of the things that a check waits for are named."""

Result = TypeVar("Result")


def tell_nobody(text: str) -> None:
    """Leave a report unsaid."""


@dataclass(frozen=True)
class Deadline:
    """How long a check waits for a condition, and how often it looks.

    Attributes:
        seconds: The longest wait.
        interval: Seconds between two looks.
        clock: Tells the time in seconds.
        sleep: Waits for that many seconds.
        report: Is told what a check waits for, once it has waited for a second, and then "" when the wait is over.
    """

    seconds: float = 60.0
    interval: float = 0.02
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    report: Callable[[str], None] = tell_nobody

    def reporting(self, report: Callable[[str], None]) -> Deadline:
        """Return the same deadline, whose waits are told to ``report``."""
        return replace(self, report=report)

    def waits(self, condition: str) -> Iterator[None]:
        """Sleep for an interval and yield, again and again, until the time is over.

        Args:
            condition: What is waited for, as it follows the word "until".
        """
        begun = self.clock()
        told = False
        try:
            while self.clock() < begun + self.seconds:
                self.sleep(self.interval)
                if not told and self.clock() - begun >= TOLD_AFTER_SECONDS:
                    told = True
                    self.report(f"waits up to {self.seconds:g} s until {condition}")
                yield
        finally:
            if told:
                self.report("")


def some_of(names: Sequence[str]) -> str:
    """Return the first of these names, and how many more there are: ``a, b, c and 4 more``."""
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"


def attempt(
    read: Callable[[], Result],
    *,
    is_final: Callable[[Result], bool] = lambda result: True,
    pause: Callable[[], None] = lambda: None,
) -> Result:
    """Read up to :data:`MAX_ATTEMPTS` times.

    Compaction, retention and purging delete records while a check reads. What is really wrong is wrong each time.

    Args:
        read: Reads once.
        is_final: Whether a result needs no further attempt.
        pause: Called before the next attempt when a result was not final.

    Returns:
        The first final result, or the last one.

    Raises:
        RecordsGone: Records were deleted during the last attempt, too.
    """
    for _ in range(MAX_ATTEMPTS - 1):
        try:
            result = read()
        except RecordsGone:
            continue
        if is_final(result):
            return result
        pause()
    return read()


@dataclass(frozen=True)
class ConsistentCut:
    """Committed offsets and ends of topics that belong together.

    Every record of the sources below ``positions`` has its effect in the outputs below ``ends``. No other record has.

    Attributes:
        positions: Committed offsets by source topic and partition; a partition without one is absent.
        ends: End offsets by output topic and partition.
    """

    positions: Mapping[str, Mapping[int, int]]
    ends: Mapping[str, Mapping[int, int]]


def await_consistent_cut(
    cluster: Cluster, group: str, sources: Sequence[str], outputs: Sequence[str], deadline: Deadline
) -> ConsistentCut:
    """Wait for a consistent cut of the sub-topology that reads ``sources`` and writes ``outputs``.

    A transaction of ``exactly_once_v2`` holds output records and the positions in the sources. Suppose that the
    positions are the same before and after the outputs were looked at, and that no transaction was open on the outputs.
    Then all records in the outputs are of transactions whose positions were seen, and all records of these transactions
    were seen. Kafka does not answer positions inside a transaction that is being completed (``require_stable``).

    Args:
        cluster: Where to look.
        group: The consumer group, which is the application id.
        sources: Names of the topics that are read.
        outputs: Names of the topics that are written.
        deadline: How long to wait.

    Raises:
        CouldNotLook: There was no such moment within the deadline.
    """
    before = {source: cluster.positions(group, source) for source in sources}
    still_open: list[str] = []
    condition = f"no transaction is open on {some_of(outputs)} between two equal positions of {group}"
    for _ in chain((None,), deadline.waits(condition)):
        offsets = {topic: cluster.offsets(topic) for topic in outputs}
        after = {source: cluster.positions(group, source) for source in sources}
        still_open = [
            f"{topic}-{number}"
            for topic, partitions in offsets.items()
            for number, partition in partitions.items()
            if partition.last_stable != partition.high_watermark
        ]
        if before == after and not still_open:
            ends = {
                topic: {number: partition.high_watermark for number, partition in partitions.items()}
                for topic, partitions in offsets.items()
            }
            return ConsistentCut(after, ends)
        before = after
    raise CouldNotLook(
        f"the outputs of {group} behind {', '.join(sources)}",
        expected=f"a moment without an open transaction within {deadline.seconds:g} s",
        observed=f"open transactions on {', '.join(still_open)}" if still_open else "positions always moving",
        remedy="Is a transaction hanging, or are the transactions too long for this deadline? Look again.",
    )
