"""The aggregator of a tried topology that goes on until a test ends it, or until it is killed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.errors import PySparkException
from streamplan.errors import StreamplanError
from streamplan.kafka.brokers import Brokers
from streamplan.spark.aggregator import run
from streamplan.spark.deployment import Deployment
from streamplan.spark.progress import Progress
from streamplan.spark.query import MicroBatchReport

from tests.support.tried_topology import Tried


@contextmanager
def running(tried: Tried, failures: list[Exception]) -> Iterator[None]:
    """The aggregator, in a thread until the block ends. What ends it before is in ``failures``."""
    stop = threading.Event()

    def work() -> None:
        try:
            run(
                tried.spark,
                Deployment(tried.pipeline, Brokers(tried.bootstrap_servers), str(tried.checkpoints)),
                available_now=False,
                trigger_interval_ms=200,
                stop=stop,
                report=tried.lines.append,
            )
        except (StreamplanError, PySparkException) as error:
            failures.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(300)
        assert not thread.is_alive()


class Killed(Exception):
    """As a kill between the transactions of a micro-batch and the commit of Spark."""


def kill_when_written(monkeypatch: pytest.MonkeyPatch, micro_batches: int) -> None:
    """End the query after so many micro-batches that have written: their transactions are committed, the last one is
    not committed by Spark."""
    original = Progress.record
    left = [micro_batches]

    def record(self: Progress, report: MicroBatchReport) -> None:
        original(self, report)
        left[0] -= report.written > 0
        if not left[0]:
            raise Killed

    monkeypatch.setattr(Progress, "record", record)
