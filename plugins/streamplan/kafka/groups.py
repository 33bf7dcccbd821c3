"""Consumer groups from outside: their members, their committed offsets, and their deletion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException

from streamplan.errors import BrokersUnavailable, Refused
from streamplan.kafka.brokers import ANSWER_SECONDS, Brokers
from streamplan.kafka.requests import call_with_retry, error_code, raise_unavailable
from streamplan.kafka.transactions import DEADLINE_SECONDS, open_task_producer
from streamplan.kafka_types import TopicPartition
from streamplan.model.committed_positions import CommittedPosition
from streamplan.model.group_member import Member
from streamplan.model.processor_topology import TaskId

_FENCED_AT_ONCE = 16


def members(brokers: Brokers, group: str, *, deadline_seconds: float = ANSWER_SECONDS) -> list[Member]:
    """Describe the members of a group. A running aggregator is one, see :mod:`streamplan.kafka.membership`.

    Raises:
        BrokersUnavailable: The brokers did not answer.
    """
    admin = brokers.admin()

    def request(left: float) -> list[Member]:
        try:
            description = admin.describe_consumer_groups([group], request_timeout=left)[group].result(left + 1.0)
        except KafkaException as error:
            if error_code(error) == KafkaError.GROUP_ID_NOT_FOUND:
                return []
            raise
        return [Member(member.client_id, member.host.lstrip("/"), member.member_id) for member in description.members]

    return call_with_retry(
        request, f"the members of group {group}", brokers, deadline_seconds, needs=f"Describe on group {group}"
    )


def committed_offsets(
    consumer: Consumer, group: str, partitions: Iterable[TopicPartition], brokers: Brokers, seconds: float
) -> dict[TopicPartition, CommittedPosition]:
    """Read the committed offsets of a group, with their metadata.

    The request goes through a consumer that never joins the group. librdkafka 2.16's admin client crashes in
    ``list_consumer_group_offsets`` when a broker answers that it is not the coordinator, as it does while the group's
    first offsets are on their way.

    Args:
        consumer: A consumer of the group. Its isolation level decides whether an open transaction is waited for
            (``read_committed``) or passed over.
        group: The group's id, for the error.
        partitions: The partitions to ask for.
        brokers: The brokers, for the error.
        seconds: The deadline.

    Returns:
        The positions, by topic and partition. Partitions without a committed offset are absent.

    Raises:
        BrokersUnavailable: The brokers did not answer.
    """
    requested = [confluent_kafka.TopicPartition(*partition) for partition in partitions]

    def request(left: float) -> list[confluent_kafka.TopicPartition]:
        answers: list[confluent_kafka.TopicPartition] = consumer.committed(requested, left) if requested else []
        for answer in answers:
            if answer.error is not None:
                raise KafkaException(answer.error)
        return answers

    try:
        answers = call_with_retry(
            request, f"the positions of group {group}", brokers, seconds, needs=f"Describe on group {group}"
        )
    except BrokersUnavailable as error:
        if error.__cause__ is not None and error_code(error.__cause__) == KafkaError._TIMED_OUT:
            members(brokers, group, deadline_seconds=seconds)  # tells that the permission is missing; a consumer waits
        raise
    return {
        (answer.topic, answer.partition): CommittedPosition(answer.offset, _metadata(answer))
        for answer in answers
        if answer.offset >= 0
    }


def _metadata(answer: confluent_kafka.TopicPartition) -> str:
    """Return the text that was committed with a position.

    librdkafka 2.16 does not end the text with a zero byte, so the Python client reads on in memory that is not the
    text's. Bytes that are no text are cut off here. Characters can remain behind the text: who reads it must know where
    it ends. (librdkafka issue 4649)
    """
    try:
        return answer.metadata or ""
    except UnicodeDecodeError as error:
        return error.object[: error.start].decode()


def set_positions(
    brokers: Brokers,
    group: str,
    positions: Mapping[TopicPartition, int],
    *,
    metadata: str | Mapping[TopicPartition, str] = "",
    deadline_seconds: float = ANSWER_SECONDS,
) -> None:
    """Commit offsets for a group without members.

    Args:
        group: The group's id.
        positions: The offsets.
        metadata: Is committed with each of them, or by partition. An aggregator refuses positions without a generation.

    Raises:
        Refused: The group has members.
        BrokersUnavailable: The brokers did not answer.
    """
    if not positions:
        return
    offsets = [
        confluent_kafka.TopicPartition(
            *partition, offset, metadata if isinstance(metadata, str) else metadata[partition]
        )
        for partition, offset in sorted(positions.items())
    ]
    with closing(brokers.consumer(group)) as consumer:

        def request(left: float) -> None:
            try:
                answers = consumer.commit(offsets=offsets, asynchronous=False) or ()
            except KafkaException as error:
                if error_code(error) == KafkaError.UNKNOWN_MEMBER_ID:  # a group with members takes commits of them only
                    raise _has_members(group) from error
                raise
            for answer in answers:
                if answer.error is not None:
                    raise KafkaException(answer.error)

        call_with_retry(
            request, f"new positions of group {group}", brokers, deadline_seconds, needs=f"Read on group {group}"
        )


def fence(brokers: Brokers, application_id: str, tasks: Iterable[TaskId]) -> None:
    """End every transaction of these stream tasks, and fence every producer that could go on with one.

    A process that was stopped by a signal or a debugger may wake up at any time. It must find itself fenced, and not
    commit offsets of an earlier life.

    Raises:
        BrokersUnavailable: The brokers did not answer.
    """

    def fence_task(task: TaskId) -> None:
        try:
            open_task_producer(brokers, application_id, task)
        except KafkaException as error:
            raise_unavailable(
                error,
                f"the transactions of {application_id}-{task}",
                brokers,
                DEADLINE_SECONDS,
                needs=f"Write on transactional-id {application_id}-{task}",
            )

    with ThreadPoolExecutor(_FENCED_AT_ONCE) as pool:
        list(pool.map(fence_task, tasks))


def delete_group(brokers: Brokers, group: str, *, deadline_seconds: float = ANSWER_SECONDS) -> None:
    """Delete a consumer group with its committed offsets. A group that does not exist is no error.

    Raises:
        Refused: The group has members.
        BrokersUnavailable: The brokers did not answer.
    """
    admin = brokers.admin()

    def request(left: float) -> None:
        try:
            admin.delete_consumer_groups([group], request_timeout=left)[group].result(left + 1.0)
        except KafkaException as error:
            if error_code(error) == KafkaError.NON_EMPTY_GROUP:
                raise _has_members(group) from error
            if error_code(error) != KafkaError.GROUP_ID_NOT_FOUND:
                raise

    call_with_retry(
        request, f"the deletion of group {group}", brokers, deadline_seconds, needs=f"Delete on group {group}"
    )


def _has_members(group: str) -> Refused:
    return Refused(
        f"group {group}",
        expected="no members",
        observed="members: an application of this id runs, or was killed a moment ago",
        remedy="Stop it first. The brokers forget a killed one when its session ends (session.timeout.ms).",
    )
