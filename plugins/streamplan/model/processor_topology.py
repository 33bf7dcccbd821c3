"""The topology that runs: source, processor and sink nodes, sub-topologies, state stores.

Source: ``org.apache.kafka.streams.processor.internals.InternalTopologyBuilder``.
tests/integration/model/test_oracle.py compares :meth:`ProcessorTopology.describe` with the real library.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from streamplan.model.diagnostics import SourceLocation
from streamplan.model.functions import PythonFunction
from streamplan.model.operations import (
    SENDS,
    SETS_KEY,
    Aggregate,
    BufferedJoin,
    BufferRecords,
    Cogroup,
    CogroupSide,
    Count,
    ForeignKeyResult,
    ForeignTableJoin,
    GlobalTableSource,
    Join,
    JoinFunction,
    JoinSide,
    Operation,
    OuterJoinSide,
    Process,
    ProcessWithStores,
    Reduce,
    ResponseJoin,
    StateStore,
    StoreForJoin,
    SubscriptionJoin,
    SubscriptionReceive,
    Suppress,
    TableFilter,
    TableJoin,
    TableJoinSide,
    TableMapValues,
    TableSource,
    ToTable,
    VersionedTableSource,
    global_topics_of,
    with_schemas_of_tables,
)
from streamplan.model.windows import SessionWindows
from streamplan.serdes.primitive import STRING, KeySerde
from streamplan.serdes.schema_source import SchemaSource
from streamplan.serdes.serde import Serde
from streamplan.serdes.windowed import SessionWindowed, TimeWindowed, Windowed


@dataclass(frozen=True)
class Source:
    """A node that reads a topic.

    ``value`` is the serde of the values of a topic from outside, and None for a repartition topic. ``key_serde`` is
    that of the keys. ``carried`` is the serde of the values of a topic of a join by a foreign key, which are the same
    whatever is computed, and None elsewhere. ``timestamp`` tells the timestamps of the records, where the topic does
    not. ``is_one_of_several``: the library has one source for this topic and others. Here it is the processor behind.
    """

    name: str
    topic: str
    location: SourceLocation
    value: Serde | None = None
    key_serde: KeySerde = STRING
    carried: Serde | None = None
    timestamp: str | PythonFunction | None = None
    is_one_of_several: bool = False


@dataclass(frozen=True)
class Processor:
    """A node that applies an operation to records."""

    name: str
    operation: Operation
    location: SourceLocation

    @property
    def store(self) -> str | None:
        """The state store that the processor writes or reads."""
        match self.operation:
            case Count(store=store) | Aggregate(store=store) | Reduce(store=store) | Join(store=store):
                return store
            case TableSource(store=store) | StoreForJoin(store=store) | TableJoin(store=store) | Process(store=store):
                return store
            case JoinSide(store=store) | OuterJoinSide(store=store) | CogroupSide(store=store):
                return store
            case SubscriptionReceive(store=store) | SubscriptionJoin(store=store) | ForeignTableJoin(store=store):
                return store
            case ResponseJoin(store=store) | ForeignKeyResult(store=store):
                return store
            case (
                TableFilter(store=store) | TableMapValues(store=store) | ToTable(store=store) | StateStore(store=store)
            ):
                return store
            case GlobalTableSource(store=store):
                return store
            case Suppress(store=store):
                return store
        return None

    @property
    def connected_stores(self) -> tuple[str, ...]:
        """All state stores that the library connects the processor with."""
        if isinstance(self.operation, TableJoinSide | ProcessWithStores):
            return self.operation.stores
        if isinstance(self.operation, BufferedJoin):
            return self.operation.buffer, self.operation.store
        if isinstance(self.operation, Cogroup):  # it passes what the processors before it have written
            return ()
        looked_up = (self.operation.looked_up,) if isinstance(self.operation, OuterJoinSide) else ()
        return looked_up if self.store is None else (*looked_up, self.store)

    @property
    def is_of_library(self) -> bool:
        """Whether the library has this node, too."""
        return not isinstance(self.operation, StateStore | BufferRecords | JoinFunction)

    @property
    def writes_store(self) -> bool:
        """Whether it writes a state store, and so a changelog. A join only reads one, and ``suppress`` needs none.

        The store of a global table has no changelog.
        """
        if isinstance(self.operation, OuterJoinSide):
            return self.operation.writes
        looks_up = Join | JoinSide | CogroupSide | SubscriptionJoin | ForeignTableJoin | ResponseJoin | Suppress
        return self.store is not None and not isinstance(self.operation, looks_up | GlobalTableSource)


@dataclass(frozen=True)
class TopicChoice:
    """The topic of each record is one of several (``org.apache.kafka.streams.processor.TopicNameExtractor``).

    The library has one sink for all of them. Here each topic has a sink, which writes the records of that topic.

    Attributes:
        expression: Gives the name of a record's topic.
        topics: All topics.
        topic: The topic whose records the sink writes.
    """

    expression: str
    topics: tuple[str, ...]
    topic: str

    @property
    def is_first(self) -> bool:
        """Whether the sink is the one that the library has. It rejects the records of no topic."""
        return self.topic == self.topics[0]


@dataclass(frozen=True)
class Sink:
    """A node that writes a topic. ``internal``: a repartition topic. ``value`` is the serde, if one is declared.

    ``choice`` tells which records it writes; None for all.
    """

    name: str
    topic: str
    location: SourceLocation
    internal: bool = False
    value: Serde | None = None
    choice: TopicChoice | None = None

    @property
    def is_further(self) -> bool:
        """Whether the library has no sink of its own for it."""
        return self.choice is not None and not self.choice.is_first


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
    """Nodes that are connected by records or by a state store, without a topic between them.

    Attributes:
        id: Its number, from 0.
        nodes: In the order in which records pass them.
        predecessors: The names of the nodes before each node, by its name.
    """

    id: int
    nodes: tuple[Node, ...]
    predecessors: Mapping[str, tuple[str, ...]]

    def as_stored(self) -> Subtopology:
        """Return the same for records from its stores, which have the timestamps that were told."""
        nodes = (replace(node, timestamp=None) if isinstance(node, Source) else node for node in self.nodes)
        return replace(self, nodes=tuple(nodes))

    @property
    def sources(self) -> tuple[Source, ...]:
        """Its source nodes."""
        return tuple(node for node in self.nodes if isinstance(node, Source))

    @property
    def processors(self) -> tuple[Processor, ...]:
        """Its processor nodes."""
        return tuple(node for node in self.nodes if isinstance(node, Processor))

    @property
    def sinks(self) -> tuple[Sink, ...]:
        """Its sink nodes."""
        return tuple(node for node in self.nodes if isinstance(node, Sink))

    @property
    def source_topics(self) -> tuple[str, ...]:
        """The topics that it reads, by the names of the declaration."""
        return tuple(source.topic for source in self.sources)

    @property
    def global_topics(self) -> tuple[str, ...]:
        """The topics of the global tables that it looks up in, each once. Each stream task reads all partitions."""
        return tuple(dict.fromkeys(topic for operation in self.operations for topic in global_topics_of(operation)))

    @property
    def is_global(self) -> bool:
        """Whether it only fills the store of a global table. Then it has no stream tasks."""
        return any(isinstance(operation, GlobalTableSource) for operation in self.operations)

    @property
    def sink_topics(self) -> tuple[str, ...]:
        """The topics that it writes, by the names of the declaration, each once."""
        return tuple(dict.fromkeys(sink.topic for sink in self.sinks))

    @property
    def stores(self) -> tuple[str, ...]:
        """The state stores that it writes."""
        return tuple(node.store for node in self.processors if node.writes_store and node.store is not None)

    @property
    def operations(self) -> tuple[Operation, ...]:
        """What the processors do, in the order of the nodes."""
        return tuple(node.operation for node in self.processors)

    @property
    def writers(self) -> tuple[Sink | Processor, ...]:
        """The nodes that write a topic: sinks, and processors with a changelog."""
        return tuple(
            node
            for node in self.nodes
            if isinstance(node, Sink) or (isinstance(node, Processor) and node.writes_store and node.store is not None)
        )

    @property
    def output_numbers(self) -> dict[str, int]:
        """The number of each output, by the name of the node that writes it."""
        return {node.name: number for number, node in enumerate(self.writers)}

    def processors_with(self, *operations: type[Operation]) -> tuple[Processor, ...]:
        """The processors whose operation is of one of some classes."""
        return tuple(node for node in self.processors if isinstance(node.operation, operations))

    def sides_of(self, join: Processor) -> tuple[Processor, ...]:
        """The processors that this and the other side of a join come from.

        Those of a join of two streams store their records. Those of a join of two tables fill these.
        """
        by_name = {node.name: node for node in self.processors}
        return tuple(by_name[self.predecessors[side][0]] for side in self.predecessors[join.name])

    @property
    def table_stores(self) -> dict[str, str]:
        """By the name of a source the state store of its table; a table without a store is left out."""
        return {
            self.predecessors[node.name][0]: node.store
            for node in self.processors
            if isinstance(node.operation, TableSource) and node.store is not None
        }

    @property
    def histories(self) -> dict[str, int]:
        """By the name of a source how many ms its versioned table keeps a value that was replaced."""
        return {
            self.predecessors[node.name][0]: node.operation.history_ms
            for node in self.processors
            if isinstance(node.operation, VersionedTableSource)
        }

    def key_serde_of(self, name: str) -> KeySerde:
        """The serde of the keys that the records of a node have, by the name of the node."""
        node = next(node for node in self.nodes if node.name == name)
        if isinstance(node, Source):
            return node.key_serde
        if isinstance(node, Processor) and isinstance(node.operation, (*SETS_KEY, *SENDS, StateStore)):
            return node.operation.key_serde
        return self.key_serde_of(self.predecessors[name][0])

    def key_type_in_topic(self, sink: Sink) -> str:
        """The name of the serde of the keys that a sink writes: behind windows each key has its window."""
        key_type = self.key_serde_of(sink.name).key_type
        kind = self._windowed_serdes[sink.name]
        return key_type if kind is None else f"{kind.__name__}({key_type})"

    @cached_property
    def _windowed_serdes(self) -> Mapping[str, type[Windowed] | None]:
        """By the name of a node the serde that adds the window of an aggregate to its keys; None without a window."""
        found: dict[str, type[Windowed] | None] = {}
        for node in self.nodes:  # In the order in which records pass them.
            before = (found[name] for name in self.predecessors[node.name])
            found[node.name] = next((kind for kind in before if kind is not None), None)
            if isinstance(node, Processor):
                match node.operation:
                    case Count(window=SessionWindows()) | Aggregate(window=SessionWindows()):
                        found[node.name] = SessionWindowed
                    case Count(window=window) | Aggregate(window=window) if window is not None:
                        found[node.name] = TimeWindowed
                    case operation if isinstance(operation, SETS_KEY):
                        found[node.name] = None
        return found

    def of_library_before(self, node: Node) -> tuple[str, ...]:
        """The names of the nodes before a node, as the library has them: it has none for what belongs to a join."""
        own = {each.name for each in (*self.processors_with(BufferRecords), *self.processors_with(JoinFunction))}

        def of_library(names: Iterable[str]) -> Iterator[str]:
            for name in names:
                yield from of_library(self.predecessors[name]) if name in own else (name,)

        return tuple(of_library(self.predecessors[node.name]))

    def children_of(self, node: Node) -> tuple[str, ...]:
        """The names of the nodes that are given the records of a node, as the library has them."""
        behind = (each for each in self.nodes if node.name in self.of_library_before(each))
        further = (each for each in behind if not (isinstance(each, Sink) and each.is_further))
        return tuple(each.name for each in further if not isinstance(each, Processor) or each.is_of_library)

    def downstream_of(self, names: Iterable[str]) -> set[str]:
        """The names of the nodes that records reach after one of ``names``."""
        origins, reached = set(names), set[str]()
        for node in self.nodes:  # In the order in which records pass them.
            if any(before in origins or before in reached for before in self.predecessors[node.name]):
                reached.add(node.name)
        return reached

    def upstream_of(self, nodes: Iterable[Node]) -> tuple[Node, ...]:
        """The nodes that records pass before one of ``nodes``."""
        names, remaining = set[str](), [node.name for node in nodes]
        while remaining:
            before = [name for name in self.predecessors[remaining.pop()] if name not in names]
            names.update(before)
            remaining += before
        return tuple(node for node in self.nodes if node.name in names)


@dataclass(frozen=True)
class RepartitionTopic:
    """A repartition topic. ``number_of_partitions`` is None if the count follows from other topics."""

    name: str
    number_of_partitions: int | None
    location: SourceLocation


@dataclass(frozen=True)
class ProcessorTopology:
    """All nodes of a topology.

    Attributes:
        nodes: In the order in which the library adds them.
        predecessors: The names of the nodes before each node, by its name.
        repartition_topics: In the order of declaration.
        copartition_groups: Sets of names of sources whose topics must have equal partition counts.
    """

    nodes: tuple[Node, ...]
    predecessors: Mapping[str, tuple[str, ...]]
    repartition_topics: tuple[RepartitionTopic, ...]
    copartition_groups: tuple[frozenset[str], ...]

    def with_schemas(self, schemas: SchemaSource) -> ProcessorTopology:
        """Return the same with serdes that look up schemas.

        Args:
            schemas: Knows the schemas.
        """
        nodes = [
            replace(node, value=node.value.with_schemas(schemas, node.topic))
            if isinstance(node, Source | Sink) and node.value is not None
            else node
            for node in self.nodes
        ]
        nodes = [
            replace(node, carried=node.carried.with_schemas(schemas, node.topic))
            if isinstance(node, Source) and node.carried is not None
            else node
            for node in nodes
        ]
        nodes = [
            replace(node, operation=with_schemas_of_tables(node.operation, schemas))
            if isinstance(node, Processor)
            else node
            for node in nodes
        ]
        return replace(self, nodes=tuple(nodes))

    def with_sink_topics(self, topics: Mapping[str, str]) -> ProcessorTopology:
        """Return the same with other topics of sinks. Repartition topics stay as they are.

        Args:
            topics: By the topic that is written the one that is written in its place.
        """
        nodes = tuple(
            replace(node, topic=topics.get(node.topic, node.topic))
            if isinstance(node, Sink) and not node.internal
            else node
            for node in self.nodes
        )
        return replace(self, nodes=nodes)

    @property
    def subtopologies(self) -> tuple[Subtopology, ...]:
        """Those that have stream tasks. Their numbers have gaps where there are :attr:`global_stores`."""
        return tuple(group for group in self.node_groups if not group.is_global)

    @property
    def global_stores(self) -> tuple[Subtopology, ...]:
        """Those that only fill the store of a global table."""
        return tuple(group for group in self.node_groups if group.is_global)

    @cached_property
    def node_groups(self) -> tuple[Subtopology, ...]:
        """All sub-topologies, numbered in the order of their first nodes (``makeNodeGroups``)."""
        group_of: dict[str, int] = {}
        members: dict[int, set[str]] = {}
        connections = [(name, before) for name, all_before in self.predecessors.items() for before in all_before]
        by_store: dict[str, str] = {}
        for node in self.nodes:
            group_of[node.name] = len(group_of)
            members[group_of[node.name]] = {node.name}
            if isinstance(node, Processor):
                connections += [(node.name, by_store.setdefault(store, node.name)) for store in node.connected_stores]
        for one, other in connections:
            kept, gone = sorted((group_of[one], group_of[other]))
            if kept != gone:
                for name in members[gone]:
                    group_of[name] = kept
                members[kept] |= members.pop(gone)
        return tuple(
            Subtopology(
                number,
                tuple(node for node in self.nodes if node.name in members[group]),
                {name: self.predecessors[name] for name in members[group]},
            )
            for number, group in enumerate(sorted(members))
        )
