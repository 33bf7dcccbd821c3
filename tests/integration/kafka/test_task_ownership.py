"""Who owns an application, as the brokers say: asked of real brokers, with clients that share no code with ours."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from streamplan.errors import Refused, StreamplanError
from streamplan.kafka import task_ownership
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.groups import members
from streamplan.kafka.task_ownership import (
    ClaimedTasks,
    StopRequested,
    TaskOwnership,
    checkpoint_in_use,
    newest_instance,
    stop_application,
)
from streamplan.kafka.topics import apply_topics
from streamplan.model.generation import Generation, PositionMetadata
from streamplan.model.pipeline import Pipeline, TestData
from streamplan.model.topology import Topology
from streamplan.pipelines.orders import ORDER, order
from streamplan.spark.sink.spec import Output, PartitionBy, TransactionSpec
from streamplan.spark.sink.transaction import TaskTransaction

from tests.support.records import read_committed
from tests.support.waiting import eventually

_numbers = itertools.count()


@pytest.fixture
def pipeline(bootstrap_servers: str) -> Pipeline:
    number = next(_numbers)
    topology = Topology(f"owned-{number}")
    stream = topology.stream(f"owned-orders-{number}", value=ORDER)
    stream.group_by("ProductType", name="quantities").count(store="totals")
    orders = f"owned-orders-{number}"
    test_data = TestData((orders,), lambda n: (orders, *order(n)), "Id")
    made = Pipeline(f"owned{number}", topology, "", {orders: 2}, test_data)
    apply_topics(Brokers(bootstrap_servers), made)
    return made


@pytest.fixture(params=["classic", "consumer"])
def brokers(request: pytest.FixtureRequest, bootstrap_servers: str) -> Brokers:
    """For both group protocols (KIP-848)."""
    return Brokers(bootstrap_servers, {} if request.param == "classic" else {"group.protocol": "consumer"})


@pytest.fixture
def claimed(pipeline: Pipeline, brokers: Brokers) -> Iterator[tuple[TaskOwnership, ClaimedTasks]]:
    with TaskOwnership(pipeline, brokers) as ownership:
        yield ownership, ownership.claim({0: False, 1: False})


def positions(bootstrap_servers: str, pipeline: Pipeline) -> Mapping[tuple[str, int], tuple[int, str]]:
    """Offsets and metadata of all source partitions, as a consumer of the group reads them."""
    topology = pipeline.topology
    topics = [*topology.source_topics, topology.decorate("quantities-repartition")]
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": topology.application_id})
    try:
        asked = [TopicPartition(topic, partition) for topic in topics for partition in (0, 1)]
        return {
            (at.topic, at.partition): (at.offset, at.metadata) for at in consumer.committed(asked, 60) if at.offset >= 0
        }
    finally:
        consumer.close()


def commit(bootstrap_servers: str, group: str, topic: str, offset: int) -> None:
    """As any consumer with this group id does."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group})
    try:
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    finally:
        consumer.close()


def test_while_an_aggregator_runs_the_brokers_refuse_everybody_else(
    bootstrap_servers: str, pipeline: Pipeline, claimed: tuple[TaskOwnership, ClaimedTasks]
) -> None:
    group, (orders,) = pipeline.topology.application_id, pipeline.topology.source_topics
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    before = positions(bootstrap_servers, pipeline)
    assert len(before) == 4
    with pytest.raises(KafkaException, match="UNKNOWN_MEMBER_ID"):
        commit(bootstrap_servers, group, orders, 7)
    request = ConsumerGroupTopicPartitions(group, [TopicPartition(orders, 0, 7)])
    (answer,) = admin.alter_consumer_group_offsets([request])[group].result(60).topic_partitions
    assert answer.error is not None
    with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups([group])[group].result(60)
    assert positions(bootstrap_servers, pipeline) == before


def test_every_host_sees_whether_the_application_lives(
    bootstrap_servers: str, pipeline: Pipeline, brokers: Brokers
) -> None:
    group = pipeline.topology.application_id
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    with TaskOwnership(pipeline, brokers) as ownership:
        generation = ownership.claim({0: False, 1: False}).generation
        description = admin.describe_consumer_groups([group])[group].result(60)
        assert [member.client_id for member in description.members] == [f"streamplan:{generation.instance}"]
        assert [member.instance for member in members(brokers, group)] == [generation.instance]
    eventually(
        lambda: not admin.describe_consumer_groups([group])[group].result(60).members, "the member has left the group"
    )


@contextmanager
def member_of_another_program(
    bootstrap_servers: str, pipeline: Pipeline, assignor: str = "range,roundrobin"
) -> Iterator[threading.Event]:
    """A consumer that has joined the group. It leaves when the event is set, and at the end."""
    group, (orders,) = pipeline.topology.application_id, pipeline.topology.source_topics
    named = {"group.id": group, "client.id": "a-console", "partition.assignment.strategy": assignor}
    other = Consumer({"bootstrap.servers": bootstrap_servers, **named})
    joined, ended = threading.Event(), threading.Event()
    other.subscribe([orders], on_assign=lambda consumer, assigned: joined.set())

    def poll() -> None:
        while not ended.is_set():
            other.poll(0.1)
        other.close()

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        assert joined.wait(60)
        yield ended
    finally:
        ended.set()
        thread.join(60)


# The second one keeps a member of ours out: they have no assignor in common, as Kafka Streams has none with anybody.
@pytest.mark.parametrize("assignor", ["range,roundrobin", "range"])
def test_a_member_of_another_program_is_named_and_nothing_is_claimed(
    bootstrap_servers: str, pipeline: Pipeline, brokers: Brokers, monkeypatch: pytest.MonkeyPatch, assignor: str
) -> None:
    monkeypatch.setattr(task_ownership, "FOREIGN_SECONDS", 0.1)
    with (
        member_of_another_program(bootstrap_servers, pipeline, assignor),
        TaskOwnership(pipeline, brokers) as ownership,
        pytest.raises(Refused, match=r"no member but the aggregators .* a-console on 127\.0\.0\.1"),
    ):
        ownership.claim({0: False, 1: False})
    assert positions(bootstrap_servers, pipeline) == {}


@pytest.mark.parametrize("assignor", ["range,roundrobin", "range"])
def test_a_start_waits_until_a_member_of_another_program_has_left(
    bootstrap_servers: str, pipeline: Pipeline, brokers: Brokers, assignor: str
) -> None:
    lines: list[str] = []
    with member_of_another_program(bootstrap_servers, pipeline, assignor) as leave:

        def report(line: str) -> None:
            lines.append(line)
            if "Waiting up to 60 s" in line:
                leave.set()

        with TaskOwnership(pipeline, brokers, report) as ownership:
            ownership.claim({0: False, 1: False})
    assert any("members of another program: a-console on 127.0.0.1" in line for line in lines)
    assert positions(bootstrap_servers, pipeline) != {}


def test_a_member_of_another_program_that_comes_later_is_named(bootstrap_servers: str, pipeline: Pipeline) -> None:
    group, (orders,) = pipeline.topology.application_id, pipeline.topology.source_topics
    lines: list[str] = []
    with TaskOwnership(pipeline, Brokers(bootstrap_servers), lines.append) as ownership:
        ownership.claim({0: False, 1: False})
        other = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group, "client.id": "a-console"})
        try:
            other.subscribe([orders])

            def named() -> bool:
                other.poll(0.1)
                ownership.require_latest(now=True)
                return any("a-console on 127.0.0.1 has joined" in line for line in lines)

            eventually(named, "the aggregator names the member of another program")
        finally:
            other.close()


def test_an_aggregator_that_died_is_not_waited_for(
    bootstrap_servers: str, pipeline: Pipeline, brokers: Brokers
) -> None:
    """The brokers list it until its session ends, and nobody from outside can commit meanwhile."""
    group, (orders,) = pipeline.topology.application_id, pipeline.topology.source_topics
    session = {} if brokers.properties else {"session.timeout.ms": 300_000, "max.poll.interval.ms": 300_000}
    dead = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "client.id": "streamplan:a-host:1:dead",
            "group.protocol": "consumer" if brokers.properties else "classic",
            **session,
            **({} if brokers.properties else {"partition.assignment.strategy": "roundrobin"}),
        }
    )
    joined: list[Any] = []
    dead.subscribe([orders], on_assign=lambda consumer, assigned: joined.append(assigned))

    def has_joined() -> bool:
        dead.poll(0.1)
        return bool(joined)

    try:
        eventually(has_joined, "the other one has joined")
        with TaskOwnership(pipeline, brokers) as ownership:
            ownership.claim({0: False, 1: False})
            listed = {member.client_id for member in members(brokers, group)}
            assert listed == {"streamplan:a-host:1:dead", f"streamplan:{ownership._generation.instance}"}
            with pytest.raises(KafkaException, match="UNKNOWN_MEMBER_ID"):
                commit(bootstrap_servers, group, orders, 7)
    finally:
        dead.close()


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("step", ["fence", "commit", "after the commit"])
def test_a_first_start_that_is_killed_leaves_all_positions_or_none(
    bootstrap_servers: str, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def killed(*_: Any) -> None:
        raise Killed

    @contextmanager
    def claim_producer(pipeline: Pipeline, brokers: Brokers) -> Iterator[Any]:
        with opened(pipeline, brokers) as producer:

            def commit(seconds: float) -> None:
                if step == "after the commit":
                    producer.commit_transaction(seconds)
                raise Killed

            yield SimpleNamespace(
                begin_transaction=producer.begin_transaction,
                send_offsets_to_transaction=producer.send_offsets_to_transaction,
                commit_transaction=commit,
            )

    opened = task_ownership._claim_producer
    with monkeypatch.context() as patch:
        if step == "fence":
            patch.setattr(task_ownership, "fence", killed)
        else:
            patch.setattr(task_ownership, "_claim_producer", claim_producer)
        with TaskOwnership(pipeline, Brokers(bootstrap_servers)) as ownership, pytest.raises(Killed):
            ownership.claim({0: False, 1: False})
    assert len(positions(bootstrap_servers, pipeline)) == (4 if step == "after the commit" else 0)
    with TaskOwnership(pipeline, Brokers(bootstrap_servers)) as ownership:
        assert ownership.claim({0: False, 1: False}).committed[0].positions
    assert {offset for offset, _ in positions(bootstrap_servers, pipeline).values()} == {0}


class OlderAggregator:
    """Copies the orders of partition 0 to the repartition topic, in transactions of a generation."""

    def __init__(self, bootstrap_servers: str, pipeline: Pipeline, generation: Generation) -> None:
        (self.orders,) = pipeline.topology.source_topics
        self.output = pipeline.topology.decorate("quantities-repartition")
        self.copied = 0
        self.generation = generation
        self._spec = TransactionSpec(
            brokers=Brokers(bootstrap_servers),
            application_id=pipeline.topology.application_id,
            generation=generation,
            transaction_timeout_ms=60_000,
            subtopology=0,
            ranges={},
            outputs=(Output(self.output, PartitionBy.KEY, 2),),
            dead_letter_topic=pipeline.topology.dead_letter_topic,
            dead_letter_partitions=2,
        )

    def copy(self, before_commit: Callable[[], None] = lambda: None) -> None:
        ranges = {(self.orders, 0): (self.copied, self.copied + 1)}
        with TaskTransaction(replace(self._spec, generation=self.generation, ranges=ranges), 0) as transaction:
            transaction.produce(self._spec.outputs[0], [b"k"], [b"{}"], [1], [None], 3)
            before_commit()
            transaction.commit()
        self.copied += 1


@pytest.fixture
def older(bootstrap_servers: str, pipeline: Pipeline) -> OlderAggregator:
    (orders,) = pipeline.topology.source_topics
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for _ in range(10_000):
        producer.produce(orders, b"{}", partition=0)
    assert producer.flush(60) == 0
    with TaskOwnership(pipeline, Brokers(bootstrap_servers)) as ownership:
        return OlderAggregator(bootstrap_servers, pipeline, ownership.claim({0: False, 1: False}).generation)


def claim_or_stop(action: str, pipeline: Pipeline, bootstrap_servers: str) -> Generation:
    if action == "stop":
        stop = stop_application(pipeline, Brokers(bootstrap_servers))
        assert stop is not None
        return stop
    with TaskOwnership(pipeline, Brokers(bootstrap_servers)) as ownership:
        return ownership.claim({0: False, 1: False}).generation


def require_exact(bootstrap_servers: str, pipeline: Pipeline, older: OlderAggregator, generation: Generation) -> None:
    """The position is where the copies end, and every position is of the new generation."""
    at = positions(bootstrap_servers, pipeline)
    assert at[older.orders, 0][0] == len(read_committed(bootstrap_servers, older.output)) == older.copied
    assert {metadata for _, metadata in at.values()} == {PositionMetadata(generation).text}


@pytest.mark.parametrize("action", ["claim", "stop"])
def test_what_an_older_aggregator_commits_during_a_claim_is_not_undone(
    bootstrap_servers: str,
    pipeline: Pipeline,
    older: OlderAggregator,
    monkeypatch: pytest.MonkeyPatch,
    action: str,
) -> None:
    """A position that went back would let its record be processed twice."""
    looks = itertools.count()

    def look(*arguments: Any) -> Any:
        found = committed(*arguments)
        if next(looks) == 0:
            older.copy()
        return found

    committed = task_ownership._committed
    monkeypatch.setattr(task_ownership, "_committed", look)
    generation = claim_or_stop(action, pipeline, bootstrap_servers)
    assert older.copied == 1
    require_exact(bootstrap_servers, pipeline, older, generation)
    with pytest.raises(Refused, match="a newer aggregator"):
        older.copy()


@pytest.mark.parametrize("action", ["claim", "stop"])
def test_a_claim_ends_the_transaction_that_an_older_aggregator_has_open(
    bootstrap_servers: str, pipeline: Pipeline, older: OlderAggregator, action: str
) -> None:
    generations: list[Generation] = []
    older.copy()
    with pytest.raises(StreamplanError, match="was fenced"):
        older.copy(lambda: generations.append(claim_or_stop(action, pipeline, bootstrap_servers)))
    assert older.copied == 1
    require_exact(bootstrap_servers, pipeline, older, generations[0])


@pytest.mark.parametrize("action", ["claim", "stop"])
def test_a_claim_beside_an_aggregator_that_commits_all_the_time(
    bootstrap_servers: str, pipeline: Pipeline, older: OlderAggregator, action: str
) -> None:
    """Whenever the claim comes between two commits: each record is copied once."""
    ended: list[StreamplanError] = []
    fenced: list[str] = []

    def copy_until_refused() -> None:
        while not ended:
            try:
                older.copy()
            except Refused as error:
                ended.append(error)
            except StreamplanError as error:
                fenced.append(str(error))  # its micro-batch runs again

    for _ in range(5):
        thread = threading.Thread(target=copy_until_refused)
        thread.start()
        try:
            copied = older.copied
            eventually(lambda: older.copied > copied + random.randrange(5), "the older aggregator copies")  # noqa: B023
            generation = claim_or_stop(action, pipeline, bootstrap_servers)
            thread.join(120)
        finally:
            ended.append(StreamplanError("the end of the test"))
            thread.join(120)
        assert "a newer aggregator" in str(ended[0])
        require_exact(bootstrap_servers, pipeline, older, generation)
        ended.clear()
        older.generation = generation
    assert all("was fenced" in error for error in fenced), fenced


def test_of_two_that_start_at_once_one_goes_on(bootstrap_servers: str, pipeline: Pipeline) -> None:
    claims: list[Generation] = []

    def start() -> None:
        with TaskOwnership(pipeline, Brokers(bootstrap_servers)) as ownership:
            claims.append(ownership.claim({0: False, 1: False}).generation)
            both.wait(120)
            try:
                ownership.require_latest(now=True)
            except Refused:
                refused.append(claims[-1])
            else:
                went_on.append(claims[-1])

    both = threading.Barrier(2)
    refused: list[Generation] = []
    went_on: list[Generation] = []
    threads = [threading.Thread(target=start) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(180)
    assert (len(claims), len(refused), len(went_on)) == (2, 1, 1)
    newest = {PositionMetadata.parse(metadata) for _, metadata in positions(bootstrap_servers, pipeline).values()}
    assert len(newest) == 1


def test_a_start_and_a_stop_that_take_long_end_both(
    bootstrap_servers: str, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine a claim takes longer than a short pause, in which the other one would always fence it."""
    brokers, fence = Brokers(bootstrap_servers), task_ownership.fence
    seen = claim(bootstrap_servers, pipeline).instance

    def slow_fence(*arguments: Any) -> None:
        time.sleep(6)
        fence(*arguments)

    monkeypatch.setattr(task_ownership, "fence", slow_fence)
    monkeypatch.setattr(task_ownership.random, "uniform", lambda least, most: most)
    outcomes: dict[str, object] = {}

    def noted(name: str, work: Callable[[], object]) -> None:
        try:
            outcomes[name] = work()
        except Exception as error:  # noqa: BLE001  shown by the assertion
            outcomes[name] = error

    works = {
        "start": lambda: claim(bootstrap_servers, pipeline, seen),
        "stop": lambda: stop_application(pipeline, brokers),
    }
    threads = [threading.Thread(target=noted, args=item) for item in works.items()]
    for thread in threads:
        thread.start()
        time.sleep(3)
    for thread in threads:
        thread.join(300)
    assert isinstance(outcomes["stop"], Generation), outcomes
    assert isinstance(outcomes["start"], Generation | StopRequested), outcomes
    assert newest_instance(pipeline, brokers) == outcomes["stop"].instance


def test_a_request_to_stop_lets_the_first_claim_of_an_application_end(
    bootstrap_servers: str, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No position holds the request yet, so it is made again and again. It must not fence what it waits for."""
    fence = task_ownership.fence

    def slow_fence(*arguments: Any) -> None:
        time.sleep(3)
        fence(*arguments)

    brokers = Brokers(bootstrap_servers)
    with TaskOwnership(pipeline, brokers) as ownership:
        monkeypatch.setattr(task_ownership, "fence", slow_fence)
        start = threading.Thread(target=ownership.claim, args=({0: False, 1: False},))
        start.start()
        asked = 0
        while start.is_alive():
            stop_application(pipeline, brokers)
            asked += 1
            time.sleep(0.2)
        assert asked > 1
        assert ownership.latest_generation() is not None
        stop = stop_application(pipeline, brokers)
        assert stop is not None
        with pytest.raises(StopRequested, match=f"pid {stop.pid}"):
            ownership.require_latest(now=True)


def test_a_stop_reaches_an_aggregator_wherever_it_runs(
    bootstrap_servers: str, pipeline: Pipeline, claimed: tuple[TaskOwnership, ClaimedTasks]
) -> None:
    ownership, _ = claimed
    ownership.require_latest(now=True)
    before = {place: offset for place, (offset, _) in positions(bootstrap_servers, pipeline).items()}
    stop = stop_application(pipeline, Brokers(bootstrap_servers))
    assert stop is not None
    assert stop.is_stop
    with pytest.raises(StopRequested):
        ownership.require_latest(now=True)
    assert before == {place: offset for place, (offset, _) in positions(bootstrap_servers, pipeline).items()}
    with TaskOwnership(pipeline, Brokers(bootstrap_servers)) as successor:
        assert successor.claim({0: False, 1: False}).generation.number > stop.number


DAYS = 2 * 24 * 3_600_000


@contextmanager
def clock(days: int) -> Iterator[None]:
    """The clock of a host that is so many times two days ahead."""
    with pytest.MonkeyPatch.context() as patched:
        now = time.time_ns
        patched.setattr("streamplan.model.generation.time.time_ns", lambda: now() + days * DAYS * 1_000_000)
        yield


def claim(bootstrap_servers: str, pipeline: Pipeline, seen: str | None = None) -> Generation:
    """As a start does, which then ends."""
    with TaskOwnership(pipeline, Brokers(bootstrap_servers), seen=seen) as ownership:
        return ownership.claim({0: False, 1: False}).generation


@pytest.mark.parametrize(
    ("starts", "stops", "starts_again"), [(1, 0, 0), (0, 1, 0), (0, 0, -1), (-1, -1, 1), (0, -1, 0)]
)
def test_a_stop_is_obeyed_by_the_starts_before_it_and_by_no_later_one_whatever_the_clocks_say(
    bootstrap_servers: str, pipeline: Pipeline, starts: int, stops: int, starts_again: int
) -> None:
    brokers = Brokers(bootstrap_servers)
    none = newest_instance(pipeline, brokers)
    with clock(starts):
        first = claim(bootstrap_servers, pipeline)
    before = newest_instance(pipeline, brokers)  # a start is asked for, and Spark begins
    with clock(stops):
        stop = stop_application(pipeline, brokers)
    assert (none, before) == ("none", first.instance)
    assert stop is not None
    with clock(starts_again):
        for seen in (none, before):
            with pytest.raises(StopRequested):
                claim(bootstrap_servers, pipeline, seen)
        later = [claim(bootstrap_servers, pipeline, seen) for seen in (newest_instance(pipeline, brokers), None)]
    numbers = [found.number for found in (first, stop, *later)]
    assert numbers == sorted({*numbers})


def test_an_application_without_positions_needs_no_stop(bootstrap_servers: str, pipeline: Pipeline) -> None:
    assert stop_application(pipeline, Brokers(bootstrap_servers)) is None
    assert positions(bootstrap_servers, pipeline) == {}


def test_the_positions_name_the_checkpoint_until_the_next_one(
    bootstrap_servers: str, pipeline: Pipeline, claimed: tuple[TaskOwnership, ClaimedTasks]
) -> None:
    ownership, tasks = claimed
    ownership.name_checkpoint(tasks, 0, "3f2a9c1e")
    with TaskOwnership(pipeline, Brokers(bootstrap_servers)) as successor:
        committed = successor.claim({0: True, 1: False}).committed
    assert (committed[0].checkpoint, committed[1].checkpoint) == ("3f2a9c1e", "")
    in_use = [checkpoint_in_use(pipeline, Brokers(bootstrap_servers), each) for each in pipeline.topology.subtopologies]
    assert in_use == ["3f2a9c1e", ""]
    with pytest.raises(Refused, match="a newer aggregator"):
        ownership.name_checkpoint(tasks, 0, "00000000")


def test_a_claim_that_dies_before_it_has_committed_ends_no_aggregator(
    bootstrap_servers: str,
    pipeline: Pipeline,
    claimed: tuple[TaskOwnership, ClaimedTasks],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has fenced the producer of claims, and no newer generation comes."""
    ownership, tasks = claimed
    own, died = ownership.require_latest, list[Producer]()

    def require_latest(*, now: bool = False) -> None:
        own(now=now)
        if not died:
            transactional_id = f"{pipeline.topology.application_id}-claim"
            died.append(Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": transactional_id}))
            died[0].init_transactions(60)

    monkeypatch.setattr(ownership, "require_latest", require_latest)
    ownership.name_checkpoint(tasks, 0, "3f2a9c1e")
    assert died
    first, _ = pipeline.topology.subtopologies
    assert checkpoint_in_use(pipeline, Brokers(bootstrap_servers), first) == "3f2a9c1e"


def test_a_position_that_another_program_commits_is_not_taken_for_an_earlier_run(
    bootstrap_servers: str, pipeline: Pipeline
) -> None:
    """A consumer with this group id, while the aggregator was not a member: records up to it would be skipped."""
    group, (orders,) = pipeline.topology.application_id, pipeline.topology.source_topics
    with TaskOwnership(pipeline, Brokers(bootstrap_servers)) as ownership:
        generation = ownership.claim({0: False, 1: False}).generation
    eventually(lambda: not members(Brokers(bootstrap_servers), group), "the group is empty")
    commit(bootstrap_servers, group, orders, 4)
    with pytest.raises(Refused, match=f"{orders}-0 at 4, with the metadata ''"):
        TaskTransaction(_micro_batch(pipeline, bootstrap_servers, generation), 0)


def test_an_aggregator_that_slept_through_a_reset_does_not_win(bootstrap_servers: str, pipeline: Pipeline) -> None:
    """The reset deletes the positions, and with them all that is known of generations."""
    group = pipeline.topology.application_id
    with TaskOwnership(pipeline, Brokers(bootstrap_servers)) as ownership:
        sleeping = ownership.claim({0: False, 1: False}).generation
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    eventually(lambda: not members(Brokers(bootstrap_servers), group), "the group is empty")
    admin.delete_consumer_groups([group])[group].result(60)
    with pytest.raises(Refused, match="has no position"):
        TaskTransaction(_micro_batch(pipeline, bootstrap_servers, sleeping), 0)
    with TaskOwnership(pipeline, Brokers(bootstrap_servers)) as successor:
        successor.claim({0: False, 1: False})
        with pytest.raises(Refused, match="a newer aggregator"):
            TaskTransaction(_micro_batch(pipeline, bootstrap_servers, sleeping), 0)
        successor.require_latest(now=True)


@pytest.mark.parametrize(("sleeper", "successor"), [(1, 0), (0, -1)])
def test_an_aggregator_that_slept_through_a_reset_does_not_win_by_its_clock(
    bootstrap_servers: str, pipeline: Pipeline, sleeper: int, successor: int
) -> None:
    brokers, group = Brokers(bootstrap_servers), pipeline.topology.application_id
    with clock(sleeper):
        sleeping = claim(bootstrap_servers, pipeline)
    eventually(lambda: not members(brokers, group), "the group is empty")
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.delete_consumer_groups([group])[group].result(60)
    with clock(successor):
        newer = claim(bootstrap_servers, pipeline)
    assert newer.number < sleeping.number
    with TaskOwnership(pipeline, brokers) as ownership:
        ownership._generation = sleeping
        with pytest.raises(Refused, match="a newer aggregator"):
            ownership.require_latest(now=True)
    with pytest.raises(Refused, match="a newer aggregator"):
        TaskTransaction(_micro_batch(pipeline, bootstrap_servers, sleeping), 0)


def _micro_batch(pipeline: Pipeline, bootstrap_servers: str, generation: Generation) -> TransactionSpec:
    """What the stream tasks of sub-topology 0 are given."""
    (orders,) = pipeline.topology.source_topics
    return TransactionSpec(
        brokers=Brokers(bootstrap_servers),
        application_id=pipeline.topology.application_id,
        generation=generation,
        transaction_timeout_ms=60_000,
        subtopology=0,
        ranges={(orders, 0): (0, 4)},
        outputs=(Output(pipeline.topology.decorate("quantities-repartition"), PartitionBy.KEY, 2),),
        dead_letter_topic=pipeline.topology.dead_letter_topic,
        dead_letter_partitions=2,
    )
