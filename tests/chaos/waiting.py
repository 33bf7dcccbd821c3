"""Waiting: always with a deadline, a condition and a message."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import KafkaException
from streamplan.errors import StreamplanError


class NotSettled(Exception):
    """Something did not come back by itself within its deadline."""


def wait_for(what: str, lacking: Callable[[], str], seconds: float, *, interval: float = 0.25) -> None:
    """Until ``lacking`` says nothing is. What it raises while Kafka or Airflow are away counts as lacking."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            left = lacking()
        except (KafkaException, StreamplanError, TimeoutError) as error:
            left = str(error)
        if not left:
            return
        if time.monotonic() > deadline:
            raise NotSettled(f"{what}: not within {seconds:g} s; {left}")
        time.sleep(interval)
