"""The HTTP service: who may ask, and how answers are sent.

It is the server of the standard library, because the package without Airflow has no other one, and because the service
is small: it takes GET and HEAD, reads no bodies and no files, and answers JSON. A reverse proxy adds TLS.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import BoundedSemaphore, Lock, Thread
from typing import Any

from streamplan.errors import Refused, StreamplanError
from streamplan.queries.answers import Answer, Answers, told
from streamplan.queries.metrics import exposition
from streamplan.queries.queries import Queries
from streamplan.serdes.reason import text_of

LEAST_TOKEN = 16
"""The least number of characters of a token."""

MOST_CONNECTIONS = 256
"""A thread serves each connection. Further ones are answered 503."""

_POLL_SECONDS = 0.1
"""How often the server looks whether it is to end."""

_IDLE_SECONDS = 60.0
"""A connection without a request is closed after so long."""

_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


class Service:
    """Listens at an address, and answers with what is in the stores.

    Args:
        host: The address to listen at.
        port: The port; 0 for any free one.
        tokens: Who asks has one of these; none for everybody on this machine.

    Raises:
        Refused: The port is not free, or others than this machine could ask without a token.
    """

    def __init__(self, host: str, port: int, tokens: Sequence[str] = ()) -> None:
        if not tokens and not _is_loopback(host):
            raise Refused(
                f"--host {host}",
                expected="a loopback address, such as 127.0.0.1, where there is no token",
                observed="an address that other machines reach",
                remedy="Give --token-file FILE: whoever asks then needs the token.",
            )
        try:
            self._server = _Server(host, port, tokens)
        except OSError as error:
            raise Refused(
                f"{host}:{port}", expected="a free port", observed=str(error), remedy="Give another one with --port."
            ) from error
        self._thread: Thread | None = None

    @property
    def url(self) -> str:
        """The address of the service."""
        host, port = str(self._server.server_address[0]), self._server.server_port
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def start(self, queries: Queries) -> None:
        """Begin to answer, by threads."""
        self._server.answers, self._server.queries = Answers(queries), queries
        self._server.server_activate()
        self._thread = Thread(target=self._server.serve_forever, args=(_POLL_SECONDS,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it. Answers that are being sent are sent to their end, within a second."""
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


def read_tokens(file: Path) -> list[str]:
    """Return the tokens of a file: one on each line, so that a new one can stand beside the old one.

    Raises:
        Refused: The file cannot be read, has no token, or has a short one.
    """
    try:
        tokens = [line.strip() for line in file.read_text().splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise Refused(f"--token-file {file}", expected="a readable file", observed=str(error)) from error
    if not tokens or any(len(token) < LEAST_TOKEN or not token.isascii() or " " in token for token in tokens):
        raise Refused(
            f"--token-file {file}",
            expected=f"a token on each line, of {LEAST_TOKEN} or more ASCII characters without spaces",
            observed="a line that is none" if tokens else "no token",
            remedy="Make one: python -c 'import secrets; print(secrets.token_urlsafe(32))'",
        )
    return tokens


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    answers: Answers
    queries: Queries

    def __init__(self, host: str, port: int, tokens: Sequence[str]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.tokens = [token.encode() for token in tokens]
        self.hosts = {*_LOCAL_HOSTS, host}
        self.statuses: Counter[int] = Counter()
        self.lock = Lock()
        self._free = BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__((host, port), _Handler, bind_and_activate=False)
        try:
            self.server_bind()  # it listens when the stores are read
        except BaseException:
            self.server_close()
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            request.sendall(
                b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            )
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # the machine has no thread for it
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that goes away is no fault of the service."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "streamplan", ""
    timeout = _IDLE_SECONDS
    disable_nagle_algorithm = True
    wbufsize = -1  # the headers and the body go out at once

    def do_GET(self) -> None:
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # no body is read, and it would be taken for the next request
        if (refusal := self._refusal()) is not None:
            self._send(refusal)
        elif self.path == "/metrics":
            self._send_bytes(200, exposition(self.server.queries, self.server.statuses), "text/plain; version=0.0.4")
        else:
            self._send(self._answer())

    do_HEAD = do_GET

    def _answer(self) -> Answer:
        try:
            return self.server.answers.answer(self.path)
        except Exception as error:  # noqa: BLE001  # whatever a value of a store raises: the client is told
            fault = f"{type(error).__name__}: {text_of(error)}"
            return told(500, StreamplanError(f"path {self.path}", expected="an answer", observed=fault))

    def _not_allowed(self) -> None:
        self.close_connection = True  # the body was not read
        error = Refused(f"method {self.command}", expected="GET or HEAD", remedy="The service only answers questions.")
        self._send(told(405, error, {"Allow": "GET, HEAD"}))

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _not_allowed

    def _refusal(self) -> Answer | None:
        """Why the question is not answered; None where it is. Everybody may ask for the health."""
        if not self.server.tokens:
            host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
            if host.strip("[]") in self.server.hosts:
                return None
            # A page of another site could else give itself the address of this machine, and read with the browser.
            error = Refused(
                f"Host: {host}", expected="localhost, 127.0.0.1 or [::1]", remedy="Give the service a --token-file."
            )
            return told(403, error)
        if self.path == "/health":
            return None
        kind, _, given = self.headers.get("Authorization", "").partition(" ")
        matches = [hmac.compare_digest(given.strip().encode(), token) for token in self.server.tokens]
        if kind.lower() == "bearer" and any(matches):
            return None
        error = Refused(
            "the header Authorization",
            expected="Bearer and a token of the service",
            observed="another one" if given else "none",
            remedy="Ask whoever runs the service for the token.",
        )
        return told(401, error, {"WWW-Authenticate": "Bearer"})

    def _send(self, answer: Answer) -> None:
        body = json.dumps(answer.body, default=str, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
        self._send_bytes(answer.status, body, "application/json", answer.headers)

    def _send_bytes(self, status: int, body: bytes, content_type: str, headers: Mapping[str, str] = {}) -> None:
        with self.server.lock:
            self.server.statuses[status] += 1
        self.send_response(status)
        for name, value in {
            "Content-Type": content_type,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            **({"Connection": "close"} if self.close_connection else {}),
            **headers,
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that is no HTTP, in JSON as all errors."""
        self.close_connection = True
        self.command = getattr(self, "command", None) or "GET"
        self._send(told(int(code), Refused("the request", expected="HTTP", observed=message or "something else")))

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing: the metrics count the answers."""
