from __future__ import annotations

from streamplan.kafka.brokers import Brokers
from streamplan.model.generation import Generation
from streamplan.spark.sink.spec import DEAD_LETTER, Output, PartitionBy, RejectedRecord, TransactionSpec
from streamplan.testing.memory_output import MemoryOutput, WrittenRecord

OUTPUTS = (
    Output("by-key", PartitionBy.KEY, 3),
    Output("by-window", PartitionBy.WINDOWED_KEY, 3),
    Output("changelog", PartitionBy.TASK, 2),
    Output("by-key", PartitionBy.KEY, 3),  # a second sink of one topic
)
PARTITIONS = [2, 0, 2, 2, 1, 0, 1, 0, 0, 2]
"""Of the keys "0" to "9" among three, as Kafka's own partitioner places them."""


def output(written: list[WrittenRecord]) -> MemoryOutput:
    spec = TransactionSpec(
        Brokers("nobody:1"), "app", Generation(0, "test"), 0, 2, {("in", 1): (4, 6)}, OUTPUTS, "letters", 1
    )
    return MemoryOutput(spec, 1, written)


def produce(task: MemoryOutput, number: int, keys: list[bytes | None]) -> None:
    count = len(keys)
    task.produce(OUTPUTS[number], keys, [b"v"] * count, [0] * count, [None] * count, 1)


def test_a_record_goes_to_the_partition_that_kafka_would_choose() -> None:
    written: list[WrittenRecord] = []
    keys: list[bytes | None] = [b"%d" % n for n in range(10)]
    with output(written) as task:
        produce(task, 0, [*keys, None])
        produce(task, 1, [(key or b"") + bytes(8) for key in keys])
        produce(task, 2, keys)
        produce(task, 3, [b"0"])
        assert written == []  # nothing is written before it is committed
        task.commit()
    places = {number: [one.partition for one in written if one.output == number] for number in range(4)}
    assert places == {0: [*PARTITIONS, 0], 1: PARTITIONS, 2: [1] * 10, 3: PARTITIONS[:1]}
    assert {one.timestamp for one in written} == {1}  # librdkafka cannot write 0


def test_a_dead_letter_has_the_headers_of_production() -> None:
    written: list[WrittenRecord] = []
    with output(written) as task:
        task.dead_letter(RejectedRecord("in", 1, 4, None, b"k", b"v", [("own", b"1")], "the reason"))
        task.commit()
    [record] = written
    assert record[:6] == (DEAD_LETTER, "letters", 0, b"k", b"v", 0)
    headers = dict(record.headers)
    assert headers["own"] == b"1"
    assert (headers["streamplan.reason"], headers["streamplan.task"]) == (b"the reason", b"2_1")
    assert (headers["streamplan.source.topic"], headers["streamplan.source.offset"]) == (b"in", b"4")


def test_what_is_not_committed_is_gone() -> None:
    written: list[WrittenRecord] = []
    with output(written) as task:
        produce(task, 0, [b"k"])
    assert written == []
