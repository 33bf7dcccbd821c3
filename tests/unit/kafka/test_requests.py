from __future__ import annotations

import socket

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from streamplan.errors import BrokersUnavailable
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.groups import committed_offsets
from streamplan.kafka.requests import call_with_retry
from streamplan.model.committed_positions import CommittedPosition


class FailsOnce:
    """A request that fails the first time; by default its connection breaks."""

    def __init__(self, code: int = KafkaError._TRANSPORT) -> None:
        self.code = code
        self.calls = 0

    def __call__(self, seconds: float) -> str:
        self.calls += 1
        if self.calls == 1:
            raise KafkaException(KafkaError(self.code))
        return "the answer"


def test_a_request_whose_connection_broke_is_repeated_while_the_broker_accepts_connections() -> None:
    request = FailsOnce()
    with socket.create_server(("127.0.0.1", 0)) as server:
        brokers = Brokers(f"127.0.0.1:{server.getsockname()[1]}")
        assert call_with_retry(request, "its topics", brokers, 60.0) == "the answer"


def test_a_request_whose_connection_broke_fails_at_once_when_no_broker_accepts_connections() -> None:
    request = FailsOnce()
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(BrokersUnavailable, match="asked for its topics"):
        call_with_retry(request, "its topics", Brokers(address), 60.0)
    assert request.calls == 1


def test_a_request_that_librdkafka_gave_up_is_repeated_until_the_deadline() -> None:
    """It gives a request up after ``socket.timeout.ms``, also where more time is left."""
    request = FailsOnce(KafkaError._TIMED_OUT)
    assert call_with_retry(request, "its positions", Brokers("127.0.0.1:1"), 60.0) == "the answer"
    late = FailsOnce(KafkaError._TIMED_OUT)
    with pytest.raises(BrokersUnavailable, match="asked for its positions"):
        call_with_retry(late, "its positions", Brokers("127.0.0.1:1"), -1.0)
    assert late.calls == 1


class Unreadable:
    """An answer as librdkafka gives it now and then: with bytes behind the end of the metadata."""

    topic, partition, offset, error = "orders", 0, 5, None

    @property
    def metadata(self) -> str:
        return b"AgAAAZ9LcdUM\xe9\x01".decode()


class Answering:
    """A consumer whose every answer has such bytes."""

    def committed(self, requested: object, seconds: float) -> list[object]:
        return [Unreadable(), TopicPartition("orders", 1, -1001)]


def test_bytes_behind_the_metadata_of_a_position_are_cut_off() -> None:
    found = committed_offsets(Answering(), "app", [("orders", 0), ("orders", 1)], Brokers("127.0.0.1:1"), 60.0)  # type: ignore[arg-type]
    assert found == {("orders", 0): CommittedPosition(5, "AgAAAZ9LcdUM")}
    assert found["orders", 0].is_of_kafka_streams
