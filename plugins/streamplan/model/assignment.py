"""Stream tasks shared among the instances of an application, and the message in which a group is told of them.

Source: ``HighAvailabilityTaskAssignor``, Kafka Streams' default, ``StreamsPartitionAssignor`` and ``AssignmentInfo`` of
``org.apache.kafka.streams.processor.internals``; tests/integration/model/test_oracle_assignment.py compares with them.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from streamplan.errors import Refused
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
    """The stream tasks of an instance, in their order; none when it is idle."""

    instance: str
    tasks: tuple[TaskId, ...]


@dataclass(frozen=True)
class Assignment:
    """Every instance with its stream tasks."""

    instances: tuple[InstanceTasks, ...]

    @property
    def idle(self) -> tuple[str, ...]:
        """The instances without a stream task."""
        return tuple(one.instance for one in self.instances if not one.tasks)


# -- which tasks an instance gets


def topics_of_tasks(topology: Topology, partition_counts: Mapping[str, int]) -> dict[TaskId, tuple[str, ...]]:
    """Every stream task in order, with the topics, named as in Kafka, of which it reads its own partition.

    ``partition_counts``  by the name in Kafka. (``PartitionGrouper``)
    """
    tasks: dict[TaskId, tuple[str, ...]] = {}
    for subtopology in topology.subtopologies:
        topics = tuple(dict.fromkeys(topology.decorate(topic) for topic in subtopology.source_topics))
        for partition in range(max((partition_counts[topic] for topic in topics), default=0)):
            read = tuple(topic for topic in topics if partition_counts[topic] > partition)
            tasks[TaskId(subtopology.id, partition)] = read
    return tasks


def stateful_tasks(topology: Topology, tasks: Iterable[TaskId]) -> frozenset[TaskId]:
    """Those of the sub-topologies with a changelog. (``ChangelogTopics.statefulTaskIds``)"""
    stateful = {subtopology.id for subtopology in topology.subtopologies if subtopology.stores}
    return frozenset(task for task in tasks if task.subtopology in stateful)


def assign(tasks: Iterable[TaskId], instances: int | Sequence[str], *, stateful: Collection[TaskId]) -> Assignment:
    """What each instance gets when all start afresh, with one thread each. (``HighAvailabilityTaskAssignor``)

    The stateful tasks are dealt one by one, in the order of their ids, to the instances in turn. Then each stateless
    task goes to the instance that has the fewest tasks so far, of equals the first.

    ``instances``  their names, or how many (``instance-1``, ...). The library takes them in the order of their process
                   ids: random UUIDs, compared as ``java.util.UUID`` does, by two signed halves. So the first name
                   here stands for the instance whose process id happens to be the least.

    "Afresh" means that no instance holds state or owns a partition, and that all have joined before the first
    assignment; one that joins later takes over tasks by and by, and who had a task's state keeps it. Standby replicas
    and rack awareness are off, as by default. Raises :class:`Refused` without instances.
    """
    names, tasks, stateful = _names(instances), sorted(tasks), frozenset(stateful)
    held: list[list[TaskId]] = [[] for _ in names]
    for number, task in enumerate(task for task in tasks if task in stateful):
        held[number % len(names)].append(task)
    # Dealt in turn they differ by one task at most, which the library's next step, moving tasks, leaves alone.
    queue = [(len(own), number) for number, own in enumerate(held)]
    heapq.heapify(queue)
    for task in tasks:
        if task not in stateful:
            count, number = queue[0]
            held[number].append(task)
            heapq.heapreplace(queue, (count + 1, number))
    return _assignment(names, held)


def assign_by_load(load: Mapping[TaskId, int], instances: int | Sequence[str]) -> Assignment:
    """The tasks by their load, longest processing time first: each to the instance with the least load so far.

    For comparison with :func:`assign`; Kafka Streams weighs nothing. The busiest instance has at most 4/3 of the least
    load that any assignment could give it (Graham 1969). Of equal loads the one with fewer tasks, then the first.
    """
    names = _names(instances)
    held: list[list[TaskId]] = [[] for _ in names]
    queue = [(0, 0, number) for number in range(len(names))]
    for task in sorted(load, key=lambda task: (-load[task], task)):
        total, count, number = queue[0]
        held[number].append(task)
        heapq.heapreplace(queue, (total + load[task], count + 1, number))
    return _assignment(names, held)


def _names(instances: int | Sequence[str]) -> tuple[str, ...]:
    if isinstance(instances, int):
        instances = [f"instance-{number}" for number in range(1, instances + 1)]
    if not instances:
        raise Refused("instances", expected="1 or more", observed="none")
    return tuple(instances)


def _assignment(names: Sequence[str], held: Sequence[Sequence[TaskId]]) -> Assignment:
    return Assignment(tuple(InstanceTasks(name, tuple(sorted(own))) for name, own in zip(names, held, strict=True)))


# -- what that means in work


@dataclass(frozen=True)
class LoadShare:
    """``load`` of an instance's tasks, in the unit of the measurement, and its ``share`` of all, 0 to 1."""

    instance: str
    tasks: tuple[TaskId, ...]
    load: int
    share: float


@dataclass(frozen=True)
class LoadPlan:
    """Kafka Streams' assignment, which counts tasks, beside one by measured load.

    ``load``  records, or bytes, of each stream task over the same time
    """

    load: Mapping[TaskId, int]
    by_count: Assignment
    by_load: Assignment

    def shares(self, assignment: Assignment) -> tuple[LoadShare, ...]:
        """In the order of the instances. All 0 where there is no load."""
        total = sum(self.load.values())
        loads = [sum(self.load[task] for task in one.tasks) for one in assignment.instances]
        return tuple(
            LoadShare(one.instance, one.tasks, load, load / total if total else 0.0)
            for one, load in zip(assignment.instances, loads, strict=True)
        )

    def remarks(self) -> tuple[str, ...]:
        """What to make of it, in sentences."""
        total, count = sum(self.load.values()), len(self.by_count.instances)
        if not total or count == 1:
            return ()
        busiest = max(self.shares(self.by_count), key=lambda share: share.load)
        least = max(self.shares(self.by_load), key=lambda share: share.load)
        hottest = max(self.load, key=lambda task: self.load[task])
        said = [
            f"By tasks, {busiest.instance} has {busiest.share:.0%} of the load, "
            f"{busiest.share * count:.1f} times an even share of {1 / count:.0%}."
        ]
        if least.load < busiest.load:
            said.append(
                f"By load the busiest would have {least.share:.0%}. Kafka Streams does not assign by load; "
                "that needs a task.assignor.class of your own."
            )
        else:
            said.append("By load it would be no better.")
        if self.load[hottest] * count > total:
            said.append(
                f"Stream task {hottest} alone is {self.load[hottest] / total:.0%}, and a stream task is not divided: "
                "no assignment gives its instance less. More partitions help where many keys share this one; "
                "a single hot key stays in one partition, and needs another key."
            )
        return tuple(said)


def plan_load(load: Mapping[TaskId, int], instances: int | Sequence[str], *, stateful: Collection[TaskId]) -> LoadPlan:
    """``load`` names every stream task; one that had none has 0."""
    return LoadPlan(load, assign(load, instances, stateful=stateful), assign_by_load(load, instances))


# -- the message


def refuse_large_assignment(topology: Topology, partition_counts: Mapping[str, int]) -> None:
    """Raise :class:`Refused` when the group could not grow to one instance a stream task.

    See :func:`group_metadata_size` for what is measured. One instance a stream task is the most that is of use. No
    ``application.server`` is reckoned with, since it is not set by default; with one, the limit comes much earlier.
    """
    count = len(topics_of_tasks(topology, partition_counts))
    size = group_metadata_size(topology, partition_counts, instances=count)
    if size > MAX_MESSAGE_BYTES:
        raise Refused(
            f"application {topology.application_id}: its group's metadata with {count:,} instances, one a stream task",
            expected=f"at most {MAX_MESSAGE_BYTES:,} bytes (max.message.bytes of __consumer_offsets)",
            observed=f"{size:,} bytes; no rebalance would succeed (RecordTooLargeException)",
            remedy="Each instance adds the names of all topics that the application reads: give repartition topics "
            "shorter explicit names (name='…'), take fewer partitions, or split the service into several.",
        )


def group_metadata_size(
    topology: Topology,
    partition_counts: Mapping[str, int],
    *,
    instances: int,
    application_server: str = "",
    first: bool = False,
) -> int:
    """:func:`metadata_size` of a topology. ``partition_counts``: by the name in Kafka."""
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
    """Bytes of the batch with which the coordinator writes the group's metadata to ``__consumer_offsets``.

    At the end of each rebalance the leader sends the coordinator every member's assignment, and the coordinator writes
    them with every member's subscription into a single record (``GroupMetadataValue``), without compression by default.
    Beyond ``max.message.bytes`` the log refuses it, and the rebalance fails for every member. Nothing before that is so
    near its limit: a request may have 100 MB, and a member is told its own part alone.

    ``topics``              by stream task those, named as in Kafka, of which it reads its partition
    ``stateful``            tasks with a changelog
    ``instances``           members of the group: instances of one thread each, or threads
    ``application_server``  an example of the instances' ``application.server``, ``host:port``. With it each member is
                            told the partitions of every other, and the size grows with the square of the instances
    ``first``               after the first rebalance of all; by default of a group at work, where each member names
                            the partitions that it owns and the tasks whose state it has

    Members connect by IPv4 and have no ``client.id``, ``group.instance.id`` or ``client.rack`` of their own. Only under
    ``group.protocol=classic``, the default.
    """
    assignment = assign(topics, instances, stateful=stateful)
    read = [Counter(topic for task in one.tasks for topic in topics[task]) for one in assignment.instances]
    hosts = _partitions_by_host(read, application_server) if application_server else _EMPTY_HOSTS
    subscribed = {topic for own in topics.values() for topic in own}

    # client.id defaults to <application.id>-<process id>; the coordinator appends another UUID for the member id.
    client_id = len(application_id) + 1 + _UUID + _THREAD
    member_id = client_id + 1 + _UUID
    named = _string(member_id) + _NULL_STRING + _string(client_id) + _string(_CLIENT_HOST)
    timeouts = 4 + 4
    members = 4
    for one, own in zip(assignment.instances, read, strict=True):
        stores = 0 if first else sum(task in stateful for task in one.tasks)
        subscription = _subscription(subscribed, Counter() if first else own, stores, application_server)
        assigned = 2 + _partitions(own) + 4 + assignment_info_size(own.total(), hosts)
        members += named + timeouts + 4 + subscription + 4 + assigned
    generation, timestamp = 4, 8
    header = 2 + _string(len("consumer")) + generation + _string(len("stream")) + _string(member_id) + timestamp
    return _batch(key=2 + _string(len(application_id)), value=header + members)


_EMPTY_HOSTS = 4 + 4 + 4
"""Of ``AssignmentInfo``: a dictionary of topics, partitions by host, standby partitions by host, all empty."""


def assignment_info_size(active_partitions: int, hosts: int = _EMPTY_HOSTS) -> int:
    """Bytes of ``AssignmentInfo.encode()``, version 11: one task id for each partition that a member reads."""
    versions, next_rebalance = 4 + 4, 8
    return versions + 4 + 12 * active_partitions + 4 + hosts + _ERROR_CODE + next_rebalance


def _partitions_by_host(read: Sequence[Mapping[str, int]], application_server: str) -> int:
    """``encodeActiveAndStandbyHostPartitions``: names once in a dictionary, then two numbers for each partition."""
    host = _string(len(application_server.rpartition(":")[0])) + 4
    dictionary = 4 + sum(4 + _string(len(topic)) for topic in {topic for own in read for topic in own})
    active = 4 + sum(host + 4 + 8 * sum(own.values()) for own in read)
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
