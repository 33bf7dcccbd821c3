"""Every declared pipeline, killed in the middle, against a plain recount and against the real Kafka Streams.

A pipeline runs once: two thirds of its records are there when the aggregator starts under spark-submit with small
micro-batches; it is killed at work; the last third comes, and what is left is drained. Meanwhile the library computes
the same topology from the same topics. Each test below then compares one thing of what is in Kafka.

A new pipeline fails here until it has a line in ``CASES``.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.topics import apply_topics
from streamplan.model.pipeline import Pipeline
from streamplan.pipelines import PIPELINES

from tests.support.aggregator_process import Aggregator, await_condition
from tests.support.kafka_streams import STREAMS, properties
from tests.support.records import read_committed
from tests.support.streams_library import (
    Callback,
    KeyOf,
    Library,
    PartitionOf,
    Record,
    fields,
    java_with_callbacks,
    order_key,
    raw,
    text,
)

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
START_MS = int(time.time() * 1000) // HOUR_MS * HOUR_MS - 2 * HOUR_MS
"""Of the records' timestamps. Lately, since a windowed changelog forgets after days; on the hour, so that windows fall
among the records in every run alike."""

STEP_MS = 100
MAX_OFFSETS = 500
"""Of a micro-batch, so that there are several before the kill and after it."""


# -- what is produced


def numbered(pipeline: Pipeline, numbers: Iterable[int]) -> list[Record]:
    """The pipeline's own test data."""
    return [Record(*pipeline.test_data.record(n), START_MS + STEP_MS * n) for n in numbers]


def mixed_in(records: Sequence[Record], others: Sequence[tuple[str, bytes | None, bytes | None]]) -> list[Record]:
    """``others`` evenly spread, each a millisecond behind the record that it follows: no two timestamps are equal."""
    made = [
        Record(*other, records[(number + 1) * len(records) // (len(others) + 1)].timestamp + 1)
        for number, other in enumerate(others)
    ]
    return sorted([*records, *made], key=lambda record: record.timestamp)


# -- what must come of it


@dataclass
class Expected:
    """By topics, as told from the records alone.

    ``passed``   what goes through the repartition topic: the new key, and the record
    ``dead``     what goes to the dead-letter topic
    ``last``     the last value of each key
    ``every``    for a topic of single results each key's values in their order, as JSON
    """

    passed: list[tuple[bytes, Record]] = field(default_factory=list)
    dead: list[Record] = field(default_factory=list)
    last: dict[str, dict[bytes, bytes]] = field(default_factory=dict)
    every: dict[str, dict[bytes, list[dict[str, Any]]]] = field(default_factory=dict)


def regrouped(records: Iterable[Record], key_of: KeyOf) -> Expected:
    expected = Expected()
    for record in records:
        try:
            if (key := key_of(record.key, record.value)) is not None:
                expected.passed.append((key, record))
        except ValueError:
            expected.dead.append(record)
    return expected


def counts(keys: Iterable[bytes]) -> dict[bytes, bytes]:
    """As the library's ``LongSerializer`` writes them."""
    return {key: count.to_bytes(8, "big") for key, count in Counter(keys).items()}


def counted(changelog: str, key_of: KeyOf) -> Callable[[Sequence[Record]], Expected]:
    def recount(records: Sequence[Record]) -> Expected:
        expected = regrouped(records, key_of)
        expected.last[changelog] = counts(key for key, _ in expected.passed)
        return expected

    return recount


# -- the same with the library


# -- one of each for every pipeline


@dataclass(frozen=True)
class Case:
    """``declare`` is the pipeline's own file once more, with the library."""

    records: Callable[[Pipeline, PartitionOf], list[Record]]
    recount: Callable[[Sequence[Record]], Expected]
    declare: Callable[[Library], None]


def declare_orders(library: Library) -> None:
    orders = library.stream("orders", Id=str, ProductType=int)
    name = "orders-products-quantities"
    library.grouped(orders, order_key, name).count(library.stored(name))


def orders(pipeline: Pipeline, partition_of: PartitionOf) -> list[Record]:
    return mixed_in(
        numbered(pipeline, range(3000)),
        [
            ("orders", b"bad_1", b"not JSON"),
            ("orders", b"bad_2", b'{"Id": "bad", "ProductType": "1"}'),
            ("orders", None, b'{"Id": "without a key of its own", "ProductType": 1}'),  # and needs none
            ("orders", b"bad_3", b'{"Id": "bad", "ProductType": 2}'),
            ("orders", b"bad_4", None),
            ("orders", b"bad_5", b'{"Id": "bad"}'),
            ("orders", b"bad_5", b'{"Id": "bad"}'),
        ],
    )


def country_key(key: bytes | None, value: bytes | None) -> bytes:
    return text(fields(value, id=str, country=str).get("country"))


def declare_users(library: Library) -> None:
    library.grouped(library.stream("users", id=str, country=str), country_key, None).count()


def users(pipeline: Pipeline, partition_of: PartitionOf) -> list[Record]:
    return mixed_in(
        numbered(pipeline, range(3000)),
        [
            ("users", b"bad_1", b'{"id": "user"'),
            ("users", b"bad_2", b'{"id": "user", "country": 49}'),
            ("users", None, b'{"id": "user", "country": "DE"}'),
            ("users", None, b'{"id": "user", "country": null}'),
            ("users", b"moved", b'{"id": "user", "country": "K\xc3\xb8benhavn"}'),
        ],
    )


def device_key(key: bytes | None, value: bytes | None) -> bytes:
    return text(fields(value, id=str, device=str, reading=int).get("device"))


def declare_latest(library: Library) -> None:
    grouped = library.grouped(library.stream("sourceTopic", id=str, device=str, reading=int), device_key, "by-device")
    later = Callback(f"{STREAMS}.kstream.Reducer", apply=lambda one, other: raw(other))
    library.to(grouped.reduce(later, library.stored("latest")).toStream(), "targetTopic")


def measurements(pipeline: Pipeline, partition_of: PartitionOf) -> list[Record]:
    """Of each device those whose keys fall into one partition.

    What is latest is told by the offset in the repartition topic, and that of two records from two partitions is
    whichever task comes first.
    """
    mine: dict[bytes, int] = {}
    chosen = []
    for record in numbered(pipeline, range(6000)):
        assert record.key is not None
        partition = partition_of(record.key, pipeline.partition_counts[record.topic])
        if mine.setdefault(device_key(record.key, record.value), partition) == partition:
            chosen.append(record)
    return mixed_in(
        chosen,
        [
            ("sourceTopic", b"bad_1", b"[1]"),
            ("sourceTopic", b"bad_2", b'{"id": "bad", "device": "device_1", "reading": 0.5}'),
            ("sourceTopic", None, b'{"id": "without a key", "device": "one of its own", "reading": 1}'),
            ("sourceTopic", None, b'{"id": "bad", "reading": 1}'),
        ],
    )


def recount_latest(records: Sequence[Record]) -> Expected:
    expected = regrouped(records, device_key)
    latest = {key: record.value or b"" for key, record in expected.passed}
    expected.last = {"latest-by-device-latest-changelog": latest, "targetTopic": latest}
    return expected


def declare_enriched(library: Library) -> None:
    customers = library.builder.table("customers", library.consumed(name=str, city=str))

    def apply(purchase: Any, customer: Any) -> bytes:
        return json.dumps(enriched(json.loads(bytes(purchase)), json.loads(bytes(customer)))).encode()

    joiner = Callback(f"{STREAMS}.kstream.ValueJoiner", apply=apply)
    library.to(library.stream("purchases", id=str, amount=int).join(customers, joiner), "enriched-purchases")


def enriched(purchase: Mapping[str, Any], customer: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **{name: purchase[name] for name in ("id", "amount")},
        **{name: customer[name] for name in ("name", "city")},
    }


def purchases(pipeline: Pipeline, partition_of: PartitionOf) -> list[Record]:
    """Purchases in turn, and meanwhile customers move house, leave, and come back."""
    changes: list[tuple[str, bytes | None, bytes | None]] = []
    for n in range(200):
        customer = b"customer_%d" % (n * 7 % 103)  # three of them are new
        row = None if n % 6 == 5 else b'{"name": "Name after %d", "city": "City %d"}' % (n, n % 9)
        changes.append(("customers", customer, row))
        if n % 10 == 0:
            changes.append(("purchases", b"customer_%d" % (100 + n % 4), b'{"id": "extra_%d", "amount": %d}' % (n, n)))
        if n % 40 == 20:
            changes += [
                ("purchases", b"customer_1", b'{"id": "bad", "amount": "1"}'),
                ("customers", b"customer_1", b"not JSON"),
                ("purchases", b"customer_2", None),
                ("purchases", None, b'{"id": "nobody\'s", "amount": 1}'),
                ("customers", b"customer_2", b'{"name": 2, "city": "Gent"}'),
            ]
    return mixed_in(numbered(pipeline, range(2500)), changes)


def recount_enriched(records: Sequence[Record]) -> Expected:
    expected = Expected()
    customers: dict[bytes, bytes] = {}
    joined: dict[bytes, list[dict[str, Any]]] = {}
    for record in sorted(records, key=lambda record: record.timestamp):
        try:
            if record.topic == "customers" and record.value is None:
                customers.pop(record.key or b"", None)
            elif record.topic == "customers":
                fields(record.value, name=str, city=str)
                customers[record.key or b""] = record.value or b""
            elif record.value is not None:  # a join passes over a null value
                purchase = fields(record.value, id=str, amount=int)
                if record.key in customers:
                    joined.setdefault(record.key, []).append(enriched(purchase, json.loads(customers[record.key])))
        except ValueError:
            expected.dead.append(record)
    expected.last["purchase-enricher-customers-STATE-STORE-0000000000-changelog"] = customers
    expected.every["enriched-purchases"] = joined
    return expected


def sensor_key(key: bytes | None, value: bytes | None) -> bytes | None:
    fields(value, id=str)
    return text(None if key is None else key.decode())


def declare_wide(library: Library) -> None:
    repartitioned = library.option("Repartitioned", "with", library.bytes, library.bytes)
    repartitioned = repartitioned.withName("wide").withNumberOfPartitions(4)
    grouped = library.stream("readings", id=str).repartition(repartitioned).groupByKey()
    grouped.count(library.stored("readings-per-sensor"))


def readings(pipeline: Pipeline, partition_of: PartitionOf) -> list[Record]:
    return mixed_in(
        numbered(pipeline, range(3000)),
        [
            ("readings", b"bad_1", b'"a string"'),
            ("readings", b"bad_2", b'{"id": 7}'),
            ("readings", None, b'{"id": "of no sensor"}'),
            ("readings", b"", b'{"id": "of a sensor without a name"}'),
        ],
    )


def page_key(key: bytes | None, value: bytes | None) -> bytes:
    return text(fields(value, id=str, page=str).get("page"))


def declare_skewed(library: Library) -> None:
    clicks = library.stream("clicks", id=str, page=str)
    library.grouped(clicks, page_key, "by-page").count(library.stored("clicks-by-page"))


def clicks(pipeline: Pipeline, partition_of: PartitionOf) -> list[Record]:
    return mixed_in(
        numbered(pipeline, range(3000)),
        [
            ("clicks", b"bad_1", b""),
            ("clicks", b"bad_2", b'{"id": "click", "page": {"name": "home"}}'),
            ("clicks", None, b'{"id": "click", "page": "home"}'),
            ("clicks", None, b'{"id": "click"}'),
        ],
    )


def view_key(key: bytes | None, value: bytes | None) -> bytes | None:
    view = fields(value, id=str, country=str, robot=bool)
    return text(view.get("country")) if view.get("robot") is False else None


def declare_pageviews(library: Library) -> None:
    def no_robot(key: Any, value: Any) -> bool:
        return value is not None and json.loads(bytes(value)).get("robot") is False

    views = library.stream("pageviews", id=str, country=str, robot=bool)
    views = views.filter(Callback(f"{STREAMS}.kstream.Predicate", test=no_robot))
    duration = library.jvm.java.time.Duration
    minutes = library.option("TimeWindows", "ofSizeAndGrace", duration.ofMinutes(1), duration.ofDays(1))
    windowed = library.grouped(views, view_key, "by-country").windowedBy(minutes)
    windowed.count(library.stored("views-per-country-and-minute"))


def views(pipeline: Pipeline, partition_of: PartitionOf) -> list[Record]:
    """Every fiftieth comes one and a half minutes late."""
    late = [
        record._replace(timestamp=record.timestamp - 90_000 * (n % 50 == 49))
        for n, record in enumerate(numbered(pipeline, range(4000)))
    ]
    bad = [
        ("pageviews", b"bad_1", b"}"),
        ("pageviews", b"bad_2", b'{"id": "view", "country": "DE", "robot": "false"}'),
        ("pageviews", None, b'{"id": "view", "country": "DE", "robot": false}'),
        ("pageviews", b"bad_3", b'{"id": "view", "robot": false}'),
        ("pageviews", b"unknown", b'{"id": "view", "country": "DE"}'),  # not known to be no robot: left out
    ]
    return [*late, *(Record(*one, START_MS + number) for number, one in enumerate(bad))]


def recount_views(records: Sequence[Record]) -> Expected:
    expected = regrouped(records, view_key)
    expected.last["pageviews-per-minute-views-per-country-and-minute-changelog"] = counts(
        key + (record.timestamp // MINUTE_MS * MINUTE_MS).to_bytes(8, "big") + bytes(4)
        for key, record in expected.passed
    )
    return expected


def product_key(key: bytes | None, value: bytes | None) -> bytes:
    return text(fields(value, id=str, product=str).get("product"))


def declare_trending(library: Library) -> None:
    duration = library.jvm.java.time.Duration
    windows = library.option("TimeWindows", "ofSizeAndGrace", duration.ofMinutes(5), duration.ofDays(1))
    views = library.grouped(library.stream("product-views", id=str, product=str), product_key, "by-product")
    windowed = views.windowedBy(windows.advanceBy(duration.ofMinutes(1)))
    windowed.count(library.stored("views-in-five-minutes"))


def product_views(pipeline: Pipeline, partition_of: PartitionOf) -> list[Record]:
    """Every fiftieth comes one and a half minutes late."""
    late = [
        record._replace(timestamp=record.timestamp - 90_000 * (n % 50 == 49))
        for n, record in enumerate(numbered(pipeline, range(4000)))
    ]
    bad = [("product-views", b"bad", b"}"), ("product-views", None, b'{"id": "view", "product": "boots"}')]
    return [*late, *(Record(*one, START_MS + number) for number, one in enumerate(bad))]


def recount_product_views(records: Sequence[Record]) -> Expected:
    expected = regrouped(records, product_key)
    expected.last["trending-products-views-in-five-minutes-changelog"] = counts(
        key + (record.timestamp // MINUTE_MS * MINUTE_MS - before * MINUTE_MS).to_bytes(8, "big") + bytes(4)
        for key, record in expected.passed
        for before in range(5)
    )
    return expected


def words_of(value: bytes | None) -> list[bytes]:
    """Raises ValueError where the value is not UTF-8."""
    return [] if value is None else [word.encode() for word in re.findall("[a-z]+", value.decode().lower())]


def word_value(word: bytes) -> bytes:
    return b'{"word":"%b"}' % word


def declare_words(library: Library) -> None:
    lines = library.builder.stream("text-lines", library.consumed_if(words_of))

    def apply(key: Any, value: Any) -> Any:
        words = library.jvm.java.util.ArrayList()
        for word in words_of(raw(value)):
            words.add(library.jvm.org.apache.kafka.streams.KeyValue(word, word_value(word)))
        return words

    words = lines.flatMap(Callback(f"{STREAMS}.kstream.KeyValueMapper", apply=apply))
    grouped = words.groupByKey(library.option("Grouped", "with", "by-word", library.bytes, library.bytes))
    counts = grouped.count(library.stored("words"))
    produced = library.option("Produced", "with", library.bytes, library.serdes.Long())
    counts.toStream().to(library.output("word-counts"), produced)


def text_lines(pipeline: Pipeline, partition_of: PartitionOf) -> list[Record]:
    return mixed_in(
        numbered(pipeline, range(2500)),
        [
            ("text-lines", b"bad", b"caf\xe9 in Latin-1"),
            ("text-lines", b"page", None),
            ("text-lines", b"page", b""),
            ("text-lines", None, "Ω, und Käse".encode()),
        ],
    )


def recount_words(records: Sequence[Record]) -> Expected:
    expected = Expected()
    for record in records:
        try:
            for word in words_of(record.value):
                expected.passed.append((word, record._replace(key=word, value=word_value(word))))
        except ValueError:
            expected.dead.append(record)
    words = counts(key for key, _ in expected.passed)
    expected.last = {"word-count-words-changelog": words, "word-counts": words}
    return expected


CASES = {
    "orders": Case(
        orders, counted("orders-aggregator-orders-products-quantities-changelog", order_key), declare_orders
    ),
    "users": Case(
        users,
        counted("users-by-country-KSTREAM-AGGREGATE-STATE-STORE-0000000002-changelog", country_key),
        declare_users,
    ),
    "latest": Case(measurements, recount_latest, declare_latest),
    "enriched": Case(purchases, recount_enriched, declare_enriched),
    "wide": Case(readings, counted("wide-counter-readings-per-sensor-changelog", sensor_key), declare_wide),
    "skewed": Case(clicks, counted("skewed-counter-clicks-by-page-changelog", page_key), declare_skewed),
    "pageviews": Case(views, recount_views, declare_pageviews),
    "trending": Case(product_views, recount_product_views, declare_trending),
    "words": Case(text_lines, recount_words, declare_words),
}
COUNTING = ("orders", "users", "wide", "skewed", "pageviews", "trending", "words")


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


QUICK = ("enriched", "pageviews")
"""A join, and a filter with a windowed count. The others run in ``make soak``."""


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
) -> Iterator[Run]:
    pipeline: Pipeline = request.param
    if pipeline.name not in CASES:
        pytest.fail(f"nobody has written what {pipeline.name} is to compute: add it to CASES")
    case = CASES[pipeline.name]
    partition_of = partitioner(jvm)
    records = case.records(pipeline, partition_of)
    home = tmp_path_factory.mktemp(pipeline.name)
    topology = pipeline.topology
    library = Library(jvm, f"jvm-{pipeline.name}-{uuid.uuid4().hex[:8]}")
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    aggregator = Aggregator(bootstrap_servers, home, spark_environment, spark_jars, pipeline=pipeline.name)
    try:
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
        yield Run(pipeline, case.recount(records), ours, theirs, (topology.describe(), description), partition_of)
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


def changelogs(run: Run) -> list[str]:
    return [spec.name for spec in run.pipeline.topics() if spec.role == "changelog"]


def repartition_topics(run: Run) -> list[str]:
    return [spec.name for spec in run.pipeline.topics() if spec.role == "repartition"]


def test_the_library_runs_the_same_topology(ran: Run) -> None:
    ours, theirs = ran.descriptions
    assert ours == theirs


def test_the_last_value_of_each_key_is_the_recounted_one(ran: Run) -> None:
    assert set(ran.expected.last) == {*changelogs(ran), *ran.pipeline.topology.sink_topics} - set(ran.expected.every)
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
        found: dict[bytes, list[Any]] = {}
        for message in ran.ours[topic]:
            assert message.partition() == ran.partition_of(message.key(), ran.pipeline.partition_counts[topic])
            found.setdefault(message.key(), []).append(json.loads(message.value()))
        assert found == expected


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
    for topic in changelogs(ran):
        assert last_values(ran.ours[topic]) == last_values(ran.library[topic])


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
                [(m.partition(), m.timestamp()[1], m.key(), json.loads(m.value())) for m in messages]
                for messages in (ran.ours[topic], ran.library[topic])
            )
            assert sorted(ours, key=lambda one: one[:2]) == sorted(theirs, key=lambda one: one[:2])
        else:
            assert last_values(ran.ours[topic]) == last_values(ran.library[topic])
