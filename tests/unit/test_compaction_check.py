from __future__ import annotations

import pytest
from streamplan.checks import compaction
from streamplan.checks.compaction import Columns, CompactionRules, examine
from streamplan.checks.cuts import Patience
from streamplan.checks.observation import Observation
from streamplan.pipelines.orders import PIPELINE

from tests.fake_cluster import IMPATIENT, FakeApplication, FakeCluster

SECOND = 1_000
HOUR = 3600 * SECOND
NOW = 1_000 * HOUR


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def application(cluster: FakeCluster) -> FakeApplication:
    """A total an hour for 100 hours, segments of 10 hours, each record a batch."""
    application = FakeApplication(cluster, PIPELINE)
    cluster.existing[application.changelog].configs |= {
        "segment.ms": str(10 * HOUR),
        "max.message.bytes": "16",
        "compression.type": "uncompressed",
    }
    for n in range(100):
        cluster.produce(
            application.changelog, b"0", n.to_bytes(8, "big"), partition=0, timestamp=NOW + (n - 100) * HOUR
        )
    return application


def wrong(cluster: FakeCluster, patience: Patience = IMPATIENT) -> list[Observation]:
    rows = list(compaction.observe(PIPELINE, cluster, patience=patience, now=lambda: NOW / 1000))
    assert rows
    return [row for row in rows if not row.agrees]


def test_stopped_cleaner_is_found(cluster: FakeCluster, application: FakeApplication) -> None:
    (row,) = wrong(cluster)
    # Records 0..88 are more than 10 hours older than the newest; each but the last is superseded among them.
    assert (row.expected, row.observed) == (0, 88)
    assert "min.cleanable.dirty.ratio=0.5" in row.subject


def test_compacted(cluster: FakeCluster, application: FakeApplication) -> None:
    cluster.compact(application.changelog, 0, 89)
    assert not wrong(cluster)


@pytest.mark.parametrize(
    "configs",
    [
        {"segment.ms": str(200 * HOUR)},  # all in the active segment
        {"min.compaction.lag.ms": str(95 * HOUR)},
        {"min.cleanable.dirty.ratio": "1.0"},
    ],
)
def test_not_due_by_the_topics_own_configs(
    cluster: FakeCluster, application: FakeApplication, configs: dict[str, str]
) -> None:
    cluster.existing[application.changelog].configs |= configs
    assert not wrong(cluster)


def test_max_compaction_lag_overrides_the_ratio(cluster: FakeCluster, application: FakeApplication) -> None:
    cluster.existing[application.changelog].configs |= {
        "min.cleanable.dirty.ratio": "1.0",
        "max.compaction.lag.ms": str(50 * HOUR),
    }
    assert len(wrong(cluster)) == 1


def test_segment_bytes_close_a_segment_too(cluster: FakeCluster, application: FakeApplication) -> None:
    """100 records of 16 bytes; segments of 160 bytes."""
    cluster.existing[application.changelog].configs |= {"segment.ms": str(200 * HOUR), "segment.bytes": "160"}
    (row,) = wrong(cluster)
    assert row.observed == 88
    cluster.existing[application.changelog].configs["compression.type"] = "producer"  # ten times smaller, perhaps
    assert not wrong(cluster)


def test_cleaner_at_work_is_given_time(cluster: FakeCluster, application: FakeApplication) -> None:
    def clean(seconds: float) -> None:
        cluster.compact(application.changelog, 0, 20)

    assert not wrong(cluster, Patience(seconds=60.0, interval=5.0, sleep=clean))


def test_records_that_may_be_one_batch_prove_nothing(cluster: FakeCluster, application: FakeApplication) -> None:
    """An application that catches up writes days of totals in one batch: that closes no segment."""
    cluster.existing[application.changelog].configs["max.message.bytes"] = str(16 * 90)
    assert not wrong(cluster)
    cluster.existing[application.changelog].configs["max.message.bytes"] = str(16 * 20)
    (row,) = wrong(cluster)
    assert row.observed == 88 - 19


def test_policy_delete_is_red(cluster: FakeCluster, application: FakeApplication) -> None:
    cluster.existing[application.changelog].configs["cleanup.policy"] = "delete"
    assert wrong(cluster) == [Observation(f"{application.changelog}: cleanup.policy", "compact", "delete")]


def test_policy_compact_and_delete_is_red(cluster: FakeCluster, application: FakeApplication) -> None:
    cluster.existing[application.changelog].configs["cleanup.policy"] = "compact,delete"
    assert wrong(cluster)[0].observed == "compact,delete"


def test_nothing_ever_written_is_red(cluster: FakeCluster) -> None:
    application = FakeApplication(cluster, PIPELINE)
    assert wrong(cluster) == [Observation(f"{application.changelog}: records", "at least 1", "none")]


def test_missing_topic_is_red(cluster: FakeCluster, application: FakeApplication) -> None:
    del cluster.existing[application.changelog]
    assert wrong(cluster) == [Observation(f"topic {application.changelog}", "exists", "missing")]


def log(*records: tuple[int, bytes, bytes | None]) -> Columns:
    columns = Columns()
    for offset, (timestamp, key, value) in enumerate(records):
        columns.add(offset, timestamp, key, value)
    return columns


RULES = CompactionRules(
    segment_bytes=1 << 30, segment_ms=10, batch_bytes=1, dirty_ratio=0.5, min_lag_ms=0, max_lag_ms=2**63 - 1
)


def test_counts() -> None:
    pile = examine(log((0, b"a", b"1"), (0, b"b", b"1"), (0, b"a", b"2"), (0, b"b", None)), RULES, 0)
    assert (pile.records, pile.live_keys, pile.tombstones, pile.superseded, pile.due) == (4, 1, 1, 2, 0)


def test_a_dirty_part_below_the_ratio_is_not_due() -> None:
    unique = [(0, b"k%d" % n, b"v") for n in range(100)]
    repeated = [(0, b"k%d" % n, b"v") for n in range(90)]
    assert examine(log(*unique, *repeated, (100, b"x", b"v")), RULES, 1000).due == 0
    assert examine(log(*unique, *repeated * 5, (100, b"x", b"v")), RULES, 1000).due == 450


def test_records_out_of_order_in_time_prove_nothing() -> None:
    """A record from the past follows one from now: no segment was closed by that."""
    assert examine(log((100, b"a", b"1"), (0, b"a", b"2"), (105, b"a", b"3")), RULES, 1000).due == 0


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
        columns = Columns()
        for offset, timestamp, key in kept:
            columns.add(offset, timestamp, key, b"v")
        assert examine(columns, RULES, 10_000).due == 0
