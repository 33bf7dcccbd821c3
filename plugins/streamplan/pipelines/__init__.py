"""The declared pipelines. A new one is a file beside this one and a line in ``PIPELINES``."""

from __future__ import annotations

from streamplan.errors import Refused
from streamplan.model.pipeline import Pipeline
from streamplan.pipelines import enriched, latest, orders, pageviews, skewed, users, wide

PIPELINES: tuple[Pipeline, ...] = (
    orders.PIPELINE,
    users.PIPELINE,
    latest.PIPELINE,
    enriched.PIPELINE,
    wide.PIPELINE,
    skewed.PIPELINE,
    pageviews.PIPELINE,
)


def pipeline_named(name: str) -> Pipeline:
    """The declared pipeline of that name, or :class:`Refused` listing those there are."""
    for pipeline in PIPELINES:
        if pipeline.name == name:
            return pipeline
    raise Refused(
        f"pipeline {name!r}",
        expected=" or ".join(pipeline.name for pipeline in PIPELINES),
        remedy="Declare it in plugins/streamplan/pipelines and add its line to PIPELINES.",
    )
