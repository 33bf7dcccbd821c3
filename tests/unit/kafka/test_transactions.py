from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException
from streamplan.errors import BrokersUnavailable
from streamplan.kafka import transactions
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.transactions import Fenced, send_positions, transactional_producer


class Producer:
    """A producer whose abort fails with a code, or succeeds."""

    def __init__(self, abort_code: int | None) -> None:
        self.abort_code = abort_code
        self.aborted = 0

    def abort_transaction(self, seconds: float) -> None:
        self.aborted += 1
        if self.abort_code is not None:
            raise KafkaException(KafkaError(self.abort_code))

    def purge(self) -> None: ...

    def close(self) -> None: ...


def fail(monkeypatch: pytest.MonkeyPatch, producer: Producer, error: KafkaError) -> None:
    monkeypatch.setattr(transactions, "open_producer", lambda *_, **__: producer)
    with transactional_producer(Brokers("127.0.0.1:1"), "id", seconds=1):
        raise KafkaException(error)


def test_a_newer_producer_that_only_the_abort_tells_of(monkeypatch: pytest.MonkeyPatch) -> None:
    requires_abort = KafkaError(KafkaError.INVALID_TXN_STATE, txn_requires_abort=True)
    with pytest.raises(Fenced):
        fail(monkeypatch, Producer(KafkaError._FENCED), requires_abort)


@pytest.mark.parametrize("abort_code", [None, KafkaError._TIMED_OUT])
def test_another_error_that_requires_an_abort_is_no_newer_producer(
    monkeypatch: pytest.MonkeyPatch, abort_code: int | None
) -> None:
    producer = Producer(abort_code)
    with pytest.raises(BrokersUnavailable):
        fail(monkeypatch, producer, KafkaError(KafkaError.INVALID_TXN_STATE, txn_requires_abort=True))
    assert producer.aborted == 1


@pytest.mark.parametrize("codes", [[KafkaError._STATE, KafkaError.MSG_SIZE_TOO_LARGE], [KafkaError.MSG_SIZE_TOO_LARGE]])
def test_a_record_that_is_refused_while_positions_are_sent_is_the_reason(codes: list[int]) -> None:
    """librdkafka says "Erroneous state" in this moment, and the reason when it is asked again."""

    class Refusing:
        def send_offsets_to_transaction(self, *arguments: object) -> None:
            raise KafkaException(KafkaError(codes.pop(0)))

    with pytest.raises(KafkaException) as raised:
        send_positions(Refusing(), [], None, 5.0)  # type: ignore[arg-type]
    assert raised.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert codes == []
