"""Confluent's Schema Registry, or another one with the same REST interface, by confluent-kafka's client.

Its address and secrets stand among the properties of :class:`streamplan.kafka.brokers.Brokers`, with the names of
Confluent's serializers for Java. The client's library is imported when a schema is asked for.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit

from streamplan.errors import Refused, SchemaRegistryUnavailable
from streamplan.kafka.client_properties import librdkafka_properties
from streamplan.serdes.schema_source import Reference, UnknownSchema, WrittenSchema

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import RegisteredSchema, Schema, SchemaRegistryClient

    from streamplan.kafka.brokers import Brokers

Answer = TypeVar("Answer")

URL = "schema.registry.url"

_PREFIX = "schema.registry."
_STRATEGY = "value.subject.name.strategy"
_USER_INFO = "basic.auth.user.info"
_SOURCE = "basic.auth.credentials.source"
_ANSWER_SECONDS = 10
_CLIENT = {"timeout": _ANSWER_SECONDS, "max.retries": 2, "retries.wait.ms": 200, "retries.max.wait.ms": 1000}
"""Short, because the micro-batch is tried again, too. By default the client waits for an answer without end."""

_UNKNOWN_SECONDS = 1.0
"""An id without a schema is not asked for again sooner: a topic may have many records that name it."""

_TLS = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.key.password")
_SCHEMA_NOT_FOUND = 40403
_NOT_REGISTERED = (40401, 40402, _SCHEMA_NOT_FOUND)
_INVALID = 422
_REFUSES = (409, _INVALID)
_FORM = {"PROTOBUF": " in base64"}
"""In which form a schema is registered, where it is not a text."""

_WHERE = "where bootstrap.servers stands: in the connection, or in the file of client properties"


@dataclass(frozen=True)
class SchemaRegistry:
    """A registry; a :class:`streamplan.serdes.schema_source.SchemaSource`.

    ``repr()`` shows the address alone. It can be pickled, and is sent to Spark's workers as ``Brokers`` is.

    Attributes:
        properties: Those of :attr:`Brokers.registry`.
        sasl: User name and password of the brokers, for ``basic.auth.credentials.source=SASL_INHERIT``.
    """

    properties: Mapping[str, str] = field(repr=False, hash=False)
    sasl: tuple[str, str] = field(default=("", ""), repr=False)

    def __repr__(self) -> str:
        return f"SchemaRegistry({self.address!r})"

    @classmethod
    def of(cls, brokers: Brokers) -> SchemaRegistry:
        """Return the registry that stands with the brokers. Where none stands there, every question is refused."""
        inherited = brokers.properties.get("sasl.username", ""), brokers.properties.get("sasl.password", "")
        found = cls(brokers.registry)
        return cls(brokers.registry, inherited) if found._property(_SOURCE) == "SASL_INHERIT" else found

    @property
    def address(self) -> str:
        """The address without credentials; empty where none is given."""
        urls = [urlsplit(url.strip()) for url in self.properties.get(URL, "").split(",")]
        return ",".join(urlunsplit(url._replace(netloc=url.netloc.rpartition("@")[2])) for url in urls)

    def require_available(self) -> None:
        """Ask for a schema that need not be there.

        Raises:
            SchemaRegistryUnavailable: The registry gave no usable answer.
            Refused: No registry is given.
        """
        with suppress(UnknownSchema):
            self.schema(1)

    def schema(self, schema_id: int) -> WrittenSchema:
        """Return the schema of an id; see :meth:`SchemaSource.schema`.

        Raises:
            UnknownSchema: The registry says that there is none.
            SchemaRegistryUnavailable: It gave no usable answer.
            Refused: No registry is given.
        """
        return self._session.schema(schema_id)

    def id_of(self, topic: str, record: str, schema: WrittenSchema) -> int:
        """Return the id of a schema that is registered for a topic; see :meth:`SchemaSource.id_of`.

        Raises:
            Refused: It is not registered, or no registry is given.
            SchemaRegistryUnavailable: The registry gave no usable answer.
        """
        return self._session.id_of(self._subject(topic, record), schema)

    def register(self, topic: str, record: str, schema: WrittenSchema) -> int:
        """Register a schema for a topic, or only look it up where ``auto.register.schemas`` is false.

        Raises:
            Refused: It is not registered and must not be, the registry does not take it, or no registry is given.
            SchemaRegistryUnavailable: The registry gave no usable answer.
        """
        if not self.registers:
            return self.id_of(topic, record, schema)
        return self._session.register(self._subject(topic, record), schema)

    @property
    def registers(self) -> bool:
        """Whether a schema is registered, and not only looked up."""
        return self.properties.get("auto.register.schemas", "true").lower() != "false"

    def is_registered(self, topic: str, record: str, schema: WrittenSchema) -> bool:
        """Return whether a schema is registered for a topic.

        Raises:
            SchemaRegistryUnavailable: The registry gave no usable answer.
        """
        return self._session.find(self._subject(topic, record), schema) is not None

    def latest(self, topic: str, record: str) -> tuple[str, WrittenSchema | None]:
        """Return the subject of a topic's values, and its latest schema; None where it has none.

        Raises:
            SchemaRegistryUnavailable: The registry gave no usable answer.
        """
        subject = self._subject(topic, record)
        return subject, self._session.latest(subject)

    def _subject(self, topic: str, record: str) -> str:
        name = self.properties.get(_STRATEGY, "TopicNameStrategy")
        match name.rpartition(".")[2]:
            case "TopicNameStrategy":
                return f"{topic}-value"
            case "RecordNameStrategy" | "TopicRecordNameStrategy" if not record:
                raise Refused(
                    f"the declared schema of {topic}",
                    expected=f"a name, because {_STRATEGY} is {name}",
                    observed="none",
                    remedy='A JSON Schema has its name as "title".',
                )
            case "RecordNameStrategy":
                return record
            case "TopicRecordNameStrategy":
                return f"{topic}-{record}"
        raise Refused(
            _STRATEGY,
            expected="TopicNameStrategy, RecordNameStrategy or TopicRecordNameStrategy",
            observed=name,
            remedy="Correct it where schema.registry.url stands.",
        )

    @cached_property
    def _session(self) -> _Session:
        from confluent_kafka.schema_registry import SchemaRegistryClient

        if not self.properties.get(URL):
            raise Refused(
                "the Schema Registry",
                expected=f"its address, {URL}, because the values name their schema by an id",
                observed="none",
                remedy=f"Add it {_WHERE}.",
            )
        try:
            client = SchemaRegistryClient(self._client_config())
        except (ValueError, OSError) as error:  # an address or a certificate that it does not take
            raise Refused(
                f"the Schema Registry at {self.address}",
                expected="properties that its client takes",
                observed=str(error),
                remedy=f"Correct them {_WHERE}. docs/schema-registry.md has an example.",
            ) from None  # the cause may show a secret
        normalize = self.properties.get("normalize.schemas", "false").lower() == "true"
        return _Session(client, self.address, normalize)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_session"}

    def _property(self, name: str) -> str:
        """A property that may have the prefix."""
        return self.properties.get(_PREFIX + name, self.properties.get(name, ""))

    def _client_config(self) -> dict[str, Any]:
        first = urlsplit(self.properties[URL].split(",")[0].strip())
        user_info = self._property(_USER_INFO)
        if not user_info and first.username:  # not in the address: that is logged with each question
            user_info = f"{unquote(first.username)}:{unquote(first.password or '')}"
        if self.sasl != ("", ""):
            user_info = ":".join(self.sasl)
        config: dict[str, Any] = {"url": self.address, **_CLIENT, **self._tls()}
        if user_info:
            config[_USER_INFO] = user_info
        for name, value in self.properties.items():
            plain = name.removeprefix(_PREFIX)
            if plain.startswith("bearer.auth."):
                config[plain] = value
        return config

    def _tls(self) -> dict[str, str]:
        """The properties ``schema.registry.ssl.*``, by librdkafka's names, which the client has."""
        given = {
            name.removeprefix(_PREFIX): value
            for name, value in self.properties.items()
            if name.startswith(f"{_PREFIX}ssl.")
        }
        try:
            translated = librdkafka_properties(given)
        except Refused as error:
            raise Refused(
                f"{_PREFIX}{error.subject}" if error.subject.startswith("ssl.") else error.subject,
                expected=error.expected,
                observed=error.observed,
                remedy=error.remedy,
            ) from error.__cause__
        if others := sorted(translated.keys() - {*_TLS}):
            raise Refused(
                f"client properties {', '.join(_PREFIX + name for name in others)}",
                expected=f"files in PEM: {', '.join(_PREFIX + name for name in _TLS)}",
                remedy=f"Write these {_WHERE}.",
            )
        return translated


class _Session:
    """What this process knows of a registry. The schema of an id does not change, nor the id of a schema."""

    def __init__(self, client: SchemaRegistryClient, address: str, normalize: bool) -> None:
        self._client, self._address, self._normalize = client, address, normalize
        self._schemas: dict[int, WrittenSchema] = {}
        self._unknown: dict[int, float] = {}
        self._ids: dict[tuple[str, WrittenSchema], int] = {}

    def schema(self, schema_id: int) -> WrittenSchema:
        if schema_id not in self._schemas:
            now = time.monotonic()
            if now - self._unknown.get(schema_id, -math.inf) < _UNKNOWN_SECONDS:
                raise UnknownSchema(schema_id)
            found = self._ask(lambda: self._client.get_schema(schema_id), _SCHEMA_NOT_FOUND)
            if found is None:
                self._unknown[schema_id] = now
                raise UnknownSchema(schema_id)
            self._schemas[schema_id] = self._written(found)
        return self._schemas[schema_id]

    def latest(self, subject: str) -> WrittenSchema | None:
        found = self._ask(lambda: self._client.get_version(subject, "latest"), *_NOT_REGISTERED)
        return None if found is None else self._written(found.schema)

    def find(self, subject: str, schema: WrittenSchema) -> int | None:
        if (subject, schema) not in self._ids:
            if (found := self._look_up(subject, schema)) is None:
                return None
            self._ids[subject, schema] = int(found.schema_id or 0)
        return self._ids[subject, schema]

    def id_of(self, subject: str, schema: WrittenSchema) -> int:
        if (found := self.find(subject, schema)) is None:
            raise self._not_registered(subject)
        return found

    def register(self, subject: str, schema: WrittenSchema) -> int:
        for name, reference in schema.references:  # the name is the subject, as by DefaultReferenceSubjectNameStrategy
            self.register(name, reference)
        wanted = self._schema(schema)
        if wanted is None:
            raise self._not_registered(", ".join(name for name, _ in schema.references))
        with self._refusing(subject, schema.format):
            found: int = self._asked(
                lambda: self._client.register_schema(subject, wanted, normalize_schemas=self._normalize)
            )
        self._ids[subject, schema] = found
        return found

    def _look_up(self, subject: str, schema: WrittenSchema) -> RegisteredSchema | None:
        if (wanted := self._schema(schema)) is None:
            return None
        return self._ask(
            lambda: self._client.lookup_schema(subject, wanted, normalize_schemas=self._normalize), *_NOT_REGISTERED
        )

    def _not_registered(self, subject: str) -> Refused:
        return Refused(
            f"subject {subject} of the Schema Registry at {self._address}",
            expected="the declared schema",
            observed="the subject does not have this schema",
            remedy="Register it, or set auto.register.schemas=true where schema.registry.url stands, and start the "
            "aggregator again.",
        )

    def _schema(self, schema: WrittenSchema) -> Schema | None:
        """The schema as the client has it; None where one that it names is not registered."""
        from confluent_kafka.schema_registry import Schema, SchemaReference

        references = []
        for name, reference in schema.references:
            if (found := self._look_up(name, reference)) is None:
                return None
            references.append(SchemaReference(name, name, found.version))
        return Schema(schema.text, schema.format, references)

    def _written(self, found: Schema | None) -> WrittenSchema:
        if found is None or found.schema_str is None:
            raise self._no_registry("an answer without a schema")
        references = []
        for each in found.references or ():
            version = self._version(str(each.subject), int(each.version or 0))
            references.append(Reference(str(each.name), self._written(version)))
        return WrittenSchema(found.schema_str, tuple(references), found.schema_type or "AVRO")

    def _version(self, subject: str, version: int) -> Schema:
        """A version that is referred to; it may have been deleted since."""
        return self._asked(lambda: self._client.get_version(subject, version, deleted=True)).schema

    def _ask(self, question: Callable[[], Answer], *absent: int) -> Answer | None:
        """Return the answer; None where the registry says by one of these codes that there is none.

        The status 404 alone does not say it: a proxy answers it, too, or a server that is no registry.
        """
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            return self._asked(question)
        except SchemaRegistryUnavailable as error:
            cause = error.__cause__
            if isinstance(cause, SchemaRegistryError) and cause.error_code in absent:
                return None
            raise

    def _asked(self, question: Callable[[], Answer]) -> Answer:
        import httpx2
        from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError

        try:
            return question()
        except SchemaRegistryError as error:
            status = error.http_status_code
            observed = f"HTTP {status}, {_short(error.error_message)}"
            remedy = "Look at the registry and its log."
            if status in (401, 403):
                remedy = f"Correct the credentials, such as basic.auth.user.info, {_WHERE}."
            elif status == 404:
                remedy = f"Correct {URL} {_WHERE}. This answer is not that of a Schema Registry."
            raise self._unavailable(observed, remedy) from error
        except (httpx2.HTTPError, httpx2.InvalidURL, OAuthTokenError) as error:
            observed = f"{type(error).__name__}: {error}"
            raise self._unavailable(observed, f"Is it running, and is {URL} right?") from error
        except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
            raise self._no_registry(f"an answer of another form ({type(error).__name__})") from error

    def _no_registry(self, observed: str) -> SchemaRegistryUnavailable:
        return self._unavailable(observed, f"Correct {URL} {_WHERE}: this is no Schema Registry.")

    def _unavailable(self, observed: str, remedy: str) -> SchemaRegistryUnavailable:
        return SchemaRegistryUnavailable(
            f"the Schema Registry at {self._address}",
            expected="an answer",
            observed=observed,
            remedy=f"{remedy} No record is lost or rejected for this: what was read is read again.",
        )

    @contextmanager
    def _refusing(self, subject: str, schema_format: str) -> Iterator[None]:
        """Turn the answer that a schema is not taken into an error that a retry does not mend."""
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            yield
        except SchemaRegistryUnavailable as error:
            cause = error.__cause__
            if isinstance(cause, SchemaRegistryError) and cause.http_status_code in _REFUSES:
                remedy = (
                    "Change the schema so that the compatibility rule of the subject allows it, or change that rule."
                )
                if cause.http_status_code == _INVALID:
                    remedy = f"Does the registry read {schema_format}{_FORM.get(schema_format, '')}? See its log."
                raise Refused(
                    f"subject {subject} of the Schema Registry at {self._address}",
                    expected="to take the declared schema",
                    observed=_short(cause.error_message),
                    remedy=remedy,
                ) from error
            raise


def _short(message: object) -> str:
    text = " ".join(str(message).split())
    return text if len(text) <= 300 else f"{text[:300]}…"
