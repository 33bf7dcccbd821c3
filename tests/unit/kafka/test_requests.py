from __future__ import annotations

import socket

import pytest
from confluent_kafka import KafkaError, KafkaException
from streamplan.errors import BrokersUnavailable
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.requests import call_with_retry


class BreaksOnce:
    """A request whose connection breaks the first time."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, seconds: float) -> str:
        self.calls += 1
        if self.calls == 1:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return "the answer"


def test_a_request_whose_connection_broke_is_repeated_while_the_broker_accepts_connections() -> None:
    request = BreaksOnce()
    with socket.create_server(("127.0.0.1", 0)) as server:
        brokers = Brokers(f"127.0.0.1:{server.getsockname()[1]}")
        assert call_with_retry(request, "its topics", brokers, 60.0) == "the answer"


def test_a_request_whose_connection_broke_fails_at_once_when_no_broker_accepts_connections() -> None:
    request = BreaksOnce()
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(BrokersUnavailable, match="asked for its topics"):
        call_with_retry(request, "its topics", Brokers(address), 60.0)
    assert request.calls == 1
