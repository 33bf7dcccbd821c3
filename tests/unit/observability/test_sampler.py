"""Snapshots of the orders application, as ``exactly_once_v2`` leaves it."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from streamplan.checks.framework.application import Application, application_of
from streamplan.checks.framework.check import CheckResult, Outcome
from streamplan.errors import BrokersUnavailable
from streamplan.files import ReportPaths
from streamplan.model.group_member import Member
from streamplan.model.status import AggregatorState, AggregatorStatus, TaskMigration, TaskPlacement
from streamplan.observability.sampler import Sampler
from streamplan.observability.snapshot import Snapshot, TaskSnapshot
from streamplan.pipelines.orders import PIPELINE
from streamplan.reports.results import write_result
from streamplan.reports.status import append_migrations, write_status

from tests.support.fake_cluster import FakeApplication, FakeCluster


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def application(cluster: FakeCluster) -> FakeApplication:
    """Nineteen orders are processed."""
    application = FakeApplication(cluster, PIPELINE)
    for n in range(19):
        application.order(n)
    application.drain()
    return application


@pytest.fixture
def sampler(cluster: FakeCluster, tmp_path: Path) -> Sampler:
    return Sampler(lambda: application_of(PIPELINE), "orders", cluster, tmp_path)


def task(snapshot: Snapshot, name: str) -> TaskSnapshot:
    (found,) = (each for each in snapshot.tasks if each.task == name)
    return found


def test_the_greatest_lag_of_each_minute_is_kept(
    sampler: Sampler, application: FakeApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    for minute, orders in ((0, 0), (0, 3), (1, 0), (5, 2)):
        monkeypatch.setattr(time, "time", lambda minute=minute: now + 60 * minute)
        for n in range(orders):
            application.order(100 + n, product=1)
        found = [each.lag_by_minute for each in sampler.sample().tasks[:2]]
        application.drain()
        sampler.sample()
    greatest = [sum(values) for values in zip(*found, strict=True)]
    assert greatest == [3, 0, 2]


def test_tasks_that_continued_on_another_instance(
    sampler: Sampler, application: FakeApplication, tmp_path: Path
) -> None:
    moves = [TaskMigration(f"2026-01-01T00:00:0{n}+00:00", f"1_{n}", "0 on one", "1 on two", 7) for n in range(3)]
    append_migrations(ReportPaths(tmp_path, "orders").aggregator_status, moves)
    assert [each.task for each in sampler.sample().migrations] == ["1_2", "1_1", "1_0"]


def test_dead_letters_are_counted_once_each_by_reason(
    sampler: Sampler, application: FakeApplication, cluster: FakeCluster
) -> None:
    assert sampler.sample().dead_letters == {}
    for n in (40, 41):
        application.dead_letter(application.order(n))
    cluster.produce(application.dead_letters, b"k", b"v", headers=(("other", b"header"),))
    assert sampler.sample().dead_letters == {"the reason": 2, "no reason is given": 1}
    application.dead_letter(application.order(42))
    assert sampler.sample().dead_letters == {"the reason": 3, "no reason is given": 1}


def test_a_dead_letter_that_was_redriven_is_not_counted_any_more(
    sampler: Sampler, application: FakeApplication, cluster: FakeCluster
) -> None:
    for n in (40, 41):
        application.dead_letter(application.order(n))
    mark = (("streamplan.reason", b"the reason"), ("streamplan.redriven.by", b"ann"))
    assert sampler.sample().dead_letters == {"the reason": 2}
    cluster.produce(application.dead_letters, None, None, partition=0, headers=mark)
    assert sampler.sample().dead_letters == {"the reason": 1}
    cluster.produce(application.dead_letters, None, None, partition=1, headers=mark)
    assert sampler.sample().dead_letters == {}
    older = (("streamplan.reason", b"of long ago"), ("streamplan.redriven.by", b"ann"))
    cluster.produce(application.dead_letters, None, None, partition=1, headers=older)
    assert sampler.sample().dead_letters == {}


def test_reasons_without_end_are_counted_together(
    sampler: Sampler, application: FakeApplication, cluster: FakeCluster
) -> None:
    for n in range(50):
        headers = (("__streams.errors.message", b"For input string: %d" % n),)
        cluster.produce(application.dead_letters, b"k", b"v", headers=headers)
    counts = sampler.sample().dead_letters
    assert (len(counts), counts["other reasons"], sum(counts.values())) == (21, 30, 50)


def test_every_task_that_caught_up_has_no_lag(sampler: Sampler, application: FakeApplication) -> None:
    snapshot = sampler.sample()
    assert [(each.task, each.lag, each.lag_seconds) for each in snapshot.tasks] == [
        ("0_0", 0, 0.0),
        ("0_1", 0, 0.0),
        ("1_0", 0, 0.0),
        ("1_1", 0, 0.0),
    ]
    assert [(each.role, each.partitions, each.offsets) for each in snapshot.topics] == [
        ("source", 2, 19),
        ("repartition", 2, 19),
        ("changelog", 2, 19),
        ("dead-letter", 2, 0),
    ]


def test_a_lag_is_told_in_records_and_in_seconds(
    sampler: Sampler, cluster: FakeCluster, application: FakeApplication
) -> None:
    ago = int((time.time() - 40) * 1000)
    for later in (0, 10_000):
        cluster.produce("orders", b"order", b'{"Id": "order", "ProductType": 1}', partition=1, timestamp=ago + later)
    behind = task(sampler.sample(), "0_1")
    assert behind.lag == 2
    assert behind.lag_seconds == pytest.approx(40, abs=20)
    assert task(sampler.sample(), "0_0").lag == 0


def test_a_rate_is_how_far_positions_moved_since_the_previous_snapshot(
    sampler: Sampler, application: FakeApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    assert task(sampler.sample(), "0_0").records_per_second is None
    before = application.cluster.existing["orders"].partitions[0].end
    for n in range(19, 59):
        application.order(n)
    added = application.cluster.existing["orders"].partitions[0].end - before
    application.drain()
    clock[0] += 4
    assert task(sampler.sample(), "0_0").records_per_second == added / 4


def test_a_task_without_a_position_has_no_lag(
    sampler: Sampler, cluster: FakeCluster, application: FakeApplication
) -> None:
    del cluster.committed[application.group, application.source][0]
    found = task(sampler.sample(), "0_0")
    assert (found.lag, found.lag_seconds) == (None, None)


def test_who_runs_is_said(sampler: Sampler, cluster: FakeCluster, application: FakeApplication, tmp_path: Path) -> None:
    cluster.group_members[application.group] = (Member("streamplan:7@host", "/10.0.0.1", "id"),)
    now = datetime.now(UTC).isoformat()
    placement = TaskPlacement("2", "worker-b", 9, now)
    status = AggregatorStatus(AggregatorState.RUNNING, 7, "host", now, {}, {"1_0": placement})
    write_status(ReportPaths(tmp_path, "orders").aggregator_status, status)
    snapshot = sampler.sample()
    assert snapshot.members == ["streamplan:7@host on /10.0.0.1"]
    assert snapshot.aggregator is not None
    assert snapshot.aggregator.state == "running"
    assert not snapshot.silent
    assert (task(snapshot, "1_0").instance, task(snapshot, "1_0").host) == ("2", "worker-b")
    assert task(snapshot, "1_1").instance is None


@pytest.mark.parametrize(("state", "silent"), [(AggregatorState.RUNNING, True), (AggregatorState.STARTING, False)])
def test_who_says_that_it_runs_and_sends_no_heartbeat_is_silent(
    cluster: FakeCluster, application: FakeApplication, sampler: Sampler, tmp_path: Path, state: str, silent: bool
) -> None:
    long_ago = "2026-01-01T00:00:00+00:00"
    status = AggregatorStatus(AggregatorState(state), 7, "host", long_ago)
    write_status(ReportPaths(tmp_path, "orders").aggregator_status, status)
    assert sampler.sample().silent is silent


def test_brokers_out_of_reach_hide_no_result_of_a_check(
    cluster: FakeCluster, application: FakeApplication, tmp_path: Path
) -> None:
    result = CheckResult("orders", "totals", Outcome.FAILED, "one is wrong", "2026-01-01T00:00:00+00:00", ())
    write_result(tmp_path, result)

    def unreachable() -> Application:
        raise BrokersUnavailable("no broker answers")

    snapshot = Sampler(unreachable, "orders", cluster, tmp_path).sample()
    assert "no broker answers" in snapshot.problem
    assert snapshot.tasks == []
    assert [(each.check, each.reason) for each in snapshot.checks] == [("totals", "one is wrong")]


def test_viewers_share_a_snapshot(sampler: Sampler, cluster: FakeCluster, application: FakeApplication) -> None:
    asked: list[str] = []
    cluster.before = asked.append
    first = sampler.latest(60)
    questions = len(asked)
    assert questions
    assert sampler.latest(60) is first
    assert len(asked) == questions
    assert sampler.latest(0) is not first


def test_those_who_wait_for_a_slow_snapshot_take_it(
    sampler: Sampler, cluster: FakeCluster, application: FakeApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])

    def slowly(method: str) -> None:
        clock[0] += 10

    cluster.before = slowly
    assert sampler.latest(5) is sampler.latest(5)


def test_an_application_is_found_anew_until_the_one_after_it_has_taken_over(
    cluster: FakeCluster, application: FakeApplication, tmp_path: Path
) -> None:
    declared = application_of(PIPELINE)
    until = replace(declared, declared=False, runs_until="orders-aggregator-2")
    found = iter([until, until, declared])
    sampler = Sampler(lambda: next(found), "orders", cluster, tmp_path)
    status = AggregatorStatus(AggregatorState.RUNNING, 7, "host", datetime.now(UTC).isoformat())
    write_status(ReportPaths(tmp_path, "orders").aggregator_status, status)
    for _ in range(4):
        snapshot = sampler.sample()
        assert snapshot.problem == ""
        assert snapshot.aggregator is not None  # the reports are of the pipeline, whose old application runs
    assert next(found, None) is None


@pytest.mark.parametrize("new", range(6))
def test_right_after_a_reset_the_dead_letters_of_before_are_not_counted(
    sampler: Sampler, application: FakeApplication, cluster: FakeCluster, new: int
) -> None:
    """Whether the topic that the reset has made has fewer dead letters at the first look, as many, or more."""
    for n in range(3):
        application.dead_letter(application.order(40 + n))
    assert sampler.sample().dead_letters == {"the reason": 3}
    before = cluster.existing[application.dead_letters]
    cluster.create(application.dead_letters, 2)
    assert before is not cluster.existing[application.dead_letters]
    for n in range(new):
        application.dead_letter(application.order(60 + n))
    assert sampler.sample().dead_letters == ({"the reason": new} if new else {})


def test_the_dead_letters_of_a_deleted_topic_are_not_counted(
    sampler: Sampler, application: FakeApplication, cluster: FakeCluster
) -> None:
    application.dead_letter(application.order(40))
    assert sampler.sample().dead_letters == {"the reason": 1}
    del cluster.existing[application.dead_letters]
    assert sampler.sample().dead_letters == {}


def test_an_application_is_looked_for_again_after_a_while(
    cluster: FakeCluster, application: FakeApplication, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that was made since belongs to it."""
    now = time.monotonic()
    first = application_of(PIPELINE)
    later = replace(first, topics=(*first.topics, replace(first.topics[0], name="made-later")))
    answers = [first, later]
    cluster.create("made-later", 3)
    sampler = Sampler(lambda: answers.pop(0), "orders", cluster, tmp_path)
    assert "made-later" not in [topic.name for topic in sampler.sample().topics]
    assert "made-later" not in [topic.name for topic in sampler.sample().topics]
    monkeypatch.setattr(time, "monotonic", lambda: now + 100)
    assert "made-later" in [topic.name for topic in sampler.sample().topics]
