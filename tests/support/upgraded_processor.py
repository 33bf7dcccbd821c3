"""A class with a store and a timer, for tests of upgrades: it says each third record of a key, and each pause."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from streamplan import KeyValueStore, Processor, Record


@dataclass
class Said:
    """What is written."""

    what: str
    count: int


class Counting(Processor):
    """Counts the records of a key until none has come for five seconds."""

    def process(self, record: Record, store: KeyValueStore) -> Iterator[Said]:
        """Say each third record."""
        known = store.get()
        count = (known.count if known else 0) + 1
        store.put({"count": count, "due": record.timestamp + timedelta(seconds=5)})
        if count % 3 == 0:
            yield Said("third", count)

    def on_timer(self, time: datetime, store: KeyValueStore) -> Iterator[Said]:
        """Say the pause, and begin anew."""
        known = store.get()
        yield Said("pause", known.count)
        store.put({"count": 0, "due": None})
