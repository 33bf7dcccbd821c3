"""What is measured from outside: CPU and memory of a process and all below it, and committed totals as they come."""

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
"""To add up the pages of a JVM takes the kernel time that it then has not."""


@dataclass(frozen=True)
class Usage:
    """CPU seconds so far; memory in bytes (PSS: what is shared counts once)."""

    cpu_seconds: float
    bytes: int


class Meter:
    """Of a process and all below it, those that have ended included. Samples from a thread."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._cpu: dict[tuple[int, float], float] = {}
        self._peak = 0
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def peak_bytes(self) -> int:
        return self._peak

    @property
    def seen_cpu_seconds(self) -> float:
        """As of the last sample: of a process that has ended nothing more can be learnt."""
        return sum(self._cpu.values())

    def usage(self) -> Usage:
        with self._lock:
            held = 0
            with suppress(psutil.NoSuchProcess):
                for process in [self._root, *self._root.children(recursive=True)]:
                    with suppress(psutil.NoSuchProcess, psutil.AccessDenied), process.oneshot():
                        times = process.cpu_times()
                        self._cpu[process.pid, process.create_time()] = times.user + times.system
                        held += process.memory_full_info().pss
            self._peak = max(self._peak, held)
            return Usage(self.seen_cpu_seconds, held)

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
    """The committed values of a changelog of counts, as they come, read with ``read_committed`` from a thread.

    ``history`` of a key: the moments (``time.monotonic``) at which a total was seen, and the totals.
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
                        continue  # Kafka Streams makes its topics when it starts
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
        """Milliseconds from producing to the committed total that includes the record.

        ``produced`` of a key: moments, and the number of its records produced by then. A record is in a total when
        that is at least the record's rank among those of its key.
        """
        found: list[float] = []
        for key, records in produced.items():
            moments, totals = self.history[key]
            for moment, rank in records:
                at = bisect.bisect_left(totals, rank)
                found.append((moments[at] - moment) * 1000)
        return found


def percentile(values: Sequence[float], share: float) -> float:
    """``share`` of 0.99 is the 99th percentile."""
    return statistics.quantiles(values, n=1000, method="inclusive")[round(share * 1000) - 1]
