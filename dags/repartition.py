"""Moves each declared pipeline to more partitions, once its declaration says so and a person has approved."""

from __future__ import annotations

from streamplan.airflow.dags import repartition_dag
from streamplan.registry import registered_pipelines

for pipeline in registered_pipelines():
    globals()[f"{pipeline.name}_repartition"] = repartition_dag(pipeline)
