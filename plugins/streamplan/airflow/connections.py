"""What the tasks read of Airflow's connections. No host stands in the code."""

from __future__ import annotations

from airflow.sdk import BaseHook, Connection
from airflow.sdk.exceptions import AirflowNotFoundException

from streamplan.errors import Refused

KAFKA_CONNECTION = "kafka_default"
SPARK_CONNECTION = "spark_default"


def connection(name: str) -> Connection:
    """The connection, or :class:`Refused`: trying again does not define it."""
    try:
        return BaseHook.get_connection(name)
    except AirflowNotFoundException as error:
        raise Refused(
            f"connection {name}",
            expected="defined",
            observed="none",
            remedy=f"Add it under Admin, Connections, or as AIRFLOW_CONN_{name.upper()}.",
        ) from error


def bootstrap_servers() -> str:
    """``bootstrap.servers`` of the connection ``kafka_default``, or :class:`Refused`."""
    found = connection(KAFKA_CONNECTION).extra_dejson.get("bootstrap.servers")
    if not found:
        raise Refused(
            f"connection {KAFKA_CONNECTION}",
            expected='extra {"bootstrap.servers": "host:port,host:port"}',
            observed="none",
            remedy="Edit it under Admin, Connections.",
        )
    return str(found)
