"""The logical graph of a declaration, and the processor topology that is built from it.

Source: ``org.apache.kafka.streams.kstream.internals.InternalStreamsBuilder``. A node gets its number when it is
declared, but it is added to the topology in the order of build priorities. A later aggregate of the same grouping may
declare a repartition node again. Numbers are drawn as the library draws them, also for a node with a given name.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

from streamplan.model.diagnostics import Diagnostic, SourceLocation, caller_location, legal_name, name_fault
from streamplan.model.functions import PythonFunction
from streamplan.model.operations import (
    Aggregate,
    BufferedJoin,
    BufferRecords,
    Cogroup,
    CogroupSide,
    Columns,
    Count,
    ForeignKeyResult,
    ForeignTableJoin,
    GlobalJoin,
    Join,
    JoinSide,
    NullKeyFilter,
    Operation,
    OuterJoinSide,
    OuterStreamJoin,
    Process,
    Reduce,
    ResponseJoin,
    SeveralTopics,
    StateStore,
    StoreForJoin,
    StreamJoin,
    SubscriptionJoin,
    SubscriptionReceive,
    SubscriptionSend,
    Suppress,
    TableJoin,
    TableJoinSide,
)
from streamplan.model.processor_topology import (
    Node,
    Processor,
    ProcessorTopology,
    RepartitionTopic,
    Sink,
    Source,
    TopicChoice,
)
from streamplan.serdes.primitive import KeySerde
from streamplan.serdes.serde import Serde
from streamplan.serdes.subscriptions import Subscriptions

BuiltNodes: TypeAlias = Sequence[tuple[Node, tuple[str, ...]]]
"""Nodes of the processor topology, each with the names of its predecessors."""

_STREAM, _TABLE, _REPARTITION = "stream", "table", "repartition topic"
GLOBAL_TABLE = "global table"

_GENERATED = re.compile(r"KSTREAM.*-[0-9]{10}")


@dataclass(eq=False)
class GraphNode:
    """A node of the logical graph.

    Attributes:
        name: The name of the last processor node that is built from it.
        build: Takes the names of the parents, and gives the processor nodes.
        location: The line that declares it.
        parents: The nodes before it.
        children: The nodes after it.
        priority: Its place in the order in which nodes are built.
        topics: The topics that it reads as a stream.
        repartition: The topic, if it is a repartition node.
    """

    name: str
    build: Callable[[tuple[str, ...]], BuiltNodes]
    location: SourceLocation
    parents: list[GraphNode] = field(default_factory=list, repr=False)
    children: list[GraphNode] = field(default_factory=list, repr=False)
    priority: int = 0
    topics: frozenset[str] = frozenset()
    repartition: RepartitionTopic | None = None

    def __lt__(self, other: GraphNode) -> bool:
        return self.priority < other.priority  # Priorities differ. A node may be in the queue twice.


@dataclass(frozen=True)
class Repartition:
    """The nodes around a repartition topic.

    Attributes:
        node: The node of the logical graph.
        source: The name of the source node that reads the topic.
        before: The names of the nodes that write it: the sink, and before it the null-key filter of a stream.
    """

    node: GraphNode
    source: str
    before: tuple[str, ...]


class StreamsGraph:
    """Everything that was declared so far.

    Faults are collected, so that all faults of a file are reported at once.

    Attributes:
        faults: What is wrong with the declaration.
        copartition_groups: Sets of names of sources that are joined.
        generated: The names that the declaration did not give, so that they have a number.
    """

    def __init__(self) -> None:
        self.faults: list[Diagnostic] = []
        self.copartition_groups: list[frozenset[str]] = []
        self.generated: set[str] = set()
        self._root = GraphNode("root", lambda parents: (), SourceLocation("", 0))
        self._index = 0
        self._priority = 0
        self._names: dict[str, SourceLocation] = {}
        self._stores: dict[str, SourceLocation] = {}
        self._state_stores: dict[str, tuple[StateStore, GraphNode]] = {}
        self._readers: dict[str, tuple[str, SourceLocation]] = {}

    def fault(self, message: str, hint: str) -> None:
        """Record a fault of the line that is being declared."""
        self.add_faults([Diagnostic(caller_location(), message, hint)])

    def add_faults(self, faults: Iterable[Diagnostic]) -> None:
        """Record faults, each once."""
        self.faults.extend(fault for fault in faults if fault not in self.faults)

    # -- names

    def next_name(self, prefix: str) -> str:
        """Draw the next number (``newProcessorName``)."""
        name = f"{prefix}{self._index:010d}"
        self._index += 1
        return name

    def generate_name(self, prefix: str) -> str:
        """Draw the next number for something that was given no name."""
        name = self.next_name(prefix)
        self.generated.add(name)
        return name

    def name(self, given: str | None, prefix: str) -> str:
        """The given name, or a generated one (``NamedInternal.orElseGenerateWithPrefix``).

        The number is drawn in either case.
        """
        if given is None:
            return self.generate_name(prefix)
        self.next_name(prefix)
        self._check_name(given)
        return given

    def store_name(self, given: str | None, prefix: str) -> str:
        """The given name of a store, or a generated one (``MaterializedInternal``).

        A number is drawn only for a store without a name.
        """
        if given is None:
            name = self.generate_name(f"{prefix}STATE-STORE-")
        else:
            name = given
            self._check_name(name)
        if name in self._stores:
            self.fault(
                f"the store {name!r} is declared twice, first at {self._stores[name]}",
                "Give each store a name of its own: store='…'",
            )
        self._stores.setdefault(name, caller_location())
        return name

    def _check_name(self, name: str) -> None:
        if fault := name_fault(name):
            self.fault(fault, legal_name(name))

    # -- nodes

    def add(self, node: GraphNode, *parents: GraphNode) -> GraphNode:
        """Add a node (``addGraphNode``). A node that is added again gets another parent and a later priority."""
        for parent in parents or (self._root,):
            if parent not in node.parents:
                node.parents.append(parent)
                parent.children.append(node)
            node.priority = self._priority
            self._priority += 1
        return node

    def processor(self, name: str, operation: Operation | Callable[[], Operation], *parents: GraphNode) -> GraphNode:
        """Add a processor node.

        Args:
            name: Its name.
            operation: What it does, or a function that gives it when the topology is built: by then it is known
                whether something depends on the node.
            *parents: The nodes before it.
        """
        location = caller_location()
        self._take(name)

        def build(before: tuple[str, ...]) -> BuiltNodes:
            built = operation() if callable(operation) else operation
            return [(Processor(name, built, location), before)]

        return self.add(GraphNode(name, build, location), *parents)

    def state_store(self, operation: StateStore, processor: GraphNode) -> None:
        """Connect a processor with a state store (``addStateStore`` and ``connectProcessorAndStateStores``).

        Args:
            operation: Writes the store. Several processors share a store that they declare alike.
        """
        known, node = self._state_stores.get(operation.store, (None, None))
        if node is None or known != operation:
            self.store_name(operation.store, "")
            location = caller_location()
            # A name that no processor can have.
            name = f"state store {operation.store}"
            node = GraphNode(name, lambda before: [(Processor(name, operation, location), before)], location)
            self._state_stores[operation.store] = operation, node
        self.add(node, processor)

    def buffered_join(self, name: str, operation: BufferedJoin, grace_ms: int, parent: GraphNode) -> GraphNode:
        """Add a join with a versioned table that has a grace period (``KStreamImpl.doStreamTableJoin``).

        Args:
            name: The name of the processor.
            operation: What it does.
            grace_ms: The grace period.
            parent: The node before it.
        """
        location = caller_location()
        self._take(name)
        self.store_name(operation.buffer, "")
        held = BufferRecords.of(operation.buffer, grace_ms, left=operation.left)
        buffer = Processor(f"buffer of {name}", held, location)  # a name that no processor can have
        joined = Processor(name, operation, location)

        def build(before: tuple[str, ...]) -> BuiltNodes:
            return [(buffer, before), (joined, (buffer.name,))]

        return self.add(GraphNode(name, build, location), parent)

    def stream_join(
        self,
        parents: tuple[GraphNode, GraphNode],
        windowed: tuple[str, str],
        generated: tuple[str, str],
        named: tuple[str | None, str | None],
        merge: str,
        store: str | None,
        operation: StreamJoin,
    ) -> GraphNode:
        """Add the nodes of a join of two streams (``KStreamImplJoin`` and ``StreamStreamJoinNode``).

        Args:
            parents: The last nodes of this and of the other stream.
            windowed: The names of the processors that store their records.
            generated: The generated names of the processors that look up in the other's store.
            named: Their given names, where there are.
            merge: The name of the last processor.
            store: The given name of the stores.
            operation: What the last processor does.
        """
        location = caller_location()
        outer = isinstance(operation, OuterStreamJoin)
        both = isinstance(operation, OuterStreamJoin) and operation.both
        stores = [
            self.store_name(f"{generated[0] if store is None else f'{store}-{this_join(both)}'}-store", ""),
            self.store_name(f"{generated[1] if store is None else f'{store}-{other_join(outer)}'}-store", ""),
        ]
        looking_up: tuple[Operation, Operation] = (JoinSide(stores[1]), JoinSide(stores[0]))
        if outer:
            number = generated[0][-len("0000000000") :]
            shared = "outer-shared-join" if both else "left-shared-join"
            name = f"KSTREAM-OUTERSHARED-{number}" if store is None else f"{store}-{shared}"
            waiting = self.store_name(f"{name}-store", "")
            looking_up = (
                OuterJoinSide(waiting, stores[1], operation.windows, writes=True),
                OuterJoinSide(waiting, stores[0], operation.windows, writes=False),
            )
        sides = [given if given is not None else name for given, name in zip(named, generated, strict=True)]
        for given in named:
            if given is not None:
                self._check_name(given)
        for name in (*windowed, *sides, merge):
            self._take(name)
        for name, own, parent in zip(windowed, stores, parents, strict=True):
            stored = Processor(name, StoreForJoin(own, operation.windows), location)
            self.add(GraphNode(name, partial(_only, stored), location), parent)

        def build(before: tuple[str, ...]) -> BuiltNodes:
            return [
                (Processor(sides[0], looking_up[0], location), (windowed[0],)),
                (Processor(sides[1], looking_up[1], location), (windowed[1],)),
                (Processor(merge, operation, location), (sides[0], sides[1])),
            ]

        return self.add(GraphNode(merge, build, location), *parents)

    def table_join(
        self,
        parents: tuple[GraphNode, GraphNode],
        names: tuple[str, str, str],
        stores: tuple[tuple[str, ...], tuple[str, ...]],
        operation: TableJoin,
    ) -> GraphNode:
        """Add the nodes of a join of two tables (``KTableKTableJoinNode``).

        Args:
            parents: The last nodes of this and of the other table.
            names: The names of the processors of this and of the other side, and of the last processor.
            stores: The stores that the values of this and of the other table come from.
            operation: What the last processor does.
        """
        location = caller_location()
        this, other, merge = names
        for name in names:
            self._take(name)

        def build(before: tuple[str, ...]) -> BuiltNodes:
            return [
                (Processor(this, TableJoinSide(stores[1]), location), before[:1]),
                (Processor(other, TableJoinSide(stores[0]), location), before[1:]),
                (Processor(merge, operation, location), (this, other)),
            ]

        return self.add(GraphNode(merge, build, location), *parents)

    def foreign_key_join(
        self,
        this: tuple[GraphNode, str, KeySerde],
        other: tuple[GraphNode, str, KeySerde],
        responses: Serde,
        foreign_key: str | PythonFunction,
        value: Columns,
        *,
        left: bool,
        name: str | None,
        store: str | None,
        is_stored: Callable[[], bool],
    ) -> tuple[GraphNode, str, str, str]:
        """Add the nodes of a join of two tables by a foreign key (``KTableImpl.doJoinOnForeignKey``).

        Args:
            this: The last node of this table, its store and the serde of its keys.
            other: The same of the other table.
            responses: Reads the values of the response topic.
            foreign_key: The expression, or the function, that gives the key of the other table.
            value: The joined value.
            left: Whether the join is a left join.
            name: The beginning of the names; without it the library's numbering gives names.
            store: The given name of the state store of the result.
            is_stored: Tells, when the topology is built, whether the result has a store.

        Returns:
            The last node, the name of the store of the result, and the names of the sources of the registration topic
            and of the response topic.
        """
        location = caller_location()
        join = "KTABLE-FK-JOIN-"

        def named(suffix: str, prefix: str) -> str:
            # The library draws a number for each, also where a name is given.
            if name is None:
                return self.generate_name(prefix)
            self.next_name(prefix)
            return f"{name}-{suffix}"

        if name is not None:
            self._check_name(f"{name}-subscription-registration-processor")  # the longest one
        registration = f"{named('subscription-registration', f'{join}SUBSCRIPTION-REGISTRATION-')}-topic"
        send = named("subscription-registration-processor", f"{join}SUBSCRIPTION-REGISTRATION-")
        registration_sink = named("subscription-registration-sink", "KTABLE-SINK-")
        registration_source = named("subscription-registration-source", "KTABLE-SOURCE-")
        subscriptions = named("subscription-store", f"{join}SUBSCRIPTION-STATE-STORE-")
        receive = named("subscription-receive", f"{join}SUBSCRIPTION-PROCESSOR-")
        look_up = named("subscription-join-foreign", f"{join}SUBSCRIPTION-PROCESSOR-")
        foreign_change = named("foreign-join-subscription", f"{join}SUBSCRIPTION-PROCESSOR-")
        response = f"{named('subscription-response', f'{join}SUBSCRIPTION-RESPONSE-')}-topic"
        response_sink = named("subscription-response-sink", "KTABLE-SINK-")
        response_source = named("subscription-response-source", "KTABLE-SOURCE-")
        resolver = named("subscription-response-resolver", f"{join}SUBSCRIPTION-RESPONSE-RESOLVER-PROCESSOR-")
        result = named("result", f"{join}OUTPUT-")
        result_store = self.store_name(store, f"{join}OUTPUT-")
        self._stores.setdefault(subscriptions, location)
        for topic in (registration, response):
            self._read(topic, _REPARTITION)
        nodes = (send, registration_sink, registration_source, receive, look_up, foreign_change)
        for each in (*nodes, response_sink, response_source, resolver, result):
            self._take(each)

        def processor(each: str, operation: Operation, *parents: GraphNode) -> GraphNode:
            return self.add(
                GraphNode(each, lambda before: [(Processor(each, operation, location), before)], location), *parents
            )

        def sink(each: str, topic: str, *parents: GraphNode) -> GraphNode:
            built = Sink(each, topic, location, internal=True)
            return self.add(GraphNode(each, lambda before: [(built, before)], location), *parents)

        def source(each: str, topic: str, key_serde: KeySerde, carried: Serde, parent: GraphNode) -> GraphNode:
            built = Source(each, topic, location, key_serde=key_serde, carried=carried)
            described = RepartitionTopic(topic, None, location)
            return self.add(GraphNode(each, lambda before: [(built, ())], location, repartition=described), parent)

        (this_node, this_store, this_keys), (other_node, other_store, other_keys) = this, other
        sent = processor(send, SubscriptionSend(this_store, foreign_key, other_keys, left), this_node)
        registrations = sink(registration_sink, registration, sent)
        registered = source(registration_source, registration, other_keys, Subscriptions(), registrations)
        received = processor(receive, SubscriptionReceive(subscriptions, foreign_key, this_keys, left), registered)
        looked_up = processor(look_up, SubscriptionJoin(other_store, this_keys), received)
        changed = processor(foreign_change, ForeignTableJoin(subscriptions, this_keys), other_node)
        written = sink(response_sink, response, looked_up, changed)
        responded = source(response_source, response, this_keys, responses, written)
        resolved = processor(resolver, ResponseJoin(this_store, value, left), responded)

        def passing(before: tuple[str, ...]) -> BuiltNodes:
            operation = ForeignKeyResult(value, left, result_store if is_stored() else None)
            return [(Processor(result, operation, location), before)]

        passed = self.add(GraphNode(result, passing, location), resolved)
        return passed, result_store, registration_source, response_source

    def cogroup(
        self,
        parents: Sequence[GraphNode],
        sides: Sequence[tuple[str, CogroupSide]],
        merge: str,
        operation: Cogroup,
    ) -> GraphNode:
        """Add the nodes of an aggregate of several grouped streams (``CogroupedStreamAggregateBuilder``).

        Args:
            parents: The last node of each stream.
            sides: The name and the operation of the processor of each stream.
            merge: The name of the last processor, which passes what they have written.
            operation: What the last processor does.
        """
        location = caller_location()
        for name in (*(name for name, _ in sides), merge):
            self._take(name)
        before = []
        for (name, side), parent in zip(sides, parents, strict=True):
            before.append(self.add(GraphNode(name, partial(_only, Processor(name, side, location)), location), parent))
        merged = partial(_only, Processor(merge, operation, location))
        return self.add(GraphNode(merge, merged, location), *before)

    def source(
        self,
        name: str,
        topics: tuple[str, ...],
        value: Serde,
        key_serde: KeySerde,
        timestamp: str | PythonFunction | None,
    ) -> GraphNode:
        """Add a source node that reads a stream of one topic, or of several."""
        self._take(name)
        for topic in topics:
            self._read(topic, _STREAM)
        self._refuse_overlap(frozenset(topics))
        location = caller_location()
        if len(topics) == 1:
            source = Source(name, topics[0], location, value, key_serde, timestamp=timestamp)
            built: BuiltNodes = [(source, ())]
        else:
            several = [
                (Source(f"{name} of {topic}", topic, location, value, key_serde, None, timestamp, True), ())
                for topic in topics
            ]
            together = Processor(name, SeveralTopics(topics), location)
            built = [*several, (together, tuple(source.name for source, _ in several))]
        return self.add(GraphNode(name, lambda before: built, location, topics=frozenset(topics)))

    def table_source(
        self,
        source_name: str,
        name: str,
        topic: str,
        value: Serde,
        key_serde: KeySerde,
        operation: Callable[[], Operation],
        timestamp: str | PythonFunction | None,
        reader: str = _TABLE,
    ) -> GraphNode:
        """Add a source node and the processor that fills a table, or a global table, from it."""
        location = caller_location()
        self._take(source_name)
        self._take(name)
        self._read(topic, reader)
        source = Source(source_name, topic, location, value, key_serde, timestamp=timestamp)

        def build(before: tuple[str, ...]) -> BuiltNodes:
            return [(source, ()), (Processor(name, operation(), location), (source_name,))]

        return self.add(GraphNode(name, build, location))

    def sink(
        self, name: str, topic: str, value: Serde | None, parent: GraphNode, topics: tuple[str, ...] = ()
    ) -> GraphNode:
        """Add a sink node that writes a topic from outside.

        Args:
            name: Its name.
            topic: The topic. With ``topics`` an expression that gives the topic of each record.
            value: The serde of the values, if one is declared.
            parent: The node before it.
            topics: The topics that a record may have.
        """
        self._take(name)
        location = caller_location()
        sinks = [Sink(name, topic, location, value=value)]
        if topics:
            names = [name, *(f"{name} to {further}" for further in topics[1:])]
            sinks = [
                Sink(each, chosen, location, value=value, choice=TopicChoice(topic, topics, chosen))
                for each, chosen in zip(names, topics, strict=True)
            ]
        return self.add(GraphNode(name, lambda before: [(sink, before) for sink in sinks], location), parent)

    def draw_repartition(
        self, prefix: str, key_serde: KeySerde, number_of_partitions: int | None = None
    ) -> Repartition:
        """Draw the names of the nodes around a repartition topic (``KStreamImpl.createRepartitionedSource``).

        The nodes are not added: :meth:`add_repartition` does that.

        Args:
            prefix: The topic is ``<prefix>-repartition``.
            key_serde: The serde of its keys.
            number_of_partitions: Its partitions; None for a count that follows from other topics.
        """
        location = caller_location()
        topic = prefix if prefix.endswith("-repartition") else f"{prefix}-repartition"
        sink, null_key_filter, source = (
            self.next_name(kind) for kind in ("KSTREAM-SINK-", "KSTREAM-FILTER-", "KSTREAM-SOURCE-")
        )
        if not _GENERATED.fullmatch(prefix):
            sink, null_key_filter, source = f"{topic}-sink", f"{topic}-filter", f"{topic}-source"

        def build(before: tuple[str, ...]) -> BuiltNodes:
            return [
                (Processor(null_key_filter, NullKeyFilter(), location), before),
                (Sink(sink, topic, location, internal=True), (null_key_filter,)),
                (Source(source, topic, location, key_serde=key_serde), ()),
            ]

        described = RepartitionTopic(topic, number_of_partitions, location)
        return Repartition(GraphNode(source, build, location, repartition=described), source, (null_key_filter, sink))

    def draw_table_repartition(self, prefix: str, name: str | None, key_serde: KeySerde) -> Repartition:
        """Draw the names of the nodes around the repartition topic of a grouped table (``KGroupedTableImpl``).

        The nodes are not added: :meth:`add_repartition` does that.

        Args:
            prefix: The topic is ``<prefix>-repartition``.
            name: The name of the aggregate, where it has one.
            key_serde: The serde of the topic's keys.
        """
        location = caller_location()
        topic = f"{prefix}-repartition"
        sink, source = self.next_name("KSTREAM-SINK-"), self.next_name("KSTREAM-SOURCE-")
        if name is not None:
            sink, source = f"{name}-sink", f"{name}-source"

        def build(before: tuple[str, ...]) -> BuiltNodes:
            return [
                (Sink(sink, topic, location, internal=True), before),
                (Source(source, topic, location, key_serde=key_serde), ()),
            ]

        described = RepartitionTopic(topic, None, location)
        return Repartition(GraphNode(source, build, location, repartition=described), source, (sink,))

    def add_repartition(self, repartition: Repartition, parent: GraphNode) -> None:
        """Add the nodes around a repartition topic, or another parent of nodes that were added before."""
        topic = repartition.node.repartition
        # A topic that is declared again is already read.
        if topic is not None and not repartition.node.parents and self._read(topic.name, _REPARTITION):
            for name in (*repartition.before, repartition.source):
                self._take(name)
        self.add(repartition.node, parent)

    def _read(self, topic: str, reader: str) -> bool:
        """Record a fault if the topic is read already (``validateTopicNotAlreadyRegistered``).

        A topic has one source node. The source nodes of several streams of one topic are merged into one.

        Returns:
            Whether the topic may be read.
        """
        if topic not in self._readers:
            self._readers[topic] = (reader, caller_location())
            return True
        first, location = self._readers[topic]
        if first == reader == _STREAM:
            return True
        self.fault(
            f"the topic {topic!r} is read twice, as a {first} at {location} and as a {reader} here",
            "Give the repartition topic another name: name='…'"
            if _REPARTITION in (first, reader)
            else "Read it once"
            if GLOBAL_TABLE in (first, reader)
            else "Read it once, as a table; its updates are a stream: .to_stream()",
        )
        return False

    def _refuse_overlap(self, topics: frozenset[str]) -> None:
        """Record a fault if a stream reads some of these topics and not all of them (``mergeDuplicateSourceNodes``)."""
        for node in self._root.children:
            if node.topics & topics and node.topics != topics:
                read, here = (", ".join(map(repr, sorted(each))) for each in (node.topics, topics))
                self.fault(
                    f"two streams read topics that are not the same: {read} at {node.location}, and {here} here",
                    "Read each topic with a stream() of its own, and merge() the streams where you need both",
                )
                return

    def _take(self, name: str) -> None:
        if name in self._names:
            self.fault(
                f"the name {name!r} is declared twice, first at {self._names[name]}",
                "Give each a name of its own: name='…'",
            )
        self._names.setdefault(name, caller_location())

    # -- the topology

    def build(self) -> ProcessorTopology:
        """Build the processor topology (``buildAndOptimizeTopology`` without optimizations)."""
        merged = self._merged_sources()
        nodes: list[Node] = []
        predecessors: dict[str, tuple[str, ...]] = {}
        repartition_topics: list[RepartitionTopic] = []
        written = {id(self._root)}
        queue: list[tuple[int, GraphNode]] = [(child.priority, child) for child in self._root.children]
        heapq.heapify(queue)
        while queue:
            _, graph_node = heapq.heappop(queue)
            if id(graph_node) in written or any(id(parent) not in written for parent in graph_node.parents):
                continue  # The parent that is missing puts it into the queue again.
            if graph_node.name not in merged:
                for node, before in graph_node.build(_parents(graph_node, merged)):
                    nodes.append(node)
                    predecessors[node.name] = before
                if graph_node.repartition is not None:
                    repartition_topics.append(graph_node.repartition)
            written.add(id(graph_node))
            for child in graph_node.children:
                heapq.heappush(queue, (child.priority, child))
        groups = [frozenset(merged.get(name, name) for name in group) for group in self.copartition_groups]
        several = {
            node.name: predecessors[node.name]
            for node in nodes
            if isinstance(node, Processor) and isinstance(node.operation, SeveralTopics)
        }
        groups = [frozenset(one for name in group for one in several.get(name, (name,))) for group in groups]
        relaxed = _before_left_joins(nodes, predecessors)
        operations = {name: NullKeyFilter(relaxed=True) for name in relaxed}
        nodes = [
            replace(node, operation=operations.get(node.name, node.operation)) if isinstance(node, Processor) else node
            for node in nodes
        ]
        return ProcessorTopology(tuple(nodes), predecessors, tuple(repartition_topics), tuple(groups))

    def faults_of_order(self) -> Iterator[Diagnostic]:
        """The faults that can be seen only in the topology that is built."""
        built = self.build()
        internal = {topic.name: topic.location for topic in built.repartition_topics}
        stores: set[str | None] = set()
        suppressed = {
            built.predecessors[node.name][0]: node
            for node in built.nodes
            if isinstance(node, Processor) and isinstance(node.operation, Suppress)
        }
        for node in built.nodes:
            for before in built.predecessors[node.name]:
                if before in suppressed and node is not suppressed[before]:
                    yield Diagnostic(
                        node.location,
                        f"takes the updates of a table that is suppressed at {suppressed[before].location}",
                        "Take the result of suppress, or aggregate a second time for the updates",
                    )
            match node:
                case Processor(operation=Join(store=store)) if store not in stores:
                    # The library: "StateStore … is not added yet".
                    yield Diagnostic(
                        node.location,
                        "the join stands before its table: a grouping with a name, from which the table comes, "
                        "is aggregated again further down",
                        "Put the join behind that grouping's last aggregate",
                    )
                case Processor(store=store):
                    stores.add(store)
                case Sink(topic=topic, internal=False) if topic in internal:
                    yield Diagnostic(
                        node.location,
                        f"to: {topic!r} is the repartition topic that is declared at {internal[topic]}",
                        "Write to another topic",
                    )

    def _merged_sources(self) -> dict[str, str]:
        """By the name of a later source the name of the first of the same topics (``mergeDuplicateSourceNodes``)."""
        first: dict[frozenset[str], str] = {}
        merged: dict[str, str] = {}
        for node in self._root.children:
            if node.topics and first.setdefault(node.topics, node.name) != node.name:
                merged[node.name] = first[node.topics]
        return merged


def this_join(both: bool) -> str:
    """The end of the names of this side of a join of two streams; ``both`` for an outer join."""
    return "outer-this-join" if both else "this-join"


def other_join(outer: bool) -> str:
    """The end of the names of the other side of a join of two streams; ``outer`` for a left or outer join."""
    return "outer-other-join" if outer else "other-join"


def _only(node: Node, before: tuple[str, ...]) -> BuiltNodes:
    return [(node, before)]


def _before_left_joins(nodes: Sequence[Node], predecessors: Mapping[str, tuple[str, ...]]) -> set[str]:
    """The names of the null-key filters whose records reach a left join before an aggregation or an inner join.

    Source: ``NodesWithRelaxedNullKeyJoinDownstream``. There it does not matter what comes before the left join, since
    aggregations and inner joins drop null keys. Here such a record is dead-lettered before them.
    """
    by_name = {node.name: node for node in nodes}
    writers: dict[str, list[str]] = {}
    for node in nodes:
        if isinstance(node, Sink) and node.internal:
            writers.setdefault(node.topic, []).append(node.name)
    waiting = [node.name for node in nodes if isinstance(node, Processor) and _is_left_join(node.operation)]
    found, seen = set[str](), set[str]()
    while waiting:
        name = waiting.pop()
        node = by_name[name]
        if name in seen or (isinstance(node, Processor) and _drops_null_keys(node.operation)):
            continue
        seen.add(name)
        if isinstance(node, Processor) and isinstance(node.operation, NullKeyFilter):
            found.add(name)
        waiting += writers.get(node.topic, []) if isinstance(node, Source) else predecessors[name]
    return found


def _is_left_join(operation: Operation) -> bool:
    return isinstance(operation, OuterStreamJoin) or (isinstance(operation, Join | GlobalJoin) and operation.left)


def _drops_null_keys(operation: Operation) -> bool:
    return isinstance(
        operation, Count | Aggregate | CogroupSide | Reduce | Join | JoinSide | Process
    ) and not _is_left_join(operation)


def _parents(node: GraphNode, merged: dict[str, str]) -> tuple[str, ...]:
    """The names of a node's parents.

    The first source of a topic takes over the children of a later one, and comes last among their parents.
    """
    names = [parent.name for parent in node.parents]
    unmerged = [name for name in names if name not in merged]
    first_sources = [first for later, first in merged.items() if later in names]
    return tuple(dict.fromkeys(unmerged + first_sources))
