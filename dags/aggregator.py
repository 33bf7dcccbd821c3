"""Keeps the streaming aggregator of each declared pipeline alive."""

from __future__ import annotations

from streamplan.airflow.dags import aggregator_dag
from streamplan.registry import registered_pipelines

for pipeline in registered_pipelines():
    globals()[f"{pipeline.name}_aggregator"] = aggregator_dag(pipeline)
