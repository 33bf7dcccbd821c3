from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from streamplan.checks import skew
from streamplan.checks.framework.application import Application, application_of
from streamplan.checks.framework.check import Observation, sentence
from streamplan.errors import CouldNotLook
from streamplan.kafka_port import RecordsGone
from streamplan.model.partitioner import partition_for_key
from streamplan.model.pipeline import Limits, Pipeline
from streamplan.pipelines import wide, words
from streamplan.pipelines.orders import PIPELINE
from streamplan.pipelines.skewed import PIPELINE as SKEWED
from streamplan.testing.declared_schemas import DeclaredSchemas

from tests.support.examples import PIPELINES
from tests.support.fake_cluster import FakeApplication, FakeCluster

ORDERS = application_of(PIPELINE)
REPARTITION = FakeApplication.repartition


@pytest.fixture
def application(cluster: FakeCluster) -> FakeApplication:
    """2,000 orders, half of them of each product."""
    application = FakeApplication(cluster, PIPELINE)
    for n in range(2000):
        application.order(n)
    application.drain()
    return application


def look(cluster: FakeCluster, subject: Application = ORDERS) -> list[Observation]:
    rows = list(skew.CHECK.observe(subject, cluster))
    assert rows
    return rows


def wrong(cluster: FakeCluster, subject: Application = ORDERS) -> list[str]:
    return [sentence(row) for row in look(cluster, subject) if not row.agrees]


def fill(cluster: FakeCluster, partition: int, keys: Iterable[bytes | None], value: bytes = b"v") -> None:
    for key in keys:
        cluster.produce(REPARTITION, key, value, partition=partition)


def purge(cluster: FakeCluster, left: tuple[int, int] = (0, 0)) -> None:
    for number, partition in enumerate(cluster.existing[REPARTITION].partitions):
        cluster.purge(REPARTITION, number, partition.end - left[number])


def test_even(cluster: FakeCluster, application: FakeApplication) -> None:
    subjects = [row.subject for row in look(cluster)]
    assert f"{REPARTITION}-0: 50% of 2,000 records, 50% of their bytes" in subjects
    assert len(subjects) == 4
    assert not wrong(cluster)


def test_one_key_has_most_of_it(cluster: FakeCluster, application: FakeApplication) -> None:
    """1,000 records of each, and 6,000 more of key 1: 7,000 of 8,000."""
    fill(cluster, 1, [b"1"] * 6000, value=b'{"Id": "order_1000", "ProductType": 1}')
    (found,) = wrong(cluster)
    assert found.startswith(f"{REPARTITION}-1: 87.5% of 8,000 records, ")
    assert ": expected at most 80%, observed 87.5% of the records (key '1' 87.5%) and " in found


def test_shares_of_keys_are_of_the_topic(cluster: FakeCluster) -> None:
    FakeApplication(cluster, PIPELINE)
    fill(cluster, 0, [b"7"] * 8000 + [b"a"] * 500 + [b"b"] * 300 + [b"c"] * 200)
    fill(cluster, 1, [b"d"] * 1000)
    (found,) = wrong(cluster)
    assert "observed 90% of the records (key '7' 80%, key 'a' 5%, key 'b' 3%)" in found


def test_exactly_the_limit_is_allowed(cluster: FakeCluster) -> None:
    FakeApplication(cluster, PIPELINE)
    fill(cluster, 0, [b"7"] * 800)
    fill(cluster, 1, [b"8"] * 200)
    assert not wrong(cluster)
    fill(cluster, 0, [b"7"] * 10)
    assert len(wrong(cluster)) == 1


def test_many_keys_and_not_one(cluster: FakeCluster) -> None:
    FakeApplication(cluster, PIPELINE)
    fill(cluster, 0, [b"key-%d" % (n % 900) for n in range(1800)])
    fill(cluster, 1, [b"x"] * 200)
    (found,) = wrong(cluster)
    assert "90% of the records (from 900 keys and not from one; the greatest: key 'key-0' 0.1%" in found


def test_few_large_records(cluster: FakeCluster) -> None:
    """Records are even, bytes are not, and the key of the bytes is named."""
    FakeApplication(cluster, PIPELINE)
    fill(cluster, 0, [b"small"] * 990)
    fill(cluster, 0, [b"large"] * 10, value=bytes(100_000))
    fill(cluster, 1, [b"other"] * 1000)
    (found,) = wrong(cluster)
    assert "% of the records" not in found
    assert "observed 99.4% of the bytes (key 'large' 98.8%, key 'small' 0.6%)" in found


def test_the_declared_share(cluster: FakeCluster, application: FakeApplication) -> None:
    fill(cluster, 1, [b"1"] * 6000)
    assert not wrong(cluster, replace(ORDERS, limits=Limits(partition_share=0.9)))
    assert len(wrong(cluster, replace(ORDERS, limits=Limits(partition_share=0.3)))) == 4


def test_few_records_say_nothing(cluster: FakeCluster) -> None:
    application = FakeApplication(cluster, PIPELINE)
    for _ in range(999):
        application.order(1)
    application.drain()
    assert not wrong(cluster)
    assert f"{REPARTITION}: 999 records, fewer than 1,000 say nothing about a share" in [
        row.subject for row in look(cluster)
    ]
    application.order(1)
    application.drain()
    assert len(wrong(cluster)) == 2


def test_records_without_a_key_come_in_batches(cluster: FakeCluster, application: FakeApplication) -> None:
    """One batch of the sticky partitioner is no skew."""
    for _ in range(50_000):
        cluster.produce("orders", None, b"v", partition=0)
    assert not wrong(cluster)
    for _ in range(50_000):
        cluster.produce("orders", None, b"v", partition=0)
    (found,) = wrong(cluster)
    assert "99% of the records (no key 99%)" in found


def test_a_purged_topic_by_its_ends(cluster: FakeCluster, application: FakeApplication) -> None:
    fill(cluster, 1, [b"1"] * 6000)
    purge(cluster)
    (found,) = wrong(cluster)
    assert found == (
        f"{REPARTITION}-1: 87.5% of about 8,000 records, by the ends of the partitions, because records were deleted:"
        " expected at most 80%, observed 87.5% of the records, whose keys are gone"
    )


def test_a_source_that_retention_has_emptied(cluster: FakeCluster, application: FakeApplication) -> None:
    for number, partition in enumerate(cluster.existing["orders"].partitions):
        cluster.purge("orders", number, partition.end)
    subjects = [row.subject for row in look(cluster)]
    assert any(" of about 2,000 records, by the ends of the partitions" in subject for subject in subjects)
    assert not wrong(cluster)


@pytest.mark.parametrize("left", [(0, 1000), (1000, 0), (3, 999), (0, 0), (150, 1)])
def test_what_purging_leaves_is_no_share(
    cluster: FakeCluster, application: FakeApplication, left: tuple[int, int]
) -> None:
    """Tasks commit, and their records are purged, at moments of their own."""
    purge(cluster, left)
    assert not wrong(cluster)


@pytest.mark.parametrize("markers", [1, 500])
def test_markers_left_by_purging_are_no_share(cluster: FakeCluster, application: FakeApplication, markers: int) -> None:
    cluster.existing[REPARTITION].partitions[0].end += markers
    purge(cluster, (markers, 500))
    assert not wrong(cluster)


def test_one_odd_record_left_is_no_share(cluster: FakeCluster, application: FakeApplication) -> None:
    fill(cluster, 0, [b"0"] * 2000)
    fill(cluster, 1, [b"1"] * 1999)
    fill(cluster, 1, [b"1"], value=bytes(500_000))
    purge(cluster, (2000, 1))
    assert not wrong(cluster)


def test_markers_are_no_records(cluster: FakeCluster) -> None:
    FakeApplication(cluster, PIPELINE)
    fill(cluster, 0, [b"0"] * 900)
    fill(cluster, 1, [b"1"] * 600)
    cluster.existing[REPARTITION].partitions[0].end += 50_000
    assert not wrong(cluster)


def test_open_transactions_are_not_looked_at(cluster: FakeCluster, application: FakeApplication) -> None:
    partition = cluster.existing[REPARTITION].partitions[1]
    partition.open_since = partition.end
    fill(cluster, 1, [b"1"] * 20_000)
    assert not wrong(cluster)


def test_the_last_of_many_records(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """900 of the 1,000 that are looked at, as 9 of 10 offsets are in partition 0."""
    FakeApplication(cluster, PIPELINE)
    fill(cluster, 0, [b"old"] * 7000 + [b"new"] * 2000)
    fill(cluster, 1, [b"other"] * 1000)
    monkeypatch.setattr(skew, "SAMPLED_OFFSETS", 1000)
    (found,) = wrong(cluster)
    assert found == (
        f"{REPARTITION}-0: 90% of about 10,000 records, 85.7% of their bytes: expected at most 80%,"
        " observed 90% of the records (key 'new' 90%) and 85.7% of the bytes (key 'new' 85.7%)"
    )


def test_source_topics_are_looked_at(cluster: FakeCluster, application: FakeApplication) -> None:
    for _ in range(10_000):
        cluster.produce("orders", b"order_1", b"v", partition=1)
    (found,) = wrong(cluster)
    assert found.startswith("orders-1: 91")
    assert "key 'order_1' 83" in found


def test_changelogs_and_dead_letters_are_not_looked_at(cluster: FakeCluster, application: FakeApplication) -> None:
    for topic in (application.changelog, application.dead_letters):
        for _ in range(2000):
            cluster.produce(topic, b"k", b"v", partition=0)
    assert not wrong(cluster)
    assert not [row for row in look(cluster) if application.changelog in row.subject]


def test_one_partition_has_no_skew(cluster: FakeCluster, application: FakeApplication) -> None:
    cluster.create("orders", 1)
    for n in range(2000):
        application.order(n)
    assert "orders: one partition has all" in [row.subject for row in look(cluster)]
    assert not wrong(cluster)


@pytest.mark.parametrize(("first", "second", "skewed"), [(0, 1, False), (0, 0, True)])
def test_a_task_that_is_ahead_of_the_others_is_no_skew(
    cluster: FakeCluster, first: int, second: int, skewed: bool
) -> None:
    application = FakeApplication(cluster, PIPELINE)
    for n in range(3000):
        ahead = partition_for_key(b"order_%d" % n, 2) == 0
        application.order(n, product=first if ahead else second)
    ends = [offsets.last_stable for offsets in cluster.offsets(application.source).values()]
    application.rekey(0, ends[0])
    assert not wrong(cluster)
    assert any(f"of {ends[0]:,} records, and up to {ends[1]:,} are to come" in row.subject for row in look(cluster))
    application.rekey(1, ends[1])
    assert bool(wrong(cluster)) == skewed


def test_purging_meanwhile_is_looked_at_again(cluster: FakeCluster, application: FakeApplication) -> None:
    def act(method: str) -> None:
        if method == "read":
            cluster.purge(REPARTITION, 0, 4)

    cluster.before = act
    assert not wrong(cluster)


def test_purging_without_end_could_not_be_looked_at(cluster: FakeCluster, application: FakeApplication) -> None:
    def act(method: str) -> None:
        if method == "read":
            cluster.purge(REPARTITION, 0, cluster.existing[REPARTITION].partitions[0].start + 1)

    cluster.before = act
    with pytest.raises(RecordsGone):
        look(cluster)


def test_nothing_to_look_at(cluster: FakeCluster) -> None:
    FakeApplication(cluster, PIPELINE)
    with pytest.raises(CouldNotLook, match="at least 1 record"):
        look(cluster)


def test_missing_topic(cluster: FakeCluster, application: FakeApplication) -> None:
    del cluster.existing["orders"]
    with pytest.raises(CouldNotLook, match="orders"):
        look(cluster)


REKEYED = {
    "orders": b'"ProductType": ',
    "users": b'"country": ',
    "latest": b'"device": ',
    "skewed": b'"page": ',
    "pageviews": b'"country": ',
    "trending": b'"product": ',
    "activity": b'"customer": ',
    "shipments": b'"carrier": ',
}
"""Where the new key stands in the value."""


def key_of_invoice(value: Any) -> bytes | None:
    return value["customer"]["country"].encode() if value["total"] > 0 else None


def key_of_scan(value: Any) -> bytes | None:
    return value["depot"].encode() if value["event"] == "DAMAGED" else None


def key_of_sale(value: Any) -> bytes:
    return b'{"shop":"%b","product":%b}' % re.findall(rb'"shop": "(\w+)", "product": (\d+)', value)[0]


KEY_OF: dict[str, Callable[[Any], bytes | None]] = {
    "invoices": key_of_invoice,
    "parcels": key_of_scan,
    "sales": key_of_sale,
}
"""The new key of what the test data give: bytes, or the fields of a value."""


@pytest.mark.parametrize("pipeline", PIPELINES, ids=lambda pipeline: pipeline.name)
def test_no_declared_pipeline_is_red_by_its_test_data(cluster: FakeCluster, pipeline: Pipeline) -> None:
    """20,000 records, put where murmur2 puts their keys, and their new keys."""
    subject = application_of(pipeline)
    shares = _test_data(cluster, pipeline)
    assert not wrong(cluster, subject)
    greatest = max(max(counts.values()) / sum(counts.values()) for counts in shares.values())
    tight = replace(subject, limits=Limits(partition_share=greatest - 0.001))
    assert bool(wrong(cluster, tight)) == (sum(map(sum, (counts.values() for counts in shares.values()))) > 0)


def test_the_skewed_pipeline_is_red_without_its_declaration(cluster: FakeCluster) -> None:
    _test_data(cluster, SKEWED)
    (found,) = wrong(cluster, replace(application_of(SKEWED), limits=Limits()))
    assert "by-page-repartition-2: 88% of " in found
    assert "88% of the records (key 'home' 80%, " in found


def _test_data(cluster: FakeCluster, pipeline: Pipeline) -> dict[str, Counter[int]]:
    shares: dict[str, Counter[int]] = {}

    def put(topic: str, key: bytes, value: bytes) -> None:
        number = partition_for_key(key, pipeline.partition_counts[topic])
        cluster.produce(topic, key, value, partition=number)
        shares.setdefault(topic, Counter())[number] += 1

    for spec in pipeline.topics():
        cluster.create(spec.name, spec.partitions)
    repartition = [pipeline.topology.decorate(topic.name) for topic in pipeline.topology.repartition_topics]
    serdes = pipeline.with_schemas(DeclaredSchemas.of(pipeline)).source_serdes
    for n in range(20_000):
        made = pipeline.test_data.record(n)[2]
        topic, key, value = pipeline.test_data.written(n, serdes)
        put(topic, key, value)
        if pipeline.name in KEY_OF:
            if (new_key := KEY_OF[pipeline.name](made)) is not None:
                put(repartition[0], new_key, value)
        elif pipeline is wide.PIPELINE:
            put(repartition[0], key, value)
        elif pipeline is words.PIPELINE:
            for word in re.findall(b"[a-z]+", value.lower()):
                put(repartition[0], word, value)
        elif repartition and b'"robot": true' not in value and (mark := REKEYED[pipeline.name]) in value:
            begin = value.index(mark) + len(mark)
            put(repartition[0], value[begin:].split(b",")[0].strip(b' "}'), value)
    group = pipeline.topology.application_id
    for topic in shares:
        cluster.committed[group, topic] = {at: offsets.last_stable for at, offsets in cluster.offsets(topic).items()}
    return shares
