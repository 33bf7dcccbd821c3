from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest
from streamplan.checks import lag
from streamplan.checks.framework.application import Application, application_of
from streamplan.checks.framework.check import Observation, sentence
from streamplan.checks.framework.consistent_cut import Deadline
from streamplan.checks.framework.task_inputs import COUNTED_OFFSETS
from streamplan.errors import CouldNotLook
from streamplan.kafka_port import RecordsGone
from streamplan.model.group_member import Member
from streamplan.model.pipeline import Limits
from streamplan.model.status import AggregatorState, AggregatorStatus
from streamplan.pipelines import enriched
from streamplan.pipelines.orders import PIPELINE

from tests.support.fake_cluster import FakeApplication, FakeCluster, FakePartition

ORDERS = application_of(PIPELINE)
NOW = 1_000_000.0


@dataclass
class Clock:
    """Time that passes only when somebody sleeps; ``acts`` are done when their time has come."""

    seconds: float = 0.0
    acts: list[tuple[float, Callable[[], object]]] = field(default_factory=list)

    def __call__(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        due = [act for at, act in self.acts if at <= self.seconds]
        self.acts = [(at, act) for at, act in self.acts if at > self.seconds]
        for act in due:
            act()

    def at(self, seconds: float, act: Callable[[], object]) -> None:
        self.acts.append((seconds, act))

    @property
    def deadline(self) -> Deadline:
        return replace(lag.LAG_DEADLINE, clock=self, sleep=self.sleep)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def application(cluster: FakeCluster) -> FakeApplication:
    """All is processed."""
    application = FakeApplication(cluster, PIPELINE)
    for n in range(19):
        application.order(n)
    application.drain()
    return application


def look(
    cluster: FakeCluster, clock: Clock, subject: Application = ORDERS, status: AggregatorStatus | None = None
) -> list[Observation]:
    rows = list(lag.LagCheck(status, clock.deadline, now=lambda: NOW + clock()).observe(subject, cluster))
    assert rows
    return rows


def wrong(cluster: FakeCluster, clock: Clock, **more: object) -> list[str]:
    return [sentence(row) for row in look(cluster, clock, **more) if not row.agrees]  # type: ignore[arg-type]


def partition(cluster: FakeCluster, topic: str, number: int) -> FakePartition:
    return cluster.existing[topic].partitions[number]


def test_caught_up(cluster: FakeCluster, application: FakeApplication, clock: Clock) -> None:
    rows = look(cluster, clock)
    assert [row.subject for row in rows] == [
        "group orders-aggregator: no member, so no instance runs",
        "task 0_0 (orders-0): no record to process",
        "task 0_1 (orders-1): no record to process",
        f"task 1_0 ({application.repartition}-0): no record to process",
        f"task 1_1 ({application.repartition}-1): no record to process",
    ]
    assert all(row.agrees for row in rows)
    assert clock.seconds == 0


def test_a_task_that_does_not_move_is_named_with_its_lag(
    cluster: FakeCluster, application: FakeApplication, clock: Clock
) -> None:
    for seconds in (40, 30, 20):
        at = int((NOW - seconds) * 1000)
        cluster.produce(application.repartition, b"0", b"v", partition=0, timestamp=at)
    task = f"task 1_0 ({application.repartition}-0)"
    assert wrong(cluster, clock) == [
        f"{task}: 3 records to process, the oldest 2 min old: expected caught up or moving,"
        f" observed has not moved within 90 s (since {application.repartition}-0 offset 10;"
        " group orders-aggregator: no member, so no instance runs)"
    ]
    assert clock.seconds >= 90


def test_a_task_says_its_lag_in_records_and_in_seconds(
    cluster: FakeCluster, application: FakeApplication, clock: Clock
) -> None:
    for seconds in (40, 30, 20):
        at = int((NOW - seconds) * 1000)
        cluster.produce(application.repartition, b"0", b"v", partition=0, timestamp=at)
    caught_up = {"lag_records": 0, "lag_seconds": 0.0}
    behind = {"lag_records": 3, "lag_seconds": pytest.approx(40 + clock.deadline.seconds, abs=1)}
    assert [row.figures for row in look(cluster, clock)] == [{}, caught_up, caught_up, behind, caught_up]


# -- the members of the group

OURS = Member("streamplan:worker-1:4711:ab12cd34", "10.0.0.1", "id-1")
CONSOLE = Member("console-consumer", "10.0.0.7", "id-2")


def members_row(rows: list[Observation]) -> Observation:
    (row,) = [row for row in rows if row.subject.startswith("group orders-aggregator: ")]
    return row


def test_our_aggregator_is_named(cluster: FakeCluster, application: FakeApplication, clock: Clock) -> None:
    cluster.group_members[application.group] = [OURS]
    row = members_row(look(cluster, clock))
    assert (row.subject, row.agrees) == (
        "group orders-aggregator: 1 member, streamplan:worker-1:4711:ab12cd34 on 10.0.0.1",
        True,
    )


def test_a_task_that_stands_still_beside_a_member_names_it(
    cluster: FakeCluster, application: FakeApplication, clock: Clock
) -> None:
    cluster.group_members[application.group] = [OURS]
    application.order(19)
    (found,) = wrong(cluster, clock)
    assert found.endswith("; group orders-aggregator: 1 member, streamplan:worker-1:4711:ab12cd34 on 10.0.0.1)")


def test_who_is_a_member_is_asked_after_the_wait(
    cluster: FakeCluster, application: FakeApplication, clock: Clock
) -> None:
    cluster.group_members[application.group] = [OURS]
    application.order(19)
    clock.at(60, cluster.group_members.clear)
    (found,) = wrong(cluster, clock)
    assert found.endswith("; group orders-aggregator: no member, so no instance runs)")


def test_a_foreign_member_is_red_though_every_task_is_well(
    cluster: FakeCluster, application: FakeApplication, clock: Clock
) -> None:
    cluster.group_members[application.group] = [OURS, CONSOLE]
    assert wrong(cluster, clock) == [
        "group orders-aggregator: 2 members, streamplan:worker-1:4711:ab12cd34 on 10.0.0.1, console-consumer on"
        " 10.0.0.7: expected only aggregators of this application, observed a foreign member: console-consumer on"
        " 10.0.0.7: it can move the positions (stop them, or give them a group of their own)"
    ]
    assert clock.seconds == 0


def test_members_of_the_streams_protocol_are_foreign_to_our_aggregator(
    cluster: FakeCluster, application: FakeApplication, clock: Clock
) -> None:
    cluster.group_members[application.group] = None
    (found,) = wrong(cluster, clock)
    assert found == (
        "group orders-aggregator: its members cannot be seen, because its protocol is streams: expected only"
        " aggregators of this application, observed a group of Kafka Streams: its members can move the positions"
        " (stop them, or give them a group of their own)"
    )


@pytest.mark.parametrize(
    ("members", "described"),
    [
        ([CONSOLE], "1 member, console-consumer on 10.0.0.7"),
        ([], "no member, so no instance runs"),
        (None, "its members cannot be seen, because its protocol is streams"),
        (
            [Member(f"app-StreamThread-{n}-consumer", "10.0.0.1", f"id-{n}") for n in range(5)],
            "5 members, app-StreamThread-0-consumer on 10.0.0.1, app-StreamThread-1-consumer on 10.0.0.1,"
            " app-StreamThread-2-consumer on 10.0.0.1 and 2 more",
        ),
    ],
)
def test_whoever_is_a_member_of_an_application_that_nobody_declared_is_its_own(
    cluster: FakeCluster, application: FakeApplication, clock: Clock, members: list[Member] | None, described: str
) -> None:
    cluster.group_members[application.group] = members
    row = members_row(look(cluster, clock, replace(ORDERS, declared=False)))
    assert (row.subject, row.agrees) == (f"group orders-aggregator: {described}", True)


# -- tasks that stand still, and others


def test_one_record_is_enough_to_stall(cluster: FakeCluster, application: FakeApplication, clock: Clock) -> None:
    record = application.order(19)
    (found,) = wrong(cluster, clock)
    assert found.startswith(f"task 0_{record.partition} (orders-{record.partition}): 1 record to process")


def test_a_commit_every_30_seconds_is_moving(cluster: FakeCluster, application: FakeApplication, clock: Clock) -> None:
    record = application.order(19)
    clock.at(29, lambda: application.rekey(record.partition, record.offset + 1))
    assert not wrong(cluster, clock)
    assert 29 <= clock.seconds < 31


def test_moving_without_catching_up(cluster: FakeCluster, application: FakeApplication, clock: Clock) -> None:
    first = application.order(19).partition
    end = partition(cluster, "orders", first).end
    for n in range(20, 60):
        application.order(n)
    other = 1 - first
    clock.at(1, lambda: application.rekey(first, end))
    clock.at(1, lambda: application.rekey(other, partition(cluster, "orders", other).end))
    rows = look(cluster, clock)
    assert all(row.agrees for row in rows)
    assert any("records to process" in row.subject for row in rows)
    assert clock.seconds < 2


def test_transaction_markers_and_aborted_records_are_no_lag(
    cluster: FakeCluster, application: FakeApplication, clock: Clock
) -> None:
    partition(cluster, application.repartition, 0).end += 7
    partition(cluster, "orders", 1).end += 1
    assert not wrong(cluster, clock)
    assert clock.seconds == 0


def test_a_record_behind_many_aborted_ones(cluster: FakeCluster, application: FakeApplication, clock: Clock) -> None:
    partition(cluster, application.repartition, 0).end += 3 * COUNTED_OFFSETS
    assert not wrong(cluster, clock)
    cluster.produce(application.repartition, b"0", b"v", partition=0)
    (found,) = wrong(cluster, clock)
    assert f"up to {3 * COUNTED_OFFSETS + 1:,} records to process" in found


def test_nothing_was_ever_written_to_a_partition(cluster: FakeCluster, clock: Clock) -> None:
    """Of a group that has no position there, as before the first record of a partition."""
    application = FakeApplication(cluster, PIPELINE)
    record = application.order(0)
    for topic in (application.source, application.repartition):
        cluster.committed[application.group, topic] = {}
    application.cluster.committed[application.group, application.source] = {record.partition: record.offset + 1}
    assert not wrong(cluster, clock)


def test_missing_position(cluster: FakeCluster, application: FakeApplication, clock: Clock) -> None:
    del cluster.committed[application.group, application.repartition][1]
    task = f"task 1_1 ({application.repartition}-1)"
    (found,) = wrong(cluster, clock)
    assert found.startswith(f"{task}: 9 records to process, ")
    assert found.endswith(
        "expected a committed position of group orders-aggregator, observed none within 90 s"
        " (group orders-aggregator: no member, so no instance runs)"
    )


def test_the_first_commit_is_waited_for(cluster: FakeCluster, application: FakeApplication, clock: Clock) -> None:
    positions = cluster.committed[application.group, application.repartition]
    before = positions.pop(1)
    clock.at(20, lambda: positions.update({1: before}))
    assert not wrong(cluster, clock)


def test_topic_recreated(cluster: FakeCluster, application: FakeApplication, clock: Clock) -> None:
    before = cluster.committed[application.group, "orders"][0]
    cluster.create("orders", 2)
    found = wrong(cluster, clock)
    assert len(found) == 2
    assert found[0] == (
        "task 0_0 (orders-0): position of group orders-aggregator: expected at most 0, the end of the partition,"
        f" observed {before}: was the topic recreated or truncated?"
    )


def test_a_new_leader_catches_up(cluster: FakeCluster, application: FakeApplication, clock: Clock) -> None:
    found = partition(cluster, "orders", 0)
    found.end -= 2
    clock.at(30, lambda: setattr(found, "end", found.end + 2))
    assert not wrong(cluster, clock)


def test_records_deleted_before_they_were_processed(
    cluster: FakeCluster, application: FakeApplication, clock: Clock
) -> None:
    position = cluster.committed[application.group, "orders"][1]
    for n in range(19, 59):
        application.order(n)
    cluster.purge("orders", 1, position + 7)
    application.rekey(0, partition(cluster, "orders", 0).end)
    application.count(0, partition(cluster, application.repartition, 0).end)
    application.count(1, partition(cluster, application.repartition, 1).end)
    assert wrong(cluster, clock) == [
        f"task 0_1 (orders-1): position of group orders-aggregator: expected at least {position + 7}, the start of the"
        f" partition, observed {position}: 7 offsets were deleted before they were processed"
    ]


def test_a_deleted_marker_is_no_lost_record(cluster: FakeCluster, application: FakeApplication, clock: Clock) -> None:
    found = partition(cluster, "orders", 0)
    found.end += 1
    cluster.purge("orders", 0, found.end)
    assert not wrong(cluster, clock)


def test_purged_behind_the_position(cluster: FakeCluster, application: FakeApplication, clock: Clock) -> None:
    for number in (0, 1):
        cluster.purge(application.repartition, number, partition(cluster, application.repartition, number).end)
    assert not wrong(cluster, clock)


@pytest.mark.parametrize("last", range(1, 14))
def test_processed_and_purged_while_it_is_looked_at(
    cluster: FakeCluster, application: FakeApplication, clock: Clock, last: int
) -> None:
    """Before each answer the task commits, and its records are purged: what was asked one by one does not agree."""
    answers: list[str] = []

    def act(method: str) -> None:
        answers.append(method)
        found = partition(cluster, application.repartition, 0)
        application.count(0, found.end)
        cluster.purge(application.repartition, 0, found.end)
        if len(answers) <= last:
            for _ in range(5):
                cluster.produce(application.repartition, b"0", b"v", partition=0)

    cluster.before = act
    assert not wrong(cluster, clock)


def test_processed_and_purged_before_it_is_read(
    cluster: FakeCluster, application: FakeApplication, clock: Clock
) -> None:
    for _ in range(5):
        cluster.produce(application.repartition, b"0", b"v", partition=0)

    def act(method: str) -> None:
        if method == "read":
            found = partition(cluster, application.repartition, 0)
            application.count(0, found.end)
            cluster.purge(application.repartition, 0, found.end)

    cluster.before = act
    assert not wrong(cluster, clock)
    assert clock.seconds == 0


def test_new_records_are_processed_while_it_is_looked_at(
    cluster: FakeCluster, application: FakeApplication, clock: Clock
) -> None:
    def act(method: str) -> None:
        if method == "positions":
            record = cluster.produce(application.repartition, b"0", b"v", partition=0)
            application.count(0, record.offset + 1)

    cluster.before = act
    assert not wrong(cluster, clock)
    assert clock.seconds < 2


def test_a_position_that_is_reset_has_not_moved(
    cluster: FakeCluster, application: FakeApplication, clock: Clock
) -> None:
    application.order(19)
    positions = cluster.committed[application.group, "orders"]
    clock.at(10, lambda: positions.update({0: 0, 1: 0}))
    (found,) = wrong(cluster, clock)
    assert "offset 0;" in found


def test_records_without_a_timestamp(cluster: FakeCluster, application: FakeApplication, clock: Clock) -> None:
    cluster.produce(application.repartition, b"0", b"v", partition=0, timestamp=-1)
    (found,) = wrong(cluster, clock)
    assert f"({application.repartition}-0): 1 record to process: expected" in found


def test_purging_without_end_could_not_be_looked_at(
    cluster: FakeCluster, application: FakeApplication, clock: Clock
) -> None:
    cluster.produce(application.repartition, b"0", b"v", partition=0)

    def act(method: str) -> None:
        if method == "read":
            found = partition(cluster, application.repartition, 0)
            application.count(0, found.end)
            cluster.purge(application.repartition, 0, found.end)
            cluster.produce(application.repartition, b"0", b"v", partition=0)

    cluster.before = act
    with pytest.raises(RecordsGone):
        look(cluster, clock)


def test_hanging_transaction(cluster: FakeCluster, application: FakeApplication, clock: Clock) -> None:
    found = partition(cluster, application.repartition, 1)
    found.open_since = found.end
    found.end += 3
    clock.at(50, lambda: setattr(found, "end", found.end + 5))  # others go on to write
    (row,) = wrong(cluster, clock)
    assert row.startswith(
        f"{application.repartition}-1: transactions: expected each ends within 90 s,"
        " observed one is open since offset 9"
    )


def test_transactions_that_end(cluster: FakeCluster, application: FakeApplication, clock: Clock) -> None:
    found = partition(cluster, application.repartition, 1)
    found.open_since = found.end
    found.end += 3

    def next_one() -> None:
        found.open_since, found.end = found.end, found.end + 3

    clock.at(20, next_one)
    assert not wrong(cluster, clock)
    assert clock.seconds < 21


def test_a_hanging_transaction_elsewhere_is_not_about_this(
    cluster: FakeCluster, application: FakeApplication, clock: Clock
) -> None:
    found = partition(cluster, application.changelog, 0)
    found.open_since = found.end
    found.end += 1
    assert not wrong(cluster, clock)


def test_lag_in_seconds_has_a_declared_bound(cluster: FakeCluster, application: FakeApplication, clock: Clock) -> None:
    bounded = replace(ORDERS, limits=Limits(lag_seconds=30))
    assert not wrong(cluster, clock, subject=bounded)
    at = int((NOW - 45) * 1000)
    record = cluster.produce("orders", b"k", b'{"Id": "k", "ProductType": 0}', partition=0, timestamp=at)
    clock.at(1, lambda: application.rekey(0, record.offset + 1))
    assert wrong(cluster, clock, subject=bounded) == [
        "task 0_0 (orders-0): age of the oldest record to process: 45 s: expected at most 30 s, observed 45 s"
    ]
    application.drain()
    cluster.produce("orders", b"k", b"v", partition=0, timestamp=at + 30_000)
    clock.at(clock() + 1, lambda: application.rekey(0, record.offset + 2))
    assert not wrong(cluster, clock, subject=bounded)


JOIN = application_of(enriched.PIPELINE)
GROUP = JOIN.application_id


@pytest.fixture
def join() -> FakeCluster:
    """Partition 0 of a stream and of a table: ten records each, none processed, the stream's older."""
    cluster = FakeCluster()
    for spec in JOIN.topics:
        cluster.create(spec.name, spec.partitions)
    for n in range(10):
        cluster.produce("purchases", b"c", b"v", partition=0, timestamp=n)
        cluster.produce("customers", b"c", b"v", partition=0, timestamp=100 + n)
    return cluster


def test_a_topic_that_waits_its_turn(join: FakeCluster, clock: Clock) -> None:
    """A task takes the oldest record of all that it reads."""
    join.committed[GROUP, "purchases"] = {0: 2}
    clock.at(1, lambda: join.committed[GROUP, "purchases"].update({0: 5}))
    assert not wrong(join, clock, subject=JOIN)
    assert clock.seconds < 2
    join.committed[GROUP, "customers"] = {0: 0}
    clock.at(clock() + 1, lambda: join.committed[GROUP, "purchases"].update({0: 6}))
    assert not wrong(join, clock, subject=JOIN)


def test_a_task_whose_other_topic_goes_on_is_not_stalled(join: FakeCluster, clock: Clock) -> None:
    """A timestamp extractor of its own may want it so."""
    join.committed[GROUP, "purchases"], join.committed[GROUP, "customers"] = {0: 10}, {0: 0}
    clock.at(1, lambda: join.produce("purchases", b"c", b"v", partition=0))
    clock.at(2, lambda: join.committed[GROUP, "purchases"].update({0: 11}))
    assert not wrong(join, clock, subject=JOIN)


def test_a_missing_position_is_not_excused_by_a_topic_that_is_ahead(join: FakeCluster, clock: Clock) -> None:
    join.committed[GROUP, "customers"] = {0: 2}
    clock.at(1, lambda: join.committed[GROUP, "customers"].update({0: 5}))
    (found,) = wrong(join, clock, subject=JOIN)
    assert found.startswith("task 0_0 (purchases-0): 10 records to process")
    assert "none within 90 s" in found


def test_where_tasks_are_not_known_each_topic_is_judged_for_itself(join: FakeCluster, clock: Clock) -> None:
    unknown = replace(JOIN, subtopologies=tuple(replace(tasks, id=None) for tasks in JOIN.subtopologies))
    join.committed[GROUP, "purchases"], join.committed[GROUP, "customers"] = {0: 2}, {0: 0}
    clock.at(1, lambda: join.committed[GROUP, "purchases"].update({0: 5}))
    (found,) = wrong(join, clock, subject=unknown)
    assert found.startswith("the task that reads customers-0: 10 records to process")


def status_of(state: AggregatorState, age: float) -> AggregatorStatus:
    return AggregatorStatus(state, 4711, "host-a", datetime.fromtimestamp(NOW - age, UTC).isoformat())


def test_a_claim_without_a_heartbeat(cluster: FakeCluster, application: FakeApplication, clock: Clock) -> None:
    assert wrong(cluster, clock, status=status_of(AggregatorState.RUNNING, 75)) == [
        "the aggregator, pid 4711 on host-a, says running: expected a heartbeat within 60 s,"
        " observed none for 75 s: it was killed, is stopped or hangs"
    ]


@pytest.mark.parametrize(("state", "age", "is_red"), [("running", 4, True), ("stopped", 4, False)])
def test_a_partition_that_is_held_back_is_red_while_the_aggregator_lives(
    cluster: FakeCluster, application: FakeApplication, clock: Clock, state: str, age: float, is_red: bool
) -> None:
    held = replace(status_of(AggregatorState(state), age), held=("query orders-0: a Python worker died",))
    rows = wrong(cluster, clock, status=held)
    row = "the partitions of the aggregator: expected none is held back, observed query orders-0: a Python worker died"
    assert rows == ([row] if is_red else [])


@pytest.mark.parametrize(
    ("state", "age"),
    [
        (AggregatorState.RUNNING, 4),
        (AggregatorState.RUNNING, 50),  # killed, and about to be started again
        (AggregatorState.RUNNING, -5),  # another host's clock
        (AggregatorState.STARTING, 600),
        (AggregatorState.STOPPED, 600),
        (AggregatorState.FAILED, 600),
    ],
)
def test_healthy_claims(
    cluster: FakeCluster, application: FakeApplication, clock: Clock, state: AggregatorState, age: float
) -> None:
    rows = look(cluster, clock, status=status_of(state, age))
    assert all(row.agrees for row in rows)
    assert rows[0].subject == f"the aggregator, pid 4711 on host-a, says {state}"


def test_the_check_takes_the_claim(cluster: FakeCluster, application: FakeApplication) -> None:
    check = lag.LagCheck(replace(status_of(AggregatorState.RUNNING, 0), at="2020-01-01T00:00:00+00:00"))
    assert [row.agrees for row in check.observe(ORDERS, cluster)] == [False, True, True, True, True, True]


def test_nothing_to_look_at(cluster: FakeCluster, clock: Clock) -> None:
    FakeApplication(cluster, PIPELINE)
    with pytest.raises(CouldNotLook, match="at least 1 record"):
        look(cluster, clock, status=status_of(AggregatorState.RUNNING, 0))
    assert len(wrong(cluster, clock, status=status_of(AggregatorState.RUNNING, 61))) == 1


def test_missing_topic(cluster: FakeCluster, application: FakeApplication, clock: Clock) -> None:
    del cluster.existing[application.repartition]
    with pytest.raises(CouldNotLook, match=application.repartition):
        look(cluster, clock)
