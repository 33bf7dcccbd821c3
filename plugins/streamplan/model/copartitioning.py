"""Partition counts, resolved and enforced as Kafka Streams does.

Source: ``RepartitionTopics``, ``CopartitionedTopicsEnforcer`` and ``InternalTopologyBuilder`` of
``org.apache.kafka.streams.processor.internals``, with their error messages. An integration test compares with the
library. This module is stricter in three points, where the library joins wrongly and reports nothing:

- The library enforces co-partitioning only in a topology with a repartition topic. Without one it joins a stream and a
  table of different counts.
- If a topic is read twice, the library forgets the joins of the second reading. If a join connects two groups of topics
  that were joined before, it does not unite the groups wholly.
- Of several streams that are folded into one store, the library compares the topics before their repartition topics,
  and not these. They have equal counts here, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from streamplan.errors import Refused, did_you_mean
from streamplan.model.java_collections import hash_order, objects_hash, string_hash
from streamplan.model.operations import (
    Aggregate,
    Count,
    StateStore,
    StoreForJoin,
    VersionedStateStore,
    VersionedTableSource,
)
from streamplan.model.processor_topology import Source, Subtopology
from streamplan.model.topology import Topology


def resolve_partition_counts(topology: Topology, external: Mapping[str, int]) -> dict[str, int]:
    """The partition count of every topic that the topology reads or writes.

    Args:
        external: The partition counts of the topics from outside. A topic that is only written may be left out: it gets
            as many partitions as its writer has stream tasks.

    Returns:
        The counts by the names of the declaration, so that internal topics have no prefix.

    Raises:
        Refused: A count is missing, or topics that are joined have different counts. The error names every such topic.
    """
    refuse_wrong_counts(topology, external)
    counts = dict(external)
    explicit = {
        topic.name: topic.number_of_partitions
        for topic in topology.repartition_topics
        if topic.number_of_partitions is not None
    }
    counts |= explicit
    _resolve_repartition_topics(topology, counts)
    faults = [fault for group in copartition_groups(topology) for fault in _enforce(topology, group, counts, explicit)]
    if faults:
        raise Refused(
            f"Invalid topology: {'; '.join(faults)}",
            remedy="Topics that are read together need equal partition counts: put repartition(number_of_partitions=…) "
            "before the join, or create the topics alike.",
        )
    for subtopology in topology.subtopologies:
        tasks = max(counts[topic] for topic in subtopology.source_topics)
        for topic in subtopology.sink_topics:
            counts.setdefault(topic, tasks)
    return counts


def copartition_groups(topology: Topology) -> tuple[frozenset[str], ...]:
    """Sets of topics that are joined with each other, directly or through others, by the names of the declaration."""
    topic_of = {node.name: node.topic for node in topology.processors.nodes if isinstance(node, Source)}
    groups: list[frozenset[str]] = []
    for sources in topology.processors.copartition_groups:
        joined = frozenset(topic_of[name] for name in sources)
        apart = [group for group in groups if not group & joined]
        groups = [*apart, joined.union(*(group for group in groups if group & joined))]
    return tuple(groups)


def refuse_wrong_counts(topology: Topology, external: Mapping[str, int], unknown: Collection[str] = ()) -> None:
    """Refuse partition counts of topics from outside that cannot be right.

    Args:
        external: The partition counts.
        unknown: Source topics whose counts are not known yet.

    Raises:
        Refused: A count is missing, below 1, or that of another topic.
    """
    missing = [topic for topic in topology.source_topics if topic not in external and topic not in unknown]
    if missing:
        listed = ", ".join(f"'{topic}': 2" for topic in missing)
        raise Refused(
            f"source topic {', '.join(missing)}",
            expected="a number of partitions",
            observed="none",
            remedy=f"Declare it: topic_partitions={{{listed}}}",
        )
    known = {*topology.source_topics, *topology.sink_topics}
    if strangers := sorted(external.keys() - known):
        raise Refused(
            f"topic_partitions names {', '.join(strangers)}",
            expected=f"source and sink topics: {', '.join(sorted(known)) or 'none'}",
            remedy=". ".join(
                filter(
                    None,
                    ["The counts of internal topics follow from those", did_you_mean(strangers[0], sorted(known))],
                )
            ),
        )
    if wrong := sorted(topic for topic, count in external.items() if count < 1):
        raise Refused(
            f"topic {', '.join(wrong)}",
            expected="at least 1 partition",
            observed=str(external[wrong[0]]),
            remedy="Declare how many it is to have",
        )


def _resolve_repartition_topics(topology: Topology, counts: dict[str, int]) -> None:
    """Give each repartition topic the greatest count of the source topics of the sub-topologies that write it.

    Only the counts that are known when the topic is resolved are compared. If a writer also reads another repartition
    topic, the result depends on the order of resolution, which is that of hash codes in the library
    (``RepartitionTopics.setRepartitionSourceTopicPartitionCount``).
    """
    ordered = hash_order(topology.subtopologies, lambda subtopology: _hash(topology, subtopology))
    unresolved = [
        topic
        for subtopology in ordered
        for topic in hash_order(
            {topic for topic in subtopology.source_topics if topic in topology.internal_topics},
            lambda topic: string_hash(topology.decorate(topic)),
        )
        if topic not in counts
    ]
    while unresolved:
        still_unresolved = []
        for topic in unresolved:
            writers = [group for group in topology.subtopologies if topic in group.sink_topics]
            known = [counts[source] for group in writers for source in group.source_topics if source in counts]
            if known:
                counts[topic] = max(known)
            else:
                still_unresolved.append(topic)
        if still_unresolved == unresolved:
            raise Refused(
                f"Failed to compute number of partitions for all repartition topics: {', '.join(unresolved)}",
                remedy="Give one of them repartition(number_of_partitions=…).",
            )
        unresolved = still_unresolved


def _hash(topology: Topology, subtopology: Subtopology) -> int:
    """``TopicsInfo.hashCode`` of a sub-topology: it depends on its topics, and on its changelogs with their configs."""
    sources = sum(string_hash(topology.decorate(topic)) for topic in set(subtopology.source_topics))
    changelogs = 0
    for node in subtopology.processors:
        if node.writes_store and node.store is not None:
            topic = string_hash(topology.changelog_topic(node.store))
            configs, not_enforced = 0, 1237  # The hash codes of an empty map and of false.
            match node.operation:
                case Count(window=window) | Aggregate(window=window) if window is not None:
                    retention = window.retention_ms ^ window.retention_ms >> 32
                    changelogs += topic ^ objects_hash(topic, configs, retention, not_enforced)
                case StateStore(retention_ms=retention_ms, retain_duplicates=False) if retention_ms is not None:
                    retention = retention_ms ^ retention_ms >> 32
                    changelogs += topic ^ objects_hash(topic, configs, retention, not_enforced)
                case VersionedTableSource(history_ms=history_ms) | VersionedStateStore(history_ms=history_ms):
                    lag = history_ms ^ history_ms >> 32
                    changelogs += topic ^ objects_hash(topic, configs, lag, not_enforced)
                case StoreForJoin(windows=windows):
                    retention = windows.retention_ms ^ windows.retention_ms >> 32
                    configs = string_hash("cleanup.policy") ^ string_hash("delete")
                    changelogs += topic ^ objects_hash(topic, configs, retention, not_enforced)
                case _:
                    changelogs += topic ^ objects_hash(topic, configs, not_enforced)
    combined = _signed(sources, 32) << 32 | _signed(changelogs, 32)
    remainder = abs(_signed(combined, 64)) % 0xFFFFFFFF  # A remainder in Java has the sign of the dividend.
    return remainder if _signed(combined, 64) >= 0 else -remainder


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _enforce(
    topology: Topology, group: frozenset[str], counts: dict[str, int], explicit: Mapping[str, int]
) -> Iterable[str]:
    """Set the counts of a group's repartition topics, and yield the faults.

    Source: ``CopartitionedTopicsEnforcer.enforce``.
    """
    repartition = sorted(group & topology.internal_topics)
    outside = sorted(group - topology.internal_topics)
    if outside:
        if len({counts[topic] for topic in outside}) > 1:
            yield f"Topics not co-partitioned: [{_listed(outside, counts)}]"
            return
        count = counts[outside[0]]
    elif enforced := [topic for topic in repartition if topic in explicit]:
        if len({explicit[topic] for topic in enforced}) > 1:
            # Where all are explicit, the library says so when the topology is built, before it decorates names.
            names = {topic: topic if enforced == repartition else topology.decorate(topic) for topic in repartition}
            shown = {names[topic]: counts[topic] for topic in repartition}
            yield f"Following topics do not have the same number of partitions: [{_listed(shown, shown)}]"
            return
        count = explicit[enforced[0]]
    else:
        count = max(counts[topic] for topic in repartition)
    for topic in repartition:
        if topic not in explicit:
            counts[topic] = count
        elif counts[topic] != count:
            yield (
                f"Number of partitions [{counts[topic]}] of repartition topic [{topology.decorate(topic)}] "
                f"doesn't match number of partitions [{count}] of the source topic."
            )


def _listed(topics: Iterable[str], counts: Mapping[str, int]) -> str:
    return "{" + ", ".join(f"{topic}={counts[topic]}" for topic in topics) + "}"
