from __future__ import annotations

from dataclasses import replace

import pytest
from streamplan.checks.framework.application import application_of
from streamplan.checks.framework.check import Observation
from streamplan.checks.framework.verified import StateStoreTotals
from streamplan.checks.recount.counting import count_between
from streamplan.checks.totals import TotalsCheck
from streamplan.errors import CouldNotLook
from streamplan.kafka_types import Record
from streamplan.pipelines.orders import PIPELINE

from tests.support.fake_cluster import IMPATIENT, FakeApplication, FakeCluster

ORDERS = application_of(PIPELINE)


@pytest.fixture
def application(cluster: FakeCluster) -> FakeApplication:
    """19 orders, all processed: 10 jackets and 9 shirts."""
    application = FakeApplication(cluster, PIPELINE)
    for n in range(19):
        application.order(n)
    application.drain()
    return application


def rows(cluster: FakeCluster, store: StateStoreTotals | None = None) -> list[Observation]:
    return list(TotalsCheck(state_store=store, deadline=IMPATIENT).observe(ORDERS, cluster))


def wrong(cluster: FakeCluster, store: StateStoreTotals | None = None) -> list[Observation]:
    found = rows(cluster, store)
    assert found
    return [row for row in found if not row.agrees]


def test_19_orders_are_10_jackets_and_9_shirts(cluster: FakeCluster, application: FakeApplication) -> None:
    by_subject = {row.subject: (row.expected, row.observed) for row in rows(cluster)}
    assert by_subject["orders-products-quantities[0] Jackets"] == (10, 10)
    assert by_subject["orders-products-quantities[1] Shirts"] == (9, 9)
    assert not wrong(cluster)


@pytest.mark.parametrize("step", range(3, 60))  # before, nothing is processed yet
def test_no_false_alarm_at_any_moment(cluster: FakeCluster, step: int) -> None:
    """Tasks commit one record each, in any order, and the check looks in between."""
    application = FakeApplication(cluster, PIPELINE)
    moves = [(n * 7919 + step * 104729) % 4 for n in range(step)]
    for n, move in enumerate(moves):
        application.order(n)
        topic, act = ((application.source, application.rekey), (application.repartition, application.count))[move // 2]
        position = cluster.committed[application.group, topic][move % 2]
        act(move % 2, min(position + 2, cluster.existing[topic].partitions[move % 2].end))
    assert not wrong(cluster)


def test_no_false_alarm_while_the_stream_runs(cluster: FakeCluster, application: FakeApplication) -> None:
    """Each question finds the application further on."""
    asked = 0

    def go_on(method: str) -> None:
        nonlocal asked
        asked += 1
        application.order(100 + asked)
        if asked % 3 == 0:  # so that quiet moments exist
            topic, act = (
                (application.source, application.rekey),
                (application.repartition, application.count),
            )[asked // 3 % 2]
            act(asked % 2, cluster.existing[topic].partitions[asked % 2].end)

    cluster.before = go_on
    patient = replace(IMPATIENT, seconds=10.0)
    assert all(row.agrees for row in TotalsCheck(deadline=patient).observe(ORDERS, cluster))
    assert asked > 10


def test_changelog_looked_at_later_than_the_source(cluster: FakeCluster, application: FakeApplication) -> None:
    """Between the two cuts the first sub-topology stands still and the second does not: nothing is doubled."""
    application.order(19)
    application.rekey(0, cluster.existing[application.source].partitions[0].end)
    application.rekey(1, cluster.existing[application.source].partitions[1].end)
    assert not wrong(cluster)
    waiting = count_between(cluster, application.repartition, {0: 10, 1: 10}, {0: 10, 1: 8})
    assert waiting == {b"1": -2}


def test_null_keys_and_null_values_are_not_counted(cluster: FakeCluster, application: FakeApplication) -> None:
    """``KStreamAggregate`` passes over them."""
    records = [(b"1", b"{}"), (b"1", None), (None, b"{}")]
    for key, value in records:
        cluster.produce(application.repartition, key, value, partition=1)
    end = cluster.existing[application.repartition].partitions[1].end
    assert count_between(cluster, application.repartition, {1: end - len(records)}, {1: end}) == {b"1": 1}


def test_consumed_repartition_records_may_be_purged(cluster: FakeCluster, application: FakeApplication) -> None:
    for number in (0, 1):
        end = cluster.existing[application.repartition].partitions[number].end
        cluster.purge(application.repartition, number, end)
    assert not wrong(cluster)


def test_compacted_changelog(cluster: FakeCluster, application: FakeApplication) -> None:
    cluster.compact(application.changelog, 0, 10)
    cluster.compact(application.changelog, 1, 9)
    assert len(cluster.existing[application.changelog].partitions[0].records) == 1
    assert not wrong(cluster)


def test_changelog_that_is_tampered_with(cluster: FakeCluster, application: FakeApplication) -> None:
    cluster.produce(application.changelog, b"0", (11).to_bytes(8, "big"), partition=0)
    assert Observation("orders-products-quantities[0] Jackets", 10, 11) in wrong(cluster)


def test_changelog_value_that_is_no_count(cluster: FakeCluster, application: FakeApplication) -> None:
    cluster.produce(application.changelog, b"0", b"10", partition=0)
    assert any("not a count of 8 bytes" in row.subject for row in wrong(cluster))


def test_lost_repartition_record(cluster: FakeCluster, application: FakeApplication) -> None:
    partition = application.order(20).partition
    cluster.committed[application.group, "orders"][partition] += 1  # committed, and nothing written
    assert Observation("orders-products-quantities[0] Jackets", 11, 10) in wrong(cluster)


def test_repartition_record_twice(cluster: FakeCluster, application: FakeApplication) -> None:
    cluster.produce(application.repartition, b"1", b'{"ProductType": 1}')
    assert wrong(cluster)[0] == Observation("orders-products-quantities[1] Shirts", 9, 10)


def test_record_under_the_wrong_product(cluster: FakeCluster, application: FakeApplication) -> None:
    """The sum is right, and yet two keys are wrong."""
    partition = application.order(20).partition
    cluster.committed[application.group, "orders"][partition] += 1
    cluster.produce(application.repartition, b"1", b'{"ProductType": 0}')
    assert wrong(cluster)[:2] == [
        Observation("orders-products-quantities[0] Jackets", 11, 10),
        Observation("orders-products-quantities[1] Shirts", 9, 10),
    ]


def consume(cluster: FakeCluster, application: FakeApplication, record: Record) -> None:
    """The position passes a record of the repartition topic, and the changelog stays as it is."""
    cluster.committed[application.group, application.repartition][record.partition] = record.offset + 1


def test_repartition_record_twice_and_consumed_past(cluster: FakeCluster, application: FakeApplication) -> None:
    """The changelog is right: nobody counted the second one."""
    consume(cluster, application, cluster.produce(application.repartition, b"1", b'{"ProductType": 1}'))
    found = wrong(cluster)
    assert Observation(f"{application.repartition}: records of orders-products-quantities[1] Shirts", 9, 10) in found
    assert all(application.repartition in row.subject for row in found)


def test_repartition_record_with_the_key_of_another(cluster: FakeCluster, application: FakeApplication) -> None:
    """The changelog is right: jackets are 11."""
    partition = application.order(20).partition
    cluster.committed[application.group, "orders"][partition] += 1
    consume(cluster, application, cluster.produce(application.repartition, b"1", b'{"ProductType": 0}'))
    cluster.produce(application.changelog, b"0", (11).to_bytes(8, "big"))
    topic = application.repartition
    assert wrong(cluster) == [
        Observation(f"{topic}: keys with as many records as in orders", 2, 0),
        Observation(f"{topic}: records of orders-products-quantities[0] Jackets", 11, 10),
        Observation(f"{topic}: records of orders-products-quantities[1] Shirts", 9, 10),
    ]


@pytest.mark.parametrize("positions", [{}, {0: 0}, {0: 0, 1: 0}], ids=str)
def test_a_repartition_topic_that_was_created_again_when_all_was_counted_is_no_fault(
    cluster: FakeCluster, application: FakeApplication, positions: dict[int, int]
) -> None:
    cluster.create(application.repartition, 2, cluster.existing[application.repartition].configs)
    cluster.committed[application.group, application.repartition] = positions
    assert not wrong(cluster)
    (row,) = (row for row in rows(cluster) if "as many records" in row.subject)
    assert "was created again" in row.subject


def test_a_repartition_topic_that_was_created_again_hides_no_wrong_total(
    cluster: FakeCluster, application: FakeApplication
) -> None:
    cluster.create(application.repartition, 2, cluster.existing[application.repartition].configs)
    cluster.committed[application.group, application.repartition] = {}
    cluster.produce(application.changelog, b"0", (11).to_bytes(8, "big"))
    assert any("Jackets" in row.subject for row in wrong(cluster))


def test_what_of_the_repartition_topic_was_purged_is_said(cluster: FakeCluster, application: FakeApplication) -> None:
    cluster.purge(application.repartition, 0, 7)
    assert not wrong(cluster)
    (row,) = (row for row in rows(cluster) if "as many records" in row.subject)
    assert "7 of 19 records were deleted after they were consumed and are not compared" in row.subject
    consume(cluster, application, cluster.produce(application.repartition, b"1", b'{"ProductType": 1}'))
    assert any(row.subject.endswith("[1] Shirts") for row in wrong(cluster))  # 10 of 9 are there


def test_unknown_key_in_the_changelog(cluster: FakeCluster, application: FakeApplication) -> None:
    cluster.produce(application.changelog, b"7", (1).to_bytes(8, "big"))
    assert Observation("orders-products-quantities[7]", 0, 1) in wrong(cluster)


BAD = (None, b"", b"x", b"{}", b'{"ProductType": 7}')


def test_rejected_records_stand_in_the_dead_letter_topic(cluster: FakeCluster, application: FakeApplication) -> None:
    for value in BAD:
        cluster.produce("orders", b"bad", value)
    cluster.produce("orders", None, b'{"Id": "x", "ProductType": 1}')  # no key in the source: counted all the same
    application.drain()
    assert not wrong(cluster)
    assert any((row.expected, row.observed) == (5, 5) for row in rows(cluster))


def test_a_record_that_an_operator_leaves_out_stands_in_the_dead_letter_topic(
    cluster: FakeCluster, application: FakeApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = cluster.produce("orders", b"k", b'{"Id": "x", "ProductType": 1}')
    cluster.committed[application.group, "orders"][record.partition] += 1
    application.dead_letter(record)
    assert wrong(cluster)
    monkeypatch.setenv("STREAMPLAN_DEAD_LETTER", f"orders-{record.partition}@{record.offset}")
    found = list(TotalsCheck(deadline=IMPATIENT).observe(application_of(PIPELINE), cluster))
    assert [row for row in found if not row.agrees] == []


def test_dead_letter_that_is_missing_is_named(cluster: FakeCluster, application: FakeApplication) -> None:
    record = cluster.produce("orders", b"bad", b"x")
    cluster.committed[application.group, "orders"][record.partition] += 1
    first = wrong(cluster)[0]
    assert (first.expected, first.observed) == (1, 0)
    assert f"orders-{record.partition} offset {record.offset}" in first.subject


def test_dead_letter_twice(cluster: FakeCluster, application: FakeApplication) -> None:
    record = cluster.produce("orders", b"bad", b"x")
    application.drain()
    application.dead_letter(record)
    assert [row.observed for row in wrong(cluster) if "more than once" in row.subject] == [1]


def test_dead_letter_of_a_good_record(cluster: FakeCluster, application: FakeApplication) -> None:
    application.dead_letter(cluster.existing["orders"].partitions[0].records[0])
    assert any("could be aggregated" in row.subject for row in wrong(cluster))


def test_dead_letters_of_others_are_not_ours(cluster: FakeCluster, application: FakeApplication) -> None:
    headers = (("streamplan.source.topic", b"other"), ("streamplan.source.partition", b"0"))
    cluster.produce(application.dead_letters, b"k", b"v", partition=0, headers=headers)
    assert not wrong(cluster)


def test_deleted_dead_letters_can_no_longer_be_proven(cluster: FakeCluster, application: FakeApplication) -> None:
    record = cluster.produce("orders", b"bad", b"x")
    application.drain()
    cluster.purge(application.dead_letters, record.partition, 1)
    with pytest.raises(CouldNotLook, match="nobody can prove any more"):
        rows(cluster)
    cluster.produce(application.changelog, b"0", (11).to_bytes(8, "big"), partition=0)
    assert wrong(cluster)  # a wrong total is still a wrong total


def test_deleted_source_can_no_longer_be_proven(cluster: FakeCluster, application: FakeApplication) -> None:
    cluster.purge("orders", 1, 3)
    with pytest.raises(CouldNotLook, match="orders-1 begins at offset 3"):
        rows(cluster)


def test_open_transaction_is_waited_for(cluster: FakeCluster, application: FakeApplication) -> None:
    partition = cluster.existing[application.repartition].partitions[0]
    cluster.produce(application.repartition, b"0", b"uncommitted", partition=0)
    partition.open_since = partition.end - 1
    with pytest.raises(CouldNotLook, match=r"open transactions on .*-repartition-0"):
        rows(cluster)


def test_nothing_to_compare_is_not_green(cluster: FakeCluster) -> None:
    application = FakeApplication(cluster, PIPELINE)
    with pytest.raises(CouldNotLook, match="at least 1 record"):
        wrong(cluster)
    application.order(0)
    with pytest.raises(CouldNotLook, match="at least 1 record processed"):
        wrong(cluster)
    cluster.committed.clear()
    with pytest.raises(CouldNotLook, match=r"group orders-aggregator in orders-[01]"):
        wrong(cluster)


def test_position_beyond_the_end_could_not_be_looked_at(cluster: FakeCluster, application: FakeApplication) -> None:
    cluster.committed[application.group, "orders"][0] = 10_000
    with pytest.raises(CouldNotLook, match="observed 10000"):
        wrong(cluster)


def test_missing_topic_could_not_be_looked_at(cluster: FakeCluster, application: FakeApplication) -> None:
    del cluster.existing[application.changelog]
    with pytest.raises(CouldNotLook, match=application.changelog):
        wrong(cluster)


def test_state_store_is_a_third_opinion(cluster: FakeCluster, application: FakeApplication) -> None:
    repartition = {number: p.end for number, p in enumerate(cluster.existing[application.repartition].partitions)}
    assert not wrong(cluster, StateStoreTotals(repartition, {b"0": 10, b"1": 9}))
    earlier = StateStoreTotals({**repartition, 0: repartition[0] - 2}, {b"0": 8, b"1": 9})
    assert not wrong(cluster, earlier)
    assert wrong(cluster, StateStoreTotals(repartition, {b"0": 10, b"1": 8})) == [
        Observation("orders-products-quantities[1] Shirts, in the state store", 9, 8)
    ]
