"""Where the brokers are and how clients connect to them, as one value.

Each admin client, consumer, producer and Spark source takes its configuration from :class:`Brokers`. The clients'
library is imported when the first client is opened: DAG files and commands that ask Kafka nothing do without it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from streamplan.errors import Refused
from streamplan.files import write_atomically
from streamplan.kafka.client_properties import jvm_properties, librdkafka_properties, properties_of_client
from streamplan.kafka.connection_properties import (
    GROUP_PROTOCOL,
    SERVERS,
    TOKEN_CALLBACK,
    connection_properties,
    registry_properties,
)
from streamplan.kafka.given_properties import GivenProperties, parse_json, read_properties
from streamplan.kafka.mechanisms import CALLBACKS_VARIABLE
from streamplan.settings import Settings

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient

Client = TypeVar("Client")

ANSWER_SECONDS = 10.0
"""Deadline of one answer. It is long enough for the election of a partition leader or a group coordinator."""

PROPERTIES_VARIABLE = "STREAMPLAN_KAFKA_PROPERTIES"
"""Environment variable with the client properties: a JSON object, or the path of a properties file."""

HANDED_OVER_VARIABLE = "STREAMPLAN_KAFKA_HANDED_OVER"
"""Environment variable with the path of a private file with client properties. Whoever reads the file removes it."""


@dataclass(frozen=True)
class Brokers:
    """The brokers of one Kafka cluster and the client properties to connect with.

    ``str()`` and ``repr()`` show the addresses alone, because properties may hold passwords. The value can be pickled:
    Spark's tasks and the processes of a parallel read receive it.

    Attributes:
        servers: Addresses as in ``bootstrap.servers``: ``host:port,host:port``.
        properties: How to connect, by librdkafka's names. Beside them may stand what only Kafka's JVM client takes
            (:mod:`streamplan.kafka.client_properties`).
        registry: How to reach the Schema Registry of the cluster's values
            (:func:`streamplan.kafka.client_properties.registry_properties`); empty where there is none.
    """

    servers: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    registry: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    def __str__(self) -> str:
        return self.servers

    @classmethod
    def from_connection(
        cls,
        extra: Mapping[str, object] | str | None,
        *,
        name: str = "kafka_default",
        token_callbacks: Iterable[str] = (),
    ) -> Brokers:
        """Take the brokers from the extra of an Airflow connection, of which only the way to connect is used.

        Args:
            extra: The connection's extra, with librdkafka's names as Airflow's Kafka provider expects them: an object,
                or its text in JSON.
            name: Id of the connection, for the error.
            token_callbacks: Functions that may make tokens, besides those of the settings.

        Raises:
            Refused: The extra is not a JSON object, lacks ``bootstrap.servers`` or cannot be followed. A token callback
                is not permitted.
        """
        source = f"connection {name}"
        given = GivenProperties(extra, source) if isinstance(extra, Mapping) else parse_json(extra or "{}", source)
        return cls._from(given, "", token_callbacks, remedy="Edit its extra under Admin, Connections.")

    @classmethod
    def from_properties(cls, path: Path, *, servers: str = "") -> Brokers:
        """Take the brokers from a file as Kafka's own tools take it with ``--command-config``.

        Args:
            path: The file, in the syntax of Java's properties, or a JSON object. Its names are those of the JVM client
                or librdkafka's.
            servers: Addresses that replace the ``bootstrap.servers`` of the file.

        Raises:
            Refused: The file cannot be read, no addresses are given, librdkafka has no such property, or a token
                callback is not permitted.
        """
        return cls._from(read_properties(path), servers)

    @classmethod
    def from_environment(cls, servers: str = "", environment: Mapping[str, str] | None = None) -> Brokers:
        """Take the client properties that were handed over, else those of :data:`PROPERTIES_VARIABLE`, if it is set.

        Args:
            servers: Addresses that replace the ``bootstrap.servers`` of the properties.
            environment: Environment variables; by default those of this process.

        Raises:
            Refused: The variable cannot be read, no addresses are given, librdkafka has no such property, or a token
                callback is not permitted.
        """
        variables = os.environ if environment is None else environment
        if handed_over := variables.get(HANDED_OVER_VARIABLE):
            file = Path(handed_over)
            given = read_properties(file)
            # Who handed it over has judged the token callback, by settings that this process may not have.
            brokers = cls._from(given, servers, [str(given.values.get(TOKEN_CALLBACK))])
            file.unlink(missing_ok=True)
            return brokers
        text = variables.get(PROPERTIES_VARIABLE, "").strip("\ufeff \t\r\n")
        if text and not text.startswith(("{", '"', "[")):
            return cls.from_properties(Path(text), servers=servers)
        return cls._from(parse_json(text or "{}", PROPERTIES_VARIABLE), servers)

    @classmethod
    def _from(
        cls, given: GivenProperties, servers: str, token_callbacks: Iterable[str] = (), remedy: str = ""
    ) -> Brokers:
        callback = given.values.get(TOKEN_CALLBACK)
        if callback:
            with given.placed():
                _require_permitted(str(callback), token_callbacks)
        properties = connection_properties(given)
        addresses = properties.pop(SERVERS, "")
        if servers:  # judged as those of the properties are
            option = GivenProperties({SERVERS: servers}, "--bootstrap-servers")
            addresses = connection_properties(option).get(SERVERS, "")
        if not addresses:
            raise Refused(given.source, expected=f"{SERVERS}, as host:port,host:port", observed="none", remedy=remedy)
        with given.placed():
            connection = librdkafka_properties(properties)
        return cls(addresses, connection, registry_properties(given))

    @property
    def addresses(self) -> list[str]:
        """The single addresses, each ``host:port``."""
        return [address.strip() for address in self.servers.split(",")]

    @property
    def principal(self) -> str:
        """The principal that the brokers' authorizer sees, as far as the properties tell (``KafkaPrincipal``)."""
        if name := self.properties.get("sasl.username") or self.properties.get("sasl.oauthbearer.client.id"):
            return f"User:{name}"
        if self.properties.get("security.protocol", "").upper() == "SSL":
            return "the principal of this client's certificate"
        if self.properties.get("security.protocol", "").upper() == "SASL_SSL" or self.properties.get("sasl.mechanism"):
            return "the principal of this client's token"
        return "User:ANONYMOUS"

    def hand_over(self, file: Path) -> dict[str, str]:
        """Write the client properties to a file that its owner alone can read, for a process that is about to start.

        An environment and a command line can be listed while the process runs. The file is gone once it was read.

        Args:
            file: The file, which :meth:`from_environment` removes.

        Returns:
            What the process needs in its environment for :meth:`from_environment`.
        """
        write_atomically(file, self.property_text, mode=0o600)
        return {HANDED_OVER_VARIABLE: str(file)}

    @property
    def property_text(self) -> str:
        """The client properties as a JSON object, as :meth:`from_properties` reads them. They may hold passwords."""
        return json.dumps({**self.properties, **self.registry})

    def client_configs(self, **configs: Any) -> dict[str, Any]:
        """Return the configuration of a librdkafka client.

        Args:
            configs: Further properties, with underscores for dots: ``group_id="x"`` is ``group.id``.
        """
        return {
            SERVERS: self.servers,
            "client.id": "streamplan",
            # librdkafka writes to stderr by itself. What people need to know, they learn from our errors.
            "log_level": 2,
            "socket.timeout.ms": int(ANSWER_SECONDS * 1000),
            "reconnect.backoff.max.ms": 1000,
            **self._connection(),
            **{name.replace("_", "."): value for name, value in configs.items()},
        }

    def _connection(self) -> dict[str, Any]:
        """The properties that every librdkafka client takes."""
        properties: dict[str, Any] = properties_of_client(self.properties)
        if TOKEN_CALLBACK in properties:
            properties[TOKEN_CALLBACK] = _callable_at(properties[TOKEN_CALLBACK])
        return properties

    def admin(self) -> AdminClient:
        """Open an admin client.

        Raises:
            Refused: librdkafka does not take the client properties.
        """
        from confluent_kafka.admin import AdminClient

        return self._open(AdminClient, self.client_configs())

    def consumer(self, group_id: str, **configs: Any) -> Consumer:
        """Open a consumer that commits only what it is told to. It joins the group only when it subscribes.

        Raises:
            Refused: librdkafka does not take the client properties.
        """
        from confluent_kafka import Consumer

        return self._open(Consumer, self.client_configs(group_id=group_id, enable_auto_commit=False, **configs))

    def producer(self, **configs: Any) -> Producer:
        """Open a producer.

        Raises:
            Refused: librdkafka does not take the client properties.
        """
        from confluent_kafka import Producer

        return self._open(Producer, self.client_configs(**configs))

    def _open(self, client: Callable[[dict[str, Any]], Client], configs: dict[str, Any]) -> Client:
        from confluent_kafka import KafkaException

        try:
            return client(configs)
        except KafkaException as error:
            raise Refused(
                f"client properties of Kafka at {self}",
                expected="properties that librdkafka takes",
                observed=error.args[0].str(),
                remedy="Correct the connection or the properties file. docs/security.md has examples.",
            ) from error

    def spark_options(self) -> dict[str, str]:
        """Return the options of Spark's Kafka source: the properties of Kafka's JVM client with the prefix ``kafka.``.

        Raises:
            Refused: The JVM client has nothing like a property.
        """
        options = {SERVERS: self.servers, **jvm_properties(self.properties)}
        return {f"kafka.{name}": value for name, value in options.items()}

    @property
    def group_protocol(self) -> str:
        """How members join a group: ``classic``, unless the properties say ``consumer``."""
        return self.properties.get(GROUP_PROTOCOL, "classic")


def _require_permitted(callback: str, permitted: Iterable[str]) -> None:
    """Refuse a token callback that the deployment does not permit, before anything is imported.

    Whoever may edit a connection or a properties file must not choose what code runs.

    Raises:
        Refused: It is not permitted.
    """
    if callback not in {*permitted, *Settings.from_environment().token_callbacks}:
        raise Refused(
            TOKEN_CALLBACK,
            expected=f"a function that {CALLBACKS_VARIABLE} permits",
            observed=callback if callback.isprintable() and len(callback) < 200 else "another text",
            remedy=f"If you trust it, add it to {CALLBACKS_VARIABLE} in the environment of this process: dotted "
            "paths with commas between them.",
        )


def _callable_at(path: str) -> Callable[..., object]:
    """Import a function by its dotted path.

    Raises:
        Refused: There is no such function.
    """
    module, _, name = path.rpartition(".")
    try:
        function = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise Refused(
            f"client property {TOKEN_CALLBACK}",
            expected="the dotted path of a Python function that returns a token",
            observed=f"{path}: {error}",
            remedy="Its module must be importable wherever a client of Kafka runs: in Airflow, in Spark's driver and "
            "on its executors.",
        ) from error
    if not callable(function):
        raise Refused(f"client property {TOKEN_CALLBACK}", expected="a function", observed=path)
    found: Callable[..., object] = function
    return found
