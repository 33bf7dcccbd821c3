"""What the tasks read of Airflow's connections. No host stands in the code."""

from __future__ import annotations

from airflow.sdk import BaseHook

from streamplan.errors import Refused

KAFKA_CONNECTION = "kafka_default"
SPARK_CONNECTION = "spark_default"


def bootstrap_servers() -> str:
    """``bootstrap.servers`` of the connection ``kafka_default``, or :class:`Refused`."""
    found = BaseHook.get_connection(KAFKA_CONNECTION).extra_dejson.get("bootstrap.servers")
    if not found:
        raise Refused(
            f"connection {KAFKA_CONNECTION}",
            expected='extra {"bootstrap.servers": "host:port,host:port"}',
            observed="none",
            remedy="Edit it under Admin, Connections.",
        )
    return str(found)
