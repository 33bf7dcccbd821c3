"""Which of the given client properties are used, and what their values mean.

Names and values are read as Kafka's JVM client (`ConfigDef`) and librdkafka read them. A property that says how to
connect is used, or refused by its name. Another one is passed over, which a line of the log says once. No error shows
a value that may be a secret.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from difflib import get_close_matches
from functools import cache

from streamplan.errors import Refused
from streamplan.kafka.given_properties import GivenProperties
from streamplan.kafka.property_table import JVM, JVM_SINCE_4, LIBRDKAFKA, OF_BROKERS

SERVERS = "bootstrap.servers"

GROUP_PROTOCOL = "group.protocol"
"""``classic`` or ``consumer`` (KIP-848). Only clients that join a group take it, see ``membership.py``."""

TOKEN_CALLBACK = "oauth_cb"
"""The dotted path of a function that returns a token for OAUTHBEARER, as Airflow's provider takes it."""

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM")

_OF_CLIENTS = {**LIBRDKAFKA, **JVM_SINCE_4, **JVM}
_SASL = ("sasl.", "enable.sasl.", "https.")
_SSL = ("ssl.", "enable.ssl.")
_PREFIXES = ("security.", "config.providers", *_SASL, *_SSL)
_CONNECTION = {name for name in _OF_CLIENTS if name.startswith(_PREFIXES)} | {
    SERVERS,
    GROUP_PROTOCOL,
    TOKEN_CALLBACK,
    "metadata.broker.list",
}

_REGISTRY_PREFIXES = ("schema.registry.", "basic.auth.", "bearer.auth.")
_REGISTRY_SETTINGS = ("auto.register.schemas", "normalize.schemas", "value.subject.name.strategy")
_REGISTRY = ("schema.registry.url", "basic.auth.user.info", "basic.auth.credentials.source", *_REGISTRY_SETTINGS)

_REGISTRY_GROUPS = re.compile(r"(schema\.registry\.)?(basic\.auth|bearer\.auth)\.|schema\.registry\.ssl\.")

_OTHER_NAMES = {
    "sasl.plain.username": "sasl.username",
    "sasl.plain.password": "sasl.password",
    "sasl.user.name": "sasl.username",
    "sasl.oauth.token.provider": TOKEN_CALLBACK,
    "sasl.kerberos.domain.name": "sasl.kerberos.service.name",
    "ssl.cafile": "ssl.ca.location",
    "ssl.certfile": "ssl.certificate.location",
    "ssl.keyfile": "ssl.key.location",
    "ssl.password": "ssl.key.password",
    "ssl.crlfile": "ssl.crl.location",
    "ssl.ciphers": "ssl.cipher.suites",
    "ssl.check.hostname": "ssl.endpoint.identification.algorithm",
    "ssl.context": "ssl.ca.location",
    "servers": SERVERS,
    "brokers": SERVERS,
    "broker.list": SERVERS,
    "username": "sasl.username",
    "password": "sasl.password",
    "oauth.cb": TOKEN_CALLBACK,
}
"""Names that other clients have, such as kafka-python and aiokafka, with dots for their underscores."""

_OF_ONE_CLIENT = re.compile(r"((main|global|restore)\.consumer|consumer|producer|admin|admin\.client)\.", re.IGNORECASE)
"""The prefixes with which files of Kafka Streams and of Kafka Connect set a property for one of their clients alone."""

_WRAPPED = re.compile(
    r"^(spring[._-])?(cloud[._-])?(stream[._-])?(kafka|connect)?[._-]?((main|global|restore|binder|consumer|producer|admin|properties|streams|client)[._-])*"
    r"(librdkafka[._-])?",
    re.IGNORECASE,
)

_EXACT = ("sasl.username", "sasl.password", "sasl.oauthbearer.config", "sasl.oauthbearer.client.secret")
"""What librdkafka alone takes, and takes as it is. Kafka's JVM client ignores blanks around every value."""

_BLANKS = "".join(map(chr, range(33)))
"""What Java's ``String.trim`` removes."""

_WORDS = {
    "security.protocol": PROTOCOLS,
    "sasl.mechanism": MECHANISMS,
    "sasl.oauthbearer.method": ("default", "oidc"),
    "ssl.endpoint.identification.algorithm": ("https", "none"),
    GROUP_PROTOCOL: ("classic", "consumer"),
}
_ANY_CASE = frozenset(_WORDS) - {"sasl.mechanism"}
_TRUE, _FALSE = ("true", "t", "1"), ("false", "f", "0")

_CREDENTIALS = ("sasl.jaas.config", "sasl.username", "sasl.password", "sasl.oauthbearer.client.id", TOKEN_CALLBACK)
_INHERITED = ("sasl.username", "sasl.password", "sasl.jaas.config")
"""What a Schema Registry gets with `basic.auth.credentials.source=SASL_INHERIT`."""

_CERTIFICATES = re.compile(r"ssl\.((truststore|keystore|ca|certificate|key)\.(location|certificates|pem|key))")

_ADDRESS = re.compile(r"([A-Za-z_]+://)?(\[[0-9A-Fa-f:.%\w]+\]|[\w.%-]+):[0-9]{1,5}")
_SHOWABLE = re.compile(r"[\"']?(\$\{[\w.:/-]+\}|\{\{[\w. ]+\}\}|[\w-]{1,24})[\"']?")
_log = logging.getLogger(__name__)


def connection_properties(given: GivenProperties) -> dict[str, str]:
    """Select the properties that say how to connect, with their values as both clients mean them.

    Args:
        given: All that was given. Its names are the JVM client's or librdkafka's.

    Returns:
        Names and values, ``bootstrap.servers`` among them if it was given. Properties of SASL and TLS are there only
        where the ``security.protocol`` uses them. A property without a value is left out.

    Raises:
        Refused: A name is none that a client has, and reads like one that says how to connect. Or a value is none
            that the property can have.
    """
    with given.placed():
        _require_names(given)
        found = {
            name: _text(name, value)
            for name, value in given.values.items()
            if name in _CONNECTION or name.startswith("config.providers")
        }
        found = _one_name(found, "metadata.broker.list", SERVERS)
        found = _one_name(found, "sasl.mechanisms", "sasl.mechanism")
        found = {name: value for name, text in found.items() if (value := _value(name, text))}
        return _of_protocol(found, given)


def registry_properties(given: GivenProperties) -> dict[str, str]:
    """Select the properties that say how to reach a Schema Registry, and how schemas are registered there.

    They have the names of Confluent's serializers for Java. No client of Kafka is given them.

    Raises:
        Refused: A value is a list or an object, or a name is none that such a client has.
    """
    with given.placed():
        named = {name: _text(name, value) for name, value in given.values.items() if _is_of_registry(name)}
        unknown = [name for name in named if name not in _REGISTRY and not _REGISTRY_GROUPS.match(name)]
        for name in unknown:
            if close := get_close_matches(name, _REGISTRY, 1, cutoff=0.87):
                raise Refused(
                    f"client property {name}",
                    expected="a name that a client of a Schema Registry has",
                    observed="none of this name",
                    remedy=f"Did you mean {close[0]}? Write {close[0]} instead.",
                )
        if unknown:
            _say_once(logging.WARNING, given.source, f"{', '.join(sorted(unknown))}: not used")
    return {name: value for name, text in named.items() if (value := text.strip(_BLANKS))}


def _is_of_registry(name: str) -> bool:
    return name.startswith(_REGISTRY_PREFIXES) or name in _REGISTRY_SETTINGS


def _require_names(given: GivenProperties) -> None:
    """Refuse names that read like those of a connection, and tell which others are not used.

    Raises:
        Refused: Such a name was given.
    """
    known, unknown = [], []
    for name, value in given.values.items():
        if name in _CONNECTION or name.startswith("config.providers") or _is_of_registry(name):
            continue
        if name in _OF_CLIENTS or name in OF_BROKERS:
            known.append(name)
            continue
        _require_flat(name, value)
        meant = _meant(name)
        if meant is not None and not (_OF_ONE_CLIENT.match(name) and meant in given.values):
            raise Refused(
                f"client property {name}",
                expected="a name that a client of Kafka has",
                observed=f"none of this name: it would be ignored, and {meant} would have its default",
                remedy=f"Did you mean {meant}? Write {meant} instead.",
            )
        if meant is None and name.lower().startswith(_PREFIXES):
            raise Refused(
                f"client property {name}",
                expected="a name that Kafka's JVM client or librdkafka has",
                observed="none of this name",
                remedy="Both clients would ignore it. Correct its name, or leave it out.",
            )
        unknown.append(name)
    if known:
        _say_once(logging.INFO, given.source, f"{', '.join(sorted(known))} do not say how to connect, and are not used")
    if unknown:
        _say_once(logging.WARNING, given.source, f"no client of Kafka has {', '.join(sorted(unknown))}; not used")


def _require_flat(name: str, value: object) -> None:
    """Refuse client properties that stand within another property, as an object or as its text in JSON."""
    within = value
    if isinstance(value, str) and value.lstrip().startswith("{"):
        with suppress(ValueError, RecursionError):
            within = json.loads(value)
    if isinstance(within, Mapping):
        inner = next((key for key in within if key in _CONNECTION or _meant(str(key))), None)
        if inner is not None:
            raise Refused(
                f"client property {name}",
                expected="client properties at the first level",
                observed=f"an object with {inner}",
                remedy=f"Write {inner}, and all that stands beside it, where {name} stands.",
            )


@cache
def _meant(name: str) -> str | None:
    """The property that says how to connect, and that was probably meant by a name that no client has."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", ".", _WRAPPED.sub("", name.strip(), count=1).strip("\"'"))
    dotted = re.sub(r"[\s._-]+", ".", spaced).lower().strip(".")
    for candidate in (dotted, re.sub(r"[\s._-]+", ".", name).lower().strip(".")):
        if candidate in _OTHER_NAMES:
            return _OTHER_NAMES[candidate]
        if candidate in _CONNECTION or candidate in _REGISTRY:
            return candidate
    close = get_close_matches(dotted, [*_CONNECTION, *_REGISTRY], 1, cutoff=0.87)
    return close[0] if close else None


def _text(name: str, value: object) -> str:
    """A value as text, as both clients take it. Nothing is an empty text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    is_list = name in ("metadata.broker.list", SERVERS) or "LIST" in (JVM.get(name), JVM_SINCE_4.get(name))
    if isinstance(value, list | tuple) and is_list and all(isinstance(each, str) for each in value):
        return ",".join(value)
    raise Refused(
        f"client property {name}",
        expected="a text",
        observed="an object" if isinstance(value, Mapping) else "a list",
        remedy="Write its value as one text" + (", with commas between the parts." if is_list else "."),
    )


def _one_name(properties: dict[str, str], alias: str, name: str) -> dict[str, str]:
    """Give a property its usual name."""
    if alias not in properties:
        return properties
    if properties.get(name, properties[alias]).strip(_BLANKS) != properties[alias].strip(_BLANKS):
        raise Refused(
            f"client properties {alias}, {name}",
            expected="one of the two, which are names of the same property",
            observed="both, with different values",
            remedy=f"Leave {alias} out.",
        )
    return {name if each == alias else each: value for each, value in properties.items()}


def _value(name: str, text: str) -> str:
    """The value that both clients read; empty where nothing is given."""
    if name in _EXACT:
        return text
    value = text.strip(_BLANKS)
    if name == SERVERS:
        return _addresses(value)
    if name == "ssl.endpoint.identification.algorithm" and not value:
        return "none"  # as Kafka's JVM client reads it
    kinds = {JVM.get(name), JVM_SINCE_4.get(name), LIBRDKAFKA.get(name)}
    if name in _WORDS and (value or name in _ANY_CASE):  # sasl.mechanism is any text to the JVM client
        return _word(name, value)
    if kinds & {"BOOLEAN", "boolean"}:
        if value.lower() not in _TRUE + _FALSE:
            raise Refused(
                name, expected="true or false", observed=_shown(value), remedy=f"Write {name}=true or {name}=false."
            )
        return "true" if value.lower() in _TRUE else "false"
    if kinds & {"INT", "LONG", "SHORT", "DOUBLE", "integer"}:
        try:
            float(value) if "DOUBLE" in kinds else int(value)
        except ValueError:
            raise Refused(
                name, expected="a number", observed=_shown(value), remedy=f"Write a number, or leave {name} out."
            ) from None
    return value


def _word(name: str, value: str) -> str:
    words = _WORDS[name]
    for word in words:
        if word == value or (name in _ANY_CASE and word.lower() == value.lower()):
            return word
    unquoted = value.strip("\"'").upper().replace(" ", "")
    plain = {re.sub(r"[-_]", "", word.upper()): word for word in words}
    close = get_close_matches(re.sub(r"[-_]", "", unquoted), plain, 1, cutoff=0.7)
    raise Refused(
        name,
        expected=", ".join(words[:-1]) + f" or {words[-1]}",
        observed=_shown(value),
        remedy=f"Did you mean {plain[close[0]]}? Write {name}={plain[close[0]]}." if close else f"Correct {name}.",
    )


def _shown(value: str) -> str:
    """A value that is a word. Another text may be a secret in the wrong place."""
    if not value:
        return "no value"
    return repr(value) if _SHOWABLE.fullmatch(value) else "other text"


def _addresses(text: str) -> str:
    addresses = [address.strip(_BLANKS) for address in text.split(",")]
    addresses = [address for address in addresses if address]
    for address in addresses:
        if not _ADDRESS.fullmatch(address):
            raise Refused(
                SERVERS,
                expected="host:port,host:port",
                observed=repr(address.rpartition("@")[2][:80]),
                remedy="Write each address with its port, without brackets and quotes.",
            )
    return ",".join(addresses)


def _of_protocol(properties: dict[str, str], given: GivenProperties) -> dict[str, str]:
    """Leave out what the protocol does not use.

    Raises:
        Refused: Somebody wants to log in, or has certificates, and names no protocol.
    """
    protocol = properties.get("security.protocol", "")
    sources = (given.values.get(f"{prefix}basic.auth.credentials.source") for prefix in ("", "schema.registry."))
    of_registry = _INHERITED if "SASL_INHERIT" in sources else ()
    unused = {
        name
        for name in properties.keys() - {*of_registry}
        if ((name.startswith(_SASL) or name == TOKEN_CALLBACK) and not protocol.startswith("SASL_"))
        or (name.startswith(_SSL) and not protocol.endswith("SSL"))
    }
    if not protocol:
        wants = [name for name in properties if name in unused and (name in _CREDENTIALS or _CERTIFICATES.match(name))]
        if wants:
            logs_in = any(name in _CREDENTIALS for name in wants)
            raise Refused(
                f"security.protocol, which {wants[0]} needs",
                expected="SASL_SSL or SASL_PLAINTEXT" if logs_in else "SSL or SASL_SSL",
                observed="none, by which every client connects in plaintext",
                remedy="Add what the listener of the brokers speaks: security.protocol="
                + ("SASL_SSL." if logs_in else "SSL."),
            )
    if unused:
        said = f"{', '.join(sorted(unused))} are not used with security.protocol={protocol or 'PLAINTEXT'}"
        _say_once(logging.INFO, given.source, said)
    return {name: value for name, value in properties.items() if name not in unused}


@cache
def _say_once(level: int, source: str, text: str) -> None:
    _log.log(level, "%s: %s", source, text)
