"""The streaming aggregator on real brokers and real Spark, compared with plain recounts of what is in Kafka."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from streamplan.errors import Refused, StreamplanError
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.task_ownership import TaskOwnership
from streamplan.model.generation import Generation
from streamplan.model.topology import Topology
from streamplan.pipelines.orders import ORDER, order
from streamplan.registry import pipeline_named
from streamplan.spark.aggregator import trigger_interval_of
from streamplan.spark.sink.spec import Output, PartitionBy, TransactionSpec
from streamplan.spark.sink.transaction import TaskTransaction
from streamplan.spark.sink.writers import PlannedRows, RekeyedRecords, transactional_writer
from streamplan.spark.state.state_store import read_state_stores

from tests.support.checkpoints import checkpoints_of, forget_last_commit
from tests.support.orders_application import Application, numbered
from tests.support.soak import soak


@pytest.fixture(params=[True, *soak([False])], ids=lambda linked: "linked" if linked else "apart")
def linked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether one query does both sub-topologies."""
    monkeypatch.setenv("STREAMPLAN_LINKED", str(request.param).lower())
    return bool(request.param)


@pytest.fixture
def application(bootstrap_servers: str, tmp_path: Path, spark: SparkSession, linked: bool) -> Iterator[Application]:
    made = Application(bootstrap_servers, tmp_path / "check points", spark)
    yield made
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for future in admin.delete_topics([spec.name for spec in made.pipeline.topics()]).values():
        future.exception(120)


def test_nineteen_orders_are_ten_jackets_and_nine_shirts(application: Application) -> None:
    application.create_topics()
    application.produce(numbered(0, 19))
    application.drain()
    changelog = application.committed(application.changelog)
    assert {(m.partition(), m.key(), m.value()) for m in changelog} == {
        (0, b"0", b"\0\0\0\0\0\0\0\x0a"),
        (1, b"1", b"\0\0\0\0\0\0\0\x09"),
    }
    repartitioned = application.committed(application.repartition)
    assert Counter((m.partition(), m.key()) for m in repartitioned) == {(0, b"0"): 10, (1, b"1"): 9}
    assert application.lag(application.orders) == application.lag(application.repartition) == 0
    content = read_state_stores(
        application.spark, application.pipeline, str(application.checkpoints), Brokers(application.bootstrap_servers)
    )
    assert content.totals == {"0": 10, "1": 9}


@pytest.mark.soak
def test_every_value_in_the_changelog_is_the_count_of_a_prefix(application: Application) -> None:
    application.create_topics()
    for first in range(0, 3000, 1000):
        application.produce(numbered(first, first + 1000))
        application.drain(max_offsets=400)
    values: dict[bytes, list[int]] = {b"0": [], b"1": []}
    for message in application.committed(application.changelog):
        values[message.key()].append(int.from_bytes(message.value(), "big"))
    assert all(counts == sorted(set(counts)) for counts in values.values())
    assert {key: counts[-1] for key, counts in values.items()} == {b"0": 1500, b"1": 1500}


def test_records_keep_value_timestamp_and_headers_through_the_repartition_topic(application: Application) -> None:
    application.create_topics()
    application.produce(numbered(0, 2), timestamp=1_600_000_000_123, headers=[("trace", b"7"), ("none", None)])
    application.drain()
    repartitioned = application.committed(application.repartition)
    assert sorted(m.value() for m in repartitioned) == [order(0)[1], order(1)[1]]
    assert {m.timestamp()[1] for m in repartitioned} == {1_600_000_000_123}
    assert [m.headers() for m in repartitioned] == [[("trace", b"7"), ("none", None)]] * 2
    assert {m.timestamp()[1] for m in application.committed(application.changelog)} == {1_600_000_000_123}


BAD: list[tuple[bytes | None, bytes | None, str]] = [
    (b"a", b"not json", "the value is not JSON"),
    (b"b", b'{"Id": "order_1"}', "ProductType is missing"),
    (b"c", None, "the value is null"),
    (b"d", b'{"ProductType": 7}', "ProductType is not one of 0, 1"),
    (b"e", b"", "the value is not JSON: it is empty"),
    (b"f", b'{"ProductType": "1"}', "ProductType is not of type int"),
    (None, b"null", "the value is not a JSON object"),
    (
        b"g",
        b'{"ProductType": 0, "pad": "' + b"x" * 1_048_400 + b'"}',
        "key, value and headers are larger than 1048000 bytes",
    ),
]
ODD_BUT_GOOD: list[tuple[bytes | None, bytes | None]] = [
    (None, b'{"ProductType": 1}'),
    (b"h", b'{"ProductType": 0, "pad": "' + b"x" * 1_000_000 + b'"}'),
    (b"i", b'\n{ "more": [1, {"ProductType": 0}], "ProductType": 1 }\n'),
]


def test_bad_records_go_whole_to_the_dead_letter_topic_and_the_stream_goes_on(application: Application) -> None:
    application.create_topics()
    application.produce(numbered(0, 10))
    application.produce([(key, value) for key, value, _ in BAD], headers=[("trace", b"7")])
    application.produce([*ODD_BUT_GOOD, *numbered(10, 20)])
    application.drain()
    assert application.totals() == {b"0": 11, b"1": 12}
    source = {(m.partition(), m.offset()): m for m in application.committed(application.orders)}
    letters = application.committed(application.dead_letter)
    assert len(letters) == len(BAD)
    reasons = {(key, value): reason for key, value, reason in BAD}
    for letter in letters:
        headers = dict(letter.headers())
        origin = source[int(headers["streamplan.source.partition"]), int(headers["streamplan.source.offset"])]
        assert (letter.key(), letter.value(), letter.timestamp()) == (
            origin.key(),
            origin.value(),
            origin.timestamp(),
        )
        # A null value and an empty one are the same to this client; the reason tells them apart.
        assert headers["streamplan.reason"].decode() in {
            reasons.get((letter.key(), letter.value())),
            reasons.get((letter.key(), letter.value() or None)),
        }
        assert headers["streamplan.source.topic"] == application.orders.encode()
        assert headers["trace"] == b"7"
        of_library = {name: value for name, value in headers.items() if name.startswith("__streams.errors.")}
        assert of_library == {  # as a dead-letter topic of Kafka Streams has them
            "__streams.errors.message": headers["streamplan.reason"],
            "__streams.errors.topic": application.orders.encode(),
            "__streams.errors.partition": b"%d" % origin.partition(),
            "__streams.errors.offset": b"%d" % origin.offset(),
        }
    assert len(source) == len(letters) + len(application.committed(application.repartition))


@pytest.mark.parametrize("crashed", ["both", *soak(["0", "1"])])
def test_a_micro_batch_that_is_run_again_writes_nothing_twice(application: Application, crashed: str) -> None:
    """A crash after the sink's transaction and before Spark's own commit: Spark runs the micro-batch again."""
    application.create_topics()
    application.produce([*numbered(0, 100), (b"bad", b"bad")])
    application.drain()
    for subtopology in (0, 1) if crashed == "both" else (int(crashed),):
        found = checkpoints_of(application.checkpoints, application.topology.application_id, subtopology)
        for checkpoint in found[-1:]:  # linked sub-topologies have one together
            forget_last_commit(checkpoint)
    application.produce(numbered(100, 200))
    application.drain()
    assert len(application.committed(application.repartition)) == 200
    assert len(application.committed(application.dead_letter)) == 1
    assert application.totals() == {b"0": 100, b"1": 100}


def test_positions_pass_the_markers_of_aborted_transactions(application: Application) -> None:
    application.create_topics()
    producer = Producer({"bootstrap.servers": application.bootstrap_servers, "transactional.id": "aborts"})
    producer.init_transactions(120)
    producer.begin_transaction()
    producer.produce(application.orders, key=b"order_0", value=order(0)[1])
    producer.flush(120)
    producer.abort_transaction(120)
    application.drain()
    assert application.committed(application.repartition) == []
    assert application.lag(application.orders) == 0


def test_a_run_waits_for_a_transaction_that_ends_meanwhile_in_what_it_reads(
    application: Application, linked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The brokers confirm a commit before its marker is in each partition, so that the records cannot be read yet.

    Here another program writes. Linked sub-topologies do not read the topic back, and tell that it did.
    """
    application.create_topics()
    application.produce(numbered(0, 2))
    application.drain()
    (first, *_) = application.committed(application.repartition)
    writer = Producer({"bootstrap.servers": application.bootstrap_servers, "transactional.id": application.repartition})
    writer.init_transactions(60)
    writer.begin_transaction()
    writer.produce(application.repartition, first.value(), first.key(), first.partition())
    assert writer.flush(60) == 0
    end = threading.Timer(8.0, writer.commit_transaction, [60])
    end.start()
    try:
        application.produce(numbered(2, 4))
        if linked:
            with pytest.raises(Refused, match=f"{application.repartition}-[01] has records that the application did"):
                application.drain()
            monkeypatch.setenv("STREAMPLAN_LINKED", "false")  # as the error says, to count them, too
        application.drain()
    finally:
        end.join()
    expected = {b"0": 2, b"1": 2}
    assert application.totals() == {**expected, first.key(): 3}


def test_a_zombie_is_fenced_and_what_it_wrote_is_never_seen(application: Application) -> None:
    application.create_topics()
    application.produce(numbered(0, 2))
    application.drain()
    ends = [m.offset() + 1 for m in application.committed(application.orders) if m.partition() == 0]
    end = max(ends, default=0)
    target = TransactionSpec(
        brokers=Brokers(application.bootstrap_servers),
        application_id=application.topology.application_id,
        generation=application.claim().generation,
        transaction_timeout_ms=60_000,
        subtopology=0,
        ranges={(application.orders, 0): (end, end + 1)},
        outputs=(Output(application.repartition, PartitionBy.KEY, 2),),
        dead_letter_topic=application.dead_letter,
        dead_letter_partitions=2,
    )

    def zombie() -> None:
        with TaskTransaction(target, 0) as transaction:
            transaction.produce(target.outputs[0], [b"0"], [b"zombie"], [1], [None], 7)
            with TaskTransaction(target, 0):
                pass  # the newer producer of the same stream task
            transaction.commit()

    with pytest.raises(StreamplanError, match="fenced by a newer producer"):
        zombie()
    assert b"zombie" not in [m.value() for m in application.committed(application.repartition)]


def _lose_positions(application: Application) -> None:
    admin = AdminClient({"bootstrap.servers": application.bootstrap_servers})
    for future in admin.delete_consumer_groups([application.topology.application_id]).values():
        future.result(120)


def _set_positions_back(application: Application) -> None:
    _set_position(application, 0)


def _set_positions_forward(application: Application) -> None:
    """Past a record that is still to be processed: it would be taken for processed."""
    application.produce([order(0), order(2)], partition=0)
    consumer = Consumer({"bootstrap.servers": application.bootstrap_servers, "group.id": "any"})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(application.orders, 0), 60)
    finally:
        consumer.close()
    _set_position(application, end - 1)


def _set_position(application: Application, offset: int) -> None:
    consumer = Consumer(
        {"bootstrap.servers": application.bootstrap_servers, "group.id": application.topology.application_id}
    )
    try:
        consumer.commit(offsets=[TopicPartition(application.orders, 0, offset)], asynchronous=False)
    finally:
        consumer.close()


def _lose_records(application: Application) -> None:
    application.produce(numbered(10, 20))
    admin = AdminClient({"bootstrap.servers": application.bootstrap_servers})
    ends = [TopicPartition(application.orders, partition, -1) for partition in (0, 1)]
    for future in admin.delete_records(ends).values():
        future.result(120)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (_lose_positions, "has no position for orders-[0-9]+-0, orders-[0-9]+-1"),
        (_set_positions_forward, "orders-[0-9]+-0 at [0-9]+, with the metadata ''.*Another program committed them"),
        pytest.param(
            _set_positions_back,
            "orders-[0-9]+-0 at 0, with the metadata ''.*Another program committed them",
            marks=pytest.mark.soak,
        ),
        (_lose_records, "were deleted before they were read"),
    ],
)
def test_a_history_torn_apart_is_refused(
    application: Application, fault: Callable[[Application], None], message: str
) -> None:
    application.create_topics()
    application.produce(numbered(0, 10))
    application.drain()
    fault(application)
    application.produce(numbered(20, 30))
    before = application.totals()
    with pytest.raises(Refused, match=message):
        application.drain()
    assert application.totals() == before


def _latest_generation(application: Application) -> Generation | None:
    with TaskOwnership(application.pipeline, Brokers(application.bootstrap_servers)) as ownership:
        return ownership.latest_generation()


def test_a_declaration_that_spark_refuses_claims_nothing(application: Application) -> None:
    """An aggregator that runs goes on: whoever cannot start must not fence it."""
    application.create_topics()
    application.produce(numbered(0, 19))
    application.drain()
    generation = _latest_generation(application)
    faulty = Topology(application.topology.application_id)
    stream = faulty.stream(application.orders, value=ORDER).filter("no_such_field > 1")
    stream.group_by("ProductType", name="quantities").count(store="totals")
    application.pipeline = replace(application.pipeline, topology=faulty)
    with pytest.raises(Refused, match="no_such_field"):
        application.drain()
    assert _latest_generation(application) == generation


def test_missing_topics_are_named(application: Application) -> None:
    with pytest.raises(Refused, match=rf"{application.orders} does not exist.*{application.changelog} does not exist"):
        application.drain()


def _truncated(
    application: Application, output_topic: str, subtopology: int
) -> tuple[TransactionSpec, list[pa.RecordBatch]]:
    """A micro-batch of 10 orders in partition 0, of which only the first 4 rows reach the worker."""
    application.create_topics()
    producer = Producer({"bootstrap.servers": application.bootstrap_servers})
    for n in range(10):
        producer.produce(application.orders, key=order(n)[0], value=order(n)[1], partition=0)
    assert producer.flush(120) == 0
    generation = application.claim().generation
    target = TransactionSpec(
        brokers=Brokers(application.bootstrap_servers),
        application_id=application.topology.application_id,
        generation=generation,
        transaction_timeout_ms=60_000,
        subtopology=subtopology,
        ranges={(application.orders, 0): (0, 10)},
        outputs=(Output(output_topic, PartitionBy.KEY, 2),),
        dead_letter_topic=application.dead_letter,
        dead_letter_partitions=2,
    )
    rows = pa.table(
        {
            "key": [order(n)[0] for n in range(4)],
            "value": [order(n)[1] for n in range(4)],
            "partition": pa.array([0] * 4, pa.int32()),
            "offset": pa.array(range(4), pa.int64()),
            "timestamp": pa.array([1] * 4, pa.int64()),
            "headers": pa.nulls(4),
        }
    )
    return target, rows.to_batches()


def test_input_that_ends_early_is_not_taken_for_complete(application: Application) -> None:
    """Spark ends the input of a killed task as it ends a complete one."""
    target, batches = _truncated(application, application.repartition, 0)
    with pytest.raises(StreamplanError, match="its input ended early"):
        list(transactional_writer(target, RekeyedRecords(application.orders, ORDER, "ProductType"))(iter(batches)))
    assert application.committed(application.repartition) == []
    application.drain()
    assert len(application.committed(application.repartition)) == 10
    assert application.totals() == {b"0": 5, b"1": 5}


@pytest.mark.parametrize(
    ("timeout_ms", "seconds"),
    [
        # More than a quarter: one that takes longer than it may would be aborted, however often tried.
        pytest.param(20_000, 5.5, marks=pytest.mark.soak),
        (60_000, 1.1),  # what is written by then is for the next sub-topology, which need not wait for the rest
    ],
)
def test_a_long_micro_batch_is_committed_in_parts(application: Application, timeout_ms: int, seconds: float) -> None:
    target, batches = _truncated(application, application.repartition, 0)

    def killed_later() -> Iterator[pa.RecordBatch]:
        (rows,) = batches
        yield rows.slice(0, 2)
        time.sleep(seconds)
        yield rows.slice(2)
        raise RuntimeError("killed")

    limited = replace(target, transaction_timeout_ms=timeout_ms)
    with pytest.raises(RuntimeError, match="killed"):
        list(transactional_writer(limited, RekeyedRecords(application.orders, ORDER, "ProductType"))(killed_later()))
    assert len(application.committed(application.repartition)) == 4
    application.drain()
    assert len(application.committed(application.repartition)) == 10
    assert application.totals() == {b"0": 5, b"1": 5}


def test_counts_that_end_early_are_not_taken_for_complete(application: Application) -> None:
    target, _ = _truncated(application, application.changelog, 1)
    counts = pa.table(
        {
            "partition": pa.array([0], pa.int32()),
            "output": pa.array([0], pa.int32()),
            "key": [b"0"],
            "value": [bytes(8)],
            "timestamp": pa.array([1], pa.int64()),
            "headers": pa.nulls(1),
            "topic": pa.nulls(1, pa.string()),
            "offset": pa.nulls(1, pa.int64()),
            "last": [False],
        }
    )
    with pytest.raises(StreamplanError, match="its input ended early"):
        list(transactional_writer(target, PlannedRows(divisible=False))(iter(counts.to_batches())))
    assert application.committed(application.changelog) == []


@pytest.mark.parametrize("seconds", [1.5, *soak([3.0])])
def test_stopped_in_a_micro_batch_it_goes_on_where_it_was(application: Application, seconds: float) -> None:
    application.create_topics()
    application.produce(numbered(0, 200_000))
    stop = threading.Event()
    threading.Timer(seconds, stop.set).start()
    application.drain(stop=stop)
    application.drain()
    assert len(application.committed(application.repartition)) == 200_000
    assert application.totals() == {b"0": 100_000, b"1": 100_000}


def test_a_subtopology_that_reads_what_others_write_looks_more_often() -> None:
    topology = pipeline_named("orders").topology
    intervals = [trigger_interval_of(group, topology, 500) for group in topology.subtopologies]
    assert intervals == [500, 250]
