"""A transaction that cannot begin leaves no producer behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from confluent_kafka import KafkaError, KafkaException
from streamplan.errors import Refused
from streamplan.kafka_types import TopicPartition
from streamplan.model.committed_positions import CommittedPosition
from streamplan.model.generation import PositionMetadata
from streamplan.spark.sink import transaction
from streamplan.spark.sink.spec import HandedOnInput
from streamplan.spark.sink.transaction import HandedOnTransaction, KeptProducers, TaskTransaction

from tests.unit.spark.sink.test_owner import spec

SPEC = spec(0, 1)


class FakeProducer:
    """Knows whether it is open."""

    is_open = True

    def begin_transaction(self) -> None:
        pass

    def purge(self) -> None:
        pass

    def close(self) -> None:
        self.is_open = False


@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize("offset", [None, -1])
def test_a_producer_is_closed_whose_transaction_is_refused(
    monkeypatch: pytest.MonkeyPatch, offset: int | None, is_kept: bool
) -> None:
    producer, kept = FakeProducer(), KeptProducers()
    if is_kept:
        kept.keep(SPEC.task(0), producer)  # type: ignore[arg-type]

    def read(*arguments: object) -> Mapping[TopicPartition, CommittedPosition]:
        metadata = PositionMetadata(SPEC.generation, SPEC.checkpoint, 0).text
        return {} if offset is None else {("orders", 0): CommittedPosition(offset, metadata)}

    monkeypatch.setattr(transaction, "_open_producer", lambda *arguments: producer)
    monkeypatch.setattr(transaction, "_consumer", lambda *arguments: None)
    monkeypatch.setattr(transaction, "committed_offsets", read)
    with pytest.raises(Refused, match="has no position" if offset is None else "the checkpoint is ahead"):
        TaskTransaction(SPEC, 0, kept)
    assert not producer.is_open
    assert kept.take(SPEC.task(0)) is None


class Electing:
    """A consumer that asks for the ends of a partition while its leader is elected. A transaction ends meanwhile."""

    def __init__(self) -> None:
        self.answers = [KafkaError(KafkaError._UNKNOWN_PARTITION), 7, KafkaError(KafkaError._UNKNOWN_PARTITION), 5, 7]

    def get_watermark_offsets(self, place: object, seconds: float) -> tuple[int, int]:
        answer = self.answers.pop(0)
        if isinstance(answer, KafkaError):
            raise KafkaException(answer)
        return 0, answer


def test_what_was_handed_on_is_asked_for_again_while_a_leader_is_elected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed broker ended the application: the partitions that it led have no leader for a moment."""
    consumer, metadata = Electing(), PositionMetadata(SPEC.generation, SPEC.checkpoint, 0).text
    monkeypatch.setattr(transaction, "_open_producer", lambda *arguments: FakeProducer())
    monkeypatch.setattr(transaction, "_consumer", lambda *arguments: consumer)
    monkeypatch.setattr(
        transaction, "committed_offsets", lambda *arguments: {("by-kind", 0): CommittedPosition(3, metadata)}
    )
    handed_on = replace(SPEC, ranges={}, batch=1, handed_on=HandedOnInput("by-kind", 1))
    assert HandedOnTransaction(handed_on, 0).ranges == {"by-kind": (3, 7)}
