"""What the checks see of Kafka: the same questions to the cluster in memory and to real brokers."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from streamplan.errors import BrokersUnavailable, CouldNotLook, Refused
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster, await_transactions, unprocessed
from streamplan.kafka.groups import delete_group, set_positions
from streamplan.kafka_port import Cluster, RecordsGone, records_of
from streamplan.kafka_types import Offsets
from streamplan.spark.wall_clock import ProcessedInput

from tests.support.brokers import await_topics
from tests.support.fake_cluster import FakeCluster
from tests.support.waiting import eventually

_numbers = itertools.count()


class World(Protocol):
    """A cluster, and what happens to one of its topics, which has two partitions."""

    cluster: Cluster
    impatient: Cluster
    """The same, for a question that has no answer."""
    topic: str

    def write(self, *values: bytes, partition: int = 0) -> None: ...
    def delete_before(self, offset: int) -> None: ...
    def open_transaction(self, value: bytes) -> Callable[[], None]: ...
    def commit_position(self, group: str, offset: int) -> None: ...


class Fake:
    def __init__(self) -> None:
        self.topic = "topic"
        self.cluster = self.impatient = self._fake = FakeCluster()
        self._fake.create(self.topic, 2)

    def write(self, *values: bytes, partition: int = 0) -> None:
        for value in values:
            self._fake.produce(self.topic, b"key", value, partition=partition, headers=(("name", b"header"),))

    def delete_before(self, offset: int) -> None:
        self._fake.purge(self.topic, 0, offset)

    def open_transaction(self, value: bytes) -> Callable[[], None]:
        self.write(value)
        partition = self._fake.existing[self.topic].partitions[0]
        partition.open_since = partition.end - 1

        def commit() -> None:
            partition.open_since = None
            partition.end += 1  # the marker

        return commit

    def commit_position(self, group: str, offset: int) -> None:
        self._fake.committed[group, self.topic] = {0: offset}


class Real:
    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.topic = f"reader-{os.getpid()}-{next(_numbers)}"
        self.admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        self.cluster = KafkaCluster(Brokers(bootstrap_servers), deadline_seconds=120.0)
        self.impatient = KafkaCluster(Brokers(bootstrap_servers), deadline_seconds=3.0)
        self.admin.create_topics([NewTopic(self.topic, 2, 1)])[self.topic].result(120)
        await_topics(bootstrap_servers, self.topic)

    def write(self, *values: bytes, partition: int = 0) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap_servers})
        for value in values:
            producer.produce(self.topic, value, b"key", partition=partition, headers=[("name", b"header")])
        assert producer.flush(120) == 0

    def partitions(self) -> set[int]:
        """Return the partitions that offsets are told of; none while a broker does not know the topic."""
        try:
            return {*self.cluster.offsets(self.topic)}
        except CouldNotLook:
            return set()

    def delete(self) -> None:
        self.admin.delete_topics([self.topic])[self.topic].result(120)
        eventually(lambda: not self.partitions(), "the topic is seen to be gone")

    def create_again(self, *, partitions: int) -> None:
        self.admin.create_topics([NewTopic(self.topic, partitions, 1)])[self.topic].result(120)
        eventually(lambda: self.partitions() == {*range(partitions)}, f"the new topic has {partitions} partitions")

    def delete_before(self, offset: int) -> None:
        at = TopicPartition(self.topic, 0, offset)
        self.admin.delete_records([at])[at].result(120)

    def transaction(self) -> Producer:
        producer = Producer({"bootstrap.servers": self.bootstrap_servers, "transactional.id": self.topic})
        producer.init_transactions(120)
        producer.begin_transaction()
        return producer

    def open_transaction(self, value: bytes) -> Callable[[], None]:
        producer = self.transaction()
        producer.produce(self.topic, value, b"key", partition=0, headers=[("name", b"header")])
        assert producer.flush(120) == 0
        return lambda: producer.commit_transaction(120)

    def commit_position(self, group: str, offset: int) -> None:
        consumer = Consumer({"bootstrap.servers": self.bootstrap_servers, "group.id": group})
        consumer.commit(offsets=[TopicPartition(self.topic, 0, offset)], asynchronous=False)
        consumer.close()


@pytest.fixture
def real(bootstrap_servers: str) -> Iterator[Real]:
    made = Real(bootstrap_servers)
    yield made
    made.admin.delete_topics([made.topic])[made.topic].exception(120)


@pytest.fixture(params=["fake", "real"])
def world(request: pytest.FixtureRequest) -> World:
    return Fake() if request.param == "fake" else request.getfixturevalue("real")


def values(world: World, ranges: Mapping[int, tuple[int, int]]) -> list[bytes | None]:
    return [value for batch in world.cluster.read(world.topic, ranges) for value in batch.values]


def settled(world: World) -> Offsets:
    """The offsets of partition 0 once the markers are written, which the producer does not wait for."""
    deadline = time.monotonic() + 300
    while (found := world.cluster.offsets(world.topic)[0]).last_stable != found.high_watermark:
        assert time.monotonic() < deadline, f"still open: {found}"
    return found


def test_a_record_is_read_whole(world: World) -> None:
    world.write(b"value", partition=1)
    (batch,) = world.cluster.read(world.topic, {1: (0, 1)})
    (record,) = records_of(batch)
    assert (record.partition, record.offset, record.key, record.value) == (1, 0, b"key", b"value")
    assert record.headers == (("name", b"header"),)


def test_a_range_ends_before_its_last_offset(world: World) -> None:
    world.write(*(b"%d" % n for n in range(10)))
    assert values(world, {0: (3, 6), 1: (0, 0)}) == [b"3", b"4", b"5"]


def test_an_empty_topic(world: World) -> None:
    assert world.cluster.offsets(world.topic) == {0: Offsets(0, 0, 0), 1: Offsets(0, 0, 0)}
    assert values(world, {0: (0, 0), 1: (0, 0)}) == []


def test_a_purged_topic_is_empty_with_an_end(world: World) -> None:
    world.write(b"a", b"b")
    world.delete_before(2)
    assert world.cluster.offsets(world.topic)[0] == Offsets(2, 2, 2)
    assert values(world, {0: (2, 2)}) == []


def test_deleted_records_are_missed(world: World) -> None:
    world.write(b"a", b"b", b"c")
    world.delete_before(2)
    with pytest.raises(RecordsGone):
        values(world, {0: (1, 3)})


def test_an_open_transaction_is_not_seen_and_shows_in_the_offsets(world: World) -> None:
    world.write(b"before")
    commit = world.open_transaction(b"in it")
    assert world.cluster.offsets(world.topic)[0] == Offsets(0, 1, 2)
    assert values(world, {0: (0, 1)}) == [b"before"]
    with pytest.raises(CouldNotLook):
        list(world.impatient.read(world.topic, {0: (0, 2)}))
    everything = world.cluster.read_uncommitted(world.topic, {0: (0, 2)})
    assert [value for batch in everything for value in batch.values] == [b"before", b"in it"]
    commit()
    assert settled(world) == Offsets(0, 3, 3)
    assert values(world, {0: (0, 3)}) == [b"before", b"in it"]  # the last offset is a marker


def test_what_an_open_transaction_holds_is_not_processed(world: World) -> None:
    """The application has read all that can be read, and another part of it is committing."""
    world.write(b"one")
    commit = world.open_transaction(b"two")
    assert unprocessed(world.cluster, {world.topic: {0: 1}}) == {world.topic: 1}
    assert await_transactions(world.cluster, [world.topic], 0.0) == {world.topic: 1}
    world.commit_position("app", 1)
    others, own = (ProcessedInput(world.cluster, "app", [[world.topic]], written) for written in ((), {world.topic}))
    assert (others.until(7), own.until(7)) == (7, None)
    commit()
    assert await_transactions(world.cluster, [world.topic], 120.0) == {}
    assert unprocessed(world.cluster, {world.topic: {0: 1}}) == {world.topic: 1}
    assert own.until(8) is None
    world.commit_position("app", 3)  # behind the marker
    assert unprocessed(world.cluster, {world.topic: {0: 3}}) == {}
    assert own.until(9) == 7


def test_where_a_moment_is(world: World) -> None:
    world.write(b"a", b"b")
    world.write(b"c", partition=1)
    first = next(iter(world.cluster.read(world.topic, {0: (0, 1)}))).timestamps[0]
    assert world.cluster.offsets_since(world.topic, first) == {0: 0, 1: 0}
    assert world.cluster.offsets_since(world.topic, first + 3_600_000) == {0: 2, 1: 1}
    assert world.cluster.offsets_since(world.topic, None) == {0: 2, 1: 1}


def test_positions(world: World) -> None:
    assert world.cluster.positions("nobody", world.topic) == {}
    world.commit_position(f"group-of-{world.topic}", 7)
    assert world.cluster.positions(f"group-of-{world.topic}", world.topic) == {0: 7}


def test_a_group_without_members(world: World) -> None:
    group = f"group-of-{world.topic}"
    assert world.cluster.members(group) is not None
    assert not world.cluster.members(group)
    world.commit_position(group, 7)
    assert world.cluster.members(group) is not None
    assert not world.cluster.members(group)


def test_a_missing_topic(world: World) -> None:
    assert world.cluster.topics(["not-there"]) == {}
    with pytest.raises(CouldNotLook, match="not-there does not exist"):
        world.impatient.offsets("not-there")


# -- what only real brokers do


def test_aborted_records_and_markers_count_for_nothing(real: Real) -> None:
    real.write(b"before")
    producer = real.transaction()
    for value in (b"aborted", b"too"):
        producer.produce(real.topic, value, partition=0)
    producer.flush(120)
    producer.abort_transaction(120)
    assert settled(real) == Offsets(0, 4, 4)
    assert values(real, {0: (0, 4)}) == [b"before"]
    assert values(real, {0: (1, 4)}) == []


def test_positions_inside_a_transaction_are_waited_for(real: Real) -> None:
    """``require_stable``: neither the old position nor the new one is answered while it is undecided."""
    group = f"group-of-{real.topic}"
    real.commit_position(group, 1)
    producer = real.transaction()
    consumer = Consumer({"bootstrap.servers": real.bootstrap_servers, "group.id": group})
    producer.send_offsets_to_transaction([TopicPartition(real.topic, 0, 5)], consumer.consumer_group_metadata(), 120)
    with pytest.raises(BrokersUnavailable, match=f"positions of group {group}"):
        real.impatient.positions(group, real.topic)
    producer.commit_transaction(120)
    assert real.cluster.positions(group, real.topic) == {0: 5}
    consumer.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_are_named(real: Real, protocol: str) -> None:
    """``streams``, the third protocol, is in ``tests/integration/checks/test_jvm_application.py``."""
    group, configs = f"{protocol}-group-of-{real.topic}", {"bootstrap.servers": real.bootstrap_servers}
    consumer = Consumer({**configs, "group.id": group, "client.id": "console", "group.protocol": protocol})
    consumer.subscribe([real.topic])

    def described() -> list[str]:
        consumer.poll(0.1)
        return [str(member) for member in real.cluster.members(group) or ()]

    eventually(lambda: described() == ["console on 127.0.0.1"], f"the member of {group}")
    with pytest.raises(Refused, match="expected no members"):
        set_positions(Brokers(real.bootstrap_servers), group, {(real.topic, 0): 0})
    with pytest.raises(Refused, match="expected no members"):
        delete_group(Brokers(real.bootstrap_servers), group)
    consumer.close()
    eventually(lambda: real.cluster.members(group) == [], f"no member of {group}")


def test_records_are_in_the_order_of_their_offsets(real: Real) -> None:
    for partition in (0, 1):
        real.write(*(b"%d" % n for n in range(50_000)), partition=partition)
    seen: dict[int, list[int]] = {0: [], 1: []}
    for batch in real.cluster.read(real.topic, {0: (0, 50_000), 1: (10, 40_000)}):
        for record in records_of(batch):
            assert record.value == b"%d" % record.offset
            seen[record.partition].append(record.offset)
    assert seen == {0: list(range(50_000)), 1: list(range(10, 40_000))}


def test_brokers_that_are_away_are_named_with_how_long_was_tried() -> None:
    away = KafkaCluster(Brokers("127.0.0.1:1"), deadline_seconds=1.0)
    with pytest.raises(BrokersUnavailable, match=r"127\.0\.0\.1:1.*within 1 s.*Connection refused"):
        away.offsets("orders")
    with pytest.raises(BrokersUnavailable, match=r"127\.0\.0\.1:1"):
        away.topics(["orders"])
    with pytest.raises(CouldNotLook, match=r"127\.0\.0\.1:1"):
        list(away.read("orders", {0: (0, 5)}))


def test_a_process_that_goes_on_sees_partitions_that_were_added_and_topics_that_were_deleted(real: Real) -> None:
    """As the exporter, the API server and the triggerer do, which ask the same cluster for weeks."""
    group = f"{real.topic}-group"
    real.commit_position(group, 0)
    assert real.partitions() == {0, 1}
    real.admin.create_partitions([NewPartitions(real.topic, 5)])[real.topic].result(120)
    eventually(lambda: real.partitions() == {*range(5)}, "the new partitions are seen")
    real.write(b"value", partition=4)
    assert real.cluster.offsets(real.topic)[4].high_watermark == 1
    real.delete()
    eventually(lambda: real.topic not in real.cluster.committed_offsets(group), "the group has no position in it")
    real.create_again(partitions=3)


def test_partitions_of_a_topic_that_was_created_again_are_counted_again(
    real: Real, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two requests of one question, too: counts are kept for a moment."""
    monkeypatch.setattr("streamplan.kafka.cluster.PARTITIONS_SECONDS", 3600.0)
    assert real.partitions() == {0, 1}
    real.delete()
    with pytest.raises(CouldNotLook, match="does not exist"):
        real.cluster.offsets(real.topic)
    real.create_again(partitions=3)
    real.admin.delete_topics([real.topic])[real.topic].result(120)
    eventually(lambda: real.cluster.topics([real.topic]).keys() == set(), "the topic is gone")
    real.create_again(partitions=1)
