"""Two streams in one aggregate: what each customer has looked at, and what each has bought."""

from __future__ import annotations

from streamplan import Json, Pipeline, TestData, Topology

CUSTOMERS = 100

topology = Topology("customer-activity")
checkouts = topology.stream("checkouts", value=Json("amount bigint"), key="customer").group_by_key()
(
    topology.stream("page-clicks", value=Json("customer string, page string"))
    .group_by("customer", name="clicks-by-customer")
    .cogroup({"clicks": "count(*)"})
    .cogroup(checkouts, {"orders": "count(*)", "spent": "sum(amount)"})
    .aggregate(store="activity")
    .to_stream()
    .to("activity-updates")
)


def record(n: int) -> tuple[str, bytes, bytes]:
    """Three clicks of customers in turn, and a checkout."""
    if n % 4 == 3:
        return "checkouts", b"customer_%d" % (n // 4 * 7 % CUSTOMERS), b'{"n": %d, "amount": %d}' % (n, n % 97)
    value = b'{"n": %d, "customer": "customer_%d", "page": "/page/%d"}' % (n, n % CUSTOMERS, n % 13)
    return "page-clicks", b"visit_%d" % (n // 9), value


PIPELINE = Pipeline(
    name="activity",
    topology=topology,
    description="Aggregates the clicks and the checkouts of each customer together.",
    topic_partitions={"page-clicks": 2, "checkouts": 2},
    test_data=TestData(("page-clicks", "checkouts"), record=record, number="n"),
)
