"""Alarms for cards: a Python class with state sees the third payment of a card within a minute."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from streamplan import Json, KeyValueStore, Pipeline, Processor, Record, TestData, Topology

MINUTE = timedelta(minutes=1)


@dataclass
class Alarm:
    """What is written of a payment that is one of three."""

    id: str
    payments: int


class Detector(Processor):
    """Keeps the times of a card's payments of the last minute."""

    def process(self, record: Record, store: KeyValueStore) -> Iterator[Alarm]:
        """Raise an alarm where two payments were less than a minute before."""
        if record.value is None:
            return
        seen = store.get()
        times = [at for at in seen.times if record.timestamp - at < MINUTE] if seen else []
        times.append(record.timestamp)
        store.put({"times": times, "forget": max(times) + MINUTE})
        if len(times) > 2:
            yield Alarm(record.value.id, len(times))

    def on_timer(self, time: datetime, store: KeyValueStore) -> None:
        """Forget a card after a minute without a payment."""
        store.delete()


topology = Topology("card-alarms")
(
    topology.stream("card-payments", value=Json("id string, amount bigint"), key="card")
    .process(Detector, store="recent-payments", state="times array<timestamp>, forget timestamp", timer="forget")
    .to("alarms")
)


def payment(n: int) -> tuple[str, bytes, bytes]:
    """Payment ``n``. Of each fifty the first three are of one card, the others of cards that are used now and then."""
    card = b"stolen_%d" % (n // 50) if n % 50 < 3 else b"card_%d" % (n % 2000)
    return "card-payments", card, b'{"id": "payment_%d", "amount": %d}' % (n, n % 97)


PIPELINE = Pipeline(
    name="fraud",
    topology=topology,
    description="Raises an alarm for a card with three payments within a minute.",
    topic_partitions={"card-payments": 2, "alarms": 2},
    test_data=TestData(("card-payments",), record=payment, number="id"),
)
