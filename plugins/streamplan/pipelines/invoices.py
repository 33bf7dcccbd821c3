"""Values in Avro, with a Schema Registry: the revenue of each country, and each invoice without its tax."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from streamplan import Avro, Pipeline, TestData, Topology

topology = Topology("invoice-revenue")
invoices = topology.stream("invoices", value=Avro("schemas/invoice.avsc"), key="customer").filter("total > 0")
invoices.group_by("customer.country", name="by-country").aggregate(
    {"invoices": "count(*)", "revenue": "sum(total)"}, store="revenue-per-country"
)
invoices.map_values(
    {
        "number": "number",
        "issued": "issued",
        "country": "customer.country",
        "net": "cast(total - tax as decimal(12,2))",
    }
).to("net-invoices", value=Avro("schemas/net_invoice.avsc"))

COUNTRIES = ("DE", "FR", "IT", "PL", "SE", "US", "BR", "JP")


def invoice(n: int) -> tuple[str, bytes, dict[str, Any]]:
    """Invoice ``n``, of one of a hundred customers. Some are credit notes. The serde of the topic writes the fields."""
    net = n % 97 + 1 if n % 50 else -5
    value = {
        "number": f"invoice_{n}",
        "issued": datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=n % 500_000),
        "customer": {"name": f"Customer {n % 100}", "country": COUNTRIES[n % 100 % len(COUNTRIES)]},
        "total": Decimal(119 * net).scaleb(-2),
        "tax": Decimal(19 * net).scaleb(-2),
        "coupon": "SPRING" if n % 3 == 0 else None,
    }
    return "invoices", b"customer_%d" % (n % 100), value


PIPELINE = Pipeline(
    name="invoices",
    topology=topology,
    description="Sums invoices by country, and passes them on without their tax, with values in Avro.",
    topic_partitions={"invoices": 2, "net-invoices": 2},
    test_data=TestData(("invoices",), record=invoice, number="number"),
)
