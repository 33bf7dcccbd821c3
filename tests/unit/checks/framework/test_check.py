from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

import pytest
from streamplan.checks.framework.application import Application, application_of
from streamplan.checks.framework.check import Check, CheckResult, Observation, Outcome, run_checks
from streamplan.checks.framework.cluster import Cluster
from streamplan.errors import CouldNotLook
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


def test_a_mistake_in_a_check_is_not_hidden() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_checks(ORDERS, [Doing("one"), Doing("another", fail)], FakeCluster)


def test_no_checks() -> None:
    assert run_checks(ORDERS, [], FakeCluster) == []
