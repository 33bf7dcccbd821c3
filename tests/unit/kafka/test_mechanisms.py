"""Each mechanism of SASL: what is refused, and that who follows the advice of the error is let through."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import ModuleType

import pytest
from streamplan.errors import Refused
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.mechanisms import MSK_HANDLER, OAUTHBEARER, PLAIN, SCRAM

BASE = {"bootstrap.servers": "one:1", "security.protocol": "SASL_SSL"}
USER = {"sasl.username": "me", "sasl.password": "pw"}
OIDC = {
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
    "sasl.oauthbearer.client.id": "me",
    "sasl.oauthbearer.client.secret": "x",
}
FUNCTION = {"oauth_cb": "of_a_user.token", "sasl.login.callback.handler.class": MSK_HANDLER}
KRB5 = "com.sun.security.auth.module.Krb5LoginModule"

# What is given; what the advice adds; what it has one leave out.
WALKS: dict[str, tuple[Mapping[str, str], Mapping[str, str], tuple[str, ...]]] = {
    "PLAIN": ({"sasl.mechanism": "PLAIN"}, USER, ()),
    "SCRAM-SHA-256": ({"sasl.mechanism": "SCRAM-SHA-256"}, USER, ()),
    "SCRAM-SHA-512": ({"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "me"}, {"sasl.password": "pw"}, ()),
    "none": ({**USER}, {"sasl.mechanism": "SCRAM-SHA-512"}, ()),
    "Kerberos": (
        {
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "sasl.jaas.config": f'{KRB5} required useKeyTab=true keyTab="/k" principal="me";',
        },
        {"sasl.mechanism": "SCRAM-SHA-512", **USER},
        ("sasl.kerberos.service.name", "sasl.jaas.config"),
    ),
    "Amazon MSK with IAM": (
        {
            "sasl.mechanism": "AWS_MSK_IAM",
            "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
            "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
        },
        {"sasl.mechanism": "OAUTHBEARER", **FUNCTION},
        ("sasl.jaas.config", "sasl.client.callback.handler.class"),
    ),
    "OAUTHBEARER, then OpenID Connect": ({"sasl.mechanism": "OAUTHBEARER"}, OIDC, ()),
    "OAUTHBEARER, then a function": ({"sasl.mechanism": "OAUTHBEARER"}, FUNCTION, ()),
    "OAUTHBEARER without an address": (
        {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "OIDC"},
        {name: value for name, value in OIDC.items() if name != "sasl.oauthbearer.method"},
        (),
    ),
    "unsecured tokens": (
        {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f'{OAUTHBEARER} required unsecuredLoginStringClaim_sub="me";',
        },
        OIDC,
        ("sasl.jaas.config",),
    ),
    "a class of a cloud": (
        {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{OAUTHBEARER} required;",
            "sasl.login.callback.handler.class": "com.cloud.Handler",
        },
        {"oauth_cb": "of_a_user.token"},
        (),
    ),
    "another login module": (
        {"sasl.mechanism": "PLAIN", "sasl.jaas.config": 'my.LoginModule required username="a" password="b";'},
        {"sasl.jaas.config": f'{PLAIN} required username="a" password="b";'},
        (),
    ),
    "a delegation token": (
        {
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": f'{SCRAM} required username="a" password="b" tokenauth="true";',
        },
        {"sasl.jaas.config": f'{SCRAM} required username="streamplan" password="b";'},
        (),
    ),
}


@pytest.mark.parametrize("walk", WALKS, ids=lambda name: name)
def test_who_follows_the_advice_of_a_refusal_is_let_through(walk: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given, added, left_out = WALKS[walk]
    with pytest.raises(Refused) as refused:
        Brokers.from_connection({**BASE, **given})
    advice = str(refused.value)
    assert "connection kafka_default" in advice
    for name in (*added, *left_out):
        part = name.removesuffix(".service.name")
        assert part in advice, advice
    assert "keyTab" not in advice
    if "oauth_cb" in added:
        assert "STREAMPLAN_TOKEN_CALLBACKS" in advice
        monkeypatch.setenv("STREAMPLAN_TOKEN_CALLBACKS", added["oauth_cb"])
        module = ModuleType("of_a_user")
        module.token = lambda config: ("a.b.c", time.time() + 3600)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
    followed = {name: value for name, value in {**BASE, **given, **added}.items() if name not in left_out}
    brokers = Brokers.from_connection(followed)
    brokers.admin()
    assert brokers.spark_options()["kafka.security.protocol"] == "SASL_SSL"


def test_a_token_callback_is_judged_before_anything_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STREAMPLAN_TOKEN_CALLBACKS", raising=False)
    extra = {**BASE, "sasl.mechanism": "OAUTHBEARER", "oauth_cb": "a_module_that_is_not_there.token"}
    for protocol in ("SASL_SSL", "PLAINTEXT"):
        with pytest.raises(Refused, match=r"oauth_cb .*expected a function that STREAMPLAN_TOKEN_CALLBACKS permits"):
            Brokers.from_connection({**extra, "security.protocol": protocol})
    with pytest.raises(Refused, match="oauth_cb"):
        Brokers.from_connection({**extra, "oauth_cb": "os.system"})
    monkeypatch.setenv("STREAMPLAN_TOKEN_CALLBACKS", " os.getenv , a_module_that_is_not_there.token")
    brokers = Brokers.from_connection(extra)
    with pytest.raises(Refused, match="No module named"):
        brokers.client_configs()
