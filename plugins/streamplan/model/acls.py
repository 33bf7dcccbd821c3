"""The access control lists that each part of a deployed pipeline needs on brokers with an authorizer, and no more.

The names of operations, resource types and patterns are those of Kafka's documentation ("Authorization and ACLs") and
of ``kafka-acls.sh``. ``Read``, ``Write``, ``Delete`` and ``Alter`` include ``Describe``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import Subtopology
from streamplan.model.topics import INTERNAL_ROLES, TopicRole, temporary_topic


class Role(StrEnum):
    """A part of a deployed pipeline that connects to the brokers.

    ``AGGREGATOR``: the driver and the executors of the streaming aggregator. ``PRODUCER``: the job that writes test
    data. ``CHECKS``: health checks, recounts and ``streamplan check``. ``DEPLOYER``: the tasks that create topics,
    purge repartition topics, stop and reset the application, and move it to more partitions. ``QUERIES``: ``streamplan
    serve``, and programs that ask the state stores.
    """

    AGGREGATOR = "aggregator"
    PRODUCER = "producer"
    CHECKS = "checks"
    DEPLOYER = "deployer"
    QUERIES = "queries"


class ResourceType(StrEnum):
    """What an entry is about."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional-id"


class Operation(StrEnum):
    """What an entry allows."""

    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    DELETE = "Delete"
    DESCRIBE = "Describe"
    DESCRIBE_CONFIGS = "DescribeConfigs"


@dataclass(frozen=True, order=True)
class AclEntry:
    """One operation on one resource.

    Attributes:
        resource_type: The type of the resource.
        name: Its name, or the prefix of its name.
        operation: What is allowed.
        prefixed: Whether ``name`` is a prefix.
        reason: What it is needed for.
    """

    resource_type: ResourceType
    name: str
    operation: Operation
    prefixed: bool = False
    reason: str = field(default="", compare=False)


def required_acls(pipeline: Pipeline, role: Role) -> tuple[AclEntry, ...]:
    """Return the entries that a role needs for a pipeline, in the order of the resources. No entry includes another."""
    entries = {
        Role.AGGREGATOR: _aggregator,
        Role.PRODUCER: _producer,
        Role.CHECKS: _checks,
        Role.DEPLOYER: _deployer,
        Role.QUERIES: _queries,
    }[role](pipeline)
    return tuple(dict.fromkeys(entries))


def _aggregator(pipeline: Pipeline) -> Iterable[AclEntry]:
    topology = pipeline.topology
    application_id = topology.application_id
    for subtopology in topology.subtopologies:
        for topic in pipeline.source_topics(subtopology):
            yield _topic(topic, Operation.READ, f"sub-topology {subtopology.id} reads it")
        for topic in subtopology.global_topics:
            yield _topic(topic, Operation.READ, f"sub-topology {subtopology.id} reads it as a global table")
        for topic in _outputs(pipeline, subtopology):
            yield _topic(topic, Operation.WRITE, f"sub-topology {subtopology.id} writes it")
        for store in subtopology.stores:
            yield _topic(topology.changelog_topic(store), Operation.READ, "the state is restored from it")
    yield _topic(topology.dead_letter_topic, Operation.WRITE, "records that cannot be processed")
    yield _topic(topology.dead_letter_topic, Operation.READ, "a re-drive processes them again")
    yield AclEntry(
        ResourceType.GROUP, application_id, Operation.READ, reason="membership and the positions of the stream tasks"
    )
    yield AclEntry(
        ResourceType.TRANSACTIONAL_ID,
        f"{application_id}-",
        Operation.WRITE,
        prefixed=True,
        reason="the transactions of the stream tasks, the claim, and a re-drive",
    )


def _producer(pipeline: Pipeline) -> Iterable[AclEntry]:
    if pipeline.test_data is None:
        return
    for topic in sorted(pipeline.test_data.topics):
        yield _topic(topic, Operation.WRITE, "test data")
        yield _topic(topic, Operation.READ, "how many records of the test data are there")
    yield AclEntry(
        ResourceType.TRANSACTIONAL_ID,
        pipeline.producer_transactional_id,
        Operation.WRITE,
        reason="every record is written once",
    )


def _checks(pipeline: Pipeline) -> Iterable[AclEntry]:
    for spec in pipeline.declared_topics():
        yield _topic(spec.name, Operation.READ, "records are counted and compared")
        yield _topic(spec.name, Operation.DESCRIBE_CONFIGS, "its configs are judged")
    if pipeline.upgrade_from is not None:
        yield from _checks_of_upgrade(pipeline, pipeline.upgrade_from)
    yield AclEntry(
        ResourceType.GROUP, pipeline.topology.application_id, Operation.DESCRIBE, reason="positions and members"
    )


def _deployer(pipeline: Pipeline) -> Iterable[AclEntry]:
    application_id = pipeline.topology.application_id
    moves = bool(pipeline.repartition_from)
    specs = pipeline.declared_topics()
    internal = [spec for spec in specs if spec.role in INTERNAL_ROLES]
    consumed = {topic for group in pipeline.topology.subtopologies for topic in pipeline.source_topics(group)}
    for spec in specs:
        if spec.owned:
            yield _topic(spec.name, Operation.CREATE, "it is created where it does not exist")
        yield _topic(spec.name, Operation.DESCRIBE_CONFIGS, "it is compared with its declaration")
        if spec in internal:
            reason = "a reset deletes it"
            if spec.role is TopicRole.REPARTITION and pipeline.purge:
                reason = "a purge deletes its verified records, a reset the topic"
            yield _topic(spec.name, Operation.DELETE, reason)
        if spec.name in consumed:
            yield _topic(spec.name, Operation.READ, "a stop commits its positions again")
        elif spec not in internal:
            yield _topic(spec.name, Operation.DESCRIBE, "it is compared with its declaration")
        if moves and spec.owned:
            if spec.name not in consumed:
                yield _topic(spec.name, Operation.READ, "its records are moved")
            yield _topic(spec.name, Operation.WRITE, "its records are moved")
    if moves:
        for operation in (Operation.READ, Operation.DELETE):
            yield AclEntry(
                ResourceType.GROUP,
                pipeline.repartition_group,
                operation,
                reason="its positions say how far a move is",
            )
        for old in pipeline.repartition_from.values():
            yield _topic(old, Operation.READ, "its records are moved")
            yield _topic(old, Operation.DESCRIBE_CONFIGS, "it is compared with its successor")
        for temporary in map(temporary_topic, internal):
            for operation in (
                Operation.CREATE,
                Operation.READ,
                Operation.WRITE,
                Operation.DELETE,
                Operation.DESCRIBE_CONFIGS,
            ):
                yield _topic(
                    temporary.name, operation, "it holds the records of an internal topic while that is made again"
                )
    if pipeline.upgrade_from is not None:
        yield from _upgrade(pipeline, pipeline.upgrade_from)
    yield AclEntry(ResourceType.GROUP, application_id, Operation.READ, reason="a stop commits positions again")
    yield AclEntry(ResourceType.GROUP, application_id, Operation.DELETE, reason="a reset deletes the positions")
    yield AclEntry(
        ResourceType.TRANSACTIONAL_ID,
        f"{application_id}-",
        Operation.WRITE,
        prefixed=True,
        reason="whoever runs is fenced before a stop, a reset or a move",
    )


def _queries(pipeline: Pipeline) -> Iterable[AclEntry]:
    for spec in pipeline.declared_topics():
        if spec.role is TopicRole.CHANGELOG and spec.is_of_store:
            yield _topic(spec.name, Operation.READ, "the state store is read from it")


def _checks_of_upgrade(pipeline: Pipeline, old: str) -> Iterable[AclEntry]:
    before = "the old one is looked at until the new one has taken over"
    for operation in (Operation.READ, Operation.DESCRIBE_CONFIGS):
        for staging in pipeline.staging_topics.values():
            yield _topic(staging, operation, "it has what was written before the application took over")
        yield AclEntry(ResourceType.TOPIC, f"{old}-", operation, prefixed=True, reason=before)
    yield AclEntry(ResourceType.GROUP, old, Operation.DESCRIBE, reason=before)


def _upgrade(pipeline: Pipeline, old: str) -> Iterable[AclEntry]:
    for staging in pipeline.staging_topics.values():
        for operation in (Operation.CREATE, Operation.WRITE, Operation.DELETE, Operation.DESCRIBE_CONFIGS):
            yield _topic(staging, operation, "it takes what is written until the application takes over")
    compared = "the stores of the old one are compared"
    for operation in (Operation.READ, Operation.DESCRIBE_CONFIGS):
        yield AclEntry(ResourceType.TOPIC, f"{old}-", operation, prefixed=True, reason=compared)
    yield AclEntry(ResourceType.GROUP, old, Operation.READ, reason="the old one ends at its positions")
    yield AclEntry(
        ResourceType.TRANSACTIONAL_ID, f"{old}-", Operation.WRITE, prefixed=True, reason="the old one is fenced"
    )


def _outputs(pipeline: Pipeline, subtopology: Subtopology) -> Sequence[str]:
    topology = pipeline.topology
    changelogs = [topology.changelog_topic(store) for store in subtopology.stores]
    return [*dict.fromkeys(topology.decorate(topic) for topic in subtopology.sink_topics), *changelogs]


def _topic(name: str, operation: Operation, reason: str) -> AclEntry:
    return AclEntry(ResourceType.TOPIC, name, operation, reason=reason)
