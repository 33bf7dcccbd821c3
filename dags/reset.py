"""Resets each declared pipeline to the start of its input, once a person has approved."""

from __future__ import annotations

from streamplan.airflow.dags import reset_dag
from streamplan.registry import registered_pipelines

for pipeline in registered_pipelines():
    globals()[f"{pipeline.name}_reset"] = reset_dag(pipeline)
