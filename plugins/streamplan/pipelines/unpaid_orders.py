"""A left join of two streams: each order that nobody has paid within ten minutes."""

from __future__ import annotations

from streamplan import JoinWindows, Json, Pipeline, TestData, Topology

topology = Topology("unpaid-orders-finder")
payments = topology.stream("web-payments", value=Json("amount bigint"), key="order")
(
    topology.stream("web-orders", value=Json("id string, total bigint"), key="order")
    .left_join(
        payments,
        {"id": "id", "total": "total", "paid": "other.amount"},
        within=JoinWindows("10 minutes", grace="1 minute", before="0 seconds"),
        store="unpaid",
    )
    .filter("paid is null")
    .to("unpaid-orders")
)


def record(n: int) -> tuple[str, bytes, bytes]:
    """Orders and payments in turn. A payment is for the fifth order before it, and each seventh order is not paid."""
    order = n // 2
    if n % 2 == 0:
        return "web-orders", b"order_%d" % order, b'{"n": %d, "id": "order_%d", "total": %d}' % (n, order, n % 97)
    paid = max(0, order - 5)
    if paid % 7 == 0:
        paid += 1
    return "web-payments", b"order_%d" % paid, b'{"n": %d, "amount": %d}' % (n, 2 * paid % 97)


PIPELINE = Pipeline(
    name="unpaid_orders",
    topology=topology,
    description="Finds orders that are not paid within ten minutes.",
    topic_partitions={"web-orders": 2, "web-payments": 2},
    test_data=TestData(("web-orders", "web-payments"), record=record, number="n"),
)
