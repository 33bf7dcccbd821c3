from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from random import Random

import pytest
from streamplan.checks.framework.log_cleaner import (
    BATCH_OVERHEAD,
    MARKER_BYTES,
    CleanerBacklog,
    Columns,
    CompactionRules,
    assess,
)
from streamplan.kafka_types import Record

from tests.support.fake_cluster import FakeRecordBatch

RULES = CompactionRules(
    segment_bytes=1 << 30, segment_ms=10, batch_bytes=1, dirty_ratio=0.5, min_lag_ms=0, max_lag_ms=2**63 - 1
)


def columns_of(records: Iterable[Record], start: int = 0) -> Columns:
    columns = Columns(start)
    columns.add(FakeRecordBatch(0, list(records)))
    return columns


def log(*records: tuple[int, bytes, bytes | None]) -> Columns:
    """Of time, key and value."""
    return columns_of(Record(0, offset, *record) for offset, record in enumerate(records))


def test_counts() -> None:
    pile = assess(log((0, b"a", b"1"), (0, b"b", b"1"), (0, b"a", b"2"), (0, b"b", None)), RULES, 0)
    assert (pile.records, pile.live_keys, pile.tombstones, pile.superseded, pile.due) == (4, 1, 1, 2, 0)


def test_chunks_are_one_log() -> None:
    whole = log(*[(n, b"%d" % (n % 3), b"v") for n in range(40)])
    parts = Columns()
    for first in range(0, 40, 7):
        records = [Record(0, n, n, b"%d" % (n % 3), b"v") for n in range(first, min(first + 7, 40))]
        parts.add(FakeRecordBatch(0, records))
    assert assess(parts, RULES, 1000) == assess(whole, RULES, 1000)
    assert parts.superseded_below(20) == whole.superseded_below(20) == 17


def test_an_empty_partition() -> None:
    assert assess(Columns(), RULES, 0) == CleanerBacklog(0, 0, 0, 0, 0, 0, 0, 0, 0)


def test_why_superseded_records_are_still_there() -> None:
    """Key a at 0..39 ms, then x at 42 ms: 0..31 have left the active segment, which takes 10 ms."""
    records = [(n, b"a", b"v") for n in range(40)] + [(42, b"x", b"v")]
    pile = assess(log(*records), RULES, 1000)
    assert (pile.active, pile.lagging, pile.clean_enough, pile.due) == (8, 0, 0, 31)
    lag = CompactionRules(**{**vars(RULES), "min_lag_ms": 20})
    # A segment that began at n ms took records up to n + 10, and is let be until they are 20 ms old.
    pile = assess(log(*records), lag, 51)
    assert (pile.active, pile.lagging, pile.clean_enough, pile.due) == (8, 11, 0, 20)
    never = CompactionRules(**{**vars(RULES), "dirty_ratio": 1.0})
    pile = assess(log(*records), never, 1000)
    assert (pile.active, pile.lagging, pile.clean_enough, pile.due) == (8, 0, 31, 0)


def test_a_dirty_part_below_the_ratio_is_not_due() -> None:
    unique = [(0, b"k%d" % n, b"v") for n in range(100)]
    repeated = [(0, b"k%d" % n, b"v") for n in range(90)]
    assert assess(log(*unique, *repeated, (100, b"x", b"v")), RULES, 1000).due == 0
    assert assess(log(*unique, *repeated * 5, (100, b"x", b"v")), RULES, 1000).due == 450


def test_the_first_records_of_a_partition_are_enough() -> None:
    records = [(n, b"%d" % (n % 3), b"v") for n in range(200)]
    assert assess(log(*records[:100]), RULES, 1000).due == 100 - 11 - 3
    assert assess(log(*records), RULES, 1000).due == 200 - 11 - 3


@pytest.mark.parametrize("first", [0, -1])
def test_records_without_a_time_are_never_too_old(first: int) -> None:
    """``LogCleanerManager.maxCompactionDelay`` passes over segments whose first batch has no timestamp above 0."""
    rules = CompactionRules(**{**vars(RULES), "dirty_ratio": 1.0, "max_lag_ms": 100})
    records = [(first, b"a", b"v")] + [(n, b"a", b"v") for n in range(1, 40)] + [(60, b"x", b"v")]
    assert assess(log(*records), rules, 1000).due == 0
    assert assess(log((1, b"a", b"v"), *records[1:]), rules, 1000).due > 0


def test_records_out_of_order_in_time_prove_nothing() -> None:
    """A record from the past follows one from now: no segment was closed by that."""
    assert assess(log((100, b"a", b"1"), (0, b"a", b"2"), (105, b"a", b"3")), RULES, 1000).due == 0


@pytest.mark.parametrize("cleaned", range(0, 200, 10))
@pytest.mark.parametrize("keys", [1, 7, 60])
def test_no_healthy_log_is_accused(cleaned: int, keys: int) -> None:
    """A cleaner by Kafka's rules, which cleans whenever more than half is dirty, leaves nothing due at any length."""
    kept: list[tuple[int, int, bytes]] = []
    checkpoint = 0
    for n in range(200 + cleaned):
        kept.append((n, n, b"%d" % (n * 31 % keys)))
        base = n - n % 11  # segment.ms=10: each takes 11 records, one a ms
        dirty = sum(1 for offset, _, _ in kept if checkpoint <= offset < base)
        clean = sum(1 for offset, _, _ in kept if offset < checkpoint)
        if dirty > (clean + dirty) * RULES.dirty_ratio:
            last = {key: offset for offset, _, key in kept if offset < base}
            kept = [record for record in kept if record[0] >= base or last[record[2]] == record[0]]
            checkpoint = base
        columns = columns_of(Record(0, offset, time, key, b"v") for offset, time, key in kept)
        assert assess(columns, RULES, 10_000).due == 0


# -- a broker's log by the byte


@dataclass
class Batch:
    """As it is stored. A marker is a batch without records."""

    first: int
    last: int
    time: int
    records: list[Record]
    compression: int = 1
    horizon: int | None = None

    @property
    def stored(self) -> int:
        if not self.records:
            return MARKER_BYTES
        size = sum(len(record.key or b"") + len(record.value or b"") + 8 for record in self.records)
        return BATCH_OVERHEAD + size // self.compression


@dataclass
class BrokerLog:
    """One partition: ``LocalLog.append``, ``LogSegment.shouldRoll``, ``LogCleanerManager`` and ``Cleaner``."""

    rules: CompactionRules
    segments: list[list[Batch]] = field(default_factory=lambda: [[]])
    checkpoint: int = 0
    end: int = 0

    def append(self, time: int, keys: list[bytes], compression: int) -> None:
        records = [Record(0, self.end + n, time, key, bytes(8)) for n, key in enumerate(keys)]
        self._append(Batch(self.end, self.end + max(len(keys), 1) - 1, time, records, compression))

    def end_transaction(self, time: int) -> None:
        self._append(Batch(self.end, self.end, time, []))

    def _append(self, batch: Batch) -> None:
        active = self.segments[-1]
        size = sum(one.stored for one in active) + batch.stored
        limit = self.rules.segment_bytes // self.rules.compression
        if active and (size > limit or batch.time - active[0].time > self.rules.segment_ms):
            self.segments.append([])
        self.segments[-1].append(batch)
        self.end = batch.last + 1

    def clean(self, now: int) -> None:
        closed = self.segments[:-1]
        clean = [segment for segment in closed if segment and segment[0].first < self.checkpoint]
        dirty = [segment for segment in closed if segment and segment[0].first >= self.checkpoint]
        sizes = [sum(batch.stored for segment in part for batch in segment) for part in (clean, dirty)]
        if not dirty or sizes[1] <= sum(sizes) * self.rules.dirty_ratio:
            return
        latest = {record.key: record.offset for segment in closed for b in segment for record in b.records}
        for segment in closed:
            segment[:] = [batch for batch in segment if self._keep(batch, latest, now)]
        self.checkpoint = self.segments[-1][0].first

    def _keep(self, batch: Batch, latest: dict[bytes | None, int], now: int) -> bool:
        if not batch.records:
            if batch.horizon is None:
                batch.horizon = now + self.rules.delete_retention_ms
            return now < batch.horizon
        batch.records = [record for record in batch.records if latest[record.key] == record.offset]
        return bool(batch.records)

    def read(self) -> Columns:
        return columns_of(record for segment in self.segments for batch in segment for record in batch.records)


def traffic(random: Random, compression: int) -> Iterator[tuple[int, list[bytes], bool, int]]:
    """Time, keys of a batch, whether a marker follows it, its compression. Bursts are 60 times as dense as lulls."""
    keys, most = random.choice([1, 3, 100, 1000]), random.choice([1, 5, 80])
    transactional = random.random() < 0.7
    time = 1_000_000
    while True:
        pause = random.choice([50, 500, 3000])
        for _ in range(random.randrange(20, 100)):
            time += random.randrange(pause, 3 * pause)
            batch = [b"%05d" % random.randrange(keys) for _ in range(random.randrange(1, most + 1))]
            yield time, batch, transactional, random.randrange(1, compression + 1)


def rules_of(random: Random) -> CompactionRules:
    compression = random.choice([1, 10])
    return CompactionRules(
        segment_bytes=random.choice([2_000, 50_000]) * compression,
        segment_ms=random.choice([1_000, 60_000]),
        batch_bytes=random.choice([1_500, 5_000]) * compression,
        dirty_ratio=random.choice([0.1, 0.5, 0.8]),
        min_lag_ms=0,
        max_lag_ms=2**63 - 1,
        delete_retention_ms=random.choice([0, 20_000, 200_000]),
        compression=compression,
    )


@pytest.mark.parametrize("seed", range(40))
def test_no_log_on_disk_is_accused(seed: int) -> None:
    """Segments, batches, compression and markers cannot be seen by the check: here they are, and a cleaner at work."""
    random = Random(seed)
    rules = rules_of(random)
    broker, steps = BrokerLog(rules), traffic(random, rules.compression)
    for step in range(400):
        time, keys, transactional, compression = next(steps)
        broker.append(time, keys, compression)
        if transactional:
            broker.end_transaction(time)
        broker.clean(time)
        if step % 20 == 0:
            assert assess(broker.read(), rules, time).due == 0, step


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("dirty_ratio", [0.1, 0.5])
def test_a_cleaner_that_stops_is_found_on_disk(transactional: bool, dirty_ratio: float) -> None:
    rules = CompactionRules(
        segment_bytes=20_000,
        segment_ms=10_000,
        batch_bytes=2_000,
        dirty_ratio=dirty_ratio,
        min_lag_ms=0,
        max_lag_ms=2**63 - 1,
        delete_retention_ms=20_000,
        compression=10,
    )
    broker = BrokerLog(rules)
    for step in range(4_000):  # a batch of 5 a second; the cleaner stops in the middle
        broker.append(1000 * step, [b"%d" % (7 * step % 30 + n) for n in range(5)], 1)
        if transactional:
            broker.end_transaction(1000 * step)
        if step < 2_000:
            broker.clean(1000 * step)
        if step == 2_000:
            assert assess(broker.read(), rules, 1000 * step).due == 0
    assert assess(broker.read(), rules, 4_000_000).due > 1_000
