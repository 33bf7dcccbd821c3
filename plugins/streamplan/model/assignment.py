"""How stream tasks are assigned to the instances of an application, and the size of the message that tells a group.

Source: ``HighAvailabilityTaskAssignor``, Kafka Streams' default, ``StreamsPartitionAssignor`` and ``AssignmentInfo`` of
``org.apache.kafka.streams.processor.internals``; tests/integration/model/test_oracle_assignment.py compares with them.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from streamplan.errors import Refused
from streamplan.model.diagnostics import Diagnostic
from streamplan.model.processor_topology import TaskId
from streamplan.model.topology import Topology

MAX_MESSAGE_BYTES = 1_048_588
"""The brokers' default of ``message.max.bytes``, and so of ``max.message.bytes`` of ``__consumer_offsets``."""

_UUID = 36
_CLIENT_HOST = len("/255.255.255.255")
_THREAD = len("-StreamThread-1-consumer")
_ERROR_CODE = 4
_NULL_STRING = 2


@dataclass(frozen=True)
class InstanceTasks:
    """The stream tasks of an instance, in the order of their ids; empty for an idle instance."""

    instance: str
    tasks: tuple[TaskId, ...]


@dataclass(frozen=True)
class Assignment:
    """Every instance with its stream tasks."""

    instances: tuple[InstanceTasks, ...]

    @property
    def idle(self) -> tuple[str, ...]:
        """The instances without a stream task."""
        return tuple(assigned.instance for assigned in self.instances if not assigned.tasks)


# -- which tasks an instance gets


def topics_of_tasks(topology: Topology, partition_counts: Mapping[str, int]) -> dict[TaskId, tuple[str, ...]]:
    """Every stream task in order, with the topics of which it reads its own partition (``PartitionGrouper``).

    Args:
        partition_counts: The partition count of each topic, by its name in Kafka.

    Returns:
        The names in Kafka of the topics, by stream task.
    """
    tasks: dict[TaskId, tuple[str, ...]] = {}
    for subtopology in topology.subtopologies:
        topics = tuple(dict.fromkeys(topology.decorate(topic) for topic in subtopology.source_topics))
        for partition in range(max((partition_counts[topic] for topic in topics), default=0)):
            read = tuple(topic for topic in topics if partition_counts[topic] > partition)
            tasks[TaskId(subtopology.id, partition)] = read
    return tasks


def stateful_tasks(topology: Topology, tasks: Iterable[TaskId]) -> frozenset[TaskId]:
    """The stream tasks of the sub-topologies with a changelog (``ChangelogTopics.statefulTaskIds``)."""
    stateful = {subtopology.id for subtopology in topology.subtopologies if subtopology.stores}
    return frozenset(task for task in tasks if task.subtopology in stateful)


def assign(tasks: Iterable[TaskId], instances: int | Sequence[str], *, stateful: Collection[TaskId]) -> Assignment:
    """Assign stream tasks as Kafka Streams does when all instances start anew (``HighAvailabilityTaskAssignor``).

    The stateful tasks are assigned one by one, in the order of their ids, to the instances in turn. Then each stateless
    task goes to the instance that has the fewest tasks so far, and of equals to the first.

    "Anew" means that no instance has state or owns a partition, that all have joined before the first assignment, and
    that each has one thread. An instance that joins later takes over tasks gradually, and an instance that has the
    state of a task keeps the task. Standby replicas and rack awareness are off, as by default.

    Args:
        tasks: All stream tasks.
        instances: Their names, or their number (``instance-1``, ...). The library takes instances in the order of their
            process ids: random UUIDs, which ``java.util.UUID`` compares by two signed halves. So the first name here
            stands for the instance whose process id is the least.
        stateful: The stream tasks with a changelog.

    Raises:
        Refused: There are no instances.
    """
    names, tasks, stateful = _names(instances), sorted(tasks), frozenset(stateful)
    assigned: list[list[TaskId]] = [[] for _ in names]
    for number, task in enumerate(task for task in tasks if task in stateful):
        assigned[number % len(names)].append(task)
    # The numbers of tasks differ by one at most now, so the library's next step, which moves tasks, moves none.
    queue = [(len(of_instance), number) for number, of_instance in enumerate(assigned)]
    heapq.heapify(queue)
    for task in tasks:
        if task not in stateful:
            count, number = queue[0]
            assigned[number].append(task)
            heapq.heapreplace(queue, (count + 1, number))
    return _assignment(names, assigned)


def assign_by_load(load: Mapping[TaskId, int], instances: int | Sequence[str]) -> Assignment:
    """Assign stream tasks by load, the largest first: each to the instance with the least load so far.

    For comparison with :func:`assign`: Kafka Streams weighs no load. The busiest instance has at most 4/3 of the least
    load that any assignment could give it (Graham 1969). Of instances with equal loads, the one with fewer tasks gets
    the task, and of equals the first.

    Args:
        load: The load of each stream task, in any unit.
        instances: Their names, or their number.

    Raises:
        Refused: There are no instances.
    """
    names = _names(instances)
    assigned: list[list[TaskId]] = [[] for _ in names]
    queue = [(0, 0, number) for number in range(len(names))]
    for task in sorted(load, key=lambda task: (-load[task], task)):
        total, count, number = queue[0]
        assigned[number].append(task)
        heapq.heapreplace(queue, (total + load[task], count + 1, number))
    return _assignment(names, assigned)


def _names(instances: int | Sequence[str]) -> tuple[str, ...]:
    if isinstance(instances, int):
        instances = [f"instance-{number}" for number in range(1, instances + 1)]
    if not instances:
        raise Refused("instances", expected="1 or more", observed="none")
    return tuple(instances)


def _assignment(names: Sequence[str], assigned: Sequence[Sequence[TaskId]]) -> Assignment:
    return Assignment(
        tuple(InstanceTasks(name, tuple(sorted(tasks))) for name, tasks in zip(names, assigned, strict=True))
    )


# -- the load of an assignment


@dataclass(frozen=True)
class LoadShare:
    """The ``load`` of an instance's tasks, in the unit of the measurement, and its ``share`` of all load, 0 to 1."""

    instance: str
    tasks: tuple[TaskId, ...]
    load: int
    share: float


@dataclass(frozen=True)
class LoadPlan:
    """Kafka Streams' assignment, which counts tasks, beside an assignment by measured load.

    Attributes:
        load: The records, or bytes, of each stream task in the same time.
        by_count: Kafka Streams' assignment.
        by_load: The assignment by load.
    """

    load: Mapping[TaskId, int]
    by_count: Assignment
    by_load: Assignment

    def shares(self, assignment: Assignment) -> tuple[LoadShare, ...]:
        """The load of each instance, in their order. All shares are 0 if there is no load."""
        total = sum(self.load.values())
        loads = [sum(self.load[task] for task in assigned.tasks) for assigned in assignment.instances]
        return tuple(
            LoadShare(assigned.instance, assigned.tasks, load, load / total if total else 0.0)
            for assigned, load in zip(assignment.instances, loads, strict=True)
        )

    def remarks(self) -> tuple[str, ...]:
        """Sentences that compare the two assignments; none where there is nothing to compare."""
        total, count = sum(self.load.values()), len(self.by_count.instances)
        if not total or count == 1:
            return ()
        busiest = max(self.shares(self.by_count), key=lambda share: share.load)
        least = max(self.shares(self.by_load), key=lambda share: share.load)
        hottest = max(self.load, key=lambda task: self.load[task])
        remarks = [
            f"By tasks, {busiest.instance} has {busiest.share:.0%} of the load, "
            f"{busiest.share * count:.1f} times an even share of {1 / count:.0%}."
        ]
        if least.load < busiest.load:
            remarks.append(
                f"By load the busiest would have {least.share:.0%}. Kafka Streams does not assign by load; "
                "that needs a task.assignor.class of your own."
            )
        else:
            remarks.append("By load it would be no better.")
        if self.load[hottest] * count > total:
            remarks.append(
                f"Stream task {hottest} alone is {self.load[hottest] / total:.0%}, and a stream task is not divided: "
                "no assignment gives its instance less. More partitions help where many keys share this one; "
                "a single hot key stays in one partition, and needs another key."
            )
        return tuple(remarks)


def plan_load(load: Mapping[TaskId, int], instances: int | Sequence[str], *, stateful: Collection[TaskId]) -> LoadPlan:
    """Compare Kafka Streams' assignment with one by load.

    Args:
        load: The load of every stream task; 0 for a task without any.
        instances: Their names, or their number.
        stateful: The stream tasks with a changelog.
    """
    return LoadPlan(load, assign(load, instances, stateful=stateful), assign_by_load(load, instances))


# -- the message


def large_assignment(topology: Topology, partition_counts: Mapping[str, int]) -> tuple[Diagnostic, ...]:
    """Return a warning where the JVM library could not run an instance for each stream task, which is the most of use.

    It concerns the JVM library alone, whose instances are members of the group, each with its assignment. An aggregator
    is one member, whatever its number of executors.

    See :func:`metadata_size` for what is measured. The size is that without ``application.server``, which is not set by
    default. With it the limit comes much earlier.

    Returns:
        The warning, which names the number of instances from which on no rebalance would succeed; else nothing.
    """
    tasks = len(topics_of_tasks(topology, partition_counts))

    def size(instances: int) -> int:
        return group_metadata_size(topology, partition_counts, instances=instances)

    if not tasks or size(tasks) <= MAX_MESSAGE_BYTES:
        return ()
    first = bisect_right(range(1, tasks + 1), MAX_MESSAGE_BYTES, key=size) + 1
    return (
        Diagnostic(
            topology.processors.nodes[0].location,
            f"with the JVM library, {topology.application_id} could not have {first:,} instances or more for its "
            f"{tasks:,} stream tasks: with {first:,} the group's metadata are {size(first):,} bytes, and "
            f"__consumer_offsets takes {MAX_MESSAGE_BYTES:,} by default (max.message.bytes). No rebalance would "
            "succeed (RecordTooLargeException)",
            "An aggregator of Streamplan is one member of the group, and does not meet this limit. For the JVM "
            "library, give repartition topics shorter explicit names (name='…'), or take fewer partitions",
        ),
    )


def group_metadata_size(
    topology: Topology,
    partition_counts: Mapping[str, int],
    *,
    instances: int,
    application_server: str = "",
    first: bool = False,
) -> int:
    """The :func:`metadata_size` of a topology. ``partition_counts`` has the names in Kafka."""
    topics = topics_of_tasks(topology, partition_counts)
    return metadata_size(
        topology.application_id,
        topics,
        stateful_tasks(topology, topics),
        instances=instances,
        application_server=application_server,
        first=first,
    )


def metadata_size(
    application_id: str,
    topics: Mapping[TaskId, Sequence[str]],
    stateful: Collection[TaskId],
    *,
    instances: int,
    application_server: str = "",
    first: bool = False,
) -> int:
    """The bytes of the batch in which the coordinator writes the group's metadata to ``__consumer_offsets``.

    At the end of each rebalance the leader sends every member's assignment to the coordinator. The coordinator writes
    the assignments, with every member's subscription, into a single record (``GroupMetadataValue``), by default without
    compression. Beyond ``max.message.bytes`` the log refuses the record, and the rebalance fails for every member. No
    earlier message is so near its limit: a request may have 100 MB, and a member is told its own part alone.

    The size is that of members that connect by IPv4 and have no ``client.id``, ``group.instance.id`` or ``client.rack``
    of their own, under ``group.protocol=classic``, the default.

    Args:
        application_id: Kafka Streams' ``application.id``.
        topics: By stream task the topics, by their names in Kafka, of which it reads its partition.
        stateful: The stream tasks with a changelog.
        instances: The members of the group: instances of one thread each, or threads.
        application_server: An example of the instances' ``application.server``, as ``host:port``. With it each member
            is told the partitions of every other, and the size grows with the square of the instances.
        first: The size after the very first rebalance. By default it is that of a working group, where each member
            names the partitions that it owns and the tasks whose state it has.
    """
    assignment = assign(topics, instances, stateful=stateful)
    read = [Counter(topic for task in member.tasks for topic in topics[task]) for member in assignment.instances]
    hosts = _partitions_by_host(read, application_server) if application_server else _EMPTY_HOSTS
    subscribed = {topic for of_task in topics.values() for topic in of_task}

    # client.id defaults to <application.id>-<process id>; the coordinator appends another UUID for the member id.
    client_id = len(application_id) + 1 + _UUID + _THREAD
    member_id = client_id + 1 + _UUID
    named = _string(member_id) + _NULL_STRING + _string(client_id) + _string(_CLIENT_HOST)
    timeouts = 4 + 4
    members = 4
    for member, partitions in zip(assignment.instances, read, strict=True):
        stores = 0 if first else sum(task in stateful for task in member.tasks)
        subscription = _subscription(subscribed, Counter() if first else partitions, stores, application_server)
        assigned = 2 + _partitions(partitions) + 4 + assignment_info_size(partitions.total(), hosts)
        members += named + timeouts + 4 + subscription + 4 + assigned
    generation, timestamp = 4, 8
    header = 2 + _string(len("consumer")) + generation + _string(len("stream")) + _string(member_id) + timestamp
    return _batch(key=2 + _string(len(application_id)), value=header + members)


_EMPTY_HOSTS = 4 + 4 + 4
"""Bytes in ``AssignmentInfo`` of a dictionary of topics, partitions by host, standby partitions by host, all empty."""


def assignment_info_size(active_partitions: int, hosts: int = _EMPTY_HOSTS) -> int:
    """The bytes of ``AssignmentInfo.encode()``, version 11: a task id for each partition that a member reads."""
    versions, next_rebalance = 4 + 4, 8
    return versions + 4 + 12 * active_partitions + 4 + hosts + _ERROR_CODE + next_rebalance


def _partitions_by_host(read: Sequence[Mapping[str, int]], application_server: str) -> int:
    """Bytes of partitions by host: each topic's name once, then two numbers for each partition.

    Source: ``AssignmentInfo.encodeActiveAndStandbyHostPartitions``.
    """
    host = _string(len(application_server.rpartition(":")[0])) + 4
    dictionary = 4 + sum(4 + _string(len(topic)) for topic in {topic for topics in read for topic in topics})
    active = 4 + sum(host + 4 + 8 * sum(topics.values()) for topics in read)
    return dictionary + active + 4 + len(read) * (host + 4)


def _subscription(subscribed: Collection[str], owned: Mapping[str, int], stores: int, application_server: str) -> int:
    """``ConsumerProtocolSubscription`` version 3, its user data a ``SubscriptionInfoData`` version 11."""
    versions, process_id, unique_field, client_tags = 4 + 4, 16, 1, 4
    offset_sums = 4 + (4 + 4 + 8 + _NULL_STRING) * stores
    user_data = versions + process_id + 4 + len(application_server) + offset_sums + unique_field
    topics = 4 + sum(_string(len(topic)) for topic in subscribed)
    generation = 4
    return 2 + topics + 4 + user_data + _ERROR_CODE + client_tags + _partitions(owned) + generation + _NULL_STRING


def _partitions(counts: Mapping[str, int]) -> int:
    """An array of topics, each with an array of its partitions."""
    return 4 + sum(_string(len(topic)) + 4 + 4 * count for topic, count in counts.items())


def _string(length: int) -> int:
    return 2 + length


def _batch(key: int, value: int) -> int:
    """A batch of one record (``DefaultRecordBatch``, ``DefaultRecord``): 61 bytes, then lengths as varints."""
    attributes, timestamp_delta, offset_delta, headers = 1, 1, 1, 1
    body = attributes + timestamp_delta + offset_delta + _varint(key) + key + _varint(value) + value + headers
    return 61 + _varint(body) + body


def _varint(value: int) -> int:
    """Bytes of a zigzag varint of a number from 0."""
    return max(1, -(-(value << 1).bit_length() // 7))
