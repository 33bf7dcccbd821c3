"""Deploys each declared pipeline: topics, producer and aggregator, verification."""

from __future__ import annotations

from streamplan.airflow.dags import deploy_dag
from streamplan.registry import registered_pipelines

for pipeline in registered_pipelines():
    globals()[f"{pipeline.name}_deploy"] = deploy_dag(pipeline)
