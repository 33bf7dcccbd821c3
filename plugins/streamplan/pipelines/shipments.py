"""A join of tables by a foreign key: each shipment with the carrier that it names, kept up to date from either side."""

from __future__ import annotations

from streamplan import Json, Pipeline, TestData, Topology

SHIPMENTS = 200
CARRIERS = 12

topology = Topology("shipment-tracker")
carriers = topology.table("carriers", value=Json("name string, phone string"), key="carrier", store="carriers")
(
    topology.table("shipments", value=Json("carrier string, weight double"), key="shipment", store="shipments")
    .left_join(
        carriers,
        {"carrier": "carrier", "weight": "weight", "name": "table.name", "phone": "table.phone"},
        foreign_key="carrier",
        store="tracked",
        name="tracking",
    )
    .to_stream()
    .to("tracked-shipments")
)


def record(n: int) -> tuple[str, bytes, bytes]:
    """Four shipments, and then a change of a carrier. A shipment goes to another carrier from time to time."""
    if n % 5 == 4:
        carrier = b"carrier_%d" % (n // 5 % CARRIERS)
        return "carriers", carrier, b'{"n": %d, "name": "Carrier %d", "phone": "0%d"}' % (n, n % 17, 100 + n % 23)
    shipment = b"shipment_%d" % (n * 7 % SHIPMENTS)
    carrier = b"carrier_%d" % (n * 11 % (CARRIERS + 1))
    return "shipments", shipment, b'{"n": %d, "carrier": "%b", "weight": %d.5}' % (n, carrier, n % 40)


PIPELINE = Pipeline(
    name="shipments",
    topology=topology,
    description="Joins the table of shipments with the table of the carriers that they name.",
    topic_partitions={"shipments": 2, "carriers": 3},
    test_data=TestData(("shipments", "carriers"), record=record, number="n"),
)
