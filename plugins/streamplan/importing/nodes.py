"""The nodes of a description, and the repartition topics between them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from streamplan.errors import Refused
from streamplan.model.description import DescribedSubtopology

_GENERATED = re.compile(r"(K(?:STREAM|TABLE)-.+-|COGROUPKSTREAM-.+-|.+-STATE-STORE-)(\d{10})")
"""A name that the library gave (``newProcessorName``, ``newStoreName``): a prefix and a number."""

_REPARTITION = "-repartition"


def prefix_of(name: str) -> str:
    """The part of a name that the library gave before its number; empty for a name of the application's own."""
    match = _GENERATED.fullmatch(name)
    return match[1] if match else ""


def number_of(name: str) -> int | None:
    """The number in a name that the library gave; None for a name of the application's own."""
    match = _GENERATED.fullmatch(name)
    return int(match[2]) if match else None


@dataclass
class Node:
    """A node of a description.

    Attributes:
        name: Its name.
        subtopology: The number of its sub-topology.
        before: The names of the nodes before it; a source has none.
        after: The names of the nodes after it.
        stores: The state stores of a processor.
        topics: The topics of a source, or the topic of a sink.
        pattern: The regular expression of a source that has one instead of topics.
        is_sink: Whether it is a sink.
        has_buffer: Whether it has a buffer beside its stores: a join with a versioned table with a grace period.
    """

    name: str
    subtopology: int
    before: tuple[str, ...] = ()
    after: list[str] = field(default_factory=list)
    stores: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    is_sink: bool = False
    has_buffer: bool = False


@dataclass(frozen=True)
class DescribedRepartition:
    """A repartition topic of a description, with the nodes around it.

    Attributes:
        topic: Its name.
        upstream: The name of the node whose records go into the topic.
        null_key_filter: The name of the processor before the sink; empty where there is none.
        sink: The name of the sink.
        source: The name of the source.
        readers: The names of the nodes behind the source.
    """

    topic: str
    upstream: str
    null_key_filter: str
    sink: str
    source: str
    readers: tuple[str, ...]

    @property
    def prefix(self) -> str:
        """What the topic is called after: a grouping, a store, a node, or a name of the application's own."""
        return self.topic.removesuffix(_REPARTITION)

    @property
    def numbers(self) -> tuple[int | None, ...]:
        """The numbers of its nodes, in the order in which the library draws them."""
        return number_of(self.sink), number_of(self.null_key_filter), number_of(self.source)


def nodes_of(subtopologies: Sequence[DescribedSubtopology]) -> dict[str, Node]:
    """The nodes that stream tasks run, by their names. Each comes behind the nodes before it.

    Args:
        subtopologies: The sub-topologies of a description.

    Raises:
        Refused: A node is missing, so that the text cannot be complete.
    """
    nodes = {node.name: node for part in subtopologies if not part.is_global for node in _nodes_in(part)}
    sources = {source.name for part in subtopologies for source in part.sources}
    named = [name for part in subtopologies if not part.is_global for name in part.predecessors]
    for name in dict.fromkeys([*nodes, *named]):
        before = nodes[name].before if name in nodes else ()
        if name not in nodes or (name in sources) == bool(before) or any(each not in nodes for each in before):
            raise Refused(
                f"node {name} of the topology",
                expected="its line, and those of the nodes before it",
                observed=", ".join(before) or "none",
                remedy="Give all that System.out.println(topology.describe()) prints.",
            )
        for each in before:
            nodes[each].after.append(name)
    try:
        ordered = TopologicalSorter({name: node.before for name, node in nodes.items()}).static_order()
        return {name: nodes[name] for name in ordered}
    except CycleError as error:
        circle = ", ".join(error.args[1])
        raise Refused("the topology", expected="no node that is before itself", observed=circle) from error


def global_tables_of(subtopologies: Sequence[DescribedSubtopology]) -> dict[str, tuple[Node, Node]]:
    """The global tables, by the names of their processors: the source of each, and the processor.

    Another global store has a processor of the application's own, and is none of them.

    Args:
        subtopologies: The sub-topologies of a description.
    """
    found = {}
    for part in subtopologies:
        nodes = [*_nodes_in(part)] if part.is_global else []
        if len(nodes) == 2 and len(nodes[0].topics) == 1:
            source, processor = nodes
            if prefix_of(processor.name) == "KTABLE-SOURCE-" or source.name == f"{processor.name}-source":
                found[processor.name] = source, processor
    return found


def _nodes_in(part: DescribedSubtopology) -> Iterator[Node]:
    for source in part.sources:
        yield Node(source.name, part.id, part.predecessors.get(source.name, ()), [], (), source.topics, source.pattern)
    for name, all_stores in part.stores.items():
        has_buffer = len(all_stores) == 2 and f"{name}-Buffer" in all_stores
        stores = tuple(store for store in all_stores if not has_buffer or store != f"{name}-Buffer")
        yield Node(name, part.id, part.predecessors.get(name, ()), stores=stores, has_buffer=has_buffer)
    for name, topic in part.sink_topics.items():
        topics = () if topic is None else (topic,)
        yield Node(name, part.id, part.predecessors.get(name, ()), topics=topics, is_sink=True)


def repartition_topics(nodes: Mapping[str, Node]) -> dict[str, DescribedRepartition]:
    """The repartition topics: what is written and read again, and called so. By the names of their sources."""
    sinks = {node.topics: node for node in nodes.values() if node.is_sink and node.topics}
    found = {}
    for source in nodes.values():
        sink = sinks.get(source.topics)
        if source.before or sink is None or not source.topics[0].endswith(_REPARTITION):
            continue
        topic, before = source.topics[0], sink.before[0]
        # A grouping of a table has no filter.
        is_filter = prefix_of(before) == "KSTREAM-FILTER-" or before == f"{topic}-filter"
        has_filter = is_filter and bool(nodes[before].before)
        upstream = nodes[before].before[0] if has_filter else before
        found[source.name] = DescribedRepartition(
            topic, upstream, before if has_filter else "", sink.name, source.name, tuple(source.after)
        )
    return found
