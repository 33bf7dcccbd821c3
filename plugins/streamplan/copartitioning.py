"""Partition counts: resolved and enforced as Kafka Streams does.

Source: ``RepartitionTopics`` and ``CopartitionedTopicsEnforcer`` in ``org.apache.kafka.streams.processor.internals``.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamplan.errors import Refused
from streamplan.topology import Topology


def resolve_partition_counts(topology: Topology, source_partitions: Mapping[str, int]) -> dict[str, int]:
    """Partitions of every topic the topology reads, by its undecorated name.

    A repartition topic takes the greatest count among the source topics of the sub-topologies that write to it.
    Raises :class:`Refused` when the count of a source topic is unknown.
    """
    counts: dict[str, int] = {}
    for topic in topology.source_topics:
        if topic not in source_partitions:
            raise Refused(
                f"source topic {topic}",
                expected="a number of partitions",
                observed="none",
                remedy=f"Declare it: source_partitions={{'{topic}': 2}}",
            )
        counts[topic] = source_partitions[topic]
    unresolved = list(topology.repartition_topics)
    while unresolved:
        for topic in tuple(unresolved):
            writers = [group for group in topology.subtopologies if topic in group.sink_topics]
            upstream = [counts.get(source) for group in writers for source in group.source_topics]
            known = [count for count in upstream if count is not None]
            if len(known) == len(upstream) > 0:
                counts[topic] = max(known)
                unresolved.remove(topic)
                break
        else:
            raise Refused(f"Unable to compute number of partitions of {', '.join(unresolved)}")
    return counts


def enforce_copartitioning(group: Mapping[str, int]) -> int:
    """The one partition count of topics that are read together, or :class:`Refused` naming each topic and its count."""
    if len(set(group.values())) != 1:
        listed = ", ".join(f"{topic} ({count})" for topic, count in sorted(group.items()))
        raise Refused(
            f"Following topics do not have the same number of partitions: [{listed}]",
            remedy="Topics that are read together need equal counts: repartition one of them.",
        )
    return next(iter(group.values()))
