"""The HTTP service on a loopback address."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from streamplan.errors import Refused
from streamplan.model.partitioner import partition_for_key
from streamplan.queries import service as services
from streamplan.queries.service import Service, read_tokens
from streamplan.queries.store_form import ReadValues

from tests.support.queried import PARTITIONS, Queried

TOKEN = "a-token-of-some-length"

Start = Callable[..., http.client.HTTPConnection]


@pytest.fixture
def start() -> Iterator[Start]:
    services: list[Service] = []
    connections: list[http.client.HTTPConnection] = []

    def started(*tokens: str) -> http.client.HTTPConnection:
        queried = Queried()
        queried.count("totals", "ännä".encode(), 7, partition=partition_for_key("ännä".encode(), PARTITIONS))
        service = Service("127.0.0.1", 0, tokens)
        services.append(service)
        service.start(queried.open())
        connections.append(http.client.HTTPConnection(service.url.removeprefix("http://"), timeout=60))
        return connections[-1]

    yield started
    for connection in connections:
        connection.close()
    for service in services:
        service.close()


def ask(connection: http.client.HTTPConnection, path: str, method: str = "GET", **headers: str) -> tuple[int, Any]:
    connection.request(method, path, headers=headers)
    response = connection.getresponse()
    body = response.read()
    assert response.headers["Content-Type"] == "application/json"
    return response.status, json.loads(body) if body else None


def test_answers_come_over_one_connection(start: Start) -> None:
    connection = start()
    for _ in range(3):
        status, body = ask(connection, "/stores/totals/get?key=%C3%A4nn%C3%A4")
        assert (status, body["key"], body["value"]) == (200, "ännä", 7)
    assert ask(connection, "/health") == (200, {"status": "ok", "lag": 0})


def test_an_answer_without_its_body_is_head(start: Start) -> None:
    connection = start()
    assert ask(connection, "/health", "HEAD") == (200, None)
    assert ask(connection, "/health")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_written(start: Start, method: str) -> None:
    status, body = ask(start(), "/stores/totals/get?key=a", method)
    assert (status, body["expected"]) == (405, "GET or HEAD")


@pytest.mark.parametrize("authorization", ["", TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer ä" * 20])
def test_who_has_no_token_is_told_nothing(start: Start, authorization: str) -> None:
    headers = {"Authorization": authorization} if authorization else {}
    for path in ("/", "/stores/totals/get?key=a", "/metrics", "/health?", "/nothing"):
        status, body = ask(start("another-token-of-some-length", TOKEN), path, **headers)
        assert (status, body["subject"]) == (401, "the header Authorization")


def test_who_has_a_token_is_answered(start: Start) -> None:
    connection = start("another-token-of-some-length", TOKEN)
    assert ask(connection, "/stores/totals/all", Authorization=f"Bearer {TOKEN}")[0] == 200
    assert ask(connection, "/stores/totals/all", Authorization=f"bearer {TOKEN}", Host="streams.example")[0] == 200
    assert ask(connection, "/health") == (200, {"status": "ok", "lag": 0})


@pytest.mark.parametrize("host", ["attacker.example", "attacker.example:7070", "127.0.0.1.attacker.example", ""])
def test_a_page_of_another_site_cannot_give_itself_our_address(start: Start, host: str) -> None:
    """DNS rebinding: the browser then sends the name of the site as the host."""
    assert ask(start(), "/", Host=host)[0] == 403


@pytest.mark.parametrize("host", ["localhost", "localhost:7070", "127.0.0.1:1", "[::1]:7070"])
def test_the_names_of_this_machine_are_answered(start: Start, host: str) -> None:
    assert ask(start(), "/", Host=host)[0] == 200


def test_metrics(start: Start) -> None:
    connection = start()
    ask(connection, "/nothing")
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    partition = partition_for_key("ännä".encode(), PARTITIONS)
    labels = f'partition="{partition}",store="totals",topic="queried-totals-changelog"'
    assert f"streamplan_queries_entries{{{labels}}} 1.0" in lines
    assert f"streamplan_queries_position{{{labels}}} 1.0" in lines
    assert f"streamplan_queries_lag{{{labels}}} 0.0" in lines
    assert 'streamplan_queries_answers{status="404"} 1.0' in lines


def test_what_is_no_http_is_answered_in_json(start: Start) -> None:
    connection = start()
    with socket.create_connection((connection.host, connection.port or 0), 60) as raw:
        raw.sendall(b"nonsense\r\n\r\n")
        answer = b"".join(iter(lambda: raw.recv(65536), b""))
    assert b'"subject": "the request"' in answer


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("http://[1/stores", 400),
        ("/stores//[1", 404),
        ("/?" + "&".join(map(str, range(30))), 400),
        ("/stores/../..", 404),
    ],
)
def test_every_question_is_answered(start: Start, target: str, status: int) -> None:
    connection = start()
    connection.putrequest("GET", target, skip_host=True)
    connection.putheader("Host", "localhost")
    connection.endheaders()
    response = connection.getresponse()
    assert (response.status, "error" in json.loads(response.read())) == (status, True)


@pytest.mark.parametrize(
    "body", ["Content-Length: {length}\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n{length:x}\r\n"]
)
def test_a_body_is_not_taken_for_the_next_request(start: Start, body: str) -> None:
    """Behind a proxy, somebody else's question would be answered with it."""
    connection = start()
    hidden = "GET /stores HTTP/1.1\r\nHost: localhost\r\n\r\n"
    request = f"GET /health HTTP/1.1\r\nHost: localhost\r\n{body.format(length=len(hidden))}{hidden}"
    with socket.create_connection((connection.host, connection.port or 0), 60) as raw:
        raw.sendall(request.encode())
        answer = b"".join(iter(lambda: raw.recv(65536), b""))
    assert answer.count(b"HTTP/1.1 ") == answer.count(b"Connection: close\r\n") == 1
    assert answer.endswith(b'{"status": "ok", "lag": 0}\n')


def test_connections_without_a_thread_leave_their_place_to_others(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "MOST_CONNECTIONS", 2)
    connection = start()
    with monkeypatch.context() as patched:
        patched.setattr(services.ThreadingHTTPServer, "process_request", no_thread)
        for _ in range(5):
            with socket.create_connection((connection.host, connection.port or 0), 60) as raw:
                assert raw.recv(100) == b""
    assert ask(connection, "/health")[0] == 200


def no_thread(*_: Any) -> None:
    raise RuntimeError("can't start new thread")


def test_what_nobody_expects_is_answered_500_and_the_next_question_as_ever(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise RecursionError("too \ud800 deep")

    connection = start()
    with monkeypatch.context() as patched:
        patched.setattr(ReadValues, "value", fail)
        status, body = ask(connection, "/stores/totals/get?key=%C3%A4nn%C3%A4")
        assert (status, body["observed"]) == (500, "RecursionError: too \\ud800 deep")
    assert ask(connection, "/stores/totals/get?key=%C3%A4nn%C3%A4")[0] == 200


def test_another_address_is_refused_without_a_token() -> None:
    with pytest.raises(Refused, match=r"--host 0.0.0.0: expected a loopback address.*--token-file"):
        Service("0.0.0.0", 0)
    with pytest.raises(Refused):
        Service("streams.example", 0)
    for host in ("127.0.0.2", "localhost"):
        Service(host, 0).close()
    Service("0.0.0.0", 0, [TOKEN]).close()


def test_a_port_that_is_not_free_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Refused, match=f"127.0.0.1:{port}: expected a free port"):
            Service("127.0.0.1", port)


def test_tokens_are_read_of_lines(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"{TOKEN}\n\n  another-token-of-some-length \n")
    assert read_tokens(file) == [TOKEN, "another-token-of-some-length"]
    for content in ("", "short\n", f"{TOKEN} {TOKEN}", f"{TOKEN}ä"):
        file.write_text(content)
        with pytest.raises(Refused, match="expected a token on each line, of 16 or more"):
            read_tokens(file)
    with pytest.raises(Refused, match="expected a readable file"):
        read_tokens(tmp_path / "none")
