"""Airflow: the DAGs of each declared pipeline, their tasks, and the pages of the Data Docs."""
