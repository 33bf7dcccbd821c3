"""Writes records of changelogs in transactions, as the stream tasks of an application do."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer
from streamplan.model.partitioner import partition_for_key

_numbers = itertools.count()

SECONDS = 120.0


class ChangelogWriter:
    """One producer with transactions."""

    def __init__(self, bootstrap_servers: str, partitions: int) -> None:
        self._partitions = partitions
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "transactional.id": f"changelog-writer-{os.getpid()}-{next(_numbers)}",
                "linger.ms": 0,
            }
        )
        self._producer.init_transactions(SECONDS)

    @contextmanager
    def transaction(self, *, commit: bool = True) -> Iterator[ChangelogWriter]:
        self._producer.begin_transaction()
        yield self
        assert self._producer.flush(SECONDS) == 0
        (self._producer.commit_transaction if commit else self._producer.abort_transaction)(SECONDS)

    def put(self, topic: str, key: bytes, value: bytes | None, *, of: bytes | None = None, at: int = 0) -> None:
        """Write a record.

        Args:
            of: The application's key, by which the record is placed, where it is not all of the key.
            at: The timestamp; 0 for now. The retention of a window's changelog deletes old records at once.
        """
        partition = partition_for_key(key if of is None else of, self._partitions)
        self._producer.produce(topic, value, key, partition, timestamp=at)

    def flush(self) -> None:
        assert self._producer.flush(SECONDS) == 0
