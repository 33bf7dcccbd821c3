"""The secured brokers of one machine: who may connect, and who may do what."""

from __future__ import annotations

import os
import stat
import subprocess
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AclOperation, NewTopic, ResourceType
from streamplan.java import require_java
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.client_properties import jvm_properties
from streamplan.local.brokers import NODES
from streamplan.local.jars import BROKERS, require

from tests.support.secured_brokers import SecuredBrokers
from tests.support.waiting import eventually


def topics(brokers: Brokers) -> set[str]:
    return set(brokers.admin().list_topics(timeout=60).topics)


def new_topic(brokers: Brokers) -> str:
    name = f"topic-{uuid.uuid4().hex[:12]}"
    admin = brokers.admin()
    admin.create_topics([NewTopic(name, 1, 2)])[name].result(120)
    return name


def test_the_super_user_may_do_all_by_password_and_by_certificate(secured_brokers: SecuredBrokers) -> None:
    for brokers in (secured_brokers.super_user, secured_brokers.super_user_by_certificate):
        name = new_topic(brokers)
        secured_brokers.await_topics(name)
        assert name in topics(brokers)


@pytest.mark.parametrize("listener", ["password", "certificate"])
def test_a_user_may_do_what_an_acl_says_and_nothing_else(secured_brokers: SecuredBrokers, listener: str) -> None:
    name = new_topic(secured_brokers.super_user)
    secured_brokers.await_topics(name)
    user = f"user-{uuid.uuid4().hex[:8]}"
    brokers = secured_brokers.scram_user(user) if listener == "password" else secured_brokers.certificate_user(user)
    assert name not in topics(brokers)
    with pytest.raises(KafkaException) as refused:
        new_topic(brokers)
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    secured_brokers.allow(user, ResourceType.TOPIC, name, [AclOperation.DESCRIBE])
    eventually(lambda: name in topics(brokers), "the ACL is known")


def test_nobody_gets_in_without_a_password_or_a_certificate(secured_brokers: SecuredBrokers) -> None:
    servers = secured_brokers.super_user.servers
    authority = {"ssl.ca.location": str(secured_brokers.security.authority_file)}
    strangers = (
        Brokers(servers),
        Brokers(servers, {"security.protocol": "SSL", **authority}),
        Brokers(secured_brokers.super_user_by_certificate.servers, {"security.protocol": "SSL", **authority}),
        replace(
            secured_brokers.super_user, properties={**secured_brokers.super_user.properties, "sasl.password": "wrong"}
        ),
    )

    def ask(stranger: Brokers) -> None:
        with pytest.raises(KafkaException):
            stranger.admin().list_topics(timeout=5)

    with ThreadPoolExecutor(len(strangers)) as pool:  # each waits for all of its time
        assert [*pool.map(ask, strangers)] == [None] * len(strangers)


def test_secrets_are_in_private_files_and_on_no_command_line(secured_brokers: SecuredBrokers) -> None:
    home = secured_brokers.security.directory.parent
    password = secured_brokers.super_user.properties["sasl.password"]
    for file in home.rglob("*"):
        if file.is_file() and stat.S_IMODE(file.stat().st_mode) & 0o077:
            content = file.read_bytes()
            assert password.encode() not in content, file
            assert b"PRIVATE KEY" not in content, file
    for node in NODES:
        ref = secured_brokers.kafka.process(node)
        assert ref is not None
        process = psutil.Process(ref.pid)
        assert password not in " ".join([*process.cmdline(), *process.environ().values()])
    assert not list(home.rglob("users"))


@pytest.mark.parametrize("secret", ["plain", "with \"quotes\" and 'others'", "back\\slash\\", "a=b;c #!:", "// ä ☃"])
def test_the_jvm_logs_in_with_our_translation(secured_brokers: SecuredBrokers, secret: str, tmp_path: Path) -> None:
    """Kafka's own tool reads the file that we would write, and we read the same file."""
    user = secured_brokers.scram_user(password=secret)
    properties = {"bootstrap.servers": user.servers, **jvm_properties(user.properties)}
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={java_escaped(value)}\n" for name, value in properties.items()))
    assert Brokers.from_properties(file) == user
    assert "topic" not in kafka_topics(user.servers, file)


def test_the_jvm_logs_in_with_our_certificates(secured_brokers: SecuredBrokers, tmp_path: Path) -> None:
    brokers = secured_brokers.super_user_by_certificate
    name = new_topic(brokers)
    secured_brokers.await_topics(name)
    file = tmp_path / "client.properties"
    file.write_text(
        "".join(f"{key}={java_escaped(value)}\n" for key, value in jvm_properties(brokers.properties).items())
    )
    assert name in kafka_topics(brokers.servers, file).split()
    assert name in topics(Brokers.from_properties(file, servers=brokers.servers))


def java_escaped(value: str) -> str:
    """As Java's ``Properties.store`` writes a value."""
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n")
    return "".join(char if " " <= char <= "~" else f"\\u{ord(char):04x}" for char in escaped)


def kafka_topics(servers: str, config: Path) -> str:
    """What Kafka's own tool says of the topics that this user sees."""
    done = subprocess.run(
        [
            *(str(require_java(os.environ) / "bin" / "java"), "-cp", f"{require(BROKERS, os.environ)}/*"),
            *("kafka.admin.ConfigCommand", "--bootstrap-server", servers, "--command-config", str(config)),
            *("--describe", "--entity-type", "topics"),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
