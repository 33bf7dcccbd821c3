from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest
from streamplan.checks.compaction import CompactionCheck
from streamplan.checks.framework.application import Application, SubtopologyTopics, application_of
from streamplan.checks.framework.check import Observation
from streamplan.checks.framework.consistent_cut import Deadline
from streamplan.errors import CouldNotLook
from streamplan.kafka_port import RecordsGone
from streamplan.model.pipeline import Limits, Pipeline
from streamplan.model.topics import TopicRole, TopicSpec, resolve_configs
from streamplan.pipelines import enriched, pageviews
from streamplan.pipelines.orders import PIPELINE

from tests.support.fake_cluster import IMPATIENT, FakeApplication, FakeCluster, FakeRecordBatch

SECOND = 1_000
HOUR = 3600 * SECOND
NOW = 1_000 * HOUR

ORDERS = application_of(PIPELINE)


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


def wrong(cluster: FakeCluster, deadline: Deadline = IMPATIENT) -> list[Observation]:
    rows = list(CompactionCheck(deadline=deadline, now=lambda: NOW / 1000).observe(ORDERS, cluster))
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
        {"min.cleanable.dirty.ratio": "0.99"},
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


FOREVER = str(2**63 - 1)
YEAR = 365 * 24 * HOUR
OLD_ENOUGH = "min.compaction.lag.ms, the age at which Kafka may compact a record"
DIRTY_ENOUGH = "min.cleanable.dirty.ratio or max.compaction.lag.ms, by which Kafka compacts"


@pytest.mark.parametrize(
    ("configs", "subject", "observed"),
    [
        ({"min.cleanable.dirty.ratio": "1.0"}, DIRTY_ENOUGH, f"a ratio of 1 and a lag of {FOREVER}"),
        ({"min.cleanable.dirty.ratio": "0.999"}, DIRTY_ENOUGH, f"a ratio of 0.999 and a lag of {FOREVER}"),
        (
            {"min.cleanable.dirty.ratio": "1", "max.compaction.lag.ms": str(11 * YEAR)},
            DIRTY_ENOUGH,
            f"a ratio of 1 and a lag of {11 * YEAR}",
        ),
        ({"min.compaction.lag.ms": FOREVER}, OLD_ENOUGH, FOREVER),
        ({"min.compaction.lag.ms": str(11 * YEAR)}, OLD_ENOUGH, str(11 * YEAR)),
    ],
    ids=str,
)
def test_configs_that_defeat_compaction_are_red_by_themselves(
    cluster: FakeCluster, application: FakeApplication, configs: dict[str, str], subject: str, observed: str
) -> None:
    """Whatever the log looks like: nothing is overdue by the topic's own rules."""
    cluster.compact(application.changelog, 0, 89)
    cluster.existing[application.changelog].configs |= configs
    (row,) = wrong(cluster)
    assert (row.subject, row.observed) == (f"{application.changelog}: {subject}", observed)
    assert "brokers' default log.cleaner.min." in row.where


def test_configs_that_defeat_compaction_are_red_before_the_first_record(cluster: FakeCluster) -> None:
    application = FakeApplication(cluster, PIPELINE)
    cluster.existing[application.changelog].configs["min.cleanable.dirty.ratio"] = "1"
    assert [row.subject for row in wrong(cluster)] == [f"{application.changelog}: {DIRTY_ENOUGH}"]


@pytest.mark.parametrize(
    "configs",
    [
        {"min.cleanable.dirty.ratio": "1", "max.compaction.lag.ms": str(YEAR)},
        {"min.cleanable.dirty.ratio": "0"},
        {"min.compaction.lag.ms": str(YEAR)},
        # The limit of bytes closes the segment: the cleaner has only to wait for it.
        {"segment.ms": FOREVER, "segment.bytes": str(2**31 - 1)},
    ],
    ids=str,
)
def test_configs_that_only_delay_compaction_are_healthy(
    cluster: FakeCluster, application: FakeApplication, configs: dict[str, str]
) -> None:
    cluster.compact(application.changelog, 0, 89)
    cluster.existing[application.changelog].configs |= configs
    assert not wrong(cluster)


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

    assert not wrong(cluster, Deadline(seconds=60.0, interval=5.0, sleep=clean))


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


def test_nothing_ever_written_is_not_green(cluster: FakeCluster) -> None:
    FakeApplication(cluster, PIPELINE)
    with pytest.raises(CouldNotLook, match="at least 1 record"):
        wrong(cluster)


def test_missing_topic_could_not_be_looked_at(cluster: FakeCluster, application: FakeApplication) -> None:
    del cluster.existing[application.changelog]
    with pytest.raises(CouldNotLook, match=application.changelog):
        wrong(cluster)


def rows_of(application: Application, cluster: FakeCluster) -> list[Observation]:
    return list(CompactionCheck(deadline=IMPATIENT, now=lambda: NOW / 1000).observe(application, cluster))


def test_why_superseded_records_are_there_stands_in_the_row(cluster: FakeCluster, application: FakeApplication) -> None:
    configs = cluster.existing[application.changelog].configs
    configs["min.compaction.lag.ms"] = str(50 * HOUR)
    configs["min.cleanable.dirty.ratio"] = "0.99"
    cluster.produce(application.changelog, b"1", None, partition=0, timestamp=NOW)
    (subject,) = [row.subject for row in rows_of(ORDERS, cluster) if f"{application.changelog}-0:" in row.subject]
    assert "(101 records, 1 live keys, 1 tombstones, 99 superseded: " in subject
    # 0..89 are more than 10 hours older than the newest, 0..39 of them have been so for 50 hours.
    assert "10 perhaps in the active segment; " in subject
    assert f"50 perhaps within min.compaction.lag.ms={50 * HOUR}; " in subject
    assert "39 perhaps clean enough: min.cleanable.dirty.ratio=0.99, at least 97% is dirty" in subject


def test_one_empty_changelog_among_others_is_no_matter(cluster: FakeCluster, application: FakeApplication) -> None:
    cluster.compact(application.changelog, 0, 89)
    cluster.create("orders-aggregator-other-changelog", 2, {"cleanup.policy": "compact"})
    other = TopicSpec("orders-aggregator-other-changelog", TopicRole.CHANGELOG, 2, {"cleanup.policy": "compact"})
    rows = rows_of(replace(ORDERS, topics=(*ORDERS.topics, other)), cluster)
    assert all(row.agrees for row in rows)
    assert "orders-aggregator-other-changelog: cleanup.policy" in [row.subject for row in rows]


def test_a_wrong_policy_is_red_before_anything_was_written(cluster: FakeCluster) -> None:
    application = FakeApplication(cluster, PIPELINE)
    cluster.existing[application.changelog].configs["cleanup.policy"] = "delete"
    assert [row.subject for row in wrong(cluster)] == [f"{application.changelog}: cleanup.policy"]


class InChunks(FakeCluster):
    """Reads 10 records at a time, and remembers how many."""

    delivered = 0

    def read(self, topic: str, ranges: Mapping[int, tuple[int, int]]) -> Iterator[FakeRecordBatch]:
        for number, (first, last) in ranges.items():
            held = self.existing[topic].partitions[number].records
            records = [record for record in held if first <= record.offset < last]
            for begin in range(0, len(records), 10):
                self.delivered += len(records[begin : begin + 10])
                yield FakeRecordBatch(number, records[begin : begin + 10])


def test_of_a_large_changelog_the_first_records_are_read() -> None:
    cluster = InChunks()
    application = FakeApplication(cluster, PIPELINE)
    cluster.existing[application.changelog].configs |= {"segment.ms": str(10 * HOUR), "max.message.bytes": "16"}
    for n in range(1_000):
        cluster.produce(application.changelog, b"0", bytes(8), partition=0, timestamp=NOW + (n - 1_000) * HOUR)
    found = rows_of(replace(ORDERS, limits=Limits(scanned_records=200)), cluster)
    (row,) = [row for row in found if not row.agrees]
    assert "(the first 100 records, " in row.subject
    assert 0 < int(row.observed) < 100
    assert cluster.delivered == 100


def test_records_gone_while_reading_are_looked_at_again(cluster: FakeCluster, application: FakeApplication) -> None:
    def retention(method: str) -> None:
        if method == "read" and not cluster.existing[application.changelog].partitions[0].start:
            cluster.purge(application.changelog, 0, 95)

    cluster.before = retention
    assert not wrong(cluster)


def test_retention_without_end_could_not_be_looked_at(cluster: FakeCluster, application: FakeApplication) -> None:
    def retention(method: str) -> None:
        if method == "read":
            cluster.purge(application.changelog, 0, cluster.existing[application.changelog].partitions[0].start + 1)

    cluster.before = retention
    with pytest.raises(RecordsGone):
        wrong(cluster)


# -- other kinds of stores, declared


def declared(cluster: FakeCluster, pipeline: Pipeline) -> Application:
    application = application_of(pipeline)
    for spec in application.topics:
        cluster.create(spec.name, spec.partitions, {"retention.bytes": "-1", **resolve_configs(spec, 1)})
        cluster.produce(spec.name, b"a key", b"value")
    return application


WINDOWS = "pageviews-per-minute-views-per-country-and-minute-changelog"


@pytest.mark.parametrize(
    ("config", "value", "expected"),
    [
        ("cleanup.policy", "delete", "compact,delete"),
        ("cleanup.policy", "compact", "compact,delete"),
        ("retention.ms", "60000", f"at least {24 * HOUR + 24 * HOUR + 60 * SECOND}"),
        ("retention.bytes", "1000000", "-1"),
    ],
)
def test_a_windowed_store(cluster: FakeCluster, config: str, value: str, expected: str) -> None:
    application = declared(cluster, pageviews.PIPELINE)
    assert all(row.agrees for row in rows_of(application, cluster))
    cluster.existing[WINDOWS].configs[config] = value
    (row,) = [row for row in rows_of(application, cluster) if not row.agrees]
    assert (row.subject, row.expected, row.observed) == (f"{WINDOWS}: {config}", expected, value)


@pytest.mark.parametrize(
    ("config", "value"), [("cleanup.policy", "delete,compact"), ("retention.ms", "-1"), ("retention.ms", str(2**62))]
)
def test_what_loses_nothing_of_a_windowed_store(cluster: FakeCluster, config: str, value: str) -> None:
    application = declared(cluster, pageviews.PIPELINE)
    cluster.existing[WINDOWS].configs[config] = value
    assert all(row.agrees for row in rows_of(application, cluster))


def test_a_versioned_store(cluster: FakeCluster) -> None:
    configs = {"cleanup.policy": "compact", "min.compaction.lag.ms": "90000000"}
    cluster.create("app-prices-changelog", 1, configs)
    cluster.produce("app-prices-changelog", b"key", b"value")
    spec = TopicSpec("app-prices-changelog", TopicRole.CHANGELOG, 1, configs)
    application = replace(ORDERS, topics=(spec,))
    assert all(row.agrees for row in rows_of(application, cluster))
    cluster.existing["app-prices-changelog"].configs["min.compaction.lag.ms"] = "0"
    (row,) = [row for row in rows_of(application, cluster) if not row.agrees]
    assert (row.expected, row.observed) == ("at least 90000000", "0")


def test_the_lag_of_a_versioned_store_is_what_its_history_needs(cluster: FakeCluster) -> None:
    configs = {"cleanup.policy": "compact", "min.compaction.lag.ms": str(20 * YEAR)}
    cluster.create("app-prices-changelog", 1, configs)
    cluster.produce("app-prices-changelog", b"key", b"value")
    application = replace(ORDERS, topics=(TopicSpec("app-prices-changelog", TopicRole.CHANGELOG, 1, configs),))
    assert all(row.agrees for row in rows_of(application, cluster))
    cluster.existing["app-prices-changelog"].configs["min.compaction.lag.ms"] = FOREVER
    (row,) = [row for row in rows_of(application, cluster) if not row.agrees]
    assert (row.expected, row.observed) == (f"at most {20 * YEAR}", FOREVER)


@pytest.mark.parametrize(
    ("configs", "red"),
    [
        ({"min.compaction.lag.ms": str(72 * HOUR)}, True),
        ({"min.compaction.lag.ms": str(12 * HOUR)}, False),
        ({"min.cleanable.dirty.ratio": "1", "max.compaction.lag.ms": str(72 * HOUR)}, True),
        ({"min.cleanable.dirty.ratio": "1", "max.compaction.lag.ms": str(12 * HOUR)}, False),
    ],
    ids=str,
)
def test_retention_that_comes_before_compaction(cluster: FakeCluster, configs: dict[str, str], red: bool) -> None:
    """Two days of windows: what is compacted later than that is deleted before."""
    application = declared(cluster, pageviews.PIPELINE)
    cluster.existing[WINDOWS].configs |= configs
    assert [not row.agrees for row in rows_of(application, cluster)].count(True) == red


def test_a_tables_topic(cluster: FakeCluster) -> None:
    application = declared(cluster, enriched.PIPELINE)
    subjects = [row.subject for row in rows_of(application, cluster)]
    assert "customers: cleanup.policy" in subjects
    assert "purchases: cleanup.policy" not in subjects
    cluster.existing["customers"].configs["cleanup.policy"] = "delete"
    assert [row.subject for row in rows_of(application, cluster) if not row.agrees] == ["customers: cleanup.policy"]


# -- stores that nobody declared


def window(key: bytes, start: int, number: int = 0) -> bytes:
    return key + start.to_bytes(8, "big") + number.to_bytes(4, "big")


def session(key: bytes, start: int, end: int) -> bytes:
    return key + end.to_bytes(8, "big") + start.to_bytes(8, "big")


PLAIN = [(NOW, b"0"), (NOW, b"a longer key of text"), (NOW, (7).to_bytes(4, "big")), (NOW, (7).to_bytes(8, "big"))]
WINDOWED = [(NOW + n, window(b"DE", NOW)) for n in range(5)]
SESSIONS = [(NOW + n, session(b"DE", NOW, NOW + n)) for n in range(5)]
JOINED = [(NOW + n, window(b"DE", NOW + n, n + 1)) for n in range(5)]


@pytest.mark.parametrize(
    ("store", "policy", "keys", "expected"),
    [
        ("counts", "compact", PLAIN, None),
        ("counts", "delete", PLAIN, "compact"),
        ("counts", "compact,delete", PLAIN, "compact"),
        ("counts", "delete", [], "compact"),
        ("windows", "compact,delete", WINDOWED, None),
        ("windows", "compact,delete", SESSIONS, None),
        ("windows", "compact,delete", [], None),
        ("windows", "delete", WINDOWED, "compact,delete"),
        ("windows", "delete", SESSIONS, "compact,delete"),
        # KTABLE-SUPPRESS: keys of windows in a key-value store
        ("KTABLE-SUPPRESS-STATE-STORE-0000000003", "compact", WINDOWED, None),
        ("KSTREAM-JOINTHIS-0000000004-store", "delete", JOINED, None),
        ("KSTREAM-OUTEROTHER-0000000005-store", "delete", [], None),
        ("clicks-this-join-store", "delete", JOINED, None),
        ("clicks-outer-other-join-store", "delete", JOINED, None),
        ("clicks-outer-other-join-store", "compact", JOINED, "delete"),
        ("by-a-supplier", "delete", JOINED, None),
        ("KSTREAM-OUTERSHARED-0000000004-store", "compact", PLAIN, None),
        ("KSTREAM-OUTERSHARED-0000000004-store", "delete", PLAIN, "compact"),
        ("clicks-left-shared-join-store", "compact", PLAIN, None),
    ],
)
def test_the_kind_of_a_store_that_nobody_declared(
    cluster: FakeCluster, store: str, policy: str, keys: list[tuple[int, bytes]], expected: str | None
) -> None:
    name = f"app-{store}-changelog"
    cluster.create(name, 1, {"cleanup.policy": policy, "retention.bytes": "-1"})
    for timestamp, key in keys:
        cluster.produce(name, key, b"value", timestamp=timestamp)
    cluster.create("app-written-changelog", 1, {"cleanup.policy": "compact"})
    cluster.produce("app-written-changelog", b"0", b"value")
    specs = [TopicSpec(topic, TopicRole.CHANGELOG, 1, {}) for topic in (name, "app-written-changelog")]
    application = Application("app", "app", tuple(specs), (SubtopologyTopics("tasks", ()),), (), (), declared=False)
    found = [(row.subject, row.expected) for row in rows_of(application, cluster) if not row.agrees]
    assert found == ([(f"{name}: cleanup.policy", expected)] if expected else [])


def test_sources_that_nobody_declared_are_not_judged(cluster: FakeCluster) -> None:
    cluster.create("customers", 1, {"cleanup.policy": "delete"})
    spec = TopicSpec("customers", TopicRole.SOURCE, 1, {})
    application = Application(
        "app", "app", (spec,), (SubtopologyTopics("tasks", ("customers",)),), (), (), declared=False
    )
    with pytest.raises(CouldNotLook, match="nothing that is compacted"):
        rows_of(application, cluster)
