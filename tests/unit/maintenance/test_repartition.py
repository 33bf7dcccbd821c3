"""What a repartition does while the brokers still end a transaction that they have confirmed."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from streamplan.errors import StreamplanError
from streamplan.kafka import copying
from streamplan.kafka.brokers import Brokers
from streamplan.kafka_types import Offsets
from streamplan.maintenance import repartition
from streamplan.maintenance.repartition import Repartitioner
from streamplan.pipelines.orders import PIPELINE
from streamplan.settings import Settings

OPEN, ENDED = Offsets(0, 0, 101), Offsets(0, 102, 102)
"""101 records of a transaction, without its marker and with it."""


def repartitioner(monkeypatch: pytest.MonkeyPatch, *answers: Mapping[int, Offsets]) -> Repartitioner:
    """One whose cluster answers so, the last answer again and again."""
    left = list(answers)
    cluster = SimpleNamespace(offsets=lambda topic: left.pop(0) if len(left) > 1 else left[0])
    monkeypatch.setattr(Repartitioner, "_cluster", lambda self: cluster)
    monkeypatch.setattr(repartition, "_POLL_SECONDS", 0.0)
    return Repartitioner(PIPELINE, Brokers("nowhere:1"), Settings.from_environment({"STREAMPLAN_HOME": "/nowhere"}))


def test_a_topic_is_complete_up_to_the_marker_of_its_last_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    committed: list[Any] = []
    monkeypatch.setattr(repartition, "set_positions", lambda brokers, group, positions: committed.append(positions))
    repartitioner(monkeypatch, {0: OPEN, 1: ENDED}, {0: OPEN, 1: ENDED}, {0: ENDED, 1: ENDED})._mark_complete("orders")
    assert committed == [{("orders", 0): 102, ("orders", 1): 102}]


def test_a_transaction_that_stays_open_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "TRANSACTION_SECONDS", 0.0)
    with pytest.raises(StreamplanError, match=r"orders: expected no open transaction .*, observed one in partitions 0"):
        repartitioner(monkeypatch, {0: OPEN, 1: ENDED})._mark_complete("orders")
