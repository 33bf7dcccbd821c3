"""The picture of a week, compared with what the test wrote into the topics and the history."""

from __future__ import annotations

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


def result(check: str, outcome: Outcome, hours: float) -> CheckResult:
    return CheckResult("orders", check, outcome, "", (NOW - timedelta(hours=hours)).isoformat(), ())


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
    assert describe(week) == "10 offsets arrived, 1 were dead-lettered, no check ran"


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
    heights = [float(each.attrib["height"]) for each in rectangles[:BARS]]
    assert heights[BARS - 3] == pytest.approx(heights[BARS - 1] * 3 / 7, abs=0.1)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for each in root.iter(f"{SVG}rect"):
        assert 0 <= float(each.attrib.get("x", 0)) + float(each.attrib["width"]) <= width
        assert 0 <= float(each.attrib.get("y", 0)) + float(each.attrib["height"]) <= height
    assert "orders: 2026-03-01 to 2026-03-08" in [text.text for text in root.iter(f"{SVG}text")]


def test_a_week_in_which_nothing_happened() -> None:
    cluster = FakeCluster()
    FakeApplication(cluster, PIPELINE)
    ElementTree.fromstring(draw(look_back(ORDERS, cluster, [], NOW)))
