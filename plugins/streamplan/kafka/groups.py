"""Consumer groups from outside: who is in one, where it stands, and setting where it stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from streamplan.kafka.brokers import ANSWER_SECONDS, admin_client, ask, client_config, code_of, raise_no_answer
from streamplan.kafka.transactions import DEADLINE_SECONDS, open_task_producer
from streamplan.model.processor_topology import TaskId

At: TypeAlias = tuple[str, int]
"""Topic and partition."""

_FENCED_AT_ONCE = 8


def members(bootstrap_servers: str, group: str, *, deadline_seconds: float = ANSWER_SECONDS) -> list[str]:
    """The members of a group, each ``client id on host``. Our own aggregator is none: it commits without joining."""
    admin = admin_client(bootstrap_servers)

    def question(left: float) -> list[str]:
        try:
            found = admin.describe_consumer_groups([group], request_timeout=left)[group].result(left + 1.0)
        except KafkaException as error:
            if code_of(error) == KafkaError.GROUP_ID_NOT_FOUND:
                return []
            raise
        return [f"{member.client_id} on {member.host}" for member in found.members]

    return ask(question, f"the members of group {group}", bootstrap_servers, deadline_seconds)


def set_positions(
    bootstrap_servers: str,
    group: str,
    positions: Mapping[At, int],
    *,
    deadline_seconds: float = ANSWER_SECONDS,
) -> None:
    """Commit positions for a group without members."""
    if not positions:
        return
    consumer = Consumer(client_config(bootstrap_servers, group_id=group, enable_auto_commit=False))
    asked = [TopicPartition(topic, partition, offset) for (topic, partition), offset in sorted(positions.items())]

    def question(left: float) -> None:
        for at in consumer.commit(offsets=asked, asynchronous=False) or ():
            if at.error is not None:
                raise KafkaException(at.error)

    try:
        ask(question, f"new positions of group {group}", bootstrap_servers, deadline_seconds)
    finally:
        consumer.close()


def fence(bootstrap_servers: str, application_id: str, tasks: Iterable[TaskId]) -> None:
    """End every transaction of these stream tasks, and every producer that could go on with one.

    A process that was stopped by a signal or a debugger wakes up at any time: it must find itself fenced, and not
    commit the positions of an earlier life.
    """

    def one(task: TaskId) -> None:
        try:
            open_task_producer(bootstrap_servers, application_id, task)
        except KafkaException as error:
            raise_no_answer(error, f"the transactions of {application_id}-{task}", bootstrap_servers, DEADLINE_SECONDS)

    with ThreadPoolExecutor(_FENCED_AT_ONCE) as pool:
        list(pool.map(one, tasks))
