"""Counts open dead letters by their reason. Each one is read once, and so is the mark of each that was re-driven."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from streamplan.kafka_port import Cluster, RecordsGone
from streamplan.kafka_types import Headers, Offsets
from streamplan.model import dead_letters as letters

FIRST_OFFSETS = 100_000
"""The first time, at most this many offsets of a partition are read, the newest."""

MAX_REASONS = 20
"""At most this many reasons are told apart, in the order in which they are met: each is a time series of a metric."""

NO_REASON = "no reason is given"
OTHER_REASONS = "other reasons"


@dataclass
class _Counted:
    """What was read of one topic: its id, the offset behind it by partition, and the open dead letters by reason."""

    id: str
    next: dict[int, int] = field(default_factory=dict)
    by_reason: Counter[str] = field(default_factory=Counter)


class DeadLetterCounts:
    """Counts the dead letters of one application, from one look to the next."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._topics: dict[str, _Counted] = {}

    def update(self, topic: str, borders: Mapping[int, Offsets]) -> None:
        """Read the dead letters that came since the last look; all of them where a reset has made the topic anew.

        Args:
            topic: A dead-letter topic.
            borders: The offsets of its partitions; none where there is no such topic.
        """
        if not borders:
            self._topics.pop(topic, None)
            return
        topic_id = self._cluster.topic_ids([topic])[topic]
        counted = self._topics.get(topic)
        if counted is None or counted.id != topic_id:
            counted = self._topics[topic] = _Counted(topic_id)
        ranges = {partition: (_first(counted, partition, at), at.last_stable) for partition, at in borders.items()}
        found: Counter[str] = Counter()
        try:
            for batch in self._cluster.read(topic, ranges):
                for headers in batch.headers:
                    found[reason_of(headers)] += -1 if letters.is_mark(headers) else 1
        except RecordsGone:  # they were deleted just now; the next look reads what is left
            return
        for reason, number in found.items():
            is_known = reason in counted.by_reason or len(counted.by_reason) < MAX_REASONS
            counted.by_reason[reason if is_known else OTHER_REASONS] += number
        counted.next |= {partition: end for partition, (_, end) in ranges.items()}

    def by_reason(self) -> Mapping[str, int]:
        """Return how many dead letters were read and are open, by reason, the most frequent first.

        The dead letter of a mark may lie before the offsets that were read first.
        """
        counts: Counter[str] = Counter()
        for counted in self._topics.values():
            counts.update(counted.by_reason)
        return {reason: number for reason, number in counts.most_common() if number > 0}


def _first(counted: _Counted, partition: int, at: Offsets) -> int:
    return max(counted.next.get(partition, at.last_stable - FIRST_OFFSETS), at.log_start)


def reason_of(headers: Headers) -> str:
    """Return why a record was dead-lettered: Streamplan's reason, else the message of Kafka Streams (KIP-1034)."""
    values = dict(headers)
    reason = values.get(letters.REASON) or values.get(letters.ERROR_MESSAGE)
    return reason.decode("utf-8", "backslashreplace") if reason else NO_REASON
