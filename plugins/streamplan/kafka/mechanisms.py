"""What each mechanism of SASL needs in both clients, and the one way that there is where a client does not have it."""

from __future__ import annotations

from collections.abc import Mapping

from streamplan.errors import Refused
from streamplan.kafka.connection_properties import TOKEN_CALLBACK

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
OAUTHBEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
MSK_HANDLER = "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler"

CALLBACKS_VARIABLE = "STREAMPLAN_TOKEN_CALLBACKS"

_FUNCTION = (
    f"{TOKEN_CALLBACK} with the dotted path of a Python function that returns a token, and permit this function with "
    f"{CALLBACKS_VARIABLE} in the environment. For Spark add sasl.login.callback.handler.class with the Java class of "
    "your cloud, and its jar to STREAMPLAN_JARS"
)
_OIDC = (
    "sasl.oauthbearer.method=oidc, sasl.oauthbearer.token.endpoint.url, sasl.oauthbearer.client.id and "
    "sasl.oauthbearer.client.secret"
)


def require_mechanism(properties: Mapping[str, str]) -> None:
    """Refuse a mechanism that librdkafka does not have.

    Args:
        properties: Of one who logs in, by the names of either client.

    Raises:
        Refused: The mechanism is none, Kerberos, or Amazon's. The error says how one logs in instead.
    """
    mechanism = properties.get("sasl.mechanism")
    if mechanism is None:
        raise Refused(
            "sasl.mechanism",
            expected="PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER",
            observed="none, by which both clients take Kerberos (GSSAPI)",
            remedy="Add what the brokers have for this user.",
        )
    if mechanism == "GSSAPI":
        raise Refused(
            "sasl.mechanism",
            expected="PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER",
            observed="GSSAPI: Streamplan does not log in by Kerberos, because the librdkafka in confluent-kafka's "
            "packages is built without it",
            remedy="Ask the brokers' administrator for a user with a password on a listener with SCRAM-SHA-512, and "
            "set sasl.mechanism=SCRAM-SHA-512, sasl.username, sasl.password and the address of this listener; or for a "
            "certificate on a listener with mutual TLS. Leave sasl.kerberos.* and sasl.jaas.config out.",
        )
    if mechanism == "AWS_MSK_IAM":
        raise Refused(
            "sasl.mechanism",
            expected="OAUTHBEARER, by which Amazon MSK takes the same IAM identity at the same address",
            observed="AWS_MSK_IAM, which only a class of Java has",
            remedy=f"Set sasl.mechanism=OAUTHBEARER, sasl.login.callback.handler.class={MSK_HANDLER} and "
            f"{TOKEN_CALLBACK} with the dotted path of the Python function in docs/security.md. Leave "
            "sasl.jaas.config and sasl.client.callback.handler.class out. Permit the function with "
            f"{CALLBACKS_VARIABLE} in the environment.",
        )


def require_password_options(options: Mapping[str, str]) -> None:
    """Refuse an option of a login module with a password that librdkafka cannot follow.

    Args:
        options: Those of the line ``sasl.jaas.config``.

    Raises:
        Refused: It logs in with a delegation token.
    """
    if options.get("tokenauth", "").lower() == "true":
        raise Refused(
            "sasl.jaas.config",
            expected='no tokenauth="true", because librdkafka cannot log in with a delegation token',
            observed="a delegation token",
            remedy="Give Streamplan a user of its own: kafka-configs.sh --alter --entity-type users --entity-name "
            "streamplan --add-config 'SCRAM-SHA-512=[password=…]'. Write its name and password, without tokenauth.",
        )


def require_credentials(properties: Mapping[str, str]) -> None:
    """Refuse a login that would wait for a credential that nobody gives.

    Args:
        properties: Of one who logs in, as librdkafka takes them.

    Raises:
        Refused: A user, a password, a token callback, or what OpenID Connect needs is missing.
    """
    if properties["sasl.mechanism"] != "OAUTHBEARER":
        _require(properties, ("sasl.username", "sasl.password"), "or sasl.jaas.config with both")
        return
    if properties.get("sasl.oauthbearer.method") == "oidc":
        if properties.get("sasl.oauthbearer.metadata.authentication.type", "none") != "none":
            return
        needed: tuple[str, ...] = ("sasl.oauthbearer.token.endpoint.url",)
        if properties.get("sasl.oauthbearer.grant.type", "client_credentials") == "client_credentials":
            needed += ("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret")
        _require(properties, needed, "")
        return
    if TOKEN_CALLBACK not in properties:
        raise Refused(
            "sasl.mechanism OAUTHBEARER",
            expected=f"{_OIDC}; or {TOKEN_CALLBACK}",
            observed="neither, so nobody would give a token",
            remedy=f"With OpenID Connect add {_OIDC}, and leave sasl.jaas.config out. "
            f"With a cloud's own tokens add {_FUNCTION} (docs/security.md).",
        )


def _require(properties: Mapping[str, str], names: tuple[str, ...], otherwise: str) -> None:
    missing = [name for name in names if not properties.get(name)]
    if missing:
        raise Refused(
            f"client properties for sasl.mechanism {properties['sasl.mechanism']}",
            expected=" ".join(filter(None, (", ".join(names), otherwise))),
            observed=f"no {', no '.join(missing)}",
            remedy=f"Add {', '.join(missing)} where sasl.mechanism stands.",
        )


def no_java_class(module: str) -> Refused:
    """Return the error about a login module that librdkafka cannot run.

    Args:
        module: The class, or what is said instead of it.
    """
    return Refused(
        "sasl.jaas.config",
        expected=f"the login module {SCRAM}, {PLAIN} or {OAUTHBEARER}",
        observed=module,
        remedy=f"librdkafka runs no Java class. With a password write the login module of sasl.mechanism. With "
        f"OAUTHBEARER write {OAUTHBEARER} required; and add {_FUNCTION} (docs/security.md).",
    )
