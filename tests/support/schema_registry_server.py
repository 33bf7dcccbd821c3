"""A small HTTP server of the tests that follows the published REST interface of Confluent's Schema Registry.

It is no registry: it does not read schemas, and knows no compatibility. Source of paths, bodies and error codes:
https://docs.confluent.io/platform/current/schema-registry/develop/api.html
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from confluent_kafka.schema_registry import SchemaRegistryClient

USER, PASSWORD = "streams", "r3gistry-s3cret"

_WRONG: tuple[int, dict[str, Any]] = (401, {"error_code": 401, "message": "Unauthorized"})
_PATH_OF_VERSION = re.compile(r"/subjects/([^/]+)/versions/([^/]+)")


@dataclass
class SchemaRegistryServer:
    """What the server holds, and how it behaves.

    ``answers_with``  a status that it answers every question with, such as 503; None for an answer
    ``away_from``  the first id of those schemas for which it answers 503
    ``takes_schemas``  whether a schema may be registered; else it is answered that it is incompatible
    ``asked``  the paths that were asked for
    """

    url: str = ""
    schemas: list[dict[str, Any]] = field(default_factory=list)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    answers_with: int | None = None
    away_from: int | None = None
    takes_schemas: bool = True
    asked: list[str] = field(default_factory=list)

    @property
    def properties(self) -> Mapping[str, str]:
        """The client properties to connect with."""
        return {"schema.registry.url": self.url, "basic.auth.user.info": f"{USER}:{PASSWORD}"}

    def client(self) -> SchemaRegistryClient:
        """Confluent's client of it, which asks once."""
        return SchemaRegistryClient({"url": self.url, "basic.auth.user.info": f"{USER}:{PASSWORD}", "max.retries": 0})

    def add(self, subject: str, schema: str, references: tuple[dict[str, Any], ...] = (), kind: str = "AVRO") -> int:
        """Register a schema, and return its id."""
        body: dict[str, Any] = {"schema": schema}
        if references:
            body["references"] = list(references)
        if kind != "AVRO":
            body["schemaType"] = kind
        if body not in self.schemas:
            self.schemas.append(body)
        schema_id = self.schemas.index(body) + 1
        versions = self.subjects.setdefault(subject, [])
        if schema_id not in versions:
            versions.append(schema_id)
        return schema_id

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """Answer a question that is allowed to be asked."""
        self.asked.append(f"{method} {path}")
        if self.answers_with is not None:
            return self.answers_with, {"error_code": self.answers_with * 100 + 1, "message": "away"}
        if method == "GET" and path.startswith("/schemas/ids/"):
            schema_id = int(path.rpartition("/")[2])
            if self.away_from is not None and schema_id >= self.away_from:
                return 503, {"error_code": 50301, "message": "away"}
            if not 1 <= schema_id <= len(self.schemas):
                return 404, {"error_code": 40403, "message": f"Schema {schema_id} not found"}
            return 200, self.schemas[schema_id - 1]
        if found := _PATH_OF_VERSION.fullmatch(path):
            return self._version(unquote(found[1]), found[2])
        if method == "POST" and path.endswith("/versions"):
            if not self.takes_schemas:
                return 409, {
                    "error_code": 409,
                    "message": "Schema being registered is incompatible with an earlier one",
                }
            subject = unquote(path.split("/")[2])
            references = tuple(body.get("references") or ())
            return 200, {"id": self.add(subject, body["schema"], references, body.get("schemaType") or "AVRO")}
        if method == "POST":
            return self._look_up(unquote(path.split("/")[2]), body)
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _version(self, subject: str, version: str) -> tuple[int, Any]:
        versions = self.subjects.get(subject, [])
        if not versions:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        number = len(versions) if version == "latest" else int(version)
        schema_id = versions[number - 1]
        return 200, {"subject": subject, "version": number, "id": schema_id, **self.schemas[schema_id - 1]}

    def _look_up(self, subject: str, body: Any) -> tuple[int, Any]:
        for version, schema_id in enumerate(self.subjects.get(subject, []), 1):
            if self.schemas[schema_id - 1]["schema"] == body["schema"]:
                return 200, {"subject": subject, "version": version, "id": schema_id, "schema": body["schema"]}
        return 404, {"error_code": 40403, "message": "Schema not found"}


@contextmanager
def schema_registry() -> Iterator[SchemaRegistryServer]:
    """Run the server on the loopback address."""
    state = SchemaRegistryServer()
    expected = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._reply()

        def do_POST(self) -> None:
            self._reply()

        def _reply(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            allowed = self.headers.get("Authorization") == expected
            path = urlsplit(self.path).path
            status, content = state.answer(self.command, path, json.loads(body or b"null")) if allowed else _WRONG
            data = content.encode() if isinstance(content, str) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
