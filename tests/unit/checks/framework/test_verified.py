"""The totals check from one verified cut to the next: what it reads, what it finds, when it begins anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from streamplan.checks.framework.application import Aggregation, Application, application_of
from streamplan.checks.framework.check import Observation
from streamplan.checks.framework.verified import KeyTotals, VerifiedCut
from streamplan.checks.recount.counting import Counts, count_records
from streamplan.checks.totals import TotalsCheck
from streamplan.errors import CouldNotLook
from streamplan.kafka_port import RecordBatch, records_of
from streamplan.model.timestamps import LATEST_MS
from streamplan.pipelines.orders import PIPELINE
from streamplan.reports.verified_sqlite import SqliteVerifiedStore
from streamplan.serdes.json import Json
from streamplan.serdes.serde import MAX_BYTES, Undecodable

from tests.support.fake_cluster import IMPATIENT, FakeApplication, FakeCluster, FakeRecordBatch

ORDERS = application_of(PIPELINE)


class CountingCluster(FakeCluster):
    """Tells how many records of each topic were read."""

    def __init__(self) -> None:
        super().__init__()
        self.records_read: Counter[str] = Counter()

    def read(self, topic: str, ranges: Mapping[int, tuple[int, int]]) -> Iterator[FakeRecordBatch]:
        for batch in super().read(topic, ranges):
            self.records_read[topic] += len(batch)
            yield batch


@pytest.fixture
def cluster() -> CountingCluster:
    return CountingCluster()


@pytest.fixture
def application(cluster: CountingCluster) -> FakeApplication:
    """19 orders, all processed: 10 jackets and 9 shirts."""
    application = FakeApplication(cluster, PIPELINE)
    for n in range(19):
        application.order(n)
    application.drain()
    return application


@pytest.fixture
def kept(tmp_path: Path) -> SqliteVerifiedStore:
    return SqliteVerifiedStore(tmp_path / "reports" / "totals.sqlite")


def wrong(
    cluster: FakeCluster, kept: SqliteVerifiedStore, *, full: bool = False, subject: Application = ORDERS
) -> list[Observation]:
    found = list(TotalsCheck(verified=kept, full=full, deadline=IMPATIENT).observe(subject, cluster))
    assert found
    return [row for row in found if not row.agrees]


def test_only_what_is_new_is_read(
    cluster: CountingCluster, application: FakeApplication, kept: SqliteVerifiedStore
) -> None:
    assert not wrong(cluster, kept)
    cluster.records_read.clear()
    assert not wrong(cluster, kept)
    assert not cluster.records_read
    for n in range(19, 24):
        application.order(n)
    application.drain()
    assert not wrong(cluster, kept)
    assert cluster.records_read == {"orders": 5, application.repartition: 5, application.changelog: 5}
    assert not wrong(cluster, kept, full=True)
    assert cluster.records_read["orders"] == 5 + 24


def test_all_totals_are_shown_while_they_are_few(
    cluster: CountingCluster, application: FakeApplication, kept: SqliteVerifiedStore
) -> None:
    assert not wrong(cluster, kept)
    application.order(20)
    application.drain()
    rows = {row.subject: row for row in TotalsCheck(verified=kept, deadline=IMPATIENT).observe(ORDERS, cluster)}
    assert rows["orders-products-quantities[0] Jackets"].observed == 11
    assert rows["orders-products-quantities[1] Shirts"].observed == 9
    (processed,) = (row for subject, row in rows.items() if "records processed" in subject)
    assert processed.expected == processed.observed == 20


def test_a_fault_stays_red_and_is_placed_behind_the_last_verified_cut(
    cluster: CountingCluster, application: FakeApplication, kept: SqliteVerifiedStore
) -> None:
    assert not wrong(cluster, kept)
    at = application.order(20)
    cluster.committed[application.group, "orders"][at.partition] += 1  # skipped
    for _ in range(2):
        found = {row.subject: row for row in wrong(cluster, kept)}
        lost = found["orders-products-quantities[0] Jackets"]
        assert (lost.expected, lost.observed) == (11, 10)
        assert lost.where == f"in orders-{at.partition} offsets {at.offset} to {at.offset}"


def test_tampering_without_news_is_found(
    cluster: CountingCluster, application: FakeApplication, kept: SqliteVerifiedStore
) -> None:
    assert not wrong(cluster, kept)
    written = cluster.produce(application.changelog, b"0", (11).to_bytes(8, "big"))
    (row, *others) = wrong(cluster, kept)
    assert (row.subject, row.expected, row.observed) == ("orders-products-quantities[0] Jackets", 10, 11)
    assert "in the changelog" in row.where
    assert row.where.endswith(f"{application.changelog}-{written.partition} offset {written.offset}")
    assert {each.topic for each in (row, *others)} == {application.changelog}  # the drawing marks no other topic


def test_a_record_lost_on_the_way_between_two_cuts(
    cluster: CountingCluster, application: FakeApplication, kept: SqliteVerifiedStore
) -> None:
    """It was waiting when the cut was kept; then its position was passed, and nothing of it is new anywhere."""
    application.order(20)
    for number, partition in enumerate(cluster.existing["orders"].partitions):
        application.rekey(number, partition.end)
    assert not wrong(cluster, kept)
    positions = cluster.committed[application.group, application.repartition]
    for number, partition in enumerate(cluster.existing[application.repartition].partitions):
        positions[number] = partition.end
    assert "orders-products-quantities[0] Jackets" in [row.subject for row in wrong(cluster, kept)]


def test_a_wrong_repartition_record_behind_the_verified_cut_is_placed(
    cluster: CountingCluster, application: FakeApplication, kept: SqliteVerifiedStore
) -> None:
    """It was consumed without a trace in the changelog."""
    assert not wrong(cluster, kept)
    for number, partition in enumerate(cluster.existing[application.repartition].partitions):
        cluster.purge(application.repartition, number, partition.end)
    application.order(20)
    application.drain()
    record = cluster.produce(application.repartition, b"0", b"")
    cluster.committed[application.group, application.repartition][record.partition] = record.offset + 1
    _, row = wrong(cluster, kept)
    assert (row.expected, row.observed) == (1, 2)
    assert row.where == f"in {application.repartition}-0 offsets {record.offset - 1} to {record.offset}"


def test_a_cut_of_an_earlier_version_says_nothing_of_the_repartition_topic(
    cluster: CountingCluster, application: FakeApplication, kept: SqliteVerifiedStore
) -> None:
    """It does not have the ends of that topic: the next cut has them."""
    assert not wrong(cluster, kept)
    earlier = kept.cut()
    assert earlier is not None
    kept.advance(replace(earlier, repartition_ends=None), {}, previous=earlier)
    application.order(20)
    application.drain()
    rows = list(TotalsCheck(verified=kept, deadline=IMPATIENT).observe(ORDERS, cluster))
    assert all(row.agrees for row in rows)
    assert [row.where for row in rows if not row.is_judged] == ["an earlier version stored the verified cut"]
    record = cluster.produce(application.repartition, b"0", b"")
    cluster.committed[application.group, application.repartition][record.partition] = record.offset + 1
    assert len(wrong(cluster, kept)) == 2


def test_input_that_was_verified_may_be_deleted(
    cluster: CountingCluster, application: FakeApplication, kept: SqliteVerifiedStore
) -> None:
    assert not wrong(cluster, kept)
    for number, partition in enumerate(cluster.existing["orders"].partitions):
        cluster.purge("orders", number, partition.end)
    application.order(20)
    application.drain()
    assert not wrong(cluster, kept)
    assert not wrong(cluster, kept, full=True)  # the beginning is gone: from the last verified cut
    cut = kept.cut()
    assert cut is not None
    assert (cut.records, cut.not_compared) == (20, 0)


def test_dead_letters_of_verified_records_may_be_deleted(
    cluster: CountingCluster, application: FakeApplication, kept: SqliteVerifiedStore
) -> None:
    bad = cluster.produce("orders", b"bad", b"not JSON")
    application.drain()
    assert not wrong(cluster, kept)
    letters = cluster.existing[application.dead_letters].partitions[bad.partition]
    cluster.purge(application.dead_letters, bad.partition, letters.end)
    application.order(20)
    application.drain()
    assert not wrong(cluster, kept)
    lost = cluster.produce("orders", b"bad", b"not JSON", partition=bad.partition)
    cluster.committed[application.group, "orders"][lost.partition] += 1
    assert any(f"orders-{lost.partition} offset {lost.offset}" in row.subject for row in wrong(cluster, kept))


def test_an_application_that_was_reset_is_counted_anew(
    cluster: CountingCluster, application: FakeApplication, kept: SqliteVerifiedStore
) -> None:
    assert not wrong(cluster, kept)
    for topic in (application.repartition, application.changelog):
        cluster.create(topic, 2, cluster.existing[topic].configs)
    for topic in (application.source, application.repartition):
        cluster.committed[application.group, topic] = {0: 0, 1: 0}
    application.totals.clear()
    application.drain()
    cluster.records_read.clear()
    assert not wrong(cluster, kept)
    assert cluster.records_read["orders"] == 19


def test_a_position_that_went_back_is_counted_anew(
    cluster: CountingCluster, application: FakeApplication, kept: SqliteVerifiedStore
) -> None:
    """Without new topics: what is processed a second time is counted twice, and that is found."""
    assert not wrong(cluster, kept)
    cluster.committed[application.group, "orders"][1] -= 2
    assert wrong(cluster, kept)


@pytest.mark.parametrize("seed", range(40))
def test_random_walks(cluster: CountingCluster, tmp_path: Path, seed: int) -> None:
    """Any interleaving of orders, tasks, looks, and deletions of what was verified: green, and the counts are kept."""
    random = Random(seed)
    application = FakeApplication(cluster, PIPELINE)
    kept = SqliteVerifiedStore(tmp_path / "totals.sqlite")
    ordered: Counter[bytes] = Counter()
    for n in range(120):
        match random.randrange(6):
            case 0 | 1:
                product = random.randrange(3)  # 2 is not a product
                application.order(n, product)
                ordered[b"%d" % product] += 1
            case 2 | 3:
                steps = ((application.source, application.rekey), (application.repartition, application.count))
                topic, act = random.choice(steps)
                number = random.randrange(2)
                position = cluster.committed[application.group, topic][number]
                act(number, random.randint(position, cluster.existing[topic].partitions[number].end))
            case 4 if any(cluster.committed[application.group, application.source].values()):
                assert not wrong(cluster, kept)
            case 5:
                verified = kept.cut()
                if verified is not None and random.random() < 0.3:
                    number = random.randrange(2)
                    start = cluster.existing["orders"].partitions[number].start
                    cluster.purge("orders", number, max(start, verified.source[number]))
                cluster.compact(application.changelog, 0, cluster.existing[application.changelog].partitions[0].end)
    application.drain()
    if cluster.existing["orders"].partitions[0].end:
        assert not wrong(cluster, kept)
        assert {key: held.counted for key, held in kept.key_totals(None).items()} == {
            key: ordered[key] for key in (b"0", b"1") if ordered[key]
        }


@pytest.mark.parametrize("seed", range(20))
def test_of_many_keys_only_those_with_news_are_compared(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    cluster = CountingCluster()
    topology_orders = replace(
        ORDERS, aggregations=(replace(ORDERS.aggregations[0], serde=Json("k string"), field="k"),)
    )
    application = FakeApplication(cluster, PIPELINE)
    kept = SqliteVerifiedStore(tmp_path / "totals.sqlite")
    held: Counter[bytes] = Counter()

    def process(key: bytes) -> None:
        held[key] += 1
        at = cluster.produce("orders", None, b'{"k": "%b"}' % key, partition=random.randrange(2))
        cluster.committed[application.group, "orders"][at.partition] = at.offset + 1
        rekeyed = cluster.produce(application.repartition, key, b"")
        cluster.committed[application.group, application.repartition][rekeyed.partition] = rekeyed.offset + 1
        cluster.produce(application.changelog, key, held[key].to_bytes(8, "big"))

    for n in range(500):
        process(b"key-%d" % (n % 300))
    assert not wrong(cluster, kept, subject=topology_orders)
    assert kept.key_count() == 300
    for _ in range(10):
        process(b"key-%d" % random.randrange(310))
    assert not wrong(cluster, kept, subject=topology_orders)
    assert {key: one.counted for key, one in kept.key_totals(None).items()} == held
    victim = random.choice(sorted(held))
    cluster.produce(application.changelog, victim, (held[victim] - 1).to_bytes(8, "big"))
    summary, row = wrong(cluster, kept, subject=topology_orders)[:2]
    assert int(summary.expected) - int(summary.observed) == 1
    assert (row.expected, row.observed) == (held[victim], held[victim] - 1)
    assert victim.decode() in row.subject


def test_a_cut_is_kept_only_after_the_one_it_went_out_from(kept: SqliteVerifiedStore) -> None:
    first = VerifiedCut({"orders": "id"}, {0: 1}, {0: 1}, {}, 1, frozenset())
    kept.advance(first, {b"0": KeyTotals(1, {0: 1})}, previous=None)
    kept.advance(replace(first, records=5), {b"0": KeyTotals(5, {0: 5})}, previous=first)
    kept.advance(replace(first, records=2), {b"0": KeyTotals(2, {0: 2})}, previous=first)  # came too late
    assert kept.cut() == replace(first, records=5)
    assert kept.key_totals([b"0"]) == {b"0": KeyTotals(5, {0: 5})}
    kept.advance(first, {}, previous=None)
    assert (kept.cut(), kept.key_count()) == (first, 0)


def test_a_file_that_is_none_could_not_be_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "totals.sqlite"
    path.write_bytes(b"no database" * 100)
    with pytest.raises(CouldNotLook, match="Remove the file"):
        SqliteVerifiedStore(path).cut()


# -- without transactions


class AtLeastOnce(FakeApplication):
    """Writes at once and commits positions later, as Kafka Streams does at_least_once."""

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__(cluster, PIPELINE)
        self.read = {self.source: {0: 0, 1: 0}, self.repartition: {0: 0, 1: 0}}

    def process(self, topic: str, number: int, until: int) -> None:
        committed = dict(self.cluster.committed[self.group, topic])
        self.cluster.committed[self.group, topic] = self.read[topic]
        (self.rekey if topic == self.source else self.count)(number, until)
        self.cluster.committed[self.group, topic] = committed

    def commit(self, topic: str) -> None:
        self.cluster.committed[self.group, topic] = dict(self.read[topic])


FOREIGN = replace(
    ORDERS,
    aggregations=(replace(ORDERS.aggregations[0], dead_letters=None, exactly_once=None),),
    declared=False,
)


@pytest.mark.parametrize("seed", range(40))
def test_at_least_once_is_between_its_bounds_at_any_moment(cluster: CountingCluster, tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    application = AtLeastOnce(cluster)
    kept = SqliteVerifiedStore(tmp_path / "totals.sqlite")

    def step() -> None:
        match random.randrange(4):
            case 0 | 1:
                application.order(random.randrange(1000))
            case 2:
                topic = random.choice((application.source, application.repartition))
                number = random.randrange(2)
                end = cluster.existing[topic].partitions[number].end
                application.process(topic, number, random.randint(application.read[topic][number], end))
            case 3:
                application.commit(random.choice((application.source, application.repartition)))

    for _ in range(30):
        step()
    cluster.before = lambda method: step() if random.random() < 0.3 else None
    for _ in range(10):
        for _ in range(5):
            step()
        if any(cluster.committed[application.group, application.source].values()):
            assert not wrong(cluster, kept, subject=FOREIGN)


def test_at_least_once_a_lost_and_a_doubled_record_are_found(
    cluster: CountingCluster, kept: SqliteVerifiedStore
) -> None:
    application = AtLeastOnce(cluster)
    for n in range(20):
        application.order(n)
    for topic in (application.source, application.repartition):
        for number in (0, 1):
            application.process(topic, number, cluster.existing[topic].partitions[number].end)
        application.commit(topic)
    assert not wrong(cluster, kept, subject=FOREIGN)
    cluster.produce(application.repartition, b"1", b"")
    row, *_ = wrong(cluster, kept, subject=FOREIGN)
    assert (row.expected, row.observed) == (10, 11)
    application.process(application.repartition, 0, cluster.existing[application.repartition].partitions[0].end)
    application.process(application.repartition, 1, cluster.existing[application.repartition].partitions[1].end)
    application.commit(application.repartition)
    row, *_ = wrong(cluster, kept, subject=FOREIGN)
    assert (row.expected, row.observed) == (10, 11)


# -- by the batch


def count_each(aggregation: Aggregation, batch: RecordBatch) -> Counts:
    counts: Counter[bytes] = Counter()
    rejected = []
    for row, record in enumerate(records_of(batch)):
        try:
            if (key := aggregation.key_of(record)) is not None:
                counts[key] += 1
        except Undecodable:
            rejected.append(row)
    return Counts(counts, rejected)


def test_counting_by_the_batch_is_counting_record_by_record() -> None:
    values = [
        b'{"Id": "a", "ProductType": 0}', b'{"Id": "a", "ProductType": 1}', b'{"ProductType": 7}', b"", b"null",
        b'{"Id": 1, "ProductType": 1}', b'{"ProductType": null}', b"\xff", None, b'{"ProductType": 1} {}',
    ]  # fmt: skip
    random = Random(1)
    (of,) = ORDERS.aggregations
    raw = replace(of, field=None, serde=None)
    for aggregation in (of, replace(of, field=None), raw, replace(raw, dead_letters=None)):
        for size in (0, 1, 5, 300):
            cluster = FakeCluster()
            cluster.create("orders", 1)
            for _ in range(size):
                key = random.choice([b"k", b"\xff", b"", None])
                value = random.choice(values[: random.choice([2, 10])])
                timestamp = random.choice([0, LATEST_MS, random.choice([1, -1, LATEST_MS + 1])])
                headers = random.choice([(), (), (("h", b"x" * random.choice([1, MAX_BYTES])),)])
                cluster.produce("orders", key, value, partition=0, timestamp=timestamp, headers=headers)
            for batch in cluster.read("orders", {0: (0, size)}):
                reference, counts = count_each(aggregation, batch), count_records(aggregation, batch)
                assert dict(counts.by_key) == dict(reference.by_key)
                assert list(counts.rejected) == list(reference.rejected)
