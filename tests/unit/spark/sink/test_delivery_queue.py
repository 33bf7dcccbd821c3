from __future__ import annotations

import pytest
from confluent_kafka import KafkaException
from streamplan.spark.sink.delivery_queue import MAX_BYTES, DeliveryQueue

MB = 1024 * 1024


class FakeProducer:
    """Delivers so many bytes a second while somebody waits for it, on a clock of its own."""

    def __init__(self, bytes_per_second: float) -> None:
        self.bytes_per_second = bytes_per_second
        self.now = 0.0
        self.queued = 0
        self.waits: list[float] = []

    def flush(self, timeout: float) -> int:
        took = self.queued / self.bytes_per_second
        if took > timeout:
            return 1
        self.now += took
        self.waits.append(took)
        self.queued = 0
        return 0


def write(producer: FakeProducer, size: int, records: int) -> int:
    """The most bytes that were queued at a time."""
    queue = DeliveryQueue(producer, lambda: producer.now)
    most = 0
    for _ in range(records):
        queue.reserve(size)
        producer.queued += size
        most = max(most, producer.queued)
    return most


@pytest.mark.parametrize("megabytes_per_second", [0.2, 1, 10])
def test_slow_brokers_are_given_what_they_take_in_about_a_second(megabytes_per_second: float) -> None:
    producer = FakeProducer(megabytes_per_second * MB)
    write(producer, 100_000, 2000)
    assert max(producer.waits[2:]) <= 2.0
    assert producer.queued / producer.bytes_per_second <= 2.0  # what a commit has to wait for


def test_fast_brokers_are_given_much_at_a_time() -> None:
    assert MAX_BYTES - MB < write(FakeProducer(10_000 * MB), 100_000, 3000) <= MAX_BYTES


def test_a_record_larger_than_the_bound_is_sent_alone() -> None:
    producer = FakeProducer(0.5 * MB)
    assert write(producer, 5 * MB, 4) == 5 * MB


def test_brokers_that_take_nothing_end_the_task() -> None:
    with pytest.raises(KafkaException, match="records undelivered"):
        write(FakeProducer(1), 100_000, 100)
