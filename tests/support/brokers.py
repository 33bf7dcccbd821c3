"""Brokers of a test, and what makes topics on them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from streamplan.local.brokers import CONTROLLER, DEFAULT_PORTS, LocalKafka
from streamplan.local.ports import Ports
from streamplan.settings import Settings

from tests.support.waiting import eventually

NewTopicFactory = Callable[..., str]

Answer = TypeVar("Answer")


def local_kafka(
    home: Path,
    say: Callable[[str], None] = lambda text: None,
    *,
    secure: bool = False,
    properties: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    kind: type[LocalKafka] = LocalKafka,
) -> LocalKafka:
    """Brokers in ``home``, not started; whoever starts them calls ``down``."""
    # Below the range from which the kernel takes the ports of clients.
    base = random.randrange(15_000, 30_000, 10)
    ports = {name: base + offset for offset, name in enumerate(sorted(DEFAULT_PORTS))}
    assert CONTROLLER in ports
    settings = Settings.from_environment({"STREAMPLAN_HOME": str(home)})
    return kind(
        settings,
        Ports(home / "stack.json", ports),
        report=say,
        secure=secure,
        properties=properties,
        environment=environment,
    )


def await_coordinator(bootstrap_servers: str, properties: Mapping[str, str] | None = None) -> None:
    """Wait until groups can be asked for: the brokers create ``__consumer_offsets`` at the first question."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "first", "log_level": 2, **(properties or {})}
    )
    try:
        retried(lambda: consumer.committed([TopicPartition("any", 0)], 60))
    finally:
        consumer.close()


def await_topics(bootstrap_servers: str, *names: str, properties: Mapping[str, str] | None = None) -> None:
    """Wait until each broker knows the topics. The brokers hear of a new topic one after the other."""
    for address in str(bootstrap_servers).split(","):
        admin = AdminClient({"bootstrap.servers": address, "log_level": 2, **(properties or {})})

        def known(admin: AdminClient = admin) -> bool:
            return {*names} <= admin.list_topics(timeout=60).topics.keys()

        eventually(known, f"{address} knows {', '.join(names)}", interval=0.02)


def retried(ask: Callable[[], Answer]) -> Answer:
    """Ask again while the brokers are electing who knows the group, and return the answer."""
    electing = (
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    )
    answers: list[Answer] = []

    def answered() -> bool:
        try:
            answers.append(ask())
        except KafkaException as error:
            if error.args[0].code() not in electing and not error.args[0].retriable():
                raise
            return False
        return True

    eventually(answered, "an answer of the group's coordinator")
    return answers[0]
