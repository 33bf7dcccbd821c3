"""Orders grouped by product type and counted."""

from __future__ import annotations

from streamplan import Json, Pipeline, TestData, Topology

ORDER = Json("Id string, ProductType int", allowed={"ProductType": {0: "Jackets", 1: "Shirts"}})

topology = Topology("orders-aggregator")
(
    topology.stream("orders", value=ORDER)
    .group_by("ProductType", name="orders-products-quantities")
    .count(store="orders-products-quantities")
)


def order(n: int) -> tuple[bytes, bytes]:
    """Key and value of order ``n``: key ``order_<n>``, product type ``n % 2``."""
    return b"order_%d" % n, b'{"Id": "order_%d", "ProductType": %d}' % (n, n % 2)


PIPELINE = Pipeline(
    name="orders",
    topology=topology,
    description="Groups orders by product type and counts them.",
    topic_partitions={"orders": 2},
    test_data=TestData(("orders",), record=lambda n: ("orders", *order(n)), number="Id"),
)
