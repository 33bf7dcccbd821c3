"""The topics as a plain consumer sees them: each record once, from the beginning, committed ones only."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

ANSWER_SECONDS = 10.0
READ_SECONDS = 60.0
_PASSING = (KafkaError._PARTITION_EOF, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT)


class Record(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes]

    @property
    def place(self) -> str:
        return f"{self.topic}-{self.partition} offset {self.offset}"


class Log:
    """One topic. Every :meth:`read` goes on where the one before ended."""

    def __init__(self, servers: str, topic: str, partitions: range | list[int]) -> None:
        self.servers = servers
        self.topic = topic
        self.next = dict.fromkeys(partitions, 0)

    def ends(self) -> dict[int, int]:
        """Of each partition the last stable offset: below it everything is committed or aborted."""
        asked = {TopicPartition(self.topic, number): OffsetSpec.latest() for number in self.next}  # type: ignore[no-untyped-call]
        # A new client each time: librdkafka 2.16 asks with the leader epoch that it has in its cache, is told
        # FENCED_LEADER_EPOCH after an election, and goes on so until it refreshes its metadata, minutes later.
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 2})
        found = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=ANSWER_SECONDS)
        return {at.partition: future.result(ANSWER_SECONDS + 1).offset for at, future in found.items()}

    def read(self, ends: Mapping[int, int]) -> Iterator[Record]:
        """The committed records before ``ends`` that were not read yet; of each partition in order."""
        left = {number: end for number, end in ends.items() if self.next[number] < end}
        if not left:
            return
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "chaos",  # never joined, never committed to
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 50,
                "log_level": 2,
            }
        )
        try:
            consumer.assign([TopicPartition(self.topic, number, self.next[number]) for number in left])
            deadline = time.monotonic() + READ_SECONDS
            while left:
                messages: list[Any] = consumer.consume(10_000, 0.1)
                for message in messages:
                    number, error = message.partition(), message.error()
                    if error is not None and error.code() not in _PASSING:
                        raise KafkaException(error)
                    if number not in left or (error is not None and error.code() != KafkaError._PARTITION_EOF):
                        continue
                    if error is None and message.offset() < left[number]:
                        self.next[number] = message.offset() + 1
                        yield _record(message)
                    # The end may lie behind markers and aborted records: what comes next tells, or that nothing does.
                    if message.offset() + (error is None) >= left[number]:
                        self.next[number] = left.pop(number)
                if left and time.monotonic() > deadline:
                    raise TimeoutError(f"{self.topic}: no record before {left} within {READ_SECONDS:g} s")
        finally:
            consumer.close()


def _record(message: Any) -> Record:
    return Record(
        message.topic(),
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        dict(message.headers() or ()),
    )


class Group:
    """The committed positions of a consumer group, asked for by one who never joins it."""

    def __init__(self, servers: str, group: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",  # what is in an open transaction is waited for
                "log_level": 2,
            }
        )

    def positions(self, topic: str, partitions: int) -> dict[int, int]:
        """0 for a partition without one."""
        asked = [TopicPartition(topic, number) for number in range(partitions)]
        found = self._consumer.committed(asked, ANSWER_SECONDS)
        for at in found:
            if at.error is not None:
                raise KafkaException(at.error)
        return {at.partition: max(0, int(at.offset)) for at in found}

    def close(self) -> None:
        self._consumer.close()
