"""A pipeline without state: orders by product. ``bench.py`` runs it beside the same topology of the JVM library."""

from __future__ import annotations

from streamplan.model.pipeline import Pipeline, TestData
from streamplan.model.topology import Topology
from streamplan.serdes.json import Json

APPLICATION_ID = "rekeyed-orders"
OUTPUT = "orders-by-product"

_topology = Topology(APPLICATION_ID)
_topology.stream("orders", value=Json("Id string, ProductType int")).select_key("ProductType").to(OUTPUT)

PIPELINE = Pipeline(
    name="rekeyed",
    topology=_topology,
    description="Orders by product.",
    topic_partitions={"orders": 2, OUTPUT: 2},
    test_data=TestData(
        ("orders",), lambda n: ("orders", b"order_%d" % n, b'{"Id": "order_%d", "ProductType": %d}' % (n, n % 2)), "Id"
    ),
)
