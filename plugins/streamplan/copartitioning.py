"""Partition counts: resolved and enforced as Kafka Streams does.

Source: ``RepartitionTopics`` and ``CopartitionedTopicsEnforcer`` of ``org.apache.kafka.streams.processor.internals``,
with their words. Stricter in one point: the library enforces co-partitioning only in a topology with a repartition
topic. Without one it joins a stream and a table of different counts, wrongly and without a word; here it is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from streamplan.errors import Refused
from streamplan.processor_topology import Source
from streamplan.topology import Topology


def resolve_partition_counts(topology: Topology, external: Mapping[str, int]) -> dict[str, int]:
    """Partitions of every topic that the topology reads or writes, by its undecorated name.

    ``external`` has those of the topics from outside. One that is only written may be left out: it gets as many
    partitions as its writer has stream tasks. Raises :class:`Refused` naming every topic in question.
    """
    counts = _external_counts(topology, external)
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
    """Sets of topics, undecorated, that are joined with each other."""
    topic_of = {node.name: node.topic for node in topology.processors.nodes if isinstance(node, Source)}
    return tuple(frozenset(topic_of[name] for name in group) for group in topology.processors.copartition_groups)


def _external_counts(topology: Topology, external: Mapping[str, int]) -> dict[str, int]:
    missing = [topic for topic in topology.source_topics if topic not in external]
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
            expected=f"topics from outside: {', '.join(sorted(known))}",
            remedy="The counts of internal topics follow from those.",
        )
    if wrong := sorted(topic for topic, count in external.items() if count < 1):
        raise Refused(f"topic {', '.join(wrong)}", expected="at least 1 partition", observed=str(external[wrong[0]]))
    return dict(external)


def _resolve_repartition_topics(topology: Topology, counts: dict[str, int]) -> None:
    """A repartition topic takes the greatest count among the source topics of the sub-topologies that write it."""
    unresolved = [topic.name for topic in topology.repartition_topics if topic.name not in counts]
    while unresolved:
        for topic in unresolved:
            writers = [group for group in topology.subtopologies if topic in group.sink_topics]
            upstream = [counts.get(source) for group in writers for source in group.source_topics]
            known = [count for count in upstream if count is not None]
            if len(known) == len(upstream) > 0:
                counts[topic] = max(known)
                unresolved.remove(topic)
                break
        else:
            raise Refused(
                f"Failed to compute number of partitions for all repartition topics: {', '.join(unresolved)}",
                remedy="Give one of them repartition(number_of_partitions=…).",
            )


def _enforce(
    topology: Topology, group: frozenset[str], counts: dict[str, int], explicit: Mapping[str, int]
) -> Iterable[str]:
    """``CopartitionedTopicsEnforcer.enforce``: sets the counts of the group's repartition topics, yields faults."""
    repartition = sorted(group & topology.internal_topics)
    outside = sorted(group - topology.internal_topics)
    if outside:
        if len({counts[topic] for topic in outside}) > 1:
            yield f"Topics not co-partitioned: [{_listed(outside, counts)}]"
            return
        count = counts[outside[0]]
    elif enforced := [topic for topic in repartition if topic in explicit]:
        if len({explicit[topic] for topic in enforced}) > 1:
            yield f"Following topics do not have the same number of partitions: [{_listed(repartition, counts)}]"
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
