"""Compaction: is it the policy, and does it happen?

What is due follows from the topic's own configs, by the rules of Kafka's ``LogCleanerManager`` and ``LocalLog``
(``LogSegment.shouldRoll``). The cleaner's checkpoint and the borders of segments cannot be seen from outside, so each
rule is turned to the side that never accuses a healthy topic; see :func:`examine`.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate

from streamplan.checks.cuts import Patience
from streamplan.checks.observation import Check, Observation, RecordsGone
from streamplan.checks.port import Cluster, Offsets
from streamplan.pipeline import Pipeline
from streamplan.topics import ObservedTopic, TopicRole

CLEANER_PATIENCE = Patience(seconds=60.0, interval=5.0)
"""The cleaner wakes every ``log.cleaner.backoff.ms`` (15 s): what is due is overdue when it is still due after this."""

MOST_COMPRESSION = 10
"""What is read is uncompressed, and segments and batches are limited by what is stored: at most so much smaller."""

RECORD_OVERHEAD = 7
"""Bytes that a record takes at least beside its key and value (``org.apache.kafka.common.record.DefaultRecord``)."""

LOOKS = 3

_FOREVER = 2**63 - 1


@dataclass(frozen=True)
class CompactionRules:
    """The configs of a compacted topic that decide when a superseded record must go. Bytes are uncompressed."""

    segment_bytes: int
    segment_ms: int
    batch_bytes: int
    dirty_ratio: float
    min_lag_ms: int
    max_lag_ms: int

    @classmethod
    def of(cls, configs: Mapping[str, str]) -> CompactionRules:
        """From a topic's effective configs; where one is not shown, Kafka's default."""
        max_lag_ms = int(configs.get("max.compaction.lag.ms", _FOREVER))
        smaller = 1 if configs.get("compression.type") == "uncompressed" else MOST_COMPRESSION
        return cls(
            segment_bytes=int(configs.get("segment.bytes", 1 << 30)) * smaller,
            batch_bytes=int(configs.get("max.message.bytes", 1_048_588)) * smaller,
            # UnifiedLog.maybeRoll: a segment is closed in time for the greatest lag
            segment_ms=min(int(configs.get("segment.ms", 604_800_000)), max_lag_ms),
            dirty_ratio=float(configs.get("min.cleanable.dirty.ratio", "0.5")),
            min_lag_ms=int(configs.get("min.compaction.lag.ms", 0)),
            max_lag_ms=max_lag_ms,
        )


@dataclass(frozen=True)
class Pile:
    """The records of one partition of a compacted topic.

    ``due``       superseded records that the cleaner must have removed by now
    ``due_until`` the offset below which it must have
    """

    records: int
    live_keys: int
    tombstones: int
    superseded: int
    dirty_percent: int
    due: int
    due_until: int


class Columns:
    """The records of a partition in the order of offsets, as columns: 28 bytes a record."""

    def __init__(self) -> None:
        self.offsets = array("q")
        self.timestamps = array("q")
        self.sizes = array("i")
        self.superseded_by = array("q")
        """Index of the next record with the same key, or -1."""
        self.last: dict[bytes | None, tuple[int, bool]] = {}
        """By key the index of its last record, and whether that is a tombstone."""

    def add(self, offset: int, timestamp: int, key: bytes | None, value: bytes | None) -> None:
        index = len(self.offsets)
        before = self.last.get(key)
        if before is not None:
            self.superseded_by[before[0]] = index
        self.last[key] = (index, value is None)
        self.offsets.append(offset)
        self.timestamps.append(timestamp)
        self.sizes.append(len(key or b"") + len(value or b"") + RECORD_OVERHEAD)
        self.superseded_by.append(-1)

    def repeated_below(self, until: int) -> int:
        """Records superseded by another one below the offset ``until``."""
        return sum(1 for later in self.superseded_by if later >= 0 and self.offsets[later] < until)


def examine(columns: Columns, rules: CompactionRules, now_ms: int) -> Pile:
    """Count what is there, and what is due.

    1. A record has left the active segment, which is never compacted, when a later one is more than ``segment.ms``
       younger than it, all before it and all that may share its batch (``max.message.bytes``), since a segment is
       closed between batches; or when more than ``segment.bytes`` follow it.
    2. It may be removed when it has been there for ``min.compaction.lag.ms``.
    3. In what was cleaned each key stands once. So the cleaned part reaches at most to the first repetition of a key,
       and all after it is dirty. It must be cleaned when its share exceeds ``min.cleanable.dirty.ratio``; here, since
       compressed sizes are not known, when it is half way from there to 1. Or when ``max.compaction.lag.ms`` is over.
    """
    closed = _closed(columns, rules, now_ms)
    superseded_by = columns.superseded_by
    repeated = [later for later in superseded_by[:closed] if 0 <= later < closed]
    first_repetition = min(repeated, default=closed)
    total = sum(columns.sizes[:closed])
    dirty = sum(columns.sizes[first_repetition:closed])
    too_dirty = dirty > total * (1 + rules.dirty_ratio) / 2
    too_old = bool(repeated) and max(columns.timestamps[: first_repetition + 1]) + rules.max_lag_ms < now_ms
    tombstones = sum(tombstone for _, tombstone in columns.last.values())
    return Pile(
        records=len(columns.offsets),
        live_keys=len(columns.last) - tombstones,
        tombstones=tombstones,
        superseded=len(columns.offsets) - len(columns.last),
        dirty_percent=round(100 * dirty / total) if total else 0,
        due=len(repeated) if too_dirty or too_old else 0,
        due_until=columns.offsets[closed - 1] + 1 if closed else 0,
    )


def _closed(columns: Columns, rules: CompactionRules, now_ms: int) -> int:
    """How many of the first records are certainly in closed segments and may be cleaned."""
    count = len(columns.offsets)
    newest = array("q", accumulate(columns.timestamps, max))
    following_bytes, following_newest = 0, 0
    batch_end, batch_bytes = count, 0  # of the largest batch that can begin with the record
    for index in range(count - 1, -1, -1):
        size = columns.sizes[index]
        batch_bytes += size
        while batch_end > index + 1 and batch_bytes > rules.batch_bytes:
            batch_end -= 1
            batch_bytes -= columns.sizes[batch_end]
        segment_first = newest[batch_end - 1]  # the segment's first batch, to which others are compared, is no younger
        rolled = following_newest > segment_first + rules.segment_ms or following_bytes > rules.segment_bytes
        settled = rules.min_lag_ms == 0 or segment_first + rules.segment_ms + rules.min_lag_ms < now_ms
        if rolled and settled:
            return index + 1
        following_bytes += size
        following_newest = max(following_newest, columns.timestamps[index])
    return 0


def observe(
    pipeline: Pipeline,
    cluster: Cluster,
    *,
    patience: Patience = CLEANER_PATIENCE,
    now: Callable[[], float] = time.time,
) -> Iterable[Observation]:
    """The policy of every changelog, then what lies in each of its partitions."""
    changelogs = [spec for spec in pipeline.topics() if spec.role is TopicRole.CHANGELOG]
    observed = cluster.topics([spec.name for spec in changelogs])
    for spec in changelogs:
        topic = observed.get(spec.name)
        if topic is None:
            yield Observation(f"topic {spec.name}", "exists", "missing")
            continue
        expected = spec.configs["cleanup.policy"]
        policy = topic.configs.get("cleanup.policy", "not set")
        yield Observation(f"{spec.name}: cleanup.policy", expected, policy)
        offsets = cluster.offsets(spec.name)
        if not any(found.end for found in offsets.values()):
            yield Observation(f"{spec.name}: records", "at least 1", "none")
        elif policy == expected:
            yield from _piles(cluster, topic, offsets, patience, now)


def _piles(
    cluster: Cluster,
    topic: ObservedTopic,
    offsets: Mapping[int, Offsets],
    patience: Patience,
    now: Callable[[], float],
) -> Iterable[Observation]:
    rules = CompactionRules.of(topic.configs)
    piles = {
        partition: examine(_read(cluster, topic.name, partition), rules, int(now() * 1000))
        for partition in sorted(offsets)
    }
    # The cleaner may be about to begin, or at work: then what is due becomes less.
    waiting = {partition: pile for partition, pile in piles.items() if pile.due}
    deadline = patience.clock() + patience.seconds
    while waiting and patience.clock() < deadline:
        patience.sleep(patience.interval)
        for partition, pile in tuple(waiting.items()):
            if _read(cluster, topic.name, partition).repeated_below(pile.due_until) < pile.due:
                piles[partition] = replace(pile, due=0)
                del waiting[partition]
    for partition, pile in piles.items():
        yield Observation(
            f"{topic.name}-{partition}: superseded records overdue for compaction ({_described(pile, rules)})",
            0,
            pile.due,
        )


def _described(pile: Pile, rules: CompactionRules) -> str:
    parts = [f"{pile.records} records", f"{pile.live_keys} live keys"]
    parts += [f"{pile.tombstones} tombstones"] if pile.tombstones else []
    parts.append(f"{pile.superseded} superseded")
    if pile.due:
        parts.append(f"below offset {pile.due_until} {pile.dirty_percent}% is dirty")
        parts.append(f"min.cleanable.dirty.ratio={rules.dirty_ratio:g}")
    elif pile.superseded:
        parts.append("in the active segment, being compacted or not due yet")
    return ", ".join(parts)


def _read(cluster: Cluster, topic: str, partition: int) -> Columns:
    for look in range(1, LOOKS + 1):
        found = cluster.offsets(topic)[partition]
        columns = Columns()
        try:
            for chunk in cluster.records(topic, {partition: (found.start, found.stable)}):
                for _, offset, timestamp, key, value, _ in chunk:
                    columns.add(offset, timestamp, key, value)
        except RecordsGone:
            if look == LOOKS:
                raise
        else:
            break
    return columns


CHECK = Check(
    name="compaction",
    title="Changelog compaction",
    healthy="Every changelog has the cleanup policy compact, and superseded records go when the topic's own configs"
    " say so: those outside the active segment, once they are more than min.cleanable.dirty.ratio of it or older than"
    " max.compaction.lag.ms.",
    observe=observe,
)
