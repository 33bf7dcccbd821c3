"""Queries of state stores from a program: in Python, and over HTTP by ``streamplan serve``.

The stores are read from their changelogs into memory, and followed from then on. Nothing is asked of the aggregator::

    from streamplan.queries import open_queries

    with open_queries("orders", "localhost:9092") as queries:
        totals = queries.key_value_store("orders-products-quantities")
        print(totals.get("0"))

The methods have the names of Kafka Streams' interactive queries (``ReadOnlyKeyValueStore``, ``ReadOnlyWindowStore``,
``ReadOnlySessionStore``).
"""

from __future__ import annotations

from streamplan.queries.queries import Queries, open_queries
from streamplan.queries.state_view import PartitionNotHeld
from streamplan.queries.stores import (
    ReadOnlyKeyValueStore,
    ReadOnlySessionStore,
    ReadOnlyWindowStore,
    ValueAndTimestamp,
)

__all__ = [
    "PartitionNotHeld",
    "Queries",
    "ReadOnlyKeyValueStore",
    "ReadOnlySessionStore",
    "ReadOnlyWindowStore",
    "ValueAndTimestamp",
    "open_queries",
]
