"""Which records of a repartition topic have done their work and can be deleted.

Kafka Streams deletes the records of repartition topics that its tasks have committed
(``org.apache.kafka.streams.processor.internals.TaskManager.maybePurgeCommittedRecords``). Here a record must have been
verified as well: what was deleted before that could never be proven to have been counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

Positions: TypeAlias = Mapping[int, int]
"""By partition."""


def plan_purge(starts: Positions, needed_from: Sequence[Positions]) -> dict[int, int]:
    """Plan up to which offset the records of each partition are deleted.

    Args:
        starts: The first offset that is there.
        needed_from: Of each reader the offset from which on it may still read. Where a reader has none for a partition,
            nothing of that partition is deleted.

    Returns:
        By partition the first offset that stays. Partitions with nothing to delete are left out.
    """
    until = {
        partition: min(positions[partition] for positions in needed_from)
        for partition in starts
        if all(partition in positions for positions in needed_from)
    }
    return {partition: offset for partition, offset in until.items() if offset > starts[partition]}
