"""How a request to the brokers waits, is repeated and fails."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Never, TypeAlias, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer

from streamplan.errors import BrokersUnavailable
from streamplan.kafka.brokers import Brokers

_TRANSIENT = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError._TIMED_OUT,  # librdkafka gives one request up after socket.timeout.ms, whatever time is left
}
_STALE = {KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH}
"""A client that was open while a broker was away can keep its former leader's epoch for good. A new one does not."""

_RETRY_SECONDS = 0.01
_PROBE_SECONDS = 1.0
_DEFAULT_PORT = "9092"
_ACCEPTS = "accepts connections"

_REMEDY = "Are the brokers up, and is this the address and port they listen on?"
_REFUSAL_SECONDS = 5.0
_CERTIFICATES = (
    "Name the authority that signed the brokers' certificates with ssl.ca.location, and this client's own certificate "
    "where the brokers ask for one. docs/security.md has examples."
)
_REFUSALS = (
    ("Authentication", "Correct sasl.username, sasl.password and sasl.mechanism."),
    ("OAUTHBEARER", "Correct what asks for the token: sasl.oauthbearer.* or oauth_cb."),
    ("certificate", _CERTIFICATES),
    ("SSL", _CERTIFICATES),
    (
        "APIVERSION_QUERY",  # a broker closes the connection at the first request where it speaks another protocol
        "Set security.protocol to what this listener speaks: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL. "
        "docs/security.md has examples.",
    ),
)
"""What librdkafka says of brokers that accept a connection and refuse the client, and what to do about it."""

_NOT_PERMITTED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}

Needs: TypeAlias = str | Mapping[int, str]
"""The permission that a request needs, such as ``Describe on group my-app``; or one for each code of an error."""

Answer = TypeVar("Answer")


def call_with_retry(
    request: Callable[[float], Answer],
    subject: str,
    brokers: Brokers,
    seconds: float,
    *,
    needs: Needs = "",
    reopen: Callable[[], None] = lambda: None,
) -> Answer:
    """Call ``request``, and call it again while the cluster elects a leader or loads a coordinator.

    It is also called again when a connection broke while the brokers accept connections.

    Args:
        request: Is given the seconds that are left, and raises ``KafkaException`` or ``TimeoutError``.
        subject: What is asked for, for the error.
        brokers: The brokers that are asked, for the error.
        seconds: The deadline of all calls together.
        needs: The permission that the request needs, for the error.
        reopen: Replaces the client that ``request`` uses.

    Raises:
        BrokersUnavailable: There was no answer by the deadline, or an error that does not pass by itself.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return request(max(deadline - time.monotonic(), 0.1))
        except (KafkaException, TimeoutError) as error:
            if not _is_transient(error, brokers) or time.monotonic() > deadline:
                raise_unavailable(error, subject, brokers, seconds, needs=needs)
            if error_code(error) in _STALE:
                reopen()
        time.sleep(_RETRY_SECONDS)


def _is_transient(error: BaseException, brokers: Brokers) -> bool:
    code = error_code(error)
    return code in _TRANSIENT or (code == KafkaError._TRANSPORT and _any_accepts(map(_probe, brokers.addresses)))


def error_code(error: BaseException) -> int | None:
    """Return the ``KafkaError`` code of an exception, or None for an exception that is not Kafka's."""
    return int(error.args[0].code()) if isinstance(error, KafkaException) else None


_FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError._FATAL}


def is_fenced(error: BaseException) -> bool:
    """Tell whether a newer producer has taken the transactional id of this one, which may write no more.

    The producer learns it from whichever broker it talks to first. After that librdkafka answers each call with a
    fatal error.
    """
    return error_code(error) in _FENCED


def is_not_permitted(error: BaseException) -> bool:
    """Whether the brokers know the user and do not permit what was asked for."""
    return error_code(error) in _NOT_PERMITTED


def missing_acl(error: BaseException, brokers: Brokers, needs: Needs) -> str:
    """Return the ACL that is missing: principal, operation and resource.

    Args:
        error: The error of which :func:`is_not_permitted` is true.
        brokers: How the client connects, which tells the principal.
        needs: The permission that the request needs.
    """
    needed = needs if isinstance(needs, str) else needs.get(error_code(error) or 0, "")
    return f"The brokers know {brokers.principal} and do not permit it. Allow it {needed or 'this operation'}."


def raise_unavailable(
    error: BaseException, subject: str, brokers: Brokers, seconds: float, *, needs: Needs = ""
) -> Never:
    """Raise :class:`BrokersUnavailable` for a client's error.

    It says what each address answers to a plain connection, and why the brokers let no client in.

    Args:
        error: The client's error.
        subject: What was asked for.
        seconds: The deadline.
        needs: The permission that the request needs.
    """
    answers = [_probe(address) for address in brokers.addresses]
    observed, remedy = f"{_reason(error)} ({'; '.join(answers)})", _REMEDY
    if is_not_permitted(error):
        remedy = missing_acl(error, brokers, needs)
    elif _any_accepts(answers) and (refusal := _refusal(brokers)) is not None:
        observed, remedy = f"{observed}: {refusal[0]}", refusal[1]
    raise BrokersUnavailable(
        f"Kafka at {brokers}, asked for {subject}",
        expected=f"an answer within {seconds:g} s",
        observed=observed,
        remedy=remedy,
    ) from error


def _refusal(brokers: Brokers) -> tuple[str, str] | None:
    """Connect once more, and return why the brokers let no client in, and what to do.

    librdkafka tells this to a callback, and a closed connection to its log alone. A request itself only runs into its
    deadline.
    """
    said: list[str] = []
    log = logging.Logger("librdkafka")
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    log.addHandler(handler)
    configs = {**brokers.client_configs(), "log_level": 6, "error_cb": lambda error: said.append(error.str())}
    client = Producer(configs, logger=log)
    with suppress(KafkaException):
        client.list_topics(timeout=_REFUSAL_SECONDS)
    client.poll(0)
    texts = list(dict.fromkeys(said))
    return next(((text, remedy) for word, remedy in _REFUSALS for text in texts if word in text), None)


def require_reachable(brokers: Brokers) -> None:
    """Raise :class:`BrokersUnavailable` at once when no address accepts a connection.

    A client would try until its deadline.
    """
    answers = [_probe(address) for address in brokers.addresses]
    if not _any_accepts(answers):
        raise BrokersUnavailable(
            f"Kafka at {brokers}",
            expected="a broker that accepts connections",
            observed="; ".join(answers),
            remedy=_REMEDY,
        )


def _any_accepts(answers: Iterable[str]) -> bool:
    return any(answer.endswith(_ACCEPTS) for answer in answers)


def _reason(error: BaseException) -> str:
    if isinstance(error, KafkaException):
        return str(error.args[0].str())
    return str(error) or "none"


def _probe(address: str) -> str:
    """Open a TCP connection to one bootstrap address and describe what happens."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not host:
        host, port = port, _DEFAULT_PORT
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _PROBE_SECONDS):
            return f"{host}:{port} {_ACCEPTS}"
    except (OSError, ValueError, OverflowError) as error:
        return f"{host}:{port}: {getattr(error, 'strerror', None) or error}"
