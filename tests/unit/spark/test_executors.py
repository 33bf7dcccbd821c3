"""When an aggregator gives up waiting for executors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from streamplan.errors import StreamplanError
from streamplan.spark.executors import NONE_SECONDS, Executors


class Cluster:
    """A Spark context whose executors a test gives and takes, and a clock that it moves."""

    def __init__(self, master: str = "spark://m:7077", *, dynamic: str = "false") -> None:
        self.now, self.count = 0.0, 0
        status = SimpleNamespace(size=lambda: 1 + self.count)
        context: Any = SimpleNamespace(
            master=master,
            getConf=lambda: {"spark.dynamicAllocation.enabled": dynamic},
            _jsc=SimpleNamespace(sc=lambda: SimpleNamespace(getExecutorMemoryStatus=lambda: status)),
        )
        self.executors = Executors(context, lambda: self.now)

    def look(self, *, after: float, count: int) -> None:
        self.now += after
        self.count = count
        self.executors.require_some()


def test_executors_that_do_not_come_back_end_the_aggregator() -> None:
    cluster = Cluster()
    cluster.look(after=2, count=3)
    cluster.look(after=NONE_SECONDS, count=0)
    with pytest.raises(StreamplanError, match=r"spark://m:7077.*none for 120 s"):
        cluster.look(after=2, count=0)


def test_executors_that_come_back_are_waited_for_anew() -> None:
    cluster = Cluster()
    cluster.look(after=2, count=1)
    cluster.look(after=NONE_SECONDS - 1, count=0)
    cluster.look(after=2, count=1)
    cluster.look(after=NONE_SECONDS - 1, count=0)


@pytest.mark.parametrize(
    ("master", "dynamic", "first"),
    [("local[2]", "false", 1), ("k8s://https://api", "false", 1), ("spark://m:7077", "true", 1)],
)
def test_who_else_has_no_executor_goes_on(master: str, dynamic: str, first: int) -> None:
    cluster = Cluster(master, dynamic=dynamic)
    cluster.look(after=2, count=first)
    cluster.look(after=10 * NONE_SECONDS, count=0)


def test_a_cluster_that_has_no_executor_yet_is_waited_for() -> None:
    cluster = Cluster()
    cluster.look(after=2, count=0)
    cluster.look(after=10 * NONE_SECONDS, count=0)
