"""A pipeline: a topology and what deploying it needs."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from streamplan.errors import Refused
from streamplan.judged import judged_constructor
from streamplan.judged_words import completed
from streamplan.model.copartitioning import refuse_wrong_counts, resolve_partition_counts
from streamplan.model.diagnostics import Diagnostic, SourceLocation, caller_location, name_fault, refuse
from streamplan.model.operations import (
    Aggregate,
    BufferRecords,
    Count,
    GlobalTableSource,
    Operation,
    OuterJoinSide,
    ResponseJoin,
    SessionStateStore,
    StateStore,
    StoreForJoin,
    SubscriptionReceive,
    SubscriptionSend,
    TableSource,
    VersionedStateStore,
    VersionedTableSource,
)
from streamplan.model.processor_topology import Processor, Sink, Source, Subtopology, TaskId
from streamplan.model.stages import stateful_faults
from streamplan.model.start_moment import EARLIEST, FORMS, StartMoment
from streamplan.model.topics import (
    CHANGELOG_CONFIGS,
    DEAD_LETTER_CONFIGS,
    INTERNAL_ROLES,
    REPARTITION_CONFIGS,
    SINK_CONFIGS,
    SOURCE_CONFIGS,
    TABLE_CONFIGS,
    TopicRole,
    TopicSpec,
    stream_join_changelog_configs,
    versioned_changelog_configs,
    windowed_changelog_configs,
)
from streamplan.model.topology import Topology
from streamplan.model.windows import (
    PREFIX_AND_TIME_BYTES,
    SEQUENCE_NUMBER_BYTES,
    STORED_SESSION_BYTES,
    STORED_WINDOW_BYTES,
    TIME_AND_SIDE_BYTES,
    WINDOWED_CHANGELOG_ADDITIONAL_RETENTION_MS,
    SessionWindows,
)
from streamplan.serdes.given_values import encode_given
from streamplan.serdes.json_documents import parse_plain
from streamplan.serdes.schema_source import SchemaSource
from streamplan.serdes.serde import Serde, Value

_CRON = re.compile(r"@[a-z]+|[\w*/,#?-]+( [\w*/,#?-]+){4,5}")
"""What every cron expression is like. Airflow judges the rest."""

_OF_OTHERS = "an external topic, for it has no count in topic_partitions"

_MAKE_OWN = "Declare its number of partitions there, if Streamplan is to create it and to write to it"


MAX_PIPELINE_NAME = 100
"""The most bytes of a pipeline's name. Each DAG has it as a tag, for which Airflow has this limit. Those for DAG ids
(250) and for the names of files (255), which are made of the name too, are greater."""

MAX_CONN_ID = 250
"""The most characters of a connection's id (``CONN_ID_MAX_LEN`` in ``airflow.models.connection``)."""

_CONN_ID = re.compile(r"[\w#!()\-.:/\\]+")
"""``RE_SANITIZE_CONN_ID`` in the same module."""


class WrongTestData(Refused):
    """A record of test data that the serde of its topic cannot write."""


@judged_constructor
@dataclass(frozen=True)
class TestData:
    """The records that the producer writes.

    Example: ``TestData(("orders",), record=lambda n: ("orders", b"key", b'{"id": "order_%d"}' % n), number="id")``

    Attributes:
        topics: The topics that it writes to.
        record: Gives topic, key and value of record ``n``, counted from 0. The value is its bytes, or its fields by
            their names: then the serde of the topic writes it, and registers its schema where it has one. A moment is
            a datetime, or its text as in ``"2026-01-01T12:00:00Z"``.
        number: Where the digits of ``n`` stand in a value, so that the producer finds in the topics how far it came.
            For JSON, and where ``record`` gives fields, the name of a field that ends with them; for another format a
            function that takes the value's bytes and gives a text that ends with them, or raises ValueError.
    """

    __test__ = False  # For pytest: this class is no test.

    topics: tuple[str, ...]
    record: Callable[[int], tuple[str, bytes, bytes | Value]]
    number: str | Callable[[bytes], str]

    def __dir__(self) -> list[str]:
        """What is declared, and what Python has."""
        return completed(self)

    def written(self, n: int, serdes: Mapping[str, Serde]) -> tuple[str, bytes, bytes]:
        """Return topic, key and value of record ``n`` as they are in Kafka.

        Args:
            n: The number of the record.
            serdes: The serdes of the topics, by their names.

        Raises:
            Refused: The schema of the value is not registered.
            WrongTestData: The serde has no such value.
        """
        topic, key, value = self.record(n)
        if isinstance(value, bytes):
            return topic, key, value
        try:
            return topic, key, encode_given(serdes[topic], value)
        except ValueError as error:
            raise WrongTestData(f"record {n} of test_data: {error}") from None

    def number_of(
        self, topic: str, key: bytes | None, value: bytes | None, serdes: Mapping[str, Serde] | None = None
    ) -> int | None:
        """Return the ``n`` of a record of ``topic``; None for a record that this test data does not make.

        Args:
            key: The key of the record.
            value: Its value.
            serdes: As for :meth:`written`.
        """
        known = serdes or {}
        try:
            text = self._number_text(value or b"", known.get(topic))
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        digits = text[len(text.rstrip("0123456789")) :]
        # Test data has no longer numbers, and int() refuses very long ones.
        if not 0 < len(digits) < 20:
            return None
        try:
            written = self.written(int(digits), known)
        except (Refused, ValueError):  # No such value, or a schema that is not registered: it was never written.
            return None
        return int(digits) if written == (topic, key, value) else None

    def fault(self, serdes: Mapping[str, Serde]) -> str:
        """Return why record 0 cannot be written; empty where it can.

        Args:
            serdes: As for :meth:`written`. They need no registry.
        """
        try:
            self.written(0, serdes)
        except WrongTestData as error:
            return str(error)
        except Refused:  # the value is right, and the id of its schema was not asked for
            return ""
        except Exception as error:  # noqa: BLE001  # of the function, which is any
            return f"record 0 of test_data: {type(error).__name__}: {error}"
        return ""

    def _number_text(self, value: bytes, serde: Serde | None) -> str:
        """The text that ends with the number. Raises ValueError, KeyError or TypeError without one."""
        number = self.number
        if callable(number):
            return number(value)
        try:
            return str(parse_plain(value)[number])
        except (ValueError, TypeError):
            if serde is None:
                raise
            return str(serde.decode(value)[number])


@judged_constructor
@dataclass(frozen=True)
class Limits:
    """The limits at which the checks of a pipeline fail.

    Example: ``Limits(partition_share=0.8, lag_seconds=60)``

    Attributes:
        partition_share: The greatest share of a topic's records, or bytes, that one partition may hold; 0 to 1.
        lag_seconds: The greatest age of the oldest record that is not processed, by its timestamp; None for no limit.
        scanned_records: A check scans a topic whole up to this many records. Of a larger one it scans a sample.
    """

    partition_share: float = 0.8
    lag_seconds: float | None = None
    scanned_records: int = 5_000_000


@judged_constructor
@dataclass(frozen=True)
class Pipeline:
    """A topology, and what deploying it needs. A declaration with faults is refused, with all of them at once.

    Example: ``Pipeline(name="orders", topology=topology, description="Counts.", topic_partitions={"orders": 2})``

    Attributes:
        name: The prefix of its DAG ids: ``<name>_deploy``, ``<name>_producer``, ...
        topology: What it computes.
        description: One sentence, shown in Airflow and by ``list``.
        topic_partitions: The partition count of each topic from outside that Streamplan creates. A source topic that is
            left out belongs to others: it is read, and never created, altered or written to. It has as many partitions
            as the cluster has (:meth:`resolved`). A topic that is only written may be left out, too: it gets as many
            partitions as its writer has stream tasks.
        test_data: The records that ``<name>_producer`` writes, when somebody asks for them. None where others write the
            source topics: there is no producer then.
        health_schedule: The cron expression of ``<name>_health``.
        limits: The limits at which its checks fail.
        purge: Whether the records of repartition topics are deleted once they are counted and verified, as Kafka
            Streams does. False keeps them.
        repartition_from: The topic from which ``<name>_repartition`` moves the records of a source topic, as
            ``{"orders-v2": "orders"}``.
        upgrade_from: The application id that the pipeline had before its declaration was changed. The topology has
            another one. ``<name>_upgrade`` builds its state beside the old application, and lets it take over.
        auto_offset_reset: Where a new application begins to read: ``earliest``, ``latest``, ``by_duration:P7D`` or a
            time such as ``2026-01-31T00:00:00Z``. Tables are read from their beginning. It matters at the first start,
            and at the first start after a reset.
        kafka_conn_id: Airflow's connection to the Kafka cluster where it runs.
        spark_conn_id: Airflow's connection to the Spark that runs it.
        partitions_of_others: The partition counts of external topics, as a cluster has them. They are not declared:
            :meth:`resolved` sets them.
    """

    name: str
    topology: Topology
    description: str
    topic_partitions: Mapping[str, int] = field(default_factory=dict)
    test_data: TestData | None = None
    health_schedule: str = "*/10 * * * *"
    limits: Limits = Limits()
    purge: bool = True
    repartition_from: Mapping[str, str] = field(default_factory=dict)
    upgrade_from: str | None = None
    auto_offset_reset: Literal["earliest", "latest"] | str = EARLIEST
    kafka_conn_id: str = "kafka_default"
    spark_conn_id: str = "spark_default"
    partitions_of_others: Mapping[str, int] = field(default_factory=dict)

    def __dir__(self) -> list[str]:
        """What is declared, and what Python has."""
        return [name for name in completed(self) if name != "partitions_of_others"]

    def _made_wrongly(self, mistakes: Iterable[Diagnostic], given: Mapping[str, Any]) -> None:
        topology = given.get("topology")
        faults = topology.faults if isinstance(topology, Topology) else ()
        declared = topology if isinstance(topology, Topology) else None
        refuse(f"pipeline {given.get('name', '')!r}", dict.fromkeys([*faults, *mistakes]), declared)

    def __post_init__(self) -> None:
        location = caller_location()
        own = list(self._faults_of_names(location))
        if faults := self.topology.faults:  # Nothing else can be derived from a topology with faults.
            refuse(f"pipeline {self.name!r}", [*faults, *own], self.topology)
        faults = (*own, *self._faults(location), *_cycle(self.topology, location))
        refuse(f"pipeline {self.name!r}", faults, self.topology)
        if self.is_resolved:
            try:
                _ = self.partition_counts
            except Refused as error:
                hint = error.remedy.rstrip(".") or "Give all of them the same count"
                wrong = str(error).removesuffix(error.remedy).strip(" .")
                refuse(f"pipeline {self.name!r}", [Diagnostic(location, wrong, hint)], self.topology)

    def _faults_of_names(self, location: SourceLocation) -> Iterable[Diagnostic]:
        """What is wrong whatever the topology is."""
        if not self.name.replace("-", "_").isidentifier():
            yield Diagnostic(
                location,
                f"the name {self.name!r} is not a prefix of a DAG id: a letter, and then letters, digits, '_' and '-'",
                f"Write {legal!r}"
                if (legal := re.sub(r"[^\w-]+", "-", self.name).strip("-0123456789"))
                else "For example 'orders'",
            )
        if (size := len(self.name.encode())) > MAX_PIPELINE_NAME:
            yield Diagnostic(
                location,
                f"the name {self.name!r} has {size} bytes; the limit is {MAX_PIPELINE_NAME}, that of a tag in Airflow",
                "Choose a shorter name",
            )
        for option, conn_id in (("kafka_conn_id", self.kafka_conn_id), ("spark_conn_id", self.spark_conn_id)):
            if len(conn_id) > MAX_CONN_ID or not _CONN_ID.fullmatch(conn_id):
                yield Diagnostic(
                    location,
                    f"{option} {conn_id!r} is no id of a connection in Airflow",
                    f"At most {MAX_CONN_ID} characters: letters, digits, and any of _#!()-.:/\\",
                )
        if not _CRON.fullmatch(self.health_schedule):
            yield Diagnostic(
                location,
                f"health_schedule {self.health_schedule!r} is no cron expression",
                "For example '*/10 * * * *', each ten minutes, or '@hourly'",
            )
        share = self.limits.partition_share
        if not 0 < share <= 1:
            hint = f"Write {share / 100:g}" if 1 < share <= 100 else "For example 0.8"
            yield Diagnostic(location, f"Limits: partition_share is {share:g}; it is above 0, and at most 1", hint)
        for limit in ("lag_seconds", "scanned_records"):
            if (number := getattr(self.limits, limit)) is not None and number <= 0:
                yield Diagnostic(location, f"Limits: {limit} is {number:g}", "Write a number above 0")
        try:
            _ = self.start_moment
        except ValueError as error:
            yield Diagnostic(location, f"auto_offset_reset: {error}", f"It is {FORMS}")

    def _faults(self, location: SourceLocation) -> Iterable[Diagnostic]:
        if not self.topology.subtopologies:
            yield Diagnostic(
                location, "the topology reads nothing", "Begin with topology.stream('topic', value=Json(…))"
            )
        topology = self.topology
        for subtopology in topology.subtopologies:
            yield from stateful_faults(subtopology)
        long = {topology.decorate(topic.name): topic.location for topic in topology.repartition_topics}
        long |= {topology.changelog_topic(node.store): node.location for _, node in self.stores if node.store}
        for topic, declared in long.items():
            if fault := name_fault(topic):
                yield Diagnostic(declared, fault, "Give its operation a shorter name=, its store a shorter store=")
        of_application = [topology.dead_letter_topic]
        if self.upgrade_from is not None:
            of_application += self.staging_topics.values()
        for topic in of_application:
            if fault := name_fault(topic):
                yield Diagnostic(location, fault, "Choose a shorter application id")
        outside = (*topology.source_topics, *topology.sink_topics, *of_application)
        yield from _colliding({**dict.fromkeys(outside, location), **long})
        for topic in self.test_data.topics if self.test_data is not None else ():
            if topic not in topology.source_topics:
                listed = ", ".join(topology.source_topics)
                yield Diagnostic(
                    location, f"test data for {topic!r}, which the topology does not read", f"It reads {listed}"
                )
            elif topic in self.topics_of_others:
                yield Diagnostic(location, f"test data for {topic!r}, {_OF_OTHERS}", _MAKE_OWN)
        yield from self._faults_of_moves(location)
        yield from self._faults_of_upgrade(location)
        given = {**self.topic_partitions, **self.partitions_of_others}
        try:
            refuse_wrong_counts(self.topology, given, self.topics_of_others)
        except Refused as error:
            expected = f"{error.subject}: expected {error.expected}"
            yield Diagnostic(
                location, expected + (f", observed {error.observed}" if error.observed else ""), error.remedy
            )

    def _faults_of_moves(self, location: SourceLocation) -> Iterable[Diagnostic]:
        if self.repartition_from and self._joins_by_foreign_key:
            yield Diagnostic(
                location,
                "repartition_from cannot be used: the topology joins tables by a foreign key, whose subscriptions name "
                "partitions",
                "Copy the records into a new topic, and give the topology another application id",
            )
        sources, topology = self.topology.source_topics, self.topology
        others = {*sources, *topology.sink_topics, *map(topology.decorate, topology.internal_topics)}
        for new, old in self.repartition_from.items():
            if new not in sources:
                yield Diagnostic(
                    location,
                    f"repartition_from moves to {new!r}, which the topology does not read",
                    f"It reads {', '.join(sources)}",
                )
            elif new in self.topics_of_others:
                yield Diagnostic(location, f"repartition_from moves to {new!r}, {_OF_OTHERS}", _MAKE_OWN)
            if old in others:
                yield Diagnostic(
                    location,
                    f"repartition_from moves from {old!r}, which the topology reads or writes still",
                    "Let the topology read the new topic in its place",
                )
            elif fault := name_fault(old):
                yield Diagnostic(location, f"repartition_from: {fault}", "Name the topic that the records are in")
        if len({*self.repartition_from.values()}) < len(self.repartition_from):
            yield Diagnostic(location, "repartition_from moves one topic to two", "Name each topic once")

    def _faults_of_upgrade(self, location: SourceLocation) -> Iterable[Diagnostic]:
        if self.upgrade_from is None:
            return
        if self.upgrade_from == self.topology.application_id:
            yield Diagnostic(
                location,
                f"upgrade_from is the application id of the topology itself, {self.upgrade_from!r}",
                "Give the changed topology another application id, and name the old one here",
            )
        elif fault := name_fault(self.upgrade_from):
            yield Diagnostic(location, f"upgrade_from: {fault}", "Name the application id that runs now")
        if self._joins_by_foreign_key:
            yield Diagnostic(
                location,
                "upgrade_from cannot be used: the topology joins tables by a foreign key. Its two sub-topologies read "
                "what each other writes, so that there is no moment at which both are done",
                "Give the changed topology another application id and other sink topics, and let both run",
            )
        if self.repartition_from:
            yield Diagnostic(
                location, "upgrade_from and repartition_from are both declared", "Move the records first, then upgrade"
            )
        for topic in self.topology.source_topics:
            if topic in self.topology.sink_topics:
                yield Diagnostic(
                    location,
                    f"upgrade_from cannot be used: the topology would read the staging topic of {topic!r}",
                    "Pass the records through repartition(), or reset the application",
                )

    @property
    def _joins_by_foreign_key(self) -> bool:
        return any(group.processors_with(SubscriptionSend) for group in self.topology.subtopologies)

    def require_test_data(self) -> TestData:
        """Return the test data.

        Raises:
            Refused: The declaration has none.
        """
        if self.test_data is None:
            raise Refused(
                f"the test data of {self.name}",
                expected="records to write",
                observed="none in the declaration",
                remedy=f"Others write {', '.join(self.topology.source_topics)}. Declare test_data=TestData(…) where "
                "Streamplan is to write records.",
            )
        return self.test_data

    @property
    def source_serdes(self) -> Mapping[str, Serde]:
        """The serdes of the values of the source topics, by topic."""
        nodes = self.topology.processors.nodes
        return {node.topic: node.value for node in nodes if isinstance(node, Source) and node.value is not None}

    @property
    def stores(self) -> tuple[tuple[Subtopology, Processor], ...]:
        """Every processor that writes a state store, each with its sub-topology."""
        return tuple(
            (group, node) for group in self.topology.subtopologies for node in group.processors if node.writes_store
        )

    @property
    def start_moment(self) -> StartMoment:
        """Where a new application begins to read."""
        return StartMoment.parse(self.auto_offset_reset)

    @cached_property
    def tables(self) -> frozenset[str]:
        """The source topics that are read as tables, or as global tables."""
        return frozenset(
            source.topic
            for group in (*self.topology.subtopologies, *self.topology.global_stores)
            for source in group.sources
            for node in group.processors
            if isinstance(node.operation, TableSource | GlobalTableSource)
            and group.predecessors[node.name] == (source.name,)
        )

    @cached_property
    def topics_of_others(self) -> tuple[str, ...]:
        """The source topics that others own. A topic that the topology also writes is none of them."""
        own = {*self.topic_partitions, *self.topology.sink_topics}
        return tuple(topic for topic in self.topology.source_topics if topic not in own)

    @property
    def is_resolved(self) -> bool:
        """Whether the partition counts of all source topics are known."""
        return self.partitions_of_others.keys() >= {*self.topics_of_others}

    def resolved(self, counts: Mapping[str, int]) -> Pipeline:
        """Return the pipeline with the partition counts that a cluster has of the external topics.

        Args:
            counts: The partition counts of the topics that exist.

        Raises:
            Refused: An external topic does not exist, or topics that are joined have different counts.
        """
        if missing := [topic for topic in self.topics_of_others if topic not in counts]:
            raise Refused(
                f"topic {', '.join(missing)}",
                expected=f"an external topic, which {self.name} reads",
                observed="no such topic",
                remedy="Its owner creates it. Where Streamplan is to create it, declare its number of partitions in "
                "topic_partitions.",
            )
        return replace(self, partitions_of_others={topic: counts[topic] for topic in self.topics_of_others})

    @property
    def producer_transactional_id(self) -> str:
        """The transactional id of the producer of test data."""
        return f"{self.topology.application_id}-producer"

    @property
    def repartition_group(self) -> str:
        """The consumer group whose offsets hold the progress of a repartition. It exists while one is under way."""
        return f"{self.topology.application_id}-repartition"

    @property
    def written_topics(self) -> frozenset[str]:
        """The topics that the sub-topologies write with their sinks, by their names in Kafka."""
        sinks = (topic for subtopology in self.topology.subtopologies for topic in subtopology.sink_topics)
        return frozenset(map(self.topology.decorate, sinks))

    @property
    def staging_topics(self) -> Mapping[str, str]:
        """By topic that is written with ``to`` what is written in its place while the application stands beside."""
        return {topic: f"{self.topology.application_id}-staging-{topic}" for topic in self.topology.sink_topics}

    def staged(self, counts: Mapping[str, int]) -> Pipeline:
        """Return the pipeline with staging topics in place of the topics that it writes with ``to``.

        Args:
            counts: The partition counts of the topics that exist. A staging topic has as many as its topic.
        """
        staging = self.staging_topics
        declared = {topic: count for topic, count in self.topic_partitions.items() if topic not in staging}
        known = {topic: count for topic in staging if (count := counts.get(topic) or self.topic_partitions.get(topic))}
        return replace(
            self,
            topology=self.topology.with_sink_topics(staging),
            topic_partitions=declared | {staging[topic]: count for topic, count in known.items()},
        )

    def with_schemas(self, schemas: SchemaSource) -> Pipeline:
        """Return the pipeline with serdes that look up schemas: the id in a value of Avro is that of a schema.

        Args:
            schemas: Knows the schemas.
        """
        topology = self.topology.with_schemas(schemas)
        return self if topology is self.topology else replace(self, topology=topology)

    @cached_property
    def partition_counts(self) -> Mapping[str, int]:
        """The partition count of every topic that the topology reads or writes, by its name in Kafka.

        Raises:
            Refused: The counts of external topics are not resolved.
        """
        if not self.is_resolved:
            raise Refused(
                f"the partition counts of {self.name}",
                expected="a partition count for every source topic",
                observed=f"no partition count for {', '.join(self.topics_of_others)}, which others own",
                remedy="Name the brokers: the cluster has the partition counts. To let Streamplan create a topic, "
                "declare its count in topic_partitions.",
            )
        counts = resolve_partition_counts(self.topology, {**self.topic_partitions, **self.partitions_of_others})
        return {self.topology.decorate(topic): count for topic, count in counts.items()}

    def source_topics(self, subtopology: Subtopology) -> tuple[str, ...]:
        """The topics that a sub-topology reads, by their names in Kafka."""
        return tuple(dict.fromkeys(self.topology.decorate(topic) for topic in subtopology.source_topics))

    def partitions(self, subtopology: Subtopology) -> int:
        """The number of stream tasks of a sub-topology: the greatest partition count of the topics that it reads."""
        return self._tasks_of(subtopology, self.partition_counts)

    def _tasks_of(self, subtopology: Subtopology, counts: Mapping[str, int]) -> int:
        return max(counts[topic] for topic in self.source_topics(subtopology))

    def tasks(self) -> tuple[TaskId, ...]:
        """Every stream task."""
        return tuple(
            TaskId(subtopology.id, partition)
            for subtopology in self.topology.subtopologies
            for partition in range(self.partitions(subtopology))
        )

    def internal_topics(self) -> tuple[TopicSpec, ...]:
        """Return the topics that belong to the application alone."""
        return tuple(spec for spec in self.topics() if spec.role in INTERNAL_ROLES)

    def topics(self) -> tuple[TopicSpec, ...]:
        """Every topic: sources, repartition topics, changelogs, sinks, the dead-letter topic.

        Raises:
            Refused: The counts of external topics are not resolved.
        """
        return self._specs(self.partition_counts)

    def declared_topics(self) -> tuple[TopicSpec, ...]:
        """Every topic, also while the counts are not resolved. Each count is 0 then."""
        return self.topics() if self.is_resolved else self._specs(defaultdict(int))

    @cached_property
    def key_types(self) -> Mapping[str, str]:
        """The names of the serdes of keys, by topic in Kafka; a topic with keys of several serdes is left out."""
        topology, found = self.topology, defaultdict[str, set[str]](set)
        for group in (*topology.subtopologies, *topology.global_stores):
            for node in group.nodes:
                key_type = group.key_serde_of(node.name).key_type
                if isinstance(node, Sink):
                    found[topology.decorate(node.topic)].add(group.key_type_in_topic(node))
                elif isinstance(node, Source):
                    found[topology.decorate(node.topic)].add(key_type)
                elif node.writes_store and node.store is not None:
                    found[topology.changelog_topic(node.store)].add(key_type)
        return {topic: min(key_types) for topic, key_types in found.items() if len(key_types) == 1}

    def _specs(self, counts: Mapping[str, int]) -> tuple[TopicSpec, ...]:
        topology = self.topology
        specs = [
            TopicSpec(topic, TopicRole.SOURCE, counts[topic], {}, owned=False)
            if topic in self.topics_of_others
            else TopicSpec(
                topic, TopicRole.SOURCE, counts[topic], TABLE_CONFIGS if topic in self.tables else SOURCE_CONFIGS
            )
            for topic in topology.source_topics
        ]
        specs += [
            TopicSpec(topic, TopicRole.REPARTITION, counts[topic], REPARTITION_CONFIGS)
            for topic in (topology.decorate(topic.name) for topic in topology.repartition_topics)
        ]
        specs += [
            TopicSpec(
                topology.changelog_topic(node.store),
                TopicRole.CHANGELOG,
                self._tasks_of(group, counts),
                *_changelog_configs(node.operation),
                prefix_bytes=_prefix_bytes(node.operation),
                number_bytes=SEQUENCE_NUMBER_BYTES if isinstance(node.operation, BufferRecords) else 0,
                primary_key_type=node.operation.primary_keys.key_type
                if isinstance(node.operation, SubscriptionReceive)
                else None,
            )
            for group, node in self.stores
            if node.store is not None
        ]
        specs += [
            TopicSpec(topic, TopicRole.SINK, counts[topic], SINK_CONFIGS)
            for topic in topology.sink_topics
            if topic not in topology.source_topics
        ]
        most = max(self._tasks_of(group, counts) for group in topology.subtopologies)
        specs.append(TopicSpec(topology.dead_letter_topic, TopicRole.DEAD_LETTER, most, DEAD_LETTER_CONFIGS))
        return tuple(replace(spec, key_type=self.key_types.get(spec.name, spec.key_type)) for spec in specs)


def _prefix_bytes(operation: Operation) -> int:
    """How many bytes of the keys of a changelog stand before those of the records."""
    match operation:
        case OuterJoinSide():
            return TIME_AND_SIDE_BYTES
        case BufferRecords():
            return PREFIX_AND_TIME_BYTES
    return 0


def _changelog_configs(operation: Operation) -> tuple[Mapping[str, str], int]:
    """The configs of a changelog, and how many bytes of its keys are those of a window."""
    match operation:
        case Count(window=window) | Aggregate(window=window) if window is not None:
            stored_bytes = STORED_SESSION_BYTES if isinstance(window, SessionWindows) else STORED_WINDOW_BYTES
            return windowed_changelog_configs(window.changelog_retention_ms), stored_bytes
        case SessionStateStore(retention_ms=retention_ms) if retention_ms is not None:
            configs = windowed_changelog_configs(retention_ms + WINDOWED_CHANGELOG_ADDITIONAL_RETENTION_MS)
            return configs, STORED_SESSION_BYTES
        case StateStore(retention_ms=retention_ms, retain_duplicates=duplicates) if retention_ms is not None:
            configs_of = stream_join_changelog_configs if duplicates else windowed_changelog_configs
            return configs_of(retention_ms + WINDOWED_CHANGELOG_ADDITIONAL_RETENTION_MS), STORED_WINDOW_BYTES
        case VersionedTableSource(history_ms=history_ms) | VersionedStateStore(history_ms=history_ms):
            return versioned_changelog_configs(history_ms), 0
        case StoreForJoin(windows=windows):
            return stream_join_changelog_configs(windows.changelog_retention_ms), STORED_WINDOW_BYTES
    return CHANGELOG_CONFIGS, 0


def _colliding(topics: Mapping[str, SourceLocation]) -> Iterable[Diagnostic]:
    """The topics of which Kafka creates one only (``Topic.hasCollision``): its metrics have ``_`` in place of ``.``."""
    first: dict[str, str] = {}
    for topic, declared in topics.items():
        other = first.setdefault(topic.replace(".", "_"), topic)
        if other != topic:
            yield Diagnostic(
                declared,
                f"the topics {other!r} and {topic!r} cannot both exist: Kafka takes '.' and '_' for the same",
                "Choose names that differ in another character",
            )


def _cycle(topology: Topology, location: SourceLocation) -> Iterable[Diagnostic]:
    """The topics whose records lead, through what the topology writes, back into the same topic.

    A repartition topic is never read by those who write it. But its reader and its writer are one sub-topology when
    they join with one table, and Spark cannot plan a query before the query that writes what it reads.
    """
    in_cycle = _topics_in_cycles(topology)
    for topic in topology.source_topics:
        if topic in in_cycle:
            sinks = [sink for group in topology.subtopologies for sink in group.sinks if sink.topic in in_cycle]
            declared = next((sink.location for sink in sinks if sink.topic == topic), location)
            yield Diagnostic(
                declared, f"a cycle: what is read from {topic!r} is written back into it", "Write to another topic"
            )
    if in_cycle.isdisjoint(topology.source_topics):
        for repartition in topology.repartition_topics:
            if repartition.name in in_cycle:
                yield Diagnostic(
                    repartition.location,
                    f"the repartition topic {repartition.name!r} is written and read by one sub-topology, since the "
                    "same table or stream is joined before it and behind it",
                    "Let both joins begin behind a topic: stream.repartition().join(…) beside "
                    "stream.select_key(…).join(…)",
                )


def _answers(source: Source, sink: Sink, group: Subtopology) -> bool:
    """Whether a source has responses, and a sink subscriptions. No response leads to its own subscription again."""
    after_source = group.downstream_of([source.name])
    subscribers, joins = group.processors_with(SubscriptionSend), group.processors_with(ResponseJoin)
    sends = any(node.name in group.predecessors[sink.name] for node in subscribers)
    return sends and any(node.name in after_source for node in joins)


def _topics_in_cycles(topology: Topology) -> set[str]:
    leads_to = {
        source.topic: {sink.topic for sink in group.sinks if not _answers(source, sink, group)}
        for group in topology.subtopologies
        for source in group.sources
    }
    found = set()
    for topic in leads_to:
        reached: set[str] = set()
        pending = set(leads_to[topic])
        while pending:
            reached |= pending
            pending = {further for written in pending for further in leads_to.get(written, ())} - reached
        if topic in reached:
            found.add(topic)
    return found
