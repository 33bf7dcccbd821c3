from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from streamplan.errors import Refused
from streamplan.kafka import copying
from streamplan.kafka.brokers import Brokers
from streamplan.kafka_types import UNREADABLE_HEADERS, Record


class FakeProducer:
    def __init__(self) -> None:
        self.timestamps: list[int] = []

    def produce(self, *arguments: Any, timestamp: int, **more: Any) -> None:
        self.timestamps.append(timestamp)

    def begin_transaction(self) -> None:
        pass

    def commit_transaction(self, seconds: float) -> None:
        pass

    def poll(self, seconds: float) -> int:
        return 0


def test_a_copy_keeps_timestamps_and_has_1_ms_for_0(monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka would write the wall clock's time for 0."""
    producer = FakeProducer()

    @contextmanager
    def opened(*arguments: Any, **more: Any) -> Iterator[FakeProducer]:
        yield producer

    monkeypatch.setattr(copying, "transactional_producer", opened)
    rows = [copying.PlacedRecord(0, Record(0, 0, timestamp, b"k", b"v")) for timestamp in (0, 1, 1_600_000_000_123)]
    assert copying.write_all(Brokers("localhost:1"), "to", rows, transactional_id="copy") == 3
    assert producer.timestamps == [1, 1, 1_600_000_000_123]


def test_a_record_whose_headers_cannot_be_read_is_not_copied_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = FakeProducer()

    @contextmanager
    def opened(*arguments: Any, **more: Any) -> Iterator[FakeProducer]:
        yield producer

    monkeypatch.setattr(copying, "transactional_producer", opened)
    rows = [copying.PlacedRecord(0, Record(1, 7, 1, b"k", b"v", UNREADABLE_HEADERS))]
    with pytest.raises(Refused, match=r"partition 1, offset 7 cannot be copied to to: .*UTF-8"):
        copying.write_all(Brokers("localhost:1"), "to", rows, transactional_id="copy")
    assert producer.timestamps == []
