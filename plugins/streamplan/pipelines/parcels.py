"""Values in Protobuf and JSON Schema: scans of parcels are read in the one, and claims are written in the other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from streamplan import JsonSchema, Pipeline, Protobuf, TestData, Topology

topology = Topology("parcel-claims")
scans = topology.stream("parcel-scans", value=Protobuf("schemas/scan.proto", message="Scan"), key="parcel")
damaged = scans.filter("event = 'DAMAGED'")
damaged.group_by("depot", name="by-depot").count(store="damages-per-depot")
damaged.map_values(
    {
        "scan": "id",
        "depot": "depot",
        "at": "at",
        "pieces": "aggregate(items, 0, (pieces, item) -> pieces + item.quantity)",
    }
).to("damage-claims", value=JsonSchema("schemas/claim.schema.json"))

EVENTS = ("ARRIVED", "LEFT", "ARRIVED", "LEFT", "DAMAGED")


def scan(n: int) -> tuple[str, bytes, dict[str, Any]]:
    """Scan ``n``: each parcel has five, and is damaged in the last one. The serde of the topic writes the fields."""
    parcel = n // len(EVENTS)
    value = {
        "id": f"scan_{n}",
        "depot": f"depot_{n % 7}",
        "event": EVENTS[n % len(EVENTS)],
        "at": datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=n % 30_000_000),
        "items": [{"sku": f"sku_{item}", "quantity": item + 1} for item in range(1 + parcel % 3)],
    }
    return "parcel-scans", b"parcel_%d" % parcel, value


PIPELINE = Pipeline(
    name="parcels",
    topology=topology,
    description="Reads scans of parcels in Protobuf, counts the damaged ones, and writes claims with a JSON Schema.",
    topic_partitions={"parcel-scans": 2, "damage-claims": 2},
    test_data=TestData(("parcel-scans",), record=scan, number="id"),
)
