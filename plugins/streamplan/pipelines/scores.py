"""Plain Python functions: each transfer gets a score, and the risky ones are passed on. The keys are numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streamplan import Json, Long, Pipeline, TestData, Topology

COUNTRIES = ("DE", "FR", "IT", "PL", "SE", "US", "BR", "JP")
KNOWN = {"DE", "FR", "IT"}


@dataclass
class Score:
    """What is written of a risky transfer."""

    id: str
    risk: float


def score(transfer: Any) -> Score:
    """Return the risk of a transfer, from 0 to 1: of its amount, and half of that in a country that is known."""
    risk = min(transfer.amount / 1024, 1.0)
    return Score(transfer.id, risk / 2 if transfer.country in KNOWN else risk)


def is_risky(scored: Any) -> bool:
    """Return whether somebody should look at a transfer."""
    return bool(scored.risk > 0.75)


topology = Topology("transfer-scores")
(
    topology.stream(
        "transfers", value=Json("id string, amount bigint, country string"), key="account", key_serde=Long()
    )
    .map_values(score)
    .filter(is_risky)
    .to("risky-transfers")
)


def transfer(n: int) -> tuple[str, bytes, bytes]:
    """Transfer ``n`` of one of a thousand accounts; countries in turn."""
    country = COUNTRIES[n % len(COUNTRIES)].encode()
    value = b'{"id": "transfer_%d", "amount": %d, "country": "%b"}' % (n, 31 * n % 1100, country)
    return "transfers", (n % 1000).to_bytes(8, "big"), value


PIPELINE = Pipeline(
    name="scores",
    topology=topology,
    description="Scores transfers by a Python function, and passes on the risky ones.",
    topic_partitions={"transfers": 2, "risky-transfers": 2},
    test_data=TestData(("transfers",), record=transfer, number="id"),
)
