"""The example pipelines. A new one is a file beside this one and a line in ``PIPELINES``."""

from __future__ import annotations

from importlib.util import find_spec

from streamplan.model.pipeline import Pipeline
from streamplan.pipelines import (
    activity,
    alerts,
    enriched,
    fraud,
    invoices,
    latest,
    orders,
    pageviews,
    payments,
    profiles,
    sales,
    scores,
    shipments,
    skewed,
    trending,
    unpaid_orders,
    users,
    visits,
    wide,
    words,
)

PIPELINES: tuple[Pipeline, ...] = (
    orders.PIPELINE,
    users.PIPELINE,
    latest.PIPELINE,
    enriched.PIPELINE,
    wide.PIPELINE,
    skewed.PIPELINE,
    pageviews.PIPELINE,
    trending.PIPELINE,
    words.PIPELINE,
    payments.PIPELINE,
    visits.PIPELINE,
    unpaid_orders.PIPELINE,
    alerts.PIPELINE,
    fraud.PIPELINE,
    profiles.PIPELINE,
    shipments.PIPELINE,
    scores.PIPELINE,
    activity.PIPELINE,
    sales.PIPELINE,
    invoices.PIPELINE,
)

if find_spec("grpc_tools") is not None:  # Without the extra `protobuf` this one cannot be declared.
    from streamplan.pipelines import parcels

    PIPELINES = (*PIPELINES, parcels.PIPELINE)
