"""Client properties by librdkafka's names, and by those of Kafka's JVM client: each translated into the other.

Inside Streamplan properties have librdkafka's names. Kafka's own tools and Spark's Kafka source have the JVM client's.
Where one side cannot do what the other one says, the translation is refused, and the error says what to do instead.
No error shows a value, because it may be a secret.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from streamplan.errors import Refused
from streamplan.kafka.java_properties import jaas_config, parse_jaas_config, parse_properties

SERVERS = "bootstrap.servers"

GROUP_PROTOCOL = "group.protocol"
"""``classic`` or ``consumer`` (KIP-848). Only clients that join a group take it, see ``membership.py``."""

TOKEN_CALLBACK = "oauth_cb"
"""The dotted path of a function that returns a token for OAUTHBEARER, as Airflow's provider takes it."""

_CONNECTION_PREFIXES = ("security.", "sasl.", "ssl.", "https.", "enable.ssl.", "enable.sasl.")

_REGISTRY_PREFIXES = ("schema.registry.", "basic.auth.", "bearer.auth.")
_REGISTRY_SETTINGS = ("auto.register.schemas", "normalize.schemas", "value.subject.name.strategy")

_JVM_ALONE = frozenset(
    {
        "sasl.jaas.config",
        "sasl.login.callback.handler.class",
        "sasl.client.callback.handler.class",
        "sasl.login.class",
        "ssl.protocol",
        "ssl.enabled.protocols",
    }
)
"""Properties that only the JVM client has. They are handed to it as they are, and left out for librdkafka.

librdkafka agrees with the brokers on a version of TLS by itself.
"""

_NOT_FOR_LIBRDKAFKA = frozenset(
    {
        "config.providers",
        "ssl.cipher.suites",
        "ssl.engine.factory.class",
        "ssl.provider",
        "ssl.keymanager.algorithm",
        "ssl.trustmanager.algorithm",
        "ssl.secure.random.implementation",
    }
)
"""Properties of a file for the JVM client that librdkafka could not follow."""

_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_OAUTHBEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_OIDC_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
"""The name that clients of Kafka 3.x and 4.x have."""

_OIDC_HANDLERS = (_OIDC_HANDLER, "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler")

_OIDC_OPTIONS = {
    "clientId": "sasl.oauthbearer.client.id",
    "clientSecret": "sasl.oauthbearer.client.secret",
    "scope": "sasl.oauthbearer.scope",
}
"""Options of the JVM client's login module, and librdkafka's properties.

Kafka 4.1 (KIP-1139) also has properties for them. Every version since 3.1 takes the options.
"""

_OIDC_PROPERTIES = {
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
}
"""Kafka 4.1's names, which librdkafka takes too, and those that librdkafka has had longer."""

_EXTENSION = "extension_"


def connection_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Select the properties that say how to connect. Others are settings of somebody else's client."""
    return {
        name: value
        for name, value in properties.items()
        if name.startswith(_CONNECTION_PREFIXES) or name in (GROUP_PROTOCOL, TOKEN_CALLBACK, "config.providers")
    }


def registry_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Select the properties that say how to reach a Schema Registry, and how schemas are registered there.

    They have the names of Confluent's serializers for Java. No client of Kafka is given them.
    """
    return {
        name: value
        for name, value in properties.items()
        if name.startswith(_REGISTRY_PREFIXES) or name in _REGISTRY_SETTINGS
    }


def properties_of_client(properties: Mapping[str, str]) -> dict[str, str]:
    """Select the properties that every librdkafka client takes, without the JVM client's."""
    return {name: value for name, value in properties.items() if name not in _JVM_ALONE | {GROUP_PROTOCOL}}


def jvm_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Translate librdkafka's properties for Kafka's JVM client.

    A certificate and a key in two files are read, because the JVM client takes them from one file or as text.

    Args:
        properties: Names and values as librdkafka takes them.

    Returns:
        Names and values as the JVM client takes them. Certificates and keys are in PEM.

    Raises:
        Refused: The JVM client has nothing like it, or a file cannot be read.
    """
    left = {name: value for name, value in properties.items() if name != GROUP_PROTOCOL}
    made = {name: left.pop(name) for name in list(left) if name in _JVM_ALONE}
    if protocol := left.pop("security.protocol", ""):
        made["security.protocol"] = protocol.upper()
    made |= _jvm_sasl(left, made)
    made |= _jvm_stores(left)
    if (algorithm := left.pop("ssl.endpoint.identification.algorithm", None)) is not None:
        made["ssl.endpoint.identification.algorithm"] = "" if algorithm == "none" else algorithm
    if left.pop("enable.ssl.certificate.verification", "true") != "true":
        raise Refused(
            "enable.ssl.certificate.verification",
            expected="true, because Kafka's JVM client, which Spark uses, always verifies",
            observed="false",
            remedy="Name the brokers' certificate authority with ssl.ca.location instead.",
        )
    if left:
        raise Refused(
            f"client properties {', '.join(sorted(left))}",
            expected="properties that Kafka's JVM client, which Spark uses, has too",
            remedy="Leave them out, or see docs/security.md for what can be said instead.",
        )
    return made


def _jvm_sasl(left: dict[str, str], made: Mapping[str, str]) -> dict[str, str]:
    """Take the properties of SASL from ``left``."""
    mechanism, other = left.pop("sasl.mechanisms", None), left.pop("sasl.mechanism", None)
    mechanism = mechanism or other
    username, password = left.pop("sasl.username", None), left.pop("sasl.password", None)
    is_oidc = left.pop("sasl.oauthbearer.method", "default") == "oidc"
    token_callback = left.pop(TOKEN_CALLBACK, None)
    if token_callback is not None:
        left.pop("sasl.oauthbearer.config", None)  # the argument of the function
    if mechanism is None:
        return {}
    sasl = {"sasl.mechanism": mechanism}
    if mechanism == "OAUTHBEARER" and is_oidc:
        return sasl | _jvm_oidc(left)
    if "sasl.jaas.config" in made:
        return sasl
    if mechanism == "OAUTHBEARER":
        if token_callback is not None and "sasl.login.callback.handler.class" not in made:
            raise Refused(
                f"client property {TOKEN_CALLBACK}",
                expected="also sasl.login.callback.handler.class, a Java class that gets the same token",
                observed="none",
                remedy="Spark reads with Kafka's JVM client, which cannot call a Python function. Name the class of "
                "your cloud (docs/security.md lists them) in the same connection, and add its jar to STREAMPLAN_JARS.",
            )
        return sasl | ({"sasl.jaas.config": jaas_config(_OAUTHBEARER, {})} if token_callback else {})
    if mechanism == "PLAIN" or mechanism.startswith("SCRAM-"):
        if username is None or password is None:
            raise Refused(
                f"client properties for {mechanism}",
                expected="sasl.username and sasl.password",
                observed="not both",
                remedy="Add them where the security.protocol stands.",
            )
        module = _PLAIN if mechanism == "PLAIN" else _SCRAM
        return sasl | {"sasl.jaas.config": jaas_config(module, {"username": username, "password": password})}
    raise Refused(
        "sasl.mechanism",
        expected="PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER, or a sasl.jaas.config for the JVM client",
        observed=mechanism,
        remedy="See docs/security.md.",
    )


def _jvm_oidc(left: dict[str, str]) -> dict[str, str]:
    """Take the properties of OpenID Connect from ``left``."""
    if (grant := left.pop("sasl.oauthbearer.grant.type", "client_credentials")) != "client_credentials":
        raise Refused(
            "sasl.oauthbearer.grant.type",
            expected="client_credentials, the only one that Spark's Kafka client has",
            observed=grant,
        )
    for longer, name in _OIDC_PROPERTIES.items():
        if longer in left:
            left[name] = left.pop(longer)
    options = {option: left.pop(name) for option, name in _OIDC_OPTIONS.items() if name in left}
    for extension in filter(None, left.pop("sasl.oauthbearer.extensions", "").split(",")):
        name, _, value = extension.partition("=")
        options[f"{_EXTENSION}{name.strip()}"] = value.strip()
    authorities = _authorities(left, "https.ca.location", "https.ca.pem")
    oidc = {
        "sasl.jaas.config": jaas_config(_OAUTHBEARER, options | authorities),
        "sasl.login.callback.handler.class": _OIDC_HANDLER,
    }
    if endpoint := left.pop("sasl.oauthbearer.token.endpoint.url", ""):
        oidc["sasl.oauthbearer.token.endpoint.url"] = endpoint
    return oidc


def _jvm_stores(left: dict[str, str]) -> dict[str, str]:
    """Take the properties of certificates and keys from ``left``."""
    stores = _authorities(left, "ssl.ca.location", "ssl.ca.pem")
    key_password = left.pop("ssl.key.password", None)
    certificate = _text(left, "ssl.certificate.location", "ssl.certificate.pem")
    key = _text(left, "ssl.key.location", "ssl.key.pem")
    if store := left.pop("ssl.keystore.location", ""):
        stores |= {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": store}
        if (password := left.pop("ssl.keystore.password", None)) is not None:
            stores["ssl.keystore.password"] = password
    elif certificate or key:
        if not certificate or not key:
            raise Refused(
                "the client's certificate",
                expected="a certificate (ssl.certificate.location) and its key (ssl.key.location)",
                observed="one of the two",
            )
        stores |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": certificate}
        stores["ssl.keystore.key"] = _pkcs8(key)
        # The JVM client would take the password of a key that has none for a fault.
        if "BEGIN ENCRYPTED PRIVATE KEY" in key and key_password is not None:
            stores["ssl.key.password"] = key_password
    return stores


def _authorities(left: dict[str, str], location: str, text: str) -> dict[str, str]:
    """Take the certificate authorities from ``left``. Without any, both clients use those of their system."""
    file, pem = left.pop(location, ""), left.pop(text, "")
    if file == "probe":  # librdkafka then looks where systems have them; the JVM client has its own
        file = ""
    if file and Path(file).is_dir():
        raise Refused(
            location,
            expected="a file with certificates in PEM",
            observed=f"the directory {file}",
            remedy=f"Kafka's JVM client, which Spark uses, reads files: cat {file}/*.pem > ca.pem",
        )
    if pem:
        both = f"{pem}\n{_read_text(file, location)}" if file else pem
        return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": both}
    return {"ssl.truststore.type": "PEM", "ssl.truststore.location": file} if file else {}


def _text(left: dict[str, str], location: str, text: str) -> str:
    file = left.pop(location, "")
    return left.pop(text, "") or (_read_text(file, location) if file else "")


def _pkcs8(key: str) -> str:
    if re.search(r"BEGIN (ENCRYPTED )?PRIVATE KEY", key):
        return key
    raise Refused(
        "the client's key",
        expected="PKCS#8 in PEM (BEGIN PRIVATE KEY), the only form that Kafka's JVM client reads",
        observed="another form",
        remedy="Convert it: openssl pkcs8 -topk8 -nocrypt -in client.key -out client.pk8.key",
    )


def librdkafka_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Translate properties of Kafka's JVM client for librdkafka. Names that librdkafka has stay as they are.

    Args:
        properties: Names and values of how to connect, see :func:`connection_properties`. Those of both clients may
            stand side by side.

    Raises:
        Refused: librdkafka has nothing like it, or a store cannot be read.
    """
    left = dict(properties)
    # librdkafka has a property of this name, too, but its names of the suites are OpenSSL's.
    unknown = _NOT_FOR_LIBRDKAFKA & left.keys()
    if unknown:
        raise Refused(
            f"client properties {', '.join(sorted(unknown))}",
            expected="properties that librdkafka, which the checks and the sink use, can follow",
            remedy="Leave them out of this file, and write the values that they would provide.",
        )
    made = _librdkafka_sasl(left)
    if "ssl.keystore.type" in left or "ssl.keystore.location" in left or "ssl.keystore.key" in left:
        made |= _librdkafka_keystore(left)
    made |= _librdkafka_truststore(left, "ssl.ca.location", "ssl.ca.pem")
    if left.get("ssl.endpoint.identification.algorithm") == "":
        left["ssl.endpoint.identification.algorithm"] = "none"
    return left | made


def _librdkafka_sasl(left: dict[str, str]) -> dict[str, str]:
    """Take ``sasl.jaas.config`` from ``left``."""
    if "sasl.jaas.config" not in left:
        return _librdkafka_oidc(left, {})
    module, options = parse_jaas_config(left["sasl.jaas.config"])
    if module in (_SCRAM, _PLAIN):
        del left["sasl.jaas.config"]
        return {f"sasl.{name}": options[name] for name in ("username", "password") if name in options}
    if module == _OAUTHBEARER and left.get("sasl.login.callback.handler.class") in _OIDC_HANDLERS:
        del left["sasl.jaas.config"]
        return _librdkafka_oidc(left, options)
    if TOKEN_CALLBACK in left:
        return {}  # librdkafka calls the function, and the JVM client has its own class
    raise Refused(
        "sasl.jaas.config",
        expected=f"one of the login modules {_SCRAM}, {_PLAIN}, or {_OAUTHBEARER} with {_OIDC_HANDLER}",
        observed=module if re.fullmatch(r"[\w.$]+", module) else "another text",
        remedy=f"librdkafka runs no Java class. Add {TOKEN_CALLBACK} with the dotted path of a Python function that "
        "returns a token (docs/security.md).",
    )


def _librdkafka_oidc(left: dict[str, str], options: Mapping[str, str]) -> dict[str, str]:
    """Take what logs in by OpenID Connect from ``left``."""
    if left.get("sasl.login.callback.handler.class") not in _OIDC_HANDLERS:
        return {}
    del left["sasl.login.callback.handler.class"]
    made = {"sasl.oauthbearer.method": "oidc"}
    made |= {name: left.pop(longer) for longer, name in _OIDC_PROPERTIES.items() if longer in left}
    made |= {name: options[option] for option, name in _OIDC_OPTIONS.items() if option in options}
    extensions = {name: value for name, value in options.items() if name.startswith(_EXTENSION)}
    if extensions:
        named = (f"{name.removeprefix(_EXTENSION)}={value}" for name, value in extensions.items())
        made["sasl.oauthbearer.extensions"] = ",".join(named)
    stores = {name: value for name, value in options.items() if name.startswith("ssl.")}
    return made | _librdkafka_truststore(stores, "https.ca.location", "https.ca.pem")


def _librdkafka_truststore(left: dict[str, str], location: str, text: str) -> dict[str, str]:
    """Take the JVM client's trust store from ``left``."""
    left.pop("ssl.truststore.type", None)  # the content says what it is
    left.pop("ssl.truststore.password", None)
    certificates, store = left.pop("ssl.truststore.certificates", ""), left.pop("ssl.truststore.location", "")
    if certificates:
        return {text: _pem_in_lines(certificates)}
    if not store:
        return {}
    if (form := _form(store, "ssl.truststore.location")) != "PEM":
        raise Refused(
            f"ssl.truststore.location {store}",
            expected="certificates in PEM, the only form that librdkafka reads",
            observed=form,
            remedy=f"Convert it: keytool -list -rfc -keystore {store} > ca.pem. Then set ssl.truststore.type=PEM and "
            "ssl.truststore.location=ca.pem, which Kafka's own tools take too.",
        )
    return {location: store}


def _librdkafka_keystore(left: dict[str, str]) -> dict[str, str]:
    """Take the JVM client's key store from ``left``."""
    left.pop("ssl.keystore.type", None)
    store, password = left.pop("ssl.keystore.location", ""), left.pop("ssl.keystore.password", None)
    chain, key = left.pop("ssl.keystore.certificate.chain", ""), left.pop("ssl.keystore.key", "")
    if chain or key:
        return {"ssl.certificate.pem": _pem_in_lines(chain), "ssl.key.pem": _pem_in_lines(key)}
    if not store:
        return {}
    form = _form(store, "ssl.keystore.location")
    if form == "PEM":
        return {"ssl.certificate.location": store, "ssl.key.location": store}
    if form != "PKCS12":
        raise Refused(
            f"ssl.keystore.location {store}",
            expected="PEM or PKCS12, the forms that librdkafka reads",
            observed=form,
            remedy=f"Convert it: keytool -importkeystore -srckeystore {store} -destkeystore client.p12 "
            "-deststoretype PKCS12. Then set ssl.keystore.type=PKCS12 and ssl.keystore.location=client.p12, which "
            "Kafka's own tools take too.",
        )
    left.pop("ssl.key.password", None)  # in PKCS12 the store's password is the key's
    return {"ssl.keystore.location": store} | ({} if password is None else {"ssl.keystore.password": password})


def _form(file: str, name: str) -> str:
    """Tell the form of a store by its first bytes: its type is often left out, and often wrong."""
    content = _read(file, name)
    if content.startswith((b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")):
        return "JKS"
    if b"-----BEGIN " in content:
        return "PEM"
    return "PKCS12" if content.startswith(b"\x30") else "another form"


def _pem_in_lines(text: str) -> str:
    """Put PEM into lines as OpenSSL reads it. The JVM client also takes PEM in one line."""

    def in_lines(block: re.Match[str]) -> str:
        label, body = block["label"], "".join(block["body"].split())
        lines = [body[begin : begin + 64] for begin in range(0, len(body), 64)]
        return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""])

    blocks = re.finditer(
        r"-----BEGIN (?P<label>[A-Z0-9 ]+)-----(?P<body>[A-Za-z0-9+/=\s]+)-----END (?P=label)-----", text
    )
    return "".join(map(in_lines, blocks)) or text


def read_properties(file: Path) -> dict[str, str]:
    """Read a file with client properties: in the syntax of Java's properties, or a JSON object.

    Raises:
        Refused: The file cannot be read, or it is no JSON object.
    """
    content = _read(str(file), "client properties")
    if content.lstrip().startswith(b"{"):
        return parse_json(content, str(file))
    # Java reads its properties in this encoding, and so do Kafka's own tools.
    return parse_properties(content.decode("latin-1"))


def parse_json(text: str | bytes, subject: str) -> dict[str, str]:
    """Read a JSON object with client properties.

    Raises:
        Refused: The text is no JSON object. The error names the subject.
    """
    try:
        return as_text(dict(json.loads(text)))
    except (ValueError, TypeError):  # the message would show a part of the text
        raise Refused(subject, expected="client properties as a JSON object", observed="other text") from None


def as_text(properties: Mapping[str, object]) -> dict[str, str]:
    """Return the values as text, as both clients take them. Properties without a value are left out."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in properties.items()
        if value is not None
    }


def _read_text(file: str, name: str) -> str:
    return _read(file, name).decode("utf-8", errors="replace")


def _read(file: str, name: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise Refused(
            f"{name} {file}",
            expected="a file that can be read",
            observed=error.strerror or str(error),
            remedy="Look at its path and its permissions, on this host.",
        ) from error
