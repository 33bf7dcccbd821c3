"""Where the brokers are and how clients connect to them, as one value.

Each admin client, consumer, producer and Spark source takes its configuration from :class:`Brokers`. The clients'
library is imported when the first client is opened: DAG files and commands that ask Kafka nothing do without it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamplan.errors import Refused

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient

ANSWER_SECONDS = 10.0
"""Deadline of one answer. It is long enough for the election of a partition leader or a group coordinator."""

PROPERTIES_VARIABLE = "STREAMPLAN_KAFKA_PROPERTIES"
"""Environment variable with the client properties: a JSON object, or the path of a properties file."""

_SERVERS = "bootstrap.servers"

GROUP_PROTOCOL = "group.protocol"
"""``classic`` or ``consumer`` (KIP-848). Only clients that join a group take it, see ``membership.py``."""

_CONNECTION_PREFIXES = ("security.", "sasl.", "ssl.", "enable.ssl.", "enable.sasl.", GROUP_PROTOCOL)
"""Client properties that say how to connect. An Airflow connection may hold others, for its own operators."""

_JVM_NAMES = {
    "security.protocol": "security.protocol",
    "ssl.endpoint.identification.algorithm": "ssl.endpoint.identification.algorithm",
}
"""Name of a client property in librdkafka and in Kafka's JVM client, which Spark uses.

The translation of SASL and TLS belongs here: see the configuration pages of librdkafka and of Kafka.
"""


@dataclass(frozen=True)
class Brokers:
    """The brokers of one Kafka cluster and the client properties to connect with.

    ``str()`` and ``repr()`` show the addresses alone, because properties may hold passwords. The value can be pickled:
    Spark's tasks and the processes of a parallel read receive it.

    Attributes:
        servers: Addresses as in ``bootstrap.servers``: ``host:port,host:port``.
        properties: Further client properties by their names in librdkafka.
    """

    servers: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    def __str__(self) -> str:
        return self.servers

    @classmethod
    def from_connection(cls, extra: Mapping[str, object], *, name: str = "kafka_default") -> Brokers:
        """Take the brokers from the extra of an Airflow connection, of which only the way to connect is used.

        Args:
            extra: The connection's extra, with librdkafka's names as Airflow's Kafka provider expects them.
            name: Id of the connection, for the error.

        Raises:
            Refused: The extra has no ``bootstrap.servers``.
        """
        if not extra.get(_SERVERS):
            raise Refused(
                f"connection {name}",
                expected='extra {"bootstrap.servers": "host:port,host:port"}',
                observed="none",
                remedy="Edit it under Admin, Connections.",
            )
        properties = {key: value for key, value in extra.items() if key.startswith(_CONNECTION_PREFIXES)}
        return cls(str(extra[_SERVERS]), _as_text(properties))

    @classmethod
    def from_properties(cls, path: Path, *, servers: str = "") -> Brokers:
        """Take the brokers from a properties file with lines of the form ``name=value``.

        Args:
            path: The file. Its names are librdkafka's.
            servers: Addresses that replace the ``bootstrap.servers`` of the file.

        Raises:
            Refused: The file cannot be read, or no addresses are given.
        """
        try:
            lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
        except OSError as error:
            raise Refused(
                f"client properties {path}", expected="a file that can be read", observed=error.strerror or str(error)
            ) from error
        pairs = [line.partition("=") for line in lines if line and not line.startswith(("#", "!"))]
        return cls._from({name.strip(): value.strip() for name, _, value in pairs}, servers, str(path))

    @classmethod
    def from_environment(cls, servers: str = "", environment: Mapping[str, str] | None = None) -> Brokers:
        """Take the client properties from the environment variable :data:`PROPERTIES_VARIABLE`, if it is set.

        Args:
            servers: Addresses that replace the ``bootstrap.servers`` of the properties.
            environment: Environment variables; by default those of this process.

        Raises:
            Refused: The variable cannot be read, or no addresses are given.
        """
        text = (os.environ if environment is None else environment).get(PROPERTIES_VARIABLE, "").strip()
        if text and not text.startswith("{"):
            return cls.from_properties(Path(text), servers=servers)
        try:
            properties = json.loads(text or "{}")
        except ValueError:  # its message would show a part of the text
            raise Refused(
                PROPERTIES_VARIABLE, expected="a JSON object or the path of a file", observed="other text"
            ) from None
        return cls._from(_as_text(properties), servers, PROPERTIES_VARIABLE)

    @classmethod
    def _from(cls, properties: Mapping[str, str], servers: str, subject: str) -> Brokers:
        addresses = servers or properties.get(_SERVERS, "")
        if not addresses:
            raise Refused(subject, expected=f"{_SERVERS}=host:port,host:port", observed="none")
        return cls(addresses, {name: value for name, value in properties.items() if name != _SERVERS})

    @property
    def addresses(self) -> list[str]:
        """The single addresses, each ``host:port``."""
        return [address.strip() for address in self.servers.split(",")]

    def environment(self) -> dict[str, str]:
        """Return what a child process needs in its environment for :meth:`from_environment`."""
        return {PROPERTIES_VARIABLE: json.dumps(dict(self.properties))}

    def client_configs(self, **configs: Any) -> dict[str, Any]:
        """Return the configuration of a librdkafka client.

        Args:
            configs: Further properties, with underscores for dots: ``group_id="x"`` is ``group.id``.
        """
        return {
            _SERVERS: self.servers,
            "client.id": "streamplan",
            # librdkafka writes to stderr by itself. What people need to know, they learn from our errors.
            "log_level": 2,
            "socket.timeout.ms": int(ANSWER_SECONDS * 1000),
            "reconnect.backoff.max.ms": 1000,
            **self._connection,
            **{name.replace("_", "."): value for name, value in configs.items()},
        }

    def admin(self) -> AdminClient:
        """Open an admin client."""
        from confluent_kafka.admin import AdminClient

        return AdminClient(self.client_configs())

    def consumer(self, group_id: str, **configs: Any) -> Consumer:
        """Open a consumer that commits only what it is told to. It joins the group only when it subscribes."""
        from confluent_kafka import Consumer

        return Consumer(self.client_configs(group_id=group_id, enable_auto_commit=False, **configs))

    def producer(self, **configs: Any) -> Producer:
        """Open a producer."""
        from confluent_kafka import Producer

        return Producer(self.client_configs(**configs))

    def spark_options(self) -> dict[str, str]:
        """Return the options of Spark's Kafka source: the properties of Kafka's JVM client with the prefix ``kafka.``.

        Raises:
            Refused: A property has no known name in the JVM client.
        """
        if unknown := sorted(self._connection.keys() - _JVM_NAMES.keys()):
            raise Refused(
                f"client properties {', '.join(unknown)}",
                expected=f"only properties that Spark's Kafka source can take: {', '.join(_JVM_NAMES)}",
                remedy="Spark's jobs cannot connect with these properties yet.",
            )
        return {
            f"kafka.{_SERVERS}": self.servers,
            **{f"kafka.{_JVM_NAMES[name]}": value for name, value in self._connection.items()},
        }

    @property
    def group_protocol(self) -> str:
        """How members join a group: ``classic``, unless the properties say ``consumer``."""
        return self.properties.get(GROUP_PROTOCOL, "classic")

    @property
    def _connection(self) -> dict[str, str]:
        """The properties that every client takes."""
        return {name: value for name, value in self.properties.items() if name != GROUP_PROTOCOL}


def _as_text(properties: Mapping[str, object]) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in properties.items()
        if value is not None
    }
