"""Moves each declared pipeline to more partitions, once its declaration says so and a person has approved."""

from __future__ import annotations

from streamplan.airflow.maintenance_dags import repartition_dag
from streamplan.pipelines import PIPELINES

for pipeline in PIPELINES:
    globals()[f"{pipeline.name}_repartition"] = repartition_dag(pipeline)
