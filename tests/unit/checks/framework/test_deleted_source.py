"""The totals of a source whose records are deleted by retention, compacted, or not counted from the beginning.

Time alone makes nothing red. What is there still is compared, what is gone is said, and a fault is red all the same.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from streamplan.checks.framework.application import application_of
from streamplan.checks.framework.check import Observation
from streamplan.checks.totals import TotalsCheck
from streamplan.errors import CouldNotLook
from streamplan.pipelines.orders import PIPELINE
from streamplan.reports.verified_sqlite import SqliteVerifiedStore

from tests.support.fake_cluster import IMPATIENT, FakeApplication, FakeCluster

ORDERS = application_of(PIPELINE)


@pytest.fixture
def application(cluster: FakeCluster) -> FakeApplication:
    """20 orders, all processed: 10 jackets and 10 shirts."""
    application = FakeApplication(cluster, PIPELINE)
    order(application, 0, 20)
    return application


@pytest.fixture
def kept(tmp_path: Path) -> SqliteVerifiedStore:
    return SqliteVerifiedStore(tmp_path / "totals.sqlite")


def order(application: FakeApplication, first: int, last: int) -> None:
    for n in range(first, last):
        application.order(n)
    application.drain()


def delete_source(cluster: FakeCluster, *, but: int = 0) -> None:
    for number, partition in enumerate(cluster.existing["orders"].partitions):
        cluster.purge("orders", number, max(partition.end - but, 0))


def look(cluster: FakeCluster, kept: SqliteVerifiedStore, *, full: bool = False) -> list[Observation]:
    return list(TotalsCheck(verified=kept, full=full, deadline=IMPATIENT).observe(ORDERS, cluster))


def wrong(rows: list[Observation]) -> list[Observation]:
    return [row for row in rows if not row.agrees]


def told(rows: list[Observation], words: str) -> bool:
    return any(words in row.subject for row in rows)


def left_out(rows: list[Observation], words: str) -> bool:
    """Whether a row says that something is not compared, in these words."""
    return any(words in f"{row.subject}: {row.where}" for row in rows if not row.is_judged)


def miscount(application: FakeApplication, key: bytes, by: int) -> None:
    """The state store has a wrong total, and writes it with the next record."""
    application.totals[key] += by


def not_compared(kept: SqliteVerifiedStore) -> int:
    cut = kept.cut()
    assert cut is not None
    return cut.not_compared


def test_what_was_deleted_since_the_last_cut_is_said_and_the_rest_is_compared(
    cluster: FakeCluster, application: FakeApplication, kept: SqliteVerifiedStore
) -> None:
    assert not wrong(look(cluster, kept))
    order(application, 20, 40)
    delete_source(cluster, but=1)  # 18 of 20 new records
    rows = look(cluster, kept)
    assert not wrong(rows)
    assert left_out(rows, "totals of the records of orders-0 offsets")
    assert not_compared(kept) == 18
    order(application, 40, 50)
    rows = look(cluster, kept)
    assert not wrong(rows)
    assert left_out(rows, "18 offsets of orders: they were deleted before an earlier run could compare them")
    miscount(application, b"0", -1)
    order(application, 50, 52)
    (row, *_) = wrong(look(cluster, kept))
    assert (row.subject, row.expected, row.observed) == ("orders-products-quantities[0] Jackets", 26, 25)


@pytest.mark.parametrize("by", [-11, 19])
def test_a_total_that_the_deleted_records_cannot_explain_is_red(
    cluster: FakeCluster, application: FakeApplication, kept: SqliteVerifiedStore, by: int
) -> None:
    assert not wrong(look(cluster, kept))
    miscount(application, b"0", by)
    order(application, 20, 40)
    delete_source(cluster, but=1)
    before = kept.cut()
    rows = wrong(look(cluster, kept))
    assert told(rows, "orders-products-quantities[0] Jackets")
    assert kept.cut() == before  # what is wrong is no base


def test_a_first_look_after_the_beginning_is_gone_takes_the_totals_as_the_base(
    cluster: FakeCluster, application: FakeApplication, kept: SqliteVerifiedStore
) -> None:
    delete_source(cluster, but=2)
    # Where nothing is stored, nothing is a base.
    with pytest.raises(CouldNotLook, match=r"Nobody can prove any more .*counted correctly\.$"):
        list(TotalsCheck(deadline=IMPATIENT).observe(ORDERS, cluster))
    with pytest.raises(CouldNotLook, match=r"every record since offset 0.*begins at offset.*accepted as they are now"):
        look(cluster, kept)
    rows = look(cluster, kept)
    assert not wrong(rows)
    assert left_out(rows, "16 offsets of orders: they were deleted before an earlier run could compare them")
    order(application, 20, 30)
    assert not wrong(look(cluster, kept))
    assert not wrong(look(cluster, kept, full=True))
    miscount(application, b"1", 1)
    order(application, 30, 32)
    assert told(wrong(look(cluster, kept)), "orders-products-quantities[1] Shirts")


def test_a_first_look_finds_what_contradicts_the_records_that_are_there(
    cluster: FakeCluster, application: FakeApplication, kept: SqliteVerifiedStore
) -> None:
    miscount(application, b"0", -9)
    order(application, 20, 22)  # the changelog says 2 jackets
    delete_source(cluster, but=4)
    assert wrong(look(cluster, kept))
    assert kept.cut() is None


def test_it_is_counted_from_the_start_of_the_application(cluster: FakeCluster, kept: SqliteVerifiedStore) -> None:
    application = FakeApplication(cluster, PIPELINE)
    for n in range(10):
        application.order(n)
    starts = {number: found.end for number, found in enumerate(cluster.existing["orders"].partitions)}
    cluster.began[application.group, "orders"] = starts
    cluster.committed[application.group, "orders"] = dict(starts)
    order(application, 10, 20)
    cluster.purge("orders", 0, starts[0])  # what it never counted may go
    rows = look(cluster, kept)
    assert not wrong(rows)
    assert told(rows, f"counted from the start of the application at orders-0 offset {starts[0]}, orders-1 offset")
    totals = {row.subject: row.observed for row in rows}
    assert totals["orders-products-quantities[0] Jackets"] == 5
    assert not_compared(kept) == 0
    assert not wrong(look(cluster, kept, full=True))
    miscount(application, b"0", 5)  # the records before the start were counted, too
    order(application, 20, 22)
    assert told(wrong(look(cluster, kept)), "Jackets")


def test_a_compacted_source_is_compared_as_far_as_its_records_are_there(
    cluster: FakeCluster, application: FakeApplication, kept: SqliteVerifiedStore
) -> None:
    cluster.existing["orders"].configs["cleanup.policy"] = "compact"
    for n in range(20):  # each key once more
        application.order(n)
    application.drain()
    for number, partition in enumerate(cluster.existing["orders"].partitions):
        cluster.compact("orders", number, partition.end)
    rows = look(cluster, kept)
    assert not wrong(rows)
    assert left_out(rows, "20 offsets of orders: the compacted topic has no record there")
    order(application, 20, 30)
    rows = look(cluster, kept)
    assert not wrong(rows)
    assert not left_out(rows, "compacted")
    miscount(application, b"0", -1)
    order(application, 30, 32)
    assert told(wrong(look(cluster, kept)), "Jackets")


def test_dead_letters_of_deleted_records_are_no_fault(
    cluster: FakeCluster, application: FakeApplication, kept: SqliteVerifiedStore
) -> None:
    assert not wrong(look(cluster, kept))
    cluster.produce("orders", b"bad", b"not JSON")
    order(application, 20, 30)
    delete_source(cluster)
    rows = look(cluster, kept)
    assert not wrong(rows)
    assert not_compared(kept) == 11
