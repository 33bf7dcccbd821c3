"""Records that have nothing to be counted under are in no total. The check `totals` says how many there are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from streamplan.checks.framework.application import Application, application_of
from streamplan.checks.framework.check import CheckResult, Outcome, run_check
from streamplan.checks.totals import TotalsCheck
from streamplan.pipelines.orders import PIPELINE
from streamplan.reports.verified_sqlite import SqliteVerifiedStore

from tests.support.fake_cluster import IMPATIENT, FakeApplication, FakeCluster

ORDERS = application_of(PIPELINE)
WITHOUT_DEAD_LETTERS = replace(
    ORDERS,
    declared=False,
    aggregations=tuple(replace(each, dead_letters=None) for each in ORDERS.aggregations),
)
WITHOUT_KEY = [b'{"Id": "a"}', b'{"Id": "a", "ProductType": null}', b"{}"]


@pytest.fixture
def application() -> FakeApplication:
    application = FakeApplication(FakeCluster(), PIPELINE)
    for n in range(19):
        application.order(n)
    application.drain()
    return application


def drop(application: FakeApplication, value: bytes) -> None:
    """As the library does with a record whose new key is null: its position passes it, and nothing is written."""
    record = application.cluster.produce(application.source, b"key", value)
    application.cluster.committed[application.group, application.source][record.partition] = record.offset + 1


def totals(
    application: FakeApplication, store: Path, of: Application = WITHOUT_DEAD_LETTERS, *, full: bool = False
) -> CheckResult:
    check = TotalsCheck(verified=SqliteVerifiedStore(store), deadline=IMPATIENT, full=full)
    return run_check(of, check, application.cluster)


@pytest.mark.parametrize("value", WITHOUT_KEY)
def test_a_record_without_a_key_is_told_and_nothing_is_red(
    application: FakeApplication, tmp_path: Path, value: bytes
) -> None:
    assert "in no total" not in totals(application, tmp_path / "before.sqlite").reason
    drop(application, value)
    result = totals(application, tmp_path / "totals.sqlite")
    assert result.outcome is Outcome.PASSED
    assert "orders: 1 record in no total, without a key to be counted under or a value" in result.reason
    assert result.figures["records_without_key"] == 1


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("full", [True, False])
def test_the_number_is_that_of_all_records_however_often_it_is_looked(
    application: FakeApplication, tmp_path: Path, seed: int, full: bool
) -> None:
    """Counted by this test alone, between any looks: each begins with the last verified cut."""
    random, dropped = Random(seed), 0
    for _ in range(5):
        for _ in range(random.randrange(4)):
            drop(application, random.choice(WITHOUT_KEY))
            dropped += 1
        for n in range(random.randrange(4)):
            application.order(100 + n)
            application.drain()
        result = totals(application, tmp_path / "totals.sqlite", full=full)
        assert result.outcome is Outcome.PASSED
        assert result.figures.get("records_without_key", 0) == dropped


def test_without_dead_letters_what_cannot_be_read_is_in_no_total_either(
    application: FakeApplication, tmp_path: Path
) -> None:
    """As an application does whose exception handler says LOG_AND_CONTINUE."""
    for value in (b"no json", *WITHOUT_KEY):
        drop(application, value)
    result = totals(application, tmp_path / "totals.sqlite")
    assert (result.outcome, result.figures["records_without_key"]) == (Outcome.PASSED, 4)


@pytest.mark.parametrize("value", WITHOUT_KEY)
def test_where_there_are_dead_letters_such_a_record_is_one_of_them(
    application: FakeApplication, tmp_path: Path, value: bytes
) -> None:
    drop(application, value)
    result = totals(application, tmp_path / "totals.sqlite", ORDERS)
    assert result.outcome is Outcome.FAILED
    assert "records that cannot be aggregated, in orders-aggregator-dead-letter" in result.reason
