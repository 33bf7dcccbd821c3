"""Airflow's connections, as the tasks read them. They are the only place where hosts stand."""

from __future__ import annotations

import asyncio

from airflow.sdk import BaseHook, Connection
from airflow.sdk.configuration import conf, get_custom_secret_backend
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from streamplan.errors import Refused, StreamplanError
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.connection_properties import SERVERS, TOKEN_CALLBACK
from streamplan.kafka.given_properties import parse_json
from streamplan.registry import pipeline_named


def connection(name: str) -> Connection:
    """Return the connection of this name.

    Raises:
        Refused: There is no such connection. A retry would not define it.
        StreamplanError: It may be where a secrets backend could not look.
    """
    try:
        return BaseHook.get_connection(name)
    except AirflowNotFoundException as error:
        raise _not_found(name) from error


def _not_found(name: str) -> StreamplanError:
    failure = backend_failure(name)
    if failure:
        return StreamplanError(
            f"connection {name}",
            expected="a connection with this id",
            observed=failure,
            remedy="Correct what the secrets backend reports. Airflow itself only says that the connection is missing.",
        )
    return Refused(
        f"connection {name}",
        expected="a connection with this id",
        observed="none",
        remedy=f"Add it under Admin, Connections, or as AIRFLOW_CONN_{name.upper()}.",
    )


def backend_failure(name: str) -> str:
    """Return why the secrets backend of Airflow's configuration cannot look for a connection; empty where it can.

    Airflow logs this at the level DEBUG, goes on with its own places, and then says that there is no connection.
    """
    backend = None
    try:
        backend = get_custom_secret_backend(worker_mode=True)
        if backend is not None:
            backend.get_connection(conn_id=name)
    except Exception as error:  # noqa: BLE001  a secrets backend raises what it likes, and this tells it
        return f"{type(backend).__name__ if backend is not None else 'secrets backend'}: {error}"
    return ""


def brokers(pipeline: str) -> Brokers:
    """Return the brokers of a pipeline: those of its connection ``kafka_conn_id``.

    Args:
        pipeline: The name of the pipeline.

    Raises:
        Refused: There is no such pipeline or connection, the connection's extra names no ``bootstrap.servers``, or it
            cannot be followed.
        StreamplanError: See :func:`connection`.
    """
    name = pipeline_named(pipeline).kafka_conn_id
    return brokers_in(name, connection(name))


async def brokers_in_trigger(kafka_conn_id: str) -> Brokers:
    """Return the brokers of a connection in a trigger, whose event loop must not wait for Airflow.

    Raises:
        StreamplanError: See :func:`connection` and :func:`brokers_in`.
    """
    try:
        found = await BaseHook.aget_connection(kafka_conn_id)
    except AirflowNotFoundException as error:
        raise await asyncio.to_thread(_not_found, kafka_conn_id) from error
    return brokers_in(kafka_conn_id, found)


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
