"""Raises what is wrong with registered pipelines, so that Airflow shows it as an import error.

Airflow hides every DAG of a file that raises. So this file has none, and ``pipelines.py`` has those of the other
pipelines.
"""

from __future__ import annotations

from streamplan.airflow import refuse_broken_pipelines

refuse_broken_pipelines()
