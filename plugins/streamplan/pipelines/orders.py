"""Orders grouped by product type and counted."""

from __future__ import annotations

from streamplan.pipeline import Pipeline, TestData
from streamplan.serdes import Json
from streamplan.topology import Topology

ORDER = Json("Id string, ProductType int", allowed={"ProductType": {0: "Jackets", 1: "Shirts"}})

topology = Topology("orders-aggregator")
(
    topology.stream("orders", value=ORDER)
    .group_by("ProductType", name="orders-products-quantities")
    .count(store="orders-products-quantities")
)


def order(n: int) -> tuple[bytes, bytes]:
    """Order ``n``: key ``order_<n>``, product type ``n % 2``."""
    return b"order_%d" % n, b'{"Id": "order_%d", "ProductType": %d}' % (n, n % 2)


def order_number(key: bytes | None, value: bytes | None) -> int | None:
    """The ``n`` of an order as :func:`order` makes it."""
    digits = key.removeprefix(b"order_") if key is not None else b""
    # Longer ones are nobody's, and int() refuses the longest.
    return int(digits) if len(digits) < 20 and digits.isdigit() and order(int(digits)) == (key, value) else None


PIPELINE = Pipeline(
    name="orders",
    topology=topology,
    description="Groups orders by product type and counts them.",
    source_partitions={"orders": 2},
    test_data=TestData("orders", record=order, number=order_number),
)
