"""Re-keying by the driver, which goes on reading while a micro-batch lasts."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message
from streamplan.errors import Refused, StreamplanError
from streamplan.kafka.brokers import Brokers
from streamplan.spark.aggregator import run
from streamplan.spark.query import Deployment
from streamplan.spark.sink import direct_rekeying
from streamplan.spark.sink.writers import TaskProgress

from tests.support.orders_application import Application, numbered
from tests.support.waiting import eventually

STEPS = 6


@pytest.fixture
def direct(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records the driver has written each time by itself."""
    written: list[int] = []
    original = direct_rekeying.write_collected

    def write(*arguments: Any) -> list[TaskProgress]:
        tasks = original(*arguments)
        written.append(sum(task.written for task in tasks))
        return tasks

    monkeypatch.setattr(direct_rekeying, "write_collected", write)
    return written


@contextmanager
def running(application: Application, failures: list[StreamplanError] | None = None) -> Iterator[None]:
    """The aggregator, in a thread until the block ends."""
    stop, faults = threading.Event(), [] if failures is None else failures

    def work() -> None:
        try:
            run(
                application.spark,
                Deployment(application.pipeline, Brokers(application.bootstrap_servers), str(application.checkpoints)),
                available_now=False,
                trigger_interval_ms=200,
                stop=stop,
                report=lambda line: None,
            )
        except StreamplanError as error:
            faults.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(300)
        assert not thread.is_alive()
    assert failures is not None or not faults, faults


def feed(application: Application, first: int, direct: Sequence[int]) -> int:
    """Produce orders in small portions until the driver has written some of them by itself; return the next number."""
    number, begun = first, len(direct)
    application.produce(numbered(number, number + 10))

    def enough() -> bool:
        nonlocal number
        number += 10
        application.produce(numbered(number, number + 10))
        return len(direct) - begun >= STEPS

    eventually(enough, "the driver re-keys by itself")
    return number + 10


def require_exact(application: Application, orders: int) -> None:
    """Each order is counted once, and is in the repartition topic once, as it was."""
    eventually(lambda: sum(application.totals().values()) >= orders, "all orders are counted")
    assert sum(application.totals().values()) == orders
    rekeyed = application.committed(application.repartition)
    expected = map(fields, good(application.committed(application.orders)))
    assert sorted(map(fields, rekeyed), key=str) == sorted(expected, key=str)
    assert all(json.loads(message.value())["ProductType"] == int(message.key()) for message in rekeyed)


def good(orders: Sequence[Message]) -> list[Message]:
    return [message for message in orders if message.value() != b"bad"]


def fields(message: Message) -> tuple[Any, ...]:
    return message.value(), message.timestamp()[1], tuple(message.headers() or ())


def test_each_order_is_rekeyed_once_as_it_came(application: Application, direct: list[int]) -> None:
    bad = [(b"bad", b"bad")]
    with running(application):
        orders = feed(application, 0, direct)
        application.produce(bad)
        application.produce(
            numbered(orders, orders + 5), timestamp=1_700_000_000_123, headers=[("a", b"\xff"), ("b", None)]
        )
        require_exact(application, orders + 5)
        eventually(lambda: application.lag(application.orders) == 0, "the position passes all orders")
    (letter,) = application.committed(application.dead_letter)
    assert letter.value() == b"bad"
    assert dict(letter.headers())["__streams.errors.topic"] == application.orders.encode()


def test_after_an_error_of_the_brokers_sparks_micro_batch_goes_on(
    application: Application, direct: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    original = direct_rekeying.write_collected
    failed: list[int] = []

    def write(*arguments: Any) -> list[TaskProgress]:
        tasks: list[TaskProgress] = original(*arguments)
        if len(direct) in (2, 4) and len(direct) not in failed:
            failed.append(len(direct))
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "after the commit"))
        return tasks

    monkeypatch.setattr(direct_rekeying, "write_collected", write)
    with running(application):
        orders = feed(application, 0, direct)
        require_exact(application, orders)
    assert failed == [2, 4]


def test_a_start_goes_on_where_the_driver_was(application: Application, direct: list[int]) -> None:
    orders = 0
    for _ in range(2):
        with running(application):
            orders = feed(application, orders, direct)
    application.produce(numbered(orders, orders + 100))
    application.drain()
    require_exact(application, orders + 100)


def test_a_driver_whose_tasks_were_claimed_by_a_newer_one_ends(application: Application, direct: list[int]) -> None:
    failures: list[StreamplanError] = []
    with running(application, failures):
        orders = feed(application, 0, direct)
        application.claim()
        application.produce(numbered(orders, orders + 10))
        eventually(lambda: bool(failures), "the older one ends")
    assert isinstance(failures[0], Refused)
    assert "newer" in str(failures[0])
