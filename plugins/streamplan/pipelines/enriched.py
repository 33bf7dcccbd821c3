"""A stream looked up in a table: co-partitioned topics, so that no look-up leaves its stream task."""

from __future__ import annotations

from streamplan import Json, Pipeline, TestData, Topology

CUSTOMERS = 100

topology = Topology("purchase-enricher")
customers = topology.table("customers", value=Json("name string, city string"), key="customer")
(
    topology.stream("purchases", value=Json("id string, amount bigint"), key="customer")
    .join(customers, {"id": "id", "amount": "amount", "name": "table.name", "city": "table.city"})
    .to("enriched-purchases")
)


def record(n: int) -> tuple[str, bytes, bytes]:
    """First each customer, then purchases of customers in turn."""
    customer = b"customer_%d" % (n % CUSTOMERS)
    if n < CUSTOMERS:
        city = (b"Lyon", b"Turin", b"Gent")[n % 3]
        return "customers", customer, b'{"n": "customer_%d", "name": "Name %d", "city": "%b"}' % (n, n, city)
    return "purchases", customer, b'{"n": %d, "id": "purchase_%d", "amount": %d}' % (n, n, n % 97)


PIPELINE = Pipeline(
    name="enriched",
    topology=topology,
    description="Joins purchases with the table of customers.",
    topic_partitions={"customers": 2, "purchases": 2},
    test_data=TestData(("customers", "purchases"), record=record, number="n"),
)
