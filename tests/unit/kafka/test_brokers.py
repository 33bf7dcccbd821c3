"""The value `Brokers`, and what an answer of Kafka's clients means, without Kafka."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from streamplan.errors import Refused
from streamplan.kafka.brokers import PROPERTIES_VARIABLE, Brokers
from streamplan.kafka.requests import call_with_retry, is_fenced


@pytest.mark.parametrize(("code", "reopened"), [(KafkaError.FENCED_LEADER_EPOCH, 1), (KafkaError.NOT_COORDINATOR, 0)])
def test_a_client_that_keeps_an_old_leader_epoch_is_replaced(code: int, reopened: int) -> None:
    """Else it is asked again and again, and answers the same until the deadline."""
    answers = [KafkaException(KafkaError(code)), 7]
    opened: list[None] = []

    def question(left: float) -> int:
        answer = answers.pop(0)
        if isinstance(answer, KafkaException):
            raise answer
        return answer

    assert call_with_retry(question, "it", Brokers("127.0.0.1:1"), 5, reopen=lambda: opened.append(None)) == 7
    assert len(opened) == reopened


@pytest.mark.parametrize("code", [KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError._FATAL])
def test_a_fenced_producer_is_known_wherever_it_hears_of_it(code: int) -> None:
    """After the first answer librdkafka only says that there was a fatal error."""
    assert is_fenced(KafkaException(KafkaError(code)))


def test_another_fault_is_no_fence() -> None:
    assert not is_fenced(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
    assert not is_fenced(ValueError("x"))


SECRET = "s3cret"
SECURED = Brokers(
    "one:9092,two:9092",
    {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": SECRET,
    },
)


def test_brokers_print_without_secrets() -> None:
    assert str(SECURED) == "one:9092,two:9092"
    assert SECRET not in f"{SECURED} {SECURED!r}"


def test_brokers_can_be_pickled_compared_and_hashed() -> None:
    assert pickle.loads(pickle.dumps(SECURED)) == SECURED
    assert len({SECURED, Brokers(SECURED.servers, dict(SECURED.properties))}) == 1
    assert Brokers(SECURED.servers) != SECURED


def test_every_client_has_the_properties_and_what_it_asks_for() -> None:
    configs = SECURED.client_configs(group_id="g", socket_timeout_ms=1)
    assert configs["bootstrap.servers"] == SECURED.servers
    assert configs["sasl.password"] == SECRET
    assert (configs["group.id"], configs["socket.timeout.ms"]) == ("g", 1)


def test_brokers_are_handed_over_in_a_private_file_that_is_read_once(tmp_path: Path) -> None:
    file = tmp_path / "run" / "a job.kafka"
    environment = SECURED.hand_over(file)
    assert SECRET not in str(environment)
    assert file.stat().st_mode & 0o077 == 0
    assert Brokers.from_environment(SECURED.servers, {**environment, PROPERTIES_VARIABLE: "{}"}) == SECURED
    assert not file.exists()
    with pytest.raises(Refused, match=r"a job\.kafka: expected a file"):
        Brokers.from_environment(SECURED.servers, environment)
    assert Brokers.from_environment("one:1", Brokers("two:2").hand_over(file)) == Brokers("one:1")
    assert Brokers.from_environment("one:1", {}) == Brokers("one:1")


def test_the_environment_may_name_a_properties_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# comment\n\nbootstrap.servers = one:1\nsecurity.protocol=SSL\nssl.key.password=a=b\n")
    properties = {"security.protocol": "SSL", "ssl.key.password": "a=b"}
    assert Brokers.from_properties(file) == Brokers("one:1", properties)
    assert Brokers.from_environment("two:2", {PROPERTIES_VARIABLE: str(file)}) == Brokers("two:2", properties)


@pytest.mark.parametrize("text", ["", "{}", f'{{"sasl.password": "{SECRET}"', "/no/such/file"])
def test_an_environment_without_addresses_is_refused_and_shows_no_secret(text: str) -> None:
    with pytest.raises(Refused) as refused:
        Brokers.from_environment("", {PROPERTIES_VARIABLE: text})
    assert SECRET not in str(refused.value)


def test_a_connection_gives_addresses_and_security_and_no_settings_of_others() -> None:
    extra: dict[str, object] = {"bootstrap.servers": "one:1", "group.id": "theirs", "security.protocol": "SSL"}
    extra["enable.ssl.certificate.verification"] = True
    properties = {"security.protocol": "SSL", "enable.ssl.certificate.verification": "true"}
    assert Brokers.from_connection(extra) == Brokers("one:1", properties)
    with pytest.raises(Refused, match=r"connection kafka_default: expected bootstrap\.servers"):
        Brokers.from_connection({"security.protocol": "SSL"})


def test_spark_has_the_names_of_the_jvm_client() -> None:
    assert Brokers("one:1", {"security.protocol": "SSL"}).spark_options() == {
        "kafka.bootstrap.servers": "one:1",
        "kafka.security.protocol": "SSL",
    }
