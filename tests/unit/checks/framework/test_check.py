from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable

import pytest
from streamplan.checks import CHECKS
from streamplan.checks.framework.application import Application, application_of
from streamplan.checks.framework.check import (
    FOR_INFORMATION,
    Check,
    CheckResult,
    Observation,
    Outcome,
    not_judged,
    run_checks,
)
from streamplan.errors import CouldNotLook
from streamplan.kafka_port import Cluster
from streamplan.pipelines.orders import PIPELINE

from tests.support.fake_cluster import FakeCluster
from tests.support.waiting import DEADLINE_SECONDS

ORDERS = application_of(PIPELINE)
ROW = Observation("a row", 1, 1)


class Doing(Check):
    """A check that does something before it answers."""

    title = healthy = "as the test says"

    def __init__(self, name: str, act: Callable[[], object] = lambda: None) -> None:
        self.name = name
        self.act = act

    def observe(self, application: Application, cluster: Cluster) -> Iterable[Observation]:
        self.act()
        return [ROW]


def test_checks_run_beside_each_other_and_keep_their_order() -> None:
    """Each of the three ends only when the next one has ended."""
    ended = [threading.Event() for _ in range(3)]
    finished: list[str] = []

    def wait_for(number: int) -> Callable[[], object]:
        def act() -> None:
            if number + 1 < len(ended) and not ended[number + 1].wait(DEADLINE_SECONDS):
                raise CouldNotLook("the next check did not run")

        return act

    def finish(result: CheckResult) -> None:
        finished.append(result.check)
        ended[int(result.check)].set()

    checks = [Doing(str(number), wait_for(number)) for number in range(3)]
    results = run_checks(ORDERS, checks, FakeCluster, finished=finish)
    assert [(result.check, result.outcome) for result in results] == [
        (str(number), Outcome.PASSED) for number in range(3)
    ]
    assert finished == ["2", "1", "0"]


def test_a_result_has_the_greatest_of_each_figure_of_its_rows() -> None:
    class Measuring(Doing):
        def observe(self, application: Application, cluster: Cluster) -> Iterable[Observation]:
            return [
                ROW,
                Observation("a row", 1, 1, figures={"lag": 3, "age": 0.5}),
                Observation("a row", 1, 2, figures={"lag": 2}),
            ]

    (result,) = run_checks(ORDERS, [Measuring("measuring")], FakeCluster)
    assert result.figures == {"lag": 3, "age": 0.5}


def test_each_check_has_a_cluster_of_its_own() -> None:
    seen: list[Cluster] = []

    class Seeing(Doing):
        def observe(self, application: Application, cluster: Cluster) -> Iterable[Observation]:
            seen.append(cluster)
            return [ROW]

    run_checks(ORDERS, [Seeing("one"), Seeing("another")], FakeCluster)
    assert len({id(cluster) for cluster in seen}) == 2


def test_one_that_could_not_look_stops_no_other() -> None:
    def fail() -> None:
        raise CouldNotLook("it")

    results = run_checks(ORDERS, [Doing("one", fail), Doing("another")], FakeCluster)
    assert [result.outcome for result in results] == [Outcome.COULD_NOT_LOOK, Outcome.PASSED]


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    "error",
    [ZeroDivisionError("by zero"), KeyError("a"), AssertionError(), Unprintable(), ValueError("two\nlines")],
    ids=lambda error: type(error).__name__,
)
def test_an_unexpected_exception_is_told_with_its_place_and_takes_nothing_from_the_other_checks(
    error: Exception,
) -> None:
    def fail() -> None:
        raise error

    one, another, third = run_checks(ORDERS, [Doing("one"), Doing("another", fail), Doing("third")], FakeCluster)
    assert (one.outcome, third.outcome) == (Outcome.PASSED, Outcome.PASSED)
    assert another.outcome is Outcome.COULD_NOT_LOOK
    assert type(error).__name__ in another.reason
    assert "\n" not in another.reason
    assert f"{__file__}, line " in another.reason
    assert another.reason.endswith("Report it as a fault of Streamplan.")


class Telling(Check):
    title = healthy = "as the test says"
    advice = "Do this."

    def __init__(self, *rows: Observation) -> None:
        self.name = "telling"
        self.rows = rows

    def observe(self, application: Application, cluster: Cluster) -> Iterable[Observation]:
        return self.rows


def test_each_kind_of_wrong_row_has_its_advice_once() -> None:
    rows = [Observation("a", 1, n, advice=advice) for n, advice in ((2, ""), (3, "That."), (4, "That."), (1, "Else."))]
    (result,) = run_checks(ORDERS, [Telling(*rows)], FakeCluster)
    assert result.advice == ("Do this.", "That.")
    (result,) = run_checks(ORDERS, [Telling(ROW)], FakeCluster)
    assert result.advice == ()


def test_the_reason_has_the_first_wrong_row_that_says_where_to_look() -> None:
    (result,) = run_checks(
        ORDERS, [Telling(Observation("sum", 3, 2), ROW, Observation("key", 2, 1, "t-0 offset 7"))], FakeCluster
    )
    assert result.reason == "2 of 3 wrong: key: expected 2, observed 1, 1 too few (t-0 offset 7)"


def test_what_is_not_judged_never_counts_as_passed() -> None:
    row = not_judged("store", "its keys are not those of the records")
    (alone,) = run_checks(ORDERS, [Telling(row)], FakeCluster)
    (beside,) = run_checks(ORDERS, [Telling(ROW, row)], FakeCluster)
    (wrong,) = run_checks(ORDERS, [Telling(row, Observation("a", 1, 2))], FakeCluster)
    assert alone.outcome is Outcome.COULD_NOT_LOOK
    assert alone.reason == "1 not judged: store: its keys are not those of the records"
    assert beside.outcome is Outcome.PASSED
    assert beside.reason == f"1 of 1 as expected; {alone.reason}"
    assert beside.not_judged == (row,)
    assert wrong.outcome is Outcome.FAILED


def test_the_reason_names_all_that_is_not_judged_and_why_and_counts_what_was_compared() -> None:
    joined, late = "the result depends on when rows arrived", "they are closed"
    rows = [ROW, not_judged("out", joined), not_judged("3 windows of counts", late), not_judged("again", joined)]
    (result,) = run_checks(ORDERS, [Telling(*rows)], FakeCluster)
    assert result.outcome is Outcome.PASSED
    assert result.reason == f"1 of 1 as expected; 3 not judged: out, again: {joined}; 3 windows of counts: {late}"
    (result,) = run_checks(ORDERS, [Telling(ROW, *(not_judged(f"t{n}", late) for n in range(13)))], FakeCluster)
    assert result.reason.endswith(f"t8, t9: {late}; and 3 more")


def test_a_remark_is_nothing_that_was_compared() -> None:
    remark = Observation("counted from offset 7", FOR_INFORMATION, FOR_INFORMATION)
    (alone,) = run_checks(ORDERS, [Telling(remark)], FakeCluster)
    (beside,) = run_checks(ORDERS, [Telling(ROW, remark)], FakeCluster)
    assert alone.outcome is Outcome.COULD_NOT_LOOK
    assert beside.reason == "1 of 1 as expected; counted from offset 7"


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_every_check_says_what_to_do_next(check: Check) -> None:
    assert re.fullmatch(r"[A-Z][^.]*([.](?! )[^.]*)*\.", check.advice), "one sentence"


def test_no_checks() -> None:
    assert run_checks(ORDERS, [], FakeCluster) == []
