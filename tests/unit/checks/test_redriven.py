"""The totals check after a re-drive: exact from one verified cut to the next, and from the beginning."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from streamplan.checks.framework.application import Application, application_of
from streamplan.checks.framework.check import Observation
from streamplan.checks.totals import TotalsCheck
from streamplan.errors import CouldNotLook
from streamplan.kafka_port import read_records_at
from streamplan.kafka_types import Record
from streamplan.pipelines.orders import PIPELINE
from streamplan.reports.verified_sqlite import SqliteVerifiedStore
from streamplan.serdes.json import Json

from tests.support.fake_cluster import IMPATIENT, FakeApplication, FakeCluster

NARROW = application_of(PIPELINE)
ORDER = Json("Id string, ProductType int", allowed={"ProductType": {0: "Jackets", 1: "Shirts", 7: "Socks"}})
MENDED = replace(NARROW, aggregations=(replace(NARROW.aggregations[0], serde=ORDER),))


@pytest.fixture
def store(tmp_path: Path) -> SqliteVerifiedStore:
    return SqliteVerifiedStore(tmp_path / "totals.sqlite")


@pytest.fixture
def application(cluster: FakeCluster) -> FakeApplication:
    """19 orders that are counted, and three socks and one that is no order, which the narrow declaration rejects."""
    application = FakeApplication(cluster, PIPELINE)
    for n in range(19):
        application.order(n)
    for n in (20, 21, 22):
        application.order(n, product=7)
    cluster.produce("orders", b"bad", b"not JSON")
    application.drain()
    return application


def letters(cluster: FakeCluster, application: FakeApplication) -> list[Record]:
    """The dead letters of socks."""
    found = [record for each in cluster.existing[application.dead_letters].partitions for record in each.records]
    return [record for record in found if b'"ProductType": 7' in (record.value or b"")]


def redrive(cluster: FakeCluster, application: FakeApplication, letter: Record) -> None:
    """What a re-drive writes: the record under its new key, and a mark. Nothing of ours computes it."""
    cluster.produce(application.repartition, b"7", letter.value)
    of_record = tuple(
        header for header in letter.headers if header[0].startswith(("streamplan.source", "streamplan.t"))
    )
    mark = (
        ("streamplan.redriven.letter", b"%d@%d" % (letter.partition, letter.offset)),
        ("streamplan.redriven.by", b"ann"),
    )
    cluster.produce(application.dead_letters, None, None, partition=letter.partition, headers=of_record + mark)


def rows(
    cluster: FakeCluster, subject: Application, store: SqliteVerifiedStore, *, full: bool = False
) -> list[Observation]:
    return list(TotalsCheck(full=full, verified=store, deadline=IMPATIENT).observe(subject, cluster))


def wrong(
    cluster: FakeCluster, subject: Application, store: SqliteVerifiedStore, *, full: bool = False
) -> list[Observation]:
    return [row for row in rows(cluster, subject, store, full=full) if not row.agrees]


def test_an_open_dead_letter_that_would_be_accepted_now_says_what_to_do(
    cluster: FakeCluster, application: FakeApplication, store: SqliteVerifiedStore
) -> None:
    assert not wrong(cluster, NARROW, store)
    (row,) = (row for row in wrong(cluster, MENDED, store, full=True) if "that could be aggregated" in row.subject)
    assert (row.observed, "a re-drive processes them again" in row.where) == (3, True)


@pytest.mark.parametrize("full", [False, True])
def test_what_was_redriven_after_the_verified_cut_is_counted_once(
    cluster: FakeCluster, application: FakeApplication, store: SqliteVerifiedStore, full: bool
) -> None:
    assert not wrong(cluster, NARROW, store)
    for letter in letters(cluster, application):
        redrive(cluster, application, letter)
    assert not wrong(cluster, MENDED, store, full=full)  # on its way to the count
    application.order(30)
    application.drain()
    assert not wrong(cluster, MENDED, store, full=full)
    assert application.totals[b"7"] == 3
    assert not wrong(cluster, MENDED, store)  # nothing new
    cut = store.cut()
    assert cut is not None
    assert cut.records == 19 + 3 + 1 + 1


def test_some_are_redriven_and_the_others_stay_open(
    cluster: FakeCluster, application: FakeApplication, store: SqliteVerifiedStore
) -> None:
    assert not wrong(cluster, NARROW, store)
    redrive(cluster, application, letters(cluster, application)[0])
    application.drain()
    assert not wrong(cluster, MENDED, store)
    found = wrong(cluster, MENDED, store, full=True)
    assert {row.observed for row in found if "that could be aggregated" in row.subject} == {2}


def test_a_record_that_was_rejected_and_redriven_since_the_verified_cut(
    cluster: FakeCluster, application: FakeApplication, store: SqliteVerifiedStore
) -> None:
    for letter in letters(cluster, application):
        redrive(cluster, application, letter)
    application.drain()
    assert not wrong(cluster, MENDED, store)
    assert application.order(40, product=7)
    application.drain()
    redrive(cluster, application, letters(cluster, application)[-1])
    application.drain()
    assert not wrong(cluster, MENDED, store)
    assert application.totals[b"7"] == 4


def test_the_source_may_be_deleted_after_it_was_verified(
    cluster: FakeCluster, application: FakeApplication, store: SqliteVerifiedStore
) -> None:
    """The value of a re-driven record is in its dead letter, too."""
    assert not wrong(cluster, NARROW, store)
    for letter in letters(cluster, application):
        redrive(cluster, application, letter)
    for number, partition in enumerate(cluster.existing["orders"].partitions):
        cluster.purge("orders", number, partition.end)
    application.drain()
    assert not wrong(cluster, MENDED, store)
    assert not wrong(cluster, MENDED, store, full=True)  # the beginning is gone: from the verified cut


def test_neither_the_record_nor_its_dead_letter_is_there(
    cluster: FakeCluster, application: FakeApplication, store: SqliteVerifiedStore
) -> None:
    assert not wrong(cluster, NARROW, store)
    letter = letters(cluster, application)[0]
    redrive(cluster, application, letter)
    cluster.purge("orders", letter.partition, cluster.existing["orders"].partitions[letter.partition].end)
    cluster.purge(application.dead_letters, letter.partition, letter.offset + 1)
    application.drain()
    with pytest.raises(CouldNotLook, match=r"which was re-driven: expected the record, or its dead letter"):
        rows(cluster, MENDED, store)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("fault", ["its output is missing", "its output is there twice"])
def test_a_redrive_that_was_not_exactly_once_is_named(
    cluster: FakeCluster, application: FakeApplication, store: SqliteVerifiedStore, fault: str, full: bool
) -> None:
    assert not wrong(cluster, NARROW, store)
    letter, *others = letters(cluster, application)
    for other in others:
        redrive(cluster, application, other)
    redrive(cluster, application, letter)
    if fault == "its output is missing":
        for partition in cluster.existing[application.repartition].partitions:
            partition.records = [record for record in partition.records if record.value != letter.value]
    else:
        cluster.produce(application.repartition, b"7", letter.value)
    application.drain()
    found = wrong(cluster, MENDED, store, full=full)
    twice = fault == "its output is there twice"
    assert any(row.subject.endswith("[7] Socks") and row.observed == (4 if twice else 2) for row in found)


def test_single_records_are_read_wherever_they_lie(cluster: FakeCluster) -> None:
    cluster.create("far", 2)
    for n in range(5000):
        cluster.produce("far", b"k", b"%d" % n, partition=0)
    cluster.produce("far", b"k", b"other", partition=1)
    cluster.purge("far", 0, 2)
    places = [(0, 4999), (0, 0), (0, 2), (0, 3), (1, 0), (1, 7), (2, 0), (0, 2)]
    assert sorted(record.value or b"" for record in read_records_at(cluster, "far", places)) == [
        b"2",
        b"3",
        b"4999",
        b"other",
    ]
