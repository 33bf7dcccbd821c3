"""Names and assignment size: does the application stay below the limits beyond which Kafka refuses it?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain

from streamplan.checks.framework.advice import Advice
from streamplan.checks.framework.application import Application
from streamplan.checks.framework.check import FOR_INFORMATION, Check, Observation, limit
from streamplan.kafka_port import Cluster
from streamplan.model.assignment import MAX_MESSAGE_BYTES, metadata_size
from streamplan.model.diagnostics import MAX_NAME_LENGTH
from streamplan.model.processor_topology import TaskId
from streamplan.model.topics import TopicRole

NEAR_PERCENT = 95
"""The percentage of a limit that may be used. Above it, the next store or topic could exceed the limit."""

GROUPS_TOPIC = "__consumer_offsets"

_NAMED_BY_OTHERS = (TopicRole.SOURCE, TopicRole.SINK)


class NamesCheck(Check):
    """Looks at the lengths of derived names, at names that collide, and at the size of the group's metadata."""

    name = "names"
    title = "Names and assignment size"
    healthy = (
        "The names of internal topics and the group's metadata are below 95% of Kafka's limits, and no topic has a name"
        " that Kafka takes for the name of another topic."
    )
    advice = Advice.NAMES

    def observe(self, application: Application, cluster: Cluster) -> Iterable[Observation]:
        """Observe names and metadata; see :class:`Check`."""
        existing = cluster.names()
        unit = f" of {MAX_NAME_LENGTH}"
        for spec in application.topics:
            if spec.role not in _NAMED_BY_OTHERS:
                yield limit(f"{spec.name}: length of the name", len(spec.name), _near(MAX_NAME_LENGTH), unit)
        yield from _collisions({spec.name for spec in application.topics}, existing)
        if application.declared and all(spec.partitions for spec in application.topics):
            yield _metadata(application, cluster)


def _near(limit: int) -> int:
    return limit * NEAR_PERCENT // 100


def _collisions(application_topics: set[str], existing: Iterable[str]) -> Iterable[Observation]:
    """Yield the topics that metrics cannot tell from the application's: in names of metrics ``.`` becomes ``_``.

    Kafka refuses to create the second of two such topics (``Topic.hasCollision``, ``ReplicationControlManager``), so
    that a topic of the application may never exist. Older versions of Kafka only warn.
    """
    alike: Mapping[str, set[str]] = defaultdict(set)
    for name in chain(application_topics, existing):
        alike[name.replace(".", "_")].add(name)
    subject = "topics whose names differ from {} in '.' and '_' alone"
    yield Observation(
        subject.format("the application's"),
        0,
        sum(len(names) - 1 for names in alike.values() if names & application_topics),
    )
    for names in alike.values():
        for name in sorted(names & application_topics):
            if others := sorted(names - {name}):
                yield Observation(subject.format(name), "none", ", ".join(others), advice=Advice.COLLISION)


def _metadata(application: Application, cluster: Cluster) -> Observation:
    """Compare the size of the group's metadata with the limit, for an instance for each stream task.

    More instances than that are of no use. A discovered application may always run with far fewer instances, and how
    many it has is not known here. So this row is for declared applications.
    """
    partitions = {spec.name: spec.partitions for spec in application.topics}
    topics = {
        TaskId(number, partition): tuple(name for name in subtopology.sources if partitions[name] > partition)
        for number, subtopology in enumerate(application.subtopologies)
        for partition in range(max((partitions[name] for name in subtopology.sources), default=0))
    }
    stateful = {task for task in topics if application.subtopologies[task.subtopology].changelogs}
    size = metadata_size(application.application_id, topics, stateful, instances=len(topics))
    groups = cluster.topics([GROUPS_TOPIC]).get(GROUPS_TOPIC)
    most = int(groups.configs.get("max.message.bytes", MAX_MESSAGE_BYTES)) if groups else MAX_MESSAGE_BYTES
    row = limit(
        f"group {application.application_id}: its metadata in {GROUPS_TOPIC} with {len(topics):,} instances,"
        f" one a stream task (max.message.bytes={most:,})",
        size,
        _near(most),
        " bytes",
    )
    remedy = (
        "beyond the limit no rebalance succeeds: give repartition topics shorter explicit names, take fewer partitions,"
        " or split the service into several"
    )
    if row.agrees:
        return row
    members = cluster.members(application.application_id) or ()
    if any(member.instance is not None for member in members):
        # An aggregator is the one member of its group. Its stream tasks are not assigned by way of the group.
        remark = f"{row.subject}; that is beyond the limit for instances of the JVM library alone, and none runs here"
        return Observation(remark, FOR_INFORMATION, FOR_INFORMATION)
    return Observation(row.subject, row.expected, row.observed, remedy)


CHECK = NamesCheck()
