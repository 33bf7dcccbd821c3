"""Kafka Streams' execution model on PySpark, deployed and checked by Airflow."""

__version__ = "0.1.0"
