"""Assignments and their encoded sizes, compared with the real Kafka Streams and the real group coordinator."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from streamplan.local.jars import BROKERS, KAFKA_STREAMS
from streamplan.model.assignment import (
    Assignment,
    assign,
    assignment_info_size,
    group_metadata_size,
    stateful_tasks,
    topics_of_tasks,
)
from streamplan.model.copartitioning import resolve_partition_counts
from streamplan.model.processor_topology import TaskId
from streamplan.model.topology import Topology
from streamplan.serdes.json import Json

from tests.support.brokers import NewTopicFactory, await_coordinator
from tests.support.examples import PIPELINES
from tests.support.kafka_streams import (
    Twin,
    cluster,
    collection,
    java,
    java_map,
    map_of_longs,
    properties,
    running,
    state_of,
    wait_until_running,
)
from tests.support.soak import seeds

VALUE = Json("Id string, Amount bigint")
LATEST_OFFSET = -2
"""``Task.LATEST_OFFSET``: the task is active here."""


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    with java(KAFKA_STREAMS, BROKERS) as jvm:
        yield jvm


def java_task(jvm: Any, task: TaskId) -> Any:
    return jvm.org.apache.kafka.streams.processor.TaskId(task.subtopology, task.partition)


def assigned_by_the_library(
    jvm: Any, tasks: Sequence[TaskId], stateful: frozenset[TaskId], process_ids: Sequence[Any], changelog_end: int
) -> dict[str, tuple[str, ...]]:
    """By process id, in ``StreamsPartitionAssignor``'s way, with all its defaults and one consumer a process.

    ``changelog_end`` is the end offset of every changelog, of which no instance has anything.
    """
    internals = jvm.org.apache.kafka.streams.processor.internals
    config = jvm.org.apache.kafka.streams.StreamsConfig(
        properties(jvm, {"application.id": "app", "bootstrap.servers": "127.0.0.1:1"})
    )
    configs = jvm.org.apache.kafka.streams.processor.assignment.AssignmentConfigs.of(config)
    none = jvm.java.util.HashMap()
    ends = map_of_longs(jvm, {java_task(jvm, task): changelog_end for task in stateful})
    clients = {}
    for process_id in process_ids:
        state = internals.assignment.ClientState(process_id, none)
        state.incrementCapacity()
        state.addOwnedPartitions(collection(jvm, []), f"consumer-of-{process_id}")
        state.addPreviousTasksAndOffsetSums(f"consumer-of-{process_id}", none)
        state.initializePrevTasks(none, False)
        state.computeTaskLags(process_id, ends)
        clients[process_id] = state
    rack_aware = internals.assignment.RackAwareTaskAssignor(
        jvm.org.apache.kafka.common.Cluster.empty(), none, none, none, none, None, configs,
        jvm.org.apache.kafka.common.utils.Time.SYSTEM,
    )  # fmt: skip
    probing = internals.assignment.HighAvailabilityTaskAssignor().assign(
        java_map(jvm, clients),
        collection(jvm, [java_task(jvm, task) for task in tasks], "HashSet"),
        collection(jvm, [java_task(jvm, task) for task in stateful], "HashSet"),
        rack_aware,
        configs,
    )
    assert not probing
    return {str(key): tuple(str(task) for task in clients[key].activeTasks()) for key in clients}


def drawn_tasks(chosen: random.Random) -> tuple[list[TaskId], frozenset[TaskId]]:
    """1 to 5 sub-topologies of 1 to 6 tasks each, with or without a store."""
    tasks = [
        TaskId(number, partition) for number in range(chosen.randint(1, 5)) for partition in range(chosen.randint(1, 6))
    ]
    with_store = {number for number in range(5) if chosen.random() < 0.5}
    return tasks, frozenset(task for task in tasks if task.subtopology in with_store)


@pytest.mark.parametrize("seed", seeds(30, in_soak=500))
def test_instances_get_the_tasks_that_the_default_assignor_gives_them(jvm: Any, seed: int) -> None:
    chosen = random.Random(seed)
    tasks, stateful = drawn_tasks(chosen)
    process = jvm.org.apache.kafka.streams.processor.assignment.ProcessId
    process_ids = [process(jvm.java.util.UUID.randomUUID()) for _ in range(1 + seed % 7)]
    chosen.shuffle(tasks)
    theirs = assigned_by_the_library(jvm, tasks, stateful, process_ids, changelog_end=chosen.choice([0, 1_000_000]))
    in_order = [str(key) for key in sorted(map(str, process_ids), key=_java_uuid_order)]
    ours = assign(tasks, in_order, stateful=stateful)
    assert {one.instance: tuple(map(str, one.tasks)) for one in ours.instances} == theirs
    assert sorted(ours.idle) == sorted(name for name, held in theirs.items() if not held)


def _java_uuid_order(text: str) -> tuple[int, int]:
    """Two signed halves, as the documentation of ``assign`` has it."""
    whole = uuid.UUID(text).int
    high, low = whole >> 64, whole & (1 << 64) - 1
    return (high - (1 << 64) if high >> 63 else high, low - (1 << 64) if low >> 63 else low)


@pytest.mark.parametrize("seed", seeds(20, in_soak=500))
def test_a_task_reads_its_partition_of_every_topic_that_has_it(jvm: Any, seed: int) -> None:
    chosen = random.Random(seed)
    topology = Topology("app")
    counts = {f"topic-{number}": chosen.randint(1, 6) for number in range(5)}
    streams = [topology.stream(topic, value=VALUE) for topic in counts]
    for _ in range(chosen.randint(0, 4)):
        one, other = chosen.sample(streams, 2)
        one.merge(other)
    internals = jvm.org.apache.kafka.streams.processor.internals
    groups = {
        internals.TopologyMetadata.Subtopology(group.id, None): collection(jvm, group.source_topics, "HashSet")
        for group in topology.subtopologies
    }
    theirs = internals.PartitionGrouper().partitionGroups(java_map(jvm, groups), cluster(jvm, counts))
    assert {str(task): {str(partition) for partition in theirs[task]} for task in theirs} == {
        str(task): {f"{topic}-{task.partition}" for topic in topics}
        for task, topics in topics_of_tasks(topology, counts).items()
    }


# -- sizes


def enriched(application_id: str = "shop") -> Topology:
    """Two repartition topics, three stores, a sub-topology that reads two topics."""
    topology = Topology(application_id)
    products = topology.table("products", value=Json("Name string"))
    orders = topology.stream("orders", value=VALUE).select_key("Id").join(products)
    orders.group_by("Name", name="by-name").count(store="counts")
    orders.group_by_key().aggregate({"total": "sum(Amount)"}, store="totals")
    return topology


def many_topics() -> Topology:
    topology = Topology("wide")
    for number in range(12):
        topology.stream(f"source-{number:0100d}", value=VALUE).group_by("Id", name=f"by-{number:0120d}").count()
    return topology


def cases() -> list[tuple[Topology, dict[str, int]]]:
    (orders,) = (pipeline for pipeline in PIPELINES if pipeline.name == "orders")
    external = [
        (orders.topology, dict(orders.topic_partitions)),
        (enriched(), {"products": 3, "orders": 5}),
        (enriched("a" * 60), {"products": 12, "orders": 1}),
        (many_topics(), {f"source-{number:0100d}": 1 + number % 3 for number in range(12)}),
    ]
    return [
        (
            topology,
            {topology.decorate(topic): count for topic, count in resolve_partition_counts(topology, counts).items()},
        )
        for topology, counts in external
    ]


def batch_of_the_library(
    jvm: Any, topology: Topology, counts: dict[str, int], assignment: Assignment, server: str
) -> tuple[int, list[int]]:
    """Bytes of the batch with the group's metadata, and of each member's ``AssignmentInfo``."""
    internals = jvm.org.apache.kafka.streams.processor.internals.assignment
    consumer = jvm.org.apache.kafka.clients.consumer
    protocol = consumer.internals.ConsumerProtocol
    generated = jvm.org.apache.kafka.coordinator.group.generated
    topics = topics_of_tasks(topology, counts)
    stateful = stateful_tasks(topology, topics)
    subscribed = collection(
        jvm,
        sorted({topology.decorate(topic) for group in topology.subtopologies for topic in group.source_topics}),
    )
    application_id = topology.application_id
    host_name = server.rpartition(":")[0]

    def partitions(tasks: Sequence[TaskId]) -> Any:
        return collection(
            jvm,
            [
                jvm.org.apache.kafka.common.TopicPartition(topic, task.partition)
                for task in tasks
                for topic in topics[task]
            ],
        )

    def at(number: int) -> Any:
        return jvm.org.apache.kafka.streams.state.HostInfo(host_name, 1000 + number)

    numbered = list(enumerate(assignment.instances))
    by_host = {at(number): jvm.java.util.HashSet(partitions(one.tasks)) for number, one in numbered} if server else {}
    none_by_host = {at(number): jvm.java.util.HashSet() for number, _ in numbered} if server else {}
    members, infos = [], []
    for _, one in numbered:
        client_id = f"{application_id}-{uuid.uuid4()}-StreamThread-1-consumer"
        info = internals.AssignmentInfo(
            11, 11, collection(jvm, [java_task(jvm, task) for task in one.tasks for _ in topics[task]]),
            java_map(jvm, {}), java_map(jvm, by_host), java_map(jvm, none_by_host), 0,
        ).encode()  # fmt: skip
        infos.append(info.remaining())
        sums = {java_task(jvm, task): LATEST_OFFSET for task in one.tasks if task in stateful}
        process_id = jvm.org.apache.kafka.streams.processor.assignment.ProcessId(jvm.java.util.UUID.randomUUID())
        subscription_info = internals.SubscriptionInfo(
            11, 11, process_id, server or None, map_of_longs(jvm, sums), 0, 0, java_map(jvm, {})
        ).encode()
        subscription = consumer.ConsumerPartitionAssignor.Subscription(
            subscribed, subscription_info, partitions(one.tasks), 7, jvm.java.util.Optional.empty()
        )
        assigned = protocol.serializeAssignment(
            consumer.ConsumerPartitionAssignor.Assignment(partitions(one.tasks), info)
        )
        member = generated.GroupMetadataValue.MemberMetadata()
        member.setMemberId(f"{client_id}-{uuid.uuid4()}").setClientId(client_id).setClientHost("/255.255.255.255")
        member.setRebalanceTimeout(300_000).setSessionTimeout(45_000)
        member.setSubscription(_bytes(protocol.serializeSubscription(subscription))).setAssignment(_bytes(assigned))
        members.append(member)
    value = generated.GroupMetadataValue()
    value.setProtocolType("consumer").setGeneration(7).setProtocol("stream").setLeader(members[0].memberId())
    value.setCurrentStateTimestamp(1_700_000_000_000).setMembers(collection(jvm, members))
    key = generated.GroupMetadataKey().setGroup(application_id)
    serde = jvm.org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde()
    versioned = jvm.org.apache.kafka.server.common.ApiMessageAndVersion(value, 3)
    written = jvm.org.apache.kafka.coordinator.common.runtime.CoordinatorRecord.record(key, versioned)
    common = jvm.org.apache.kafka.common
    record = common.record.internal.SimpleRecord(
        1_700_000_000_000, serde.serializeKey(written), serde.serializeValue(written)
    )
    size = common.record.internal.AbstractRecords.estimateSizeInBytes(
        jvm.java.lang.Byte.parseByte("2"), common.record.internal.CompressionType.NONE, collection(jvm, [record])
    )
    return size, infos


def _bytes(buffer: Any) -> bytes:
    return bytes(buffer.array())


@pytest.mark.parametrize("server", ["", "streams-1.example.org:8080"])
@pytest.mark.parametrize("case", range(4))
@pytest.mark.parametrize("instances", [1, 3, None])
def test_the_groups_metadata_are_as_large_as_the_library_makes_them(
    jvm: Any, case: int, instances: int | None, server: str
) -> None:
    topology, counts = cases()[case]
    topics = topics_of_tasks(topology, counts)
    count = instances or min(len(topics), 20)
    assignment = assign(topics, count, stateful=stateful_tasks(topology, topics))
    batch, infos = batch_of_the_library(jvm, topology, counts, assignment, server)
    assert group_metadata_size(topology, counts, instances=count, application_server=server) == batch
    if not server:
        assert infos == [
            assignment_info_size(sum(len(topics[task]) for task in one.tasks)) for one in assignment.instances
        ]


# -- on real brokers


@contextmanager
def largest_message(bootstrap_servers: str, size: int, new_topic: NewTopicFactory) -> Iterator[None]:
    """``max.message.bytes`` of ``__consumer_offsets``, for a while."""
    await_coordinator(bootstrap_servers)
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})

    def alter(operation: AlterConfigOpType, value: str | None) -> None:
        entry = ConfigEntry("max.message.bytes", value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, "__consumer_offsets", incremental_configs=[entry])
        (altered,) = admin.incremental_alter_configs([resource]).values()
        altered.result(120)

    alter(AlterConfigOpType.SET, str(size))
    try:
        new_topic("later")  # brokers hear of changes in order: both know this topic, so they know the size
        yield
    finally:
        alter(AlterConfigOpType.DELETE, None)


@pytest.mark.parametrize("fits", [True, False])
def test_a_group_whose_metadata_are_a_byte_too_large_cannot_be(
    jvm: Any, bootstrap_servers: str, new_topic: NewTopicFactory, tmp_path: Path, fits: bool
) -> None:
    """One instance of a topology without topics of its own, whose creation would make it join a second time."""
    events, out = new_topic("events", partitions=3), new_topic("out")
    twin = Twin(jvm, f"app-{uuid.uuid4().hex}")
    twin.stream(events).to(out)
    size = group_metadata_size(twin.topology, {events: 3, out: 2}, instances=1, first=True)
    size -= len("/255.255.255.255") - len("/127.0.0.1")
    with (
        largest_message(bootstrap_servers, size if fits else size - 1, new_topic),
        running(jvm, twin.build(), bootstrap_servers, twin.topology.application_id, tmp_path) as application,
    ):
        deadline = time.monotonic() + 300
        if fits:
            wait_until_running(application)
            deadline = time.monotonic() + 3
        while time.monotonic() < deadline and state_of(application) != "ERROR":
            time.sleep(0.1)
        assert state_of(application) == ("RUNNING" if fits else "ERROR")
