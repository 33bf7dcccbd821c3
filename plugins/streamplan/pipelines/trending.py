"""How often each product was viewed in the last five minutes, anew each minute."""

from __future__ import annotations

from streamplan import Json, Pipeline, TestData, TimeWindows, Topology

topology = Topology("trending-products")
(
    topology.stream("product-views", value=Json("id string, product string"))
    .group_by("product", name="by-product")
    .windowed_by(TimeWindows("5 minutes", advance="1 minute"))
    .count(store="views-in-five-minutes")
)


def view(n: int) -> tuple[str, bytes, bytes]:
    """View ``n``; of ten views four are of the first product, three of the second, two and one of the others."""
    product = (b"boots", b"boots", b"boots", b"boots", b"coat", b"coat", b"coat", b"hat", b"hat", b"scarf")[n % 10]
    return "product-views", b"visitor_%d" % (n % 777), b'{"id": "view_%d", "product": "%b"}' % (n, product)


PIPELINE = Pipeline(
    name="trending",
    topology=topology,
    description="Counts the views of each product in windows of five minutes that begin every minute.",
    topic_partitions={"product-views": 2},
    test_data=TestData(("product-views",), record=view, number="id"),
)
