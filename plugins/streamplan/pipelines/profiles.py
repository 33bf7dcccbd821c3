"""A join of two tables: each customer with the address, kept up to date from either side."""

from __future__ import annotations

from streamplan import Json, Pipeline, TestData, Topology

CUSTOMERS = 100

topology = Topology("profile-builder")
addresses = topology.table("addresses", value=Json("street string, city string"), key="customer", store="addresses")
(
    topology.table("accounts", value=Json("name string, plan string"), key="customer", store="accounts")
    .join(addresses, {"name": "name", "plan": "plan", "city": "table.city"}, store="profiles")
    .to_stream()
    .to("profile-updates")
)


def record(n: int) -> tuple[str, bytes, bytes]:
    """Accounts and addresses in turn, of customers in turn."""
    customer = b"customer_%d" % (n // 2 % CUSTOMERS)
    if n % 2 == 0:
        plan = (b"basic", b"plus")[n // 2 % 3 == 0]
        return "accounts", customer, b'{"n": %d, "name": "Name %d", "plan": "%b"}' % (n, n % 97, plan)
    city = (b"Lyon", b"Turin", b"Gent")[n % 3]
    return "addresses", customer, b'{"n": %d, "street": "Street %d", "city": "%b"}' % (n, n % 31, city)


PIPELINE = Pipeline(
    name="profiles",
    topology=topology,
    description="Joins the table of accounts with the table of addresses.",
    topic_partitions={"accounts": 2, "addresses": 2},
    test_data=TestData(("accounts", "addresses"), record=record, number="n"),
)
