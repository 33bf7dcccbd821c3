"""Which sub-topologies read what other ones write."""

from __future__ import annotations

from typing import TypeAlias

from streamplan.model.operations import SubscriptionReceive, SubscriptionSend
from streamplan.model.processor_topology import Subtopology
from streamplan.model.topology import Topology

Flow: TypeAlias = tuple[str, int]
"""A topic in Kafka, and the id of a sub-topology that writes it. Another sub-topology reads it."""


def upstream_of(subtopology: Subtopology, topology: Topology) -> set[int]:
    """Return the ids of the sub-topologies that write what this one reads.

    A join by a foreign key reads the responses to its own subscriptions. Who responds comes after it.
    """
    return {writer for _, writer in flows_into(subtopology, topology)}


def flows_into(subtopology: Subtopology, topology: Topology) -> set[Flow]:
    """Return what a sub-topology reads and others write before it. Several may write one topic."""
    return {
        (topology.decorate(topic), writer.id)
        for writer in topology.subtopologies
        if subtopology not in subscribers_of(writer, topology)
        for topic in set(writer.sink_topics) & set(subtopology.source_topics)
    }


def subscribers_of(responder: Subtopology, topology: Topology) -> list[Subtopology]:
    """Return the sub-topologies with the joins by a foreign key whose subscriptions a sub-topology responds to."""
    sent = {
        topic
        for node in responder.processors_with(SubscriptionReceive)
        for topic in _topics_before(node.name, responder)
    }
    return [
        each
        for each in topology.subtopologies
        if each.processors_with(SubscriptionSend) and sent & set(each.sink_topics)
    ]


def responders_of(subscriber: Subtopology, topology: Topology) -> list[Subtopology]:
    """Return for each join by a foreign key the sub-topology that responds to its subscriptions, in their order.

    Args:
        subscriber: Sends the subscriptions. It need not send any.
    """
    found = []
    for node in subscriber.processors_with(SubscriptionSend):
        sent = {sink.topic for sink in subscriber.sinks if node.name in subscriber.predecessors[sink.name]}
        found.append(next(each for each in topology.subtopologies if sent & set(each.source_topics)))
    return found


def _topics_before(name: str, subtopology: Subtopology) -> set[str]:
    return {source.topic for source in subtopology.sources if source.name in subtopology.predecessors[name]}
