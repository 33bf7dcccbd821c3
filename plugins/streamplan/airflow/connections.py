"""Airflow's connections, as the tasks read them. They are the only place where hosts stand."""

from __future__ import annotations

from airflow.sdk import BaseHook, Connection
from airflow.sdk.exceptions import AirflowNotFoundException

from streamplan.errors import Refused
from streamplan.kafka.brokers import Brokers

KAFKA_CONNECTION = "kafka_default"
SPARK_CONNECTION = "spark_default"


def connection(name: str) -> Connection:
    """Return the connection of this name.

    Raises:
        Refused: There is no such connection. A retry would not define it.
    """
    try:
        return BaseHook.get_connection(name)
    except AirflowNotFoundException as error:
        raise Refused(
            f"connection {name}",
            expected="defined",
            observed="none",
            remedy=f"Add it under Admin, Connections, or as AIRFLOW_CONN_{name.upper()}.",
        ) from error


def brokers() -> Brokers:
    """Return the brokers of the connection ``kafka_default``.

    Raises:
        Refused: The connection does not exist or its extra names no ``bootstrap.servers``.
    """
    return Brokers.from_connection(connection(KAFKA_CONNECTION).extra_dejson, name=KAFKA_CONNECTION)


async def brokers_in_trigger() -> Brokers:
    """Return the same brokers in a trigger, whose event loop must not wait for Airflow."""
    return Brokers.from_connection((await BaseHook.aget_connection(KAFKA_CONNECTION)).extra_dejson)
