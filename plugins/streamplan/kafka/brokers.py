"""How every reading and administering client connects: one set of configs, one deadline, one way to fail."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any, Never, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from streamplan.errors import BrokersUnavailable

ANSWER_SECONDS = 10.0
"""How long one answer is waited for. Long enough for the election of a leader or of a group's coordinator."""

_PASSING = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
}
_STALE = {KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH}
"""A client that was open while a broker was away can keep its former leader's epoch for good; another one asks anew."""

_RETRY_SECONDS = 0.01
_PROBE_SECONDS = 1.0
_DEFAULT_PORT = "9092"
_ACCEPTS = "accepts connections"

Answer = TypeVar("Answer")


def client_config(bootstrap_servers: str, **more: Any) -> dict[str, Any]:
    """Config of a librdkafka client. ``more`` is written with underscores for dots: ``group_id="x"``."""
    return {
        "bootstrap.servers": bootstrap_servers,
        "client.id": "streamplan",
        # librdkafka writes to stderr by itself; what it has to say reaches people through our errors.
        "log_level": 2,
        "socket.timeout.ms": int(ANSWER_SECONDS * 1000),
        "reconnect.backoff.max.ms": 1000,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def admin_client(bootstrap_servers: str) -> AdminClient:
    return AdminClient(client_config(bootstrap_servers))


def ask(
    question: Callable[[float], Answer],
    about: str,
    bootstrap_servers: str,
    seconds: float,
    *,
    reopen: Callable[[], None] = lambda: None,
) -> Answer:
    """The answer to ``question``, asked again while the cluster is electing a leader or loading a coordinator.

    ``question`` is given the seconds that are left and raises ``KafkaException``. ``reopen`` gives it another client.
    Raises :class:`BrokersUnavailable`.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return question(max(deadline - time.monotonic(), 0.1))
        except (KafkaException, TimeoutError) as error:
            if code_of(error) not in _PASSING or time.monotonic() > deadline:
                raise_no_answer(error, about, bootstrap_servers, seconds)
            if code_of(error) in _STALE:
                reopen()
        time.sleep(_RETRY_SECONDS)


def code_of(error: BaseException) -> int | None:
    """The ``KafkaError`` code of an exception, None for one that is not Kafka's."""
    return int(error.args[0].code()) if isinstance(error, KafkaException) else None


_FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError._FATAL}


def is_fenced(error: BaseException) -> bool:
    """Whether a transactional producer may write no more, for a newer one has its transactional id.

    It hears so where it happens to talk to a broker; afterwards librdkafka calls each further call fatal and no more.
    """
    return code_of(error) in _FENCED


def raise_no_answer(error: BaseException, question: str, bootstrap_servers: str, seconds: float) -> Never:
    """Raise :class:`BrokersUnavailable` for a client's error, with what each address answers to a plain connection."""
    raise BrokersUnavailable(
        f"Kafka at {bootstrap_servers}, asked for {question}",
        expected=f"an answer within {seconds:g} s",
        observed=f"{_reason(error)} ({'; '.join(map(_probe, bootstrap_servers.split(',')))})",
        remedy="Are the brokers up, and is this the address and port they listen on?",
    ) from error


def require_reachable(bootstrap_servers: str) -> None:
    """Raise :class:`BrokersUnavailable` at once when no address accepts a connection (clients wait their deadline)."""
    answers = [_probe(address) for address in bootstrap_servers.split(",")]
    if not any(answer.endswith(_ACCEPTS) for answer in answers):
        raise BrokersUnavailable(
            f"Kafka at {bootstrap_servers}",
            expected="a broker that accepts connections",
            observed="; ".join(answers),
            remedy="Are the brokers up, and is this the address and port they listen on?",
        )


def _reason(error: BaseException) -> str:
    if isinstance(error, KafkaException):
        return str(error.args[0].str())
    return str(error) or "none"


def _probe(address: str) -> str:
    """What a TCP connection to one bootstrap address says."""
    host, _, port = address.strip().removeprefix("PLAINTEXT://").rpartition(":")
    if not host:
        host, port = port, _DEFAULT_PORT
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _PROBE_SECONDS):
            return f"{host}:{port} {_ACCEPTS}"
    except (OSError, ValueError, OverflowError) as error:
        return f"{host}:{port}: {getattr(error, 'strerror', None) or error}"
