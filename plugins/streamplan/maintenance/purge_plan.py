"""What of a repartition topic has done its work and can go.

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
    """By partition the offset below which records are deleted; partitions with nothing to delete are left out.

    ``starts``       the first offset that is there
    ``needed_from``  of each reader the offset from which on it may still read; where one has none for a partition,
                     nothing of that is deleted
    """
    until = {
        partition: min(positions[partition] for positions in needed_from)
        for partition in starts
        if all(partition in positions for positions in needed_from)
    }
    return {partition: offset for partition, offset in until.items() if offset > starts[partition]}
