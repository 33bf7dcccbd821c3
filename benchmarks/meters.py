"""What is measured from outside: CPU and memory of a process with its descendants, and totals as they are committed."""

from __future__ import annotations

import bisect
import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import psutil
from confluent_kafka import Consumer, KafkaError, TopicPartition

SAMPLE_SECONDS = 1.0
"""Counting the pages of a JVM takes the kernel CPU time, so it is not done more often."""


@dataclass(frozen=True)
class Usage:
    """CPU seconds so far, and memory in bytes (PSS: shared pages count once)."""

    cpu_seconds: float
    bytes: int


class Meter:
    """Measures a process with its descendants, ended ones included, from a thread."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._cpu: dict[tuple[int, float], float] = {}
        self._peak = 0
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def peak_bytes(self) -> int:
        """The most memory that all of them held at a time."""
        return self._peak

    @property
    def seen_cpu_seconds(self) -> float:
        """The CPU seconds at the last sample. A process that has ended cannot be measured any more."""
        return sum(self._cpu.values())

    def usage(self) -> Usage:
        """Measure now."""
        with self._lock:
            memory = 0
            with suppress(psutil.NoSuchProcess):
                for process in [self._root, *self._root.children(recursive=True)]:
                    with suppress(psutil.NoSuchProcess, psutil.AccessDenied), process.oneshot():
                        times = process.cpu_times()
                        self._cpu[process.pid, process.create_time()] = times.user + times.system
                        memory += process.memory_full_info().pss
            self._peak = max(self._peak, memory)
            return Usage(self.seen_cpu_seconds, memory)

    def _run(self) -> None:
        while not self._stop.wait(SAMPLE_SECONDS):
            self.usage()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(10)


class Totals:
    """Reads the committed values of a changelog of counts (``read_committed``) from a thread.

    Attributes:
        history: For each key the moments (``time.monotonic``) at which a total was read, and the totals.
        total: The sum of the last totals of all keys.
        steps: The moments at which that sum changed, and the sums.
    """

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "bench",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 500,  # brokers answer at once when there is something
                "topic.metadata.refresh.interval.ms": 500,
                "allow.auto.create.topics": False,
                "log_level": 2,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.history: dict[bytes, tuple[list[float], list[int]]] = {}
        self.total = 0
        self.steps: list[tuple[float, int]] = []

    def _run(self) -> None:
        while not self._stop.is_set():
            messages = self._consumer.consume(10_000, 0.005)
            now = time.monotonic()
            before = self.total
            for message in messages:
                error, key, value = message.error(), message.key(), message.value()
                if error is not None:
                    if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._ALL_BROKERS_DOWN):
                        continue  # Kafka Streams creates its topics when it starts
                    raise RuntimeError(str(error))
                assert isinstance(key, bytes)
                moments, totals = self.history.setdefault(key, ([], []))
                count = int.from_bytes(value or b"", "big")
                self.total += count - (totals[-1] if totals else 0)
                moments.append(now)
                totals.append(count)
            if self.total != before:
                self.steps.append((now, self.total))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(30)
        self._consumer.close()

    def latencies(self, produced: Mapping[bytes, Sequence[tuple[float, int]]]) -> list[float]:
        """Return the milliseconds from producing each record to the committed total that includes it.

        Args:
            produced: For each key the moments of its records, and how many of its records were produced by then. A
                total includes a record when it is at least the record's rank among the records of its key.
        """
        latencies: list[float] = []
        for key, records in produced.items():
            moments, totals = self.history[key]
            for moment, rank in records:
                at = bisect.bisect_left(totals, rank)
                latencies.append((moments[at] - moment) * 1000)
        return latencies


def percentile(values: Sequence[float], share: float) -> float:
    """Return a percentile; ``share`` 0.99 is the 99th."""
    return statistics.quantiles(values, n=1000, method="inclusive")[round(share * 1000) - 1]
