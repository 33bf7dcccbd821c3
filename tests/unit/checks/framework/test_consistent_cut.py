from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from streamplan.checks.framework.consistent_cut import Deadline, await_consistent_cut
from streamplan.errors import CouldNotLook
from streamplan.pipelines.orders import PIPELINE

from tests.support.fake_cluster import FakeApplication, FakeCluster


@dataclass
class Clock:
    """Time that passes only when somebody sleeps, and what was told meanwhile."""

    seconds: float = 0.0
    told: list[tuple[float, str]] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def deadline(self, seconds: float, interval: float) -> Deadline:
        return Deadline(
            seconds, interval, lambda: self.seconds, self.sleep, lambda text: self.told.append((self.seconds, text))
        )


def test_a_wait_of_more_than_a_second_tells_what_it_waits_for_and_when_it_is_over() -> None:
    clock = Clock()
    for _ in clock.deadline(10.0, 0.5).waits("the train comes"):
        if clock.seconds >= 3:
            break
    assert clock.told == [(1.0, "waits up to 10 s until the train comes"), (3.0, "")]


def test_a_short_wait_tells_nothing() -> None:
    clock = Clock()
    for _ in clock.deadline(10.0, 0.5).waits("the train comes"):
        break
    assert clock.told == []


def test_a_wait_that_reaches_its_deadline_is_over() -> None:
    clock = Clock()
    assert len(list(clock.deadline(10.0, 2.5).waits("the train comes"))) == 4
    assert [text for _, text in clock.told] == ["waits up to 10 s until the train comes", ""]


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    application = FakeApplication(cluster, PIPELINE)
    for n in range(4):
        application.order(n)
    application.drain()
    return cluster


def test_a_cut_waits_for_the_end_of_a_transaction_and_says_so(cluster: FakeCluster) -> None:
    clock, changelog = Clock(), cluster.existing[FakeApplication.changelog].partitions[0]
    changelog.open_since = 1

    def look(method: str) -> None:
        if clock.seconds >= 2:
            changelog.open_since = None

    cluster.before = look
    sources, outputs = [FakeApplication.repartition], [FakeApplication.changelog]
    cut = await_consistent_cut(cluster, FakeApplication.group, sources, outputs, clock.deadline(60.0, 0.5))
    assert cut.ends == {FakeApplication.changelog: {0: 2, 1: 2}}
    condition = (
        f"no transaction is open on {FakeApplication.changelog} between two equal positions of orders-aggregator"
    )
    assert clock.told == [(1.0, f"waits up to 60 s until {condition}"), (2.0, "")]


def test_a_cut_that_never_comes_could_not_be_looked_at(cluster: FakeCluster) -> None:
    clock = Clock()
    cluster.existing[FakeApplication.changelog].partitions[0].open_since = 1
    sources, outputs = [FakeApplication.repartition], [FakeApplication.changelog]
    with pytest.raises(CouldNotLook, match=rf"open transactions on {FakeApplication.changelog}-0"):
        await_consistent_cut(cluster, FakeApplication.group, sources, outputs, clock.deadline(60.0, 0.5))
    assert clock.seconds == 60
