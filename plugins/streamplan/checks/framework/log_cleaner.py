"""What lies in a partition of a compacted topic, and what the log cleaner must have removed from it by now.

What is due follows from the topic's own configs, by the rules of Kafka's ``LogCleanerManager`` and ``LocalLog``
(``LogSegment.shouldRoll``). The cleaner's checkpoint, the borders of segments, the sizes of batches on disk and the
markers of transactions cannot be seen from outside, so each rule is turned to the side that never accuses a healthy
topic; see :func:`assess`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise

from streamplan.checks.framework.cluster import RecordBatch

MOST_COMPRESSION = 10
"""What is read is uncompressed, and segments and batches are limited by what is stored: at most so much smaller."""

RECORD_OVERHEAD = 7
"""Bytes that a record takes at least beside its key and value (``org.apache.kafka.common.record.DefaultRecord``)."""

BATCH_OVERHEAD = 61
"""Bytes of a batch beside its records, never compressed (``DefaultRecordBatch.RECORD_BATCH_OVERHEAD``)."""

MARKER_BYTES = 78
"""Of the batch with which a transaction ends (``ControlRecordType``, ``EndTransactionMarker``)."""

LONG = 3
"""So many times as long as the cleaner leaves markers a stretch must be to tell how frequent transactions are."""

_FOREVER = 2**63 - 1


@dataclass(frozen=True)
class CompactionRules:
    """The configs of a compacted topic that decide when a superseded record must go. Bytes are uncompressed.

    ``compression``  so much smaller what is stored may be
    """

    segment_bytes: int
    segment_ms: int
    batch_bytes: int
    dirty_ratio: float
    min_lag_ms: int
    max_lag_ms: int
    delete_retention_ms: int = 86_400_000
    compression: int = 1

    @classmethod
    def of(cls, configs: Mapping[str, str]) -> CompactionRules:
        """From a topic's effective configs; where one is not shown, Kafka's default."""
        max_lag_ms = int(configs.get("max.compaction.lag.ms", _FOREVER))
        compression = 1 if configs.get("compression.type") == "uncompressed" else MOST_COMPRESSION
        return cls(
            segment_bytes=int(configs.get("segment.bytes", 1 << 30)) * compression,
            batch_bytes=int(configs.get("max.message.bytes", 1_048_588)) * compression,
            # UnifiedLog.maybeRoll: a segment is closed in time for the greatest lag
            segment_ms=min(int(configs.get("segment.ms", 604_800_000)), max_lag_ms),
            dirty_ratio=float(configs.get("min.cleanable.dirty.ratio", "0.5")),
            min_lag_ms=int(configs.get("min.compaction.lag.ms", 0)),
            max_lag_ms=max_lag_ms,
            delete_retention_ms=int(configs.get("delete.retention.ms", 86_400_000)),
            compression=compression,
        )


class Columns:
    """The records of a partition in the order of offsets, as columns.

    ``start``     the first offset of the partition, where a record lay before the first that is there
    ``complete``  whether these are all of its records, or the first of them
    """

    def __init__(self, start: int = 0) -> None:
        self.start = start
        self.complete = True
        self.offsets = array("q")
        self.timestamps = array("q")
        self.sizes = array("i")
        self.repetitions = array("q")
        """Indexes of the records that supersede an earlier one."""
        self.tombstones: dict[bytes | None, bool] = {}
        """By key whether its last record is one."""

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, batch: RecordBatch) -> None:
        """Records that follow those that are here."""
        keys, values = batch.keys, batch.values
        known, repetitions = self.tombstones, self.repetitions
        for index, (key, value) in enumerate(zip(keys, values, strict=True), len(self)):
            if key in known:
                repetitions.append(index)
            known[key] = value is None
        self.sizes.extend(
            [len(key or b"") + len(value or b"") + RECORD_OVERHEAD for key, value in zip(keys, values, strict=True)]
        )
        self.offsets.extend(batch.offsets)
        self.timestamps.extend(batch.timestamps)

    def superseded_below(self, until: int) -> int:
        """Records that another one below the offset ``until`` supersedes."""
        return bisect_left(self.repetitions, bisect_left(self.offsets, until))


@dataclass(frozen=True)
class CleanerBacklog:
    """The records of one partition of a compacted topic.

    Superseded ones by what keeps them, where it cannot be ruled out:

    ``active``        the active segment
    ``lagging``       ``min.compaction.lag.ms``
    ``clean_enough``  ``min.cleanable.dirty.ratio``
    ``due``           nothing: the cleaner must have removed them by now
    ``being_cleaned`` nothing: they were due, and then became less

    ``due_until``      the offset below which it must have
    ``dirty_percent``  of what it may clean, at least
    """

    records: int
    live_keys: int
    tombstones: int
    active: int
    lagging: int
    clean_enough: int
    due: int
    due_until: int
    dirty_percent: int
    being_cleaned: int = 0

    @property
    def superseded(self) -> int:
        return self.active + self.lagging + self.clean_enough + self.due + self.being_cleaned


def assess(columns: Columns, rules: CompactionRules, now_ms: int) -> CleanerBacklog:
    """Count what is there, and what is due.

    1. A record has left the active segment, which is never compacted, when a later one is more than ``segment.ms``
       younger than it, all before it and all that may share its batch (``max.message.bytes``), since a segment is
       closed between batches; or when more than ``segment.bytes`` follow it.
    2. It may be removed when it has been there for ``min.compaction.lag.ms``.
    3. In what was cleaned each key stands once. So the cleaned part reaches at most to the first repetition of a key,
       and all after it is dirty. It must be cleaned when its share of the bytes exceeds ``min.cleanable.dirty.ratio``,
       whatever cannot be seen of them, or when ``max.compaction.lag.ms`` is over.

    Where only the first records of the partition are known, the same holds: what follows can only be dirty.
    """
    log = _Log(columns, rules)
    left = _first_without(len(columns), lambda index: log.has_left_active_segment(index))
    closed = _first_without(left, lambda index: log.is_older_than_lag(index, now_ms))
    repetitions = columns.repetitions
    cleanable, outside = bisect_left(repetitions, closed), bisect_left(repetitions, left)
    due = False
    dirty = 0.0
    if cleanable:
        dirty = log.least_dirty_share(repetitions[0], closed)
        too_old = log.newest_before_next_batch(repetitions[0]) + rules.max_lag_ms < now_ms
        due = too_old or dirty > rules.dirty_ratio
    tombstones = sum(columns.tombstones.values())
    return CleanerBacklog(
        records=len(columns),
        live_keys=len(columns.tombstones) - tombstones,
        tombstones=tombstones,
        active=len(repetitions) - outside,
        lagging=outside - cleanable,
        clean_enough=0 if due else cleanable,
        due=cleanable if due else 0,
        due_until=columns.offsets[closed - 1] + 1 if closed else 0,
        dirty_percent=int(100 * dirty),
    )


def _first_without(count: int, has: Callable[[int], bool]) -> int:
    """The first index below ``count`` that has it not, where each that has it comes before all that have not."""
    return bisect_left(range(count), True, key=lambda index: not has(index))


class _Log:
    """What can be told of the log on disk: sums and extremes of the columns, each made once."""

    def __init__(self, columns: Columns, rules: CompactionRules) -> None:
        self.columns = columns
        self.rules = rules
        self.bytes_before = array("q", accumulate(columns.sizes, initial=0))
        self.newest_until = array("q", accumulate(columns.timestamps, max))
        newest_from = array("q", accumulate(reversed(columns.timestamps), max, initial=0))
        newest_from.reverse()
        self.newest_from = newest_from

    def newest_before_next_batch(self, index: int) -> int:
        """The latest time of all up to the record and of all that may share its batch.

        The segment's first batch, to which later ones are compared, is no younger.
        """
        fitting = bisect_right(self.bytes_before, self.bytes_before[index] + self.rules.batch_bytes) - 1
        return self.newest_until[max(fitting - 1, index)]

    def has_left_active_segment(self, index: int) -> bool:
        following = self.bytes_before[-1] - self.bytes_before[index + 1]
        rolled_by = self.newest_before_next_batch(index) + self.rules.segment_ms
        return self.newest_from[index + 1] > rolled_by or following > self.rules.segment_bytes

    def is_older_than_lag(self, index: int, now_ms: int) -> bool:
        if not self.rules.min_lag_ms:
            return True
        return self.newest_before_next_batch(index) + self.rules.segment_ms + self.rules.min_lag_ms < now_ms

    def least_dirty_share(self, first_dirty: int, closed: int) -> float:
        """Of the bytes on disk before ``closed`` those from ``first_dirty`` on.

        Of what is dirty the least: compressed as far as may be, and as few batches as there can be. Two records with
        a gap between them are of two batches, and in the gap is a marker or what was aborted: nothing was compacted
        there. Of what is clean the most: nothing compressed, and each record in a batch of its own.
        """
        offsets, sums = self.columns.offsets[first_dirty:closed], self.bytes_before
        missing = offsets[-1] - offsets[0] + 1 - len(offsets)
        gaps = sum(later - earlier > 1 for earlier, later in pairwise(offsets)) if missing else 0
        size = sums[closed] - sums[first_dirty]
        batches = max(gaps, min(size // self.rules.batch_bytes, len(offsets)))
        dirty = size // self.rules.compression + batches * BATCH_OVERHEAD + gaps * (BATCH_OVERHEAD + RECORD_OVERHEAD)
        clean = sums[first_dirty] + first_dirty * BATCH_OVERHEAD + self._most_markers(first_dirty) * MARKER_BYTES
        return dirty / (dirty + clean)

    def _most_markers(self, first_dirty: int) -> int:
        """Of transactions in the cleaned part. They are in gaps there, among what was compacted.

        The cleaner takes them when it comes by ``delete.retention.ms`` after it first did (KIP-534); it comes by when
        a segment was closed and enough is dirty. So it left those of that time, of ``segment.ms`` and of as long as
        it took to get as dirty as it is. How frequent transactions were is seen in the dirty part, once that is so
        long that bursts and pauses even out.
        """
        columns = self.columns
        offsets, timestamps = columns.offsets, columns.timestamps[first_dirty:]
        gaps = offsets[first_dirty] - columns.start - first_dirty
        missing = offsets[-1] - offsets[first_dirty] + 1 - len(timestamps)
        if not missing or not gaps:
            return 0
        took = max(timestamps) - min(timestamps)
        kept = self.rules.delete_retention_ms + self.rules.segment_ms
        if not took or took < LONG * kept:
            return gaps
        return min(gaps, missing + missing * kept // took + 1)
