"""The picture of a week, compared with what the test wrote into the topics and the history."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree

import pytest
from streamplan.checks.framework.application import application_of
from streamplan.checks.framework.check import CheckResult, Outcome
from streamplan.observability.week import BARS, describe, draw, look_back
from streamplan.pipelines.orders import PIPELINE

from tests.support.fake_cluster import FakeApplication, FakeCluster

ORDERS = application_of(PIPELINE)
NOW = datetime(2026, 3, 8, 12, tzinfo=UTC)
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def cluster() -> FakeCluster:
    """Five records ten days ago, three records thirteen hours ago, seven an hour ago, and one dead letter then."""
    cluster = FakeCluster()
    application = FakeApplication(cluster, PIPELINE)
    for hours, records in ((240, 5), (13, 3), (1, 7)):
        at = int((NOW - timedelta(hours=hours)).timestamp() * 1000)
        for n in range(records):
            cluster.produce("orders", b"%d" % n, b"{}", timestamp=at)
    cluster.produce(application.dead_letters, b"k", b"v", timestamp=at)
    return cluster


def result(check: str, outcome: Outcome, hours: float, figures: Mapping[str, float] | None = None) -> CheckResult:
    at = (NOW - timedelta(hours=hours)).isoformat()
    return CheckResult("orders", check, outcome, "", at, (), figures=figures or {})


LAGS = [
    result("lag", Outcome.PASSED, 200, {"lag_records": 9_999, "lag_seconds": 9_999}),
    result("lag", Outcome.PASSED, 14, {"lag_records": 40, "lag_seconds": 3.5}),
    result("lag", Outcome.FAILED, 13, {"lag_records": 25, "lag_seconds": 600}),
    result("lag", Outcome.PASSED, 8),  # written by a version that kept no figures
    result("lag", Outcome.PASSED, 1, {"lag_records": 0, "lag_seconds": 0.0}),
]
HISTORY = [
    result("totals", Outcome.PASSED, 200),
    result("totals", Outcome.PASSED, 14),
    result("totals", Outcome.FAILED, 13),
    result("totals", Outcome.PASSED, 1),
    result("lag", Outcome.COULD_NOT_LOOK, 2),
    result("lag", Outcome.PASSED, 1),
]


def test_records_are_in_the_bar_of_their_time(cluster: FakeCluster) -> None:
    week = look_back(ORDERS, cluster, [], NOW)
    assert {bar: gained for bar, gained in enumerate(week.arrived) if gained} == {BARS - 3: 3, BARS - 1: 7}
    assert {bar: gained for bar, gained in enumerate(week.dead_lettered) if gained} == {BARS - 1: 1}
    assert describe(week) == "10 offsets arrived, 1 offsets were dead-lettered, no check ran"


def test_what_arrived_is_not_known_where_retention_may_have_deleted_it() -> None:
    """Of three records of 13 hours ago retention has deleted one."""
    cluster = FakeCluster()
    FakeApplication(cluster, PIPELINE)
    for hours, records in ((13, 3), (1, 7)):
        for _ in range(records):
            at = int((NOW - timedelta(hours=hours)).timestamp() * 1000)
            cluster.produce("orders", b"k", b"{}", partition=0, timestamp=at)
    partition = cluster.existing["orders"].partitions[0]
    partition.start, partition.records = 1, partition.records[1:]
    week = look_back(ORDERS, cluster, [], NOW)
    assert list(week.arrived) == [None] * (BARS - 2) + [0, 7]
    assert list(week.dead_lettered) == [0] * BARS
    assert describe(week).startswith("at least 7 offsets arrived, ")


def test_a_bar_has_the_greatest_lag_that_was_measured_and_none_where_it_was_not(cluster: FakeCluster) -> None:
    week = look_back(ORDERS, cluster, LAGS, NOW)
    assert list(week.lag_records) == [None] * (BARS - 3) + [40, None, 0]
    assert list(week.lag_seconds) == [None] * (BARS - 3) + [600, None, 0]
    assert ", the greatest lag of a task was 40 records and 10 min, " in describe(week)


def test_the_marks_of_a_redrive_are_no_dead_letters(cluster: FakeCluster) -> None:
    at = int((NOW - timedelta(hours=1)).timestamp() * 1000)
    mark = (("streamplan.redriven.by", b"ann"),)
    cluster.produce("orders-aggregator-dead-letter", None, None, partition=0, timestamp=at, headers=mark)
    assert look_back(ORDERS, cluster, [], NOW).dead_lettered[-1] == 1


def test_a_bar_has_the_worst_outcome_of_a_check(cluster: FakeCluster) -> None:
    week = look_back(ORDERS, cluster, HISTORY, NOW)
    assert {name: [each for each in row if each] for name, row in week.checks.items()} == {
        "lag": [Outcome.COULD_NOT_LOOK],
        "totals": [Outcome.FAILED, Outcome.PASSED],
    }
    assert describe(week).endswith("the totals were verified in 1 of 2 bars with a check of them, failed: totals")


def test_the_picture_has_a_bar_for_each_quarter_of_a_day(cluster: FakeCluster) -> None:
    root = ElementTree.fromstring(draw(look_back(ORDERS, cluster, HISTORY, NOW)))
    rectangles = [each for each in root.iter(f"{SVG}rect") if each.find(f"{SVG}title") is not None]
    assert len(rectangles) == 2 * BARS + 3
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert texts.count("not known") == 2  # the lag, which no result has
    heights = [float(each.attrib["height"]) for each in rectangles[:BARS]]
    assert heights[BARS - 3] == pytest.approx(heights[BARS - 1] * 3 / 7, abs=0.1)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for each in root.iter(f"{SVG}rect"):
        assert 0 <= float(each.attrib.get("x", 0)) + float(each.attrib["width"]) <= width
        assert 0 <= float(each.attrib.get("y", 0)) + float(each.attrib["height"]) <= height
    assert "orders: 2026-03-01 to 2026-03-08" in texts


def test_the_picture_has_a_bar_for_each_measured_lag_and_its_unit(cluster: FakeCluster) -> None:
    root = ElementTree.fromstring(draw(look_back(ORDERS, cluster, LAGS, NOW)))
    titles = [title.text for rect in root.iter(f"{SVG}rect") for title in rect.iter(f"{SVG}title")]
    assert titles[BARS : BARS + 4] == ["10 min", "0.0 s", "40", "0"]
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert {"Lag in time", "10 min", "Lag in records", "40", "UTC", "Sun 08 Mar", "dotted: not known"} <= {*texts}


@pytest.mark.parametrize("hour", [0, 6, 11, 18, 23])
def test_the_days_on_the_axis_are_those_of_the_week_and_lie_within_the_picture(cluster: FakeCluster, hour: int) -> None:
    now = NOW.replace(hour=hour, minute=17)
    root = ElementTree.fromstring(draw(look_back(ORDERS, cluster, [], now)))
    days = [f"{now - timedelta(days=number):%a %d %b}" for number in range(7)]
    found = {text.text: float(text.attrib["x"]) for text in root.iter(f"{SVG}text")}
    assert [day for day in days if day not in found] in ([], days[:1])  # a day that has just begun has no room
    assert all(found[day] < float(root.attrib["width"]) - 60 for day in days if day in found)


def test_a_week_in_which_nothing_happened() -> None:
    cluster = FakeCluster()
    FakeApplication(cluster, PIPELINE)
    ElementTree.fromstring(draw(look_back(ORDERS, cluster, [], NOW)))
