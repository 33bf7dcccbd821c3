"""Small micro-batches, which the driver writes with producers that it keeps."""

from __future__ import annotations

import threading
from random import Random

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from streamplan.errors import Refused, StreamplanError
from streamplan.kafka.brokers import Brokers
from streamplan.local.brokers import LocalKafka
from streamplan.model.dead_letters import Origin
from streamplan.model.left_out import REASON_LEFT_OUT
from streamplan.pipelines.orders import ORDER, order
from streamplan.spark import query
from streamplan.spark.planning.output_rows import OUTPUT
from streamplan.spark.sink.driver import write_collected
from streamplan.spark.sink.spec import Output, PartitionBy, TransactionSpec
from streamplan.spark.sink.transaction import KeptProducers, TaskTransaction
from streamplan.spark.sink.writers import PlannedRows, RekeyedRecords

from tests.support.orders_application import Application, numbered
from tests.support.processes import kill
from tests.support.waiting import DEADLINE_SECONDS


def _spec(application: Application, first: int, until: int) -> TransactionSpec:
    return TransactionSpec(
        brokers=Brokers(application.bootstrap_servers),
        application_id=application.topology.application_id,
        generation=application.claim().generation,
        transaction_timeout_ms=60_000,
        subtopology=0,
        ranges={(application.orders, 0): (first, until)},
        outputs=(Output(application.repartition, PartitionBy.KEY, 2),),
        dead_letter_topic=application.dead_letter,
        dead_letter_partitions=2,
    )


def _rows(first: int, until: int) -> pa.RecordBatch:
    numbers = range(first, until)
    return pa.RecordBatch.from_pydict(
        {
            "key": [order(n)[0] for n in numbers],
            "value": [order(n)[1] for n in numbers],
            "partition": pa.array([0 for _ in numbers], pa.int32()),
            "offset": pa.array(numbers, pa.int64()),
            "timestamp": pa.array([1 for _ in numbers], pa.int64()),
            "headers": pa.nulls(len(numbers)),
        }
    )


def _written(application: Application) -> list[bytes]:
    return sorted(m.value() for m in application.committed(application.repartition))


def test_each_order_is_counted_once_when_driver_and_workers_write_in_turn(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    writers: list[bool] = []

    def in_turn(share: object, records: int, tasks: int) -> bool:
        writers.append(len(writers) % 5 not in (0, 3))
        return writers[-1]

    monkeypatch.setattr(query.DriverShare, "takes", in_turn)
    application.produce([*numbered(0, 500), (b"bad", b"bad"), *numbered(500, 1000)])
    application.drain(max_offsets=100)
    assert len(writers) > 10
    values: dict[bytes, list[int]] = {b"0": [], b"1": []}
    for message in application.committed(application.changelog):
        values[message.key()].append(int.from_bytes(message.value(), "big"))
    assert all(counts == sorted(set(counts)) for counts in values.values())
    assert {key: counts[-1] for key, counts in values.items()} == {b"0": 500, b"1": 500}
    assert _written(application) == sorted(order(n)[1] for n in range(1000))
    assert [m.value() for m in application.committed(application.dead_letter)] == [b"bad"]
    assert application.lag(application.orders) == application.lag(application.repartition) == 0


def test_a_kept_producer_that_was_fenced_writes_nothing_and_a_new_one_does(application: Application) -> None:
    application.produce(numbered(0, 20), partition=0)
    spec = _spec(application, 0, 10)
    re_keyed = RekeyedRecords(application.orders, ORDER, "ProductType")
    with KeptProducers() as kept:
        write_collected(spec, [_rows(0, 10)], re_keyed, kept)
        with pytest.raises(StreamplanError, match="fenced by a newer producer"):
            _write_beside_another(application, spec, kept)
        assert _written(application) == sorted(order(n)[1] for n in range(10))
        write_collected(_next_of(spec), [_rows(10, 20)], re_keyed, kept)
        with TaskTransaction(_next_of(spec), 0):
            pass  # it fences the producer that is kept now
        write_collected(_next_of(spec), [_rows(10, 20)], re_keyed, kept)
    assert _written(application) == sorted(order(n)[1] for n in range(20))


def test_a_record_that_is_left_out_is_dead_lettered_once_and_not_read(application: Application) -> None:
    application.produce(numbered(0, 20), partition=0)
    spec = _spec(application, 0, 10)
    named = frozenset({Origin(application.orders, 0, 3), Origin(application.orders, 1, 4)})
    re_keyed = RekeyedRecords(application.orders, ORDER, "ProductType", named)
    with KeptProducers() as kept:
        write_collected(spec, [_rows(0, 10)], re_keyed, kept)
        write_collected(_next_of(spec), [_rows(10, 20)], re_keyed, kept)
    assert _written(application) == sorted(order(n)[1] for n in range(20) if n != 3)
    (letter,) = application.committed(application.dead_letter)
    assert (letter.key(), letter.value()) == order(3)
    assert dict(letter.headers())["streamplan.reason"] == REASON_LEFT_OUT.encode()


def _next_of(spec: TransactionSpec) -> TransactionSpec:
    ((place, (first, until)),) = spec.ranges.items()
    return TransactionSpec(**{**spec.__dict__, "ranges": {place: (until, until + until - first)}})


def _write_beside_another(application: Application, spec: TransactionSpec, kept: KeptProducers) -> None:
    later = _next_of(spec)
    with TaskTransaction(later, 0, kept) as transaction:
        transaction.produce(later.outputs[0], [b"0"], [b"zombie"], [1], [None], 7)
        with TaskTransaction(later, 0):
            pass  # the newer producer of the same stream task
        transaction.commit()


def test_a_driver_whose_tasks_were_claimed_by_a_newer_one_writes_no_more(application: Application) -> None:
    application.produce(numbered(0, 20), partition=0)
    spec = _spec(application, 0, 10)
    re_keyed = RekeyedRecords(application.orders, ORDER, "ProductType")
    with KeptProducers() as kept:
        write_collected(spec, [_rows(0, 10)], re_keyed, kept)
        application.claim()
        with pytest.raises(Refused, match="a newer aggregator"):
            write_collected(_next_of(spec), [_rows(10, 20)], re_keyed, kept)
    assert _written(application) == sorted(order(n)[1] for n in range(10))


def test_rows_are_arranged_as_spark_sorts_them(spark: SparkSession) -> None:
    random = Random(1)
    rows = [
        (
            *(3, 0, str(number).encode(), None, 1, None),
            random.choice([None, "a", "b"]),
            random.choice([None, 1, 2]),
            [random.randrange(3) for _ in range(random.randrange(3))],
            None,
            random.choice([None, 1, 2]),
        )
        for number in range(300)
    ]
    frame = spark.createDataFrame(rows, OUTPUT)
    ordered_by = ["partition_time", "topic", "offset", "order"]
    in_order = frame.coalesce(1).sortWithinPartitions(F.col("topic").isNull(), *ordered_by)
    expected = [tuple(row) for row in in_order.select(*ordered_by).collect()]
    arranged = PlannedRows(divisible=True).arranged(frame.toArrow(), 3)
    found = arranged.to_pylist()
    assert [tuple(row[name] for name in ordered_by) for row in found[:-1]] == expected
    assert sorted(row["key"] for row in found[:-1]) == sorted(row[2] for row in rows)
    assert [row["last"] for row in found] == [False] * 300 + [True]
    assert found[-1]["partition"] == 3


def _coordinator(application: Application) -> int:
    """The broker that coordinates the group of the application."""
    admin = AdminClient({"bootstrap.servers": application.bootstrap_servers})
    group = application.topology.application_id
    described = admin.describe_consumer_groups([group])[group].result(120)
    return int(described.coordinator.id)


def test_a_transaction_whose_coordinator_dies_is_written_anew(
    application: Application, kafka: LocalKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka would wait without end for the answer to the positions: its issues 5456 and 5511."""
    application.produce(numbered(0, 30), partition=0)
    re_keyed = RekeyedRecords(application.orders, ORDER, "ProductType")
    spec = _spec(application, 0, 10)
    back: list[threading.Timer] = []
    commit = TaskTransaction.commit

    def after_a_kill(transaction: TaskTransaction) -> None:
        if not back:
            reference = kafka.process(_coordinator(application))
            assert reference is not None
            kill(reference.pid)
            back.append(threading.Timer(2.0, lambda: kafka.up(deadline_seconds=DEADLINE_SECONDS)))
            back[0].start()
        commit(transaction)

    with KeptProducers() as kept:
        write_collected(spec, [_rows(0, 10)], re_keyed, kept)
        monkeypatch.setattr(TaskTransaction, "commit", after_a_kill)
        try:
            write_collected(_next_of(spec), [_rows(10, 20)], re_keyed, kept)
        finally:
            back[0].join()
        write_collected(_next_of(_next_of(spec)), [_rows(20, 30)], re_keyed, kept)
    assert _written(application) == sorted(order(n)[1] for n in range(30))
