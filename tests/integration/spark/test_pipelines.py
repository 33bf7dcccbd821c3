"""Every declared pipeline, killed in the middle, against a plain recount and against the real Kafka Streams.

A pipeline runs once: two thirds of its records are there when the aggregator starts under spark-submit with small
micro-batches; it is killed at work; the last third comes, and what is left is drained. Meanwhile the library computes
the same topology from the same topics. Each test below then compares one thing of what is in Kafka.

A new pipeline fails here until it has a line in ``CASES`` of ``tests/support/pipeline_cases.py``.
"""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from streamplan.kafka.brokers import PROPERTIES_VARIABLE, Brokers
from streamplan.kafka.schema_registry import SchemaRegistry
from streamplan.kafka.topics import apply_specs, apply_topics
from streamplan.model.pipeline import Pipeline
from streamplan.testing.declared_schemas import DeclaredSchemas

from tests.support.aggregator_process import Aggregator, await_condition
from tests.support.examples import PIPELINES
from tests.support.kafka_streams import STREAMS, properties
from tests.support.pipeline_cases import CASES, HOUR_MS, Expected
from tests.support.records import read_committed
from tests.support.schema_registry_server import SchemaRegistryServer, schema_registry
from tests.support.streams_library import Callback, Library, PartitionOf, Record, forget, java_with_callbacks

MAX_OFFSETS = 500
"""Of a micro-batch, so that there are several before the kill and after it."""

COUNTING = ("orders", "users", "wide", "skewed", "pageviews", "trending", "words", "parcels")


# -- a run


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    with java_with_callbacks() as jvm:
        yield jvm


def partitioner(jvm: Any) -> PartitionOf:
    """The library's own."""

    def partition_of(key: bytes, partitions: int) -> int:
        producer = jvm.org.apache.kafka.clients.producer
        return int(producer.internals.BuiltInPartitioner.partitionForKey(key, partitions))

    return partition_of


@dataclass(frozen=True)
class Run:
    """What was produced, and what is in the topics afterwards. ``library`` has its own under the names of ours."""

    pipeline: Pipeline
    expected: Expected
    ours: Mapping[str, Sequence[Message]]
    library: Mapping[str, Sequence[Message]]
    descriptions: tuple[str, str]
    partition_of: PartitionOf
    read: Callable[[bytes], Any]


QUICK = ("enriched",)
"""A join. The others run in ``make soak``."""


@pytest.fixture(scope="module")
def new_registry() -> Iterator[Callable[[], SchemaRegistryServer]]:
    """Starts a registry without a schema, so that the ids of a pipeline's schemas begin with 1."""
    with ExitStack() as registries:
        yield lambda: registries.enter_context(schema_registry())


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(pipeline, id=pipeline.name, marks=() if pipeline.name in QUICK else pytest.mark.soak)
        for pipeline in PIPELINES
    ],
)
def ran(
    request: pytest.FixtureRequest,
    jvm: Any,
    bootstrap_servers: str,
    tmp_path_factory: pytest.TempPathFactory,
    spark_environment: Mapping[str, str],
    spark_jars: Path,
    new_registry: Callable[[], SchemaRegistryServer],
) -> Iterator[Run]:
    pipeline: Pipeline = request.param
    if pipeline.name not in CASES:
        pytest.fail(f"nobody has written what {pipeline.name} is to compute: add it to CASES")
    case = CASES[pipeline.name]
    partition_of = partitioner(jvm)
    records = case.records(pipeline.with_schemas(DeclaredSchemas.of(pipeline)), partition_of)
    home = tmp_path_factory.mktemp(pipeline.name)
    topology = pipeline.topology
    library = Library(jvm, f"jvm-{pipeline.name}-{uuid.uuid4().hex[:8]}")
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    registry = new_registry()
    environment = {**spark_environment, PROPERTIES_VARIABLE: json.dumps(dict(registry.properties))}
    aggregator = Aggregator(bootstrap_servers, home, environment, spark_jars, pipeline=pipeline.name)
    try:
        for serde in pipeline.with_schemas(SchemaRegistry(registry.properties)).source_serdes.values():
            serde.prepare_to_write()  # as the producer does
        apply_topics(Brokers(bootstrap_servers), pipeline)
        outputs = [NewTopic(library.output(name), pipeline.partition_counts[name], 2) for name in topology.sink_topics]
        for future in (admin.create_topics(outputs) if outputs else {}).values():
            future.result(120)
        before = len(records) * 2 // 3
        produce(bootstrap_servers, records[:before])
        kill_at_work(bootstrap_servers, pipeline, aggregator)
        produce(bootstrap_servers, records[before:])
        drained = aggregator.start("--available-now", "--max-offsets", str(2 * MAX_OFFSETS))
        case.declare(library)
        built = library.builder.build()
        with at_work(library, built, bootstrap_servers, home / "library") as faults:
            assert drained.wait(600) == 0, aggregator.log.read_text()[-3000:]
            await_drained(library, pipeline, bootstrap_servers, faults)
        ours, theirs = {}, {}
        for spec in pipeline.topics():
            if spec.name not in topology.source_topics:
                ours[spec.name] = read_committed(bootstrap_servers, spec.name)
            if spec.name not in (*topology.source_topics, topology.dead_letter_topic):
                theirs[spec.name] = read_committed(bootstrap_servers, library_topic(library, pipeline, spec.name))
        description = str(built.describe().toString())
        for name in topology.sink_topics:
            description = description.replace(library.output(name), name)
        yield Run(
            pipeline, case.recount(records), ours, theirs, (topology.describe(), description), partition_of, case.read
        )
    finally:
        aggregator.kill()
        names = [spec.name for spec in pipeline.topics()]
        names += [name for name in admin.list_topics(timeout=60).topics if name.startswith(library.application_id)]
        futures = [*admin.delete_topics(names).values()]
        futures += admin.delete_consumer_groups([topology.application_id, library.application_id]).values()
        for future in futures:
            future.exception(120)


def library_topic(library: Library, pipeline: Pipeline, name: str) -> str:
    """The library's counterpart of a topic that the pipeline writes."""
    if name in pipeline.topology.sink_topics:
        return library.output(name)
    return f"{library.application_id}-{name.removeprefix(f'{pipeline.topology.application_id}-')}"


def produce(bootstrap_servers: str, records: Iterable[Record]) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "partitioner": "murmur2_random", "enable.idempotence": True}
    )
    refused: list[str] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            refused.append(f"{message.topic()}, key {message.key()!r}: {error}")

    for record in records:
        producer.produce(
            record.topic, key=record.key, value=record.value, timestamp=record.timestamp, on_delivery=delivered
        )
    assert producer.flush(120) == 0
    assert not refused, refused[0]


def committed(group: Consumer, partitions: list[TopicPartition]) -> list[TopicPartition]:
    """The positions of a group; none while the brokers are still electing who knows them."""
    try:
        found: list[TopicPartition] = group.committed(partitions, 60)
    except KafkaException as error:
        if not error.args[0].retriable() and error.args[0].code() != KafkaError.NOT_COORDINATOR:
            raise
        return partitions
    return found


def kill_at_work(bootstrap_servers: str, pipeline: Pipeline, aggregator: Aggregator) -> None:
    """When its last sub-topology has committed something, and not all is done."""
    # Who reads committed positions waits for the transactions that the killed one leaves open.
    group = {"group.id": pipeline.topology.application_id, "isolation.level": "read_uncommitted"}
    positions = Consumer({"bootstrap.servers": bootstrap_servers, **group})

    def progress(topic: str) -> tuple[int, int]:
        """The sum of the positions, and that of the ends."""
        at = [TopicPartition(topic, partition) for partition in range(pipeline.partition_counts[topic])]
        done = sum(max(found.offset, 0) for found in committed(positions, at))
        return done, sum(positions.get_watermark_offsets(one, 60)[1] for one in at)

    first, last = (pipeline.source_topics(pipeline.topology.subtopologies[number])[-1] for number in (0, -1))
    try:
        aggregator.start("--max-offsets", str(MAX_OFFSETS), "--trigger-interval-ms", "0")
        await_condition("progress", lambda: progress(last)[0] > 0, aggregator.log)
        time.sleep(0.2)  # so that it is no more between two micro-batches
        aggregator.kill()
        assert any(done < end for done, end in map(progress, (first, last))), "all was done before the kill"
    finally:
        positions.close()


@contextmanager
def at_work(library: Library, built: Any, bootstrap_servers: str, state: Path) -> Iterator[list[str]]:
    """The library's application, closed afterwards. Yields the faults of its threads."""
    jvm = library.jvm
    config = {
        "application.id": library.application_id,
        "bootstrap.servers": bootstrap_servers,
        "state.dir": str(state),
        "processing.guarantee": "exactly_once_v2",
        "commit.interval.ms": "100",
        "auto.offset.reset": "earliest",
        "max.task.idle.ms": "2000",
        "__emit.interval.ms.kstreams.outer.join.spurious.results.fix__": "0",  # and not once in a second
        "__emit.interval.ms.kstreams.windowed.aggregation__": "0",
        "repartition.purge.interval.ms": str(HOUR_MS),  # what went through is compared
        "default.key.serde": "org.apache.kafka.common.serialization.Serdes$ByteArraySerde",
        "default.value.serde": "org.apache.kafka.common.serialization.Serdes$ByteArraySerde",
        "deserialization.exception.handler": f"{STREAMS}.errors.LogAndContinueExceptionHandler",
    }
    faults: list[str] = []
    handler = jvm.org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler

    def handle(fault: Any) -> Any:
        faults.append(str(fault.toString()))
        return handler.StreamThreadExceptionResponse.SHUTDOWN_CLIENT

    application = jvm.org.apache.kafka.streams.KafkaStreams(built, properties(jvm, config))
    application.setUncaughtExceptionHandler(
        Callback(f"{STREAMS}.errors.StreamsUncaughtExceptionHandler", handle=handle)
    )
    options = jvm.org.apache.kafka.streams.CloseOptions
    leave = jvm.org.apache.kafka.streams.CloseOptions.GroupMembershipOperation.LEAVE_GROUP
    try:
        application.start()
        yield faults
    finally:
        closed = application.close(
            options.groupMembershipOperation(leave).withTimeout(jvm.java.time.Duration.ofSeconds(120))
        )
        assert closed, "the library's application did not close within 120 s"


def await_drained(library: Library, pipeline: Pipeline, bootstrap_servers: str, faults: list[str]) -> None:
    """Until the library has committed every record of every topic that it reads, in the order in which they flow."""
    deadline = time.monotonic() + 300
    group = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": library.application_id})
    try:
        for subtopology in pipeline.topology.subtopologies:
            for name in pipeline.source_topics(subtopology):
                outside = name in pipeline.topology.source_topics
                topic = name if outside else library_topic(library, pipeline, name)
                # Not the ends of the topics: behind the last record there may be a marker that nobody commits.
                ends: dict[int, int] = {}
                for message in read_committed(bootstrap_servers, topic):
                    ends[message.partition()] = max(ends.get(message.partition(), 0), message.offset() + 1)
                asked = [TopicPartition(topic, partition) for partition in ends]
                while asked and any(found.offset < ends[found.partition] for found in committed(group, asked)):
                    assert not faults, faults[0]
                    assert time.monotonic() < deadline, f"the library is not through {topic} after 300 s"
                    time.sleep(0.1)
    finally:
        group.close()


# -- what is compared


def last_values(messages: Iterable[Message]) -> dict[bytes, tuple[int, bytes, int]]:
    """Of each key that is not deleted partition, value and timestamp of the last record."""
    last = {m.key(): (m.partition(), m.value(), m.timestamp()[1]) for m in messages}
    return {key: found for key, found in last.items() if found[1] is not None}


def results_of(messages: Iterable[Message], read: Callable[[bytes], Any]) -> dict[bytes, list[Any]]:
    """All values of each key, in their order."""
    found: dict[bytes, list[Any]] = {}
    for message in messages:
        found.setdefault(message.key(), []).append(read(message.value()))
    return found


def changelogs(run: Run) -> list[str]:
    return [spec.name for spec in run.pipeline.topics() if spec.role == "changelog"]


def repartition_topics(run: Run) -> list[str]:
    """Without those of a join by a foreign key, to which the library sends less: its cache holds updates back."""
    topics = [spec.name for spec in run.pipeline.topics() if spec.role == "repartition"]
    return [name for name in topics if name.endswith("-repartition")]


# -- begun by the library: before all tests with a run, whose topics have the same names


class Ours(Library):
    """Declares the topology under our application id, and writes to our outputs."""

    def output(self, topic: str) -> str:
        return topic


@pytest.mark.soak
@pytest.mark.parametrize("pipeline", PIPELINES, ids=lambda pipeline: pipeline.name)
def test_what_kafka_streams_has_begun_is_finished(
    pipeline: Pipeline,
    jvm: Any,
    bootstrap_servers: str,
    tmp_path: Path,
    spark_environment: Mapping[str, str],
    spark_jars: Path,
    new_registry: Callable[[], SchemaRegistryServer],
) -> None:
    """The application in Java has processed the first half of the records and has left its state in Kafka."""
    case, topology = CASES[pipeline.name], pipeline.topology
    records = case.records(pipeline.with_schemas(DeclaredSchemas.of(pipeline)), partitioner(jvm))
    library = Ours(jvm, topology.application_id)
    registry = new_registry()
    environment = {**spark_environment, PROPERTIES_VARIABLE: json.dumps(dict(registry.properties))}
    aggregator = Aggregator(bootstrap_servers, tmp_path, environment, spark_jars, pipeline=pipeline.name)
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    outside = [*topology.source_topics, *topology.sink_topics]
    try:
        for serde in pipeline.with_schemas(SchemaRegistry(registry.properties)).source_serdes.values():
            serde.prepare_to_write()
        apply_specs(
            Brokers(bootstrap_servers), pipeline.name, [spec for spec in pipeline.topics() if spec.name in outside]
        )
        half = len(records) // 2
        produce(bootstrap_servers, records[:half])
        case.declare(library)
        with at_work(library, library.builder.build(), bootstrap_servers, tmp_path / "library") as faults:
            await_drained(library, pipeline, bootstrap_servers, faults)
        apply_topics(Brokers(bootstrap_servers), pipeline)
        produce(bootstrap_servers, records[half:])
        assert aggregator.start("--available-now", "--max-offsets", str(2 * MAX_OFFSETS)).wait(600) == 0
        expected = case.recount(records)
        numbered = {
            spec.name
            for spec in pipeline.topics()
            if spec.role == "changelog" and spec.configs["cleanup.policy"] == "delete"
        }
        for topic, last in expected.last.items():
            found = {key: at[1] for key, at in last_values(read_committed(bootstrap_servers, topic)).items()}
            if topic in numbered:  # the library numbers all records of a task
                found, last = ({key[:-4]: value for key, value in side.items()} for side in (found, last))
            assert found == last
        for topic, every in expected.every.items():
            assert results_of(read_committed(bootstrap_servers, topic), case.read) == every
    finally:
        aggregator.kill()
        forget(topology.application_id, bootstrap_servers)
        for future in admin.delete_topics(outside).values():
            future.exception(120)


# -- of a run


def test_the_library_runs_the_same_topology(ran: Run) -> None:
    ours, theirs = ran.descriptions
    assert ours == theirs


def test_the_last_value_of_each_key_is_the_recounted_one(ran: Run) -> None:
    """A subscription has a hash, and so is compared with the library's alone."""
    subscriptions = {spec.name for spec in ran.pipeline.topics() if spec.primary_key_type is not None}
    written = {*changelogs(ran), *ran.pipeline.topology.sink_topics} - subscriptions
    assert set(ran.expected.last) == written - set(ran.expected.every)
    for topic, expected in ran.expected.last.items():
        assert {key: value for key, (_, value, _) in last_values(ran.ours[topic]).items()} == expected


def test_every_record_is_repartitioned_once_into_the_partition_of_its_key(ran: Run) -> None:
    for topic in repartition_topics(ran):
        partitions = ran.pipeline.partition_counts[topic]
        placed = {key: ran.partition_of(key, partitions) for key, _ in ran.expected.passed}
        expected = Counter((placed[key], key, one.value, one.timestamp) for key, one in ran.expected.passed)
        assert Counter((m.partition(), m.key(), m.value(), m.timestamp()[1]) for m in ran.ours[topic]) == expected


def test_every_result_is_written_once_and_in_order(ran: Run) -> None:
    for topic, expected in ran.expected.every.items():
        for message in ran.ours[topic]:
            assert message.partition() == ran.partition_of(message.key(), ran.pipeline.partition_counts[topic])
        assert results_of(ran.ours[topic], ran.read) == expected


def test_what_cannot_be_processed_is_a_dead_letter_once(ran: Run) -> None:
    letters = ran.ours[ran.pipeline.topology.dead_letter_topic]
    origins = [dict(letter.headers())["streamplan.source.topic"].decode() for letter in letters]
    found = [
        Record(topic, m.key(), m.value() or None, m.timestamp()[1]) for topic, m in zip(origins, letters, strict=True)
    ]
    assert Counter(found) == Counter(one._replace(value=one.value or None) for one in ran.expected.dead)


def test_no_count_ever_falls_or_stands_still(ran: Run) -> None:
    if ran.pipeline.name in COUNTING:
        (changelog,) = changelogs(ran)
        seen: dict[bytes, list[int]] = {}
        for message in ran.ours[changelog]:
            seen.setdefault(message.key(), []).append(int.from_bytes(message.value(), "big"))
        assert all(found == sorted(set(found)) for found in seen.values())
        assert len(ran.ours[changelog]) > len(seen)  # there were several micro-batches


def test_changelogs_end_as_those_of_kafka_streams(ran: Run) -> None:
    for spec in ran.pipeline.topics():
        if spec.role == "changelog":
            ours, theirs = (last_values(messages[spec.name]) for messages in (ran.ours, ran.library))
            if spec.configs["cleanup.policy"] == "delete":  # the library numbers all records of a task
                ours, theirs = ({key[:-4]: found for key, found in side.items()} for side in (ours, theirs))
            assert ours == theirs


def test_repartition_topics_hold_what_those_of_kafka_streams_hold(ran: Run) -> None:
    for topic in repartition_topics(ran):
        ours, theirs = (
            Counter((m.partition(), m.key(), m.value(), m.timestamp()[1]) for m in messages)
            for messages in (ran.ours[topic], ran.library[topic])
        )
        assert ours == theirs


def test_outputs_are_those_of_kafka_streams(ran: Run) -> None:
    for topic in ran.pipeline.topology.sink_topics:
        if topic in ran.expected.every:
            ours, theirs = (
                [(m.partition(), m.timestamp()[1], m.key(), ran.read(m.value())) for m in messages]
                for messages in (ran.ours[topic], ran.library[topic])
            )
            assert sorted(ours, key=lambda one: one[:2]) == sorted(theirs, key=lambda one: one[:2])
        else:
            assert last_values(ran.ours[topic]) == last_values(ran.library[topic])
