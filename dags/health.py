"""Checks each declared pipeline on a schedule."""

from __future__ import annotations

from streamplan.adapters.airflow.factory import health_dag
from streamplan.pipelines import PIPELINES

for pipeline in PIPELINES:
    globals()[f"{pipeline.name}_health"] = health_dag(pipeline)
