"""Writes test data for each declared pipeline, every record exactly once."""

from __future__ import annotations

from streamplan.airflow.dags import producer_dag
from streamplan.registry import registered_pipelines

for pipeline in registered_pipelines():
    globals()[f"{pipeline.name}_producer"] = producer_dag(pipeline)
