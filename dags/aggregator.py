"""Keeps the streaming aggregator of each declared pipeline alive."""

from __future__ import annotations

from streamplan.airflow.dags import aggregator_dag
from streamplan.pipelines import PIPELINES

for pipeline in PIPELINES:
    globals()[f"{pipeline.name}_aggregator"] = aggregator_dag(pipeline)
