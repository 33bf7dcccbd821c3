"""Counts what lies in a partition of a compacted topic, and what Kafka's log cleaner must have removed by now.

What is due follows from the topic's own configs, by the rules of Kafka's ``LogCleanerManager`` and ``LocalLog``
(``LogSegment.shouldRoll``). The cleaner's checkpoint, the borders of segments, the sizes of batches on disk and the
markers of transactions cannot be seen from outside. So each rule is applied in favour of the topic: a healthy topic is
never accused. See :func:`assess`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise

from streamplan.kafka_port import RecordBatch

MOST_COMPRESSION = 10
"""Stored bytes, for which limits of segments and batches hold, are at least this part of the bytes that are read."""

RECORD_OVERHEAD = 7
"""The least bytes of a record besides its key and value (``org.apache.kafka.common.record.DefaultRecord``)."""

BATCH_OVERHEAD = 61
"""The bytes of a batch besides its records, never compressed (``DefaultRecordBatch.RECORD_BATCH_OVERHEAD``)."""

MARKER_BYTES = 78
"""The bytes of the batch that ends a transaction (``ControlRecordType``, ``EndTransactionMarker``)."""

LONG = 3
"""How frequent transactions are is found from this many times the period for which the cleaner leaves markers."""

_FOREVER = 2**63 - 1


@dataclass(frozen=True)
class CompactionRules:
    """The configs of a compacted topic that decide when a superseded record must go. Bytes are uncompressed.

    Attributes:
        segment_bytes: A segment is closed at this size.
        segment_ms: A segment is closed at this age.
        batch_bytes: The greatest size of a batch.
        dirty_ratio: ``min.cleanable.dirty.ratio``.
        min_lag_ms: ``min.compaction.lag.ms``.
        max_lag_ms: ``max.compaction.lag.ms``.
        delete_retention_ms: ``delete.retention.ms``.
        compression: How many times fewer the stored bytes may be than those that are read.
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
        """Return the rules of a topic with these effective configs. Kafka's default stands for a missing one."""
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

    Attributes:
        start: The first offset of the partition, where a record may have been before the first one that is there.
        complete: Whether these are all records of the partition, and not only the first ones.
        offsets: The offset of each record.
        timestamps: The timestamp of each record, in ms since the epoch.
        sizes: The bytes of each record.
        repetitions: The indexes of the records that supersede an earlier one.
        tombstones: By key whether its last record is a tombstone.
    """

    def __init__(self, start: int = 0) -> None:
        self.start = start
        self.complete = True
        self.offsets = array("q")
        self.timestamps = array("q")
        self.sizes = array("i")
        self.repetitions = array("q")
        self.tombstones: dict[bytes | None, bool] = {}

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, batch: RecordBatch) -> None:
        """Add records that follow those that are here."""
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
        """Return the number of records that another one below the offset ``until`` supersedes."""
        return bisect_left(self.repetitions, bisect_left(self.offsets, until))


@dataclass(frozen=True)
class CleanerBacklog:
    """The records of one partition of a compacted topic, and what the log cleaner has to do.

    Superseded records are counted by what may still keep them.

    Attributes:
        records: The number of records.
        live_keys: The number of keys whose last record has a value.
        tombstones: The number of keys whose last record is a tombstone.
        active: Superseded records that may be in the active segment.
        lagging: Superseded records that ``min.compaction.lag.ms`` may keep.
        clean_enough: Superseded records that ``min.cleanable.dirty.ratio`` may keep.
        due: Superseded records that nothing keeps: the cleaner must have removed them by now.
        due_until: The offset below which they lie.
        dirty_percent: The least share of the cleanable bytes that is dirty.
        being_cleaned: Superseded records that were due, and became fewer meanwhile.
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
        """The number of all superseded records."""
        return self.active + self.lagging + self.clean_enough + self.due + self.being_cleaned


def assess(columns: Columns, rules: CompactionRules, now_ms: int) -> CleanerBacklog:
    """Count what is there, and what is due.

    1. The active segment is never compacted. A segment is closed between batches. So a record has left the active
       segment when a later record is more than ``segment.ms`` younger than the record, than all before it and than all
       that may share its batch (``max.message.bytes``). It has also left it when more than ``segment.bytes`` follow.
    2. It may be removed when it has been there for ``min.compaction.lag.ms``.
    3. In the part that was cleaned, each key stands once. So this part reaches at most to the first repetition of a
       key, and all after it is dirty. The dirty part must be cleaned when its share of the bytes exceeds
       ``min.cleanable.dirty.ratio``, whatever cannot be seen of them, or when ``max.compaction.lag.ms`` is over. Kafka
       takes the age of a segment from its first batch, and no age from a timestamp of 0 or less.

    The same holds where only the first records of the partition are known: what follows can only be dirty.

    Args:
        columns: The records.
        rules: The configs of the topic.
        now_ms: The time, in ms since the epoch.
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
        has_age = min(columns.timestamps[: repetitions[0] + 1]) > 0
        too_old = has_age and log.newest_before_next_batch(repetitions[0]) + rules.max_lag_ms < now_ms
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
    """Return the first index below ``count`` for which ``has`` is false; ``has`` must be monotonic."""
    return bisect_left(range(count), True, key=lambda index: not has(index))


class _Log:
    """What the records tell about the log on disk: sums and extremes of the columns, each computed once."""

    def __init__(self, columns: Columns, rules: CompactionRules) -> None:
        self.columns = columns
        self.rules = rules
        self.bytes_before = array("q", accumulate(columns.sizes, initial=0))
        self.newest_until = array("q", accumulate(columns.timestamps, max))
        newest_from = array("q", accumulate(reversed(columns.timestamps), max, initial=0))
        newest_from.reverse()
        self.newest_from = newest_from

    def newest_before_next_batch(self, index: int) -> int:
        """Return the latest time of all records up to this one and of all that may share its batch.

        The first batch of the segment, to which Kafka compares later ones, is no younger.
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
        """Return the least possible share that the records from ``first_dirty`` on have of the bytes before ``closed``.

        The dirty bytes are the fewest possible: compressed as far as possible, in as few batches as possible. Two
        records with a gap between them are in two batches; in the gap is a marker, or records that were aborted, since
        nothing was compacted there. The clean bytes are the most possible: uncompressed, a batch for each record.
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
        """Return the greatest possible number of transaction markers in the cleaned part.

        They lie in its gaps, among records that were compacted. The cleaner removes a marker on its first visit that is
        ``delete.retention.ms`` after its first one (KIP-534). It visits when a segment was closed and enough is dirty.
        So it left the markers of that time, of ``segment.ms``, and of the time in which the dirty part came. The dirty
        part tells how frequent transactions are, once it is so long that bursts and pauses even out.
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
