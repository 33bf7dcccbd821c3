"""Client properties by librdkafka's names and by the JVM client's, each translated into the other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from streamplan.errors import Refused
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.client_properties import jvm_properties, librdkafka_properties
from streamplan.kafka.given_properties import read_properties
from streamplan.kafka.java_properties import jaas_config, parse_jaas_config, parse_properties

SECRETS = [
    "plain",
    "with \"quotes\" and 'others'",
    "back\\slash\\",
    "a=b;c",
    "#!: blank at the end ",
    "//no comment /*neither*/",
    "two\nlines",
    "umlaut ä, ☃",
    '\\"',
    " ",
]
SCRAM = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "alice"}
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
OAUTHBEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
KEY = "-----BEGIN PRIVATE KEY-----\nQUJD\n-----END PRIVATE KEY-----\n"
LOCKED_KEY = KEY.replace("PRIVATE", "ENCRYPTED PRIVATE")
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nREVG\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize("secret", SECRETS)
def test_a_password_comes_back_from_the_jvm_names_as_it_was(secret: str) -> None:
    there = jvm_properties({**SCRAM, "sasl.password": secret})
    assert "sasl.password" not in there
    assert librdkafka_properties(there) == {**SCRAM, "sasl.password": secret}


def test_the_login_module_is_that_of_the_mechanism() -> None:
    secret = 'a"b\\c=d'
    assert jvm_properties({**SCRAM, "sasl.password": secret})["sasl.jaas.config"] == (
        f'{SCRAM_MODULE} required username="alice" password="a\\"b\\\\c=d";'
    )
    plain = jvm_properties({"sasl.mechanisms": "PLAIN", "sasl.username": "a", "sasl.password": "b"})
    assert plain == {
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{PLAIN_MODULE} required username="a" password="b";',
    }


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("m required;", {}),
        ("m required a=b c='d';", {"a": "b", "c": "d"}),
        ('m\n  required // a comment\n  a = "\\"\\u\\101" /* one; more */ ;', {"a": '"uA'}),
        ('m.x$y required a="#!=;";', {"a": "#!=;"}),
    ],
)
def test_jaas_is_read_as_kafka_reads_it(text: str, options: dict[str, str]) -> None:
    assert parse_jaas_config(text)[1] == options


@pytest.mark.parametrize("text", ["", "m", "m required", "m required a=;", 'm required a="s3cret;', "m required a b;"])
def test_jaas_of_another_form_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(Refused, match=r"sasl\.jaas\.config") as refused:
        parse_jaas_config(text)
    assert "s3cret" not in str(refused.value)


def test_properties_are_read_as_java_reads_them() -> None:
    text = (
        "# comment \\\n! another\r\n\n"
        "a=b\n  c : d\ne f g \n"
        "goes = on \\\n     here, \\\n\t and here\n"
        "escaped\\ \\=\\:name=\\u00e4\\t\\\\\\n\n"
        "no.value\nempty=\n"
        "even=\\\\\nlast=\\"
    )
    assert {name: value for name, (value, _) in parse_properties(text).items()} == {
        "a": "b",
        "c": "d",
        "e": "f g ",
        "goes": "on here, and here",
        "escaped =:name": "ä\t\\\n",
        "no.value": "",
        "empty": "",
        "even": "\\",
        "last": "",
    }
    assert [line for _, line in parse_properties(text).values()] == [4, 5, 6, 7, 10, 11, 12, 13, 14]
    [pair] = parse_properties("smile=\\ud83d\\ude00").values()
    assert pair == ("\N{GRINNING FACE}", 1)


def test_oidc_has_the_login_module_and_the_handler_that_every_jvm_client_has() -> None:
    oidc = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": 's"x',
        "sasl.oauthbearer.scope": "kafka",
        "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,identityPoolId=pool-2",
        "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
    }
    there = jvm_properties(oidc)
    assert there["sasl.login.callback.handler.class"] == (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
    )
    assert parse_jaas_config(there["sasl.jaas.config"]) == (
        OAUTHBEARER,
        {
            "clientId": "me",
            "clientSecret": 's"x',
            "scope": "kafka",
            "extension_logicalCluster": "lkc-1",
            "extension_identityPoolId": "pool-2",
        },
    )
    assert librdkafka_properties(there) == oidc
    with pytest.raises(Refused, match=r"sasl\.oauthbearer\.grant\.type"):
        jvm_properties({**oidc, "sasl.oauthbearer.grant.type": "urn:ietf:params:oauth:grant-type:jwt-bearer"})


def test_oidc_of_kafka_4_1_is_read_from_properties() -> None:
    assert librdkafka_properties(
        {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.login.callback.handler.class": (
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
            ),
            "sasl.oauthbearer.client.credentials.client.id": "me",
            "sasl.oauthbearer.client.credentials.client.secret": "x",
            "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
        }
    ) == {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": "x",
        "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
    }


def test_a_token_callback_needs_a_class_of_the_jvm_for_spark() -> None:
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "oauth_cb": "os.getenv"}
    with pytest.raises(Refused, match=r"oauth_cb: expected also sasl\.login\.callback\.handler\.class"):
        jvm_properties(given)
    both = {**given, "sasl.login.callback.handler.class": "com.cloud.Handler"}
    assert jvm_properties(both) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": "com.cloud.Handler",
        "sasl.jaas.config": f"{OAUTHBEARER} required;",
    }
    assert Brokers("one:1", both).client_configs()["oauth_cb"] is __import__("os").getenv
    assert "sasl.login.callback.handler.class" not in Brokers("one:1", both).client_configs()


@pytest.mark.parametrize("path", ["nothing", "no.such.module", "os.no_such_name", "os.sep"])
def test_a_token_callback_that_is_none_is_refused(path: str) -> None:
    with pytest.raises(Refused, match="client property oauth_cb"):
        Brokers("one:1", {"oauth_cb": path}).client_configs()


def test_a_java_class_that_logs_in_is_refused_without_a_function() -> None:
    given = {
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
    }
    with pytest.raises(Refused, match=r"IAMLoginModule.*oauth_cb"):
        librdkafka_properties(given)
    with pytest.raises(Refused, match=r"OAUTHBEARER, by which Amazon MSK takes the same IAM identity"):
        librdkafka_properties({**given, "security.protocol": "SASL_SSL"})


def test_certificates_as_text_are_the_same_on_both_sides() -> None:
    ours = {
        "security.protocol": "SSL",
        "ssl.ca.pem": CERTIFICATE,
        "ssl.certificate.pem": CERTIFICATE,
        "ssl.key.pem": KEY,
    }
    there = jvm_properties(ours)
    assert there == {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": CERTIFICATE,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": CERTIFICATE,
        "ssl.keystore.key": KEY,
    }
    in_one_line = {name: " ".join(value.split("\n")) for name, value in there.items()}
    assert librdkafka_properties(in_one_line) == ours


def test_a_key_goes_to_the_jvm_without_a_password() -> None:
    ours = {"ssl.certificate.pem": CERTIFICATE, "ssl.key.pem": KEY, "ssl.key.password": "s3cret"}
    assert "ssl.key.password" not in jvm_properties(ours)
    for broken in (LOCKED_KEY, KEY.replace("PRIVATE", "RSA PRIVATE"), "no key"):
        with pytest.raises(Refused, match="openssl pkcs8") as refused:
            jvm_properties({**ours, "ssl.key.pem": broken})
        assert "s3cret" not in str(refused.value)
        assert "QUJD" not in str(refused.value)


def test_files_of_certificates(tmp_path: Path) -> None:
    authority, certificate, key = (tmp_path / name for name in ("ca.pem", "client.pem", "client.key"))
    authority.write_text(CERTIFICATE)
    certificate.write_text(CERTIFICATE)
    key.write_text(KEY)
    ours = {
        "ssl.ca.location": str(authority),
        "ssl.certificate.location": str(certificate),
        "ssl.key.location": str(key),
    }
    assert jvm_properties(ours) == {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": CERTIFICATE,
        "ssl.keystore.key": KEY,
    }
    both = tmp_path / "both.pem"
    both.write_text(CERTIFICATE + KEY)
    assert librdkafka_properties(
        {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(authority), "ssl.keystore.location": str(both)}
    ) == {"ssl.ca.location": str(authority), "ssl.certificate.location": str(both), "ssl.key.location": str(both)}
    with pytest.raises(Refused, match=r"a certificate .* and its key"):
        jvm_properties({"ssl.certificate.location": str(certificate)})
    with pytest.raises(Refused, match=r"ssl\.ca\.location: .*a directory|observed the directory"):
        jvm_properties({"ssl.ca.location": str(tmp_path)})
    with pytest.raises(Refused, match=r"ssl\.key\.location .*none: .*No such file"):
        jvm_properties({**ours, "ssl.key.location": str(tmp_path / "none")})


def test_stores_of_java_are_told_by_their_content(tmp_path: Path) -> None:
    jks, pkcs12 = tmp_path / "store.jks", tmp_path / "store.p12"
    jks.write_bytes(b"\xfe\xed\xfe\xed\x00")
    pkcs12.write_bytes(b"\x30\x82\x01")
    with pytest.raises(Refused, match=r"PEM.*observed JKS.*keytool -list -rfc"):
        librdkafka_properties({"ssl.truststore.location": str(jks), "ssl.truststore.password": "s3cret"})
    with pytest.raises(Refused, match=r"observed PKCS12.*keytool -list -rfc"):
        librdkafka_properties({"ssl.truststore.location": str(pkcs12), "ssl.truststore.type": "JKS"})
    with pytest.raises(Refused, match=r"observed JKS.*keytool -importkeystore") as refused:
        librdkafka_properties({"ssl.keystore.location": str(jks), "ssl.keystore.password": "s3cret"})
    assert "s3cret" not in str(refused.value)
    store = {"ssl.keystore.location": str(pkcs12), "ssl.keystore.password": "s3cret"}
    assert librdkafka_properties({**store, "ssl.keystore.type": "JKS", "ssl.key.password": "s3cret"}) == store
    assert jvm_properties(store) == {**store, "ssl.keystore.type": "PKCS12"}


def test_the_endpoint_is_identified_unless_both_sides_say_no() -> None:
    assert jvm_properties({"ssl.endpoint.identification.algorithm": "none"}) == {
        "ssl.endpoint.identification.algorithm": ""
    }
    assert librdkafka_properties({"ssl.endpoint.identification.algorithm": ""}) == {
        "ssl.endpoint.identification.algorithm": "none"
    }
    with pytest.raises(Refused, match=r"ssl\.ca\.location"):
        jvm_properties({"enable.ssl.certificate.verification": "false"})
    assert jvm_properties({"enable.ssl.certificate.verification": "true"}) == {}


@pytest.mark.parametrize("name", ["ssl.crl.location", "sasl.kerberos.keytab", "enable.sasl.oauthbearer.unsecure.jwt"])
def test_what_the_jvm_client_does_not_have_is_refused_by_name(name: str) -> None:
    with pytest.raises(Refused, match=name.replace(".", r"\.")) as refused:
        jvm_properties({name: "s3cret"})
    assert "s3cret" not in str(refused.value)


def test_values_of_config_providers_are_refused() -> None:
    given = {"bootstrap.servers": "one:1", "config.providers": "file", "acks": "all"}
    with pytest.raises(Refused, match=r"config\.providers \(connection kafka_default\).*Write the values"):
        Brokers.from_connection(given)


def test_a_file_may_be_json_or_of_kafkas_tools(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "bootstrap.servers=one:1\nsecurity.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nacks=all\n"
        f'sasl.jaas.config={SCRAM_MODULE} required \\\n  username="alice" \\\n  password="a\\\\"b=c\\\\\\\\d";\n'
        "ssl.protocol=TLSv1.3\n"
    )
    expected = {**SCRAM, "sasl.password": 'a"b=c\\d', "ssl.protocol": "TLSv1.3"}
    read = Brokers.from_properties(file)
    assert (read.servers, dict(read.properties)) == ("one:1", expected)
    assert read.client_configs().keys() & {"ssl.protocol", "acks"} == set()
    assert read.spark_options()["kafka.ssl.protocol"] == "TLSv1.3"
    file.write_text(json.dumps({**SCRAM, "sasl.password": "ä"}))
    assert read_properties(file).values["sasl.password"] == "ä"
    file.write_text('{"sasl.password": "s3cret"')
    with pytest.raises(Refused) as refused:
        read_properties(file)
    assert "s3cret" not in str(refused.value)


def test_what_librdkafka_does_not_take_is_refused_when_a_client_is_opened() -> None:
    with pytest.raises(Refused, match=r"no\.such|sasl\.nothing.*docs/security\.md"):
        Brokers("one:1", {"sasl.nothing": "x"}).admin()
    assert jaas_config("m", {}) == "m required;"
