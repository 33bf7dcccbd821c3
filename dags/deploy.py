"""Deploys each declared pipeline: topics, producer and aggregator, verification."""

from __future__ import annotations

from streamplan.airflow.dags import deploy_dag
from streamplan.pipelines import PIPELINES

for pipeline in PIPELINES:
    globals()[f"{pipeline.name}_deploy"] = deploy_dag(pipeline)
