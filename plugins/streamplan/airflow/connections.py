"""Airflow's connections, as the tasks read them. They are the only place where hosts stand."""

from __future__ import annotations

from airflow.sdk import BaseHook, Connection
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from streamplan.errors import Refused
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.connection_properties import SERVERS, TOKEN_CALLBACK
from streamplan.kafka.given_properties import parse_json
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
    """Take the brokers from the connection.

    Besides the functions of ``STREAMPLAN_TOKEN_CALLBACKS``, those may make tokens that Airflow's configuration permits
    Airflow's Kafka provider for the same property.

    Args:
        name: The id of the connection.
        kafka: The connection.

    Raises:
        Refused: Its extra names no ``bootstrap.servers``, or it cannot be followed. Or it says something outside of its
            extra, which no client would be given.
    """
    source = f"connection {name}"
    extra = dict(parse_json(kafka.extra or "{}", source).values)
    mask_secret(extra)  # type: ignore[arg-type]  # what JSON has
    if not extra.get(SERVERS) and kafka.host:
        raise Refused(
            source,
            expected=f'the extra {{"{SERVERS}": "host:port,host:port"}}',
            observed="the field Host, which Airflow's Kafka provider does not read either",
            remedy=f'Write the address into the extra: {{"{SERVERS}": "{kafka.host}:{kafka.port or 9092}"}}.',
        )
    if (kafka.login or kafka.password) and not extra.keys() & _LOGIN:
        raise Refused(
            source,
            expected="sasl.username and sasl.password in its extra",
            observed="the fields Login and Password, which Airflow's Kafka provider does not read either",
            remedy="Write them into the extra, and empty the two fields.",
        )
    permitted = conf.get("apache_kafka", "callback_allowlist", fallback="") or ""
    return Brokers.from_connection(extra, name=name, token_callbacks=map(str.strip, permitted.split(",")))


_LOGIN = {"sasl.username", "sasl.jaas.config", "sasl.oauthbearer.client.id", TOKEN_CALLBACK}
