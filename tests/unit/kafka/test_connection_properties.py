"""Which of the given properties are used, and what is said of the others."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from streamplan.errors import Refused
from streamplan.kafka.brokers import PROPERTIES_VARIABLE, Brokers
from streamplan.kafka.connection_properties import connection_properties
from streamplan.kafka.given_properties import GivenProperties

from tests.support.property_files import LOGIN, REFUSED, TAKEN, PropertyFile

SERVERS = "one:1"


@pytest.mark.parametrize("file", TAKEN, ids=lambda file: file.name)
def test_a_job_reads_what_was_handed_over_as_it_was(file: PropertyFile, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_bytes(file.text.encode("latin-1"))
    brokers = Brokers.from_properties(path, servers=SERVERS)
    assert Brokers.from_environment(SERVERS, brokers.hand_over(tmp_path / "handed over")) == Brokers(
        SERVERS, brokers.properties
    )


@pytest.mark.parametrize("file", REFUSED, ids=lambda file: file.name)
def test_a_refusal_names_the_file_and_shows_no_secret(file: PropertyFile, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_bytes(file.text.replace('"pw"', '"s3cret"').encode("latin-1"))
    with pytest.raises(Refused, match=file.refused) as refused:
        Brokers.from_environment(SERVERS, {PROPERTIES_VARIABLE: str(path)})
    assert str(path) in str(refused.value)
    assert "s3cret" not in f"{refused.value!r} {refused.value} {refused.value.__cause__!r}"


def test_a_file_may_begin_with_a_mark_of_its_encoding(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    expected = Brokers.from_connection({"bootstrap.servers": SERVERS, "security.protocol": "SSL"})
    text = f"# ä\nbootstrap.servers={SERVERS}\nsecurity.protocol=SSL\n"
    document = json.dumps({"bootstrap.servers": SERVERS, "security.protocol": "SSL"})
    for content in (text, document):
        for encoding in ("utf-8-sig", "utf-16", "utf-8"):
            path.write_bytes(content.encode(encoding))
            assert Brokers.from_properties(path) == expected
    assert Brokers.from_environment("", {PROPERTIES_VARIABLE: "\ufeff" + document}) == expected


def test_what_is_not_used_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "client.properties"
    path.write_text(LOGIN + "acks=all\nssl.client.auth=none\nmine=1\nssl.protocol=TLSv1.3\n")
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            Brokers.from_properties(path, servers=SERVERS)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", f"{path}: acks, ssl.client.auth do not say how to connect, and are not used"),
        ("WARNING", f"{path}: no client of Kafka has mine; not used"),
        ("INFO", f"{path}: ssl.protocol are not used with security.protocol=SASL_PLAINTEXT"),
    ]


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"security.protocol": ["SSL"]}, r"security\.protocol .*expected a text, observed a list"),
        ({"sasl.mechanism": {"a": 1}}, r"sasl\.mechanism .*observed an object"),
        ({"kafka": {"security.protocol": "SSL"}}, r"kafka .*an object with security\.protocol"),
        ({"config": '{"bootstrap_servers": "b:1"}'}, r"config .*an object with bootstrap_servers"),
        ({"bootstrap_servers": "b:1"}, r"Did you mean bootstrap\.servers"),
        ({" security.protocol": "SSL"}, r"Did you mean security\.protocol"),
        ({"ssl_certfile": "/c"}, r"Did you mean ssl\.certificate\.location"),
        ({"sasl_plain_password": "s3cret"}, r"Did you mean sasl\.password"),
        ({"password": "s3cret"}, r"Did you mean sasl\.password"),
        ({"schema_registry_url": "http://r"}, r"Did you mean schema\.registry\.url"),
        ({"schema.registry.urls": "http://r"}, r"Did you mean schema\.registry\.url"),
        ({"metadata.broker.list": "two:2"}, r"metadata\.broker\.list"),
    ],
)
def test_nothing_that_says_how_to_connect_is_dropped(extra: dict[str, object], message: str) -> None:
    with pytest.raises(Refused, match=message) as refused:
        Brokers.from_connection({"bootstrap.servers": SERVERS, **extra})
    assert "s3cret" not in str(refused.value)


def test_a_user_that_only_the_registry_is_given_is_kept() -> None:
    user = {"sasl.username": "me", "sasl.password": "pw"}
    given = {"bootstrap.servers": SERVERS, "basic.auth.credentials.source": "SASL_INHERIT", **user}
    for protocol in ({}, {"security.protocol": "PLAINTEXT"}):
        brokers = Brokers.from_connection({**given, **protocol})
        assert brokers.properties == {**protocol, **user}
        brokers.producer()
        assert not [name for name in brokers.spark_options() if "sasl" in name]


def test_values_of_json_are_the_texts_of_the_clients() -> None:
    given = {
        "bootstrap.servers": ["one:1", "two:2"],
        "security.protocol": "ssl ",
        "enable.ssl.certificate.verification": True,
        "ssl.enabled.protocols": ["TLSv1.2", "TLSv1.3"],
        "ssl.key.password": None,
        "topics": ["theirs"],
        "theirs": {"a": 1},
    }
    assert connection_properties(GivenProperties(given, "it")) == {
        "bootstrap.servers": "one:1,two:2",
        "security.protocol": "SSL",
        "enable.ssl.certificate.verification": "true",
        "ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
    }
    text = json.dumps(json.dumps({"metadata.broker.list": "one:1"}))
    assert Brokers.from_connection(text) == Brokers.from_connection({"bootstrap.servers": "one:1"}) == Brokers("one:1")
    for broken in ("[]", "1", "{", '"x"', "true"):
        with pytest.raises(Refused, match="connection kafka_default: expected client properties as a JSON object"):
            Brokers.from_connection(broken)
