"""Consumer groups from outside: who is in one, where it stands, and setting where it stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from streamplan.kafka.brokers import ANSWER_SECONDS, Brokers
from streamplan.kafka.requests import call_with_retry, error_code, raise_unavailable
from streamplan.kafka.transactions import DEADLINE_SECONDS, open_task_producer
from streamplan.model.processor_topology import TaskId

At: TypeAlias = tuple[str, int]
"""Topic and partition."""

_FENCED_AT_ONCE = 8


def members(brokers: Brokers, group: str, *, deadline_seconds: float = ANSWER_SECONDS) -> list[str]:
    """The members of a group, each ``client id on host``. Our own aggregator is none: it commits without joining."""
    admin = brokers.admin()

    def question(left: float) -> list[str]:
        try:
            found = admin.describe_consumer_groups([group], request_timeout=left)[group].result(left + 1.0)
        except KafkaException as error:
            if error_code(error) == KafkaError.GROUP_ID_NOT_FOUND:
                return []
            raise
        return [f"{member.client_id} on {member.host}" for member in found.members]

    return call_with_retry(question, f"the members of group {group}", brokers, deadline_seconds)


def set_positions(
    brokers: Brokers,
    group: str,
    positions: Mapping[At, int],
    *,
    deadline_seconds: float = ANSWER_SECONDS,
) -> None:
    """Commit positions for a group without members."""
    if not positions:
        return
    consumer = brokers.consumer(group)
    asked = [TopicPartition(topic, partition, offset) for (topic, partition), offset in sorted(positions.items())]

    def question(left: float) -> None:
        for at in consumer.commit(offsets=asked, asynchronous=False) or ():
            if at.error is not None:
                raise KafkaException(at.error)

    try:
        call_with_retry(question, f"new positions of group {group}", brokers, deadline_seconds)
    finally:
        consumer.close()


def fence(brokers: Brokers, application_id: str, tasks: Iterable[TaskId]) -> None:
    """End every transaction of these stream tasks, and every producer that could go on with one.

    A process that was stopped by a signal or a debugger wakes up at any time: it must find itself fenced, and not
    commit the positions of an earlier life.
    """

    def one(task: TaskId) -> None:
        try:
            open_task_producer(brokers, application_id, task)
        except KafkaException as error:
            raise_unavailable(error, f"the transactions of {application_id}-{task}", brokers, DEADLINE_SECONDS)

    with ThreadPoolExecutor(_FENCED_AT_ONCE) as pool:
        list(pool.map(one, tasks))
