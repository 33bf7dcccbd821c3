"""What an answer of Kafka's clients means, without Kafka."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException
from streamplan.kafka.brokers import ask, is_fenced


@pytest.mark.parametrize(("code", "reopened"), [(KafkaError.FENCED_LEADER_EPOCH, 1), (KafkaError.NOT_COORDINATOR, 0)])
def test_a_client_that_keeps_an_old_leader_epoch_is_replaced(code: int, reopened: int) -> None:
    """Else it is asked again and again, and answers the same until the deadline."""
    answers = [KafkaException(KafkaError(code)), 7]
    opened: list[None] = []

    def question(left: float) -> int:
        answer = answers.pop(0)
        if isinstance(answer, KafkaException):
            raise answer
        return answer

    assert ask(question, "it", "127.0.0.1:1", 5, reopen=lambda: opened.append(None)) == 7
    assert len(opened) == reopened


@pytest.mark.parametrize("code", [KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError._FATAL])
def test_a_fenced_producer_is_known_wherever_it_hears_of_it(code: int) -> None:
    """After the first answer librdkafka only says that there was a fatal error."""
    assert is_fenced(KafkaException(KafkaError(code)))


def test_another_fault_is_no_fence() -> None:
    assert not is_fenced(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
    assert not is_fenced(ValueError("x"))
