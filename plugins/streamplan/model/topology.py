"""A declared topology (``org.apache.kafka.streams.StreamsBuilder`` and ``Topology``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, overload

from streamplan.judged import example_of, judged, judged_constructor
from streamplan.model.description import describe
from streamplan.model.diagnostics import Diagnostic, legal_name, name_fault, refuse
from streamplan.model.expressions import Expression, Text
from streamplan.model.functions import PythonFunction
from streamplan.model.kstream import (
    ANSWERED,
    RESERVED_FIELDS,
    GlobalKTable,
    Key,
    KStream,
    KTable,
    class_of,
    extractor,
    judge_timestamp,
    stand_in,
)
from streamplan.model.operations import GlobalTableSource, TableSource, VersionedTableSource
from streamplan.model.processor_topology import ProcessorTopology, RepartitionTopic, Source, Subtopology
from streamplan.model.streams_graph import GLOBAL_TABLE, StreamsGraph
from streamplan.model.windows import Versioned
from streamplan.model.words import answers_words
from streamplan.serdes.json import Json
from streamplan.serdes.primitive import KeySerde, Primitive
from streamplan.serdes.schema_serde import SchemaSerde
from streamplan.serdes.schema_source import SchemaSource
from streamplan.serdes.serde import Serde

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)


@answers_words
@judged_constructor
@judged
class Topology:
    """A declared topology.

    Declare it with :meth:`stream` and :meth:`table`. What follows from the declaration is computed when it is first
    asked for, and nothing can be added after that. Internal topics have the names of the declaration here;
    :meth:`decorate` gives the name in Kafka.

    Example: ``Topology("orders-aggregator")``. Then::

        orders = topology.stream("orders", value=Json("Id string, ProductType int"))
        orders.group_by("ProductType", name="by-product").count(store="quantities")

    Attributes:
        application_id: Kafka Streams' ``application.id``: the prefix of internal topics, the consumer group, and the
            prefix of transactional ids.
    """

    def __init__(self, application_id: str) -> None:
        self.application_id = application_id
        self._graph = StreamsGraph()
        self._values: dict[str, tuple[Serde, KeySerde, str | PythonFunction | None]] = {}
        if fault := name_fault(application_id):
            self._graph.fault(f"application id: {fault}", legal_name(application_id))

    _answered: ClassVar[tuple[str, ...]] = ANSWERED
    _not_of_declarations: ClassVar = (
        "with_schemas",
        "with_sink_topics",
        "without_faults",
        "decorate",
        "changelog_topic",
    )

    def _made_wrongly(self, mistakes: Iterable[Diagnostic], given: Mapping[str, Any]) -> None:
        self.application_id = str(given.get("application_id", ""))
        self._graph = StreamsGraph()
        self._values = {}
        self._graph.add_faults(mistakes)

    def _mistaken(self, mistakes: Iterable[Diagnostic], operation: str, returns: Any) -> Any:
        """Add the mistakes of a call; return a stand-in for its result, so that the declaration goes on."""
        self._graph.add_faults(mistakes)
        return stand_in(self._graph, returns)

    def __repr__(self) -> str:
        """The class and the application id."""
        return f"<Topology {self.application_id!r}>"

    def __dir__(self) -> list[str]:
        """What a declaration needs, and what Python has."""
        words = ("application_id", "describe", "faults", "global_table", "stream", "table")
        return [name for name in object.__dir__(self) if name.startswith("__") or name in words]

    # -- declaring

    @overload
    def stream(
        self,
        topic: str | Sequence[str],
        *,
        value: Json[V],
        key: str | None = ...,
        key_serde: None = ...,
        timestamp: Text | Callable[[V], datetime | int | None] | None = ...,
        name: str | None = ...,
    ) -> KStream[str, V]: ...

    @overload
    def stream(
        self,
        topic: str | Sequence[str],
        *,
        value: Json[V],
        key: str | None = ...,
        key_serde: Primitive[K],
        timestamp: Text | Callable[[V], datetime | int | None] | None = ...,
        name: str | None = ...,
    ) -> KStream[K, V]: ...

    @overload
    def stream(
        self,
        topic: str | Sequence[str],
        *,
        value: Json[V],
        key: str | None = ...,
        key_serde: KeySerde | None,
        timestamp: Text | Callable[[V], datetime | int | None] | None = ...,
        name: str | None = ...,
    ) -> KStream[Any, V]: ...

    @overload
    def stream(
        self,
        topic: str | Sequence[str],
        *,
        value: Serde,
        key: str | None = ...,
        key_serde: None = ...,
        timestamp: Text | Callable[[Any], datetime | int | None] | None = ...,
        name: str | None = ...,
    ) -> KStream[str, Any]: ...

    @overload
    def stream(
        self,
        topic: str | Sequence[str],
        *,
        value: Serde,
        key: str | None = ...,
        key_serde: Primitive[K],
        timestamp: Text | Callable[[Any], datetime | int | None] | None = ...,
        name: str | None = ...,
    ) -> KStream[K, Any]: ...

    @overload
    def stream(
        self,
        topic: str | Sequence[str],
        *,
        value: Serde,
        key: str | None = ...,
        key_serde: KeySerde | None,
        timestamp: Text | Callable[[Any], datetime | int | None] | None = ...,
        name: str | None = ...,
    ) -> KStream[Any, Any]: ...

    def stream(
        self,
        topic: str | Sequence[str],
        *,
        value: Serde,
        key: str | None = None,
        key_serde: KeySerde | Primitive[Any] | None = None,
        timestamp: Text | Callable[[Any], datetime | int | None] | None = None,
        name: str | None = None,
    ) -> KStream[Any, Any]:
        """Read a topic, or several, as a stream of records.

        Examples: ``topology.stream("orders", value=Json("id string, amount bigint"))``,
        ``topology.stream(("orders-eu", "orders-us"), value=Json("id string, amount bigint"))``

        Args:
            topic: Its name in Kafka. Or the names of several topics with alike records: they have one source node.
                Partition 0 of each of them belongs to stream task 0.
            value: The serde that reads the values, as ``Json("Id string, Amount bigint")``.
            key: A name for what the key is. A join of a stream and a table with different names is refused.
            key_serde: The serde that reads the keys (``Consumed.withKeySerde``), as ``Long()``. By default
                ``String()``.
            timestamp: What tells the timestamps of the records (``Consumed.withTimestampExtractor``), as ``"at"``: a
                Spark SQL expression of a timestamp, or of milliseconds since 1970. Or a function; see
                :meth:`KStream.map_values`. It returns a ``datetime`` with a zone, or milliseconds. A record without a
                timestamp that is told goes to the dead-letter topic. By default a record has that of its topic.
            name: The name of the source node (``Consumed.as``). Without it the library's numbering gives one.
        """
        of_key = Key.declared(self._graph, "stream", key, key_serde)
        told = extractor(self._graph, "stream", timestamp, value)
        topics = self._topics_of(topic)
        fields, *_ = [self._read(each, value, of_key.serde, told) for each in topics]
        source = self._graph.source(self._graph.name(name, "KSTREAM-SOURCE-"), topics, value, of_key.serde, told)
        stream: KStream[Any, Any] = KStream(
            self._graph, source, fields, of_key, frozenset({source.name}), _record_class=class_of(value)
        )
        judge_timestamp(stream, "stream", timestamp if isinstance(timestamp, Expression) else told)
        return stream

    @overload
    def table(
        self,
        topic: str,
        *,
        value: Json[V],
        key: str | None = ...,
        key_serde: None = ...,
        store: str | Versioned | None = ...,
        timestamp: Text | Callable[[V], datetime | int | None] | None = ...,
        name: str | None = ...,
    ) -> KTable[str, V]: ...

    @overload
    def table(
        self,
        topic: str,
        *,
        value: Json[V],
        key: str | None = ...,
        key_serde: Primitive[K],
        store: str | Versioned | None = ...,
        timestamp: Text | Callable[[V], datetime | int | None] | None = ...,
        name: str | None = ...,
    ) -> KTable[K, V]: ...

    @overload
    def table(
        self,
        topic: str,
        *,
        value: Json[V],
        key: str | None = ...,
        key_serde: KeySerde | None,
        store: str | Versioned | None = ...,
        timestamp: Text | Callable[[V], datetime | int | None] | None = ...,
        name: str | None = ...,
    ) -> KTable[Any, V]: ...

    @overload
    def table(
        self,
        topic: str,
        *,
        value: Serde,
        key: str | None = ...,
        key_serde: None = ...,
        store: str | Versioned | None = ...,
        timestamp: Text | Callable[[Any], datetime | int | None] | None = ...,
        name: str | None = ...,
    ) -> KTable[str, Any]: ...

    @overload
    def table(
        self,
        topic: str,
        *,
        value: Serde,
        key: str | None = ...,
        key_serde: Primitive[K],
        store: str | Versioned | None = ...,
        timestamp: Text | Callable[[Any], datetime | int | None] | None = ...,
        name: str | None = ...,
    ) -> KTable[K, Any]: ...

    @overload
    def table(
        self,
        topic: str,
        *,
        value: Serde,
        key: str | None = ...,
        key_serde: KeySerde | None,
        store: str | Versioned | None = ...,
        timestamp: Text | Callable[[Any], datetime | int | None] | None = ...,
        name: str | None = ...,
    ) -> KTable[Any, Any]: ...

    def table(
        self,
        topic: str,
        *,
        value: Serde,
        key: str | None = None,
        key_serde: KeySerde | Primitive[Any] | None = None,
        store: str | Versioned | None = None,
        timestamp: Text | Callable[[Any], datetime | int | None] | None = None,
        name: str | None = None,
    ) -> KTable[Any, Any]:
        """Read a compacted topic as a table: the last value of each key. A null value deletes its key.

        Examples: ``topology.table("customers", value=Json("name string, city string"))``,
        ``topology.table("prices", value=Json("price double"), store=Versioned("prices", history="1 hour"))``

        Args:
            topic: Its name in Kafka.
            value: The serde that reads the values.
            key: A name for what the key is. A join of a stream and a table with different names is refused.
            key_serde: The serde that reads the keys; see :meth:`stream`.
            store: The name of the state store. Without it the table has a store only if something is joined with it.
                Or a :class:`.Versioned` store, which keeps earlier values for late records of streams.
            timestamp: As for :meth:`stream`. A null value has no fields: ``"coalesce(at, record.timestamp)"``.
            name: The name of the nodes (``Consumed.as``). Without it the library's numbering gives one.
        """
        graph = self._graph
        of_key = Key.declared(graph, "table", key, key_serde)
        told = extractor(graph, "table", timestamp, value)
        fields = self._read(topic, value, of_key.serde, told)
        versioned = store if isinstance(store, Versioned) else None
        store_name = graph.store_name(store.name if isinstance(store, Versioned) else store, f"{topic}-")
        generated = graph.next_name("KSTREAM-SOURCE-")
        source = generated if name is None else f"{name}-source"
        if name is not None and not name_fault(name) and (fault := name_fault(source)):
            graph.fault(fault, "Choose a shorter name")
        history_ms = None if versioned is None else self._history_ms(versioned)
        needed = [store is not None]
        node = graph.table_source(
            source,
            graph.name(name, "KTABLE-SOURCE-"),
            topic,
            value,
            of_key.serde,
            lambda: (
                TableSource(store_name if needed[0] else None)
                if history_ms is None
                else VersionedTableSource(store_name, history_ms)
            ),
            told,
        )

        def materialize() -> None:
            needed[0] = True

        def send_old_values(force: bool) -> bool:
            needed[0] = needed[0] or force
            return needed[0]

        sources = frozenset({source})
        table: KTable[Any, Any] = KTable(
            graph, node, fields, of_key, sources, None, store_name, materialize,
            _topic=(topic, value), _send_old_values=send_old_values, _record_class=class_of(value),
            _history_ms=history_ms,
        )  # fmt: skip
        judge_timestamp(table, "table", timestamp if isinstance(timestamp, Expression) else told)
        return table

    @overload
    def global_table(
        self,
        topic: str,
        *,
        value: Json[V],
        key: str | None = ...,
        key_serde: None = ...,
        store: str | None = ...,
        name: str | None = ...,
    ) -> GlobalKTable[str, V]: ...

    @overload
    def global_table(
        self,
        topic: str,
        *,
        value: Json[V],
        key: str | None = ...,
        key_serde: Primitive[K],
        store: str | None = ...,
        name: str | None = ...,
    ) -> GlobalKTable[K, V]: ...

    @overload
    def global_table(
        self,
        topic: str,
        *,
        value: Serde,
        key: str | None = ...,
        key_serde: KeySerde | Primitive[Any] | None = ...,
        store: str | None = ...,
        name: str | None = ...,
    ) -> GlobalKTable[Any, Any]: ...

    def global_table(
        self,
        topic: str,
        *,
        value: Serde,
        key: str | None = None,
        key_serde: KeySerde | Primitive[Any] | None = None,
        store: str | None = None,
        name: str | None = None,
    ) -> GlobalKTable[Any, Any]:
        """Read a compacted topic as a global table: each stream task has all rows of all partitions.

        Example: ``topology.global_table("products", value=Json("name string, price double"))``

        A stream is joined with it by any key that its records have: :meth:`KStream.join`. The topic may have any number
        of partitions. It is its own changelog.

        Args:
            topic: Its name in Kafka.
            value: The serde that reads the values.
            key: A name for what the key is. It is for readers of the declaration.
            key_serde: The serde that reads the keys; see :meth:`stream`.
            store: The name of the state store. Without it the library's numbering gives one.
            name: The name of the nodes (``Consumed.as``). Without it the library's numbering gives one.
        """
        graph = self._graph
        of_key = Key.declared(graph, "global_table", key, key_serde)
        fields = self._read(topic, value, of_key.serde, None)
        store_name = graph.store_name(store, f"{topic}-")
        generated = graph.next_name("KSTREAM-SOURCE-")
        source = generated if name is None else f"{name}-source"
        if name is not None and not name_fault(name) and (fault := name_fault(source)):
            graph.fault(fault, "Choose a shorter name")
        node = graph.table_source(
            source,
            graph.name(name, "KTABLE-SOURCE-"),
            topic,
            value,
            of_key.serde,
            lambda: GlobalTableSource(store_name),
            None,
            GLOBAL_TABLE,
        )
        return GlobalKTable(
            graph,
            node,
            fields,
            of_key,
            frozenset(),
            _topic=topic,
            _serde=value,
            _store=store_name,
            _record_class=class_of(value),
        )

    def _history_ms(self, store: Versioned) -> int:
        try:
            return store.history_ms
        except ValueError as error:
            self._graph.fault(f"Versioned, history: {error}", "For example Versioned('prices', history='1 hour')")
            return 0

    def _topics_of(self, topic: str | Sequence[str]) -> tuple[str, ...]:
        """The topics of a stream, each once."""
        if isinstance(topic, str):
            return (topic,)
        if not topic:
            self._graph.fault(f"stream: topic={topic!r}", "Name the topics that it reads: stream(('a', 'b'), value=…)")
            return ("unknown",)
        if len({*topic}) < len(topic):
            self._graph.fault("stream: topic: a topic is named twice", "Name each topic once")
        return tuple(dict.fromkeys(topic))

    def _read(
        self, topic: str, value: Serde, key_serde: KeySerde, timestamp: str | PythonFunction | None
    ) -> tuple[str, ...] | None:
        if fault := name_fault(topic):
            self._graph.fault(fault, legal_name(topic))
        first_value, first_key_serde, first_timestamp = self._values.setdefault(topic, (value, key_serde, timestamp))
        if first_timestamp != timestamp:
            self._graph.fault(
                f"the topic {topic!r} is read with two different timestamps", "Declare timestamp= alike, or once"
            )
        if first_value != value:
            self._graph.fault(f"the topic {topic!r} is read with two different values", "Declare its value once")
        if first_key_serde.key_type != key_serde.key_type:
            self._graph.fault(
                f"the topic {topic!r} is read with keys of {key_serde.name} and of {first_key_serde.name}",
                "Declare one key_serde",
            )
        try:
            fields = tuple(value.fields)
        except ValueError as error:
            cls: Any = type(value)
            example = example_of(cls) if isinstance(value, SchemaSerde) else ""
            example = example or "Json('Id string, Amount bigint'), or Avro('order.avsc')"
            self._graph.fault(f"{topic}: {error}", f"For example {example}")
            return None
        if not set(RESERVED_FIELDS).isdisjoint(fields):
            self._graph.fault(f"{topic}: a field cannot be named record, table or element", "Rename it at its origin")
        return fields

    def with_schemas(self, schemas: SchemaSource) -> Topology:
        """Return the same with serdes that look up schemas. Nothing can be added to it.

        Args:
            schemas: Knows the schemas.

        Raises:
            Refused: The declaration has faults.
        """
        processors = self.processors.with_schemas(schemas)
        if processors == self.processors:  # no serde looks up schemas
            return self
        return self._with(processors)

    def with_sink_topics(self, topics: Mapping[str, str]) -> Topology:
        """Return the same with other topics that it writes. Nothing can be added to it.

        Args:
            topics: By the topic that is declared in ``to`` the one that is written in its place.

        Raises:
            Refused: The declaration has faults.
        """
        return self._with(self.processors.with_sink_topics(topics))

    def _with(self, processors: ProcessorTopology) -> Topology:
        bound = copy(self)
        bound.__dict__["processors"] = processors
        return bound

    # -- what follows from the declaration

    @property
    def faults(self) -> tuple[Diagnostic, ...]:
        """Everything that is wrong with the declaration."""
        return tuple(self._graph.faults or self._graph.faults_of_order())

    @cached_property
    def processors(self) -> ProcessorTopology:
        """The topology that runs.

        Raises:
            Refused: The declaration has faults. The error lists all of them.
        """
        refuse(f"topology {self.application_id!r}", self.faults)
        return self._graph.build()

    def without_faults(self) -> Topology:
        """Return the same with what is declared before, and beside, the faults. It can be planned, and not run.

        A stream behind a fault has fields that nobody knows, so nothing is built behind it.
        """
        built = self._graph.build()
        names = {node.name for node in built.nodes}
        joined = tuple(each for each in built.copartition_groups if each <= names)
        return self._with(replace(built, copartition_groups=joined))

    @property
    def subtopologies(self) -> tuple[Subtopology, ...]:
        """The sub-topologies, by their numbers."""
        return self.processors.subtopologies

    @property
    def global_stores(self) -> tuple[Subtopology, ...]:
        """The sub-topologies that only fill the store of a global table. They have no stream tasks."""
        return self.processors.global_stores

    @property
    def repartition_topics(self) -> tuple[RepartitionTopic, ...]:
        """The repartition topics in the order of declaration, by the names of the declaration."""
        return self.processors.repartition_topics

    @cached_property
    def internal_topics(self) -> frozenset[str]:
        """The names of the repartition topics in the declaration."""
        return frozenset(topic.name for topic in self.repartition_topics)

    @property
    def generated_names(self) -> frozenset[str]:
        """The names that the library's numbering has given, because the declaration gives none."""
        return frozenset(self._graph.generated)

    @property
    def source_topics(self) -> tuple[str, ...]:
        """The topics from outside that the topology reads."""
        topics = (node.topic for node in self.processors.nodes if isinstance(node, Source))
        return tuple(dict.fromkeys(topic for topic in topics if topic not in self.internal_topics))

    @property
    def sink_topics(self) -> tuple[str, ...]:
        """The topics from outside that the topology writes."""
        topics = (topic for group in self.subtopologies for topic in group.sink_topics)
        return tuple(dict.fromkeys(topic for topic in topics if topic not in self.internal_topics))

    def decorate(self, topic: str) -> str:
        """The name in Kafka: internal topics are prefixed with the application id."""
        return f"{self.application_id}-{topic}" if topic in self.internal_topics else topic

    def changelog_topic(self, store: str) -> str:
        """The name in Kafka of a store's changelog topic (``ProcessorStateManager.storeChangelogTopic``)."""
        return f"{self.application_id}-{store}-changelog"

    @property
    def dead_letter_topic(self) -> str:
        """The name in Kafka of the topic for records that cannot be processed."""
        return f"{self.application_id}-dead-letter"

    def describe(self) -> str:
        """What ``Topology.describe().toString()`` prints.

        Example: ``print(topology.describe())``
        """
        return describe(self.processors)
