"""Two streams joined within a window: each order with its payments of the ten minutes before and after it."""

from __future__ import annotations

from streamplan import JoinWindows, Json, Pipeline, TestData, Topology

topology = Topology("order-payments")
payments = topology.stream("payments", value=Json("amount bigint, method string"), key="order")
(
    topology.stream("purchase-orders", value=Json("id string, total bigint"), key="order")
    .join(
        payments,
        {"id": "id", "total": "total", "paid": "other.amount", "method": "other.method"},
        within=JoinWindows("10 minutes", grace="1 hour"),
    )
    .to("paid-orders")
)


def record(n: int) -> tuple[str, bytes, bytes]:
    """Orders and payments in turn. A payment is for the fifth order before it; the first orders are paid twice."""
    order = n // 2
    if n % 2 == 0:
        return "purchase-orders", b"order_%d" % order, b'{"n": %d, "id": "order_%d", "total": %d}' % (n, order, n % 97)
    paid = order - 5 if order >= 5 else order
    method = (b"card", b"cash", b"transfer")[n % 3]
    return "payments", b"order_%d" % paid, b'{"n": %d, "amount": %d, "method": "%b"}' % (n, 2 * paid % 97, method)


PIPELINE = Pipeline(
    name="payments",
    topology=topology,
    description="Joins orders with their payments within ten minutes.",
    topic_partitions={"purchase-orders": 2, "payments": 2},
    test_data=TestData(("purchase-orders", "payments"), record=record, number="n"),
)
