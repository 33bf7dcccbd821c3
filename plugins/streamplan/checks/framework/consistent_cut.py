"""Moments at which what a sub-topology has read and what it has written belong together, while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from streamplan.checks.framework.cluster import Cluster
from streamplan.errors import CouldNotLook


@dataclass(frozen=True)
class Patience:
    """How long a check waits for something that comes and goes, in seconds."""

    seconds: float = 60.0
    interval: float = 0.02
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True)
class Cut:
    """Every record of the sources below ``positions`` has its effect in the outputs below ``ends``, and no other has.

    ``positions``  by source topic and partition; a partition without a committed position is absent
    ``ends``       by output topic and partition
    """

    positions: Mapping[str, Mapping[int, int]]
    ends: Mapping[str, Mapping[int, int]]


def take_cut(cluster: Cluster, group: str, sources: Sequence[str], outputs: Sequence[str], patience: Patience) -> Cut:
    """Wait for a quiet moment of the sub-topology that reads ``sources`` and writes ``outputs``.

    A transaction of ``exactly_once_v2`` holds output records and the sources' positions. So when the positions are the
    same before and after the outputs were looked at, and no transaction was open on the outputs, then whatever is in
    the outputs is of transactions whose positions were seen, and of every such transaction all records were seen.
    Positions inside a transaction that is being settled are not answered before it is (``require_stable``).
    """
    deadline = patience.clock() + patience.seconds
    before = {source: cluster.positions(group, source) for source in sources}
    while True:
        offsets = {topic: cluster.offsets(topic) for topic in outputs}
        after = {source: cluster.positions(group, source) for source in sources}
        still_open = [
            f"{topic}-{partition}"
            for topic, partitions in offsets.items()
            for partition, found in partitions.items()
            if found.stable != found.end
        ]
        if before == after and not still_open:
            return Cut(
                after,
                {topic: {number: found.end for number, found in found.items()} for topic, found in offsets.items()},
            )
        if patience.clock() > deadline:
            raise CouldNotLook(
                f"the outputs of {group} behind {', '.join(sources)}",
                expected=f"a moment without an open transaction within {patience.seconds:g} s",
                observed=f"open transactions on {', '.join(still_open)}" if still_open else "positions always moving",
                remedy="Is a transaction hanging, or are the transactions too long for this deadline? Look again.",
            )
        before = after
        patience.sleep(patience.interval)
