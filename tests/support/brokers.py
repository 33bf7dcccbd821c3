"""Brokers of a test, and what makes topics on them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from streamplan.local.brokers import CONTROLLER, DEFAULT_PORTS, EmbeddedKafka
from streamplan.local.ports import Ports
from streamplan.settings import Settings

NewTopicFactory = Callable[..., str]


def embedded_kafka(home: Path, say: Callable[[str], None] = lambda text: None) -> EmbeddedKafka:
    """Brokers in ``home``, not started; whoever starts them calls ``down``."""
    # Below the range from which the kernel takes the ports of clients.
    base = random.randrange(15_000, 30_000, 10)
    ports = {name: base + offset for offset, name in enumerate(sorted(DEFAULT_PORTS))}
    assert CONTROLLER in ports
    settings = Settings.from_environment({"STREAMPLAN_HOME": str(home)})
    return EmbeddedKafka(settings, Ports(home / "stack.json", ports), report=say)
