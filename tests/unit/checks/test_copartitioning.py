from __future__ import annotations

from zlib import crc32

import pytest
from streamplan.checks import copartitioning
from streamplan.checks.framework.application import application_of
from streamplan.checks.framework.check import Observation
from streamplan.errors import CouldNotLook
from streamplan.kafka_port import RecordsGone
from streamplan.model.partitioner import partition_for_key
from streamplan.pipelines.orders import PIPELINE

from tests.support.fake_cluster import FakeApplication, FakeCluster

ORDERS = application_of(PIPELINE)


@pytest.fixture
def application(cluster: FakeCluster) -> FakeApplication:
    application = FakeApplication(cluster, PIPELINE)
    for n in range(19):
        application.order(n)
    application.drain()
    return application


def wrong(cluster: FakeCluster) -> list[Observation]:
    rows = list(copartitioning.CHECK.observe(ORDERS, cluster))
    assert rows
    return [row for row in rows if not row.agrees]


def test_healthy(cluster: FakeCluster, application: FakeApplication) -> None:
    assert not wrong(cluster)
    rows = {row.subject: row.observed for row in copartitioning.CHECK.observe(ORDERS, cluster)}
    assert rows[f"{application.repartition}: records in the partition of their key"] == 19


def test_misplaced_key_is_named_with_both_partitions(cluster: FakeCluster, application: FakeApplication) -> None:
    cluster.produce(application.repartition, b"1", b"v", partition=0)
    cluster.produce(application.repartition, b"1", b"v", partition=0)
    assert wrong(cluster) == [
        Observation(f"{application.repartition}: records in the partition of their key", 21, 19),
        Observation(
            f"{application.repartition}: key '1'", "partition 1", "partition 0 (2 records, first at offset 10)"
        ),
    ]


def test_misplaced_changelog_record(cluster: FakeCluster, application: FakeApplication) -> None:
    cluster.produce(application.changelog, b"0", bytes(8), partition=1)
    assert f"{application.changelog}: key '0'" in [row.subject for row in wrong(cluster)]


def test_many_misplaced_keys_are_counted(cluster: FakeCluster, application: FakeApplication) -> None:
    for n in range(200):
        cluster.produce(application.repartition, b"k%d" % n, b"v", partition=0)
    rows = wrong(cluster)
    named = [row for row in rows if ": key " in row.subject]
    assert len(named) == copartitioning.NAMED_KEYS
    assert len(named) + int(rows[-1].observed) == int(rows[0].expected) - int(rows[0].observed)


@pytest.mark.parametrize("attribute", ["repartition", "changelog"])
def test_wrong_count(cluster: FakeCluster, application: FakeApplication, attribute: str) -> None:
    topic = getattr(application, attribute)
    cluster.create(topic, 3)
    assert [(row.expected, row.observed) for row in wrong(cluster) if row.subject.startswith(f"{topic}: part")] == [
        (2, 3)
    ]


def test_partitions_added_after_the_start(cluster: FakeCluster, application: FakeApplication) -> None:
    """Of keys 0 and 1 both belong into partition 2 or 0 of 3 (FACTS: 2, 0): what was written before lies wrong."""
    cluster.existing[application.repartition].partitions.append(type(_first(cluster, application))())
    subjects = [row.subject for row in wrong(cluster)]
    assert f"{application.repartition}: key '0'" in subjects
    assert f"{application.repartition}: key '1'" in subjects


def test_missing_topic(cluster: FakeCluster, application: FakeApplication) -> None:
    del cluster.existing[application.changelog]
    with pytest.raises(CouldNotLook, match=application.changelog):
        wrong(cluster)


def test_purged_repartition_topic_is_healthy(cluster: FakeCluster, application: FakeApplication) -> None:
    for number in (0, 1):
        cluster.purge(application.repartition, number, cluster.existing[application.repartition].partitions[number].end)
    assert not wrong(cluster)


def test_purging_meanwhile_is_looked_at_again(cluster: FakeCluster, application: FakeApplication) -> None:
    def purge(method: str) -> None:
        if method == "read":
            cluster.purge(application.repartition, 0, 4)

    cluster.before = purge
    assert not wrong(cluster)


def test_purging_without_end_could_not_be_looked_at(cluster: FakeCluster, application: FakeApplication) -> None:
    def purge(method: str) -> None:
        if method == "read":
            application.order(2)
            application.drain()
            cluster.purge(application.repartition, 0, _first(cluster, application).start + 1)

    cluster.before = purge
    with pytest.raises(RecordsGone):
        wrong(cluster)


def test_nothing_ever_written_is_not_green(cluster: FakeCluster) -> None:
    FakeApplication(cluster, PIPELINE)
    with pytest.raises(CouldNotLook, match="at least 1 record"):
        wrong(cluster)


def test_uncommitted_records_are_no_fault(cluster: FakeCluster, application: FakeApplication) -> None:
    partition = _first(cluster, application)
    partition.open_since = partition.end
    cluster.produce(application.repartition, b"1", b"uncommitted", partition=0)
    assert not wrong(cluster)


@pytest.mark.parametrize("role", ["repartition", "changelog"])
def test_a_record_without_a_key_in_an_internal_topic_is_named(
    cluster: FakeCluster, application: FakeApplication, role: str
) -> None:
    topic = getattr(application, role)
    record = cluster.produce(topic, None, b"v", partition=1)
    (row,) = wrong(cluster)
    assert (row.subject, row.expected, row.observed) == (f"{topic}: records without a key", 0, 1)
    assert row.where == f"first at {topic}-1 offset {record.offset}"


def test_a_record_without_a_key_in_a_source_is_no_fault(cluster: FakeCluster, application: FakeApplication) -> None:
    cluster.produce("orders", None, b"v", partition=1)
    assert not wrong(cluster)


def _first(cluster: FakeCluster, application: FakeApplication):  # type: ignore[no-untyped-def]
    return cluster.existing[application.repartition].partitions[0]


@pytest.mark.parametrize(("keys", "told"), [(1, False), (4, False), (5, True)])
def test_crc32_is_told_by_several_keys_where_others_are_in_their_place(
    cluster: FakeCluster, application: FakeApplication, keys: int, told: bool
) -> None:
    """Key 0 is in its place, and CRC32 would put it elsewhere: only some of the producers are wrong, or none is."""
    assert crc32(b"0") % 2 != partition_for_key(b"0", 2)
    strange = [key for n in range(100) if crc32(key := b"key-%d" % n) % 2 != partition_for_key(key, 2)][:keys]
    for key in strange:
        cluster.produce(application.repartition, key, b"", partition=crc32(key) % 2)
    assert any("CRC32" in str(row.observed) for row in wrong(cluster)) is told
