"""Airflow's connections, as the tasks read them. They are the only place where hosts stand."""

from __future__ import annotations

from airflow.sdk import BaseHook, Connection
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowNotFoundException

from streamplan.errors import Refused
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.client_properties import TOKEN_CALLBACK
from streamplan.registry import pipeline_named


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
            expected="a connection with this id",
            observed="none",
            remedy=f"Add it under Admin, Connections, or as AIRFLOW_CONN_{name.upper()}.",
        ) from error


def brokers(pipeline: str) -> Brokers:
    """Return the brokers of a pipeline: those of its connection ``kafka_conn_id``.

    Args:
        pipeline: The name of the pipeline.

    Raises:
        Refused: There is no such pipeline or connection, the connection's extra names no ``bootstrap.servers``, or it
            cannot be followed.
    """
    name = pipeline_named(pipeline).kafka_conn_id
    return brokers_in(name, connection(name))


async def brokers_in_trigger(kafka_conn_id: str) -> Brokers:
    """Return the brokers of a connection in a trigger, whose event loop must not wait for Airflow."""
    return brokers_in(kafka_conn_id, await BaseHook.aget_connection(kafka_conn_id))


def brokers_in(name: str, kafka: Connection) -> Brokers:
    """Take the brokers from the connection, with the token callback only where Airflow's configuration permits it.

    The rule is that of Airflow's Kafka provider: whoever may edit a connection must not choose what code runs.

    Args:
        name: The id of the connection.
        kafka: The connection.

    Raises:
        Refused: Its extra names no ``bootstrap.servers``, or it cannot be followed.
    """
    found = Brokers.from_connection(kafka.extra_dejson, name=name)
    callback = found.properties.get(TOKEN_CALLBACK)
    permitted = [path.strip() for path in conf.get("apache_kafka", "callback_allowlist", fallback="").split(",")]
    if callback is not None and callback not in permitted:
        raise Refused(
            f"{TOKEN_CALLBACK} of connection {name}",
            expected="a function in Airflow's configuration, section apache_kafka, option callback_allowlist",
            observed=callback,
            remedy="Set AIRFLOW__APACHE_KAFKA__CALLBACK_ALLOWLIST to the dotted paths of the functions that you trust.",
        )
    return found
