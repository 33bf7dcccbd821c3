"""Transactional producers: opened so that they fence earlier ones, closed so that no transaction stays open."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from streamplan.errors import Refused, StreamplanError
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.requests import is_fenced, raise_unavailable
from streamplan.model.processor_topology import TaskId


class Fenced(Refused):
    """A newer producer has the transactional id."""


class NoAnswerToPositions(StreamplanError):
    """The brokers did not take the positions of a transaction in time. Its producer must not be used any more."""


DEADLINE_SECONDS = 30.0
"""Deadline of each answer that a producer waits for."""

_POSITIONS_SECONDS = 15.0
"""Deadline of the answer to positions. It takes milliseconds, or seconds where a broker has died."""


def open_producer(
    brokers: Brokers,
    transactional_id: str,
    *,
    topic: str | None = None,
    seconds: float = DEADLINE_SECONDS,
    **configs: Any,
) -> Producer:
    """Open a producer with this transactional id and fence every earlier one.

    Kafka ends the transaction that an earlier producer left open, so that offsets which are read now are final
    (``InitProducerId``, KIP-98 and KIP-360).

    Args:
        topic: A topic that the producer will write. Without it the metadata of all topics is fetched.
        seconds: Deadline of each answer.
        configs: Further properties of the client, with underscores for dots.

    Raises:
        KafkaException: The brokers did not answer.
    """
    producer = brokers.producer(
        client_id=transactional_id,
        transactional_id=transactional_id,
        # librdkafka's default, and no more than its producer accepts beside the timeout of its transactions.
        socket_timeout_ms=min(60_000, configs.get("transaction_timeout_ms", 60_000)),
        # librdkafka waits half of this (50 ms by default) between its first connection and the next one.
        reconnect_backoff_ms=20,
        **configs,
    )
    # Without a connection to a broker init_transactions looks for its coordinator only every 500 ms. A bootstrap server
    # answers the first request, and its connection is then given up. The second request makes a connection that stays.
    for _ in range(2):
        producer.list_topics(topic, seconds) if topic else producer.list_topics(timeout=seconds)
    producer.init_transactions(seconds)
    return producer


def open_task_producer(
    brokers: Brokers,
    application_id: str,
    task: TaskId,
    *,
    transaction_timeout_ms: int = 60_000,
    topic: str | None = None,
    **configs: Any,
) -> Producer:
    """Open the producer of a stream task, whose transactional id is ``<application id>-<task id>``.

    Args:
        transaction_timeout_ms: After this time the brokers abort a transaction that nobody ends.
        topic: A topic that the producer will write. Without it the metadata of all topics is fetched.
        configs: Further properties of the client, with underscores for dots.

    Raises:
        KafkaException: The brokers did not answer within :data:`DEADLINE_SECONDS`.
    """
    return open_producer(
        brokers,
        f"{application_id}-{task}",
        topic=topic,
        transaction_timeout_ms=transaction_timeout_ms,
        **configs,
    )


def close_producer(producer: Producer) -> None:
    """Close a producer and forget what it has not sent. A fenced producer refuses to close; that is no error.

    Raises:
        KafkaException: The producer cannot be closed for another reason.
    """
    producer.purge()
    try:
        producer.close()
    except KafkaException as error:
        if not is_fenced(error):
            raise


def send_positions(
    producer: Producer, positions: Sequence[TopicPartition], group: object, seconds: float = _POSITIONS_SECONDS
) -> None:
    """Add positions of a consumer group to the transaction of a producer, within a deadline.

    ``send_offsets_to_transaction`` of librdkafka waits without end where the coordinator of the group has gone,
    whatever its own deadline is (its issues 5456 and 5511). A producer in that state can be neither aborted nor closed:
    both would wait as long. It is left alone. A new producer with its transactional id ends the transaction.

    Args:
        producer: In a transaction.
        positions: The positions with their metadata.
        group: The metadata of a consumer of the group.
        seconds: The deadline.

    Raises:
        NoAnswerToPositions: There was no answer in time.
        KafkaException: The brokers refused the positions.
    """
    answer: Future[None] = Future()

    def send() -> None:
        try:
            try:
                producer.send_offsets_to_transaction([*positions], group, seconds)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._STATE:
                    raise
                # The brokers refused a record in this moment. Asked again, librdkafka says why.
                producer.send_offsets_to_transaction([*positions], group, seconds)
        except BaseException as error:  # noqa: BLE001  it is raised by result()
            answer.set_exception(error)
        else:
            answer.set_result(None)

    threading.Thread(target=send, name="send positions", daemon=True).start()
    try:
        answer.result(seconds + 1)
    except TimeoutError as error:
        raise NoAnswerToPositions(
            "the positions of a transaction",
            expected=f"taken by the brokers within {seconds:g} s",
            observed="no answer",
            remedy="Nothing of the transaction is committed. It is tried again with a new producer.",
        ) from error


@contextmanager
def transactional_producer(
    brokers: Brokers, transactional_id: str, *, seconds: float = DEADLINE_SECONDS, **configs: Any
) -> Iterator[Producer]:
    """Open a producer for the block. A transaction that is open when the block ends is aborted.

    Args:
        transactional_id: The transactional id, which no other process should use at the same time.
        seconds: Deadline of each answer.
        configs: Further properties of the client, with underscores for dots.

    Raises:
        Fenced: A newer producer has fenced this one.
        BrokersUnavailable: The brokers did not answer.
    """
    producer: Producer | None = None
    try:
        producer = open_producer(brokers, transactional_id, seconds=seconds, **configs)
        yield producer
    except NoAnswerToPositions:
        producer = None
        raise
    except KafkaException as error:
        if is_fenced(error) or (producer is not None and _abort_is_fenced(producer, error, seconds)):
            raise Fenced(
                f"the producer {transactional_id} was fenced",
                expected="to be the only one with its transactional id",
                observed="a newer producer",
                remedy="Its open transaction is aborted and nothing is lost: let the newer one go on. A retry would "
                "fence that one.",
            ) from error
        needs = {
            KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: f"Write on transactional-id {transactional_id}",
            KafkaError.GROUP_AUTHORIZATION_FAILED: "Read on the group of the application",
            KafkaError.TOPIC_AUTHORIZATION_FAILED: "Write on each topic that it writes",
        }
        raise_unavailable(error, f"the transactions of {transactional_id}", brokers, seconds, needs=needs)
    except BaseException:
        if producer is not None:
            with suppress(KafkaException):  # without it the transaction stays open until its timeout, and readers wait
                producer.abort_transaction(seconds)
        raise
    finally:
        if producer is not None:
            with suppress(KafkaException):
                close_producer(producer)


def _abort_is_fenced(producer: Producer, error: KafkaException, seconds: float) -> bool:
    """Abort the transaction if the error asks for that, and tell whether a newer producer forbids it.

    A newer producer ends the transaction of this one. Then a broker may answer the next write with an error that only
    asks to abort, before any broker has told that a newer producer is there (KIP-890).
    """
    if not error.args[0].txn_requires_abort():
        return False
    try:
        producer.abort_transaction(seconds)
    except KafkaException as at_abort:
        return is_fenced(at_abort)
    return False
