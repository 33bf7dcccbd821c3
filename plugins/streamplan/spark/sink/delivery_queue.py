"""Bounds the bytes that are on their way to the brokers, so that a transaction can always be ended soon.

A transaction ends when all that was queued is delivered. With a fixed bound, slow brokers would take longer for the
queue than a transaction may last. So the bound follows what they take in about a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from confluent_kafka import KafkaError, KafkaException

from streamplan.kafka.transactions import DEADLINE_SECONDS

MAX_BYTES = 64 * 1024 * 1024

_FIRST_BYTES = 4 * 1024 * 1024
_MIN_BYTES = 256 * 1024
_AIM_SECONDS = 1.0


class _Flushing(Protocol):
    def flush(self, timeout: float) -> int: ...


class DeliveryQueue:
    """What a producer was given since all of it was delivered the last time.

    Args:
        producer: Its ``flush`` returns the number of records that are undelivered still.
        clock: Seconds that never go back.
    """

    def __init__(self, producer: _Flushing, clock: Callable[[], float] = time.monotonic) -> None:
        self._producer = producer
        self._clock = clock
        self._bound = _FIRST_BYTES
        self._bytes = 0

    def reserve(self, size: int) -> None:
        """Make room for ``size`` bytes: with too many in the queue, wait until all of them are delivered.

        Raises:
            KafkaException: The brokers did not take them in time.
        """
        if self._bytes and self._bytes + size > self._bound:
            begun = self._clock()
            if left := self._producer.flush(DEADLINE_SECONDS):
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"{left} records undelivered"))
            took = max(self._clock() - begun, 0.001)
            in_time = int(self._bytes * _AIM_SECONDS / took)
            self._bound = min(max(in_time, _MIN_BYTES), 2 * self._bound, MAX_BYTES)
            self._bytes = 0
        self._bytes += size

    def emptied(self) -> None:
        """Note that everything is delivered: a transaction was committed."""
        self._bytes = 0
