"""Writes test data for each declared pipeline, every record exactly once."""

from __future__ import annotations

from streamplan.airflow.dags import producer_dag
from streamplan.pipelines import PIPELINES

for pipeline in PIPELINES:
    globals()[f"{pipeline.name}_producer"] = producer_dag(pipeline)
