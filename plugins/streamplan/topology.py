"""The topology: nodes, sub-topologies, state stores, and the words of Kafka Streams' DSL that build them.

Names, numbering and :meth:`Topology.describe` are those of ``org.apache.kafka.streams.StreamsBuilder`` and
``TopologyDescription``; tests/integration/test_oracle.py compares with the real library.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from streamplan.serdes import KEY_TYPES, Json


@dataclass(frozen=True)
class KeySelect:
    """Sets the record's key to one field of its value, as text."""

    field: str


@dataclass(frozen=True)
class Count:
    """Counts the records of each key into a state store."""

    store: str


@dataclass(frozen=True)
class NullKeyFilter:
    """Drops records without a key before a repartition topic, as Kafka Streams does."""


Operation: TypeAlias = KeySelect | Count | NullKeyFilter


@dataclass(frozen=True)
class Source:
    """Reads topics. ``value`` is the serde of a topic from outside; None for internal topics."""

    name: str
    topics: tuple[str, ...]
    value: Json | None = None


@dataclass(frozen=True)
class Processor:
    name: str
    operation: Operation
    stores: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sink:
    name: str
    topic: str


Node: TypeAlias = Source | Processor | Sink


@dataclass(frozen=True, order=True)
class TaskId:
    """A stream task ``<sub-topology>_<partition>`` (``org.apache.kafka.streams.processor.TaskId``)."""

    subtopology: int
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology}_{self.partition}"


@dataclass(frozen=True)
class Subtopology:
    """Nodes connected without a topic in between. ``nodes`` stand in the order in which records pass them."""

    id: int
    nodes: tuple[Node, ...]

    @property
    def sources(self) -> tuple[Source, ...]:
        return tuple(node for node in self.nodes if isinstance(node, Source))

    @property
    def source_topics(self) -> tuple[str, ...]:
        return tuple(topic for source in self.sources for topic in source.topics)

    @property
    def sink_topics(self) -> tuple[str, ...]:
        return tuple(node.topic for node in self.nodes if isinstance(node, Sink))

    @property
    def stores(self) -> tuple[str, ...]:
        return tuple(store for node in self.nodes if isinstance(node, Processor) for store in node.stores)

    @property
    def operations(self) -> tuple[Operation, ...]:
        return tuple(node.operation for node in self.nodes if isinstance(node, Processor))


class Topology:
    """A declared topology. ``application_id`` is Kafka Streams' ``application.id``.

    Topics inside bear the names of the declaration; :meth:`decorate` gives the name in Kafka.
    """

    def __init__(self, application_id: str) -> None:
        self.application_id = application_id
        self._nodes: dict[str, Node] = {}
        self._successors: dict[str, list[str]] = {}
        self._internal_topics: list[str] = []
        self._index = 0

    # -- the language

    def stream(self, topic: str, *, value: Json) -> KStream:
        """A stream of the records of ``topic``, whose values ``value`` reads."""
        name = self._next_name("KSTREAM-SOURCE-")
        self._add(Source(name, (topic,), value))
        return KStream(self, name, value)

    # -- what follows from it

    @property
    def repartition_topics(self) -> tuple[str, ...]:
        """Undecorated names, in the order of declaration."""
        return tuple(self._internal_topics)

    @property
    def source_topics(self) -> tuple[str, ...]:
        """The topics from outside that the topology reads."""
        return tuple(
            topic
            for node in self._nodes.values()
            if isinstance(node, Source)
            for topic in node.topics
            if topic not in self._internal_topics
        )

    def decorate(self, topic: str) -> str:
        """The name in Kafka: internal topics are prefixed with the application id."""
        return f"{self.application_id}-{topic}" if topic in self._internal_topics else topic

    def changelog_topic(self, store: str) -> str:
        """``ProcessorStateManager.storeChangelogTopic``."""
        return f"{self.application_id}-{store}-changelog"

    @property
    def dead_letter_topic(self) -> str:
        return f"{self.application_id}-dead-letter"

    @property
    def subtopologies(self) -> tuple[Subtopology, ...]:
        """Numbered in the order in which their sources were declared."""
        groups: list[list[str]] = []
        for name in self._nodes:
            if isinstance(self._nodes[name], Source):
                groups.append(list(self._downstream(name)))
        return tuple(
            Subtopology(number, tuple(self._nodes[name] for name in group)) for number, group in enumerate(groups)
        )

    def describe(self) -> str:
        """What ``Topology.describe().toString()`` prints."""
        predecessors: dict[str, list[str]] = {name: [] for name in self._nodes}
        for name, successors in self._successors.items():
            for successor in successors:
                predecessors[successor].append(name)
        lines: list[str] = []
        for subtopology in self.subtopologies:
            lines.append(f"  Sub-topology: {subtopology.id}")
            for node in subtopology.nodes:
                after = ", ".join(sorted(self._successors[node.name])) or "none"
                before = ", ".join(sorted(predecessors[node.name])) or "none"
                match node:
                    case Source():
                        lines += [
                            f"    Source: {node.name} (topics: [{', '.join(node.topics)}])",
                            f"      --> {after}",
                        ]
                    case Processor():
                        stores = ", ".join(node.stores)
                        lines += [f"    Processor: {node.name} (stores: [{stores}])", f"      --> {after}"]
                        lines += [f"      <-- {before}"]
                    case Sink():
                        lines += [f"    Sink: {node.name} (topic: {node.topic})", f"      <-- {before}"]
            lines.append("")
        return "Topologies:\n " + "\n".join(lines) + "\n"

    # -- building

    def _next_name(self, prefix: str) -> str:
        name = f"{prefix}{self._index:010d}"
        self._index += 1
        return name

    def _add(self, node: Node, *, after: str | None = None) -> None:
        if node.name in self._nodes:
            raise ValueError(f"the name {node.name!r} is used twice in the topology {self.application_id!r}")
        self._nodes[node.name] = node
        self._successors[node.name] = []
        if after is not None:
            self._successors[after].append(node.name)

    def _repartition(self, prefix: str, *, named: bool, after: str) -> str:
        """The nodes around a repartition topic (``KStreamImpl.createRepartitionedSource``); returns the source."""
        topic = f"{prefix}-repartition"
        # The library draws the three numbers even where it does not use them.
        sink, null_key_filter, source = (
            self._next_name(kind) for kind in ("KSTREAM-SINK-", "KSTREAM-FILTER-", "KSTREAM-SOURCE-")
        )
        if named:
            sink, null_key_filter, source = f"{topic}-sink", f"{topic}-filter", f"{topic}-source"
        self._internal_topics.append(topic)
        self._add(Processor(null_key_filter, NullKeyFilter()), after=after)
        self._add(Sink(sink, topic), after=null_key_filter)
        self._add(Source(source, (topic,)))
        return source

    def _downstream(self, name: str) -> Iterator[str]:
        yield name
        for successor in self._successors[name]:
            yield from self._downstream(successor)


@dataclass(frozen=True)
class KStream:
    """A stream of records (``org.apache.kafka.streams.kstream.KStream``)."""

    topology: Topology
    node: str
    value: Json

    def group_by(self, field: str, *, name: str | None = None) -> KGroupedStream:
        """Group by one field of the value. The key changes, so the records go through a repartition topic.

        ``name`` names the repartition topic ``<application.id>-<name>-repartition`` (``Grouped.as``).
        """
        if field not in self.value.fields:
            known = ", ".join(self.value.fields)
            raise ValueError(f"group_by: the value has no field {field!r}; it has {known}")
        if self.value.fields[field] not in KEY_TYPES:
            kind = self.value.fields[field]
            raise ValueError(f"group_by: {field} is of type {kind}; a key is one of {', '.join(KEY_TYPES)}")
        generated = self.topology._next_name("KSTREAM-KEY-SELECT-")
        node = name or generated
        self.topology._add(Processor(node, KeySelect(field)), after=self.node)
        return KGroupedStream(self.topology, node, name)


@dataclass(frozen=True)
class KGroupedStream:
    """Records grouped by a new key (``org.apache.kafka.streams.kstream.KGroupedStream``)."""

    topology: Topology
    node: str
    name: str | None

    def count(self, *, store: str | None = None) -> None:
        """Count the records of each key in the state store ``store``."""
        topology = self.topology
        store_name = store or topology._next_name("KSTREAM-AGGREGATE-STATE-STORE-")
        aggregate = topology._next_name("KSTREAM-AGGREGATE-")
        source = topology._repartition(
            self.name or store_name, named=self.name is not None or store is not None, after=self.node
        )
        topology._add(Processor(aggregate, Count(store_name), (store_name,)), after=source)
