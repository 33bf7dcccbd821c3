"""The transactional producer of a stream task, whoever opens it."""

from __future__ import annotations

from confluent_kafka import Producer

from streamplan.kafka.brokers import Brokers
from streamplan.model.processor_topology import TaskId

DEADLINE_SECONDS = 30.0
"""For each answer from the brokers."""


def open_task_producer(
    brokers: Brokers,
    application_id: str,
    task: TaskId,
    *,
    transaction_timeout_ms: int = 60_000,
    topic: str | None = None,
    **configs: str | int,
) -> Producer:
    """Fences every earlier producer of the task and settles what that left, so that positions are final.

    ``topic``  one that it will write; without one the metadata of all topics are fetched
    ``configs``, with underscores for dots

    Raises ``KafkaException`` when the brokers do not answer within :data:`DEADLINE_SECONDS`.
    """
    transactional_id = f"{application_id}-{task}"
    producer = brokers.producer(
        **{
            "client_id": transactional_id,
            "transactional_id": transactional_id,
            "transaction_timeout_ms": transaction_timeout_ms,
            "socket_timeout_ms": 60_000,  # librdkafka's default
            # librdkafka waits half of this (50 ms by default) between its first connection and the next one.
            "reconnect_backoff_ms": 20,
            **configs,
        }
    )
    # With no connection to a broker, init_transactions looks for its coordinator only every 500 ms. The first question
    # is answered by a bootstrap server, whose connection is then given up; the second makes one that stays.
    for _ in range(2):
        producer.list_topics(topic, DEADLINE_SECONDS) if topic else producer.list_topics(timeout=DEADLINE_SECONDS)
    producer.init_transactions(DEADLINE_SECONDS)
    return producer
