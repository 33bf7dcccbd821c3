"""The example pipelines. A new one is a file beside this one and a line in ``PIPELINES``.

The modules are named, and not imported here, so that one that is broken hides none of the others.
"""

from __future__ import annotations

from importlib.util import find_spec

PIPELINES: tuple[str, ...] = (
    "streamplan.pipelines.orders",
    "streamplan.pipelines.users",
    "streamplan.pipelines.latest",
    "streamplan.pipelines.enriched",
    "streamplan.pipelines.wide",
    "streamplan.pipelines.skewed",
    "streamplan.pipelines.pageviews",
    "streamplan.pipelines.trending",
    "streamplan.pipelines.words",
    "streamplan.pipelines.payments",
    "streamplan.pipelines.visits",
    "streamplan.pipelines.unpaid_orders",
    "streamplan.pipelines.alerts",
    "streamplan.pipelines.fraud",
    "streamplan.pipelines.profiles",
    "streamplan.pipelines.shipments",
    "streamplan.pipelines.scores",
    "streamplan.pipelines.activity",
    "streamplan.pipelines.sales",
    "streamplan.pipelines.invoices",
)

if find_spec("grpc_tools") is not None:  # Without the extra `protobuf` this one cannot be declared.
    PIPELINES = (*PIPELINES, "streamplan.pipelines.parcels")
