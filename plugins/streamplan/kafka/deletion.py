"""What is deleted for good: records up to an offset, topics, consumer groups. Doing it again is no error."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from streamplan.errors import Refused, StreamplanError
from streamplan.kafka.brokers import ANSWER_SECONDS, Brokers
from streamplan.kafka.requests import call_with_retry, error_code, raise_unavailable
from streamplan.kafka.topics import brokers_of

GONE_SECONDS = 30.0
"""How long a deleted topic may be in any broker's metadata."""


def delete_records(
    brokers: Brokers, topic: str, until: Mapping[int, int], *, deadline_seconds: float = ANSWER_SECONDS
) -> None:
    """Delete the records below an offset of each partition."""
    admin = brokers.admin()
    asked = [TopicPartition(topic, partition, offset) for partition, offset in sorted(until.items())]
    futures = admin.delete_records(asked, request_timeout=deadline_seconds)
    for at, future in futures.items():
        try:
            future.result(deadline_seconds + 1.0)
        except (KafkaException, TimeoutError) as error:
            raise_unavailable(
                error,
                f"the deletion of records of {topic}-{at.partition} below offset {until[at.partition]}",
                brokers,
                deadline_seconds,
            )


def delete_topics(brokers: Brokers, names: Sequence[str], *, deadline_seconds: float = ANSWER_SECONDS) -> None:
    """Delete those of the topics that exist and wait until no broker knows them any more."""
    if not names:
        return
    admin = brokers.admin()
    for name, future in admin.delete_topics(list(names), request_timeout=deadline_seconds).items():
        try:
            future.result(deadline_seconds + 1.0)
        except (KafkaException, TimeoutError) as error:
            if error_code(error) == KafkaError.UNKNOWN_TOPIC_OR_PART:
                continue
            raise_unavailable(error, f"the deletion of {name}", brokers, deadline_seconds)
    deadline = time.monotonic() + GONE_SECONDS
    without = 0
    while True:
        metadata = call_with_retry(
            lambda left: admin.list_topics(timeout=left), "its topics", brokers, deadline_seconds
        )
        left = sorted(set(names) & metadata.topics.keys())
        # Each look may be answered by another broker, and they learn of a deletion one after the other.
        without = 0 if left else without + 1
        if without > len(brokers_of(metadata)):
            return
        if time.monotonic() > deadline:
            raise StreamplanError(
                f"topic {', '.join(left) or ', '.join(names)} after its deletion",
                expected=f"gone for all brokers within {GONE_SECONDS:g} s",
                observed="still in the metadata of some",
                remedy="Look into the brokers' logs; running this again goes on from here.",
            )
        time.sleep(0.05)


def delete_group(brokers: Brokers, group: str, *, deadline_seconds: float = ANSWER_SECONDS) -> None:
    """Delete a consumer group, positions and all. One with members is refused."""
    admin = brokers.admin()

    def question(left: float) -> None:
        try:
            admin.delete_consumer_groups([group], request_timeout=left)[group].result(left + 1.0)
        except KafkaException as error:
            if error_code(error) not in (KafkaError.GROUP_ID_NOT_FOUND, KafkaError.NON_EMPTY_GROUP):
                raise
            if error_code(error) == KafkaError.NON_EMPTY_GROUP:
                raise Refused(
                    f"group {group}",
                    expected="no members",
                    observed="members: an application of this id runs",
                    remedy="Stop it first.",
                ) from error

    call_with_retry(question, f"the deletion of group {group}", brokers, deadline_seconds)
