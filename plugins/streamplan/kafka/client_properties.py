"""Client properties by librdkafka's names, and by those of Kafka's JVM client: each translated into the other.

Inside Streamplan properties have librdkafka's names. Kafka's own tools and Spark's Kafka source have the JVM client's.
Where one side cannot do what the other one says, the translation is refused, and the error says what to do instead.
No error shows a value, because it may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from streamplan.errors import Refused
from streamplan.kafka.connection_properties import GROUP_PROTOCOL, TOKEN_CALLBACK
from streamplan.kafka.given_properties import read_file
from streamplan.kafka.java_properties import jaas_config, parse_jaas_config
from streamplan.kafka.mechanisms import (
    OAUTHBEARER,
    PLAIN,
    SCRAM,
    no_java_class,
    require_credentials,
    require_mechanism,
    require_password_options,
)
from streamplan.kafka.private_keys import pkcs8
from streamplan.kafka.property_table import JVM, JVM_SINCE_4, LIBRDKAFKA

_NOT_FOR_BOTH = {
    "config.providers": "Write the values that they would provide",
    "ssl.cipher.suites": "Java and OpenSSL have other names for the same suites. Set ssl.cipher.suites of the brokers",
    "ssl.engine.factory.class": "Name the certificates with ssl.truststore.* and ssl.keystore.*, or ssl.ca.location",
}
"""Properties that one of the two clients cannot follow, and what to do instead."""

_JVM_ALONE = {
    name
    for name in {*JVM, *JVM_SINCE_4} - LIBRDKAFKA.keys() - _NOT_FOR_BOTH.keys()
    if name.startswith(("sasl.", "ssl.", "security."))
    and not name.startswith("sasl.oauthbearer.assertion.")
    and name != "sasl.oauthbearer.jwt.retriever.class"
    and not re.match(r"ssl\.(truststore|keystore)\.", name)
}
"""Properties that only the JVM client has. They are handed to it as they are, and left out for librdkafka.

librdkafka agrees with the brokers on a version of TLS by itself, and has OpenSSL for what Java has providers for.
"""

_LIBRDKAFKA_ALONE = ("ssl.providers", "ssl.ca.certificate.stores")
"""Where librdkafka finds its ciphers and, on Windows, its authorities. The JVM client has its own."""

_BOTH = ("sasl.oauthbearer.sub.claim.name",)

_OIDC_RETRIEVERS = ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever")

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
    made |= {name: left.pop(name) for name in _BOTH if name in left}
    for name in _LIBRDKAFKA_ALONE:
        left.pop(name, None)
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
    username, password = left.pop("sasl.username", ""), left.pop("sasl.password", "")
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
        return sasl | ({"sasl.jaas.config": jaas_config(OAUTHBEARER, {})} if token_callback else {})
    if mechanism == "PLAIN" or mechanism.startswith("SCRAM-"):
        require_credentials({"sasl.mechanism": mechanism, "sasl.username": username, "sasl.password": password})
        module = PLAIN if mechanism == "PLAIN" else SCRAM
        return sasl | {"sasl.jaas.config": jaas_config(module, {"username": username, "password": password})}
    require_mechanism(sasl)
    return sasl


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
        "sasl.jaas.config": jaas_config(OAUTHBEARER, options | authorities),
        "sasl.login.callback.handler.class": _OIDC_HANDLER,
    }
    if endpoint := left.pop("sasl.oauthbearer.token.endpoint.url", ""):
        oidc["sasl.oauthbearer.token.endpoint.url"] = endpoint
    return oidc


def _jvm_stores(left: dict[str, str]) -> dict[str, str]:
    """Take the properties of certificates and keys from ``left``."""
    stores = _authorities(left, "ssl.ca.location", "ssl.ca.pem")
    key_password = left.pop("ssl.key.password", None)
    name = "ssl.key.pem" if left.get("ssl.key.pem") else "ssl.key.location"
    certificate = _text(left, "ssl.certificate.location", "ssl.certificate.pem")
    key = _text(left, "ssl.key.location", "ssl.key.pem")
    if store := left.pop("ssl.keystore.location", ""):
        stores |= {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": store}
        stores["ssl.keystore.password"] = left.pop("ssl.keystore.password", "")
        if not stores["ssl.keystore.password"]:
            raise Refused(
                "ssl.keystore.password",
                expected="the password of ssl.keystore.location, without which Kafka's JVM client opens no store",
                observed="none",
                remedy="Add it where ssl.keystore.location stands.",
            )
    elif certificate or key:
        _require_pair(certificate, key)
        stores |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": certificate}
        # No password goes with it: the JVM client would take the password of a key that has none for a fault.
        stores["ssl.keystore.key"] = pkcs8(key, key_password, name)
    return stores


def _read_text(file: str, name: str) -> str:
    return read_file(file, name).decode("utf-8", errors="replace")


def _require_pair(certificate: str, key: str) -> None:
    if bool(certificate) != bool(key):
        raise Refused(
            "ssl.certificate.location, ssl.key.location",
            expected="a certificate (ssl.certificate.location) and its key (ssl.key.location), or neither",
            observed=f"no {'key' if certificate else 'certificate'}",
            remedy="Add the other one.",
        )


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
        both = f"{pem}\n{read_file(file, location).decode('utf-8', errors='replace')}" if file else pem
        return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": both}
    return {"ssl.truststore.type": "PEM", "ssl.truststore.location": file} if file else {}


def _text(left: dict[str, str], location: str, text: str) -> str:
    file = left.pop(location, "")
    return left.pop(text, "") or (_read_text(file, location) if file else "")


def librdkafka_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Translate properties of Kafka's JVM client for librdkafka. Names that librdkafka has stay as they are.

    Args:
        properties: Names and values of how to connect, see :func:`connection_properties`. Those of both clients may
            stand side by side.

    Raises:
        Refused: librdkafka has nothing like it, or a store cannot be read.
    """
    left = dict(properties)
    for name in left:
        # librdkafka has ssl.cipher.suites, too, but its names of the suites are OpenSSL's.
        instead = _NOT_FOR_BOTH.get("config.providers" if name.startswith("config.providers") else name)
        if instead is not None:
            raise Refused(
                f"client property {name}",
                expected="no such property, because librdkafka (checks, sink) and Kafka's JVM client (Spark) cannot "
                "both follow it",
                remedy=f"{instead}, and leave {name} out.",
            )
    logs_in = left.get("security.protocol", "").startswith("SASL_")
    if logs_in:
        require_mechanism(left)
    made = _librdkafka_sasl(left)
    if "ssl.keystore.type" in left or "ssl.keystore.location" in left or "ssl.keystore.key" in left:
        made |= _librdkafka_keystore(left)
    made |= _librdkafka_truststore(left, "ssl.ca.location", "ssl.ca.pem")
    for name in ("ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem", "https.ca.pem"):
        if name in left:
            left[name] = _pem_in_lines(left[name], name)
    if left.get("ssl.endpoint.identification.algorithm") == "":
        left["ssl.endpoint.identification.algorithm"] = "none"
    found = left | made
    others = found.keys() - LIBRDKAFKA.keys() - _JVM_ALONE - {GROUP_PROTOCOL, TOKEN_CALLBACK}
    if others:
        raise Refused(
            f"client properties {', '.join(sorted(others))}",
            expected="properties that librdkafka, which the checks and the sink use, has too",
            remedy="Leave them out, or see docs/security.md for what can be said instead.",
        )
    if "ssl.keystore.location" not in found:
        _require_pair(
            *(found.get(f"ssl.{part}.location") or found.get(f"ssl.{part}.pem", "") for part in ("certificate", "key"))
        )
    if logs_in:
        require_credentials(found)
    return found


def _librdkafka_sasl(left: dict[str, str]) -> dict[str, str]:
    """Take ``sasl.jaas.config`` from ``left``."""
    retriever = left.get("sasl.oauthbearer.jwt.retriever.class", "")
    if retriever.rpartition(".")[2] in _OIDC_RETRIEVERS:
        left.pop("sasl.oauthbearer.jwt.retriever.class")
        left.setdefault("sasl.login.callback.handler.class", _OIDC_HANDLER)  # its default since Kafka 4.1
    if "sasl.jaas.config" not in left:
        return _librdkafka_oidc(left, {})
    module, options = parse_jaas_config(left["sasl.jaas.config"])
    mechanism = left.get("sasl.mechanism", "")
    if module in (SCRAM, PLAIN) and mechanism != "OAUTHBEARER":
        del left["sasl.jaas.config"]
        require_password_options(options)
        login = {f"sasl.{name}": options[name] for name in ("username", "password") if name in options}
        if any(left.get(name, value) != value for name, value in login.items()):
            raise Refused(
                "sasl.jaas.config",
                expected="the same user and password as in sasl.username and sasl.password",
                observed="others",
                remedy="Leave one of the two out.",
            )
        return login
    if module == OAUTHBEARER and mechanism in ("OAUTHBEARER", ""):
        if left.get("sasl.oauthbearer.method") == "oidc":
            left.setdefault("sasl.login.callback.handler.class", _OIDC_HANDLER)
        if left.get("sasl.login.callback.handler.class") in _OIDC_HANDLERS:
            del left["sasl.jaas.config"]
            return _librdkafka_oidc(left, options)
        # librdkafka calls a function where there is one, and the JVM client has its own class. Without one, and without
        # librdkafka's own properties of OpenID Connect, the login is refused.
        if TOKEN_CALLBACK in left or left.get("security.protocol"):
            return {}
    raise no_java_class(module if re.fullmatch(r"[\w.$]+", module) else "another text")


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
    unused = [name for name in options.keys() - _OIDC_OPTIONS.keys() - extensions.keys() if not name.startswith("ssl.")]
    if unused:
        raise Refused(
            "sasl.jaas.config",
            expected=f"the options {', '.join(_OIDC_OPTIONS)}, {_EXTENSION}<name> and ssl.truststore.*",
            observed=", ".join(sorted(unused)),
            remedy="Leave them out: the login by OpenID Connect has no such options.",
        )
    return made | _librdkafka_truststore(stores, "https.ca.location", "https.ca.pem")


def _librdkafka_truststore(left: dict[str, str], location: str, text: str) -> dict[str, str]:
    """Take the JVM client's trust store from ``left``."""
    left.pop("ssl.truststore.type", None)  # the content says what it is
    password = left.pop("ssl.truststore.password", "")
    certificates, store = left.pop("ssl.truststore.certificates", ""), left.pop("ssl.truststore.location", "")
    if certificates:
        _require_no_password("ssl.truststore.password", password)
        return {text: _pem_in_lines(certificates, "ssl.truststore.certificates")}
    if not store:
        return {}
    if (form := _form(store, "ssl.truststore.location")) != "PEM":
        raise Refused(
            f"ssl.truststore.location {store}",
            expected="certificates in PEM, the only form that librdkafka reads",
            observed=form,
            remedy=f"Convert it: keytool -list -rfc -keystore {store} > ca.pem. Then set ssl.truststore.type=PEM and "
            "ssl.truststore.location=ca.pem, and leave ssl.truststore.password out. Kafka's own tools take this, too.",
        )
    _require_no_password("ssl.truststore.password", password)
    return {location: store}


def _require_no_password(name: str, password: str) -> None:
    """Refuse the password of a store in PEM, as Kafka's JVM client does."""
    if password:
        raise Refused(
            name,
            expected="no password, because a store in PEM has none",
            observed="one",
            remedy=f"Leave {name} out. The password of an encrypted key is ssl.key.password.",
        )


def _librdkafka_keystore(left: dict[str, str]) -> dict[str, str]:
    """Take the JVM client's key store from ``left``."""
    left.pop("ssl.keystore.type", None)
    store, password = left.pop("ssl.keystore.location", ""), left.pop("ssl.keystore.password", "")
    chain, key = left.pop("ssl.keystore.certificate.chain", ""), left.pop("ssl.keystore.key", "")
    if chain or key:
        _require_no_password("ssl.keystore.password", password)
        if not (chain and key):
            raise Refused(
                "ssl.keystore.key, ssl.keystore.certificate.chain",
                expected="a key and its certificates, in PEM",
                observed="one of the two",
                remedy="Add the other one.",
            )
        return {
            "ssl.certificate.pem": _pem_in_lines(chain, "ssl.keystore.certificate.chain"),
            "ssl.key.pem": _pem_in_lines(key, "ssl.keystore.key"),
        }
    if not store:
        return {}
    form = _form(store, "ssl.keystore.location")
    if form == "PEM":
        _require_no_password("ssl.keystore.password", password)
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
    # In PKCS12 the store's password is the key's.
    if left.pop("ssl.key.password", password) not in ("", password):
        raise Refused(
            "ssl.key.password",
            expected="the password of ssl.keystore.password: librdkafka opens a PKCS12 store and its key with one",
            observed="another one",
            remedy=f"Give both one password: keytool -importkeystore -srckeystore {store} -destkeystore client.p12 "
            "-deststoretype PKCS12. Then set ssl.keystore.location=client.p12, and leave ssl.key.password out.",
        )
    return {"ssl.keystore.location": store} | ({"ssl.keystore.password": password} if password else {})


def _form(file: str, name: str) -> str:
    """Tell the form of a store by its first bytes: its type is often left out, and often wrong."""
    content = read_file(file, name)
    if content.startswith((b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")):
        return "JKS"
    if b"-----BEGIN " in content:
        return "PEM"
    return "PKCS12" if content.startswith(b"\x30") else "another form"


def _pem_in_lines(text: str, name: str) -> str:
    """Put PEM into lines as OpenSSL reads it. The JVM client also takes PEM in one line."""

    def in_lines(block: re.Match[str]) -> str:
        label, body = block["label"], "".join(block["body"].split())
        lines = [body[begin : begin + 64] for begin in range(0, len(body), 64)]
        return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""])

    blocks = re.finditer(
        r"-----BEGIN (?P<label>[A-Z0-9 ]+)-----(?P<body>[A-Za-z0-9+/=\s]+)-----END (?P=label)-----", text
    )
    found = "".join(map(in_lines, blocks)) or text
    if "-----BEGIN " not in found or "\n" not in found:
        raise Refused(
            name,
            expected="PEM: -----BEGIN …-----, text in base64, -----END …-----",
            observed="another text",
            remedy="Write its lines with \\n between them, or all in one line with blanks.",
        )
    return found
